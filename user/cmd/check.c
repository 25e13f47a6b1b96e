// SPDX-License-Identifier: GPL-2.0-only
/*
 * check.c - tarnfs check: is what this kernel shows what the log says? Every
 * name with all its attributes, link targets and extents; none missing, none
 * that the log does not have. The log counts up to the record that this host
 * has applied last.
 *
 * Memory: what the log says of each name. One descriptor is open on the way
 * down the tree, whatever its depth.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "commands.h"

/* How often it begins again because another process applied records meanwhile. */
#define TRIES 5

struct node {			/* a name as the log has it */
	uint64_t ino, parent, size, off, len;
	int64_t mtime_sec;
	uint32_t mtime_nsec, uid, gid;
	uint16_t mode, name_len, target_len;
	uint8_t type;
	bool seen;
	char *name;		/* the target stands behind it; neither ends with a NUL */
};

struct check {
	struct tarn_session s;
	uint64_t seq;		/* where the log ends for us */
	struct node *nodes;
	size_t count, room;
	dev_t dev;
	uint64_t compared, differences, cleared, max;
	char **listed;		/* the first of them */
	char *path;		/* of the directory that is looked at, with a slash at its end */
	size_t path_len;
};

static void usage(void)
{
	printf("Usage: tarnfs check [-m N] DIR\n"
	       "Compares the tree that this host shows with the log, as far as this host has\n"
	       "applied it: names, types, modes, owners, mtimes, sizes, link targets, inode numbers\n"
	       "and extents. DIR is the mount, or anything on it; all of the tree is compared.\n"
	       "\n"
	       "  -m, --max N   list the first N differences (20); all are counted\n"
	       "  -h, --help\n"
	       "\n"
	       "Exit status: 0 no difference, 1 there are some or it could not be compared, 2 wrong\n"
	       "usage.\n");
}

/* ---- differences ---- */

