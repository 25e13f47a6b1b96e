// SPDX-License-Identifier: GPL-2.0-only
/* The stand-ins that the tests of node.c rest on: tree and hash against plain arrays. */
#include "node_help.h"

#define ITEMS	600

struct item {
	struct rb_node		rb;
	u64			key;
	u64			weight;
	u64			max;	/* weight, in this subtree */
	struct rhash_head	link;
	bool			in;
};

static struct item *item_of(const struct rb_node *rb)
{
	return rb_entry(rb, struct item, rb);
}

static u64 item_max(const struct item *item)
{
	u64 m = item->weight;

	if (item->rb.rb_left)
		m = max(m, item_of(item->rb.rb_left)->max);
	if (item->rb.rb_right)
		m = max(m, item_of(item->rb.rb_right)->max);
	return m;
}

static void propagate(struct rb_node *rb, struct rb_node *stop)
{
	for (; rb != stop; rb = rb_parent(rb)) {
		struct item *item = item_of(rb);
		u64 m = item_max(item);

		/* the callers' shortcut: nothing changes above either */
		if (m == item->max)
			break;
		item->max = m;
	}
}

static void copy(struct rb_node *old, struct rb_node *new_node)
{
	item_of(new_node)->max = item_of(old)->max;
}

static void rotate(struct rb_node *old, struct rb_node *new_node)
{
	copy(old, new_node);
	item_of(old)->max = item_max(item_of(old));
}

static const struct rb_augment_callbacks callbacks = {
	.propagate = propagate, .copy = copy, .rotate = rotate,
};

static void insert(struct rb_root *root, struct item *item)
{
	struct rb_node **link = &root->rb_node, *parent = NULL;

	while (*link) {
		parent = *link;
		link = item->key < item_of(parent)->key ? &parent->rb_left : &parent->rb_right;
	}
	rb_link_node(&item->rb, parent, link);
	item->max = item->weight;
	propagate(parent, NULL);
	rb_insert_augmented(&item->rb, root, &callbacks);
}

/* After every step: order, colors, and each subtree's maximum are right. */
static void test_rbtree(void **state)
{
	static struct item items[ITEMS];
	struct rb_root root = RB_ROOT;
	struct rb_node *rb;
	int step, i, n = 0;

	(void)state;
	srand(1);
	for (i = 0; i < ITEMS; i++)
		items[i].key = i;
	for (step = 0; step < 20000; step++) {
		struct item *item = &items[rand() % ITEMS];

		if (item->in) {
			rb_erase_augmented(&item->rb, &root, &callbacks);
			n--;
		} else {
			item->weight = rand() % 1000;
			insert(&root, item);
			n++;
		}
		item->in = !item->in;
		assert_true(node_port_rb_valid(&root));
		i = 0;
		for (rb = rb_first(&root); rb; rb = rb_next(rb)) {
			while (i < ITEMS && !items[i].in)
				i++;
			assert_ptr_equal(item_of(rb), &items[i]);
			assert_int_equal(item_of(rb)->max, item_max(item_of(rb)));
			assert_true(!rb_prev(rb) || rb_next(rb_prev(rb)) == rb);
			i++;
		}
		while (i < ITEMS && !items[i].in)
			i++;
		assert_int_equal(i, ITEMS);
	}
	assert_true(n > 0);
}

static const struct rhashtable_params params = {
	.key_len = sizeof(u64),
	.key_offset = offsetof(struct item, key),
	.head_offset = offsetof(struct item, link),
};

/* What is in is found, what is not in is not; a fault is reported and changes nothing. */
static void test_hash(void **state)
{
	static struct item items[ITEMS];
	struct rhashtable ht;
	int step, i;

	(void)state;
	srand(2);
	assert_int_equal(rhashtable_init(&ht, &params), 0);
	for (i = 0; i < ITEMS; i++)
		items[i].key = i * 0x100000001ULL;
	for (step = 0; step < 20000; step++) {
		struct item *item = &items[rand() % ITEMS];

		assert_ptr_equal(rhashtable_lookup_fast(&ht, &item->key, params),
				 item->in ? item : NULL);
		if (item->in) {
			assert_int_equal(rhashtable_remove_fast(&ht, &item->link, params), 0);
		} else {
			node_port_fail_at = 1;
			assert_true(rhashtable_insert_fast(&ht, &item->link, params) < 0);
			assert_null(rhashtable_lookup_fast(&ht, &item->key, params));
			assert_int_equal(rhashtable_insert_fast(&ht, &item->link, params), 0);
		}
		item->in = !item->in;
	}
	rhashtable_destroy(&ht);
	assert_int_equal(node_port_allocated, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rbtree),
		cmocka_unit_test(test_hash),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
