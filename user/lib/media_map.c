// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * media_map.c - the real back end of media.h: a shared mapping of the meta
 * inode of a mount, or of a plain file.
 *
 * Memory that has failed answers a load with SIGBUS. While an access is under
 * way its thread has a guard; the handler jumps back into the access, which
 * returns -EIO. A SIGBUS that is not ours goes to whoever had the signal
 * before. The handler runs with the signal unblocked (SA_NODEFER), so that
 * jumping out of it leaves no mask to restore and an access costs no system
 * call.
 */
#include "internal.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>

struct map {
	struct tarn_media media;
	uint8_t *base;
	const struct tarn_cacheops *ops;
	size_t count;
	struct tarn_media_range writable[];
};

struct guard {
	sigjmp_buf env;
	uintptr_t base;
	uint64_t size;
	volatile uint64_t bad;
};

static __thread struct guard *volatile guard;
static pthread_mutex_t handler_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sigaction previous;

#define barrier() __asm__ volatile("" : : : "memory")

static void on_sigbus(int sig, siginfo_t *si, void *context)
{
	struct guard *g = guard;
	uintptr_t addr = (uintptr_t)si->si_addr;

	/* BUS_MCEERR_AO tells of poison that nobody has touched yet: not our access */
	if (g && si->si_code > 0 && si->si_code != BUS_MCEERR_AO && addr - g->base < g->size) {
		guard = NULL;
		g->bad = addr - g->base;
		siglongjmp(g->env, 1);
	}
	if (previous.sa_flags & SA_SIGINFO) {
		previous.sa_sigaction(sig, si, context);
	} else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
		previous.sa_handler(sig);
	} else if (previous.sa_handler == SIG_DFL || si->si_code > 0) {
		/* a fault cannot be ignored: it would only happen again */
		signal(sig, SIG_DFL);
		raise(sig);
	}
}

static int install_handler(void)
{
	struct sigaction now, ours = { .sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK };
	int ret = 0;

	ours.sa_sigaction = on_sigbus;
	sigemptyset(&ours.sa_mask);
	pthread_mutex_lock(&handler_lock);
	if (sigaction(SIGBUS, NULL, &now))
		ret = -errno;
	if (!ret && !(now.sa_flags & SA_SIGINFO && now.sa_sigaction == on_sigbus)) {
		previous = now;
		if (sigaction(SIGBUS, &ours, NULL))
			ret = -errno;
	}
	pthread_mutex_unlock(&handler_lock);
	return ret;
}

static struct map *to_map(struct tarn_media *m)
{
	return (struct map *)m;
}

static void guard_begin(struct guard *g, const struct map *map)
{
	g->base = (uintptr_t)map->base;
	g->size = tarn_round_up(map->media.size, TARNFS_BLOCK);
	guard = g;
	barrier();
}

static void guard_end(void)
{
	barrier();
	guard = NULL;
}

/*
 * Runs one access under a guard. A macro, since sigsetjmp() must be called in
 * a frame that is still there when the handler jumps.
 */
#define GUARDED(map, access)					\
	do {							\
		struct guard g_;				\
								\
		if (sigsetjmp(g_.env, 0)) {			\
			(map)->media.bad = g_.bad;		\
			return -EIO;				\
		}						\
		guard_begin(&g_, map);				\
		access;						\
		guard_end();					\
	} while (0)

static bool may_write(const struct map *map, uint64_t off, uint64_t len)
{
	for (size_t i = 0; i < map->count; i++) {
		const struct tarn_media_range *r = &map->writable[i];

		if (off >= r->off && len <= r->len && off - r->off <= r->len - len)
			return true;
	}
	return false;
}

static int map_read(struct tarn_media *m, uint64_t off, void *buf, size_t len)
{
	GUARDED(to_map(m), memcpy(buf, to_map(m)->base + off, len));
	return 0;
}

static int map_write(struct tarn_media *m, uint64_t off, const void *buf, size_t len)
{
	if (!may_write(to_map(m), off, len))
		return -EACCES;
	GUARDED(to_map(m), memcpy(to_map(m)->base + off, buf, len));
	return 0;
}

static int map_read64(struct tarn_media *m, uint64_t off, uint64_t *value)
{
	GUARDED(to_map(m),
		*value = __atomic_load_n((uint64_t *)(to_map(m)->base + off), __ATOMIC_RELAXED));
	return 0;
}

static int map_write64(struct tarn_media *m, uint64_t off, uint64_t value)
{
	if (!may_write(to_map(m), off, sizeof(value)))
		return -EACCES;
	GUARDED(to_map(m),
		__atomic_store_n((uint64_t *)(to_map(m)->base + off), value, __ATOMIC_RELAXED));
	return 0;
}

static int map_writeback(struct tarn_media *m, uint64_t off, size_t len)
{
	GUARDED(to_map(m), to_map(m)->ops->writeback(to_map(m)->base + off, len));
	return 0;
}

static int map_invalidate(struct tarn_media *m, uint64_t off, size_t len)
{
	GUARDED(to_map(m), to_map(m)->ops->invalidate(to_map(m)->base + off, len));
	to_map(m)->ops->fence();
	return 0;
}

static int map_fence(struct tarn_media *m)
{
	to_map(m)->ops->fence();
	return 0;
}

static void map_close(struct tarn_media *m)
{
	if (m->size)
		munmap(to_map(m)->base, m->size);
	free(m);
}

static const struct tarn_media_ops map_ops = {
	.read = map_read,
	.write = map_write,
	.read64 = map_read64,
	.write64 = map_write64,
	.writeback = map_writeback,
	.invalidate = map_invalidate,
	.fence = map_fence,
	.close = map_close,
};

int tarn_media_map(struct tarn_media **out, int fd, uint64_t size,
		   const struct tarn_media_range *writable, size_t count)
{
	struct map *map;
	void *base;
	int ret;

	if (!size || size > SIZE_MAX - TARNFS_BLOCK)
		return -EINVAL;
	for (size_t i = 0; i < count; i++)
		if (writable[i].off % TARNFS_BLOCK || writable[i].len % TARNFS_BLOCK ||
		    writable[i].off > size || writable[i].len > size - writable[i].off)
			return -EINVAL;
	ret = install_handler();
	if (ret)
		return ret;
	map = calloc(1, sizeof(*map) + count * sizeof(*writable));
	if (!map)
		return -ENOMEM;
	map->media.ops = &map_ops;
	map->media.size = size;
	map->ops = tarn_cacheops();
	map->count = count;
	if (count)
		memcpy(map->writable, writable, count * sizeof(*writable));
	base = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
	if (base == MAP_FAILED) {
		ret = -errno;
		free(map);
		return ret;
	}
	map->base = base;
	for (size_t i = 0; i < count; i++) {
		if (!writable[i].len)
			continue;
		if (mmap(map->base + writable[i].off, writable[i].len, PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_FIXED, fd, (off_t)writable[i].off) == MAP_FAILED) {
			ret = -errno;
			map_close(&map->media);
			return ret;
		}
	}
	*out = &map->media;
	return 0;
}
