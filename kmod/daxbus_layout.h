/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the dax bus expects of a driver and gives it, but no header has: facts
 * from drivers/dax/bus.h and drivers/dax/dax-private.h of Linux 6.1, 6.12, 7.2
 * and 7.3. Symbol versions do not cover these structures, so a kernel that is
 * not listed here is refused; selftests/t_daxbus_layout.c compares what was
 * compiled in with the types that the running kernel tells.
 */
#ifndef _TARNFS_DAXBUS_LAYOUT_H
#define _TARNFS_DAXBUS_LAYOUT_H

#include <linux/device.h>
#include <linux/idr.h>
#include <linux/range.h>
#include "compat.h"

#if !TARNFS_KERNEL_IS(6, 1) && !TARNFS_KERNEL_IS(6, 12) && \
	!TARNFS_KERNEL_IS(7, 2) && !TARNFS_KERNEL_IS(7, 3)
#error "the layout of the dax bus is known for Linux 6.1, 6.12, 7.2 and 7.3 only"
#endif

struct dax_device;
struct dev_dax;

struct dax_device_driver {
	struct device_driver drv;
	struct list_head ids;
#if TARNFS_KERNEL_IS(6, 1)
	int match_always;
#else
	unsigned int type;	/* an enum there */
#endif
	int (*probe)(struct dev_dax *dev);
	void (*remove)(struct dev_dax *dev);
};

/* Of a type that no device has: such a driver binds through its new_id alone. */
#if TARNFS_KERNEL_IS(6, 1)
#define TARNFS_DAXBUS_NO_MATCH	.match_always = 0
#else
#define TARNFS_DAXBUS_NO_MATCH	.type = 0x7f
#endif

int __dax_driver_register(struct dax_device_driver *driver, struct module *module,
			  const char *name);
void dax_driver_unregister(struct dax_device_driver *driver);

/* Only a driver of our own looks into the device. */
#if TARNFS_KERNEL_IS(6, 1) || TARNFS_KERNEL_IS(6, 12)
struct dax_region;
struct dax_mapping;

struct dev_dax_range {
	unsigned long pgoff;
	struct range range;
	struct dax_mapping *mapping;
};

struct dev_dax {
	struct dax_region *region;
	struct dax_device *dax_dev;
	unsigned int align;
	int target_node;
	bool dyn_id;
	int id;
	struct ida ida;
	struct device dev;
	struct dev_pagemap *pgmap;
#if TARNFS_KERNEL_IS(6, 12)
	bool memmap_on_memory;
#endif
	int nr_range;
	struct dev_dax_range *ranges;
};

bool static_dev_dax(struct dev_dax *dev_dax);
struct inode *dax_inode(struct dax_device *dax);
#endif

/* For the selftest, which reads the section from the file of the module. */
struct tarnfs_layout_entry {
	char			name[48];	/* "structure", or "structure.member" */
	unsigned long long	offset;		/* 0 for a structure */
	unsigned long long	size;
};

#define TARNFS_LAYOUT_SECTION	".init.rodata.tarnfs_layout"
#define TARNFS_LAYOUT_STRUCT(type) \
	{ #type, 0, sizeof(struct type) }
#define TARNFS_LAYOUT_MEMBER(type, member) \
	{ #type "." #member, offsetof(struct type, member), sizeof_field(struct type, member) }

#endif /* _TARNFS_DAXBUS_LAYOUT_H */
