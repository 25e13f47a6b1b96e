// SPDX-License-Identifier: GPL-2.0-only
/*
 * Nodes seen as inodes: instantiation, eviction, attributes, permission.
 */
#include <linux/capability.h>
#include <linux/pagemap.h>
#include <linux/slab.h>
#include "tarnfs.h"

static struct kmem_cache *tarnfs_inode_cache;

static void tarnfs_inode_init_once(void *object)
{
	struct tarnfs_inode *ti = object;

	inode_init_once(&ti->vfs);
	mutex_init(&ti->use_mutex);
	INIT_LIST_HEAD(&ti->reap_link);
}

int tarnfs_inode_cache_create(void)
{
	tarnfs_inode_cache = kmem_cache_create("tarnfs_inode", sizeof(struct tarnfs_inode), 0,
					       SLAB_RECLAIM_ACCOUNT | SLAB_ACCOUNT,
					       tarnfs_inode_init_once);
	return tarnfs_inode_cache ? 0 : -ENOMEM;
}

void tarnfs_inode_cache_destroy(void)
{
	kmem_cache_destroy(tarnfs_inode_cache);
}

struct inode *tarnfs_alloc_inode(struct super_block *sb)
{
	struct tarnfs_inode *ti = alloc_inode_sb(sb, tarnfs_inode_cache, GFP_KERNEL);

	if (!ti)
		return NULL;
	ti->node = NULL;
	ti->put = NULL;
	ti->flags = 0;
	ti->off = 0;
	ti->len = 0;
	ti->used = NULL;
	ti->used_inline = 0;
	return &ti->vfs;
}

void tarnfs_free_inode(struct inode *inode)
{
	struct tarnfs_inode *ti = tarnfs_i(inode);

	if (ti->used != &ti->used_inline)
		kvfree(ti->used);
	kfree(ti->put);
	kmem_cache_free(tarnfs_inode_cache, ti);
}

static void tarnfs_node_put(struct tarnfs_sb_info *sbi, struct tarn_node *node)
{
	down_write(&sbi->tree_rwsem);
	tarn_node_put(&sbi->tree, node);
	up_write(&sbi->tree_rwsem);
}

/*
 * Whether a range may be somebody else's after our put. A reservation still in
 * its set is not let go of: who closes the set invalidates it.
 */
static bool tarnfs_node_is_last_use(struct tarnfs_sb_info *sbi, const struct tarn_node *node)
{
	bool last;

	down_read(&sbi->tree_rwsem);
	last = node->state == TARN_NODE_DEAD || node->state == TARN_NODE_LIMBO ||
	       (node->state == TARN_NODE_RESERVED && !node->set);
	up_read(&sbi->tree_rwsem);
	return last;
}

void tarnfs_evict_inode(struct inode *inode)
{
	struct tarnfs_sb_info *sbi = tarnfs_sb(inode->i_sb);
	struct tarnfs_inode *ti = tarnfs_i(inode);
	struct tarn_node *node = ti->node;

	tarnfs_reap_forget(inode);
	if (!mapping_empty(&inode->i_data)) {
		/* Does not wait but at umount: see tarnfs_drop_inode(). */
		tarnfs_wait_for_pins(inode);
		if (node)
			tarnfs_writeback(inode, 0, LLONG_MAX, TARNFS_EVICT);
	}
	tarnfs_truncate_final(inode);
	tarnfs_left(inode);
	clear_inode(inode);
	if (!node)
		return;

	if (S_ISREG(inode->i_mode))
		pmem_wmb();		/* write(2) leaves its stores under way */
	ti->node = NULL;
	ti->put->node = node;
	if (llist_add(&ti->put->link, &sbi->put_list))
		queue_work(system_unbound_wq, &sbi->put_work);
	ti->put = NULL;
}

/*
 * Eviction is part of memory reclaim, and whoever holds the tree's lock may be
 * waiting for memory: so it is here that the lock is taken.
 */
void tarnfs_put_work(struct work_struct *work)
{
	struct tarnfs_sb_info *sbi = container_of(work, struct tarnfs_sb_info, put_work);
	struct llist_node *list = llist_del_all(&sbi->put_list);
	struct tarnfs_put *put, *next;

	llist_for_each_entry_safe(put, next, list, link) {
		struct tarn_node *node = put->node;

		if (node->extent.len && tarnfs_node_is_last_use(sbi, node))
			tarnfs_invalidate(sbi, node->ino, node->extent.off, node->extent.len,
					  TARNFS_LAST_USE);
		tarnfs_node_put(sbi, node);
		kfree(put);
		cond_resched();
	}
}

