// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * session.c - one mounted file system as a command uses it: a directory for
 * the ioctls, the meta inode mapped as media, the superblock that was there at
 * the mount, and the claim that the kernel remembers.
 */
#include "internal.h"

#include <fcntl.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define NO_PAGE 0xffff

/* A directory of the mount that path is on: itself, or the one that it stands in. */
static int open_dir(const char *path, struct tarn_err *err)
{
	struct stat st, dir_st;
	char *real, *slash;
	int fd, ret;

	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0)
		return fd;
	if (errno == EIO)
		return tarn_fail(err, EIO, "%s: " TARN_SHUT_DOWN, path);
	if (errno != ENOTDIR)
		return tarn_fail(err, errno, "%s: %s", path, strerror(errno));
	real = realpath(path, NULL);
	if (!real)
		return tarn_fail(err, errno, "%s: %s", path, strerror(errno));
	slash = strrchr(real, '/');
	if (stat(real, &st)) {
		ret = tarn_fail(err, errno, "%s: %s", path, strerror(errno));
		free(real);
		return ret;
	}
	slash[slash == real] = '\0';
	fd = open(real, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ret = fd < 0 ? tarn_fail(err, errno, "%s: %s", real, strerror(errno)) : 0;
	if (!ret && (fstat(fd, &dir_st) || dir_st.st_dev != st.st_dev))
		ret = tarn_fail(err, EXDEV,
				"%s: is mounted on alone: name a directory of the file system",
				path);
	free(real);
	if (ret && fd >= 0)
		close(fd);
	return ret ? ret : fd;
}

int tarn_lost(struct tarn_session *s, struct tarn_err *err, const char *fmt, ...)
{
	char why[512];
	va_list ap;
	int ret;

	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	ret = s->kernel->ops->shutdown(s->kernel);
	s->st.state |= TARNFS_ST_SHUTDOWN;
	if (ret)
		return tarn_fail(err, ESTALE,
				 "%s; shutting the mount down failed (%s): umount it at once", why,
				 strerror(-ret));
	return tarn_fail(err, ESTALE, "%s; this mount is shut down: umount it and mount it "
					  "again", why);
}

int tarn_session_ours(struct tarn_session *s, struct tarn_err *err)
{
	struct tarn_super now;
	int ret = tarn_super_read(&now, s->media, 0, err);

	if (ret == -ENODATA)
		return tarn_lost(s, err,
				 "the superblock is gone: the device was made into something else");
	if (ret == -EIO)
		return tarn_fail(err, EIO, "superblock: cannot be read at device offset 0x%llx: its memory "
				 "has failed. Files can be read and written, but nothing more is replayed "
				 "or made: umount, repair the memory, then fsck.tarnfs",
				 (unsigned long long)s->media->bad);
	if (ret)
		return ret;
	if (memcmp(now.uuid, s->sb.uuid, sizeof(now.uuid)))
		return tarn_lost(s, err, "another file system was made on the device");
	if (!s->claim.nonce)
		return 0;
	ret = tarn_own_nonce(s->media, &s->sb, &s->claim, err);
	if (ret == -EAGAIN)
		return tarn_lost(s, err,
				 "host page %u was claimed anew: another host has this one's "
				 "identity, or it was fenced",
				 s->claim.page);
	return ret;
}

int tarn_mount_status(int dirfd, struct tarnfs_status *st, struct tarn_err *err)
{
	int ret = tarn_kernel_status(dirfd, st);

	switch (ret) {
	case 0:
		break;
	case -EPROTO:
		return tarn_kernel_mismatch(st, err);
	case -EPERM:
		return tarn_fail(err, EPERM, "this needs root (CAP_SYS_ADMIN)");
	case -ENOTTY:
	case -EINVAL:
		return tarn_fail(err, EMEDIUMTYPE, "not on a tarnfs");
	default:
		return tarn_fail(err, -ret, "STATUS: %s", strerror(-ret));
	}
	if (st->state & TARNFS_ST_SHUTDOWN)
		return tarn_fail(err, EIO, TARN_SHUT_DOWN);
	return 0;
}

int tarn_session_writable(struct tarn_session *s, const struct tarn_media_range *r, size_t n,
			  struct tarn_err *err)
{
	struct tarn_media *media;
	int fd, ret = tarn_machine_check(err);

	if (ret)
		return ret;
	fd = tarn_kernel_open_meta(s->dirfd, r, n);
	if (fd < 0)
		return tarn_fail(err, -fd, "OPEN_META: %s", strerror(-fd));
	ret = tarn_media_map(&media, fd, s->st.data_start, r, n);
	if (ret) {
		close(fd);
		return tarn_fail(err, -ret, "mapping the metadata: %s", strerror(-ret));
	}
	tarn_media_close(s->media);
	if (s->metafd >= 0)
		close(s->metafd);
	s->media = media;
	s->metafd = fd;
	tarn_kernel_ioctl_meta(s->kernel, fd, s->sb.hosts_off);
	return 0;
}

static int by_offset(const void *a, const void *b)
{
	const struct tarn_media_range *x = a, *y = b;

	return x->off < y->off ? -1 : x->off > y->off;
}

/* Own page, its mirror, and the log areas: as few ranges as they make. */
static int open_for_append(struct tarn_session *s, struct tarn_err *err)
{
	struct tarn_media_range r[2 + TARNFS_AREAS_MAX];
	size_t n = 0, out = 0;

	r[n++] = (struct tarn_media_range){ tarn_line_off(&s->sb, s->claim.page, 0),
					    s->sb.host_stride };
	r[n++] = (struct tarn_media_range){ tarn_mirror_line_off(&s->sb, s->claim.page, 0),
					    s->sb.host_stride };
	for (int i = 0; i < s->sb.areas; i++)
		r[n++] = s->sb.area[i];
	qsort(r, n, sizeof(r[0]), by_offset);
	for (size_t i = 1; i < n; i++) {
		if (r[out].off + r[out].len == r[i].off)
			r[out].len += r[i].len;
		else
			r[++out] = r[i];
	}
	return tarn_session_writable(s, r, out + 1, err);
}

