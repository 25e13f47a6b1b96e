// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * append.c - protocol section 2: how the master adds files, directories and
 * symlinks. A batch is reserved, its data written, then committed at once by
 * one 8-byte word.
 *
 * Order of what reaches memory: records, fence; commit word, fence. Nothing
 * else is stored, so an append writes back the lines of its records and one.
 */
#include "internal.h"

#include <inttypes.h>

/* Attempts when another process applied something between replay and check. */
#define TRIES 3

static bool is_file(const struct tarn_new *n)
{
	return n->item.type == TARNFS_TYPE_FILE;
}

/* As messages name it. */
static const char *what_of(const struct tarn_new *n)
{
	return n->path ? n->path : n->name;
}

/* The record of entry i, all but its numbers (ino, extent, seq, place in the batch). */
static void record_of(struct tarn_rec *rec, const struct tarn_new *n)
{
	memset(rec, 0, sizeof(*rec));
	rec->type = n->item.type;	/* the numbers of enum tarnfs_record_type */
	rec->mtime_sec = n->mtime_sec;
	rec->mtime_nsec = n->mtime_nsec;
	rec->uid = n->uid;
	rec->gid = n->gid;
	rec->mode = n->mode;
	rec->name = n->name;
	rec->name_len = (uint16_t)strlen(n->name);
	if (is_file(n)) {
		rec->size = n->item.size;
		rec->file_flags = n->file_flags;
		rec->extents = n->item.size ? 1 : 0;
	} else if (n->item.type == TARNFS_TYPE_SYMLINK) {
		rec->target = n->target;
		rec->target_len = (uint16_t)strlen(n->target);
	}
}

/* Everything that a record could not hold, before any number is handed out. */
static int check_new(const struct tarn_new *news, size_t i, struct tarn_err *err)
{
	const struct tarn_new *n = &news[i];
	size_t len = n->name ? strnlen(n->name, TARNFS_NAME_MAX + 1) : 0;
	const char *what = what_of(n);

	if (len > TARNFS_NAME_MAX)
		return tarn_fail(err, ENAMETOOLONG, "%.32s...: a name has at most %d bytes", what,
				 TARNFS_NAME_MAX);
	if (!n->name || tarn_name_check(n->name, len))
		return tarn_fail(err, EINVAL, "'%s': not a name of a file", n->name ? n->name : "");
	switch (n->item.type) {
	case TARNFS_TYPE_FILE:
	case TARNFS_TYPE_DIRECTORY:
		break;
	case TARNFS_TYPE_SYMLINK:
		if (!n->target || !*n->target)
			return tarn_fail(err, ENOENT, "%s: a symlink needs a target", what);
		if (strlen(n->target) > TARNFS_TARGET_MAX)
			return tarn_fail(err, ENAMETOOLONG, "%s: its target has more than %d bytes",
					 what, TARNFS_TARGET_MAX);
		break;
	default:
		return tarn_fail(err, EINVAL, "%s: of type %u", what, n->item.type);
	}
	if (!is_file(n) && n->item.size)
		return tarn_fail(err, EINVAL, "%s: only a file has a size", what);
	if (n->item.size > TARNFS_SIZE_MAX)
		return tarn_fail(err, EFBIG, "%s: %" PRIu64 " bytes are too many", what,
				 (uint64_t)n->item.size);
	if (n->mode & ~07777 || n->mtime_nsec > 999999999 || n->file_flags & ~TARNFS_FILE_FLAGS ||
	    n->uid == UINT32_MAX || n->gid == UINT32_MAX)
		return tarn_fail(err, EINVAL, "%s: mode, owner, mtime or flags out of range", what);
	if (!n->parent &&
	    (n->parent_index >= i || news[n->parent_index].item.type != TARNFS_TYPE_DIRECTORY))
		return tarn_fail(err, EINVAL,
				 "%s: its directory does not stand before it in the batch",
				 what);
	return 0;
}

static int check_news(const struct tarn_new *news, size_t count, struct tarn_err *err)
{
	if (!count)
		return tarn_fail(err, EINVAL, "nothing to create");
	if (count > TARNFS_BATCH_MAX || count > TARNFS_RESERVE_MAX)
		return tarn_fail(err, E2BIG, "%zu entries: a commit takes at most %d", count,
				 TARNFS_BATCH_MAX);
	for (size_t i = 0; i < count; i++) {
		int ret = check_new(news, i, err);

		if (ret)
			return ret;
	}
	return 0;
}

