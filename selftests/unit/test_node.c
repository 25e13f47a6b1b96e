// SPDX-License-Identifier: GPL-2.0-only
/* The rules of node.h and of APPLY, one test a rule. */
#include "node_help.h"

/* ---- a tree and its first generation ------------------------------------ */

/* A file at rest, a name of up to 55 bytes included, fits kmalloc-256. */
static void test_size(void **state)
{
	(void)state;
	assert_true(sizeof(struct tarn_node) <= 256 - 40);
}

static void test_init(void **state)
{
	struct tarn_tree t;
	u64 any, huge;

	(void)state;
	assert_int_equal(tarn_tree_init(&t, START + 4096, START + MIB, 0), -EINVAL);
	assert_int_equal(tarn_tree_init(&t, START, START + 4095, 0), -EINVAL);
	assert_int_equal(tarn_tree_init(&t, START, START - 4096, 0), -EINVAL);
	assert_int_equal(tarn_tree_init(&t, START, START + MIB, 2), -EINVAL);
	assert_int_equal(tarn_tree_init(&t, START, 1ULL << 63, 0), -EINVAL);

	/* an empty device is one */
	assert_int_equal(tarn_tree_init(&t, START, START, 0), 0);
	tarn_largest_free(&t, &any, &huge);
	assert_int_equal(any, 0);
	assert_int_equal(huge, 0);
	tree_down(&t);

	assert_int_equal(tarn_tree_init(&t, START, START + 3 * MIB, TARNFS_ROLE_CLIENT), 0);
	assert_int_equal(t.generation, 0);
	assert_int_equal(t.page, 0xffff);
	assert_false(t.attached);
	assert_int_equal(t.next_ino, TARNFS_INO_FIRST);
	assert_int_equal(t.free_bytes, 3 * MIB);
	tarn_largest_free(&t, &any, NULL);
	tarn_largest_free(&t, NULL, &huge);
	assert_int_equal(any, 3 * MIB);
	assert_int_equal(huge, 3 * MIB);
	assert_null(tarn_node_at(&t, START));
	assert_null(tarn_find(&t, 1));
	tree_down(&t);
}

static int stage(struct tarn_tree *t, struct batch *b, u32 flags)
{
	b->args.flags = flags;
	b->args.first_seq = BASE_SEQ;
	return tarn_apply(t, &b->args, b->ops, b->strings, &b->done);
}

/* A stage is a whole checkpoint on a fresh tree, or nothing. */
static void test_stage(void **state)
{
	struct text before = { 0 }, after = { 0 };
	struct tarn_tree t;
	struct tarn_node *n;
	struct batch b;

	(void)state;
	assert_int_equal(tarn_tree_init(&t, START, START + 64 * MIB, TARNFS_ROLE_CLIENT), 0);
	text_tree(&before, &t);
	batch_init(&b);

	/* ordinary batches and AT_END want a generation */
	assert_int_equal(batch_apply(&t, &b, 0), -EUNATCH);
	assert_int_equal(batch_apply(&t, &b, TARNFS_APPLY_AT_END), -EUNATCH);
	assert_int_equal(batch_apply(&t, &b, TARNFS_APPLY_CHECK), -EUNATCH);
	/* no operation, parts of a stage, AT_END in it */
	assert_int_equal(stage(&t, &b, TARNFS_APPLY_STAGE), -EINVAL);
	batch_dir(&b, 1, 1, NULL);
	assert_int_equal(stage(&t, &b, TARNFS_APPLY_STAGE_BEGIN), -EOPNOTSUPP);
	assert_int_equal(stage(&t, &b, TARNFS_APPLY_STAGE_ADD | TARNFS_APPLY_STAGE_COMMIT),
			 -EOPNOTSUPP);
	assert_int_equal(stage(&t, &b, TARNFS_APPLY_STAGE | TARNFS_APPLY_SWITCH), -EOPNOTSUPP);
	assert_int_equal(stage(&t, &b, TARNFS_APPLY_STAGE | TARNFS_APPLY_AT_END), -EUNATCH);
	text_tree(&after, &t);
	text_same(&before, &after);

	/* the root comes first, and is the root */
	batch_reset(&b);
	batch_dir(&b, 16, 1, "a");
	assert_int_equal(stage(&t, &b, TARNFS_APPLY_STAGE), -EINVAL);
	batch_reset(&b);
	batch_op(&b, TARNFS_OP_NOTHING, 0, 0, NULL);
	assert_int_equal(stage(&t, &b, TARNFS_APPLY_STAGE), -EINVAL);
	batch_reset(&b);
	batch_dir(&b, 1, 1, "a");
	assert_int_equal(stage(&t, &b, TARNFS_APPLY_STAGE), -EINVAL);
	batch_reset(&b);
	batch_file(&b, 1, 1, NULL, 0, 0);
	assert_int_equal(stage(&t, &b, TARNFS_APPLY_STAGE), -EINVAL);
	batch_reset(&b);
	batch_dir(&b, 1, 16, NULL);
	assert_int_equal(stage(&t, &b, TARNFS_APPLY_STAGE), -EINVAL);

	/* the last operation is wrong: back to fresh */
	batch_reset(&b);
	batch_dir(&b, 1, 1, NULL);
	batch_dir(&b, 30, 1, "d");
	batch_file(&b, 17, 30, "f", 5000, START);
	batch_symlink(&b, 40, 30, "s", "../target");
	batch_op(&b, TARNFS_OP_NOTHING, 0, 0, NULL);
	batch_file(&b, 18, 30, "f", 0, 0);
	/* nor may a number be past what the header says of all numbers */
	b.args.next_ino = 40;
	assert_int_equal(stage(&t, &b, TARNFS_APPLY_STAGE), -EUCLEAN);
	assert_int_equal(b.done, 3);
	b.args.next_ino = 41;
	assert_int_equal(stage(&t, &b, TARNFS_APPLY_STAGE), -EEXIST);
	assert_int_equal(b.done, 5);
	text_tree(&after, &t);
	text_same(&before, &after);
	verify(&t);

	/* CHECK says what would be, and leaves it fresh */
	b.args.count--;
	b.args.next_ino = 1000;
	assert_int_equal(stage(&t, &b, TARNFS_APPLY_STAGE | TARNFS_APPLY_CHECK), 0);
	assert_int_equal(b.done, 5);
	text_tree(&after, &t);
	text_same(&before, &after);
	assert_int_equal(stage(&t, &b, TARNFS_APPLY_STAGE), 0);
	assert_int_equal(b.done, 5);
	verify(&t);

	assert_int_equal(t.generation, GENERATION);
	assert_int_equal(t.log_host, LOG_HOST);
	assert_int_equal(t.seq, BASE_SEQ);
	assert_int_equal(t.next_ino, 1000);
	assert_int_equal(t.committed_ino, 1000);
	assert_int_equal(t.role, TARNFS_ROLE_MASTER);
	assert_int_equal(t.directories, 2);
	assert_int_equal(t.files, 1);
	assert_int_equal(t.symlinks, 1);
	assert_false(t.attached);
	assert_int_equal(t.root->ino, 1);
	assert_ptr_equal(t.root->parent, t.root);
	assert_int_equal(t.root->nr_subdirs, 1);
	n = tarn_lookup(&t, t.root, "d", 1);
	assert_non_null(n);
	assert_int_equal(n->nr_children, 2);
	assert_int_equal(n->mtime_sec, -5);
	assert_int_equal(n->mtime_nsec, 999999999);
	assert_int_equal(n->uid, 1000);
	assert_int_equal(n->gid, 100);
	assert_int_equal(n->mode, 0755);
	n = tarn_lookup(&t, n, "s", 1);
	assert_string_equal(n->target, "../target");
	assert_int_equal(n->size, 9);
	n = tarn_node_at(&t, START + 8191);
	assert_int_equal(n->ino, 17);
	assert_int_equal(n->flags & TARN_NODE_MADE_HERE, 0);
	assert_null(tarn_node_at(&t, START + 8192));

	/* never twice */
	assert_int_equal(stage(&t, &b, TARNFS_APPLY_STAGE), -EOPNOTSUPP);
	tree_down(&t);
	batch_free(&b);
	free(before.buf);
	free(after.buf);
}

/* The caller's note of where it is in its log is kept with the seq it belongs to, or not at all. */
static void test_position(void **state)
{
	struct tarn_tree t;
	struct batch b;

	(void)state;
	tree_up(&t, 64 * MIB);
	batch_init(&b);
	batch_dir(&b, 16, 1, "d");
	b.args.position = 10;
	assert_int_equal(batch_apply(&t, &b, TARNFS_APPLY_CHECK), 0);
	assert_int_equal(t.position, 0);
	assert_int_equal(batch_apply(&t, &b, 0), 0);
	assert_int_equal(t.position, 10);

	/* a batch that was done in part: nobody knows */
	batch_reset(&b);
	batch_dir(&b, 17, 1, "e");
	batch_dir(&b, 18, 1, "d");
	b.args.position = 20;
	assert_int_equal(batch_apply(&t, &b, 0), -EEXIST);
	assert_int_equal(t.seq, BASE_SEQ + 2);
	assert_int_equal(t.position, 0);

	/* one that does not continue what is here changes nothing */
	batch_reset(&b);
	b.args.position = 30;
	assert_int_equal(batch_apply(&t, &b, TARNFS_APPLY_AT_END), 0);
	assert_int_equal(t.position, 30);
	b.args.position = 40;
	b.args.generation++;
	assert_int_equal(batch_apply(&t, &b, TARNFS_APPLY_AT_END), -ESTALE);
	assert_int_equal(t.position, 30);
	batch_free(&b);
	tree_down(&t);
}

