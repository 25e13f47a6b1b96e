// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * log.c - a log as its master has committed it: commit word, header, and the
 * walk over its records, a batch at a time.
 */
#include "internal.h"

#include <inttypes.h>

/* ---- header and commit word ---- */

void tarn_log_header_encode(struct tarnfs_log_header *raw, const struct tarn_log *log,
			    uint64_t nonce, uint64_t time_sec)
{
	memset(raw, 0, sizeof(*raw));
	memcpy(raw->magic, TARNFS_LOG_MAGIC, TARNFS_MAGIC_LEN);
	raw->length = htole32(TARNFS_LOG_HEADER_LEN);
	memcpy(raw->uuid, log->seed.uuid, sizeof(raw->uuid));
	raw->generation = htole64(log->seed.generation);
	raw->host = htole16(log->seed.host);
	raw->prev_host = htole16(log->prev_host);
	raw->prev_generation = htole64(log->prev_generation);
	raw->base_seq = htole64(log->base_seq);
	raw->next_ino = htole64(log->next_ino);
	raw->ckpt_records = htole64(log->ckpt_records);
	raw->ckpt_units = htole32(log->ckpt_units);
	raw->writer_nonce = htole64(nonce);
	raw->time = htole64(time_sec);
	raw->data_end = htole64(log->data_end);
	raw->crc = htole32(tarn_log_crc(&log->seed, raw, sizeof(*raw),
					offsetof(struct tarnfs_log_header, crc)));
}

static const char *header_fault(const struct tarn_log *log, const struct tarnfs_log_header *raw,
				const struct tarn_super *sb)
{
	if (memcmp(raw->magic, TARNFS_LOG_MAGIC, TARNFS_MAGIC_LEN))
		return "no log header there";
	if (le32toh(raw->length) != TARNFS_LOG_HEADER_LEN)
		return "length";
	if (le32toh(raw->crc) !=
	    tarn_log_crc(&log->seed, raw, sizeof(*raw), offsetof(struct tarnfs_log_header, crc)))
		return "checksum";
	if (memcmp(raw->uuid, sb->uuid, sizeof(raw->uuid)) ||
	    le64toh(raw->generation) != log->seed.generation ||
	    le16toh(raw->host) != log->seed.host)
		return "of another log";
	if (log->prev_generation >= log->seed.generation ||
	    (log->seed.generation == 1 && log->prev_host))
		return "previous generation";
	if (log->base_seq > TARNFS_SEQ_MAX || (log->seed.generation == 1 && log->base_seq))
		return "sequence number";
	if (log->next_ino < TARNFS_INO_FIRST || log->next_ino > TARNFS_SEQ_MAX)
		return "inode number";
	if (log->ckpt_records < 2 || log->ckpt_units < log->ckpt_records ||
	    log->ckpt_units > log->units - TARNFS_LOG_HEADER_UNITS)
		return "length of the checkpoint";
	/* it grows only */
	if (log->data_end < sb->data_end || log->data_end > sb->dev_size ||
	    log->data_end % TARNFS_BLOCK)
		return "end of the data";
	return NULL;
}

bool tarn_log_header_whole(const struct tarnfs_log_header *raw, const struct tarn_seed *seed)
{
	return !memcmp(raw->magic, TARNFS_LOG_MAGIC, TARNFS_MAGIC_LEN) &&
	       le32toh(raw->crc) == tarn_log_crc(seed, raw, sizeof(*raw),
						 offsetof(struct tarnfs_log_header, crc));
}

int tarn_log_header_read(struct tarn_log *log, struct tarn_media *m, const struct tarn_super *sb,
			 struct tarn_err *err)
{
	struct tarnfs_log_header raw;
	const char *what;
	int ret = tarn_media_fetch(m, log->area_off, &raw, sizeof(raw));

