// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * hostpage.c - host pages: who is here, which log counts, claim and release.
 *
 * A line is stored whole by one host. A reader may meet it half written (the
 * cache may evict a line between two stores), so a line whose checksum does
 * not fit is fetched again a few times before it counts as bad. What stands
 * in for a bad line is in protocol section 1: each reader below says it.
 */
#include "internal.h"

#include <inttypes.h>
#include <time.h>

#define LINE_TRIES 4

static uint32_t line_crc(const void *line, const uint8_t fs_uuid[16])
{
	uint8_t copy[TARNFS_LINE];

	/* every checked line ends with its crc */
	memcpy(copy, line, sizeof(copy));
	memset(copy + sizeof(copy) - sizeof(uint32_t), 0, sizeof(uint32_t));
	return tarn_crc32c(tarn_crc32c(0, fs_uuid, 16), copy, sizeof(copy));
}

static void line_seal(void *line, const uint8_t fs_uuid[16])
{
	uint32_t crc = htole32(line_crc(line, fs_uuid));

	memcpy((uint8_t *)line + TARNFS_LINE - sizeof(crc), &crc, sizeof(crc));
}

int tarn_line_read(struct tarn_media *m, const struct tarn_super *sb, uint64_t off, void *line)
{
	for (int i = 0; i < LINE_TRIES; i++) {
		uint32_t crc;
		int ret = TARN_PLANTED(LINES_CACHED) ? tarn_media_read(m, off, line, TARNFS_LINE) :
						       tarn_media_fetch(m, off, line, TARNFS_LINE);

		if (ret)
			return ret;
		memcpy(&crc, (uint8_t *)line + TARNFS_LINE - sizeof(crc), sizeof(crc));
		if (le32toh(crc) == line_crc(line, sb->uuid))
			return 0;
		if (tarn_all_zero(line, TARNFS_LINE))
			return -ENODATA;
	}
	return -EUCLEAN;
}

static bool is_bad(int ret)
{
	return ret == -EIO || ret == -EUCLEAN || ret == -ENODATA;
}

/* ---- identity ---- */

void tarn_identity_encode(struct tarnfs_identity *raw, const struct tarn_identity *id,
			  uint16_t page, const uint8_t fs_uuid[16])
{
	memset(raw, 0, sizeof(*raw));
	raw->nonce = htole64(id->nonce);
	memcpy(raw->host_uuid, id->host_uuid, sizeof(raw->host_uuid));
	memcpy(raw->boot_id, id->boot_id, sizeof(raw->boot_id));
	raw->claims = htole64(id->claims);
	raw->host = htole16(page);
	raw->state = id->state;
	line_seal(raw, fs_uuid);
}

int tarn_identity_copy(struct tarn_media *m, const struct tarn_super *sb, uint64_t off,
			 uint16_t page, struct tarn_identity *id)
{
	struct tarnfs_identity raw;
	int ret = tarn_line_read(m, sb, off, &raw);

	memset(id, 0, sizeof(*id));
	if (ret)
		return ret;
	if (le16toh(raw.host) != page || raw.state > TARNFS_PAGE_CLAIMED || raw.flags ||
	    !tarn_all_zero(raw.zero, sizeof(raw.zero)) ||
	    (raw.state == TARNFS_PAGE_CLAIMED && !raw.nonce) ||
	    (raw.state != TARNFS_PAGE_FREE && tarn_uuid_is_zero(raw.host_uuid)))
		return -EUCLEAN;
	id->nonce = le64toh(raw.nonce);
	memcpy(id->host_uuid, raw.host_uuid, sizeof(id->host_uuid));
	memcpy(id->boot_id, raw.boot_id, sizeof(id->boot_id));
	id->claims = le64toh(raw.claims);
	id->state = raw.state;
	return 0;
}

int tarn_identity_read(struct tarn_media *m, const struct tarn_super *sb, uint16_t page,
		       struct tarn_identity *id)
{
	int ret = tarn_identity_copy(m, sb, tarn_line_off(sb, page, TARNFS_LINE_IDENTITY), page, id);

	if (!is_bad(ret))
		return ret;
	ret = tarn_identity_copy(m, sb, tarn_mirror_line_off(sb, page, TARNFS_LINE_IDENTITY), page, id);
	if (ret && !is_bad(ret))
		return ret;
	/* whoever it belongs to may be alive */
	id->state = TARNFS_PAGE_CLAIMED;
	id->bad = ret != 0;
	return 0;
}