static umode_t tarnfs_node_mode(const struct tarn_node *node)
{
	switch (node->type) {
	case TARNFS_TYPE_DIRECTORY:
		return S_IFDIR | node->mode;
	case TARNFS_TYPE_SYMLINK:
		return S_IFLNK | 0777;
	default:
		/* What is not committed has no owner yet but the one who makes it. */
		if (node->state != TARN_NODE_LIVE)
			return S_IFREG | 0600;
		return S_IFREG | node->mode;
	}
}

void tarnfs_inode_update(struct inode *inode)
{
	struct tarnfs_sb_info *sbi = tarnfs_sb(inode->i_sb);
	const struct tarn_node *node = tarnfs_i(inode)->node;
	struct timespec64 mtime;

	down_read(&sbi->tree_rwsem);
	inode->i_mode = tarnfs_node_mode(node);
	inode->i_flags &= ~S_NOSEC;	/* the mode may have got a set-uid bit */
	i_uid_write(inode, node->uid);
	i_gid_write(inode, node->gid);
	mtime.tv_sec = node->mtime_sec;
	mtime.tv_nsec = node->mtime_nsec;
	tarnfs_set_times(inode, mtime);
	if (node->type == TARNFS_TYPE_DIRECTORY)
		set_nlink(inode, 2 + node->nr_subdirs);
	else if (node->state == TARN_NODE_LIVE)
		set_nlink(inode, 1);
	else
		clear_nlink(inode);
	up_read(&sbi->tree_rwsem);
}

void tarnfs_inode_link(struct inode *inode)
{
	if (inode->i_nlink)
		return;
	inode_lock_nested(inode, I_MUTEX_CHILD);
	tarnfs_inode_update(inode);
	inode_unlock(inode);
}

static const struct inode_operations tarnfs_symlink_inode_operations = {
	.get_link	= simple_get_link,
	.permission	= tarnfs_permission,
	.getattr	= tarnfs_getattr,
	.setattr	= tarnfs_setattr,
};

/* Only user space does cache operations on metadata, and none is due on a file made here. */
static int tarnfs_inode_init_used(struct inode *inode)
{
	struct tarnfs_inode *ti = tarnfs_i(inode);
	u64 chunks = DIV_ROUND_UP_ULL(ti->len, TARNFS_HUGE);

	if (!ti->len || tarnfs_sb(inode->i_sb)->coherent ||
	    ti->node->flags & TARN_NODE_MADE_HERE)
		return 0;
	if (chunks <= BITS_PER_LONG) {
		ti->used = &ti->used_inline;
		return 0;
	}
	ti->used = kvcalloc(BITS_TO_LONGS(chunks), sizeof(long), GFP_KERNEL);
	return ti->used ? 0 : -ENOMEM;
}

static void tarnfs_inode_init_file(struct inode *inode, loff_t size)
{
	inode->i_op = &tarnfs_file_inode_operations;
	inode->i_mapping->a_ops = &tarnfs_aops;
	inode->i_flags |= S_DAX;
	i_size_write(inode, size);
	inode->i_blocks = tarnfs_i(inode)->len >> SECTOR_SHIFT;
}

struct inode *tarnfs_iget(struct super_block *sb, struct tarn_node *node)
{
	struct tarnfs_sb_info *sbi = tarnfs_sb(sb);
	struct inode *inode = iget_locked(sb, node->ino);
	struct tarnfs_inode *ti;

	if (!inode) {
		tarnfs_node_put(sbi, node);
		return ERR_PTR(-ENOMEM);
	}
	if (!(inode_state_read_once(inode) & I_NEW)) {
		tarnfs_node_put(sbi, node);
		return inode;
	}

	ti = tarnfs_i(inode);
	ti->put = kmalloc(sizeof(*ti->put), GFP_KERNEL);
	if (!ti->put) {
		tarnfs_node_put(sbi, node);
		iget_failed(inode);
		return ERR_PTR(-ENOMEM);
	}
	ti->node = node;	/* the count is the inode's from now on */
	/* Constant for a node that has users, in whatever state. */
	ti->off = node->extent.off;
	ti->len = node->extent.len;
	tarnfs_inode_update(inode);
	switch (node->type) {
	case TARNFS_TYPE_DIRECTORY:
		inode->i_op = &tarnfs_dir_inode_operations;
		inode->i_fop = &tarnfs_dir_operations;
		break;
	case TARNFS_TYPE_SYMLINK:
		inode->i_op = &tarnfs_symlink_inode_operations;
		inode->i_link = node->target;
		i_size_write(inode, node->size);
		break;
	default:
		inode->i_fop = &tarnfs_file_operations;
		tarnfs_inode_init_file(inode, node->size);
		if (tarnfs_inode_init_used(inode)) {
			iget_failed(inode);
			return ERR_PTR(-ENOMEM);
		}
		break;
	}
	unlock_new_inode(inode);
	return inode;
}

/* Before anything is applied the root is a directory that answers EUNATCH. */
struct inode *tarnfs_iget_root(struct super_block *sb)
{
	struct inode *inode = iget_locked(sb, TARNFS_INO_ROOT);

