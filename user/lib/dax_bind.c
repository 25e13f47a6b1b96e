// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * dax_bind.c - moves a device of the dax bus from device_dax to the driver that
 * tarnfs needs, and back.
 *
 * The bus binds by name: a driver that matches nothing takes a device whose
 * name was written to its new_id. The name stays on that list until remove_id,
 * and a later device of the same name would be taken as well, so it goes as
 * soon as the device is bound. Killed anywhere in between, the device has no
 * driver, or the name is still listed: the next attach or detach mends both.
 */
#include "dax.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- the real places ---- */

static int store_word(const char *path, const char *word)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC), ret = 0;
	size_t len = strlen(word);

	if (fd < 0)
		return -errno;
	if (write(fd, word, len) != (ssize_t)len)
		ret = errno ? -errno : -EIO;
	close(fd);
	return ret;
}

/* Its own words on stderr say why, if it fails. */
static int modprobe(const char *module)
{
	char *const argv[] = { (char[]){ "modprobe" }, (char *)module, NULL };
	char *const envp[] = { (char[]){ "PATH=/usr/sbin:/usr/bin:/sbin:/bin" }, NULL };
	int status, ret;
	pid_t pid;

	/* as the kernel itself calls it */
	ret = posix_spawn(&pid, "/sbin/modprobe", NULL, NULL, argv, envp);
	if (ret)
		return -ret;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return WIFEXITED(status) && !WEXITSTATUS(status) ? 0 : -ENOENT;
}

const struct tarn_dax_places tarn_dax_here = {
	.sys = "/sys",
	.dev = "/dev",
	.proc = "/proc",
	.store = store_word,
	.load = modprobe,
	.mounted = tarn_dax_mounted,
};

/* ---- who uses it ---- */

/* Of what ended while it was looked at. */
static bool has_gone(int code)
{
	return code == ENOENT || code == ESRCH;
}

/*
 * 1: it is, 0: it is not, or has gone; a negative errno: nobody knows, which is not "no". The
 * target's own file system may refuse its stat to root (FUSE: EACCES), and then readlink works
 * nonetheless; EPERM is the kernel's answer at map_files to who may not see it.
 */
static int is_it(const struct tarn_dax *dax, int dirfd, const char *name)
{
	struct stat st;
	char target;

	if (!fstatat(dirfd, name, &st, 0))
		return S_ISCHR(st.st_mode) && major(st.st_rdev) == dax->major &&
		       minor(st.st_rdev) == dax->minor;
	if (errno == EPERM)
		return -EPERM;
	if (has_gone(errno) || readlinkat(dirfd, name, &target, 1) >= 0)
		return 0;
	return has_gone(errno) ? 0 : -errno;
}

/* As is_it(). dir: an fd folder, one of a thread: threads need not share their descriptors. */
static int has_open(const struct tarn_dax *dax, const char *dir)
{
	struct dirent *e;
	DIR *d = opendir(dir);
	int ret = 0;

	if (!d)
		return has_gone(errno) ? 0 : -errno;
	while (!ret && (errno = 0, e = readdir(d)))
		if (isdigit((unsigned char)e->d_name[0]))
			ret = is_it(dax, dirfd(d), e->d_name);
	if (!ret && errno && !has_gone(errno))
		ret = -errno;
	closedir(d);
	return ret;
}

/*
 * As is_it(). A mapping outlives its descriptor. Devices of DAX memory can only be mapped
 * shared. *any: there are mappings, that is it has not ended.
 */
static int has_mapped(const struct tarn_dax *dax, const char *process, bool *any)
{
	unsigned long start, end, inode;
	char path[PATH_MAX], flags[8];
	char *line = NULL;
	int fd, ret = 0;
	size_t room = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%.4000s/maps", process);
	f = fopen(path, "re");
	if (!f)
		return has_gone(errno) ? 0 : -errno;
	snprintf(path, sizeof(path), "%.4000s/map_files", process);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 && !has_gone(errno))
		ret = -errno;
	while (fd >= 0 && !ret && (errno = 0, getline(&line, &room, f) > 0)) {
		*any = true;
		if (sscanf(line, "%lx-%lx %7s %*s %*s %lu", &start, &end, flags, &inode) != 4 ||
		    flags[3] != 's' || !inode)
			continue;
		snprintf(path, sizeof(path), "%lx-%lx", start, end);
		ret = is_it(dax, fd, path);
	}
	if (fd >= 0 && !ret && errno && !has_gone(errno))
		ret = -errno;
	free(line);
	fclose(f);
	if (fd >= 0)
		close(fd);
	return ret;
}

