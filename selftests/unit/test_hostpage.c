// SPDX-License-Identifier: GPL-2.0-only
/*
 * Host pages: one owner each, claimed and given up in the order of protocol
 * section 5; what stands in for a bad line is never the dangerous guess.
 */
#include "testkernel.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#define MIB (1ULL << 20)
#define SCAN "fetch page0.control\n" "fetch page1.control\n"
#define SCAN_IDS \
	"fetch page0.identity\n" \
	"fetch page0.control\n" \
	"fetch page1.identity\n" \
	"fetch page1.control\n"

static struct memory *mem;
static struct tarn_super sb;
static struct testhost h[3];
static struct tarn_err err;

static int setup(void **state)
{
	(void)state;
	mem = test_mkfs(&sb, 2, MIB, 4 * MIB, test_owner);
	for (int i = 0; i < 3; i++)
		testhost_start(&h[i], mem, &sb, i);
	err.text[0] = '\0';
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	for (int i = 0; i < 3; i++)
		testhost_stop(&h[i]);
	memory_free(mem);
	return 0;
}

static struct tarn_identity identity(const struct testhost *host, uint16_t page)
{
	struct tarn_identity id;

	assert_int_equal(tarn_identity_read(host->s.media, &sb, page, &id), 0);
	return id;
}

static void choose(struct testhost *host, int wanted, int expect, uint16_t page, bool again,
		   bool settle)
{
	uint16_t got_page = 99;
	bool got_again, got_settle;
	int ret = tarn_claim_choose(host->s.media, &sb, &host->id, wanted, &got_page, &got_again,
				    &got_settle, &err);

	assert_int_equal(ret, expect);
	if (ret)
		return;
	assert_int_equal(got_page, page);
	assert_int_equal(got_again, again);
	assert_int_equal(got_settle, settle);
}

/* ---- order of operations ---- */

/*
 * Lines of an older incarnation are gone, fenced, before the new nonce can be seen; the
 * mirror second.
 */
static void claim_order(void **state)
{
	(void)state;
	recorder_take(h[1].r);
	assert_int_equal(tarn_claim_write(h[1].s.media, &sb, &h[1].id, 1, &h[1].s.claim, &err), 0);
	assert_ops(h[1].r,
		   "fetch page1.identity\n" "fetch mirror1.identity\n"
		   "write page1.window 320\n" "writeback page1.window 320\n" "fence\n"
		   "write page1.identity\n" "writeback page1.identity\n" "fence\n");
	assert_false(h[1].s.claim.again);
	/* it was free: the mirror only once it is this host's for sure */
	assert_int_equal(tarn_claim_check(h[1].s.media, &sb, &h[1].s.claim, &err), 0);
	assert_ops(h[1].r, "fetch page1.identity\n"
			   "fetch page1.identity\n"
			   "fetch mirror1.identity\n"
			   "write mirror1.identity\n"
			   "writeback mirror1.identity\n"
			   "fence\n");
	assert_int_equal(tarn_claim_check(h[1].s.media, &sb, &h[1].s.claim, &err), 0);
	assert_ops(h[1].r, "fetch page1.identity\n"
			   "fetch page1.identity\n"
			   "fetch mirror1.identity\n");
	/* again: its control lines are looked at too */
	recorder_reboot(h[1].r);
	assert_int_equal(tarn_claim_write(h[1].s.media, &sb, &h[1].id, 1, &h[1].s.claim, &err), 0);
	assert_ops(h[1].r, "fetch page1.identity\n"
			   "fetch mirror1.identity\n"
			   "fetch page1.control\n"
			   "fetch mirror1.control\n"
			   "write page1.window 320\n"
			   "writeback page1.window 320\n"
			   "fence\n"
			   "write page1.identity\n"
			   "writeback page1.identity\n"
			   "fence\n"
			   "write mirror1.identity\n"
			   "writeback mirror1.identity\n"
			   "fence\n");
	assert_true(h[1].s.claim.again);
}

static void release_order(void **state)
{
	(void)state;
	testhost_mount(&h[0]);
	testhost_mount(&h[1]);
	/* a client: bound, and its lines given up */
	assert_int_equal(tarn_claim_release(h[1].s.media, &sb, &h[1].s.claim, &err), 0);
	assert_ops(h[1].r,
		   "fetch page1.identity\n" SCAN_IDS
		   "write page1.identity\n" "writeback page1.identity\n" "fence\n"
		   "write mirror1.identity\n" "writeback mirror1.identity\n" "fence\n"
		   "invalidate page1.identity 4096\n" "invalidate mirror1.identity 4096\n");
	/* the master: its log out of its caches, then its last word, then bound */
	assert_int_equal(tarn_claim_release(h[0].s.media, &sb, &h[0].s.claim, &err), 0);
	assert_ops(h[0].r, "fetch page0.identity\n" SCAN_IDS "invalidate page0.commit0\n"
			   "read64 page0.commit0\n"
			   "fetch area0+0 256\n"
			   "fetch area0+256 128\n"
			   "invalidate area0+0 1048576\n"
			   "invalidate page0.commit0\n"
			   "write page0.quiesce\n"
			   "writeback page0.quiesce\n"
			   "fence\n"
			   "write page0.identity\n"
			   "writeback page0.identity\n"
			   "fence\n"
			   "write mirror0.identity\n"
			   "writeback mirror0.identity\n"
			   "fence\n"
			   "invalidate page0.identity 4096\n"
			   "invalidate mirror0.identity 4096\n");
}

