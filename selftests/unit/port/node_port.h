/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What kmod/node.c uses of the kernel, for user space: integers, list, red-black
 * tree, resizable hash, memory, RCU. Same names and same rules as there, made for
 * tests: memory and hash inserts fail on demand, what the kernel warns about aborts,
 * and what waits for a grace period is freed at once, so that the address sanitizer
 * sees every use after it. One thread only.
 */
#ifndef _TARNFS_NODE_PORT_H
#define _TARNFS_NODE_PORT_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <linux/types.h>

#include "../../../user/lib/planted.h"

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s64 s64;

#define container_of(ptr, type, member) \
	((type *)((uintptr_t)(ptr) - offsetof(type, member)))

#define max(a, b)			\
	__extension__({			\
		__typeof__(a) _a = (a);	\
		__typeof__(b) _b = (b);	\
		_a > _b ? _a : _b;	\
	})

#define min(a, b)			\
	__extension__({			\
		__typeof__(a) _a = (a);	\
		__typeof__(b) _b = (b);	\
		_a < _b ? _a : _b;	\
	})

/* y: a power of two */
#define round_up(x, y)	(((x) + ((y) - 1)) & ~((__typeof__(x))(y) - 1))

#define cond_resched()	do { } while (0)
#define READ_ONCE(x)	(x)
#define WRITE_ONCE(x, value)	((x) = (value))

bool node_port_warn(bool cond, const char *what, const char *file, int line);
#define WARN_ON_ONCE(cond)	node_port_warn(cond, #cond, __FILE__, __LINE__)

typedef struct {
	int counter;
} atomic_t;

static inline int atomic_read(const atomic_t *v)
{
	return v->counter;
}

/* ---- faults ------------------------------------------------------------- */

/*
 * Counts down at every allocation and every hash insert; the one that takes it
 * to 0 fails. 0 = none fails.
 */
extern unsigned long node_port_fail_at;

/* Pieces of memory not given back. */
extern unsigned long node_port_allocated;

/* ---- memory ------------------------------------------------------------- */

typedef unsigned int gfp_t;
#define GFP_KERNEL	1u

void *node_port_alloc(size_t n, size_t size, bool zero);
void kfree(const void *ptr);

static inline void *kmalloc(size_t size, gfp_t gfp)
{
	(void)gfp;
	return node_port_alloc(1, size, false);
}

static inline void *kzalloc(size_t size, gfp_t gfp)
{
	(void)gfp;
	return node_port_alloc(1, size, true);
}

static inline void *kvmalloc_array(size_t n, size_t size, gfp_t gfp)
{
	(void)gfp;
	return node_port_alloc(n, size, false);
}

static inline void kvfree(const void *ptr)
{
	kfree(ptr);
}

/* ---- RCU ---------------------------------------------------------------- */

struct rcu_head {
	struct rcu_head *next;
	void (*func)(struct rcu_head *head);
};

static inline void call_rcu(struct rcu_head *head, void (*func)(struct rcu_head *head))
{
	func(head);
}

/* ---- doubly linked list ------------------------------------------------- */

struct list_head {
	struct list_head *next, *prev;
};

static inline void INIT_LIST_HEAD(struct list_head *list)
{
	list->next = list;
	list->prev = list;
}

static inline bool list_empty(const struct list_head *head)
{
	return head->next == head;
}

/* After `where`. */
static inline void list_add(struct list_head *entry, struct list_head *where)
{
	entry->prev = where;
	entry->next = where->next;
	where->next->prev = entry;
	where->next = entry;
}

static inline void list_add_tail(struct list_head *entry, struct list_head *head)
{
	list_add(entry, head->prev);
}

static inline void list_del_init(struct list_head *entry)
{
	entry->next->prev = entry->prev;
	entry->prev->next = entry->next;
	INIT_LIST_HEAD(entry);
}

static inline void list_del(struct list_head *entry)
{
	list_del_init(entry);
	entry->next = NULL;
	entry->prev = NULL;
}

#define list_entry(ptr, type, member)		container_of(ptr, type, member)
#define list_last_entry(head, type, member)	list_entry((head)->prev, type, member)
#define list_first_entry_or_null(head, type, member) \
	(list_empty(head) ? NULL : list_entry((head)->next, type, member))
#define list_for_each_entry(pos, head, member)				\
	for (pos = list_entry((head)->next, __typeof__(*pos), member);	\
	     &pos->member != (head);					\
	     pos = list_entry(pos->member.next, __typeof__(*pos), member))
