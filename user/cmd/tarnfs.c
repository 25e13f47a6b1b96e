// SPDX-License-Identifier: GPL-2.0-only
/*
 * tarnfs.c - the command table of tarnfs(8), and what its commands share.
 *
 * Exit codes: 0 done; 1 something failed, was refused or is not built yet;
 * 2 wrong usage.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "commands.h"

static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *summary;
} commands[] = {
	{ "check", cmd_check, "compare the mounted tree with the log" },
	{ "cp", cmd_cp, "copy files and trees into a tarnfs" },
	{ "creat", cmd_creat, "create files of a given size" },
	{ "device", cmd_device, "list DAX memory, attach a devdax to its driver, detach it" },
	{ "flush", cmd_flush, "write files back, and drop what is cached of them" },
	{ "ln", cmd_ln, "create a symbolic link" },
	{ "log", cmd_log, "print the log, record by record" },
	{ "logplay", cmd_logplay, "apply what the master has committed since" },
	{ "map", cmd_map, "print where files are on the device" },
	{ "mkdir", cmd_mkdir, "create directories" },
	{ "status", cmd_status, "print role, position, space and hosts" },
	{ "verify", cmd_verify, "check files made by creat --fill" },
	{ "version", cmd_version, "print versions of tools, module and media" },
};

/* Commands that the design has and this version has not: and what to do meanwhile. */
static const struct {
	const char *name, *instead;
} later[] = {
	{ "chmod", "the mode is given when a file is created (creat -m)" },
	{ "chown", "files belong to root" },
	{ "compact", "a full log needs a new mkfs.tarnfs" },
	{ "host", "mount -o host=N binds a host to a page" },
	{ "mv", "names stay as they were created" },
	{ "rm", "files stay until the next mkfs.tarnfs" },
	{ "rmdir", "directories stay until the next mkfs.tarnfs" },
	{ "takeover", "the master is the host whose page holds the log, after a reboot too" },
	{ "unlink", "files stay until the next mkfs.tarnfs" },
	{ "watch", "run 'tarnfs logplay DIR' when new files are expected" },
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void usage(FILE *f)
{
	size_t i;

	fprintf(f, "Usage: tarnfs COMMAND [options] ...\n"
		   "       tarnfs help [COMMAND] | --help | --version | --list-cmds\n"
		   "\n"
		   "Commands:\n");
	for (i = 0; i < COUNT(commands); i++)
		fprintf(f, "  %-9s %s\n", commands[i].name, commands[i].summary);
	fprintf(f, "\n"
		   "'tarnfs COMMAND --help' tells more. mkfs.tarnfs makes a file system; mount and\n"
		   "umount work as for any other.\n"
		   "Exit status: 0 done, 1 something failed, 2 wrong usage.\n");
}

static int run_command(int argc, char **argv)
{
	char *name;
	size_t i;

	for (i = 0; i < COUNT(commands); i++) {
		if (strcmp(argv[0], commands[i].name) != 0)
			continue;
		name = must_format("tarnfs %s", argv[0]);
		program_name(name);
		/* getopt's own messages begin with argv[0] */
		argv[0] = name;
		return commands[i].run(argc, argv);
	}
	for (i = 0; i < COUNT(later); i++) {
		if (strcmp(argv[0], later[i].name) != 0)
			continue;
		complain("%s is not built yet; %s", later[i].name, later[i].instead);
		return EXIT_FAILED;
	}
	if (strcmp(argv[0], "fsck") == 0) {
		complain("a check of a device is a program of its own, as for any file system: "
			 "fsck.tarnfs, or fsck -t tarnfs");
		return EXIT_USAGE;
	}
	if (strcmp(argv[0], "attach") == 0 || strcmp(argv[0], "detach") == 0) {
		complain("devices are a command of their own: tarnfs device %s", argv[0]);
		return EXIT_USAGE;
	}
	complain("there is no command '%s'", shown(argv[0]));
	complain_usage();
	return EXIT_USAGE;
}

static int run(int argc, char **argv)
{
	char *help[3];
	size_t i;

	if (argc < 2) {
		complain("which command?");
		complain_usage();
		return EXIT_USAGE;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
	    (strcmp(argv[1], "help") == 0 && argc == 2)) {
		usage(stdout);
		return EXIT_OK;
	}
	if (strcmp(argv[1], "help") == 0 && argc == 3) {
		help[0] = argv[2];
		help[1] = (char[]){ "--help" };
		help[2] = NULL;
		return run_command(2, help);
	}
	if (strcmp(argv[1], "--list-cmds") == 0) {
		for (i = 0; i < COUNT(commands); i++)
			puts(commands[i].name);
		return EXIT_OK;
	}
	if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
		printf("tarnfs %s\n", TARN_VERSION);
		return EXIT_OK;
	}
	if (argv[1][0] == '-' || strcmp(argv[1], "help") == 0) {
		complain(argv[1][0] == '-' ? "there is no option '%s' before the command" :
					     "%s takes one command", shown(argv[1]));
		complain_usage();
		return EXIT_USAGE;
	}
	return run_command(argc - 1, argv + 1);
}

