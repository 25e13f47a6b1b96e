/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The name tree and the extent map of one mount, as a pure data structure.
 *
 * node.c is everything that decides: which names exist, who owns which bytes
 * of the device, what a batch may do. It makes no VFS call, sleeps for nothing
 * but memory, and is compiled in user space too (node_port.h stands in for
 * the kernel's rbtree, rhashtable, list and kmalloc), where unit tests, the
 * simulator and the fuzzer drive the very code that ships.
 *
 * Locking is the caller's: functions marked [w] need tarn_tree.rwsem held for
 * writing, [r] at least for reading; in the kernel that is sbi->tree_rwsem.
 * No user copy, dput, iput or unmap happens under it.
 */
#ifndef _TARNFS_NODE_H
#define _TARNFS_NODE_H

#ifdef __KERNEL__
#include <linux/errno.h>
#include <linux/jhash.h>
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/rbtree_augmented.h>
#include <linux/rcupdate.h>
#include <linux/rhashtable.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/types.h>
#include "uapi/tarnfs_format.h"
#include "uapi/tarnfs_ioctl.h"
#else
#include "node_port.h"
#include "../kmod/uapi/tarnfs_format.h"
#include "../kmod/uapi/tarnfs_ioctl.h"
#endif

/* A fault that the crash explorer plants (user/lib/planted.h): never there in the kernel. */
#ifndef TARN_PLANTED
#define TARN_PLANTED(name)	(!sizeof(#name))
#endif

/*
 * An allocated range of the device. All ranges of a mount stand in one rb
 * tree ordered by off; each knows the hole before it, and its subtree's
 * largest holes, so that a fit is found and a neighbour checked in O(log n)
 * without allocating. The tree ends with a sentinel of length 0 at data_end,
 * whose gap is the hole at the end.
 */
struct tarn_extent {
	struct rb_node	rb;
	u64		off;		/* bytes of the device */
	u64		len;		/* multiple of TARNFS_BLOCK; 0 = not in the tree */
	u64		gap;		/* bytes free just before off */
	u64		max_gap;	/* in this subtree: largest gap */
	u64		max_huge;	/* ... largest gap counted from its first 2 MiB boundary */
	u64		max_small;	/* ... largest gap that has no 2 MiB block in it */
};

enum tarn_node_state {
	TARN_NODE_RESERVED,	/* handed out by RESERVE, not committed: has no name */
	TARN_NODE_LIVE,		/* a name in the tree */
	TARN_NODE_LIMBO,	/* a reservation let go: free after the next AT_END */
	TARN_NODE_DEAD,		/* left the tree, somebody still holds it */
};

#define TARN_NODE_MADE_HERE	(1U << 0)	/* reserved by this mount: no first-use invalidation */

struct tarn_set;

/*
 * A file, directory or symlink; permanent while the name lives. The VFS inode
 * comes and goes (inode->i_private points here) and counts as one user.
 */
struct tarn_node {
	u64			ino;
	u64			size;		/* file: bytes; symlink: length of target */
	struct tarn_node	*parent;	/* LIVE; the root is its own */
	struct rhash_head	ino_link;	/* tree->by_ino, in every state but DEAD */
	struct rhash_head	name_link;	/* tree->by_name, LIVE and not the root */
	union {
		struct rb_node	 dir_rb;	/* LIVE: parent->children, ordered by ino */
		struct list_head set_link;	/* RESERVED: set->members; LIMBO: tree->limbo */
		struct rcu_head	 rcu;		/* DEAD and without users */
	};
	struct tarn_extent	extent;		/* files of size > 0 */
	s64			mtime_sec;
	u32			mtime_nsec;
	u32			uid;
	u32			gid;
	u32			file_flags;	/* TARNFS_FILE_* */
	u32			users;		/* inodes and flushes in progress */
	u16			mode;		/* 07777 */
	u8			type;		/* enum tarnfs_node_type */
	u8			state;		/* enum tarn_node_state */
	u8			flags;		/* TARN_NODE_* */
	u8			name_len;
	union {
		struct rb_root	 children;	/* directory */
		char		*target;	/* symlink, NUL terminated */
		struct tarn_set	*set;		/* RESERVED; NULL once the set let go of it */
		u64		 limbo_epoch;	/* LIMBO */
	};
	u32			nr_children;	/* directory: all */
	u32			nr_subdirs;	/* directory: nlink is 2 + this */
	char			*name;		/* NUL terminated; inline_name or kmalloc'ed */
	char			inline_name[];
};

/* What one RESERVE handed out; lives as long as its descriptor. */
struct tarn_set {
	struct list_head	members;	/* nodes RESERVED and not yet committed or popped */
};

#define TARN_BAD_MAX	1024

/*
 * Bytes of the device, in its whole length, whose memory failed. In order;
 * none touches the next; multiples of TARNFS_BLOCK. When there are more than
 * fit, the two neighbours with the fewest good bytes between them become one
 * range: bad memory is never forgotten, good memory may be given up.
 */
struct tarn_bad {
	u32			count;
	struct tarnfs_range	range[TARN_BAD_MAX + 1];	/* the last while one is added */
};

struct tarn_tree {
	/* constant after tarn_tree_init() */
	u64			data_start;
	u64			data_end;
	struct tarn_bad		*bad;		/* never handed out by tarn_reserve() */

	struct rhashtable	by_ino;
	struct rhashtable	by_name;
	struct rb_root		extents;
	struct tarn_extent	end;		/* the sentinel */
	struct list_head	limbo;
	struct tarn_node	*root;		/* NULL while fresh */

	u64			generation;	/* 0 while fresh */
	u64			seq;
	u64			nonce;		/* 0 before the first AT_END */
	u64			next_ino;	/* the next RESERVE begins here */
	u64			committed_ino;	/* next_ino as the log knows it */
	u64			position;	/* the caller's note that goes with seq, 0 = none */
	u64			epoch;		/* AT_ENDs begun; stamps limbo entries */
	u16			log_host;
	u16			page;		/* 0xffff before the first AT_END */
	u8			role;		/* enum tarnfs_role */
	bool			attached;

	u64			directories;
	u64			files;
	u64			symlinks;
	u64			free_bytes;	/* bad ones not counted */
	u64			bad_free_bytes;	/* bad, and in no extent */
	u64			reserved_bytes;
	u64			limbo_bytes;
};

/*
 * data_start and data_end: multiples of TARNFS_BLOCK, data_start of 2 MiB,
 * data_start <= data_end. -EINVAL, -ENOMEM.
 */
int tarn_tree_init(struct tarn_tree *tree, u64 data_start, u64 data_end, enum tarnfs_role role);

/*
 * Frees every node in every state, after a grace period. No user may be left,
 * and nobody who holds or waits for the lock.
 */
void tarn_tree_destroy(struct tarn_tree *tree);

/* [r] The node of that number in any state but DEAD, or NULL. */
struct tarn_node *tarn_find(struct tarn_tree *tree, u64 ino);

/* [r] The LIVE child of that name, or NULL. Takes no reference: see tarn_node_get. */
struct tarn_node *tarn_lookup(struct tarn_tree *tree, const struct tarn_node *dir,
			      const char *name, size_t len);

/* [r] The child with the smallest inode number > after, or NULL: readdir. */
struct tarn_node *tarn_next_child(const struct tarn_node *dir, u64 after);

/* [r] The node (any state) whose extent covers this byte of the device, or NULL. */
struct tarn_node *tarn_node_at(struct tarn_tree *tree, u64 off);

/* The index of the first range that ends after off: bad->count if there is none. */
u32 tarn_bad_find(const struct tarn_bad *bad, u64 off);

/*
 * Adds [off, off + len), in whole blocks, len > 0. Allocates nothing, fails
 * never. The kernel reads the set without the tree's lock, so it wraps this in
 * a lock of its own; the caller then calls tarn_bad_account(). Returns the good
 * bytes that were given up because two ranges became one: len 0 when none were.
 */
struct tarnfs_range tarn_bad_insert(struct tarn_bad *bad, u64 off, u64 len);

/* [w] Counts anew what is free, after the set changed. */
void tarn_bad_account(struct tarn_tree *tree);

/* [r] Largest holes, as far as no bad page is in them; NULL pointers are allowed. */
void tarn_largest_free(const struct tarn_tree *tree, u64 *any, u64 *huge);

/*
 * Users: [w] both. The last put of a RESERVED node that its set has let go of
 * sends it to limbo; of a DEAD one frees it (after a grace period). Before a
 * put that may be the last of a node that is not LIVE the caller has written
 * back and invalidated the extent: the range may be given out again after it.
 */
void tarn_node_get(struct tarn_node *node);
void tarn_node_put(struct tarn_tree *tree, struct tarn_node *node);

void tarn_set_init(struct tarn_set *set);

/*
 * [w] Reserve for all items or none. Fills ino, off and len. Checks role,
 * attached, types, flags, alignment, sizes. Places files below 2 MiB first
 * fit from the low end into holes without a 2 MiB block, then into the lowest
 * hole that fits; those of 2 MiB and more (or align HUGE) at the lowest 2 MiB
 * boundary that fits. Items with no extent (directory, symlink, size 0) cost a
 * number and no node. -EROFS, -EUNATCH, -ENOSPC (*failed), -EAGAIN, -EINVAL
 * (*failed), -ENOMEM.
 */
int tarn_reserve(struct tarn_tree *tree, struct tarn_set *set,
		 struct tarnfs_reserve_item *items, u32 count, u32 *failed);

/* [r] The RESERVED member of that inode number, or NULL. */
struct tarn_node *tarn_set_member(struct tarn_tree *tree, const struct tarn_set *set, u64 ino);

/*
 * [w] Take one member out of the set with a user count of the caller's, or
 * NULL if none is left. The caller flushes its extent without the lock, then
 * puts it. An APPLY may commit it in between: then put finds it LIVE.
 */
struct tarn_node *tarn_set_pop(struct tarn_set *set);

/*
 * [w] The APPLY of tarnfs_ioctl.h, all rules and errors as documented there.
 * `args` is the caller's structure (pointers in it unused; version, op_size
 * and limits are checked here too). *done counts the operations done (with
 * CHECK, and in a stage that is refused: those found good). CHECK does the
 * batch and takes it back: who looks at a node without the lock may see it
 * LIVE and named for a moment. Nothing but memory is allocated, nothing sleeps
 * but that.
 */
int tarn_apply(struct tarn_tree *tree, const struct tarnfs_apply *args,
	       const struct tarnfs_op *ops, const char *strings, u32 *done);

/*
 * [r] Walks everything and checks every rule the structure lives by (order,
 * gaps, subtree maxima, counters, hashes, parents). 0 or -EUCLEAN, with a
 * sentence at *why. For tests and the fuzzer.
 */
int tarn_tree_verify(struct tarn_tree *tree, const char **why);

#endif /* _TARNFS_NODE_H */
