// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * replay.c - protocol section 3: what the master committed becomes the tree of
 * this kernel.
 *
 * One pass: scan, commit word, header, records; before anything is handed to
 * the kernel the host pages are scanned again, and only if the current log
 * still is the same and unsealed it is applied. Whatever fails is reason to
 * scan first: the log may have moved meanwhile (start over), and only if it
 * has not is it damage.
 */
#include "internal.h"

#include <inttypes.h>
#include <unistd.h>

/*
 * Passes without any progress before it is given up, 1 ms pause after the first, twice
 * that after each.
 */
#define PASSES 10

/* Internal: the pass is to be made again. */
#define AGAIN (-EAGAIN)

struct pass {
	struct tarn_session *s;
	struct tarn_err *err;
	struct tarn_current cur;
	struct tarn_log log;
	bool fresh;			/* the kernel has nothing: it gets the checkpoint */
	uint64_t seq;			/* of the kernel, with what is collected here */
	uint64_t first_seq;		/* of ops[0] */
	struct tarnfs_op *ops;
	struct place {			/* of the record of each */
		uint64_t off;		/* on the media */
		size_t batch;		/* ops[] of its batch start here */
	} *places;
	size_t count, room;
	size_t batch;			/* ops[] of the batch under way start here */
	bool many;			/* there is a batch of more than one record */
	char *strings;
	size_t strings_len, strings_room;
	uint32_t end;			/* position after the last whole batch */
	bool refused; /* the kernel did not take a record: nothing after it counts */
	int64_t applied;
};

/*
 * The kernel remembers how far in the log it is, so that the next process need
 * not read all of it. Not when the log has records that forbid appending: then
 * whoever comes next has to meet them too.
 */
void tarn_apply_args(const struct tarn_session *s, const struct tarn_log *log, uint32_t units,
		     struct tarnfs_apply *args)
{
	memset(args, 0, sizeof(*args));
	args->generation = log->seed.generation;
	args->log_host = log->seed.host;
	args->page = s->claim.page;
	args->nonce = s->claim.nonce;
	args->position = s->readonly ? 0 : units;
	args->role = log->seed.host == s->claim.page ? TARNFS_ROLE_MASTER : TARNFS_ROLE_CLIENT;
}

/* 0: the log that this pass reads still counts, and is not sealed. */
static int scan_again(struct pass *p)
{
	struct tarn_current now;
	int ret = tarn_scan(p->s->media, &p->s->sb, &now, NULL, p->err);

	if (ret || TARN_PLANTED(REPLAY_NO_RESCAN))
		return ret;
	return now.sealed || !tarn_current_same(&now, &p->cur) ? AGAIN : 0;
}

/* ---- records to operations ---- */

static int grow(void **array, size_t *room, size_t want, size_t size)
{
	size_t more = *room ? *room : 1024;
	void *bigger;

	if (want <= *room)
		return 0;
	while (more < want)
		more *= 2;
	bigger = reallocarray(*array, more, size);
	if (!bigger)
		return -ENOMEM;
	*array = bigger;
	*room = more;
	return 0;
}

static int add_string(struct pass *p, const char *from, size_t len, uint32_t *at)
{
	void *strings = p->strings;

	if (grow(&strings, &p->strings_room, p->strings_len + len, 1))
		return -ENOMEM;
	p->strings = strings;
	*at = (uint32_t)p->strings_len;
	if (len)
		memcpy(p->strings + p->strings_len, from, len);
	p->strings_len += len;
	return 0;
}