/* One copy. dirty: it stays in the cache, a planted fault. */
static int copy_store(struct tarn_media *m, const struct tarn_super *sb, uint16_t page, bool mirror,
		      const struct tarn_identity *id, bool dirty)
{
	uint64_t off = mirror ? tarn_mirror_line_off(sb, page, TARNFS_LINE_IDENTITY) :
				tarn_line_off(sb, page, TARNFS_LINE_IDENTITY);
	struct tarnfs_identity raw;

	tarn_identity_encode(&raw, id, page, sb->uuid);
	return dirty ? tarn_media_write(m, off, &raw, sizeof(raw)) :
		       tarn_media_store(m, off, &raw, sizeof(raw));
}

/* The page first: a reader that finds it torn takes the mirror, which still says what was. */
static int identity_store(struct tarn_media *m, const struct tarn_super *sb, uint16_t page,
			  const struct tarn_identity *id)
{
	int ret = copy_store(m, sb, page, false, id, TARN_PLANTED(CLAIM_AT_ONCE));

	if (!ret)
		ret = copy_store(m, sb, page, true, id, false);
	if (!ret && TARN_PLANTED(CLAIM_AT_ONCE))
		ret = copy_store(m, sb, page, false, id, false);
	return ret;
}

/* ---- control ---- */

void tarn_control_encode(struct tarnfs_control *raw, const struct tarn_control *control,
			 uint16_t page, const uint8_t fs_uuid[16])
{
	memset(raw, 0, sizeof(*raw));
	raw->generation = htole64(control->generation);
	raw->area_off = htole64(control->area_off);
	raw->area_len = htole64(control->area_len);
	raw->next_off = htole64(control->next_off);
	raw->next_len = htole64(control->next_len);
	raw->host = htole16(page);
	raw->state = control->state;
	raw->slot = control->slot;
	raw->next_slot = control->next_slot;
	line_seal(raw, fs_uuid);
}

static bool is_area(const struct tarn_super *sb, uint64_t off, uint64_t len)
{
	for (int i = 0; i < sb->areas; i++)
		if (sb->area[i].off == off && sb->area[i].len == len)
			return true;
	return false;
}

int tarn_control_copy(struct tarn_media *m, const struct tarn_super *sb, uint64_t off,
			uint16_t page, struct tarn_control *control)
{
	struct tarnfs_control raw;
	int ret = tarn_line_read(m, sb, off, &raw);

	memset(control, 0, sizeof(*control));
	if (ret)
		return ret;
	control->generation = le64toh(raw.generation);
	control->area_off = le64toh(raw.area_off);
	control->area_len = le64toh(raw.area_len);
	control->next_off = le64toh(raw.next_off);
	control->next_len = le64toh(raw.next_len);
	control->state = raw.state;
	control->slot = raw.slot;
	control->next_slot = raw.next_slot;
	if (le16toh(raw.host) != page || raw.state > TARNFS_CONTROL_ACTIVE ||
	    raw.slot >= TARNFS_SLOTS || raw.next_slot >= TARNFS_SLOTS ||
	    !tarn_all_zero(raw.zero, sizeof(raw.zero)) ||
	    (raw.state == TARNFS_CONTROL_NONE) != !control->generation ||
	    (raw.state != TARNFS_CONTROL_NONE &&
	     !is_area(sb, control->area_off, control->area_len)) ||
	    ((control->next_off || control->next_len) &&
	     !is_area(sb, control->next_off, control->next_len)))
		return -EUCLEAN;
	return 0;
}

static int control_read(struct tarn_media *m, const struct tarn_super *sb, uint16_t page,
			struct tarn_control *control)
{
	int ret = tarn_control_copy(m, sb, tarn_line_off(sb, page, TARNFS_LINE_CONTROL), page, control);

	if (!is_bad(ret))
		return ret;
	ret = tarn_control_copy(m, sb, tarn_mirror_line_off(sb, page, TARNFS_LINE_CONTROL), page,
			   control);
	if (ret && !is_bad(ret))
		return ret;
	control->bad = ret != 0;
	return 0;
}

int tarn_scan(struct tarn_media *m, const struct tarn_super *sb, struct tarn_current *cur,
	      struct tarn_identity *ids, struct tarn_err *err)
{
	uint64_t seal_generation = 0;
	uint16_t seal_host = 0;

