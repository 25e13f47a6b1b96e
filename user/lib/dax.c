// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * dax.c - devices of the dax bus (/dev/daxN.M), as sysfs shows them: by name,
 * number, namespace or region; and whether a tarnfs can be on them as they are.
 * Nothing here changes anything.
 */
#include "dax.h"

#include <ctype.h>
#include <dirent.h>
#include <libmount/libmount.h>
#include <limits.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>

#include <fcntl.h>
#include <unistd.h>

/* ---- reading sysfs ---- */

int tarn_sysfs_read(char *out, size_t room, const char *fmt, ...)
{
	char path[PATH_MAX];
	va_list ap;
	ssize_t len;
	int fd, n;

	out[0] = '\0';
	va_start(ap, fmt);
	n = vsnprintf(path, sizeof(path), fmt, ap);
	va_end(ap);
	if (n < 0 || (size_t)n >= sizeof(path))
		return -ENAMETOOLONG;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	len = read(fd, out, room - 1);
	if (len < 0)
		len = -errno;
	close(fd);
	if (len < 0)
		return (int)len;
	out[len] = '\0';
	out[strcspn(out, "\n")] = '\0';
	return (int)strlen(out);
}

static uint64_t number_of(const char *dir, const char *attribute)
{
	char text[32];

	return tarn_sysfs_read(text, sizeof(text), "%s/%s", dir, attribute) > 0 ?
	       strtoull(text, NULL, 0) : 0;
}

static int access_in(const char *dir, const char *name)
{
	char path[PATH_MAX + 32];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return access(path, F_OK);
}

/* The last component of what a link points to, "" if it is none. */
static void link_name(char *out, size_t room, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
static void link_name(char *out, size_t room, const char *fmt, ...)
{
	char path[PATH_MAX], to[PATH_MAX];
	const char *base;
	va_list ap;
	ssize_t len;
	int n;

	out[0] = '\0';
	va_start(ap, fmt);
	n = vsnprintf(path, sizeof(path), fmt, ap);
	va_end(ap);
	if (n < 0 || (size_t)n >= sizeof(path))
		return;
	len = readlink(path, to, sizeof(to) - 1);
	if (len <= 0)
		return;
	to[len] = '\0';
	base = strrchr(to, '/');
	base = base ? base + 1 : to;
	if (strlen(base) < room)
		strcpy(out, base);
}

static const char *digits(const char *s)
{
	while (isdigit((unsigned char)*s))
		s++;
	return s;
}

/* "dax0.0" and nothing else: it becomes part of paths and a word for the kernel. */
static bool is_dax_name(const char *s)
{
	const char *dot, *end;

	if (strncmp(s, "dax", 3) || strlen(s) > 24)
		return false;
	dot = digits(s + 3);
	if (dot == s + 3 || *dot != '.')
		return false;
	end = digits(dot + 1);
	return end != dot + 1 && !*end;
}

/* Is this a component of the path? */
static bool has_component(const char *path, const char *name)
{
	size_t len = strlen(name);
	const char *at = path;

	while ((at = strstr(at, name))) {
		if (at != path && at[-1] == '/' && (at[len] == '/' || !at[len]))
			return true;
		at++;
	}
	return false;
}

static enum tarn_dax_kind kind_of(const char *path, const char *namespace)
{
	if (namespace[0] || strstr(path, "/ndbus"))
		return TARN_DAX_NVDIMM;
	/* a region of CXL memory has a dax_regionN in it; those of firmware hang on hmem.N */
	if (strstr(path, "/dax_region"))
		return TARN_DAX_CXL;
	return strstr(path, "/hmem") ? TARN_DAX_HMEM : TARN_DAX_OTHER;
}

int tarn_dax_read(const struct tarn_dax_places *p, struct tarn_dax *dax, const char *name)
{
	char path[PATH_MAX], real[PATH_MAX], text[64], *end;
	struct tarn_dax empty = { .target_node = -1 };
	unsigned int ma, mi;

	if (!is_dax_name(name))
		return -ENOENT;
	/* it may be dax's own name, that is being read again */
	snprintf(empty.name, sizeof(empty.name), "%s", name);
	*dax = empty;
	name = dax->name;
	snprintf(path, sizeof(path), "%s/bus/dax/devices/%s", p->sys, name);
	if (!realpath(path, real))
		return -errno;
	snprintf(dax->node, sizeof(dax->node), "%s/%s", p->dev, name);
	link_name(dax->driver, sizeof(dax->driver), "%s/driver", real);
	dax->size = number_of(real, "size");
	dax->align = number_of(real, "align");
	if (tarn_sysfs_read(text, sizeof(text), "%s/target_node", real) > 0)
		dax->target_node = atoi(text);
	if (tarn_sysfs_read(text, sizeof(text), "%s/dev", real) > 0 &&
	    sscanf(text, "%u:%u", &ma, &mi) == 2) {
		dax->major = ma;
		dax->minor = mi;
	}
	dax->pieces = !access_in(real, "mapping1");
	/* on an NVDIMM the device above has its name too, and knows the namespace */
	end = strrchr(real, '/');
	if (end)
		*end = '\0';
	tarn_sysfs_read(dax->namespace, sizeof(dax->namespace), "%s/namespace", real);
	dax->kind = kind_of(real, dax->namespace);
	if (dax->kind == TARN_DAX_NVDIMM)
		dax->map_dev = tarn_sysfs_read(text, sizeof(text), "%s/mode", real) > 0 &&
			       !strcmp(text, "pmem");
	return 0;
}

int tarn_dax_by_number(const struct tarn_dax_places *p, struct tarn_dax *dax, unsigned int major,
		       unsigned int minor)
{
	char name[64];

	link_name(name, sizeof(name), "%s/dev/char/%u:%u/subsystem", p->sys, major, minor);
	if (strcmp(name, "dax"))
		return -ENOENT;
	link_name(name, sizeof(name), "%s/dev/char/%u:%u", p->sys, major, minor);
	return tarn_dax_read(p, dax, name);
}

/* ---- by any name ---- */

/* Calls it for each device of the bus; not 0 ends it. */
static int for_each(const struct tarn_dax_places *p,
		    int (*fn)(void *arg, const struct tarn_dax *dax), void *arg)
{
	char path[PATH_MAX];
	struct dirent *e;
	int ret = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "%s/bus/dax/devices", p->sys);
	dir = opendir(path);
	while (dir && !ret && (e = readdir(dir))) {
		struct tarn_dax dax;

		if (!tarn_dax_read(p, &dax, e->d_name))
			ret = fn(arg, &dax);
	}
	if (dir)
		closedir(dir);
	return ret;
}