	if (!inode)
		return ERR_PTR(-ENOMEM);
	/* for the node that tarnfs_bind_root() brings */
	tarnfs_i(inode)->put = kmalloc(sizeof(struct tarnfs_put), GFP_KERNEL);
	if (!tarnfs_i(inode)->put) {
		iget_failed(inode);
		return ERR_PTR(-ENOMEM);
	}
	inode->i_mode = S_IFDIR | 0755;
	set_nlink(inode, 2);
	inode->i_op = &tarnfs_dir_inode_operations;
	inode->i_fop = &tarnfs_dir_operations;
	unlock_new_inode(inode);
	return inode;
}

void tarnfs_bind_root(struct tarnfs_sb_info *sbi)
{
	struct tarnfs_inode *ti = tarnfs_i(d_inode(sbi->sb->s_root));
	struct tarn_node *root = sbi->tree.root;

	lockdep_assert_held_write(&sbi->tree_rwsem);
	if (!root || ti->node)
		return;
	tarn_node_get(root);
	ti->node = root;
}

struct inode *tarnfs_new_meta_inode(struct super_block *sb, u64 size)
{
	struct inode *inode = new_inode(sb);

	if (!inode)
		return ERR_PTR(-ENOMEM);
	inode->i_ino = TARNFS_INO_META;
	inode->i_mode = S_IFREG | 0600;
	inode->i_fop = &tarnfs_meta_operations;
	tarnfs_i(inode)->len = size;
	tarnfs_inode_init_file(inode, size);
	return inode;
}

bool tarnfs_may_write(const struct inode *inode)
{
	const struct tarnfs_sb_info *sbi = tarnfs_sb(inode->i_sb);
	const struct tarn_node *node = tarnfs_i(inode)->node;

	return READ_ONCE(sbi->tree.role) == TARNFS_ROLE_MASTER ||
	       (node && READ_ONCE(node->file_flags) & TARNFS_FILE_SHARED_WRITE);
}

int tarnfs_refusal(const struct super_block *sb)
{
	const struct tarnfs_sb_info *sbi = tarnfs_sb(sb);

	if (tarnfs_is_shutdown(sbi))
		return -EIO;
	return READ_ONCE(sbi->tree.role) == TARNFS_ROLE_MASTER ? -EPERM : -EROFS;
}

int tarnfs_permission(struct mnt_idmap *idmap, struct inode *inode, int mask)
{
	int err = generic_permission(idmap, inode, mask);

	if (err)
		return err;
	if (mask & MAY_WRITE && S_ISREG(inode->i_mode) && !tarnfs_may_write(inode))
		return -EROFS;
	return 0;
}

int tarnfs_getattr(struct mnt_idmap *idmap, const struct path *path, struct kstat *stat,
		   u32 request_mask, unsigned int flags)
{
	struct inode *inode = d_inode(path->dentry);

	tarnfs_fillattr(idmap, request_mask, inode, stat);
	if (S_ISDIR(inode->i_mode)) {
		/* changes with every batch: asked for here, not kept up to date */
		const struct tarn_node *node = READ_ONCE(tarnfs_i(inode)->node);

		stat->nlink = 2 + (node ? READ_ONCE(node->nr_subdirs) : 0);
		stat->size = TARNFS_BLOCK;
	}
	return 0;
}

/*
 * Attributes change by records alone. What must get through is the dropping of
 * set-uid and set-gid bits before a write by somebody who may not keep them:
 * refusing that would refuse the write. The bits go from the node too, so that
 * they stay away as long as this host has the file system mounted. The record
 * and the other hosts keep them; an administrator who makes a set-uid file
 * writable for others must log the new mode.
 */
int tarnfs_setattr(struct mnt_idmap *idmap, struct dentry *dentry, struct iattr *attr)
{
	const unsigned int harmless = ATTR_MODE | ATTR_CTIME | ATTR_FORCE | ATTR_KILL_SUID |
				      ATTR_KILL_SGID | ATTR_KILL_PRIV | ATTR_FILE;
	struct inode *inode = d_inode(dentry);
	struct tarnfs_sb_info *sbi = tarnfs_sb(inode->i_sb);
	struct tarn_node *node = tarnfs_i(inode)->node;

	if (!(attr->ia_valid & ATTR_FORCE) || attr->ia_valid & ~harmless ||
	    !S_ISREG(inode->i_mode))
		return tarnfs_refusal(inode->i_sb);
	if (!(attr->ia_valid & ATTR_MODE))
		return 0;

	inode->i_mode &= attr->ia_mode | ~(umode_t)(S_ISUID | S_ISGID);
	if (node) {
		down_write(&sbi->tree_rwsem);
		node->mode &= inode->i_mode;
		up_write(&sbi->tree_rwsem);
	}
	return 0;
}