	memset(cur, 0, sizeof(*cur));
	for (uint32_t i = 0; i < sb->hosts; i++) {
		uint16_t page = (uint16_t)i;
		struct tarn_control control;
		int ret = ids ? tarn_identity_read(m, sb, page, &ids[i]) : 0;

		if (!ret)
			ret = control_read(m, sb, page, &control);
		if (ret)
			return tarn_fail(err, -ret, "host page %u: %s", page, strerror(-ret));
		/* Never "absent": the log that counts would be an older one. */
		if (control.bad)
			return tarn_fail(
				err, EUCLEAN,
				"host page %u: its control line is bad at device offsets 0x%" PRIx64
				" and 0x%" PRIx64 " (mirror): fsck.tarnfs -n says what else "
				"is damaged, and what can be repaired",
				page, tarn_line_off(sb, page, TARNFS_LINE_CONTROL),
				tarn_mirror_line_off(sb, page, TARNFS_LINE_CONTROL));
		/* pages are read in ascending order, so >= makes the higher host win */
		if (control.state == TARNFS_CONTROL_ACTIVE &&
		    control.generation >= cur->generation) {
			cur->generation = control.generation;
			cur->host = page;
			cur->slot = control.slot;
			cur->area_off = control.area_off;
			cur->area_len = control.area_len;
		} else if (control.state == TARNFS_CONTROL_SEALING &&
			   control.generation >= seal_generation) {
			seal_generation = control.generation;
			seal_host = page;
		}
	}
	cur->sealed = seal_generation > cur->generation ||
		      (seal_generation && seal_generation == cur->generation &&
		       seal_host > cur->host);
	return 0;
}

/* ---- the other lines ---- */

static void status_read(struct tarn_media *m, const struct tarn_super *sb, uint16_t page,
			uint64_t nonce, struct tarn_hoststatus *status)
{
	struct tarnfs_hoststatus raw;

	/* bad, or of an older incarnation: nothing is known to be released */
	memset(status, 0, sizeof(*status));
	if (tarn_line_read(m, sb, tarn_line_off(sb, page, TARNFS_LINE_STATUS), &raw))
		return;
	status->nonce = le64toh(raw.nonce);
	status->released = le64toh(raw.released);
	status->applied_generation = le64toh(raw.applied_generation);
	status->applied_seq = le64toh(raw.applied_seq);
	status->applied_host = le16toh(raw.applied_host);
	status->valid = status->nonce && status->nonce == nonce;
	if (!status->valid)
		status->released = 0;
}

static void quiesce_read(struct tarn_media *m, const struct tarn_super *sb, uint16_t page,
			 uint64_t nonce, struct tarn_quiesce *quiesce)
{
	struct tarnfs_quiesce raw;

	/* bad, or of an older incarnation: not quiesced */
	memset(quiesce, 0, sizeof(*quiesce));
	if (tarn_line_read(m, sb, tarn_line_off(sb, page, TARNFS_LINE_QUIESCE), &raw))
		return;
	quiesce->nonce = le64toh(raw.nonce);
	quiesce->generation = le64toh(raw.generation);
	quiesce->final_seq = le64toh(raw.final_seq);
	quiesce->final_units = le32toh(raw.final_units);
	quiesce->valid = quiesce->nonce && quiesce->nonce == nonce && quiesce->generation &&
			 le16toh(raw.host) == page;
}

static void info_read(struct tarn_media *m, const struct tarn_super *sb, uint16_t page,
		      struct tarnfs_info *info)
{
	if (tarn_media_fetch(m, tarn_line_off(sb, page, TARNFS_LINE_INFO), info, sizeof(*info)))
		memset(info, 0, sizeof(*info));
	info->node_name[sizeof(info->node_name) - 1] = '\0';
}

int tarn_page_read(struct tarn_media *m, const struct tarn_super *sb, uint16_t page,
		   struct tarn_page *out, struct tarn_err *err)
{
	struct tarnfs_contend contend;
	int ret;