struct match {
	const struct tarn_dax_places *p;
	const char *name;
	bool region;
	unsigned int count;
	struct tarn_dax *dax;
	char names[256];
};

static int match(void *arg, const struct tarn_dax *dax)
{
	struct match *m = arg;
	char path[PATH_MAX], real[PATH_MAX];
	size_t used = strlen(m->names);

	if (m->region) {
		snprintf(path, sizeof(path), "%s/bus/dax/devices/%s", m->p->sys, dax->name);
		/* without memory it is only the place where a next device will be */
		if (!dax->size || !realpath(path, real) || !has_component(real, m->name))
			return 0;
	} else if (strcmp(dax->namespace, m->name)) {
		return 0;
	}
	if (!m->count++)
		*m->dax = *dax;
	snprintf(m->names + used, sizeof(m->names) - used, "%s%s", used ? ", " : "", dax->name);
	return 0;
}

static bool numbered(const char *s, const char *prefix)
{
	size_t len = strlen(prefix);

	return !strncmp(s, prefix, len) && s[len] && strspn(s + len, "0123456789.") == strlen(s + len);
}

/* What a namespace without a devdax device is, and the command for it. */
static int refuse_mode(const char *what, const char *namespace, const char *mode,
		       struct tarn_err *err)
{
	if (!strcmp(mode, "memory"))
		return tarn_fail(err, ENOTTY, "%s is in fsdax mode, which is mounted as it is: "
				 "nothing to attach", what);
	return tarn_fail(err, EOPNOTSUPP, "%s is in %s mode, which has no DAX; this erases it and "
			 "makes it one that has: ndctl create-namespace -f -e %s -m devdax --map=mem",
			 what, !strcmp(mode, "safe") ? "sector" : mode[0] ? mode : "an unknown",
			 namespace);
}

