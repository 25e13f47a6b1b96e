/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the files of the module share, grouped by the file it lives in.
 *
 * The truth about names, owners and bytes is the node tree (node.h); an inode
 * is a view of a node that comes with a lookup and goes when nobody needs it.
 *
 * Lock order:
 *
 *	s_umount > apply_mutex > tree_rwsem > hash bucket
 *	tarnfs_mounts_mutex > tree_rwsem > bad_lock
 *	mmap_lock > mapping's invalidate_lock (shared) > tree_rwsem
 *	mmap_lock > mapping's invalidate_lock (shared) > use_mutex
 *	mmap_lock > mapping's invalidate_lock (shared) > i_pages
 *	mmap_lock > mapping's invalidate_lock (not in it, see tarnfs_bad_page())
 *	i_lock > reap_lock
 *
 * Who unbinds a driver has the device locked, and a mount locks it with s_umount
 * held: so what removal does, tarnfs_dax_removed(), never takes s_umount.
 *
 * Nothing under tree_rwsem copies from or to user space, drops a dentry or an
 * inode, or unmaps. Memory is allocated under it, so nothing that reclaim calls
 * may take it: an inode that is evicted leaves its user count of the node to a
 * worker, see tarnfs_put_work().
 */
#ifndef _TARNFS_H
#define _TARNFS_H

#include <linux/fs.h>
#include <linux/fs_context.h>
#include <linux/iomap.h>
#include <linux/mount.h>
#include <linux/mutex.h>
#include <linux/llist.h>
#include <linux/rwsem.h>
#include <linux/seqlock.h>
#include <linux/srcu.h>
#include <linux/workqueue.h>

#include "compat.h"
#include "backing.h"
#include "node.h"
#include "trace.h"

/* Of the meta inode: below TARNFS_INO_FIRST, so that no record can have it. */
#define TARNFS_INO_META		2

/* ---- super.c ------------------------------------------------------------ */

/* As given to mount or remount; what was not given is not in `seen`. */
struct tarnfs_options {
	unsigned int		seen;		/* bits of enum tarnfs_option */
	u8			role;		/* enum tarnfs_role */
};

/* tarnfs_sb_info.state */
#define TARNFS_SB_SHUTDOWN	0		/* the media is not ours any more: EIO, no flush */
#define TARNFS_SB_UMOUNT	1		/* the reaper takes no more inodes */
#define TARNFS_SB_TREE		2		/* tree was initialised */
#define TARNFS_SB_GONE		3		/* shut down because the device went away */
#define TARNFS_SB_BAD_FULL	4		/* it was said that tree.bad has no room left */

struct tarnfs_sb_info {
	struct super_block	*sb;
	struct tarnfs_backing	backing;
	unsigned long		state;

	/* Constant once mounted. */
	bool			meta;		/* no superblock, whole device behind OPEN_META */
	bool			coherent;
	bool			ro_only;	/* unknown ro_compat feature: never writable */
	u8			role;		/* given to mount */
	__u8			uuid[16];
	u64			data_start;
	u64			data_end;
	struct inode		*meta_inode;	/* [0, data_start), or the device */

	/*
	 * One batch at a time, together with what it changes in inodes: those
	 * are brought up to date after tree_rwsem was let go.
	 */
	struct mutex		apply_mutex;

	/* Everything in tree, and every node: see the head of this file. */
	struct rw_semaphore	tree_rwsem;
	struct tarn_tree	tree;

	/* tree.bad, which changes with tree_rwsem held and is read with this alone. */
	seqlock_t		bad_lock;

	/* Inodes without users that have DAX entries: see reaper.c. */
	spinlock_t		reap_lock;
	struct list_head	reap_list;	/* tarnfs_inode.reap_link */
	struct delayed_work	reap_work;

	/* User counts of nodes that evicted inodes had: tarnfs_put.link. */
	struct llist_head	put_list;
	struct work_struct	put_work;

	/* Failures of the device: see failure.c. */
	struct list_head	failure_link;
	atomic_t		failure_users;
	unsigned int		failure_removals;	/* tarnfs_removals when ours was opened */
	bool			failure_stopped;	/* umount: users take no inodes */
	atomic_t		leaving;	/* inodes with DAX entries on their way out */

	/* Of a character device: see super.c. */
	struct list_head	char_link;
	const struct dax_device	*char_key;	/* backing.dax, kept when that is let go */

	struct srcu_struct	io_srcu;	/* see tarnfs_io_begin() */
	struct rcu_head		rcu;
};

static inline struct tarnfs_sb_info *tarnfs_sb(const struct super_block *sb)
{
	return sb->s_fs_info;
}