/* ---- reservation ---- */

static int reserve_failed(struct tarn_session *s, const struct tarn_new *news, size_t count,
			  uint32_t failed, int ret, struct tarn_err *err)
{
	const struct tarn_new *n = &news[failed];
	struct tarnfs_status st;

	switch (ret) {
	case -ENOSPC:
		if (s->kernel->ops->status(s->kernel, &st))
			return tarn_fail(err, ENOSPC, "%s: no space for it", what_of(n));
		/* the largest is below TARNFS_SEQ_MAX */
		if (count > TARNFS_SEQ_MAX - st.next_ino)
			return tarn_fail(err, ENOSPC,
					 "%s: no inode number for it: %zu are needed, %" PRIu64
					 " are left; make a new file system", what_of(n), count,
					 (uint64_t)(TARNFS_SEQ_MAX - st.next_ino));
		return tarn_fail(
			err, ENOSPC,
			"%s: no space: needed in one piece %" PRIu64 " bytes, free %" PRIu64
			", largest piece %" PRIu64 " (from a 2 MiB boundary %" PRIu64 "); %s",
			what_of(n), tarn_round_up(n->item.size, TARNFS_BLOCK),
			(uint64_t)st.free_bytes, (uint64_t)st.largest_free,
			(uint64_t)st.largest_free_huge,
			st.free_bytes < n->item.size ?
				"space is not given back yet: make the file system on a larger device" :
				"smaller files fit");
	case -EROFS:
		return tarn_fail(err, EROFS,
				 "this host is not the master, or the mount is read-only");
	case -EUNATCH:
		return tarn_fail(err, EUNATCH,
				 "not mounted by mount.tarnfs: umount it and use mount -t tarnfs");
	case -EAGAIN:
		return tarn_fail(err, EAGAIN,
				 "too many entries are reserved and not committed: wait for other "
				 "commands, or end them");
	case -EIO:
		return tarn_fail(err, EIO, TARN_SHUT_DOWN);
	default:
		return tarn_fail(err, -ret, "RESERVE: %s", strerror(-ret));
	}
}

int tarn_reserve_files(struct tarn_session *s, struct tarn_reservation *r, struct tarn_new *news,
		       size_t count, struct tarn_err *err)
{
	struct tarnfs_reserve_item *items;
	uint32_t failed = 0;
	int ret;

	r->set = -1;
	r->news = news;
	r->count = count;
	ret = check_news(news, count, err);
	if (ret)
		return ret;
	items = calloc(count, sizeof(*items));
	if (!items)
		return tarn_fail(err, ENOMEM, "no memory for %zu entries", count);
	for (size_t i = 0; i < count; i++)
		items[i] = news[i].item;
	ret = s->kernel->ops->reserve(s->kernel, items, (uint32_t)count, &r->set, &failed);
	if (ret) {
		r->set = -1;
		ret = reserve_failed(s, news, count, failed < count ? failed : 0, ret, err);
	}
	for (size_t i = 0; !ret && i < count; i++)
		news[i].item = items[i];
	free(items);
	if (!ret)
		tarn_stop_point("after-reserve");
	return ret;
}

int tarn_reserve_open_file(struct tarn_session *s, struct tarn_reservation *r, size_t i,
			   struct tarn_err *err)
{
	int fd;

	if (r->set < 0 || i >= r->count || !is_file(&r->news[i]) || !r->news[i].item.size)
		return tarn_fail(err, EINVAL, "entry %zu has no bytes to write", i);
	fd = s->kernel->ops->reserve_open(s->kernel, r->set, r->news[i].item.ino);
	return fd < 0 ? tarn_fail(err, -fd, "%s: opening it before its commit: %s",
				  what_of(&r->news[i]), strerror(-fd))
		      : fd;
}

void tarn_reservation_drop(struct tarn_session *s, struct tarn_reservation *r)
{
	if (r->set >= 0)
		s->kernel->ops->release(s->kernel, r->set);
	r->set = -1;
}

