/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * One shim for each kernel interface that differs between the kernels served,
 * each naming the version that changed it. No other file of the module looks
 * at the kernel's version, but daxbus_layout.h and Kbuild.
 */
#ifndef _TARNFS_COMPAT_H
#define _TARNFS_COMPAT_H

#include <linux/bits.h>
#include <linux/version.h>

#define TARNFS_KERNEL_BEFORE(a, b)	(LINUX_VERSION_CODE < KERNEL_VERSION(a, b, 0))
#define TARNFS_KERNEL_IS(a, b) \
	(!TARNFS_KERNEL_BEFORE(a, b) && TARNFS_KERNEL_BEFORE(a, (b) + 1))

#if !defined(TARNFS_ANY_KERNEL) && !TARNFS_KERNEL_IS(6, 1) && !TARNFS_KERNEL_IS(6, 12) && \
	!TARNFS_KERNEL_IS(7, 2) && !TARNFS_KERNEL_IS(7, 3)
#error "tarnfs supports Linux 6.1, 6.12, 7.2 and 7.3; to try another one: make TARNFS_ANY_KERNEL=1"
#endif

/* What is known of it on arm64: see Documentation/kernel-interface.rst. */
#if !defined(TARNFS_ANY_KERNEL) && !defined(CONFIG_X86_64) && !defined(CONFIG_ARM64)
#error "tarnfs supports x86-64 and arm64; to try another one: make TARNFS_ANY_KERNEL=1"
#endif

/* Debian's 6.1 for arm64 has no CONFIG_ZONE_DEVICE, which it needs. */
#ifndef CONFIG_FS_DAX
#error "this kernel is built without CONFIG_FS_DAX: no DAX file system can work with it"
#endif

#include <linux/dax.h>
#include <linux/fs.h>
#include <linux/memremap.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#if TARNFS_KERNEL_BEFORE(6, 17)
#include <linux/pfn_t.h>
#endif
#include <asm/cacheflush.h>
#ifdef CONFIG_ARM64
#include <asm/barrier.h>
#include <asm/cpufeature.h>
#endif

/*
 * Writes the lines of [addr, addr + len) back to memory and drops them. arm64 exports no such
 * function: arch_invalidate_pmem() is DC IVAC, which would lose stores. CTR_EL0.DminLine and
 * DC CIVAC: Arm Architecture Reference Manual, DDI 0487. An erratum of cleaning (see
 * CONFIG_ARM64_WORKAROUND_CLEAN_CACHE) is mended by CIVAC, so needs no care here.
 */
static inline void tarnfs_clean_and_invalidate(void *addr, size_t len)
{
#if defined(CONFIG_ARM64)
	unsigned long step = 4UL << (read_sanitised_ftr_reg(SYS_CTR_EL0) >> 16 & 15);
	unsigned long line = (unsigned long)addr & ~(step - 1);
	unsigned long end = (unsigned long)addr + len;

	for (; line < end; line += step)
		asm volatile("dc civac, %0" : : "r" (line) : "memory");
	dsb(sy);
#else
	clflush_cache_range(addr, len);
#endif
}

/* 6.3: struct mnt_idmap instead of struct user_namespace in inode operations */
#if TARNFS_KERNEL_BEFORE(6, 3)
#define mnt_idmap user_namespace
#endif

/* 6.3: vm_flags_set() and vm_flags_clear() */
#if TARNFS_KERNEL_BEFORE(6, 3)
static inline void vm_flags_set(struct vm_area_struct *vma, unsigned long flags)
{
	vma->vm_flags |= flags;
}

static inline void vm_flags_clear(struct vm_area_struct *vma, unsigned long flags)
{
	vma->vm_flags &= ~flags;
}
#endif

/* 6.5: copy_splice_read() instead of generic_file_splice_read() */
#if TARNFS_KERNEL_BEFORE(6, 5)
#define copy_splice_read generic_file_splice_read
#endif