/* ---- what a call must look like ----------------------------------------- */

static void test_args(void **state)
{
	struct tarn_tree t;
	struct batch b;

	(void)state;
	tree_up(&t, 64 * MIB);
	batch_init(&b);
	batch_dir(&b, 16, 1, "d");

#define TRY(change, want)						\
	do {								\
		struct tarnfs_apply keep = b.args;			\
									\
		b.args.flags = TARNFS_APPLY_AT_END;			\
		b.args.first_seq = t.seq + 1;				\
		change;							\
		b.done = 77;						\
		assert_int_equal(tarn_apply(&t, &b.args, b.ops, b.strings, &b.done), want); \
		assert_int_equal(b.done, 0);				\
		b.args = keep;						\
	} while (0)

	TRY(b.args.version = 2, -EPROTONOSUPPORT);
	TRY(b.args.flags |= 1U << 6, -EINVAL);
	TRY(b.args.flags |= TARNFS_APPLY_SWITCH, -EOPNOTSUPP);
	TRY(b.args.flags |= TARNFS_APPLY_STAGE_ADD, -EOPNOTSUPP);
	TRY(b.args.generation = 0, -EINVAL);
	TRY(b.args.nonce = 0, -EINVAL);
	TRY(b.args.role = 2, -EINVAL);
	TRY(b.args.page = 128, -EINVAL);
	TRY(b.args.log_host = 128, -EINVAL);
	TRY(b.args.count = TARNFS_APPLY_MAX + 1, -EINVAL);
	TRY(b.args.op_size = 120, -EINVAL);
	TRY(b.args.strings_len = TARNFS_STRINGS_MAX + 1, -EINVAL);
	TRY(b.args.next_ino = (1ULL << 63) + 1, -EINVAL);
	TRY(b.args.first_seq = 1ULL << 63, -EINVAL);
	TRY(b.args.zero[2] = 1, -EINVAL);

	/* another state than the kernel's */
	TRY(b.args.generation++, -ESTALE);
	TRY(b.args.generation--, -ESTALE);
	TRY(b.args.log_host++, -ESTALE);
	TRY(b.args.first_seq++, -ESTALE);
	TRY(b.args.first_seq--, -ESTALE);
	TRY(b.args.first_seq = 0, -ESTALE);
	TRY(b.args.page++, -ESTALE);
	TRY(b.args.nonce++, -ESTALE);
	TRY((b.args.nonce++, b.args.flags = 0), -ESTALE);
	TRY((b.args.page++, b.args.flags = TARNFS_APPLY_CHECK), -ESTALE);
	assert_int_equal(t.seq, BASE_SEQ);
	assert_int_equal(t.directories, 1);
#undef TRY
	assert_int_equal(batch_apply(&t, &b, 0), 0);

	/* the last seq there can be is used, and none after it */
	t.seq = TARNFS_SEQ_MAX - 1;
	batch_reset(&b);
	batch_op(&b, TARNFS_OP_NOTHING, 0, 0, NULL);
	batch_op(&b, TARNFS_OP_NOTHING, 0, 0, NULL);
	assert_int_equal(batch_apply(&t, &b, 0), -EINVAL);
	b.args.count = 1;
	assert_int_equal(batch_apply(&t, &b, 0), 0);
	assert_int_equal(t.seq, TARNFS_SEQ_MAX);
	assert_int_equal(batch_apply(&t, &b, 0), -EINVAL);
	batch_free(&b);
	tree_down(&t);
}

/* Page and nonce are free before the first AT_END, which fixes them. */
static void test_attach(void **state)
{
	struct tarnfs_reserve_item item = file_item(1);
	struct tarn_set set;
	struct tarn_tree t;
	struct batch b;
	u32 failed;

	(void)state;
	assert_int_equal(tarn_tree_init(&t, START, START + 64 * MIB, TARNFS_ROLE_CLIENT), 0);
	tarn_set_init(&set);
	batch_init(&b);
	assert_int_equal(tarn_reserve(&t, &set, &item, 1, &failed), -EROFS);
	assert_int_equal(stage_root(&t), 0);
	assert_int_equal(tarn_reserve(&t, &set, &item, 1, &failed), -EUNATCH);

	b.args.nonce = 1;
	b.args.page = 9;
	batch_dir(&b, 16, 1, "d");
	assert_int_equal(batch_apply(&t, &b, 0), 0);
	assert_false(t.attached);

	/* CHECK does not attach, nor does a batch that is refused */
	batch_reset(&b);
	assert_int_equal(batch_apply(&t, &b, TARNFS_APPLY_AT_END | TARNFS_APPLY_CHECK), 0);
	assert_false(t.attached);
	assert_int_equal(t.nonce, 0);
	batch_dir(&b, 17, 1, "d");
	assert_int_equal(batch_apply(&t, &b, TARNFS_APPLY_AT_END), -EEXIST);
	assert_false(t.attached);
	assert_int_equal(t.page, 0xffff);

	assert_int_equal(apply_end(&t), 0);
	assert_true(t.attached);
	assert_int_equal(t.nonce, NONCE);
	assert_int_equal(t.page, PAGE);
	assert_int_equal(tarn_reserve(&t, &set, &item, 1, &failed), 0);
	set_close(&t, &set);
	batch_free(&b);
	tree_down(&t);
}

/* The role is the last accepted batch's; CHECK and what is stale do not set it. */
static void test_role(void **state)
{
	struct tarnfs_reserve_item item = file_item(1);
	struct tarn_set set;
	struct tarn_tree t;
	struct batch b;
	u32 failed;

	(void)state;
	tree_up(&t, 64 * MIB);
	tarn_set_init(&set);
	batch_init(&b);
	b.args.role = TARNFS_ROLE_CLIENT;
	assert_int_equal(batch_apply(&t, &b, TARNFS_APPLY_CHECK), 0);
	assert_int_equal(t.role, TARNFS_ROLE_MASTER);
	b.args.generation++;
	assert_int_equal(batch_apply(&t, &b, 0), -ESTALE);
	assert_int_equal(t.role, TARNFS_ROLE_MASTER);
	b.args.generation--;
	/* accepted, though its operation is refused */
	batch_dir(&b, 16, 99, "x");
	assert_int_equal(batch_apply(&t, &b, 0), -ENOENT);
	assert_int_equal(t.role, TARNFS_ROLE_CLIENT);
	assert_int_equal(tarn_reserve(&t, &set, &item, 1, &failed), -EROFS);
	batch_free(&b);
	tree_down(&t);
}

/* ---- operations --------------------------------------------------------- */

static int apply_one(struct tarn_tree *t, struct batch *b)
{
	u32 count = b->args.count;
	int check = batch_apply(t, b, TARNFS_APPLY_CHECK);
	u32 found = b->done;
	int err = batch_apply(t, b, 0);

	/* CHECK foretold it */
	assert_int_equal(check, err);
	assert_int_equal(found, b->done);
	if (err)
		assert_true(b->done < count);
	else
		assert_int_equal(b->done, count);
	batch_reset(b);
	return err;
}

