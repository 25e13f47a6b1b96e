// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * fsck_log.c - fsck of the log that counts, and of the tree and extents that
 * its records make.
 *
 * What is committed is copied once and everything is decided on that copy, so
 * that no other host's store can come between a check and a use. Memory: that
 * copy, and a node for each record, of which there is at most one a line.
 */
#include "fsck_pass.h"

/* A record's longest form without tagged values, in units: where good ones are looked for. */
#define SEARCH_UNITS ((sizeof(struct tarnfs_rec_symlink) + TARNFS_NAME_MAX + TARNFS_TARGET_MAX + \
		       TARNFS_LINE - 1) / TARNFS_LINE)
/* Bytes under bad checksums, in logs, before the rest of a log is given up. */
#define WASTE_LOGS 64

struct node {
	uint64_t ino, parent;
	uint64_t off, len;		/* of the extent, len 0: none */
	const char *name;		/* in the copy of the log */
	uint32_t unit;
	uint16_t name_len;
	uint8_t type;
	bool ckpt;
};

struct walk {
	struct pass *p;
	uint8_t *buf;			/* the log, from its header on */
	struct node *nodes;
	size_t count, room;
	bool lost;			/* what came before is not known: no order to check */
	bool damaged;			/* somewhere, a record could not be used */
	bool unbuilt;			/* a record whose effect is not known */
	uint64_t wasted;
	uint64_t ino_end;		/* the next inode number, by what came before */
	/* where the walk is */
	uint64_t ordinal, seq;
	uint32_t index, left;
	bool have_end;
	uint64_t records, directories, files, symlinks, pending_free, hosts, others;
};

static uint64_t unit_off(const struct pass *p, uint32_t unit)
{
	return p->log.area_off + (uint64_t)unit * TARNFS_LINE;
}

/* ---- commit word and header ---- */

static bool fits_area(const struct pass *p, uint32_t units)
{
	return units >= TARNFS_LOG_HEADER_UNITS + 2 &&
	       (uint64_t)units * TARNFS_LINE <= p->log.area_len;
}

/*
 * The commit word is bad, and its host let the file system go in order: its quiesce line says
 * how long the log is. Nothing was appended since, for that takes a claim, which clears the line.
 */
static bool stand_in(struct pass *p)
{
	const struct tarn_identity *id = &p->ids[p->log.seed.host];
	const struct tarn_quiesce *quiesce = &p->quiesce[p->log.seed.host];

	p->by_quiesce = !id->bad && id->state == TARNFS_PAGE_BOUND && quiesce->valid &&
			quiesce->generation == p->log.seed.generation &&
			fits_area(p, quiesce->final_units);
	if (p->by_quiesce)
		p->log.units = quiesce->final_units;
	return p->by_quiesce;
}

static bool check_commit(struct pass *p)
{
	uint64_t off = tarn_commit_off(&p->sb, &p->log), word;
	int ret = tarn_media_invalidate(p->m, off, TARNFS_LINE);

	if (!ret)
		ret = tarn_media_read64(p->m, off, &word);
	if (ret) {
		tarn_fsck_find(p, TARN_FSCK_UNREADABLE, off, "the commit word cannot be read: %s",
			       strerror(-ret));
		return false;
	}
	p->log.units = (uint32_t)le64toh(word);
	if (word != tarn_commit_word(&p->log.seed, p->log.slot, p->log.units)) {
		tarn_fsck_find(p, TARN_FSCK_COMMIT, off,
			       "commit word of host page %u, slot %u: checksum; how long the log at "
			       "0x%" PRIx64 " is, %s", p->log.seed.host, p->log.slot,
			       p->log.area_off, stand_in(p) ? "its host's quiesce line says" :
			       "is not known");
		return p->by_quiesce;
	}
	if (!fits_area(p, p->log.units)) {
		tarn_fsck_find(p, TARN_FSCK_COMMIT_UNITS, off,
			       "commit word of host page %u, slot %u: %u units in an area of %" PRIu64
			       " bytes", p->log.seed.host, p->log.slot, p->log.units,
			       p->log.area_len);
		return stand_in(p);
	}
	return true;
}