/* 6.6: generic_fillattr() is told what was asked for */
static inline void tarnfs_fillattr(struct mnt_idmap *idmap, u32 request_mask,
				   struct inode *inode, struct kstat *stat)
{
#if TARNFS_KERNEL_BEFORE(6, 6)
	generic_fillattr(idmap, inode, stat);
#else
	generic_fillattr(idmap, request_mask, inode, stat);
#endif
}

/* 6.6 and 6.7: inode times by functions */
static inline void tarnfs_set_times(struct inode *inode, struct timespec64 time)
{
#if TARNFS_KERNEL_BEFORE(6, 7)
	inode->i_atime = time;
	inode->i_mtime = time;
	inode->i_ctime = time;
#else
	inode_set_atime_to_ts(inode, time);
	inode_set_mtime_to_ts(inode, time);
	inode_set_ctime_to_ts(inode, time);
#endif
}

/* 6.6: ->huge_fault() and fs/dax.c get an order instead of an enum */
#if TARNFS_KERNEL_BEFORE(6, 6)
#define TARNFS_FAULT_SIZE	enum page_entry_size
#define TARNFS_FAULT_PTE	PE_SIZE_PTE

static inline unsigned int tarnfs_fault_order(enum page_entry_size size)
{
	switch (size) {
	case PE_SIZE_PTE:
		return 0;
	case PE_SIZE_PMD:
		return PMD_SHIFT - PAGE_SHIFT;
	default:
		return PUD_SHIFT - PAGE_SHIFT;
	}
}
#else
#define TARNFS_FAULT_SIZE	unsigned int
#define TARNFS_FAULT_PTE	0

static inline unsigned int tarnfs_fault_order(unsigned int order)
{
	return order;
}
#endif

/*
 * 6.10: capabilities of a file moved from f_mode and mmap_supported_flags to
 * fop_flags. TARNFS_FOP_FLAGS stands in the file_operations initialisers.
 */
#if TARNFS_KERNEL_BEFORE(6, 10)
#define TARNFS_FOP_FLAGS	.mmap_supported_flags = MAP_SYNC
#define TARNFS_FMODE		(FMODE_CAN_ODIRECT | FMODE_NOWAIT | FMODE_BUF_WASYNC)
#else
#define TARNFS_FOP_FLAGS	.fop_flags = FOP_MMAP_SYNC | FOP_BUFFER_WASYNC
#define TARNFS_FMODE		(FMODE_CAN_ODIRECT | FMODE_NOWAIT)
#endif

/* 6.9: the superblock's uuid has a length, and FS_IOC_GETFSUUID shows it */
#if TARNFS_KERNEL_BEFORE(6, 9)
static inline void super_set_uuid(struct super_block *sb, const u8 *uuid, unsigned int len)
{
	memcpy(&sb->s_uuid, uuid, len);
}
#endif

/* 6.6: the superblock is told of a block device that was taken away */
#if TARNFS_KERNEL_BEFORE(6, 6)
#define TARNFS_SHUTDOWN_OP
#else
#define TARNFS_SHUTDOWN_OP	.shutdown = tarnfs_gone,
#endif

/* 6.7: a device that goes says so; before, its whole range fails with no flag */
#if TARNFS_KERNEL_BEFORE(6, 7)
#define MF_MEM_PRE_REMOVE	0
#endif

/* 6.14: ->d_revalidate() is told the parent and the name */
#if TARNFS_KERNEL_BEFORE(6, 14)
#define TARNFS_REVALIDATE_ARGS	struct dentry *dentry, unsigned int flags
#else
#define TARNFS_REVALIDATE_ARGS	\
	struct inode *parent, const struct qstr *name, struct dentry *dentry, unsigned int flags
#endif

/* 6.15: ->mkdir() returns a dentry */
#if TARNFS_KERNEL_BEFORE(6, 15)
#define TARNFS_MKDIR_RET	int
#define TARNFS_MKDIR_ERR(err)	(err)
#else
#define TARNFS_MKDIR_RET	struct dentry *
#define TARNFS_MKDIR_ERR(err)	ERR_PTR(err)
#endif

