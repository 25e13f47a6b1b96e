// SPDX-License-Identifier: GPL-2.0-only
/*
 * node.c against a model that is too simple to be wrong: the device as an array
 * of blocks with an owner each, some bad, searched from the start, and a list of files.
 *
 * TARNFS_TEST_SEED (printed) repeats a run, TARNFS_TEST_STEPS sets its length.
 */
#include "node_help.h"

#define BLOCKS		16384ULL	/* 64 MiB */
#define HUGE_BLOCKS	512ULL
#define SETS		6
#define FILES_MAX	40000
#define DIRS		8

enum { GONE, RESERVED, POPPED, LIMBO, LIVE };

struct file {
	u64	ino;
	u64	size;
	u64	off;		/* blocks */
	u64	len;		/* blocks */
	int	state;
	int	set;
	u32	users;
};

static u64 rng;
static u64 seed, steps = 1000000;

static u64 rnd(u64 below)
{
	/* xorshift64*, Vigna 2016 */
	rng ^= rng >> 12;
	rng ^= rng << 25;
	rng ^= rng >> 27;
	return (rng * 0x2545f4914f6cdd1dULL >> 11) % below;
}

static struct tarn_tree tree;
static struct tarn_set sets[SETS];
static struct file files[FILES_MAX];
static u32 nr_files;
static u32 owner[BLOCKS];		/* index into files + 1; 0 = free */
static bool bad[BLOCKS];
static u64 free_blocks;			/* bad ones are not */
static u64 next_ino, committed_ino;
static u64 names;
static u64 dirs[DIRS];
static struct batch b;
static bool failing;			/* this device's memory does */

enum {
	NO_ROOM, RESERVED_SETS, POPS, NO_MEMORY, ENDS, REFUSED, DONE, OPS, COMPARED, TREES,
	BAD_ADDED, COUNTS
};

static u64 counts[COUNTS];

static u64 at_byte(u64 block)
{
	return START + block * 4096;
}

/* ---- the model ---------------------------------------------------------- */

static void take(u32 i)
{
	u64 at;

	for (at = files[i].off; at < files[i].off + files[i].len; at++) {
		assert_int_equal(owner[at], 0);
		owner[at] = i + 1;
		free_blocks -= !bad[at];
	}
}

static void give(u32 i)
{
	u64 at;

	for (at = files[i].off; at < files[i].off + files[i].len; at++) {
		assert_int_equal(owner[at], i + 1);
		owner[at] = 0;
		free_blocks += !bad[at];
	}
	files[i].state = GONE;
}

static bool is_free(u64 off, u64 len)
{
	if (off >= BLOCKS || len > BLOCKS - off)
		return false;
	while (len--)
		if (owner[off + len])
			return false;
	return true;
}

/* The first place in a hole, at a multiple of step, without a bad block; BLOCKS if none. */
static u64 place_in(u64 start, u64 end, u64 len, u64 step)
{
	u64 at, i;

	for (at = round_up(start, step); at + len <= end; at += step) {
		for (i = 0; i < len && !bad[at + i]; i++)
			;
		if (i == len)
			return at;
	}
	return BLOCKS;
}

/* Where RESERVE must put it; BLOCKS if nowhere. Looks at every hole from the low end. */
static u64 place(u64 len, bool huge)
{
	u64 at = 0, lowest = BLOCKS;

	while (at < BLOCKS) {
		u64 start = at, end, first;

		if (owner[at]) {
			at++;
			continue;
		}
		while (at < BLOCKS && !owner[at])
			at++;
		end = at;
		first = place_in(start, end, len, huge ? HUGE_BLOCKS : 1);
		if (first == BLOCKS)
			continue;
		if (huge || round_up(start, HUGE_BLOCKS) + HUGE_BLOCKS > end)
			return first;
		if (lowest == BLOCKS)
			lowest = first;
	}
	return lowest;
}

static void largest(u64 *any, u64 *huge)
{
	u64 at = 0;

	*any = 0;
	*huge = 0;
	while (at < BLOCKS) {
		u64 start = at, first;

		if (owner[at] || bad[at]) {
			at++;
			continue;
		}
		while (at < BLOCKS && !owner[at] && !bad[at])
			at++;
		first = round_up(start, HUGE_BLOCKS);
		*any = max(*any, at - start);
		if (first < at)
			*huge = max(*huge, at - first);
	}
}

/* Memory fails: whoever has it. */
static void step_bad(void)
{
	u64 len = rnd(4) ? 1 : 1 + rnd(700), off = rnd(BLOCKS - len), at;

	tarn_bad_insert(tree.bad, at_byte(off), len * 4096 - rnd(4096));
	tarn_bad_account(&tree);
	for (at = off; at < off + len; at++) {
		free_blocks -= !bad[at] && !owner[at];
		bad[at] = true;
	}
	counts[BAD_ADDED]++;
}