static bool check_header(struct pass *p)
{
	struct tarnfs_log_header raw;
	struct tarn_err err = { "" };
	int ret;

	if (tarn_fsck_fetch(p, p->log.area_off, &raw, sizeof(raw)))
		return false;
	if (!tarn_log_header_whole(&raw, &p->log.seed)) {
		tarn_fsck_find(p, TARN_FSCK_HEADER, p->log.area_off, "log header: %s",
			       memcmp(raw.magic, TARNFS_LOG_MAGIC, TARNFS_MAGIC_LEN)
				       ? "there is none" : "checksum");
		return false;
	}
	/* the commit word may not be what the length is from */
	ret = tarn_log_header_read(&p->log, p->m, &p->sb, &err);
	if (ret) {
		tarn_fsck_find(p,
			       ret == -EOPNOTSUPP ? TARN_FSCK_HEADER_NEWER : TARN_FSCK_HEADER_FIELD,
			       p->log.area_off, "%s", err.text);
		return false;
	}
	if (p->log.readonly)
		tarn_fsck_find(p, TARN_FSCK_READONLY, p->log.area_off,
			       "a feature that these tools do not know forbids changes by them");
	return true;
}

/* ---- the copy ---- */

static bool copy_log(struct walk *w)
{
	struct pass *p = w->p;
	size_t len = (size_t)p->log.units * TARNFS_LINE, chunk = TARNFS_BLOCK;

	w->buf = malloc(len);
	if (!w->buf) {
		tarn_fsck_no_memory(p, len);
		return false;
	}
	for (size_t at = 0; at < len; at += chunk) {
		if (chunk > len - at)
			chunk = len - at;
		if (!(at / TARNFS_BLOCK % 1024) && tarn_fsck_step(p, 2, at, len))
			return false;
		if (tarn_fsck_fetch(p, p->log.area_off + at, w->buf + at, chunk))
			memset(w->buf + at, 0, chunk);
	}
	return !tarn_fsck_step(p, 2, len, len);
}

/* ---- records ---- */

static void head_at(const struct walk *w, uint32_t unit, struct tarnfs_record *head)
{
	memcpy(head, w->buf + (size_t)unit * TARNFS_LINE, sizeof(*head));
}

static bool crc_fits(struct walk *w, uint32_t unit, const struct tarnfs_record *head)
{
	size_t len = (size_t)le16toh(head->units) * TARNFS_LINE;
	const uint8_t *at = w->buf + (size_t)unit * TARNFS_LINE;

	if (le32toh(head->crc) ==
	    tarn_log_crc(&w->p->log.seed, at, len, offsetof(struct tarnfs_record, crc)))
		return true;
	w->wasted += len;
	return false;
}

/* Where the next good record stands after a bad one: log.units when there is none. */
static uint32_t next_good(struct walk *w, uint32_t unit)
{
	const struct tarn_log *log = &w->p->log;
	uint64_t limit = (uint64_t)WASTE_LOGS * log->units * TARNFS_LINE;

	while (++unit < log->units) {
		struct tarnfs_record head;
		uint16_t units;

		if (w->wasted > limit || (!(unit % 65536) && tarn_fsck_step(w->p, 3, unit, log->units)))
			return log->units;
		head_at(w, unit, &head);
		units = le16toh(head.units);
		if (units && units <= SEARCH_UNITS && units <= log->units - unit && head.type &&
		    head.class <= TARNFS_CLASS_IGNORE && le64toh(head.seq) <= TARNFS_SEQ_MAX &&
		    crc_fits(w, unit, &head))
			return unit;
	}
	return unit;
}

