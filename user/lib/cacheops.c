// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * cacheops.c - the instructions that move cache lines to memory, chosen by
 * what the CPU has, and the loops over the lines of a range.
 *
 * The operand of each is the line's first byte, by constraint: the compiler
 * forms the address, whatever its level of optimisation; the memory clobber
 * keeps the stores before, and the loads after, on their side. None of them is
 * ordered against other lines: that is what tarn_mfence() is for.
 */
#include "internal.h"

/* op on each line of `step` bytes that [addr, addr + len) touches, once, in ascending order */
#define LINES(name, step, instruction, ...)					\
static void name(const void *addr, size_t len)					\
{										\
	uintptr_t bytes = step;							\
	uintptr_t line = (uintptr_t)addr & ~(bytes - 1);			\
	uintptr_t end = (uintptr_t)addr + len;					\
										\
	if (!len)								\
		return;								\
	for (; line < end; line += bytes)					\
		__asm__ volatile(instruction " %0" __VA_ARGS__ : "memory");	\
}

#ifdef __x86_64__

#include <cpuid.h>

#define CPUID_1_EDX_CLFSH	(1U << 19)
#define CPUID_7_EBX_CLFLUSHOPT	(1U << 23)
#define CPUID_7_EBX_CLWB	(1U << 24)

#define LINE	: "+m" (*(volatile char *)line) :

LINES(lines_clwb, TARNFS_LINE, "clwb", LINE)
LINES(lines_clflushopt, TARNFS_LINE, "clflushopt", LINE)
LINES(lines_clflush, TARNFS_LINE, "clflush", LINE)

void tarn_mfence(void)
{
	__asm__ volatile("mfence" : : : "memory");
}

/* Best first. CLWB keeps the line cached, so it cannot invalidate. */
static const struct tarn_cacheops sets[] = {
	{ "clwb", "clflushopt", lines_clwb, lines_clflushopt, tarn_mfence },
	{ "clwb", "clflush", lines_clwb, lines_clflush, tarn_mfence },
	{ "clflushopt", "clflushopt", lines_clflushopt, lines_clflushopt, tarn_mfence },
	{ "clflush", "clflush", lines_clflush, lines_clflush, tarn_mfence },
};

static bool cpu_has(const char *name)
{
	unsigned int a, b, c, d;

	if (!strcmp(name, "clflush"))
		return __get_cpuid(1, &a, &b, &c, &d) && d & CPUID_1_EDX_CLFSH;
	if (!__get_cpuid_count(7, 0, &a, &b, &c, &d))
		return false;
	return b & (!strcmp(name, "clwb") ? CPUID_7_EBX_CLWB : CPUID_7_EBX_CLFLUSHOPT);
}

/* of every x86-64 that there is */
size_t tarn_cache_granule(void)
{
	return TARNFS_LINE;
}

#elif defined(__aarch64__)
#include "cacheops_arm64.h"
#else
#error "tarnfs is built for x86-64 and arm64: this file needs the cache operations of other machines"
#endif

const struct tarn_cacheops *tarn_cacheops_nth(size_t n)
{
	for (size_t i = 0; i < TARN_ARRAY_SIZE(sets); i++)
		if (cpu_has(sets[i].writeback_name) && cpu_has(sets[i].invalidate_name) && !n--)
			return &sets[i];
	return NULL;
}

static const struct tarn_cacheops *override;

void tarn_cacheops_override(const struct tarn_cacheops *ops)
{
	override = ops;
}

const struct tarn_cacheops *tarn_cacheops(void)
{
	static const struct tarn_cacheops *chosen;
	const struct tarn_cacheops *ops = override;

	if (ops)
		return ops;
	ops = __atomic_load_n(&chosen, __ATOMIC_RELAXED);
	if (!ops) {
		ops = tarn_cacheops_nth(0);
		if (!ops)	/* every x86-64 has CLFLUSH; a hypervisor may hide the bit */
			ops = &sets[TARN_ARRAY_SIZE(sets) - 1];
		__atomic_store_n(&chosen, ops, __ATOMIC_RELAXED);
	}
	return ops;
}
