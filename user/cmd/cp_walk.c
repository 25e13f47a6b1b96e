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

int cp_open_dir(struct opened *o, const struct dir *d, bool source)
{
	const struct dir **chain, *at;
	size_t depth = 0, i;
	int fd, next;

	if (o->dir == d)
		return o->fd;
	cp_opened_close(o);
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
		return 1;
	}
	path = cp_path(e->dir, false, e->dest);
	if (st.st_dev == c->dev && same_copy(e, fd, &st) &&
	    (!c->again || c->planning || e->target || same_bytes(c, e, fd))) {
		c->done.skipped++;
		if (c->verbose && !c->quiet) {
			cp_progress_clear(c);
			printf("%s is there already\n", shown(path));
		}
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
	if (!c->planning && (d->fresh || d->state == DIR_PENDING)) {
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

static void copy_operand(struct copy *c, const char *source, const char *dest_dir, uint64_t dest_ino,
			 const char *new_name, void **seen)
{
	char *parent, *name;
	struct dir *top;
	struct stat st;

	if (split_path(source, &parent, &name)) {
		/* ".", "..", "/": what is in it goes into the destination itself, or is the new name */
		cp_flush_batch(c);
		c->again = *seen || c->dotted;
		c->dotted = true;
		top = new_dir(c, NULL, source, dest_dir);
		top->ino = dest_ino;
		if (stat(source, &st))
			cp_fail(c, top, NULL, "%s", strerror(errno));
		else if (!c->recursive)
			cp_fail(c, top, NULL, "is a directory; -r copies it");
		else if (is_above_dest(c, &st))
			cp_fail(c, top, NULL, "is or contains the destination; skipped");
		else if (new_name)
			take(c, top, ".", new_name, false);
		else
			c->stack = top;
		walk_stack(c);
		cp_flush_batch(c);
		return;
	}
	if (source[strlen(source) - 1] == '/' && stat(source, &st)) {
		top = new_dir(c, NULL, parent, dest_dir);
		top->ino = dest_ino;
		cp_fail(c, top, name, "%s", strerror(errno));
		free(parent);
		free(name);
		return;
	}
	/* two sources of one name: the second must find the first there */
	c->again = c->dotted || tfind(name, seen, (int (*)(const void *, const void *))strcmp);
	if (c->again)
		cp_flush_batch(c);
	else
		tsearch(must_alloc(strdup(name)), seen, (int (*)(const void *, const void *))strcmp);
	top = new_dir(c, NULL, parent, dest_dir);
	top->ino = dest_ino;
	take(c, top, name, new_name ? new_name : name, !c->recursive);
	walk_stack(c);
	free(parent);
	free(name);
}

void cp_walk(struct copy *c, char **sources, int count, const char *dest)
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
			c->done.errors++;
			return;
		}
	} else if (count > 1) {
		complain("%s: is not a directory, and there are %d sources", shown(dest), count);
		c->done.errors++;
		return;
	} else {
		bool directory = stat(sources[0], &st) == 0 && S_ISDIR(st.st_mode);

		/* what ends with a slash is a directory, and only one can get that name */
		if (!directory && refuse_slash(dest)) {
			c->done.errors++;
			return;
		}
		c->renamed = c->recursive && directory;
		if (find_place(&c->session, dest, &place)) {
			c->done.errors++;
			return;
		}
		dest_dir = place.parent_path;
		new_name = place.name;
		st.st_ino = place.parent;
	}
	c->above_count = 0;
	c->again = false;
	c->dotted = false;
	if (note_above(c, dest_dir)) {
		c->done.errors++;
		goto out;
	}
	for (i = 0; i < count && !cp_stopped(c); i++)
		copy_operand(c, sources[i], dest_dir, st.st_ino, new_name, &seen);
	cp_flush_batch(c);
out:
	tdestroy(seen, free);
	free_place(&place);
}
