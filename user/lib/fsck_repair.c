// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * fsck_repair.c - what of the findings can be put right without a guess, and
 * how. A rule for each number; Documentation/commands.rst has them as a table.
 *
 * Everything here writes lines of other hosts, which nobody may who is not
 * their host: so no page may be claimed, nothing may be of a newer tarnfs, and
 * that is looked at again before each store. Each store goes to memory before
 * the next, and its lines are given up at once. The order leaves a whole copy
 * of everything at each moment, so that a kill leaves what the next run repairs.
 */
#include "fsck_pass.h"

#include <stdarg.h>

/* Bytes of the media, as they are to be. */
struct store {
	uint64_t off;
	size_t len;
	uint8_t bytes[TARNFS_SUPER_LEN];
};

struct fix {
	struct store store[2];
	int stores;
	uint64_t zero_off, zero_len;
	bool asked;			/* not by -p, although others of that number are */
	char text[512];
};

/* ---- sentences ---- */

static void sentence(struct fix *fix, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void sentence(struct fix *fix, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(fix->text, sizeof(fix->text), fmt, ap);
	va_end(ap);
}

/* What a rule returns: false and why not, or true and how. */
#define left(...) (sentence(__VA_ARGS__), false)
#define done(...) (sentence(__VA_ARGS__), true)

static void to_store(struct fix *fix, uint64_t off, const void *bytes, size_t len)
{
	struct store *s = &fix->store[fix->stores++];

	s->off = off;
	s->len = len;
	memcpy(s->bytes, bytes, len);
}

/* A line of page or mirror, and the same of the other. */
static void to_store_both(struct fix *fix, uint64_t off, uint64_t other, const void *line)
{
	to_store(fix, off, line, TARNFS_LINE);
	to_store(fix, other, line, TARNFS_LINE);
}

static const struct found *find_any(const struct pass *p, const enum tarn_fsck_number *numbers)
{
	for (; *numbers; numbers++)
		for (size_t i = 0; i < p->nr_found; i++)
			if (p->found[i].number == *numbers)
				return &p->found[i];
	return NULL;
}

/* ---- places ---- */

struct place {
	uint16_t page;
	unsigned int line;
	bool mirror;
	uint64_t other;			/* the same line of the other copy */
};

static struct place place_of(const struct pass *p, uint64_t off)
{
	const struct tarn_super *sb = &p->sb;
	struct place at = { .mirror = off >= sb->mirror_off };
	uint64_t in = off - (at.mirror ? sb->mirror_off : sb->hosts_off);

	at.page = (uint16_t)(in / sb->host_stride);
	at.line = (unsigned int)(in % sb->host_stride / TARNFS_LINE);
	at.other = at.mirror ? tarn_line_off(sb, at.page, at.line) :
			       tarn_mirror_line_off(sb, at.page, at.line);
	return at;
}

static bool readable(struct pass *p, uint64_t off, size_t len)
{
	uint8_t buf[TARNFS_SUPER_LEN];

	return !tarn_media_fetch(p->m, off, buf, len);
}

/* ---- who may live ---- */

static bool line_is_of(struct pass *p, uint16_t page, unsigned int line, uint64_t nonce)
{
	uint8_t raw[TARNFS_LINE];
	uint64_t has;
	int ret = tarn_line_read(p->m, &p->sb, tarn_line_off(&p->sb, page, line), raw);

	if (ret == -ENODATA)
		return !nonce;
	memcpy(&has, raw, sizeof(has));
	return !ret && le64toh(has) == nonce;
}

/*
 * A claim writes these lines with its own nonce, and has them in memory, before it touches the
 * identity: so none has begun since the one with that nonce.
 */
static bool no_claim_since(struct pass *p, uint16_t page, uint64_t nonce)
{
	return line_is_of(p, page, TARNFS_LINE_WINDOW, nonce) &&
	       line_is_of(p, page, TARNFS_LINE_STATUS, nonce) &&
	       line_is_of(p, page, TARNFS_LINE_QUIESCE, nonce);
}

/* As mkfs left it: whatever a claim writes is zero, and so is every commit line. */
static bool never_claimed(struct pass *p, uint16_t page)
{
	uint8_t lines[(TARNFS_LINE_COMMIT + TARNFS_SLOTS - TARNFS_LINE_WINDOW) * TARNFS_LINE];

	return page && !tarn_media_fetch(p->m, tarn_line_off(&p->sb, page, TARNFS_LINE_WINDOW),
					 lines, sizeof(lines)) &&
	       tarn_all_zero(lines, sizeof(lines));
}

/* Both copies of the identity are bad: it is free all the same, for mkfs binds page 0 alone. */
static bool surely_free(struct pass *p, uint16_t page)
{
	for (int i = 0; i < 2; i++) {
		struct tarn_control c;
		uint64_t off = i ? tarn_mirror_line_off(&p->sb, page, TARNFS_LINE_CONTROL) :
				   tarn_line_off(&p->sb, page, TARNFS_LINE_CONTROL);

		if (tarn_control_copy(p->m, &p->sb, off, page, &c) || c.generation)
			return false;
	}
	return never_claimed(p, page);
}

/* tarn_identity_read() says claimed of a page whose own copy is bad: may it be? */
static bool surely_unclaimed(struct pass *p, uint16_t page, const struct tarn_identity *id)
{
	struct tarn_identity in_page, in_mirror;
	int ret = tarn_identity_copy(p->m, &p->sb,
				     tarn_line_off(&p->sb, page, TARNFS_LINE_IDENTITY), page,
				     &in_page);

	if (id->bad)
		return surely_free(p, page);
	if (!ret)
		return in_page.state != TARNFS_PAGE_CLAIMED;
	return !tarn_identity_copy(p->m, &p->sb,
				   tarn_mirror_line_off(&p->sb, page, TARNFS_LINE_IDENTITY), page,
				   &in_mirror) &&
	       in_mirror.state != TARNFS_PAGE_CLAIMED && no_claim_since(p, page, in_mirror.nonce);
}

/* Hosts that may have it mounted: their pages as text, or false. */
static bool hosts_live(struct pass *p, char *text, size_t room)
{
	struct tarn_host_id self;
	struct tarn_err err;
	struct tarn_claims claims;
	bool known = p->f->exclusive && !tarn_host_id(&self, p->sb.uuid, &err);

	if (p->f->hosts_fenced)
		return false;
	tarn_claims_find(&claims, p->m, &p->sb, known ? &self : NULL);
	for (uint32_t i = 0; i < p->sb.hosts; i++) {
		struct tarn_identity *id = &claims.ids[i], mirror;
		uint16_t page = (uint16_t)i;

		if (id->state == TARNFS_PAGE_CLAIMED && surely_unclaimed(p, page, id)) {
			id->state = TARNFS_PAGE_FREE;
			claims.count--;
		} else if (id->state == TARNFS_PAGE_FREE &&
			   !tarn_identity_copy(p->m, &p->sb,
					       tarn_mirror_line_off(&p->sb, page,
								    TARNFS_LINE_IDENTITY),
					       page, &mirror) &&
			   mirror.state == TARNFS_PAGE_CLAIMED && mirror.claims > id->claims &&
			   !(known && !memcmp(mirror.host_uuid, self.uuid, 16))) {
			*id = mirror;
			claims.count++;
		}
	}
	tarn_pages_text(text, room, p->m, &p->sb, claims.ids);
	return claims.count;
}

/* ---- rules: superblocks ---- */

static bool super_first(struct pass *p, const struct found *f, struct fix *fix)
{
	struct tarnfs_super raw;

	(void)f;
	/* super_valid: the log is valid under the second one's uuid */
	if (!p->super_valid || tarn_media_fetch(p->m, TARNFS_SUPER2_OFF, &raw, sizeof(raw)))
		return left(fix, "the second copy is damaged too, or no log is valid under its uuid");
	to_store(fix, TARNFS_SUPER_OFF, &raw, sizeof(raw));
	return done(fix, "the second copy over the first: the log is valid under its uuid");
}

static bool super_second(struct pass *p, const struct found *f, struct fix *fix)
{
	struct tarnfs_super raw;

	(void)f;
	if (!p->super_valid || !tarn_fsck_vouched(p, &p->sb) ||
	    tarn_media_fetch(p->m, TARNFS_SUPER_OFF, &raw, sizeof(raw)))
		return left(fix, "no log is valid under the first copy's uuid");
	to_store(fix, TARNFS_SUPER2_OFF, &raw, sizeof(raw));
	return done(fix, "the first copy over the second: the log is valid under its uuid");
}

static bool super_differ(struct pass *p, const struct found *f, struct fix *fix)
{
	static const uint64_t off[2] = { TARNFS_SUPER_OFF, TARNFS_SUPER2_OFF };
	struct tarnfs_super raw[2];
	struct tarn_super sb[2];
	bool vouched[2];

	(void)f;
	for (int i = 0; i < 2; i++)
		vouched[i] = !tarn_media_fetch(p->m, off[i], &raw[i], sizeof(raw[i])) &&
			     !tarn_super_decode(&sb[i], &raw[i], 0, NULL) &&
			     tarn_fsck_vouched(p, &sb[i]);
	if (vouched[0] == vouched[1])
		return left(fix, "the log is valid under %s: look at the second, and copy the right one "
			    "over the other by hand", vouched[0] ? "both uuids" : "neither uuid");
	to_store(fix, off[vouched[0]], &raw[vouched[1]], sizeof(raw[0]));
	fix->asked = vouched[1];	/* another one counts afterwards */
	return done(fix, "the %s copy over the other: the log is valid under its uuid alone",
		    vouched[0] ? "first" : "second");
}

/* ---- rules: lines with a mirror ---- */

static bool from_other(struct pass *p, uint64_t off, uint64_t other, bool mirror, struct fix *fix)
{
	uint8_t raw[TARNFS_LINE];

	if (!readable(p, off, TARNFS_LINE))
		return left(fix, "the memory there is bad: see 1");
	if (tarn_line_read(p->m, &p->sb, other, raw))
		return left(fix, "the other copy cannot be read");
	to_store(fix, off, raw, sizeof(raw));
	return done(fix, "host page %u: from the %s", place_of(p, off).page,
		    mirror ? "page" : "mirror");
}

static bool identity_one(struct pass *p, const struct found *f, struct fix *fix)
{
	struct place at = place_of(p, f->off);

	return from_other(p, f->off, at.other, at.mirror, fix);
}

static bool identity_both(struct pass *p, const struct found *f, struct fix *fix)
{
	struct place at = place_of(p, f->off);
	const struct tarn_identity id = { .claims = 1 };
	struct tarnfs_identity raw;

	if (!readable(p, f->off, TARNFS_LINE) || !readable(p, at.other, TARNFS_LINE))
		return left(fix, "the memory there is bad: see 1");
	if (!surely_free(p, at.page))
		return left(fix, "whose page %u is stands nowhere else", at.page);
	tarn_identity_encode(&raw, &id, at.page, p->sb.uuid);
	to_store_both(fix, f->off, at.other, &raw);
	return done(fix, "host page %u: free, for no host has ever claimed it", at.page);
}

/* Somebody has seen more than what now counts. */
static bool seen_more(const struct pass *p)
{
	static const enum tarn_fsck_number numbers[] = { TARN_FSCK_STATUS_AHEAD, TARN_FSCK_QUIESCE,
							 0 };

	return find_any(p, numbers);
}

static bool control_one(struct pass *p, const struct found *f, struct fix *fix)
{
	struct place at = place_of(p, f->off);

	if (seen_more(p))
		return left(fix, "a host has applied what this control line may have named: see 213");
	return from_other(p, f->off, at.other, at.mirror, fix);
}

/*
 * A page whose identity says that it is as mkfs made it has no log. Page 0 may have the first
 * one; any other that had one is not as mkfs made it.
 */
static bool control_both(struct pass *p, const struct found *f, struct fix *fix)
{
	struct place at = place_of(p, f->off);
	const struct tarn_identity *id = &p->ids[at.page];
	const struct tarn_control none = { 0 };
	struct tarnfs_control raw;

	if (!readable(p, f->off, TARNFS_LINE) || !readable(p, at.other, TARNFS_LINE))
		return left(fix, "the memory there is bad: see 1");
	if (id->bad || id->state != TARNFS_PAGE_FREE || id->nonce || id->claims != 1 ||
	    !never_claimed(p, at.page))
		return left(fix, "which log page %u had, if any, stands nowhere else, and without it an "
			    "older one might count", at.page);
	tarn_control_encode(&raw, &none, at.page, p->sb.uuid);
	to_store_both(fix, f->off, at.other, &raw);
	return done(fix, "host page %u: no log, for no host has ever claimed it", at.page);
}

/* off: of the mirror's line */
static bool copies(struct pass *p, const struct found *f, struct fix *fix)
{
	struct place at = place_of(p, f->off);
	struct tarn_identity id[2];
	struct tarn_control c;
	bool newer;

	if (at.line == TARNFS_LINE_IDENTITY) {
		if (tarn_identity_copy(p->m, &p->sb, at.other, at.page, &id[0]) ||
		    tarn_identity_copy(p->m, &p->sb, f->off, at.page, &id[1]))
			return left(fix, "one of them cannot be read now");
		newer = id[1].claims > id[0].claims;
		fix->asked = newer;
		return newer ? from_other(p, at.other, f->off, false, fix) :
			       from_other(p, f->off, at.other, true, fix);
	}
	if (f->number == TARN_FSCK_COPIES_DIFFER)
		return left(fix, "the page counts, and the mirror has a higher generation: which of the "
			    "two logs was written last cannot be told; tarnfs log shows the page's");
	/* a line is written back to none once another log counts, never before */
	if (!tarn_control_copy(p->m, &p->sb, f->off, at.page, &c) &&
	    c.state == TARNFS_CONTROL_ACTIVE &&
	    (c.generation > p->cur.generation ||
	     (c.generation == p->cur.generation && at.page > p->cur.host)))
		return left(fix, "the mirror names a newer log than the one that counts");
	return from_other(p, f->off, at.other, true, fix);
}

static bool compaction(struct pass *p, const struct found *f, struct fix *fix)
{
	struct place at = place_of(p, f->off);
	struct tarnfs_control raw;
	struct tarn_control c;

	if (!tarn_fsck_control(p, at.page, &c))
		return left(fix, "the control line cannot be read now");
	c.next_off = c.next_len = 0;
	c.next_slot = 0;
	tarn_control_encode(&raw, &c, at.page, p->sb.uuid);
	to_store_both(fix, f->off, at.other, &raw);
	return done(fix, "host page %u: the area is named no more, and the log that counts stays",
		    at.page);
}

static bool free_page(struct pass *p, const struct found *f, struct fix *fix)
{
	struct place at = place_of(p, f->off);
	struct tarn_identity id = { .claims = p->ids[at.page].claims + 1 };
	struct tarnfs_identity raw;

	tarn_identity_encode(&raw, &id, at.page, p->sb.uuid);
	to_store_both(fix, f->off, at.other, &raw);
	return done(fix, "host page %u: free, and of nobody", at.page);
}

/* ---- rules: the other lines ---- */

/* What a claim with the nonce that stands there would have left. */
static bool line_clear(struct pass *p, const struct found *f, struct fix *fix)
{
	struct place at = place_of(p, f->off);
	uint8_t raw[TARNFS_LINE];

	if (p->ids[at.page].bad)
		return left(fix, "which claim it would have to be of cannot be read: see 202");
	if (!readable(p, f->off, sizeof(raw)))
		return left(fix, "the memory there is bad: see 1");
	tarn_line_cleared(raw, &p->sb, at.page, at.line, p->ids[at.page].nonce);
	to_store(fix, f->off, raw, at.line == TARNFS_LINE_CONTEND ? sizeof(uint64_t) : sizeof(raw));
	return done(fix, "host page %u: cleared, as the next claim would: it counted as absent",
		    at.page);
}

static bool no_features(struct pass *p)
{
	struct tarnfs_log_header raw;

	/* not looked at: then nobody knows what the log's feature words say */
	if (p->sb.compat | p->sb.ro_compat | p->sb.incompat || !p->log_looked ||
	    tarn_media_fetch(p->m, p->log.area_off, &raw, sizeof(raw)))
		return false;
	return !(raw.compat | raw.ro_compat | raw.incompat);
}

static bool reserved(struct pass *p, const struct found *f, struct fix *fix)
{
	if (!no_features(p))
		return left(fix, "a newer tarnfs may use them: the feature words are not zero, or not "
			    "known");
	fix->zero_off = f->off;
	fix->zero_len = f->len;
	return done(fix, "zeroed up to 0x%" PRIx64 ": no feature is on that could use them",
		    f->off + f->len);
}

/* ---- rules: the log ---- */

static bool commit(struct pass *p, const struct found *f, struct fix *fix)
{
	const struct tarn_quiesce *quiesce = &p->quiesce[p->cur.host];
	uint64_t word;

	if (!readable(p, f->off, sizeof(word)))
		return left(fix, "the memory there is bad: see 1");
	if (!p->by_quiesce || !p->log_looked)
		return left(fix, "how long the log is stands nowhere else: its host did not let it go in "
			    "order, or mounted it again since");
	if (!p->log_whole || p->seq != quiesce->final_seq || seen_more(p))
		return left(fix, "the log does not end as the quiesce line of its host says");
	word = tarn_commit_word(&p->log.seed, p->log.slot, p->log.units);
	to_store(fix, f->off, &word, sizeof(word));
	return done(fix, "%u units, as its host's quiesce line says: the records up to there are whole "
		    "and end with the right seq, %" PRIu64, p->log.units, p->seq);
}

static bool dead_bytes(struct pass *p, const struct found *f, struct fix *fix)
{
	if (seen_more(p))
		return left(fix, "a host has applied more than the log has, perhaps this: see 213, 214");
	fix->zero_off = f->off;
	fix->zero_len = f->len;
	return done(fix, "%" PRIu64 " bytes zeroed", f->len);
}

/* ---- the table ---- */

#define NEWER "nothing is changed of what a newer tarnfs has written: use its fsck.tarnfs"
#define NO_SECOND "there is no second copy of it"
/* of what can be given up with the end of the log: told from the others by its address */
static const char acknowledged[] = "records are not dropped, or made up, without being asked";

static const struct rule {
	enum tarn_fsck_number number;
	enum tarn_fsck_when when;
	bool (*plan)(struct pass *p, const struct found *f, struct fix *fix);
	const char *why;		/* never */
} rules[] = {
	{ TARN_FSCK_UNREADABLE, TARN_FSCK_NEVER, NULL,
	  "a store does not mend memory: ndctl clear-errors, or another device; what it then has "
	  "lost is found by other numbers" },
	{ TARN_FSCK_SUPER_FIRST, TARN_FSCK_SAFE, super_first, NULL },
	{ TARN_FSCK_SUPER_SECOND, TARN_FSCK_SAFE, super_second, NULL },
	{ TARN_FSCK_SUPER_DIFFER, TARN_FSCK_SAFE, super_differ, NULL },
	{ TARN_FSCK_SUPER_FOREIGN, TARN_FSCK_NEVER, NULL, "nothing says that the copy is of this log" },
	{ TARN_FSCK_SUPER_NEWER, TARN_FSCK_NEVER, NULL, NEWER },
	{ TARN_FSCK_SUPER_SIZE, TARN_FSCK_NEVER, NULL,
	  "nothing is changed on a device that the file system was not made for" },
	{ TARN_FSCK_IDENTITY_ONE, TARN_FSCK_SAFE, identity_one, NULL },
	{ TARN_FSCK_IDENTITY_BOTH, TARN_FSCK_ASKED, identity_both, NULL },
	{ TARN_FSCK_COPIES_DIFFER, TARN_FSCK_SAFE, copies, NULL },
	{ TARN_FSCK_COPIES_CUT, TARN_FSCK_SAFE, copies, NULL },
	{ TARN_FSCK_CONTROL_ONE, TARN_FSCK_SAFE, control_one, NULL },
	{ TARN_FSCK_CONTROL_BOTH, TARN_FSCK_ASKED, control_both, NULL },
	{ TARN_FSCK_NO_LOG, TARN_FSCK_NEVER, NULL, NO_SECOND },
	{ TARN_FSCK_TWO_LOGS, TARN_FSCK_NEVER, NULL,
	  "both may have records that were acknowledged: tarnfs log shows the one that counts" },
	{ TARN_FSCK_SEALED, TARN_FSCK_NEVER, NULL,
	  "only its host, or another takeover, may end it: mount on that host, or tarnfs takeover" },
	{ TARN_FSCK_LINE, TARN_FSCK_SAFE, line_clear, NULL },
	{ TARN_FSCK_LINE_FIELD, TARN_FSCK_ASKED, line_clear, NULL },
	{ TARN_FSCK_LINE_NONCE, TARN_FSCK_ASKED, line_clear, NULL },
	{ TARN_FSCK_STATUS_AHEAD, TARN_FSCK_NEVER, NULL,
	  "it is a trace of records that were lost, and the only one" },
	{ TARN_FSCK_QUIESCE, TARN_FSCK_NEVER, NULL,
	  "it is a trace of how the log ended, and the only one" },
	{ TARN_FSCK_TWO_PAGES, TARN_FSCK_NEVER, NULL, "which of the two its host needs cannot be told" },
	{ TARN_FSCK_PAGE_RESERVED, TARN_FSCK_ASKED, reserved, NULL },
	{ TARN_FSCK_FREE_PAGE, TARN_FSCK_ASKED, free_page, NULL },
	{ TARN_FSCK_COMPACTION, TARN_FSCK_ASKED, compaction, NULL },
	{ TARN_FSCK_COMMIT, TARN_FSCK_ASKED, commit, NULL },
	{ TARN_FSCK_COMMIT_UNITS, TARN_FSCK_ASKED, commit, NULL },
	{ TARN_FSCK_HEADER, TARN_FSCK_NEVER, NULL, NO_SECOND },
	{ TARN_FSCK_HEADER_FIELD, TARN_FSCK_NEVER, NULL, NO_SECOND },
	{ TARN_FSCK_HEADER_NEWER, TARN_FSCK_NEVER, NULL, NEWER },
	{ TARN_FSCK_READONLY, TARN_FSCK_NEVER, NULL, NEWER },
	{ TARN_FSCK_TAIL, TARN_FSCK_ASKED, dead_bytes, NULL },
	{ TARN_FSCK_LEFTOVER, TARN_FSCK_ASKED, dead_bytes, NULL },
	{ TARN_FSCK_RECORD, TARN_FSCK_NEVER, NULL, acknowledged },
	{ TARN_FSCK_RECORD_LENGTH, TARN_FSCK_NEVER, NULL, acknowledged },
	{ TARN_FSCK_RECORD_FIELD, TARN_FSCK_NEVER, NULL, acknowledged },
	{ TARN_FSCK_RECORD_NEWER, TARN_FSCK_NEVER, NULL, NEWER },
	{ TARN_FSCK_RECORD_READONLY, TARN_FSCK_NEVER, NULL, NEWER },
	{ TARN_FSCK_RECORD_IGNORED, TARN_FSCK_NEVER, NULL, "there is nothing wrong with it" },
	{ TARN_FSCK_RECORD_UNBUILT, TARN_FSCK_NEVER, NULL, NEWER },
	{ TARN_FSCK_SEQ, TARN_FSCK_NEVER, NULL, acknowledged },
	{ TARN_FSCK_BATCH, TARN_FSCK_NEVER, NULL, acknowledged },
	{ TARN_FSCK_BATCH_END, TARN_FSCK_NEVER, NULL, acknowledged },
	{ TARN_FSCK_MISPLACED, TARN_FSCK_NEVER, NULL, acknowledged },
	{ TARN_FSCK_ORDINAL, TARN_FSCK_NEVER, NULL, NO_SECOND },
	{ TARN_FSCK_ROOT, TARN_FSCK_NEVER, NULL, NO_SECOND },
	{ TARN_FSCK_CKPT_LENGTH, TARN_FSCK_NEVER, NULL, NO_SECOND },
	{ TARN_FSCK_CKPT_COUNTS, TARN_FSCK_NEVER, NULL, NO_SECOND },
	{ TARN_FSCK_GIVEN_UP, TARN_FSCK_NEVER, NULL, acknowledged },
	{ TARN_FSCK_INO_TWICE, TARN_FSCK_NEVER, NULL, acknowledged },
	{ TARN_FSCK_NO_PARENT, TARN_FSCK_NEVER, NULL, acknowledged },
	{ TARN_FSCK_PARENT_LATER, TARN_FSCK_NEVER, NULL, acknowledged },
	{ TARN_FSCK_PARENT_TYPE, TARN_FSCK_NEVER, NULL, acknowledged },
	{ TARN_FSCK_NAME_TWICE, TARN_FSCK_NEVER, NULL, acknowledged },
	{ TARN_FSCK_INO_RANGE, TARN_FSCK_NEVER, NULL, acknowledged },
	{ TARN_FSCK_EXTENT_RANGE, TARN_FSCK_NEVER, NULL, acknowledged },
	{ TARN_FSCK_EXTENT_SHARED, TARN_FSCK_NEVER, NULL, acknowledged },
	{ TARN_FSCK_EXTENT_ALIGN, TARN_FSCK_NEVER, NULL, acknowledged },
	{ TARN_FSCK_EXTENT_LENGTH, TARN_FSCK_NEVER, NULL, acknowledged },
	{ TARN_FSCK_RESERVED, TARN_FSCK_ASKED, reserved, NULL },
};

static const struct rule *rule_of(enum tarn_fsck_number number)
{
	for (size_t i = 0; i < TARN_ARRAY_SIZE(rules); i++)
		if (rules[i].number == number)
			return &rules[i];
	return NULL;
}

enum tarn_fsck_when tarn_fsck_repairs(enum tarn_fsck_number number)
{
	const struct rule *rule = rule_of(number);

	return rule ? rule->when : TARN_FSCK_NEVER;
}

/* ---- why nothing at all is changed ---- */

static bool blocked(struct pass *p, char *text, size_t room)
{
	static const enum tarn_fsck_number newer[] = {
		TARN_FSCK_SUPER_NEWER, TARN_FSCK_HEADER_NEWER, TARN_FSCK_READONLY,
		TARN_FSCK_RECORD_NEWER, TARN_FSCK_RECORD_READONLY, TARN_FSCK_RECORD_UNBUILT, 0
	};
	static const enum tarn_fsck_number other[] = { TARN_FSCK_SUPER_SIZE, 0 };
	const struct found *f = find_any(p, newer);
	char pages[320];

	if (!f)
		f = find_any(p, other);
	if (f) {
		snprintf(text, room, "%s (%u)", rule_of(f->number)->why, f->number);
		return true;
	}
	if (p->super_valid && hosts_live(p, pages, sizeof(pages))) {
		snprintf(text, room, "hosts may have it mounted: %s: umount it there; or, once those "
			 "hosts are powered off or reset, give your word for it with --hosts-fenced",
			 pages);
		return true;
	}
	return false;
}

/* ---- stores ---- */

/* The last look before each store; what happens after it nothing can prevent. */
static int still_alone(struct pass *p)
{
	struct tarn_current now;
	char pages[320];

	if (!p->super_valid)
		return 0;
	if (hosts_live(p, pages, sizeof(pages)))
		return tarn_fail(p->err, EAGAIN, "a host mounted it meanwhile (%s): stopped; umount it "
				 "there and start again", pages);
	tarn_fsck_current(p, &now);
	if (!tarn_current_same(&now, &p->cur))
		return tarn_fail(p->err, EAGAIN, "the log became another one meanwhile: stopped; umount "
				 "it on all hosts and start again");
	return 0;
}

static int put(struct pass *p, uint64_t off, const void *bytes, size_t len)
{
	uint64_t word;
	int ret = still_alone(p);

	if (ret)
		return ret;
	tarn_stop_point("repair-store");
	if (len == sizeof(word) && !(off % sizeof(word))) {	/* a word with a reader of its own is never torn */
		memcpy(&word, bytes, sizeof(word));
		ret = tarn_media_store64(p->m, off, word);
	} else {
		ret = tarn_media_store(p->m, off, bytes, len);
	}
	/* the line is its host's again */
	if (!ret)
		ret = tarn_media_invalidate(p->m, off, len);
	return ret;
}

/* From the end: what a kill leaves is found again by its first bytes. */
static int put_zeros(struct pass *p, uint64_t off, uint64_t len)
{
	static const uint8_t zeros[TARNFS_BLOCK];
	uint8_t buf[TARNFS_BLOCK];

	while (len) {
		size_t n = (size_t)((off + len - 1) % sizeof(zeros) + 1);
		int ret;

		if (n > len)
			n = (size_t)len;
		len -= n;
		ret = tarn_media_fetch(p->m, off + len, buf, n);
		if (!ret && !tarn_all_zero(buf, n))
			ret = put(p, off + len, zeros, n);
		if (ret)
			return ret;
	}
	return 0;
}

static int carry_out(struct pass *p, const struct fix *fix)
{
	int ret = 0;

	for (int i = 0; !ret && i < fix->stores; i++)
		ret = put(p, fix->store[i].off, fix->store[i].bytes, fix->store[i].len);
	if (!ret && fix->zero_len)
		ret = put_zeros(p, fix->zero_off, fix->zero_len);
	return ret;
}

/* ---- giving up the end of a log ---- */

struct cut {
	struct pass *p;
	uint64_t limit;			/* byte of the first record that something is wrong with */
	uint32_t units;			/* of the log that stays; 0: not even its checkpoint is good */
	uint64_t seq;
};

static int to_cut(void *arg, const struct tarn_rec *rec)
{
	struct cut *cut = arg;

	if (rec->off >= cut->limit)
		return 1;
	if (rec->flags & TARNFS_RECORD_CKPT ? rec->type == TARNFS_REC_CHECKPOINT_END :
					      !rec->batch_left) {
		cut->units = (uint32_t)((rec->off - cut->p->log.area_off) / TARNFS_LINE) + rec->units;
		cut->seq = rec->flags & TARNFS_RECORD_CKPT ? cut->p->log.base_seq : rec->seq;
	}
	return 0;
}

/* What of a damaged log replay could apply: whole batches, before anything that is wrong. */
static bool find_cut(struct pass *p, struct cut *cut, uint64_t *first)
{
	struct tarn_log log = p->log;
	uint32_t pos = TARNFS_LOG_HEADER_UNITS;
	uint64_t total = 0;

	*cut = (struct cut){ .p = p, .limit = UINT64_MAX };
	for (int i = 0; i <= TARN_FSCK_ERROR; i++)
		total += p->count[i];
	if (!p->log_looked || p->by_quiesce || total > p->nr_found)
		return false;
	for (size_t i = 0; i < p->nr_found; i++)
		if (p->found[i].number >= TARN_FSCK_RECORD &&
		    p->found[i].number <= TARN_FSCK_EXTENT_LENGTH &&
		    p->found[i].number != TARN_FSCK_RECORD_IGNORED &&
		    p->found[i].off < cut->limit)
			cut->limit = p->found[i].off;
	*first = cut->limit;
	if (cut->limit == UINT64_MAX)
		return false;
	log.next_seq = 0;
	tarn_log_walk(&log, p->m, &pos, to_cut, cut, NULL);
	return cut->units && cut->units < p->log.units;
}

/* First what says that there was more: it would be the trace of a loss that was asked for. */
static int cut_log(struct pass *p, const struct cut *cut)
{
	uint8_t raw[TARNFS_LINE];
	uint64_t word = tarn_commit_word(&p->log.seed, p->log.slot, cut->units);
	int ret = 0;

	for (uint32_t i = 0; !ret && i < p->sb.hosts; i++) {
		const struct tarn_hoststatus *status = &p->status[i];
		uint16_t page = (uint16_t)i;

		if (!status->valid || status->applied_generation != p->cur.generation ||
		    status->applied_host != p->cur.host || status->applied_seq <= cut->seq)
			continue;
		tarn_line_cleared(raw, &p->sb, page, TARNFS_LINE_STATUS, p->ids[i].nonce);
		ret = put(p, tarn_line_off(&p->sb, page, TARNFS_LINE_STATUS), raw, sizeof(raw));
	}
	if (!ret && p->quiesce[p->cur.host].valid) {
		tarn_line_cleared(raw, &p->sb, p->cur.host, TARNFS_LINE_QUIESCE,
				  p->ids[p->cur.host].nonce);
		ret = put(p, tarn_line_off(&p->sb, p->cur.host, TARNFS_LINE_QUIESCE), raw,
			  sizeof(raw));
	}
	return ret ? ret : put(p, tarn_commit_off(&p->sb, &p->log), &word, sizeof(word));
}

/* ---- all of it ---- */

static void say(struct pass *p, const struct found *f, int outcome, enum tarn_fsck_when when,
		const char *text)
{
	const struct tarn_fsck_repair repair = {
		.number = f->number, .off = f->off, .outcome = outcome, .when = when, .text = text,
	};

	if (p->f->repair)
		p->f->repair(p->f->arg, &repair);
}

static enum tarn_fsck_when when_of(const struct rule *rule, const struct fix *fix)
{
	return fix->asked ? TARN_FSCK_ASKED : rule->when;
}

static bool is_loss(enum tarn_fsck_number number)
{
	const struct rule *rule = rule_of(number);

	return rule && rule->why == acknowledged;
}

static const struct found *first_loss(const struct pass *p, uint64_t off)
{
	for (size_t i = 0; i < p->nr_found; i++)
		if (p->found[i].off == off && is_loss(p->found[i].number))
			return &p->found[i];
	return NULL;
}

/* 1: the log was cut; 0: not asked for, or refused. */
static int truncate_log(struct pass *p, const char *refused)
{
	uint64_t first;
	const struct found *f;
	struct cut cut;
	char text[512];
	int ret;

	if (!find_cut(p, &cut, &first))
		return 0;
	f = first_loss(p, first);
	if (!f)
		return 0;
	snprintf(text, sizeof(text), "the log is good up to seq %" PRIu64 ", and %" PRIu64 " bytes of "
		 "records follow", cut.seq, (uint64_t)(p->log.units - cut.units) * TARNFS_LINE);
	if (!p->f->truncate || p->f->truncate_seq != cut.seq || refused) {
		size_t len = strlen(text);

		if (!refused)
			snprintf(text + len, sizeof(text) - len, ": %s--truncate-log=%" PRIu64
				 ", with -y, gives them up for good, and all that they made",
				 p->f->truncate ? "another number was given; " : "", cut.seq);
		say(p, f, TARN_FSCK_LEFT, TARN_FSCK_ASKED, text);
		return 0;
	}
	snprintf(text, sizeof(text), "the log ends with seq %" PRIu64 " now, and %" PRIu64 " bytes of "
		 "records were given up", cut.seq,
		 (uint64_t)(p->log.units - cut.units) * TARNFS_LINE);
	if (p->f->mode != TARN_FSCK_REPAIR) {
		say(p, f, TARN_FSCK_WOULD, TARN_FSCK_ASKED, text);
		return 0;
	}
	ret = cut_log(p, &cut);
	if (ret == -EAGAIN)
		return ret;
	if (ret)
		snprintf(text, sizeof(text), "cutting the log failed: %s", strerror(-ret));
	say(p, f, ret ? TARN_FSCK_LEFT : TARN_FSCK_DONE, TARN_FSCK_ASKED, text);
	return !ret;
}

/* Stores what may be stored. How many findings that was. */
static int64_t act(struct pass *p)
{
	int64_t repaired = 0;

	for (size_t i = 0; i < p->nr_found; i++) {
		const struct found *f = &p->found[i];
		const struct rule *rule = rule_of(f->number);
		struct fix fix = { .stores = 0 };
		int ret;

		if (!rule->plan || !rule->plan(p, f, &fix) ||
		    (p->f->mode == TARN_FSCK_PREEN && when_of(rule, &fix) != TARN_FSCK_SAFE))
			continue;
		ret = carry_out(p, &fix);
		if (ret == -EAGAIN)
			return ret;
		if (ret)
			snprintf(fix.text, sizeof(fix.text), "storing it failed: %s", strerror(-ret));
		say(p, f, ret ? TARN_FSCK_LEFT : TARN_FSCK_DONE, when_of(rule, &fix), fix.text);
		repaired += !ret;
	}
	return repaired;
}

/* Nothing more is to be stored: why not what is left. */
static void explain(struct pass *p, const char *refused)
{
	enum tarn_fsck_number told = 0;

	for (size_t i = 0; i < p->nr_found; i++) {
		const struct found *f = &p->found[i];
		const struct rule *rule = rule_of(f->number);
		struct fix fix = { .stores = 0 };
		bool can;

		if (!rule->plan) {
			if (told != f->number)
				say(p, f, TARN_FSCK_LEFT, rule->when, rule->why);
			told = f->number;
			continue;
		}
		can = rule->plan(p, f, &fix);
		if (!can || refused)
			say(p, f, TARN_FSCK_LEFT, when_of(rule, &fix), can ? refused : fix.text);
		else if (p->f->mode == TARN_FSCK_DRY)
			say(p, f, TARN_FSCK_WOULD, when_of(rule, &fix), fix.text);
		else if (p->f->mode == TARN_FSCK_PREEN && when_of(rule, &fix) != TARN_FSCK_SAFE)
			say(p, f, TARN_FSCK_LEFT, when_of(rule, &fix), "-y repairs it");
	}
}

int64_t tarn_fsck_repair(struct pass *p)
{
	char text[512], *refused = p->nr_found && blocked(p, text, sizeof(text)) ? text : NULL;
	int64_t repaired = refused || p->f->mode == TARN_FSCK_DRY ? 0 : act(p);

	if (!repaired && p->super_valid)
		repaired = truncate_log(p, refused);
	if (!repaired)
		explain(p, refused);
	return repaired;
}
