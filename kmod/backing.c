// SPDX-License-Identifier: GPL-2.0-only
/*
 * What the kinds of memory have in common, and how a character device is found.
 */
#include <linux/blkdev.h>
#include <linux/device.h>
#include <linux/memremap.h>
#include "tarnfs.h"

/* ---- character devices -------------------------------------------------- */

/* What a block device's open looks at, for a device that is never opened. */
static int tarnfs_may_open(const struct path *path, struct fs_context *fc)
{
	int mask = MAY_READ | (fc->sb_flags & SB_RDONLY ? 0 : MAY_WRITE);
	int err = -EACCES;

	if (path->mnt->mnt_flags & MNT_NODEV || path->mnt->mnt_sb->s_iflags & SB_I_NODEV) {
		errorfc(fc, "%s: in a file system mounted with nodev: devices there are not used",
			fc->source);
		return err;
	}
	err = path_permission(path, mask);
	if (err)
		errorfc(fc, "%s: no permission to %s it", fc->source,
			mask & MAY_WRITE ? "read and write" : "read");
	return err;
}

/* With the device locked. */
static bool tarnfs_is_bound(const struct device *dev)
{
	return dev->driver && !strcmp(dev->driver->name, tarnfs_daxbus_driver);
}

static int tarnfs_find_locked(struct tarnfs_backing *backing, struct device *dev,
			      struct fs_context *fc)
{
	if (!device_is_registered(dev)) {
		errorfc(fc, "%s: device is being removed", fc->source);
		return -ENXIO;
	}
	if (!dev->driver) {
		errorfc(fc, "%s: is bound to no driver, tarnfs needs %s: tarnfs device attach %s",
			fc->source, tarnfs_daxbus_driver, fc->source);
		return -EOPNOTSUPP;
	}
	if (!strcmp(dev->driver->name, "kmem")) {
		errorfc(fc, "%s: is system memory (driver kmem), tarnfs needs %s: daxctl reconfigure-device --mode=devdax --force %s, then: tarnfs device attach %s",
			fc->source, tarnfs_daxbus_driver, dev_name(dev), fc->source);
		return -EOPNOTSUPP;
	}
	if (!tarnfs_is_bound(dev)) {
		errorfc(fc, "%s: is bound to %s, tarnfs needs %s: tarnfs device attach %s",
			fc->source, dev->driver->name, tarnfs_daxbus_driver, fc->source);
		return -EOPNOTSUPP;
	}
	backing->dax = tarnfs_daxbus_get(dev);
	if (!backing->dax) {
		errorfc(fc, "%s: device is being removed", fc->source);
		return -ENXIO;
	}
	backing->dev = get_device(dev);
	return 0;
}

int tarnfs_backing_find(struct tarnfs_backing *backing, const struct path *path,
			struct fs_context *fc)
{
	struct inode *inode = d_backing_inode(path->dentry);
	struct device *dev;
	int err = tarnfs_may_open(path, fc);

	if (err)
		return err;
	dev = tarnfs_daxbus_find(inode->i_rdev);
	if (!dev) {
		errorfc(fc, "%s: no device of the dax bus has its number (%u:%u): it is gone, or this is another kind of character device",
			fc->source, MAJOR(inode->i_rdev), MINOR(inode->i_rdev));
		return -ENXIO;
	}
	/* Whoever unbinds it has it locked, for as long as pins last. */
	err = device_lock_interruptible(dev);
	if (!err) {
		err = tarnfs_find_locked(backing, dev, fc);
		device_unlock(dev);
	}
	put_device(dev);
	return err;
}

int tarnfs_backing_confirm(struct tarnfs_backing *backing, struct super_block *sb,
			   struct fs_context *fc)
{
	bool there;
	int err;

	if (!backing->dev)
		return 0;
	/*
	 * A driver is unbound with its device locked: if that is over, or was
	 * begun, it is seen here; and if it begins later it finds this mount.
	 */
	err = device_lock_interruptible(backing->dev);
	if (err)
		return err;
	there = tarnfs_is_bound(backing->dev) && tarnfs_daxbus_is_claimed(backing, sb);
	device_unlock(backing->dev);
	if (there && !tarnfs_is_shutdown(tarnfs_sb(sb)))
		return 0;
	errorfc(fc, "%s: device was taken away while it was being mounted", sb->s_id);
	return -ENXIO;
}

