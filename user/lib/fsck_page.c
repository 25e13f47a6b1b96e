// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * fsck_page.c - fsck of what is not the log: superblocks, host pages and their
 * mirrors, and the bytes between them, which are zero.
 */
#include "fsck_pass.h"

/* ---- reserved bytes ---- */

/* One finding for the first byte of [off, end) that is not zero. */
static void check_zero(struct pass *p, enum tarn_fsck_number number, uint64_t off, uint64_t end,
		       const char *what)
{
	uint8_t buf[TARNFS_BLOCK];
	char text[128];

	while (off < end) {
		size_t len = end - off < sizeof(buf) ? (size_t)(end - off) : sizeof(buf);

		if (!tarn_fsck_fetch(p, off, buf, len) && !tarn_all_zero(buf, len)) {
			size_t i = 0;

			while (!buf[i])
				i++;
			snprintf(text, sizeof(text),
				 "%s: bytes that must be zero are set: damage, or a newer tarnfs", what);
			tarn_fsck_find_set(p, number, off + i, end - off - i, text);
			return;
		}
		off += len;
	}
}

/* Everything below the log areas that is neither superblock nor host page nor mirror. */
static void check_between(struct pass *p)
{
	const struct tarn_super *sb = &p->sb;
	uint64_t hosts_len = (uint64_t)sb->hosts * sb->host_stride, end = TARNFS_LOG_OFF;
	const struct tarn_media_range used[] = {
		{ TARNFS_SUPER_OFF, TARNFS_SUPER_LEN },
		{ TARNFS_SUPER2_OFF, TARNFS_SUPER_LEN },
		{ sb->hosts_off, hosts_len },
		{ sb->mirror_off, hosts_len },
	};
	uint64_t at = 0;

	/* mkfs zeroes up to there, and no further */
	for (int i = 0; i < sb->areas; i++)
		if (sb->area[i].off < end)
			end = sb->area[i].off;
	for (size_t i = 0; i < TARN_ARRAY_SIZE(used); i++) {
		uint64_t to = used[i].off < end ? used[i].off : end;

		check_zero(p, TARN_FSCK_RESERVED, at, to, "between the structures");
		at = used[i].off + used[i].len;
	}
	check_zero(p, TARN_FSCK_RESERVED, at, end, "between the structures");
}

/* ---- superblocks ---- */

bool tarn_fsck_vouched(struct pass *p, const struct tarn_super *sb)
{
	struct tarn_current cur;
	struct tarn_log log;

	return !tarn_scan(p->m, sb, &cur, NULL, NULL) &&
	       !tarn_log_open(&log, p->m, sb, &cur, NULL);
}

static int check_super(struct pass *p, int copy, struct tarnfs_super *raw, struct tarn_super *sb)
{
	uint64_t off = copy ? TARNFS_SUPER2_OFF : TARNFS_SUPER_OFF;
	struct tarn_err err = { "" };
	int ret = tarn_fsck_fetch(p, off, raw, sizeof(*raw));

	/* whether the device is large enough is another question */
	return ret ? ret : tarn_super_decode(sb, raw, 0, &err);
}

static void find_super(struct pass *p, int copy, const struct tarnfs_super *raw, int ret)
{
	uint64_t off = copy ? TARNFS_SUPER2_OFF : TARNFS_SUPER_OFF;
	struct tarn_err err = { "" };
	struct tarn_super sb;

	if (!ret || ret == -EIO || ret == -EINVAL)
		return;
	tarn_super_decode(&sb, raw, 0, &err);
	tarn_fsck_find(p,
		       ret == -EOPNOTSUPP ? TARN_FSCK_SUPER_NEWER :
		       copy		  ? TARN_FSCK_SUPER_SECOND :
					    TARN_FSCK_SUPER_FIRST,
		       off, "%s copy: %s", copy ? "second" : "first", err.text);
}

