// SPDX-License-Identifier: GPL-2.0-only
/*
 * extent.c - regular files as map, flush and verify open them, and where a
 * file is on the device. No tool maps file data: a read of memory that has
 * failed is EIO, never a signal.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "common.h"
#include "extent.h"

static int refuse(int fd, const char *path, int ret, const char *text)
{
	complain("%s: %s", shown(path), text);
	if (fd >= 0)
		close(fd);
	return ret;
}

int open_regular(const char *path, bool need_tarnfs, struct stat *st)
{
	struct statfs fs;
	int fd;

	/* asked first: to open a device can do things to it */
	if (stat(path, st))
		return refuse(-1, path, -errno, strerror(errno));
	if (!S_ISREG(st->st_mode))
		return refuse(-1, path, S_ISDIR(st->st_mode) ? -EISDIR : -EINVAL,
			      S_ISDIR(st->st_mode) ? "is a directory: name files" :
						     "is not a regular file");
	fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return refuse(-1, path, -errno, strerror(errno));
	if (fstat(fd, st) || fstatfs(fd, &fs))
		return refuse(fd, path, -errno, strerror(errno));
	if (!S_ISREG(st->st_mode))
		return refuse(fd, path, -EINVAL, "is not a regular file");
	if (need_tarnfs && (uint32_t)fs.f_type != TARNFS_STATFS_MAGIC)
		return refuse(fd, path, -EMEDIUMTYPE, "is not on a tarnfs");
	return fd;
}

int file_extent(int fd, uint64_t *off, uint64_t *len)
{
	union {
		struct fiemap map;
		/* one more than a file can have */
		char room[sizeof(struct fiemap) + 2 * sizeof(struct fiemap_extent)];
	} u;
	const struct fiemap_extent *e = u.map.fm_extents;

	memset(&u, 0, sizeof(u));
	u.map.fm_length = FIEMAP_MAX_OFFSET;
	u.map.fm_extent_count = 2;
	*off = *len = 0;
	if (ioctl(fd, FS_IOC_FIEMAP, &u.map))
		return -errno;
	if (!u.map.fm_mapped_extents)
		return 0;
	if (u.map.fm_mapped_extents != 1 || e->fe_logical || !(e->fe_flags & FIEMAP_EXTENT_LAST) ||
	    e->fe_flags & FIEMAP_EXTENT_UNKNOWN)
		return -EUCLEAN;
	*off = e->fe_physical;
	*len = e->fe_length;
	return 0;
}

const char *device_offset_text(int fd, uint64_t off)
{
	static char text[64];
	uint64_t start, len;
	struct statfs fs;

	text[0] = '\0';
	if (fstatfs(fd, &fs) == 0 && (uint32_t)fs.f_type == TARNFS_STATFS_MAGIC &&
	    file_extent(fd, &start, &len) == 0 && off < len)
		snprintf(text, sizeof(text), " (device offset 0x%llx)",
			 (unsigned long long)(start + off));
	return text;
}