static int refuse_namespace(const struct tarn_dax_places *p, const char *what,
			    const char *namespace, struct tarn_err *err)
{
	char path[PATH_MAX], mode[32];

	snprintf(path, sizeof(path), "%s/bus/nd/devices/%s", p->sys, namespace);
	if (access(path, F_OK))
		return tarn_fail(err, ENOENT, "%s: there is no such namespace", what);
	tarn_sysfs_read(mode, sizeof(mode), "%s/mode", path);
	if (!strcmp(mode, "dax"))
		return tarn_fail(err, ENODEV, "%s is in devdax mode, but has no device: "
				 "modprobe dax_pmem; ndctl enable-namespace %s", what, namespace);
	return refuse_mode(what, namespace, mode, err);
}

/* A region without devdax devices: is there a namespace in fsdax mode in it? */
static int refuse_region(const struct tarn_dax_places *p, const char *what, struct tarn_err *err)
{
	char path[PATH_MAX + 300], real[PATH_MAX], mode[32], found[64] = "";
	struct dirent *e;
	DIR *dir;

	snprintf(path, sizeof(path), "%s/bus/nd/devices", p->sys);
	dir = opendir(path);
	while (dir && !found[0] && (e = readdir(dir))) {
		snprintf(path, sizeof(path), "%s/bus/nd/devices/%s", p->sys, e->d_name);
		if (numbered(e->d_name, "namespace") && realpath(path, real) &&
		    has_component(real, what) &&
		    tarn_sysfs_read(mode, sizeof(mode), "%s/mode", path) > 0 && !strcmp(mode, "memory"))
			snprintf(found, sizeof(found), "%.60s", e->d_name);
	}
	if (dir)
		closedir(dir);
	if (found[0])
		return tarn_fail(err, ENOTTY, "%s has no devdax device: its %s is in fsdax mode, which is "
				 "mounted as it is: nothing to attach", what, found);
	return tarn_fail(err, ENOENT, "%s: no devdax device is there; tarnfs device list shows those there "
			 "are", what);
}

int tarn_block_namespace(const struct tarn_dax_places *p, dev_t dev, char *out, size_t room)
{
	char path[PATH_MAX], real[PATH_MAX], *end;

	out[0] = '\0';
	snprintf(path, sizeof(path), "%s/dev/block/%u:%u", p->sys, major(dev), minor(dev));
	if (!realpath(path, real))
		return -ENOENT;
	/* .../namespaceN.M or pfnN.M or bttN.M, then block/pmemN and perhaps a partition */
	while (!out[0] && strlen(real) > strlen(p->sys) && (end = strrchr(real, '/'))) {
		*end = '\0';
		if (!strncmp(end + 1, "namespace", 9))
			snprintf(out, room, "%.60s", end + 1);
		else
			tarn_sysfs_read(out, room, "%s/namespace", real);
	}
	return 0;
}

/* A block device: of a namespace, or something else. */
static int refuse_block(const struct tarn_dax_places *p, const char *what, const struct stat *st,
			struct tarn_err *err)
{
	char path[PATH_MAX], real[PATH_MAX], namespace[64];

	if (tarn_block_namespace(p, st->st_rdev, namespace, sizeof(namespace)))
		return tarn_fail(err, EOPNOTSUPP, "%s: a block device, and no DAX memory", what);
	if (!namespace[0]) {
		snprintf(path, sizeof(path), "%s/dev/block/%u:%u/queue/dax", p->sys,
			 major(st->st_rdev), minor(st->st_rdev));
		if (tarn_sysfs_read(real, sizeof(real), "%s", path) > 0 && !strcmp(real, "1"))
			return refuse_mode(what, "", "memory", err);
		return tarn_fail(err, EOPNOTSUPP, "%s: a block device, and no DAX memory", what);
	}
	return refuse_namespace(p, what, namespace, err);
}

