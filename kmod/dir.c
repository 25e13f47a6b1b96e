// SPDX-License-Identifier: GPL-2.0-only
/*
 * Nodes seen as names: lookup, readdir, and the refusal of everything that
 * would change a name. Names change by APPLY alone.
 *
 * Dentries are a cache of the node tree. Absent names are not cached, so that
 * a name is seen from the moment its batch was applied.
 */
#include <linux/dcache.h>
#include "tarnfs.h"

/* What is copied under the lock at a time: a hundred short names. */
#define TARNFS_READDIR_BYTES	PAGE_SIZE

struct tarnfs_dirent {
	u64	ino;
	u8	type;			/* DT_* */
	u8	name_len;
	char	name[];
};

static struct dentry *tarnfs_lookup(struct inode *dir, struct dentry *dentry, unsigned int flags)
{
	struct super_block *sb = dir->i_sb;
	struct tarnfs_sb_info *sbi = tarnfs_sb(sb);
	const struct qstr *name = &dentry->d_name;
	struct tarn_node *dir_node, *node;
	struct inode *inode;
	bool attached;

	if (name->len > TARNFS_NAME_MAX)
		return ERR_PTR(-ENAMETOOLONG);

	/* An absent name costs no writer's lock. */
	down_read(&sbi->tree_rwsem);
	attached = sbi->tree.attached;
	dir_node = tarnfs_i(dir)->node;
	node = attached ? tarn_lookup(&sbi->tree, dir_node, name->name, name->len) : NULL;
	up_read(&sbi->tree_rwsem);
	if (!attached)
		return ERR_PTR(tarnfs_is_shutdown(sbi) ? -EIO : -EUNATCH);
	if (!node)
		return NULL;

	down_write(&sbi->tree_rwsem);
	node = tarn_lookup(&sbi->tree, dir_node, name->name, name->len);
	if (node)
		tarn_node_get(node);
	up_write(&sbi->tree_rwsem);
	if (!node)
		return NULL;
	inode = tarnfs_iget(sb, node);
	/* its batch is applied, but may not have come to the inode yet */
	if (!IS_ERR(inode))
		tarnfs_inode_link(inode);
	return d_splice_alias(inode, dentry);
}

static unsigned char tarnfs_dirent_type(const struct tarn_node *node)
{
	switch (node->type) {
	case TARNFS_TYPE_DIRECTORY:
		return DT_DIR;
	case TARNFS_TYPE_SYMLINK:
		return DT_LNK;
	default:
		return DT_REG;
	}
}

/* Fills buf with the children whose numbers are >= first; returns the bytes used. */
static size_t tarnfs_copy_children(struct tarnfs_sb_info *sbi, const struct tarn_node *dir,
				   u64 first, void *buf)
{
	const struct tarn_node *node;
	size_t used = 0;

	down_read(&sbi->tree_rwsem);
	for (node = tarn_next_child(dir, first - 1); node;
	     node = tarn_next_child(dir, node->ino)) {
		struct tarnfs_dirent *entry = buf + used;
		size_t bytes = round_up(sizeof(*entry) + node->name_len, 8);

		if (bytes > TARNFS_READDIR_BYTES - used)
			break;
		entry->ino = node->ino;
		entry->type = tarnfs_dirent_type(node);
		entry->name_len = node->name_len;
		memcpy(entry->name, node->name, node->name_len);
		used += bytes;
	}
	up_read(&sbi->tree_rwsem);
	return used;
}

/*
 * Positions 0 and 1 are the dots; from 2 on a position is the smallest inode
 * number not yet returned, which means the same on every host.
 */
