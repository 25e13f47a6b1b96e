// SPDX-License-Identifier: GPL-2.0-only
/*
 * When the memory is not ours any more, or fails: shutdown, poisoned pages,
 * removal of the device.
 *
 * A poisoned page is remembered in tree.bad until umount. From then on nothing
 * in the kernel touches it: read(2) and write(2) end before it, faults answer
 * VM_FAULT_HWPOISON, cache operations and RESERVE go around it. That is more
 * than good manners: when we said that the failure is handled, the kernel may
 * unmap the page from its own address space.
 *
 * Removal cannot be refused. It is a shutdown, after which no mapping, no pin
 * and no DAX entry is left, so that eviction finds nothing to touch.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/wait.h>
#include <linux/wait_bit.h>
#include "tarnfs.h"

#define TARNFS_SCAN_PAGES	32768L	/* looked at without a look at signals */
#define TARNFS_REMOVED		16	/* removals that a mount under way can tell apart */

/* ---- all inodes --------------------------------------------------------- */

static void tarnfs_each_inode(struct tarnfs_sb_info *sbi, void (*fn)(struct inode *inode))
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

		fn(inode);

		/* Our place in the list is lost with the inode: the last one is kept. */
		iput(last);
		last = inode;
		cond_resched();
		spin_lock(&sb->s_inode_list_lock);
	}
	spin_unlock(&sb->s_inode_list_lock);
	iput(last);
}

static void tarnfs_unmap(struct inode *inode)
{
	/* Excludes a fault that looked before the state changed. */
	filemap_invalidate_lock(inode->i_mapping);
	unmap_mapping_range(inode->i_mapping, 0, 0, 0);
	filemap_invalidate_unlock(inode->i_mapping);
}

void tarnfs_revoke(struct tarnfs_sb_info *sbi)
{
	synchronize_srcu(&sbi->io_srcu);
	tarnfs_each_inode(sbi, tarnfs_unmap);
}

void tarnfs_shutdown(struct tarnfs_sb_info *sbi)
{
	if (!test_and_set_bit(TARNFS_SB_SHUTDOWN, &sbi->state))
		pr_warn("%s: shut down: no access and no flush from now on\n", sbi->sb->s_id);
	/* Whoever calls is told when it is so, also a second one. */
	tarnfs_revoke(sbi);
}

/* ---- the device goes away ----------------------------------------------- */

/* Nothing is mapped, and no fault succeeds any more. */
static void tarnfs_drop_memory(struct inode *inode)
{
	if (mapping_empty(inode->i_mapping))
		return;
	tarnfs_wait_for_pins(inode);
	filemap_invalidate_lock(inode->i_mapping);
	tarnfs_drop_entries(inode);
	filemap_invalidate_unlock(inode->i_mapping);
}

static void tarnfs_mark_gone(struct tarnfs_sb_info *sbi)
{
	if (!test_and_set_bit(TARNFS_SB_GONE, &sbi->state))
		pr_warn("%s: the device is taken away: no access from now on; umount it\n",
			sbi->sb->s_id);
	set_bit(TARNFS_SB_SHUTDOWN, &sbi->state);
}

static void tarnfs_take_away(struct tarnfs_sb_info *sbi)
{
	tarnfs_mark_gone(sbi);
	tarnfs_revoke(sbi);
	tarnfs_each_inode(sbi, tarnfs_drop_memory);
	/* Those that were on their way out, hence in no list. */
	wait_var_event(&sbi->leaving, !atomic_read(&sbi->leaving));
}

void tarnfs_gone(struct super_block *sb)
{
	tarnfs_take_away(tarnfs_sb(sb));
}

/* ---- which mount -------------------------------------------------------- */

static DEFINE_MUTEX(tarnfs_mounts_mutex);	/* the list, what is in it, users from 0 */
static LIST_HEAD(tarnfs_mounts);		/* tarnfs_sb_info.failure_link */
static unsigned int tarnfs_removals;		/* of devices, told of since the module is there */
static const struct dax_device *tarnfs_removed[TARNFS_REMOVED];	/* the last ones; to compare only */
static atomic_t tarnfs_mounts_left = ATOMIC_INIT(0);	/* mounts taken off the list */
static DECLARE_WAIT_QUEUE_HEAD(tarnfs_failure_wait);	/* for that, and for no users */

void tarnfs_failure_begin(struct tarnfs_sb_info *sbi)
{
	mutex_lock(&tarnfs_mounts_mutex);
	sbi->failure_removals = tarnfs_removals;
	mutex_unlock(&tarnfs_mounts_mutex);
}

