// SPDX-License-Identifier: GPL-2.0-only
/*
 * mkdir.c - tarnfs mkdir: each directory named on the command line, with the
 * missing ones above it under -p, is one commit.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "commands.h"

#define DEPTH_MAX 2048		/* components in a path: PATH_MAX 4096 holds no more */

struct options {
	bool parents, mode_given;
	uint16_t mode;
};

static void usage(void)
{
	printf("Usage: tarnfs mkdir [-p] [-m MODE] DIR...\n"
	       "Creates directories.\n"
	       "\n"
	       "  -p, --parents    create missing directories above it too (0777 less the umask);\n"
	       "                   a directory that exists is no error\n"
	       "  -m, --mode MODE  octal, not changed by the umask (0777 less the umask)\n"
	       "  -h, --help\n"
	       "\n"
	       "Exit status: 0 done, 1 at least one was not created, 2 wrong usage.\n");
}

/*
 * Lists the directories to create for path into news, outermost first.
 * Returns how many (0: it exists, and -p was given), or a negative errno.
 */
static int list_missing(struct tarn_session *s, const struct options *o, const char *path,
			struct tarn_new *news)
{
	char *at = must_alloc(strdup(path)), *names[DEPTH_MAX], *parent;
	struct timespec now;
	struct stat st;
	mode_t mask;
	int depth = 0, ret = 0, i;

	while (stat(at, &st)) {
		ret = -errno;
		if (ret == -ENOENT && lstat(at, &st) == 0) {
			complain("%s: cannot create directory %s: a symbolic link that leads nowhere "
				 "has that name", shown(path), shown(at));
			ret = -EEXIST;
			goto out;
		}
		if (ret == -ENAMETOOLONG) {
			complain_too_long(path);
			goto out;
		}
		if (ret != -ENOENT || depth == DEPTH_MAX || (depth && !o->parents)) {
			complain("%s: %s: %s%s", shown(path), shown(at), strerror(-ret),
				 depth && !o->parents ? "; -p creates it too" : "");
			goto out;
		}
		ret = split_path(at, &parent, &names[depth]);
		if (ret) {
			complain("%s: %s leads nowhere yet, what stands before its last .. or . does not "
				 "exist: create that first, or name the directory without them",
				 shown(path), shown(at));
			goto out;
		}
		free(at);
		at = parent;
		depth++;
	}
	ret = 0;
	if (!S_ISDIR(st.st_mode)) {
		complain("%s: %s exists and is not a directory", shown(path), shown(at));
		ret = -ENOTDIR;
	} else if (!depth && !o->parents) {
		complain("%s: exists already", shown(path));
		ret = -EEXIST;
	} else if (st.st_dev != session_dev(s)) {
		complain("%s: is not on the tarnfs that the first directory is on: one file system a "
			 "command", shown(path));
		ret = -EXDEV;
	}
	if (ret)
		goto out;
	clock_gettime(CLOCK_REALTIME, &now);
	mask = umask(0);
	umask(mask);
	memset(news, 0, (size_t)depth * sizeof(*news));
	for (i = 0; i < depth; i++) {
		struct tarn_new *n = &news[i];

		n->item.type = TARNFS_TYPE_DIRECTORY;
		if (i == 0)
			n->parent = st.st_ino;
		else
			n->parent_index = (size_t)i - 1;
		n->name = names[depth - 1 - i];
		n->mtime_sec = now.tv_sec;
		n->mtime_nsec = (uint32_t)now.tv_nsec;
		n->uid = geteuid();
		n->gid = getegid();
		n->mode = i == depth - 1 ? o->mode : (uint16_t)(0777 & ~mask);
	}
	ret = depth;
out:
	for (i = 0; ret < 0 && i < depth; i++)
		free(names[i]);
	free(at);
	return ret;
}

static int make_one(struct tarn_session *s, const struct options *o, const char *path)
{
	struct tarn_new *news = must_alloc(calloc(DEPTH_MAX, sizeof(*news)));
	struct tarn_reservation r;
	struct tarn_err err;
	int ret, count, i, tries = 0;

	do {
		r = (struct tarn_reservation){ .set = -1 };
		err.text[0] = '\0';
		count = ret = list_missing(s, o, path, news);
		if (ret <= 0)
			break;
		ret = tarn_log_room(s, news, (size_t)count, &err);
		if (!ret)
			ret = tarn_reserve_files(s, &r, news, (size_t)count, &err);
		if (!ret)
			ret = tarn_commit(s, &r, &err);
		tarn_reservation_drop(s, &r);
		for (i = 0; i < count; i++)
			free((char *)news[i].name);
		/* somebody else made one of them at the same time: look again */
	} while (ret == -EEXIST && o->parents && ++tries < 100);
	if (ret && count > 0)
		complain_err(&err, ret, shown(path));
	free(news);
	return ret;
}

int cmd_mkdir(int argc, char **argv)
{
	static const struct option longs[] = {
		{ "parents", no_argument, NULL, 'p' },
		{ "mode", required_argument, NULL, 'm' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 }
	};
	struct options o = { 0 };
	struct tarn_session s;
	int c, code = EXIT_OK;

	while ((c = getopt_long(argc, argv, "pm:h", longs, NULL)) != -1) {
		switch (c) {
		case 'p':
			o.parents = true;
			break;
		case 'm':
			o.mode_given = true;
			if (!parse_mode(optarg, &o.mode))
				break;
			complain("--mode: '%s' is not an octal mode", shown(optarg));
			complain_usage();
			return EXIT_USAGE;
		case 'h':
			usage();
			return EXIT_OK;
		default:
			complain_usage();
			return EXIT_USAGE;
		}
	}
	if (optind == argc) {
		complain("no directory was given");
		complain_usage();
		return EXIT_USAGE;
	}
	if (!o.mode_given) {
		mode_t mask = umask(0);

		umask(mask);
		o.mode = (uint16_t)(0777 & ~mask);
	}
	if (open_master(&s, argv[optind]))
		return EXIT_FAILED;
	for (; optind < argc; optind++)
		if (make_one(&s, &o, argv[optind]) < 0)
			code = EXIT_FAILED;
	tarn_session_close(&s);
	return code;
}
