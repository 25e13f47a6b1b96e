// SPDX-License-Identifier: GPL-2.0-only
/*
 * The bytes of files: read, write, map, write back, invalidate. And of the
 * meta inode, which is read and mapped the same way.
 *
 * A file is one range of the device, whole and of its final size before it has
 * a name, so nothing here allocates, waits for a translation, or races with a
 * truncate; there is no lock on a file's bytes, as there is none between hosts.
 * Read and write are one translation and one copy; faults go through fs/dax.c.
 */
#include <linux/fadvise.h>
#include <linux/fiemap.h>
#include <linux/mman.h>
#include <linux/pagemap.h>
#include <linux/sched/signal.h>
#include <linux/uio.h>
#include <linux/writeback.h>
#include <asm/cacheflush.h>
#include "tarnfs.h"

/* What is copied, and invalidated, without a look at signals: some milliseconds. */
#define TARNFS_PIECE		(4 * TARNFS_HUGE)
#define TARNFS_FADVISE_PIECE	(32 * TARNFS_HUGE)

/* Copies of nothing in a row, the caller's page being there, before it is our memory's fault. */
#define TARNFS_STUCK		4

/* ---- cache operations --------------------------------------------------- */

enum tarnfs_line_op {
	TARNFS_LINES_DROP,		/* written back, and dropped */
	TARNFS_LINES_WRITE,		/* written back */
};

/*
 * Bytes done with, of at most 2 MiB; 0 after a shutdown: it would write to what
 * is not ours. A bad page is passed over: the kernel may have unmapped it from
 * its own address space, and what was stored there is lost anyway.
 */
static u64 tarnfs_lines_piece(struct tarnfs_sb_info *sbi, u64 off, u64 bytes,
			      enum tarnfs_line_op op)
{
	u64 at = sbi->backing.start + off;
	size_t in_page = offset_in_page(at);
	int io = tarnfs_io_begin(sbi);
	u64 good = tarnfs_good_bytes(sbi, off, bytes);
	long pages = 0;
	void *kaddr;
	int id;

	if (tarnfs_is_shutdown(sbi)) {
		tarnfs_io_end(sbi, io);
		return 0;
	}
	id = dax_read_lock();
	if (good)
		pages = dax_direct_access(sbi->backing.dax, PHYS_PFN(at),
					  PHYS_PFN(in_page + good + PAGE_SIZE - 1), DAX_ACCESS,
					  &kaddr, NULL);
	if (pages < 0)		/* one that only the driver knows to be bad: up to there */
		pages = dax_direct_access(sbi->backing.dax, PHYS_PFN(at), 1, DAX_ACCESS, &kaddr,
					  NULL);
	if (pages > 0) {
		bytes = min_t(u64, good, PFN_PHYS(pages) - in_page);
		if (op == TARNFS_LINES_DROP)
			tarnfs_clean_and_invalidate(kaddr + in_page, bytes);
		else
			dax_flush(sbi->backing.dax, kaddr + in_page, bytes);
	} else {
		bytes = min_t(u64, bytes, PAGE_SIZE - in_page);
	}
	dax_read_unlock(id);
	tarnfs_io_end(sbi, io);
	return bytes;
}

static void tarnfs_lines(struct tarnfs_sb_info *sbi, u64 off, u64 len, enum tarnfs_line_op op)
{
	while (len) {
		u64 bytes = tarnfs_lines_piece(sbi, off, min_t(u64, len, TARNFS_HUGE), op);

		if (!bytes)
			return;
		off += bytes;
		len -= bytes;
		cond_resched();
	}
}

void tarnfs_invalidate(struct tarnfs_sb_info *sbi, u64 ino, u64 off, u64 len,
		       enum tarnfs_reason reason)
{
	if (!len || tarnfs_is_shutdown(sbi))
		return;
	trace_tarnfs_invalidate(ino, off, len, reason);
	tarnfs_lines(sbi, off, len, TARNFS_LINES_DROP);
}