	if (ret)
		return tarn_fail(err, -ret,
				 "log header: cannot be read at device offset 0x%" PRIx64 ": %s",
				 m->bad, strerror(-ret));
	log->base_seq = le64toh(raw.base_seq);
	log->next_ino = le64toh(raw.next_ino);
	log->prev_generation = le64toh(raw.prev_generation);
	log->prev_host = le16toh(raw.prev_host);
	log->data_end = le64toh(raw.data_end);
	log->ckpt_records = le64toh(raw.ckpt_records);
	log->ckpt_units = le32toh(raw.ckpt_units);
	log->readonly = (le64toh(raw.ro_compat) | sb->ro_compat) & ~TARNFS_RO_COMPAT_KNOWN;
	what = header_fault(log, &raw, sb);
	if (what)
		return tarn_fail(err, EUCLEAN,
				 "log header at device offset 0x%" PRIx64 ": damaged (%s)",
				 log->area_off, what);
	if (le64toh(raw.incompat) & ~TARNFS_INCOMPAT_KNOWN)
		return tarn_fail(err, EOPNOTSUPP,
				 "log header: feature bits 0x%" PRIx64 " need a newer tarnfs",
				 (uint64_t)le64toh(raw.incompat));
	if (le32toh(raw.flags) & ~TARNFS_LOG_TAKEOVER ||
	    !tarn_all_zero(raw.zero1, sizeof(raw.zero1)) ||
	    !tarn_all_zero(raw.zero2, sizeof(raw.zero2)))
		return tarn_fail(
			err, EOPNOTSUPP,
			"log header: flags or reserved bytes are set: it needs a newer tarnfs");
	return 0;
}

int tarn_log_open(struct tarn_log *log, struct tarn_media *m, const struct tarn_super *sb,
		  const struct tarn_current *cur, struct tarn_err *err)
{
	uint64_t off, word;
	int ret;

	memset(log, 0, sizeof(*log));
	if (!cur->generation)
		return tarn_fail(err, EUCLEAN,
				 "no host page holds an active log: fsck.tarnfs -n says what else is "
				 "damaged, and what can be repaired");
	memcpy(log->seed.uuid, sb->uuid, sizeof(log->seed.uuid));
	log->seed.generation = cur->generation;
	log->seed.host = cur->host;
	log->slot = cur->slot;
	log->area_off = cur->area_off;
	log->area_len = cur->area_len;
	off = tarn_commit_off(sb, log);
	ret = TARN_PLANTED(REPLAY_COMMIT_CACHED) ? 0 : tarn_media_invalidate(m, off, TARNFS_LINE);
	if (!ret)
		ret = tarn_media_read64(m, off, &word);
	if (ret)
		return tarn_fail(err, -ret,
				 "commit word: cannot be read at device offset 0x%" PRIx64 ": %s",
				 off, strerror(-ret));
	log->units = (uint32_t)le64toh(word);
	if (word != tarn_commit_word(&log->seed, log->slot, log->units))
		return tarn_fail(err, EUCLEAN,
				 "commit word at device offset 0x%" PRIx64 ": damaged (checksum)",
				 off);
	if (log->units < TARNFS_LOG_HEADER_UNITS + 2 ||
	    (uint64_t)log->units * TARNFS_LINE > log->area_len)
		return tarn_fail(err, EUCLEAN,
				 "commit word at device offset 0x%" PRIx64
				 ": %u units in an area of %" PRIu64 " bytes",
				 off, log->units, log->area_len);
	return tarn_log_header_read(log, m, sb, err);
}

/* ---- the walk ---- */

/* How far one fetch reads ahead, never past what is committed. */
#define WINDOW_UNITS 1024

struct window {			/* units [start, start + have) of the area */
	uint8_t *buf;
	size_t room;		/* units that buf holds */
	uint32_t start, have;
	uint32_t keep;		/* what stands before it is not asked for any more */
};

static uint8_t *window_at(const struct window *w, uint32_t unit)
{
	return w->buf + (size_t)(unit - w->start) * TARNFS_LINE;
}

/*
 * Drops what nobody asks for any more. Only when more is read: a log of batches of one record
 * would be moved as often as it has records.
 */
static void window_drop(struct window *w)
{
	uint32_t gone = w->keep - w->start;

	if (gone >= w->have) {
		w->have = 0;
	} else if (gone) {
		memmove(w->buf, window_at(w, w->keep), (size_t)(w->have - gone) * TARNFS_LINE);
		w->have -= gone;
	}
	w->start = w->keep;
}

