// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * fsck.c - findings: their numbers, and which of those that passes over the
 * media make are told. What is looked at is in fsck_page.c and fsck_log.c, what
 * is repaired in fsck_repair.c.
 */
#include "fsck_pass.h"

#include <stdarg.h>
#include <unistd.h>

/* Passes before the log counts as one that never stays still; pauses as in replay.c. */
#define PASSES 10

static const struct tarn_fsck_kind kinds[] = {
	{ TARN_FSCK_UNREADABLE, TARN_FSCK_ERROR, "memory cannot be read" },
	{ TARN_FSCK_SUPER_FIRST, TARN_FSCK_ERROR, "superblock damaged" },
	{ TARN_FSCK_SUPER_SECOND, TARN_FSCK_WARNING, "second copy of the superblock damaged" },
	{ TARN_FSCK_SUPER_DIFFER, TARN_FSCK_ERROR, "the two superblocks differ" },
	{ TARN_FSCK_SUPER_FOREIGN, TARN_FSCK_ERROR, "second copy is not of this log" },
	{ TARN_FSCK_SUPER_NEWER, TARN_FSCK_ERROR, "superblock of a newer tarnfs" },
	{ TARN_FSCK_SUPER_SIZE, TARN_FSCK_ERROR, "device smaller than the file system" },
	{ TARN_FSCK_IDENTITY_ONE, TARN_FSCK_WARNING, "one copy of an identity line damaged" },
	{ TARN_FSCK_IDENTITY_BOTH, TARN_FSCK_ERROR, "both copies of an identity line damaged" },
	{ TARN_FSCK_COPIES_DIFFER, TARN_FSCK_WARNING, "page and mirror contradict each other" },
	{ TARN_FSCK_COPIES_CUT, TARN_FSCK_NOTE, "the mirror is older than the page" },
	{ TARN_FSCK_CONTROL_ONE, TARN_FSCK_WARNING, "one copy of a control line damaged" },
	{ TARN_FSCK_CONTROL_BOTH, TARN_FSCK_ERROR, "both copies of a control line damaged" },
	{ TARN_FSCK_NO_LOG, TARN_FSCK_ERROR, "no host page names a log" },
	{ TARN_FSCK_TWO_LOGS, TARN_FSCK_WARNING, "two active logs of one generation" },
	{ TARN_FSCK_SEALED, TARN_FSCK_NOTE, "sealed by a takeover" },
	{ TARN_FSCK_LINE, TARN_FSCK_WARNING, "window, status or quiesce line damaged" },
	{ TARN_FSCK_LINE_FIELD, TARN_FSCK_WARNING, "field of such a line" },
	{ TARN_FSCK_LINE_NONCE, TARN_FSCK_NOTE, "line of another claim" },
	{ TARN_FSCK_STATUS_AHEAD, TARN_FSCK_WARNING, "a host has applied more than there is" },
	{ TARN_FSCK_QUIESCE, TARN_FSCK_WARNING, "quiesce line and log disagree" },
	{ TARN_FSCK_TWO_PAGES, TARN_FSCK_WARNING, "two pages of one host" },
	{ TARN_FSCK_PAGE_RESERVED, TARN_FSCK_WARNING, "reserved bytes of a host page set" },
	{ TARN_FSCK_FREE_PAGE, TARN_FSCK_WARNING, "a free page names a host" },
	{ TARN_FSCK_COMPACTION, TARN_FSCK_NOTE, "compaction not finished" },
	{ TARN_FSCK_COMMIT, TARN_FSCK_ERROR, "commit word damaged" },
	{ TARN_FSCK_COMMIT_UNITS, TARN_FSCK_ERROR, "length of the log" },
	{ TARN_FSCK_HEADER, TARN_FSCK_ERROR, "log header damaged" },
	{ TARN_FSCK_HEADER_FIELD, TARN_FSCK_ERROR, "field of the log header" },
	{ TARN_FSCK_HEADER_NEWER, TARN_FSCK_ERROR, "log header of a newer tarnfs" },
	{ TARN_FSCK_READONLY, TARN_FSCK_WARNING, "feature that forbids changes" },
	{ TARN_FSCK_TAIL, TARN_FSCK_NOTE, "records past the end of the log" },
	{ TARN_FSCK_LEFTOVER, TARN_FSCK_NOTE, "checkpoint that was never published" },
	{ TARN_FSCK_RECORD, TARN_FSCK_ERROR, "record damaged" },
	{ TARN_FSCK_RECORD_LENGTH, TARN_FSCK_ERROR, "length of a record" },
	{ TARN_FSCK_RECORD_FIELD, TARN_FSCK_ERROR, "field of a record" },
	{ TARN_FSCK_RECORD_NEWER, TARN_FSCK_ERROR, "record of a newer tarnfs" },
	{ TARN_FSCK_RECORD_READONLY, TARN_FSCK_WARNING, "record that forbids changes" },
	{ TARN_FSCK_RECORD_IGNORED, TARN_FSCK_NOTE, "unknown record that may be skipped" },
	{ TARN_FSCK_RECORD_UNBUILT, TARN_FSCK_ERROR, "record that cannot be checked yet" },
	{ TARN_FSCK_SEQ, TARN_FSCK_ERROR, "sequence number" },
	{ TARN_FSCK_BATCH, TARN_FSCK_ERROR, "place in a batch" },
	{ TARN_FSCK_BATCH_END, TARN_FSCK_ERROR, "the log ends within a batch" },
	{ TARN_FSCK_MISPLACED, TARN_FSCK_ERROR, "record on the wrong side of the checkpoint's end" },
	{ TARN_FSCK_ORDINAL, TARN_FSCK_ERROR, "ordinal in the checkpoint" },
	{ TARN_FSCK_ROOT, TARN_FSCK_ERROR, "the root is not first, or not once" },
	{ TARN_FSCK_CKPT_LENGTH, TARN_FSCK_ERROR, "length of the checkpoint" },
	{ TARN_FSCK_CKPT_COUNTS, TARN_FSCK_ERROR, "counts of the checkpoint" },
	{ TARN_FSCK_GIVEN_UP, TARN_FSCK_ERROR, "rest of the log not looked at" },
	{ TARN_FSCK_INO_TWICE, TARN_FSCK_ERROR, "inode number used twice" },
	{ TARN_FSCK_NO_PARENT, TARN_FSCK_ERROR, "directory missing" },
	{ TARN_FSCK_PARENT_LATER, TARN_FSCK_ERROR, "directory after what is in it" },
	{ TARN_FSCK_PARENT_TYPE, TARN_FSCK_ERROR, "names in what is no directory" },
	{ TARN_FSCK_NAME_TWICE, TARN_FSCK_ERROR, "name used twice" },
	{ TARN_FSCK_INO_RANGE, TARN_FSCK_ERROR, "inode number not given out yet" },
	{ TARN_FSCK_EXTENT_RANGE, TARN_FSCK_ERROR, "extent outside the data" },
	{ TARN_FSCK_EXTENT_SHARED, TARN_FSCK_ERROR, "extents overlap" },
	{ TARN_FSCK_EXTENT_ALIGN, TARN_FSCK_ERROR, "extent misaligned" },
	{ TARN_FSCK_EXTENT_LENGTH, TARN_FSCK_ERROR, "length of an extent" },
	{ TARN_FSCK_RESERVED, TARN_FSCK_WARNING, "reserved bytes set" },
};

