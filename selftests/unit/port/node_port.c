// SPDX-License-Identifier: GPL-2.0-only
/*
 * The parts of node_port.h that are more than a line: red-black tree, hash, faults.
 */
#include "node_port.h"

unsigned long node_port_fail_at;
unsigned long node_port_allocated;

bool node_port_warn(bool cond, const char *what, const char *file, int line)
{
	if (cond) {
		fprintf(stderr, "%s:%d: WARN_ON(%s)\n", file, line, what);
		abort();
	}
	return cond;
}

/* ---- faults and memory -------------------------------------------------- */

static bool fault_now(void)
{
	return node_port_fail_at && !--node_port_fail_at;
}

void *node_port_alloc(size_t n, size_t size, bool zero)
{
	void *ptr;

	if (fault_now())
		return NULL;
	if (n && size > SIZE_MAX / n)
		return NULL;
	ptr = malloc(n * size);
	if (!ptr)
		return NULL;
	/* what the kernel does not promise to be zero is not */
	memset(ptr, zero ? 0 : 0xa5, n * size);
	node_port_allocated++;
	return ptr;
}

void kfree(const void *ptr)
{
	if (!ptr)
		return;
	node_port_allocated--;
	free((void *)(uintptr_t)ptr);
}

/* ---- red-black tree ----------------------------------------------------- */

/*
 * The rules: the root is black, a red node has no red child, and all paths
 * from the root down have the same number of black nodes. A missing child
 * counts as black.
 */

enum { LEFT, RIGHT };

static bool is_red(const struct rb_node *node)
{
	return node && !(node->parent_color & 1);
}

static void set_red(struct rb_node *node)
{
	node->parent_color &= ~(uintptr_t)1;
}

static void set_black(struct rb_node *node)
{
	node->parent_color |= 1;
}

static void set_parent(struct rb_node *node, struct rb_node *parent)
{
	node->parent_color = (uintptr_t)parent | (node->parent_color & 1);
}

static struct rb_node **child_at(struct rb_node *node, int side)
{
	return side == LEFT ? &node->rb_left : &node->rb_right;
}

static int side_of(const struct rb_node *node, const struct rb_node *parent)
{
	return parent->rb_left == node ? LEFT : RIGHT;
}

/* Where the pointer to node is kept. */
static struct rb_node **place_of(struct rb_node *node, struct rb_root *root)
{
	struct rb_node *parent = rb_parent(node);

	return parent ? child_at(parent, side_of(node, parent)) : &root->rb_node;
}

static void nothing_to_propagate(struct rb_node *node, struct rb_node *stop)
{
	(void)node;
	(void)stop;
}

static void nothing_to_copy(struct rb_node *old, struct rb_node *new_node)
{
	(void)old;
	(void)new_node;
}

static const struct rb_augment_callbacks plain = {
	.propagate	= nothing_to_propagate,
	.copy		= nothing_to_copy,
	.rotate		= nothing_to_copy,
};

/* top goes down to the given side; the child on its other side takes its place. */
static void rotate(struct rb_node *top, int side, struct rb_root *root,
		   const struct rb_augment_callbacks *cb)
{
	struct rb_node **place = place_of(top, root);
	struct rb_node *up = *child_at(top, !side);
	struct rb_node *between = *child_at(up, side);

	set_parent(up, rb_parent(top));
	*place = up;
	*child_at(up, side) = top;
	set_parent(top, up);
	*child_at(top, !side) = between;
	if (between)
		set_parent(between, top);
	cb->rotate(top, up);
}

void rb_insert_augmented(struct rb_node *node, struct rb_root *root,
			 const struct rb_augment_callbacks *cb)
{
	struct rb_node *parent, *grand, *uncle;
	int side;

	set_red(node);
	while ((parent = rb_parent(node)) && is_red(parent)) {
		/* a red node is not the root */
		grand = rb_parent(parent);
		side = side_of(parent, grand);
		uncle = *child_at(grand, !side);
		if (is_red(uncle)) {
			set_black(parent);
			set_black(uncle);
			set_red(grand);
			node = grand;
			continue;
		}
		if (side_of(node, parent) != side) {
			rotate(parent, side, root, cb);
			parent = node;
		}
		set_black(parent);
		set_red(grand);
		rotate(grand, !side, root, cb);
		break;
	}
	set_black(root->rb_node);
}