	memset(out, 0, sizeof(*out));
	if (page >= sb->hosts)
		return tarn_fail(err, EINVAL, "host page %u: there are %u", page, sb->hosts);
	ret = tarn_identity_read(m, sb, page, &out->id);
	if (!ret)
		ret = control_read(m, sb, page, &out->control);
	if (ret)
		return tarn_fail(err, -ret, "host page %u: %s", page, strerror(-ret));
	status_read(m, sb, page, out->id.nonce, &out->status);
	quiesce_read(m, sb, page, out->id.nonce, &out->quiesce);
	/* bad: somebody may be contending */
	ret = tarn_media_fetch(m, tarn_line_off(sb, page, TARNFS_LINE_CONTEND), &contend,
			       sizeof(contend));
	out->contend = ret ? UINT64_MAX : le64toh(contend.word);
	info_read(m, sb, page, &out->info);
	return 0;
}

void tarn_pages_text(char *out, size_t room, struct tarn_media *m, const struct tarn_super *sb,
		     const struct tarn_identity *ids)
{
	static const char *const states[] = { "free", "bound to", "claimed by" };
	size_t used = 0;
	uint32_t left = 0;

	out[0] = '\0';
	for (uint32_t i = 0; i < sb->hosts; i++) {
		struct tarnfs_info info;
		char uuid[37], text[160];
		size_t len;

		if (ids[i].state == TARNFS_PAGE_FREE)
			continue;
		info_read(m, sb, (uint16_t)i, &info);
		/* what another host wrote goes to a terminal */
		for (char *p = (char *)info.node_name; *p; p++)
			if (*p <= ' ' || *p > '~')
				*p = '?';
		tarn_uuid_text(uuid, ids[i].host_uuid);
		if (ids[i].bad)
			snprintf(text, sizeof(text), "page %u unreadable (counts as claimed)", i);
		else
			snprintf(text, sizeof(text), "page %u %s %s%s%s", i, states[ids[i].state],
				 uuid, info.node_name[0] ? " " : "", (const char *)info.node_name);
		len = strlen(text);
		/* 24: room for ", and 128 more" */
		if (left || used + len + 2 + 24 > room) {
			left++;
			continue;
		}
		used += (size_t)snprintf(out + used, room - used, "%s%s", used ? ", " : "", text);
	}
	if (left)
		snprintf(out + used, room - used, "%s and %u more", used ? "," : "", left);
	else if (!used)
		snprintf(out, room, "all pages are free");
}

/* ---- claim ---- */

int tarn_claim_choose(struct tarn_media *m, const struct tarn_super *sb,
		      const struct tarn_host_id *id, int wanted, uint16_t *page, bool *again,
		      bool *settle, struct tarn_err *err)
{
	struct tarn_identity ids[TARNFS_HOSTS_MAX];
	char pages[640];

	*again = *settle = false;
	if (wanted >= 0 && (uint32_t)wanted >= sb->hosts)
		return tarn_fail(err, EINVAL, "host=%d: this file system has host pages 0 to %u",
				 wanted, sb->hosts - 1);
	for (uint32_t i = 0; i < sb->hosts; i++) {
		int ret = tarn_identity_read(m, sb, (uint16_t)i, &ids[i]);

		if (ret)
			return tarn_fail(err, -ret, "host page %u: %s", i, strerror(-ret));
	}
	for (uint32_t i = 0; i < sb->hosts; i++) {
		if (ids[i].state == TARNFS_PAGE_FREE || ids[i].bad ||
		    memcmp(ids[i].host_uuid, id->uuid, sizeof(id->uuid)))
			continue;
		if (wanted >= 0 && (uint32_t)wanted != i)
			return tarn_fail(err, EEXIST,
					 "host=%d: this host has page %u already; leave host= out "
					 "(of the options, or of /etc/tarnfs/host)",
					 wanted, i);
		*page = (uint16_t)i;
		*again = true;
		return 0;
	}
	if (wanted >= 0) {
		if (ids[wanted].state == TARNFS_PAGE_FREE) {
			*page = (uint16_t)wanted;
			return 0;
		}
	} else {
		for (uint32_t i = 0; i < sb->hosts; i++) {
			if (ids[i].state != TARNFS_PAGE_FREE)
				continue;
			*page = (uint16_t)i;
			*settle = true;
			return 0;
		}
	}
	tarn_pages_text(pages, sizeof(pages), m, sb, ids);
	if (wanted >= 0)
		return tarn_fail(err, EUSERS,
				 "host=%d: that host page is another host's: %s; choose a free one "
				 "with -o host=N",
				 wanted, pages);
	return tarn_fail(err, EUSERS,
			 "no host page is free: %s; give this host the uuid of one that is gone "
			 "for good (a line uuid= in /etc/tarnfs/host), or make the file system "
			 "with more pages (mkfs.tarnfs --hosts)",
			 pages);
}

