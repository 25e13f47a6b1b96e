// SPDX-License-Identifier: GPL-2.0-only
/*
 * device.c - tarnfs device: which devices of this host are DAX memory and what is on them, and
 * devdax devices moved to the driver that tarnfs needs, and back.
 *
 * libndctl knows namespaces, libdaxctl the devices of the dax bus; which driver has one, and
 * moving it, is libtarnfs's own.
 */
#define _GNU_SOURCE
#include <daxctl/libdaxctl.h>
#include <errno.h>
#include <getopt.h>
#include <libmount/libmount.h>
#include <ndctl/libndctl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands.h"

static void usage(FILE *f)
{
	fprintf(f, "Usage: tarnfs device list\n"
		   "       tarnfs device attach DEVICE...\n"
		   "       tarnfs device detach DEVICE...\n"
		   "\n"
		   "list    the DAX memory of this host, a line each, and what is on it\n"
		   "attach  devdax devices (dax0.0, /dev/dax0.0, namespace0.0, region0) to the driver\n"
		   "        that tarnfs needs; until the next boot\n"
		   "detach  back to device_dax\n"
		   "\n"
		   "  -h, --help  print this\n"
		   "\n"
		   "A pmem block device in fsdax mode has nothing to attach. mount -o attach, for fstab,\n"
		   "attaches and mounts.\n"
		   "Exit status: 0 done, 1 something failed or was refused, 2 wrong usage.\n");
}

/* ---- list ---- */

struct row {
	char *device, *mode, *map, *driver, *mounted, *label;
	const char *kind;
	uint64_t size, align;
	int node;			/* NUMA node, -1: not known */
	char tarnfs[40];
};

struct table {
	struct row *rows;
	size_t count;
	char **notes;
	size_t note_count;
	bool root, module;
};

static char *copy(const char *s)
{
	return must_alloc(strdup(s && *s ? s : "-"));
}

static void note(struct table *t, const char *device, const char *text)
{
	t->notes = must_alloc(realloc(t->notes, (t->note_count + 1) * sizeof(*t->notes)));
	/* most sentences begin with the device already */
	if (strstr(text, device))
		t->notes[t->note_count++] = copy(text);
	else
		t->notes[t->note_count++] = must_format("%s: %s", device, text);
}

/* A word of a table: spaces too are written as \x20. */
static char *word(const char *s)
{
	char *safe = printable(s, strlen(s)), *out = must_alloc(malloc(4 * strlen(safe) + 1)), *to = out;
	const char *from;

	for (from = safe; *from; from++) {
		if (*from == ' ')
			to = stpcpy(to, "\\x20");
		else
			*to++ = *from;
	}
	*to = '\0';
	free(safe);
	return out;
}

static void show_super(struct row *r, const struct tarn_super *sb)
{
	tarn_uuid_text(r->tarnfs, sb->uuid);
	if (sb->label[0]) {
		free(r->label);
		r->label = word(sb->label);
	}
}

/*
 * What is on it: through its mount, or through an exclusive one that reads and is gone at once.
 * Never through the device itself, and never when that would load a module.
 */
static void look_inside(struct table *t, struct row *r, const struct tarn_device *d)
{
	struct tarn_err err = { "" };
	struct tarn_session s;
	struct tarn_super sb;
	struct tarn_meta meta;
	int ret;

	strcpy(r->tarnfs, "unknown");
	if (d->mounted_on[0]) {
		free(r->mounted);
		r->mounted = word(d->mounted_on);
		if (!d->mounted_tarnfs) {
			strcpy(r->tarnfs, "no");
		} else if (t->root) {
			ret = tarn_session_open(&s, d->mounted_on, 0, &err);
			if (ret) {
				note(t, r->device, err.text);
				return;
			}
			show_super(r, &s.sb);
			tarn_session_close(&s);
		}
		return;
	}
	if (!t->root)
		return;
	if (d->is_dax && tarn_dax_ready(&d->dax, &err)) {
		note(t, r->device, err.text);
		return;
	}
	if (!t->module) {
		note(t, r->device, "what is on it can be read when the module is loaded: modprobe tarnfs");
		return;
	}
	ret = tarn_meta_open(&meta, d, false, &err);
	if (ret) {
		if (ret == -EBUSY)
			strcpy(r->tarnfs, "in-use");
		note(t, r->device, err.text);
		return;
	}
	ret = tarn_super_read(&sb, meta.media, meta.dev_size, &err);
	tarn_meta_close(&meta);
	if (!ret) {
		show_super(r, &sb);
	} else if (ret == -ENODATA) {
		strcpy(r->tarnfs, "no");
	} else {
		strcpy(r->tarnfs, "damaged");
		note(t, r->device, err.text);
	}
}

