// SPDX-License-Identifier: GPL-2.0-only
/*
 * The memory of a devdax on kernels without fsdev_dax: a driver of the dax bus,
 * tarnfs_dax, that makes pages of it which fs/dax.c can work with, and a dax
 * device to reach them. It takes no device by itself; one is given to it by:
 *
 *	echo dax0.0 > /sys/bus/dax/drivers/device_dax/unbind
 *	echo dax0.0 > /sys/bus/dax/drivers/tarnfs_dax/new_id
 *
 * and taken back through tarnfs_dax/unbind, tarnfs_dax/remove_id and
 * device_dax/bind. While a device is bound there is no way to it but a mount,
 * since nothing serves its device file, and the module cannot be unloaded.
 */
#include <linux/io.h>
#include <linux/memremap.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/uio.h>
#include "tarnfs.h"
#include "daxbus_layout.h"

const char *const tarnfs_daxbus_driver = "tarnfs_dax";

/* The driver's data of a bound device. */
struct tarnfs_dax {
	struct dax_device	*dax;
	void			*addr;		/* of the first byte */
	u64			phys;
	u64			size;
	struct dev_pagemap	*pgmap;
	unsigned long		vmemmap_shift;	/* of pgmap, as it was */
	enum memory_type	type;		/* likewise */
};

static const struct tarnfs_layout_entry tarnfs_layout[]
	__used __section(TARNFS_LAYOUT_SECTION) = {
	TARNFS_LAYOUT_STRUCT(dax_device_driver),
	TARNFS_LAYOUT_MEMBER(dax_device_driver, drv),
	TARNFS_LAYOUT_MEMBER(dax_device_driver, ids),
	TARNFS_LAYOUT_MEMBER(dax_device_driver, probe),
	TARNFS_LAYOUT_MEMBER(dax_device_driver, remove),
	TARNFS_LAYOUT_STRUCT(dev_dax),
	TARNFS_LAYOUT_MEMBER(dev_dax, region),
	TARNFS_LAYOUT_MEMBER(dev_dax, dax_dev),
	TARNFS_LAYOUT_MEMBER(dev_dax, align),
	TARNFS_LAYOUT_MEMBER(dev_dax, target_node),
	TARNFS_LAYOUT_MEMBER(dev_dax, dyn_id),
	TARNFS_LAYOUT_MEMBER(dev_dax, id),
	TARNFS_LAYOUT_MEMBER(dev_dax, ida),
	TARNFS_LAYOUT_MEMBER(dev_dax, dev),
	TARNFS_LAYOUT_MEMBER(dev_dax, pgmap),
	TARNFS_LAYOUT_MEMBER(dev_dax, nr_range),
	TARNFS_LAYOUT_MEMBER(dev_dax, ranges),
	TARNFS_LAYOUT_STRUCT(dev_dax_range),
	TARNFS_LAYOUT_MEMBER(dev_dax_range, pgoff),
	TARNFS_LAYOUT_MEMBER(dev_dax_range, range),
};

/* ---- the dax device ----------------------------------------------------- */

/* Within dax_read_lock() on a device that is alive, which unbinding waits for. */
static long tarnfs_dax_direct_access(struct dax_device *dax, pgoff_t pgoff, long pages,
				     enum dax_access_mode mode, void **kaddr, pfn_t *pfn)
{
	const struct tarnfs_dax *td = dax_get_private(dax);
	u64 at = PFN_PHYS(pgoff);

	if (!td)
		return -ENXIO;
	if (pgoff >= PHYS_PFN(td->size))
		return -EFAULT;
	if (kaddr)
		*kaddr = td->addr + at;
	if (pfn)
		*pfn = phys_to_pfn_t(td->phys + at, PFN_DEV | PFN_MAP);
	return PHYS_PFN(td->size - at);
}

static int tarnfs_dax_zero_page_range(struct dax_device *dax, pgoff_t pgoff, size_t pages)
{
	const struct tarnfs_dax *td = dax_get_private(dax);

	if (!td)
		return -ENXIO;
	for (; pages; pages--, pgoff++) {
		if (pgoff >= PHYS_PFN(td->size))
			return -EFAULT;
		memcpy_flushcache(td->addr + PFN_PHYS(pgoff), page_address(ZERO_PAGE(0)),
				  PAGE_SIZE);
	}
	return 0;
}

