// SPDX-License-Identifier: GPL-2.0-only
/*
 * From a path to a device or an image; each thing that is none of them is
 * refused with what it is. (Real devices and mounts are tested in guests.)
 */
#include "dax.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

/* Over libc's: a mount whose module speaks this version of the interface; 0 = no such mount. */
static uint32_t other_version;

int ioctl(int fd, unsigned long request, ...)
{
	va_list ap;
	void *arg;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	if (other_version && request == TARNFS_IOC_STATUS) {
		((struct tarnfs_status *)arg)->version = other_version;
		errno = EPROTONOSUPPORT;
		return -1;
	}
	return (int)syscall(SYS_ioctl, fd, request, arg);
}

int fstatfs(int fd, struct statfs *fs)
{
	int ret = (int)syscall(SYS_fstatfs, fd, fs);

	if (!ret && other_version)
		fs->f_type = TARNFS_STATFS_MAGIC;
	return ret;
}

/* A kernel that fails at one step of a new mount, with this errno; 0 = it works. */
static const char *fails_at = "";
static int fails_with;

static int step(const char *name)
{
	if (strcmp(name, fails_at) || !fails_with)
		return 0;
	errno = fails_with;
	return -1;
}

int fsopen(const char *type, unsigned int flags)
{
	(void)flags;
	assert_string_equal(type, "tarnfs");
	return step("fsopen") ? -1 : open("/dev/null", O_RDONLY | O_CLOEXEC);
}

int fsconfig(int fd, unsigned int cmd, const char *key, const void *value, int aux)
{
	(void)fd;
	(void)value;
	(void)aux;
	return step(cmd == FSCONFIG_CMD_CREATE ? "create" : key);
}

int fsmount(int fd, unsigned int flags, unsigned int attr)
{
	(void)fd;
	(void)flags;
	(void)attr;
	return step("fsmount") ? -1 : open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
}

static char image[] = "/tmp/tarn-image-XXXXXX";
static int image_fd;

static int setup(void **state)
{
	(void)state;
	image_fd = mkstemp(image);
	return image_fd < 0;
}

static int teardown(void **state)
{
	(void)state;
	close(image_fd);
	return unlink(image);
}

static void finds(void **state)
{
	struct tarn_device d;
	struct tarn_err err;
	char path[128];

	(void)state;
	assert_int_equal(ftruncate(image_fd, 12345), 0);
	assert_int_equal(tarn_device_find(&d, image, &err), 0);
	assert_true(d.is_file);
	assert_int_equal(d.size, 12345);
	assert_string_equal(d.path, image);
	assert_string_equal(d.mounted_on, "");
	assert_false(d.mounted_tarnfs);
	snprintf(path, sizeof(path), "/tmp/../tmp/./%s", strrchr(image, '/') + 1);
	assert_int_equal(tarn_device_find(&d, path, &err), 0);
	assert_string_equal(d.path, image);
	assert_int_equal(tarn_device_find(&d, "/tmp", &err), -ENOTBLK);
	assert_int_equal(tarn_device_find(&d, "/nonexistent/pmem0", &err), -ENOENT);
	assert_non_null(strstr(err.text, "/nonexistent/pmem0"));
	assert_int_equal(tarn_device_find(&d, "/dev/null", &err), -ENOTBLK);
	assert_non_null(strstr(err.text, "a character device, and no DAX memory"));
}

