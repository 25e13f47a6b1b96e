// SPDX-License-Identifier: GPL-2.0-only
/*
 * Devices of the dax bus on a sysfs of our own, with a little kernel behind its
 * files: what is found under which name, what is refused with which command,
 * and each step of attach and detach, with each of them failing.
 */
#include "../../user/lib/dax.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <ftw.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char top[] = "/tmp/tarn-dax-XXXXXX";
static char sys_path[64], dev_path[64], proc_path[64];
static char steps[1024];	/* what was written, "device_dax/unbind tarnfs_dax/new_id..." */
static const char *fails;	/* the step that is refused */
static const char *no_probe;	/* the driver that takes no device */
static bool loads, busy;
static char ids[8][64];		/* "tarnfs_dax dax0.0" */

static int store(const char *path, const char *word);
static int load(const char *module);
static int mounted(const struct tarn_dax *dax, struct tarn_err *err);

static struct tarn_dax_places places = {
	.sys = sys_path, .dev = dev_path, .proc = proc_path, .release = "6.12.117+deb12-amd64",
	.store = store, .load = load, .mounted = mounted,
};

/* ---- the tree ---- */

static char *at(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static char *at(const char *fmt, ...)
{
	static char buffers[16][512];
	static unsigned int turn;
	char *out = buffers[turn++ % 16];
	int n = snprintf(out, 512, "%s/", top);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(out + n, (size_t)(512 - n), fmt, ap);
	va_end(ap);
	return out;
}

static void folders(const char *path)
{
	char part[512];
	const char *slash = path;

	while ((slash = strchr(slash + 1, '/'))) {
		snprintf(part, sizeof(part), "%.*s", (int)(slash - path), path);
		mkdir(part, 0755);
	}
}

static void file(const char *path, const char *text)
{
	FILE *f;

	folders(path);
	f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	assert_int_equal(fclose(f), 0);
}

static void link_to(const char *path, const char *target)
{
	folders(path);
	unlink(path);
	assert_int_equal(symlink(target, path), 0);
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	(void)st;
	(void)flag;
	(void)ftw;
	return remove(path);
}

static void empty(void)
{
	nftw(at("sys"), remove_one, 16, FTW_DEPTH | FTW_PHYS);
	nftw(at("proc"), remove_one, 16, FTW_DEPTH | FTW_PHYS);
	nftw(at("dev"), remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void driver(const char *name)
{
	file(at("sys/bus/dax/drivers/%s/new_id", name), "");
}

static void bound(const char *name, const char *to)
{
	char *path = at("sys/bus/dax/devices/%s/driver", name);

	unlink(path);
	if (to)
		link_to(path, at("sys/bus/dax/drivers/%s", to));
}

/* where: below /sys/devices. The number of all of them is that of /dev/null, 1:3. */
static void device(const char *name, const char *where, const char *to)
{
	char *real = at("sys/devices/%s/%s", where, name);

	file(at("sys/devices/%s/%s/size", where, name), "1073741824\n");
	file(at("sys/devices/%s/%s/align", where, name), "2097152\n");
	file(at("sys/devices/%s/%s/target_node", where, name), "3\n");
	file(at("sys/devices/%s/%s/dev", where, name), "1:3\n");
	link_to(at("sys/devices/%s/%s/subsystem", where, name), "../../../../bus/dax");
	link_to(at("sys/bus/dax/devices/%s", name), real);
	link_to(at("sys/dev/char/1:3"), real);
	bound(name, to);
}

#define NVDIMM "LNXSYSTM:00/ACPI0012:00/ndbus0/region0/dax0.1"
#define CXL "platform/ACPI0017:00/root0/decoder0.0/region4/dax_region4"

/* dax0.0 on an NVDIMM, with the device_dax driver. */
static void one_device(void)
{
	empty();
	driver("device_dax");
	driver("kmem");
	driver("tarnfs_dax");
	device("dax0.0", NVDIMM, "device_dax");
	file(at("sys/devices/" NVDIMM "/mode"), "ram\n");
	file(at("sys/devices/" NVDIMM "/namespace"), "namespace0.0\n");
	file(at("proc/self/mountinfo"), "22 1 0:20 / /proc rw - proc proc rw\n");
	file(at("dev/other"), "");
	steps[0] = '\0';
	fails = no_probe = NULL;
	loads = busy = false;
	memset(ids, 0, sizeof(ids));
	places.release = "6.12.117+deb12-amd64";
}

/* ---- the kernel behind it ---- */

static char *find_id(const char *drv, const char *word)
{
	char id[64];

	snprintf(id, sizeof(id), "%.30s %.30s", drv, word);
	for (size_t i = 0; i < 8; i++)
		if (!strcmp(ids[i], id))
			return ids[i];
	return NULL;
}

static int take(const char *drv, const char *word)
{
	struct tarn_dax dax;

	assert_int_equal(tarn_dax_read(&places, &dax, word), 0);
	if (dax.driver[0])
		return -EBUSY;
	if (no_probe && !strcmp(no_probe, drv))
		return -EINVAL;
	bound(word, drv);
	return 0;
}

static int store(const char *path, const char *word)
{
	char drv[64], op[32], step[128];
	struct tarn_dax dax;

	assert_int_equal(strncmp(path, sys_path, strlen(sys_path)), 0);
	assert_int_equal(sscanf(path + strlen(sys_path), "/bus/dax/drivers/%63[^/]/%31s", drv, op), 2);
	if (access(at("sys/bus/dax/drivers/%s", drv), F_OK))
		return -ENOENT;
	snprintf(step, sizeof(step), "%s/%s", drv, op);
	strcat(strcat(steps, steps[0] ? " " : ""), step);
	if (fails && !strcmp(fails, step))
		return -EIO;
	if (!strcmp(op, "unbind")) {
		assert_int_equal(tarn_dax_read(&places, &dax, word), 0);
		if (strcmp(dax.driver, drv))
			return -ENODEV;
		bound(word, NULL);
	} else if (!strcmp(op, "new_id")) {
		char *id = find_id(drv, word);

		for (size_t i = 0; !id && i < 8; i++)
			if (!ids[i][0])
				snprintf(id = ids[i], sizeof(ids[i]), "%.30s %.30s", drv, word);
		take(drv, word);	/* whether that works is not told */
	} else if (!strcmp(op, "remove_id")) {
		if (find_id(drv, word))
			*find_id(drv, word) = '\0';
	} else {
		assert_string_equal(op, "bind");
		/* what is not an NVDIMM is of another type */
		if (!find_id(drv, word) && access(at("sys/devices/" NVDIMM "/%s", word), F_OK))
			return -ENODEV;
		return take(drv, word);
	}
	return 0;
}

static int load(const char *module)
{
	strcat(strcat(strcat(steps, steps[0] ? " " : ""), "load:"), module);
	if (!loads)
		return -ENOENT;
	driver(strcmp(module, "tarnfs") ? module : "tarnfs_dax");
	return 0;
}

static int mounted(const struct tarn_dax *dax, struct tarn_err *err)
{
	return busy ? tarn_fail(err, EBUSY, "%s is in use", dax->node) : 0;
}

/* ---- what a test says ---- */

static void says(const struct tarn_err *err, const char *text)
{
	if (!strstr(err->text, text))
		fail_msg("'%s' does not say '%s'", err->text, text);
}

static void refused(const char *what, int code, const char *text)
{
	struct tarn_err err = { "" };
	struct tarn_dax dax;
	int ret = tarn_dax_find_in(&places, &dax, what, &err);

	if (ret != -code)
		fail_msg("%s: %d, not %d (%s)", what, ret, -code, err.text);
	says(&err, text);
}

static void finds(void **state)
{
	struct tarn_err err = { "" };
	struct tarn_dax dax;

	(void)state;
	one_device();
	assert_int_equal(tarn_dax_find_in(&places, &dax, "dax0.0", &err), 0);
	assert_string_equal(dax.name, "dax0.0");
	assert_string_equal(dax.node, at("dev/dax0.0"));
	assert_string_equal(dax.driver, "device_dax");
	assert_string_equal(dax.namespace, "namespace0.0");
	assert_int_equal(dax.kind, TARN_DAX_NVDIMM);
	assert_int_equal(dax.size, 1 << 30);
	assert_int_equal(dax.align, 2 << 20);
	assert_int_equal(dax.target_node, 3);
	assert_int_equal(dax.major, 1);
	assert_int_equal(dax.minor, 3);
	assert_false(dax.map_dev);
	/* by number, without a node, by namespace and by region */
	assert_int_equal(tarn_dax_find_in(&places, &dax, "/dev/null", &err), 0);
	assert_string_equal(dax.name, "dax0.0");
	assert_int_equal(tarn_dax_find_in(&places, &dax, at("dev/dax0.0"), &err), 0);
	assert_string_equal(dax.name, "dax0.0");
	assert_int_equal(tarn_dax_find_in(&places, &dax, "namespace0.0", &err), 0);
	assert_string_equal(dax.name, "dax0.0");
	assert_int_equal(tarn_dax_find_in(&places, &dax, "region0", &err), 0);
	assert_string_equal(dax.name, "dax0.0");
	/* of nobody */
	refused("dax0.1", ENOENT, "tarnfs device list");
	refused("namespace1.0", ENOENT, "no such namespace");
	refused("region1", ENOENT, "no devdax device is there");
	refused("region", ENOENT, "tarnfs device list");
	/* a bare name is one in /dev */
	file(at("dev/pmem7"), "");
	refused("pmem7", EOPNOTSUPP, "not a device");
	refused("pmem8", ENOENT, "pmem8: No such file or directory; tarnfs device list");
	/* in the region is what needs no attaching */
	file(at("sys/devices/ndbus0/region5/namespace5.0/mode"), "memory\n");
	link_to(at("sys/bus/nd/devices/namespace5.0"), at("sys/devices/ndbus0/region5/namespace5.0"));
	refused("region5", ENOTTY, "region5 has no devdax device: its namespace5.0 is in fsdax mode");
	refused("region5", ENOTTY, "nothing to attach");
	file(at("sys/devices/ndbus0/region5/namespace5.0/mode"), "raw\n");
	refused("region5", ENOENT, "no devdax device is there");
	refused("dax0", ENOENT, "tarnfs device list");
	refused("dax0.0x", ENOENT, "");
	refused("dax0.0/../dax0.0", ENOENT, "");
	refused("../dax0.0", ENOENT, "");
	refused("/dev/zero", EOPNOTSUPP, "a character device, and no DAX memory");
	refused(at("dev/other"), EOPNOTSUPP, "not a device");
	/* a second one: the region is not a name any more, the namespace is */
	device("dax0.1", NVDIMM "0", NULL);
	file(at("sys/devices/" NVDIMM "0/namespace"), "namespace0.1\n");
	refused("region0", ENOTUNIQ, "name one: dax0.");
	assert_int_equal(tarn_dax_find_in(&places, &dax, "namespace0.1", &err), 0);
	assert_string_equal(dax.name, "dax0.1");
	assert_string_equal(dax.driver, "");
	/* one without memory does not count */
	file(at("sys/bus/dax/devices/dax0.1/size"), "0\n");
	assert_int_equal(tarn_dax_find_in(&places, &dax, "region0", &err), 0);
	assert_string_equal(dax.name, "dax0.0");
	/* region40 is not region4 */
	device("dax4.0", CXL, "kmem");
	refused("region40", ENOENT, "no devdax device");
	assert_int_equal(tarn_dax_find_in(&places, &dax, "region4", &err), 0);
	assert_int_equal(dax.kind, TARN_DAX_CXL);
	/* nor region44 */
	device("dax6.0", "platform/ACPI0017:00/root0/decoder0.0/region44/dax_region44", NULL);
	assert_int_equal(tarn_dax_find_in(&places, &dax, "region4", &err), 0);
	assert_string_equal(dax.name, "dax4.0");
	device("dax5.0", "platform/hmem.0", "device_dax");
	assert_int_equal(tarn_dax_find_in(&places, &dax, "dax5.0", &err), 0);
	assert_int_equal(dax.kind, TARN_DAX_HMEM);
}

/* Namespaces that are no devdax: what they are, and the command. */
static void namespaces(void **state)
{
	(void)state;
	one_device();
	file(at("sys/bus/nd/devices/namespace2.0/mode"), "memory\n");
	refused("namespace2.0", ENOTTY, "nothing to attach");
	file(at("sys/bus/nd/devices/namespace2.1/mode"), "raw\n");
	refused("namespace2.1", EOPNOTSUPP, "raw mode");
	refused("namespace2.1", EOPNOTSUPP, "ndctl create-namespace -f -e namespace2.1 -m devdax --map=mem");
	file(at("sys/bus/nd/devices/namespace2.2/mode"), "safe\n");
	refused("namespace2.2", EOPNOTSUPP, "sector mode");
	file(at("sys/bus/nd/devices/namespace2.3/mode"), "dax\n");
	refused("namespace2.3", ENODEV, "ndctl enable-namespace namespace2.3");
}

static void ready(const char *release, const char *drv, int code, const char *text)
{
	struct tarn_err err = { "" };
	struct tarn_dax dax;

	places.release = release;
	bound("dax0.0", drv);
	assert_int_equal(tarn_dax_read(&places, &dax, "dax0.0"), 0);
	if (tarn_dax_ready_in(&places, &dax, &err) != -code)
		fail_msg("%s on %s: '%s'", drv, release, err.text);
	says(&err, text);
}

static void drivers(void **state)
{
	(void)state;
	one_device();
	driver("fsdev_dax");
	driver("famfs_dax");
	ready("6.1.0-57-amd64", "tarnfs_dax", 0, "");
	ready("7.1.9", "tarnfs_dax", 0, "");
	ready("7.2.0", "fsdev_dax", 0, "");
	ready("7.3.4+deb13-amd64", "fsdev_dax", 0, "");
	ready("8.0", "fsdev_dax", 0, "");
	ready("10.1.0", "fsdev_dax", 0, "");
	ready("6.12.1", NULL, ENXIO, "has no driver: tarnfs device attach dax0.0");
	ready("6.12.1", "device_dax", ENXIO, "is bound to device_dax: tarnfs device attach dax0.0");
	ready("6.12.1", "fsdev_dax", ENXIO, "needs tarnfs_dax: tarnfs device attach dax0.0");
	ready("7.3.0", "tarnfs_dax", ENXIO, "needs fsdev_dax: tarnfs device attach dax0.0");
	ready("6.12.1", "famfs_dax", ENXIO, "is bound to famfs_dax");
	file(at("sys/devices/" NVDIMM "/mode"), "pmem\n");
	ready("6.12.1", "device_dax", EOPNOTSUPP, "made with --map=dev");
	file(at("sys/devices/" NVDIMM "/mode"), "ram\n");
	/* no command is named that would refuse it */
	file(at("sys/bus/dax/devices/dax0.0/align"), "4096\n");
	ready("6.12.1", "device_dax", EINVAL, "ndctl create-namespace -f -e namespace0.0 -m devdax --map=mem --align=2M");
	ready("6.12.1", NULL, EINVAL, "alignment of 4096 bytes");
	ready("6.12.1", "tarnfs_dax", 0, "");
	file(at("sys/bus/dax/devices/dax0.0/align"), "2097152\n");
	ready("6.12.1", "kmem", ENODEV, "daxctl reconfigure-device --mode=devdax --force dax0.0");
}

/* ---- attach and detach ---- */

static void move(bool to, int want, const char *then, const char *did,
		 const char *text)
{
	struct tarn_err err = { "" };
	struct tarn_dax dax;
	int ret;

	steps[0] = '\0';
	assert_int_equal(tarn_dax_read(&places, &dax, "dax0.0"), 0);
	ret = to ? tarn_dax_attach_in(&places, &dax, &err) : tarn_dax_detach_in(&places, &dax, &err);
	if (ret != want)
		fail_msg("%d, not %d: %s", ret, want, err.text);
	says(&err, text);
	assert_int_equal(tarn_dax_read(&places, &dax, "dax0.0"), 0);
	assert_string_equal(dax.driver, then);
	if (did)
		assert_string_equal(steps, did);
	/* never left behind: a later device of that name would be taken */
	assert_null(find_id("tarnfs_dax", "dax0.0"));
	assert_null(find_id("fsdev_dax", "dax0.0"));
}

static void there_and_back(void **state)
{
	(void)state;
	one_device();
	for (int i = 0; i < 3; i++) {
		move(true, 1, "tarnfs_dax",
		     "device_dax/unbind tarnfs_dax/new_id tarnfs_dax/remove_id", "");
		move(true, 0, "tarnfs_dax", "tarnfs_dax/remove_id", "");
		move(false, 1, "device_dax",
		     "tarnfs_dax/unbind tarnfs_dax/remove_id device_dax/bind", "");
		move(false, 0, "device_dax", "", "");
	}
	/* the other driver, which is loaded for it */
	places.release = "7.3.4+deb13-amd64";
	loads = true;
	move(true, 1, "fsdev_dax",
	     "load:fsdev_dax device_dax/unbind fsdev_dax/new_id fsdev_dax/remove_id", "");
	move(false, 1, "device_dax", NULL, "");
	/* what the other kind of kernel left */
	bound("dax0.0", "tarnfs_dax");
	move(true, 1, "fsdev_dax", NULL, "");
}

static void refusals(void **state)
{
	(void)state;
	one_device();
	/* before anything is written */
	bound("dax0.0", "kmem");
	move(true, -ENODEV, "kmem", "", "daxctl reconfigure-device --mode=devdax");
	move(false, -ENODEV, "kmem", "", "system-ram");
	driver("famfs_dax");
	bound("dax0.0", "famfs_dax");
	move(true, -EBUSY, "famfs_dax", "", "is bound to famfs_dax");
	move(false, -EBUSY, "famfs_dax", "", "is bound to famfs_dax");
	bound("dax0.0", "device_dax");
	file(at("sys/devices/" NVDIMM "/mode"), "pmem\n");
	move(true, -EOPNOTSUPP, "device_dax", "",
	     "ndctl create-namespace -f -e namespace0.0 -m devdax --map=mem");
	file(at("sys/devices/" NVDIMM "/mode"), "ram\n");
	file(at("sys/bus/dax/devices/dax0.0/align"), "4096\n");
	move(true, -EINVAL, "device_dax", "", "alignment of 4096 bytes");
	file(at("sys/bus/dax/devices/dax0.0/align"), "1073741824\n");
	move(true, 1, "tarnfs_dax", NULL, "");
	move(false, 1, "device_dax", NULL, "");
	file(at("sys/bus/dax/devices/dax0.0/size"), "0\n");
	move(true, -ENODEV, "device_dax", "", "daxctl create-device");
	file(at("sys/bus/dax/devices/dax0.0/size"), "1073741824\n");
	file(at("sys/bus/dax/devices/dax0.0/mapping1/start"), "0x1\n");
	move(true, -EINVAL, "device_dax", "", "more than one piece");
	unlink(at("sys/bus/dax/devices/dax0.0/mapping1/start"));
	rmdir(at("sys/bus/dax/devices/dax0.0/mapping1"));
	/* mounted: here, or where only the exclusive mount finds it */
	bound("dax0.0", "tarnfs_dax");
	file(at("proc/self/mountinfo"), "");
	FILE *f = fopen(at("proc/self/mountinfo"), "a");

	fprintf(f, "22 1 0:20 / /proc rw - proc proc rw\n"
		   "30 1 0:30 / /mnt/a\\040b rw - tarnfs %s/dax0.0 rw\n", dev_path);
	fclose(f);
	move(false, -EBUSY, "tarnfs_dax", "", "is mounted on /mnt/a b: umount it first");
	file(at("proc/self/mountinfo"), "30 1 0:30 / /mnt rw - tarnfs /dev/null rw\n");
	move(false, -EBUSY, "tarnfs_dax", "", "is mounted on /mnt:");
	file(at("proc/self/mountinfo"), "30 1 0:30 / /mnt rw - tarnfs /dev/zero rw\n"
					"31 1 1:3 / /mnt rw - ext4 /dev/null rw\n");
	busy = true;
	move(false, -EBUSY, "tarnfs_dax", "", "is in use");
	busy = false;
	move(false, 1, "device_dax", NULL, "");
	/* no driver to be had */
	assert_int_equal(unlink(at("sys/bus/dax/drivers/tarnfs_dax/new_id")), 0);
	move(true, -ENODEV, "device_dax", "load:tarnfs", "modprobe tarnfs");
	move(true, -ENODEV, "device_dax", "load:tarnfs", "make modules_install");
	places.release = "7.3.0";
	move(true, -ENODEV, "device_dax", "load:fsdev_dax", "CONFIG_DEV_DAX_FSDEV");
}

/* Processes that would lose it. */
static void users(void **state)
{
	(void)state;
	one_device();
	file(at("proc/77/comm"), "worker\n");
	file(at("proc/77/maps"),
	     "7f0000000000-7f0000200000 rw-p 00000000 00:05 12 /dev/dax0.0\n"
	     "7f0000400000-7f0000600000 rw-s 00000000 00:05 13 /dev/zero\n");
	link_to(at("proc/77/task/77/fd/0"), "/dev/zero");
	link_to(at("proc/77/map_files/7f0000000000-7f0000200000"), "/dev/null");
	link_to(at("proc/77/map_files/7f0000400000-7f0000600000"), "/dev/zero");
	file(at("proc/net/fd/0"), "");
	move(true, 1, "tarnfs_dax", NULL, "");
	move(false, 1, "device_dax", NULL, "");
	link_to(at("proc/77/task/77/fd/5"), "/dev/null");
	move(true, -EBUSY, "device_dax", "", "process 77 (worker) has it open");
	/* a thread with descriptors of its own, whose process has none, not even a first thread */
	unlink(at("proc/77/task/77/fd/5"));
	link_to(at("proc/77/task/79/fd/3"), "/dev/null");
	move(true, -EBUSY, "device_dax", "", "process 77 (worker) has it open");
	bound("dax0.0", "tarnfs_dax");
	move(false, -EBUSY, "tarnfs_dax", "", "process 77 (worker) has it open");
	bound("dax0.0", "device_dax");
	unlink(at("proc/77/task/79/fd/3"));
	/* closed, and still mapped: also below 4 GiB, where maps has leading zeros */
	file(at("proc/77/maps"), "00400000-00600000 rw-s 00000000 00:05 12 /dev/dax0.0\n");
	link_to(at("proc/77/map_files/400000-600000"), "/dev/null");
	move(true, -EBUSY, "device_dax", "", "process 77 (worker) has it mapped: end it first");
	/* whatever has it: the next driver that is bound would make its open file anew */
	bound("dax0.0", NULL);
	move(true, -EBUSY, "", "", "has it mapped");
	move(false, -EBUSY, "", "", "has it mapped");
	bound("dax0.0", "tarnfs_dax");
	move(false, -EBUSY, "tarnfs_dax", "", "has it mapped");
	unlink(at("proc/77/maps"));
	move(false, 1, "device_dax", NULL, "");
	/* the first thread has ended: the mappings are shown by another */
	file(at("proc/77/maps"), "");
	file(at("proc/79/maps"), "00400000-00600000 rw-s 00000000 00:05 12 /dev/dax0.0\n");
	link_to(at("proc/79/map_files/400000-600000"), "/dev/null");
	move(true, -EBUSY, "device_dax", "", "process 77 (worker) has it mapped");
}

/* What cannot be looked at may be in use; what has gone meanwhile is not. */
static void unseen(void **state)
{
	(void)state;
	one_device();
	file(at("proc/77/comm"), "worker\n");
	link_to(at("proc/77/task/77/fd/0"), "/dev/zero");
	link_to(at("proc/77/task/77/fd/1"), "/nowhere");
	move(true, 1, "tarnfs_dax", NULL, "");
	move(false, 1, "device_dax", NULL, "");
	/* stat fails and readlink does not: of another file system */
	link_to(at("proc/77/task/77/fd/2"), "2");
	move(true, 1, "tarnfs_dax", NULL, "");
	move(false, 1, "device_dax", NULL, "");
	/* no folders: any error that is not "it has gone" */
	file(at("proc/78/task/78/fd"), "");
	move(true, -ENOTDIR, "device_dax", "", "whether process 78 (?) has it open cannot be seen");
	bound("dax0.0", "tarnfs_dax");
	move(false, -ENOTDIR, "tarnfs_dax", "", "Not a directory: try again, as root");
	bound("dax0.0", "device_dax");
	unlink(at("proc/78/task/78/fd"));
	move(true, 1, "tarnfs_dax", NULL, "");
	move(false, 1, "device_dax", NULL, "");
	link_to(at("proc/78/maps"), "maps");
	move(true, -ELOOP, "device_dax", "", "has it mapped cannot be seen");
	file(at("proc/80/x"), "");
	unlink(at("proc/78/maps"));
	file(at("proc/78/maps"), "00400000-00600000 rw-s 00000000 00:05 12 /dev/dax0.0\n");
	file(at("proc/78/map_files"), "");
	move(true, -ENOTDIR, "device_dax", "", "has it mapped cannot be seen");
	unlink(at("proc/78/map_files"));
	move(true, 1, "tarnfs_dax", NULL, "");
	move(false, 1, "device_dax", NULL, "");
	file(at("proc/80/task"), "");
	move(true, -ENOTDIR, "device_dax", "", "process 80");
}

/* Whatever fails, it is bound to what it was bound to. */
static void undone(void **state)
{
	(void)state;
	one_device();
	fails = "device_dax/unbind";
	move(true, -EIO, "device_dax", "device_dax/unbind", "unbinding it from device_dax");
	fails = "tarnfs_dax/new_id";
	move(true, -EIO, "device_dax", NULL, "it is bound to device_dax again");
	fails = NULL;
	no_probe = "tarnfs_dax";
	move(true, -EIO, "device_dax",
	     "device_dax/unbind tarnfs_dax/new_id tarnfs_dax/remove_id device_dax/bind",
	     "it is bound to device_dax again");
	bound("dax0.0", NULL);
	move(true, -EIO, "", NULL, "did not take it");
	no_probe = NULL;
	bound("dax0.0", "tarnfs_dax");
	fails = "tarnfs_dax/unbind";
	move(false, -EIO, "tarnfs_dax", "tarnfs_dax/unbind", "unbinding it from tarnfs_dax");
	fails = NULL;
	no_probe = "device_dax";
	move(false, -EIO, "tarnfs_dax", NULL, "it is bound to tarnfs_dax again");
	/* and neither takes it */
	no_probe = NULL;
	bound("dax0.0", "device_dax");
	fails = "tarnfs_dax/new_id";
	assert_int_equal(unlink(at("sys/bus/dax/drivers/kmem/new_id")), 0);
	no_probe = "device_dax";
	move(true, -EIO, "", NULL, "it has no driver now");
	no_probe = fails = NULL;
	move(true, 1, "tarnfs_dax", NULL, "");
}

/* Memory of CXL, which device_dax takes by name alone. */
static void dynamic(void **state)
{
	struct tarn_err err = { "" };
	struct tarn_dax dax;

	(void)state;
	one_device();
	device("dax4.0", CXL, "device_dax");
	assert_int_equal(tarn_dax_read(&places, &dax, "dax4.0"), 0);
	assert_int_equal(tarn_dax_attach_in(&places, &dax, &err), 1);
	assert_string_equal(dax.driver, "tarnfs_dax");
	assert_int_equal(tarn_dax_detach_in(&places, &dax, &err), 1);
	assert_string_equal(dax.driver, "device_dax");
	assert_non_null(find_id("device_dax", "dax4.0"));
	file(at("sys/bus/dax/devices/dax4.0/align"), "4096\n");
	assert_int_equal(tarn_dax_attach_in(&places, &dax, &err), -EINVAL);
	says(&err, "daxctl create-device --align=2M");
}

/* Killed at each step: the next attach, or the next detach, mends it. */
static void killed(void **state)
{
	static const char *const points[] = { "device-unbound", "device-bound" };
	struct tarn_dax dax;

	(void)state;
	for (size_t i = 0; i < 8; i++) {
		bool attach = i & 1, again = i & 2;
		const char *point = points[i >> 2];
		int status;
		pid_t pid;

		if (!attach && i >> 2)	/* detach has one point */
			continue;
		one_device();
		if (!attach)
			bound("dax0.0", "tarnfs_dax");
		/* the names that the child's kernel lists die with it: as if still there */
		if (attach && i >> 2)
			snprintf(ids[0], sizeof(ids[0]), "tarnfs_dax dax0.0");
		pid = fork();
		assert_true(pid >= 0);
		if (!pid) {
			setenv("TARNFS_STOP_AT", point, 1);
			tarn_dax_read(&places, &dax, "dax0.0");
			if (attach)
				tarn_dax_attach_in(&places, &dax, NULL);
			else
				tarn_dax_detach_in(&places, &dax, NULL);
			_exit(0);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		assert_int_equal(tarn_dax_read(&places, &dax, "dax0.0"), 0);
		assert_string_equal(dax.driver, i >> 2 ? "tarnfs_dax" : "");
		if (again)
			move(true, i >> 2 ? 0 : 1, "tarnfs_dax", NULL, "");
		else
			move(false, 1, "device_dax", NULL, "");
	}
}

/* Sources of mountinfo that are the device, and such that only look like it. */
static void sources(void **state)
{
	struct tarn_dax dax;
	char dir[128];
	bool is_tarnfs;

	(void)state;
	one_device();
	assert_int_equal(tarn_dax_read(&places, &dax, "dax0.0"), 0);
	assert_true(tarn_dax_is_source(&places, &dax, at("dev/dax0.0")));
	assert_true(tarn_dax_is_source(&places, &dax, "/dev/null"));	/* its number */
	assert_false(tarn_dax_is_source(&places, &dax, "/dev/zero"));
	assert_false(tarn_dax_is_source(&places, &dax, "dax0.0"));
	assert_false(tarn_dax_is_source(&places, &dax, at("dev/dax0.00")));
	assert_false(tarn_dax_is_source(&places, &dax, at("dev/x/dax0.0")));
	assert_false(tarn_dax_is_source(&places, &dax, at("dev/other")));
	assert_int_equal(tarn_dax_mount(&places, &dax, dir, sizeof(dir), &is_tarnfs), -ENOENT);
	file(at("proc/self/mountinfo"), "30 1 0:30 / /one rw - tarnfs /dev/null rw\n"
					"31 1 0:30 / /two rw - tarnfs /dev/null rw\n");
	assert_int_equal(tarn_dax_mount(&places, &dax, dir, sizeof(dir), &is_tarnfs), 0);
	assert_string_equal(dir, "/two");
	assert_true(is_tarnfs);
	file(at("proc/self/mountinfo"), "30 1 0:30 / /one rw - famfs /dev/null rw\n");
	assert_int_equal(tarn_dax_mount(&places, &dax, dir, sizeof(dir), &is_tarnfs), 0);
	assert_false(is_tarnfs);
	assert_int_equal(unlink(at("proc/self/mountinfo")), 0);
	assert_int_not_equal(tarn_dax_mount(&places, &dax, dir, sizeof(dir), &is_tarnfs), 0);
	assert_int_not_equal(tarn_dax_mount(&places, &dax, dir, sizeof(dir), &is_tarnfs), -ENOENT);
}

static int setup(void **state)
{
	(void)state;
	if (!mkdtemp(top))
		return -1;
	snprintf(sys_path, sizeof(sys_path), "%s/sys", top);
	snprintf(dev_path, sizeof(dev_path), "%s/dev", top);
	snprintf(proc_path, sizeof(proc_path), "%s/proc", top);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	return nftw(top, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(finds),
		cmocka_unit_test(namespaces),
		cmocka_unit_test(drivers),
		cmocka_unit_test(there_and_back),
		cmocka_unit_test(refusals),
		cmocka_unit_test(users),
		cmocka_unit_test(unseen),
		cmocka_unit_test(undone),
		cmocka_unit_test(dynamic),
		cmocka_unit_test(killed),
		cmocka_unit_test(sources),
	};

	return cmocka_run_group_tests_name("dax", tests, setup, teardown);
}