static struct row *new_row(struct table *t, const char *device, const char *kind, const char *mode)
{
	struct row *r;

	t->rows = must_alloc(realloc(t->rows, (t->count + 1) * sizeof(*t->rows)));
	r = &t->rows[t->count++];
	memset(r, 0, sizeof(*r));
	r->device = must_alloc(strdup(device));
	r->kind = kind;
	r->mode = copy(mode);
	r->map = copy("-");
	r->driver = copy("-");
	r->mounted = copy("-");
	r->label = copy("-");
	r->node = -1;
	strcpy(r->tarnfs, "-");
	return r;
}

static void replace(char **at, const char *s)
{
	free(*at);
	*at = copy(s);
}

static const char *map_text(enum ndctl_pfn_loc where)
{
	return where == NDCTL_PFN_LOC_RAM ? "mem" : where == NDCTL_PFN_LOC_PMEM ? "dev" : "-";
}

static bool have_row(const struct table *t, const char *device)
{
	size_t i;

	for (i = 0; i < t->count; i++)
		if (strcmp(t->rows[i].device, device) == 0)
			return true;
	return false;
}

/* A device of the dax bus, once. map: where it is known. */
static void add_dax(struct table *t, struct daxctl_dev *dev, const char *map)
{
	static const char *const kinds[] = {
		[TARN_DAX_NVDIMM] = "nvdimm", [TARN_DAX_CXL] = "cxl", [TARN_DAX_HMEM] = "hmem",
		[TARN_DAX_OTHER] = "other",
	};
	const char *name = daxctl_dev_get_devname(dev);
	struct tarn_err err = { "" };
	struct tarn_device d;
	struct tarn_dax dax;
	struct row *r;
	bool ram;
	int ret;

	/* without memory it is where a region's next device will be */
	if (!daxctl_dev_get_size(dev) || tarn_dax_find(&dax, name, &err) || have_row(t, dax.node))
		return;
	ram = strcmp(dax.driver, "kmem") == 0;
	r = new_row(t, dax.node, kinds[dax.kind], ram ? "system-ram" : "devdax");
	r->size = daxctl_dev_get_size(dev);
	r->align = dax.align;
	r->node = daxctl_dev_get_target_node(dev);
	replace(&r->driver, dax.driver);
	/* the page structures of what is no NVDIMM are in the host's own memory */
	replace(&r->map, map ? map : dax.map_dev ? "dev" : "mem");
	if (ram) {
		tarn_dax_ready(&dax, &err);
		note(t, r->device, err.text);
		return;
	}
	ret = tarn_device_find(&d, dax.node, &err);
	if (ret) {
		strcpy(r->tarnfs, "unknown");
		note(t, r->device, err.text);
		return;
	}
	if (dax.map_dev) {
		strcpy(r->tarnfs, "no");
		note(t, r->device, "made with --map=dev: no tarnfs can be on it");
		return;
	}
	look_inside(t, r, &d);
}

/* nd_pmem, nd_btt... */
static void block_driver(struct row *r, const char *block)
{
	char *path = must_format("/sys/class/block/%s/device/driver", block);
	char link[4096];
	ssize_t len = readlink(path, link, sizeof(link) - 1);

	free(path);
	if (len <= 0)
		return;
	link[len] = '\0';
	replace(&r->driver, strrchr(link, '/') ? strrchr(link, '/') + 1 : link);
}