/*
 * As is_it(); *how: what it does with it. Each thread by itself: it may have descriptors of its
 * own, and of a process whose first thread has ended the others alone show anything. Mappings
 * are one process's: they are read once, in /proc/THREAD, which no listing of /proc has.
 */
static int uses(const struct tarn_dax_places *p, const struct tarn_dax *dax, const char *pid,
		const char **how)
{
	char path[PATH_MAX];
	bool any = false;
	struct dirent *e;
	int ret = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "%.4000s/%.20s/task", p->proc, pid);
	dir = opendir(path);
	if (!dir)
		return has_gone(errno) ? 0 : -errno;
	while (!ret && (errno = 0, e = readdir(dir))) {
		if (!isdigit((unsigned char)e->d_name[0]))
			continue;
		if (!any) {
			*how = "mapped";
			snprintf(path, sizeof(path), "%.4000s/%.20s", p->proc, e->d_name);
			ret = has_mapped(dax, path, &any);
		}
		if (!ret) {
			*how = "open";
			snprintf(path, sizeof(path), "%.4000s/%.20s/task/%.20s/fd", p->proc, pid,
				 e->d_name);
			ret = has_open(dax, path);
		}
	}
	if (!ret && errno && !has_gone(errno))
		ret = -errno;
	closedir(dir);
	return ret;
}

/*
 * Unbinding takes the memory from whoever has it mapped, with SIGBUS. Worse: device_dax and
 * fsdev_dax initialise the character device inside the dax inode again at each probe, open or
 * not, and a file that is still open then damages kernel memory when it is closed (seen on 7.3;
 * cdev_init() in drivers/dax/device.c and fsdev.c). So nothing is moved while it is open, whatever
 * has it, and there is no way to force it.
 */
static int refuse_used(const struct tarn_dax_places *p, const struct tarn_dax *dax,
		       struct tarn_err *err)
{
	char path[PATH_MAX], name[64];
	const char *how = "";
	struct dirent *e;
	int ret = 0;
	DIR *dir = opendir(p->proc);

	if (!dir)
		return tarn_fail(err, errno, "%s: %s", p->proc, strerror(errno));
	while (!ret && (errno = 0, e = readdir(dir))) {
		if (!isdigit((unsigned char)e->d_name[0]))
			continue;
		ret = uses(p, dax, e->d_name, &how);
		if (!ret)
			continue;
		snprintf(path, sizeof(path), "%.4000s/%.20s", p->proc, e->d_name);
		if (tarn_sysfs_read(name, sizeof(name), "%s/comm", path) < 0)
			strcpy(name, "?");
		if (ret > 0)
			ret = tarn_fail(err, EBUSY, "%s: process %.20s (%s) has it %s: end it first",
					dax->node, e->d_name, name, how);
		else
			ret = tarn_fail(err, -ret, "%s: whether process %.20s (%s) has it %s cannot be "
					"seen: %s: try again, as root of the host, not of a container",
					dax->node, e->d_name, name, how, strerror(-ret));
	}
	if (!ret && errno)
		ret = tarn_fail(err, errno, "%s: %s: who uses %s cannot be seen: try again", p->proc,
				strerror(errno), dax->node);
	closedir(dir);
	return ret;
}

/* ---- binding ---- */

static int store(const struct tarn_dax_places *p, const char *driver, const char *file,
		 const char *word)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/bus/dax/drivers/%s/%s", p->sys, driver, file);
	return p->store(path, word);
}

static bool has_driver(const struct tarn_dax_places *p, const char *driver)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/bus/dax/drivers/%s/new_id", p->sys, driver);
	return !access(path, F_OK);
}

