// SPDX-License-Identifier: GPL-2.0-only
/*
 * The memory of a devdax that is bound to the kernel's own fsdev_dax driver,
 * which is there since 7.2:
 *
 *	echo dax0.0 > /sys/bus/dax/drivers/device_dax/unbind
 *	echo dax0.0 > /sys/bus/dax/drivers/fsdev_dax/new_id
 */
#include <linux/device.h>
#include <linux/module.h>
#include <linux/notifier.h>
#include "tarnfs.h"
#include "daxbus_layout.h"

const char *const tarnfs_daxbus_driver = "fsdev_dax";

static const struct tarnfs_layout_entry tarnfs_layout[]
	__used __section(TARNFS_LAYOUT_SECTION) = {
	TARNFS_LAYOUT_STRUCT(dax_device_driver),
	TARNFS_LAYOUT_MEMBER(dax_device_driver, drv),
	TARNFS_LAYOUT_MEMBER(dax_device_driver, ids),
	TARNFS_LAYOUT_MEMBER(dax_device_driver, probe),
	TARNFS_LAYOUT_MEMBER(dax_device_driver, remove),
};

/* Somebody wrote to its new_id. */
static int tarnfs_lookup_probe(struct dev_dax *dev_dax)
{
	pr_err("tarnfs: tarnfs_lookup takes no device; on this kernel the driver to bind is fsdev_dax\n");
	return -ENODEV;
}

/* A driver without devices: what has registered one is told where the bus is. */
static struct dax_device_driver tarnfs_driver = {
	TARNFS_DAXBUS_NO_MATCH,
	.probe	= tarnfs_lookup_probe,
};

/*
 * fsdev_dax tells the holder of a dax device when it goes; but it looks whether
 * there is one without a lock, so a mount under way may go unnoticed. This one
 * comes before the driver's remove, with the device locked until that is over:
 * a mount that is in the list by now is found, and one that comes later waits
 * for the device's lock in tarnfs_backing_confirm(), and sees that it went. Of
 * the two notices the second finds nothing left to do.
 */
static int tarnfs_daxbus_notify(struct notifier_block *nb, unsigned long action, void *data)
{
	struct device *dev = data;
	struct dax_device *dax;

	if (action != BUS_NOTIFY_UNBIND_DRIVER || !dev->driver ||
	    strcmp(dev->driver->name, tarnfs_daxbus_driver))
		return NOTIFY_DONE;
	dax = dax_dev_get(dev->devt);
	if (dax) {
		tarnfs_dax_removed(dax);
		put_dax(dax);
	}
	return NOTIFY_OK;
}

static struct notifier_block tarnfs_daxbus_nb = {
	.notifier_call	= tarnfs_daxbus_notify,
};

int tarnfs_daxbus_register(void)
{
	int err = __dax_driver_register(&tarnfs_driver, THIS_MODULE, "tarnfs_lookup");

	if (err)
		return err;
	err = bus_register_notifier(tarnfs_driver.drv.bus, &tarnfs_daxbus_nb);
	if (err)
		dax_driver_unregister(&tarnfs_driver);
	return err;
}

void tarnfs_daxbus_unregister(void)
{
	bus_unregister_notifier(tarnfs_driver.drv.bus, &tarnfs_daxbus_nb);
	dax_driver_unregister(&tarnfs_driver);
}

struct device *tarnfs_daxbus_find(dev_t devt)
{
	return bus_find_device_by_devt(tarnfs_driver.drv.bus, devt);
}

/* The device has it from its making to its release, so it is found, not made. */
struct dax_device *tarnfs_daxbus_get(struct device *dev)
{
	return dax_dev_get(dev->devt);
}

static bool tarnfs_fsdev_has_page(struct dax_device *dax, u64 page)
{
	void *kaddr;

	return dax_direct_access(dax, page, 1, DAX_RECOVERY_WRITE, &kaddr, NULL) == 1;
}

/*
 * Bytes of the device: no interface tells, but asking past the end is refused.
 * A device in pieces is refused here by the driver's answer to a request for
 * all of it at once.
 */
static int tarnfs_fsdev_size(struct tarnfs_backing *backing)
{
	u64 have = 0, not = TARNFS_SIZE_MAX >> PAGE_SHIFT;
	void *kaddr;
	long pages;
	int id;

	id = dax_read_lock();
	while (not - have > 1) {
		u64 page = have + (not - have) / 2;

		if (tarnfs_fsdev_has_page(backing->dax, page))
			have = page;
		else
			not = page;
	}
	pages = dax_direct_access(backing->dax, 0, have + 1, DAX_RECOVERY_WRITE, &kaddr, NULL);
	dax_read_unlock(id);
	backing->size = (have + 1) << PAGE_SHIFT;
	if (pages == -ENXIO)
		return -ENXIO;
	return pages == have + 1 ? 0 : -EINVAL;
}

int tarnfs_daxbus_open(struct tarnfs_backing *backing, struct super_block *sb,
		       struct fs_context *fc)
{
	int err = fs_dax_get(backing->dax, sb, &tarnfs_holder_operations);

	if (err == -EBUSY) {
		errorfc(fc, "%s: another file system holds the device", sb->s_id);
		return err;
	}
	if (err) {
		errorfc(fc, "%s: device is being removed: error %d", sb->s_id, err);
		return -ENXIO;
	}
	backing->claimed = true;
	err = tarnfs_fsdev_size(backing);
	if (err == -ENXIO)
		errorfc(fc, "%s: device is being removed", sb->s_id);
	else if (err)
		errorfc(fc, "%s: memory is in several pieces, tarnfs needs it in one; give the region's space back with: daxctl destroy-device, and make the device again",
			sb->s_id);
	return err;
}

bool tarnfs_daxbus_is_claimed(struct tarnfs_backing *backing, struct super_block *sb)
{
	return dax_holder(backing->dax) == sb;
}