/* ---- room in the log ---- */

/* Units that creates may fill: the rest is for what gives space back (protocol section 2). */
static uint32_t usable_units(const struct tarn_log *log)
{
	uint64_t reserve = log->area_len / TARNFS_LOG_RESERVE_FRACTION;

	if (reserve < TARNFS_LOG_RESERVE_MIN)
		reserve = TARNFS_LOG_RESERVE_MIN;
	if (reserve > log->area_len)
		return 0;
	return (uint32_t)((log->area_len - reserve) / TARNFS_LINE);
}

static uint64_t units_left(const struct tarn_log *log)
{
	uint32_t usable = usable_units(log);

	return usable > log->units ? usable - log->units : 0;
}

static int check_room(const struct tarn_log *log, uint64_t units, struct tarn_err *err)
{
	uint64_t usable = usable_units(log), left = units_left(log);

	if (units <= left)
		return 0;
	return tarn_fail(
		err, ENOSPC,
		"the log is full: %" PRIu64 " bytes of it needed, %" PRIu64 " left of %" PRIu64
		" for new files; compaction is not built yet: make the file system with a larger "
		"log (mkfs.tarnfs --log-size)",
		units * TARNFS_LINE, left * TARNFS_LINE, usable * TARNFS_LINE);
}

static uint64_t units_of(const struct tarn_new *news, size_t count)
{
	uint64_t units = 0;
	struct tarn_rec rec;

	for (size_t i = 0; i < count; i++) {
		record_of(&rec, &news[i]);
		units += tarn_rec_units(&rec);
	}
	return units;
}

uint64_t tarn_log_bytes(const struct tarn_new *news, size_t count)
{
	return units_of(news, count) * TARNFS_LINE;
}

int tarn_log_left(struct tarn_session *s, uint64_t bytes, uint64_t *left, struct tarn_err *err)
{
	struct tarn_current cur;
	struct tarn_log log;
	int ret = tarn_scan(s->media, &s->sb, &cur, NULL, err);

	if (!ret)
		ret = tarn_log_open(&log, s->media, &s->sb, &cur, err);
	if (ret)
		return ret;
	if (left)
		*left = units_left(&log) * TARNFS_LINE;
	return check_room(&log, (bytes + TARNFS_LINE - 1) / TARNFS_LINE, err);
}

int tarn_log_room(struct tarn_session *s, const struct tarn_new *news, size_t count,
		  struct tarn_err *err)
{
	int ret = check_news(news, count, err);

	return ret ? ret : tarn_log_left(s, tarn_log_bytes(news, count), NULL, err);
}

/* ---- commit ---- */

struct batch {
	struct tarnfs_op *ops;
	uint8_t *records;
	char *strings;
	size_t strings_len;
	uint32_t count, units;
	uint64_t first_seq;
};

static void batch_free(struct batch *b)
{
	free(b->ops);
	free(b->records);
	free(b->strings);
	memset(b, 0, sizeof(*b));
}

static void operation_of(struct tarnfs_op *op, const struct tarn_rec *rec, struct batch *b)
{
	op->type = rec->type;
	op->extents = rec->extents;
	op->flags = rec->file_flags;
	op->ino = rec->ino;
	op->parent = rec->parent;
	op->mtime_sec = rec->mtime_sec;
	op->mtime_nsec = rec->mtime_nsec;
	op->uid = rec->uid;
	op->gid = rec->gid;
	op->mode = rec->mode;
	op->size = rec->size;
	op->off = rec->ext_off;
	op->len = rec->ext_len;
	op->name_len = rec->name_len;
	op->name = (uint32_t)b->strings_len;
	memcpy(b->strings + b->strings_len, rec->name, rec->name_len);
	b->strings_len += rec->name_len;
	op->target_len = rec->target_len;
	if (rec->target_len) {
		op->target = (uint32_t)b->strings_len;
		memcpy(b->strings + b->strings_len, rec->target, rec->target_len);
		b->strings_len += rec->target_len;
	}
}