static int add_op(struct pass *p, const struct tarn_rec *rec)
{
	void *ops = p->ops, *places = p->places;
	size_t room = p->room, places_room = p->room;
	struct tarnfs_op *op;
	int ret;

	ret = grow(&ops, &room, p->count + 1, sizeof(*p->ops));
	p->ops = ops;
	if (!ret)
		ret = grow(&places, &places_room, p->count + 1, sizeof(*p->places));
	p->places = places;
	if (ret)
		return tarn_fail(p->err, ENOMEM, "no memory for %zu operations", p->count + 1);
	p->room = room;
	op = &p->ops[p->count];
	memset(op, 0, sizeof(*op));
	switch (rec->type) {
	case TARNFS_REC_DIRECTORY:
	case TARNFS_REC_FILE:
	case TARNFS_REC_SYMLINK:
		op->type = rec->type;
		op->ino = rec->ino;
		op->parent = rec->parent;
		op->mtime_sec = rec->mtime_sec;
		op->mtime_nsec = rec->mtime_nsec;
		op->uid = rec->uid;
		op->gid = rec->gid;
		op->mode = rec->mode;
		op->name_len = rec->name_len;
		op->target_len = rec->target_len;
		op->flags = rec->file_flags;
		op->extents = rec->extents;
		op->size = rec->size;
		op->off = rec->ext_off;
		op->len = rec->ext_len;
		ret = add_string(p, rec->name, rec->name_len, &op->name);
		if (!ret && rec->target_len)
			ret = add_string(p, rec->target, rec->target_len, &op->target);
		if (ret)
			return tarn_fail(p->err, ENOMEM, "no memory for names");
		break;
	default:
		op->type = TARNFS_OP_NOTHING;
		break;
	}
	p->places[p->count++] = (struct place){ rec->off, p->batch };
	return 0;
}

/* ---- to the kernel ---- */

static int refused(struct pass *p, const struct tarnfs_apply *args, int ret)
{
	uint32_t at = args->done;
	uint64_t off = at < p->count ? p->places[at].off : p->log.area_off;

	p->refused = true;
	switch (ret) {
	case -EEXIST:
	case -ENOENT:
	case -ENOTDIR:
	case -EUCLEAN:
	case -EINVAL:
		return tarn_fail(p->err, EUCLEAN,
				 "log at device offset 0x%" PRIx64 ", seq %" PRIu64
				 ": the kernel refused the record (%s); the batches before its "
				 "own are applied: fsck.tarnfs -n says more",
				 off, p->first_seq + at, strerror(-ret));
	case -EOPNOTSUPP:
		return tarn_fail(
			p->err, EOPNOTSUPP,
			"log at device offset 0x%" PRIx64 ": this tarnfs.ko cannot do that", off);
	default:
		return tarn_fail(p->err, -ret, "APPLY: %s", strerror(-ret));
	}
}

static void forget(struct pass *p)
{
	p->count = p->batch = p->strings_len = 0;
	p->many = false;
}

static int apply(struct pass *p, struct tarnfs_apply *args)
{
	return p->s->kernel->ops->apply(p->s->kernel, args, p->ops, p->strings);
}

/*
 * The kernel does a batch record by record, and stops at the first that it refuses. A batch is
 * one commit, so it is asked first: what it says is what it does. The batches before the refused
 * one are done. 0: it took them all.
 */
static int ask(struct pass *p, const struct tarnfs_apply *args)
{
	struct tarnfs_apply check = *args, good = *args;
	int ret;

	check.flags |= TARNFS_APPLY_CHECK;
	ret = apply(p, &check);
	if (!ret || ret == -ESTALE)
		return ret;
	good.count = check.done < p->count ? (uint32_t)p->places[check.done].batch : 0;
	if (good.count) {
		good.position = p->s->readonly ? 0 :
			(p->places[good.count].off - p->log.area_off) / TARNFS_LINE;
		if (apply(p, &good) == -ESTALE)
			return -ESTALE;
		p->applied += good.done;
	}
	return refused(p, &check, ret);
}