/* The module that has the driver. */
static int load_driver(const struct tarn_dax_places *p, const char *driver, struct tarn_err *err)
{
	const char *module = strcmp(driver, "tarnfs_dax") ? driver : "tarnfs";

	if (has_driver(p, driver))
		return 0;
	p->load(module);
	if (has_driver(p, driver))
		return 0;
	return tarn_fail(err, ENODEV, "the kernel has no driver %s, and modprobe %s did not bring it: %s; "
			 "dmesg says why, if the module is there and was refused", driver, module,
			 !strcmp(driver, "fsdev_dax") ? "a kernel made without CONFIG_DEV_DAX_FSDEV cannot "
							"mount devdax devices" :
			 !strcmp(driver, "tarnfs_dax") ? "if the module is not found, make modules_install "
							 "installs it for this kernel" :
							 "it is a module of the kernel's own package");
}

/*
 * One at a time: two that move the same device would undo each other's steps. The kernel
 * lets go of the lock with the process.
 */
static int lock(const struct tarn_dax_places *p, const char *name)
{
	char path[PATH_MAX];
	int fd;

	snprintf(path, sizeof(path), "%s/bus/dax/devices/%s", p->sys, name);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	while (flock(fd, LOCK_EX)) {
		if (errno != EINTR) {
			int ret = -errno;

			close(fd);
			return ret;
		}
	}
	return fd;
}

static int begin(const struct tarn_dax_places *p, struct tarn_dax *dax, struct tarn_err *err)
{
	int fd = lock(p, dax->name);
	int ret = fd < 0 ? fd : tarn_dax_read(p, dax, dax->name);

	if (!ret)
		return fd;
	if (fd >= 0)
		close(fd);
	return tarn_fail(err, -ret, "%s: it has gone (%s)", dax->name, strerror(-ret));
}

/*
 * The driver takes the device. The kernel's answer to new_id says nothing about its probe, so
 * what counts is what the device is bound to afterwards.
 */
static int bind_by_id(const struct tarn_dax_places *p, struct tarn_dax *dax, const char *driver,
		      bool keep)
{
	int ret = store(p, driver, "new_id", dax->name);

	if (!keep) {
		tarn_stop_point("device-bound");
		store(p, driver, "remove_id", dax->name);
	}
	if (tarn_dax_read(p, dax, dax->name))
		return -ENODEV;
	return !strcmp(dax->driver, driver) ? 0 : ret ? ret : -EIO;
}

/*
 * device_dax takes by itself what is on an NVDIMM; what the firmware or CXL gives it takes by
 * name, which is then left on its list, as daxctl does.
 */
static int bind_device_dax(const struct tarn_dax_places *p, struct tarn_dax *dax)
{
	store(p, "device_dax", "bind", dax->name);
	if (tarn_dax_read(p, dax, dax->name))
		return -ENODEV;
	if (!strcmp(dax->driver, "device_dax"))
		return 0;
	return bind_by_id(p, dax, "device_dax", true);
}

static int unbind(const struct tarn_dax_places *p, struct tarn_dax *dax, struct tarn_err *err)
{
	char driver[sizeof(dax->driver)];
	int ret;

	strcpy(driver, dax->driver);
	if (!driver[0])
		return 0;
	ret = store(p, driver, "unbind", dax->name);
	if (tarn_dax_read(p, dax, dax->name))
		return tarn_fail(err, ENODEV, "%s has gone", dax->name);
	if (dax->driver[0])
		return tarn_fail(err, ret ? -ret : EIO, "%s: unbinding it from %s: %s", dax->name,
				 driver, strerror(ret ? -ret : EIO));
	tarn_stop_point("device-unbound");
	return 0;
}

static bool known_driver(const char *driver)
{
	return !strcmp(driver, "device_dax") || !strcmp(driver, "fsdev_dax") ||
	       !strcmp(driver, "tarnfs_dax");
}

static int refuse_driver(const struct tarn_dax *dax, struct tarn_err *err)
{
	if (!strcmp(dax->driver, "kmem"))
		return tarn_dax_is_ram(dax, err);
	if (!dax->driver[0] || known_driver(dax->driver))
		return 0;
	return tarn_fail(err, EBUSY, "%s is bound to %s, which may be using it: daxctl disable-device "
			 "%s, if it is not", dax->node, dax->driver, dax->name);
}

