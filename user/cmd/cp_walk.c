// SPDX-License-Identifier: GPL-2.0-only
/*
 * cp_walk.c - the source trees of tarnfs cp, walked without recursion, parents
 * before children: once to see what there is to do, once into batches.
 *
 * Names of the source are opened component by component without following
 * symbolic links, so neither the depth of a tree nor somebody who swaps a
 * directory for a link leads anywhere else.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <search.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cp.h"
#include "extent.h"

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

char *cp_path(const struct dir *d, bool source, const char *name)
{
	size_t depth = name ? 1 : 0, bytes = 0, len = 0, i;
	const char **parts;
	const struct dir *at;
	bool bare = false;
	char *path;

	for (at = d; at; at = at->parent)
		depth++;
	parts = must_alloc(malloc(depth * sizeof(*parts)));
	i = depth;
	if (name)
		parts[--i] = name;
	for (at = d; at; at = at->parent) {
		parts[--i] = source ? at->source : at->dest;
		bare = at->bare[source];
	}
	for (i = 0; i < depth; i++)
		bytes += strlen(parts[i]) + 1;
	path = must_alloc(malloc(bytes + 1));
	for (i = 0; i < depth; i++) {
		/* a "." that the user has not typed says nothing */
		if (strcmp(parts[i], ".") == 0 && (i || (bare && depth > 1)))
			continue;
		if (len && path[len - 1] != '/')
			path[len++] = '/';
		memcpy(path + len, parts[i], strlen(parts[i]));
		len += strlen(parts[i]);
	}
	path[len] = '\0';
	free(parts);
	return path;
}

void cp_fail(struct copy *c, const struct dir *d, const char *name, const char *fmt, ...)
{
	char *path, *text;
	va_list ap;

	if (c->quiet)
		return;
	path = cp_path(d, true, name);
	va_start(ap, fmt);
	if (vasprintf(&text, fmt, ap) < 0)
		text = NULL;
	va_end(ap);
	cp_progress_clear(c);
	complain("%s: %s", shown(path), (char *)must_alloc(text));
	free(text);
	free(path);
	c->done.errors++;
}

void cp_opened_close(struct opened *o)
{
	if (o->dir)
		close(o->fd);
	o->dir = NULL;
}

/* Replaces fd, a descriptor or an error, by what opens from it. */
static int open_below(int fd, const char *name)
{
	int next;

	if (fd < 0)
		return fd;
	next = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (next < 0)
		next = -errno;
	close(fd);
	return next;
}