/* Hands over what is collected. `count` of it, which ends with a whole batch. */
static int flush(struct pass *p, uint32_t stage)
{
	struct tarnfs_apply args;
	int ret;

	if (!p->count)
		return 0;
	ret = scan_again(p);
	if (ret)
		return ret;
	tarn_apply_args(p->s, &p->log, p->end, &args);
	args.flags = stage;
	args.first_seq = p->first_seq;
	args.count = (uint32_t)p->count;
	args.strings_len = (uint32_t)p->strings_len;
	if (stage)
		args.next_ino = p->log.next_ino;
	if (!stage && p->many) {
		ret = ask(p, &args);
		if (ret)
			return ret == -ESTALE ? AGAIN : ret;
	}
	ret = apply(p, &args);
	/* another process of this host was here meanwhile: it moved on, or is fresh no more */
	if (ret == -ESTALE ||
	    (stage && ret == -EOPNOTSUPP && !p->s->kernel->ops->status(p->s->kernel, &p->s->st) &&
	     !(p->s->st.state & TARNFS_ST_FRESH)))
		return AGAIN;
	if (ret != 0) {
		p->applied += stage ? 0 : args.done;
		return refused(p, &args, ret);
	}
	p->applied += (int64_t)p->count;
	forget(p);
	return 0;
}

/* After what is collected so far the kernel is at `end`. */
static void advance(struct pass *p)
{
	p->s->log = p->log;
	p->s->log.next_seq = p->seq + 1;
	p->s->log_pos = p->end;
}

static int flush_batches(struct pass *p)
{
	int ret = flush(p, 0);

	if (!ret)
		advance(p);
	return ret;
}

static int not_built(struct pass *p, const struct tarn_rec *rec)
{
	return tarn_fail(
		p->err, EOPNOTSUPP,
		"log at device offset 0x%" PRIx64 ": a record of type %s (seq %" PRIu64
		"), which this version cannot apply yet: a newer tarnfs is needed",
		rec->off, tarn_rec_type_name(rec->type), rec->seq);
}

/* A checkpoint record, on a kernel that has nothing. */
static int collect_stage(struct pass *p, const struct tarn_rec *rec)
{
	int ret;

	switch (rec->type) {
	case TARNFS_REC_DIRECTORY:
	case TARNFS_REC_FILE:
	case TARNFS_REC_SYMLINK:
		if (p->count == TARNFS_APPLY_MAX)
			return tarn_fail(p->err, EOPNOTSUPP,
					 "the checkpoint has more than %d entries, which this "
					 "version cannot load",
					 TARNFS_APPLY_MAX);
		return add_op(p, rec);
	case TARNFS_REC_CHECKPOINT_END:
		p->first_seq = p->log.base_seq;
		p->end = TARNFS_LOG_HEADER_UNITS + p->log.ckpt_units;
		ret = flush(p, TARNFS_APPLY_STAGE);
		if (ret)
			return ret;
		p->fresh = false;
		p->seq = p->log.base_seq;
		advance(p);
		return 0;
	default:
		return tarn_rec_type_name(rec->type) ? not_built(p, rec) : 0;
	}
}

static int collect(void *arg, const struct tarn_rec *rec)
{
	const uint64_t batch = (uint64_t)rec->batch_index + rec->batch_left + 1;
	struct pass *p = arg;
	int ret;

	if (rec->readonly)
		p->s->readonly = true;
	if (rec->flags & TARNFS_RECORD_CKPT)
		return p->fresh ? collect_stage(p, rec) : 0;
	if (!rec->batch_index) {
		p->batch = p->count;
		/* the kernel takes whole batches, as many as are sure to fit */
		if (p->count &&
		    (p->count + batch > TARNFS_APPLY_MAX ||
		     p->strings_len + batch * (TARNFS_NAME_MAX + TARNFS_TARGET_MAX) >
			     TARNFS_STRINGS_MAX)) {
			ret = flush_batches(p);
			if (ret)
				return ret;
		}
	}
	if (TARN_PLANTED(REPLAY_HALF_BATCH) && rec->batch_index) {
		ret = flush_batches(p);
		if (ret)
			return ret;
	}
	if (rec->seq > p->seq) {
		if (tarn_rec_type_name(rec->type) &&
		    (!tarn_rec_built(rec->type) || rec->type == TARNFS_REC_HOST))
			return not_built(p, rec);
		if (rec->seq != p->seq + 1)
			return tarn_fail(p->err, EUCLEAN,
					 "log at device offset 0x%" PRIx64 ": seq %" PRIu64
					 " where the kernel needs %" PRIu64,
					 rec->off, rec->seq, p->seq + 1);
		ret = add_op(p, rec);
		if (ret)
			return ret;
		p->many |= batch > 1;
		if (p->count == 1)
			p->first_seq = rec->seq;
		p->seq = rec->seq;
	}
	if (!rec->batch_left) {
		p->end = (uint32_t)((rec->off - p->log.area_off) / TARNFS_LINE) + rec->units;
		p->batch = p->count;
	}
	return 0;
}