/* Records as they will stand in the log, and the same as operations for the kernel. */
static int batch_build(struct batch *b, const struct tarn_session *s,
		       const struct tarn_reservation *r, struct tarn_err *err)
{
	size_t strings = 0, at = 0;
	struct tarn_rec rec;

	memset(b, 0, sizeof(*b));
	for (size_t i = 0; i < r->count; i++) {
		record_of(&rec, &r->news[i]);
		strings += rec.name_len + rec.target_len;
		b->units += tarn_rec_units(&rec);
	}
	/* else no kernel could take the batch in one call, and it would be committed for ever */
	if (strings > TARNFS_STRINGS_MAX)
		return tarn_fail(err, E2BIG,
				 "names and targets of %zu bytes: a commit takes at most %d",
				 strings, TARNFS_STRINGS_MAX);
	if (r->count > TARNFS_SEQ_MAX + 1 - s->log.next_seq)
		return tarn_fail(err, ENOSPC,
				 "no sequence number for a record: %zu are needed, %" PRIu64
				 " are left; make a new file system", r->count,
				 (uint64_t)(TARNFS_SEQ_MAX + 1 - s->log.next_seq));
	b->count = (uint32_t)r->count;
	b->first_seq = s->log.next_seq;
	b->ops = calloc(r->count, sizeof(*b->ops));
	b->records = malloc((size_t)b->units * TARNFS_LINE);
	b->strings = malloc(strings);
	if (!b->ops || !b->records || !b->strings)
		return tarn_fail(err, ENOMEM, "no memory for %zu records", r->count);
	for (size_t i = 0; i < r->count; i++) {
		const struct tarn_new *n = &r->news[i];

		record_of(&rec, n);
		rec.ino = n->item.ino;
		rec.parent = n->parent ? n->parent : r->news[n->parent_index].item.ino;
		rec.ext_off = n->item.off;
		rec.ext_len = n->item.len;
		rec.seq = b->first_seq + i;
		rec.batch_index = (uint16_t)i;
		rec.batch_left = (uint16_t)(r->count - 1 - i);
		operation_of(&b->ops[i], &rec, b);
		if (tarn_rec_encode(b->records + at, (size_t)b->units * TARNFS_LINE - at, &rec,
				    &s->log.seed))
			return tarn_fail(err, EINVAL, "%s: cannot be written as a record",
					 what_of(n));
		at += (size_t)tarn_rec_units(&rec) * TARNFS_LINE;
	}
	return 0;
}

static int batch_apply(const struct batch *b, struct tarn_session *s, uint32_t flags,
		       uint32_t *done)
{
	struct tarnfs_apply args;
	int ret;

	tarn_apply_args(s, &s->log, s->log.units + b->units, &args);
	args.flags = flags;
	args.first_seq = b->first_seq;
	args.count = b->count;
	args.strings_len = (uint32_t)b->strings_len;
	ret = s->kernel->ops->apply(s->kernel, &args, b->ops, b->strings);
	*done = args.done;
	return ret;
}

/* The kernel will not have the batch: nothing was written. */
static int check_failed(const struct tarn_reservation *r, uint32_t done, int ret,
			struct tarn_err *err)
{
	const char *name = done < r->count ? what_of(&r->news[done]) : "?";

	switch (ret) {
	case -EEXIST:
		return tarn_fail(err, EEXIST, "%s: exists already", name);
	case -ENOENT:
		return tarn_fail(err, ENOENT, "%s: its directory does not exist", name);
	case -ENOTDIR:
		return tarn_fail(err, ENOTDIR, "%s: what it should stand in is not a directory",
				 name);
	default:
		return tarn_fail(err, -ret, "%s: refused: %s", name, strerror(-ret));
	}
}