/*
 * What stands in the mirror differs from the page if a store of both was cut: mend it, the
 * line is ours.
 */
static int control_settle(struct tarn_media *m, const struct tarn_super *sb, uint16_t page)
{
	uint64_t page_off = tarn_line_off(sb, page, TARNFS_LINE_CONTROL);
	uint64_t mirror_off = tarn_mirror_line_off(sb, page, TARNFS_LINE_CONTROL);
	struct tarn_control in_page, in_mirror;
	struct tarnfs_control raw, raw_mirror;
	int page_ret = tarn_control_copy(m, sb, page_off, page, &in_page);
	int mirror_ret = tarn_control_copy(m, sb, mirror_off, page, &in_mirror);

	if (page_ret && mirror_ret)
		return is_bad(page_ret) && is_bad(mirror_ret) ? -EUCLEAN : page_ret;
	tarn_control_encode(&raw, &in_page, page, sb->uuid);
	tarn_control_encode(&raw_mirror, &in_mirror, page, sb->uuid);
	if (page_ret)
		return tarn_media_store(m, page_off, &raw_mirror, sizeof(raw_mirror));
	if (mirror_ret || memcmp(&raw, &raw_mirror, sizeof(raw)))
		return tarn_media_store(m, mirror_off, &raw, sizeof(raw));
	return 0;
}

void tarn_line_cleared(void *raw, const struct tarn_super *sb, uint16_t page, unsigned int line,
		       uint64_t nonce)
{
	uint64_t first = htole64(nonce);

	memset(raw, 0, TARNFS_LINE);
	if (!nonce || line == TARNFS_LINE_CONTEND)
		return;
	memcpy(raw, &first, sizeof(first));	/* the first field of each of them */
	if (line == TARNFS_LINE_QUIESCE)
		((struct tarnfs_quiesce *)raw)->host = htole16(page);
	line_seal(raw, sb->uuid);
}

/*
 * status {nonce, nothing released}, window and quiesce empty, contend 0: what
 * an older incarnation left there is gone before the new nonce can be seen.
 */
static int lines_clear(struct tarn_media *m, const struct tarn_super *sb, uint16_t page,
		       uint64_t nonce, const char node_name[48])
{
	struct {
		struct tarnfs_window window;
		struct tarnfs_hoststatus status;
		struct tarnfs_quiesce quiesce;
		struct tarnfs_contend contend;
		struct tarnfs_info info;
	} raw;
	uint64_t off = tarn_line_off(sb, page, TARNFS_LINE_WINDOW);

	_Static_assert(sizeof(raw) == 5 * TARNFS_LINE &&
			       TARNFS_LINE_STATUS == TARNFS_LINE_WINDOW + 1 &&
			       TARNFS_LINE_QUIESCE == TARNFS_LINE_WINDOW + 2 &&
			       TARNFS_LINE_CONTEND == TARNFS_LINE_WINDOW + 3 &&
			       TARNFS_LINE_INFO == TARNFS_LINE_WINDOW + 4,
		       "lines of a host page");
	memset(&raw, 0, sizeof(raw));
	tarn_line_cleared(&raw.window, sb, page, TARNFS_LINE_WINDOW, nonce);
	tarn_line_cleared(&raw.status, sb, page, TARNFS_LINE_STATUS, nonce);
	tarn_line_cleared(&raw.quiesce, sb, page, TARNFS_LINE_QUIESCE, nonce);
	raw.info.seconds = htole64((uint64_t)time(NULL));
	memcpy(raw.info.node_name, node_name, sizeof(raw.info.node_name));
	return tarn_media_store(m, off, &raw, sizeof(raw));
}

int tarn_claim_write(struct tarn_media *m, const struct tarn_super *sb,
		     const struct tarn_host_id *id, uint16_t page, struct tarn_claim *claim,
		     struct tarn_err *err)
{
	struct tarn_identity was, mirror, now = { .state = TARNFS_PAGE_CLAIMED };
	int mirror_ret, ret = tarn_identity_read(m, sb, page, &was);

