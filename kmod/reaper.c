// SPDX-License-Identifier: GPL-2.0-only
/*
 * Inodes that nobody uses any more, let go without anyone waiting.
 *
 * An inode whose file was ever mapped has DAX entries, and those may not be
 * removed while one of their pages is pinned by a pipe (vmsplice) or by I/O in
 * flight. Evicting it would mean waiting for the owner of the pin, in whoever
 * happens to drop the last reference: a replay, or memory reclaim. So such an
 * inode stays where it is, and a worker comes by, looks for pins without
 * sleeping, and evicts it if there are none. Without DAX entries there can be
 * no pins, and the inode goes at once.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/pagemap.h>
#include <linux/rcupdate_wait.h>
#include <linux/wait_bit.h>
#include "tarnfs.h"

#define TARNFS_REAP_DELAY	(HZ / 10)	/* a batch of files closed together goes together */
#define TARNFS_REAP_RETRY	HZ		/* pins last as long as their owner likes */
#define TARNFS_PIN_POLL		(HZ / 20)

static bool tarnfs_entry_pinned(void *entry)
{
	unsigned long value = xa_to_value(entry);

	if (value & TARNFS_DAX_LOCKED)
		return true;		/* a fault is at work on it */
	if (value & (TARNFS_DAX_ZERO_PAGE | TARNFS_DAX_EMPTY))
		return false;
	return tarnfs_pages_pinned(value >> TARNFS_DAX_SHIFT,
				   value & TARNFS_DAX_PMD ? PMD_SIZE / PAGE_SIZE : 1);
}

static bool tarnfs_mapping_pinned(struct address_space *mapping)
{
	XA_STATE(xas, &mapping->i_pages, 0);
	unsigned int scanned = 0;
	bool pinned = false;
	void *entry;

	rcu_read_lock();
	xas_for_each(&xas, entry, ULONG_MAX) {
		if (xas_retry(&xas, entry))
			continue;
		if (!xa_is_value(entry))
			continue;
		pinned = tarnfs_entry_pinned(entry);
		if (pinned)
			break;
		if (++scanned % XA_CHECK_SCHED == 0) {
			xas_pause(&xas);
			cond_resched_rcu();
		}
	}
	rcu_read_unlock();
	return pinned;
}

void tarnfs_wait_for_pins(struct inode *inode)
{
	unsigned long since = jiffies;
	bool told = false;

	while (tarnfs_mapping_pinned(&inode->i_data)) {
		if (!told && time_after(jiffies, since + 5 * HZ)) {
			pr_notice("%s: waiting for the end of I/O on pages of inode %llu (a pipe, or O_DIRECT)\n",
				  inode->i_sb->s_id, (u64)inode->i_ino);
			told = true;
		}
		schedule_timeout_idle(TARNFS_PIN_POLL);
	}
}

/* With i_lock held, by whoever dropped the last reference. */
int tarnfs_drop_inode(struct inode *inode)
{
	struct tarnfs_sb_info *sbi = tarnfs_sb(inode->i_sb);
	struct tarnfs_inode *ti = tarnfs_i(inode);

	if (mapping_empty(&inode->i_data))
		return 1;
	if (test_bit(TARNFS_INODE_IDLE, &ti->flags)) {
		/* nobody finds it any more; who waits for the last entry has to know */
		set_bit(TARNFS_INODE_LEAVING, &ti->flags);
		atomic_inc(&sbi->leaving);
		return 1;
	}

	spin_lock(&sbi->reap_lock);
	if (!test_bit(TARNFS_SB_UMOUNT, &sbi->state) && inode->i_ino != TARNFS_INO_META) {
		if (list_empty(&ti->reap_link))
			list_add_tail(&ti->reap_link, &sbi->reap_list);
		queue_delayed_work(system_unbound_wq, &sbi->reap_work,
				   test_bit(TARNFS_INODE_PINNED, &ti->flags) ?
				   TARNFS_REAP_RETRY : TARNFS_REAP_DELAY);
	}
	spin_unlock(&sbi->reap_lock);
	return 0;
}

void tarnfs_left(struct inode *inode)
{
	struct tarnfs_sb_info *sbi = tarnfs_sb(inode->i_sb);

	if (test_and_clear_bit(TARNFS_INODE_LEAVING, &tarnfs_i(inode)->flags) &&
	    atomic_dec_and_test(&sbi->leaving))
		wake_up_var(&sbi->leaving);
}

void tarnfs_reap_forget(struct inode *inode)
{
	struct tarnfs_sb_info *sbi = tarnfs_sb(inode->i_sb);

	spin_lock(&sbi->reap_lock);
	list_del_init(&tarnfs_i(inode)->reap_link);
	spin_unlock(&sbi->reap_lock);
}

/*
 * A new pin needs a mapping, hence a reference of somebody else's and, since
 * he had none when IDLE was set, a fault; and a fault clears IDLE. So if IDLE
 * is still set when the last reference goes, what was seen of pins is true.
 * When it is not, iput() brings the inode back to the list.
 */
static void tarnfs_reap(struct inode *inode)
{
	struct tarnfs_inode *ti = tarnfs_i(inode);

	set_bit(TARNFS_INODE_IDLE, &ti->flags);
	smp_mb__after_atomic();		/* IDLE first: see above, and the fault */
	if (atomic_read(&inode->i_count) > 1) {
		clear_bit(TARNFS_INODE_IDLE, &ti->flags);
	} else if (tarnfs_mapping_pinned(&inode->i_data)) {
		clear_bit(TARNFS_INODE_IDLE, &ti->flags);
		set_bit(TARNFS_INODE_PINNED, &ti->flags);
	} else {
		clear_bit(TARNFS_INODE_PINNED, &ti->flags);
	}
	iput(inode);
}

void tarnfs_reap_work(struct work_struct *work)
{
	struct tarnfs_sb_info *sbi = container_of(to_delayed_work(work), struct tarnfs_sb_info,
						  reap_work);
	LIST_HEAD(list);

	spin_lock(&sbi->reap_lock);
	list_splice_init(&sbi->reap_list, &list);
	while (!list_empty(&list) && !test_bit(TARNFS_SB_UMOUNT, &sbi->state)) {
		struct tarnfs_inode *ti = list_first_entry(&list, struct tarnfs_inode, reap_link);
		unsigned long ino = ti->vfs.i_ino;
		struct inode *inode;

		list_del_init(&ti->reap_link);
		spin_unlock(&sbi->reap_lock);

		/* ti may be gone by now; its number finds it, or its successor. */
		inode = ilookup(sbi->sb, ino);
		if (inode)
			tarnfs_reap(inode);
		cond_resched();
		spin_lock(&sbi->reap_lock);
	}
	list_splice(&list, &sbi->reap_list);
	spin_unlock(&sbi->reap_lock);
}
