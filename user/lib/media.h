/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * media.h - the only way to metadata bytes of shared memory.
 *
 * Hardware need not keep hosts coherent: a load may be served by a line that
 * was cached long ago, a store stays in the cache until something writes it
 * back. So every access names what it means, through five operations:
 *
 *   read        load bytes, as this host's caches have them
 *   write       store bytes into this host's caches
 *   write back  start writing these lines to memory (CLWB, CLFLUSHOPT or
 *               CLFLUSH by CPUID; arm64: DC CVAP or CVAC); complete only
 *               after a fence
 *   invalidate  write back and drop these lines (CLFLUSHOPT or CLFLUSH; arm64:
 *               DC CIVAC), then fence, so that a read after it comes from memory
 *   fence       MFENCE (arm64: DSB SY): all before is done before anything after.
 *               Always the full fence: SFENCE would not order later loads.
 *
 * Back ends: the real mapping (media_map.c) and, for tests, a recorder that
 * lists the operations, and a simulator of hosts with private caches.
 *
 * All functions return 0 or a negative errno: -EINVAL for a range outside the
 * media, -EIO when the memory failed (SIGBUS is caught; tarn_media.bad then
 * holds the offset), -EACCES for a store to a range not opened for it.
 */
#ifndef TARN_MEDIA_H
#define TARN_MEDIA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tarn_media;

struct tarn_media_ops {
	int (*read)(struct tarn_media *m, uint64_t off, void *buf, size_t len);
	int (*write)(struct tarn_media *m, uint64_t off, const void *buf, size_t len);
	/* one aligned 8-byte load or store, never torn */
	int (*read64)(struct tarn_media *m, uint64_t off, uint64_t *value);
	int (*write64)(struct tarn_media *m, uint64_t off, uint64_t value);
	int (*writeback)(struct tarn_media *m, uint64_t off, size_t len);
	int (*invalidate)(struct tarn_media *m, uint64_t off, size_t len);
	int (*fence)(struct tarn_media *m);
	void (*close)(struct tarn_media *m);
};

/* A back end embeds this as its first member. */
struct tarn_media {
	const struct tarn_media_ops *ops;
	uint64_t size;		/* bytes that may be touched, from offset 0 */
	uint64_t bad;		/* offset of the last -EIO */
};

int tarn_media_read(struct tarn_media *m, uint64_t off, void *buf, size_t len);
int tarn_media_write(struct tarn_media *m, uint64_t off, const void *buf, size_t len);
int tarn_media_read64(struct tarn_media *m, uint64_t off, uint64_t *value);
int tarn_media_write64(struct tarn_media *m, uint64_t off, uint64_t value);
int tarn_media_writeback(struct tarn_media *m, uint64_t off, size_t len);
int tarn_media_invalidate(struct tarn_media *m, uint64_t off, size_t len);
int tarn_media_fence(struct tarn_media *m);
void tarn_media_close(struct tarn_media *m);

/* invalidate, then read: how anything of another host is read */
int tarn_media_fetch(struct tarn_media *m, uint64_t off, void *buf, size_t len);

/*
 * The real back end over a descriptor: OPEN_META of a mount, or a plain file.
 * Maps [0, size) for reading; stores are possible in `writable` ranges alone
 * (offset, length pairs; multiples of the page size), each mapped writable
 * apart so that a stray store faults. The descriptor stays the caller's.
 */
struct tarn_media_range {
	uint64_t off;
	uint64_t len;
};

int tarn_media_map(struct tarn_media **out, int fd, uint64_t size,
		   const struct tarn_media_range *writable, size_t count);

/* cacheops.c: which instructions this CPU has, and the loops over lines */
struct tarn_cacheops {
	const char *writeback_name;	/* "clwb", "clflushopt", "clflush"; "dc cvap", "dc cvac" */
	const char *invalidate_name;	/* "clflushopt", "clflush"; "dc civac" */
	void (*writeback)(const void *addr, size_t len);
	void (*invalidate)(const void *addr, size_t len);	/* without the fence after it */
	void (*fence)(void);
};
const struct tarn_cacheops *tarn_cacheops(void);
void tarn_mfence(void);	/* on arm64 DSB SY */
/* The n-th set of operations that this CPU has, best first, or NULL: for tests. */
const struct tarn_cacheops *tarn_cacheops_nth(size_t n);
/* Mappings made from now on use these (NULL: the CPU's): for tests. */
void tarn_cacheops_override(const struct tarn_cacheops *ops);

#endif
