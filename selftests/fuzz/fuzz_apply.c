// SPDX-License-Identifier: GPL-2.0-only
/*
 * Calls of an enemy to node.c: reservations, batches with bytes of them poked,
 * users of nodes, bad memory, allocations that fail. After each call the tree is
 * whole; a call that fails whole leaves no trace, nor does CHECK; what CHECK says
 * is what the batch does; and what was done of a batch is in the tree.
 *
 * An input is a list of steps of 8 bytes: {what, a, b, c, le32 v}.
 */
#include "fuzz.h"

#include "node.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t room);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned int seed);

#define MIB	(1ULL << 20)
#define START	(64 * MIB)
#define BYTES	(16 * MIB)
#define NONCE	0x1122334455667788ULL
#define PAGE	3
#define SETS	4
#define OPS	24
#define ITEMS	8
#define HELD	16
#define STEP	8
#define STEPS	200		/* of an input: more only take time */

enum step {
	DIRECTORY, FILE_AT, SYMLINK, FROM_SET, RAW, POKE_OP, POKE_ARGS, APPLY, ITEM, POKE_ITEM,
	RESERVE, POP, PUT, GET, BAD, FAIL, MARK, STEP_KINDS
};

static struct tarn_tree tree;
static struct tarn_set sets[SETS];
static struct tarn_node *held[HELD];
static uint32_t nr_held;
static struct tarnfs_op ops[OPS];
static struct tarnfs_apply args;
static char strings[4096];
static struct tarnfs_reserve_item items[ITEMS];
static uint32_t nr_items;
static bool failing;		/* an allocation of the next call may fail */

/* ---- the tree in one number: all that a call may change ---- */

static uint64_t mix(uint64_t sum, uint64_t v)
{
	return (sum ^ v) * 0x9e3779b97f4a7c15ULL ^ sum >> 29;
}

static uint64_t mix_node(uint64_t sum, const struct tarn_node *n)
{
	sum = mix(sum, (uintptr_t)n);
	sum = mix(sum, n->ino);
	sum = mix(sum, n->size);
	sum = mix(sum, n->parent ? n->parent->ino : 0);
	sum = mix(sum, n->extent.off);
	sum = mix(sum, n->extent.len);
	sum = mix(sum, (uint64_t)n->mtime_sec);
	sum = mix(sum, (uint64_t)n->mtime_nsec << 32 | n->mode);
	sum = mix(sum, (uint64_t)n->uid << 32 | n->gid);
	sum = mix(sum, (uint64_t)n->file_flags << 32 | n->users);
	sum = mix(sum, (uint64_t)n->type << 24 | (uint64_t)n->state << 16 | n->flags << 8 |
			       n->name_len);
	sum = mix(sum, tarn_crc32c(0, n->name, n->name_len));
	if (n->state == TARN_NODE_LIMBO)
		sum = mix(sum, n->limbo_epoch);
	if (n->state == TARN_NODE_RESERVED && n->set)
		sum = mix(sum, (uintptr_t)n->set_link.prev ^ (uintptr_t)n->set_link.next << 1);
	if (n->type == TARNFS_TYPE_DIRECTORY)
		sum = mix(sum, (uint64_t)n->nr_children << 32 | n->nr_subdirs);
	return sum;
}

static uint64_t mix_dir(uint64_t sum, const struct tarn_node *dir)
{
	const struct tarn_node *n;
	uint64_t after = 0;

	sum = mix_node(sum, dir);
	while ((n = tarn_next_child(dir, after))) {
		after = n->ino;
		sum = n->type == TARNFS_TYPE_DIRECTORY ? mix_dir(sum, n) : mix_node(sum, n);
	}
	return sum;
}

static uint64_t state(void)
{
	const uint64_t fields[] = {
		tree.generation, tree.seq, tree.nonce, tree.next_ino, tree.committed_ino,
		tree.epoch, tree.log_host, tree.page, tree.role, tree.attached, tree.directories,
		tree.files, tree.symlinks, tree.free_bytes, tree.bad_free_bytes, tree.reserved_bytes,
		tree.limbo_bytes, tree.position, (uint64_t)atomic_read(&tree.by_ino.nelems),
		(uint64_t)atomic_read(&tree.by_name.nelems), node_port_allocated,
	};
	const struct tarn_node *n;
	struct rb_node *rb;
	uint64_t sum = 1;

	for (size_t i = 0; i < TARN_ARRAY_SIZE(fields); i++)
		sum = mix(sum, fields[i]);
	for (rb = rb_first(&tree.extents); rb != &tree.end.rb; rb = rb_next(rb))
		sum = mix_node(sum, container_of(rb, struct tarn_node, extent.rb));
	list_for_each_entry(n, &tree.limbo, set_link)
		sum = mix_node(sum, n);
	return tree.root ? mix_dir(sum, tree.root) : sum;
}