/* Nothing of the platform is known that could mend the memory: the bytes alone. */
static size_t tarnfs_dax_recovery_write(struct dax_device *dax, pgoff_t pgoff, void *addr,
					size_t bytes, struct iov_iter *iter)
{
	return _copy_from_iter_flushcache(addr, bytes, iter);
}

static const struct dax_operations tarnfs_dax_operations = {
	.direct_access	= tarnfs_dax_direct_access,
	.zero_page_range = tarnfs_dax_zero_page_range,
	.recovery_write	= tarnfs_dax_recovery_write,
};

static int tarnfs_dax_memory_failure(struct dev_pagemap *pgmap, unsigned long pfn,
				     unsigned long pages, int mf_flags)
{
	const struct tarnfs_dax *td = pgmap->owner;
	u64 from = max_t(u64, PFN_PHYS(pfn), td->phys);
	u64 to = min_t(u64, PFN_PHYS(pfn + pages), td->phys + td->size);

	/* The pages of a namespace begin before the device: its info block. */
	if (from >= to)
		return -EOPNOTSUPP;
	return tarnfs_dax_failure(td->dax, from - td->phys, to - from, mf_flags);
}

static const struct dev_pagemap_ops tarnfs_pagemap_ops = {
	.memory_failure	= tarnfs_dax_memory_failure,
};

/* ---- binding ------------------------------------------------------------ */

/* The pgmap of a namespace outlives us: device_dax wants it as it was. */
static void tarnfs_dax_restore_pgmap(void *data)
{
	struct tarnfs_dax *td = data;

	td->pgmap->ops = NULL;
	td->pgmap->owner = NULL;
	td->pgmap->type = td->type;
	td->pgmap->vmemmap_shift = td->vmemmap_shift;
}

static struct dev_pagemap *tarnfs_dax_pgmap(struct dev_dax *dev_dax)
{
	const struct range *range = &dev_dax->ranges[0].range;
	struct device *dev = &dev_dax->dev;
	struct dev_pagemap *pgmap;

	if (!static_dev_dax(dev_dax)) {
		pgmap = devm_kzalloc(dev, sizeof(*pgmap), GFP_KERNEL);
		if (!pgmap)
			return ERR_PTR(-ENOMEM);
		pgmap->nr_range = 1;
		pgmap->range = *range;
		return pgmap;
	}

	pgmap = dev_dax->pgmap;
	if (!pgmap || pgmap->nr_range != 1 || range->start < pgmap->range.start ||
	    range->end > pgmap->range.end) {
		dev_err(dev, "page map of the namespace does not cover its data: a kernel that tarnfs does not know\n");
		return ERR_PTR(-EINVAL);
	}
	if (pgmap->flags & PGMAP_ALTMAP_VALID) {
		dev_err(dev, "namespace was made with --map=dev, which keeps this host's page structures on the shared media; make it with: ndctl create-namespace -f -e NAMESPACE -m devdax --map=mem\n");
		return ERR_PTR(-EOPNOTSUPP);
	}
	return pgmap;
}

static int tarnfs_dax_check(struct dev_dax *dev_dax)
{
	const struct range *range;
	struct device *dev = &dev_dax->dev;

	if (dev_dax->nr_range != 1) {
		dev_err(dev, "memory is in %d pieces, tarnfs needs it in one; give the region's space back with: daxctl destroy-device, and make the device again\n",
			dev_dax->nr_range);
		return -EINVAL;
	}
	range = &dev_dax->ranges[0].range;
	if (range->start & (TARNFS_HUGE - 1)) {
		dev_err(dev, "first byte at physical address %#llx, not a multiple of 2 MiB; make the namespace with: ndctl create-namespace -f -e NAMESPACE -m devdax --map=mem --align=2M\n",
			range->start);
		return -EINVAL;
	}
	return 0;
}