/* [start, end) of the file, as one step of a longer writeback. */
static int tarnfs_writeback_part(struct inode *inode, const struct writeback_control *wbc,
				 u64 start, u64 end)
{
	struct writeback_control part = *wbc;

	part.range_start = start;
	part.range_end = end - 1;
	return dax_writeback_mapping_range(inode->i_mapping, tarnfs_sb(inode->i_sb)->backing.dax,
					   &part);
}

/*
 * A 2 MiB chunk with a bad page in it. fs/dax.c writes back whole entries: if
 * the chunk is one, its good lines are written back here, and the entry stays
 * dirty, so that it is done again each time.
 */
static int tarnfs_writeback_around(struct inode *inode, const struct writeback_control *wbc,
				   u64 start, u64 end)
{
	struct tarnfs_sb_info *sbi = tarnfs_sb(inode->i_sb);
	struct tarnfs_inode *ti = tarnfs_i(inode);
	void *entry = xa_load(&inode->i_mapping->i_pages, start >> PAGE_SHIFT);
	int err = 0;

	if (xa_is_value(entry) && xa_to_value(entry) & TARNFS_DAX_PMD) {
		tarnfs_lines(sbi, ti->off + start, end - start, TARNFS_LINES_WRITE);
		return 0;
	}
	while (!err && start < end) {
		u64 good = tarnfs_good_bytes(sbi, ti->off + start, end - start);

		if (good)
			err = tarnfs_writeback_part(inode, wbc, start, start + good);
		else
			good = PAGE_SIZE - offset_in_page(start);
		start += good;
	}
	return err;
}

/*
 * Runs of chunks without a bad page at once, each of the others by itself. What
 * is bad was looked up since tarnfs_io_begin(): whoever finds more waits for us.
 */
static int tarnfs_writeback_good(struct inode *inode, struct writeback_control *wbc)
{
	struct tarnfs_sb_info *sbi = tarnfs_sb(inode->i_sb);
	struct tarnfs_inode *ti = tarnfs_i(inode);
	u64 start = wbc->range_start;
	u64 end = min_t(u64, ti->len, (u64)wbc->range_end + 1);
	u64 at = round_down(start, (u64)TARNFS_HUGE);
	int err = 0;

	if (likely(tarnfs_good_bytes(sbi, ti->off, ti->len) == ti->len))
		return dax_writeback_mapping_range(inode->i_mapping, sbi->backing.dax, wbc);
	while (!err && at < end) {
		u64 good = tarnfs_good_bytes(sbi, ti->off + at, ti->len - at);
		u64 stop = good < ti->len - at ? round_down(at + good, (u64)TARNFS_HUGE) : end;
		bool clean = stop > at;

		if (!clean)
			stop = at + TARNFS_HUGE;
		stop = min(stop, end);
		err = clean ? tarnfs_writeback_part(inode, wbc, max(at, start), stop) :
			      tarnfs_writeback_around(inode, wbc, max(at, start), stop);
		at = stop;
	}
	return err;
}

static int tarnfs_writeback_wbc(struct inode *inode, struct writeback_control *wbc,
				enum tarnfs_reason reason)
{
	struct tarnfs_sb_info *sbi = tarnfs_sb(inode->i_sb);
	struct tarnfs_inode *ti = tarnfs_i(inode);
	int err = -EIO, io;

	if (ti->len > wbc->range_start && trace_tarnfs_writeback_enabled()) {
		u64 last = min_t(u64, wbc->range_end, ti->len - 1);

		trace_tarnfs_writeback(inode->i_ino, ti->off + wbc->range_start,
				       last - wbc->range_start + 1, reason);
	}
	io = tarnfs_io_begin(sbi);
	if (!tarnfs_is_shutdown(sbi))
		err = tarnfs_writeback_good(inode, wbc);
	tarnfs_io_end(sbi, io);
	pmem_wmb();
	return err;
}

