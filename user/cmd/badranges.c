// SPDX-License-Identifier: GPL-2.0-only
/*
 * badranges.c - the bad memory of a device, and whose it is: a file's by the
 * log, metadata by the superblock, or nobody's.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "badranges.h"

/* More parts of a path than any real one has: a damaged log may go round in circles. */
#define DEPTH_MAX 4096

struct badranges {
	struct tarnfs_range *range;
	uint32_t count;
};

/* A directory, or a file over a bad range, as the log has it. */
struct name {
	uint64_t ino, parent;
	char *text;
	uint64_t off, len;
};

struct names {
	const struct badranges *bad;
	void *directories;		/* tsearch(3), by ino */
	struct name *files;
	size_t count, room;
};

struct badranges *badranges_get(const struct source *s, const char **why)
{
	struct badranges *bad;
	int dirfd = s->mounted ? s->session.dirfd : s->meta.dirfd;
	int ret;

	if (!s->mounted && s->device.is_file) {
		*why = "unknown: an image is not memory";
		return NULL;
	}
	bad = must_alloc(calloc(1, sizeof(*bad)));
	ret = tarn_kernel_badranges(dirfd, &bad->range, &bad->count);
	if (!ret)
		return bad;
	*why = ret == -EOPNOTSUPP ? "unknown: this tarnfs.ko does not report them" :
				    "unknown: the kernel could not be asked";
	free(bad);
	return NULL;
}

void badranges_free(struct badranges *bad)
{
	if (bad)
		free(bad->range);
	free(bad);
}

static bool overlaps(const struct badranges *bad, uint64_t off, uint64_t len)
{
	uint32_t low = 0, high = bad->count;

	/* the first that ends after off */
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (bad->range[middle].off + bad->range[middle].len > off)
			high = middle;
		else
			low = middle + 1;
	}
	/* extents of a damaged log may be anything */
	return low < bad->count && len && (bad->range[low].off < off || bad->range[low].off - off < len);
}

static int by_ino(const void *a, const void *b)
{
	const struct name *x = a, *y = b;

	return x->ino < y->ino ? -1 : x->ino > y->ino;
}

static int note_name(void *arg, const struct tarn_rec *rec)
{
	bool directory = rec->type == TARNFS_REC_DIRECTORY;
	struct names *names = arg;
	struct name name = {
		.ino = rec->ino, .parent = rec->parent, .off = rec->ext_off, .len = rec->ext_len,
	};
	struct name *copy, **found;

	if (!directory && (rec->type != TARNFS_REC_FILE || !rec->extents ||
			   !overlaps(names->bad, rec->ext_off, rec->ext_len)))
		return 0;
	name.text = must_alloc(strndup(rec->name ? rec->name : "", rec->name_len));
	if (!directory) {
		if (names->count == names->room) {
			names->room = names->room ? 2 * names->room : 64;
			names->files = must_alloc(realloc(names->files,
							  names->room * sizeof(*names->files)));
		}
		names->files[names->count++] = name;
		return 0;
	}
	copy = must_alloc(malloc(sizeof(*copy)));
	*copy = name;
	found = must_alloc(tsearch(copy, &names->directories, by_ino));
	if (*found != copy) {
		free(copy->text);
		free(copy);
	}
	return 0;
}

/* From the root of the file system; begins with '/'. */
static char *path_of(const struct names *names, const struct name *name)
{
	char *path = must_format("/%s", name->text);
	unsigned int depth;

	for (depth = 0; depth < DEPTH_MAX && name->parent != TARNFS_INO_ROOT; depth++) {
		struct name key = { .ino = name->parent };
		struct name **found = tfind(&key, &names->directories, by_ino);
		char *longer;

		if (!found) {
			longer = must_format("(directory %llu)%s", (unsigned long long)name->parent,
					     path);
			free(path);
			return longer;
		}
		name = *found;
		longer = must_format("/%s%s", name->text, path);
		free(path);
		path = longer;
	}
	return path;
}

static void free_name(void *arg)
{
	struct name *name = arg;

	free(name->text);
	free(name);
}

static void line(uint64_t off, uint64_t len, const char *whose)
{
	printf("  0x%-12llx %-10llu %s\n", (unsigned long long)off, (unsigned long long)len, whose);
}