static void verify(const char *after)
{
	const char *why = "?";

	fuzz_check(!tarn_tree_verify(&tree, &why), "after %s: %s", after, why);
	fuzz_check(node_port_rb_valid(&tree.extents), "after %s: the tree of extents", after);
}

/* ---- building a call ---- */

static const uint64_t sizes[] = { 0, 1, 4095, 4096, 4097, 65536, 2 * MIB - 1, 2 * MIB, 2 * MIB + 1,
				  5 * MIB, BYTES, BYTES + 1, TARNFS_SIZE_MAX, TARNFS_SIZE_MAX + 1,
				  UINT64_MAX - 4094, UINT64_MAX };
static const uint64_t values[] = { 0, 1, 2, 15, 16, 17, 255, 256, 4095, 4096, 4097, 65535, 65536, 65537,
				   0x7fffffff, 0x80000000, 0xffffffff, START, START + BYTES, NONCE, 7,
				   START - 4096, START + BYTES - 4096, 2 * MIB, TARNFS_INO_JUMP,
				   TARNFS_INO_JUMP + 16, TARNFS_INO_JUMP + 17, 2 * TARNFS_INO_JUMP + 16,
				   TARNFS_STRINGS_MAX, TARNFS_SEQ_MAX - 1, TARNFS_SEQ_MAX,
				   TARNFS_SEQ_MAX + 1, UINT64_MAX };

static void args_new(void)
{
	memset(&args, 0, sizeof(args));
	args.version = TARNFS_INTERFACE;
	args.generation = 7;
	args.log_host = 5;
	args.page = PAGE;
	args.role = TARNFS_ROLE_MASTER;
	args.nonce = NONCE;
	args.op_size = sizeof(struct tarnfs_op);
	args.position = 1;
	memset(ops, 0, sizeof(ops));
}

static uint32_t add_string(const void *from, size_t len)
{
	uint32_t at = args.strings_len;

	if (at > sizeof(strings) || len > sizeof(strings) - at)
		return 0;
	memcpy(strings + at, from, len);
	args.strings_len += (uint32_t)len;
	return at;
}

/* A small number is one of the numbers that may come next, a large one is any. */
static uint64_t an_ino(uint8_t which)
{
	if (which < 128)
		return TARNFS_INO_FIRST + which % 32;
	if (which < 160)
		return tree.next_ino + which % 32;
	return which < 192 ? which - 160U : values[which % TARN_ARRAY_SIZE(values)];
}

static uint64_t a_parent(uint8_t which)
{
	return which < 64 ? TARNFS_INO_ROOT : an_ino(which);
}

static struct tarnfs_op *add_op(uint16_t type, const uint8_t *s, uint32_t v)
{
	static const char *const names[] = { "a", "b", "c", "d", "e", "f", "g", "h", "..", ".", "", "x/y",
					     "...", "\xff", "A", "B" };
	static char longest[TARNFS_NAME_MAX + 1];
	struct tarnfs_op *op;
	const char *name = names[v % 16];
	size_t len = strlen(name);

	if (args.count >= OPS)
		return NULL;
	op = &ops[args.count++];
	memset(op, 0, sizeof(*op));
	op->type = type;
	op->ino = an_ino(s[1]);
	op->parent = a_parent(s[2]);
	op->mode = 0755;
	op->mtime_sec = -5;
	op->mtime_nsec = 999999999;
	if ((v & 0xf0) == 0xf0) {
		/* up to a byte too long */
		memset(longest, 'l', sizeof(longest));
		name = longest;
		len = TARNFS_NAME_MAX - 2 + (v & 3);
	} else if ((v & 0xf0) == 0xe0) {
		len++;	/* the NUL, too */
	}
	op->name_len = (uint16_t)len;
	op->name = add_string(name, len);
	return op;
}