/* Protocol: "I am current, not sealed, my nonce stands". The log is the one that was replayed. */
static int check_current(struct tarn_session *s, struct tarn_err *err)
{
	struct tarn_identity ids[TARNFS_HOSTS_MAX];
	const struct tarn_log *log = &s->log;
	struct tarn_current cur;
	int ret = tarn_scan(s->media, &s->sb, &cur, ids, err);

	if (ret)
		return ret;
	if (ids[s->claim.page].bad)
		return tarn_fail(err, EUCLEAN,
				 "host page %u: its identity is bad: nothing can be appended",
				 s->claim.page);
	if ((ids[s->claim.page].state != TARNFS_PAGE_CLAIMED ||
	     ids[s->claim.page].nonce != s->claim.nonce) &&
	    !TARN_PLANTED(NONCE_IGNORED))
		return tarn_lost(s, err,
				 "host page %u was claimed anew: another host has this one's "
				 "identity, or it was fenced",
				 s->claim.page);
	if (log->seed.host != s->claim.page)
		return tarn_fail(err, EROFS,
				 "this host is not the master: host page %u holds the log",
				 log->seed.host);
	/* What it has reserved must not be written back over another master's files. */
	if (cur.host != s->claim.page)
		return tarn_lost(s, err,
				 "this host was the master and another took over: host page %u "
				 "holds generation %" PRIu64,
				 cur.host, cur.generation);
	if (cur.sealed || cur.generation != log->seed.generation || cur.host != log->seed.host ||
	    cur.slot != log->slot || cur.area_off != log->area_off)
		return -EAGAIN;
	return 0;
}

/*
 * Brings the kernel to the end of the log and the batch to what follows it: nothing is
 * written yet.
 */
static int prepare(struct batch *b, struct tarn_session *s, struct tarn_reservation *r,
		   struct tarn_err *err)
{
	uint32_t done;
	int ret;

	for (int i = 0; i < TRIES; i++) {
		int64_t n = tarn_replay(s, false, err);

		if (n < 0)
			return (int)n;
		ret = check_current(s, err);
		if (ret == -EAGAIN)
			continue;
		if (ret)
			return ret;
		if (s->readonly)
			return tarn_fail(
				err, EROFS,
				"the log has records of a newer tarnfs, which allow reading alone");
		batch_free(b);
		ret = check_room(&s->log, units_of(r->news, r->count), err);
		if (!ret)
			ret = batch_build(b, s, r, err);
		if (ret)
			return ret;
		ret = TARN_PLANTED(APPEND_NO_CHECK) ? 0 : batch_apply(b, s, TARNFS_APPLY_CHECK, &done);
		if (ret != -ESTALE)
			return ret ? check_failed(r, done, ret, err) : 0;
	}
	return tarn_fail(err, EBUSY,
			 "the log changed hands at each of %d attempts to append: try again",
			 TRIES);
}

static int unknown(struct tarn_err *err, const char *why)
{
	return tarn_fail(
		err, EINPROGRESS,
		"%s: whether the new entries exist is known after the next replay (tarnfs logplay, "
		"or umount and mount)",
		why);
}

/* The commit point of the whole batch. */
static int write_commit(const struct tarn_session *s, uint64_t off, uint32_t units)
{
	uint64_t word = tarn_commit_word(&s->log.seed, s->log.slot, units);
	int ret;

	if (TARN_PLANTED(APPEND_COMMIT_HALVES)) {
		ret = tarn_media_write(s->media, off, &word, 4);
		if (!ret)
			ret = tarn_media_write(s->media, off + 4, (uint8_t *)&word + 4, 4);
	} else {
		ret = tarn_media_write64(s->media, off, word);
	}
	if (!ret && !TARN_PLANTED(APPEND_COMMIT_DIRTY))
		ret = tarn_media_writeback(s->media, off, TARNFS_LINE);
	if (!ret)
		ret = tarn_media_fence(s->media);
	return ret;
}

/* Records, fence, commit word, fence. */
static int write_batch(const struct batch *b, struct tarn_session *s, enum tarn_fate *fate,
		       struct tarn_err *err)
{
	struct tarn_log *log = &s->log;
	uint64_t off = log->area_off + (uint64_t)log->units * TARNFS_LINE;
	uint64_t commit = tarn_commit_off(&s->sb, log);
	uint32_t units = log->units + b->units;
	int ret = TARN_PLANTED(APPEND_COMMIT_FIRST) ? write_commit(s, commit, units) : 0;

	if (!ret)
		ret = tarn_media_write(s->media, off, b->records, (size_t)b->units * TARNFS_LINE);
	if (!ret && !TARN_PLANTED(APPEND_RECORDS_DIRTY))
		ret = tarn_media_writeback(s->media, off, (size_t)b->units * TARNFS_LINE);
	if (!ret && !TARN_PLANTED(APPEND_NO_FENCE))
		ret = tarn_media_fence(s->media);
	if (ret)
		return tarn_fail(err, -ret,
				 "log at device offset 0x%" PRIx64
				 ": cannot be written: %s; nothing was committed",
				 ret == -EIO ? s->media->bad : off, strerror(-ret));
	tarn_stop_point("after-records");

