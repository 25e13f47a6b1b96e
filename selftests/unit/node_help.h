/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the tests of node.c share: a mount with its root, batches built op by op,
 * and a text of everything a tree holds, to compare before and after.
 */
#ifndef _NODE_HELP_H
#define _NODE_HELP_H

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "node.h"

#define KIB	1024ULL
#define MIB	(1024 * KIB)
#define START	(64 * MIB)	/* data_start of the tests */

#define NONCE	0x1122334455667788ULL
#define PAGE	3
#define LOG_HOST 5
#define GENERATION 7
#define BASE_SEQ 100

struct batch {
	struct tarnfs_apply	args;
	struct tarnfs_op	*ops;
	char			*strings;
	size_t			room;
	size_t			strings_room;
	u32			done;
};

static inline void batch_init(struct batch *b)
{
	memset(b, 0, sizeof(*b));
	b->args.version = TARNFS_INTERFACE;
	b->args.generation = GENERATION;
	b->args.log_host = LOG_HOST;
	b->args.page = PAGE;
	b->args.role = TARNFS_ROLE_MASTER;
	b->args.nonce = NONCE;
	b->args.op_size = sizeof(struct tarnfs_op);
}

static inline void batch_free(struct batch *b)
{
	free(b->ops);
	free(b->strings);
	batch_init(b);
	b->ops = NULL;
	b->strings = NULL;
	b->room = 0;
	b->strings_room = 0;
}

/* Empty again, the memory kept. */
static inline void batch_reset(struct batch *b)
{
	struct batch old = *b;

	batch_init(b);
	b->ops = old.ops;
	b->room = old.room;
	b->strings = old.strings;
	b->strings_room = old.strings_room;
}

static inline u32 batch_string(struct batch *b, const void *text, size_t len)
{
	u32 at = b->args.strings_len;

	if (at + len > b->strings_room) {
		b->strings_room = (at + len) * 2 + 64;
		b->strings = realloc(b->strings, b->strings_room);
		assert_non_null(b->strings);
	}
	if (len)
		memcpy(b->strings + at, text, len);
	b->args.strings_len += len;
	return at;
}

static inline struct tarnfs_op *batch_op(struct batch *b, u16 type, u64 ino, u64 parent,
					 const char *name)
{
	struct tarnfs_op *op;

	if (b->args.count == b->room) {
		b->room = b->room * 2 + 8;
		b->ops = realloc(b->ops, b->room * sizeof(*b->ops));
		assert_non_null(b->ops);
	}
	op = &b->ops[b->args.count++];
	memset(op, 0, sizeof(*op));
	op->type = type;
	op->ino = ino;
	op->parent = parent;
	op->mode = type == TARNFS_OP_DIRECTORY ? 0755 : 0644;
	op->name_len = name ? strlen(name) : 0;
	op->name = batch_string(b, name, op->name_len);
	op->mtime_sec = -5;
	op->mtime_nsec = 999999999;
	op->uid = 1000;
	op->gid = 100;
	return op;
}

static inline struct tarnfs_op *batch_dir(struct batch *b, u64 ino, u64 parent, const char *name)
{
	return batch_op(b, TARNFS_OP_DIRECTORY, ino, parent, name);
}

static inline struct tarnfs_op *batch_file(struct batch *b, u64 ino, u64 parent,
					   const char *name, u64 size, u64 off)
{
	struct tarnfs_op *op = batch_op(b, TARNFS_OP_FILE, ino, parent, name);

	op->size = size;
	if (size) {
		op->extents = 1;
		op->off = off;
		op->len = round_up(size, 4096ULL);
	}
	return op;
}

static inline struct tarnfs_op *batch_symlink(struct batch *b, u64 ino, u64 parent,
					      const char *name, const char *target)
{
	u32 at = batch_string(b, target, strlen(target));
	struct tarnfs_op *op = batch_op(b, TARNFS_OP_SYMLINK, ino, parent, name);

	op->target = at;
	op->target_len = strlen(target);
	return op;
}

/* Before each test: what one that failed left behind is not the next one's fault. */
static inline int node_test_setup(void **state)
{
	(void)state;
	node_port_fail_at = 0;
	node_port_allocated = 0;
	return 0;
}

static inline void verify(struct tarn_tree *tree)
{
	const char *why = "";

	if (tarn_tree_verify(tree, &why))
		fail_msg("tree: %s", why);
}

/* Applies at the tree's seq. */
static inline int batch_apply(struct tarn_tree *tree, struct batch *b, u32 flags)
{
	int err;

	b->args.flags = flags;
	b->args.first_seq = tree->seq + 1;
	err = tarn_apply(tree, &b->args, b->ops, b->strings, &b->done);
	return err;
}

static inline int apply_end(struct tarn_tree *tree)
{
	struct batch b;
	int err;

	batch_init(&b);
	err = batch_apply(tree, &b, TARNFS_APPLY_AT_END);
	batch_free(&b);
	return err;
}

static inline int stage_root(struct tarn_tree *tree)
{
	struct batch b;
	int err;

	batch_init(&b);
	batch_dir(&b, 1, 1, NULL);
	b.args.flags = TARNFS_APPLY_STAGE;
	b.args.first_seq = BASE_SEQ;
	err = tarn_apply(tree, &b.args, b.ops, b.strings, &b.done);
	batch_free(&b);
	return err;
}

