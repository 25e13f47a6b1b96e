// SPDX-License-Identifier: GPL-2.0-only
/*
 * Bad memory in the extent map: ranges are merged, none is ever forgotten,
 * none is given out, and what is free is counted without them.
 */
#include "node_help.h"

static u64 page(u64 i)
{
	return START + i * 4096;
}

static void add(struct tarn_tree *tree, u64 off, u64 len)
{
	tarn_bad_insert(tree->bad, off, len);
	tarn_bad_account(tree);
	verify(tree);
}

static void is_range(const struct tarn_tree *tree, u32 i, u64 first, u64 pages)
{
	assert_true(i < tree->bad->count);
	assert_int_equal(tree->bad->range[i].off, page(first));
	assert_int_equal(tree->bad->range[i].len, pages * 4096);
}

static void test_merge(void **state)
{
	struct tarn_tree t;

	(void)state;
	tree_up(&t, 64 * MIB);
	add(&t, page(10), 4096);
	add(&t, page(20) + 100, 1);		/* whole pages, whatever is said */
	add(&t, page(5), 4096);
	assert_int_equal(t.bad->count, 3);
	is_range(&t, 0, 5, 1);
	is_range(&t, 1, 10, 1);
	is_range(&t, 2, 20, 1);
	add(&t, page(10), 4096);		/* known */
	assert_int_equal(t.bad->count, 3);
	add(&t, page(11), 4096);		/* touches at the end */
	add(&t, page(9), 4096);			/* and at the start */
	assert_int_equal(t.bad->count, 3);
	is_range(&t, 1, 9, 3);
	add(&t, page(12), 8 * 4096);		/* closes a hole */
	assert_int_equal(t.bad->count, 2);
	is_range(&t, 1, 9, 12);
	add(&t, page(4), 18 * 4096);		/* swallows all */
	assert_int_equal(t.bad->count, 1);
	is_range(&t, 0, 4, 18);
	assert_int_equal(t.free_bytes, 64 * MIB - 18 * 4096);
	assert_int_equal(t.bad_free_bytes, 18 * 4096);

	/* metadata, the very first page, and what lies behind the data */
	add(&t, 0, 4096);
	add(&t, START - 4096, 2 * 4096);
	add(&t, START + 64 * MIB - 4096, 3 * 4096);
	assert_int_equal(t.bad->count, 4);
	assert_int_equal(t.free_bytes, 64 * MIB - (18 + 1 + 1) * 4096);

	assert_int_equal(tarn_bad_find(t.bad, 0), 0);
	assert_int_equal(tarn_bad_find(t.bad, 4095), 0);
	assert_int_equal(tarn_bad_find(t.bad, 4096), 1);
	assert_int_equal(tarn_bad_find(t.bad, page(4) + 18 * 4096 - 1), 2);
	assert_int_equal(tarn_bad_find(t.bad, page(4) + 18 * 4096), 3);
	assert_int_equal(tarn_bad_find(t.bad, ~0ULL), 4);
	tree_down(&t);
}

static void has(const struct tarn_tree *tree, u64 off)
{
	u32 found = tarn_bad_find(tree->bad, off);

	assert_true(found < tree->bad->count && tree->bad->range[found].off <= off);
}

/* More ranges than fit: of all, the new one included, the nearest two are joined. */
static void test_full(void **state)
{
	const u64 apart = 4 * MIB / 4096;
	struct tarnfs_range lost;
	struct tarn_tree t;
	u32 i;

	(void)state;
	tree_up(&t, 64 * MIB);
	for (i = 0; i < TARN_BAD_MAX; i++) {
		lost = tarn_bad_insert(t.bad, page(apart * i + 10 * (i == 500)), 4096);
		assert_int_equal(lost.len, 0);
	}
	assert_int_equal(t.bad->count, TARN_BAD_MAX);
	/* one that touches needs no place */
	lost = tarn_bad_insert(t.bad, page(1), 4096);
	assert_int_equal(lost.len, 0);
	is_range(&t, 0, 0, 2);
	assert_int_equal(t.bad->count, TARN_BAD_MAX);

	/* a page between it and a known one: that page is the least that can be given up */
	lost = tarn_bad_insert(t.bad, page(3), 4096);
	assert_int_equal(lost.off, page(2));
	assert_int_equal(lost.len, 4096);
	is_range(&t, 0, 0, 4);
	lost = tarn_bad_insert(t.bad, page(apart * 700 - 3), 4096);
	assert_int_equal(lost.off, page(apart * 700 - 2));
	assert_int_equal(lost.len, 2 * 4096);
	is_range(&t, 700, apart * 700 - 3, 4);
	lost = tarn_bad_insert(t.bad, page(apart * (TARN_BAD_MAX - 1) + 2), 4096);
	assert_int_equal(lost.len, 4096);
	is_range(&t, TARN_BAD_MAX - 1, apart * (TARN_BAD_MAX - 1), 3);
	assert_int_equal(t.bad->count, TARN_BAD_MAX);

	/* far from all: 500 and 501 are the nearest two */
	add(&t, page(apart * TARN_BAD_MAX + 100), 4096);
	assert_int_equal(t.bad->count, TARN_BAD_MAX);
	is_range(&t, 500, apart * 500 + 10, apart - 9);
	is_range(&t, TARN_BAD_MAX - 1, apart * TARN_BAD_MAX + 100, 1);
	/* what lies in the joined one is known */
	lost = tarn_bad_insert(t.bad, page(apart * 500 + 70), 4096);
	assert_int_equal(lost.len, 0);
	verify(&t);
	for (i = 0; i < TARN_BAD_MAX; i++)
		has(&t, page(apart * i + 10 * (i == 500)));
	has(&t, page(apart * TARN_BAD_MAX + 100));
	tree_down(&t);
}

