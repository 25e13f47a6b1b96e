// SPDX-License-Identifier: GPL-2.0-only
/*
 * media [-m MOUNTPOINT] size | read OFFSET LENGTH | write OFFSET
 *
 * Bytes of the guest's device, to stdout or from stdin, for test scripts: of a block device and
 * of a devdax character device, which has no read(), alike. By a meta mount; with -m by the
 * mount there, which lets the log be written if this host is the master.
 */
#include "direct.h"

int main(int argc, char **argv)
{
	struct tarnfs_open_meta om = { .version = TARNFS_INTERFACE };
	unsigned long long off = 0, len = 0;
	const char *point = NULL;
	static char buf[1 << 20];
	bool writing;
	ssize_t n;

	if (argc > 2 && !strcmp(argv[1], "-m")) {
		point = argv[2];
		argv += 2;
		argc -= 2;
	}
	use_device(0, NULL);
	if (argc == 2 && !strcmp(argv[1], "size")) {
		printf("%llu\n", device_size);
		return 0;
	}
	writing = argc == 3 && !strcmp(argv[1], "write");
	if (!writing && !(argc == 4 && !strcmp(argv[1], "read"))) {
		fprintf(stderr, "usage: media [-m MOUNTPOINT] size | read OFFSET LENGTH | write OFFSET\n");
		return 2;
	}
	off = strtoull(argv[2], NULL, 0);
	if (!writing)
		len = strtoull(argv[3], NULL, 0);
	if (writing) {
		for (; len < sizeof(buf); len += n) {
			n = read(0, buf + len, sizeof(buf) - len);
			must(n, "stdin");
			if (!n)
				break;
		}
		if (len == sizeof(buf))
			bail("no more than 1 MiB can be written");
		if (point) {
			om.count = 1;
			om.writable[0].off = off & ~4095ULL;
			om.writable[0].len = ((off + len + 4095) & ~4095ULL) - om.writable[0].off;
		}
	}

	dir = point ? open(point, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : mount_again("meta", NULL);
	must(dir, point ?: device);
	must(ioctl(dir, TARNFS_IOC_OPEN_META, &om), "OPEN_META");
	if (writing) {
		if (pwrite(om.fd, buf, len, off) != (ssize_t)len)
			bail("write");
		must(fsync(om.fd), "fsync");
		return 0;
	}
	for (; len; len -= n, off += n) {
		n = pread(om.fd, buf, len < sizeof(buf) ? len : sizeof(buf), off);
		must(n, "read");
		if (!n || write(1, buf, n) != n)
			bail("short read or write");
	}
	return 0;
}
