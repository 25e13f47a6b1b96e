// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * device.c - from a path to a device, to where it is mounted, to a new mount,
 * and to its metadata. Every refusal names what was found and the command
 * that changes it.
 */
#include "dax.h"

#include <fcntl.h>
#include <libmount/libmount.h>
#include <limits.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* ---- what it is ---- */

static int find_size(struct tarn_device *d, const struct stat *st, struct tarn_err *err)
{
	uint64_t size;
	int fd;

	if (d->is_file) {
		d->size = (uint64_t)st->st_size;
		return 0;
	}
	fd = open(d->path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 && errno == EACCES) {
		char text[32];

		/* whoever may not read it may know how large it is: in sectors of 512 bytes */
		if (tarn_sysfs_read(text, sizeof(text), "/sys/dev/block/%u:%u/size",
				    major(st->st_rdev), minor(st->st_rdev)) <= 0)
			return tarn_fail(err, EACCES, "%s: %s", d->path, strerror(EACCES));
		d->size = strtoull(text, NULL, 10) * 512;
		return 0;
	}
	if (fd < 0)
		return tarn_fail(err, errno, "%s: %s", d->path, strerror(errno));
	if (ioctl(fd, BLKGETSIZE64, &size)) {
		int ret = tarn_fail(err, errno, "%s: size: %s", d->path, strerror(errno));

		close(fd);
		return ret;
	}
	close(fd);
	d->size = size;
	return 0;
}

/* Where this process sees it mounted, the topmost mount if there are several. */
static int find_mount(struct tarn_device *d, const struct stat *st, struct tarn_err *err)
{
	struct libmnt_table *table = mnt_new_table_from_file("/proc/self/mountinfo");
	struct libmnt_iter *iter = mnt_new_iter(MNT_ITER_BACKWARD);
	struct libmnt_fs *fs;
	int ret = 0;

	if (!table || !iter) {
		ret = tarn_fail(err, errno ? errno : ENOMEM,
				"/proc/self/mountinfo: cannot be read");
		goto out;
	}
	while (!mnt_table_next_fs(table, iter, &fs)) {
		const char *source = mnt_fs_get_source(fs), *target = mnt_fs_get_target(fs);
		const char *type = mnt_fs_get_fstype(fs);
		bool same = S_ISBLK(st->st_mode) && mnt_fs_get_devno(fs) == st->st_rdev;

		if (!target || (!same && (!source || strcmp(source, d->path))))
			continue;
		d->mounted_tarnfs = type && !strcmp(type, "tarnfs");
		snprintf(d->mounted_on, sizeof(d->mounted_on), "%s", target);
		break;
	}
out:
	mnt_free_iter(iter);
	mnt_unref_table(table);
	return ret;
}

static int find_dax(struct tarn_device *d, struct tarn_err *err)
{
	int ret;

	if (!strcmp(d->dax.driver, "kmem"))
		return tarn_dax_is_ram(&d->dax, err);
	d->is_dax = true;
	d->size = d->dax.size;
	ret = tarn_dax_mount(&tarn_dax_here, &d->dax, d->mounted_on, sizeof(d->mounted_on),
			     &d->mounted_tarnfs);
	if (ret && ret != -ENOENT)
		return tarn_fail(err, -ret, "/proc/self/mountinfo: %s", strerror(-ret));
	return 0;
}

int tarn_device_find(struct tarn_device *d, const char *path, struct tarn_err *err)
{
	char real[PATH_MAX];
	struct stat st;
	int ret;

	memset(d, 0, sizeof(*d));
	if (!realpath(path, real) || stat(real, &st)) {
		ret = errno;
		/* daxctl makes no node in /dev, and udev may not have: the device is there */
		if (ret == ENOENT && !strncmp(path, "/dev/", 5) &&
		    !tarn_dax_read(&tarn_dax_here, &d->dax, path + 5)) {
			if (!strcmp(d->dax.driver, "kmem"))
				return tarn_dax_is_ram(&d->dax, err);
			return tarn_fail(err, ENODEV, "%s: the device is there, but not its node in /dev: "
					 "udevadm trigger, or mknod %s c %u %u", path, path,
					 d->dax.major, d->dax.minor);
		}
		return tarn_fail(err, ret, "%s: %s", path, strerror(ret));
	}
	snprintf(d->path, sizeof(d->path), "%s", real);
	if (S_ISCHR(st.st_mode))
		return tarn_dax_by_number(&tarn_dax_here, &d->dax, major(st.st_rdev),
					  minor(st.st_rdev)) ?
		       tarn_fail(err, ENOTBLK, "%s: a character device, and no DAX memory", path) :
		       find_dax(d, err);
	if (!S_ISBLK(st.st_mode) && !S_ISREG(st.st_mode))
		return tarn_fail(err, ENOTBLK, "%s: neither a device nor an image file", path);
	d->is_file = S_ISREG(st.st_mode);
	ret = find_size(d, &st, err);
	return ret ? ret : find_mount(d, &st, err);
}

