// SPDX-License-Identifier: GPL-2.0-only
/*
 * The node tree and the extent map: who has which name, which inode number
 * and which bytes of the device, and what a batch may change of that.
 *
 * Everything that comes in here is taken for hostile: operations were read
 * from memory that other hosts write to. A refused operation leaves the tree
 * as it was. No VFS call and no lock is in this file; see node.h.
 */
#include "node.h"

/* kmalloc-256 holds a node and the names that most files have. */
#define TARN_NODE_BYTES	256
#define TARN_NAME_ROOM	(TARN_NODE_BYTES - offsetof(struct tarn_node, inline_name))

#define TARN_NO_PAGE	0xffff
#define TARN_INO_END	TARNFS_SEQ_MAX	/* below it: readdir's position is one more, and signed */

#define TARN_CREATED	TARN_NODE_DEAD	/* tarn_undo.was: there was no node */

_Static_assert(sizeof(struct tarn_node) + 40 <= TARN_NODE_BYTES, "room for a short name");

/* What one operation of a batch did, for a batch that must not leave a trace. */
struct tarn_undo {
	struct tarn_node	*node;		/* NULL: nothing to undo */
	struct list_head	*prev;		/* its place in a set or limbo; NULL: in none */
	union {
		struct tarn_set	*set;
		u64		limbo_epoch;
	};
	u8			was;		/* its state, or TARN_CREATED */
};

/* ---- hashes ------------------------------------------------------------- */

struct tarn_name_key {
	const struct tarn_node	*parent;
	const char		*name;
	size_t			len;
};

static u32 tarn_hash_name(u64 parent, const char *name, u32 len, u32 seed)
{
	return jhash(name, len, jhash(&parent, sizeof(parent), seed));
}

static u32 tarn_name_hashfn(const void *data, u32 len, u32 seed)
{
	const struct tarn_name_key *key = data;

	return tarn_hash_name(key->parent->ino, key->name, key->len, seed);
}

static u32 tarn_name_obj_hashfn(const void *data, u32 len, u32 seed)
{
	const struct tarn_node *node = data;

	return tarn_hash_name(node->parent->ino, node->name, node->name_len, seed);
}

static int tarn_name_obj_cmpfn(struct rhashtable_compare_arg *arg, const void *obj)
{
	const struct tarn_name_key *key = arg->key;
	const struct tarn_node *node = obj;

	return node->parent != key->parent || node->name_len != key->len ||
	       memcmp(node->name, key->name, key->len);
}

static const struct rhashtable_params tarn_ino_params = {
	.key_len		= sizeof(u64),
	.key_offset		= offsetof(struct tarn_node, ino),
	.head_offset		= offsetof(struct tarn_node, ino_link),
	.automatic_shrinking	= true,
};

static const struct rhashtable_params tarn_name_params = {
	.head_offset		= offsetof(struct tarn_node, name_link),
	.hashfn			= tarn_name_hashfn,
	.obj_hashfn		= tarn_name_obj_hashfn,
	.obj_cmpfn		= tarn_name_obj_cmpfn,
	.automatic_shrinking	= true,
};

/* A table that cannot grow says so in several ways; to callers all mean no memory. */
static int tarn_ino_insert(struct tarn_tree *tree, struct tarn_node *node)
{
	return rhashtable_insert_fast(&tree->by_ino, &node->ino_link, tarn_ino_params) ?
		-ENOMEM : 0;
}

static int tarn_name_insert(struct tarn_tree *tree, struct tarn_node *node)
{
	return rhashtable_insert_fast(&tree->by_name, &node->name_link, tarn_name_params) ?
		-ENOMEM : 0;
}

static void tarn_ino_remove(struct tarn_tree *tree, struct tarn_node *node)
{
	WARN_ON_ONCE(rhashtable_remove_fast(&tree->by_ino, &node->ino_link, tarn_ino_params));
}

static void tarn_name_remove(struct tarn_tree *tree, struct tarn_node *node)
{
	WARN_ON_ONCE(rhashtable_remove_fast(&tree->by_name, &node->name_link, tarn_name_params));
}

/* ---- bad memory --------------------------------------------------------- */

static u64 tarn_range_end(const struct tarnfs_range *range)
{
	return range->off + range->len;
}