/* ---- all devices -------------------------------------------------------- */

static int tarnfs_backing_check(struct tarnfs_backing *backing, struct super_block *sb,
				struct fs_context *fc)
{
	const char *mode = backing->bdev ? "fsdax" : "devdax";
	bool has_pages = false, on_media = false;
	unsigned long pfn;
	void *kaddr;
	long pages;
	int id;

	/* page structures go with the device, which waits for the end of this */
	id = dax_read_lock();
	pages = tarnfs_direct_access(backing->dax, PHYS_PFN(backing->start), 1,
				     DAX_RECOVERY_WRITE, &kaddr, &pfn);
	if (pages > 0 && pfn_valid(pfn)) {
		struct page *page = pfn_to_page(pfn);

		has_pages = is_zone_device_page(page);
		on_media = has_pages && page_pgmap(page)->flags & PGMAP_ALTMAP_VALID;
	}
	dax_read_unlock(id);
	if (pages < 1) {
		errorfc(fc, "%s: cannot address the device: error %ld", sb->s_id, pages);
		return pages == -ENXIO ? -ENXIO : -EIO;
	}
	if (PFN_PHYS(pfn) & (TARNFS_HUGE - 1)) {
		errorfc(fc, "%s: first byte at physical address %#llx, not a multiple of 2 MiB; make the namespace with: ndctl create-namespace -f -e NAMESPACE -m %s --map=mem --align=2M%s",
			sb->s_id, (u64)PFN_PHYS(pfn), mode,
			backing->bdev ? ", and begin a partition at a multiple of 2 MiB" : "");
		return -EINVAL;
	}
	if (!has_pages) {
		errorfc(fc, "%s: memory has no page structures; make the namespace with: ndctl create-namespace -f -e NAMESPACE -m %s --map=mem",
			sb->s_id, mode);
		return -EINVAL;
	}
	/* Page structures in the device itself are this host's alone, and change all the time. */
	if (on_media) {
		errorfc(fc, "%s: namespace was made with --map=dev, which keeps this host's page structures on the shared media; make it with: ndctl create-namespace -f -e NAMESPACE -m %s --map=mem",
			sb->s_id, mode);
		return -EOPNOTSUPP;
	}
	return 0;
}

int tarnfs_backing_open(struct tarnfs_backing *backing, struct super_block *sb,
			struct fs_context *fc)
{
	int err;

	err = backing->dev ? tarnfs_daxbus_open(backing, sb, fc) :
			     tarnfs_bdev_open(backing, sb, fc);
	if (err)
		return err;
	err = tarnfs_backing_check(backing, sb, fc);
	if (err)
		return err;
	/* else the kernel takes fsync's cache flushes for needless */
	backing->cache_was_off = !dax_write_cache_enabled(backing->dax);
	dax_write_cache(backing->dax, true);
	return 0;
}

void tarnfs_backing_close(struct tarnfs_backing *backing, struct super_block *sb)
{
	/*
	 * After a removal the dax device may have been bound anew, and have
	 * another holder, which fs_put_dax() of 7.3 would not leave alone.
	 */
	if (backing->claimed && dax_holder(backing->dax) == sb) {
		if (backing->cache_was_off)
			dax_write_cache(backing->dax, false);
		fs_put_dax(backing->dax, sb);
	} else if (backing->claimed) {
		put_dax(backing->dax);
	}
	backing->claimed = false;
	if (backing->dev) {
		put_dax(backing->dax);
		put_device(backing->dev);
	}
	backing->dev = NULL;
	backing->dax = NULL;
}

int tarnfs_backing_flush(struct tarnfs_backing *backing)
{
	pmem_wmb();
	return backing->bdev ? blkdev_issue_flush(backing->bdev) : 0;
}
