// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * uuid.c - uuids by libuuid, and nonces.
 */
#include "internal.h"

#include <sys/random.h>
#include <uuid/uuid.h>

void tarn_uuid_random(uint8_t out[16])
{
	uuid_generate_random(out);
}

void tarn_uuid_v5(uint8_t out[16], const uint8_t ns[16], const void *name, size_t len)
{
	uuid_generate_sha1(out, ns, name, len);
}

void tarn_uuid_text(char out[37], const uint8_t uuid[16])
{
	uuid_unparse_lower(uuid, out);
}

int tarn_uuid_parse(uint8_t out[16], const char *text)
{
	return uuid_parse(text, out) ? -EINVAL : 0;
}

bool tarn_uuid_is_zero(const uint8_t uuid[16])
{
	return tarn_all_zero(uuid, 16);
}

uint64_t tarn_nonce(void)
{
	uint64_t nonce = 0;

	/* up to 256 bytes getrandom() is not interrupted once the pool is seeded */
	while (!nonce)
		if (getrandom(&nonce, sizeof(nonce), 0) != (ssize_t)sizeof(nonce))
			nonce = 0;
	return nonce;
}