#define list_for_each_entry_safe(pos, n, head, member)			\
	for (pos = list_entry((head)->next, __typeof__(*pos), member),	\
	     n = list_entry(pos->member.next, __typeof__(*pos), member); \
	     &pos->member != (head);					\
	     pos = n, n = list_entry(n->member.next, __typeof__(*n), member))

/* ---- red-black tree ----------------------------------------------------- */

struct rb_node {
	uintptr_t	parent_color;	/* parent, and bit 0: black */
	struct rb_node	*rb_right;
	struct rb_node	*rb_left;
};

struct rb_root {
	struct rb_node *rb_node;
};

#define RB_ROOT			((struct rb_root){ NULL })
#define RB_EMPTY_ROOT(root)	(!(root)->rb_node)
#define RB_CLEAR_NODE(node)	((node)->parent_color = (uintptr_t)(node))
#define rb_entry(ptr, type, member)	container_of(ptr, type, member)
#define rb_parent(rb)		((struct rb_node *)((rb)->parent_color & ~(uintptr_t)1))

/* The duties of the caller and of each callback are those of linux/rbtree_augmented.h. */
struct rb_augment_callbacks {
	void (*propagate)(struct rb_node *node, struct rb_node *stop);
	void (*copy)(struct rb_node *old, struct rb_node *new_node);
	void (*rotate)(struct rb_node *old, struct rb_node *new_node);
};

static inline void rb_link_node(struct rb_node *node, struct rb_node *parent,
				struct rb_node **link)
{
	node->parent_color = (uintptr_t)parent;
	node->rb_left = NULL;
	node->rb_right = NULL;
	*link = node;
}

struct rb_node *rb_first(const struct rb_root *root);
struct rb_node *rb_next(const struct rb_node *node);
struct rb_node *rb_prev(const struct rb_node *node);
void rb_insert_augmented(struct rb_node *node, struct rb_root *root,
			 const struct rb_augment_callbacks *cb);
void rb_erase_augmented(struct rb_node *node, struct rb_root *root,
			const struct rb_augment_callbacks *cb);
void rb_insert_color(struct rb_node *node, struct rb_root *root);
void rb_erase(struct rb_node *node, struct rb_root *root);

/* False if the colors, or a parent pointer, are wrong: for the test of the port itself. */
bool node_port_rb_valid(const struct rb_root *root);

/* ---- hash --------------------------------------------------------------- */

u32 jhash(const void *key, u32 length, u32 initval);

struct rhash_head {
	struct rhash_head *next;
};

struct rhashtable;

struct rhashtable_compare_arg {
	struct rhashtable	*ht;
	const void		*key;
};

typedef u32 (*rht_hashfn_t)(const void *data, u32 len, u32 seed);
typedef u32 (*rht_obj_hashfn_t)(const void *data, u32 len, u32 seed);
typedef int (*rht_obj_cmpfn_t)(struct rhashtable_compare_arg *arg, const void *obj);

struct rhashtable_params {
	u16			nelem_hint;
	u16			key_len;
	u16			key_offset;
	u16			head_offset;
	unsigned int		max_size;
	u16			min_size;
	bool			automatic_shrinking;
	rht_hashfn_t		hashfn;
	rht_obj_hashfn_t	obj_hashfn;
	rht_obj_cmpfn_t		obj_cmpfn;
};

struct rhashtable {
	struct rhash_head	**bucket;
	size_t			buckets;	/* a power of two */
	u32			seed;
	atomic_t		nelems;
	struct rhashtable_params p;
};

int rhashtable_init(struct rhashtable *ht, const struct rhashtable_params *params);
void rhashtable_destroy(struct rhashtable *ht);
void rhashtable_free_and_destroy(struct rhashtable *ht, void (*free_fn)(void *ptr, void *arg),
				 void *arg);
void *rhashtable_lookup_fast(struct rhashtable *ht, const void *key,
			     const struct rhashtable_params params);
/* As in the kernel: looks for no duplicate, and fails with -ENOMEM, -EBUSY or -E2BIG. */
int rhashtable_insert_fast(struct rhashtable *ht, struct rhash_head *obj,
			   const struct rhashtable_params params);
int rhashtable_remove_fast(struct rhashtable *ht, struct rhash_head *obj,
			   const struct rhashtable_params params);

#endif /* _TARNFS_NODE_PORT_H */