u32 tarn_bad_find(const struct tarn_bad *bad, u64 off)
{
	/* who looks without a lock may see anything, but no count that is too large */
	u32 low = 0, high = READ_ONCE(bad->count);

	if (high > TARN_BAD_MAX)
		high = TARN_BAD_MAX;
	while (low < high) {
		u32 middle = low + (high - low) / 2;

		if (tarn_range_end(&bad->range[middle]) > off)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

static void tarn_bad_delete(struct tarn_bad *bad, u32 first, u32 count)
{
	memmove(&bad->range[first], &bad->range[first + count],
		(bad->count - first - count) * sizeof(*bad->range));
	bad->count -= count;
}

/* The first of the two neighbours with the least between them. */
static u32 tarn_bad_nearest(const struct tarn_bad *bad)
{
	u64 least = ~0ULL;
	u32 found = 0, i;

	for (i = 0; i + 1 < bad->count; i++) {
		u64 between = bad->range[i + 1].off - tarn_range_end(&bad->range[i]);

		if (between < least) {
			least = between;
			found = i;
		}
	}
	return found;
}

/* Returns what was between them. */
static struct tarnfs_range tarn_bad_join(struct tarn_bad *bad, u32 first)
{
	struct tarnfs_range *range = &bad->range[first];
	struct tarnfs_range between = { .off = tarn_range_end(range) };

	between.len = range[1].off - between.off;
	range->len = tarn_range_end(&range[1]) - range->off;
	tarn_bad_delete(bad, first + 1, 1);
	return between;
}

struct tarnfs_range tarn_bad_insert(struct tarn_bad *bad, u64 off, u64 len)
{
	struct tarnfs_range none = { 0 };
	u64 end = round_up(off + len, (u64)TARNFS_BLOCK);
	u64 start = off & ~((u64)TARNFS_BLOCK - 1);
	/* all that touch it: from the first that ends at its start or later */
	u32 first = start ? tarn_bad_find(bad, start - 1) : 0;
	u32 next = first;

	for (; next < bad->count && bad->range[next].off <= end; next++) {
		start = min(start, bad->range[next].off);
		end = max(end, tarn_range_end(&bad->range[next]));
	}
	if (next > first) {
		tarn_bad_delete(bad, first + 1, next - first - 1);
	} else {
		memmove(&bad->range[first + 1], &bad->range[first],
			(bad->count - first) * sizeof(*bad->range));
		bad->count++;
	}
	bad->range[first].off = start;
	bad->range[first].len = end - start;
	return bad->count > TARN_BAD_MAX ? tarn_bad_join(bad, tarn_bad_nearest(bad)) : none;
}

/* How many of these bytes are bad. */
static u64 tarn_bad_bytes(const struct tarn_bad *bad, u64 off, u64 len)
{
	u64 end = off + len, bytes = 0;
	u32 i;

	for (i = tarn_bad_find(bad, off); i < bad->count && bad->range[i].off < end; i++)
		bytes += min(end, tarn_range_end(&bad->range[i])) - max(off, bad->range[i].off);
	return bytes;
}

/* ---- extent map --------------------------------------------------------- */

static struct tarn_extent *tarn_extent_of(const struct rb_node *rb)
{
	return rb_entry(rb, struct tarn_extent, rb);
}

static u64 tarn_extent_end(const struct tarn_extent *ext)
{
	return ext->off + ext->len;
}

static u64 tarn_gap_huge(const struct tarn_extent *ext)
{
	u64 first = round_up(ext->off - ext->gap, (u64)TARNFS_HUGE);

	return first < ext->off ? ext->off - first : 0;
}

static u64 tarn_gap_small(const struct tarn_extent *ext)
{
	return tarn_gap_huge(ext) < TARNFS_HUGE ? ext->gap : 0;
}

static void tarn_extent_maxima(const struct tarn_extent *ext, u64 *gap, u64 *huge, u64 *small)
{
	const struct rb_node *child[] = { ext->rb.rb_left, ext->rb.rb_right };
	int i;

	*gap = ext->gap;
	*huge = tarn_gap_huge(ext);
	*small = tarn_gap_small(ext);
	for (i = 0; i < 2; i++) {
		const struct tarn_extent *sub;

		if (!child[i])
			continue;
		sub = tarn_extent_of(child[i]);
		*gap = max(*gap, sub->max_gap);
		*huge = max(*huge, sub->max_huge);
		*small = max(*small, sub->max_small);
	}
}

/* True if nothing changed, so that nothing above can. */
static bool tarn_extent_update(struct tarn_extent *ext)
{
	u64 gap, huge, small;

	tarn_extent_maxima(ext, &gap, &huge, &small);
	if (ext->max_gap == gap && ext->max_huge == huge && ext->max_small == small)
		return true;
	ext->max_gap = gap;
	ext->max_huge = huge;
	ext->max_small = small;
	return false;
}

static void tarn_extent_propagate(struct rb_node *rb, struct rb_node *stop)
{
	while (rb != stop && !tarn_extent_update(tarn_extent_of(rb)))
		rb = rb_parent(rb);
}

static void tarn_extent_copy(struct rb_node *rb_old, struct rb_node *rb_new)
{
	const struct tarn_extent *old = tarn_extent_of(rb_old);
	struct tarn_extent *new = tarn_extent_of(rb_new);

	new->max_gap = old->max_gap;
	new->max_huge = old->max_huge;
	new->max_small = old->max_small;
}

static void tarn_extent_rotate(struct rb_node *rb_old, struct rb_node *rb_new)
{
	tarn_extent_copy(rb_old, rb_new);
	tarn_extent_update(tarn_extent_of(rb_old));
}

static const struct rb_augment_callbacks tarn_extent_callbacks = {
	.propagate	= tarn_extent_propagate,
	.copy		= tarn_extent_copy,
	.rotate		= tarn_extent_rotate,
};

/* The first extent, or the sentinel, that begins at off or after it; off < data_end. */
static struct tarn_extent *tarn_extent_from(const struct tarn_tree *tree, u64 off)
{
	struct rb_node *rb = tree->extents.rb_node;
	struct tarn_extent *found = NULL;

	while (rb) {
		struct tarn_extent *ext = tarn_extent_of(rb);

		if (ext->off >= off) {
			found = ext;
			rb = rb->rb_left;
		} else {
			rb = rb->rb_right;
		}
	}
	return found;
}

/* The extent before which [off, off + len) is free, or NULL. len > 0. */
static struct tarn_extent *tarn_extent_slot(const struct tarn_tree *tree, u64 off, u64 len)
{
	struct tarn_extent *next;

	if (off >= tree->data_end || len > tree->data_end - off)
		return NULL;
	next = tarn_extent_from(tree, off);
	/* the lowest gap begins at data_start */
	if (next->off - next->gap > off || next->off - off < len)
		return NULL;
	return next;
}

/* The bytes of ext come from the holes, or go back to them; the bad ones are never free. */
static void tarn_extent_account(struct tarn_tree *tree, const struct tarn_extent *ext, bool back)
{
	u64 bad = tarn_bad_bytes(tree->bad, ext->off, ext->len);

	if (back) {
		tree->free_bytes += ext->len - bad;
		tree->bad_free_bytes += bad;
	} else {
		tree->free_bytes -= ext->len - bad;
		tree->bad_free_bytes -= bad;
	}
}

/* Puts ext, its off and len set, into the gap before next. */
static void tarn_extent_insert(struct tarn_tree *tree, struct tarn_extent *ext,
			       struct tarn_extent *next)
{
	struct rb_node *parent = &next->rb;
	struct rb_node **link = &parent->rb_left;

	if (*link) {
		parent = rb_prev(&next->rb);
		link = &parent->rb_right;
	}
	ext->gap = ext->off - (next->off - next->gap);
	rb_link_node(&ext->rb, parent, link);
	tarn_extent_maxima(ext, &ext->max_gap, &ext->max_huge, &ext->max_small);
	tarn_extent_propagate(parent, NULL);
	rb_insert_augmented(&ext->rb, &tree->extents, &tarn_extent_callbacks);

	next->gap = next->off - tarn_extent_end(ext);
	tarn_extent_propagate(&next->rb, NULL);
	tarn_extent_account(tree, ext, false);
}

static void tarn_extent_remove(struct tarn_tree *tree, struct tarn_extent *ext)
{
	/* there is one: the sentinel stays */
	struct tarn_extent *next = tarn_extent_of(rb_next(&ext->rb));

	rb_erase_augmented(&ext->rb, &tree->extents, &tarn_extent_callbacks);
	next->gap += ext->gap + ext->len;
	tarn_extent_propagate(&next->rb, NULL);
	tarn_extent_account(tree, ext, true);
	ext->len = 0;
}

static u64 tarn_of_gap(const struct tarn_extent *ext, u64 gap, u64 huge, u64 small,
		       enum tarnfs_align align, bool tight)
{
	if (align == TARNFS_ALIGN_HUGE)
		return huge;
	return tight ? small : gap;
}

/*
 * The lowest gap in a subtree with room for len: of any kind, of the kind
 * without a 2 MiB block (tight), or counted from its first 2 MiB boundary.
 */
static struct tarn_extent *tarn_extent_fit(struct rb_node *rb, u64 len, enum tarnfs_align align,
					   bool tight)
{
	while (rb) {
		struct tarn_extent *ext = tarn_extent_of(rb);

		if (tarn_of_gap(ext, ext->max_gap, ext->max_huge, ext->max_small, align,
				tight) < len)
			return NULL;
		if (rb->rb_left) {
			const struct tarn_extent *left = tarn_extent_of(rb->rb_left);

			if (tarn_of_gap(left, left->max_gap, left->max_huge, left->max_small,
					align, tight) >= len) {
				rb = rb->rb_left;
				continue;
			}
		}
		if (tarn_of_gap(ext, ext->gap, tarn_gap_huge(ext), tarn_gap_small(ext), align,
				tight) >= len)
			return ext;
		rb = rb->rb_right;
	}
	return NULL;
}

/* The next such gap after that of ext. */
static struct tarn_extent *tarn_extent_fit_after(struct tarn_extent *ext, u64 len,
						 enum tarnfs_align align, bool tight)
{
	struct rb_node *rb = &ext->rb;

	for (;;) {
		struct tarn_extent *found = tarn_extent_fit(rb->rb_right, len, align, tight);
		struct rb_node *parent = rb_parent(rb);

		if (found)
			return found;
		while (parent && parent->rb_right == rb) {
			rb = parent;
			parent = rb_parent(rb);
		}
		if (!parent)
			return NULL;
		rb = parent;
		found = tarn_extent_of(rb);
		if (tarn_of_gap(found, found->gap, tarn_gap_huge(found), tarn_gap_small(found),
				align, tight) >= len)
			return found;
	}
}

/* Where in the gap before next len good bytes are, or 0, which is nobody's data. */
static u64 tarn_gap_place(const struct tarn_tree *tree, const struct tarn_extent *next, u64 len,
			  enum tarnfs_align align)
{
	const struct tarn_bad *bad = tree->bad;
	u64 step = align == TARNFS_ALIGN_HUGE ? TARNFS_HUGE : TARNFS_BLOCK;
	u64 at = round_up(next->off - next->gap, step);
	u32 i;

	for (i = tarn_bad_find(bad, at); at < next->off && next->off - at >= len; i++) {
		if (i == bad->count || bad->range[i].off >= at + len)
			return at;
		at = max(at, round_up(tarn_range_end(&bad->range[i]), step));
	}
	return 0;
}

/* With bad pages about, a gap with room enough may still have no place. */
static struct tarn_extent *tarn_extent_place(struct tarn_tree *tree, u64 len,
					     enum tarnfs_align align, bool tight, u64 *off)
{
	struct tarn_extent *next = tarn_extent_fit(tree->extents.rb_node, len, align, tight);

	while (next) {
		*off = tarn_gap_place(tree, next, len, align);
		if (*off)
			return next;
		next = tarn_extent_fit_after(next, len, align, tight);
	}
	return NULL;
}

static int tarn_extent_alloc(struct tarn_tree *tree, struct tarn_extent *ext, u64 len,
			     enum tarnfs_align align)
{
	struct tarn_extent *next = NULL;
	u64 off;

	if (align != TARNFS_ALIGN_HUGE)
		next = tarn_extent_place(tree, len, align, true, &off);
	if (!next)
		next = tarn_extent_place(tree, len, align, false, &off);
	if (!next)
		return -ENOSPC;
	ext->off = off;
	ext->len = len;
	tarn_extent_insert(tree, ext, next);
	return 0;
}

/* The first extent, or the sentinel, that ends after off; off < data_end. */
static struct tarn_extent *tarn_extent_ending_after(struct tarn_tree *tree, u64 off)
{
	struct tarn_extent *ext = tarn_extent_from(tree, off);
	struct rb_node *before = rb_prev(&ext->rb);

	if (before && tarn_extent_end(tarn_extent_of(before)) > off)
		return tarn_extent_of(before);
	return ext;
}

void tarn_bad_account(struct tarn_tree *tree)
{
	u64 bytes = 0;
	u32 i;

	for (i = tarn_bad_find(tree->bad, tree->data_start); i < tree->bad->count; i++) {
		u64 at = max(tree->bad->range[i].off, tree->data_start);
		u64 end = min(tarn_range_end(&tree->bad->range[i]), tree->data_end);
		const struct tarn_extent *ext;

		if (at >= end)
			break;
		bytes += end - at;
		ext = tarn_extent_ending_after(tree, at);
		for (; ext->off < end; ext = tarn_extent_of(rb_next(&ext->rb)))
			bytes -= min(end, tarn_extent_end(ext)) - max(at, ext->off);
	}
	tree->free_bytes += tree->bad_free_bytes;
	tree->free_bytes -= bytes;
	tree->bad_free_bytes = bytes;
}

struct tarn_node *tarn_node_at(struct tarn_tree *tree, u64 off)
{
	struct rb_node *rb = tree->extents.rb_node;

	while (rb) {
		struct tarn_extent *ext = tarn_extent_of(rb);

		if (off < ext->off)
			rb = rb->rb_left;
		else if (off - ext->off >= ext->len)
			rb = rb->rb_right;
		else
			return container_of(ext, struct tarn_node, extent);
	}
	return NULL;
}

/* The longest stretch of good bytes in the gap before ext. */
static u64 tarn_gap_good(const struct tarn_tree *tree, const struct tarn_extent *ext, u64 step)
{
	const struct tarn_bad *bad = tree->bad;
	u64 at = round_up(ext->off - ext->gap, step);
	u64 most = 0;
	u32 i = tarn_bad_find(bad, at);

	for (; at < ext->off; i++) {
		u64 end = ext->off;

		if (i < bad->count)
			end = min(end, bad->range[i].off);
		if (end > at)
			most = max(most, end - at);
		if (i == bad->count)
			break;
		at = max(at, round_up(tarn_range_end(&bad->range[i]), step));
	}
	return most;
}

static u64 tarn_largest(const struct tarn_tree *tree, enum tarnfs_align align)
{
	struct rb_node *top = tree->extents.rb_node;
	struct tarn_extent *ext = tarn_extent_of(top);
	u64 step = align == TARNFS_ALIGN_HUGE ? TARNFS_HUGE : TARNFS_BLOCK;
	u64 most = 0;

	if (!tree->bad_free_bytes)
		return align == TARNFS_ALIGN_HUGE ? ext->max_huge : ext->max_gap;
	for (ext = tarn_extent_fit(top, 1, align, false); ext;
	     ext = tarn_extent_fit_after(ext, most + 1, align, false))
		most = max(most, tarn_gap_good(tree, ext, step));
	return most;
}

void tarn_largest_free(const struct tarn_tree *tree, u64 *any, u64 *huge)
{
	if (any)
		*any = tarn_largest(tree, TARNFS_ALIGN_BLOCK);
	if (huge)
		*huge = tarn_largest(tree, TARNFS_ALIGN_HUGE);
}

/* ---- nodes -------------------------------------------------------------- */

static struct tarn_node *tarn_node_alloc(u64 ino, enum tarnfs_node_type type,
					 enum tarn_node_state state)
{
	struct tarn_node *node = kzalloc(TARN_NODE_BYTES, GFP_KERNEL);

	if (!node)
		return NULL;
	node->ino = ino;
	node->type = type;
	node->state = state;
	node->name = node->inline_name;
	return node;
}

static void tarn_node_free(struct tarn_node *node)
{
	if (node->type == TARNFS_TYPE_SYMLINK)
		kfree(node->target);
	if (node->name != node->inline_name)
		kfree(node->name);
	kfree(node);
}

static void tarn_node_free_rcu(struct rcu_head *rcu)
{
	tarn_node_free(container_of(rcu, struct tarn_node, rcu));
}

static int tarn_node_set_name(struct tarn_node *node, const char *name, size_t len)
{
	char *to = node->inline_name;

	if (len + 1 > TARN_NAME_ROOM) {
		to = kmalloc(len + 1, GFP_KERNEL);
		if (!to)
			return -ENOMEM;
	}
	memcpy(to, name, len);
	to[len] = '\0';
	node->name = to;
	node->name_len = len;
	return 0;
}

static void tarn_node_clear_name(struct tarn_node *node)
{
	if (node->name != node->inline_name)
		kfree(node->name);
	node->name = node->inline_name;
	node->name[0] = '\0';
	node->name_len = 0;
}

static int tarn_node_set_target(struct tarn_node *node, const char *target, size_t len)
{
	node->target = kmalloc(len + 1, GFP_KERNEL);
	if (!node->target)
		return -ENOMEM;
	memcpy(node->target, target, len);
	node->target[len] = '\0';
	node->size = len;
	return 0;
}

/* The last of a node: its number and its bytes can be given out again. */
static void tarn_node_release(struct tarn_tree *tree, struct tarn_node *node)
{
	if (node->extent.len)
		tarn_extent_remove(tree, &node->extent);
	call_rcu(&node->rcu, tarn_node_free_rcu);
}

static void tarn_node_to_limbo(struct tarn_tree *tree, struct tarn_node *node)
{
	tree->reserved_bytes -= node->extent.len;
	tree->limbo_bytes += node->extent.len;
	WRITE_ONCE(node->state, TARN_NODE_LIMBO);
	node->limbo_epoch = tree->epoch;
	list_add_tail(&node->set_link, &tree->limbo);
}

/*
 * Whatever was let go before the caller had replayed all is not in the log,
 * and never will be: who could have put it there held the append lock.
 */
static void tarn_limbo_empty(struct tarn_tree *tree, u64 epoch)
{
	struct tarn_node *node, *next;

	list_for_each_entry_safe(node, next, &tree->limbo, set_link) {
		if (node->limbo_epoch > epoch)
			break;
		if (node->users)
			continue;
		list_del(&node->set_link);
		tarn_ino_remove(tree, node);
		tree->limbo_bytes -= node->extent.len;
		WRITE_ONCE(node->state, TARN_NODE_DEAD);
		tarn_node_release(tree, node);
		cond_resched();
	}
}

struct tarn_node *tarn_find(struct tarn_tree *tree, u64 ino)
{
	return rhashtable_lookup_fast(&tree->by_ino, &ino, tarn_ino_params);
}

struct tarn_node *tarn_lookup(struct tarn_tree *tree, const struct tarn_node *dir,
			      const char *name, size_t len)
{
	const struct tarn_name_key key = { .parent = dir, .name = name, .len = len };

	if (!len || len > TARNFS_NAME_MAX)
		return NULL;
	return rhashtable_lookup_fast(&tree->by_name, &key, tarn_name_params);
}

struct tarn_node *tarn_next_child(const struct tarn_node *dir, u64 after)
{
	struct rb_node *rb;
	struct tarn_node *found = NULL;

	if (dir->type != TARNFS_TYPE_DIRECTORY)
		return NULL;
	rb = dir->children.rb_node;
	while (rb) {
		struct tarn_node *node = rb_entry(rb, struct tarn_node, dir_rb);

		if (node->ino > after) {
			found = node;
			rb = rb->rb_left;
		} else {
			rb = rb->rb_right;
		}
	}
	return found;
}

void tarn_node_get(struct tarn_node *node)
{
	node->users++;
}

void tarn_node_put(struct tarn_tree *tree, struct tarn_node *node)
{
	if (WARN_ON_ONCE(!node->users) || --node->users)
		return;
	if (node->state == TARN_NODE_RESERVED && !node->set)
		tarn_node_to_limbo(tree, node);
	else if (node->state == TARN_NODE_DEAD)
		tarn_node_release(tree, node);
	if (TARN_PLANTED(LIMBO_SKIPPED))
		tarn_limbo_empty(tree, tree->epoch);
}

/* ---- reservations ------------------------------------------------------- */

void tarn_set_init(struct tarn_set *set)
{
	INIT_LIST_HEAD(&set->members);
}

static int tarn_item_check(const struct tarnfs_reserve_item *item)
{
	if (item->zero || item->flags & ~TARNFS_RESERVE_ZERO)
		return -EINVAL;
	switch (item->type) {
	case TARNFS_TYPE_FILE:
		if (item->size > TARNFS_SIZE_MAX)
			return -EINVAL;
		break;
	case TARNFS_TYPE_DIRECTORY:
	case TARNFS_TYPE_SYMLINK:
		if (item->size || item->flags || item->align)
			return -EINVAL;
		break;
	default:
		return -EINVAL;
	}
	switch (item->align) {
	case TARNFS_ALIGN_AUTO:
	case TARNFS_ALIGN_BLOCK:
	case TARNFS_ALIGN_HUGE:
		return 0;
	default:
		return -EINVAL;
	}
}

static int tarn_reserve_one(struct tarn_tree *tree, struct tarn_set *set,
			    struct tarnfs_reserve_item *item)
{
	enum tarnfs_align align = item->align;
	struct tarn_node *node;
	int err;

	if (item->size > tree->free_bytes)
		return -ENOSPC;
	/* A mapping of 2 MiB needs it, whatever the caller thinks it needs. */
	if (item->size >= TARNFS_HUGE)
		align = TARNFS_ALIGN_HUGE;

	node = tarn_node_alloc(item->ino, TARNFS_TYPE_FILE, TARN_NODE_RESERVED);
	if (!node)
		return -ENOMEM;
	node->size = item->size;
	node->flags = TARN_NODE_MADE_HERE;
	node->set = set;
	err = tarn_extent_alloc(tree, &node->extent, round_up(item->size, (u64)TARNFS_BLOCK),
				align);
	if (err)
		goto out_free;
	err = tarn_ino_insert(tree, node);
	if (err)
		goto out_extent;
	list_add_tail(&node->set_link, &set->members);
	tree->reserved_bytes += node->extent.len;
	item->off = node->extent.off;
	item->len = node->extent.len;
	return 0;

out_extent:
	tarn_extent_remove(tree, &node->extent);
out_free:
	tarn_node_free(node);
	return err;
}

static void tarn_unreserve_one(struct tarn_tree *tree, struct tarn_node *node)
{
	list_del(&node->set_link);
	tarn_ino_remove(tree, node);
	tree->reserved_bytes -= node->extent.len;
	tarn_extent_remove(tree, &node->extent);
	/* nobody can have seen it: it came and went under the lock */
	tarn_node_free(node);
}

int tarn_reserve(struct tarn_tree *tree, struct tarn_set *set,
		 struct tarnfs_reserve_item *items, u32 count, u32 *failed)
{
	u32 i;
	int err;

	*failed = 0;
	if (!count || count > TARNFS_RESERVE_MAX)
		return -EINVAL;
	if (tree->role != TARNFS_ROLE_MASTER)
		return -EROFS;
	if (!tree->attached)
		return -EUNATCH;
	for (i = 0; i < count; i++) {
		err = tarn_item_check(&items[i]);
		if (err) {
			*failed = i;
			return err;
		}
	}
	if (count > TARN_INO_END - tree->next_ino)
		return -ENOSPC;
	if (tree->next_ino + count > tree->committed_ino + TARNFS_INO_JUMP)
		return -EAGAIN;

	for (i = 0; i < count; i++) {
		items[i].ino = tree->next_ino + i;
		items[i].off = 0;
		items[i].len = 0;
		if (!items[i].size)
			continue;
		err = tarn_reserve_one(tree, set, &items[i]);
		if (err)
			goto out_undo;
		cond_resched();
	}
	tree->next_ino += count;
	return 0;

out_undo:
	*failed = i;
	while (i--) {
		if (items[i].size)
			tarn_unreserve_one(tree, list_last_entry(&set->members, struct tarn_node,
								 set_link));
		cond_resched();
	}
	return err;
}

struct tarn_node *tarn_set_member(struct tarn_tree *tree, const struct tarn_set *set, u64 ino)
{
	struct tarn_node *node = tarn_find(tree, ino);

	if (!node || node->state != TARN_NODE_RESERVED || node->set != set)
		return NULL;
	return node;
}

struct tarn_node *tarn_set_pop(struct tarn_set *set)
{
	struct tarn_node *node;

	node = list_first_entry_or_null(&set->members, struct tarn_node, set_link);
	if (!node)
		return NULL;
	list_del_init(&node->set_link);
	node->set = NULL;
	tarn_node_get(node);
	return node;
}

/* ---- operations --------------------------------------------------------- */

static bool tarn_op_is_root(const struct tarnfs_op *op)
{
	return op->type == TARNFS_OP_DIRECTORY && op->ino == TARNFS_INO_ROOT &&
	       op->parent == TARNFS_INO_ROOT && !op->name_len;
}

static int tarn_name_check(const char *name, size_t len)
{
	if (!len || len > TARNFS_NAME_MAX)
		return -EINVAL;
	if (memchr(name, '/', len) || memchr(name, '\0', len))
		return -EINVAL;
	if (name[0] == '.' && (len == 1 || (len == 2 && name[1] == '.')))
		return -EINVAL;
	return 0;
}

static int tarn_strings_check(const struct tarnfs_apply *args, u32 off, u32 len)
{
	return off > args->strings_len || len > args->strings_len - off ? -EINVAL : 0;
}

/* What can be said of an operation without looking at the tree. root: it has to be the root. */
static int tarn_op_check(const struct tarnfs_apply *args, const struct tarnfs_op *op,
			 const char *strings, bool root)
{
	int i;

	if (op->zero1 || op->zero2)
		return -EINVAL;
	switch (op->type) {
	case TARNFS_OP_DIRECTORY:
	case TARNFS_OP_FILE:
	case TARNFS_OP_SYMLINK:
		break;
	case TARNFS_OP_UNLINK:
	case TARNFS_OP_RENAME:
	case TARNFS_OP_SETATTR:
	case TARNFS_OP_RECLAIM:
	case TARNFS_OP_PENDING_FREE:
	case TARNFS_OP_HOST:
	case TARNFS_OP_DATA_END:
		return -EOPNOTSUPP;
	case TARNFS_OP_NOTHING:
		return root ? -EINVAL : 0;
	default:
		return -EINVAL;
	}

	for (i = 0; i < 5; i++)
		if (op->arg[i])
			return -EINVAL;
	if (op->mode & ~07777 || op->mtime_nsec > 999999999)
		return -EINVAL;
	/* the ids that mean none */
	if (op->uid == (u32)-1 || op->gid == (u32)-1)
		return -EINVAL;
	if (tarn_strings_check(args, op->name, op->name_len))
		return -EINVAL;
	if (root) {
		if (!tarn_op_is_root(op))
			return -EINVAL;
	} else {
		if (op->ino < TARNFS_INO_FIRST || op->ino >= TARN_INO_END)
			return -EINVAL;
		if (!op->name_len || tarn_name_check(strings + op->name, op->name_len))
			return -EINVAL;
	}

	if (op->type == TARNFS_OP_FILE) {
		if (op->flags & ~TARNFS_FILE_FLAGS || op->size > TARNFS_SIZE_MAX)
			return -EINVAL;
		if (op->extents != (op->size ? 1 : 0))
			return -EINVAL;
	} else if (op->flags || op->size || op->extents) {
		return -EINVAL;
	}
	if (!op->extents && (op->off || op->len))
		return -EINVAL;

	if (op->type == TARNFS_OP_SYMLINK) {
		if (!op->target_len || op->target_len > TARNFS_TARGET_MAX)
			return -EINVAL;
		if (tarn_strings_check(args, op->target, op->target_len))
			return -EINVAL;
		if (memchr(strings + op->target, '\0', op->target_len))
			return -EINVAL;
	} else if (op->target || op->target_len) {
		return -EINVAL;
	}
	return 0;
}

/* Where the extent of a new file goes, or NULL. */
static struct tarn_extent *tarn_op_slot(const struct tarn_tree *tree, const struct tarnfs_op *op)
{
	u64 align = op->size >= TARNFS_HUGE ? TARNFS_HUGE : TARNFS_BLOCK;

	if (op->off & (align - 1) || op->len != round_up(op->size, (u64)TARNFS_BLOCK))
		return NULL;
	return tarn_extent_slot(tree, op->off, op->len);
}

static void tarn_count(struct tarn_tree *tree, const struct tarn_node *node, int by)
{
	struct tarn_node *parent = node->parent;

	switch (node->type) {
	case TARNFS_TYPE_DIRECTORY:
		tree->directories += by;
		break;
	case TARNFS_TYPE_FILE:
		tree->files += by;
		break;
	default:
		tree->symlinks += by;
		break;
	}
	if (node == parent)
		return;
	parent->nr_children += by;
	if (node->type == TARNFS_TYPE_DIRECTORY)
		parent->nr_subdirs += by;
}

/* A node whose name is hashed and whose links are free becomes visible. */
static void tarn_node_go_live(struct tarn_tree *tree, struct tarn_node *node,
			      const struct tarnfs_op *op)
{
	WRITE_ONCE(node->state, TARN_NODE_LIVE);
	node->mtime_sec = op->mtime_sec;
	node->mtime_nsec = op->mtime_nsec;
	node->uid = op->uid;
	node->gid = op->gid;
	node->mode = op->mode;
	node->file_flags = op->flags;
	tarn_count(tree, node, 1);
	if (node == node->parent) {
		RB_CLEAR_NODE(&node->dir_rb);
	} else {
		struct rb_node **link = &node->parent->children.rb_node;
		struct rb_node *above = NULL;

		while (*link) {
			above = *link;
			if (node->ino < rb_entry(above, struct tarn_node, dir_rb)->ino)
				link = &above->rb_left;
			else
				link = &above->rb_right;
		}
		rb_link_node(&node->dir_rb, above, link);
		rb_insert_color(&node->dir_rb, &node->parent->children);
	}
}

static void tarn_node_leave(struct tarn_tree *tree, struct tarn_node *node)
{
	tarn_count(tree, node, -1);
	if (node == node->parent) {
		tree->root = NULL;
	} else {
		rb_erase(&node->dir_rb, &node->parent->children);
		tarn_name_remove(tree, node);
	}
	node->parent = NULL;
}

/* The reservation gets its name: what RESERVE promised has been committed. */
static int tarn_op_commit(struct tarn_tree *tree, const struct tarnfs_op *op, const char *name,
			  struct tarn_node *parent, struct tarn_node *node,
			  struct tarn_undo *undo)
{
	bool limbo = node->state == TARN_NODE_LIMBO;
	int err;

	if (op->type != TARNFS_OP_FILE || op->size != node->size ||
	    op->off != node->extent.off || op->len != node->extent.len)
		return -EUCLEAN;
	err = tarn_node_set_name(node, name, op->name_len);
	if (err)
		return err;
	node->parent = parent;
	err = tarn_name_insert(tree, node);
	if (err)
		goto out_name;

	if (undo) {
		undo->node = node;
		undo->was = node->state;
		undo->prev = NULL;
		if (limbo)
			undo->limbo_epoch = node->limbo_epoch;
		else
			undo->set = node->set;
		if (!list_empty(&node->set_link))
			undo->prev = node->set_link.prev;
	}
	list_del(&node->set_link);
	*(limbo ? &tree->limbo_bytes : &tree->reserved_bytes) -= node->extent.len;
	node->set = NULL;
	tarn_node_go_live(tree, node, op);
	return 0;

out_name:
	node->parent = NULL;
	tarn_node_clear_name(node);
	return err;
}

static int tarn_op_create(struct tarn_tree *tree, const struct tarnfs_op *op, const char *strings,
			  bool root, struct tarn_undo *undo)
{
	const char *name = root ? "" : strings + op->name;
	struct tarn_extent *next = NULL;
	struct tarn_node *parent = NULL;
	struct tarn_node *node;
	int err;

	if (!root) {
		parent = tarn_find(tree, op->parent);
		if (!parent || parent->state != TARN_NODE_LIVE)
			return -ENOENT;
		if (parent->type != TARNFS_TYPE_DIRECTORY)
			return -ENOTDIR;
		if (tarn_lookup(tree, parent, name, op->name_len))
			return -EEXIST;
	}
	node = tarn_find(tree, op->ino);
	if (node) {
		if (node->state == TARN_NODE_LIVE)
			return -EEXIST;
		return tarn_op_commit(tree, op, name, parent, node, undo);
	}
	if (op->extents) {
		next = tarn_op_slot(tree, op);
		if (!next)
			return -EUCLEAN;
	}

	/* the operations that create are numbered as the types of nodes */
	node = tarn_node_alloc(op->ino, op->type, TARN_NODE_LIVE);
	if (!node)
		return -ENOMEM;
	node->parent = parent ? parent : node;
	node->size = op->size;
	if (TARN_PLANTED(MADE_EVERYWHERE))
		node->flags = TARN_NODE_MADE_HERE;
	err = tarn_node_set_name(node, name, op->name_len);
	if (err)
		goto out_free;
	if (op->type == TARNFS_OP_SYMLINK) {
		err = tarn_node_set_target(node, strings + op->target, op->target_len);
		if (err)
			goto out_free;
	}
	err = tarn_ino_insert(tree, node);
	if (err)
		goto out_free;
	if (root) {
		tree->root = node;
	} else {
		err = tarn_name_insert(tree, node);
		if (err)
			goto out_ino;
	}

	if (next) {
		node->extent.off = op->off;
		node->extent.len = op->len;
		tarn_extent_insert(tree, &node->extent, next);
	}
	tarn_node_go_live(tree, node, op);
	if (undo) {
		undo->node = node;
		undo->was = TARN_CREATED;
	}
	return 0;

out_ino:
	tarn_ino_remove(tree, node);
out_free:
	tarn_node_free(node);
	return err;
}

static int tarn_op_apply(struct tarn_tree *tree, const struct tarnfs_apply *args,
			 const struct tarnfs_op *op, const char *strings, bool root,
			 struct tarn_undo *undo)
{
	int err;

	if (undo)
		undo->node = NULL;
	err = tarn_op_check(args, op, strings, root);
	if (err || op->type == TARNFS_OP_NOTHING)
		return err;
	/*
	 * RESERVE hands out no number further ahead than this, so none comes
	 * back from there; a checkpoint says itself where they end.
	 */
	if (!root && op->ino >= (args->flags & TARNFS_APPLY_STAGE ? args->next_ino :
				 tree->committed_ino + TARNFS_INO_JUMP))
		return -EUCLEAN;
	err = tarn_op_create(tree, op, strings, root, undo);
	if (err)
		return err;
	if (!TARN_PLANTED(INO_AGAIN))
		tree->next_ino = max(tree->next_ino, op->ino + 1);
	tree->committed_ino = max(tree->committed_ino, op->ino + 1);
	return 0;
}

/* In reverse order of the operations: then every neighbour is where it was. */
static void tarn_op_undo(struct tarn_tree *tree, const struct tarn_undo *undo)
{
	struct tarn_node *node = undo->node;

	if (!node)
		return;
	tarn_node_leave(tree, node);
	if (undo->was == TARN_CREATED) {
		tarn_ino_remove(tree, node);
		if (node->extent.len)
			tarn_extent_remove(tree, &node->extent);
		/* nobody can have seen it: it came and went under the lock */
		tarn_node_free(node);
		return;
	}

	tarn_node_clear_name(node);
	node->mtime_sec = 0;
	node->mtime_nsec = 0;
	node->uid = 0;
	node->gid = 0;
	node->mode = 0;
	node->file_flags = 0;
	WRITE_ONCE(node->state, undo->was);
	if (undo->was == TARN_NODE_LIMBO) {
		node->limbo_epoch = undo->limbo_epoch;
		tree->limbo_bytes += node->extent.len;
	} else {
		node->set = undo->set;
		tree->reserved_bytes += node->extent.len;
	}
	if (undo->prev)
		list_add(&node->set_link, undo->prev);
	else
		INIT_LIST_HEAD(&node->set_link);
}

/* ---- batches ------------------------------------------------------------ */

static int tarn_apply_check(const struct tarnfs_apply *args)
{
	u32 known = TARNFS_APPLY_CHECK | TARNFS_APPLY_AT_END | TARNFS_APPLY_STAGE |
		    TARNFS_APPLY_SWITCH;
	int i;

	if (args->version != TARNFS_INTERFACE)
		return -EPROTONOSUPPORT;
	if (args->flags & ~known)
		return -EINVAL;
	for (i = 0; i < 3; i++)
		if (args->zero[i])
			return -EINVAL;
	if (!args->generation || !args->nonce || args->role > TARNFS_ROLE_MASTER ||
	    args->log_host >= TARNFS_HOSTS_MAX || args->page >= TARNFS_HOSTS_MAX)
		return -EINVAL;
	if (args->op_size != sizeof(struct tarnfs_op) || args->count > TARNFS_APPLY_MAX ||
	    args->strings_len > TARNFS_STRINGS_MAX)
		return -EINVAL;
	if (args->next_ino > TARN_INO_END)
		return -EINVAL;
	/* the operations of a stage have no seq; one past the last is where a used up log ends */
	if (args->flags & TARNFS_APPLY_STAGE)
		return args->first_seq > TARNFS_SEQ_MAX ? -EINVAL : 0;
	if (args->first_seq > TARNFS_SEQ_MAX + 1 ||
	    args->count > TARNFS_SEQ_MAX + 1 - args->first_seq)
		return -EINVAL;
	return 0;
}

/* Whether the batch continues what this tree holds. */
static int tarn_apply_accept(const struct tarn_tree *tree, const struct tarnfs_apply *args)
{
	u32 stage = args->flags & TARNFS_APPLY_STAGE;

	if (args->flags & TARNFS_APPLY_SWITCH)
		return -EOPNOTSUPP;
	if (stage) {
		if (stage != TARNFS_APPLY_STAGE || tree->generation)
			return -EOPNOTSUPP;
		if (args->flags & TARNFS_APPLY_AT_END)
			return -EUNATCH;
		return args->count ? 0 : -EINVAL;
	}
	if (!tree->generation)
		return -EUNATCH;
	if (args->generation != tree->generation || args->log_host != tree->log_host ||
	    args->first_seq != tree->seq + 1)
		return -ESTALE;
	if (tree->attached && (args->page != tree->page || args->nonce != tree->nonce))
		return -ESTALE;
	/* a takeover jumps once, and the one before it may have been ahead as far */
	if (args->next_ino > tree->committed_ino + 2 * TARNFS_INO_JUMP)
		return -EUCLEAN;
	return 0;
}

int tarn_apply(struct tarn_tree *tree, const struct tarnfs_apply *args,
	       const struct tarnfs_op *ops, const char *strings, u32 *done)
{
	const bool stage = args->flags & TARNFS_APPLY_STAGE;
	const bool check = args->flags & TARNFS_APPLY_CHECK;
	const bool at_end = args->flags & TARNFS_APPLY_AT_END;
	const u64 old_seq = tree->seq;
	const u64 old_next_ino = tree->next_ino;
	const u64 old_committed_ino = tree->committed_ino;
	struct tarn_undo *undo = NULL;
	u64 epoch = tree->epoch;
	u32 i;
	int err;

	*done = 0;
	err = tarn_apply_check(args);
	if (err)
		return err;
	err = tarn_apply_accept(tree, args);
	if (err)
		return err;
	if ((stage || check) && args->count) {
		undo = kvmalloc_array(args->count, sizeof(*undo), GFP_KERNEL);
		if (!undo)
			return -ENOMEM;
	}
	if (!stage && !check)
		tree->role = args->role;
	if (!check && at_end)
		tree->epoch++;
	if (!check)
		tree->position = 0;
	tree->next_ino = max(tree->next_ino, args->next_ino);
	tree->committed_ino = max(tree->committed_ino, args->next_ino);

	for (i = 0; i < args->count; i++) {
		err = tarn_op_apply(tree, args, &ops[i], strings, stage && !i,
				    undo ? &undo[i] : NULL);
		if (err)
			break;
		if (!stage)
			tree->seq++;
		cond_resched();
	}
	*done = i;

	if ((check && !TARN_PLANTED(CHECK_STAYS)) || (stage && err)) {
		while (i--) {
			tarn_op_undo(tree, &undo[i]);
			cond_resched();
		}
		tree->seq = old_seq;
		tree->next_ino = old_next_ino;
		tree->committed_ino = old_committed_ino;
	} else if (stage) {
		tree->generation = args->generation;
		tree->log_host = args->log_host;
		tree->seq = args->first_seq;
		tree->role = args->role;
	} else if (at_end && !err) {
		tarn_limbo_empty(tree, epoch);
		tree->page = args->page;
		tree->nonce = args->nonce;
		tree->attached = true;
	}
	if ((!check || TARN_PLANTED(CHECK_POSITION)) && !err)
		tree->position = args->position;
	kvfree(undo);
	return err;
}

/* ---- the whole ---------------------------------------------------------- */

int tarn_tree_init(struct tarn_tree *tree, u64 data_start, u64 data_end, enum tarnfs_role role)
{
	int err;

	if (data_start & (TARNFS_HUGE - 1) || data_end & (TARNFS_BLOCK - 1) ||
	    data_start > data_end || data_end > TARNFS_SIZE_MAX || role > TARNFS_ROLE_MASTER)
		return -EINVAL;

	memset(tree, 0, sizeof(*tree));
	tree->bad = kvmalloc_array(1, sizeof(*tree->bad), GFP_KERNEL);
	if (!tree->bad)
		return -ENOMEM;
	tree->bad->count = 0;
	err = rhashtable_init(&tree->by_ino, &tarn_ino_params);
	if (err)
		goto out_bad;
	err = rhashtable_init(&tree->by_name, &tarn_name_params);
	if (err)
		goto out_ino;
	tree->data_start = data_start;
	tree->data_end = data_end;
	tree->extents = RB_ROOT;
	tree->end.off = data_end;
	tree->end.gap = data_end - data_start;
	rb_link_node(&tree->end.rb, NULL, &tree->extents.rb_node);
	tarn_extent_maxima(&tree->end, &tree->end.max_gap, &tree->end.max_huge,
			   &tree->end.max_small);
	rb_insert_augmented(&tree->end.rb, &tree->extents, &tarn_extent_callbacks);
	INIT_LIST_HEAD(&tree->limbo);
	tree->next_ino = TARNFS_INO_FIRST;
	tree->committed_ino = TARNFS_INO_FIRST;
	tree->page = TARN_NO_PAGE;
	tree->role = role;
	tree->free_bytes = data_end - data_start;
	return 0;

out_ino:
	rhashtable_destroy(&tree->by_ino);
out_bad:
	kvfree(tree->bad);
	return -ENOMEM;
}

static void tarn_node_destroy(void *ptr, void *arg)
{
	struct tarn_node *node = ptr;

	WARN_ON_ONCE(node->users);
	/* a path walk under RCU may still look at it, umount or not */
	call_rcu(&node->rcu, tarn_node_free_rcu);
}

void tarn_tree_destroy(struct tarn_tree *tree)
{
	/* by_name first: its resizing worker reads nodes, and is stopped here */
	rhashtable_destroy(&tree->by_name);
	rhashtable_free_and_destroy(&tree->by_ino, tarn_node_destroy, NULL);
	kvfree(tree->bad);
	tree->bad = NULL;
	tree->root = NULL;
	tree->extents = RB_ROOT;
	INIT_LIST_HEAD(&tree->limbo);
}

static bool tarn_does_not_hold(const char **why, const char *what)
{
	*why = what;
	return true;
}

#define TARN_BROKEN(cond)	(!(cond) && tarn_does_not_hold(why, "does not hold: " #cond))

static int tarn_verify_extents(struct tarn_tree *tree, u64 *reserved_nodes, u64 *live_extents,
			       const char **why)
{
	u64 end = tree->data_start, used = 0, reserved = 0, limbo = 0, bad = 0;
	struct rb_node *rb;

	for (rb = rb_first(&tree->extents); rb; rb = rb_next(rb)) {
		const struct tarn_extent *ext = tarn_extent_of(rb);
		const struct tarn_node *node = container_of(ext, struct tarn_node, extent);
		u64 gap, huge, small;

		if (TARN_BROKEN(ext->off >= end) ||
		    TARN_BROKEN(ext->gap == ext->off - end))
			return -EUCLEAN;
		bad += tarn_bad_bytes(tree->bad, end, ext->gap);
		tarn_extent_maxima(ext, &gap, &huge, &small);
		if (TARN_BROKEN(ext->max_gap == gap) ||
		    TARN_BROKEN(ext->max_huge == huge) ||
		    TARN_BROKEN(ext->max_small == small))
			return -EUCLEAN;
		if (ext == &tree->end) {
			if (TARN_BROKEN(ext->off == tree->data_end && !ext->len) ||
			    TARN_BROKEN(!rb_next(rb)))
				return -EUCLEAN;
			break;
		}
		if (TARN_BROKEN(ext->len && !(ext->len & (TARNFS_BLOCK - 1))) ||
		    TARN_BROKEN(!(ext->off & (TARNFS_BLOCK - 1))) ||
		    TARN_BROKEN(node->type == TARNFS_TYPE_FILE) ||
		    TARN_BROKEN(node->size) ||
		    TARN_BROKEN(ext->len == round_up(node->size, (u64)TARNFS_BLOCK)) ||
		    TARN_BROKEN(node->size < TARNFS_HUGE || !(ext->off & (TARNFS_HUGE - 1))) ||
		    TARN_BROKEN(tarn_node_at(tree, ext->off) == node) ||
		    TARN_BROKEN(tarn_node_at(tree, ext->off + ext->len - 1) == node) ||
		    TARN_BROKEN((tarn_find(tree, node->ino) == node) ==
				(node->state != TARN_NODE_DEAD)))
			return -EUCLEAN;
		switch (node->state) {
		case TARN_NODE_RESERVED:
			if (TARN_BROKEN(node->flags & TARN_NODE_MADE_HERE) ||
			    TARN_BROKEN(node->set || node->users) ||
			    TARN_BROKEN(list_empty(&node->set_link) == !node->set) ||
			    TARN_BROKEN(!node->name_len && node->name == node->inline_name) ||
			    TARN_BROKEN(!node->parent && node->ino < tree->next_ino))
				return -EUCLEAN;
			reserved += ext->len;
			++*reserved_nodes;
			break;
		case TARN_NODE_LIMBO:
			limbo += ext->len;
			break;
		case TARN_NODE_LIVE:
			++*live_extents;
			break;
		default:
			if (TARN_BROKEN(node->users))
				return -EUCLEAN;
		}
		used += ext->len;
		end = tarn_extent_end(ext);
	}
	if (TARN_BROKEN(rb == &tree->end.rb) ||
	    TARN_BROKEN(tree->bad_free_bytes == bad) ||
	    TARN_BROKEN(tree->free_bytes == tree->data_end - tree->data_start - used - bad) ||
	    TARN_BROKEN(tree->reserved_bytes == reserved) ||
	    TARN_BROKEN(tree->limbo_bytes == limbo))
		return -EUCLEAN;
	return 0;
}

static int tarn_verify_bad(const struct tarn_bad *bad, const char **why)
{
	u32 i;

	if (TARN_BROKEN(bad->count <= TARN_BAD_MAX))
		return -EUCLEAN;
	for (i = 0; i < bad->count; i++) {
		const struct tarnfs_range *range = &bad->range[i];

		if (TARN_BROKEN(range->len) ||
		    TARN_BROKEN(!((range->off | range->len) & (TARNFS_BLOCK - 1))) ||
		    TARN_BROKEN(!i || tarn_range_end(&bad->range[i - 1]) < range->off))
			return -EUCLEAN;
	}
	return 0;
}

static int tarn_verify_limbo(struct tarn_tree *tree, u64 *nodes, const char **why)
{
	const struct tarn_node *node;
	u64 epoch = 0, bytes = 0;

	list_for_each_entry(node, &tree->limbo, set_link) {
		if (TARN_BROKEN(node->state == TARN_NODE_LIMBO) ||
		    TARN_BROKEN(node->limbo_epoch >= epoch && node->limbo_epoch <= tree->epoch))
			return -EUCLEAN;
		epoch = node->limbo_epoch;
		if (TARN_BROKEN(tarn_find(tree, node->ino) == node) ||
		    TARN_BROKEN(!node->name_len && !node->parent && node->extent.len))
			return -EUCLEAN;
		bytes += node->extent.len;
		++*nodes;
	}
	if (TARN_BROKEN(bytes == tree->limbo_bytes))
		return -EUCLEAN;
	return 0;
}

static int tarn_verify_node(struct tarn_tree *tree, const struct tarn_node *node,
			    const struct tarn_node *parent, const char **why)
{
	if (TARN_BROKEN(node->state == TARN_NODE_LIVE) ||
	    TARN_BROKEN(node->parent == parent) ||
	    TARN_BROKEN(tarn_find(tree, node->ino) == node) ||
	    TARN_BROKEN(node->name[node->name_len] == '\0') ||
	    TARN_BROKEN(node->ino < tree->committed_ino && node->ino < tree->next_ino))
		return -EUCLEAN;
	if (node != parent) {
		if (TARN_BROKEN(!tarn_name_check(node->name, node->name_len)) ||
		    TARN_BROKEN(tarn_lookup(tree, parent, node->name, node->name_len) == node))
			return -EUCLEAN;
	}
	switch (node->type) {
	case TARNFS_TYPE_DIRECTORY:
		if (TARN_BROKEN(!node->size && !node->extent.len))
			return -EUCLEAN;
		break;
	case TARNFS_TYPE_FILE:
		if (TARN_BROKEN(!node->set) ||
		    TARN_BROKEN(!node->size == !node->extent.len))
			return -EUCLEAN;
		break;
	case TARNFS_TYPE_SYMLINK:
		if (TARN_BROKEN(node->size && node->target && strlen(node->target) == node->size) ||
		    TARN_BROKEN(!node->extent.len))
			return -EUCLEAN;
		break;
	default:
		if (TARN_BROKEN(false))
			return -EUCLEAN;
	}
	return 0;
}

/* What was counted of a directory's children against what the directory says. */
struct tarn_verify_dir {
	u64 children;
	u64 subdirs;
};

static int tarn_verify_children(struct tarn_tree *tree, const struct tarn_node *dir, u64 *nodes,
				u64 *live_extents, u64 *type_count, const char **why)
{
	struct tarn_verify_dir seen = { 0 };
	struct rb_node *rb;
	u64 last = 0;
	int err;

	for (rb = rb_first(&dir->children); rb; rb = rb_next(rb)) {
		const struct tarn_node *node = rb_entry(rb, struct tarn_node, dir_rb);

		if (TARN_BROKEN(node->ino > last))
			return -EUCLEAN;
		last = node->ino;
		err = tarn_verify_node(tree, node, dir, why);
		if (err)
			return err;
		seen.children++;
		seen.subdirs += node->type == TARNFS_TYPE_DIRECTORY;
		type_count[node->type]++;
		*live_extents += !!node->extent.len;
		++*nodes;
	}
	if (TARN_BROKEN(dir->nr_children == seen.children) ||
	    TARN_BROKEN(dir->nr_subdirs == seen.subdirs))
		return -EUCLEAN;
	return 0;
}

/* The next directory, parents first, with no recursion: trees may be deep. */
static const struct tarn_node *tarn_verify_next_dir(const struct tarn_node *dir)
{
	const struct rb_node *rb = rb_first(&dir->children);

	for (;;) {
		for (; rb; rb = rb_next(rb)) {
			const struct tarn_node *node = rb_entry(rb, struct tarn_node, dir_rb);

			if (node->type == TARNFS_TYPE_DIRECTORY)
				return node;
		}
		if (dir == dir->parent)
			return NULL;
		rb = rb_next(&dir->dir_rb);
		dir = dir->parent;
	}
}

int tarn_tree_verify(struct tarn_tree *tree, const char **why)
{
	u64 reserved = 0, limbo = 0, live = 0, extents = 0, walked = 0;
	u64 type_count[TARNFS_TYPE_SYMLINK + 1] = { 0 };
	const struct tarn_node *dir;
	int err;

	err = tarn_verify_bad(tree->bad, why);
	if (err)
		return err;
	err = tarn_verify_extents(tree, &reserved, &extents, why);
	if (err)
		return err;
	err = tarn_verify_limbo(tree, &limbo, why);
	if (err)
		return err;

	if (TARN_BROKEN(!tree->root == !tree->generation) ||
	    TARN_BROKEN(!tree->attached || tree->root) ||
	    TARN_BROKEN(!tree->attached == !tree->nonce) ||
	    TARN_BROKEN(tree->committed_ino <= tree->next_ino))
		return -EUCLEAN;
	if (tree->root) {
		if (TARN_BROKEN(tree->root->ino == TARNFS_INO_ROOT && !tree->root->name_len) ||
		    TARN_BROKEN(tree->root->type == TARNFS_TYPE_DIRECTORY))
			return -EUCLEAN;
		err = tarn_verify_node(tree, tree->root, tree->root, why);
		if (err)
			return err;
		live = 1;
		type_count[TARNFS_TYPE_DIRECTORY] = 1;
	}
	for (dir = tree->root; dir; dir = tarn_verify_next_dir(dir)) {
		err = tarn_verify_children(tree, dir, &live, &walked, type_count, why);
		if (err)
			return err;
		if (TARN_BROKEN(live <= (u64)atomic_read(&tree->by_ino.nelems)))
			return -EUCLEAN;
	}
	if (TARN_BROKEN(walked == extents) ||
	    TARN_BROKEN(tree->directories == type_count[TARNFS_TYPE_DIRECTORY]) ||
	    TARN_BROKEN(tree->files == type_count[TARNFS_TYPE_FILE]) ||
	    TARN_BROKEN(tree->symlinks == type_count[TARNFS_TYPE_SYMLINK]) ||
	    TARN_BROKEN((u64)atomic_read(&tree->by_ino.nelems) == live + reserved + limbo) ||
	    TARN_BROKEN((u64)atomic_read(&tree->by_name.nelems) == (live ? live - 1 : 0)))
		return -EUCLEAN;
	return 0;
}