/* The paths through node (which may be missing) are one black node short. */
static void refill(struct rb_node *node, struct rb_node *parent, struct rb_root *root,
		   const struct rb_augment_callbacks *cb)
{
	while (parent && !is_red(node)) {
		int side = node ? side_of(node, parent) : (parent->rb_left ? RIGHT : LEFT);
		struct rb_node *brother = *child_at(parent, !side);

		if (is_red(brother)) {
			set_black(brother);
			set_red(parent);
			rotate(parent, side, root, cb);
			brother = *child_at(parent, !side);
		}
		if (!is_red(brother->rb_left) && !is_red(brother->rb_right)) {
			set_red(brother);
			node = parent;
			parent = rb_parent(node);
			continue;
		}
		if (!is_red(*child_at(brother, !side))) {
			set_black(*child_at(brother, side));
			set_red(brother);
			rotate(brother, !side, root, cb);
			brother = *child_at(parent, !side);
		}
		if (is_red(parent))
			set_red(brother);
		else
			set_black(brother);
		set_black(parent);
		set_black(*child_at(brother, !side));
		rotate(parent, side, root, cb);
		return;
	}
	if (node)
		set_black(node);
}

void rb_erase_augmented(struct rb_node *node, struct rb_root *root,
			const struct rb_augment_callbacks *cb)
{
	struct rb_node *heir, *child, *parent;
	bool black_lost;

	if (!node->rb_left || !node->rb_right) {
		child = node->rb_left ? node->rb_left : node->rb_right;
		parent = rb_parent(node);
		black_lost = !is_red(node);
		*place_of(node, root) = child;
		if (child)
			set_parent(child, parent);
		cb->propagate(parent, NULL);
	} else {
		for (heir = node->rb_right; heir->rb_left; heir = heir->rb_left)
			;
		child = heir->rb_right;
		parent = rb_parent(heir);
		black_lost = !is_red(heir);
		if (parent == node) {
			parent = heir;
		} else {
			parent->rb_left = child;
			if (child)
				set_parent(child, parent);
			heir->rb_right = node->rb_right;
			set_parent(heir->rb_right, heir);
		}
		heir->rb_left = node->rb_left;
		set_parent(heir->rb_left, heir);
		*place_of(node, root) = heir;
		heir->parent_color = node->parent_color;
		cb->copy(node, heir);
		if (parent != heir)
			cb->propagate(parent, heir);
		cb->propagate(heir, NULL);
	}
	if (black_lost)
		refill(child, parent, root, cb);
}

void rb_insert_color(struct rb_node *node, struct rb_root *root)
{
	rb_insert_augmented(node, root, &plain);
}

void rb_erase(struct rb_node *node, struct rb_root *root)
{
	rb_erase_augmented(node, root, &plain);
}

static struct rb_node *outermost(struct rb_node *node, int side)
{
	while (node && *child_at(node, side))
		node = *child_at(node, side);
	return node;
}

static struct rb_node *step(const struct rb_node *from, int side)
{
	struct rb_node *node = (struct rb_node *)(uintptr_t)from;
	struct rb_node *parent;

	if (*child_at(node, side))
		return outermost(*child_at(node, side), !side);
	while ((parent = rb_parent(node)) && side_of(node, parent) == side)
		node = parent;
	return parent;
}

struct rb_node *rb_first(const struct rb_root *root)
{
	return outermost(root->rb_node, LEFT);
}

struct rb_node *rb_next(const struct rb_node *node)
{
	return step(node, RIGHT);
}

struct rb_node *rb_prev(const struct rb_node *node)
{
	return step(node, LEFT);
}

/* Black nodes on every path down from here, or -1. */
static int black_height(const struct rb_node *node, const struct rb_node *parent)
{
	int left, right;

	if (!node)
		return 0;
	if (rb_parent(node) != parent || (is_red(node) && (!parent || is_red(parent))))
		return -1;
	left = black_height(node->rb_left, node);
	right = black_height(node->rb_right, node);
	if (left < 0 || left != right)
		return -1;
	return left + !is_red(node);
}

bool node_port_rb_valid(const struct rb_root *root)
{
	return black_height(root->rb_node, NULL) >= 0;
}

/* ---- hash --------------------------------------------------------------- */

u32 jhash(const void *key, u32 length, u32 initval)
{
	const u8 *byte = key;
	u64 h = 0x9e3779b97f4a7c15ULL ^ initval;

	while (length--) {
		h = (h ^ *byte++) * 0x100000001b3ULL;
		h ^= h >> 29;
	}
	h *= 0xbf58476d1ce4e5b9ULL;
	return (u32)(h ^ (h >> 32));
}

