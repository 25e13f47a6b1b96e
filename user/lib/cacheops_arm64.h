/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * cacheops_arm64.h - the part of cacheops.c for arm64, included by it alone.
 */
#include <asm/hwcap.h>
#include <sys/auxv.h>

/*
 * CTR_EL0 (Arm Architecture Reference Manual, DDI 0487): bits 19:16 DminLine, the smallest
 * line of any data cache, bits 27:24 CWG, the most that one eviction overwrites in memory,
 * both as the log2 of a number of 4-byte words; CWG 0: it does not say. Linux lets user space
 * read it, by emulation where CPUs of one machine differ.
 */
static uint64_t ctr(void)
{
	uint64_t v;

	__asm__("mrs %0, ctr_el0" : "=r" (v));
	return v;
}

size_t tarn_cache_granule(void)
{
	size_t words = ctr() >> 24 & 15;

	return words ? (size_t)4 << words : TARNFS_LINE;
}

/* Steps of the smallest line: a larger one is done twice, none is left out. */
#define STEP	((uintptr_t)4 << (ctr() >> 16 & 15))
#define LINE	: : "r" (line)

/*
 * "sys" is DC CVAP, to the point of persistence: assemblers know it by name from Armv8.2 on
 * only. DC IVAC, which would throw stores away, is not for user space, and nowhere in tarnfs.
 */
LINES(lines_cvap, STEP, "sys #3, c7, c12, #1,", LINE)
LINES(lines_cvac, STEP, "dc cvac,", LINE)
LINES(lines_civac, STEP, "dc civac,", LINE)

/* DMB would not wait for cache operations to end. */
void tarn_mfence(void)
{
	__asm__ volatile("dsb sy" : : : "memory");
}

/* Best first. What is cleaned stays cached, so it cannot invalidate. */
static const struct tarn_cacheops sets[] = {
	{ "dc cvap", "dc civac", lines_cvap, lines_civac, tarn_mfence },
	{ "dc cvac", "dc civac", lines_cvac, lines_civac, tarn_mfence },
};

static bool cpu_has(const char *name)
{
	return strcmp(name, "dc cvap") || getauxval(AT_HWCAP) & HWCAP_DCPOP;
}