static void test_names(void **state)
{
	static const struct {
		const char *name;
		int want;
	} names[] = {
		{ ".", -EINVAL }, { "..", -EINVAL }, { "a/b", -EINVAL }, { "/", -EINVAL },
		{ "", -EINVAL }, { "...", 0 }, { ".a", 0 }, { "..a", 0 }, { " ", 0 }, { "\n", 0 },
		{ "\xff\xfe", 0 }, { "a", 0 }, { "A", 0 },
	};
	char long_name[300];
	struct tarn_tree t;
	struct batch b;
	u64 ino = 16;
	size_t i;

	(void)state;
	tree_up(&t, 64 * MIB);
	batch_init(&b);
	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		batch_file(&b, ino++, 1, names[i].name, 0, 0);
		assert_int_equal(apply_one(&t, &b), names[i].want);
		assert_true(!!tarn_lookup(&t, t.root, names[i].name, strlen(names[i].name)) ==
			    !names[i].want);
	}

	/* every length; 255 is the last */
	for (i = 2; i <= 256; i++) {
		struct tarn_node *n;

		memset(long_name, 'n', sizeof(long_name));
		long_name[i] = '\0';
		batch_file(&b, ino++, 1, long_name, 0, 0);
		assert_int_equal(apply_one(&t, &b), i == 256 ? -EINVAL : 0);
		n = tarn_lookup(&t, t.root, long_name, i);
		if (i == 256)
			assert_null(n);
		else
			assert_string_equal(n->name, long_name);
	}

	/* a NUL inside; a name that leaves the strings; the sum that wraps */
	batch_file(&b, ino, 1, "abc", 0, 0);
	b.strings[1] = '\0';
	assert_int_equal(apply_one(&t, &b), -EINVAL);
	batch_file(&b, ino, 1, "abc", 0, 0)->name_len = 4;
	assert_int_equal(apply_one(&t, &b), -EINVAL);
	batch_file(&b, ino, 1, "abc", 0, 0)->name = 1;
	assert_int_equal(apply_one(&t, &b), -EINVAL);
	batch_file(&b, ino, 1, "abc", 0, 0)->name = 0xffffffff;
	assert_int_equal(apply_one(&t, &b), -EINVAL);
	batch_file(&b, ino, 1, "abc", 0, 0)->name = 0xfffffffd;
	assert_int_equal(apply_one(&t, &b), -EINVAL);
	batch_file(&b, ino, 1, NULL, 0, 0);
	free(b.strings);
	b.strings = NULL;
	b.strings_room = 0;
	assert_int_equal(apply_one(&t, &b), -EINVAL);

	/* one name in two directories, and a file is no directory */
	batch_dir(&b, ino, 1, "dir");
	batch_file(&b, ino + 1, ino, "a", 0, 0);
	assert_int_equal(apply_one(&t, &b), 0);
	assert_int_equal(tarn_lookup(&t, tarn_find(&t, ino), "a", 1)->ino, ino + 1);
	assert_null(tarn_lookup(&t, tarn_find(&t, ino), "A", 1));
	assert_null(tarn_next_child(tarn_find(&t, ino + 1), 0));
	batch_free(&b);
	tree_down(&t);
}

/* Each way in which a record may be malformed. */
static void test_malformed(void **state)
{
	static const u16 later[] = {
		TARNFS_OP_UNLINK, TARNFS_OP_RENAME, TARNFS_OP_SETATTR, TARNFS_OP_RECLAIM,
		TARNFS_OP_PENDING_FREE, TARNFS_OP_HOST, TARNFS_OP_DATA_END,
	};
	static const u16 unknown[] = { 0, 11, 254, 256, 0xffff };
	struct text before = { 0 }, after = { 0 };
	struct tarn_tree t;
	struct batch b;
	size_t i;

	(void)state;
	tree_up(&t, 64 * MIB);
	batch_init(&b);
	text_tree(&before, &t);
	for (i = 0; i < sizeof(later) / sizeof(later[0]); i++) {
		batch_op(&b, later[i], 16, 1, "x");
		assert_int_equal(apply_one(&t, &b), -EOPNOTSUPP);
	}
	for (i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++) {
		batch_op(&b, unknown[i], 16, 1, "x");
		assert_int_equal(apply_one(&t, &b), -EINVAL);
	}

#define BAD(make, change)						\
	do {								\
		struct tarnfs_op *op = make;				\
									\
		change;							\
		assert_int_equal(apply_one(&t, &b), -EINVAL);		\
	} while (0)
#define DIR()	batch_dir(&b, 16, 1, "x")
#define FILE_()	batch_file(&b, 16, 1, "x", 5000, START)
#define LINK()	batch_symlink(&b, 16, 1, "x", "target")

	BAD(DIR(), op->zero1 = 1);
	BAD(DIR(), op->zero2 = 1);
	BAD(DIR(), op->arg[0] = 1);
	BAD(FILE_(), op->arg[4] = 1);
	BAD(DIR(), op->mode = 010000);
	BAD(DIR(), op->mtime_nsec = 1000000000);
	BAD(DIR(), op->uid = UINT32_MAX);
	BAD(DIR(), op->gid = UINT32_MAX);
	BAD(DIR(), op->ino = 0);
	BAD(DIR(), op->ino = 1);
	BAD(DIR(), op->ino = 15);
	BAD(DIR(), op->ino = (1ULL << 63) - 1);
	BAD(DIR(), op->ino = 1ULL << 63);
	BAD(DIR(), op->ino = ~0ULL);
	BAD(DIR(), op->size = 1);
	BAD(DIR(), op->extents = 1);
	BAD(DIR(), op->off = START);
	BAD(DIR(), op->len = 4096);
	BAD(DIR(), op->flags = TARNFS_FILE_SHARED_WRITE);
	BAD(DIR(), op->target_len = 1);
	BAD(DIR(), op->target = 1);
	BAD(FILE_(), op->flags = 2);
	BAD(FILE_(), op->extents = 0);
	BAD(FILE_(), op->extents = 2);
	BAD(FILE_(), op->size = 0);
	BAD(FILE_(), op->size = 1ULL << 63);
	BAD(FILE_(), op->target_len = 1);
	BAD(batch_file(&b, 16, 1, "x", 0, 0), op->extents = 1);
	BAD(batch_file(&b, 16, 1, "x", 0, 0), op->off = START);
	BAD(LINK(), op->target_len = 0);
	BAD(LINK(), op->target_len = 7 + 1);
	BAD(LINK(), op->target = 2);
	BAD(LINK(), op->target = 0xffffffff);
	BAD(LINK(), op->size = 6);
	BAD(LINK(), b.strings[op->target + 2] = 0);
	/* the root again, or a second one */
	BAD(batch_dir(&b, 1, 1, NULL), (void)op);
	BAD(batch_dir(&b, 16, 16, NULL), (void)op);
	BAD(batch_op(&b, TARNFS_OP_NOTHING, 0, 0, NULL), op->zero1 = 1);
#undef BAD
#undef DIR
#undef FILE_
#undef LINK
	text_tree(&after, &t);
	text_same(&before, &after);

	/* the longest target */
	{
		char target[TARNFS_TARGET_MAX + 2];

		memset(target, 't', sizeof(target));
		target[TARNFS_TARGET_MAX + 1] = '\0';
		batch_symlink(&b, 16, 1, "l", target);
		assert_int_equal(apply_one(&t, &b), -EINVAL);
		target[TARNFS_TARGET_MAX] = '\0';
		batch_symlink(&b, 16, 1, "l", target);
		assert_int_equal(apply_one(&t, &b), 0);
		assert_string_equal(tarn_find(&t, 16)->target, target);
	}
	batch_free(&b);
	tree_down(&t);
	free(before.buf);
	free(after.buf);
}

static void test_apply_errors(void **state)
{
	struct tarn_set set;
	struct tarn_tree t;
	struct batch b;
	u64 ino;

	(void)state;
	tree_up(&t, 64 * MIB);
	tarn_set_init(&set);
	batch_init(&b);
	batch_dir(&b, 16, 1, "d");
	batch_file(&b, 17, 16, "f", 4096, START + MIB);
	batch_symlink(&b, 18, 16, "s", "f");
	batch_file(&b, 19, 16, "e", 0, 0)->flags = TARNFS_FILE_SHARED_WRITE;
	assert_int_equal(apply_one(&t, &b), 0);
	assert_int_equal(tarn_find(&t, 19)->file_flags, TARNFS_FILE_SHARED_WRITE);

	batch_file(&b, 20, 99, "x", 0, 0);
	assert_int_equal(apply_one(&t, &b), -ENOENT);
	batch_file(&b, 20, 20, "x", 0, 0);
	assert_int_equal(apply_one(&t, &b), -ENOENT);
	batch_dir(&b, 20, 20, "x");
	assert_int_equal(apply_one(&t, &b), -ENOENT);
	batch_file(&b, 20, 17, "x", 0, 0);
	assert_int_equal(apply_one(&t, &b), -ENOTDIR);
	batch_file(&b, 20, 18, "x", 0, 0);
	assert_int_equal(apply_one(&t, &b), -ENOTDIR);
	/* a reservation is nobody's parent */
	reserve_file(&t, &set, 1, &ino);
	batch_file(&b, 30, ino, "x", 0, 0);
	assert_int_equal(apply_one(&t, &b), -ENOENT);
	set_close(&t, &set);
	batch_file(&b, 30, ino, "x", 0, 0);
	assert_int_equal(apply_one(&t, &b), -ENOENT);

	batch_dir(&b, 21, 16, "f");
	assert_int_equal(apply_one(&t, &b), -EEXIST);
	batch_file(&b, 17, 16, "g", 0, 0);
	assert_int_equal(apply_one(&t, &b), -EEXIST);
	batch_file(&b, 17, 16, "g", 4096, START + MIB);
	assert_int_equal(apply_one(&t, &b), -EEXIST);
	batch_dir(&b, 16, 1, "g");
	assert_int_equal(apply_one(&t, &b), -EEXIST);
	/* within one batch */
	batch_file(&b, 50, 1, "twice", 0, 0);
	batch_file(&b, 51, 1, "twice", 0, 0);
	assert_int_equal(batch_apply(&t, &b, TARNFS_APPLY_CHECK), -EEXIST);
	assert_int_equal(b.done, 1);
	batch_reset(&b);
	batch_file(&b, 50, 1, "one", 0, 0);
	batch_file(&b, 50, 1, "two", 0, 0);
	assert_int_equal(batch_apply(&t, &b, TARNFS_APPLY_CHECK), -EEXIST);
	assert_int_equal(b.done, 1);
	batch_reset(&b);
	batch_file(&b, 50, 1, "one", 4096, START + 4 * MIB);
	batch_file(&b, 51, 1, "two", 4096, START + 4 * MIB);
	assert_int_equal(batch_apply(&t, &b, TARNFS_APPLY_CHECK), -EUCLEAN);
	assert_int_equal(b.done, 1);
	batch_reset(&b);

	/* parents made in the batch, a chain of them, and what was done before the error stays */
	batch_dir(&b, 60, 1, "p");
	batch_dir(&b, 62, 60, "p");
	batch_dir(&b, 61, 62, "p");
	batch_file(&b, 63, 99, "p", 0, 0);
	batch_file(&b, 64, 61, "p", 0, 0);
	ino = t.seq;
	assert_int_equal(batch_apply(&t, &b, 0), -ENOENT);
	assert_int_equal(b.done, 3);
	assert_int_equal(t.seq, ino + 3);
	assert_non_null(tarn_find(&t, 61));
	assert_null(tarn_find(&t, 64));
	batch_free(&b);
	tree_down(&t);
}