static int tarnfs_iterate(struct file *file, struct dir_context *ctx)
{
	struct inode *dir = file_inode(file);
	struct tarnfs_sb_info *sbi = tarnfs_sb(dir->i_sb);
	const struct tarn_node *node;
	size_t used, at;
	bool attached;
	void *buf;

	if (tarnfs_is_shutdown(sbi))
		return -EIO;
	down_read(&sbi->tree_rwsem);
	attached = sbi->tree.attached;
	node = tarnfs_i(dir)->node;
	up_read(&sbi->tree_rwsem);
	if (!attached)
		return -EUNATCH;
	if (!dir_emit_dots(file, ctx))
		return 0;

	buf = kmalloc(TARNFS_READDIR_BYTES, GFP_KERNEL);
	if (!buf)
		return -ENOMEM;
	do {
		used = tarnfs_copy_children(sbi, node, ctx->pos, buf);
		for (at = 0; at < used;) {
			const struct tarnfs_dirent *entry = buf + at;

			if (!dir_emit(ctx, entry->name, entry->name_len, entry->ino, entry->type))
				goto out;
			ctx->pos = entry->ino + 1;
			at += round_up(sizeof(*entry) + entry->name_len, 8);
		}
	} while (used && !fatal_signal_pending(current));
out:
	kfree(buf);
	return 0;
}

static int tarnfs_create(TARNFS_CREATE_ARGS)
{
	return tarnfs_refusal(dir->i_sb);
}

static int tarnfs_link(struct dentry *old, struct inode *dir, struct dentry *dentry)
{
	return tarnfs_refusal(dir->i_sb);
}

static int tarnfs_unlink(struct inode *dir, struct dentry *dentry)
{
	return tarnfs_refusal(dir->i_sb);
}

static int tarnfs_symlink(struct mnt_idmap *idmap, struct inode *dir, struct dentry *dentry,
			  const char *target)
{
	return tarnfs_refusal(dir->i_sb);
}

static TARNFS_MKDIR_RET tarnfs_mkdir(struct mnt_idmap *idmap, struct inode *dir,
				     struct dentry *dentry, umode_t mode)
{
	return TARNFS_MKDIR_ERR(tarnfs_refusal(dir->i_sb));
}

static int tarnfs_mknod(struct mnt_idmap *idmap, struct inode *dir, struct dentry *dentry,
			umode_t mode, dev_t dev)
{
	return tarnfs_refusal(dir->i_sb);
}

static int tarnfs_rename(struct mnt_idmap *idmap, struct inode *old_dir, struct dentry *old,
			 struct inode *new_dir, struct dentry *new, unsigned int flags)
{
	return tarnfs_refusal(old_dir->i_sb);
}

const struct inode_operations tarnfs_dir_inode_operations = {
	.lookup		= tarnfs_lookup,
	.create		= tarnfs_create,
	.link		= tarnfs_link,
	.unlink		= tarnfs_unlink,
	.symlink	= tarnfs_symlink,
	.mkdir		= tarnfs_mkdir,
	.rmdir		= tarnfs_unlink,
	.mknod		= tarnfs_mknod,
	.rename		= tarnfs_rename,
	.permission	= tarnfs_permission,
	.getattr	= tarnfs_getattr,
	.setattr	= tarnfs_setattr,
};

const struct file_operations tarnfs_dir_operations = {
	.owner		= THIS_MODULE,
	.read		= generic_read_dir,
	.iterate_shared	= tarnfs_iterate,
	.llseek		= generic_file_llseek,
	.fsync		= noop_fsync,
	.unlocked_ioctl	= tarnfs_ioctl,
	.compat_ioctl	= compat_ptr_ioctl,
};

/*
 * Whether a cached name still stands for its node. Called in RCU walk too:
 * nothing is locked, and dentry and inode may go any moment, but a node is
 * freed after a grace period only.
 */
static int tarnfs_d_revalidate(TARNFS_REVALIDATE_ARGS)
{
	const struct inode *inode = d_inode_rcu(dentry);
	const struct tarn_node *node;

	if (!inode)
		return 0;
	node = READ_ONCE(tarnfs_i(inode)->node);
	/* the root has none at first */
	return !node || READ_ONCE(node->state) == TARN_NODE_LIVE;
}

/* A name whose node left the tree goes with its last user. */
static int tarnfs_d_delete(const struct dentry *dentry)
{
	const struct inode *inode = d_inode(dentry);
	const struct tarn_node *node;

	if (!inode)
		return 1;
	node = READ_ONCE(tarnfs_i(inode)->node);
	return node && READ_ONCE(node->state) != TARN_NODE_LIVE;
}

const struct dentry_operations tarnfs_dentry_operations = {
	.d_revalidate	= tarnfs_d_revalidate,
	.d_delete	= tarnfs_d_delete,
};
