// SPDX-License-Identifier: GPL-2.0-only
/*
 * ln.c - tarnfs ln -s: one symbolic link.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "commands.h"

static void usage(void)
{
	printf("Usage: tarnfs ln -s TARGET LINK\n"
	       "Creates the symbolic link LINK; in LINK when that is a directory, named like\n"
	       "TARGET's last component.\n"
	       "\n"
	       "  -s, --symbolic   needed: there are no hard links\n"
	       "  -h, --help\n"
	       "\n"
	       "Exit status: 0 created, 1 not created, 2 wrong usage.\n");
}

static int make_link(struct tarn_session *s, const char *target, const char *path)
{
	struct tarn_reservation r = { .set = -1 };
	struct place place = { 0 };
	struct tarn_new n = { 0 };
	struct tarn_err err = { "" };
	struct timespec now;
	int ret;

	ret = refuse_slash(path);
	if (!ret)
		ret = find_place(s, path, &place);
	if (ret)
		goto out;
	clock_gettime(CLOCK_REALTIME, &now);
	n.item.type = TARNFS_TYPE_SYMLINK;
	n.parent = place.parent;
	n.name = place.name;
	n.path = path;
	n.target = target;
	n.mtime_sec = now.tv_sec;
	n.mtime_nsec = (uint32_t)now.tv_nsec;
	n.uid = geteuid();
	n.gid = getegid();
	n.mode = 0777;
	ret = tarn_log_room(s, &n, 1, &err);
	if (!ret)
		ret = tarn_reserve_files(s, &r, &n, 1, &err);
	if (!ret)
		ret = tarn_commit(s, &r, &err);
	if (ret)
		complain_err(&err, ret, NULL);
	tarn_reservation_drop(s, &r);
out:
	free_place(&place);
	return ret;
}

int cmd_ln(int argc, char **argv)
{
	static const struct option longs[] = {
		{ "symbolic", no_argument, NULL, 's' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 }
	};
	const char *target;
	struct tarn_session s;
	bool symbolic = false;
	struct stat st;
	char *path;
	int c, ret;

	while ((c = getopt_long(argc, argv, "sh", longs, NULL)) != -1) {
		switch (c) {
		case 's':
			symbolic = true;
			break;
		case 'h':
			usage();
			return EXIT_OK;
		default:
			complain_usage();
			return EXIT_USAGE;
		}
	}
	if (argc - optind != 2) {
		complain("a target and the name of a link are needed");
		complain_usage();
		return EXIT_USAGE;
	}
	if (!symbolic) {
		complain("hard links do not exist in a tarnfs: use -s");
		return EXIT_USAGE;
	}
	target = argv[optind];
	if (!*target || strlen(target) > TARNFS_TARGET_MAX) {
		complain("the target has %zu bytes: 1 to %u are possible", strlen(target),
			 TARNFS_TARGET_MAX);
		return EXIT_USAGE;
	}
	if (open_master(&s, argv[optind + 1]))
		return EXIT_FAILED;
	/* after the replay: what the master has committed counts */
	if (stat(argv[optind + 1], &st) == 0 && S_ISDIR(st.st_mode)) {
		char *copy = must_alloc(strdup(target));

		path = must_format("%s/%s", argv[optind + 1], basename(copy));
		free(copy);
	} else {
		path = must_alloc(strdup(argv[optind + 1]));
	}
	ret = make_link(&s, target, path);
	free(path);
	tarn_session_close(&s);
	return ret ? EXIT_FAILED : EXIT_OK;
}