/* Seq and inode numbers: what follows what. */
static void test_numbers(void **state)
{
	struct tarn_tree t;
	struct batch b;

	(void)state;
	tree_up(&t, 64 * MIB);
	batch_init(&b);
	batch_op(&b, TARNFS_OP_NOTHING, 0, 0, NULL);
	batch_op(&b, TARNFS_OP_NOTHING, 7, 7, NULL);
	assert_int_equal(apply_one(&t, &b), 0);
	assert_int_equal(t.seq, BASE_SEQ + 2);
	assert_int_equal(t.next_ino, 16);
	batch_file(&b, 500, 1, "a", 0, 0);
	batch_file(&b, 400, 1, "b", 0, 0);
	assert_int_equal(apply_one(&t, &b), 0);
	assert_int_equal(t.seq, BASE_SEQ + 4);
	assert_int_equal(t.next_ino, 501);
	assert_int_equal(t.committed_ino, 501);
	b.args.next_ino = 450;
	assert_int_equal(apply_one(&t, &b), 0);
	assert_int_equal(t.next_ino, 501);
	b.args.next_ino = 600;
	assert_int_equal(apply_one(&t, &b), 0);
	assert_int_equal(t.next_ino, 600);
	assert_int_equal(t.committed_ino, 600);
	b.args.next_ino = 700;
	assert_int_equal(batch_apply(&t, &b, TARNFS_APPLY_CHECK), 0);
	assert_int_equal(t.next_ino, 600);
	batch_reset(&b);
	/* no further ahead than RESERVE goes, else one record would use up all numbers */
	batch_file(&b, 600 + TARNFS_INO_JUMP, 1, "far", 0, 0);
	assert_int_equal(apply_one(&t, &b), -EUCLEAN);
	assert_int_equal(t.next_ino, 600);
	batch_file(&b, 600 + TARNFS_INO_JUMP - 1, 1, "last", 0, 0);
	assert_int_equal(apply_one(&t, &b), 0);
	assert_int_equal(t.next_ino, 600 + TARNFS_INO_JUMP);
	b.args.next_ino = 600 + 3 * TARNFS_INO_JUMP + 1;
	assert_int_equal(batch_apply(&t, &b, 0), -EUCLEAN);
	assert_int_equal(t.next_ino, 600 + TARNFS_INO_JUMP);
	b.args.next_ino--;
	assert_int_equal(batch_apply(&t, &b, 0), 0);
	assert_int_equal(t.next_ino, 600 + 3 * TARNFS_INO_JUMP);
	batch_free(&b);
	tree_down(&t);
}

/* readdir: by inode number, whatever the order of creation. */
static void test_children(void **state)
{
	struct tarn_node *n;
	struct tarn_tree t;
	struct batch b;
	char name[16];
	u64 after = 0;
	int i;

	(void)state;
	tree_up(&t, 64 * MIB);
	batch_init(&b);
	for (i = 0; i < 1000; i++) {
		snprintf(name, sizeof(name), "n%d", i);
		batch_file(&b, 16 + i * 617 % 1000 * 3, 1, name, 0, 0);
	}
	assert_int_equal(apply_one(&t, &b), 0);
	for (i = 0; i < 1000; i++) {
		n = tarn_next_child(t.root, after);
		assert_int_equal(n->ino, 16 + i * 3);
		assert_ptr_equal(tarn_next_child(t.root, n->ino - 1), n);
		after = n->ino;
	}
	assert_null(tarn_next_child(t.root, after));
	assert_null(tarn_next_child(t.root, ~0ULL));
	assert_int_equal(t.root->nr_children, 1000);
	assert_int_equal(t.root->nr_subdirs, 0);
	batch_free(&b);
	tree_down(&t);
}

/* ---- extents of others -------------------------------------------------- */

static int try_extent(struct tarn_tree *t, struct batch *b, u64 off, u64 len, u64 size)
{
	struct tarnfs_op *op;
	char name[32];
	u64 ino = t->next_ino;

	snprintf(name, sizeof(name), "e%llu", ino);
	op = batch_file(b, ino, 1, name, size, off);
	op->len = len;
	return apply_one(t, b);
}

static int try_file(struct tarn_tree *t, struct batch *b, u64 off, u64 size)
{
	return try_extent(t, b, off, round_up(size, 4096ULL), size);
}

static void test_extents(void **state)
{
	const u64 end = START + 64 * MIB;
	const u64 at = START + 8 * MIB;
	struct tarn_tree t;
	struct batch b;

	(void)state;
	tree_up(&t, 64 * MIB);
	batch_init(&b);
#define GOOD(off, size)	assert_int_equal(try_file(&t, &b, off, size), 0)
#define BAD(off, size)	assert_int_equal(try_file(&t, &b, off, size), -EUCLEAN)
	GOOD(at, 3 * 4096);
	/* same, inside, around, over either edge */
	BAD(at, 3 * 4096);
	BAD(at + 4096, 4096);
	BAD(at, 4096);
	BAD(at + 2 * 4096, 4096);
	BAD(at - 4096, 5 * 4096);
	BAD(at - 4096, 4097);
	BAD(at + 2 * 4096, 4097);
	BAD(at - 4096, 4 * 4096);
	/* neighbours touch */
	GOOD(at - 4096, 4096);
	GOOD(at + 3 * 4096, 1);
	assert_int_equal(tarn_node_at(&t, at - 1)->size, 4096);
	assert_int_equal(tarn_node_at(&t, at)->size, 3 * 4096);
	assert_int_equal(tarn_node_at(&t, at + 3 * 4096)->size, 1);
	/* the two ends of the data */
	BAD(START - 4096, 4096);
	BAD(START - 4096, 8192);
	BAD(0, 4096);
	BAD(end, 4096);
	BAD(end - 4096, 8192);
	BAD(0x7ffffffffffff000ULL, 8192);
	BAD(0xfffffffffffff000ULL, 4096);
	BAD(0xfffffffffffff000ULL, 8192);
	BAD(START, 64 * MIB + 4096);
	GOOD(START, 4096);
	GOOD(end - 4096, 4096);
	/* alignment: 4 KiB, and 2 MiB from there on */
	BAD(at + 64 * 4096 + 512, 4096);
	BAD(START + 12 * MIB + 4096, 2 * MIB);
	BAD(START + 13 * MIB, 2 * MIB);
	BAD(START + 13 * MIB, 3 * MIB);
	GOOD(START + 14 * MIB, 2 * MIB);
	GOOD(START + 16 * MIB + 4096, 2 * MIB - 4096);
	GOOD(START + 18 * MIB, 2 * MIB + 1);
#undef GOOD
#undef BAD
	/* length and size must agree */
	assert_int_equal(try_extent(&t, &b, START + 32 * MIB, 4096, 4097), -EUCLEAN);
	assert_int_equal(try_extent(&t, &b, START + 32 * MIB, 8192, 4096), -EUCLEAN);
	assert_int_equal(try_extent(&t, &b, START + 32 * MIB, 4095, 4095), -EUCLEAN);
	assert_int_equal(try_extent(&t, &b, START + 32 * MIB, 0, 4095), -EUCLEAN);
	assert_int_equal(try_extent(&t, &b, START, 0, (1ULL << 63) - 1), -EUCLEAN);
	batch_free(&b);
	tree_down(&t);
}

/* ---- finding room ------------------------------------------------------- */

static int reserve_sizes(struct tarn_tree *t, struct tarn_set *set, u32 count, u64 size, u8 align,
			 struct tarnfs_reserve_item *items, u32 *failed)
{
	u32 i;

	for (i = 0; i < count; i++) {
		items[i] = file_item(size);
		items[i].align = align;
	}
	return tarn_reserve(t, set, items, count, failed);
}