int tarnfs_writeback(struct inode *inode, loff_t start, loff_t end, enum tarnfs_reason reason)
{
	struct writeback_control wbc = {
		.sync_mode	= WB_SYNC_ALL,
		.nr_to_write	= LONG_MAX,
		.range_start	= start,
		.range_end	= end,
	};

	return tarnfs_writeback_wbc(inode, &wbc, reason);
}

static int tarnfs_writepages(struct address_space *mapping, struct writeback_control *wbc)
{
	if (wbc->sync_mode != WB_SYNC_ALL)
		return 0;		/* nothing is gained by doing it early */
	return tarnfs_writeback_wbc(mapping->host, wbc, TARNFS_SYNC);
}

/*
 * Before this host touches bytes of a file the first time: it may hold lines
 * of the range from the time it was another file's, or was read ahead by the
 * processor before the file was made. len > 0, within the extent.
 */
static int tarnfs_first_use(struct inode *inode, u64 pos, u64 len, bool nowait)
{
	struct tarnfs_sb_info *sbi = tarnfs_sb(inode->i_sb);
	struct tarnfs_inode *ti = tarnfs_i(inode);
	u64 last = (pos + len - 1) >> TARNFS_HUGE_SHIFT;
	u64 i;

	if (!ti->used)
		return 0;
	for (i = pos >> TARNFS_HUGE_SHIFT; i <= last; i++) {
		u64 start = i << TARNFS_HUGE_SHIFT;

		if (test_bit_acquire(i, ti->used))
			continue;
		if (nowait)
			return -EAGAIN;
		mutex_lock(&ti->use_mutex);
		if (!test_bit(i, ti->used)) {
			tarnfs_invalidate(sbi, inode->i_ino, ti->off + start,
					  min_t(u64, TARNFS_HUGE, ti->len - start),
					  TARNFS_FIRST_USE);
			smp_mb__before_atomic();	/* pairs with test_bit_acquire() above */
			set_bit(i, ti->used);
		}
		mutex_unlock(&ti->use_mutex);
	}
	return 0;
}

/* ---- read and write ----------------------------------------------------- */

/* What is between the begin and the end of one access, and may go on for no longer than it must. */
static ssize_t tarnfs_copy_piece(struct inode *inode, struct iov_iter *iter, u64 pos, size_t bytes,
				 bool write)
{
	struct tarnfs_sb_info *sbi = tarnfs_sb(inode->i_sb);
	u64 off = tarnfs_i(inode)->off + pos;
	u64 at = sbi->backing.start + off;
	size_t in_page = offset_in_page(at);
	void *kaddr;
	long pages;
	int id;

	if (tarnfs_is_shutdown(sbi))
		return -EIO;
	if (write && !tarnfs_may_write(inode))
		return -EROFS;
	bytes = tarnfs_good_bytes(sbi, off, bytes);
	if (!bytes)
		return -EIO;
	id = dax_read_lock();
	pages = dax_direct_access(sbi->backing.dax, PHYS_PFN(at),
				  PHYS_PFN(in_page + bytes + PAGE_SIZE - 1), DAX_ACCESS, &kaddr,
				  NULL);
	if (pages < 0)		/* a bad page in it: go up to there */
		pages = dax_direct_access(sbi->backing.dax, PHYS_PFN(at), 1, DAX_ACCESS, &kaddr,
					  NULL);
	if (pages > 0) {
		bytes = min_t(size_t, bytes, PFN_PHYS(pages) - in_page);
		/* dax_copy_from_iter() and dax_copy_to_iter() are these, but not exported. */
		pagefault_disable();
		if (write)
			bytes = _copy_from_iter_flushcache(kaddr + in_page, bytes, iter);
		else
			bytes = _copy_mc_to_iter(kaddr + in_page, bytes, iter);
		pagefault_enable();
	}
	dax_read_unlock(id);
	return pages > 0 ? bytes : -EIO;
}

/*
 * iter is within the file. The caller's pages are brought in between pieces,
 * not in the middle of one, since their owner may let us wait for ever.
 */
