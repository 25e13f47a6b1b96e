// SPDX-License-Identifier: GPL-2.0-only
/*
 * Host pages of an enemy: which log counts is what a simple reading of the lines
 * says, a page that is chosen may be taken, and taking it, publishing on it and
 * letting it go touches no byte of another host.
 */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

const uint8_t fuzz_weights[4] = { 1, 14, 0, 1 };

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	fuzz_image_init();
	return 0;
}

/* ---- what counts, read in another way than the library's ---- */

static bool line_good(const uint8_t *line)
{
	uint8_t copy[TARNFS_LINE];
	uint32_t crc;

	memcpy(copy, line, sizeof(copy));
	memcpy(&crc, copy + 60, sizeof(crc));
	memset(copy + 60, 0, 4);
	return le32toh(crc) == tarn_crc32c(tarn_crc32c(0, fuzz_super.uuid, 16), copy, sizeof(copy));
}

static bool is_area(uint64_t off, uint64_t len)
{
	for (int i = 0; i < fuzz_super.areas; i++)
		if (fuzz_super.area[i].off == off && fuzz_super.area[i].len == len)
			return true;
	return false;
}

static bool control_good(const struct tarnfs_control *c, uint16_t page)
{
	uint64_t next = le64toh(c->next_off), next_len = le64toh(c->next_len);

	if (!line_good((const uint8_t *)c) || le16toh(c->host) != page || c->state > 2 ||
	    c->slot > 7 || c->next_slot > 7 || (c->state == 0) != (c->generation == 0) ||
	    ((next || next_len) && !is_area(next, next_len)))
		return false;
	for (size_t i = 0; i < sizeof(c->zero); i++)
		if (c->zero[i])
			return false;
	return !c->state || is_area(le64toh(c->area_off), le64toh(c->area_len));
}

/* 0, or -1: the control line of a page is bad in both copies. */
static int expect(struct tarn_current *cur)
{
	uint64_t seal = 0;
	int seal_page = 0;

	memset(cur, 0, sizeof(*cur));
	for (uint16_t page = 0; page < fuzz_super.hosts; page++) {
		struct tarnfs_control c;

		memcpy(&c, fuzz_image + tarn_line_off(&fuzz_super, page, TARNFS_LINE_CONTROL),
		       sizeof(c));
		if (!control_good(&c, page))
			memcpy(&c, fuzz_image + tarn_mirror_line_off(&fuzz_super, page,
								     TARNFS_LINE_CONTROL),
			       sizeof(c));
		if (!control_good(&c, page))
			return -1;
		if (c.state == 2 && le64toh(c.generation) >= cur->generation) {
			cur->generation = le64toh(c.generation);
			cur->host = page;
			cur->slot = c.slot;
			cur->area_off = le64toh(c.area_off);
			cur->area_len = le64toh(c.area_len);
		}
		if (c.state == 1 && le64toh(c.generation) >= seal) {
			seal = le64toh(c.generation);
			seal_page = page;
		}
	}
	cur->sealed = seal && (seal > cur->generation ||
			       (seal == cur->generation && seal_page > cur->host));
	return 0;
}

static void check_scan(bool still)
{
	struct tarn_identity ids[TARNFS_HOSTS_MAX];
	struct tarn_current cur, want;
	struct tarn_err err = { "" };
	int ret = tarn_scan(fuzz_media(), &fuzz_super, &cur, ids, &err);

	fuzz_check_err(ret, &err);
	if (!still)
		return;
	if (expect(&want))
		fuzz_check(ret == -EUCLEAN, "scan: %d with a control line bad in both copies", ret);
	else
		fuzz_check(!ret && tarn_current_same(&cur, &want) && cur.sealed == want.sealed,
			   "scan: %d, generation %llu of %u, sealed %d; not %llu of %u, %d", ret,
			   (unsigned long long)cur.generation, cur.host, cur.sealed,
			   (unsigned long long)want.generation, want.host, want.sealed);
	/* a host page that cannot be read counts as somebody's */
	for (uint32_t i = 0; i < fuzz_super.hosts && !ret; i++)
		fuzz_check(!ids[i].bad || ids[i].state == TARNFS_PAGE_CLAIMED, "page %u is bad", i);
}

static void check_pages(void)
{
	struct tarn_identity ids[FUZZ_PAGES];
	struct tarn_err err = { "" };
	struct tarn_page page;
	char text[640], *small;
	size_t room;

	for (uint16_t i = 0; i < fuzz_super.hosts + 1; i++) {
		int ret = tarn_page_read(fuzz_media(), &fuzz_super, i, &page, &err);

		fuzz_check_err(ret, &err);
		fuzz_check(!ret == (i < fuzz_super.hosts), "page %u: %d", i, ret);
		err.text[0] = '\0';
		if (ret)
			continue;
		ids[i] = page.id;
		fuzz_check(!page.status.valid || page.status.nonce == page.id.nonce, "status");
		fuzz_check(page.status.valid || !page.status.released, "released");
		fuzz_check(!page.quiesce.valid || page.quiesce.nonce == page.id.nonce, "quiesce");
		fuzz_check(!page.info.node_name[sizeof(page.info.node_name) - 1], "node name");
	}
	/* just as much room as it is told: the sanitizer looks */
	for (room = 64; room <= sizeof(text); room *= 3) {
		small = malloc(room);
		tarn_pages_text(small, room, fuzz_media(), &fuzz_super, ids);
		fuzz_check_text(small);
		free(small);
	}
}