/* famfs needed 20 GiB for them: 10,000 files of 4 KiB lie side by side in 40 MiB. */
static void test_small_files(void **state)
{
	static struct tarnfs_reserve_item items[20000];
	struct tarn_set set;
	struct tarn_tree t;
	u64 any, huge;
	u32 failed, i;

	(void)state;
	tree_up(&t, 64 * MIB);
	tarn_set_init(&set);
	assert_int_equal(reserve_sizes(&t, &set, 10000, 4096, 0, items, &failed), 0);
	for (i = 0; i < 10000; i++) {
		assert_int_equal(items[i].off, START + i * 4096ULL);
		assert_int_equal(items[i].len, 4096);
		assert_int_equal(items[i].ino, 16 + i);
	}
	assert_int_equal(t.reserved_bytes, 10000 * 4096);
	verify(&t);
	tarn_largest_free(&t, &any, &huge);
	assert_int_equal(any, 64 * MIB - 10000 * 4096);
	assert_int_equal(huge, 24 * MIB);

	/* one too many: none of them, and the culprit is named */
	assert_int_equal(reserve_sizes(&t, &set, 6385, 4096, 0, items, &failed), -ENOSPC);
	assert_int_equal(failed, 6384);
	assert_int_equal(t.reserved_bytes, 10000 * 4096);
	assert_int_equal(t.next_ino, 16 + 10000);
	verify(&t);
	assert_int_equal(reserve_sizes(&t, &set, 6384, 4096, 0, items, &failed), 0);
	assert_int_equal(t.free_bytes, 0);
	tarn_largest_free(&t, &any, &huge);
	assert_int_equal(any, 0);
	assert_int_equal(huge, 0);
	assert_int_equal(reserve_sizes(&t, &set, 1, 1, 0, items, &failed), -ENOSPC);
	set_close(&t, &set);
	assert_int_equal(apply_end(&t), 0);
	assert_int_equal(t.free_bytes, 64 * MIB);
	tree_down(&t);
}

/* Holes without a 2 MiB block fill first, wherever they are; then the lowest hole. */
static void test_first_fit(void **state)
{
	struct tarn_set set;
	struct tarn_tree t;
	struct batch b;

	(void)state;
	tree_up(&t, 64 * MIB);
	tarn_set_init(&set);
	batch_init(&b);
	/* [0,4M) free, a hole of 16 KiB at 6M - 16K, a hole of 1 MiB at 9 MiB .. 10 MiB */
	batch_file(&b, 16, 1, "a", 2 * MIB - 16 * KIB, START + 4 * MIB);
	batch_file(&b, 17, 1, "b", 3 * MIB, START + 6 * MIB);
	batch_file(&b, 18, 1, "c", 54 * MIB, START + 10 * MIB);
	assert_int_equal(apply_one(&t, &b), 0);
	assert_int_equal(t.free_bytes, 5 * MIB + 16 * KIB);

	assert_int_equal(reserve_file(&t, &set, 20 * KIB, NULL), START + 9 * MIB);
	assert_int_equal(reserve_file(&t, &set, 8 * KIB, NULL), START + 6 * MIB - 16 * KIB);
	assert_int_equal(reserve_file(&t, &set, 4 * KIB, NULL), START + 6 * MIB - 8 * KIB);
	assert_int_equal(reserve_file(&t, &set, 4 * KIB, NULL), START + 6 * MIB - 4 * KIB);
	assert_int_equal(reserve_file(&t, &set, 4 * KIB, NULL), START + 9 * MIB + 20 * KIB);
	/* too big for either: the lowest that fits, from its start */
	assert_int_equal(reserve_file(&t, &set, 2 * MIB - 4096, NULL), START);
	/* [2M-4K, 4M) has a 2 MiB block at 2 MiB */
	assert_int_equal(reserve_file(&t, &set, 2 * MIB, NULL), START + 2 * MIB);
	assert_int_equal(reserve_file(&t, &set, 4096, NULL), START + 2 * MIB - 4096);
	batch_free(&b);
	set_close(&t, &set);
	tree_down(&t);
}

static void test_huge(void **state)
{
	static struct tarnfs_reserve_item items[64];
	struct tarn_set set;
	struct tarn_tree t;
	u64 any, huge;
	u32 failed;

	(void)state;
	tree_up(&t, 16 * MIB);
	tarn_set_init(&set);
	assert_int_equal(reserve_file(&t, &set, 4096, NULL), START);
	tarn_largest_free(&t, &any, &huge);
	assert_int_equal(any, 16 * MIB - 4096);
	assert_int_equal(huge, 14 * MIB);
	/* 14 MiB and a byte fit nowhere aligned, though 16 MiB less 4 KiB are free */
	assert_int_equal(reserve_sizes(&t, &set, 1, 14 * MIB + 1, 0, items, &failed), -ENOSPC);
	assert_int_equal(failed, 0);
	/* from 2 MiB on aligned, whatever was asked */
	assert_int_equal(reserve_sizes(&t, &set, 1, 2 * MIB, TARNFS_ALIGN_BLOCK, items, &failed),
			 0);
	assert_int_equal(items[0].off, START + 2 * MIB);
	assert_int_equal(reserve_sizes(&t, &set, 1, 2 * MIB + 1, 0, items, &failed), 0);
	assert_int_equal(items[0].off, START + 4 * MIB);
	assert_int_equal(items[0].len, 2 * MIB + 4096);
	/* a small one on request, in a hole with no whole 2 MiB behind the boundary */
	assert_int_equal(reserve_sizes(&t, &set, 1, 100, TARNFS_ALIGN_HUGE, items, &failed), 0);
	assert_int_equal(items[0].off, START + 8 * MIB);
	assert_int_equal(reserve_sizes(&t, &set, 3, 2 * MIB, TARNFS_ALIGN_HUGE, items, &failed), 0);
	assert_int_equal(items[2].off, START + 14 * MIB);
	assert_int_equal(reserve_sizes(&t, &set, 1, 4096, TARNFS_ALIGN_HUGE, items, &failed),
			 -ENOSPC);
	assert_int_equal(reserve_sizes(&t, &set, 1, 4096, TARNFS_ALIGN_BLOCK, items, &failed), 0);
	set_close(&t, &set);
	tree_down(&t);
}

/* The largest call there is, on a device full of single-block holes. */
static void test_reserve_max(void **state)
{
	static struct tarnfs_reserve_item items[TARNFS_RESERVE_MAX + 1];
	struct tarn_set set, kept, holes;
	struct tarn_node *n;
	struct tarn_tree t;
	u32 failed, i;

	(void)state;
	tree_up(&t, 1024 * MIB);
	tarn_set_init(&set);
	tarn_set_init(&kept);
	tarn_set_init(&holes);
	assert_int_equal(reserve_sizes(&t, &set, TARNFS_RESERVE_MAX + 1, 1, 0, items, &failed),
			 -EINVAL);
	assert_int_equal(reserve_sizes(&t, &set, 0, 1, 0, items, &failed), -EINVAL);
	for (i = 0; i < 2; i++)
		assert_int_equal(reserve_sizes(&t, &holes, TARNFS_RESERVE_MAX, 1, 0, items,
						       &failed),
				 0);
	/* every second one is given back */
	i = 0;
	while ((n = tarn_set_pop(&holes))) {
		if (i++ % 2) {
			tarn_node_put(&t, n);
		} else {
			list_add_tail(&n->set_link, &kept.members);
			n->set = &kept;
			tarn_node_put(&t, n);
		}
	}
	assert_int_equal(apply_end(&t), 0);
	verify(&t);
	assert_int_equal(reserve_sizes(&t, &set, TARNFS_RESERVE_MAX, 4096, 0, items, &failed), 0);
	for (i = 0; i < TARNFS_RESERVE_MAX; i++)
		assert_int_equal(items[i].off, START + (2 * i + 1) * 4096ULL);
	verify(&t);
	set_close(&t, &set);
	set_close(&t, &kept);
	tree_down(&t);
}