static uint32_t skip_bad(struct walk *w, uint32_t unit, enum tarn_fsck_number number,
			 const char *what)
{
	struct pass *p = w->p;
	uint32_t next = next_good(w, unit);

	tarn_fsck_find(p, number, unit_off(p, unit),
		       "record damaged (%s); %s after %u bytes", what,
		       next < p->log.units ? "the next good one stands" : "nothing good follows, the log ends",
		       (next - unit) * TARNFS_LINE);
	if (w->wasted > (uint64_t)WASTE_LOGS * p->log.units * TARNFS_LINE)
		tarn_fsck_find(p, TARN_FSCK_GIVEN_UP, unit_off(p, unit),
			       "too much of the log is damaged: what follows was not looked at");
	w->damaged = w->lost = true;
	return next;
}

static bool is_root(const struct tarn_rec *rec)
{
	return rec->type == TARNFS_REC_DIRECTORY && rec->ino == TARNFS_INO_ROOT;
}

/* RESERVE hands out no number further ahead than that, and the kernel takes none from there. */
static void check_ino_jump(struct walk *w, const struct tarn_rec *rec, uint32_t unit)
{
	if (rec->flags & TARNFS_RECORD_CKPT || w->damaged)
		return;
	if (rec->ino >= w->ino_end + TARNFS_INO_JUMP)
		tarn_fsck_find(w->p, TARN_FSCK_INO_RANGE, unit_off(w->p, unit),
			       "inode %" PRIu64 ", and %" PRIu64
			       " is the next to be used: replay stops before it", rec->ino, w->ino_end);
	else if (rec->ino >= w->ino_end)
		w->ino_end = rec->ino + 1;
}

static void add_node(struct walk *w, const struct tarn_rec *rec, uint32_t unit)
{
	check_ino_jump(w, rec, unit);
	if (w->count == w->room) {
		size_t room = w->room ? 2 * w->room : 1024;
		struct node *more = reallocarray(w->nodes, room, sizeof(*more));

		if (!more) {
			tarn_fsck_no_memory(w->p, room * sizeof(*more));
			return;
		}
		w->nodes = more;
		w->room = room;
	}
	w->nodes[w->count++] = (struct node){
		.ino = rec->ino,
		.parent = rec->parent,
		.off = rec->ext_off,
		.len = rec->extents ? rec->ext_len : 0,
		.name = rec->name,
		.name_len = rec->name_len,
		.unit = unit,
		.type = (uint8_t)rec->type,
		.ckpt = rec->flags & TARNFS_RECORD_CKPT,
	};
}

static void check_extent(struct pass *p, const struct tarn_rec *rec, uint64_t off)
{
	uint64_t align = rec->size >= TARNFS_HUGE ? TARNFS_HUGE : TARNFS_BLOCK;

	if (!rec->extents)
		return;
	if (rec->ext_off % align)
		tarn_fsck_find(p, TARN_FSCK_EXTENT_ALIGN, off,
			       "inode %" PRIu64 ": a file of %" PRIu64 " bytes at 0x%" PRIx64
			       ", which is no multiple of %" PRIu64, rec->ino, rec->size,
			       rec->ext_off, align);
	if (rec->ext_len != tarn_round_up(rec->size, TARNFS_BLOCK))
		tarn_fsck_find(p, TARN_FSCK_EXTENT_LENGTH, off,
			       "inode %" PRIu64 ": a file of %" PRIu64 " bytes with an extent of "
			       "%" PRIu64, rec->ino, rec->size, rec->ext_len);
	/* the kernel knows no other end: it has not learnt to grow yet */
	if (rec->ext_off < p->sb.data_start || rec->ext_off > p->sb.data_end ||
	    rec->ext_len > p->sb.data_end - rec->ext_off)
		tarn_fsck_find(p, TARN_FSCK_EXTENT_RANGE, off,
			       "inode %" PRIu64 ": extent 0x%" PRIx64 "+0x%" PRIx64
			       " outside of the data, 0x%" PRIx64 " to 0x%" PRIx64, rec->ino,
			       rec->ext_off, rec->ext_len, p->sb.data_start, p->sb.data_end);
	else
		p->used += rec->ext_len;
}

