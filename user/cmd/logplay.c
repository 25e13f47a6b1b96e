// SPDX-License-Identifier: GPL-2.0-only
/*
 * logplay.c - tarnfs logplay: applies what the master has committed since the
 * last time, and publishes how far this host is.
 */
#define _GNU_SOURCE
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"

static void usage(void)
{
	printf("Usage: tarnfs logplay [-q] DIR\n"
	       "Applies what the master has committed since, so that new files appear here.\n"
	       "DIR is the mount, or anything on it.\n"
	       "\n"
	       "  -q, --quiet   print nothing but errors\n"
	       "  -h, --help\n"
	       "\n"
	       "Exit status: 0 up to date, 1 not, 2 wrong usage.\n");
}

static int play(const char *path, bool quiet)
{
	struct tarn_media_range own[2];
	struct tarn_err err = { "" };
	struct tarn_session s;
	int64_t applied;
	int ret;

	ret = tarn_session_open(&s, path, 0, &err);
	if (ret) {
		complain_err(&err, ret, NULL);
		return ret;
	}
	if (!s.claim.nonce) {
		complain("%s: it was mounted without mount.tarnfs, so no host page is known: umount "
			 "it, then mount -t tarnfs", shown(path));
		ret = -1;
		goto out;
	}
	host_page_ranges(&s.sb, s.claim.page, own);
	ret = tarn_session_writable(&s, own, 2, &err);
	if (!ret) {
		applied = replay_to_end(&s, &err);
		ret = applied < 0 ? (int)applied : publish_status(&s, &err);
	}
	if (ret) {
		complain_err(&err, ret, shown(path));
		goto out;
	}
	if (!quiet && applied)
		printf("%lld %s applied: generation %llu of host page %u, seq %llu\n",
		       (long long)applied, applied == 1 ? "record" : "records",
		       (unsigned long long)s.st.generation, s.st.log_host,
		       (unsigned long long)s.st.seq);
	else if (!quiet)
		printf("up to date: generation %llu of host page %u, seq %llu\n",
		       (unsigned long long)s.st.generation, s.st.log_host,
		       (unsigned long long)s.st.seq);
out:
	tarn_session_close(&s);
	return ret;
}

int cmd_logplay(int argc, char **argv)
{
	static const struct option longs[] = {
		{ "quiet", no_argument, NULL, 'q' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 }
	};
	bool quiet = false;
	int c;

	while ((c = getopt_long(argc, argv, "qh", longs, NULL)) != -1) {
		switch (c) {
		case 'q':
			quiet = true;
			break;
		case 'h':
			usage();
			return EXIT_OK;
		default:
			complain_usage();
			return EXIT_USAGE;
		}
	}
	if (argc - optind != 1) {
		complain("one directory is needed");
		complain_usage();
		return EXIT_USAGE;
	}
	return play(argv[optind], quiet) ? EXIT_FAILED : EXIT_OK;
}