const struct tarn_fsck_kind *tarn_fsck_kinds(size_t *count)
{
	*count = TARN_ARRAY_SIZE(kinds);
	return kinds;
}

static enum tarn_fsck_severity severity_of(enum tarn_fsck_number number)
{
	for (size_t i = 0; i < TARN_ARRAY_SIZE(kinds); i++)
		if (kinds[i].number == number)
			return kinds[i].severity;
	return TARN_FSCK_ERROR;
}

/* ---- what a pass finds ---- */

int tarn_fsck_no_memory(struct pass *p, uint64_t bytes)
{
	p->failed = tarn_fail(p->err, ENOMEM, "no memory for %" PRIu64 " bytes", bytes);
	return p->failed;
}

void tarn_fsck_find(struct pass *p, enum tarn_fsck_number number, uint64_t off, const char *fmt,
		    ...)
{
	char text[512];
	va_list ap;

	p->count[severity_of(number)]++;
	if (p->nr_found == TARN_FSCK_TOLD)
		return;
	if (p->nr_found == p->room) {
		size_t room = p->room ? 2 * p->room : 64;
		struct found *more = reallocarray(p->found, room, sizeof(*more));

		if (!more) {
			tarn_fsck_no_memory(p, room * sizeof(*more));
			return;
		}
		p->found = more;
		p->room = room;
	}
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	p->found[p->nr_found] = (struct found){ number, off, 0, strdup(text) };
	if (!p->found[p->nr_found].text)
		tarn_fsck_no_memory(p, sizeof(text));
	else
		p->nr_found++;
}