	if (TARN_PLANTED(APPEND_COMMIT_TWICE))
		ret = write_commit(s, commit, log->units + b->units / 2);
	if (!ret)
		ret = write_commit(s, commit, units);
	if (ret == -EACCES || ret == -EINVAL)
		return tarn_fail(err, -ret,
				 "commit word at device offset 0x%" PRIx64
				 ": cannot be written: %s",
				 commit, strerror(-ret));
	*fate = TARN_MAYBE_COMMITTED;
	if (ret)
		return unknown(err, "writing the commit word failed");
	tarn_stop_point("after-commit");
	return 0;
}

/* What is committed becomes visible here. */
static int apply_batch(const struct batch *b, struct tarn_session *s, struct tarn_err *err)
{
	uint64_t last = b->first_seq + b->count - 1;
	uint32_t done;
	int64_t n;
	int ret;

	tarn_stop_point("before-apply");
	ret = batch_apply(b, s, 0, &done);
	if (!ret) {
		s->log.units += b->units;
		s->log.next_seq = last + 1;
		s->log_pos = s->log.units;
		return 0;
	}
	/* Another process of this host may have replayed it, whole or in part: that is as good. */
	n = ret == -ESTALE ? tarn_replay(s, false, err) : ret;
	if (n >= 0 && s->st.generation == s->log.seed.generation &&
	    s->st.log_host == s->log.seed.host && s->st.seq >= last)
		return 0;
	if (n >= 0)
		ret = -ESTALE;
	else if (ret == -ESTALE)
		return tarn_fail_prefix(
			err, (int)n,
			"the new entries are committed, but not visible on this host yet: ");
	return tarn_fail(err, -ret,
			 "the new entries are committed, but this host could not apply them (%s): "
			 "run tarnfs logplay",
			 strerror(-ret));
}

static int commit_locked(struct batch *b, struct tarn_session *s, struct tarn_reservation *r,
			 struct tarn_err *err)
{
	int ret = prepare(b, s, r, err);
	uint32_t done;

	if (TARN_PLANTED(APPEND_LOCK_LET_GO)) {
		s->kernel->ops->unlock(s->kernel);
		s->kernel->ops->lock(s->kernel);
	}
	if (!ret && TARN_PLANTED(APPEND_APPLY_FIRST))
		ret = batch_apply(b, s, 0, &done);
	if (!ret)
		ret = write_batch(b, s, &r->fate, err);
	if (ret)
		return ret;
	ret = TARN_PLANTED(APPEND_NO_RESCAN) ? 0 : check_current(s, err);
	if (ret == -ESTALE)
		return tarn_fail_prefix(
			err, ret, "whether the new entries exist is known after the next mount: ");
	/* A takeover that began before our word was in memory may have missed it. */
	if (ret == -EAGAIN)
		return unknown(err, "a takeover began during the commit");
	if (ret) {
		struct tarn_err why = err ? *err : (struct tarn_err){ "" };

		return unknown(err, why.text);
	}
	r->fate = TARN_COMMITTED;
	ret = apply_batch(b, s, err);
	if (ret)
		return ret;
	tarn_stop_point("before-at-end");
	ret = tarn_at_end(s, err);
	if (ret == -ESTALE)	/* the entries are there; only limbo was not emptied */
		return 0;
	return ret ? tarn_fail_prefix(err, ret, "the new entries are committed and visible; ") : 0;
}

int tarn_commit(struct tarn_session *s, struct tarn_reservation *r, struct tarn_err *err)
{
	struct tarn_kernel *k = s->kernel;
	struct batch b = { 0 };
	struct tarnfs_status st;
	int ret = k->ops->lock(k);

	r->fate = TARN_NOT_COMMITTED;
	if (ret)
		return tarn_fail(err, -ret, "append lock: %s", strerror(-ret));
	ret = commit_locked(&b, s, r, err);
	k->ops->unlock(k);
	batch_free(&b);
	if (!ret && !k->ops->status(k, &st))
		s->st = st;
	return ret;
}