static inline bool tarnfs_is_shutdown(const struct tarnfs_sb_info *sbi)
{
	return test_bit(TARNFS_SB_SHUTDOWN, &sbi->state);
}

/*
 * Between these two the bytes of the device are this host's to touch: shutdown
 * and demotion wait for the end of all that began before. So the state is
 * looked at inside, and nothing in between waits for anybody's memory.
 */
static inline int tarnfs_io_begin(struct tarnfs_sb_info *sbi)
	__acquires(&sbi->io_srcu)
{
	return srcu_read_lock(&sbi->io_srcu);
}

static inline void tarnfs_io_end(struct tarnfs_sb_info *sbi, int idx)
	__releases(&sbi->io_srcu)
{
	srcu_read_unlock(&sbi->io_srcu, idx);
}

/* ---- inode.c ------------------------------------------------------------ */

/* tarnfs_inode.flags */
#define TARNFS_INODE_IDLE	0		/* no page was pinned, and no fault since */
#define TARNFS_INODE_PINNED	1		/* the reaper found a pinned page */
#define TARNFS_INODE_LEAVING	2		/* counted in sbi->leaving */

/* One user count of a node, to be dropped where the tree's lock can be had. */
struct tarnfs_put {
	struct llist_node	link;
	struct tarn_node	*node;
};

struct tarnfs_inode {
	struct inode		vfs;

	/*
	 * NULL for the meta inode, and for the root until there is one. Else
	 * one user count of the node is ours, from instantiation to eviction.
	 */
	struct tarn_node	*node;
	struct tarnfs_put	*put;		/* for it: eviction cannot allocate */
	unsigned long		flags;

	/* Bytes of the device: constant while the inode lives. */
	u64			off;
	u64			len;

	/*
	 * Which 2 MiB chunks of the file this host may have lines of. Set with
	 * use_mutex held after the chunk was invalidated, tested without:
	 * whoever sees the bit sees the invalidation. NULL: all of them.
	 */
	unsigned long		*used;
	unsigned long		used_inline;	/* files of at most 64 chunks */
	struct mutex		use_mutex;

	struct list_head	reap_link;	/* under reap_lock; empty: not in the list */
};

static inline struct tarnfs_inode *tarnfs_i(const struct inode *inode)
{
	return container_of(inode, struct tarnfs_inode, vfs);
}

int tarnfs_inode_cache_create(void);
void tarnfs_inode_cache_destroy(void);
struct inode *tarnfs_alloc_inode(struct super_block *sb);
void tarnfs_free_inode(struct inode *inode);
void tarnfs_evict_inode(struct inode *inode);

/* Drops the user counts in put_list; flush_work() of it has all dropped that were there. */
void tarnfs_put_work(struct work_struct *work);

/*
 * The inode of a node, with a reference. Takes over the caller's user count of
 * the node, also when it fails.
 */
struct inode *tarnfs_iget(struct super_block *sb, struct tarn_node *node);
struct inode *tarnfs_iget_root(struct super_block *sb);
struct inode *tarnfs_new_meta_inode(struct super_block *sb, u64 size);

/* Gives the root inode its node once there is one. With the tree locked. */
void tarnfs_bind_root(struct tarnfs_sb_info *sbi);

/* Attributes of the node into the inode, that nobody else changes meanwhile. */
void tarnfs_inode_update(struct inode *inode);

/* The same for the inode of a reservation, when its node got a name. */
void tarnfs_inode_link(struct inode *inode);

/* Whether this host may write to the bytes of a file now. */
bool tarnfs_may_write(const struct inode *inode);

/* The errno of everything that changes a name or an attribute. */
int tarnfs_refusal(const struct super_block *sb);

int tarnfs_permission(struct mnt_idmap *idmap, struct inode *inode, int mask);
int tarnfs_getattr(struct mnt_idmap *idmap, const struct path *path, struct kstat *stat,
		   u32 request_mask, unsigned int flags);
int tarnfs_setattr(struct mnt_idmap *idmap, struct dentry *dentry, struct iattr *attr);

/* ---- dir.c -------------------------------------------------------------- */

extern const struct inode_operations tarnfs_dir_inode_operations;
extern const struct file_operations tarnfs_dir_operations;
extern const struct dentry_operations tarnfs_dentry_operations;

/* ---- file.c ------------------------------------------------------------- */

extern const struct inode_operations tarnfs_file_inode_operations;
extern const struct file_operations tarnfs_file_operations;
extern const struct file_operations tarnfs_meta_operations;
extern const struct address_space_operations tarnfs_aops;