/* ---- a new mount ---- */

/*
 * What the kernel said: read(2) on the fsopen descriptor gives a message at a
 * time, "e tarnfs: text"; the errors among them, joined.
 */
static void kernel_text(int fsfd, char *out, size_t room)
{
	char line[1024];
	size_t used = 0;
	ssize_t len;

	out[0] = '\0';
	while ((len = read(fsfd, line, sizeof(line) - 1)) > 0) {
		char *text = line;

		line[len] = '\0';
		line[strcspn(line, "\n")] = '\0';
		if (line[0] != 'e' || line[1] != ' ')
			continue;
		text += 2;
		if (!strncmp(text, "tarnfs: ", 8))
			text += 8;
		if (used < room)
			used += (size_t)snprintf(out + used, room - used, "%s%s", used ? "; " : "",
						 text);
	}
}

/* The kernel does not know which namespace a device is of: the command gets its name here. */
static void name_namespace(char *text, size_t room, const char *device)
{
	static const char word[] = "NAMESPACE";
	char *at = strstr(text, word), name[64] = "", rest[512];
	struct tarn_dax dax;
	struct stat st;

	if (!at || stat(device, &st))
		return;
	if (S_ISBLK(st.st_mode))
		tarn_block_namespace(&tarn_dax_here, st.st_rdev, name, sizeof(name));
	else if (S_ISCHR(st.st_mode) && !tarn_dax_by_number(&tarn_dax_here, &dax, major(st.st_rdev),
							    minor(st.st_rdev)))
		snprintf(name, sizeof(name), "%.60s", dax.namespace);
	if (!name[0])
		return;
	snprintf(rest, sizeof(rest), "%.511s", at + strlen(word));
	snprintf(at, room - (size_t)(at - text), "%s%s", name, rest);
}

static int create_failed(int fsfd, const char *device, const char *doing, int code,
			 struct tarn_err *err)
{
	struct tarn_device d;
	char text[512];

	kernel_text(fsfd, text, sizeof(text));
	name_namespace(text, sizeof(text), device);
	if (code == EBUSY && !tarn_device_find(&d, device, NULL) && d.mounted_on[0])
		return tarn_fail(err, EBUSY, "%s is mounted on %s: umount it first", device,
				 d.mounted_on);
	if (text[0])	/* most of the kernel's messages name the device themselves */
		return strstr(text, device) ? tarn_fail(err, code, "%s", text) :
					      tarn_fail(err, code, "%s: %s", device, text);
	switch (code) {
	case EBUSY:
		return tarn_fail(
			err, code,
			"%s is in use: by a mount in another namespace, or by something else that "
			"has opened it for itself (lsblk, dmsetup, mdadm)",
			device);
	case EPERM:
		return tarn_fail(err, code, "%s: this needs root (CAP_SYS_ADMIN)", device);
	default:
		return tarn_fail(err, code, "%s: %s: %s (dmesg may say more)", device, doing,
				 strerror(code));
	}
}

static int set_option(int fsfd, const char *option)
{
	char key[256];
	const char *value = strchr(option, '=');

	if (!value)
		return fsconfig(fsfd, FSCONFIG_SET_FLAG, option, NULL, 0);
	if ((size_t)(value - option) >= sizeof(key)) {
		errno = EINVAL;
		return -1;
	}
	memcpy(key, option, (size_t)(value - option));
	key[value - option] = '\0';
	return fsconfig(fsfd, FSCONFIG_SET_STRING, key, value + 1, 0);
}