static u64 reserve_one(struct tarn_tree *t, struct tarn_set *set, u64 size, u8 align)
{
	struct tarnfs_reserve_item item = file_item(size);
	u32 failed;

	item.align = align;
	if (tarn_reserve(t, set, &item, 1, &failed))
		return 0;
	return item.off;
}

/* Every page of a small device asked for, one by one and by 2 MiB. */
static void test_reserve(void **state)
{
	struct tarn_set set;
	struct tarn_tree t;
	u64 off, any, huge, last = 0;
	u32 i;

	(void)state;
	tree_up(&t, 6 * MIB);
	tarn_set_init(&set);
	add(&t, page(3), 4096);
	add(&t, page(512 + 511), 2 * 4096);	/* the end of one block of 2 MiB, the start of the next */
	tarn_largest_free(&t, &any, &huge);
	assert_int_equal(any, (1023 - 4) * 4096);
	assert_int_equal(huge, 511 * 4096);
	assert_int_equal(t.free_bytes, 6 * MIB - 3 * 4096);
	assert_int_equal(reserve_one(&t, &set, 2 * MIB, 0), 0);
	assert_int_equal(reserve_one(&t, &set, 511 * 4096, TARNFS_ALIGN_HUGE), page(512));
	for (i = 0; i < 3 * 512 - 3 - 511; i++) {
		off = reserve_one(&t, &set, 4096, 0);
		assert_true(off > last);
		last = off;
		assert_int_not_equal(off, page(3));
		assert_true(off < page(512) || off > page(1024));
	}
	assert_int_equal(t.free_bytes, 0);
	assert_int_equal(t.bad_free_bytes, 3 * 4096);
	tarn_largest_free(&t, &any, &huge);
	assert_int_equal(any, 0);
	assert_int_equal(huge, 0);
	assert_int_equal(reserve_one(&t, &set, 1, 0), 0);
	verify(&t);

	/* let go and freed: the bad ones stay away */
	set_close(&t, &set);
	assert_int_equal(apply_end(&t), 0);
	verify(&t);
	assert_int_equal(t.free_bytes, 6 * MIB - 3 * 4096);
	tree_down(&t);
}

/* Memory of a file or a reservation fails; other hosts know nothing of ours. */
static void test_owned(void **state)
{
	struct tarn_set set;
	struct tarn_tree t;
	struct batch b;

	(void)state;
	tree_up(&t, 6 * MIB);
	tarn_set_init(&set);
	assert_int_equal(reserve_one(&t, &set, 3 * 4096, 0), page(0));
	add(&t, page(1), 4096);
	assert_int_equal(t.free_bytes, 6 * MIB - 3 * 4096);
	assert_int_equal(t.bad_free_bytes, 0);
	set_close(&t, &set);
	assert_int_equal(apply_end(&t), 0);
	verify(&t);
	assert_int_equal(t.free_bytes, 6 * MIB - 4096);
	tarn_set_init(&set);
	assert_int_equal(reserve_one(&t, &set, 2 * 4096, 0), page(2));
	set_close(&t, &set);
	assert_int_equal(apply_end(&t), 0);

	/* the log is right, whatever is bad here */
	batch_init(&b);
	batch_file(&b, 40, 1, "over", 4 * 4096, page(0));
	assert_int_equal(batch_apply(&t, &b, 0), 0);
	verify(&t);
	assert_int_equal(t.free_bytes, 6 * MIB - 4 * 4096);
	assert_int_equal(t.bad_free_bytes, 0);
	batch_free(&b);
	tree_down(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_merge, node_test_setup),
		cmocka_unit_test_setup(test_full, node_test_setup),
		cmocka_unit_test_setup(test_reserve, node_test_setup),
		cmocka_unit_test_setup(test_owned, node_test_setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