static u32 add_file(u64 ino, u64 size, u64 off, int state)
{
	struct file *f = &files[nr_files];

	assert_true(nr_files < FILES_MAX);
	f->ino = ino;
	f->size = size;
	f->off = off;
	f->len = (size + 4095) / 4096;
	f->state = state;
	f->set = -1;
	f->users = 0;
	take(nr_files);
	return nr_files++;
}

/* A random file in one of the states of a mask, or -1. */
static int pick(unsigned int states)
{
	u32 i, try;

	for (try = 0; nr_files && try < 30; try++) {
		/* mostly a young one: those are not committed yet */
		i = rnd(4) && nr_files > 60 ? nr_files - 1 - rnd(60) : rnd(nr_files);
		if (states & 1U << files[i].state)
			return i;
	}
	return -1;
}

/* ---- steps -------------------------------------------------------------- */

static u64 random_size(void)
{
	switch (rnd(8)) {
	case 0:
		return 2 * MIB - 4096 + rnd(3) * 4096;
	case 1:
		return 2 * MIB + rnd(3 * MIB);
	case 2:
		return rnd(2 * MIB);
	case 3:
		return 1 + rnd(200000);
	default:
		return 1 + rnd(20000);
	}
}

static void step_reserve(void)
{
	struct tarnfs_reserve_item items[6];
	bool exact = !rnd(4);
	u32 count = 1 + rnd(6), failed = 99, i, first = nr_files;
	int set = rnd(SETS), err;

	for (i = 0; i < count; i++) {
		items[i] = file_item(random_size());
		if (!rnd(6)) {
			items[i] = file_item(0);
			items[i].type = TARNFS_TYPE_DIRECTORY;
		} else if (!rnd(5)) {
			items[i].align = rnd(2) ? TARNFS_ALIGN_HUGE : TARNFS_ALIGN_BLOCK;
		}
	}
	err = tarn_reserve(&tree, &sets[set], items, count, &failed);
	if (err)
		assert_int_equal(err, -ENOSPC);
	for (i = 0; i < count; i++) {
		u64 size = items[i].size, len = (size + 4095) / 4096, off;
		bool huge = size >= 2 * MIB || items[i].align == TARNFS_ALIGN_HUGE;

		if (!size) {
			assert_true(err || (!items[i].len && !items[i].off));
			continue;
		}
		if (exact || (err && i == failed)) {
			off = place(len, huge);
			if (err && i == failed) {
				assert_int_equal(off, BLOCKS);
				break;
			}
			assert_int_equal(items[i].off, at_byte(off));
		}
		off = (items[i].off - START) / 4096;
		assert_int_equal(items[i].len, len * 4096);
		assert_int_equal(items[i].off, at_byte(off));
		assert_true(!huge || off % HUGE_BLOCKS == 0);
		assert_int_equal(items[i].ino, next_ino + i);
		files[add_file(next_ino + i, size, off, RESERVED)].set = set;
	}
	if (err) {
		assert_int_equal(i, failed);
		while (nr_files > first)
			give(--nr_files);
		counts[NO_ROOM]++;
		return;
	}
	next_ino += count;
	counts[RESERVED_SETS]++;
}

/* The descriptor of a set goes: its members one by one, some flushed for a while. */
static void step_pop(void)
{
	struct tarn_node *n = tarn_set_pop(&sets[rnd(SETS)]);
	u32 i;

	if (!n)
		return;
	for (i = nr_files; i-- > 0;)
		if (files[i].ino == n->ino && files[i].state != GONE)
			break;
	assert_true(i < nr_files);
	assert_int_equal(files[i].state, RESERVED);
	files[i].state = POPPED;
	files[i].set = -1;
	files[i].users++;
	counts[POPS]++;
}

static void step_get(void)
{
	struct tarn_node *n;
	int i = pick(1U << RESERVED | 1U << LIVE | 1U << LIMBO);

	if (i < 0 || files[i].users > 2)
		return;
	n = files[i].state == RESERVED ? tarn_set_member(&tree, &sets[files[i].set], files[i].ino) :
					 tarn_node_at(&tree, at_byte(files[i].off));
	assert_non_null(n);
	assert_int_equal(n->ino, files[i].ino);
	tarn_node_get(n);
	files[i].users++;
}

static void put(u32 i)
{
	struct tarn_node *n = tarn_find(&tree, files[i].ino);

	assert_non_null(n);
	assert_int_equal(n->users, files[i].users);
	if (!--files[i].users && files[i].state == POPPED)
		files[i].state = LIMBO;
	tarn_node_put(&tree, n);
}

