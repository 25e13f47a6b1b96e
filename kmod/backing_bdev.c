// SPDX-License-Identifier: GPL-2.0-only
/*
 * The memory behind a block device in fsdax mode: an NVDIMM's /dev/pmemN, or a
 * partition of one.
 */
#include <linux/blkdev.h>
#include <linux/memremap.h>
#include "tarnfs.h"

/* Page structures in the device itself are this host's alone, and change all the time. */
static bool tarnfs_has_altmap(struct page *page)
{
	return is_zone_device_page(page) && page->pgmap->flags & PGMAP_ALTMAP_VALID;
}

static int tarnfs_backing_check(struct tarnfs_backing *backing, struct super_block *sb,
				struct fs_context *fc)
{
	pfn_t pfn;
	void *kaddr;
	long pages;
	int id;

	id = dax_read_lock();
	pages = dax_direct_access(backing->dax, PHYS_PFN(backing->start), 1, DAX_RECOVERY_WRITE,
				  &kaddr, &pfn);
	dax_read_unlock(id);
	if (pages < 1) {
		errorfc(fc, "%s: cannot address the device: error %ld", sb->s_id, pages);
		return -EIO;
	}
	if (pfn_t_to_phys(pfn) & (TARNFS_HUGE - 1)) {
		errorfc(fc, "%s: first byte at physical address %#llx, not a multiple of 2 MiB; make the namespace with: ndctl create-namespace -f -e NAMESPACE -m fsdax --map=mem --align=2M, and begin a partition at a multiple of 2 MiB",
			sb->s_id, (u64)pfn_t_to_phys(pfn));
		return -EINVAL;
	}
	if (!pfn_t_devmap(pfn)) {
		errorfc(fc, "%s: memory has no page structures; make the namespace with: ndctl create-namespace -f -e NAMESPACE -m fsdax --map=mem",
			sb->s_id);
		return -EINVAL;
	}
	if (tarnfs_has_altmap(pfn_t_to_page(pfn))) {
		errorfc(fc, "%s: namespace was made with --map=dev, which keeps this host's page structures on the shared media; make it with: ndctl create-namespace -f -e NAMESPACE -m fsdax --map=mem",
			sb->s_id);
		return -EOPNOTSUPP;
	}
	return 0;
}

int tarnfs_backing_open(struct tarnfs_backing *backing, struct super_block *sb,
			struct fs_context *fc)
{
	int err;

	if (!blk_queue_dax(bdev_get_queue(sb->s_bdev))) {
		errorfc(fc, "%s: device has no DAX; a raw NVDIMM namespace gets it by: ndctl create-namespace -f -e NAMESPACE -m fsdax --map=mem",
			sb->s_id);
		return -EOPNOTSUPP;	/* mount(8) takes ENODEV for an unknown type */
	}
	backing->bdev = sb->s_bdev;
	backing->size = bdev_nr_bytes(sb->s_bdev);
	backing->dax = fs_dax_get_by_bdev(sb->s_bdev, &backing->start, sb,
					  &tarnfs_holder_operations);
	if (!backing->dax) {
		errorfc(fc, "%s: no DAX access: another user holds the device, or the partition does not begin and end at multiples of 4 KiB",
			sb->s_id);
		return -EBUSY;
	}
	err = tarnfs_backing_check(backing, sb, fc);
	if (err) {
		tarnfs_backing_close(backing, sb);
		return err;
	}
	/* else the kernel takes fsync's cache flushes for needless */
	dax_write_cache(backing->dax, true);
	return 0;
}

void tarnfs_backing_close(struct tarnfs_backing *backing, struct super_block *sb)
{
	if (!backing->dax)
		return;
	fs_put_dax(backing->dax, sb);
	backing->dax = NULL;
}

int tarnfs_backing_flush(struct tarnfs_backing *backing)
{
	pmem_wmb();
	return backing->bdev ? blkdev_issue_flush(backing->bdev) : 0;
}