void tarn_fsck_find_set(struct pass *p, enum tarn_fsck_number number, uint64_t off, uint64_t len,
			const char *text)
{
	size_t before = p->nr_found;

	tarn_fsck_find(p, number, off, "%s", text);
	if (p->nr_found > before)
		p->found[before].len = len;
}

int tarn_fsck_fetch(struct pass *p, uint64_t off, void *buf, size_t len)
{
	int ret = tarn_media_fetch(p->m, off, buf, len);

	if (ret)
		tarn_fsck_find(p, TARN_FSCK_UNREADABLE, ret == -EIO ? p->m->bad : off,
			       "%zu bytes of metadata cannot be read: %s", len, strerror(-ret));
	return ret;
}

bool tarn_fsck_step(struct pass *p, unsigned int step, uint64_t done, uint64_t total)
{
	if (!p->failed && p->f->progress && p->f->progress(p->f->arg, step, done, total))
		p->failed = tarn_fail(p->err, ECANCELED, "stopped");
	return p->failed;
}

static void forget(struct pass *p)
{
	for (size_t i = 0; i < p->nr_found; i++)
		free(p->found[i].text);
	free(p->found);
	memset(p, 0, sizeof(*p));
}

static int by_place(const void *a, const void *b)
{
	const struct found *x = a, *y = b;

	if (x->number != y->number)
		return x->number < y->number ? -1 : 1;
	return x->off < y->off ? -1 : x->off > y->off;
}

/* ---- passes ---- */

/* -EAGAIN: the log is another one than at the beginning. */
static int look(struct pass *p, struct tarn_fsck *f, struct tarn_media *m, struct tarn_err *err)
{
	struct tarn_current now;
	int ret;

	memset(p, 0, sizeof(*p));
	p->f = f;
	p->m = m;
	p->err = err;
	ret = tarn_fsck_supers(p);
	if (ret)
		return ret;
	if (p->super_valid) {
		tarn_fsck_pages(p);
		if (!p->failed)
			tarn_fsck_log(p);
		if (!p->failed)
			tarn_fsck_positions(p);
		tarn_fsck_current(p, &now);
		if (!p->failed && !tarn_current_same(&now, &p->cur))
			return -EAGAIN;
	}
	/* whatever could be looked at: that was it */
	tarn_fsck_step(p, TARN_FSCK_STEPS, 1, 1);
	if (p->nr_found)
		qsort(p->found, p->nr_found, sizeof(*p->found), by_place);
	return p->failed;
}

static bool same_findings(const struct pass *a, const struct pass *b)
{
	if (a->nr_found != b->nr_found || memcmp(a->count, b->count, sizeof(a->count)))
		return false;
	for (size_t i = 0; i < a->nr_found; i++)
		if (by_place(&a->found[i], &b->found[i]))
			return false;
	return true;
}

/* Drops from `p`, whose findings are in order as the other's, what the other has not. */
static void intersect(struct pass *p, const struct pass *other)
{
	size_t kept = 0, at = 0;

	for (size_t i = 0; i < p->nr_found; i++) {
		while (at < other->nr_found && by_place(&other->found[at], &p->found[i]) < 0)
			at++;
		if (at < other->nr_found && !by_place(&other->found[at], &p->found[i])) {
			p->found[kept++] = p->found[i];
		} else {
			p->count[severity_of(p->found[i].number)]--;
			free(p->found[i].text);
		}
	}
	p->nr_found = kept;
}