/* What a good record is, apart from its place. */
static void check_meaning(struct walk *w, const struct tarn_rec *rec, uint32_t unit)
{
	struct pass *p = w->p;
	uint64_t off = unit_off(p, unit);

	switch (rec->type) {
	case TARNFS_REC_DIRECTORY:
		p->directories++;
		add_node(w, rec, unit);
		break;
	case TARNFS_REC_FILE:
		p->files++;
		check_extent(p, rec, off);
		add_node(w, rec, unit);
		break;
	case TARNFS_REC_SYMLINK:
		p->symlinks++;
		add_node(w, rec, unit);
		break;
	default:
		if (!tarn_rec_type_name(rec->type) && rec->class_ == TARNFS_CLASS_IGNORE)
			tarn_fsck_find(p, TARN_FSCK_RECORD_IGNORED, off,
				       "record of unknown type %u, of which it says that it may be "
				       "ignored", rec->type);
		else if (rec->type == TARNFS_REC_HOST)
			tarn_fsck_find(p, TARN_FSCK_RECORD_UNBUILT, off,
				       "record of type %s, which this version cannot apply: replay "
				       "stops before it", tarn_rec_type_name(rec->type));
		else if (tarn_rec_type_name(rec->type) && !tarn_rec_built(rec->type)) {
			w->unbuilt = true;
			tarn_fsck_find(p, TARN_FSCK_RECORD_UNBUILT, off,
				       "record of type %s, which this version cannot check: names "
				       "and extents were not compared with each other",
				       tarn_rec_type_name(rec->type));
		}
		break;
	}
	if (rec->readonly)
		tarn_fsck_find(p, TARN_FSCK_RECORD_READONLY, off,
			       "record with something unknown (type %u) that forbids changes by "
			       "these tools", rec->type);
}

static void count_record(struct walk *w, uint16_t type)
{
	w->records++;
	switch (type) {
	case TARNFS_REC_DIRECTORY:	w->directories++; break;
	case TARNFS_REC_FILE:		w->files++; break;
	case TARNFS_REC_SYMLINK:	w->symlinks++; break;
	case TARNFS_REC_PENDING_FREE:	w->pending_free++; break;
	case TARNFS_REC_HOST:		w->hosts++; break;
	case TARNFS_REC_CHECKPOINT_END:	break;
	default:			w->others++; break;
	}
}

static void check_end(struct walk *w, const struct tarn_rec *rec, uint32_t unit)
{
	const struct tarn_log *log = &w->p->log;
	uint64_t off = unit_off(w->p, unit);

	w->have_end = true;
	if (unit + rec->units != TARNFS_LOG_HEADER_UNITS + log->ckpt_units)
		tarn_fsck_find(w->p, TARN_FSCK_CKPT_LENGTH, off,
			       "the checkpoint ends with unit %u, and its header says unit %u",
			       unit + rec->units, TARNFS_LOG_HEADER_UNITS + log->ckpt_units);
	if (w->damaged)		/* what was lost would have counted */
		return;
	if (w->records != log->ckpt_records)
		tarn_fsck_find(w->p, TARN_FSCK_CKPT_LENGTH, off,
			       "the checkpoint has %" PRIu64 " records, and its header says %" PRIu64,
			       w->records, log->ckpt_records);
	if (rec->directories != w->directories || rec->files != w->files ||
	    rec->symlinks != w->symlinks || rec->pending_free != w->pending_free ||
	    rec->hosts != w->hosts || rec->others != w->others)
		tarn_fsck_find(w->p, TARN_FSCK_CKPT_COUNTS, off,
			       "the checkpoint's counts (%" PRIu64 " directories, %" PRIu64
			       " files, %" PRIu64 " symlinks) are not those of its records (%" PRIu64
			       ", %" PRIu64 ", %" PRIu64 "; %" PRIu64 " of other types)",
			       rec->directories, rec->files, rec->symlinks, w->directories,
			       w->files, w->symlinks, w->pending_free + w->hosts + w->others);
}

