// SPDX-License-Identifier: GPL-2.0-only
/*
 * The memory behind a block device in fsdax mode: an NVDIMM's /dev/pmemN, or a
 * partition of one.
 */
#include <linux/blkdev.h>
#include "tarnfs.h"

int tarnfs_bdev_open(struct tarnfs_backing *backing, struct super_block *sb,
		     struct fs_context *fc)
{
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
		errorfc(fc, "%s: no DAX access: another user holds the device, or it is being removed, or the partition does not begin and end at multiples of 4 KiB",
			sb->s_id);
		return -EBUSY;
	}
	backing->claimed = true;
	return 0;
}