static void status_order(void **state)
{
	(void)state;
	testhost_mount(&h[1]);
	assert_int_equal(tarn_status_publish(h[1].s.media, &sb, &h[1].s.claim, 1, 0, 7, &err), 0);
	assert_ops(h[1].r,
		   "fetch page1.identity\n" "fetch page1.status\n" "fetch page1.info\n"
		   "write page1.status\n" "writeback page1.status\n" "fence\n"
		   "write page1.info\n" "writeback page1.info\n" "fence\n");
}

static void scan_order(void **state)
{
	struct tarn_identity ids[2];
	struct tarn_current cur;
	struct tarn_page page;

	(void)state;
	assert_int_equal(tarn_scan(h[1].s.media, &sb, &cur, NULL, &err), 0);
	assert_ops(h[1].r, SCAN);
	assert_int_equal(tarn_scan(h[1].s.media, &sb, &cur, ids, &err), 0);
	assert_ops(h[1].r, SCAN_IDS);
	testhost_mount(&h[0]);
	assert_int_equal(tarn_page_read(h[1].s.media, &sb, 0, &page, &err), 0);
	assert_ops(h[1].r, "fetch page0.identity\n"
			   "fetch page0.control\n"
			   "fetch page0.status\n"
			   "fetch page0.quiesce\n"
			   "fetch page0.contend\n"
			   "fetch page0.info\n");
}

/* ---- choosing ---- */

static void choose_pages(void **state)
{
	struct tarn_claim claim;

	(void)state;
	choose(&h[0], -1, 0, 0, true, false);		/* bound by mkfs */
	choose(&h[0], 0, 0, 0, true, false);
	choose(&h[0], 1, -EEXIST, 0, false, false);	/* one page a host */
	assert_non_null(strstr(err.text, "this host has page 0 already; leave host= out"));
	choose(&h[1], -1, 0, 1, false, true);		/* a free one has to settle */
	choose(&h[1], 1, 0, 1, false, false);		/* the operator's word */
	choose(&h[1], 0, -EUSERS, 0, false, false);	/* bound to another: never */
	assert_non_null(strstr(err.text, "page 0 bound to a0010203-0405-0607-0809-0a0b0c0d0e0f"));
	choose(&h[1], 2, -EINVAL, 0, false, false);
	strcpy(h[1].id.node_name, "a\33[1m");	/* what another host wrote goes to a terminal */
	testhost_mount(&h[1]);
	choose(&h[2], -1, -EUSERS, 0, false, false);
	assert_non_null(
		strstr(err.text, "page 1 claimed by a1010203-0405-0607-0809-0a0b0c0d0e0f a?[1m"));
	assert_non_null(strstr(err.text, "--hosts"));
	choose(&h[2], 1, -EUSERS, 0, false, false);
	assert_int_equal(tarn_claim_write(h[2].s.media, &sb, &h[2].id, 1, &claim, &err), -EUSERS);
	choose(&h[1], -1, 0, 1, true, false);		/* claimed under the own uuid */
	assert_no_fault(h[2].r);
}

/* Many pages that are taken: the sentence ends, and says how many more. */
static void long_list_of_pages(void **state)
{
	struct memory *big;
	struct tarn_super big_sb;
	struct testhost host;
	struct tarn_claim claim;
	uint16_t page;
	bool again, settle;

	(void)state;
	big = test_mkfs(&big_sb, 128, MIB, 4 * MIB, NULL);
	testhost_start(&host, big, &big_sb, 0);
	memset(host.id.node_name, 'n', 47);
	for (uint16_t i = 0; i < 128; i++) {
		host.id.uuid[1] = (uint8_t)i;
		assert_int_equal(tarn_claim_write(host.s.media, &big_sb, &host.id, i, &claim, &err),
				 0);
	}
	host.id.uuid[1] = 200;
	assert_int_equal(tarn_claim_choose(host.s.media, &big_sb, &host.id, -1, &page, &again,
					   &settle, &err),
			 -EUSERS);
	assert_non_null(strstr(err.text, " more; give this host"));
	testhost_stop(&host);
	memory_free(big);
}