/* ---- a claim ---- */

static uint8_t before[FUZZ_PAGES * TARNFS_BLOCK * 2 + 2 * TARNFS_BLOCK];

/* Bytes of host pages and what is below them, but page and mirror of one host. */
static void check_untouched(uint16_t page)
{
	uint64_t own = tarn_line_off(&fuzz_super, page, 0);
	uint64_t mirror = tarn_mirror_line_off(&fuzz_super, page, 0);

	for (uint64_t off = 0; off < sizeof(before); off += TARNFS_BLOCK)
		fuzz_check(off == own || off == mirror ||
			   !memcmp(before + off, fuzz_image + off, TARNFS_BLOCK),
			   "page %u: another host's bytes were changed, at 0x%llx", page,
			   (unsigned long long)off);
}

static void use_page(uint16_t page, const struct tarn_host_id *id, bool still)
{
	struct tarn_claim claim;
	struct tarn_err err = { "" };
	struct tarn_page now;
	char node[49];
	int ret;

	if (tarn_claim_other_node(fuzz_media(), &fuzz_super, id, page, node))
		fuzz_check(node[0], "another node without a name");
	ret = tarn_claim_write(fuzz_media(), &fuzz_super, id, page, &claim, &err);
	fuzz_check_err(ret, &err);
	if (ret) {
		/* a control line bad in both copies cannot be mended */
		fuzz_check(!still || ret == -EUCLEAN, "claim of page %u: %s", page, err.text);
		return;
	}
	ret = tarn_claim_check(fuzz_media(), &fuzz_super, &claim, &err);
	fuzz_check_err(ret, &err);
	fuzz_check(!still || !ret, "check of a claim: %s", err.text);
	if (ret)
		return;
	ret = tarn_page_read(fuzz_media(), &fuzz_super, page, &now, &err);
	if (still) {
		fuzz_check(!ret && now.id.nonce == claim.nonce && !now.id.bad &&
			   now.id.state == TARNFS_PAGE_CLAIMED, "the claim is not there");
		fuzz_check(!now.quiesce.valid && !now.status.released && !now.contend,
			   "what the one before said still counts");
	}
	ret = tarn_status_publish(fuzz_media(), &fuzz_super, &claim, 1, 0, 6, &err);
	fuzz_check_err(ret, &err);
	fuzz_check(!still || !ret, "status: %s", err.text);
	err.text[0] = '\0';
	ret = tarn_claim_release(fuzz_media(), &fuzz_super, &claim, &err);
	fuzz_check_text(err.text);
	if (!ret && still) {
		ret = tarn_page_read(fuzz_media(), &fuzz_super, page, &now, &err);
		fuzz_check(!ret && now.id.state == TARNFS_PAGE_BOUND &&
			   !memcmp(now.id.host_uuid, id->uuid, 16), "page %u is not bound", page);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct tarn_host_id *id;
	struct tarn_identity was;
	struct tarn_err err = { "" };
	struct fuzz_input in;
	bool again, settle, still;
	uint16_t page = 99;
	int ret, wanted;

	still = fuzz_image_load(data, size, &in);
	id = &fuzz_host[in.opt[0] % FUZZ_PAGES];
	wanted = in.opt[1] % (FUZZ_PAGES + 2) - 1;
	check_scan(still);
	check_pages();
	ret = tarn_claim_choose(fuzz_media(), &fuzz_super, id, wanted, &page, &again, &settle, &err);
	fuzz_check_err(ret, &err);
	if (!ret) {
		fuzz_check(page < fuzz_super.hosts && (wanted < 0 || wanted == page), "chose %u",
			   page);
		fuzz_check(!settle || wanted < 0, "settles on a page that was asked for");
		/* nobody else's */
		if (still)
			fuzz_check(!tarn_identity_read(fuzz_media(), &fuzz_super, page, &was) &&
				   !was.bad && (again ? !memcmp(was.host_uuid, id->uuid, 16)
						      : was.state == TARNFS_PAGE_FREE),
				   "chose page %u, which is another host's", page);
		memcpy(before, fuzz_image, sizeof(before));
		use_page(page, id, still);
		if (still)
			check_untouched(page);
	} else {
		fuzz_check(ret == -EINVAL || ret == -EEXIST || ret == -EUSERS, "choose: %d", ret);
	}
	fuzz_image_reset();
	return 0;
}