static void step_put(void)
{
	int i = pick(1U << RESERVED | 1U << POPPED | 1U << LIVE | 1U << LIMBO);

	if (i >= 0 && files[i].users)
		put(i);
}

/* One more operation for the batch; returns what it will be answered with. */
static int add_op(void)
{
	int i = pick(1U << RESERVED | 1U << POPPED | 1U << LIMBO);
	u64 parent = rnd(3) ? dirs[rnd(DIRS)] : 1;
	struct tarnfs_op *op;
	char name[100];
	u64 size, off, ino;

	if (rnd(10))
		snprintf(name, sizeof(name), "n%llu", names++);
	else
		snprintf(name, sizeof(name), "a name too long for the room in a node, number %llu",
			 names++);

	switch (rnd(12)) {
	case 0:
		batch_op(&b, TARNFS_OP_NOTHING, 0, 0, NULL);
		return 0;
	case 1:
		/* an empty file of another host */
		ino = next_ino + rnd(3);
		batch_file(&b, ino, parent, name, 0, 0);
		next_ino = ino + 1;
		committed_ino = ino + 1;
		return 0;
	case 2:
	case 3:
		/* a file of another host, anywhere */
		size = random_size();
		off = rnd(BLOCKS + 600);
		if (size >= 2 * MIB && rnd(8))
			off = off / HUGE_BLOCKS * HUGE_BLOCKS;
		ino = next_ino + rnd(3);
		batch_file(&b, ino, parent, name, size, at_byte(off));
		if ((size >= 2 * MIB && off % HUGE_BLOCKS) || !is_free(off, (size + 4095) / 4096))
			return -EUCLEAN;
		add_file(ino, size, off, LIVE);
		next_ino = ino + 1;
		committed_ino = ino + 1;
		return 0;
	case 4:
		/* a reservation, and not quite */
		if (i < 0)
			break;
		op = batch_file(&b, files[i].ino, parent, name, files[i].size,
				at_byte(files[i].off));
		switch (rnd(5)) {
		case 0:
			op->size = op->size > 1 ? op->size - 1 : 2;
			break;
		case 1:
			op->off += 4096;
			break;
		case 2:
			op->len += 4096;
			break;
		case 3:
			op->type = TARNFS_OP_DIRECTORY;
			op->size = op->extents = op->off = op->len = 0;
			break;
		default:
			op->ino = next_ino;
			break;
		}
		return -EUCLEAN;
	case 5:
		i = pick(1U << LIVE);
		if (i < 0)
			break;
		batch_file(&b, files[i].ino, parent, name, files[i].size, at_byte(files[i].off));
		return -EEXIST;
	case 6:
		if (rnd(4))
			break;
		batch_file(&b, next_ino, parent, rnd(2) ? "a/b" : "..", 0, 0);
		return -EINVAL;
	default:
		if (i < 0)
			break;
		batch_file(&b, files[i].ino, parent, name, files[i].size, at_byte(files[i].off));
		files[i].state = LIVE;
		files[i].set = -1;
		next_ino = max(next_ino, files[i].ino + 1);
		committed_ino = max(committed_ino, files[i].ino + 1);
		return 0;
	}
	batch_op(&b, TARNFS_OP_NOTHING, 0, 0, NULL);
	return 0;
}

/* A batch; the model does an operation as it is added, up to the first refused. */
static void step_apply(void)
{
	static struct text before, after;
	bool at_end = !rnd(12), compare = !rnd(2000);
	u32 flags = at_end ? TARNFS_APPLY_AT_END : 0;
	u32 want = rnd(5), done = 0, i;
	int expect = 0, err;

	batch_reset(&b);
	while (b.args.count < want) {
		err = add_op();
		/* after the first refused nothing counts: no more of them */
		if (err) {
			expect = err;
			break;
		}
		done++;
	}

	if (rnd(2)) {
		if (compare)
			text_tree(&before, &tree);
		assert_int_equal(batch_apply(&tree, &b, flags | TARNFS_APPLY_CHECK), expect);
		assert_int_equal(b.done, done);
		if (compare) {
			text_tree(&after, &tree);
			text_same(&before, &after);
		}
	}
	if (!rnd(50)) {
		/* no memory somewhere: goes on where it stopped */
		node_port_fail_at = 1 + rnd(12);
		err = batch_apply(&tree, &b, flags);
		if (!node_port_fail_at && err == -ENOMEM) {
			counts[NO_MEMORY]++;
			memmove(b.ops, b.ops + b.done, (b.args.count - b.done) * sizeof(*b.ops));
			b.args.count -= b.done;
			done -= b.done;
			err = batch_apply(&tree, &b, flags);
		}
		node_port_fail_at = 0;
	} else {
		err = batch_apply(&tree, &b, flags);
	}
	assert_int_equal(err, expect);
	assert_int_equal(b.done, done);
	if (at_end && !err) {
		for (i = 0; i < nr_files; i++)
			if (files[i].state == LIMBO && !files[i].users)
				give(i);
		counts[ENDS]++;
	}
	counts[err ? REFUSED : DONE]++;
	counts[OPS] += done;
}