/* 6.15: a page of the device is in a folio, which alone knows the pgmap */
#if TARNFS_KERNEL_BEFORE(6, 15)
static inline struct dev_pagemap *page_pgmap(const struct page *page)
{
	return page->pgmap;
}
#endif

/* 6.17: a pfn is a number, instead of a pfn_t that has flags */
static inline long tarnfs_direct_access(struct dax_device *dax, pgoff_t pgoff, long pages,
					enum dax_access_mode mode, void **kaddr,
					unsigned long *pfn)
{
#if TARNFS_KERNEL_BEFORE(6, 17)
	pfn_t with_flags;
	long ret = dax_direct_access(dax, pgoff, pages, mode, kaddr, &with_flags);

	if (ret > 0)
		*pfn = pfn_t_to_pfn(with_flags);
	return ret;
#else
	return dax_direct_access(dax, pgoff, pages, mode, kaddr, pfn);
#endif
}

/* 6.17: set_default_d_op() instead of an assignment */
#if TARNFS_KERNEL_BEFORE(6, 17)
static inline void set_default_d_op(struct super_block *sb, const struct dentry_operations *ops)
{
	sb->s_d_op = ops;
}
#endif

/* 6.19: i_state is read through functions */
#if TARNFS_KERNEL_BEFORE(6, 19)
static inline unsigned long inode_state_read_once(struct inode *inode)
{
	return READ_ONCE(inode->i_state);
}
#endif

/* After 6.12: crc32c() is in the kernel itself, under that name */
#if TARNFS_KERNEL_BEFORE(6, 13)
#define crc32c(crc, data, len)	__crc32c_le(crc, data, len)
#endif

/* After 6.12: ->create() is not told of O_EXCL */
#if TARNFS_KERNEL_BEFORE(7, 2)
#define TARNFS_CREATE_ARGS \
	struct mnt_idmap *idmap, struct inode *dir, struct dentry *dentry, umode_t mode, bool excl
#else
#define TARNFS_CREATE_ARGS \
	struct mnt_idmap *idmap, struct inode *dir, struct dentry *dentry, umode_t mode
#endif

/* 6.15: who truncates removes the DAX entries himself. Nothing is mapped or pinned. */
static inline void tarnfs_drop_entries(struct inode *inode)
{
#if TARNFS_KERNEL_BEFORE(6, 15)
	truncate_inode_pages(inode->i_mapping, 0);
#else
	dax_break_layout_final(inode);
#endif
}

/* 7.0: inode numbers have 64 bits everywhere */
#if TARNFS_KERNEL_BEFORE(7, 0)
#define TARNFS_INO_T	unsigned long
#else
#define TARNFS_INO_T	u64
#endif

/*
 * What fs/dax.c keeps in i_pages: value entries whose lowest bits are flags.
 * These are private to it and the same in every kernel served.
 */
#define TARNFS_DAX_LOCKED	BIT(0)
#define TARNFS_DAX_PMD		BIT(1)
#define TARNFS_DAX_ZERO_PAGE	BIT(2)
#define TARNFS_DAX_EMPTY	BIT(3)
#define TARNFS_DAX_SHIFT	4

/*
 * 6.15: an entry's pages are one folio, on which mappings count like on any
 * other; before, each page has one reference, nobody's, and none of mappings.
 */
static inline bool tarnfs_pages_pinned(unsigned long pfn, unsigned long pages)
{
#if TARNFS_KERNEL_BEFORE(6, 15)
	for (; pages; pages--, pfn++)
		if (page_ref_count(pfn_to_page(pfn)) > 1)
			return true;
	return false;
#else
	struct folio *folio = page_folio(pfn_to_page(pfn));

	return folio_ref_count(folio) > folio_mapcount(folio);
#endif
}

/* 6.15: who evicts removes the DAX entries himself. Nothing is pinned. */
static inline void tarnfs_truncate_final(struct inode *inode)
{
#if !TARNFS_KERNEL_BEFORE(6, 15)
	dax_break_layout_final(inode);
#endif
	truncate_inode_pages_final(&inode->i_data);
}

#endif /* _TARNFS_COMPAT_H */
