// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * crc32c.c - CRC-32C (Castagnoli), eight bytes a step by tables.
 *
 * Polynomial 0x1edc6f41, reflected 0x82f63b78, as in RFC 3720 (iSCSI); its
 * test vectors are in selftests/unit/test_crc32c.c.
 */
#include "internal.h"

#include <pthread.h>

#define POLYNOMIAL 0x82f63b78U

static uint32_t table[8][256];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_tables(void)
{
	for (unsigned int i = 0; i < 256; i++) {
		uint32_t crc = i;

		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
		table[0][i] = crc;
	}
	for (unsigned int i = 0; i < 256; i++)
		for (int t = 1; t < 8; t++)
			table[t][i] = table[t - 1][i] >> 8 ^ table[0][table[t - 1][i] & 0xff];
}

uint32_t tarn_crc32c(uint32_t crc, const void *buf, size_t len)
{
	const uint8_t *p = buf;

	pthread_once(&once, make_tables);
	crc = ~crc;
	for (; len >= 8; len -= 8, p += 8) {
		uint64_t v;

		memcpy(&v, p, 8);
		v = le64toh(v) ^ crc;
		crc = table[7][v & 0xff] ^ table[6][v >> 8 & 0xff] ^
		      table[5][v >> 16 & 0xff] ^ table[4][v >> 24 & 0xff] ^
		      table[3][v >> 32 & 0xff] ^ table[2][v >> 40 & 0xff] ^
		      table[1][v >> 48 & 0xff] ^ table[0][v >> 56];
	}
	while (len--)
		crc = crc >> 8 ^ table[0][(crc ^ *p++) & 0xff];
	return ~crc;
}