/* An image without owner: its first mount takes page 0, and with it the log. */
static void first_mount_takes_the_log(void **state)
{
	struct memory *image;
	struct tarn_super image_sb;
	struct testhost host;

	(void)state;
	image = test_mkfs(&image_sb, 2, MIB, 4 * MIB, NULL);
	testhost_start(&host, image, &image_sb, 1);
	testhost_mount(&host);
	assert_int_equal(host.s.claim.page, 0);
	assert_int_equal(host.s.st.role, TARNFS_ROLE_MASTER);
	testhost_stop(&host);
	memory_free(image);
}

/* ---- claims ---- */

static void claim_and_reclaim(void **state)
{
	struct tarn_claim first, second;
	struct tarn_identity id;
	struct tarn_page page;

	(void)state;
	assert_int_equal(tarn_claim_write(h[1].s.media, &sb, &h[1].id, 1, &first, &err), 0);
	id = identity(&h[0], 1);
	assert_int_equal(id.state, TARNFS_PAGE_CLAIMED);
	assert_int_equal(id.nonce, first.nonce);
	assert_memory_equal(id.host_uuid, h[1].id.uuid, 16);
	assert_memory_equal(id.boot_id, h[1].id.boot_id, 16);
	assert_int_equal(id.claims, 2);
	assert_int_equal(tarn_status_publish(h[1].s.media, &sb, &first, 1, 0, 9, &err), 0);
	assert_int_equal(tarn_page_read(h[0].s.media, &sb, 1, &page, &err), 0);
	assert_true(page.status.valid);
	assert_int_equal(page.status.released, 9);
	assert_int_equal(page.status.applied_seq, 9);
	assert_string_equal((char *)page.info.node_name, "host1");
	assert_int_equal(le64toh(page.info.beat), 1);
	/* it crashes, comes back: a fresh nonce, and nothing of the old one counts */
	recorder_reboot(h[1].r);
	h[1].id.boot_id[0]++;
	assert_int_equal(tarn_claim_write(h[1].s.media, &sb, &h[1].id, 1, &second, &err), 0);
	assert_true(second.again);
	assert_int_not_equal(first.nonce, second.nonce);
	assert_int_equal(identity(&h[0], 1).claims, 3);
	assert_int_equal(tarn_page_read(h[0].s.media, &sb, 1, &page, &err), 0);
	assert_true(page.status.valid);
	assert_int_equal(page.status.released, 0);
	/* whoever still has the old nonce is out */
	assert_int_equal(tarn_claim_check(h[1].s.media, &sb, &first, &err), -EAGAIN);
	assert_int_equal(tarn_status_publish(h[1].s.media, &sb, &first, 1, 0, 99, &err), -ESTALE);
	assert_int_equal(tarn_claim_release(h[1].s.media, &sb, &first, &err), -ESTALE);
	assert_int_equal(identity(&h[0], 1).state, TARNFS_PAGE_CLAIMED);
}

/* A crash tore the mirror: it is whole again before the page, the only good copy, is written. */
static void reclaim_mends_the_mirror_first(void **state)
{
	struct tarn_claim claim;
	const char *ops, *in_mirror, *in_page;

	(void)state;
	testhost_mount(&h[1]);
	memory_bytes(mem)[tarn_mirror_line_off(&sb, 1, TARNFS_LINE_IDENTITY) + 3] ^= 1;
	recorder_reboot(h[1].r);
	assert_int_equal(tarn_claim_write(h[1].s.media, &sb, &h[1].id, 1, &claim, &err), 0);
	assert_true(claim.again);
	ops = recorder_take(h[1].r);
	in_mirror = strstr(ops, "write mirror1.identity\nwriteback mirror1.identity\nfence\n");
	in_page = strstr(ops, "write page1.identity\n");
	assert_non_null(in_mirror);
	assert_non_null(in_page);
	assert_true(in_mirror < in_page);
	/* a whole one is left alone */
	assert_int_equal(tarn_claim_write(h[1].s.media, &sb, &h[1].id, 1, &claim, &err), 0);
	ops = recorder_take(h[1].r);
	assert_true(strstr(ops, "write page1.identity\n") < strstr(ops, "write mirror1.identity\n"));
	assert_no_fault(h[1].r);
}

static void released_never_falls(void **state)
{
	struct tarn_page page;

	(void)state;
	testhost_mount(&h[1]);
	assert_int_equal(tarn_status_publish(h[1].s.media, &sb, &h[1].s.claim, 1, 0, 9, &err), 0);
	assert_int_equal(tarn_status_publish(h[1].s.media, &sb, &h[1].s.claim, 1, 0, 7, &err), 0);
	assert_int_equal(tarn_page_read(h[0].s.media, &sb, 1, &page, &err), 0);
	assert_int_equal(page.status.released, 9);
	assert_int_equal(page.status.applied_seq, 7);
	assert_int_equal(le64toh(page.info.beat), 2);
	assert_no_fault(h[1].r);
}