/* From the top. */
static int open_way(const struct dir *d, bool source)
{
	const struct dir **chain, *at;
	size_t depth = 0, i;
	int fd;

	for (at = d; at; at = at->parent)
		depth++;
	chain = must_alloc(malloc(depth * sizeof(*chain)));
	for (at = d, i = depth; at; at = at->parent)
		chain[--i] = at;
	fd = open(source ? chain[0]->source : chain[0]->dest, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		fd = -errno;
	for (i = 1; i < depth && fd >= 0; i++)
		fd = open_below(fd, source ? chain[i]->source : chain[i]->dest);
	free(chain);
	return fd;
}

int cp_open_dir(struct opened *o, const struct dir *d, bool source)
{
	int fd;

	if (o->dir == d)
		return o->fd;
	/* the walk goes down by one most of the time, and a tree may be deep */
	if (o->dir && o->dir == d->parent) {
		fd = open_below(o->fd, source ? d->source : d->dest);
		o->dir = NULL;
	} else {
		cp_opened_close(o);
		fd = open_way(d, source);
	}
	if (fd < 0)
		return fd;
	o->dir = d;
	o->fd = fd;
	return fd;
}

void cp_free_dirs(struct copy *c)
{
	struct dir *next;

	cp_opened_close(&c->source);
	cp_opened_close(&c->dest);
	while (c->dirs) {
		next = c->dirs->next_made;
		free(c->dirs->source);
		free(c->dirs->dest);
		free(c->dirs);
		c->dirs = next;
	}
}

void cp_free_item(struct item *e)
{
	free(e->source);
	free(e->dest);
	free(e->target);
	free(e->why);
}

bool cp_stopped(struct copy *c)
{
	if (!atomic_load(&cp_signal))
		return c->stop;
	c->cut_short = true;
	return true;
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

/* ---- names that are there already ---- */

static int by_number(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static int note_shared(void *arg, const struct tarn_rec *rec)
{
	struct copy *c = arg;

	if (rec->type != TARNFS_REC_FILE)
		return 0;
	if (rec->ino > c->shared_until)
		c->shared_until = rec->ino;
	if (!(rec->file_flags & TARNFS_FILE_SHARED_WRITE))
		return 0;
	if (c->shared_count == c->shared_room) {
		c->shared_room = c->shared_room ? 2 * c->shared_room : 1024;
		c->shared = must_alloc(reallocarray(c->shared, c->shared_room, sizeof(*c->shared)));
	}
	c->shared[c->shared_count++] = rec->ino;
	return 0;
}

/*
 * Has the file another shared-write flag than a copy would get? The log alone says, and is read
 * the first time that somebody asks; what this run has created since has the right one.
 */
static bool other_shared_write(struct copy *c, uint64_t ino)
{
	struct tarn_session *s = &c->session;
	uint32_t pos = TARNFS_LOG_HEADER_UNITS;
	struct tarn_current cur;
	struct tarn_log log;

	if (!c->shared_known) {
		c->shared_known = true;
		if (tarn_scan(s->media, &s->sb, &cur, NULL, NULL) ||
		    tarn_log_open(&log, s->media, &s->sb, &cur, NULL) ||
		    tarn_log_walk(&log, s->media, &pos, note_shared, c, NULL) < 0)
			c->shared_until = 0;
		if (c->shared_count)
			qsort(c->shared, c->shared_count, sizeof(*c->shared), by_number);
	}
	if (ino > c->shared_until)
		return false;
	return c->shared_write != (c->shared_count && bsearch(&ino, c->shared, c->shared_count,
							      sizeof(ino), by_number));
}

/* In what the name that is there differs from what a copy would be; "" in nothing. */
static const char *other_attributes(struct copy *c, const struct item *e, const struct stat *st)
{
	static char text[64];
	bool owner, mode, shared;
	struct tarn_new n;

	cp_describe(c, e, &n);
	owner = n.uid != st->st_uid || n.gid != st->st_gid;
	mode = !S_ISLNK(st->st_mode) && n.mode != (st->st_mode & 07777);
	shared = S_ISREG(st->st_mode) && other_shared_write(c, st->st_ino);
	snprintf(text, sizeof(text), "%s%s%s%s", owner || mode || shared ? ", with another" : "",
		 owner ? " owner" : "", mode ? owner ? ", mode" : " mode" : "",
		 shared ? owner || mode ? ", shared-write flag" : " shared-write flag" : "");
	return text;
}

/* A name counts as copied. */
static void note_there(struct copy *c, const struct item *e, const struct stat *st)
{
	const char *other = other_attributes(c, e, st);
	char *path;

	c->done.differing += *other != '\0';
	if (!c->verbose || c->quiet || (e->self && !*other))
		return;
	path = cp_path(e->dir, false, e->dest);
	cp_progress_clear(c);
	printf("%s is there already%s\n", shown(path), other);
	free(path);
}

/* Copied by an earlier run, as far as size (or target) and mtime tell. */
static bool same_copy(const struct item *e, int fd, const struct stat *st)
{
	char target[TARNFS_TARGET_MAX + 1];
	ssize_t n;

	if ((st->st_mode & S_IFMT) != (e->st.st_mode & S_IFMT) || e->self ||
	    st->st_mtim.tv_sec != e->st.st_mtim.tv_sec ||
	    st->st_mtim.tv_nsec != e->st.st_mtim.tv_nsec)
		return false;
	if (!e->target)
		return st->st_size == e->st.st_size;
	n = readlinkat(fd, e->dest, target, sizeof(target));
	return n >= 0 && (size_t)n == strlen(e->target) && memcmp(target, e->target, (size_t)n) == 0;
}

/*
 * Two sources of one run can have a name, a size and even an mtime in common
 * and not be the same: here the bytes decide.
 */
static bool same_bytes(struct copy *c, const struct item *e, int dest_dir)
{
	int dir = cp_open_dir(&c->source, e->dir, true), in = -1, out = -1;
	char ours[4096], theirs[4096];
	ssize_t n = -1, m = -1;

	if (dir >= 0)
		in = openat(dir, e->source, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (in >= 0)
		out = openat(dest_dir, e->dest, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	while (out >= 0) {
		n = read(in, ours, sizeof(ours));
		m = n <= 0 ? n : read(out, theirs, (size_t)n);
		if (n <= 0 || m != n || memcmp(ours, theirs, (size_t)n) != 0)
			break;
	}
	if (in >= 0)
		close(in);
	if (out >= 0)
		close(out);
	return n == 0 && m == 0;
}

/*
 * Of a copy that is there: has its memory failed? Its size and mtime do not tell. What the source
 * holds is the way to get it right again, so the first of those bytes is said.
 */
static bool bad_copy(struct copy *c, const struct item *e, int dest_dir, const char *path)
{
	uint64_t at;
	bool bad;
	int fd;

	if (!c->bad_known) {
		c->bad_known = true;
		if (tarn_kernel_badranges(c->session.dirfd, &c->bad, &c->bad_count))
			c->bad_count = 0;
	}
	if (!c->bad_count || e->target)
		return false;
	fd = openat(dest_dir, e->dest, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return false;
	bad = file_first_bad(fd, c->bad, c->bad_count, 0, &at);
	if (bad)
		cp_fail(c, e->dir, e->source, "%s is there already, but its memory has failed at byte %llu%s "
			"(tarnfs status lists all that has); not copied: once the memory is repaired "
			"dd conv=notrunc,fsync stores the bytes into the file that is there",
			shown(path), (unsigned long long)at, device_offset_text(fd, at));
	close(fd);
	return bad;
}

int cp_already_there(struct copy *c, struct item *e)
{
	struct stat st;
	char *path;
	int fd;

	if (e->dir->state != DIR_THERE)
		return 0;
	fd = cp_open_dir(&c->dest, e->dir, false);
	if (fd < 0) {
		cp_fail(c, e->dir, e->source, "its destination: %s", strerror(-fd));
		return 1;
	}
	if (fstatat(fd, e->dest, &st, AT_SYMLINK_NOFOLLOW)) {
		if (errno == ENOENT)
			return 0;
		cp_fail(c, e->dir, e->source, "its destination: %s", strerror(errno));
		return 1;
	}
	if (e->self && S_ISDIR(st.st_mode) && st.st_dev == c->dev) {
		e->self->state = DIR_THERE;
		e->self->ino = st.st_ino;
		note_there(c, e, &st);
		return 1;
	}
	path = cp_path(e->dir, false, e->dest);
	if (st.st_dev == c->dev && same_copy(e, fd, &st) && bad_copy(c, e, fd, path)) {
		/* said */
	} else if (st.st_dev == c->dev && same_copy(e, fd, &st) &&
		   (!c->again || c->planning || e->target || same_bytes(c, e, fd))) {
		c->done.skipped++;
		note_there(c, e, &st);
	} else {
		cp_fail(c, e->dir, e->source, "%s exists already; not copied", shown(path));
	}
	free(path);
	return 1;
}

/* ---- the walk ---- */

/* One more name that there is to create. */
static void plan(struct copy *c, const struct item *e)
{
	struct totals *t = &c->done;
	uint64_t size = (uint64_t)e->st.st_size;
	struct tarn_new n;

	cp_describe(c, e, &n);
	t->log += tarn_log_bytes(&n, 1);
	if (e->self) {
		/* nothing is in it, so nothing has to be looked up there */
		e->self->state = DIR_THERE;
		e->self->fresh = true;
		t->directories++;
	} else if (e->target) {
		t->symlinks++;
	} else {
		t->files++;
		t->bytes += size;
		t->linked += e->st.st_nlink > 1;
		size = (size + TARNFS_BLOCK - 1) / TARNFS_BLOCK * TARNFS_BLOCK;
		t->space += size;
		if (size > t->largest)
			t->largest = size;
		if ((uint64_t)e->st.st_size >= TARNFS_HUGE && size > t->largest_huge)
			t->largest_huge = size;
	}
	if (c->verbose && !c->quiet) {
		char *from = cp_path(e->dir, true, e->source), *to = cp_path(e->dir, false, e->dest);

		printf("would copy %s -> %s\n", shown(from), shown(to));
		free(from);
		free(to);
	}
}

static char *read_target(struct copy *c, int fd, const struct dir *d, const char *name)
{
	char *target = must_alloc(malloc(TARNFS_TARGET_MAX + 2));
	ssize_t n = readlinkat(fd, name, target, TARNFS_TARGET_MAX + 1);

	if (n > 0 && n <= TARNFS_TARGET_MAX) {
		target[n] = '\0';
		return target;
	}
	cp_fail(c, d, name, "reading the link: %s", n < 0 ? strerror(errno) : "its target is too long");
	free(target);
	return NULL;
}

/* A dry run looks at what only copying it would tell. False: it would fail. */
static bool look_at(struct copy *c, const struct item *e, int dir, bool follow)
{
	bool xattrs = false, acls = false;
	int fd;

	if (!S_ISREG(e->st.st_mode))
		return true;
	fd = openat(dir, e->source, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY |
		    (follow ? 0 : O_NOFOLLOW));
	if (fd < 0) {
		cp_fail(c, e->dir, e->source, "%s; not copied", strerror(errno));
		return false;
	}
	cp_look_at_xattrs(fd, &xattrs, &acls);
	close(fd);
	c->done.xattrs += xattrs;
	c->done.acls += acls;
	return true;
}

/* One name of the source: into the batch, and directories onto the stack as well. */
static void take(struct copy *c, struct dir *d, const char *source, const char *dest, bool follow)
{
	struct item e = { .dir = d };
	int fd = cp_open_dir(&c->source, d, true);

	if (fd < 0 || fstatat(fd, source, &e.st, follow ? 0 : AT_SYMLINK_NOFOLLOW)) {
		cp_fail(c, d, source, "%s", strerror(fd < 0 ? -fd : errno));
		return;
	}
	if (!S_ISREG(e.st.st_mode) && !S_ISDIR(e.st.st_mode) && !S_ISLNK(e.st.st_mode)) {
		cp_fail(c, d, source, "is a device, socket or fifo; skipped");
		return;
	}
	if (S_ISDIR(e.st.st_mode)) {
		if (!c->recursive) {
			cp_fail(c, d, source, "is a directory; -r copies it");
			return;
		}
		if (is_above_dest(c, &e.st)) {
			cp_fail(c, d, source, "is or contains the destination; skipped");
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
	if (!d->fresh && cp_already_there(c, &e)) {
		cp_free_item(&e);
		/* not merged: nothing in it is visited */
		if (e.self && e.self->state == DIR_PENDING) {
			e.self->state = DIR_FAILED;
			c->stack = e.self->next;
		}
		return;
	}
	if (c->planning) {
		if (!c->dry_run || look_at(c, &e, fd, follow))
			plan(c, &e);
		cp_free_item(&e);
		return;
	}
	if (e.self)
		e.self->index = c->count;
	c->entries[c->count++] = e;
	if (S_ISREG(e.st.st_mode))
		c->batch_bytes += (uint64_t)e.st.st_size;
	if (c->count == BATCH_FILES || c->batch_bytes >= BATCH_BYTES)
		cp_flush_batch(c);
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
	fd = cp_open_dir(&c->source, d, true);
	if (fd < 0) {
		cp_fail(c, d, NULL, "%s", strerror(-fd));
		return fd;
	}
	/* the descriptor stays open for the files, so the stream gets its own */
	fd = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	stream = fd < 0 ? NULL : fdopendir(fd);
	if (!stream) {
		ret = -errno;
		if (fd >= 0)
			close(fd);
		cp_fail(c, d, NULL, "%s", strerror(-ret));
		return ret;
	}
	if ((!c->planning || c->dry_run) && (d->fresh || d->state == DIR_PENDING)) {
		bool xattrs = false, acls = false;

		cp_look_at_xattrs(fd, &xattrs, &acls);
		c->done.xattrs += xattrs;
		c->done.acls += acls;
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
		cp_fail(c, d, NULL, "reading the directory: %s; what was read is copied", strerror(errno));
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

	while (!cp_stopped(c) && (d = c->stack) != NULL) {
		c->stack = d->next;
		/* the batch that was to create it may have failed */
		if (d->state == DIR_FAILED)
			continue;
		if (list_names(c, d, &names, &count))
			continue;
		subs = c->stack;
		c->stack = NULL;
		for (i = 0; i < count; i++) {
			if (!cp_stopped(c) && d->state != DIR_FAILED)
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

struct target {			/* where the sources go */
	const char *dir, *new_name;	/* new_name NULL: under their own names */
	bool bare;			/* dir is "." and was not typed */
	uint64_t ino;
};

static struct dir *new_top(struct copy *c, const struct target *t, const char *source, bool bare)
{
	struct dir *top = new_dir(c, NULL, source, t->dir);

	top->ino = t->ino;
	top->bare[true] = bare;
	top->bare[false] = t->bare;
	return top;
}

/* ".", "..", "/", and -T: what is in it goes into the destination itself, or is the new name */
static void copy_contents(struct copy *c, const char *source, const struct target *t, void **seen)
{
	struct dir *top;
	struct stat st;

	cp_flush_batch(c);
	c->again = *seen || c->dotted;
	c->dotted = true;
	top = new_top(c, t, source, false);
	if (stat(source, &st))
		cp_fail(c, top, NULL, "%s", strerror(errno));
	else if (!c->recursive)
		cp_fail(c, top, NULL, "is a directory; -r copies it");
	else if (is_above_dest(c, &st))
		cp_fail(c, top, NULL, "is or contains the destination; skipped");
	else if (t->new_name)
		take(c, top, ".", t->new_name, false);
	else
		c->stack = top;
	walk_stack(c);
	cp_flush_batch(c);
}

/* That a link is copied as a link surprises those who meant the directory that it leads to. */
static void note_link(struct copy *c, const char *source)
{
	struct stat st;

	if (!c->recursive || c->quiet || lstat(source, &st) || !S_ISLNK(st.st_mode) ||
	    stat(source, &st) || !S_ISDIR(st.st_mode))
		return;
	if (!c->linked_sources++)
		c->linked_source = source;
}

static void copy_operand(struct copy *c, const char *source, const struct target *t, void **seen)
{
	bool slash = *source && source[strlen(source) - 1] == '/';
	char *parent, *name;
	const char *dest;
	struct dir *top;
	struct stat st;

	if (split_path(source, &parent, &name)) {
		copy_contents(c, source, t, seen);
		return;
	}
	top = new_top(c, t, parent, strcmp(parent, ".") == 0 && strncmp(source, "./", 2) != 0);
	if (slash && stat(source, &st)) {
		cp_fail(c, top, name, "%s", strerror(errno));
		goto out;
	}
	/* two sources of one name: the second must find the first there */
	c->again = c->dotted || tfind(name, seen, (int (*)(const void *, const void *))strcmp);
	if (c->again)
		cp_flush_batch(c);
	else
		tsearch(must_alloc(strdup(name)), seen, (int (*)(const void *, const void *))strcmp);
	dest = t->new_name ? t->new_name : name;
	note_link(c, source);
	if (slash)	/* the directory, also where the name is that of a link to it */
		take(c, new_top(c, t, source, false), ".", dest, false);
	else
		take(c, top, name, dest, !c->recursive);
	walk_stack(c);
out:
	free(parent);
	free(name);
}

/* Where the sources go; place holds what *t points to. Complains itself. */
static int find_target(struct copy *c, char **sources, int count, const char *dest, struct place *place,
		       struct target *t)
{
	struct stat st, source;
	bool directory;

	*t = (struct target){ .dir = dest };
	if (stat(dest, &st) == 0 && S_ISDIR(st.st_mode)) {
		if (st.st_dev != c->dev) {
			complain("%s: not on a tarnfs", shown(dest));
			return -EMEDIUMTYPE;
		}
		t->ino = st.st_ino;
		if (!c->exact || (lstat(sources[0], &source) == 0 && S_ISDIR(source.st_mode)))
			return 0;
		complain("%s: exists already and is a directory; without -T the copy is made in it",
			 shown(dest));
		return -EISDIR;
	}
	if (count > 1) {
		complain("%s: is not a directory, and there are %d sources", shown(dest), count);
		return -ENOTDIR;
	}
	directory = stat(sources[0], &st) == 0 && S_ISDIR(st.st_mode);
	/* what ends with a slash is a directory, and only one can get that name */
	if (!directory && refuse_slash(dest))
		return -ENOENT;
	c->renamed = c->recursive && directory;
	if (find_place(&c->session, dest, place))
		return -ENOENT;
	t->dir = place->parent_path;
	t->new_name = place->name;
	t->bare = strcmp(t->dir, ".") == 0 && strncmp(dest, "./", 2) != 0;
	t->ino = place->parent;
	return 0;
}

void cp_walk(struct copy *c, char **sources, int count, const char *dest)
{
	struct place place = { 0 };
	struct target t;
	void *seen = NULL;
	int i;

	c->dev = session_dev(&c->session);
	c->above_count = 0;
	c->again = false;
	c->dotted = false;
	if (find_target(c, sources, count, dest, &place, &t) || note_above(c, t.dir)) {
		c->done.errors++;
		goto out;
	}
	if (c->exact && !t.new_name)
		copy_contents(c, sources[0], &t, &seen);
	for (i = 0; i < count && !(c->exact && !t.new_name) && !cp_stopped(c); i++)
		copy_operand(c, sources[i], &t, &seen);
	cp_flush_batch(c);
out:
	tdestroy(seen, free);
	free_place(&place);
}