static ssize_t tarnfs_copy(struct kiocb *iocb, struct iov_iter *iter, bool write)
{
	struct inode *inode = file_inode(iocb->ki_filp);
	struct tarnfs_sb_info *sbi = tarnfs_sb(inode->i_sb);
	unsigned int stuck = 0;
	ssize_t done = 0;
	int err = 0;

	while (iov_iter_count(iter)) {
		size_t bytes = min_t(size_t, iov_iter_count(iter), TARNFS_PIECE);
		u64 pos = iocb->ki_pos + done;
		ssize_t copied;
		size_t left;
		int io;

		if (fatal_signal_pending(current)) {
			err = -EINTR;
			break;
		}
		err = tarnfs_first_use(inode, pos, bytes, iocb->ki_flags & IOCB_NOWAIT);
		if (err)
			break;
		io = tarnfs_io_begin(sbi);
		copied = tarnfs_copy_piece(inode, iter, pos, bytes, write);
		tarnfs_io_end(sbi, io);
		if (copied < 0) {
			err = copied;
			if (err == -EIO && !(iocb->ki_flags & IOCB_NOWAIT))
				tarnfs_bad_page(sbi, tarnfs_i(inode)->off + pos);
			break;
		}
		done += copied;
		cond_resched();
		if (copied) {
			stuck = 0;
			continue;
		}

		/* The caller's memory is not there; or ours failed, which bringing in cannot mend. */
		left = write ? fault_in_iov_iter_readable(iter, 1) :
			       fault_in_iov_iter_writeable(iter, 1);
		if (left)
			err = -EFAULT;
		else if (++stuck == TARNFS_STUCK)
			err = -EIO;
		if (err)
			break;
	}
	iocb->ki_pos += done;
	return done ? done : err;
}

static ssize_t tarnfs_read_iter(struct kiocb *iocb, struct iov_iter *to)
{
	struct inode *inode = file_inode(iocb->ki_filp);
	loff_t size = i_size_read(inode);

	if (tarnfs_is_shutdown(tarnfs_sb(inode->i_sb)))
		return -EIO;
	if (!iov_iter_count(to) || iocb->ki_pos >= size)
		return 0;
	iov_iter_truncate(to, size - iocb->ki_pos);
	return tarnfs_copy(iocb, to, false);
}

/* A set-uid or set-gid bit goes before the write: see tarnfs_setattr(). */
static int tarnfs_remove_privs(struct kiocb *iocb)
{
	struct inode *inode = file_inode(iocb->ki_filp);
	int err;

	if (!(inode->i_mode & (S_ISUID | S_ISGID)))
		return 0;
	if (iocb->ki_flags & IOCB_NOWAIT)
		return -EAGAIN;
	inode_lock(inode);
	err = file_remove_privs(iocb->ki_filp);
	inode_unlock(inode);
	return err;
}

static ssize_t tarnfs_write_iter(struct kiocb *iocb, struct iov_iter *from)
{
	struct inode *inode = file_inode(iocb->ki_filp);
	loff_t size = i_size_read(inode);
	ssize_t ret;

	if (tarnfs_is_shutdown(tarnfs_sb(inode->i_sb)))
		return -EIO;
	if (!tarnfs_may_write(inode))
		return -EROFS;
	ret = generic_write_checks(iocb, from);
	if (ret <= 0)
		return ret;
	if (iocb->ki_pos >= size)
		return -ENOSPC;
	iov_iter_truncate(from, size - iocb->ki_pos);
	ret = tarnfs_remove_privs(iocb);
	if (ret)
		return ret;
	ret = tarnfs_copy(iocb, from, true);
	if (ret > 0)
		ret = generic_write_sync(iocb, ret);
	return ret;
}

/* ---- mappings ----------------------------------------------------------- */

static void tarnfs_fill_iomap(struct inode *inode, loff_t pos, loff_t length, u64 start,
			      struct iomap *iomap)
{
	const struct tarnfs_inode *ti = tarnfs_i(inode);