/* One page is in one part; a longer range may be in several, and each is said. */
static bool print_part(const struct tarnfs_range *r, uint64_t off, uint64_t len, const char *name)
{
	uint64_t from = r->off > off ? r->off : off;
	uint64_t to = r->off + r->len < off + len ? r->off + r->len : off + len;

	if (from >= to)
		return false;
	line(from, to - from, name);
	return true;
}

/* Says which parts of the metadata are in r; the rest of [0, data_start) is in no use. */
static void print_metadata(const struct tarnfs_range *r, const struct tarn_super *sb)
{
	bool said = false;
	char name[64];
	uint32_t i;

	said |= print_part(r, TARNFS_SUPER_OFF, TARNFS_BLOCK, "metadata: superblock");
	said |= print_part(r, TARNFS_SUPER2_OFF, TARNFS_BLOCK, "metadata: second superblock");
	for (i = 0; i < sb->hosts; i++) {
		snprintf(name, sizeof(name), "metadata: host page %u", i);
		said |= print_part(r, sb->hosts_off + (uint64_t)i * sb->host_stride,
				   sb->host_stride, name);
		snprintf(name, sizeof(name), "metadata: mirror of host page %u", i);
		said |= print_part(r, sb->mirror_off + (uint64_t)i * sb->host_stride,
				   sb->host_stride, name);
	}
	for (i = 0; i < sb->areas; i++) {
		snprintf(name, sizeof(name), "metadata: log area %u", i);
		said |= print_part(r, sb->area[i].off, sb->area[i].len, name);
	}
	if (!said)
		print_part(r, 0, sb->data_start, "metadata: not in use");
}

/* Files in the order of their extents: names->files is sorted. */
static void print_data(const struct tarnfs_range *r, const struct tarn_super *sb,
		       const struct names *names)
{
	uint64_t at = r->off > sb->data_start ? r->off : sb->data_start;
	uint64_t end = r->off + r->len < sb->data_end ? r->off + r->len : sb->data_end;
	size_t i;

	for (i = 0; i < names->count && at < end; i++) {
		const struct name *f = &names->files[i];
		uint64_t to = f->off + f->len < end ? f->off + f->len : end;
		char *path, *text;

		if (f->off >= end || to <= at)
			continue;
		if (f->off > at) {
			line(at, f->off - at, "no file");
			at = f->off;
		}
		path = path_of(names, f);
		text = must_format("file %s from byte %llu", shown(path),
				   (unsigned long long)(at - f->off));
		line(at, to - at, text);
		free(text);
		free(path);
		at = to;
	}
	if (at < end)
		line(at, end - at, "no file");
}

static int by_offset(const void *a, const void *b)
{
	const struct name *x = a, *y = b;

	return x->off < y->off ? -1 : x->off > y->off;
}

void badranges_print(const struct badranges *bad, const struct source *s,
		     const struct tarn_current *cur)
{
	uint32_t pos = TARNFS_LOG_HEADER_UNITS, i;
	struct names names = { .bad = bad };
	struct tarn_err err = { "" };
	struct tarn_log log;
	uint64_t bytes = 0;
	size_t n;

	if (!bad->count) {
		printf("%-20s%s\n", "bad ranges", s->mounted ? "none" :
		       "none known to the driver (a mount knows more)");
		return;
	}
	for (i = 0; i < bad->count; i++)
		bytes += bad->range[i].len;
	printf("%-20s%u, %llu bytes%s\n", "bad ranges", bad->count, (unsigned long long)bytes,
	       s->mounted ? "" : " known to the driver (a mount knows more)");

	/* what can be read of the log; why not all is another line's to say */
	if (cur->generation && !tarn_log_open(&log, s->media, s->sb, cur, &err))
		tarn_log_walk(&log, s->media, &pos, note_name, &names, &err);
	if (names.count)
		qsort(names.files, names.count, sizeof(*names.files), by_offset);
	for (i = 0; i < bad->count; i++) {
		const struct tarnfs_range *r = &bad->range[i];

		if (r->off < s->sb->data_start)
			print_metadata(r, s->sb);
		print_data(r, s->sb, &names);
		print_part(r, s->sb->data_end, UINT64_MAX - s->sb->data_end, "behind the data");
	}
	for (n = 0; n < names.count; n++)
		free(names.files[n].text);
	free(names.files);
	tdestroy(names.directories, free_name);
}