static void compare(void)
{
	u64 reserved = 0, limbo = 0, any, huge, got_any, got_huge, at;
	u32 i;

	largest(&any, &huge);
	tarn_largest_free(&tree, &got_any, &got_huge);
	assert_int_equal(got_any, any * 4096);
	assert_int_equal(got_huge, huge * 4096);
	assert_int_equal(tree.free_bytes, free_blocks * 4096);
	for (i = 0; i < nr_files; i++) {
		if (files[i].state == RESERVED || files[i].state == POPPED)
			reserved += files[i].len;
		else if (files[i].state == LIMBO)
			limbo += files[i].len;
	}
	assert_int_equal(tree.reserved_bytes, reserved * 4096);
	assert_int_equal(tree.limbo_bytes, limbo * 4096);
	assert_int_equal(tree.next_ino, next_ino);
	assert_int_equal(tree.committed_ino, committed_ino);
	for (i = 0; i < 64; i++) {
		struct tarn_node *n;

		at = rnd(BLOCKS);
		n = tarn_node_at(&tree, at_byte(at) + rnd(4096));
		assert_int_equal(!n, !owner[at]);
		if (n)
			assert_int_equal(n->ino, files[owner[at] - 1].ino);
	}
	verify(&tree);
	counts[COMPARED]++;
}

static void up(void)
{
	u32 i;

	tree_up(&tree, BLOCKS * 4096);
	memset(owner, 0, sizeof(owner));
	memset(bad, 0, sizeof(bad));
	nr_files = 0;
	free_blocks = BLOCKS;
	failing = rnd(2);
	for (i = 0; i < SETS; i++)
		tarn_set_init(&sets[i]);
	batch_reset(&b);
	for (i = 0; i < DIRS; i++) {
		char name[8];

		snprintf(name, sizeof(name), "d%u", i);
		dirs[i] = 16 + i;
		batch_dir(&b, dirs[i], i ? dirs[rnd(i)] : 1, name);
	}
	assert_int_equal(batch_apply(&tree, &b, 0), 0);
	next_ino = 16 + DIRS;
	committed_ino = next_ino;
}

static void down(void)
{
	u32 i;

	compare();
	for (i = 0; i < nr_files; i++)
		while (files[i].state != GONE && files[i].users)
			put(i);
	for (i = 0; i < SETS; i++)
		set_close(&tree, &sets[i]);
	verify(&tree);
	assert_int_equal(apply_end(&tree), 0);
	assert_int_equal(tree.limbo_bytes, 0);
	assert_int_equal(tree.reserved_bytes, 0);
	tree_down(&tree);
	counts[TREES]++;
}

static void test_model(void **state)
{
	u64 step;

	(void)state;
	batch_init(&b);
	up();
	for (step = 0; step < steps; step++) {
		u64 dice = rnd(100);

		if (dice < 30)
			step_reserve();
		else if (dice < 50)
			step_pop();
		else if (dice < 55)
			step_get();
		else if (dice < 75)
			step_put();
		else
			step_apply();

		if (failing && !rnd(400))
			step_bad();
		if (step % 509 == 0)
			compare();
		/* files never go: begin anew when they have filled the device, or by chance */
		if (nr_files > FILES_MAX - 100 || (free_blocks < 200 && !rnd(300)) || !rnd(20000)) {
			down();
			up();
		}
	}
	down();
	batch_free(&b);
	printf("# %llu steps: reserve %llu, without room %llu; popped %llu; trees %llu\n", steps,
	       counts[RESERVED_SETS], counts[NO_ROOM], counts[POPS], counts[TREES]);
	printf("# batches %llu, refused %llu, short of memory %llu; operations %llu\n", counts[DONE],
	       counts[REFUSED], counts[NO_MEMORY], counts[OPS]);
	printf("# at end %llu; memory failed %llu; compared %llu\n", counts[ENDS],
	       counts[BAD_ADDED], counts[COMPARED]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_model, node_test_setup),
	};
	const char *env = getenv("TARNFS_TEST_SEED");

	seed = env ? strtoull(env, NULL, 0) : 20261130;
	env = getenv("TARNFS_TEST_STEPS");
	if (env)
		steps = strtoull(env, NULL, 0);
	rng = seed * 0x9e3779b97f4a7c15ULL | 1;
	printf("# TARNFS_TEST_SEED=%llu TARNFS_TEST_STEPS=%llu\n", seed, steps);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