/* name NULL: of the directory itself */
static void differ(struct check *c, const char *name, size_t len, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

static void differ(struct check *c, const char *name, size_t len, const char *fmt, ...)
{
	char *text, *where, *whole;
	va_list ap;

	if (c->differences++ >= c->max)
		return;
	whole = must_format("%.*s%.*s", (int)c->path_len, c->path, (int)len, name ? name : "");
	where = printable(whole, strlen(whole));
	va_start(ap, fmt);
	if (vasprintf(&text, fmt, ap) < 0)
		text = NULL;
	va_end(ap);
	must_alloc(text);
	c->listed[c->differences - 1] = must_format("%s: %s", where, text);
	free(whole);
	free(where);
	free(text);
}

static void forget_differences(struct check *c)
{
	for (uint64_t i = 0; i < c->differences && i < c->max; i++)
		free(c->listed[i]);
	c->differences = c->compared = c->cleared = 0;
}

/* ---- what the log says ---- */

static int add_record(void *arg, const struct tarn_rec *rec)
{
	struct check *c = arg;
	struct node *n;

	/* names of records that this host has not applied are no business of ours */
	if (!(rec->flags & TARNFS_RECORD_CKPT) && rec->seq > c->seq)
		return 0;
	if (rec->type != TARNFS_REC_DIRECTORY && rec->type != TARNFS_REC_FILE &&
	    rec->type != TARNFS_REC_SYMLINK)
		return 0;
	if (c->count == c->room) {
		c->room = c->room ? 2 * c->room : 1024;
		c->nodes = must_alloc(reallocarray(c->nodes, c->room, sizeof(*c->nodes)));
	}
	n = &c->nodes[c->count++];
	*n = (struct node){
		.ino = rec->ino,
		.parent = rec->parent,
		.size = rec->size,
		.off = rec->ext_off,
		.len = rec->extents ? rec->ext_len : 0,
		.mtime_sec = rec->mtime_sec,
		.mtime_nsec = rec->mtime_nsec,
		.uid = rec->uid,
		.gid = rec->gid,
		.mode = rec->mode,
		.name_len = rec->name_len,
		.target_len = rec->target_len,
		.type = (uint8_t)rec->type,
		.name = must_alloc(malloc((size_t)rec->name_len + rec->target_len + 1)),
	};
	if (n->name_len)
		memcpy(n->name, rec->name, n->name_len);
	if (n->target_len)
		memcpy(n->name + n->name_len, rec->target, n->target_len);
	return 0;
}

static void forget_nodes(struct check *c)
{
	for (size_t i = 0; i < c->count; i++)
		free(c->nodes[i].name);
	c->count = 0;
}

/* The root first, which is its own parent and has no name; then by directory and name. */
static int by_name(const void *a, const void *b)
{
	const struct node *x = a, *y = b;
	size_t least = x->name_len < y->name_len ? x->name_len : y->name_len;
	int order;

	if (x->parent != y->parent)
		return x->parent < y->parent ? -1 : 1;
	order = memcmp(x->name, y->name, least);
	return order ? order : (int)x->name_len - (int)y->name_len;
}

/* The first node in the order that is not before (parent, name). */
static size_t place_of(const struct check *c, uint64_t parent, const char *name, size_t len)
{
	const struct node key = { .parent = parent, .name = (char *)name, .name_len = (uint16_t)len };
	size_t low = 0, high = c->count;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (by_name(&c->nodes[mid], &key) < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static int read_log(struct check *c, struct tarn_err *err)
{
	uint32_t pos = TARNFS_LOG_HEADER_UNITS;
	struct tarn_current cur;
	struct tarn_log log;
	int ret = c->s.kernel->ops->status(c->s.kernel, &c->s.st);

	if (ret)
		return tarn_fail(err, -ret, "STATUS: %s", strerror(-ret));
	c->seq = c->s.st.seq;
	ret = tarn_scan(c->s.media, &c->s.sb, &cur, NULL, err);
	if (ret)
		return ret;
	if (cur.generation != c->s.st.generation || cur.host != c->s.st.log_host)
		return tarn_fail(err, ESTALE,
				 "the log is now generation %llu of host page %u, and what is applied "
				 "here is %llu of %u: there is nothing to compare with; tarnfs logplay "
				 "follows it", (unsigned long long)cur.generation, cur.host,
				 (unsigned long long)c->s.st.generation, c->s.st.log_host);
	ret = tarn_log_open(&log, c->s.media, &c->s.sb, &cur, err);
	if (!ret)
		ret = tarn_log_walk(&log, c->s.media, &pos, add_record, c, err);
	if (ret)
		return ret;
	if (c->count)
		qsort(c->nodes, c->count, sizeof(*c->nodes), by_name);
	return 0;
}

/* ---- what the kernel shows ---- */

static const char *type_of_mode(mode_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFDIR:	return "directory";
	case S_IFREG:	return "file";
	case S_IFLNK:	return "symlink";
	default:	return "special file";
	}
}

static void compare_mode(struct check *c, const struct node *n, mode_t here)
{
	mode_t gone = n->mode & (S_ISUID | S_ISGID) & ~here;

	/* of a link the kernel shows 0777, and nobody ever asks what the log says */
	if (n->type == TARNFS_REC_SYMLINK || here == n->mode)
		return;
	/* a write without CAP_FSETID takes these bits, on this host, until it unmounts */
	if (n->type == TARNFS_REC_FILE && (here | gone) == n->mode)
		c->cleared++;
	else
		differ(c, n->name, n->name_len, "mode %04o, in the log %04o", here, n->mode);
}

static void compare_stat(struct check *c, const struct node *n, const struct stat *st)
{
	struct { const char *what; uint64_t log, here; } numbers[] = {
		{ "inode number", n->ino, st->st_ino },
		{ "owner", n->uid, st->st_uid },
		{ "group", n->gid, st->st_gid },
		{ "size", n->size, (uint64_t)st->st_size },
		{ "bytes of space", n->len, (uint64_t)st->st_blocks * 512 },
	};
	/* what those of directories and links are is the kernel's choice */
	size_t count = n->type == TARNFS_REC_FILE ? 5 : 3;

	for (size_t i = 0; i < count; i++)
		if (numbers[i].log != numbers[i].here)
			differ(c, n->name, n->name_len, "%s %llu, in the log %llu", numbers[i].what,
			       (unsigned long long)numbers[i].here,
			       (unsigned long long)numbers[i].log);
	compare_mode(c, n, st->st_mode & 07777);
	if (st->st_mtim.tv_sec != n->mtime_sec || (uint32_t)st->st_mtim.tv_nsec != n->mtime_nsec)
		differ(c, n->name, n->name_len, "mtime %lld.%09ld, in the log %lld.%09u",
		       (long long)st->st_mtim.tv_sec, st->st_mtim.tv_nsec, (long long)n->mtime_sec,
		       n->mtime_nsec);
}

static void compare_target(struct check *c, const struct node *n, int dir, const char *name)
{
	char target[PATH_MAX];
	ssize_t len = readlinkat(dir, name, target, sizeof(target));

	if (len < 0)
		differ(c, n->name, n->name_len, "readlink: %s", strerror(errno));
	else if ((size_t)len != n->target_len || memcmp(target, n->name + n->name_len, (size_t)len))
		differ(c, n->name, n->name_len, "leads elsewhere than in the log");
}

static void compare_extent(struct check *c, const struct node *n, int dir, const char *name)
{
	struct {
		struct fiemap map;
		struct fiemap_extent extent[2];
	} q = { .map = { .fm_length = FIEMAP_MAX_OFFSET, .fm_extent_count = 2 } };
	const struct fiemap_extent *e = q.map.fm_extents;
	int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0) {
		differ(c, n->name, n->name_len, "open: %s", strerror(errno));
		return;
	}
	if (ioctl(fd, FS_IOC_FIEMAP, &q.map))
		differ(c, n->name, n->name_len, "FIEMAP: %s", strerror(errno));
	else if (q.map.fm_mapped_extents != (n->len ? 1 : 0))
		differ(c, n->name, n->name_len, "%u extents, in the log %u",
		       q.map.fm_mapped_extents, n->len ? 1 : 0);
	else if (n->len && (e->fe_logical || e->fe_physical != n->off || e->fe_length != n->len))
		differ(c, n->name, n->name_len, "extent %llu+%llu, in the log %llu+%llu",
		       (unsigned long long)e->fe_physical, (unsigned long long)e->fe_length,
		       (unsigned long long)n->off, (unsigned long long)n->len);
	close(fd);
}

static void compare(struct check *c, struct node *n, int dir, const char *name)
{
	static const char *const types[] = {
		[TARNFS_REC_DIRECTORY] = "directory",
		[TARNFS_REC_FILE] = "file",
		[TARNFS_REC_SYMLINK] = "symlink",
	};
	struct stat st;

	n->seen = true;
	c->compared++;
	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW)) {
		differ(c, n->name, n->name_len, "%s", strerror(errno));
		return;
	}
	if (st.st_dev != c->dev) {
		differ(c, n->name, n->name_len, "something is mounted over it");
		return;
	}
	if (strcmp(type_of_mode(st.st_mode), types[n->type]) != 0) {
		differ(c, n->name, n->name_len, "a %s, in the log a %s", type_of_mode(st.st_mode),
		       types[n->type]);
		return;
	}
	compare_stat(c, n, &st);
	if (n->type == TARNFS_REC_SYMLINK)
		compare_target(c, n, dir, name);
	else if (n->type == TARNFS_REC_FILE)
		compare_extent(c, n, dir, name);
}