static void test_reserve_items(void **state)
{
	struct tarnfs_reserve_item items[4];
	struct tarn_set set;
	struct tarn_tree t;
	u32 failed;

	(void)state;
	tree_up(&t, 64 * MIB);
	tarn_set_init(&set);

#define BAD(change)							\
	do {								\
		items[0] = file_item(1);				\
		items[1] = file_item(1);				\
		change;							\
		failed = 99;						\
		assert_int_equal(tarn_reserve(&t, &set, items, 2, &failed), -EINVAL); \
		assert_int_equal(failed, 1);				\
		assert_int_equal(t.reserved_bytes, 0);			\
		assert_true(list_empty(&set.members));			\
	} while (0)
	BAD(items[1].type = 0);
	BAD(items[1].type = 4);
	BAD(items[1].align = 1);
	BAD(items[1].align = 22);
	BAD(items[1].flags = 2);
	BAD(items[1].zero = 1);
	BAD(items[1].size = 1ULL << 63);
	BAD(items[1].type = TARNFS_TYPE_DIRECTORY);
	BAD((items[1].type = TARNFS_TYPE_SYMLINK, items[1].size = 0, items[1].align = 12));
	BAD((items[1].type = TARNFS_TYPE_DIRECTORY, items[1].size = 0, items[1].flags = 1));
#undef BAD

	/* directories, symlinks and empty files take a number and nothing else */
	items[0] = file_item(0);
	items[1] = file_item(4097);
	items[1].flags = TARNFS_RESERVE_ZERO;
	items[2] = file_item(0);
	items[2].type = TARNFS_TYPE_DIRECTORY;
	items[3] = file_item(0);
	items[3].type = TARNFS_TYPE_SYMLINK;
	items[0].off = 5;
	items[0].len = 5;
	assert_int_equal(tarn_reserve(&t, &set, items, 4, &failed), 0);
	assert_int_equal(items[0].ino, 16);
	assert_int_equal(items[0].off, 0);
	assert_int_equal(items[0].len, 0);
	assert_int_equal(items[3].ino, 19);
	assert_int_equal(t.next_ino, 20);
	assert_int_equal(t.committed_ino, 16);
	assert_int_equal(items[1].len, 8192);
	assert_int_equal(t.reserved_bytes, 8192);
	assert_null(tarn_find(&t, 16));
	assert_null(tarn_set_member(&t, &set, 16));
	assert_ptr_equal(tarn_set_member(&t, &set, 17), tarn_find(&t, 17));
	assert_int_equal(tarn_find(&t, 17)->flags, TARN_NODE_MADE_HERE);
	assert_null(tarn_set_member(&t, &set, 1));

	/* sizes beyond the device, up to the largest there is */
	items[0] = file_item(64 * MIB);
	assert_int_equal(tarn_reserve(&t, &set, items, 1, &failed), -ENOSPC);
	items[0] = file_item((1ULL << 63) - 1);
	assert_int_equal(tarn_reserve(&t, &set, items, 1, &failed), -ENOSPC);
	set_close(&t, &set);
	tree_down(&t);
}

/* Numbers never run further ahead than a takeover jumps, nor past the end. */
static void test_reserve_numbers(void **state)
{
	static struct tarnfs_reserve_item items[TARNFS_RESERVE_MAX];
	struct tarn_set set;
	struct tarn_tree t;
	struct batch b;
	u32 failed, i;

	(void)state;
	tree_up(&t, 64 * MIB);
	tarn_set_init(&set);
	batch_init(&b);
	for (i = 0; i < TARNFS_INO_JUMP / TARNFS_RESERVE_MAX; i++)
		assert_int_equal(reserve_sizes(&t, &set, TARNFS_RESERVE_MAX, 0, 0, items, &failed),
				 0);
	assert_int_equal(t.next_ino, 16 + TARNFS_INO_JUMP);
	assert_int_equal(reserve_sizes(&t, &set, 1, 0, 0, items, &failed), -EAGAIN);
	batch_file(&b, 20, 1, "x", 0, 0);
	assert_int_equal(apply_one(&t, &b), 0);
	assert_int_equal(t.committed_ino, 21);
	assert_int_equal(reserve_sizes(&t, &set, 6, 0, 0, items, &failed), -EAGAIN);
	assert_int_equal(reserve_sizes(&t, &set, 5, 0, 0, items, &failed), 0);

	/* the last number there is, and not the one behind it */
	t.next_ino = t.committed_ino = (1ULL << 63) - 3;
	assert_int_equal(reserve_sizes(&t, &set, 3, 0, 0, items, &failed), -ENOSPC);
	assert_int_equal(reserve_sizes(&t, &set, 2, 0, 0, items, &failed), 0);
	assert_int_equal(items[1].ino, (1ULL << 63) - 2);
	assert_int_equal(reserve_sizes(&t, &set, 1, 0, 0, items, &failed), -ENOSPC);
	batch_free(&b);
	tree_down(&t);
}

/* ---- reservations, commit, limbo ---------------------------------------- */

/* The reservation that is committed becomes the file; everything else is refused. */
static void test_commit(void **state)
{
	struct tarn_set set, other;
	struct tarn_tree t;
	struct tarn_node *n;
	struct batch b;
	char name[256];
	u64 ino, off;

	(void)state;
	tree_up(&t, 64 * MIB);
	tarn_set_init(&set);
	tarn_set_init(&other);
	batch_init(&b);
	off = reserve_file(&t, &set, 5000, &ino);
	n = tarn_find(&t, ino);
	assert_int_equal(n->state, TARN_NODE_RESERVED);
	assert_ptr_equal(tarn_node_at(&t, off + 8191), n);
	assert_null(tarn_set_member(&t, &other, ino));

#define WRONG(change)							\
	do {								\
		struct tarnfs_op *op = batch_file(&b, ino, 1, "f", 5000, off); \
									\
		change;							\
		assert_int_equal(apply_one(&t, &b), -EUCLEAN);		\
		assert_int_equal(n->state, TARN_NODE_RESERVED);		\
		assert_ptr_equal(tarn_set_member(&t, &set, ino), n);	\
	} while (0)
	WRONG(op->size = 5001);
	WRONG(op->off += 4096);
	WRONG(op->len = 4096);
	WRONG(op->len = 12288);
	WRONG((op->size = 0, op->extents = 0, op->off = 0, op->len = 0));
	WRONG((op->type = TARNFS_OP_DIRECTORY, op->size = op->extents = op->off = op->len = 0));
	/* its extent under another number */
	WRONG(op->ino = 1000);
#undef WRONG

	/* the longest name does not fit inline */
	memset(name, 'x', 255);
	name[255] = '\0';
	tarn_node_get(n);
	batch_file(&b, ino, 1, name, 5000, off)->mode = 0600;
	assert_int_equal(apply_one(&t, &b), 0);
	assert_int_equal(n->state, TARN_NODE_LIVE);
	assert_string_equal(n->name, name);
	assert_int_equal(n->mode, 0600);
	assert_int_equal(n->flags, TARN_NODE_MADE_HERE);
	assert_ptr_equal(tarn_lookup(&t, t.root, name, 255), n);
	assert_null(tarn_set_member(&t, &set, ino));
	assert_int_equal(t.reserved_bytes, 0);
	assert_int_equal(t.files, 1);
	assert_null(tarn_set_pop(&set));
	tarn_node_put(&t, n);
	assert_int_equal(n->state, TARN_NODE_LIVE);
	batch_file(&b, ino, 1, "again", 5000, off);
	assert_int_equal(apply_one(&t, &b), -EEXIST);
	batch_free(&b);
	tree_down(&t);
}

/* Between pop and put the APPLY may come: then the put finds a file. */
static void test_commit_popped(void **state)
{
	struct tarn_set set;
	struct tarn_tree t;
	struct tarn_node *n;
	struct batch b;
	u64 ino, off;

	(void)state;
	tree_up(&t, 64 * MIB);
	tarn_set_init(&set);
	batch_init(&b);
	off = reserve_file(&t, &set, 4096, &ino);
	n = tarn_set_pop(&set);
	assert_int_equal(n->ino, ino);
	assert_int_equal(n->users, 1);
	assert_int_equal(n->state, TARN_NODE_RESERVED);
	assert_int_equal(t.reserved_bytes, 4096);
	assert_null(tarn_set_member(&t, &set, ino));
	assert_null(tarn_set_pop(&set));
	verify(&t);
	batch_file(&b, ino, 1, "f", 4096, off);
	assert_int_equal(apply_one(&t, &b), 0);
	tarn_node_put(&t, n);
	assert_int_equal(n->state, TARN_NODE_LIVE);
	assert_true(list_empty(&t.limbo));
	batch_free(&b);
	tree_down(&t);
}

