/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Where a mount's memory comes from. A backing gives a struct dax_device, the
 * place in it where our device's first byte is, and a size; everything else in
 * the module works on that. There are two kinds: a block device in fsdax mode
 * (backing_bdev.c), and a character device of the dax bus (devdax), which has
 * to be bound to a driver that keeps its pages as fs/dax.c wants them: the
 * kernel's own fsdev_dax since 7.2 (backing_fsdev.c), before that ours
 * (backing_daxbus.c).
 */
#ifndef _TARNFS_BACKING_H
#define _TARNFS_BACKING_H

#include <linux/dax.h>
#include <linux/types.h>

struct device;
struct fs_context;
struct path;
struct super_block;

struct tarnfs_backing {
	struct dax_device	*dax;
	u64			start;		/* bytes in dax where the device begins */
	u64			size;		/* bytes of the device */
	struct block_device	*bdev;		/* the superblock's, or NULL */
	struct device		*dev;		/* of the dax bus, or NULL */
	bool			claimed;	/* dax knows sb as its holder */
	bool			cache_was_off;	/* dax's write_cache, which is on while mounted */
};

/*
 * The dax device of a character device, with references to it and to the
 * device, that tarnfs_backing_close() drops. Says in fc's log what is wrong:
 * -EACCES (mode, or nodev), -ENXIO (not on the dax bus, or gone), -EOPNOTSUPP
 * (bound to no driver, or to another one).
 */
int tarnfs_backing_find(struct tarnfs_backing *backing, const struct path *path,
			struct fs_context *fc);

/*
 * Claim the dax device: that of sb->s_bdev, or what was found. Says in fc's
 * log what is wrong with it. -EOPNOTSUPP (no DAX, or page structures on the
 * media), -EBUSY (has another holder), -EINVAL (alignment), -ENXIO (gone), -EIO.
 */
int tarnfs_backing_open(struct tarnfs_backing *backing, struct super_block *sb,
			struct fs_context *fc);

/*
 * Whether the device is still there, when the mount is where a removal looks
 * for it: what goes away from now on is told to the mount. -ENXIO, -EINTR.
 */
int tarnfs_backing_confirm(struct tarnfs_backing *backing, struct super_block *sb,
			   struct fs_context *fc);

/* May be called again, and when open failed. No inode with DAX entries is left. */
void tarnfs_backing_close(struct tarnfs_backing *backing, struct super_block *sb);

/* A barrier and the device's own flush: what was written back is then in memory. */
int tarnfs_backing_flush(struct tarnfs_backing *backing);

/* ---- backing_bdev.c ----------------------------------------------------- */

int tarnfs_bdev_open(struct tarnfs_backing *backing, struct super_block *sb,
		     struct fs_context *fc);

/* ---- backing_daxbus.c or backing_fsdev.c -------------------------------- */

/* The driver that a devdax has to be bound to. */
extern const char *const tarnfs_daxbus_driver;

int tarnfs_daxbus_register(void);
void tarnfs_daxbus_unregister(void);

/* The device of the bus that has that number, with a reference, or NULL. */
struct device *tarnfs_daxbus_find(dev_t devt);

/*
 * The dax device, with a reference, of a device that is locked and bound to
 * that driver, or NULL.
 */
struct dax_device *tarnfs_daxbus_get(struct device *dev);

int tarnfs_daxbus_open(struct tarnfs_backing *backing, struct super_block *sb,
		       struct fs_context *fc);

/* Of a device that is locked and bound: whether open's claim still stands. */
bool tarnfs_daxbus_is_claimed(struct tarnfs_backing *backing, struct super_block *sb);

#endif /* _TARNFS_BACKING_H */