int tarn_fsck_supers(struct pass *p)
{
	struct tarnfs_super raw[2];
	struct tarn_super sb[2];
	int ret[2];

	if (p->m->size < TARNFS_LOG_OFF)
		return tarn_fail(p->err, ENODATA, "too small for a tarnfs: %" PRIu64 " bytes",
				 p->m->size);
	for (int i = 0; i < 2; i++)
		ret[i] = check_super(p, i, &raw[i], &sb[i]);
	if (ret[0] == -ENODATA && ret[1] == -ENODATA)
		return tarn_fail(p->err, ENODATA, "no tarnfs superblock here");
	for (int i = 0; i < 2; i++)
		find_super(p, i, &raw[i], ret[i]);
	if (!ret[0]) {
		p->sb = sb[0];
		p->super_valid = true;
		if (!ret[1] && memcmp(&raw[0], &raw[1], sizeof(raw[0]))) {
			bool second = !tarn_fsck_vouched(p, &sb[0]) && tarn_fsck_vouched(p, &sb[1]);

			tarn_fsck_find(p, TARN_FSCK_SUPER_DIFFER, TARNFS_SUPER2_OFF,
				       "first and second copy are both whole and differ: the first "
				       "one counts%s", second ? ", and the log is the second one's" : "");
			/* there is nothing to see under the other */
			if (second)
				p->sb = sb[1];
		}
	} else if (!ret[1]) {
		p->sb = sb[1];
		p->super_valid = tarn_fsck_vouched(p, &sb[1]);
		if (!p->super_valid)
			tarn_fsck_find(p, TARN_FSCK_SUPER_FOREIGN, TARNFS_SUPER2_OFF,
				       "the second copy is whole, but no log is valid under its uuid: "
				       "nothing else was looked at");
	}
	if (p->super_valid && p->sb.dev_size > p->f->dev_size)
		tarn_fsck_find(p, TARN_FSCK_SUPER_SIZE, TARNFS_SUPER_OFF,
			       "made for %" PRIu64 " bytes, and there are %" PRIu64
			       ": an image that was cut, or another namespace", p->sb.dev_size,
			       p->f->dev_size);
	/* a mount that is there already shows no more than its own metadata */
	if (p->super_valid && p->sb.data_start > p->m->size) {
		tarn_fsck_find(p, TARN_FSCK_UNREADABLE, p->m->size,
			       "metadata reach to %" PRIu64 ", and %" PRIu64 " bytes can be read",
			       p->sb.data_start, p->m->size);
		p->super_valid = false;
	}
	return 0;
}

/* ---- lines ---- */

/* Why a copy of a line is bad; one that cannot be read is a finding of its own. */
static const char *why_bad(struct pass *p, uint64_t off)
{
	uint8_t line[TARNFS_LINE];
	int ret = tarn_line_read(p->m, &p->sb, off, line);

	switch (ret) {
	case 0:
		return "a field says what cannot be";
	case -ENODATA:
		return "all zero";
	case -EUCLEAN:
		return "checksum";
	default:
		tarn_fsck_find(p, TARN_FSCK_UNREADABLE, ret == -EIO ? p->m->bad : off,
			       "a line of a host page cannot be read: %s", strerror(-ret));
		return "unreadable";
	}
}

/* ret: of page and mirror. True when one of them can be used. */
static bool check_copies(struct pass *p, uint16_t page, const char *what, const uint64_t off[2],
			 const int ret[2], enum tarn_fsck_number one, enum tarn_fsck_number both)
{
	if (ret[0] && ret[1]) {
		const char *why[2] = { why_bad(p, off[0]), why_bad(p, off[1]) };

		tarn_fsck_find(p, both, off[0],
			       "host page %u: %s damaged in the page (%s) and in the mirror at 0x%"
			       PRIx64 " (%s)", page, what, why[0], off[1], why[1]);
		return false;
	}
	for (int i = 0; i < 2; i++)
		if (ret[i])
			tarn_fsck_find(p, one, off[i],
				       "host page %u: %s damaged in the %s (%s); the %s says it",
				       page, what, i ? "mirror" : "page", why_bad(p, off[i]),
				       i ? "page" : "mirror");
	return true;
}

static void differ(struct pass *p, uint16_t page, const char *what, uint64_t off, bool cut)
{
	if (cut)
		tarn_fsck_find(p, TARN_FSCK_COPIES_CUT, off,
			       "host page %u: the %s in the mirror is the one before: its host was "
			       "stopped between the two stores, and the next mount there goes on",
			       page, what);
	else
		tarn_fsck_find(p, TARN_FSCK_COPIES_DIFFER, off,
			       "host page %u: the %s in the mirror is another one than in the page, "
			       "which counts", page, what);
}