/* What was let go is not free before an AT_END, and then it is. */
static void test_limbo(void **state)
{
	struct tarnfs_reserve_item item;
	struct tarn_node *n, *held;
	struct tarn_set set, set2;
	struct tarn_tree t;
	struct batch b;
	u64 ino, ino2;
	u32 failed;

	(void)state;
	tree_up(&t, 4 * MIB);
	tarn_set_init(&set);
	tarn_set_init(&set2);
	batch_init(&b);
	reserve_file(&t, &set, 2 * MIB, &ino);
	reserve_file(&t, &set2, 2 * MIB, &ino2);
	/* somebody has the second one open: closing the set does not let go of it */
	held = tarn_set_member(&t, &set2, ino2);
	tarn_node_get(held);
	set_close(&t, &set);
	set_close(&t, &set2);
	assert_int_equal(tarn_find(&t, ino)->state, TARN_NODE_LIMBO);
	assert_int_equal(held->state, TARN_NODE_RESERVED);
	assert_int_equal(t.limbo_bytes, 2 * MIB);
	assert_int_equal(t.reserved_bytes, 2 * MIB);
	verify(&t);

	item = file_item(4096);
	assert_int_equal(tarn_reserve(&t, &set, &item, 1, &failed), -ENOSPC);
	/* neither an ordinary batch, a CHECK, nor an AT_END that fails empties it */
	assert_int_equal(batch_apply(&t, &b, 0), 0);
	assert_int_equal(batch_apply(&t, &b, TARNFS_APPLY_AT_END | TARNFS_APPLY_CHECK), 0);
	batch_dir(&b, 50, 99, "x");
	assert_int_equal(batch_apply(&t, &b, TARNFS_APPLY_AT_END), -ENOENT);
	batch_reset(&b);
	batch_dir(&b, 50, 1, "x");
	b.args.nonce++;
	assert_int_equal(batch_apply(&t, &b, TARNFS_APPLY_AT_END), -ESTALE);
	assert_int_equal(t.limbo_bytes, 2 * MIB);
	assert_int_equal(tarn_node_at(&t, START)->ino, ino);
	/* one that comes by the batch itself does not see it free either */
	batch_reset(&b);
	batch_file(&b, 60, 1, "over", 4096, START);
	assert_int_equal(batch_apply(&t, &b, TARNFS_APPLY_AT_END), -EUCLEAN);

	assert_int_equal(apply_end(&t), 0);
	assert_int_equal(t.limbo_bytes, 0);
	assert_null(tarn_find(&t, ino));
	assert_null(tarn_node_at(&t, START));
	assert_int_equal(t.free_bytes, 2 * MIB);
	assert_int_equal(held->state, TARN_NODE_RESERVED);

	/* the last put sends the other one, and a user of limbo keeps its range */
	tarn_node_put(&t, held);
	assert_int_equal(held->state, TARN_NODE_LIMBO);
	tarn_node_get(held);
	assert_int_equal(apply_end(&t), 0);
	assert_ptr_equal(tarn_find(&t, ino2), held);
	assert_int_equal(t.limbo_bytes, 2 * MIB);
	n = held;
	tarn_node_put(&t, held);
	assert_ptr_equal(tarn_find(&t, ino2), n);
	assert_int_equal(apply_end(&t), 0);
	assert_null(tarn_find(&t, ino2));
	assert_int_equal(t.free_bytes, 4 * MIB);
	batch_free(&b);
	tree_down(&t);
}

/*
 * Killed between the commit word and its APPLY: the reservation is in limbo when
 * the next one replays the record, which takes it from there.
 */
static void test_kill_after_commit(void **state)
{
	struct tarn_set set;
	struct tarn_tree t;
	struct tarn_node *n;
	struct batch b;
	u64 ino[3], off[3];
	int i;

	(void)state;
	tree_up(&t, 64 * MIB);
	tarn_set_init(&set);
	batch_init(&b);
	for (i = 0; i < 3; i++)
		off[i] = reserve_file(&t, &set, 10000, &ino[i]);
	set_close(&t, &set);
	assert_int_equal(t.limbo_bytes, 3 * 12288);

	/* not with another size */
	batch_file(&b, ino[1], 1, "wrong", 9999, off[1]);
	assert_int_equal(apply_one(&t, &b), -EUCLEAN);
	assert_int_equal(tarn_find(&t, ino[1])->state, TARN_NODE_LIMBO);

	/* replay and AT_END in one call: the middle one is a file, the others are gone */
	batch_file(&b, ino[1], 1, "f", 10000, off[1]);
	assert_int_equal(batch_apply(&t, &b, TARNFS_APPLY_AT_END), 0);
	n = tarn_lookup(&t, t.root, "f", 1);
	assert_int_equal(n->ino, ino[1]);
	assert_int_equal(n->state, TARN_NODE_LIVE);
	assert_int_equal(n->flags, TARN_NODE_MADE_HERE);
	assert_int_equal(t.limbo_bytes, 0);
	assert_null(tarn_find(&t, ino[0]));
	assert_null(tarn_find(&t, ino[2]));
	assert_int_equal(t.free_bytes, 64 * MIB - 12288);
	/* numbers are not given out twice all the same */
	assert_int_equal(t.next_ino, ino[2] + 1);
	batch_free(&b);
	tree_down(&t);
}

/* ---- CHECK, memory ------------------------------------------------------ */

/* A batch of everything: new and foreign nodes, commits from a set, popped, from limbo. */
struct everything {
	struct tarn_tree	t;
	struct tarn_set		set;
	struct tarn_set		limbo;
	struct tarn_node	*popped;
	struct batch		b;
};

static void everything_up(struct everything *e)
{
	static const char longest[] =
		"a name that is longer than the room a node has for names, so that it is allocated";
	u64 ino[8], off[8];
	int i;

	tree_up(&e->t, 64 * MIB);
	tarn_set_init(&e->set);
	tarn_set_init(&e->limbo);
	batch_init(&e->b);
	off[0] = reserve_file(&e->t, &e->set, 4096, &ino[0]);
	e->popped = tarn_set_pop(&e->set);
	for (i = 1; i < 5; i++)
		off[i] = reserve_file(&e->t, &e->set, 4096, &ino[i]);
	for (i = 5; i < 8; i++)
		off[i] = reserve_file(&e->t, &e->limbo, 4096, &ino[i]);
	set_close(&e->t, &e->limbo);

	batch_dir(&e->b, 100, 1, "dir");
	batch_file(&e->b, ino[0], 100, "popped", 4096, off[0]);
	batch_file(&e->b, ino[2], 100, longest, 4096, off[2]);
	batch_file(&e->b, ino[3], 100, "neighbour", 4096, off[3]);
	batch_op(&e->b, TARNFS_OP_NOTHING, 0, 0, NULL);
	batch_file(&e->b, ino[6], 100, "limbo", 4096, off[6]);
	batch_file(&e->b, ino[5], 100, "limbo first", 4096, off[5]);
	batch_file(&e->b, 300, 100, "foreign", 3 * MIB, START + 20 * MIB);
	batch_file(&e->b, 301, 1, "empty", 0, 0);
	batch_symlink(&e->b, 302, 1, "symlink", "target");
	batch_dir(&e->b, 303, 1, longest);
}

static void everything_down(struct everything *e)
{
	tarn_node_put(&e->t, e->popped);
	set_close(&e->t, &e->set);
	batch_free(&e->b);
	tree_down(&e->t);
}

/* CHECK of every part of it, good or refused at the end, leaves no trace. */
static void test_check(void **state)
{
	struct text before = { 0 }, after = { 0 };
	struct everything e;
	u32 all, count;
	int err;

	(void)state;
	everything_up(&e);
	all = e.b.args.count;
	for (count = 0; count <= all; count++) {
		text_tree(&before, &e.t);
		e.b.args.count = count;
		e.b.args.next_ino = 5000;
		e.b.args.role = TARNFS_ROLE_CLIENT;
		err = batch_apply(&e.t, &e.b, TARNFS_APPLY_CHECK |
				  (count % 2 ? TARNFS_APPLY_AT_END : 0));
		assert_int_equal(err, 0);
		assert_int_equal(e.b.done, count);
		text_tree(&after, &e.t);
		text_same(&before, &after);
		verify(&e.t);
	}
	/* the same with an operation at the end that is refused */
	batch_file(&e.b, 400, 100, "foreign", 0, 0);
	assert_int_equal(batch_apply(&e.t, &e.b, TARNFS_APPLY_CHECK), -EEXIST);
	assert_int_equal(e.b.done, all);
	text_tree(&after, &e.t);
	text_same(&before, &after);
	assert_int_equal(batch_apply(&e.t, &e.b, 0), -EEXIST);
	assert_int_equal(e.b.done, all);
	verify(&e.t);
	everything_down(&e);
	free(before.buf);
	free(after.buf);
}

/* No memory, at each point in turn: an error, all rules kept, and the rest works later. */
static void test_no_memory_apply(void **state)
{
	struct text before = { 0 }, after = { 0 };
	unsigned long at;
	int err;

	(void)state;
	for (at = 1;; at++) {
		struct everything e;
		u32 all, done;

		everything_up(&e);
		all = e.b.args.count;
		text_tree(&before, &e.t);
		node_port_fail_at = at;
		err = batch_apply(&e.t, &e.b, TARNFS_APPLY_CHECK);
		node_port_fail_at = 0;
		assert_true(err == 0 || err == -ENOMEM);
		text_tree(&after, &e.t);
		text_same(&before, &after);
		verify(&e.t);

		node_port_fail_at = at;
		err = batch_apply(&e.t, &e.b, 0);
		done = e.b.done;
		if (!err) {
			assert_true(at > 10);
			assert_int_equal(node_port_fail_at > 0, 1);
			node_port_fail_at = 0;
			everything_down(&e);
			break;
		}
		assert_int_equal(node_port_fail_at, 0);
		assert_int_equal(err, -ENOMEM);
		assert_true(done < all);
		verify(&e.t);
		/* what is left of the batch, now that there is memory */
		memmove(e.b.ops, e.b.ops + done, (all - done) * sizeof(*e.b.ops));
		e.b.args.count = all - done;
		assert_int_equal(batch_apply(&e.t, &e.b, 0), 0);
		everything_down(&e);
	}
	free(before.buf);
	free(after.buf);
}