	if (ret)
		return tarn_fail(err, -ret, "host page %u: %s", page, strerror(-ret));
	claim->page = page;
	claim->nonce = tarn_nonce();
	claim->again = was.state != TARNFS_PAGE_FREE && !was.bad &&
		       !memcmp(was.host_uuid, id->uuid, sizeof(id->uuid));
	if (was.state != TARNFS_PAGE_FREE && !claim->again)
		return tarn_fail(err, EUSERS, "host page %u: it is another host's", page);
	now.nonce = claim->nonce;
	memcpy(now.host_uuid, id->uuid, sizeof(now.host_uuid));
	memcpy(now.boot_id, id->boot_id, sizeof(now.boot_id));
	now.claims = was.claims + 1;
	mirror_ret = tarn_identity_copy(m, sb, tarn_mirror_line_off(sb, page, TARNFS_LINE_IDENTITY),
					page, &mirror);
	if (!mirror_ret && mirror.claims > was.claims)
		now.claims = mirror.claims + 1;

	if (claim->again)
		ret = control_settle(m, sb, page);
	/* A crash may have torn the mirror: another, while the page is written, would leave none. */
	if (!ret && claim->again && mirror_ret)
		ret = copy_store(m, sb, page, true, &was, false);
	if (!ret)
		ret = lines_clear(m, sb, page, claim->nonce, id->node_name);
	/*
	 * Of a page that was free the mirror follows when the claim still stands after the wait
	 * (tarn_claim_check): another host may write this very page meanwhile, and if both crash
	 * then, one copy is whole.
	 */
	if (!ret && was.state == TARNFS_PAGE_FREE)
		ret = copy_store(m, sb, page, false, &now, TARN_PLANTED(CLAIM_DIRTY));
	else if (!ret)
		ret = identity_store(m, sb, page, &now);
	if (ret)
		return tarn_fail(err, -ret,
				 "host page %u at device offset 0x%" PRIx64
				 ": claiming it failed: %s",
				 page, tarn_line_off(sb, page, 0), strerror(-ret));
	return 0;
}

int tarn_own_nonce(struct tarn_media *m, const struct tarn_super *sb,
		   const struct tarn_claim *claim, struct tarn_err *err)
{
	struct tarn_identity id;
	int ret = tarn_identity_read(m, sb, claim->page, &id);

	if (ret)
		return tarn_fail(err, -ret, "host page %u: %s", claim->page, strerror(-ret));
	if (id.bad)
		return tarn_fail(err, EUCLEAN,
				 "host page %u: its identity is bad at device offsets 0x%" PRIx64
				 " and 0x%" PRIx64 " (mirror)",
				 claim->page, tarn_line_off(sb, claim->page, TARNFS_LINE_IDENTITY),
				 tarn_mirror_line_off(sb, claim->page, TARNFS_LINE_IDENTITY));
	if ((id.state != TARNFS_PAGE_CLAIMED || id.nonce != claim->nonce) &&
	    !TARN_PLANTED(NONCE_IGNORED)) {
		char uuid[37];

		tarn_uuid_text(uuid, id.host_uuid);
		return tarn_fail(err, EAGAIN, "host page %u: another claim stands there (host %s)",
				 claim->page, uuid);
	}
	return 0;
}

int tarn_claim_check(struct tarn_media *m, const struct tarn_super *sb,
		     const struct tarn_claim *claim, struct tarn_err *err)
{
	struct tarn_identity in_page, in_mirror;
	uint64_t mirror_off = tarn_mirror_line_off(sb, claim->page, TARNFS_LINE_IDENTITY);
	struct tarnfs_identity raw, raw_mirror;
	int ret = TARN_PLANTED(CLAIM_NO_CHECK) ? 0 : tarn_own_nonce(m, sb, claim, err);

	if (ret)
		return ret;
	/* A new claim has not written it yet; an old one may have left another host's there. */
	ret = tarn_identity_copy(m, sb, tarn_line_off(sb, claim->page, TARNFS_LINE_IDENTITY),
			    claim->page, &in_page);
	if (ret)
		return 0;	/* the mirror alone is readable, and ours */
	ret = tarn_identity_copy(m, sb, mirror_off, claim->page, &in_mirror);
	tarn_identity_encode(&raw, &in_page, claim->page, sb->uuid);
	tarn_identity_encode(&raw_mirror, &in_mirror, claim->page, sb->uuid);
	if (!ret && !memcmp(&raw, &raw_mirror, sizeof(raw)))
		return 0;
	ret = tarn_media_store(m, mirror_off, &raw, sizeof(raw));
	if (ret)
		return tarn_fail(err, -ret,
				 "host page %u: mirror at device offset 0x%" PRIx64 ": %s",
				 claim->page, mirror_off, strerror(-ret));
	return 0;
}