/* ---- a pass ---- */

static bool newer(uint64_t generation, uint16_t host, uint64_t than_generation, uint16_t than_host)
{
	return generation > than_generation || (generation == than_generation && host > than_host);
}

/* May the log that counts be applied on what the kernel has? */
static int check_generation(struct pass *p)
{
	struct tarn_session *s = p->s;
	const struct tarnfs_status *st = &s->st;

	if (st->state & TARNFS_ST_FRESH)
		return 0;
	if (p->cur.generation == st->generation && p->cur.host == st->log_host)
		return 0;
	/* Flushing what a master that was evicted has reserved would write over new files. */
	if (st->role == TARNFS_ROLE_MASTER && p->cur.host != s->claim.page &&
	    newer(p->cur.generation, p->cur.host, st->generation, st->log_host))
		return tarn_lost(s, p->err,
				 "this host was the master and another took over: host page %u "
				 "holds generation %" PRIu64,
				 p->cur.host, p->cur.generation);
	if (newer(p->cur.generation, p->cur.host, st->generation, st->log_host))
		return tarn_fail(p->err, EOPNOTSUPP,
				 "the log was compacted or taken over (generation %" PRIu64
				 " of host page %u, "
				 "here %" PRIu64 " of %u is applied), which this version cannot "
						 "follow: umount and mount again",
				 p->cur.generation, p->cur.host, (uint64_t)st->generation,
				 st->log_host);
	return tarn_fail(p->err, EUCLEAN,
			 "the media's log is older than what is applied here (generation %" PRIu64
			 " of host page %u, here %" PRIu64 " of %u): fsck.tarnfs has to look at it",
			 p->cur.generation, p->cur.host, (uint64_t)st->generation, st->log_host);
}

/*
 * Where this pass begins to read: where this session was, or where whoever
 * applied last told the kernel that it was.
 */
static uint32_t start_pos(struct pass *p)
{
	const struct tarn_session *s = p->s;
	const struct tarn_log *had = &s->log;
	uint64_t noted = s->st.position;

	if (p->fresh)
		return TARNFS_LOG_HEADER_UNITS;
	if (had->seed.generation == p->log.seed.generation &&
	    had->seed.host == p->log.seed.host && had->area_off == p->log.area_off &&
	    s->log_pos <= p->log.units && had->next_seq <= p->seq + 1) {
		p->log.next_seq = had->next_seq;
		return s->log_pos;
	}
	if (noted >= TARNFS_LOG_HEADER_UNITS + p->log.ckpt_units && noted <= p->log.units) {
		p->log.next_seq = p->seq + 1;
		return (uint32_t)noted;
	}
	return TARNFS_LOG_HEADER_UNITS;
}

/* A check failed: is it damage, or did the log move away under us? */
static int moved_or_damaged(struct pass *p, int ret)
{
	struct tarn_err first = { "" };

	if (ret != -EUCLEAN && ret != -EOPNOTSUPP && ret != -EIO)
		return ret;
	if (p->err)
		first = *p->err;
	if (scan_again(p) == AGAIN)
		return AGAIN;
	if (p->err)
		*p->err = first;
	return ret;
}