/* Whether the device was removed since begin, or might have been. */
static bool tarnfs_was_removed(const struct tarnfs_sb_info *sbi)
{
	unsigned int i = sbi->failure_removals;

	lockdep_assert_held(&tarnfs_mounts_mutex);
	if (tarnfs_removals - i > TARNFS_REMOVED)
		return true;
	for (; i != tarnfs_removals; i++)
		if (tarnfs_removed[i % TARNFS_REMOVED] == sbi->backing.dax)
			return true;
	return false;
}

int tarnfs_failure_add(struct tarnfs_sb_info *sbi)
{
	int err = 0;

	mutex_lock(&tarnfs_mounts_mutex);
	if (tarnfs_was_removed(sbi))
		err = -ENODEV;
	else
		list_add(&sbi->failure_link, &tarnfs_mounts);
	mutex_unlock(&tarnfs_mounts_mutex);
	return err;
}

void tarnfs_failure_stop(struct tarnfs_sb_info *sbi)
{
	mutex_lock(&tarnfs_mounts_mutex);
	sbi->failure_stopped = true;
	mutex_unlock(&tarnfs_mounts_mutex);
	wait_event_idle(tarnfs_failure_wait, !atomic_read(&sbi->failure_users));
}

void tarnfs_failure_remove(struct tarnfs_sb_info *sbi)
{
	tarnfs_failure_stop(sbi);
	mutex_lock(&tarnfs_mounts_mutex);
	list_del_init(&sbi->failure_link);
	atomic_inc(&tarnfs_mounts_left);
	mutex_unlock(&tarnfs_mounts_mutex);
	wake_up_all(&tarnfs_failure_wait);
}

static struct tarnfs_sb_info *tarnfs_failure_find(const struct dax_device *dax)
{
	struct tarnfs_sb_info *sbi;

	lockdep_assert_held(&tarnfs_mounts_mutex);
	list_for_each_entry(sbi, &tarnfs_mounts, failure_link)
		if (sbi->backing.dax == dax)
			return sbi;
	return NULL;
}

/* It stays until the put, and so do its inodes. */
static void tarnfs_failure_get(struct tarnfs_sb_info *sbi)
{
	lockdep_assert_held(&tarnfs_mounts_mutex);
	atomic_inc(&sbi->failure_users);
}

static void tarnfs_failure_put(struct tarnfs_sb_info *sbi)
{
	if (atomic_dec_and_test(&sbi->failure_users))
		wake_up_all(&tarnfs_failure_wait);
}

/* Until umount, which nothing of ours holds up, has let go of the device. */
static void tarnfs_wait_for_umount(const struct dax_device *dax)
{
	for (;;) {
		int left = atomic_read(&tarnfs_mounts_left);
		bool mounted;

		mutex_lock(&tarnfs_mounts_mutex);
		mounted = tarnfs_failure_find(dax);
		mutex_unlock(&tarnfs_mounts_mutex);
		if (!mounted)
			return;
		wait_event_idle(tarnfs_failure_wait, atomic_read(&tarnfs_mounts_left) != left);
	}
}

void tarnfs_dax_removed(struct dax_device *dax)
{
	struct tarnfs_sb_info *sbi;
	bool stopped;

	mutex_lock(&tarnfs_mounts_mutex);
	tarnfs_removed[tarnfs_removals++ % TARNFS_REMOVED] = dax;
	sbi = tarnfs_failure_find(dax);
	if (!sbi) {
		mutex_unlock(&tarnfs_mounts_mutex);
		return;
	}
	stopped = sbi->failure_stopped;
	if (stopped)
		tarnfs_mark_gone(sbi);
	else
		tarnfs_failure_get(sbi);
	mutex_unlock(&tarnfs_mounts_mutex);

	if (stopped) {
		tarnfs_wait_for_umount(dax);
		return;
	}
	tarnfs_take_away(sbi);
	tarnfs_failure_put(sbi);
}

/* ---- who has it --------------------------------------------------------- */

/* The structure of the page at off of the device, or NULL. */
static struct page *tarnfs_device_page(struct tarnfs_sb_info *sbi, u64 off)
{
	struct page *page = NULL;
	void *kaddr;
	int id;

	id = dax_read_lock();
	if (dax_direct_access(sbi->backing.dax, PHYS_PFN(sbi->backing.start + off), 1,
			      DAX_RECOVERY_WRITE, &kaddr, NULL) > 0)
		page = virt_to_page(kaddr);
	dax_read_unlock(id);
	return page;
}