	iomap->bdev = inode->i_sb->s_bdev;
	iomap->dax_dev = tarnfs_sb(inode->i_sb)->backing.dax;
	iomap->flags = 0;
	if (pos < ti->len) {
		iomap->type = IOMAP_MAPPED;
		iomap->addr = start + ti->off;
		iomap->offset = 0;
		iomap->length = ti->len;
	} else {
		iomap->type = IOMAP_HOLE;
		iomap->addr = IOMAP_NULL_ADDR;
		iomap->offset = pos;
		iomap->length = length;
	}
}

static int tarnfs_iomap_begin(struct inode *inode, loff_t pos, loff_t length, unsigned int flags,
			      struct iomap *iomap, struct iomap *srcmap)
{
	struct tarnfs_sb_info *sbi = tarnfs_sb(inode->i_sb);
	const struct tarnfs_inode *ti = tarnfs_i(inode);
	u64 good;

	tarnfs_fill_iomap(inode, pos, length, sbi->backing.start, iomap);
	if (iomap->type != IOMAP_MAPPED)
		return 0;
	/*
	 * Asked again, with the entry locked: who finds the page bad after this
	 * finds what is mapped by this.
	 */
	good = tarnfs_good_bytes(sbi, ti->off + pos, ti->len - pos);
	if (!good)
		return -EHWPOISON;
	iomap->length = pos + good;
	return 0;
}

static const struct iomap_ops tarnfs_iomap_ops = {
	.iomap_begin	= tarnfs_iomap_begin,
};

/* What people see are bytes of the device, wherever in the dax device it begins. */
static int tarnfs_fiemap_begin(struct inode *inode, loff_t pos, loff_t length, unsigned int flags,
			       struct iomap *iomap, struct iomap *srcmap)
{
	tarnfs_fill_iomap(inode, pos, length, 0, iomap);
	return 0;
}

static const struct iomap_ops tarnfs_fiemap_ops = {
	.iomap_begin	= tarnfs_fiemap_begin,
};

static int tarnfs_fiemap(struct inode *inode, struct fiemap_extent_info *info, u64 start, u64 len)
{
	return iomap_fiemap(inode, info, start, len, &tarnfs_fiemap_ops);
}

/* *ask: it failed, and the driver may know that it is because the memory is bad. */
static vm_fault_t tarnfs_fault_locked(struct vm_fault *vmf, TARNFS_FAULT_SIZE size, u64 pos,
				      bool write, bool *ask)
{
	struct inode *inode = file_inode(vmf->vma->vm_file);
	struct tarnfs_sb_info *sbi = tarnfs_sb(inode->i_sb);
	u64 bytes = PAGE_SIZE << tarnfs_fault_order(size);
	u64 off = tarnfs_i(inode)->off + round_down(pos, bytes);
	vm_fault_t ret;
	int err = 0;

	if (tarnfs_is_shutdown(sbi))
		return VM_FAULT_SIGBUS;
	if (pos >= i_size_read(inode))
		return VM_FAULT_SIGBUS;
	/* The role may have changed since the file was opened. Meta: see mmap. */
	if (write && inode->i_ino != TARNFS_INO_META && !tarnfs_may_write(inode))
		return VM_FAULT_SIGBUS;
	if (tarnfs_good_bytes(sbi, off, bytes) < bytes)
		return bytes == PAGE_SIZE ? VM_FAULT_HWPOISON : VM_FAULT_FALLBACK;
	tarnfs_first_use(inode, pos, PAGE_SIZE, false);
	ret = dax_iomap_fault(vmf, size, NULL, &err, &tarnfs_iomap_ops);
	if (ret & (VM_FAULT_SIGBUS | VM_FAULT_HWPOISON) && bytes == PAGE_SIZE) {
		if (err == -EHWPOISON)
			ret = VM_FAULT_HWPOISON;
		*ask = true;
	}
	return ret;
}

