// SPDX-License-Identifier: GPL-2.0-only
/*
 * Text of people: /etc/tarnfs/host, machine-id and boot id; sizes, numbers and
 * modes of command lines; and names that go to a terminal.
 */
#include "fuzz.h"
#include "common.h"

#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void put_file(int fd, const void *data, size_t size)
{
	if (ftruncate(fd, 0) || pwrite(fd, data, size, 0) != (ssize_t)size)
		fuzz_fail("memfd");
}

static int memory_file(char path[32])
{
	int fd = memfd_create("fuzz", 0);

	fuzz_check(fd >= 0, "memfd");
	snprintf(path, 32, "/proc/self/fd/%d", fd);
	return fd;
}

static void check_host(const uint8_t *data, size_t size, unsigned int which)
{
	static const char machine_id[] = "0123456789abcdef0123456789abcdef\n";
	static const char boot_id[] = "11111111-2222-3333-4444-555555555555\n";
	static const uint8_t uuid[16] = { 1 };
	static char paths[3][32];
	static int fds[3] = { -1 };
	const struct tarn_host_files files = { paths[0], paths[1], paths[2] };
	struct tarn_err err = { "" };
	struct tarn_host_id id;
	int ret;

	for (int i = 0; fds[2] <= 0 && i < 3; i++)
		fds[i] = memory_file(paths[i]);
	put_file(fds[0], "", 0);
	put_file(fds[1], machine_id, sizeof(machine_id) - 1);
	put_file(fds[2], boot_id, sizeof(boot_id) - 1);
	put_file(fds[which], data, size);
	ret = tarn_host_id_from(&id, uuid, &files, &err);
	/* what a line says is given back: the command shows it printable */
	fuzz_check(!ret || (ret < 0 && err.text[0]), "host: %d and no sentence", ret);
	if (ret)
		return;
	fuzz_check(id.page >= -1 && id.page < TARNFS_HOSTS_MAX, "page %d", id.page);
	fuzz_check(!tarn_uuid_is_zero(id.uuid), "no uuid");
	fuzz_check(!id.node_name[sizeof(id.node_name) - 1], "node name");
}

static void check_numbers(const char *text)
{
	uint64_t v = 0, n = 0;
	uint16_t mode = 0;
	char out[SIZE_TEXT];
	int ret = parse_size(text, &v);

	fuzz_check(!ret || ret == -EINVAL || ret == -ERANGE, "size: %d", ret);
	fuzz_check(ret || v <= TARNFS_SIZE_MAX || strspn(text, "0123456789") == strlen(text),
		   "size: %llu", (unsigned long long)v);
	fuzz_check(strlen(size_text(out, v)) < sizeof(out), "size as text");
	fuzz_check_text(out);
	if (!parse_number(text, 3, 77, &n))
		fuzz_check(n >= 3 && n <= 77 && strtoull(text, NULL, 10) == n, "number");
	if (!parse_mode(text, &mode))
		fuzz_check(mode <= 07777 && strtoul(text, NULL, 8) == mode, "mode");
}

static void check_printable(const uint8_t *data, size_t size)
{
	char *text = printable((const char *)data, size);

	for (const char *p = text; *p; p++)
		fuzz_check((unsigned char)*p >= ' ' && *p != 0x7f, "byte 0x%02x is printable",
			   (unsigned char)*p);
	/* C1 controls, which some terminals obey */
	for (const char *p = text; *p; p++)
		fuzz_check((unsigned char)p[0] != 0xc2 || (unsigned char)p[1] >= 0xa0,
			   "a C1 control is printable");
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text;

	if (!size)
		return 0;
	text = malloc(size);
	memcpy(text, data + 1, size - 1);
	text[size - 1] = '\0';
	if (data[0] & 1) {
		check_numbers(text);
		check_printable(data + 1, size - 1);
	} else {
		check_host(data + 1, size - 1, data[0] / 2 % 3);
	}
	free(text);
	return 0;
}