/* An image is made and read by the same code as a device. */
static void image_as_media(void **state)
{
	struct tarn_mkfs opt = { .now_sec = 1, .owner_self = 0 };
	struct tarn_current cur;
	struct tarn_super sb, back;
	struct tarn_meta meta;
	struct tarn_device d;
	struct tarn_err err;
	struct tarn_log log;
	struct stat st;

	(void)state;
	assert_int_equal(ftruncate(image_fd, 64 << 20), 0);
	assert_int_equal(tarn_device_find(&d, image, &err), 0);
	opt.dev_size = d.size;
	assert_int_equal(tarn_mkfs_plan(&sb, &opt, &err), 0);
	assert_int_equal(tarn_meta_open(&meta, &d, true, &err), 0);
	if (tarn_mkfs_write(meta.media, &sb, &opt, &err))
		fail_msg("%s", err.text);
	tarn_meta_close(&meta);
	assert_int_equal(fstat(image_fd, &st), 0);
	assert_true((uint64_t)st.st_blocks * 512 < 4 << 20);	/* sparse */

	assert_int_equal(tarn_meta_open(&meta, &d, false, &err), 0);
	assert_int_equal(tarn_super_read(&back, meta.media, meta.dev_size, &err), 0);
	assert_memory_equal(&sb, &back, sizeof(sb));
	assert_int_equal(tarn_scan(meta.media, &sb, &cur, NULL, &err), 0);
	assert_int_equal(tarn_log_open(&log, meta.media, &sb, &cur, &err), 0);
	assert_int_equal(tarn_media_write(meta.media, 0, "x", 1), -EACCES);
	/* cut off while it is read: an error with the place, no signal */
	assert_int_equal(ftruncate(image_fd, 4096), 0);
	assert_int_equal(tarn_scan(meta.media, &sb, &cur, NULL, &err), -EUCLEAN);
	assert_int_equal(ftruncate(image_fd, 0), 0);
	assert_int_equal(tarn_super_read(&back, meta.media, 0, &err), -EIO);
	assert_non_null(strstr(err.text, "device offset 0x"));
	tarn_meta_close(&meta);
	tarn_meta_close(&meta);
}

static void empty_and_odd_images(void **state)
{
	struct tarn_meta meta;
	struct tarn_super sb;
	struct tarn_device d;
	struct tarn_err err;

	(void)state;
	assert_int_equal(ftruncate(image_fd, 0), 0);
	assert_int_equal(tarn_device_find(&d, image, &err), 0);
	assert_int_equal(tarn_meta_open(&meta, &d, true, &err), -ENODATA);
	assert_int_equal(ftruncate(image_fd, 4096 + 100), 0);
	assert_int_equal(tarn_device_find(&d, image, &err), 0);
	assert_int_equal(tarn_meta_open(&meta, &d, true, &err), 0);
	assert_int_equal(tarn_super_read(&sb, meta.media, meta.dev_size, &err), -ENODATA);
	tarn_meta_close(&meta);
	assert_int_equal(unlink(image), 0);
	assert_int_equal(tarn_meta_open(&meta, &d, true, &err), -ENOENT);
	assert_int_equal(close(open(image, O_CREAT | O_RDWR, 0600)), 0); /* for the teardown */
}

/* Without the module, or without the right: a sentence with what to do. */
static void no_module(void **state)
{
	static const char *const options[] = { "meta", NULL };
	struct tarn_err err = { "" };
	int mntfd, dirfd, ret;

	(void)state;
	fails_at = "fsopen";
	fails_with = ENODEV;
	ret = tarn_mount_new("/dev/null", options, &mntfd, &dirfd, &err);
	fails_with = 0;
	assert_int_equal(ret, -ENODEV);
	assert_int_equal(mntfd, -1);
	assert_int_equal(dirfd, -1);
	assert_non_null(strstr(err.text, "modprobe tarnfs"));
}

/* A path that is on no tarnfs. */
static void no_session(void **state)
{
	struct tarn_session s;
	struct tarn_err err;

	(void)state;
	assert_int_equal(tarn_session_open(&s, "/tmp", 0, &err), -EMEDIUMTYPE);
	assert_string_equal(err.text, "/tmp: not on a tarnfs");
	assert_int_equal(tarn_session_open(&s, image, TARN_OPEN_APPEND, &err), -EMEDIUMTYPE);
	assert_int_equal(tarn_session_open(&s, "/nonexistent/x", 0, &err), -ENOENT);
	tarn_session_close(&s);
}