static vm_fault_t tarnfs_huge_fault(struct vm_fault *vmf, TARNFS_FAULT_SIZE size)
{
	struct inode *inode = file_inode(vmf->vma->vm_file);
	struct tarnfs_inode *ti = tarnfs_i(inode);
	bool write = vmf->flags & FAULT_FLAG_WRITE && vmf->vma->vm_flags & VM_SHARED;
	unsigned int order = tarnfs_fault_order(size);
	u64 pos = (u64)vmf->pgoff << PAGE_SHIFT;
	bool ask = false;
	vm_fault_t ret;

	if (order > TARNFS_HUGE_SHIFT - PAGE_SHIFT)
		return VM_FAULT_FALLBACK;
	/* From now on a page may get pinned: see tarnfs_reap(). */
	if (test_bit(TARNFS_INODE_IDLE, &ti->flags))
		clear_bit(TARNFS_INODE_IDLE, &ti->flags);

	if (write)
		sb_start_pagefault(inode->i_sb);
	/* Shared: against tarnfs_unmap_all() alone, nothing is ever truncated. */
	filemap_invalidate_lock_shared(inode->i_mapping);
	ret = tarnfs_fault_locked(vmf, size, pos, write, &ask);
	filemap_invalidate_unlock_shared(inode->i_mapping);
	/* Not every kernel knows these two apart; and what only the driver knew is known now. */
	if (ask && tarnfs_bad_page(tarnfs_sb(inode->i_sb), ti->off + pos))
		ret = VM_FAULT_HWPOISON;
	if (write)
		sb_end_pagefault(inode->i_sb);
	trace_tarnfs_fault(inode->i_ino, pos, order, write, (__force unsigned int)ret);
	return ret;
}

static vm_fault_t tarnfs_fault(struct vm_fault *vmf)
{
	return tarnfs_huge_fault(vmf, TARNFS_FAULT_PTE);
}

static const struct vm_operations_struct tarnfs_vm_operations = {
	.fault		= tarnfs_fault,
	.huge_fault	= tarnfs_huge_fault,
	.page_mkwrite	= tarnfs_fault,
	.pfn_mkwrite	= tarnfs_fault,
};

static int tarnfs_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct tarnfs_sb_info *sbi = tarnfs_sb(file_inode(file)->i_sb);

	if (tarnfs_is_shutdown(sbi))
		return -EIO;
	/* MAP_SYNC */
	if (vma->vm_flags & VM_SYNC && !dax_synchronous(sbi->backing.dax))
		return -EOPNOTSUPP;
	vma->vm_ops = &tarnfs_vm_operations;
	vm_flags_set(vma, VM_HUGEPAGE);
	return 0;
}

static bool tarnfs_meta_is_writable(const struct tarnfs_meta_file *meta, u64 off, u64 len)
{
	u32 i;

	for (i = 0; i < meta->count; i++) {
		const struct tarnfs_range *range = &meta->writable[i];

		if (off >= range->off && off - range->off <= range->len &&
		    len <= range->len - (off - range->off))
			return true;
	}
	return false;
}

static int tarnfs_meta_mmap(struct file *file, struct vm_area_struct *vma)
{
	u64 off = (u64)vma->vm_pgoff << PAGE_SHIFT;

	if (vma->vm_flags & VM_SHARED &&
	    !tarnfs_meta_is_writable(file->private_data, off, vma->vm_end - vma->vm_start)) {
		if (vma->vm_flags & VM_WRITE)
			return -EACCES;
		vm_flags_clear(vma, VM_MAYWRITE);
	}
	/* Nor may mremap() reach further than what was looked at here. */
	vm_flags_set(vma, VM_DONTEXPAND);
	return tarnfs_mmap(file, vma);
}

/* ---- the rest ----------------------------------------------------------- */

static int tarnfs_fsync(struct file *file, loff_t start, loff_t end, int datasync)
{
	struct inode *inode = file_inode(file);
	int err = tarnfs_writeback(inode, start, end, TARNFS_FSYNC);
	int err2;

	if (err)
		return err;
	err = tarnfs_backing_flush(&tarnfs_sb(inode->i_sb)->backing);
	err2 = file_check_and_advance_wb_err(file);
	return err ? err : err2;
}