static void check_identity(struct pass *p, uint16_t page)
{
	const uint64_t off[2] = { tarn_line_off(&p->sb, page, TARNFS_LINE_IDENTITY),
				  tarn_mirror_line_off(&p->sb, page, TARNFS_LINE_IDENTITY) };
	struct tarn_identity id[2];
	struct tarnfs_identity raw[2];
	int ret[2];

	for (int i = 0; i < 2; i++) {
		ret[i] = tarn_identity_copy(p->m, &p->sb, off[i], page, &id[i]);
		tarn_identity_encode(&raw[i], &id[i], page, p->sb.uuid);
	}
	p->ids[page] = id[ret[0] ? 1 : 0];
	p->ids[page].bad = !check_copies(p, page, "identity", off, ret, TARN_FSCK_IDENTITY_ONE,
					 TARN_FSCK_IDENTITY_BOTH);
	if (p->ids[page].bad)
		return;
	if (!ret[0] && !ret[1] && memcmp(&raw[0], &raw[1], sizeof(raw[0])))
		differ(p, page, "identity", off[1], id[0].claims > id[1].claims);
	if (p->ids[page].state == TARNFS_PAGE_FREE &&
	    (p->ids[page].nonce || !tarn_uuid_is_zero(p->ids[page].host_uuid) ||
	     !tarn_uuid_is_zero(p->ids[page].boot_id)))
		tarn_fsck_find(p, TARN_FSCK_FREE_PAGE, off[0],
			       "host page %u: free, and yet it names a host", page);
}

static void check_control(struct pass *p, uint16_t page)
{
	const uint64_t off[2] = { tarn_line_off(&p->sb, page, TARNFS_LINE_CONTROL),
				  tarn_mirror_line_off(&p->sb, page, TARNFS_LINE_CONTROL) };
	struct tarn_control control[2];
	struct tarnfs_control raw[2];
	int ret[2];

	for (int i = 0; i < 2; i++) {
		ret[i] = tarn_control_copy(p->m, &p->sb, off[i], page, &control[i]);
		tarn_control_encode(&raw[i], &control[i], page, p->sb.uuid);
	}
	check_copies(p, page, "control line", off, ret, TARN_FSCK_CONTROL_ONE,
		     TARN_FSCK_CONTROL_BOTH);
	if (!ret[0] && !ret[1] && memcmp(&raw[0], &raw[1], sizeof(raw[0])))
		differ(p, page, "control line", off[1],
		       !control[0].generation || control[0].generation >= control[1].generation);
}

/*
 * A line with a nonce. True: it is whole, and of the claim that the identity tells of. All
 * zero is what mkfs leaves.
 */
static bool check_line(struct pass *p, uint16_t page, unsigned int line, const char *what,
		       void *raw)
{
	uint64_t off = tarn_line_off(&p->sb, page, line), nonce;
	int ret = tarn_line_read(p->m, &p->sb, off, raw);

	if (ret == -ENODATA && p->ids[page].state != TARNFS_PAGE_CLAIMED)
		return false;
	if (ret && ret != -ENODATA) {
		tarn_fsck_find(p, TARN_FSCK_LINE, off, "host page %u: %s line damaged (%s)", page,
			       what, why_bad(p, off));
		return false;
	}
	memcpy(&nonce, raw, sizeof(nonce));	/* the first field of each of them */
	if (le64toh(nonce) == p->ids[page].nonce || p->ids[page].bad)
		return true;
	tarn_fsck_find(p, TARN_FSCK_LINE_NONCE, off,
		       "host page %u: %s line of another claim than the identity's: it counts as "
		       "absent", page, what);
	return false;
}

static void bad_field(struct pass *p, uint16_t page, unsigned int line, const char *what)
{
	tarn_fsck_find(p, TARN_FSCK_LINE_FIELD, tarn_line_off(&p->sb, page, line),
		       "host page %u: %s (the checksum is right: written wrong, or by a newer "
		       "tarnfs)", page, what);
}

static void check_status(struct pass *p, uint16_t page)
{
	struct tarnfs_hoststatus raw;
	struct tarn_hoststatus *status = &p->status[page];

	if (!check_line(p, page, TARNFS_LINE_STATUS, "status", &raw))
		return;
	status->applied_generation = le64toh(raw.applied_generation);
	status->applied_seq = le64toh(raw.applied_seq);
	status->applied_host = le16toh(raw.applied_host);
	status->valid = true;
	if (raw.flags || !tarn_all_zero(raw.zero, sizeof(raw.zero)))
		bad_field(p, page, TARNFS_LINE_STATUS, "status line with flags or reserved bytes");
	else if (le64toh(raw.released) > status->applied_seq)
		bad_field(p, page, TARNFS_LINE_STATUS,
			  "status line that releases more than it has applied");
}