/*
 * Two hosts write into the same free page, cut into one another at every place: one of
 * them has it, and knows.
 */
struct race {
	int left;
	struct tarn_claim claim;
	int ret;
	bool done;
};

static void race_hook(void *arg, const char *op)
{
	struct race *race = arg;

	(void)op;
	if (race->done || race->left--)
		return;
	race->done = true;
	race->ret = tarn_claim_write(h[2].s.media, &sb, &h[2].id, 1, &race->claim, &err);
}

static void claim_race(void **state)
{
	bool other_won = false, first_won = false;

	(void)state;
	for (int at = 0;; at++) {
		struct race race = { .left = at };
		struct tarn_claim claim;
		struct tarn_identity id;
		int mine, theirs;

		recorder_hook(h[1].r, race_hook, &race);
		mine = tarn_claim_write(h[1].s.media, &sb, &h[1].id, 1, &claim, &err);
		recorder_hook(h[1].r, NULL, NULL);
		/* who reads the page after the other's identity is there sees that it is taken */
		assert_true(mine == 0 || (mine == -EUSERS && at == 0));
		assert_true(!race.done || race.ret == 0 || race.ret == -EUSERS);
		if (!race.done)
			break;
		/* both have settled */
		mine = mine ? -EAGAIN : tarn_claim_check(h[1].s.media, &sb, &claim, &err);
		theirs = race.ret ? -EAGAIN
				  : tarn_claim_check(h[2].s.media, &sb, &race.claim, &err);
		assert_true((mine == 0 && theirs == -EAGAIN) || (mine == -EAGAIN && theirs == 0));
		first_won |= !mine;
		other_won |= !theirs;
		/* the mirror says the same, so a page that goes bad changes nothing */
		memory_bytes(mem)[TARNFS_HOSTS_OFF + 4096] ^= 1;
		id = identity(&h[0], 1);
		assert_int_equal(id.nonce, mine ? race.claim.nonce : claim.nonce);
		teardown(NULL);
		setup(NULL);
	}
	assert_true(first_won && other_won);
}

/*
 * Another host is faster, in any of the first `rivals` attempts: before our claim is written,
 * or once it is. The next free page is taken, until there is none or patience ends.
 */
struct taking {
	int rivals, attempts, written, lost;
	bool before, settles;
	uint16_t page;
};

static void rival(struct taking *t, uint16_t page)
{
	struct tarn_claim claim;

	if (t->attempts >= t->rivals)
		return;
	h[2].id.uuid[1] = (uint8_t)(0x40 + t->attempts);
	/* over ours: that host read the page before we wrote it */
	if (!t->before)
		memset(memory_bytes(mem) + TARNFS_HOSTS_OFF + 4096 * (uint64_t)page, 0, 64);
	if (!t->before)
		memset(memory_bytes(mem) + sb.mirror_off + 4096 * (uint64_t)page, 0, 64);
	if (!t->before) {
		const struct tarn_identity nobody = { .claims = 1 };
		struct tarnfs_identity raw;

		tarn_identity_encode(&raw, &nobody, page, sb.uuid);
		memcpy(memory_bytes(mem) + TARNFS_HOSTS_OFF + 4096 * (uint64_t)page, &raw,
		       sizeof(raw));
	}
	assert_int_equal(tarn_claim_write(h[2].s.media, &sb, &h[2].id, page, &claim, &err), 0);
}

static int take_ready(void *arg, uint16_t page, struct tarn_err *e)
{
	struct taking *t = arg;

	(void)e;
	if (t->before)
		rival(t, page);
	t->attempts += t->before;
	t->page = page;
	return 0;
}

static void take_written(void *arg, uint16_t page, bool again, bool settle)
{
	struct taking *t = arg;

	(void)again;
	t->written++;
	t->settles = settle;
	if (!t->before)
		rival(t, page);
	t->attempts += !t->before;
}

static void take_lost(void *arg, uint16_t page)
{
	struct taking *t = arg;

	assert_int_equal(page, t->page);
	t->lost++;
}

