// SPDX-License-Identifier: GPL-2.0-only
/*
 * When the memory is not ours any more, or fails.
 *
 * Shutdown is here. Of poisoned memory this version knows nothing itself: it
 * declines the notice, and the kernel's generic path then unmaps the page and
 * kills those who have it mapped. A poisoned range is not remembered, and a
 * device that is taken away under a mount is not handled yet.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include "tarnfs.h"

static void tarnfs_unmap_all(struct tarnfs_sb_info *sbi)
{
	struct super_block *sb = sbi->sb;
	struct inode *inode, *last = NULL;

	spin_lock(&sb->s_inode_list_lock);
	list_for_each_entry(inode, &sb->s_inodes, i_sb_list) {
		spin_lock(&inode->i_lock);
		if (inode->i_state & (I_FREEING | I_WILL_FREE | I_NEW)) {
			spin_unlock(&inode->i_lock);
			continue;
		}
		atomic_inc(&inode->i_count);
		spin_unlock(&inode->i_lock);
		spin_unlock(&sb->s_inode_list_lock);

		/* Excludes a fault that looked before the state changed. */
		filemap_invalidate_lock(inode->i_mapping);
		unmap_mapping_range(inode->i_mapping, 0, 0, 0);
		filemap_invalidate_unlock(inode->i_mapping);

		/* Our place in the list is lost with the inode: the last one is kept. */
		iput(last);
		last = inode;
		cond_resched();
		spin_lock(&sb->s_inode_list_lock);
	}
	spin_unlock(&sb->s_inode_list_lock);
	iput(last);
}

void tarnfs_revoke(struct tarnfs_sb_info *sbi)
{
	synchronize_srcu(&sbi->io_srcu);
	tarnfs_unmap_all(sbi);
}

void tarnfs_shutdown(struct tarnfs_sb_info *sbi)
{
	if (!test_and_set_bit(TARNFS_SB_SHUTDOWN, &sbi->state))
		pr_warn("%s: shut down: no access and no flush from now on\n", sbi->sb->s_id);
	/* Whoever calls is told when it is so, also a second one. */
	tarnfs_revoke(sbi);
}

static int tarnfs_notify_failure(struct dax_device *dax, u64 off, u64 len, int mf_flags)
{
	return -EOPNOTSUPP;
}

const struct dax_holder_operations tarnfs_holder_operations = {
	.notify_failure	= tarnfs_notify_failure,
};