/* What is taken here with devm goes after remove, in reverse order; or when probe fails. */
static int tarnfs_dax_map(struct tarnfs_dax *td, struct dev_dax *dev_dax)
{
	const struct range *range = &dev_dax->ranges[0].range;
	struct device *dev = &dev_dax->dev;
	struct dev_pagemap *pgmap;
	void *addr;
	int err;

	pgmap = tarnfs_dax_pgmap(dev_dax);
	if (IS_ERR(pgmap))
		return PTR_ERR(pgmap);
	if (!devm_request_mem_region(dev, range->start, range_len(range), dev_name(dev))) {
		dev_err(dev, "%#llx-%#llx: another driver has this memory (/proc/iomem says which), or the kernel is out of memory\n",
			range->start, range->end);
		return -EBUSY;
	}
	td->phys = range->start;
	td->size = range_len(range);
	td->pgmap = pgmap;
	td->type = pgmap->type;
	td->vmemmap_shift = pgmap->vmemmap_shift;
	err = devm_add_action(dev, tarnfs_dax_restore_pgmap, td);
	if (err)
		return err;

	pgmap->type = MEMORY_DEVICE_FS_DAX;
	pgmap->vmemmap_shift = 0;	/* device_dax leaves its own in there */
	pgmap->ops = &tarnfs_pagemap_ops;
	pgmap->owner = td;
	addr = devm_memremap_pages(dev, pgmap);
	if (IS_ERR(addr)) {
		dev_err(dev, "page structures could not be made: error %ld\n", PTR_ERR(addr));
		return PTR_ERR(addr);
	}
	td->addr = addr + (range->start - pgmap->range.start);
	return 0;
}

static int tarnfs_dax_probe(struct dev_dax *dev_dax)
{
	struct device *dev = &dev_dax->dev;
	struct dax_device *dax;
	struct tarnfs_dax *td;
	int err;

	err = tarnfs_dax_check(dev_dax);
	if (err)
		return err;
	td = devm_kzalloc(dev, sizeof(*td), GFP_KERNEL);
	if (!td)
		return -ENOMEM;
	err = tarnfs_dax_map(td, dev_dax);
	if (err)
		return err;
	if (!try_module_get(THIS_MODULE))	/* it is being unloaded */
		return -ENODEV;
	dax = alloc_dax(td, &tarnfs_dax_operations);
	if (IS_ERR_OR_NULL(dax)) {
		module_put(THIS_MODULE);
		return dax ? PTR_ERR(dax) : -EOPNOTSUPP;
	}
	td->dax = dax;
	/* As device_dax: there is no flush but the processor's own. */
	set_dax_synchronous(dax);
	set_dax_nocache(dax);
	set_dax_nomc(dax);
	dax_write_cache(dax, true);
	dev_set_drvdata(dev, td);
	return 0;
}

/* Cannot be refused, whatever is mounted. A mount under way: see tarnfs_backing_confirm(). */
static void tarnfs_dax_remove(struct dev_dax *dev_dax)
{
	struct tarnfs_dax *td = dev_get_drvdata(&dev_dax->dev);

	tarnfs_dax_removed(td->dax);
	kill_dax(td->dax);
	put_dax(td->dax);
	/* Unloading waits for the lock of the device, which its unbinder has until all is undone. */
	module_put(THIS_MODULE);
}

static struct dax_device_driver tarnfs_driver = {
	TARNFS_DAXBUS_NO_MATCH,
	.probe	= tarnfs_dax_probe,
	.remove	= tarnfs_dax_remove,
};

int tarnfs_daxbus_register(void)
{
	return __dax_driver_register(&tarnfs_driver, THIS_MODULE, tarnfs_daxbus_driver);
}

void tarnfs_daxbus_unregister(void)
{
	dax_driver_unregister(&tarnfs_driver);
}

/* ---- mounting ----------------------------------------------------------- */

struct device *tarnfs_daxbus_find(dev_t devt)
{
	return bus_find_device_by_devt(tarnfs_driver.drv.bus, devt);
}

struct dax_device *tarnfs_daxbus_get(struct device *dev)
{
	struct tarnfs_dax *td = dev_get_drvdata(dev);

	/* Bound, so remove has not put it yet. */
	return igrab(dax_inode(td->dax)) ? td->dax : NULL;
}

/* It has one mount by sget_fc(), and takes no holder: remove and pgmap find us by themselves. */
int tarnfs_daxbus_open(struct tarnfs_backing *backing, struct super_block *sb,
		       struct fs_context *fc)
{
	const struct tarnfs_dax *td;
	int id;

	id = dax_read_lock();
	td = dax_get_private(backing->dax);
	if (td)
		backing->size = td->size;
	dax_read_unlock(id);
	if (!td) {
		errorfc(fc, "%s: device is being removed", sb->s_id);
		return -ENXIO;
	}
	return 0;
}

bool tarnfs_daxbus_is_claimed(struct tarnfs_backing *backing, struct super_block *sb)
{
	struct tarnfs_dax *td = dev_get_drvdata(backing->dev);

	return td->dax == backing->dax;
}
