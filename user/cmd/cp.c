// SPDX-License-Identifier: GPL-2.0-only
/*
 * cp.c - tarnfs cp: files and trees into a tarnfs.
 *
 * The trees are walked without recursion, parents before children, into
 * batches. A batch is reserved, its files are filled one at a time through
 * nameless descriptors and fsynced, and only then one commit gives all of them
 * their names. A file that could not be copied whole is left out of the
 * commit, and its reservation is let go.
 *
 * Names of the source are opened component by component without following
 * symbolic links, so neither the depth of a tree nor somebody who swaps a
 * directory for a link leads anywhere else.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <search.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "commands.h"

#define BATCH_FILES	1000			/* names in one commit */
#define BATCH_BYTES	(1ULL << 30)		/* a batch ends with the file that passes this */
#define BUFFER		(1U << 20)		/* bytes read and written at a time */
#define COMMIT_TRIES	10			/* commits of a batch while others create names in it */

enum dir_state {
	DIR_THERE,		/* ino is known, and there may be names in it */
	DIR_PENDING,		/* news[index] of the batch that is being filled */
	DIR_FAILED,		/* could not be created: nothing in it can */
};

/* A directory on both sides. */
struct dir {
	struct dir *parent;	/* NULL: the top, whose sides are opened by path */
	struct dir *next_made;	/* list of all, to free */
	struct dir *next;	/* stack of those to walk */
	char *source, *dest;	/* path at the top, else one name */
	uint64_t ino;		/* of the destination */
	size_t index;
	enum dir_state state;
	bool fresh;		/* created by this run: no name in it yet but ours */
};

struct item {
	struct dir *dir;	/* where it is */
	struct dir *self;	/* a directory's own */
	char *source, *dest;	/* names */
	char *target;		/* of a symbolic link */
	struct stat st;
	bool dropped;
};

struct opened {			/* one side's most recent directory */
	const struct dir *dir;
	int fd;
};

struct copy {
	struct tarn_session session;
	bool recursive, verbose;
	int errors;
	bool stop;		/* going on makes no sense */
	struct dir *dirs, *stack;
	struct opened source, dest;
	dev_t dev;		/* of the tarnfs */
	struct { dev_t dev; ino_t ino; } *above;	/* the destination and its ancestors */
	size_t above_count;
	struct item *entries;
	struct tarn_new *news;
	size_t count;
	uint64_t batch_bytes;
	char *buffer;
	bool passed_middle;	/* of the first file: stop point mid-copy */
	uint64_t files, directories, symlinks, bytes;
};

static void usage(void)
{
	printf("Usage: tarnfs cp [-r] [-v] SOURCE... DEST\n"
	       "Copies files, and with -r trees, into a tarnfs on its master. DEST is a directory\n"
	       "there or, for one source, a new name. Modes and mtimes are kept; the copies belong\n"
	       "to the caller. No host sees a file before all of its bytes are there.\n"
	       "\n"
	       "  -r, --recursive  copy directories with all that is in them; symbolic links as\n"
	       "                   links (without -r, one named on the command line is followed)\n"
	       "  -v, --verbose    print each name once it is there\n"
	       "  -h, --help\n"
	       "\n"
	       "A name that exists is an error for that file, a directory that exists is merged\n"
	       "into; a source that changes meanwhile is not copied, and devices, sockets and\n"
	       "fifos never are. The rest is copied all the same.\n"
	       "Exit status: 0 everything was copied, 1 something was not, 2 wrong usage.\n");
}

/* ---- directories of both sides ---- */

static struct dir *new_dir(struct copy *c, struct dir *parent, const char *source, const char *dest)
{
	struct dir *d = must_alloc(calloc(1, sizeof(*d)));

	d->parent = parent;
	d->source = must_alloc(strdup(source));
	d->dest = must_alloc(strdup(dest));
	d->state = DIR_THERE;
	d->next_made = c->dirs;
	c->dirs = d;
	return d;
}