static void place_in_ckpt(struct walk *w, const struct tarn_rec *rec, uint32_t unit)
{
	uint64_t off = unit_off(w->p, unit);

	if (!w->lost && rec->seq != w->ordinal)
		tarn_fsck_find(w->p, TARN_FSCK_ORDINAL, off,
			       "ordinal %" PRIu64 " where %" PRIu64 " is next", rec->seq,
			       w->ordinal);
	w->ordinal = rec->seq + 1;
	if (w->have_end)
		tarn_fsck_find(w->p, TARN_FSCK_CKPT_LENGTH, off,
			       "a record after the end of the checkpoint, within its length");
	if (is_root(rec) ? w->count : !w->count && !w->damaged)
		tarn_fsck_find(w->p, TARN_FSCK_ROOT, off, "%s",
			       is_root(rec) ? "the root directory again, or not first"
					    : "the first record is not the root directory");
	count_record(w, rec->type);
}

static void place_in_batch(struct walk *w, const struct tarn_rec *rec, uint32_t unit)
{
	uint64_t off = unit_off(w->p, unit);

	if (!w->lost && rec->seq != w->seq)
		tarn_fsck_find(w->p, TARN_FSCK_SEQ, off, "seq %" PRIu64 " where %" PRIu64 " is next",
			       rec->seq, w->seq);
	if (!w->lost &&
	    (rec->batch_index != w->index || (w->index && rec->batch_left != w->left - 1)))
		tarn_fsck_find(w->p, TARN_FSCK_BATCH, off,
			       "record %u of its batch with %u to come, where %u is next with %u",
			       rec->batch_index, rec->batch_left, w->index,
			       w->index ? w->left - 1 : rec->batch_left);
	w->seq = rec->seq + 1;
	w->p->seq = rec->seq;
	w->left = rec->batch_left;
	w->index = w->left ? rec->batch_index + 1U : 0;
}

/* One record; returns where the next one begins. */
static uint32_t check_record(struct walk *w, uint32_t unit)
{
	struct pass *p = w->p;
	uint32_t ckpt_end = TARNFS_LOG_HEADER_UNITS + p->log.ckpt_units, units;
	bool in_ckpt = unit < ckpt_end;
	struct tarn_err err = { "" };
	struct tarnfs_record head;
	struct tarn_rec rec;
	int ret;

	head_at(w, unit, &head);
	units = le16toh(head.units);
	if (!units || units > p->log.units - unit)
		return skip_bad(w, unit, TARN_FSCK_RECORD_LENGTH, "length");
	if (!crc_fits(w, unit, &head))
		return skip_bad(w, unit, TARN_FSCK_RECORD, "checksum");

	ret = tarn_rec_decode(&rec, w->buf + (size_t)unit * TARNFS_LINE,
			      (size_t)units * TARNFS_LINE, NULL, &err);
	if (!(rec.flags & TARNFS_RECORD_CKPT) != !in_ckpt ||
	    (!in_ckpt && rec.type == TARNFS_REC_PENDING_FREE)) {
		tarn_fsck_find(p, TARN_FSCK_MISPLACED, unit_off(p, unit),
			       "a record of %s", in_ckpt ? "no checkpoint in it" :
			       "the checkpoint after its end");
		w->lost = w->damaged = true;
		return unit + units;
	}
	if (in_ckpt && units > ckpt_end - unit)
		tarn_fsck_find(p, TARN_FSCK_CKPT_LENGTH, unit_off(p, unit),
			       "a record across the end of the checkpoint");
	if (ret)
		w->damaged = true;
	if (in_ckpt)
		place_in_ckpt(w, &rec, unit);
	else
		place_in_batch(w, &rec, unit);
	w->lost = false;
	if (ret) {
		tarn_fsck_find(p,
			       ret == -EOPNOTSUPP ? TARN_FSCK_RECORD_NEWER : TARN_FSCK_RECORD_FIELD,
			       unit_off(p, unit), "%s (seq %" PRIu64 "; its checksum is right)",
			       err.text, rec.seq);
		return unit + units;
	}
	if (rec.type == TARNFS_REC_CHECKPOINT_END)
		check_end(w, &rec, unit);
	check_meaning(w, &rec, unit);
	return unit + units;
}