/* Of inodes with that number: one that lives. With the hash lock held. */
static int tarnfs_match_living(struct inode *inode, TARNFS_INO_T ino, void *data)
{
	int found = 0;

	if (inode->i_ino != ino)
		return 0;
	spin_lock(&inode->i_lock);
	/* who is on its way out or not yet in has no mappings */
	if (!(inode_state_read_once(inode) & (I_FREEING | I_WILL_FREE | I_NEW))) {
		atomic_inc(&inode->i_count);
		found = 1;
	}
	spin_unlock(&inode->i_lock);
	return found;
}

/*
 * The inode that has this byte of the device, with a reference, if there is one
 * now; *end is where what is there ends. Waits for nobody's eviction.
 */
static struct inode *tarnfs_inode_at(struct tarnfs_sb_info *sbi, u64 off, u64 *end, u64 *ino)
{
	const struct tarn_node *node;
	struct inode *inode;

	*ino = 0;
	if (off < tarnfs_i(sbi->meta_inode)->len) {
		*ino = TARNFS_INO_META;
		*end = tarnfs_i(sbi->meta_inode)->len;
		ihold(sbi->meta_inode);
		return sbi->meta_inode;
	}
	*end = off + PAGE_SIZE;
	down_read(&sbi->tree_rwsem);
	node = tarn_node_at(&sbi->tree, off);
	if (node) {
		*ino = node->ino;
		*end = node->extent.off + node->extent.len;
	}
	up_read(&sbi->tree_rwsem);
	if (!*ino)
		return NULL;
	inode = find_inode_nowait(sbi->sb, *ino, tarnfs_match_living, NULL);
	if (!inode)
		return NULL;
	if (off < tarnfs_i(inode)->off || off - tarnfs_i(inode)->off >= tarnfs_i(inode)->len) {
		iput(inode);
		return NULL;
	}
	return inode;
}

/* ---- bad memory --------------------------------------------------------- */

u64 tarnfs_good_bytes(struct tarnfs_sb_info *sbi, u64 off, u64 len)
{
	const struct tarn_bad *bad = sbi->tree.bad;
	unsigned int seq;
	u64 good;

	if (likely(!READ_ONCE(bad->count)))
		return len;
	do {
		u32 i;

		seq = read_seqbegin(&sbi->bad_lock);
		good = len;
		i = tarn_bad_find(bad, off);
		if (i < min_t(u32, bad->count, TARN_BAD_MAX)) {
			u64 start = bad->range[i].off;

			good = start > off ? min(len, start - off) : 0;
		}
	} while (read_seqretry(&sbi->bad_lock, seq));
	return good;
}

/*
 * Returns the good bytes that nothing touches any more from now on, len 0 when
 * none: they are for tarnfs_give_up(), with no lock held.
 */
static struct tarnfs_range tarnfs_bad_add(struct tarnfs_sb_info *sbi, u64 off, u64 len)
{
	struct tarnfs_range lost;

	down_write(&sbi->tree_rwsem);
	write_seqlock(&sbi->bad_lock);
	lost = tarn_bad_insert(sbi->tree.bad, off, len);
	write_sequnlock(&sbi->bad_lock);
	tarn_bad_account(&sbi->tree);
	if (sbi->tree.bad->count == TARN_BAD_MAX &&
	    !test_and_set_bit(TARNFS_SB_BAD_FULL, &sbi->state))
		pr_warn("%s: %u bad ranges: more are joined with what lies between them\n",
			sbi->sb->s_id, TARN_BAD_MAX);
	up_write(&sbi->tree_rwsem);
	return lost;
}

struct tarnfs_range *tarnfs_bad_list(struct tarnfs_sb_info *sbi, u32 *count)
{
	struct tarnfs_range *copy = kvmalloc_array(TARN_BAD_MAX, sizeof(*copy), GFP_KERNEL);

	if (!copy)
		return NULL;
	down_read(&sbi->tree_rwsem);
	*count = sbi->tree.bad->count;
	memcpy(copy, sbi->tree.bad->range, *count * sizeof(*copy));
	up_read(&sbi->tree_rwsem);
	return copy;
}

/*
 * The good bytes between two bad ranges that became one: what was stored there
 * is not written back any more, so fsync says so, and who has them mapped loses
 * them as all others did. Nobody is killed, and no page is marked for later mounts.
 */
