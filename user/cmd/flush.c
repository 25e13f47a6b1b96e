// SPDX-License-Identifier: GPL-2.0-only
/*
 * flush.c - tarnfs flush: what this host has stored into files goes to memory,
 * and what it has cached of them is dropped, so that the next load comes from
 * memory: the two calls of Documentation/coherence.rst, for those who have a
 * shell alone.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <string.h>
#include <unistd.h>

#include "commands.h"
#include "extent.h"

static void usage(void)
{
	printf("Usage: tarnfs flush [-v] FILE...\n"
	       "Writes back what this host has stored into the files (fsync), then drops what it has\n"
	       "cached of them (posix_fadvise DONTNEED): the next load comes from memory.\n"
	       "\n"
	       "  -v, --verbose  print each file that was flushed\n"
	       "  -h, --help\n"
	       "\n"
	       "Exit status: 0 all flushed, 1 not all, 2 wrong usage.\n");
}

static int flush_one(const char *path)
{
	const char *what = "fsync";
	struct stat st;
	int ret, fd = open_regular(path, true, &st);
	uint64_t at;

	if (fd < 0)
		return fd;
	ret = fsync(fd) ? errno : 0;
	if (!ret) {
		what = "fadvise";
		ret = posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	}
	if (ret == EIO && file_first_bad_now(fd, 0, &at))
		complain("%s: %s: %s: memory has failed at byte %llu%s (tarnfs status lists all that has)",
			 shown(path), what, strerror(ret), (unsigned long long)at,
			 device_offset_text(fd, at));
	else if (ret)
		complain("%s: %s: %s", shown(path), what, strerror(ret));
	close(fd);
	return -ret;
}

int cmd_flush(int argc, char **argv)
{
	static const struct option longs[] = {
		{ "verbose", no_argument, NULL, 'v' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 }
	};
	int c, code = EXIT_OK;
	bool verbose = false;

	while ((c = getopt_long(argc, argv, "vh", longs, NULL)) != -1) {
		switch (c) {
		case 'v':
			verbose = true;
			break;
		case 'h':
			usage();
			return EXIT_OK;
		default:
			complain_usage();
			return EXIT_USAGE;
		}
	}
	if (optind == argc) {
		complain("no file was named");
		complain_usage();
		return EXIT_USAGE;
	}
	for (; optind < argc; optind++) {
		if (flush_one(argv[optind]))
			code = EXIT_FAILED;
		else if (verbose)
			printf("%s\n", shown(argv[optind]));
	}
	return code;
}