static void file_at(const uint8_t *s, uint32_t v)
{
	struct tarnfs_op *op = add_op(TARNFS_OP_FILE, s, v);

	if (!op)
		return;
	op->size = sizes[s[3] % 16];
	op->extents = op->size ? 1 : 0;
	op->off = op->size ? START + (v >> 16 & 0xfff) * 4096ULL : 0;
	if (v & 0x100)
		op->off = op->off / (2 * MIB) * (2 * MIB);
	op->len = round_up(op->size, 4096ULL);
}

static void from_set(const uint8_t *s, uint32_t v)
{
	const struct tarn_set *set = &sets[s[1] % SETS];
	struct tarn_node *n, *found = NULL;
	struct tarnfs_op *op;
	uint32_t skip = s[3] % 8;

	list_for_each_entry(n, &set->members, set_link)
		if (!skip--)
			found = n;
	if (!found && nr_held)
		found = held[s[3] % nr_held];
	op = found ? add_op(TARNFS_OP_FILE, s, v) : NULL;
	if (!op)
		return;
	op->ino = found->ino;
	op->size = found->size;
	op->extents = op->size ? 1 : 0;
	op->off = found->extent.off;
	op->len = found->extent.len;
}

static void poke(void *at, size_t len, const uint8_t *s, uint32_t v)
{
	static const size_t widths[] = { 1, 2, 4, 8 };
	size_t width = widths[s[3] % 4];
	uint64_t value = s[3] & 0x80 ? v : values[v % TARN_ARRAY_SIZE(values)];

	memcpy((uint8_t *)at + s[2] % (len / width) * width, &value, width);
}

/* ---- calls ---- */

/* Each operation done is there, as it was given. */
static void check_done(uint32_t done, const char *text)
{
	for (uint32_t i = 0; i < done; i++) {
		const struct tarnfs_op *op = &ops[i];
		struct tarn_node *n = tarn_find(&tree, op->ino), *dir = tarn_find(&tree, op->parent);

		if (op->type == TARNFS_OP_NOTHING)
			continue;
		fuzz_check(op->type >= 1 && op->type <= 3 && n && n->state == TARN_NODE_LIVE,
			   "operation %u was done and is not there", i);
		fuzz_check(n->type == op->type && dir == n->parent && dir->state == TARN_NODE_LIVE &&
			   dir->type == TARNFS_TYPE_DIRECTORY && n->mode == op->mode &&
			   n->uid == op->uid && n->gid == op->gid && n->mtime_sec == op->mtime_sec &&
			   n->mtime_nsec == op->mtime_nsec && n->file_flags == op->flags &&
			   n->name_len == op->name_len &&
			   !memcmp(n->name, text + op->name, op->name_len),
			   "operation %u was done otherwise", i);
		if (op->type == TARNFS_OP_FILE)
			fuzz_check(n->size == op->size && n->extent.off == op->off &&
				   n->extent.len == op->len && n->extent.len >= n->size &&
				   (!n->size || (n->extent.off >= START &&
						 n->extent.off + n->extent.len <= START + BYTES)),
				   "operation %u: extent", i);
		if (op->type == TARNFS_OP_SYMLINK)
			fuzz_check(n->size == op->target_len &&
				   !memcmp(n->target, text + op->target, op->target_len),
				   "operation %u: target", i);
		fuzz_check(n == tree.root || tarn_lookup(&tree, dir, n->name, n->name_len) == n,
			   "operation %u: its name is not found", i);
	}
}