static void check_quiesce(struct pass *p, uint16_t page)
{
	struct tarn_quiesce *quiesce = &p->quiesce[page];
	struct tarnfs_quiesce raw;

	if (!check_line(p, page, TARNFS_LINE_QUIESCE, "quiesce", &raw))
		return;
	quiesce->generation = le64toh(raw.generation);
	quiesce->final_seq = le64toh(raw.final_seq);
	quiesce->final_units = le32toh(raw.final_units);
	quiesce->valid = quiesce->generation;
	if (!tarn_all_zero(raw.zero, sizeof(raw.zero)))
		bad_field(p, page, TARNFS_LINE_QUIESCE, "quiesce line with reserved bytes");
	else if (le16toh(raw.host) != page)
		bad_field(p, page, TARNFS_LINE_QUIESCE, "quiesce line with another page's number");
}

static void check_window(struct pass *p, uint16_t page)
{
	const size_t nonce = sizeof(uint64_t), crc = sizeof(uint32_t);
	struct tarnfs_window raw;

	if (check_line(p, page, TARNFS_LINE_WINDOW, "window", &raw) &&
	    !tarn_all_zero((const uint8_t *)&raw + nonce, sizeof(raw) - nonce - crc))
		bad_field(p, page, TARNFS_LINE_WINDOW, "window line in use, which it is not yet");
}

/* What has no checksum: contend and commit words, and bytes that are zero. */
static void check_rest(struct pass *p, uint16_t page)
{
	uint64_t start = tarn_line_off(&p->sb, page, 0), off, word;
	uint64_t mirror = tarn_mirror_line_off(&p->sb, page, 0);
	const char *what = "host page";

	for (unsigned int line = TARNFS_LINE_CONTEND; line < TARNFS_LINE_COMMIT + TARNFS_SLOTS;
	     line++) {
		if (line == TARNFS_LINE_INFO)
			continue;
		off = start + (uint64_t)line * TARNFS_LINE;
		check_zero(p, TARN_FSCK_PAGE_RESERVED,
			   line == TARNFS_LINE_INFO + 1 ? off : off + sizeof(word),
			   off + TARNFS_LINE, what);
	}
	check_zero(p, TARN_FSCK_PAGE_RESERVED,
		   start + (TARNFS_LINE_COMMIT + TARNFS_SLOTS) * TARNFS_LINE,
		   start + p->sb.host_stride, what);
	check_zero(p, TARN_FSCK_PAGE_RESERVED, mirror + (TARNFS_LINE_CONTROL + 1) * TARNFS_LINE,
		   mirror + p->sb.host_stride, "mirror of a host page");

	off = tarn_line_off(&p->sb, page, TARNFS_LINE_CONTEND);
	if (!tarn_fsck_fetch(p, off, &word, sizeof(word)) && word && !p->ids[page].bad &&
	    le64toh(word) != p->ids[page].nonce)
		tarn_fsck_find(p, TARN_FSCK_LINE_NONCE, off,
			       "host page %u: contend word of another claim than the identity's; "
			       "the next mount there clears it", page);
}

/* ---- pages together ---- */

bool tarn_fsck_control(struct pass *p, uint16_t page, struct tarn_control *control)
{
	return !tarn_control_copy(p->m, &p->sb, tarn_line_off(&p->sb, page, TARNFS_LINE_CONTROL),
				  page, control) ||
	       !tarn_control_copy(p->m, &p->sb,
				  tarn_mirror_line_off(&p->sb, page, TARNFS_LINE_CONTROL), page,
				  control);
}

void tarn_fsck_current(struct pass *p, struct tarn_current *cur)
{
	memset(cur, 0, sizeof(*cur));
	for (uint32_t i = 0; i < p->sb.hosts; i++) {
		struct tarn_control control;

		/* the rule of tarn_scan(), which stops at a line that is bad */
		if (!tarn_fsck_control(p, (uint16_t)i, &control) ||
		    control.state != TARNFS_CONTROL_ACTIVE || control.generation < cur->generation)
			continue;
		cur->generation = control.generation;
		cur->host = (uint16_t)i;
		cur->slot = control.slot;
		cur->area_off = control.area_off;
		cur->area_len = control.area_len;
	}
}

