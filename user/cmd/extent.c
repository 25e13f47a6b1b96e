// SPDX-License-Identifier: GPL-2.0-only
/*
 * extent.c - regular files as map, flush and verify open them, and where a
 * file is on the device. No tool maps file data: a read of memory that has
 * failed is EIO, never a signal.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
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

/* The last sequence number of the log that is current, to count with. */
static int note_seq(void *arg, const struct tarn_rec *rec)
{
	if (!(rec->flags & TARNFS_RECORD_CKPT))
		*(uint64_t *)arg = rec->seq;
	return 0;
}

/* How many records the mount that path is to be on is behind. 0: none, or it cannot be told. */
static uint64_t records_behind(const char *path)
{
	uint32_t pos = TARNFS_LOG_HEADER_UNITS;
	struct tarn_err err = { "" };
	struct tarn_current cur;
	struct tarn_session s;
	struct tarn_log log;
	uint64_t seq = 0;

	if (tarn_session_open(&s, path, 0, &err))
		return 0;
	if (!tarn_scan(s.media, &s.sb, &cur, NULL, &err) && cur.generation &&
	    cur.generation == s.st.generation && cur.host == s.st.log_host &&
	    !tarn_log_open(&log, s.media, &s.sb, &cur, &err)) {
		seq = log.base_seq;
		tarn_log_walk(&log, s.media, &pos, note_seq, &seq, &err);
	}
	tarn_session_close(&s);
	return seq > s.st.seq ? seq - s.st.seq : 0;
}

/* A name that is not there may be one that this host has not applied yet. */
static int refuse_missing(const char *path)
{
	static uint64_t behind = UINT64_MAX;	/* asked once: the log is read for it */
	char *at = must_format("%s", *path ? path : "."), *slash;
	struct statfs fs;
	bool found;

	/* the nearest that is there */
	while (!(found = statfs(at, &fs) == 0) && errno == ENOENT && strcmp(at, ".") != 0) {
		slash = strrchr(at, '/');
		if (slash)
			slash[slash == at] = '\0';
		else
			strcpy(at, ".");
	}
	if (found && (uint32_t)fs.f_type == TARNFS_STATFS_MAGIC && behind == UINT64_MAX)
		behind = records_behind(at);
	if (behind && behind != UINT64_MAX)
		complain("%s: %s; this host is %llu record%s behind: tarnfs logplay applies them",
			 shown(path), strerror(ENOENT), (unsigned long long)behind,
			 behind == 1 ? "" : "s");
	else
		complain("%s: %s", shown(path), strerror(ENOENT));
	free(at);
	return -ENOENT;
}

int open_regular(const char *path, bool need_tarnfs, struct stat *st)
{
	struct statfs fs;
	int fd;

	/* asked first: to open a device can do things to it */
	if (stat(path, st))
		return errno == ENOENT ? refuse_missing(path) : refuse(-1, path, -errno, strerror(errno));
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
		return refuse(fd, path, -EMEDIUMTYPE, "not on a tarnfs");
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
	static _Thread_local char text[64];
	uint64_t start, len;
	struct statfs fs;

	text[0] = '\0';
	if (fstatfs(fd, &fs) == 0 && (uint32_t)fs.f_type == TARNFS_STATFS_MAGIC &&
	    file_extent(fd, &start, &len) == 0 && off < len)
		snprintf(text, sizeof(text), " (device offset 0x%llx)",
			 (unsigned long long)(start + off));
	return text;
}

bool file_first_bad(int fd, const struct tarnfs_range *ranges, uint32_t count, uint64_t off,
		    uint64_t *at)
{
	uint64_t start, len;
	struct stat st;
	uint32_t i;

	if (!count || fstat(fd, &st) || file_extent(fd, &start, &len))
		return false;
	/* what is behind the file's end is nobody's loss */
	if (len > (uint64_t)st.st_size)
		len = (uint64_t)st.st_size;
	for (i = 0; i < count; i++) {	/* in order */
		const struct tarnfs_range *r = &ranges[i];

		if (off >= len || r->off >= start + len)
			return false;
		if (r->off + r->len <= start + off)
			continue;
		*at = r->off > start + off ? r->off - start : off;
		return true;
	}
	return false;
}

/* The directory that an open file is in, since the ioctls of a mount are those of its directories. */
static int open_directory_of(int fd)
{
	char self[32], path[PATH_MAX], *slash;
	struct stat file, dir;
	ssize_t len;
	int dirfd;

	snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	len = readlink(self, path, sizeof(path) - 1);
	if (len <= 0)
		return -1;
	path[len] = '\0';
	slash = strrchr(path, '/');
	if (!slash)
		return -1;
	slash[slash == path] = '\0';
	dirfd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	/* moved, or in a mount that something else stands on now */
	if (dirfd >= 0 && (fstat(fd, &file) || fstat(dirfd, &dir) || file.st_dev != dir.st_dev)) {
		close(dirfd);
		return -1;
	}
	return dirfd;
}

bool file_first_bad_now(int fd, uint64_t off, uint64_t *at)
{
	struct tarnfs_range *ranges;
	struct statfs fs;
	bool bad = false;
	uint32_t count;
	int dirfd;

	if (fstatfs(fd, &fs) || (uint32_t)fs.f_type != TARNFS_STATFS_MAGIC)
		return false;
	dirfd = open_directory_of(fd);
	if (dirfd < 0)
		return false;
	if (!tarn_kernel_badranges(dirfd, &ranges, &count)) {
		bad = file_first_bad(fd, ranges, count, off, at);
		free(ranges);
	}
	close(dirfd);
	return bad;
}

const char *failed_memory_text(int fd, uint64_t off, int error)
{
	uint64_t at;

	return error == EIO && file_first_bad_now(fd, off, &at) && at == off ?
	       ": memory has failed (tarnfs status lists all that has)" : "";
}