static void call_apply(const uint8_t *s, uint32_t v)
{
	const bool stage = args.flags & TARNFS_APPLY_STAGE || v & 0x8;
	uint64_t before, seq, free_all;
	uint32_t done = 99, check_count = 99;
	int err, check;
	char *text;

	if (v & 1)
		args.flags |= TARNFS_APPLY_AT_END;
	if (v & 2)
		args.flags |= TARNFS_APPLY_CHECK;
	if (v & 8)
		args.flags |= TARNFS_APPLY_STAGE;
	if (!(v & 4) && !args.first_seq)
		args.first_seq = stage ? 100 : tree.seq + 1;
	if (stage && !args.next_ino)
		args.next_ino = 64;
	/* a count that a poke made too large is what the caller copies first: it stops there */
	if (args.count > OPS && args.count <= TARNFS_APPLY_MAX)
		args.count = OPS;
	/* strings end just where they are said to: the sanitizer looks */
	if (args.strings_len > sizeof(strings) && args.strings_len <= TARNFS_STRINGS_MAX)
		args.strings_len = sizeof(strings);
	text = malloc(args.strings_len <= sizeof(strings) ? args.strings_len + 1 : 1);
	if (args.strings_len <= sizeof(strings)) {
		char *exact = realloc(text, args.strings_len ? args.strings_len : 1);

		text = exact;
		memcpy(text, strings, args.strings_len);
	}
	before = state();
	seq = tree.seq;
	free_all = tree.free_bytes + tree.reserved_bytes + tree.limbo_bytes + tree.bad_free_bytes;

	if (!failing) {
		struct tarnfs_apply same = args;

		same.flags |= TARNFS_APPLY_CHECK;
		check = tarn_apply(&tree, &same, ops, text, &check_count);
		verify("CHECK");
		fuzz_check(state() == before, "CHECK left a trace");
	}
	err = tarn_apply(&tree, &args, ops, text, &done);
	node_port_fail_at = 0;
	verify("APPLY");
	fuzz_check(err <= 0 && done <= args.count, "APPLY: %d, %u done of %u", err, done, args.count);
	fuzz_check(!!err == (done < args.count) || (err && !args.count) || (err && !done),
		   "APPLY: %d, %u done of %u", err, done, args.count);
	if (!failing)
		fuzz_check(err == check && done == check_count, "CHECK said %d, %u; APPLY %d, %u",
			   check, check_count, err, done);
	if (args.flags & TARNFS_APPLY_CHECK) {
		fuzz_check(state() == before, "CHECK left a trace");
	} else if (err && (stage || !done) && !failing) {
		/* what is refused as a whole, but for a batch whose first operation is */
		if (stage || err == -ESTALE || err == -EUNATCH || err == -EPROTONOSUPPORT ||
		    err == -EOPNOTSUPP)
			fuzz_check(tree.seq == seq && tree.free_bytes + tree.reserved_bytes +
				   tree.limbo_bytes + tree.bad_free_bytes == free_all,
				   "a call that failed whole left a trace");
		if (err == -ESTALE || err == -EUNATCH || err == -EPROTONOSUPPORT)
			fuzz_check(state() == before, "a call that was refused left a trace");
	} else if (!stage) {
		fuzz_check(tree.seq == seq + done, "seq");
		check_done(done, text);
	} else if (!err) {
		fuzz_check(tree.seq == args.first_seq && tree.generation == args.generation, "stage");
		check_done(done, text);
	}
	(void)s;
	free(text);
	failing = false;
	args_new();
}

static void call_reserve(const uint8_t *s)
{
	uint32_t failed = 99, count = nr_items;
	uint64_t before = state(), next = tree.next_ino;
	int err;

	if (s[2] & 0x80)
		count = s[2] & 1 ? TARNFS_RESERVE_MAX + 1 : 0;
	err = tarn_reserve(&tree, &sets[s[1] % SETS], items, count, &failed);
	node_port_fail_at = 0;
	verify("RESERVE");
	if (err) {
		fuzz_check(state() == before, "RESERVE failed with %d and left a trace", err);
		fuzz_check(failed <= count, "failed at %u of %u", failed, count);
	} else {
		fuzz_check(tree.next_ino == next + count, "next_ino");
		for (uint32_t i = 0; i < count; i++) {
			fuzz_check(items[i].ino == next + i, "ino");
			fuzz_check(items[i].len == round_up(items[i].size, 4096ULL) &&
				   (!items[i].size ||
				    (tarn_set_member(&tree, &sets[s[1] % SETS], items[i].ino) ==
					     tarn_node_at(&tree, items[i].off) &&
				     !(items[i].off % (items[i].size >= 2 * MIB ||
						       items[i].align == TARNFS_ALIGN_HUGE ?
							       2 * MIB : 4096)) &&
				     tarn_node_at(&tree, items[i].off) ==
					     tarn_node_at(&tree, items[i].off + items[i].len - 1))),
				   "item %u", i);
			for (uint64_t at = items[i].off; at < items[i].off + items[i].len; at += 4096)
				fuzz_check(tree.bad->count == 0 ||
					   tarn_bad_find(tree.bad, at) == tree.bad->count ||
					   tree.bad->range[tarn_bad_find(tree.bad, at)].off > at,
					   "item %u has bad memory", i);
		}
	}
	nr_items = 0;
	failing = false;
}