/* told: a pass whose findings were told before, or NULL. */
static void tell(const struct pass *p, const struct pass *told)
{
	struct tarn_fsck *f = p->f;
	size_t at = 0;

	f->super_valid = p->super_valid;
	f->log_looked = p->log_looked;
	memcpy(f->uuid, p->sb.uuid, sizeof(f->uuid));
	f->generation = p->cur.generation;
	f->log_host = p->cur.host;
	f->seq = p->seq;
	f->directories = p->directories;
	f->files = p->files;
	f->symlinks = p->symlinks;
	f->used = p->used;
	f->data = p->sb.data_end - p->sb.data_start;
	f->untold = 0;
	for (int i = 0; i <= TARN_FSCK_ERROR; i++) {
		f->count[i] = p->count[i];
		f->untold += p->count[i];
	}
	f->untold -= p->nr_found;
	for (size_t i = 0; i < p->nr_found; i++) {
		const struct tarn_fsck_finding finding = {
			.number = p->found[i].number,
			.severity = severity_of(p->found[i].number),
			.off = p->found[i].off,
			.text = p->found[i].text,
		};

		while (told && at < told->nr_found && by_place(&told->found[at], &p->found[i]) < 0)
			at++;
		if (!told || at == told->nr_found || by_place(&told->found[at], &p->found[i]))
			f->finding(f->arg, &finding);
	}
}

/* Passes until two say the same, or one finds nothing: that one is in *out. */
static int settle(struct pass *out, struct tarn_fsck *f, struct tarn_media *m,
		  struct tarn_err *err)
{
	struct pass two[2] = { { 0 } }, *now, *before = NULL;
	int ret = 0;

	for (unsigned int i = 0; i < PASSES; i++) {
		now = before == &two[0] ? &two[1] : &two[0];
		ret = look(now, f, m, err);
		if (ret && ret != -EAGAIN)
			goto out;
		if (!ret && (!now->nr_found || (before && same_findings(before, now))))
			goto found;
		if (ret) {
			forget(now);
		} else {
			if (before)
				forget(before);
			before = now;
		}
		if (i)
			usleep(1000U << i);
	}
	if (!before) {
		ret = tarn_fail(err, EBUSY,
				"the log changed hands at each of %d attempts to read it: try again",
				PASSES);
		goto out;
	}
	/* it never stays still: what was there twice is told */
	now = before == &two[0] ? &two[1] : &two[0];
	forget(now);
	ret = look(now, f, m, err);
	if (ret) {
		ret = ret == -EAGAIN ? tarn_fail(err, EBUSY, "the log changed hands: try again") : ret;
		goto out;
	}
	intersect(now, before);
found:
	*out = *now;
	memset(now, 0, sizeof(*now));
out:
	forget(&two[0]);
	forget(&two[1]);
	return ret;
}

/* What one repair brings to light the next pass finds. */
#define ROUNDS 8

int tarn_fsck(struct tarn_fsck *f, struct tarn_media *m, struct tarn_err *err)
{
	struct pass *p = calloc(2, sizeof(*p));
	int ret = p ? 0 : tarn_fail(err, ENOMEM, "out of memory");
	int64_t done = 1;

	f->repaired = 0;
	for (int round = 0; !ret && done; round++) {
		struct pass *now = &p[round % 2], *before = round ? &p[1 - round % 2] : NULL;

		forget(now);
		ret = settle(now, f, m, err);
		if (ret)
			break;
		tell(now, before);
		done = f->mode == TARN_FSCK_LOOK || round == ROUNDS ? 0 : tarn_fsck_repair(now);
		if (done < 0)
			ret = (int)done;
		else
			f->repaired += (uint64_t)done;
	}
	if (p) {
		forget(&p[0]);
		forget(&p[1]);
	}
	free(p);
	return ret;
}