static void add_block(struct table *t, struct ndctl_namespace *ns, const char *block,
		      const char *mode, bool dax)
{
	struct ndctl_pfn *pfn = ndctl_namespace_get_pfn(ns);
	const char *name = ndctl_namespace_get_devname(ns);
	struct tarn_err err = { "" };
	struct tarn_device d;
	struct row *r;
	char *path;

	path = block && *block ? must_format("/dev/%s", block) : must_format("%s", name);
	r = new_row(t, path, "nvdimm", mode);
	free(path);
	r->size = pfn ? ndctl_pfn_get_size(pfn) : ndctl_namespace_get_size(ns);
	r->node = ndctl_namespace_get_target_node(ns);
	if (pfn)
		r->align = ndctl_pfn_get_align(pfn);
	if (dax)
		replace(&r->map, pfn ? map_text(ndctl_pfn_get_location(pfn)) : "mem");
	if (r->device[0] != '/') {
		path = must_format("it has no block device: ndctl enable-namespace %s", name);
		note(t, r->device, path);
		free(path);
		return;
	}
	block_driver(r, block);
	if (tarn_device_find(&d, r->device, &err)) {
		note(t, r->device, err.text);
		return;
	}
	r->size = d.size;
	if (dax) {
		look_inside(t, r, &d);
		return;
	}
	strcpy(r->tarnfs, "no");
	if (d.mounted_on[0]) {
		free(r->mounted);
		r->mounted = word(d.mounted_on);
		return;
	}
	path = must_format("in %s mode, which has no DAX; this erases it: ndctl create-namespace -f -e %s "
			   "-m fsdax --map=mem", mode, name);
	note(t, r->device, path);
	free(path);
}

static void add_disabled(struct table *t, struct ndctl_namespace *ns)
{
	const char *name = ndctl_namespace_get_devname(ns);
	struct row *r = new_row(t, name, "nvdimm", "disabled");
	char *text;

	r->size = ndctl_namespace_get_size(ns);
	r->node = ndctl_namespace_get_target_node(ns);
	strcpy(r->tarnfs, "unknown");
	text = must_format("%s is disabled, or was destroyed: ndctl enable-namespace %s brings back what there "
			   "is; this makes a new one instead: ndctl create-namespace -f -e %s -m devdax "
			   "--map=mem", name, name, name);
	note(t, r->device, text);
	free(text);
}

static void add_namespace(struct table *t, struct ndctl_namespace *ns)
{
	struct ndctl_btt *btt = ndctl_namespace_get_btt(ns);
	struct ndctl_pfn *pfn = ndctl_namespace_get_pfn(ns);
	struct ndctl_dax *dax = ndctl_namespace_get_dax(ns);
	const char *block = ndctl_namespace_get_block_device(ns);
	struct daxctl_region *region;
	struct daxctl_dev *dev;
	bool any = false;
	struct row *r;

	switch (ndctl_namespace_get_mode(ns)) {
	case NDCTL_NS_MODE_FSDAX:
		add_block(t, ns, pfn ? ndctl_pfn_get_block_device(pfn) : block, "fsdax", true);
		return;
	case NDCTL_NS_MODE_SECTOR:
		add_block(t, ns, btt ? ndctl_btt_get_block_device(btt) : block, "sector", false);
		return;
	case NDCTL_NS_MODE_DEVDAX:
		break;
	default:
		/* a place for a namespace, in which there is none */
		if (!ndctl_namespace_get_size(ns))
			return;
		/* without its driver the kernel calls every namespace raw */
		if (!block || !*block)
			add_disabled(t, ns);
		else
			add_block(t, ns, block, "raw", false);
		return;
	}
	region = dax ? ndctl_dax_get_daxctl_region(dax) : NULL;
	if (region) {
		daxctl_dev_foreach(region, dev) {
			add_dax(t, dev, map_text(ndctl_dax_get_location(dax)));
			any = true;
		}
	}
	if (any)
		return;
	r = new_row(t, ndctl_namespace_get_devname(ns), "nvdimm", "devdax");
	r->size = ndctl_namespace_get_size(ns);
	r->node = ndctl_namespace_get_target_node(ns);
	note(t, r->device, "it has no device: modprobe dax_pmem, and ndctl enable-namespace");
}

static int collect(struct table *t)
{
	struct ndctl_ctx *nd = NULL;
	struct daxctl_ctx *dax = NULL;
	struct ndctl_bus *bus;
	struct ndctl_region *region;
	struct ndctl_namespace *ns;
	struct daxctl_region *dax_region;
	struct daxctl_dev *dev;
	int ret = ndctl_new(&nd);

	if (ret) {
		complain("libndctl: %s", strerror(-ret));
		return ret;
	}
	ret = daxctl_new(&dax);
	if (ret) {
		complain("libdaxctl: %s", strerror(-ret));
		ndctl_unref(nd);
		return ret;
	}
	ndctl_bus_foreach(nd, bus)
		ndctl_region_foreach(bus, region)
			ndctl_namespace_foreach(region, ns)
				add_namespace(t, ns);
	daxctl_region_foreach(dax, dax_region)
		daxctl_dev_foreach(dax_region, dev)
			add_dax(t, dev, NULL);
	daxctl_unref(dax);
	ndctl_unref(nd);
	return 0;
}