static void walk_records(struct walk *w)
{
	struct pass *p = w->p;
	uint32_t unit = TARNFS_LOG_HEADER_UNITS, n = 0;
	uint32_t ckpt_end = unit + p->log.ckpt_units;
	bool told = false;

	p->seq = p->log.base_seq;
	w->ordinal = 1;
	w->seq = p->log.base_seq + 1;
	w->ino_end = p->log.next_ino;
	while (unit < p->log.units && !p->failed) {
		if (!(n++ % 4096) && tarn_fsck_step(p, 3, unit, p->log.units))
			return;
		unit = check_record(w, unit);
		if (unit < ckpt_end || told)
			continue;
		told = true;
		if (!w->have_end && !w->damaged)
			tarn_fsck_find(p, TARN_FSCK_CKPT_LENGTH, unit_off(p, ckpt_end),
				       "the checkpoint has no end where its header says it ends");
	}
	if (w->left && !w->lost)
		tarn_fsck_find(p, TARN_FSCK_BATCH_END, unit_off(p, p->log.units),
			       "the log ends here, and %u records of its last batch are missing",
			       w->left);
}

/* ---- tree ---- */

static int by_ino(const void *a, const void *b)
{
	const struct node *x = a, *y = b;

	if (x->ino != y->ino)
		return x->ino < y->ino ? -1 : 1;
	return x->unit < y->unit ? -1 : x->unit > y->unit;
}

static int by_name(const void *a, const void *b)
{
	const struct node *x = *(const struct node *const *)a, *y = *(const struct node *const *)b;
	int order;

	if (x->parent != y->parent)
		return x->parent < y->parent ? -1 : 1;
	if (x->name_len != y->name_len)
		return x->name_len < y->name_len ? -1 : 1;
	order = x->name_len ? memcmp(x->name, y->name, x->name_len) : 0;
	return order ? order : x->unit < y->unit ? -1 : x->unit > y->unit;
}

/* The first node of that number in an array in order of numbers, or NULL. */
static const struct node *find_node(const struct walk *w, uint64_t ino)
{
	size_t low = 0, high = w->count;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (w->nodes[mid].ino < ino)
			low = mid + 1;
		else
			high = mid;
	}
	return low < w->count && w->nodes[low].ino == ino ? &w->nodes[low] : NULL;
}

static void check_numbers(const struct walk *w)
{
	for (size_t i = 0; i < w->count; i++) {
		const struct node *n = &w->nodes[i];

		/* the root twice is said already */
		if (i && n->ino == n[-1].ino && n->ino != TARNFS_INO_ROOT)
			tarn_fsck_find(w->p, TARN_FSCK_INO_TWICE, unit_off(w->p, n->unit),
				       "inode %" PRIu64 " is created again; first at 0x%" PRIx64,
				       n->ino, unit_off(w->p, n[-1].unit));
		if (n->ckpt && n->ino >= w->p->log.next_ino)
			tarn_fsck_find(w->p, TARN_FSCK_INO_RANGE, unit_off(w->p, n->unit),
				       "inode %" PRIu64 " in the checkpoint, whose header gives %"
				       PRIu64 " as the next to be used", n->ino,
				       w->p->log.next_ino);
	}
}