/*
 * Retried: another host may write its claim between the choice and ours, or over ours before
 * it has settled.
 */
int tarn_claim_take(struct tarn_media **media, const struct tarn_super *sb,
		    const struct tarn_host_id *id, int wanted, const struct tarn_claim_steps *steps,
		    void *arg, struct tarn_claim *claim, struct tarn_err *err)
{
	bool again, settle;
	uint16_t page;
	int ret;

	for (int tries = 0; tries < TARN_CLAIM_TRIES; tries++) {
		ret = tries && TARN_PLANTED(CLAIM_RETRY_ON_COPY) ? 0 :
		      tarn_claim_choose(*media, sb, id, wanted, &page, &again, &settle, err);
		if (!ret)
			ret = steps->ready(arg, page, err);
		if (ret)
			return ret;
		ret = tarn_claim_write(*media, sb, id, page, claim, err);
		if (!ret) {
			steps->written(arg, page, again, settle);
			ret = tarn_claim_check(*media, sb, claim, err);
		}
		if (ret != -EUSERS && ret != -EAGAIN)
			return ret;
		steps->lost(arg, page);
	}
	return tarn_fail(err, EAGAIN,
			 "other hosts took the host page at each of %d attempts: mount again, or "
			 "give this host a page with -o host=N",
			 TARN_CLAIM_TRIES);
}

bool tarn_claim_other_node(struct tarn_media *m, const struct tarn_super *sb,
			   const struct tarn_host_id *id, uint16_t page, char node[49])
{
	struct tarn_identity was;
	struct tarnfs_info info;

	node[0] = '\0';
	if (tarn_identity_read(m, sb, page, &was) || was.bad ||
	    was.state != TARNFS_PAGE_CLAIMED ||
	    memcmp(was.host_uuid, id->uuid, sizeof(id->uuid)) ||
	    !memcmp(was.boot_id, id->boot_id, sizeof(id->boot_id)))
		return false;
	info_read(m, sb, page, &info);
	memcpy(node, info.node_name, sizeof(info.node_name));
	node[sizeof(info.node_name)] = '\0';
	return node[0] && strncmp(node, id->node_name, sizeof(id->node_name) - 1);
}

void tarn_claims_find(struct tarn_claims *c, struct tarn_media *m, const struct tarn_super *sb,
		      const struct tarn_host_id *self)
{
	memset(c, 0, sizeof(*c));
	c->clone = -1;
	for (uint32_t i = 0; i < sb->hosts; i++) {
		struct tarn_identity *id = &c->ids[i];
		char node[49];
		bool own;

		if (tarn_identity_read(m, sb, (uint16_t)i, id)) {
			/* neither free nor anybody's that is known */
			id->state = TARNFS_PAGE_CLAIMED;
			id->bad = true;
		}
		own = self && !id->bad && id->state == TARNFS_PAGE_CLAIMED &&
		      !memcmp(id->host_uuid, self->uuid, sizeof(self->uuid));
		if (own && tarn_claim_other_node(m, sb, self, (uint16_t)i, node)) {
			own = false;
			c->clone = (int)i;
			memcpy(c->node, node, sizeof(c->node));
		}
		if (id->state == TARNFS_PAGE_CLAIMED && !own)
			c->count++;
		else
			id->state = TARNFS_PAGE_FREE;
	}
}

/* ---- release ---- */

static int last_seq(void *arg, const struct tarn_rec *rec)
{
	if (!(rec->flags & TARNFS_RECORD_CKPT))
		*(uint64_t *)arg = rec->seq;
	return 0;
}

/* The master's last word: where its log ends. Its area is out of our caches before. */
static int quiesce_publish(struct tarn_media *m, const struct tarn_super *sb,
			   const struct tarn_claim *claim, const struct tarn_current *cur,
			   struct tarn_err *err)
{
	uint64_t off = tarn_line_off(sb, claim->page, TARNFS_LINE_QUIESCE);
	uint32_t pos = TARNFS_LOG_HEADER_UNITS;
	struct tarnfs_quiesce raw;
	struct tarn_log log;
	uint64_t seq;
	int ret = tarn_log_open(&log, m, sb, cur, err);