static void test_no_memory_stage(void **state)
{
	struct text before = { 0 }, after = { 0 };
	struct tarn_tree t;
	struct batch b;
	unsigned long at;
	int err;

	(void)state;
	for (at = 1;; at++) {
		node_port_fail_at = at;
		err = tarn_tree_init(&t, START, START + 64 * MIB, 0);
		node_port_fail_at = 0;
		if (!err)
			break;
		assert_int_equal(err, -ENOMEM);
		assert_int_equal(node_port_allocated, 0);
	}
	assert_true(at > 2);

	text_tree(&before, &t);
	batch_init(&b);
	batch_dir(&b, 1, 1, NULL);
	batch_dir(&b, 16, 1, "d");
	batch_file(&b, 17, 16, "f", 4096, START);
	batch_symlink(&b, 18, 16, "s", "target");
	b.args.next_ino = 19;
	for (at = 1;; at++) {
		node_port_fail_at = at;
		err = stage(&t, &b, TARNFS_APPLY_STAGE);
		if (!err)
			break;
		assert_int_equal(node_port_fail_at, 0);
		assert_int_equal(err, -ENOMEM);
		text_tree(&after, &t);
		text_same(&before, &after);
		verify(&t);
	}
	node_port_fail_at = 0;
	assert_true(at > 12);
	batch_free(&b);
	tree_down(&t);
	free(before.buf);
	free(after.buf);
}

static void test_no_memory_reserve(void **state)
{
	struct text before = { 0 }, after = { 0 };
	struct tarnfs_reserve_item items[5];
	struct tarn_set set;
	struct tarn_tree t;
	unsigned long at;
	u32 failed;
	int err, i;

	(void)state;
	tree_up(&t, 64 * MIB);
	tarn_set_init(&set);
	reserve_file(&t, &set, 4096, NULL);
	text_tree(&before, &t);
	for (at = 1;; at++) {
		for (i = 0; i < 5; i++)
			items[i] = file_item(i == 2 ? 0 : 4096 << i);
		node_port_fail_at = at;
		err = tarn_reserve(&t, &set, items, 5, &failed);
		if (!err)
			break;
		assert_int_equal(node_port_fail_at, 0);
		assert_int_equal(err, -ENOMEM);
		text_tree(&after, &t);
		text_same(&before, &after);
		verify(&t);
	}
	node_port_fail_at = 0;
	assert_int_equal(at, 9);
	set_close(&t, &set);
	tree_down(&t);
	free(before.buf);
	free(after.buf);
}

/* ---- a node that has left ----------------------------------------------- */

/* DEAD with a user: its bytes stay its own until the last put. */
static void test_dead(void **state)
{
	struct tarn_set set;
	struct tarn_tree t;
	struct tarn_node *n;
	u64 ino;

	(void)state;
	tree_up(&t, 64 * MIB);
	tarn_set_init(&set);
	reserve_file(&t, &set, 4096, &ino);
	n = tarn_set_pop(&set);
	tarn_node_get(n);
	/* as an unlink will */
	assert_int_equal(rhashtable_remove_fast(&t.by_ino, &n->ino_link, t.by_ino.p), 0);
	t.reserved_bytes -= 4096;
	n->state = TARN_NODE_DEAD;
	verify(&t);
	tarn_node_put(&t, n);
	assert_ptr_equal(tarn_node_at(&t, START), n);
	verify(&t);
	tarn_node_put(&t, n);
	assert_null(tarn_node_at(&t, START));
	assert_int_equal(t.free_bytes, 64 * MIB);
	tree_down(&t);
}

/* The check that all tests lean on sees each kind of damage. */
static void test_verify(void **state)
{
	struct tarn_node *dir, *file, *reserved, *limbo;
	const char *why = NULL;
	struct everything e;
	struct tarn_tree *t = &e.t;

	(void)state;
	everything_up(&e);
	assert_int_equal(batch_apply(t, &e.b, 0), 0);
	dir = tarn_find(t, 100);
	file = tarn_find(t, 300);
	reserved = list_first_entry_or_null(&e.set.members, struct tarn_node, set_link);
	limbo = list_first_entry_or_null(&t->limbo, struct tarn_node, set_link);
	assert_int_equal(tarn_tree_verify(t, &why), 0);

#define BREAK(what, value)						\
	do {								\
		__typeof__(what) keep = what;				\
									\
		what = value;						\
		why = NULL;						\
		assert_int_equal(tarn_tree_verify(t, &why), -EUCLEAN);	\
		assert_non_null(why);					\
		what = keep;						\
		assert_int_equal(tarn_tree_verify(t, &why), 0);		\
	} while (0)
	BREAK(file->extent.off, file->extent.off + 4096);
	BREAK(file->extent.len, file->extent.len + 4096);
	BREAK(file->extent.gap, file->extent.gap - 4096);
	BREAK(file->extent.max_gap, file->extent.max_gap + 1);
	BREAK(file->extent.max_huge, file->extent.max_huge + 1);
	BREAK(file->extent.max_small, file->extent.max_small + 1);
	BREAK(t->end.gap, 0);
	BREAK(t->free_bytes, t->free_bytes - 4096);
	BREAK(t->reserved_bytes, 0);
	BREAK(t->limbo_bytes, 0);
	BREAK(t->files, t->files + 1);
	BREAK(t->directories, 0);
	BREAK(t->symlinks, 0);
	BREAK(t->root, NULL);
	BREAK(t->nonce, 0);
	BREAK(t->next_ino, 100);
	BREAK(t->committed_ino, 100);
	BREAK(t->by_ino.nelems.counter, 3);
	BREAK(t->by_name.nelems.counter, 3);
	BREAK(dir->nr_children, 0);
	BREAK(dir->nr_subdirs, dir->nr_subdirs + 1);
	BREAK(dir->parent, dir);
	BREAK(dir->size, 1);
	BREAK(dir->state, TARN_NODE_DEAD);
	BREAK(file->size, 0);
	BREAK(file->ino, 99);
	BREAK(file->name_len, 1);
	BREAK(file->name[0], '/');
	BREAK(file->type, TARNFS_TYPE_SYMLINK);
	BREAK(tarn_find(t, 302)->size, 1);
	BREAK(reserved->set, NULL);
	BREAK(reserved->flags, 0);
	BREAK(reserved->parent, dir);
	BREAK(limbo->limbo_epoch, t->epoch + 1);
	BREAK(limbo->name_len, 1);
	BREAK(limbo->state, TARN_NODE_RESERVED);
#undef BREAK
	everything_down(&e);
}

/* A tree as deep as a batch: nothing recurses. */
static void test_deep(void **state)
{
	struct tarn_tree t;
	struct batch b;
	u64 i;

	(void)state;
	tree_up(&t, 64 * MIB);
	batch_init(&b);
	for (i = 0; i < TARNFS_APPLY_MAX; i++)
		batch_dir(&b, 16 + i, i ? 15 + i : 1, "d");
	assert_int_equal(apply_one(&t, &b), 0);
	assert_int_equal(t.directories, 1 + TARNFS_APPLY_MAX);
	batch_free(&b);
	tree_down(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_size, node_test_setup),
		cmocka_unit_test_setup(test_init, node_test_setup),
		cmocka_unit_test_setup(test_stage, node_test_setup),
		cmocka_unit_test_setup(test_position, node_test_setup),
		cmocka_unit_test_setup(test_args, node_test_setup),
		cmocka_unit_test_setup(test_attach, node_test_setup),
		cmocka_unit_test_setup(test_role, node_test_setup),
		cmocka_unit_test_setup(test_names, node_test_setup),
		cmocka_unit_test_setup(test_malformed, node_test_setup),
		cmocka_unit_test_setup(test_apply_errors, node_test_setup),
		cmocka_unit_test_setup(test_numbers, node_test_setup),
		cmocka_unit_test_setup(test_children, node_test_setup),
		cmocka_unit_test_setup(test_extents, node_test_setup),
		cmocka_unit_test_setup(test_small_files, node_test_setup),
		cmocka_unit_test_setup(test_first_fit, node_test_setup),
		cmocka_unit_test_setup(test_huge, node_test_setup),
		cmocka_unit_test_setup(test_reserve_max, node_test_setup),
		cmocka_unit_test_setup(test_reserve_items, node_test_setup),
		cmocka_unit_test_setup(test_reserve_numbers, node_test_setup),
		cmocka_unit_test_setup(test_commit, node_test_setup),
		cmocka_unit_test_setup(test_commit_popped, node_test_setup),
		cmocka_unit_test_setup(test_limbo, node_test_setup),
		cmocka_unit_test_setup(test_kill_after_commit, node_test_setup),
		cmocka_unit_test_setup(test_check, node_test_setup),
		cmocka_unit_test_setup(test_no_memory_apply, node_test_setup),
		cmocka_unit_test_setup(test_no_memory_stage, node_test_setup),
		cmocka_unit_test_setup(test_no_memory_reserve, node_test_setup),
		cmocka_unit_test_setup(test_dead, node_test_setup),
		cmocka_unit_test_setup(test_verify, node_test_setup),
		cmocka_unit_test_setup(test_deep, node_test_setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