/* Has units [keep, end) in the buffer. end <= log->units */
static int window_fill(struct window *w, const struct tarn_log *log, struct tarn_media *m,
		       uint32_t end, struct tarn_err *err)
{
	uint32_t have_to, want;
	uint64_t off;
	uint8_t *to;
	int ret;

	if (end <= w->start + w->have)
		return 0;
	window_drop(w);
	have_to = w->start + w->have;
	off = log->area_off + (uint64_t)have_to * TARNFS_LINE;
	want = end - have_to;
	if (want < WINDOW_UNITS)
		want = WINDOW_UNITS;
	if (want > log->units - have_to)
		want = log->units - have_to;
	if (w->have + (size_t)want > w->room) {
		size_t room = w->room * 2 > w->have + (size_t)want ? w->room * 2
								   : w->have + (size_t)want;
		uint8_t *buf = realloc(w->buf, room * TARNFS_LINE);

		if (!buf)
			return tarn_fail(err, ENOMEM, "no memory for %zu bytes of the log",
					 room * TARNFS_LINE);
		w->buf = buf;
		w->room = room;
	}
	to = w->buf + (size_t)w->have * TARNFS_LINE;
	ret = TARN_PLANTED(REPLAY_RECORDS_CACHED) ?
		      tarn_media_read(m, off, to, (size_t)want * TARNFS_LINE) :
		      tarn_media_fetch(m, off, to, (size_t)want * TARNFS_LINE);
	if (ret)
		return tarn_fail(err, -ret,
				 "log: cannot be read at device offset 0x%" PRIx64 ": %s",
				 ret == -EIO ? m->bad : off, strerror(-ret));
	w->have += want;
	return 0;
}

struct counts {
	uint64_t records, directories, files, symlinks, pending_free, hosts, others;
};

static void count_record(struct counts *n, const struct tarn_rec *rec)
{
	n->records++;
	switch (rec->type) {
	case TARNFS_REC_DIRECTORY:	n->directories++; break;
	case TARNFS_REC_FILE:		n->files++; break;
	case TARNFS_REC_SYMLINK:	n->symlinks++; break;
	case TARNFS_REC_PENDING_FREE:	n->pending_free++; break;
	case TARNFS_REC_HOST:		n->hosts++; break;
	case TARNFS_REC_CHECKPOINT_END:	break;
	default:			n->others++; break;
	}
}

static bool is_root(const struct tarn_rec *rec)
{
	return rec->type == TARNFS_REC_DIRECTORY && rec->ino == TARNFS_INO_ROOT;
}

/* Where a record stands, and which it has to be: how each sentence about one begins. */
static int at_record(struct tarn_err *err, int ret, uint64_t off, bool ckpt, uint64_t seq)
{
	if (ckpt)
		return tarn_fail_prefix(err, ret, "log at device offset 0x%" PRIx64 ", record %" PRIu64
					" of the checkpoint: ", off, seq);
	if (seq)
		return tarn_fail_prefix(err, ret, "log at device offset 0x%" PRIx64 ", seq %" PRIu64
					": ", off, seq);
	return tarn_fail_prefix(err, ret, "log at device offset 0x%" PRIx64 ": ", off);
}

/*
 * One record at `unit`, decoded; its offset and number (seq, 0: not known; in the checkpoint the
 * ordinal) go into a sentence about it. seed NULL: it is in the window and its crc was checked.
 */
static int record_at(struct tarn_rec *rec, struct window *w, const struct tarn_log *log,
		     const struct tarn_seed *seed, struct tarn_media *m, uint32_t unit,
		     uint32_t limit, uint64_t seq, struct tarn_err *err)
{
	uint64_t off = log->area_off + (uint64_t)unit * TARNFS_LINE;
	bool ckpt = unit < TARNFS_LOG_HEADER_UNITS + log->ckpt_units;
	struct tarnfs_record head;
	uint32_t units;
	int ret;

	if (unit >= limit)
		return at_record(err, tarn_fail(err, EUCLEAN, "missing: the log ends within a batch"),
				 off, ckpt, seq);
	ret = window_fill(w, log, m, unit + 1, err);
	if (ret)
		return ret;
	memcpy(&head, window_at(w, unit), sizeof(head));
	units = le16toh(head.units);
	if (units > limit - unit)
		return at_record(err, tarn_fail(err, EUCLEAN, "record: damaged (length)"), off, ckpt,
				 seq);
	if (units > 1) {
		ret = window_fill(w, log, m, unit + units, err);
		if (ret)
			return ret;
	}
	ret = tarn_rec_decode(rec, window_at(w, unit), (size_t)units * TARNFS_LINE, seed, err);
	rec->off = off;
	return ret ? at_record(err, ret, off, ckpt, seq) : 0;
}

