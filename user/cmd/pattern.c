// SPDX-License-Identifier: GPL-2.0-only
/*
 * pattern.c - the bytes of creat --fill and verify, as Documentation/commands.rst
 * has them. No two words of a file are equal, so a stale line, a line of the
 * wrong offset and a line of another file all show.
 */
#include <endian.h>
#include <string.h>

#include "pattern.h"

/* Finaliser of SplitMix64 (Steele, Lea, Flood 2014): a bijection of 64 bits. */
static uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
	return x ^ (x >> 31);
}

static uint64_t word_at(uint64_t key, uint64_t off)
{
	return htole64(mix(key + off / 8 * 0x9e3779b97f4a7c15ULL));
}

uint64_t pattern_key(uint64_t seed, const char *path)
{
	size_t end = strlen(path), at;
	uint64_t key = mix(seed);

	while (end && path[end - 1] == '/')
		end--;
	for (at = end; at && path[at - 1] != '/'; at--)
		;
	/* the step of FNV-1a */
	for (; at < end; at++)
		key = (key ^ (unsigned char)path[at]) * 0x100000001b3ULL;
	return key;
}

void pattern_fill(uint64_t key, uint64_t off, void *buf, size_t len)
{
	unsigned char *out = buf;
	uint64_t word;
	size_t n;

	while (len) {
		word = word_at(key, off);
		n = 8 - off % 8;
		if (n > len)
			n = len;
		memcpy(out, (unsigned char *)&word + off % 8, n);
		out += n;
		off += n;
		len -= n;
	}
}