/* The directory's own list against the log; and each name is looked up besides. */
static int compare_names(struct check *c, int dir, uint64_t ino, struct tarn_err *err)
{
	size_t first = place_of(c, ino, "", 0), at;
	int copy = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), ret = 0;
	DIR *d = copy < 0 ? NULL : fdopendir(copy);
	struct dirent *e;

	if (!d) {
		ret = errno;
		if (copy >= 0)
			close(copy);
		differ(c, NULL, 0, "cannot be listed: %s", strerror(ret));
		return ret == ENOMEM || ret == EMFILE ? tarn_fail(err, ret, "%s", strerror(ret)) : 0;
	}
	for (errno = 0; (e = readdir(d)); errno = 0) {
		size_t len = strlen(e->d_name);

		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		at = place_of(c, ino, e->d_name, len);
		if (at == c->count || c->nodes[at].parent != ino || c->nodes[at].name_len != len ||
		    memcmp(c->nodes[at].name, e->d_name, len) != 0)
			differ(c, e->d_name, len, "not in the log");
		else if (c->nodes[at].seen)
			differ(c, e->d_name, len, "is listed twice");
		else
			compare(c, &c->nodes[at], dir, e->d_name);
	}
	if (errno)
		differ(c, NULL, 0, "cannot be listed: %s", strerror(errno));
	closedir(d);
	for (at = first; at < c->count && c->nodes[at].parent == ino; at++)
		if (!c->nodes[at].seen)
			differ(c, c->nodes[at].name, c->nodes[at].name_len, "missing here");
	return 0;
}

