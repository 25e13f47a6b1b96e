// SPDX-License-Identifier: GPL-2.0-only
/* CRC-32C gives the values of RFC 3720, whole or in pieces; uuids those of RFC 4122. */
#include "internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static void known_values(void **state)
{
	uint8_t buf[32];

	(void)state;
	assert_int_equal(tarn_crc32c(0, "", 0), 0);
	assert_int_equal(tarn_crc32c(0, "123456789", 9), 0xe3069283);
	/* RFC 3720, B.4 */
	memset(buf, 0, sizeof(buf));
	assert_int_equal(tarn_crc32c(0, buf, sizeof(buf)), 0x8a9136aa);
	memset(buf, 0xff, sizeof(buf));
	assert_int_equal(tarn_crc32c(0, buf, sizeof(buf)), 0x62a8ab43);
	for (uint8_t i = 0; i < 32; i++)
		buf[i] = i;
	assert_int_equal(tarn_crc32c(0, buf, sizeof(buf)), 0x46dd794e);
	for (uint8_t i = 0; i < 32; i++)
		buf[i] = (uint8_t)(31 - i);
	assert_int_equal(tarn_crc32c(0, buf, sizeof(buf)), 0x113fdb5c);
}

/* The value does not depend on how the bytes are cut or where they lie. */
static void pieces_and_alignment(void **state)
{
	uint8_t buf[300 + 8];
	uint32_t whole;

	(void)state;
	for (size_t i = 0; i < 300; i++)
		buf[i] = (uint8_t)(i * 7 + 3);
	whole = tarn_crc32c(0, buf, 300);
	for (size_t cut = 0; cut <= 300; cut++)
		assert_int_equal(tarn_crc32c(tarn_crc32c(0, buf, cut), buf + cut, 300 - cut),
				 whole);
	for (size_t shift = 1; shift < 8; shift++) {
		memmove(buf + shift, buf + shift - 1, 300);
		assert_int_equal(tarn_crc32c(0, buf + shift, 300), whole);
	}
}

static void uuids(void **state)
{
	uint8_t dns[16], out[16], again[16];
	char text[37];

	(void)state;
	assert_int_equal(tarn_uuid_parse(dns, "6ba7b810-9dad-11d1-80b4-00c04fd430c8"), 0);
	tarn_uuid_v5(out, dns, "www.example.com", 15);
	tarn_uuid_text(text, out);
	assert_string_equal(text, "2ed6657d-e927-568b-95e1-2665a8aea6a2");
	assert_int_equal(tarn_uuid_parse(out, "6ba7b810-9dad-11d1-80b4-00c04fd430c"), -EINVAL);
	assert_int_equal(tarn_uuid_parse(out, ""), -EINVAL);
	tarn_uuid_random(out);
	tarn_uuid_random(again);
	assert_memory_not_equal(out, again, 16);
	assert_false(tarn_uuid_is_zero(out));
	memset(out, 0, sizeof(out));
	assert_true(tarn_uuid_is_zero(out));
	assert_true(tarn_nonce() && tarn_nonce() != tarn_nonce());
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(known_values),
		cmocka_unit_test(pieces_and_alignment),
		cmocka_unit_test(uuids),
	};

	return cmocka_run_group_tests_name("crc32c", tests, NULL, NULL);
}