/* ---- what commands share ---- */

int split_path(const char *path, char **parent, char **name)
{
	size_t end = strlen(path), start;

	while (end && path[end - 1] == '/')
		end--;
	start = end;
	while (start && path[start - 1] != '/')
		start--;
	*name = must_alloc(strndup(path + start, end - start));
	while (start > 1 && path[start - 1] == '/')
		start--;
	*parent = start ? must_alloc(strndup(path, start)) : must_alloc(strdup("."));
	if (!**name || strcmp(*name, ".") == 0 || strcmp(*name, "..") == 0) {
		free(*name);
		free(*parent);
		*name = *parent = NULL;
		return -EINVAL;
	}
	return 0;
}

void complain_too_long(const char *path)
{
	const char *at = path;
	size_t longest = 0, n;

	for (; *at; at += n + !!at[n]) {
		n = strcspn(at, "/");
		if (n > longest)
			longest = n;
	}
	if (longest > TARNFS_NAME_MAX)
		complain("%.64s...: a name in it has %zu bytes, and at most %d are possible",
			 shown(path), longest, TARNFS_NAME_MAX);
	else
		complain("%.64s...: a path of %zu bytes, and Linux takes at most %d: cd to a "
			 "directory on the way, and name the rest", shown(path), strlen(path),
			 PATH_MAX - 1);
}

/* path itself, or the nearest directory above it that exists: malloc()ed */
static char *existing_ancestor(const char *path)
{
	char *at = must_alloc(strdup(path)), *parent, *name;
	struct stat st;

	/* EUNATCH: a mount that serves no names yet; its root says why */
	while (stat(at, &st) && (errno == ENOENT || errno == ENOTDIR || errno == EUNATCH)) {
		if (split_path(at, &parent, &name)) {
			/* ".." behind what is missing: what stands before it is still on the mount */
			size_t end = strlen(at);

			while (end && at[end - 1] == '/')
				end--;
			while (end && at[end - 1] != '/')
				end--;
			if (!end)
				break;
			at[end > 1 ? end - 1 : end] = '\0';
			continue;
		}
		free(name);
		free(at);
		at = parent;
	}
	return at;
}

const char *host_text(struct tarn_session *s, uint16_t page)
{
	static char text[2][128];
	static unsigned int turn;
	char *out = text[turn++ % 2], node[sizeof(((struct tarnfs_info *)0)->node_name) + 1];
	struct tarn_err err = { "" };
	struct tarn_page p;

	if (tarn_page_read(s->media, &s->sb, page, &p, &err) == 0 && p.info.node_name[0]) {
		memcpy(node, p.info.node_name, sizeof(node) - 1);
		node[sizeof(node) - 1] = '\0';
		snprintf(out, sizeof(text[0]), "%u (node %.80s)", page, shown(node));
	} else {
		snprintf(out, sizeof(text[0]), "%u", page);
	}
	return out;
}