static void tarnfs_give_up(struct tarnfs_sb_info *sbi, struct tarnfs_range lost)
{
	u64 off = lost.off, stop = lost.off + lost.len;

	if (!lost.len)
		return;
	pr_warn_ratelimited("%s: %llu good bytes at device offset %#llx, between bad ones, are given up until umount\n",
			    sbi->sb->s_id, lost.len, lost.off);
	while (off < stop) {
		u64 end, ino;
		struct inode *inode = tarnfs_inode_at(sbi, off, &end, &ino);

		end = min(end, stop);
		if (inode) {
			struct address_space *mapping = inode->i_mapping;

			mapping_set_error(mapping, -EIO);
			filemap_invalidate_lock(mapping);
			unmap_mapping_range(mapping, off - tarnfs_i(inode)->off, end - off, 0);
			filemap_invalidate_unlock(mapping);
			iput(inode);
		}
		off = end;
		cond_resched();
	}
	synchronize_srcu(&sbi->io_srcu);
}

bool tarnfs_bad_page(struct tarnfs_sb_info *sbi, u64 off)
{
	pgoff_t pgoff = PHYS_PFN(sbi->backing.start + off);
	bool bad = false;
	void *kaddr;
	int id;

	id = dax_read_lock();
	if (dax_direct_access(sbi->backing.dax, pgoff, 1, DAX_ACCESS, &kaddr, NULL) < 0)
		bad = dax_direct_access(sbi->backing.dax, pgoff, 1, DAX_RECOVERY_WRITE, &kaddr,
					NULL) > 0;
	dax_read_unlock(id);
	off = round_down(off, PAGE_SIZE);
	if (bad && tarnfs_good_bytes(sbi, off, PAGE_SIZE)) {
		pr_warn_ratelimited("%s: the driver knows of bad memory at device offset %#llx\n",
				    sbi->sb->s_id, off);
		tarnfs_give_up(sbi, tarnfs_bad_add(sbi, off, PAGE_SIZE));
	}
	return bad;
}

/*
 * Pages that failed since the driver was bound, whoever had them. Not on a meta
 * mount, which touches nothing but by the hands of user space. Nobody has
 * anything mapped yet, so nothing that is given up is lost to anyone.
 */
static void tarnfs_scan_flags(struct tarnfs_sb_info *sbi, u64 off, void *kaddr, long pages)
{
	long i;

	for (i = 0; i < pages; i++)
		if (PageHWPoison(virt_to_page(kaddr + PFN_PHYS(i))))
			tarnfs_bad_add(sbi, off + PFN_PHYS(i), PAGE_SIZE);
}

int tarnfs_bad_scan(struct tarnfs_sb_info *sbi)
{
	u64 end = round_down(sbi->backing.size, PAGE_SIZE);
	long step = TARNFS_SCAN_PAGES;
	u64 off = 0;

	while (off < end) {
		long pages;
		void *kaddr;
		int id;

		step = min_t(u64, step, PHYS_PFN(end - off));
		id = dax_read_lock();
		pages = dax_direct_access(sbi->backing.dax, PHYS_PFN(sbi->backing.start + off),
					  step, DAX_ACCESS, &kaddr, NULL);
		if (pages > 0 && !sbi->meta)
			tarnfs_scan_flags(sbi, off, kaddr, pages);
		dax_read_unlock(id);
		if (pages > 0) {
			off += PFN_PHYS(pages);
			step = min(2 * step, TARNFS_SCAN_PAGES);
		} else if (pages != -EIO && pages != -EHWPOISON) {
			return pages ? pages : -EIO;
		} else if (step > 1) {
			step /= 2;
		} else {
			tarnfs_bad_page(sbi, off);
			off += PAGE_SIZE;
		}
		if (fatal_signal_pending(current))
			return -EINTR;
		cond_resched();
	}
	return 0;
}

/* ---- who is killed ------------------------------------------------------ */

/*
 * Kills those that the kernel's rules name, with the length of their mapping in
 * the signal, then takes the page from all: who touches it later is killed by
 * the fault. The kernel marks the first page of a 2 MiB entry as poisoned,
 * whichever it was.
 */
