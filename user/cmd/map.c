// SPDX-License-Identifier: GPL-2.0-only
/*
 * map.c - tarnfs map: where files are on the device, and how much of each can
 * be mapped 2 MiB at a time.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <string.h>
#include <unistd.h>

#include "commands.h"
#include "extent.h"

static void usage(void)
{
	printf("Usage: tarnfs map FILE...\n"
	       "Prints a line a file: bytes, bytes of its extent, offset of that on the device (- for\n"
	       "an empty file), how many pieces of 2 MiB can be mapped by one entry each, path.\n"
	       "\n"
	       "  -h, --help\n"
	       "\n"
	       "Exit status: 0 all printed, 1 not all, 2 wrong usage.\n");
}

/* Pieces that one fault maps whole: they begin at 2 MiB boundaries of file and device at once. */
static uint64_t huge_pieces(uint64_t off, uint64_t len)
{
	return off % TARNFS_HUGE ? 0 : len / TARNFS_HUGE;
}

static int map_one(const char *path)
{
	static bool begun;
	uint64_t off, len;
	struct stat st;
	int ret, fd = open_regular(path, true, &st);

	if (fd < 0)
		return fd;
	ret = file_extent(fd, &off, &len);
	close(fd);
	if (ret) {
		complain("%s: FIEMAP: %s", shown(path), ret == -EUCLEAN ?
			 "not the one extent that a file of a tarnfs has" : strerror(-ret));
		return ret;
	}
	if (!begun)
		printf("# size extent offset 2MiB path\n");
	begun = true;
	printf("%llu %llu ", (unsigned long long)st.st_size, (unsigned long long)len);
	if (len)
		printf("%llu", (unsigned long long)off);
	else
		putchar('-');
	printf(" %llu %s\n", (unsigned long long)huge_pieces(off, len), shown(path));
	return 0;
}

int cmd_map(int argc, char **argv)
{
	static const struct option longs[] = {
		{ "help", no_argument, NULL, 'h' },
		{ 0 }
	};
	int c, code = EXIT_OK;

	while ((c = getopt_long(argc, argv, "h", longs, NULL)) != -1) {
		switch (c) {
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
	for (; optind < argc && !ferror(stdout); optind++)
		if (map_one(argv[optind]))
			code = EXIT_FAILED;
	return code;
}