static void add_item(const uint8_t *s)
{
	static const uint8_t aligns[] = { 0, 0, 0, 12, 21, 21, 1, 255 };

	if (nr_items == ITEMS)
		return;
	memset(&items[nr_items], 0, sizeof(*items));
	items[nr_items].type = (uint8_t)(s[1] & 0x80 ? 2 : s[1] % 5);
	items[nr_items].size = items[nr_items].type == 2 ? sizes[s[2] % 16] : 0;
	items[nr_items].align = items[nr_items].type == 2 ? aligns[s[3] % 8] : 0;
	nr_items++;
}

static void hold(struct tarn_node *n)
{
	if (!n)
		return;
	if (nr_held == HELD)
		tarn_node_put(&tree, n);
	else
		held[nr_held++] = n;
}

static void one_step(const uint8_t *s)
{
	uint32_t v = s[4] | s[5] << 8 | s[6] << 16 | (uint32_t)s[7] << 24, failed;
	struct tarnfs_op *op;
	struct tarn_node *n;

	(void)failed;
	switch (s[0] % STEP_KINDS) {
	case DIRECTORY:
		add_op(TARNFS_OP_DIRECTORY, s, v);
		break;
	case FILE_AT:
		file_at(s, v);
		break;
	case SYMLINK:
		op = add_op(TARNFS_OP_SYMLINK, s, v);
		if (op) {
			op->target_len = (uint16_t)(1 + s[3] % 8);
			op->target = add_string("../target", op->target_len);
		}
		break;
	case FROM_SET:
		from_set(s, v);
		break;
	case RAW:
		op = add_op((uint16_t)(s[3] & 0x80 ? 255 : s[3] % 16), s, v);
		/* the root, as a stage begins */
		if (op && s[3] == 1) {
			op->type = TARNFS_OP_DIRECTORY;
			op->ino = op->parent = TARNFS_INO_ROOT;
			op->name_len = 0;
		}
		break;
	case POKE_OP:
		if (args.count && args.count <= OPS)
			poke(&ops[s[1] % args.count], sizeof(*ops), s, v);
		break;
	case POKE_ARGS:
		poke(&args, sizeof(args), s, v);
		break;
	case APPLY:
		call_apply(s, v);
		break;
	case ITEM:
		add_item(s);
		break;
	case POKE_ITEM:
		if (nr_items)
			poke(&items[s[1] % nr_items], sizeof(*items), s, v);
		break;
	case RESERVE:
		call_reserve(s);
		break;
	case POP:
		hold(tarn_set_pop(&sets[s[1] % SETS]));
		break;
	case PUT:
		if (nr_held) {
			uint32_t i = s[1] % nr_held;

			n = held[i];
			held[i] = held[--nr_held];
			tarn_node_put(&tree, n);
		}
		break;
	case GET:
		n = s[2] & 1 ? tarn_find(&tree, an_ino(s[1]))
			     : tarn_node_at(&tree, START + (v & 0xfff) * 4096ULL);
		/* an inode: what the VFS looks up or a page fault finds */
		if (n && nr_held < HELD && (n->state == TARN_NODE_LIVE || n->users)) {
			tarn_node_get(n);
			hold(n);
		}
		break;
	case BAD:
		tarn_bad_insert(tree.bad, START + (v & 0xfff) * 4096ULL - 4096 * (s[1] % 4),
				1 + (v >> 12) % (s[2] & 0x80 ? 4 * MIB : 16384));
		tarn_bad_account(&tree);
		break;
	case FAIL:
		failing = true;
		node_port_fail_at = 1 + s[1] % 32;
		break;
	default:
		break;
	}
	verify("a step");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct tarn_node *n;
	uint32_t failed, done;

	node_port_allocated = 0;
	node_port_fail_at = 0;
	failing = false;
	nr_held = nr_items = 0;
	(void)failed;
	fuzz_check(!tarn_tree_init(&tree, START, START + BYTES, TARNFS_ROLE_MASTER), "init");
	for (int i = 0; i < SETS; i++)
		tarn_set_init(&sets[i]);
	args_new();
	/* mostly over a tree that has a root and is attached */
	if (!size || data[0] != 0xff) {
		ops[0].type = TARNFS_OP_DIRECTORY;
		ops[0].ino = ops[0].parent = TARNFS_INO_ROOT;
		args.count = 1;
		args.flags = TARNFS_APPLY_STAGE;
		args.first_seq = 100;
		fuzz_check(!tarn_apply(&tree, &args, ops, "", &done), "root");
		args_new();
		args.flags = TARNFS_APPLY_AT_END;
		args.first_seq = 101;
		fuzz_check(!tarn_apply(&tree, &args, ops, "", &done), "at end");
		args_new();
	}
	for (size_t at = 1, steps = 0; at + STEP <= size && steps < STEPS; at += STEP, steps++)
		one_step(data + at);
	/* all let go: nothing is left, and the bytes are free again after two AT_ENDs */
	node_port_fail_at = 0;
	while (nr_held)
		tarn_node_put(&tree, held[--nr_held]);
	for (int i = 0; i < SETS; i++)
		while ((n = tarn_set_pop(&sets[i])))
			tarn_node_put(&tree, n);
	verify("release");
	fuzz_check(!tree.reserved_bytes, "%llu bytes stay reserved",
		   (unsigned long long)tree.reserved_bytes);
	if (tree.attached) {
		args_new();
		args.flags = TARNFS_APPLY_AT_END;
		args.generation = tree.generation;
		args.log_host = tree.log_host;
		args.page = tree.page;
		args.nonce = tree.nonce;
		args.first_seq = tree.seq + 1;
		fuzz_check(args.first_seq > TARNFS_SEQ_MAX ||
			   !tarn_apply(&tree, &args, ops, "", &done), "at end");
		verify("the end");
		fuzz_check(args.first_seq > TARNFS_SEQ_MAX || !tree.limbo_bytes,
			   "%llu bytes stay in limbo", (unsigned long long)tree.limbo_bytes);
	}
	tarn_tree_destroy(&tree);
	fuzz_check(!node_port_allocated, "%lu pieces of memory are lost", node_port_allocated);
	return 0;
}

