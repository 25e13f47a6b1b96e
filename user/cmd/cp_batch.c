// SPDX-License-Identifier: GPL-2.0-only
/*
 * cp_batch.c - one batch of tarnfs cp: reserved, filled by the threads of
 * cp_data.c, and committed. A file that could not be copied whole is left out of
 * the commit, and its reservation is let go.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cp.h"

#define COMMIT_TRIES	10	/* commits of a batch while others create names in it */

static void drop(struct item *e)
{
	e->dropped = true;
	if (e->self && e->self->state == DIR_PENDING)
		e->self->state = DIR_FAILED;
}

void cp_describe(const struct copy *c, const struct item *e, struct tarn_new *n)
{
	mode_t mode = e->st.st_mode & 07777;

	memset(n, 0, sizeof(*n));
	n->uid = c->keep_owner ? e->st.st_uid : geteuid();
	n->gid = c->keep_owner ? e->st.st_gid : getegid();
	/* no set-id bit may change hands */
	if (e->st.st_uid != n->uid)
		mode &= ~(mode_t)S_ISUID;
	if (e->st.st_gid != n->gid)
		mode &= ~(mode_t)S_ISGID;
	n->item.type = S_ISDIR(e->st.st_mode) ? TARNFS_TYPE_DIRECTORY :
		       S_ISLNK(e->st.st_mode) ? TARNFS_TYPE_SYMLINK : TARNFS_TYPE_FILE;
	if (S_ISREG(e->st.st_mode)) {
		n->item.size = (uint64_t)e->st.st_size;
		n->file_flags = c->shared_write ? TARNFS_FILE_SHARED_WRITE : 0;
	}
	n->name = e->dest;
	n->target = e->target;
	n->mtime_sec = e->st.st_mtim.tv_sec;
	n->mtime_nsec = (uint32_t)e->st.st_mtim.tv_nsec;
	/* what stat says of a link differs between file systems (/proc), and of every link here is this */
	n->mode = S_ISLNK(e->st.st_mode) ? 0777 : (uint16_t)mode;
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
			cp_fail(c, e.dir, e.source, "not copied, since its directory could not be created");
			drop(&e);
		}
		if (e.dropped) {
			cp_free_item(&e);
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

/* After EEXIST: who else created what meanwhile? Returns the entries that are left. */
static size_t drop_existing(struct copy *c, struct item *entries, struct tarn_new *news, size_t count)
{
	size_t i;

	for (i = 0; i < count; i++)
		if (cp_already_there(c, &entries[i]))
			drop(&entries[i]);
	return compact(c, entries, news, count);
}

static void count_done(struct copy *c, const struct item *e, const struct tarn_new *n)
{
	struct totals *t = &c->done;

	if (e->self) {
		e->self->state = DIR_THERE;
		e->self->fresh = true;
		e->self->ino = n->item.ino;
		t->directories++;
	} else if (e->target) {
		t->symlinks++;
	} else {
		t->files++;
		t->bytes += (uint64_t)e->st.st_size;
		t->linked += e->st.st_nlink > 1;
	}
	t->xattrs += e->xattrs;
	t->acls += e->acls;
	if (c->verbose) {
		char *from = cp_path(e->dir, true, e->source), *to = cp_path(e->dir, false, e->dest);

		cp_progress_clear(c);
		printf("%s -> %s\n", shown(from), shown(to));
		free(from);
		free(to);
	}
}

/* None of them can be created, or nobody knows, or they are and this host does not see them. */
static void lose(struct copy *c, struct item *entries, size_t count, enum tarn_fate fate,
		 const struct tarn_err *err, int ret)
{
	static const char *const how[] = {
		[TARN_NOT_COMMITTED] = "were not copied",
		[TARN_MAYBE_COMMITTED] = "may be there or not",
		[TARN_COMMITTED] = "are committed, but not all is well",
	};
	const char *text = err->text[0] ? err->text : strerror(-ret);
	size_t i, name = strlen(entries[0].dest);
	char *first;

	if (count == 1) {
		/* the library names the entry as well */
		if (strncmp(text, entries[0].dest, name) == 0 && strncmp(text + name, ": ", 2) == 0)
			text += name + 2;
		cp_fail(c, entries[0].dir, entries[0].source, "%s%s%s",
			fate == TARN_NOT_COMMITTED ? "" : how[fate],
			fate == TARN_NOT_COMMITTED ? "" : ": ", text);
	} else {
		cp_progress_clear(c);
		first = cp_path(entries[0].dir, true, entries[0].source);
		complain("%zu names from %s on %s: %s", count, shown(first), how[fate], text);
		free(first);
		c->done.errors += count;
	}
	for (i = 0; i < count; i++)
		drop(&entries[i]);
}

/* The bytes of all files. Those that are not whole are dropped. */
static void fill(struct copy *c, struct item *entries, struct tarn_reservation *r, size_t count)
{
	size_t i;

	cp_pool_fill(c, entries, r, count);
	for (i = 0; i < count; i++) {
		struct item *e = &entries[i];

		if (e->why) {
			cp_fail(c, e->dir, e->source, "%s", e->why);
			drop(e);
		} else if (e->left) {
			c->cut_short = true;
			drop(e);
		}
	}
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
	if (!count)
		return 0;
	if (cp_stopped(c)) {
		for (i = 0; i < count; i++)
			drop(&entries[i]);
		return count;
	}
	/* before any byte is copied */
	ret = tarn_log_room(s, news, count, &err);
	if (ret) {
		lose(c, entries, count, TARN_NOT_COMMITTED, &err, ret);
		c->stop = true;
		return count;
	}
	ret = tarn_reserve_files(s, &r, news, count, &err);
	if (ret == -ENOSPC && count > 1)
		return copy_halves(c, entries, news, count);
	if (ret) {
		lose(c, entries, count, TARN_NOT_COMMITTED, &err, ret);
		c->stop = ret != -ENOSPC && ret != -EINVAL;
		return count;
	}
	fill(c, entries, &r, count);
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
		lose(c, entries, count, r.fate, &err, ret);
		c->stop = ret != -EEXIST;
	} else {
		for (i = 0; i < count; i++)
			count_done(c, &entries[i], &news[i]);
	}
	tarn_reservation_drop(s, &r);
	return count;
}

void cp_flush_batch(struct copy *c)
{
	size_t i, left;

	for (i = 0; i < c->count; i++)
		cp_describe(c, &c->entries[i], &c->news[i]);
	left = copy_part(c, c->entries, c->news, c->count);
	for (i = 0; i < left; i++)
		cp_free_item(&c->entries[i]);
	c->count = 0;
	c->batch_bytes = 0;
}