/* "top/a/b/name" of one side, malloc()ed; name may be NULL */
static char *path_of(const struct dir *d, bool source, const char *name)
{
	const struct dir *at;
	const char *part;
	size_t len = name ? strlen(name) + 1 : 0, n;
	char *path;

	for (at = d; at; at = at->parent)
		len += strlen(source ? at->source : at->dest) + 1;
	path = must_alloc(malloc(len + 1));
	path[len] = '\0';
	part = name;
	at = d;
	/* from the end */
	while (part || at) {
		if (!part) {
			part = source ? at->source : at->dest;
			at = at->parent;
		}
		n = strlen(part);
		memcpy(path + len - n, part, n);
		len -= n;
		if (at)
			path[--len] = '/';
		part = NULL;
	}
	/* one separator too many was counted */
	memmove(path, path + len, strlen(path + len) + 1);
	return path;
}

static void fail(struct copy *c, const struct dir *d, const char *name, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* A complaint about one source name, and the exit status. */
static void fail(struct copy *c, const struct dir *d, const char *name, const char *fmt, ...)
{
	char *path = path_of(d, true, name), *text;
	va_list ap;

	va_start(ap, fmt);
	if (vasprintf(&text, fmt, ap) < 0)
		text = NULL;
	va_end(ap);
	complain("%s: %s", shown(path), (char *)must_alloc(text));
	free(text);
	free(path);
	c->errors++;
}

/* Descriptor of a directory, kept until the next call for that side. Negative errno. */
static int open_side(struct copy *c, const struct dir *d, bool source)
{
	struct opened *o = source ? &c->source : &c->dest;
	const struct dir **chain, *at;
	size_t depth = 0, i;
	int fd, next;

	if (o->dir == d)
		return o->fd;
	if (o->dir) {
		close(o->fd);
		o->dir = NULL;
	}
	for (at = d; at; at = at->parent)
		depth++;
	chain = must_alloc(malloc(depth * sizeof(*chain)));
	for (at = d, i = depth; at; at = at->parent)
		chain[--i] = at;
	fd = open(source ? chain[0]->source : chain[0]->dest, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		fd = -errno;
	for (i = 1; i < depth && fd >= 0; i++) {
		next = openat(fd, source ? chain[i]->source : chain[i]->dest,
			      O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (next < 0)
			next = -errno;
		close(fd);
		fd = next;
	}
	free(chain);
	if (fd < 0)
		return fd;
	o->dir = d;
	o->fd = fd;
	return fd;
}

/* Is it the destination, or a directory above it? Copying it would copy the copy. */
static bool is_above_dest(const struct copy *c, const struct stat *st)
{
	size_t i;

	for (i = 0; i < c->above_count; i++)
		if (c->above[i].dev == st->st_dev && c->above[i].ino == st->st_ino)
			return true;
	return false;
}

static int note_above(struct copy *c, const char *dest)
{
	int fd = open(dest, O_RDONLY | O_DIRECTORY | O_CLOEXEC), next;
	struct stat st;

	while (fd >= 0 && fstat(fd, &st) == 0 && !is_above_dest(c, &st)) {
		c->above = must_alloc(realloc(c->above, (c->above_count + 1) * sizeof(*c->above)));
		c->above[c->above_count].dev = st.st_dev;
		c->above[c->above_count].ino = st.st_ino;
		c->above_count++;
		next = openat(fd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
		close(fd);
		fd = next;
	}
	if (fd < 0) {
		int ret = -errno;

		complain("%s: %s", shown(dest), strerror(-ret));
		return ret;
	}
	close(fd);
	return 0;
}

/* ---- the data of one file ---- */

static bool same_file(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
	       a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec &&
	       a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

static ssize_t read_some(int fd, char *buffer, size_t len)
{
	ssize_t n;

	do
		n = read(fd, buffer, len);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

static int write_all(int fd, const char *buffer, size_t len)
{
	ssize_t n;

	while (len) {
		n = write(fd, buffer, len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -ENOSPC;
		buffer += n;
		len -= (size_t)n;
	}
	return 0;
}

/* Exactly size bytes, and not one more. out is -1 for an empty file. */
static int copy_bytes(struct copy *c, const struct item *e, int in, int out)
{
	uint64_t size = (uint64_t)e->st.st_size, done = 0;
	ssize_t n;
	int ret;

	while (done < size) {
		uint64_t want = size - done < BUFFER ? size - done : BUFFER;

		/* the stop point lies halfway in the first file, small as it may be */
		if (!c->passed_middle && done < size / 2 && want > size / 2 - done)
			want = size / 2 - done;
		n = read_some(in, c->buffer, (size_t)want);
		if (n < 0) {
			fail(c, e->dir, e->source, "reading at byte %llu: %s; not copied",
			     (unsigned long long)done, strerror((int)-n));
			return (int)n;
		}
		if (n == 0) {
			fail(c, e->dir, e->source, "shrank from %llu to %llu bytes meanwhile; not copied",
			     (unsigned long long)size, (unsigned long long)done);
			return -ESTALE;
		}
		ret = write_all(out, c->buffer, (size_t)n);
		if (ret) {
			fail(c, e->dir, e->source, "writing its copy at byte %llu: %s; not copied",
			     (unsigned long long)done, strerror(-ret));
			return ret;
		}
		done += (uint64_t)n;
		if (!c->passed_middle && done >= size / 2) {
			tarn_stop_point("mid-copy");
			c->passed_middle = true;
		}
	}
	n = read_some(in, c->buffer, 1);
	if (n < 0) {
		fail(c, e->dir, e->source, "reading: %s; not copied", strerror((int)-n));
		return (int)n;
	}
	if (n > 0) {
		fail(c, e->dir, e->source, "has more than the %llu bytes that its size says; not copied",
		     (unsigned long long)size);
		return -ESTALE;
	}
	return 0;
}

static int copy_file(struct copy *c, const struct item *e, struct tarn_reservation *r, size_t index)
{
	int dirfd, in, out = -1, ret;
	struct tarn_err err = { "" };
	struct stat now;

	dirfd = open_side(c, e->dir, true);
	if (dirfd < 0) {
		fail(c, e->dir, NULL, "%s", strerror(-dirfd));
		return dirfd;
	}
	/* O_NONBLOCK: a fifo put in its place meanwhile must not hang us */
	in = openat(dirfd, e->source, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY |
		    (c->recursive ? O_NOFOLLOW : 0));
	if (in < 0) {
		ret = -errno;
		fail(c, e->dir, e->source, "%s", strerror(-ret));
		return ret;
	}
	if (fstat(in, &now) || !same_file(&now, &e->st)) {
		fail(c, e->dir, e->source, "changed meanwhile; not copied");
		ret = -ESTALE;
		goto out;
	}
	if (e->st.st_size > 0) {
		out = tarn_reserve_open_file(&c->session, r, index, &err);
		if (out < 0) {
			ret = out;
			fail(c, e->dir, e->source, "%s", err.text);
			goto out;
		}
	}
	ret = copy_bytes(c, e, in, out);
	if (ret)
		goto out;
	if (fstat(in, &now) || !same_file(&now, &e->st)) {
		fail(c, e->dir, e->source, "changed while it was copied; not copied");
		ret = -ESTALE;
		goto out;
	}
	if (out >= 0 && fsync(out)) {
		ret = -errno;
		fail(c, e->dir, e->source, "fsync of its copy: %s; not copied", strerror(-ret));
	}
out:
	if (out >= 0)
		close(out);
	close(in);
	return ret;
}

/* ---- one batch ---- */

static void drop(struct item *e)
{
	e->dropped = true;
	if (e->self && e->self->state == DIR_PENDING)
		e->self->state = DIR_FAILED;
}

static void describe(const struct item *e, struct tarn_new *n)
{
	mode_t mode = e->st.st_mode & 07777;

	memset(n, 0, sizeof(*n));
	/* the copy is the caller's: no set-id bit may change hands */
	if (e->st.st_uid != geteuid())
		mode &= ~(mode_t)S_ISUID;
	if (e->st.st_gid != getegid())
		mode &= ~(mode_t)S_ISGID;
	n->item.type = S_ISDIR(e->st.st_mode) ? TARNFS_TYPE_DIRECTORY :
		       S_ISLNK(e->st.st_mode) ? TARNFS_TYPE_SYMLINK : TARNFS_TYPE_FILE;
	if (S_ISREG(e->st.st_mode))
		n->item.size = (uint64_t)e->st.st_size;
	n->name = e->dest;
	n->target = e->target;
	n->mtime_sec = e->st.st_mtim.tv_sec;
	n->mtime_nsec = (uint32_t)e->st.st_mtim.tv_nsec;
	n->uid = geteuid();
	n->gid = getegid();
	n->mode = (uint16_t)mode;
}

/*
 * Closes the gaps that dropped entries leave in entries[] and, from the same
 * places, in news[]; indices of pending directories follow. Entries whose
 * directory failed are dropped with it.
 */
static size_t compact(struct copy *c, struct item *entries, struct tarn_new *news, size_t count)
{
	size_t from, to = 0;

	for (from = 0; from < count; from++) {
		struct item e = entries[from];

		if (!e.dropped && e.dir->state == DIR_FAILED) {
			fail(c, e.dir, e.source, "not copied, since its directory could not be created");
			drop(&e);
		}
		if (e.dropped) {
			free(e.source);
			free(e.dest);
			free(e.target);
			continue;
		}
		entries[to] = e;
		news[to] = news[from];
		if (e.self)
			e.self->index = to;
		news[to].parent = e.dir->state == DIR_PENDING ? 0 : e.dir->ino;
		news[to].parent_index = e.dir->state == DIR_PENDING ? e.dir->index : 0;
		to++;
	}
	return to;
}

/* A name that is there already: a directory is merged, everything else an error. 1 = dealt with. */
static int already_there(struct copy *c, struct item *e)
{
	struct stat st;
	int fd;

	if (e->dir->state != DIR_THERE)
		return 0;
	fd = open_side(c, e->dir, false);
	if (fd < 0) {
		fail(c, e->dir, e->source, "its destination: %s", strerror(-fd));
		return 1;
	}
	if (fstatat(fd, e->dest, &st, AT_SYMLINK_NOFOLLOW)) {
		if (errno == ENOENT)
			return 0;
		fail(c, e->dir, e->source, "its destination: %s", strerror(errno));
		return 1;
	}
	if (e->self && S_ISDIR(st.st_mode) && st.st_dev == c->dev) {
		e->self->state = DIR_THERE;
		e->self->ino = st.st_ino;
		return 1;
	}
	char *path = path_of(e->dir, false, e->dest);

	fail(c, e->dir, e->source, "%s exists already; not copied", shown(path));
	free(path);
	return 1;
}

/* After EEXIST: who else created what meanwhile? Returns the entries that are left. */
static size_t drop_existing(struct copy *c, struct item *entries, struct tarn_new *news, size_t count)
{
	size_t i;

	for (i = 0; i < count; i++)
		if (already_there(c, &entries[i]))
			entries[i].dropped = true;
	return compact(c, entries, news, count);
}

static void count_done(struct copy *c, const struct item *e, const struct tarn_new *n)
{
	if (e->self) {
		e->self->state = DIR_THERE;
		e->self->fresh = true;
		e->self->ino = n->item.ino;
		c->directories++;
	} else if (e->target) {
		c->symlinks++;
	} else {
		c->files++;
		c->bytes += (uint64_t)e->st.st_size;
	}
	if (c->verbose) {
		char *from = path_of(e->dir, true, e->source), *to = path_of(e->dir, false, e->dest);

		printf("%s -> %s\n", shown(from), shown(to));
		free(from);
		free(to);
	}
}

static void lose(struct copy *c, struct item *entries, size_t count, const struct tarn_err *err, int ret)
{
	size_t i;

	if (count == 1)
		fail(c, entries[0].dir, entries[0].source, "%s",
		     err->text[0] ? err->text : strerror(-ret));
	else
		complain("%zu names from %s on were not copied: %s", count, shown(entries[0].source),
			 err->text[0] ? err->text : strerror(-ret));
	c->errors++;
	for (i = 0; i < count; i++)
		drop(&entries[i]);
}

static size_t copy_part(struct copy *c, struct item *entries, struct tarn_new *news, size_t count);

/* No room for all of them: by halves, down to the one that has none. Returns what is left to free. */
static size_t copy_halves(struct copy *c, struct item *entries, struct tarn_new *news, size_t count)
{
	size_t half = count / 2, first;

	first = copy_part(c, entries, news, half);
	memmove(entries + first, entries + half, (count - half) * sizeof(*entries));
	memmove(news + first, news + half, (count - half) * sizeof(*news));
	return first + copy_part(c, entries + first, news + first, count - half);
}

/* Reserve, fill, commit. Returns the number of entries left in the array. */
static size_t copy_part(struct copy *c, struct item *entries, struct tarn_new *news, size_t count)
{
	struct tarn_reservation r = { .set = -1 };
	struct tarn_session *s = &c->session;
	struct tarn_err err = { "" };
	int ret, tries;
	size_t i;

	count = compact(c, entries, news, count);
	if (!count || c->stop)
		return count;
	/* before any byte is copied */
	ret = tarn_log_room(s, news, count, &err);
	if (ret) {
		lose(c, entries, count, &err, ret);
		c->stop = true;
		return count;
	}
	ret = tarn_reserve_files(s, &r, news, count, &err);
	if (ret == -ENOSPC && count > 1)
		return copy_halves(c, entries, news, count);
	if (ret) {
		lose(c, entries, count, &err, ret);
		c->stop = ret != -ENOSPC && ret != -EINVAL;
		return count;
	}
	for (i = 0; i < count; i++)
		if (S_ISREG(entries[i].st.st_mode) && copy_file(c, &entries[i], &r, i))
			drop(&entries[i]);
	count = compact(c, entries, news, count);
	r.count = count;
	for (tries = 0; count; tries++) {
		err.text[0] = '\0';
		ret = tarn_commit(s, &r, &err);
		if (ret != -EEXIST || tries == COMMIT_TRIES)
			break;
		count = drop_existing(c, entries, news, count);
		r.count = count;
	}
	if (count && ret) {
		lose(c, entries, count, &err, ret);
		c->stop = ret != -EEXIST;
	} else {
		for (i = 0; i < count; i++)
			count_done(c, &entries[i], &news[i]);
	}
	tarn_reservation_drop(s, &r);
	return count;
}

static void flush_batch(struct copy *c)
{
	size_t i, left;

	for (i = 0; i < c->count; i++)
		describe(&c->entries[i], &c->news[i]);
	left = copy_part(c, c->entries, c->news, c->count);
	for (i = 0; i < left; i++) {
		free(c->entries[i].source);
		free(c->entries[i].dest);
		free(c->entries[i].target);
	}
	c->count = 0;
	c->batch_bytes = 0;
}

/* ---- the walk ---- */

static char *read_target(struct copy *c, int fd, const struct dir *d, const char *name)
{
	char *target = must_alloc(malloc(TARNFS_TARGET_MAX + 2));
	ssize_t n = readlinkat(fd, name, target, TARNFS_TARGET_MAX + 1);

	if (n > 0 && n <= TARNFS_TARGET_MAX) {
		target[n] = '\0';
		return target;
	}
	fail(c, d, name, "reading the link: %s", n < 0 ? strerror(errno) : "its target is too long");
	free(target);
	return NULL;
}

/* One name of the source: into the batch, and directories onto the stack as well. */
static void take(struct copy *c, struct dir *d, const char *source, const char *dest, bool follow)
{
	struct item e = { .dir = d };
	int fd = open_side(c, d, true);

	if (fd < 0 || fstatat(fd, source, &e.st, follow ? 0 : AT_SYMLINK_NOFOLLOW)) {
		fail(c, d, source, "%s", strerror(fd < 0 ? -fd : errno));
		return;
	}
	if (!S_ISREG(e.st.st_mode) && !S_ISDIR(e.st.st_mode) && !S_ISLNK(e.st.st_mode)) {
		fail(c, d, source, "is a device, socket or fifo; skipped");
		return;
	}
	if (S_ISDIR(e.st.st_mode)) {
		if (!c->recursive) {
			fail(c, d, source, "is a directory; -r copies it");
			return;
		}
		if (is_above_dest(c, &e.st)) {
			fail(c, d, source, "is or contains the destination; skipped");
			return;
		}
	}
	if (S_ISLNK(e.st.st_mode)) {
		e.target = read_target(c, fd, d, source);
		if (!e.target)
			return;
	}
	e.source = must_alloc(strdup(source));
	e.dest = must_alloc(strdup(dest));
	if (S_ISDIR(e.st.st_mode)) {
		e.self = new_dir(c, d, source, dest);
		e.self->state = DIR_PENDING;
		e.self->next = c->stack;
		c->stack = e.self;
	}
	if (!d->fresh && already_there(c, &e)) {
		free(e.source);
		free(e.dest);
		free(e.target);
		/* not merged: nothing in it is visited */
		if (e.self && e.self->state == DIR_PENDING) {
			e.self->state = DIR_FAILED;
			c->stack = e.self->next;
		}
		return;
	}
	if (e.self)
		e.self->index = c->count;
	c->entries[c->count++] = e;
	if (S_ISREG(e.st.st_mode))
		c->batch_bytes += (uint64_t)e.st.st_size;
	if (c->count == BATCH_FILES || c->batch_bytes >= BATCH_BYTES)
		flush_batch(c);
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* All names of a directory, sorted, so that two copies of a tree are alike. */
static int list_names(struct copy *c, const struct dir *d, char ***names, size_t *count)
{
	struct dirent *de;
	size_t room = 0;
	DIR *stream;
	int fd, ret;

	*names = NULL;
	*count = 0;
	fd = open_side(c, d, true);
	if (fd < 0) {
		fail(c, d, NULL, "%s", strerror(-fd));
		return fd;
	}
	/* the descriptor stays open for the files, so the stream gets its own */
	fd = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	stream = fd < 0 ? NULL : fdopendir(fd);
	if (!stream) {
		ret = -errno;
		if (fd >= 0)
			close(fd);
		fail(c, d, NULL, "%s", strerror(-ret));
		return ret;
	}
	for (errno = 0; (de = readdir(stream)) != NULL; errno = 0) {
		if (strcmp(de->d_name, ".") == 0 || strcmp(de->d_name, "..") == 0)
			continue;
		if (*count == room) {
			room = room ? 2 * room : 64;
			*names = must_alloc(realloc(*names, room * sizeof(**names)));
		}
		(*names)[(*count)++] = must_alloc(strdup(de->d_name));
	}
	if (errno)
		fail(c, d, NULL, "reading the directory: %s; what was read is copied", strerror(errno));
	closedir(stream);
	if (*count)
		qsort(*names, *count, sizeof(**names), compare_names);
	return 0;
}

static void walk_stack(struct copy *c)
{
	struct dir *d, *subs;
	char **names;
	size_t count, i;

	while (!c->stop && (d = c->stack) != NULL) {
		c->stack = d->next;
		/* the batch that was to create it may have failed */
		if (d->state == DIR_FAILED)
			continue;
		if (list_names(c, d, &names, &count))
			continue;
		subs = c->stack;
		c->stack = NULL;
		for (i = 0; i < count; i++) {
			if (!c->stop && d->state != DIR_FAILED)
				take(c, d, names[i], names[i], false);
			free(names[i]);
		}
		free(names);
		/* its directories, which came out reversed, before those that waited */
		while (c->stack) {
			struct dir *sub = c->stack;

			c->stack = sub->next;
			sub->next = subs;
			subs = sub;
		}
		c->stack = subs;
	}
	c->stack = NULL;
}

static void copy_operand(struct copy *c, const char *source, const char *dest_dir, uint64_t dest_ino,
			 const char *new_name, void **seen)
{
	char *parent, *name;
	struct dir *top;
	struct stat st;

	if (split_path(source, &parent, &name)) {
		/* ".", "..", "/": what is in it goes into the destination itself, or is the new name */
		flush_batch(c);
		top = new_dir(c, NULL, source, dest_dir);
		top->ino = dest_ino;
		if (stat(source, &st))
			fail(c, top, NULL, "%s", strerror(errno));
		else if (!c->recursive)
			fail(c, top, NULL, "is a directory; -r copies it");
		else if (is_above_dest(c, &st))
			fail(c, top, NULL, "is or contains the destination; skipped");
		else if (new_name)
			take(c, top, ".", new_name, false);
		else
			c->stack = top;
		walk_stack(c);
		flush_batch(c);
		return;
	}
	/* two sources of one name: the second must find the first there */
	if (tfind(name, seen, (int (*)(const void *, const void *))strcmp))
		flush_batch(c);
	else
		tsearch(must_alloc(strdup(name)), seen, (int (*)(const void *, const void *))strcmp);
	top = new_dir(c, NULL, parent, dest_dir);
	top->ino = dest_ino;
	take(c, top, name, new_name ? new_name : name, !c->recursive);
	walk_stack(c);
	free(parent);
	free(name);
}

/* -1 go on, else the exit code */
static int parse(struct copy *c, int argc, char **argv)
{
	static const struct option longs[] = {
		{ "recursive", no_argument, NULL, 'r' },
		{ "verbose", no_argument, NULL, 'v' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 }
	};
	int o;

	while ((o = getopt_long(argc, argv, "rRvh", longs, NULL)) != -1) {
		switch (o) {
		case 'r':
		case 'R':
			c->recursive = true;
			break;
		case 'v':
			c->verbose = true;
			break;
		case 'h':
			usage();
			return EXIT_OK;
		default:
			complain_usage();
			return EXIT_USAGE;
		}
	}
	if (argc - optind < 2) {
		complain("a source and a destination are needed");
		complain_usage();
		return EXIT_USAGE;
	}
	return -1;
}

static void copy_all(struct copy *c, char **sources, int count, const char *dest)
{
	struct place place = { 0 };
	const char *dest_dir = dest, *new_name = NULL;
	void *seen = NULL;
	struct stat st;
	int i;

	c->dev = session_dev(&c->session);
	if (stat(dest, &st) == 0 && S_ISDIR(st.st_mode)) {
		if (st.st_dev != c->dev) {
			complain("%s: is not on a tarnfs", shown(dest));
			c->errors++;
			return;
		}
	} else if (count > 1) {
		complain("%s: is not a directory, and there are %d sources", shown(dest), count);
		c->errors++;
		return;
	} else {
		if (find_place(&c->session, dest, &place)) {
			c->errors++;
			return;
		}
		dest_dir = place.parent_path;
		new_name = place.name;
		st.st_ino = place.parent;
	}
	if (note_above(c, dest_dir)) {
		c->errors++;
		goto out;
	}
	for (i = 0; i < count && !c->stop; i++)
		copy_operand(c, sources[i], dest_dir, st.st_ino, new_name, &seen);
	flush_batch(c);
out:
	tdestroy(seen, free);
	free_place(&place);
}

int cmd_cp(int argc, char **argv)
{
	struct copy c = { 0 };
	struct dir *next;
	int code;

	code = parse(&c, argc, argv);
	if (code >= 0)
		return code;
	if (open_master(&c.session, argv[argc - 1]))
		return EXIT_FAILED;
	c.entries = must_alloc(calloc(BATCH_FILES, sizeof(*c.entries)));
	c.news = must_alloc(calloc(BATCH_FILES, sizeof(*c.news)));
	c.buffer = must_alloc(aligned_alloc(4096, BUFFER));
	copy_all(&c, argv + optind, argc - 1 - optind, argv[argc - 1]);
	if (c.source.dir)
		close(c.source.fd);
	if (c.dest.dir)
		close(c.dest.fd);
	tarn_session_close(&c.session);
	printf("%llu files, %llu directories, %llu symlinks, %llu bytes\n",
	       (unsigned long long)c.files, (unsigned long long)c.directories,
	       (unsigned long long)c.symlinks, (unsigned long long)c.bytes);
	while (c.dirs) {
		next = c.dirs->next_made;
		free(c.dirs->source);
		free(c.dirs->dest);
		free(c.dirs);
		c.dirs = next;
	}
	free(c.above);
	free(c.entries);
	free(c.news);
	free(c.buffer);
	return c.errors ? EXIT_FAILED : EXIT_OK;
}