static int misplaced(const struct tarn_rec *rec, struct tarn_err *err, const char *what)
{
	return at_record(err, tarn_fail(err, EUCLEAN, "record out of place (%s)", what), rec->off,
			 rec->flags & TARNFS_RECORD_CKPT, rec->seq);
}

/* The checkpoint stands from the header to ckpt_units: all of it is checked. */
static int load_checkpoint(struct window *w, const struct tarn_log *log, struct tarn_media *m,
			   uint32_t *end, struct tarn_err *err)
{
	uint32_t unit = TARNFS_LOG_HEADER_UNITS, limit = unit + log->ckpt_units;
	struct counts n = { 0 };
	struct tarn_rec rec;

	do {
		int ret = record_at(&rec, w, log, &log->seed, m, unit, limit, n.records + 1, err);

		if (ret)
			return ret;
		if (!(rec.flags & TARNFS_RECORD_CKPT))
			return misplaced(&rec, err, "in the checkpoint");
		if (rec.seq != n.records + 1)
			return misplaced(&rec, err, "ordinal");
		if (is_root(&rec) != !n.records)
			return misplaced(&rec, err, "the root comes first, and once");
		count_record(&n, &rec);
		unit += rec.units;
	} while (rec.type != TARNFS_REC_CHECKPOINT_END);
	if (unit != limit || n.records != log->ckpt_records)
		return misplaced(&rec, err, "the checkpoint ends too early");
	if (rec.directories != n.directories || rec.files != n.files ||
	    rec.symlinks != n.symlinks || rec.pending_free != n.pending_free ||
	    rec.hosts != n.hosts || rec.others != n.others)
		return misplaced(&rec, err, "the checkpoint's counts are not those of its records");
	*end = unit;
	return 0;
}

static int load_batch(struct window *w, const struct tarn_log *log, struct tarn_media *m,
		      uint32_t unit, uint64_t seq, uint32_t *end, struct tarn_err *err)
{
	uint32_t index = 0, left = 0;
	struct tarn_rec rec;

	do {
		int ret = record_at(&rec, w, log, &log->seed, m, unit, log->units, seq, err);

		if (ret)
			return ret;
		if (rec.flags & TARNFS_RECORD_CKPT || rec.type == TARNFS_REC_PENDING_FREE)
			return misplaced(&rec, err, "outside the checkpoint");
		if (seq && rec.seq != seq)
			return misplaced(&rec, err, "sequence number");
		if (rec.batch_index != index || (index && rec.batch_left != left - 1))
			return misplaced(&rec, err, "place in its batch");
		seq = rec.seq + 1;
		index++;
		left = rec.batch_left;
		unit += rec.units;
	} while (left);
	*end = unit;
	return 0;
}

int tarn_log_walk(struct tarn_log *log, struct tarn_media *m, uint32_t *pos, tarn_rec_fn fn,
		  void *arg, struct tarn_err *err)
{
	uint32_t after_ckpt = TARNFS_LOG_HEADER_UNITS + log->ckpt_units;
	struct window w = { .start = *pos, .keep = *pos };
	int ret = 0;

	if (*pos != TARNFS_LOG_HEADER_UNITS && *pos < after_ckpt)
		return tarn_fail(err, EINVAL, "walk of the log from unit %u, within its checkpoint",
				 *pos);
	while (*pos < log->units) {
		uint32_t end = 0, unit = *pos;
		struct tarn_rec rec = { .seq = 0 };

		/* checked whole before anyone sees its first record */
		if (unit == TARNFS_LOG_HEADER_UNITS)
			ret = load_checkpoint(&w, log, m, &end, err);
		else
			ret = load_batch(&w, log, m, unit, log->next_seq, &end, err);
		for (; !ret && unit < end; unit += rec.units) {
			ret = record_at(&rec, &w, log, NULL, m, unit, end, 0, err);
			if (!ret)
				ret = fn(arg, &rec);
		}
		if (ret)
			break;
		log->next_seq = *pos == TARNFS_LOG_HEADER_UNITS ? log->base_seq + 1 : rec.seq + 1;
		*pos = end;
		w.keep = end;
	}
	free(w.buf);
	return ret;
}