static void claim_take(void **state)
{
	static const struct tarn_claim_steps take_steps = {
		.ready = take_ready, .written = take_written, .lost = take_lost,
	};

	for (int before = 0; before < 2; before++) {
		struct taking t = { .rivals = 2, .before = before };
		struct tarn_claim claim;
		int ret;

		teardown(state);
		mem = test_mkfs(&sb, 12, MIB, 4 * MIB, test_owner);
		for (int i = 0; i < 3; i++)
			testhost_start(&h[i], mem, &sb, i);
		ret = tarn_claim_take(&h[1].s.media, &sb, &h[1].id, -1, &take_steps, &t, &claim,
				      &err);
		assert_int_equal(ret, 0);
		assert_int_equal(claim.page, 3);	/* 1 and 2 went to the rivals */
		assert_int_equal(t.lost, 2);
		assert_int_equal(t.written, before ? 1 : 3);
		assert_true(t.settles);
		/* a page asked for by number is another's then, which the list shows */
		h[1].id.uuid[1] = 0x30;
		t = (struct taking){ .rivals = 1, .before = before };
		ret = tarn_claim_take(&h[1].s.media, &sb, &h[1].id, 5, &take_steps, &t, &claim,
				      &err);
		assert_int_equal(ret, -EUSERS);
		assert_int_equal(t.lost, 1);
		assert_non_null(strstr(err.text, "host=5: that host page is another host's"));
	}
	for (int before = 0; before < 2; before++) {
		struct taking t = { .rivals = 99, .before = before };
		struct tarn_claim claim;

		teardown(state);
		mem = test_mkfs(&sb, 12, MIB, 4 * MIB, test_owner);
		for (int i = 0; i < 3; i++)
			testhost_start(&h[i], mem, &sb, i);
		assert_int_equal(tarn_claim_take(&h[1].s.media, &sb, &h[1].id, -1, &take_steps, &t,
						 &claim, &err), -EAGAIN);
		assert_int_equal(t.lost, TARN_CLAIM_TRIES);
		assert_non_null(strstr(err.text, "mount again, or give this host a page with "
						 "-o host=N"));
	}
}

/* Two machines with one machine-id: another boot and another name. */
static void claim_of_a_clone(void **state)
{
	struct testhost *clone = &h[2];
	char node[49];

	(void)state;
	testhost_mount(&h[1]);
	memcpy(clone->id.uuid, h[1].id.uuid, 16);
	assert_true(tarn_claim_other_node(clone->s.media, &sb, &clone->id, 1, node));
	assert_string_equal(node, "host1");
	/* the same name: the same machine after a crash */
	strcpy(clone->id.node_name, "host1");
	assert_false(tarn_claim_other_node(clone->s.media, &sb, &clone->id, 1, node));
	/* renamed since its boot */
	strcpy(clone->id.node_name, "new");
	memcpy(clone->id.boot_id, h[1].id.boot_id, 16);
	assert_false(tarn_claim_other_node(clone->s.media, &sb, &clone->id, 1, node));
	/* another host's page, and a page let go */
	assert_false(tarn_claim_other_node(h[0].s.media, &sb, &h[0].id, 1, node));
	memset(clone->id.boot_id, 0xb2, 16);
	assert_true(tarn_claim_other_node(clone->s.media, &sb, &clone->id, 1, node));
	assert_int_equal(tarn_claim_release(h[1].s.media, &sb, &h[1].s.claim, &err), 0);
	assert_false(tarn_claim_other_node(clone->s.media, &sb, &clone->id, 1, node));
}

/* What a host that lost the race left in the mirror is mended by the one that has the page. */
static void mirror_of_a_loser(void **state)
{
	uint64_t mirror = tarn_mirror_line_off(&sb, 1, 0);
	struct tarn_identity loser = {
		.nonce = 5, .claims = 2, .state = TARNFS_PAGE_CLAIMED, .host_uuid = { 7 }
	};
	struct tarnfs_identity raw;
	struct tarn_claim claim;

	(void)state;
	assert_int_equal(tarn_claim_write(h[1].s.media, &sb, &h[1].id, 1, &claim, &err), 0);
	tarn_identity_encode(&raw, &loser, 1, sb.uuid);
	memcpy(memory_bytes(mem) + mirror, &raw, 64);
	recorder_take(h[1].r);
	assert_int_equal(tarn_claim_check(h[1].s.media, &sb, &claim, &err), 0);
	assert_ops(h[1].r, "fetch page1.identity\n"
			   "fetch page1.identity\n"
			   "fetch mirror1.identity\n"
			   "write mirror1.identity\n"
			   "writeback mirror1.identity\n"
			   "fence\n");
	assert_memory_equal(memory_bytes(mem) + mirror,
			    memory_bytes(mem) + tarn_line_off(&sb, 1, 0), 64);
}

/* ---- release ---- */