/* A mount of a master: root there, attached. */
static inline void tree_up(struct tarn_tree *tree, u64 bytes)
{
	assert_int_equal(tarn_tree_init(tree, START, START + bytes, TARNFS_ROLE_MASTER), 0);
	assert_int_equal(stage_root(tree), 0);
	assert_int_equal(apply_end(tree), 0);
}

static inline void tree_down(struct tarn_tree *tree)
{
	verify(tree);
	tarn_tree_destroy(tree);
	assert_int_equal(node_port_allocated, 0);
}

static inline struct tarnfs_reserve_item file_item(u64 size)
{
	struct tarnfs_reserve_item item = { .size = size, .type = TARNFS_TYPE_FILE };

	return item;
}

/* One file; its number is in *ino, its place is returned. */
static inline u64 reserve_file(struct tarn_tree *tree, struct tarn_set *set, u64 size, u64 *ino)
{
	struct tarnfs_reserve_item item = file_item(size);
	u32 failed;

	assert_int_equal(tarn_reserve(tree, set, &item, 1, &failed), 0);
	if (ino)
		*ino = item.ino;
	return item.off;
}

/* What the kernel does at the last close of a reservation that nobody has open. */
static inline void set_close(struct tarn_tree *tree, struct tarn_set *set)
{
	struct tarn_node *node;

	while ((node = tarn_set_pop(set)))
		tarn_node_put(tree, node);
}

/* ---- everything a tree holds, as text ---- */

struct text {
	char	*buf;
	size_t	len;
	size_t	room;
};

__attribute__((format(printf, 2, 3)))
static inline void text_add(struct text *t, const char *fmt, ...)
{
	va_list ap;

	if (t->room - t->len < 8192) {
		t->room = t->room * 2 + 16384;
		t->buf = realloc(t->buf, t->room);
		assert_non_null(t->buf);
	}
	va_start(ap, fmt);
	t->len += vsnprintf(t->buf + t->len, t->room - t->len, fmt, ap);
	va_end(ap);
}

static inline void text_node(struct text *t, const struct tarn_node *n)
{
	text_add(t, "%p ino %llu size %llu parent %llu off %llu len %llu", (const void *)n, n->ino,
		 n->size, n->parent ? n->parent->ino : 0, n->extent.off, n->extent.len);
	text_add(t, " mtime %lld.%u uid %u gid %u file_flags %u", n->mtime_sec, n->mtime_nsec,
		 n->uid, n->gid, n->file_flags);
	text_add(t, " users %u mode %o type %u state %u flags %u name %u '%s'", n->users, n->mode,
		 n->type, n->state, n->flags, n->name_len, n->name);
	if (n->state == TARN_NODE_LIMBO)
		text_add(t, " epoch %llu", n->limbo_epoch);
	if (n->state == TARN_NODE_RESERVED)
		text_add(t, " set %p", (void *)n->set);
	if (n->state == TARN_NODE_RESERVED && n->set)
		text_add(t, " between %p and %p", (void *)n->set_link.prev,
			 (void *)n->set_link.next);
	if (n->type == TARNFS_TYPE_DIRECTORY)
		text_add(t, " children %u subdirs %u", n->nr_children, n->nr_subdirs);
	if (n->type == TARNFS_TYPE_SYMLINK)
		text_add(t, " target %s", n->target);
	text_add(t, "\n");
}

static inline void text_dir(struct text *t, const struct tarn_node *dir)
{
	const struct tarn_node *n;
	u64 after = 0;

	text_node(t, dir);
	while ((n = tarn_next_child(dir, after))) {
		after = n->ino;
		if (n->type == TARNFS_TYPE_DIRECTORY)
			text_dir(t, n);
		else
			text_node(t, n);
	}
}

static inline void text_tree(struct text *t, struct tarn_tree *tree)
{
	const struct tarn_node *n;
	struct rb_node *rb;

	t->len = 0;
	text_add(t, "gen %llu seq %llu nonce %llx next %llu committed %llu epoch %llu\n",
		 tree->generation, tree->seq, tree->nonce, tree->next_ino, tree->committed_ino,
		 tree->epoch);
	text_add(t, "host %u page %u role %u attached %d\n", tree->log_host, tree->page, tree->role,
		 tree->attached);
	text_add(t, "dirs %llu files %llu symlinks %llu free %llu reserved %llu limbo %llu\n",
		 tree->directories, tree->files, tree->symlinks, tree->free_bytes,
		 tree->reserved_bytes, tree->limbo_bytes);
	text_add(t, "inos %d names %d\n", atomic_read(&tree->by_ino.nelems),
		 atomic_read(&tree->by_name.nelems));
	for (rb = rb_first(&tree->extents); rb != &tree->end.rb; rb = rb_next(rb))
		text_node(t, container_of(rb, struct tarn_node, extent.rb));
	text_add(t, "limbo\n");
	list_for_each_entry(n, &tree->limbo, set_link)
		text_node(t, n);
	if (tree->root)
		text_dir(t, tree->root);
}

/* Fails with the first line that differs. */
static inline void text_same(const struct text *a, const struct text *b)
{
	size_t at = 0, line = 0;

	if (a->len == b->len && !memcmp(a->buf, b->buf, a->len))
		return;
	/* both end in a NUL */
	while (a->buf[at] == b->buf[at] && at < a->len)
		if (a->buf[at++] == '\n')
			line = at;
	fail_msg("changed from\n%.*s\nto\n%.*s", (int)strcspn(a->buf + line, "\n"), a->buf + line,
		 (int)strcspn(b->buf + line, "\n"), b->buf + line);
}

#endif /* _NODE_HELP_H */