/* names[from..to): all that say they are in one directory. */
static void check_directory(const struct walk *w, const struct node *const *names, size_t from,
			    size_t to)
{
	const struct node *dir = find_node(w, names[from]->parent), *first = names[from];
	uint64_t earlier = 0;

	for (size_t i = from; i < to; i++) {
		const struct node *n = names[i], *same = i > from ? names[i - 1] : NULL;

		if (n->unit < first->unit)
			first = n;
		if (dir && n->unit < dir->unit)
			earlier++;
		if (same && n->name_len == same->name_len &&
		    !memcmp(n->name, same->name, n->name_len))
			tarn_fsck_find(w->p, TARN_FSCK_NAME_TWICE, unit_off(w->p, n->unit),
				       "inode %" PRIu64 " has the name that inode %" PRIu64
				       " has in directory %" PRIu64, n->ino, same->ino, n->parent);
	}
	if (!dir)
		tarn_fsck_find(w->p, TARN_FSCK_NO_PARENT, unit_off(w->p, first->unit),
			       "directory %" PRIu64 ", in which inode %" PRIu64 " and %zu more are, "
			       "does not exist%s", first->parent, first->ino, to - from - 1,
			       w->damaged ? " (a damaged record may have been it)" : "");
	else if (dir->type != TARNFS_REC_DIRECTORY)
		tarn_fsck_find(w->p, TARN_FSCK_PARENT_TYPE, unit_off(w->p, first->unit),
			       "inode %" PRIu64 ", in which inode %" PRIu64 " and %zu more are, is "
			       "a %s", first->parent, first->ino, to - from - 1,
			       tarn_rec_type_name(dir->type));
	else if (earlier)
		tarn_fsck_find(w->p, TARN_FSCK_PARENT_LATER, unit_off(w->p, first->unit),
			       "directory %" PRIu64 " is created at 0x%" PRIx64 ", after %" PRIu64
			       " that are in it", first->parent, unit_off(w->p, dir->unit), earlier);
}

static void check_tree(struct walk *w)
{
	const struct node **names = calloc(w->count + 1, sizeof(*names));
	size_t count = 0;

	if (!names) {
		tarn_fsck_no_memory(w->p, w->count * sizeof(*names));
		return;
	}
	qsort(w->nodes, w->count, sizeof(*w->nodes), by_ino);
	check_numbers(w);
	for (size_t i = 0; i < w->count; i++)
		if (w->nodes[i].ino != TARNFS_INO_ROOT)
			names[count++] = &w->nodes[i];
	qsort(names, count, sizeof(*names), by_name);
	for (size_t from = 0, to; from < count; from = to) {
		for (to = from + 1; to < count && names[to]->parent == names[from]->parent;)
			to++;
		check_directory(w, names, from, to);
	}
	free(names);
}

/* ---- extents ---- */

static int by_extent(const void *a, const void *b)
{
	const struct node *x = a, *y = b;

	if (x->off != y->off)
		return x->off < y->off ? -1 : 1;
	return x->unit < y->unit ? -1 : x->unit > y->unit;
}

/* In order of place, each is compared with the one before it that reaches furthest. */
static void check_overlap(struct walk *w)
{
	const struct node *far = NULL;

	qsort(w->nodes, w->count, sizeof(*w->nodes), by_extent);
	for (size_t i = 0; i < w->count; i++) {
		const struct node *n = &w->nodes[i];

		if (!n->len)
			continue;
		if (far && n->off < far->off + far->len) {
			const struct node *late = n->unit > far->unit ? n : far;

			tarn_fsck_find(w->p, TARN_FSCK_EXTENT_SHARED, unit_off(w->p, late->unit),
				       "inodes %" PRIu64 " and %" PRIu64 " share bytes: 0x%" PRIx64
				       "+0x%" PRIx64 " and 0x%" PRIx64 "+0x%" PRIx64, far->ino,
				       n->ino, far->off, far->len, n->off, n->len);
		}
		/* neither sum overflows: record.c sees to it */
		if (!far || n->off + n->len > far->off + far->len)
			far = n;
	}
}

/* ---- what counts for nothing ---- */