static int may_append(struct tarn_session *s, struct tarn_err *err)
{
	if (s->st.state & TARNFS_ST_RDONLY)
		return tarn_fail(err, EROFS, "mounted read-only: mount -o remount,rw");
	if (s->st.role != TARNFS_ROLE_MASTER)
		return tarn_fail(err, EROFS,
				 "this host is a client; the master, which alone can change the "
				 "file system, "
				 "is the host of page %u",
				 s->st.log_host);
	if (!s->claim.nonce || s->claim.page >= s->sb.hosts)
		return tarn_fail(err, EUNATCH,
				 "no host page is known: it was not mounted by mount.tarnfs; "
				 "umount it and use mount -t tarnfs");
	return 0;
}

static void session_init(struct tarn_session *s, int dirfd)
{
	memset(s, 0, sizeof(*s));
	s->dirfd = dirfd;
	s->metafd = -1;
	s->claim.page = NO_PAGE;
}

/* Everything but the descriptor dirfd, which stays when this fails. */
static int session_load(struct tarn_session *s, struct tarn_err *err)
{
	struct statfs fs;
	int ret;

	if (fstatfs(s->dirfd, &fs))
		return tarn_fail(err, errno, "statfs: %s", strerror(errno));
	if ((uint32_t)fs.f_type != TARNFS_STATFS_MAGIC)
		return tarn_fail(err, EMEDIUMTYPE, "not on a tarnfs");
	ret = tarn_mount_status(s->dirfd, &s->st, err);
	if (ret)
		return ret;
	if (s->st.state & TARNFS_ST_META)
		return tarn_fail(err, EMEDIUMTYPE, "a meta mount, which has no files");
	s->kernel = tarn_kernel_ioctl(s->dirfd, -1, TARNFS_HOSTS_OFF);
	if (!s->kernel)
		return tarn_fail(err, ENOMEM, "out of memory");
	ret = tarn_session_writable(s, NULL, 0, err);
	if (ret)
		return ret;
	ret = tarn_super_reread(&s->sb, s->media, s->st.dev_size, s->st.uuid, err);
	if (ret == -ENODATA)
		return tarn_lost(s, err,
				 "the superblock is gone: the device was made into something else");
	if (ret)
		return ret;
	if (memcmp(s->sb.uuid, s->st.uuid, sizeof(s->sb.uuid)))
		return tarn_lost(s, err, "another file system was made on the device");
	tarn_kernel_ioctl_meta(s->kernel, s->metafd, s->sb.hosts_off);
	s->claim.page = s->st.page;
	s->claim.nonce = s->st.nonce;
	if (s->claim.nonce && s->claim.page >= s->sb.hosts)
		return tarn_fail(err, EUCLEAN,
				 "the kernel names host page %u, the file system has %u",
				 s->claim.page, s->sb.hosts);
	return 0;
}

static void session_unload(struct tarn_session *s)
{
	tarn_media_close(s->media);
	if (s->metafd >= 0)
		close(s->metafd);
	tarn_kernel_ioctl_free(s->kernel);
	s->media = NULL;
	s->metafd = -1;
	s->kernel = NULL;
}

/* path is not on a tarnfs: perhaps the device or the image itself was meant. */
static int explain_path(const char *path, struct tarn_err *err)
{
	struct tarn_device d;
	struct stat st;

	if (!stat(path, &st) && S_ISREG(st.st_mode))
		return tarn_fail(err, EMEDIUMTYPE, "%s: not on a tarnfs: name the directory of a mount "
				 "(an image cannot be mounted)", path);
	if (!stat(path, &st) && (S_ISBLK(st.st_mode) || S_ISCHR(st.st_mode)) &&
	    !tarn_device_find(&d, path, NULL))
		return d.mounted_tarnfs ?
		       tarn_fail(err, EMEDIUMTYPE, "%s: a device: name the directory that it is "
				 "mounted on, %s", path, d.mounted_on) :
		       tarn_fail(err, EMEDIUMTYPE, "%s: a device, which is not mounted as a tarnfs "
				 "here: mount it and name the directory", path);
	return tarn_fail(err, EMEDIUMTYPE, "%s: not on a tarnfs", path);
}

int tarn_session_open(struct tarn_session *s, const char *path, unsigned int flags,
		      struct tarn_err *err)
{
	int ret, fd = open_dir(path, err);

	session_init(s, fd < 0 ? -1 : fd);
	if (fd < 0)
		return fd;
	ret = session_load(s, err);
	if (!ret && flags & TARN_OPEN_APPEND) {
		ret = may_append(s, err);
		if (!ret)
			ret = open_for_append(s, err);
	}
	if (ret) {
		bool elsewhere = ret == -EMEDIUMTYPE && !(s->st.state & TARNFS_ST_META);

		tarn_session_close(s);
		return elsewhere ? explain_path(path, err) :
				   tarn_fail_prefix(err, ret, "%s: ", path);
	}
	return 0;
}

int tarn_session_attach(struct tarn_session *s, int dirfd, struct tarn_err *err)
{
	int ret;

	session_init(s, dirfd);
	ret = session_load(s, err);
	if (ret)
		session_unload(s);
	return ret;
}

void tarn_session_close(struct tarn_session *s)
{
	session_unload(s);
	if (s->dirfd >= 0)
		close(s->dirfd);
	s->dirfd = -1;
}
