// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * kernel.c - struct tarn_kernel_ops by the ioctls of a mounted tarnfs.
 *
 * The append lock is flock(2), the page lock a byte range (F_OFD_SETLKW), both
 * on a descriptor of the meta inode, of which a mount has one: so they hold
 * among all processes of this host, and are gone with the process.
 */
#include "internal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <unistd.h>

struct ioctl_kernel {
	struct tarn_kernel kernel;
	int dirfd, metafd;
	uint64_t hosts_off;
};

static struct ioctl_kernel *to_ioctl(struct tarn_kernel *k)
{
	return (struct ioctl_kernel *)k;
}

int tarn_kernel_status(int dirfd, struct tarnfs_status *st)
{
	memset(st, 0, sizeof(*st));
	st->version = TARNFS_INTERFACE;
	if (!ioctl(dirfd, TARNFS_IOC_STATUS, st))
		return 0;
	return errno == EPROTONOSUPPORT ? -EPROTO : -errno;
}

int tarn_kernel_mismatch(const struct tarnfs_status *st, struct tarn_err *err)
{
	return tarn_fail(err, EPROTO,
			 "tarnfs.ko speaks interface version %u, these tools version %d: install both "
			 "from one release, umount every tarnfs, then: rmmod tarnfs; modprobe tarnfs "
			 "(tarnfs version prints all versions)",
			 st->version, TARNFS_INTERFACE);
}

int tarn_kernel_open_meta(int dirfd, const struct tarn_media_range *writable, size_t count)
{
	struct tarnfs_open_meta args = { .version = TARNFS_INTERFACE, .count = (uint32_t)count };

	if (count > TARNFS_META_RANGES)
		return -E2BIG;
	for (size_t i = 0; i < count; i++) {
		args.writable[i].off = writable[i].off;
		args.writable[i].len = writable[i].len;
	}
	return ioctl(dirfd, TARNFS_IOC_OPEN_META, &args) ? -errno : args.fd;
}

int tarn_kernel_badranges(int dirfd, struct tarnfs_range **out, uint32_t *count)
{
	struct tarnfs_badranges args = { .version = TARNFS_INTERFACE };
	struct tarnfs_range *list = NULL;

	/* more may fail while we ask */
	for (;;) {
		if (ioctl(dirfd, TARNFS_IOC_BADRANGES, &args)) {
			int ret = -errno;

			free(list);
			return ret;
		}
		if (args.count <= args.room)
			break;
		free(list);
		args.room = args.count + 8;
		list = calloc(args.room, sizeof(*list));
		if (!list)
			return -ENOMEM;
		args.ranges = (uintptr_t)list;
	}
	*out = list;
	*count = args.count;
	return 0;
}

static int k_status(struct tarn_kernel *k, struct tarnfs_status *st)
{
	return tarn_kernel_status(to_ioctl(k)->dirfd, st);
}

static int k_reserve(struct tarn_kernel *k, struct tarnfs_reserve_item *items, uint32_t count,
		     int *set, uint32_t *failed)
{
	struct tarnfs_reserve args = {
		.version = TARNFS_INTERFACE, .count = count, .items = (uintptr_t)items,
	};

	if (ioctl(to_ioctl(k)->dirfd, TARNFS_IOC_RESERVE, &args)) {
		int ret = -errno;

		*failed = args.failed;
		return ret;
	}
	*set = args.fd;
	return 0;
}

static void k_release(struct tarn_kernel *k, int set)
{
	(void)k;
	close(set);
}

static int k_reserve_open(struct tarn_kernel *k, int set, uint64_t ino)
{
	struct tarnfs_reserve_open args = { .version = TARNFS_INTERFACE, .ino = ino };

	(void)k;
	return ioctl(set, TARNFS_IOC_RESERVE_OPEN, &args) ? -errno : args.fd;
}

static int k_apply(struct tarn_kernel *k, struct tarnfs_apply *args, const struct tarnfs_op *ops,
		   const char *strings)
{
	args->version = TARNFS_INTERFACE;
	args->op_size = sizeof(*ops);
	args->ops = (uintptr_t)ops;
	args->strings = (uintptr_t)strings;
	return ioctl(to_ioctl(k)->dirfd, TARNFS_IOC_APPLY, args) ? -errno : 0;
}

static int k_shutdown(struct tarn_kernel *k)
{
	uint32_t how = 0;

	return ioctl(to_ioctl(k)->dirfd, TARNFS_IOC_SHUTDOWN, &how) ? -errno : 0;
}

static int k_lock(struct tarn_kernel *k)
{
	while (flock(to_ioctl(k)->metafd, LOCK_EX))
		if (errno != EINTR)
			return -errno;
	return 0;
}

static void k_unlock(struct tarn_kernel *k)
{
	flock(to_ioctl(k)->metafd, LOCK_UN);
}

static int page_range(struct tarn_kernel *k, uint16_t page, short type)
{
	struct flock range = {
		.l_type = type,
		.l_whence = SEEK_SET,
		.l_start = (off_t)(to_ioctl(k)->hosts_off + (uint64_t)page * TARNFS_HOST_STRIDE),
		.l_len = TARNFS_HOST_STRIDE,
	};

	while (fcntl(to_ioctl(k)->metafd, F_OFD_SETLKW, &range))
		if (errno != EINTR)
			return -errno;
	return 0;
}

static int k_page_lock(struct tarn_kernel *k, uint16_t page)
{
	return page_range(k, page, F_WRLCK);
}

static void k_page_unlock(struct tarn_kernel *k, uint16_t page)
{
	page_range(k, page, F_UNLCK);
}

static const struct tarn_kernel_ops ioctl_ops = {
	.status = k_status,
	.reserve = k_reserve,
	.release = k_release,
	.reserve_open = k_reserve_open,
	.apply = k_apply,
	.shutdown = k_shutdown,
	.lock = k_lock,
	.unlock = k_unlock,
	.page_lock = k_page_lock,
	.page_unlock = k_page_unlock,
};

struct tarn_kernel *tarn_kernel_ioctl(int dirfd, int metafd, uint64_t hosts_off)
{
	struct ioctl_kernel *k = calloc(1, sizeof(*k));

	if (!k)
		return NULL;
	k->kernel.ops = &ioctl_ops;
	k->dirfd = dirfd;
	tarn_kernel_ioctl_meta(&k->kernel, metafd, hosts_off);
	return &k->kernel;
}

void tarn_kernel_ioctl_meta(struct tarn_kernel *k, int metafd, uint64_t hosts_off)
{
	to_ioctl(k)->metafd = metafd;
	to_ioctl(k)->hosts_off = hosts_off;
}

void tarn_kernel_ioctl_free(struct tarn_kernel *k)
{
	free(k);
}