/* Records of this log behind its end: an append that was broken off before its commit point. */
static void check_tail(struct pass *p)
{
	const struct tarn_log *log = &p->log;
	uint64_t off = unit_off(p, log->units), end = log->area_off + log->area_len, at = off;
	size_t room = (size_t)UINT16_MAX * TARNFS_LINE;
	uint8_t *buf = malloc(room);

	if (!buf) {
		tarn_fsck_no_memory(p, room);
		return;
	}
	while (end - at >= TARNFS_LINE) {
		struct tarnfs_record head;
		size_t len;

		if (tarn_fsck_fetch(p, at, &head, sizeof(head)))
			break;
		len = (size_t)le16toh(head.units) * TARNFS_LINE;
		if (!len || len > end - at || tarn_fsck_fetch(p, at, buf, len) ||
		    le32toh(head.crc) != tarn_log_crc(&log->seed, buf, len,
						      offsetof(struct tarnfs_record, crc)))
			break;
		at += len;
	}
	free(buf);
	if (at != off)
		tarn_fsck_find_set(p, TARN_FSCK_TAIL, off, at - off,
				   "records of this log past its end: an append that was broken off, or "
				   "is under way; they count for nothing");
}

static bool is_named(struct pass *p, const struct tarn_media_range *area)
{
	for (uint32_t i = 0; i < p->sb.hosts; i++) {
		struct tarn_control c;

		if (!tarn_fsck_control(p, (uint16_t)i, &c) ||
		    (c.state != TARNFS_CONTROL_NONE && c.area_off == area->off) ||
		    c.next_off == area->off)
			return true;
	}
	return false;
}

/* A log newer than the one that counts, which no control line names. */
static void check_leftovers(struct pass *p)
{
	for (int i = 0; i < p->sb.areas; i++) {
		struct tarnfs_log_header raw;
		struct tarn_seed seed;
		char text[256];

		if (tarn_fsck_fetch(p, p->sb.area[i].off, &raw, sizeof(raw)))
			continue;
		memcpy(seed.uuid, p->sb.uuid, sizeof(seed.uuid));
		seed.generation = le64toh(raw.generation);
		seed.host = le16toh(raw.host);
		if (!tarn_log_header_whole(&raw, &seed) ||
		    seed.generation < p->cur.generation ||
		    (seed.generation == p->cur.generation && seed.host <= p->cur.host) ||
		    is_named(p, &p->sb.area[i]))
			continue;
		snprintf(text, sizeof(text),
			 "log area %d: a log of generation %" PRIu64 " of host page %u, which no "
			 "control line names: a compaction or takeover that was broken off; it counts "
			 "for nothing", i, seed.generation, seed.host);
		tarn_fsck_find_set(p, TARN_FSCK_LEFTOVER, p->sb.area[i].off, TARNFS_BLOCK, text);
	}
}

void tarn_fsck_log(struct pass *p)
{
	struct walk w = { .p = p };

	if (!p->cur.generation) {
		tarn_fsck_find(p, TARN_FSCK_NO_LOG,
			       tarn_line_off(&p->sb, 0, TARNFS_LINE_CONTROL),
			       "no control line of any host page names an active log");
		return;
	}
	memcpy(p->log.seed.uuid, p->sb.uuid, sizeof(p->log.seed.uuid));
	p->log.seed.generation = p->cur.generation;
	p->log.seed.host = p->cur.host;
	p->log.slot = p->cur.slot;
	p->log.area_off = p->cur.area_off;
	p->log.area_len = p->cur.area_len;
	if (!check_commit(p) || !check_header(p) || !copy_log(&w))
		goto out;
	p->log_looked = true;
	walk_records(&w);
	if (!p->failed)
		tarn_fsck_step(p, 3, p->log.units, p->log.units);
	if (!p->failed && w.count && !w.unbuilt && !tarn_fsck_step(p, 4, 0, 2)) {
		check_tree(&w);
		if (!tarn_fsck_step(p, 4, 1, 2))
			check_overlap(&w);
	}
	p->log_whole = !w.damaged;
	if (!p->failed && p->log_whole && !w.left && !p->by_quiesce)
		check_tail(p);
	if (!p->failed)
		check_leftovers(p);
out:
	free(w.buf);
	free(w.nodes);
}