static void path_push(struct check *c, const struct node *n)
{
	c->path = must_alloc(realloc(c->path, c->path_len + n->name_len + 2));
	memcpy(c->path + c->path_len, n->name, n->name_len);
	c->path_len += n->name_len;
	c->path[c->path_len++] = '/';
	c->path[c->path_len] = '\0';
}

/* Replaces *fd by what opens from it. */
static int change_to(int *fd, const char *name)
{
	int next = openat(*fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (next < 0)
		return -errno;
	close(*fd);
	*fd = next;
	return 0;
}

static bool is_here(const struct check *c, int fd, uint64_t ino)
{
	struct stat st;

	return !fstat(fd, &st) && st.st_dev == c->dev && st.st_ino == ino;
}

struct level {			/* a directory on the way down, and the next to look at in it */
	uint64_t ino;
	size_t next, path_len;
};

/* fd: the root; it is closed. */
static int compare_tree(struct check *c, int fd, struct tarn_err *err)
{
	struct level *levels = must_alloc(malloc(64 * sizeof(*levels)));
	size_t depth = 1, room = 64;
	int ret = compare_names(c, fd, TARNFS_INO_ROOT, err);

	levels[0] = (struct level){ TARNFS_INO_ROOT, place_of(c, TARNFS_INO_ROOT, "", 0), c->path_len };
	while (!ret) {
		struct level *l = &levels[depth - 1];
		struct node *n = l->next < c->count ? &c->nodes[l->next] : NULL;
		char name[TARNFS_NAME_MAX + 1];

		c->path_len = l->path_len;
		c->path[c->path_len] = '\0';
		if (!n || n->parent != l->ino) {
			if (!--depth)
				break;
			ret = change_to(&fd, "..");
			if (ret || !is_here(c, fd, levels[depth - 1].ino))
				ret = tarn_fail(err, EBUSY, "%s: the way back up is another one: "
						"was something mounted meanwhile?", shown(c->path));
			continue;
		}
		l->next++;
		if (n->type != TARNFS_REC_DIRECTORY || n->ino == TARNFS_INO_ROOT || !n->seen)
			continue;
		memcpy(name, n->name, n->name_len);
		name[n->name_len] = '\0';
		/* what keeps it from being opened, or is mounted over it, is said already */
		{
			int sub = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

			if (sub < 0 || !is_here(c, sub, n->ino)) {
				if (sub >= 0)
					close(sub);
				differ(c, n->name, n->name_len, "what is in it was not compared");
				continue;
			}
			close(fd);
			fd = sub;
		}
		path_push(c, n);
		ret = compare_names(c, fd, n->ino, err);
		if (depth == room) {
			room *= 2;
			levels = must_alloc(reallocarray(levels, room, sizeof(*levels)));
		}
		levels[depth++] = (struct level){ n->ino, place_of(c, n->ino, "", 0), c->path_len };
	}
	free(levels);
	close(fd);
	return ret;
}

/* The root of the mount, from the directory of the session upwards. */
static int open_root(struct check *c, struct tarn_err *err)
{
	int fd = openat(c->s.dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), ret = 0;
	struct stat st;

	if (fd < 0)
		return tarn_fail(err, errno, "%s", strerror(errno));
	while (!ret && !fstat(fd, &st) && st.st_dev == c->dev && st.st_ino != TARNFS_INO_ROOT)
		ret = change_to(&fd, "..");
	if (!ret && is_here(c, fd, TARNFS_INO_ROOT))
		return fd;
	close(fd);
	return tarn_fail(err, EXDEV, "the root of the file system cannot be reached from there");
}

static int one_try(struct check *c, struct tarn_err *err)
{
	struct node *root;
	int fd, ret = read_log(c, err);

	if (ret)
		return ret;
	fd = open_root(c, err);
	if (fd < 0)
		return fd;
	c->path_len = 0;
	root = c->count ? &c->nodes[0] : NULL;
	if (root && root->ino == TARNFS_INO_ROOT)
		compare(c, root, fd, ".");
	path_push(c, &(struct node){ .name = (char[]){ "." }, .name_len = 1 });
	return compare_tree(c, fd, err);
}

static void print_summary(const struct check *c)
{
	printf("%llu names compared with the log up to seq %llu of generation %llu: "
	       "%llu difference%s", (unsigned long long)c->compared, (unsigned long long)c->seq,
	       (unsigned long long)c->s.st.generation, (unsigned long long)c->differences,
	       c->differences == 1 ? "" : "s");
	if (c->cleared)
		printf("; %llu set-user-id or set-group-id file%s lost the bits here to a write",
		       (unsigned long long)c->cleared, c->cleared == 1 ? "" : "s");
	putchar('\n');
}

static int check(const char *path, uint64_t max)
{
	struct check c = { .max = max };
	struct tarn_err err = { "" };
	int ret;

	ret = tarn_session_open(&c.s, path, 0, &err);
	if (ret) {
		complain_err(&err, ret, NULL);
		return ret;
	}
	if (!(c.s.st.state & TARNFS_ST_ATTACHED)) {
		complain("%s: it was mounted without mount.tarnfs, so it has no names yet: umount it, "
			 "then mount -t tarnfs", shown(path));
		tarn_session_close(&c.s);
		return -EUNATCH;
	}
	c.dev = session_dev(&c.s);
	c.path = must_alloc(calloc(1, 1));
	c.listed = must_alloc(calloc(max + 1, sizeof(*c.listed)));
	for (int i = 0; ; i++) {
		struct tarnfs_status st;

		forget_differences(&c);
		forget_nodes(&c);
		ret = one_try(&c, &err);
		/* what another process applied meanwhile is no difference */
		if (ret || !c.differences || c.s.kernel->ops->status(c.s.kernel, &st) ||
		    st.seq == c.seq)
			break;
		if (i == TRIES) {
			forget_differences(&c);
			ret = tarn_fail(&err, EBUSY, "files are being created all the time: try "
					"again when that is over");
			break;
		}
	}
	for (uint64_t i = 0; i < c.differences && i < max; i++)
		printf("%s\n", c.listed[i]);
	if (c.differences > max)
		printf("and %llu more\n", (unsigned long long)(c.differences - max));
	if (ret)
		complain_err(&err, ret, shown(path));
	else
		print_summary(&c);
	if (!ret && c.differences)
		ret = -EUCLEAN;
	forget_differences(&c);
	forget_nodes(&c);
	free(c.nodes);
	free(c.listed);
	free(c.path);
	tarn_session_close(&c.s);
	return ret;
}

int cmd_check(int argc, char **argv)
{
	static const struct option longs[] = {
		{ "max", required_argument, NULL, 'm' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 }
	};
	uint64_t max = 20;
	int o;

	while ((o = getopt_long(argc, argv, "m:h", longs, NULL)) != -1) {
		switch (o) {
		case 'm':
			if (parse_number(optarg, 0, 1000000, &max)) {
				complain("-m: '%s' is not a number from 0 to 1000000", shown(optarg));
				complain_usage();
				return EXIT_USAGE;
			}
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
	return check(argv[optind], max) ? EXIT_FAILED : EXIT_OK;
}