static void release(void **state)
{
	struct tarn_page page;

	(void)state;
	testhost_mount(&h[0]);
	assert_int_equal(testhost_create(&h[0], "a", 100, &err), 0);
	assert_int_equal(testhost_create(&h[0], "b", 100, &err), 0);
	assert_int_equal(tarn_claim_release(h[0].s.media, &sb, &h[0].s.claim, &err), 0);
	assert_int_equal(tarn_page_read(h[1].s.media, &sb, 0, &page, &err), 0);
	assert_int_equal(page.id.state, TARNFS_PAGE_BOUND);
	assert_memory_equal(page.id.host_uuid, h[0].id.uuid, 16);
	assert_true(page.quiesce.valid);
	assert_int_equal(page.quiesce.generation, 1);
	assert_int_equal(page.quiesce.final_seq, 2);
	assert_int_equal(page.quiesce.final_units, 6 + 2 * 2);
	assert_int_equal(page.control.state,
			 TARNFS_CONTROL_ACTIVE); /* it is the master when it comes back */
	choose(&h[1], 0, -EUSERS, 0, false, false);
	choose(&h[0], -1, 0, 0, true, false);
	/* not twice: the claim is gone */
	assert_int_equal(tarn_claim_release(h[0].s.media, &sb, &h[0].s.claim, &err), -ESTALE);
	/* the next mount is not quiesced any more */
	recorder_reboot(h[0].r);
	assert_int_equal(tarn_claim_write(h[0].s.media, &sb, &h[0].id, 0, &h[0].s.claim, &err), 0);
	assert_int_equal(tarn_page_read(h[1].s.media, &sb, 0, &page, &err), 0);
	assert_false(page.quiesce.valid);
}

/* A master whose log cannot be read leaves its page claimed, and says why. */
static void release_with_damaged_log(void **state)
{
	(void)state;
	testhost_mount(&h[0]);
	memory_bytes(mem)[sb.area[0].off + 300] ^= 1;
	assert_int_equal(tarn_claim_release(h[0].s.media, &sb, &h[0].s.claim, &err), -EUCLEAN);
	assert_non_null(strstr(err.text, "0x200100"));
	assert_int_equal(identity(&h[1], 0).state, TARNFS_PAGE_CLAIMED);
}

/* ---- bad lines ---- */

static uint8_t *line_at(uint64_t off)
{
	return memory_bytes(mem) + off;
}

