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

#include <linux/wait_bit.h>
#include "tarnfs.h"

static void tarnfs_unmap_all(struct tarnfs_sb_info *sbi)
{
	struct super_block *sb = sbi->sb;
	struct inode *inode, *last = NULL;

	spin_lock(&sb->s_inode_list_lock);
	list_for_each_entry(inode, &sb->s_inodes, i_sb_list) {
		spin_lock(&inode->i_lock);
		if (inode_state_read_once(inode) & (I_FREEING | I_WILL_FREE | I_NEW)) {
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

/* ---- failures of devices ------------------------------------------------ */

static DEFINE_MUTEX(tarnfs_mounts_mutex);	/* the list below, and users from 0 */
static LIST_HEAD(tarnfs_mounts);		/* tarnfs_sb_info.failure_link */

void tarnfs_failure_add(struct tarnfs_sb_info *sbi)
{
	mutex_lock(&tarnfs_mounts_mutex);
	list_add(&sbi->failure_link, &tarnfs_mounts);
	mutex_unlock(&tarnfs_mounts_mutex);
}

void tarnfs_failure_remove(struct tarnfs_sb_info *sbi)
{
	mutex_lock(&tarnfs_mounts_mutex);
	list_del_init(&sbi->failure_link);
	mutex_unlock(&tarnfs_mounts_mutex);
	wait_var_event(&sbi->failure_users, !atomic_read(&sbi->failure_users));
}

/* Its mount, which stays until tarnfs_failure_put(), or NULL. */
static struct tarnfs_sb_info *tarnfs_failure_get(const struct dax_device *dax)
{
	struct tarnfs_sb_info *sbi;

	mutex_lock(&tarnfs_mounts_mutex);
	list_for_each_entry(sbi, &tarnfs_mounts, failure_link) {
		if (sbi->backing.dax != dax)
			continue;
		atomic_inc(&sbi->failure_users);
		mutex_unlock(&tarnfs_mounts_mutex);
		return sbi;
	}
	mutex_unlock(&tarnfs_mounts_mutex);
	return NULL;
}

static void tarnfs_failure_put(struct tarnfs_sb_info *sbi)
{
	if (atomic_dec_and_test(&sbi->failure_users))
		wake_up_var(&sbi->failure_users);
}

int tarnfs_dax_failure(struct dax_device *dax, u64 off, u64 len, int mf_flags)
{
	return -EOPNOTSUPP;
}

void tarnfs_dax_removed(struct dax_device *dax)
{
	struct tarnfs_sb_info *sbi = tarnfs_failure_get(dax);

	if (!sbi)
		return;
	tarnfs_shutdown(sbi);
	tarnfs_failure_put(sbi);
}

const struct dax_holder_operations tarnfs_holder_operations = {
	.notify_failure	= tarnfs_dax_failure,
};