static void tarnfs_kill_users(struct inode *inode, u64 pos, u64 len, int mf_flags)
{
	struct tarnfs_sb_info *sbi = tarnfs_sb(inode->i_sb);
	struct address_space *mapping = inode->i_mapping;
	u64 at;

	/* A fault that looked before the page was known to be bad has made its entry after this. */
	filemap_invalidate_lock(mapping);
	filemap_invalidate_unlock(mapping);
	/* fsync says so, once to each descriptor; before anyone can know and ask */
	mapping_set_error(mapping, -EIO);
	for (at = pos; at < pos + len; at += PAGE_SIZE) {
		void *entry = xa_load(&mapping->i_pages, at >> PAGE_SHIFT);
		struct page *head = NULL;

		if (xa_is_value(entry) && xa_to_value(entry) & TARNFS_DAX_PMD && at % TARNFS_HUGE)
			head = tarnfs_device_page(sbi, tarnfs_i(inode)->off +
						  round_down(at, (u64)TARNFS_HUGE));
		if (head && PageHWPoison(head))
			head = NULL;
		mf_dax_kill_procs(mapping, at >> PAGE_SHIFT, 1, mf_flags);
		if (head)
			ClearPageHWPoison(head);
	}
	filemap_invalidate_lock(mapping);
	unmap_mapping_range(mapping, pos, len, 0);
	filemap_invalidate_unlock(mapping);
}

static void tarnfs_kill_range(struct tarnfs_sb_info *sbi, u64 off, u64 len, int mf_flags)
{
	u64 stop = off + len;

	while (off < stop) {
		u64 end, ino;
		struct inode *inode = tarnfs_inode_at(sbi, off, &end, &ino);

		end = min(end, stop);
		if (ino == TARNFS_INO_META)
			pr_err("%s: memory of metadata failed: device offset %#llx, %llu bytes; tarnfs status tells more\n",
			       sbi->sb->s_id, off, end - off);
		else if (ino)
			pr_err("%s: memory of inode %llu failed: device offset %#llx, %llu bytes; tarnfs status names the file\n",
			       sbi->sb->s_id, ino, off, end - off);
		else
			pr_err("%s: memory of no file failed: device offset %#llx, %llu bytes\n",
			       sbi->sb->s_id, off, end - off);
		if (inode) {
			tarnfs_kill_users(inode, off - tarnfs_i(inode)->off, end - off, mf_flags);
			iput(inode);
		}
		off = end;
		cond_resched();
	}
}

/* Nothing of ours touches these bytes after this, and a later mount knows them. */
static void tarnfs_bad_fence(struct tarnfs_sb_info *sbi, u64 off, u64 len)
{
	u64 end = off + len;

	for (; off < end; off += PAGE_SIZE) {
		struct page *page = tarnfs_device_page(sbi, off);

		if (page)
			SetPageHWPoison(page);
	}
	synchronize_srcu(&sbi->io_srcu);
}

int tarnfs_dax_failure(struct dax_device *dax, u64 off, u64 len, int mf_flags)
{
	u64 end = len > U64_MAX - off ? U64_MAX : off + len;
	struct tarnfs_range lost;
	struct tarnfs_sb_info *sbi;
	u64 start, size;

	if (mf_flags & MF_MEM_PRE_REMOVE || (!off && end == U64_MAX)) {
		tarnfs_dax_removed(dax);
		return 0;
	}

	mutex_lock(&tarnfs_mounts_mutex);
	sbi = tarnfs_failure_find(dax);
	if (!sbi) {
		mutex_unlock(&tarnfs_mounts_mutex);
		return -EOPNOTSUPP;
	}
	start = sbi->backing.start;
	size = round_down(sbi->backing.size, PAGE_SIZE);
	if (end <= start || off >= start + size) {
		mutex_unlock(&tarnfs_mounts_mutex);
		return -EOPNOTSUPP;
	}
	if (off <= start && end >= start + size && size > PAGE_SIZE) {
		mutex_unlock(&tarnfs_mounts_mutex);
		tarnfs_dax_removed(dax);
		return 0;
	}
	off = round_down(max(off, start) - start, PAGE_SIZE);
	len = round_up(min(end, start + size) - start, PAGE_SIZE) - off;

	lost = tarnfs_bad_add(sbi, off, len);
	if (sbi->failure_stopped) {
		/* Being unmounted: nothing is mapped, and its inodes are not ours to take. */
		tarnfs_bad_fence(sbi, off, len);
		mutex_unlock(&tarnfs_mounts_mutex);
		return 0;
	}
	tarnfs_failure_get(sbi);
	mutex_unlock(&tarnfs_mounts_mutex);

	/* before anyone is told and asks */
	tarnfs_give_up(sbi, lost);
	tarnfs_kill_range(sbi, off, len, mf_flags);
	tarnfs_bad_fence(sbi, off, len);
	trace_tarnfs_failure(off, len, mf_flags);
	tarnfs_failure_put(sbi);
	return 0;
}

const struct dax_holder_operations tarnfs_holder_operations = {
	.notify_failure	= tarnfs_dax_failure,
};
