/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Where a mount's memory comes from. A backing gives a struct dax_device, the
 * place in it where our device's first byte is, and a size; everything else in
 * the module works on that. backing_bdev.c: a block device in fsdax mode.
 */
#ifndef _TARNFS_BACKING_H
#define _TARNFS_BACKING_H

#include <linux/dax.h>
#include <linux/types.h>

struct fs_context;
struct super_block;

struct tarnfs_backing {
	struct dax_device	*dax;
	u64			start;		/* bytes in dax where the device begins */
	u64			size;		/* bytes of the device */
	struct block_device	*bdev;		/* the superblock's, or NULL */
};

/*
 * Find and claim the dax device of sb->s_bdev. Says in fc's log what is wrong
 * with it. -EOPNOTSUPP (no DAX, or page structures on the media), -EBUSY (has
 * another holder), -EINVAL (alignment), -EIO.
 */
int tarnfs_backing_open(struct tarnfs_backing *backing, struct super_block *sb,
			struct fs_context *fc);

/* May be called again, and when open failed. No inode with DAX entries is left. */
void tarnfs_backing_close(struct tarnfs_backing *backing, struct super_block *sb);

/* A barrier and the device's own flush: what was written back is then in memory. */
int tarnfs_backing_flush(struct tarnfs_backing *backing);

#endif /* _TARNFS_BACKING_H */