/* A descriptor of the meta inode and what may be mapped writable through it. */
struct tarnfs_meta_file {
	u32			count;
	struct tarnfs_range	writable[TARNFS_META_RANGES];
};

/*
 * Write back and drop the lines of [off, off + len) of the device. The calling
 * thread sleeps in between; errors of single pages are passed over, since what
 * cannot be addressed has no lines either.
 */
void tarnfs_invalidate(struct tarnfs_sb_info *sbi, u64 ino, u64 off, u64 len,
		       enum tarnfs_reason reason);

/* What mappings dirtied in [start, end] of the file (both included) into memory. */
int tarnfs_writeback(struct inode *inode, loff_t start, loff_t end, enum tarnfs_reason reason);

/* ---- apply.c ------------------------------------------------------------ */

long tarnfs_ioctl(struct file *file, unsigned int cmd, unsigned long arg);

/* ---- reaper.c ----------------------------------------------------------- */

int tarnfs_drop_inode(struct inode *inode);
void tarnfs_reap_work(struct work_struct *work);
void tarnfs_reap_forget(struct inode *inode);

/* The DAX entries of an inode on its way out are gone. */
void tarnfs_left(struct inode *inode);

/* Sleep until no page of the mapping is pinned: at umount only. */
void tarnfs_wait_for_pins(struct inode *inode);

/* ---- failure.c ---------------------------------------------------------- */

/* For backings whose device takes a holder: notify_failure is tarnfs_dax_failure(). */
extern const struct dax_holder_operations tarnfs_holder_operations;

/*
 * Between add and remove, failures of backing.dax find this mount. It is looked
 * up in a list of our own: the holder that the dax device knows is not safe to
 * use while it is being put.
 *
 * begin comes before the device is opened, so that add notices a removal that
 * found no mount yet: -ENODEV. stop, before inodes are evicted at umount, waits
 * for who uses some because of a failure, and lets nobody begin. remove comes
 * when nothing touches the device any more. Both may be called twice, and
 * without an add.
 */
void tarnfs_failure_begin(struct tarnfs_sb_info *sbi);
int tarnfs_failure_add(struct tarnfs_sb_info *sbi);
void tarnfs_failure_stop(struct tarnfs_sb_info *sbi);
void tarnfs_failure_remove(struct tarnfs_sb_info *sbi);

/*
 * Bad memory that is known to the driver, or was found by an earlier mount:
 * called once a failure finds the mount. May sleep. -EINTR.
 */
int tarnfs_bad_scan(struct tarnfs_sb_info *sbi);

/* How many of the len bytes of the device from off are good before the first bad one. */
u64 tarnfs_good_bytes(struct tarnfs_sb_info *sbi, u64 off, u64 len);

/*
 * The page at off of the device could not be addressed or zeroed. True when
 * that is because its memory is bad, which is remembered then. Takes tree_rwsem,
 * and the invalidate_lock of any mapping; not within tarnfs_io_begin().
 */
bool tarnfs_bad_page(struct tarnfs_sb_info *sbi, u64 off);

/* All bad ranges known: a copy to be kvfree'd, *count of them. */
struct tarnfs_range *tarnfs_bad_list(struct tarnfs_sb_info *sbi, u32 *count);

/*
 * [off, off + len) of the dax device is bad. As a pgmap's ->memory_failure: 0
 * when users were killed and the range is remembered, -EOPNOTSUPP when nothing
 * of ours is on those bytes, so that the kernel goes its generic way. After 0
 * the kernel may have no mapping of the page, so nothing here touches it. A notice
 * of removal (MF_MEM_PRE_REMOVE, or the whole range of a kernel before 6.7) is
 * tarnfs_dax_removed().
 */
int tarnfs_dax_failure(struct dax_device *dax, u64 off, u64 len, int mf_flags);

/*
 * The device goes away: when this returns no mount touches its memory, nothing
 * is mapped, no page is pinned, no mapping has an entry. Sleeps for as long as
 * the owner of a pin likes. Nothing mounted: returns at once.
 */
void tarnfs_dax_removed(struct dax_device *dax);

/* The same for one mount: ->shutdown() of a block device that was taken away. */
void tarnfs_gone(struct super_block *sb);

void tarnfs_shutdown(struct tarnfs_sb_info *sbi);

/*
 * After a change of what is allowed here: waits for what began before it, and
 * takes every mapping of every file away; faults bring them back, if allowed.
 */
void tarnfs_revoke(struct tarnfs_sb_info *sbi);

#endif /* _TARNFS_H */