/* A module of another interface version: both versions, and the commands that help. */
static void another_interface(void **state)
{
	static const char *const says[] = {
		"version 7,", "these tools version 1", "rmmod tarnfs", "modprobe tarnfs",
		"tarnfs version",
	};
	struct tarn_session s;
	struct tarn_err err;
	int fd;

	(void)state;
	other_version = 7;
	assert_int_equal(tarn_session_open(&s, "/tmp", 0, &err), -EPROTO);
	for (size_t i = 0; i < sizeof(says) / sizeof(says[0]); i++)
		if (!strstr(err.text, says[i]))
			fail_msg("'%s' does not say '%s'", err.text, says[i]);
	assert_int_equal(strncmp(err.text, "/tmp: ", 6), 0);
	/* as mount.tarnfs asks: the descriptor stays the caller's */
	fd = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(tarn_session_attach(&s, fd, &err), -EPROTO);
	assert_non_null(strstr(err.text, "version 7,"));
	assert_int_equal(close(fd), 0);
	other_version = 0;
}

static void mounted(const char *where, int code, int want, const char *text)
{
	struct tarn_dax dax = { .name = "dax0.0", .node = "/dev/null", .major = 1, .minor = 3 };
	struct tarn_err err = { "" };
	int before = dup(0), after, ret;

	close(before);
	fails_at = where;
	fails_with = code;
	ret = tarn_dax_mounted(&dax, &err);
	if (ret != -want)
		fail_msg("%s: %d: %d, not %d (%s)", where, code, ret, -want, err.text);
	if (!strstr(err.text, text))
		fail_msg("'%s' does not say '%s'", err.text, text);
	after = dup(0);
	assert_int_equal(after, before);
	close(after);
	fails_with = 0;
}

/* Whether a mount is left: no answer but the module's own is "no". */
static void left_mounts(void **state)
{
	static const int unknown[] = { ENOMEM, EMFILE, ENFILE, EINTR, EACCES, EPERM, EIO, ENOENT, ENOTBLK,
				       EAGAIN };
	struct tarn_dax dax = { .name = "dax0.0", .node = "/dev/zero", .major = 1, .minor = 3 };
	struct tarn_err err = { "" };

	(void)state;
	mounted("", 0, 0, "");
	mounted("fsopen", ENODEV, 0, "");
	mounted("create", ENXIO, 0, "");
	mounted("create", EOPNOTSUPP, 0, "");
	mounted("create", EINVAL, 0, "");
	mounted("create", ENODEV, 0, "");
	mounted("create", EBUSY, EBUSY, "is in use: mounted in another mount namespace");
	for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++) {
		mounted("fsopen", unknown[i], unknown[i], "whether it is mounted somewhere cannot");
		mounted("source", unknown[i], unknown[i], "cannot be found out");
		mounted("create", unknown[i], unknown[i], "cannot be found out");
		mounted("fsmount", unknown[i], unknown[i], "cannot be found out");
	}
	/* the same from where the module is not asked */
	mounted("fsopen", ENXIO, ENXIO, "cannot be found out");
	mounted("fsopen", EINVAL, EINVAL, "cannot be found out");
	mounted("source", EOPNOTSUPP, EOPNOTSUPP, "cannot be found out");
	mounted("meta", EINVAL, EINVAL, "cannot be found out");
	/* not its node, or none */
	assert_int_equal(tarn_dax_mounted(&dax, &err), -ENODEV);
	assert_non_null(strstr(err.text, "mknod /dev/zero c 1 3"));
	strcpy(dax.node, "/dev/no-such-node");
	assert_int_equal(tarn_dax_mounted(&dax, &err), -ENODEV);
	strcpy(dax.node, "/dev");
	assert_int_equal(tarn_dax_mounted(&dax, &err), -ENODEV);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(finds),
		cmocka_unit_test(image_as_media),
		cmocka_unit_test(no_module),
		cmocka_unit_test(no_session),
		cmocka_unit_test(another_interface),
		cmocka_unit_test(empty_and_odd_images),
		cmocka_unit_test(left_mounts),
	};

	return cmocka_run_group_tests_name("device", tests, setup, teardown);
}