/* ---- mutations: whole steps ---- */

static void new_step(uint8_t *s)
{
	static const uint8_t likely[] = { DIRECTORY, DIRECTORY, FILE_AT, FILE_AT, FILE_AT, SYMLINK,
					  FROM_SET, FROM_SET, FROM_SET, RAW, POKE_OP, POKE_ARGS, APPLY,
					  APPLY, APPLY, APPLY, ITEM, ITEM, ITEM, POKE_ITEM, RESERVE,
					  RESERVE, POP, PUT, GET, BAD, FAIL };

	for (int i = 0; i < STEP; i++)
		s[i] = (uint8_t)rnd(256);
	s[0] = likely[rnd(sizeof(likely))];
	if (s[0] == APPLY && rnd(4))
		s[4] &= 3;
	if (s[0] == ITEM && rnd(4)) {
		s[1] = 0x80;
		s[2] = (uint8_t)rnd(10);
	}
	if ((s[0] == DIRECTORY || s[0] == FILE_AT || s[0] == SYMLINK || s[0] == FROM_SET) && rnd(4)) {
		s[1] &= 127;
		s[2] &= 127;
		s[3] &= 7;
		s[4] &= 7;
	}
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned int seed)
{
	size_t count = size ? (size - 1) / STEP : 0;

	rnd_seed(seed);
	rnd(2);
	if (room < 1 + STEP || !rnd(16))
		return LLVMFuzzerMutate(data, size, room);
	if (!size)
		data[0] = (uint8_t)(rnd(8) ? 0 : 0xff);
	for (uint32_t n = 1 + rnd(4); n; n--) {
		uint8_t *at = data + 1 + (count ? rnd((uint32_t)count) : 0) * STEP;
		uint8_t *end = data + 1 + count * STEP, step[STEP];
		bool fits = (count + 1) * STEP + 1 <= room && count < STEPS;

		switch (rnd(count ? 6 : 1)) {
		case 0:
		case 1:
			new_step(step);
			break;
		case 2:
			memcpy(step, data + 1 + rnd((uint32_t)count) * STEP, STEP);
			break;
		case 3:
			memmove(at, at + STEP, (size_t)(end - at) - STEP);
			count--;
			continue;
		case 4:
			at[rnd(STEP)] = (uint8_t)rnd(256);
			continue;
		default:
			LLVMFuzzerMutate(at, STEP, STEP);
			continue;
		}
		if (!fits)
			continue;
		memmove(at + STEP, at, (size_t)(end - at));
		memcpy(at, step, STEP);
		count++;
	}
	if (!rnd(64))
		data[0] ^= 0xff;
	return 1 + count * STEP;
}