int tarn_dax_find_in(const struct tarn_dax_places *p, struct tarn_dax *dax, const char *what,
		     struct tarn_err *err)
{
	const char *slash = strrchr(what, '/'), *base = slash ? slash + 1 : what;
	struct match m = { .p = p, .name = what, .dax = dax };
	struct stat st;
	int ret;

	if (!slash && is_dax_name(what)) {
		ret = tarn_dax_read(p, dax, what);
		return ret ? tarn_fail(err, -ret, "%s: there is no such device; tarnfs device list "
				       "shows those there are", what) : 0;
	}
	m.region = numbered(what, "region");
	if (m.region || numbered(what, "namespace")) {
		for_each(p, match, &m);
		if (m.count == 1)
			return 0;
		if (m.count)
			return tarn_fail(err, ENOTUNIQ, "%s has more than one device, name one: %s",
					 what, m.names);
		return m.region ? refuse_region(p, what, err) : refuse_namespace(p, what, what, err);
	}
	if (stat(what, &st)) {
		char path[PATH_MAX];

		ret = errno;
		/* "pmem0", as "dax0.0": what is in /dev can go without its directory */
		if (ret == ENOENT && !slash && *what && strlen(what) < 256) {
			snprintf(path, sizeof(path), "%.1024s/%.255s", p->dev, what);
			if (!stat(path, &st))
				return tarn_dax_find_in(p, dax, path, err);
		}
		ret = errno;
		/* without its node in /dev it is there all the same */
		if (ret == ENOENT && slash && !tarn_dax_read(p, dax, base) &&
		    !strncmp(what, p->dev, strlen(p->dev)) && strlen(p->dev) == (size_t)(slash - what))
			return 0;
		return tarn_fail(err, ret, "%s: %s; tarnfs device list shows the devices there are",
				 what, strerror(ret));
	}
	if (S_ISCHR(st.st_mode)) {
		ret = tarn_dax_by_number(p, dax, major(st.st_rdev), minor(st.st_rdev));
		return ret ? tarn_fail(err, EOPNOTSUPP, "%s: a character device, and no DAX memory",
				       what) : 0;
	}
	if (S_ISBLK(st.st_mode))
		return refuse_block(p, what, &st, err);
	return tarn_fail(err, EOPNOTSUPP, "%s: not a device", what);
}

/* ---- which driver ---- */

const char *tarn_dax_wanted_in(const struct tarn_dax_places *p)
{
	unsigned int version = 0, patch = 0;
	struct utsname name;
	const char *release = p->release;

	if (!release && !uname(&name))
		release = name.release;
	if (!release || sscanf(release, "%u.%u", &version, &patch) != 2)
		return "fsdev_dax";
	return version > 7 || (version == 7 && patch >= 2) ? "fsdev_dax" : "tarnfs_dax";
}

int tarn_dax_is_ram(const struct tarn_dax *dax, struct tarn_err *err)
{
	return tarn_fail(
		err, ENODEV,
		"%s is in system-ram mode, used as ordinary memory: "
		"daxctl reconfigure-device --mode=devdax --force %s makes it a DAX device again",
		dax->node, dax->name);
}

int tarn_dax_is_map_dev(const struct tarn_dax *dax, struct tarn_err *err)
{
	return tarn_fail(
		err, EOPNOTSUPP,
		"%s was made with --map=dev, which keeps this host's page structures on the shared "
		"media; this erases it and makes it anew: "
		"ndctl create-namespace -f -e %s -m devdax --map=mem",
		dax->node, dax->namespace);
}

int tarn_dax_unfit(const struct tarn_dax *dax, struct tarn_err *err)
{
	if (!dax->size)
		return tarn_fail(err, ENODEV, "%s has no memory: daxctl create-device makes a device "
				 "that has", dax->name);
	if (dax->map_dev)
		return tarn_dax_is_map_dev(dax, err);
	if (dax->pieces)
		return tarn_fail(err, EINVAL, "%s has its memory in more than one piece, and tarnfs needs "
				 "one: daxctl destroy-device -f %s and of others of its region, then "
				 "daxctl create-device", dax->node, dax->name);
	if (dax->align % TARNFS_HUGE || !dax->align) {
		if (dax->kind == TARN_DAX_NVDIMM)
			return tarn_fail(err, EINVAL, "%s has an alignment of %llu bytes, and tarnfs needs "
					 "2 MiB; this erases it and makes it anew: ndctl create-namespace -f "
					 "-e %s -m devdax --map=mem --align=2M", dax->node,
					 (unsigned long long)dax->align, dax->namespace);
		return tarn_fail(err, EINVAL, "%s has an alignment of %llu bytes, and tarnfs needs 2 MiB: "
				 "daxctl destroy-device -f %s, then daxctl create-device --align=2M",
				 dax->node, (unsigned long long)dax->align, dax->name);
	}
	return 0;
}

