// SPDX-License-Identifier: GPL-2.0-only
/*
 * tarnfs-inject - breaks one named field of an image of a tarnfs, or several.
 *
 * Every field of every structure of the format has a name, from the tables
 * below; --list prints them with their offsets, sizes and values. The checksum
 * of the structure is made right again, unless --keep-crc, so that both kinds
 * of damage can be had: what a checksum finds, and what was written wrong.
 *
 * Where things are is read once, before anything is changed: so several
 * fields can be broken in one call, whatever the first one does to the rest.
 */
#include "internal.h"

#include <ctype.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define EXIT_INJECT_FAILED	1
#define EXIT_INJECT_USAGE	2

/* ---- fields ---- */

struct field {
	const char *name;
	uint16_t off, size;
	bool bytes;			/* an array, not a number */
};

#define N(type, member)	\
	{ #member, offsetof(struct type, member), sizeof(((struct type *)0)->member), false }
#define B(type, member)	\
	{ #member, offsetof(struct type, member), sizeof(((struct type *)0)->member), true }
/* The whole of it; its checksum is not touched. */
#define RAW(size) { "raw", 0, size, true }

static const struct field super_fields[] = {
	B(tarnfs_super, magic), N(tarnfs_super, version), N(tarnfs_super, length),
	N(tarnfs_super, compat), N(tarnfs_super, ro_compat), N(tarnfs_super, incompat),
	N(tarnfs_super, crc), N(tarnfs_super, block_size), B(tarnfs_super, uuid),
	B(tarnfs_super, label), N(tarnfs_super, dev_size), N(tarnfs_super, data_start),
	N(tarnfs_super, data_end), N(tarnfs_super, hosts_off), N(tarnfs_super, hosts_mirror_off),
	N(tarnfs_super, hosts), N(tarnfs_super, host_stride), N(tarnfs_super, areas),
	N(tarnfs_super, area_entry), N(tarnfs_super, csum), N(tarnfs_super, line_shift),
	N(tarnfs_super, align_shift), N(tarnfs_super, role), N(tarnfs_super, created_sec),
	N(tarnfs_super, created_nsec), N(tarnfs_super, dev_index), N(tarnfs_super, dev_count),
	B(tarnfs_super, dev_uuid), B(tarnfs_super, zero1),
#define AREA(n) N(tarnfs_super, area[n].off), N(tarnfs_super, area[n].len)
	AREA(0), AREA(1), AREA(2), AREA(3), AREA(4), AREA(5), AREA(6), AREA(7),
	B(tarnfs_super, zero2), RAW(sizeof(struct tarnfs_super)), { 0 }
};
static const struct field identity_fields[] = {
	N(tarnfs_identity, nonce), B(tarnfs_identity, host_uuid), B(tarnfs_identity, boot_id),
	N(tarnfs_identity, claims), N(tarnfs_identity, host), N(tarnfs_identity, state),
	N(tarnfs_identity, flags), B(tarnfs_identity, zero), N(tarnfs_identity, crc),
	RAW(TARNFS_LINE), { 0 }
};
static const struct field control_fields[] = {
	N(tarnfs_control, generation), N(tarnfs_control, area_off), N(tarnfs_control, area_len),
	N(tarnfs_control, next_off), N(tarnfs_control, next_len), N(tarnfs_control, host),
	N(tarnfs_control, state), N(tarnfs_control, slot), N(tarnfs_control, next_slot),
	B(tarnfs_control, zero), N(tarnfs_control, crc), RAW(TARNFS_LINE), { 0 }
};
static const struct field window_fields[] = {
	N(tarnfs_window, nonce), N(tarnfs_window, generation), N(tarnfs_window, range[0].off),
	N(tarnfs_window, range[0].len), N(tarnfs_window, range[1].off),
	N(tarnfs_window, range[1].len), B(tarnfs_window, zero), N(tarnfs_window, crc),
	RAW(TARNFS_LINE), { 0 }
};
static const struct field status_fields[] = {
	N(tarnfs_hoststatus, nonce), N(tarnfs_hoststatus, released),
	N(tarnfs_hoststatus, applied_generation), N(tarnfs_hoststatus, applied_seq),
	N(tarnfs_hoststatus, applied_host), N(tarnfs_hoststatus, flags),
	B(tarnfs_hoststatus, zero), N(tarnfs_hoststatus, crc), RAW(TARNFS_LINE), { 0 }
};
static const struct field quiesce_fields[] = {
	N(tarnfs_quiesce, nonce), N(tarnfs_quiesce, generation), N(tarnfs_quiesce, final_seq),
	N(tarnfs_quiesce, final_units), N(tarnfs_quiesce, host), B(tarnfs_quiesce, zero),
	N(tarnfs_quiesce, crc), RAW(TARNFS_LINE), { 0 }
};
static const struct field contend_fields[] = {
	N(tarnfs_contend, word), B(tarnfs_contend, zero), RAW(TARNFS_LINE), { 0 }
};
static const struct field info_fields[] = {
	N(tarnfs_info, beat), N(tarnfs_info, seconds), B(tarnfs_info, node_name),
	RAW(TARNFS_LINE), { 0 }
};
static const struct field commit_fields[] = {
	N(tarnfs_commit, units), N(tarnfs_commit, crc), B(tarnfs_commit, zero), RAW(TARNFS_LINE),
	{ 0 }
};
static const struct field header_fields[] = {
	B(tarnfs_log_header, magic), N(tarnfs_log_header, length), N(tarnfs_log_header, crc),
	B(tarnfs_log_header, uuid), N(tarnfs_log_header, generation), N(tarnfs_log_header, host),
	N(tarnfs_log_header, prev_host), N(tarnfs_log_header, flags),
	N(tarnfs_log_header, prev_generation), N(tarnfs_log_header, base_seq),
	N(tarnfs_log_header, next_ino), N(tarnfs_log_header, compat),
	N(tarnfs_log_header, ro_compat), N(tarnfs_log_header, incompat),
	N(tarnfs_log_header, ckpt_records), N(tarnfs_log_header, ckpt_units),
	B(tarnfs_log_header, zero1), N(tarnfs_log_header, writer_nonce),
	N(tarnfs_log_header, time), N(tarnfs_log_header, data_end), B(tarnfs_log_header, zero2),
	RAW(sizeof(struct tarnfs_log_header)), { 0 }
};

#define RECORD									\
	N(tarnfs_record, crc), N(tarnfs_record, type), N(tarnfs_record, class),			\
	N(tarnfs_record, flags), N(tarnfs_record, units), N(tarnfs_record, fixed),		\
	N(tarnfs_record, batch_index), N(tarnfs_record, batch_left), N(tarnfs_record, seq)
#define NODE								\
	N(tarnfs_rec_node, ino), N(tarnfs_rec_node, parent), N(tarnfs_rec_node, mtime_sec),	\
	N(tarnfs_rec_node, mtime_nsec), N(tarnfs_rec_node, uid), N(tarnfs_rec_node, gid),	\
	N(tarnfs_rec_node, mode), N(tarnfs_rec_node, name_len)

static const struct field record_fields[] = { RECORD, { 0 } };
static const struct field directory_fields[] = { NODE, { 0 } };
#define EXTENT(n, m) { "extent[0]." #m, sizeof(struct tarnfs_rec_file) + \
	offsetof(struct tarnfs_extent, m), sizeof(((struct tarnfs_extent *)0)->m), n }
static const struct field file_fields[] = {
	NODE, N(tarnfs_rec_file, size),
	/* a record's own flags have that name */
	{ "file_flags", offsetof(struct tarnfs_rec_file, flags), 4, false },
	N(tarnfs_rec_file, layout), N(tarnfs_rec_file, extents), EXTENT(false, off),
	EXTENT(false, len), EXTENT(false, dev), EXTENT(false, flags), EXTENT(true, zero), { 0 }
};
static const struct field symlink_fields[] = {
	NODE, N(tarnfs_rec_symlink, target_len), B(tarnfs_rec_symlink, zero), { 0 }
};
static const struct field unlink_fields[] = {
	N(tarnfs_rec_unlink, ino), N(tarnfs_rec_unlink, parent), B(tarnfs_rec_unlink, zero1),
	{ "unlink_flags", offsetof(struct tarnfs_rec_unlink, flags), 4, false },
	B(tarnfs_rec_unlink, zero2), { 0 }
};
static const struct field rename_fields[] = {
	N(tarnfs_rec_rename, ino), N(tarnfs_rec_rename, old_parent),
	N(tarnfs_rec_rename, new_parent), N(tarnfs_rec_rename, replaced_ino),
	{ "rename_flags", offsetof(struct tarnfs_rec_rename, flags), 4, false },
	B(tarnfs_rec_rename, zero), N(tarnfs_rec_rename, name_len), { 0 }
};
static const struct field setattr_fields[] = {
	N(tarnfs_rec_setattr, ino), N(tarnfs_rec_setattr, mtime_sec),
	N(tarnfs_rec_setattr, mtime_nsec), N(tarnfs_rec_setattr, uid),
	N(tarnfs_rec_setattr, gid), N(tarnfs_rec_setattr, mode), B(tarnfs_rec_setattr, zero),
	N(tarnfs_rec_setattr, mask),
	{ "setattr_flags", offsetof(struct tarnfs_rec_setattr, flags), 4, false }, { 0 }
};
static const struct field reclaim_fields[] = {
	N(tarnfs_rec_reclaim, ino), N(tarnfs_rec_reclaim, unlink_seq),
	B(tarnfs_rec_reclaim, zero), { 0 }
};
static const struct field pending_fields[] = {
	N(tarnfs_rec_pending_free, ino), N(tarnfs_rec_pending_free, unlink_seq),
	{ "pending_flags", offsetof(struct tarnfs_rec_pending_free, flags), 4, false },
	N(tarnfs_rec_pending_free, layout), N(tarnfs_rec_pending_free, extents), { 0 }
};
static const struct field host_fields[] = {
	N(tarnfs_rec_host, host),
	{ "host_flags", offsetof(struct tarnfs_rec_host, flags), 2, false },
	B(tarnfs_rec_host, zero1), N(tarnfs_rec_host, nonce), B(tarnfs_rec_host, uuid),
	N(tarnfs_rec_host, time), N(tarnfs_rec_host, last_generation),
	N(tarnfs_rec_host, last_seq), B(tarnfs_rec_host, zero2), { 0 }
};
static const struct field data_end_fields[] = {
	N(tarnfs_rec_data_end, dev), B(tarnfs_rec_data_end, zero1),
	N(tarnfs_rec_data_end, data_end), N(tarnfs_rec_data_end, dev_size),
	B(tarnfs_rec_data_end, zero2), { 0 }
};
static const struct field device_fields[] = {
	N(tarnfs_rec_device, dev),
	{ "device_flags", offsetof(struct tarnfs_rec_device, flags), 2, false },
	B(tarnfs_rec_device, zero1), B(tarnfs_rec_device, uuid), N(tarnfs_rec_device, size),
	N(tarnfs_rec_device, data_start), N(tarnfs_rec_device, data_end),
	B(tarnfs_rec_device, zero2), { 0 }
};
static const struct field end_fields[] = {
	N(tarnfs_rec_checkpoint_end, directories), N(tarnfs_rec_checkpoint_end, files),
	N(tarnfs_rec_checkpoint_end, symlinks), N(tarnfs_rec_checkpoint_end, pending_free),
	N(tarnfs_rec_checkpoint_end, hosts), N(tarnfs_rec_checkpoint_end, others), { 0 }
};

static const struct field *const by_type[] = {
	[TARNFS_REC_DIRECTORY] = directory_fields, [TARNFS_REC_FILE] = file_fields,
	[TARNFS_REC_SYMLINK] = symlink_fields, [TARNFS_REC_UNLINK] = unlink_fields,
	[TARNFS_REC_RENAME] = rename_fields, [TARNFS_REC_SETATTR] = setattr_fields,
	[TARNFS_REC_RECLAIM] = reclaim_fields, [TARNFS_REC_PENDING_FREE] = pending_fields,
	[TARNFS_REC_HOST] = host_fields, [TARNFS_REC_DATA_END] = data_end_fields,
	[TARNFS_REC_CHECKPOINT_END] = end_fields, [TARNFS_REC_DEVICE] = device_fields,
};

static const struct line_kind {
	const char *name;
	unsigned int line;
	const struct field *fields;
	bool mirrored, checked;
} lines[] = {
	{ "identity", TARNFS_LINE_IDENTITY, identity_fields, true, true },
	{ "control", TARNFS_LINE_CONTROL, control_fields, true, true },
	{ "window", TARNFS_LINE_WINDOW, window_fields, false, true },
	{ "status", TARNFS_LINE_STATUS, status_fields, false, true },
	{ "quiesce", TARNFS_LINE_QUIESCE, quiesce_fields, false, true },
	{ "contend", TARNFS_LINE_CONTEND, contend_fields, false, false },
	{ "info", TARNFS_LINE_INFO, info_fields, false, false },
};

/* ---- the image ---- */

static const char *path;
static uint8_t *image;
static uint64_t image_size;
static struct tarn_super sb;
static struct tarn_current cur;		/* generation 0: no log counts */
static struct tarn_seed seed;
static struct { uint32_t unit, units; uint16_t type; } *records;	/* as they were */
static size_t nr_records;

static void __attribute__((noreturn, format(printf, 2, 3))) die(int code, const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "tarnfs-inject: ");
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "\n");
	exit(code);
}