/*
 * A device can go from under its mount, or become another: the mount is still there, dead, and
 * keeps a later device of that name from being mounted.
 */
static void add_mounts(struct table *t)
{
	struct libmnt_table *table = mnt_new_table_from_file("/proc/self/mountinfo");
	struct libmnt_iter *iter = mnt_new_iter(MNT_ITER_FORWARD);
	struct libmnt_fs *fs;

	while (table && iter && !mnt_table_next_fs(table, iter, &fs)) {
		const char *source = mnt_fs_get_source(fs), *target = mnt_fs_get_target(fs);
		const char *type = mnt_fs_get_fstype(fs);
		struct tarn_device d;
		char *text;
		size_t i;

		if (!source || !target || !type || strcmp(type, "tarnfs") != 0)
			continue;
		for (i = 0; i < t->count && strcmp(t->rows[i].device, source) != 0; i++)
			;
		if (i < t->count && strcmp(t->rows[i].mounted, "-") == 0) {
			free(t->rows[i].mounted);
			t->rows[i].mounted = word(target);
		} else if (i < t->count || !tarn_device_find(&d, source, NULL)) {
			continue;	/* shown, or of a kind that is not listed */
		}
		text = must_format("%s is mounted on %s, and is not what was mounted any more: umount %s",
				   source, target, target);
		note(t, source, text);
		free(text);
	}
	mnt_free_iter(iter);
	mnt_unref_table(table);
}

static int by_name(const void *a, const void *b)
{
	return strverscmp(((const struct row *)a)->device, ((const struct row *)b)->device);
}

/* size_text() in one word, "-" of none */
static const char *size_word(char out[SIZE_TEXT], uint64_t bytes)
{
	char *space;

	if (!bytes)
		return "-";
	size_text(out, bytes);
	space = strchr(out, ' ');
	if (space)
		memmove(space, space + 1, strlen(space));
	return out;
}

static void print_table(const struct table *t)
{
	static const char *const heads[] = {
		"# device", "kind", "mode", "size", "align", "map", "driver", "node", "tarnfs",
		"mounted", "label",
	};
	enum { COLUMNS = sizeof(heads) / sizeof(heads[0]) };
	size_t width[COLUMNS], i, c;
	const char **cells = must_alloc(calloc(t->count + 1, sizeof(*cells) * COLUMNS));
	char (*text)[3][SIZE_TEXT] = must_alloc(calloc(t->count + 1, sizeof(*text)));

	memcpy(cells, heads, sizeof(heads));
	for (i = 0; i < t->count; i++) {
		const struct row *r = &t->rows[i];
		const char **row = cells + (i + 1) * COLUMNS;

		snprintf(text[i][2], SIZE_TEXT, "%d", r->node);
		row[0] = r->device;
		row[1] = r->kind;
		row[2] = r->mode;
		row[3] = size_word(text[i][0], r->size);
		row[4] = size_word(text[i][1], r->align);
		row[5] = r->map;
		row[6] = r->driver;
		row[7] = r->node < 0 ? "-" : text[i][2];
		row[8] = r->tarnfs;
		row[9] = r->mounted;
		row[10] = r->label;
	}
	for (c = 0; c < COLUMNS; c++) {
		width[c] = 0;
		for (i = 0; i <= t->count; i++)
			if (strlen(cells[i * COLUMNS + c]) > width[c])
				width[c] = strlen(cells[i * COLUMNS + c]);
	}
	for (i = 0; i <= t->count; i++)
		for (c = 0; c < COLUMNS; c++)
			printf("%-*s%s", c + 1 < COLUMNS ? (int)width[c] : 0, cells[i * COLUMNS + c],
			       c + 1 < COLUMNS ? "  " : "\n");
	if (!t->count)
		printf("# no DAX memory on this host\n");
	if (!t->root)
		printf("# not root: what is on the devices is unknown\n");
	for (i = 0; i < t->note_count; i++)
		printf("# %s\n", shown(t->notes[i]));
	free(cells);
	free(text);
}