static int refuse_mounted(const struct tarn_dax_places *p, const struct tarn_dax *dax,
			  struct tarn_err *err)
{
	char dir[PATH_MAX];
	bool is_tarnfs;
	int ret = tarn_dax_mount(p, dax, dir, sizeof(dir), &is_tarnfs);

	if (!ret)
		return tarn_fail(err, EBUSY, "%s is mounted on %s: umount it first", dax->node, dir);
	if (ret != -ENOENT)
		return tarn_fail(err, -ret, "mountinfo: %s", strerror(-ret));
	return 0;
}

/* Back to where it was; what that says is added to the sentence. */
static int go_back(const struct tarn_dax_places *p, struct tarn_dax *dax, const char *driver,
		   int ret, struct tarn_err *err)
{
	char old[sizeof(err->text)];
	int back;

	if (!driver[0])
		return ret;
	back = !strcmp(driver, "device_dax") ? bind_device_dax(p, dax) :
					       bind_by_id(p, dax, driver, false);
	if (!err)
		return ret;
	memcpy(old, err->text, sizeof(old));
	if (back)
		return tarn_fail(err, -ret, "%.400s; and going back to %s failed (%s): it has no driver "
				 "now", old, driver, strerror(-back));
	return tarn_fail(err, -ret, "%.400s; it is bound to %s again", old, driver);
}

int tarn_dax_attach_in(const struct tarn_dax_places *p, struct tarn_dax *dax, struct tarn_err *err)
{
	const char *wanted = tarn_dax_wanted_in(p);
	char before[sizeof(dax->driver)];
	int fd, ret;

	fd = begin(p, dax, err);
	if (fd < 0)
		return fd;
	if (!strcmp(dax->driver, wanted)) {
		store(p, wanted, "remove_id", dax->name);	/* one that was killed here */
		close(fd);
		return 0;
	}
	strcpy(before, dax->driver);
	ret = refuse_driver(dax, err);
	if (!ret)
		ret = tarn_dax_unfit(dax, err);
	if (!ret)
		ret = refuse_mounted(p, dax, err);
	if (!ret)
		ret = refuse_used(p, dax, err);
	if (!ret)
		ret = load_driver(p, wanted, err);
	if (!ret)
		ret = unbind(p, dax, err);
	if (!ret) {
		ret = bind_by_id(p, dax, wanted, false);
		if (ret) {
			tarn_fail(err, -ret, "%s: the driver %s did not take it: %s (dmesg says more)",
				  dax->name, wanted, strerror(-ret));
			ret = go_back(p, dax, before, ret, err);
		}
	}
	close(fd);
	return ret ? ret : 1;
}

int tarn_dax_detach_in(const struct tarn_dax_places *p, struct tarn_dax *dax, struct tarn_err *err)
{
	char before[sizeof(dax->driver)];
	int fd, ret;

	fd = begin(p, dax, err);
	if (fd < 0)
		return fd;
	if (!strcmp(dax->driver, "device_dax")) {
		close(fd);
		return 0;
	}
	strcpy(before, dax->driver);
	ret = refuse_driver(dax, err);
	if (!ret)
		ret = refuse_mounted(p, dax, err);
	if (!ret && before[0])
		ret = p->mounted(dax, err);
	if (!ret)
		ret = refuse_used(p, dax, err);
	if (!ret)
		ret = load_driver(p, "device_dax", err);
	if (!ret)
		ret = unbind(p, dax, err);
	if (!ret) {
		/* of an attach that was killed; without the driver there is no list */
		store(p, "tarnfs_dax", "remove_id", dax->name);
		store(p, "fsdev_dax", "remove_id", dax->name);
		ret = bind_device_dax(p, dax);
		if (ret) {
			tarn_fail(err, -ret, "%s: device_dax did not take it: %s (dmesg says more)",
				  dax->name, strerror(-ret));
			ret = go_back(p, dax, before, ret, err);
		}
	}
	close(fd);
	return ret ? ret : 1;
}

int tarn_dax_attach(struct tarn_dax *dax, struct tarn_err *err)
{
	return tarn_dax_attach_in(&tarn_dax_here, dax, err);
}

int tarn_dax_detach(struct tarn_dax *dax, struct tarn_err *err)
{
	return tarn_dax_detach_in(&tarn_dax_here, dax, err);
}