	if (ret)
		return ret;
	seq = log.base_seq;
	ret = tarn_log_walk(&log, m, &pos, last_seq, &seq, err);
	if (ret)
		return ret;
	/* records that a killed command left behind the commit point may be dirty here */
	ret = tarn_media_invalidate(m, log.area_off, log.area_len);
	if (!ret)
		ret = tarn_media_invalidate(m, tarn_commit_off(sb, &log), TARNFS_LINE);
	memset(&raw, 0, sizeof(raw));
	raw.nonce = htole64(claim->nonce);
	raw.generation = htole64(log.seed.generation);
	raw.final_seq = htole64(seq);
	raw.final_units = htole32(log.units);
	raw.host = htole16(claim->page);
	line_seal(&raw, sb->uuid);
	if (!ret)
		ret = tarn_media_store(m, off, &raw, sizeof(raw));
	if (ret)
		return tarn_fail(err, -ret,
				 "host page %u: quiesce line at device offset 0x%" PRIx64 ": %s",
				 claim->page, off, strerror(-ret));
	return 0;
}

int tarn_claim_release(struct tarn_media *m, const struct tarn_super *sb,
		       const struct tarn_claim *claim, struct tarn_err *err)
{
	struct tarn_identity ids[TARNFS_HOSTS_MAX];
	struct tarn_current cur;
	int ret = tarn_own_nonce(m, sb, claim, err);

	if (ret == -EAGAIN)
		return -ESTALE;
	if (!ret)
		ret = tarn_scan(m, sb, &cur, ids, err);
	if (ret)
		return ret;
	if (cur.generation && cur.host == claim->page) {
		ret = quiesce_publish(m, sb, claim, &cur, err);
		if (ret)
			return ret;
	}
	ids[claim->page].state = TARNFS_PAGE_BOUND;
	ids[claim->page].claims++;
	ret = identity_store(m, sb, claim->page, &ids[claim->page]);
	/* the page is ours no more to keep lines of: another host may run mkfs */
	if (!ret)
		ret = tarn_media_invalidate(m, tarn_line_off(sb, claim->page, 0), sb->host_stride);
	if (!ret)
		ret = tarn_media_invalidate(m, tarn_mirror_line_off(sb, claim->page, 0),
					    sb->host_stride);
	if (ret)
		return tarn_fail(err, -ret,
				 "host page %u at device offset 0x%" PRIx64
				 ": releasing it failed: %s",
				 claim->page, tarn_line_off(sb, claim->page, 0), strerror(-ret));
	return 0;
}

/* ---- status ---- */

int tarn_status_publish(struct tarn_media *m, const struct tarn_super *sb,
			const struct tarn_claim *claim, uint64_t generation, uint16_t log_host,
			uint64_t seq, struct tarn_err *err)
{
	struct tarnfs_hoststatus raw;
	struct tarn_hoststatus was;
	struct tarnfs_info info;
	int ret = tarn_own_nonce(m, sb, claim, err);

	if (ret)
		return ret == -EAGAIN ? -ESTALE : ret;
	status_read(m, sb, claim->page, claim->nonce, &was);
	info_read(m, sb, claim->page, &info);
	memset(&raw, 0, sizeof(raw));
	raw.nonce = htole64(claim->nonce);
	/*
	 * nothing is unlinked in this version, so all that is applied is released; it never falls
	 */
	raw.released = htole64(was.released > seq ? was.released : seq);
	raw.applied_generation = htole64(generation);
	raw.applied_seq = htole64(seq);
	raw.applied_host = htole16(log_host);
	line_seal(&raw, sb->uuid);
	info.beat = htole64(le64toh(info.beat) + 1);
	info.seconds = htole64((uint64_t)time(NULL));
	ret = tarn_media_store(m, tarn_line_off(sb, claim->page, TARNFS_LINE_STATUS), &raw,
			       sizeof(raw));
	if (!ret)
		ret = tarn_media_store(m, tarn_line_off(sb, claim->page, TARNFS_LINE_INFO), &info,
				       sizeof(info));
	if (ret)
		return tarn_fail(err, -ret,
				 "host page %u: status line at device offset 0x%" PRIx64 ": %s",
				 claim->page, tarn_line_off(sb, claim->page, TARNFS_LINE_STATUS),
				 strerror(-ret));
	return 0;
}