#define FIRST_BUCKETS	8

static void *object(const struct rhashtable *ht, const struct rhash_head *head)
{
	return (void *)((uintptr_t)head - ht->p.head_offset);
}

static size_t bucket_of_key(const struct rhashtable *ht, const void *key)
{
	u32 hash = ht->p.hashfn ? ht->p.hashfn(key, ht->p.key_len, ht->seed) :
				  jhash(key, ht->p.key_len, ht->seed);

	return hash & (ht->buckets - 1);
}

static size_t bucket_of_object(const struct rhashtable *ht, const void *obj)
{
	if (ht->p.obj_hashfn)
		return ht->p.obj_hashfn(obj, ht->p.key_len, ht->seed) & (ht->buckets - 1);
	return bucket_of_key(ht, (const char *)obj + ht->p.key_offset);
}

int rhashtable_init(struct rhashtable *ht, const struct rhashtable_params *params)
{
	static u32 seed = 1;

	ht->p = *params;
	ht->seed = seed++ * 2654435761u;
	ht->nelems.counter = 0;
	ht->buckets = FIRST_BUCKETS;
	ht->bucket = kzalloc(ht->buckets * sizeof(*ht->bucket), GFP_KERNEL);
	return ht->bucket ? 0 : -ENOMEM;
}

void rhashtable_free_and_destroy(struct rhashtable *ht, void (*free_fn)(void *ptr, void *arg),
				 void *arg)
{
	struct rhash_head *head;
	size_t i;

	for (i = 0; i < ht->buckets && free_fn; i++) {
		while ((head = ht->bucket[i])) {
			ht->bucket[i] = head->next;
			free_fn(object(ht, head), arg);
		}
	}
	kfree(ht->bucket);
	ht->bucket = NULL;
}

void rhashtable_destroy(struct rhashtable *ht)
{
	rhashtable_free_and_destroy(ht, NULL, NULL);
}

void *rhashtable_lookup_fast(struct rhashtable *ht, const void *key,
			     const struct rhashtable_params params)
{
	struct rhashtable_compare_arg arg = { .ht = ht, .key = key };
	struct rhash_head *head;

	(void)params;
	for (head = ht->bucket[bucket_of_key(ht, key)]; head; head = head->next) {
		void *obj = object(ht, head);

		if (ht->p.obj_cmpfn ? !ht->p.obj_cmpfn(&arg, obj) :
				      !memcmp((char *)obj + ht->p.key_offset, key, ht->p.key_len))
			return obj;
	}
	return NULL;
}

/* Like the kernel's, which grows in the background, this may fail and nobody minds. */
static void grow(struct rhashtable *ht)
{
	size_t old_buckets = ht->buckets, i;
	struct rhash_head **old = ht->bucket;
	struct rhash_head **bucket = calloc(old_buckets * 2, sizeof(*bucket));
	struct rhash_head *head;

	if (!bucket)
		return;
	ht->bucket = bucket;
	ht->buckets = old_buckets * 2;
	for (i = 0; i < old_buckets; i++) {
		while ((head = old[i])) {
			size_t to = bucket_of_object(ht, object(ht, head));

			old[i] = head->next;
			head->next = bucket[to];
			bucket[to] = head;
		}
	}
	free(old);
}

int rhashtable_insert_fast(struct rhashtable *ht, struct rhash_head *obj,
			   const struct rhashtable_params params)
{
	static const int failures[] = { -ENOMEM, -EBUSY, -E2BIG };
	static unsigned int failure;
	size_t to;

	(void)params;
	if (fault_now())
		return failures[failure++ % 3];
	if ((size_t)ht->nelems.counter >= ht->buckets)
		grow(ht);
	to = bucket_of_object(ht, object(ht, obj));
	obj->next = ht->bucket[to];
	ht->bucket[to] = obj;
	ht->nelems.counter++;
	return 0;
}

int rhashtable_remove_fast(struct rhashtable *ht, struct rhash_head *obj,
			   const struct rhashtable_params params)
{
	struct rhash_head **link = &ht->bucket[bucket_of_object(ht, object(ht, obj))];

	(void)params;
	for (; *link; link = &(*link)->next) {
		if (*link == obj) {
			*link = obj->next;
			ht->nelems.counter--;
			return 0;
		}
	}
	return -ENOENT;
}