/* Flips every bit of a checked line: it is never taken for what it says. */
static void every_bit(void **state)
{
	uint64_t off, mirror;
	struct tarn_identity id, good;
	struct tarn_current cur;
	struct tarn_page page;

	(void)state;
	testhost_mount(&h[1]);
	good = identity(&h[0], 1);
	off = tarn_line_off(&sb, 1, TARNFS_LINE_IDENTITY);
	mirror = tarn_mirror_line_off(&sb, 1, TARNFS_LINE_IDENTITY);
	for (int bit = 0; bit < 512; bit++) {
		line_at(off)[bit / 8] ^= (uint8_t)(1 << bit % 8);
		id = identity(&h[0], 1);		/* from the mirror */
		assert_memory_equal(&id, &good, sizeof(id));
		line_at(mirror)[bit / 8] ^= (uint8_t)(1 << bit % 8);
		id = identity(&h[0], 1);
		assert_true(id.bad);
		assert_int_equal(id.state, TARNFS_PAGE_CLAIMED);
		line_at(off)[bit / 8] ^= (uint8_t)(1 << bit % 8);
		line_at(mirror)[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	off = tarn_line_off(&sb, 0, TARNFS_LINE_CONTROL);
	mirror = tarn_mirror_line_off(&sb, 0, TARNFS_LINE_CONTROL);
	for (int bit = 0; bit < 512; bit++) {
		line_at(off)[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_int_equal(tarn_scan(h[0].s.media, &sb, &cur, NULL, &err), 0);
		assert_int_equal(cur.generation, 1);
		line_at(mirror)[bit / 8] ^= (uint8_t)(1 << bit % 8);
		/* never "absent": the file system would fall back in time */
		assert_int_equal(tarn_scan(h[0].s.media, &sb, &cur, NULL, &err), -EUCLEAN);
		assert_non_null(strstr(err.text, "fsck"));
		assert_int_equal(tarn_page_read(h[0].s.media, &sb, 0, &page, &err), 0);
		assert_true(page.control.bad);
		line_at(off)[bit / 8] ^= (uint8_t)(1 << bit % 8);
		line_at(mirror)[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	assert_int_equal(tarn_status_publish(h[1].s.media, &sb, &h[1].s.claim, 1, 0, 5, &err), 0);
	off = tarn_line_off(&sb, 1, TARNFS_LINE_STATUS);
	for (int bit = 0; bit < 512; bit++) {
		line_at(off)[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_int_equal(tarn_page_read(h[0].s.media, &sb, 1, &page, &err), 0);
		assert_false(page.status.valid);
		assert_int_equal(page.status.released, 0);
		line_at(off)[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	testhost_mount(&h[0]);
	assert_int_equal(tarn_claim_release(h[0].s.media, &sb, &h[0].s.claim, &err), 0);
	off = tarn_line_off(&sb, 0, TARNFS_LINE_QUIESCE);
	for (int bit = 0; bit < 512; bit++) {
		line_at(off)[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_int_equal(tarn_page_read(h[1].s.media, &sb, 0, &page, &err), 0);
		assert_false(page.quiesce.valid);
		line_at(off)[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
}

/* The same with a checksum that fits. */
static void control_fields(void **state)
{
	static const struct tarn_control none,
		active = { .generation = 5, .state = TARNFS_CONTROL_ACTIVE };
	struct tarnfs_control raw;
	struct tarn_control c;
	struct tarn_current cur;

	(void)state;
#define CASE(base, expect, ...) do {							\
		c = base;								\
		if (c.state) {								\
			c.area_off = sb.area[1].off;					\
			c.area_len = sb.area[1].len;					\
		}									\
		__VA_ARGS__;								\
		tarn_control_encode(&raw, &c, 1, sb.uuid);				\
		memcpy(line_at(tarn_line_off(&sb, 1, TARNFS_LINE_CONTROL)), &raw, 64);	\
		memcpy(line_at(tarn_mirror_line_off(&sb, 1, TARNFS_LINE_CONTROL)), &raw, 64); \
		if (tarn_scan(h[0].s.media, &sb, &cur, NULL, &err) != (expect))		\
			fail_msg(#__VA_ARGS__ ": %s", err.text);			\
	} while (0)

	CASE(none, 0, (void)0);
	assert_int_equal(cur.generation, 1);
	CASE(active, 0, (void)0);
	assert_int_equal(cur.generation, 5);
	assert_int_equal(cur.host, 1);
	CASE(active, 0, c.generation = 1);
	assert_int_equal(cur.host, 1);		/* of equal generations the higher host */
	CASE(active, 0, c.state = TARNFS_CONTROL_SEALING);
	assert_true(cur.sealed && cur.generation == 1 && cur.host == 0);
	CASE(active, 0, c.state = TARNFS_CONTROL_SEALING; c.generation = 1);
	assert_true(cur.sealed);
	CASE(active, 0, c.next_off = sb.area[2].off; c.next_len = sb.area[2].len; c.next_slot = 7;
	     c.slot = 7);
	assert_int_equal(cur.slot, 7);
	CASE(none, -EUCLEAN, c.generation = 1);
	CASE(active, -EUCLEAN, c.generation = 0);
	CASE(active, -EUCLEAN, c.state = 3);
	CASE(active, -EUCLEAN, c.slot = 8);
	CASE(active, -EUCLEAN, c.next_slot = 8);
	CASE(active, -EUCLEAN, c.area_off += 4096);
	CASE(active, -EUCLEAN, c.area_len += 4096);
	CASE(active, -EUCLEAN, c.area_off = 0);
	CASE(active, -EUCLEAN, c.next_off = 4096);
#undef CASE
	/* another host's line in this page */
	c = none;
	tarn_control_encode(&raw, &c, 0, sb.uuid);
	memcpy(line_at(tarn_line_off(&sb, 1, TARNFS_LINE_CONTROL)), &raw, 64);
	memcpy(line_at(tarn_mirror_line_off(&sb, 1, TARNFS_LINE_CONTROL)), &raw, 64);
	assert_int_equal(tarn_scan(h[0].s.media, &sb, &cur, NULL, &err), -EUCLEAN);
}

/* A poisoned page does not stop the others: its mirror serves. */
static void poisoned_page(void **state)
{
	struct tarn_page page;
	struct tarn_current cur;

	(void)state;
	testhost_mount(&h[0]);
	recorder_poison(h[1].r, tarn_line_off(&sb, 0, TARNFS_LINE_CONTROL) + 5);
	assert_int_equal(tarn_scan(h[1].s.media, &sb, &cur, NULL, &err), 0);
	assert_int_equal(cur.generation, 1);
	recorder_poison(h[1].r, tarn_line_off(&sb, 0, TARNFS_LINE_CONTEND));
	assert_int_equal(tarn_page_read(h[1].s.media, &sb, 0, &page, &err), 0);
	assert_true(page.contend != 0);
	assert_int_equal(tarn_page_read(h[1].s.media, &sb, 2, &page, &err), -EINVAL);
}

/* A free page whose identity is bad is nobody's to take. */
static void bad_free_page(void **state)
{
	(void)state;
	line_at(tarn_line_off(&sb, 1, TARNFS_LINE_IDENTITY))[3] ^= 1;
	choose(&h[1], -1, -EUSERS, 0, false, false);
	line_at(tarn_mirror_line_off(&sb, 1, TARNFS_LINE_IDENTITY))[3] ^= 1;
	choose(&h[1], -1, -EUSERS, 0, false, false);
	assert_non_null(strstr(err.text, "page 1 unreadable (counts as claimed)"));
	/* nor is a line of zeroes free */
	memset(line_at(tarn_line_off(&sb, 1, 0)), 0, 64);
	memset(line_at(tarn_mirror_line_off(&sb, 1, 0)), 0, 64);
	choose(&h[1], 1, -EUSERS, 0, false, false);
}

/* A line that is half written is read again. */
static int torn_left;
static uint8_t torn_line[64];

static void mend_hook(void *arg, const char *op)
{
	(void)arg;
	if (!strcmp(op, "invalidate") && !torn_left--)
		memcpy(line_at(tarn_line_off(&sb, 1, TARNFS_LINE_STATUS)), torn_line, 64);
}

static void torn_line_is_fetched_again(void **state)
{
	struct tarn_page page;
	uint8_t *line = line_at(tarn_line_off(&sb, 1, TARNFS_LINE_STATUS));

	(void)state;
	testhost_mount(&h[1]);
	assert_int_equal(tarn_status_publish(h[1].s.media, &sb, &h[1].s.claim, 1, 0, 5, &err), 0);
	memcpy(torn_line, line, 64);
	memset(line + 32, 0, 32);
	torn_left = 3;		/* identity, control, status; then it is whole */
	recorder_hook(h[0].r, mend_hook, NULL);
	assert_int_equal(tarn_page_read(h[0].s.media, &sb, 1, &page, &err), 0);
	assert_true(page.status.valid);
	assert_no_fault(h[0].r);
}

/* A host that died between page and mirror: its re-claim makes the mirror say the same. */
static void control_is_settled(void **state)
{
	const struct tarn_control newer = {
		.generation = 2,
		.state = TARNFS_CONTROL_ACTIVE,
		.area_off = sb.area[1].off,
		.area_len = sb.area[1].len,
	};
	uint64_t page = tarn_line_off(&sb, 0, TARNFS_LINE_CONTROL),
		 mirror = tarn_mirror_line_off(&sb, 0, TARNFS_LINE_CONTROL);
	struct tarnfs_control raw;
	struct tarn_claim claim;

	(void)state;
	tarn_control_encode(&raw, &newer, 0, sb.uuid);
	memcpy(line_at(page), &raw, 64);
	assert_int_equal(tarn_claim_write(h[0].s.media, &sb, &h[0].id, 0, &claim, &err), 0);
	assert_memory_equal(line_at(mirror), &raw, 64);
	/* the page is bad: what the mirror says goes there */
	line_at(page)[9] ^= 1;
	assert_int_equal(tarn_claim_write(h[0].s.media, &sb, &h[0].id, 0, &claim, &err), 0);
	assert_memory_equal(line_at(page), &raw, 64);
	/* neither: no claim */
	line_at(page)[9] ^= 1;
	line_at(mirror)[9] ^= 1;
	assert_int_equal(tarn_claim_write(h[0].s.media, &sb, &h[0].id, 0, &claim, &err), -EUCLEAN);
	assert_no_fault(h[0].r);
}

/* Of page and mirror the higher count of claims goes on. */
static void claims_rise(void **state)
{
	struct tarn_identity id = { .claims = 41, .state = TARNFS_PAGE_FREE };
	struct tarnfs_identity raw;
	struct tarn_claim claim;

	(void)state;
	tarn_identity_encode(&raw, &id, 1, sb.uuid);
	memcpy(line_at(tarn_mirror_line_off(&sb, 1, 0)), &raw, 64);
	assert_int_equal(tarn_claim_write(h[1].s.media, &sb, &h[1].id, 1, &claim, &err), 0);
	assert_int_equal(identity(&h[0], 1).claims, 42);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(claim_order),
		TEST(release_order),
		TEST(status_order),
		TEST(scan_order),
		TEST(choose_pages),
		TEST(long_list_of_pages),
		TEST(first_mount_takes_the_log),
		TEST(claim_and_reclaim),
		TEST(reclaim_mends_the_mirror_first),
		TEST(released_never_falls),
		TEST(claim_race),
		TEST(claim_take),
		TEST(claim_of_a_clone),
		TEST(mirror_of_a_loser),
		TEST(release),
		TEST(release_with_damaged_log),
		TEST(every_bit),
		TEST(control_fields),
		TEST(poisoned_page),
		TEST(bad_free_page),
		TEST(torn_line_is_fetched_again),
		TEST(control_is_settled),
		TEST(claims_rise),
	};

	return cmocka_run_group_tests_name("hostpage", tests, NULL, NULL);
}