static void free_table(struct table *t)
{
	size_t i;

	for (i = 0; i < t->count; i++) {
		free(t->rows[i].device);
		free(t->rows[i].mode);
		free(t->rows[i].map);
		free(t->rows[i].driver);
		free(t->rows[i].mounted);
		free(t->rows[i].label);
	}
	for (i = 0; i < t->note_count; i++)
		free(t->notes[i]);
	free(t->rows);
	free(t->notes);
}

static int list(void)
{
	struct table t = { .root = geteuid() == 0, .module = access("/sys/module/tarnfs", F_OK) == 0 };
	int ret = collect(&t);

	if (!ret) {
		add_mounts(&t);
		if (t.count)
			qsort(t.rows, t.count, sizeof(*t.rows), by_name);
		print_table(&t);
	}
	free_table(&t);
	return ret ? EXIT_FAILED : EXIT_OK;
}

/* ---- attach, detach ---- */

/*
 * How many ranges of bad memory a mount of it would know of: the marks of the pages, which go when
 * the driver is bound anew. A mount without a host page reads them, and writes nothing.
 */
static uint32_t known_bad(const struct tarn_dax *dax)
{
	static const char *const options[] = { "ro", NULL };
	struct tarnfs_range *ranges;
	int mntfd, dirfd;
	uint32_t count = 0;

	if (tarn_dax_ready(dax, NULL) || tarn_mount_new(dax->node, options, &mntfd, &dirfd, NULL))
		return 0;
	if (!tarn_kernel_badranges(dirfd, &ranges, &count))
		free(ranges);
	else
		count = 0;
	close(dirfd);
	close(mntfd);
	return count;
}

static int move(const char *what, bool to)
{
	uint32_t bad = 0;
	struct tarn_err err = { "" };
	struct tarn_dax dax;
	int ret = tarn_dax_find(&dax, what, &err);

	if (ret == -ENOTTY) {		/* fsdax: mounted as it is */
		printf("%s\n", shown(err.text));
		return 0;
	}
	if (!ret && !to)
		bad = known_bad(&dax);
	if (!ret)
		ret = to ? tarn_dax_attach(&dax, &err) : tarn_dax_detach(&dax, &err);
	if (ret < 0) {
		complain_err(&err, ret, NULL);
		return ret;
	}
	printf("%s: %s %s, bound to %s\n", dax.name, to ? "attached" : "detached",
	       ret ? "now" : "already", dax.driver);
	if (bad && ret)
		complain("%s: this host knew of %u range%s of bad memory there, and has forgotten: unless the "
			 "memory was repaired it is met again", dax.name, bad, bad == 1 ? "" : "s");
	return 0;
}

int cmd_device(int argc, char **argv)
{
	static const struct option longs[] = {
		{ "help", no_argument, NULL, 'h' },
		{ 0 }
	};
	bool failed = false, to;
	const char *verb;
	int c;

	while ((c = getopt_long(argc, argv, "h", longs, NULL)) != -1) {
		switch (c) {
		case 'h':
			usage(stdout);
			return EXIT_OK;
		default:
			complain_usage();
			return EXIT_USAGE;
		}
	}
	verb = optind < argc ? argv[optind++] : "";
	to = strcmp(verb, "attach") == 0;
	if (!*verb)
		complain("list, attach or detach?");
	else if (strcmp(verb, "list") != 0 && !to && strcmp(verb, "detach") != 0)
		complain("'%s': list, attach or detach", shown(verb));
	else if (strcmp(verb, "list") == 0 && optind < argc)
		complain("list takes no device, and '%s' was given", shown(argv[optind]));
	else if (strcmp(verb, "list") == 0)
		return list();
	else if (optind == argc)
		complain("%s: which device?", verb);
	else
		goto move;
	complain_usage();
	return EXIT_USAGE;
move:
	if (geteuid() != 0) {
		complain("only root can %s a device", verb);
		return EXIT_FAILED;
	}
	for (; optind < argc; optind++)
		if (move(argv[optind], to))
			failed = true;
	return failed ? EXIT_FAILED : EXIT_OK;
}