/* *asked: the module itself was asked to make the mount, whatever it answered. */
static int mount_new(const char *device, const char *const *options, int *mntfd, int *dirfd,
		     bool *asked, struct tarn_err *err)
{
	int ret = 0, fsfd = fsopen("tarnfs", FSOPEN_CLOEXEC);

	*mntfd = *dirfd = -1;
	*asked = false;
	if (fsfd < 0) {
		switch (errno) {
		case ENODEV:
			return tarn_fail(err, ENODEV,
					 "%s: the kernel has no tarnfs: modprobe tarnfs (if the "
					 "module is not found: make modules_install; if it is "
					 "refused, dmesg says why)", device);
		case EPERM:
			return tarn_fail(err, EPERM, "%s: this needs root (CAP_SYS_ADMIN)", device);
		default:
			return tarn_fail(err, errno, "fsopen: %s", strerror(errno));
		}
	}
	if (fsconfig(fsfd, FSCONFIG_SET_STRING, "source", device, 0))
		ret = create_failed(fsfd, device, "source", errno, err);
	for (; !ret && options && *options; options++)
		if (set_option(fsfd, *options))
			ret = create_failed(fsfd, device, *options, errno, err);
	if (!ret) {
		*asked = true;
		if (fsconfig(fsfd, FSCONFIG_CMD_CREATE, NULL, NULL, 0))
			ret = create_failed(fsfd, device, "mount", errno, err);
	}
	if (!ret) {
		*mntfd = fsmount(fsfd, FSMOUNT_CLOEXEC, 0);
		if (*mntfd < 0)
			ret = create_failed(fsfd, device, "fsmount", errno, err);
	}
	close(fsfd);
	if (!ret) {
		/* what fsmount gives is an O_PATH descriptor, on which no ioctl works */
		*dirfd = openat(*mntfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (*dirfd < 0) {
			ret = tarn_fail(err, errno, "%s: root directory: %s", device,
					strerror(errno));
			close(*mntfd);
			*mntfd = -1;
		}
	}
	return ret;
}

int tarn_mount_new(const char *device, const char *const *options, int *mntfd, int *dirfd,
		   struct tarn_err *err)
{
	bool asked;

	return mount_new(device, options, mntfd, dirfd, &asked, err);
}

/*
 * The module says these of a device that it cannot mount, and says EBUSY before them of one that
 * it has mounted. All else (no memory, no descriptors, a signal, a security module...) may come
 * before it has looked.
 */
static bool proves_no_mount(int ret, bool asked)
{
	switch (ret) {
	case 0:
		return true;
	case -ENODEV:	/* not asked: no module is there, so no mount */
		return true;
	case -ENXIO:
	case -EOPNOTSUPP:
	case -EINVAL:
		return asked;
	default:
		return false;
	}
}

int tarn_dax_mounted(const struct tarn_dax *dax, struct tarn_err *err)
{
	static const char *const options[] = { "meta", "ro", NULL };
	struct tarn_err why = { "" };
	int mntfd, dirfd, ret;
	struct stat st;
	bool asked;

	/* what is mounted below is what the path leads to */
	if (stat(dax->node, &st) || !S_ISCHR(st.st_mode) || major(st.st_rdev) != dax->major ||
	    minor(st.st_rdev) != dax->minor)
		return tarn_fail(err, ENODEV, "%s is not there, or not %s (%u:%u): whether that is mounted "
				 "somewhere cannot be found out: udevadm trigger, or mknod %s c %u %u",
				 dax->node, dax->name, dax->major, dax->minor, dax->node, dax->major,
				 dax->minor);
	/* the exclusive mount: what only another namespace or an open file holds is found too */
	ret = mount_new(dax->node, options, &mntfd, &dirfd, &asked, &why);
	if (!ret) {
		close(dirfd);
		close(mntfd);
	}
	if (proves_no_mount(ret, asked))
		return 0;
	if (ret == -EBUSY)
		return tarn_fail(err, EBUSY, "%s is in use: mounted in another mount namespace, or by open "
				 "files of a lazy umount, or a fsck.tarnfs, mkfs.tarnfs or tarnfs command "
				 "is at work on it: end that first", dax->node);
	return tarn_fail(err, -ret, "%s: whether it is mounted somewhere cannot be found out (%.300s): "
			 "try again once that is mended", dax->node, why.text);
}

/* ---- metadata ---- */

static int open_file(struct tarn_meta *meta, const struct tarn_device *d, bool writable,
		     struct tarn_err *err)
{
	meta->fd = open(d->path, (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC);
	if (meta->fd < 0)
		return tarn_fail(err, errno, "%s: %s", d->path, strerror(errno));
	meta->dev_size = d->size;
	meta->sync = writable;
	return 0;
}

/* A mount of it that is there already: read-only, its [0, data_start). */
static int open_mounted(struct tarn_meta *meta, const struct tarn_device *d, uint64_t *size,
			struct tarn_err *err)
{
	struct tarnfs_status st;
	int ret;

	meta->dirfd = open(d->mounted_on, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (meta->dirfd < 0)
		return tarn_fail(err, errno, "%s: %s", d->mounted_on, strerror(errno));
	ret = tarn_mount_status(meta->dirfd, &st, err);
	if (ret)
		return tarn_fail_prefix(err, ret, "%s: ", d->mounted_on);
	meta->fd = tarn_kernel_open_meta(meta->dirfd, NULL, 0);
	if (meta->fd < 0)
		return tarn_fail(err, -meta->fd, "%s: OPEN_META: %s", d->mounted_on,
				 strerror(-meta->fd));
	meta->dev_size = st.dev_size;
	*size = st.state & TARNFS_ST_META ? st.dev_size : st.data_start;
	return 0;
}

static int open_meta_mount(struct tarn_meta *meta, const struct tarn_device *d, bool writable,
			   struct tarn_err *err)
{
	static const char *const read_write[] = { "meta", NULL }, *const read_only[] = { "meta",
											 "ro",
											 NULL };
	struct tarn_media_range whole = { 0, d->size / TARNFS_BLOCK * TARNFS_BLOCK };
	struct tarnfs_status st;
	int ret = d->is_dax ? tarn_dax_ready(&d->dax, err) : 0;

	if (ret)
		return ret;
	ret = tarn_mount_new(d->path, writable ? read_write : read_only, &meta->mntfd, &meta->dirfd,
			     err);
	if (ret)
		return ret;
	ret = tarn_mount_status(meta->dirfd, &st, err);
	if (ret)
		return ret;
	meta->fd = tarn_kernel_open_meta(meta->dirfd, &whole, writable ? 1 : 0);
	if (meta->fd < 0)
		return tarn_fail(err, -meta->fd, "%s: OPEN_META: %s", d->path, strerror(-meta->fd));
	meta->dev_size = st.dev_size;
	return 0;
}

int tarn_machine_fits(size_t page, size_t granule, struct tarn_err *err)
{
	if (page != TARNFS_BLOCK)
		return tarn_fail(err, EOPNOTSUPP,
				 "this kernel's pages are %zu bytes and tarnfs works with %u only: boot a kernel with such pages",
				 page, TARNFS_BLOCK);
	if (granule > TARNFS_LINE)
		return tarn_fail(err, EOPNOTSUPP,
				 "this CPU's caches write %zu bytes back at once and tarnfs shares memory by %u: a host with this CPU would overwrite what others stored",
				 granule, TARNFS_LINE);
	return 0;
}

int tarn_machine_check(struct tarn_err *err)
{
	return tarn_machine_fits((size_t)sysconf(_SC_PAGESIZE), tarn_cache_granule(), err);
}

int tarn_meta_open(struct tarn_meta *meta, const struct tarn_device *d, bool writable,
		   struct tarn_err *err)
{
	struct tarn_media_range whole = { 0, 0 };
	uint64_t size = 0;
	int ret;

	memset(meta, 0, sizeof(*meta));
	meta->mntfd = meta->dirfd = meta->fd = -1;
	ret = tarn_machine_check(err);
	if (ret)
		return ret;
	if (d->is_file)
		ret = open_file(meta, d, writable, err);
	else if (!writable && d->mounted_tarnfs)
		ret = open_mounted(meta, d, &size, err);
	else
		ret = open_meta_mount(meta, d, writable, err);
	if (!ret) {
		if (!size)
			size = meta->dev_size;
		size = size / TARNFS_BLOCK * TARNFS_BLOCK;
		whole.len = size;
		if (!size) {
			tarn_meta_close(meta);
			return tarn_fail(err, ENODATA,
					 "%s: no tarnfs superblock here: it has %llu bytes in all",
					 d->path, (unsigned long long)d->size);
		}
		ret = tarn_media_map(&meta->media, meta->fd, size, &whole, writable ? 1 : 0);
		if (ret)
			tarn_fail(err, -ret, "%s: mapping %llu bytes: %s", d->path,
				  (unsigned long long)size, strerror(-ret));
	}
	if (ret)
		tarn_meta_close(meta);
	return ret;
}

void tarn_meta_close(struct tarn_meta *meta)
{
	tarn_media_close(meta->media);
	meta->media = NULL;
	if (meta->sync)
		fsync(meta->fd);
	meta->sync = false;
	if (meta->fd >= 0)
		close(meta->fd);
	if (meta->dirfd >= 0)
		close(meta->dirfd);
	if (meta->mntfd >= 0)
		close(meta->mntfd);
	meta->fd = meta->dirfd = meta->mntfd = -1;
}