/* Why nothing can be created through this mount: the role, or the mount. */
static void explain_not_master(const char *path)
{
	struct tarn_err err = { "" };
	struct tarn_current cur;
	struct tarn_session s;
	int ret;

	ret = tarn_session_open(&s, path, 0, &err);
	if (!ret)
		ret = tarn_scan(s.media, &s.sb, &cur, NULL, &err);
	if (ret) {
		complain("%s: this host is not the master, and only the master creates (who it is "
			 "could not be read: %s)", shown(path), err.text);
		return;
	}
	if (!s.claim.nonce)
		complain("%s: was mounted without mount.tarnfs, so it has no host page and no names yet: "
			 "umount it, then mount -t tarnfs", shown(path));
	else if (cur.host == s.claim.page && s.st.state & TARNFS_ST_RDONLY)
		complain("%s is mounted read-only: mount -o remount,rw %s", shown(path), shown(path));
	else if (cur.sealed)
		complain("%s: a takeover is under way, so nobody creates at the moment; tarnfs status "
			 "%s shows when it is over", shown(path), shown(path));
	else
		complain("%s: this host (page %u) is a client, and only the master creates: run it on "
			 "host %s", shown(path), s.claim.page, host_text(&s, cur.host));
	tarn_session_close(&s);
}

int open_master(struct tarn_session *s, const char *path)
{
	char *ancestor = existing_ancestor(path);
	struct tarn_err err = { "" };
	int64_t applied;
	struct stat st;
	int ret;

	if (stat(ancestor, &st) && errno == ENAMETOOLONG) {
		complain_too_long(path);
		free(ancestor);
		return -ENAMETOOLONG;
	}
	ret = tarn_session_open(s, ancestor, TARN_OPEN_APPEND, &err);
	if (ret) {
		if (ret == -EROFS)
			explain_not_master(ancestor);
		else
			complain_err(&err, ret, NULL);
		free(ancestor);
		return ret;
	}
	applied = replay_to_end(s, &err);
	if (applied < 0) {
		ret = (int)applied;
		complain_err(&err, ret, shown(ancestor));
		tarn_session_close(s);
	}
	free(ancestor);
	return ret;
}

dev_t session_dev(struct tarn_session *s)
{
	struct stat st;

	return fstat(s->dirfd, &st) ? 0 : st.st_dev;
}

int find_place(struct tarn_session *s, const char *path, struct place *p)
{
	char *parent, *name;
	struct stat st;

	if (split_path(path, &parent, &name)) {
		complain("'%s' does not end in a name", shown(path));
		return -EINVAL;
	}
	free(p->name);
	p->name = name;
	if (p->parent_path && strcmp(p->parent_path, parent) == 0) {
		free(parent);
		return 0;
	}
	free(p->parent_path);
	p->parent_path = NULL;
	if (stat(parent, &st)) {
		int ret = -errno;

		if (ret == -ENAMETOOLONG)
			complain_too_long(path);
		else
			complain("%s: its directory %s: %s", shown(path), shown(parent),
				 strerror(-ret));
		free(parent);
		return ret;
	}
	if (!S_ISDIR(st.st_mode)) {
		complain("%s: %s is not a directory", shown(path), shown(parent));
		free(parent);
		return -ENOTDIR;
	}
	if (st.st_dev != session_dev(s)) {
		complain("%s is not on the tarnfs that the first name is on: one file system a "
			 "command", shown(path));
		free(parent);
		return -EXDEV;
	}
	p->parent_path = parent;
	p->parent = st.st_ino;
	return 0;
}

int refuse_slash(const char *path)
{
	size_t len = strlen(path);
	struct stat st;
	int ret;

	if (!len || path[len - 1] != '/')
		return 0;
	if (stat(path, &st) == 0) {
		complain("%s: exists already and is a directory", shown(path));
		return -EISDIR;
	}
	ret = -errno;
	if (ret == -ENOENT)
		complain("%s: no such directory", shown(path));
	else
		complain("%s: %s", shown(path), strerror(-ret));
	return ret;
}

void free_place(struct place *p)
{
	free(p->parent_path);
	free(p->name);
	memset(p, 0, sizeof(*p));
}

int main(int argc, char **argv)
{
	program_start("tarnfs");
	return program_end(run(argc, argv), EXIT_FAILED);
}