/*
 * DONTNEED is the half of the coherence contract that has no call of its own:
 * after it, loads from the range see what other hosts wrote back before. Unlike
 * elsewhere it is not about whole pages: each line that has a byte of the range
 * is written back and dropped.
 */
static int tarnfs_fadvise(struct file *file, loff_t start, loff_t len, int advice)
{
	struct inode *inode = file_inode(file);
	struct tarnfs_inode *ti = tarnfs_i(inode);
	u64 end = ti->len;
	int err;

	if (advice != POSIX_FADV_DONTNEED)
		return generic_fadvise(file, start, len, advice);
	if (start < 0 || len < 0)
		return -EINVAL;
	if (tarnfs_is_shutdown(tarnfs_sb(inode->i_sb)))
		return -EIO;
	if (len)
		end = min_t(u64, end, (u64)start + len);
	if (start >= end)
		return 0;
	err = tarnfs_writeback(inode, start, end - 1, TARNFS_FADVISE);
	if (err)
		return err;
	while (start < end) {
		u64 bytes = min_t(u64, end - start, TARNFS_FADVISE_PIECE);

		if (fatal_signal_pending(current))
			return -EINTR;
		tarnfs_invalidate(tarnfs_sb(inode->i_sb), inode->i_ino, ti->off + start, bytes,
				  TARNFS_FADVISE);
		start += bytes;
	}
	return 0;
}

static int tarnfs_open(struct inode *inode, struct file *file)
{
	if (tarnfs_is_shutdown(tarnfs_sb(inode->i_sb)))
		return -EIO;
	file->f_mode |= TARNFS_FMODE;
	return generic_file_open(inode, file);
}

const struct file_operations tarnfs_file_operations = {
	.owner		= THIS_MODULE,
	.open		= tarnfs_open,
	.llseek		= generic_file_llseek,
	.read_iter	= tarnfs_read_iter,
	.write_iter	= tarnfs_write_iter,
	.splice_read	= copy_splice_read,
	.splice_write	= iter_file_splice_write,
	.mmap		= tarnfs_mmap,
	.get_unmapped_area = thp_get_unmapped_area,
	.fsync		= tarnfs_fsync,
	.fadvise	= tarnfs_fadvise,
	TARNFS_FOP_FLAGS,
};

const struct inode_operations tarnfs_file_inode_operations = {
	.permission	= tarnfs_permission,
	.getattr	= tarnfs_getattr,
	.setattr	= tarnfs_setattr,
	.fiemap		= tarnfs_fiemap,
};

const struct address_space_operations tarnfs_aops = {
	.writepages	= tarnfs_writepages,
	.dirty_folio	= noop_dirty_folio,
};

/* Descriptors come from OPEN_META alone, which names what may be written. */
static int tarnfs_meta_open(struct inode *inode, struct file *file)
{
	return -EACCES;
}

static int tarnfs_meta_release(struct inode *inode, struct file *file)
{
	kfree(file->private_data);
	return 0;
}

static ssize_t tarnfs_meta_write_iter(struct kiocb *iocb, struct iov_iter *from)
{
	return -EPERM;
}

const struct file_operations tarnfs_meta_operations = {
	.owner		= THIS_MODULE,
	.open		= tarnfs_meta_open,
	.release	= tarnfs_meta_release,
	.llseek		= generic_file_llseek,
	.read_iter	= tarnfs_read_iter,
	.write_iter	= tarnfs_meta_write_iter,
	.splice_read	= copy_splice_read,
	.mmap		= tarnfs_meta_mmap,
	.get_unmapped_area = thp_get_unmapped_area,
	.fsync		= noop_fsync,
	.unlocked_ioctl	= tarnfs_ioctl,
	.compat_ioctl	= compat_ptr_ioctl,
	TARNFS_FOP_FLAGS,
};