int tarn_dax_ready_in(const struct tarn_dax_places *p, const struct tarn_dax *dax,
		      struct tarn_err *err)
{
	const char *wanted = tarn_dax_wanted_in(p);

	if (!strcmp(dax->driver, wanted))
		return 0;
	if (!strcmp(dax->driver, "kmem"))
		return tarn_dax_is_ram(dax, err);
	/* not to name a command that will refuse it */
	if (tarn_dax_unfit(dax, err))
		return tarn_dax_unfit(dax, err);
	if (!dax->driver[0])
		return tarn_fail(err, ENXIO, "%s has no driver: tarnfs device attach %s", dax->node,
				 dax->name);
	if (!strcmp(dax->driver, "device_dax"))
		return tarn_fail(err, ENXIO, "%s is bound to device_dax: tarnfs device attach %s",
				 dax->node, dax->name);
	return tarn_fail(err, ENXIO, "%s is bound to %s, and on this kernel tarnfs needs %s: tarnfs "
			 "device attach %s", dax->node, dax->driver, wanted, dax->name);
}

/* ---- where it is mounted ---- */

bool tarn_dax_is_source(const struct tarn_dax_places *p, const struct tarn_dax *dax,
			const char *source)
{
	const char *slash = strrchr(source, '/');
	struct stat st;
	size_t len;

	if (!slash)
		return false;
	if (!stat(source, &st) && S_ISCHR(st.st_mode))
		return major(st.st_rdev) == dax->major && minor(st.st_rdev) == dax->minor;
	/* its node may be gone, or be another one's in another namespace */
	len = strlen(p->dev);
	return (size_t)(slash - source) == len && !strncmp(source, p->dev, len) &&
	       !strcmp(slash + 1, dax->name);
}

int tarn_dax_mount(const struct tarn_dax_places *p, const struct tarn_dax *dax, char *dir,
		   size_t room, bool *is_tarnfs)
{
	struct libmnt_iter *iter = mnt_new_iter(MNT_ITER_BACKWARD);
	struct libmnt_table *table;
	struct libmnt_fs *fs;
	char path[PATH_MAX];
	int ret = -ENOENT;

	snprintf(path, sizeof(path), "%s/self/mountinfo", p->proc);
	errno = 0;
	table = mnt_new_table_from_file(path);
	if (!table || !iter) {
		ret = errno && errno != ENOENT ? -errno : -EIO;
		goto out;
	}
	while (ret && !mnt_table_next_fs(table, iter, &fs)) {
		const char *source = mnt_fs_get_source(fs), *target = mnt_fs_get_target(fs);
		const char *type = mnt_fs_get_fstype(fs);

		/* devtmpfs and the like may call themselves anything */
		if (!source || !target || !type || major(mnt_fs_get_devno(fs)) ||
		    !tarn_dax_is_source(p, dax, source))
			continue;
		*is_tarnfs = !strcmp(type, "tarnfs");
		snprintf(dir, room, "%s", target);
		ret = 0;
	}
out:
	mnt_free_iter(iter);
	mnt_unref_table(table);
	return ret;
}

/* ---- the public names ---- */

int tarn_dax_find(struct tarn_dax *dax, const char *what, struct tarn_err *err)
{
	return tarn_dax_find_in(&tarn_dax_here, dax, what, err);
}

int tarn_dax_ready(const struct tarn_dax *dax, struct tarn_err *err)
{
	return tarn_dax_ready_in(&tarn_dax_here, dax, err);
}

const char *tarn_dax_wanted(void)
{
	return tarn_dax_wanted_in(&tarn_dax_here);
}