static uint8_t *at(uint64_t off, uint64_t len)
{
	if (off > image_size || len > image_size - off)
		die(EXIT_INJECT_FAILED, "%s: it ends before 0x%" PRIx64, path, off + len);
	return image + off;
}

static void map_image(void)
{
	struct stat st;
	int fd = open(path, O_RDWR | O_CLOEXEC);
	void *base;

	if (fd < 0 || fstat(fd, &st))
		die(EXIT_INJECT_FAILED, "%s: %s", path, strerror(errno));
	if (!S_ISREG(st.st_mode) || !st.st_size)
		die(EXIT_INJECT_FAILED, "%s: not an image: a plain file with a tarnfs in it is needed",
		    path);
	image_size = (uint64_t)st.st_size;
	base = mmap(NULL, image_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (base == MAP_FAILED)
		die(EXIT_INJECT_FAILED, "%s: mapping it: %s", path, strerror(errno));
	image = base;
	close(fd);
}

static void find_log(void)
{
	uint64_t pos = TARNFS_LOG_HEADER_UNITS, end;

	for (uint32_t i = 0; i < sb.hosts; i++) {
		const struct tarnfs_control *c =
			(void *)at(tarn_line_off(&sb, (uint16_t)i, TARNFS_LINE_CONTROL), TARNFS_LINE);

		if (c->state != TARNFS_CONTROL_ACTIVE || le64toh(c->generation) < cur.generation ||
		    c->slot >= TARNFS_SLOTS || le64toh(c->area_off) > image_size ||
		    le64toh(c->area_len) > image_size - le64toh(c->area_off))
			continue;
		cur.generation = le64toh(c->generation);
		cur.host = (uint16_t)i;
		cur.slot = c->slot;
		cur.area_off = le64toh(c->area_off);
		cur.area_len = le64toh(c->area_len);
	}
	if (!cur.generation)
		return;
	memcpy(seed.uuid, sb.uuid, sizeof(seed.uuid));
	seed.generation = cur.generation;
	seed.host = cur.host;
	/* those past its end too, as far as they look like some */
	end = cur.area_len / TARNFS_LINE;
	while (pos < end) {
		struct tarnfs_record head;
		uint16_t units;

		memcpy(&head, at(cur.area_off + pos * TARNFS_LINE, sizeof(head)), sizeof(head));
		units = le16toh(head.units);
		if (!units || units > end - pos)
			break;
		records = reallocarray(records, nr_records + 1, sizeof(*records));
		if (!records)
			die(EXIT_INJECT_FAILED, "out of memory");
		records[nr_records].unit = (uint32_t)pos;
		records[nr_records].units = units;
		records[nr_records++].type = le16toh(head.type);
		pos += units;
	}
}

static void find_all(void)
{
	struct tarn_err err = { "" }, second = { "" };

	if (image_size < TARNFS_LOG_OFF)
		die(EXIT_INJECT_FAILED, "%s: too small for a tarnfs", path);
	if (tarn_super_decode(&sb, (void *)(image + TARNFS_SUPER_OFF), 0, &err) &&
	    tarn_super_decode(&sb, (void *)(image + TARNFS_SUPER2_OFF), 0, &second))
		die(EXIT_INJECT_FAILED, "%s: %s; the second copy: %s", path, err.text, second.text);
	at(0, sb.data_start);
	find_log();
}

/* ---- checksums ---- */

enum seal { SEAL_NONE, SEAL_SUPER, SEAL_LINE, SEAL_HEADER, SEAL_OWN_HEADER, SEAL_RECORD, SEAL_COMMIT };

struct target {
	uint64_t base, off;		/* structure, field */
	uint32_t size;
	uint32_t whole;			/* of the structure */
	bool bytes;
	enum seal seal;
	struct tarn_seed seed;		/* of a commit word */
	uint8_t slot;
};

static void seal_it(const struct target *t)
{
	struct tarn_seed own = seed;
	struct tarnfs_log_header *header;
	struct tarnfs_record *record;
	struct tarnfs_super *super;
	uint32_t crc;
	uint64_t word;
	size_t len;

	switch (t->seal) {
	case SEAL_SUPER:
		super = (void *)at(t->base, sizeof(*super));
		super->crc = 0;
		super->crc = htole32(tarn_crc32c(0, super, sizeof(*super)));
		break;
	case SEAL_LINE:
		memset(at(t->base, TARNFS_LINE) + TARNFS_LINE - sizeof(crc), 0, sizeof(crc));
		crc = htole32(tarn_crc32c(tarn_crc32c(0, sb.uuid, 16), at(t->base, TARNFS_LINE),
					  TARNFS_LINE));
		memcpy(at(t->base, TARNFS_LINE) + TARNFS_LINE - sizeof(crc), &crc, sizeof(crc));
		break;
	case SEAL_OWN_HEADER:	/* of a log that no control line need name */
	case SEAL_HEADER:	/* as its readers seed it, whatever it says itself */
		header = (void *)at(t->base, sizeof(*header));
		if (t->seal == SEAL_OWN_HEADER) {
			memcpy(own.uuid, sb.uuid, sizeof(own.uuid));
			own.generation = le64toh(header->generation);
			own.host = le16toh(header->host);
		}
		header->crc = htole32(tarn_log_crc(&own, header, sizeof(*header),
						   offsetof(struct tarnfs_log_header, crc)));
		break;
	case SEAL_RECORD:
		record = (void *)at(t->base, sizeof(*record));
		len = (size_t)le16toh(record->units) * TARNFS_LINE;
		/* a length that no reader takes has no checksum either */
		if (len && len <= cur.area_off + cur.area_len - t->base)
			record->crc = htole32(tarn_log_crc(&seed, record, len,
							   offsetof(struct tarnfs_record, crc)));
		break;
	case SEAL_COMMIT:
		memcpy(&word, at(t->base, sizeof(word)), sizeof(word));
		word = tarn_commit_word(&t->seed, t->slot, (uint32_t)le64toh(word));
		memcpy(at(t->base, sizeof(word)), &word, sizeof(word));
		break;
	case SEAL_NONE:
		break;
	}
}

/* ---- names ---- */

static bool take(const char **s, const char *word)
{
	size_t len = strlen(word);

	if (strncmp(*s, word, len))
		return false;
	*s += len;
	return true;
}

/* A number below `end`. */
static uint64_t take_number(const char **s, uint64_t end, const char *name)
{
	char *after;
	uint64_t n;

	errno = 0;
	n = strtoull(*s, &after, 0);
	if (!isdigit((unsigned char)**s) || errno || after == *s)
		die(EXIT_INJECT_USAGE, "%s: a number is needed before '%s'", name, *s);
	if (n >= end)
		die(EXIT_INJECT_USAGE, "%s: %" PRIu64 " is too large: there are %" PRIu64, name, n, end);
	*s = after;
	return n;
}

static bool take_field(struct target *t, const struct field *fields, const char *s)
{
	for (; fields && fields->name; fields++) {
		if (strcmp(s, fields->name))
			continue;
		t->off = t->base + fields->off;
		t->size = fields->size;
		t->bytes = fields->bytes;
		if (!strcmp(s, "raw") || !strcmp(s, "crc"))
			t->seal = SEAL_NONE;
		return true;
	}
	return false;
}

static void commit_target(struct target *t, uint16_t page, uint8_t slot)
{
	const struct tarnfs_control *c =
		(void *)at(tarn_line_off(&sb, page, TARNFS_LINE_CONTROL), TARNFS_LINE);

	t->base = tarn_line_off(&sb, page, TARNFS_LINE_COMMIT + slot);
	t->seal = SEAL_COMMIT;
	t->slot = slot;
	t->seed = seed;
	memcpy(t->seed.uuid, sb.uuid, sizeof(t->seed.uuid));
	if (page != cur.host)
		t->seed = (struct tarn_seed){ .generation = le64toh(c->generation), .host = page };
	memcpy(t->seed.uuid, sb.uuid, sizeof(t->seed.uuid));
}

/* Name and target stand where the other fields say. */
static bool take_text(struct target *t, uint16_t type, const char *s)
{
	const struct tarnfs_rec_node *node = (void *)at(t->base, sizeof(struct tarnfs_rec_symlink));
	const struct tarnfs_rec_file *file = (const void *)node;
	const struct tarnfs_rec_symlink *link = (const void *)node;
	uint32_t off = sizeof(*node), len = le16toh(node->name_len);

	if (type == TARNFS_REC_FILE)
		off = (uint32_t)(sizeof(*file) +
				 le16toh(file->extents) * sizeof(struct tarnfs_extent));
	else if (type == TARNFS_REC_SYMLINK)
		off = sizeof(*link);
	else if (type != TARNFS_REC_DIRECTORY && type != TARNFS_REC_RENAME)
		return false;
	if (type == TARNFS_REC_SYMLINK && !strcmp(s, "target")) {
		off += len;
		len = le16toh(link->target_len);
	} else if (strcmp(s, "name")) {
		return false;
	}
	t->off = t->base + off;
	t->size = len;
	t->bytes = true;
	return true;
}

static bool record_target(struct target *t, const char *s, const char *name)
{
	uint64_t i;
	uint16_t type;
	const struct field raw[] = { { "raw", 0, 0, true }, { 0 } };

	i = take_number(&s, nr_records, name);
	if (!take(&s, "]."))
		return false;
	t->base = cur.area_off + (uint64_t)records[i].unit * TARNFS_LINE;
	t->seal = SEAL_RECORD;
	type = records[i].type;
	if (take_field(t, raw, s)) {
		t->size = (uint32_t)records[i].units * TARNFS_LINE;
		return true;
	}
	return take_field(t, record_fields, s) ||
	       (type < TARN_ARRAY_SIZE(by_type) && take_field(t, by_type[type], s)) ||
	       take_text(t, type, s);
}

static bool page_target(struct target *t, const char *s, const char *name, bool mirror)
{
	uint16_t page = (uint16_t)take_number(&s, sb.hosts, name);

	if (!take(&s, "."))
		return false;
	for (size_t i = 0; i < TARN_ARRAY_SIZE(lines); i++) {
		const char *rest = s;

		if (!take(&rest, lines[i].name) || !take(&rest, ".") ||
		    (mirror && !lines[i].mirrored))
			continue;
		t->base = mirror ? tarn_mirror_line_off(&sb, page, lines[i].line) :
				   tarn_line_off(&sb, page, lines[i].line);
		t->seal = lines[i].checked ? SEAL_LINE : SEAL_NONE;
		return take_field(t, lines[i].fields, rest);
	}
	if (mirror || !take(&s, "commit["))
		return false;
	commit_target(t, page, (uint8_t)take_number(&s, TARNFS_SLOTS, name));
	return take(&s, "].") && take_field(t, commit_fields, s);
}

static struct target target_of(const char *name)
{
	struct target t = { .seal = SEAL_NONE };
	const char *s = name;
	bool good = false;

	if (take(&s, "super.")) {
		bool second = take(&s, "second.");

		t.base = second ? TARNFS_SUPER2_OFF : TARNFS_SUPER_OFF;
		t.seal = SEAL_SUPER;
		good = (second || take(&s, "first.")) && take_field(&t, super_fields, s);
	} else if (take(&s, "page")) {
		good = page_target(&t, s, name, false);
	} else if (take(&s, "mirror")) {
		good = page_target(&t, s, name, true);
	} else if (take(&s, "area[")) {
		uint64_t i = take_number(&s, sb.areas, name);

		t.base = sb.area[i].off;
		t.seal = SEAL_OWN_HEADER;
		good = take(&s, "].header.") && take_field(&t, header_fields, s);
	} else if (take(&s, "bytes[")) {
		t.base = t.off = take_number(&s, image_size, name);
		t.size = 1;
		t.bytes = true;
		good = !strcmp(s, "]");
	} else if (!strncmp(s, "log.", 4) || !strncmp(s, "commit.", 7)) {
		if (!cur.generation)
			die(EXIT_INJECT_FAILED, "%s: no control line of %s names a log", name, path);
		if (take(&s, "log.header.")) {
			t.base = cur.area_off;
			t.seal = SEAL_HEADER;
			good = take_field(&t, header_fields, s);
		} else if (take(&s, "log.record[")) {
			good = record_target(&t, s, name);
		} else if (take(&s, "commit.")) {
			commit_target(&t, cur.host, cur.slot);
			good = take_field(&t, commit_fields, s);
		}
	}
	if (!good)
		die(EXIT_INJECT_USAGE, "no field '%s': --list prints them all", name);
	at(t.off, t.size);
	return t;
}

/* ---- values ---- */

static uint64_t number_at(const struct target *t)
{
	uint64_t v = 0;

	memcpy(&v, at(t->off, t->size), t->size);
	return le64toh(v);
}

static int hex(char c)
{
	return isdigit((unsigned char)c) ? c - '0' : isxdigit((unsigned char)c) ?
	       tolower((unsigned char)c) - 'a' + 10 : -1;
}

static void set_number(const struct target *t, const char *value, const char *name)
{
	uint64_t v = number_at(t), n, old = v;
	char op = strchr("+-^", *value) ? *value++ : '=', *end;
	uint64_t max = t->size < 8 ? (1ULL << (8 * t->size)) - 1 : UINT64_MAX;

	errno = 0;
	n = strtoull(value, &end, 0);
	if (!isdigit((unsigned char)*value) || *end || errno)
		die(EXIT_INJECT_USAGE, "%s: '%s' is not a number (or +N, -N, ^N, @FIELD)", name, value);
	if (n > max)
		die(EXIT_INJECT_USAGE, "%s: %s does not fit into %u bytes", name, value, t->size);
	v = op == '+' ? v + n : op == '-' ? v - n : op == '^' ? v ^ n : n;
	if (op != '=' && (v & max) == (old & max))
		die(EXIT_INJECT_USAGE, "%s: %c%s changes nothing", name, op, value);
	v = htole64(v);
	memcpy(at(t->off, t->size), &v, t->size);
}

static void set_bytes(const struct target *t, const char *value, const char *name)
{
	uint8_t *to = at(t->off, t->size), uuid[16];
	size_t len;

	if (!strcmp(value, "0")) {
		memset(to, 0, t->size);
	} else if (*value == '^' && strlen(value) > 1) {
		char *end;
		unsigned long n = strtoul(value + 1, &end, 0);

		if (*end || !n || n > 255)
			die(EXIT_INJECT_USAGE, "%s: '%s': 1 to 255 is xored to the first byte", name,
			    value);
		*to ^= (uint8_t)n;
	} else if (take(&value, "x:")) {
		len = strlen(value);
		if (!len || len % 2 || len / 2 > (t->bytes && t->size == 1 ? image_size - t->off : t->size))
			die(EXIT_INJECT_USAGE, "%s: %zu hex digits for %u bytes", name, len, t->size);
		at(t->off, len / 2);
		for (size_t i = 0; i < len; i += 2) {
			if (hex(value[i]) < 0 || hex(value[i + 1]) < 0)
				die(EXIT_INJECT_USAGE, "%s: '%s' is not hexadecimal", name, value);
			to[i / 2] = (uint8_t)(hex(value[i]) << 4 | hex(value[i + 1]));
		}
	} else if (take(&value, "t:")) {
		len = strlen(value);
		if (len > t->size)
			die(EXIT_INJECT_USAGE, "%s: %zu bytes of text for %u", name, len, t->size);
		memset(to, 0, t->size);
		memcpy(to, value, len);
	} else if (t->size == sizeof(uuid) && !tarn_uuid_parse(uuid, value)) {
		memcpy(to, uuid, sizeof(uuid));
	} else {
		die(EXIT_INJECT_USAGE, "%s: '%s' is none of 0, ^N, x:HEX, t:TEXT, @FIELD%s", name, value,
		    t->size == sizeof(uuid) ? ", a uuid" : "");
	}
}

static void inject(const char *arg, bool keep_crc)
{
	char *name = strdup(arg), *value = name ? strchr(name, '=') : NULL;
	struct target t, from;

	if (!name)
		die(EXIT_INJECT_FAILED, "out of memory");
	if (value)
		*value++ = '\0';
	t = target_of(name);
	if (value && *value == '@') {
		from = target_of(value + 1);
		if (from.size != t.size)
			die(EXIT_INJECT_USAGE, "%s: %u bytes, and %s has %u", name, t.size, value + 1,
			    from.size);
		memcpy(at(t.off, t.size), at(from.off, t.size), t.size);
	} else if (t.bytes) {
		set_bytes(&t, value ? value : "^1", name);
	} else {
		set_number(&t, value ? value : "^1", name);
	}
	if (!keep_crc)
		seal_it(&t);
	free(name);
}

/* ---- --list ---- */

static void list_target(const char *name)
{
	struct target t = target_of(name);

	printf("%s 0x%" PRIx64 " %u ", name, t.off, t.size);
	if (!t.bytes) {
		printf("%" PRIu64 "\n", number_at(&t));
		return;
	}
	for (uint32_t i = 0; i < t.size; i++)
		printf("%02x", *at(t.off + i, 1));
	printf("%s\n", t.size ? "" : "-");
}

static void list_fields(const struct field *fields, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
static void list_fields(const struct field *fields, const char *fmt, ...)
{
	char prefix[64], name[128];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(prefix, sizeof(prefix), fmt, ap);
	va_end(ap);
	for (; fields->name; fields++) {
		snprintf(name, sizeof(name), "%s%s", prefix, fields->name);
		if (strcmp(fields->name, "raw"))
			list_target(name);
	}
}

static void list(void)
{
	char name[64];

	printf("# name offset size value (bytes in hex); bytes[OFFSET] is any other byte, and NAME.raw "
	       "the whole of a structure\n");
	list_fields(super_fields, "super.first.");
	list_fields(super_fields, "super.second.");
	for (uint32_t page = 0; page < sb.hosts; page++) {
		for (size_t i = 0; i < TARN_ARRAY_SIZE(lines); i++)
			list_fields(lines[i].fields, "page%u.%s.", page, lines[i].name);
		for (unsigned int slot = 0; slot < TARNFS_SLOTS; slot++)
			list_fields(commit_fields, "page%u.commit[%u].", page, slot);
		for (size_t i = 0; i < TARN_ARRAY_SIZE(lines); i++)
			if (lines[i].mirrored)
				list_fields(lines[i].fields, "mirror%u.%s.", page, lines[i].name);
	}
	for (unsigned int i = 0; i < sb.areas; i++)
		list_fields(header_fields, "area[%u].header.", i);
	if (!cur.generation)
		return;
	list_fields(commit_fields, "commit.");
	list_fields(header_fields, "log.header.");
	for (size_t i = 0; i < nr_records; i++) {
		uint16_t type = records[i].type;

		list_fields(record_fields, "log.record[%zu].", i);
		if (type >= TARN_ARRAY_SIZE(by_type) || !by_type[type])
			continue;
		list_fields(by_type[type], "log.record[%zu].", i);
		snprintf(name, sizeof(name), "log.record[%zu].name", i);
		if (by_type[type] == directory_fields || by_type[type] == file_fields ||
		    by_type[type] == symlink_fields || by_type[type] == rename_fields)
			list_target(name);
		snprintf(name, sizeof(name), "log.record[%zu].target", i);
		if (by_type[type] == symlink_fields)
			list_target(name);
	}
}

/* ---- --populate ---- */

static void put(const struct tarn_rec *rec, uint32_t *unit)
{
	uint64_t off = cur.area_off + (uint64_t)*unit * TARNFS_LINE;

	if (tarn_rec_encode(at(off, TARNFS_BLOCK), TARNFS_BLOCK, rec, &seed))
		die(EXIT_INJECT_FAILED, "a record cannot be encoded");
	*unit += tarn_rec_units(rec);
}

/* A directory with a file and a link in it, and two files of one batch: seq 1 to 5. */
static void populate(void)
{
	const struct tarn_rec recs[] = {
		{ .type = TARNFS_REC_DIRECTORY, .seq = 1, .ino = 16, .parent = 1, .mode = 0755,
		  .name = "d", .name_len = 1 },
		{ .type = TARNFS_REC_FILE, .seq = 2, .ino = 17, .parent = 16, .mode = 0644,
		  .name = "f", .name_len = 1, .size = 5000, .extents = 1,
		  .ext_off = sb.data_start, .ext_len = 8192 },
		{ .type = TARNFS_REC_SYMLINK, .seq = 3, .ino = 18, .parent = 16, .mode = 0777,
		  .name = "l", .name_len = 1, .target = "../f", .target_len = 4 },
		{ .type = TARNFS_REC_FILE, .seq = 4, .ino = 19, .parent = 1, .mode = 0644,
		  .name = "one", .name_len = 3, .size = 1, .extents = 1,
		  .ext_off = sb.data_start + 8192, .ext_len = 4096, .batch_left = 1 },
		{ .type = TARNFS_REC_FILE, .seq = 5, .ino = 20, .parent = 1, .mode = 0644,
		  .name = "two", .name_len = 3, .batch_index = 1 },
	};
	uint32_t unit = TARNFS_LOG_HEADER_UNITS + 2;
	uint64_t word;

	if (nr_records != 2 || cur.generation != 1)
		die(EXIT_INJECT_FAILED, "%s: --populate wants what mkfs.tarnfs has just made", path);
	for (size_t i = 0; i < TARN_ARRAY_SIZE(recs); i++)
		put(&recs[i], &unit);
	word = tarn_commit_word(&seed, cur.slot, unit);
	memcpy(at(tarn_line_off(&sb, cur.host, TARNFS_LINE_COMMIT + cur.slot), sizeof(word)), &word,
	       sizeof(word));
}

static void usage(void)
{
	printf("Usage: tarnfs-inject [--keep-crc] IMAGE FIELD[=VALUE]...\n"
	       "       tarnfs-inject --list IMAGE\n"
	       "       tarnfs-inject --populate IMAGE\n"
	       "Breaks fields of an image of a tarnfs, one after the other.\n"
	       "\n"
	       "  --list      all fields: name, offset, size, value\n"
	       "  --keep-crc  the checksum of the structure stays what it is\n"
	       "  --populate  a small tree in an image that mkfs.tarnfs has just made\n"
	       "\n"
	       "FIELD is super.first.magic, page3.identity.state, mirror3.control.generation,\n"
	       "page0.commit[1].units, area[1].header.host, log.header.base_seq,\n"
	       "log.record[5].name_len (from 0, the checkpoint's first), commit.units (of the\n"
	       "log that counts), bytes[OFFSET]... NAME.raw is a whole structure, whose checksum\n"
	       "is left alone, as it is when a crc is set.\n"
	       "VALUE of a number is N, +N, -N or ^N (exclusive or); of bytes 0 (all zero), x:HEX\n"
	       "(the first ones), t:TEXT, ^N (the first one), a uuid. @FIELD copies another field.\n"
	       "Without VALUE the lowest bit of the first byte is changed.\n"
	       "\n"
	       "Exit status: 0 done, 1 failed, 2 wrong usage, nothing changed by the field named.\n");
}

int main(int argc, char **argv)
{
	enum { OPT_LIST = 256, OPT_KEEP, OPT_POPULATE };
	static const struct option longs[] = {
		{ "list", no_argument, NULL, OPT_LIST },
		{ "keep-crc", no_argument, NULL, OPT_KEEP },
		{ "populate", no_argument, NULL, OPT_POPULATE },
		{ "help", no_argument, NULL, 'h' },
		{ 0 }
	};
	bool keep = false, want_list = false, want_tree = false;
	int c;

	while ((c = getopt_long(argc, argv, "h", longs, NULL)) != -1) {
		switch (c) {
		case OPT_LIST:
			want_list = true;
			break;
		case OPT_KEEP:
			keep = true;
			break;
		case OPT_POPULATE:
			want_tree = true;
			break;
		case 'h':
			usage();
			return 0;
		default:
			die(EXIT_INJECT_USAGE, "try tarnfs-inject --help");
		}
	}
	if (optind >= argc || (optind + 1 == argc) != (want_list || want_tree))
		die(EXIT_INJECT_USAGE, "an image, and fields of it or --list or --populate, are needed: "
		    "try --help");
	path = argv[optind++];
	map_image();
	find_all();
	if (want_tree)
		populate();
	else if (want_list)
		list();
	for (; optind < argc; optind++)
		inject(argv[optind], keep);
	if (munmap(image, image_size) || fflush(stdout) || ferror(stdout))
		die(EXIT_INJECT_FAILED, "standard output, or %s: %s", path, strerror(errno));
	return 0;
}