static int read_log(struct pass *p)
{
	struct tarn_err first = { "" };
	uint32_t pos;
	size_t len;
	int flushed, ret = tarn_log_open(&p->log, p->s->media, &p->s->sb, &p->cur, p->err);

	if (ret)
		return moved_or_damaged(p, ret);
	if (p->log.readonly)
		p->s->readonly = true;
	pos = start_pos(p);
	p->end = pos;
	ret = tarn_log_walk(&p->log, p->s->media, &pos, collect, p, p->err);
	if (!ret)
		return flush_batches(p);
	if (ret == AGAIN || p->fresh || p->refused)
		return moved_or_damaged(p, ret);

	/* What stands before a damaged batch is good, if this still is the log. */
	ret = moved_or_damaged(p, ret);
	if (ret == AGAIN)
		return ret;
	if (p->err)
		first = *p->err;
	p->seq -= p->count - p->batch;
	p->count = p->batch;
	flushed = flush_batches(p);
	if (flushed == AGAIN)
		return AGAIN;
	if (!p->err)
		return ret;
	*p->err = first;
	len = strlen(first.text);
	if (!flushed && ret != -ENOMEM)
		snprintf(p->err->text + len, sizeof(first.text) - len,
			 "; what came before it, up to seq %" PRIu64 ", is good: fsck.tarnfs -n says "
			 "more", p->seq);
	return ret;
}

static int one_pass(struct pass *p)
{
	struct tarn_session *s = p->s;
	int ret = tarn_session_ours(s, p->err);

	if (ret)
		return ret;
	ret = s->kernel->ops->status(s->kernel, &s->st);
	if (ret)
		return tarn_fail(p->err, -ret, "STATUS: %s", strerror(-ret));
	if (s->st.state & TARNFS_ST_SHUTDOWN)
		return tarn_fail(p->err, EIO, TARN_SHUT_DOWN);
	if (s->st.nonce && s->st.nonce != s->claim.nonce)
		return tarn_fail(
			p->err, ESTALE,
			"the kernel knows this mount by another claim of a host page: umount it");
	p->fresh = s->st.state & TARNFS_ST_FRESH;
	p->refused = false;
	p->seq = s->st.seq;
	forget(p);
	ret = tarn_scan(s->media, &s->sb, &p->cur, NULL, p->err);
	if (ret)
		return ret;
	if (p->cur.sealed) {
		tarn_fail(p->err, EBUSY,
			  "a takeover is under way above generation %" PRIu64
			  " of host page %u: try again "
			  "when it is done",
			  p->cur.generation, p->cur.host);
		return AGAIN;
	}
	ret = check_generation(p);
	return ret ? ret : read_log(p);
}

int tarn_at_end(struct tarn_session *s, struct tarn_err *err)
{
	struct tarnfs_apply args;
	int ret;

	tarn_apply_args(s, &s->log, s->log_pos, &args);
	args.flags = TARNFS_APPLY_AT_END;
	args.first_seq = s->log.next_seq;
	ret = s->kernel->ops->apply(s->kernel, &args, NULL, NULL);
	if (ret && ret != -ESTALE)
		return tarn_fail(err, -ret, "APPLY (at end): %s", strerror(-ret));
	return ret;
}

int64_t tarn_replay(struct tarn_session *s, bool at_end, struct tarn_err *err)
{
	struct pass p = { .s = s, .err = err };
	unsigned int tries = 0;
	int64_t before;
	int ret;

	if (!s->claim.nonce)
		return tarn_fail(err, EUNATCH,
				 "no host page is known: it was not mounted by mount.tarnfs; "
				 "umount it and use mount -t tarnfs");
	for (;;) {
		before = p.applied;
		if (err)
			err->text[0] = '\0';
		ret = one_pass(&p);
		if (!ret && at_end) {
			tarn_stop_point("replayed");
			ret = tarn_at_end(s, err);
			if (ret == -ESTALE)
				ret = AGAIN;
		}
		if (ret != AGAIN)
			break;
		if (p.applied != before)
			tries = 0;
		if (++tries == PASSES) {
			ret = err && err->text[0] ? -EBUSY
						  : tarn_fail(err, EBUSY,
							      "the log changed hands at each of %d "
							      "attempts to read it: try again",
							      PASSES);
			break;
		}
		usleep(1000U << tries);
	}
	if (!ret) {
		ret = s->kernel->ops->status(s->kernel, &s->st);
		if (ret)
			tarn_fail(err, -ret, "STATUS: %s", strerror(-ret));
	}
	free(p.ops);
	free(p.places);
	free(p.strings);
	return ret ? ret : p.applied;
}