static void check_controls(struct pass *p)
{
	for (uint32_t i = 0; i < p->sb.hosts; i++) {
		uint64_t off = tarn_line_off(&p->sb, (uint16_t)i, TARNFS_LINE_CONTROL);
		struct tarn_control c;

		if (!tarn_fsck_control(p, (uint16_t)i, &c) || !p->cur.generation)
			continue;
		if (c.next_off || c.next_len)
			tarn_fsck_find(p, TARN_FSCK_COMPACTION, off,
				       "host page %u: a compaction into the area at 0x%" PRIx64
				       " is under way, or was broken off", i, c.next_off);
		if (c.state == TARNFS_CONTROL_ACTIVE && c.generation == p->cur.generation &&
		    i != p->cur.host)
			tarn_fsck_find(p, TARN_FSCK_TWO_LOGS, off,
				       "host page %u: active with generation %" PRIu64
				       ", as host page %u, whose log counts", i, c.generation,
				       p->cur.host);
		if (c.state == TARNFS_CONTROL_SEALING &&
		    (c.generation > p->cur.generation ||
		     (c.generation == p->cur.generation && i > p->cur.host)))
			tarn_fsck_find(p, TARN_FSCK_SEALED, off,
				       "host page %u: a takeover with generation %" PRIu64
				       " is under way, or was broken off: until its host goes on "
				       "nobody can change anything", i, c.generation);
	}
}

static void check_owners(struct pass *p)
{
	for (uint32_t i = 0; i < p->sb.hosts; i++) {
		if (p->ids[i].bad || p->ids[i].state == TARNFS_PAGE_FREE)
			continue;
		for (uint32_t j = 0; j < i; j++) {
			if (p->ids[j].bad || p->ids[j].state == TARNFS_PAGE_FREE ||
			    memcmp(p->ids[i].host_uuid, p->ids[j].host_uuid, 16))
				continue;
			tarn_fsck_find(p, TARN_FSCK_TWO_PAGES,
				       tarn_line_off(&p->sb, (uint16_t)i, TARNFS_LINE_IDENTITY),
				       "host page %u: of the same host as page %u, which it takes",
				       i, j);
			break;
		}
	}
}

void tarn_fsck_pages(struct pass *p)
{
	check_between(p);
	for (uint32_t i = 0; i < p->sb.hosts; i++) {
		uint16_t page = (uint16_t)i;

		if (tarn_fsck_step(p, 1, i, p->sb.hosts))
			return;
		check_identity(p, page);
		check_control(p, page);
		check_window(p, page);
		check_status(p, page);
		check_quiesce(p, page);
		check_rest(p, page);
	}
	if (tarn_fsck_step(p, 1, p->sb.hosts, p->sb.hosts))
		return;
	tarn_fsck_current(p, &p->cur);
	check_controls(p);
	check_owners(p);
}

void tarn_fsck_positions(struct pass *p)
{
	/* how far a damaged log went is not known */
	for (uint32_t i = 0; p->log_whole && i < p->sb.hosts; i++) {
		const struct tarn_hoststatus *status = &p->status[i];
		const struct tarn_quiesce *quiesce = &p->quiesce[i];

		if (status->valid && (status->applied_generation > p->cur.generation ||
				      (status->applied_generation == p->cur.generation &&
				       status->applied_host == p->cur.host &&
				       status->applied_seq > p->seq)))
			tarn_fsck_find(p, TARN_FSCK_STATUS_AHEAD,
				       tarn_line_off(&p->sb, (uint16_t)i, TARNFS_LINE_STATUS),
				       "host page %u: has applied seq %" PRIu64 " of generation %" PRIu64
				       ", and the log ends with seq %" PRIu64 " of generation %" PRIu64,
				       i, status->applied_seq, status->applied_generation, p->seq,
				       p->cur.generation);
		if (i == p->cur.host && quiesce->valid &&
		    quiesce->generation == p->cur.generation &&
		    (quiesce->final_seq != p->seq || quiesce->final_units != p->log.units))
			tarn_fsck_find(p, TARN_FSCK_QUIESCE,
				       tarn_line_off(&p->sb, (uint16_t)i, TARNFS_LINE_QUIESCE),
				       "host page %u: was quiesced at seq %" PRIu64 ", %u units, and "
				       "the log ends with seq %" PRIu64 ", %u units", i,
				       quiesce->final_seq, quiesce->final_units, p->seq,
				       p->log.units);
	}
}
