/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What every program needs that drives the kernel module by itself: TAP, the device, a
 * checksum. Included first, by a program of one file.
 */
#ifndef _BASE_H
#define _BASE_H

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "../kmod/uapi/tarnfs_format.h"
#include "../kmod/uapi/tarnfs_ioctl.h"

#define MIB		(1024UL * 1024)
#define __unused	__attribute__((unused))

static const char *device = "/dev/pmem0";
static unsigned long long device_size;
static bool __unused devdax;		/* device is a character device */
static const unsigned long long data_start = 6 * MIB;
static int points, failures;

static void __unused __attribute__((format(printf, 2, 3))) ok(bool good, const char *fmt, ...)
{
	va_list ap;

	points++;
	if (!good)
		failures++;
	printf("%sok %d - ", good ? "" : "not ", points);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\n");
	fflush(stdout);
}

static void __unused __attribute__((noreturn)) bail(const char *what)
{
	printf("Bail out! %s: %s\n", what, strerror(errno));
	exit(1);
}

static __unused void must(long ret, const char *what)
{
	if (ret < 0)
		bail(what);
}

/* The device to destroy: the first argument, or the guest's own. */
static __unused void use_device(int argc, char **argv)
{
	const char *given = argc > 1 ? argv[1] : getenv("TARN_DEV");
	struct stat sb;
	FILE *f;
	int fd;

	if (given && *given)
		device = given;
	must(stat(device, &sb), device);
	devdax = S_ISCHR(sb.st_mode);
	if (devdax) {
		char path[64];

		snprintf(path, sizeof(path), "/sys/dev/char/%u:%u/size", major(sb.st_rdev),
			 minor(sb.st_rdev));
		f = fopen(path, "re");
		if (!f || fscanf(f, "%llu", &device_size) != 1)
			bail(path);
		fclose(f);
	} else {
		fd = open(device, O_RDONLY | O_CLOEXEC);
		must(fd, device);
		device_size = lseek(fd, 0, SEEK_END);
		close(fd);
	}
}

static __unused uint32_t crc32c(const void *data, size_t len)
{
	const unsigned char *p = data;
	uint32_t crc = ~0U;

	while (len--) {
		crc ^= *p++;
		for (int i = 0; i < 8; i++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
	}
	return ~crc;
}

#endif /* _BASE_H */
