// SPDX-License-Identifier: GPL-2.0-only
/*
 * fuzz_mutate.c - mutations of an image that know what stands where, and the
 * repair of checksums, numbers and counts after them, most of the time: an enemy
 * who writes the memory can compute a CRC, too.
 */
#include "fuzz.h"

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t room);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned int seed);
size_t LLVMFuzzerCustomCrossOver(const uint8_t *data1, size_t size1, const uint8_t *data2,
				 size_t size2, uint8_t *out, size_t room, unsigned int seed);

#define PICK(array) ((array)[rnd(TARN_ARRAY_SIZE(array))])

/* The image that is worked on, the first one or the late one. */
static uint8_t *image;
static struct tarn_super sb;		/* the base's, with the uuid that stands there */
static struct tarn_log log;		/* seed, slot and area of the log that counts */

static uint8_t *line_of(uint32_t page, uint32_t line, bool mirror)
{
	return image + (mirror ? tarn_mirror_line_off(&sb, (uint16_t)page, line)
			       : tarn_line_off(&sb, (uint16_t)page, line));
}

static void find_log(void)
{
	struct tarn_current cur;

	sb = fuzz_super;
	memcpy(sb.uuid, image + offsetof(struct tarnfs_super, uuid), sizeof(sb.uuid));
	if (tarn_scan(image == fuzz_image ? fuzz_media() : fuzz_media_late(), &sb, &cur, NULL,
		      NULL) || !cur.generation)
		cur = (struct tarn_current){ .generation = 1, .area_off = sb.area[0].off };
	memset(&log, 0, sizeof(log));
	memcpy(log.seed.uuid, sb.uuid, sizeof(sb.uuid));
	log.seed.generation = cur.generation;
	log.seed.host = cur.host;
	log.slot = cur.slot;
	log.area_off = cur.area_off;
}

/* ---- the log, taken out to be edited ---- */

#define RECORDS 96
#define HEADER TARNFS_LOG_HEADER_LEN

static uint8_t text[FUZZ_LOG] __attribute__((aligned(64)));		/* header and records */
static uint32_t start[RECORDS + 1];	/* of records, in bytes; the last one is the end */
static uint32_t count;

static struct tarnfs_log_header *header(void)
{
	return (struct tarnfs_log_header *)text;
}

static struct tarnfs_record *record(uint32_t i)
{
	return (struct tarnfs_record *)(text + start[i]);
}

static uint32_t length(uint32_t i)
{
	return start[i + 1] - start[i];
}

static void index_records(void)
{
	count = 0;
	start[0] = HEADER;
	while (count < RECORDS && start[count] + TARNFS_LINE <= FUZZ_LOG) {
		uint32_t len = le16toh(record(count)->units) * (uint32_t)TARNFS_LINE;

		if (!len || len > FUZZ_LOG - start[count])
			break;
		start[count + 1] = start[count] + len;
		count++;
	}
}

static void take_log(void)
{
	memcpy(text, image + log.area_off, FUZZ_LOG);
	index_records();
}

static void put_log(void)
{
	memcpy(image + log.area_off, text, FUZZ_LOG);
}

static void insert(uint32_t i, const void *from, uint32_t len)
{
	if (start[count] + len > FUZZ_LOG || count == RECORDS)
		return;
	memmove(text + start[i] + len, text + start[i], start[count] - start[i]);
	memcpy(text + start[i], from, len);
	index_records();
}

static void delete(uint32_t i)
{
	uint32_t len = length(i), end = start[count];

	memmove(text + start[i], text + start[i + 1], end - start[i + 1]);
	memset(text + end - len, 0, len);
	index_records();
}

/* ---- values ---- */

static uint64_t value(void)
{
	const uint64_t known[] = {
		0, 1, 2, 3, 7, 8, 15, 16, 17, 18, 63, 64, 127, 128, 255, 256, 1023, 1024, 4095, 4096,
		0x7fff, 0x8000, 0xffff, 0x10000, TARNFS_BATCH_MAX - 1, TARNFS_INO_JUMP,
		TARNFS_INO_JUMP + 18, TARNFS_HUGE, 999999999, 1000000000, 0x7fffffff, 0x80000000,
		0xffffffff, 0x100000000, TARNFS_SIZE_MAX - 4095, TARNFS_SIZE_MAX - 1, TARNFS_SIZE_MAX,
		TARNFS_SIZE_MAX + 1, UINT64_MAX - 4095, UINT64_MAX - 1, UINT64_MAX,
		sb.data_start, sb.data_end, sb.dev_size, sb.hosts_off, sb.mirror_off,
		sb.area[0].off, sb.area[1].off, sb.area[0].len, fuzz_claim[0].nonce,
		fuzz_claim[2].nonce, sb.data_start + 8192, sb.data_end - 4096, count, start[count] / 64,
	};

	return PICK(known) + (rnd(8) ? 0 : rnd(2) ? 1 : (uint64_t)-1);
}

struct field {
	uint16_t off, width;
};

#define F(type, member) { offsetof(struct type, member), sizeof(((struct type *)0)->member) }

static const struct field super_fields[] = {
	F(tarnfs_super, version), F(tarnfs_super, length), F(tarnfs_super, compat),
	F(tarnfs_super, ro_compat), F(tarnfs_super, incompat), F(tarnfs_super, block_size),
	F(tarnfs_super, dev_size), F(tarnfs_super, data_start), F(tarnfs_super, data_end),
	F(tarnfs_super, hosts_off), F(tarnfs_super, hosts_mirror_off), F(tarnfs_super, hosts),
	F(tarnfs_super, host_stride), F(tarnfs_super, areas), F(tarnfs_super, area_entry),
	F(tarnfs_super, csum), F(tarnfs_super, line_shift), F(tarnfs_super, align_shift),
	F(tarnfs_super, role), F(tarnfs_super, created_nsec), F(tarnfs_super, dev_index),
	F(tarnfs_super, dev_count), F(tarnfs_super, area[0].off), F(tarnfs_super, area[0].len),
	F(tarnfs_super, area[1].off), F(tarnfs_super, area[1].len), F(tarnfs_super, area[2].off),
	F(tarnfs_super, area[2].len), F(tarnfs_super, area[7].off), F(tarnfs_super, area[7].len),
}, header_fields[] = {
	F(tarnfs_log_header, length), F(tarnfs_log_header, generation), F(tarnfs_log_header, host),
	F(tarnfs_log_header, prev_host), F(tarnfs_log_header, flags),
	F(tarnfs_log_header, prev_generation), F(tarnfs_log_header, base_seq),
	F(tarnfs_log_header, next_ino), F(tarnfs_log_header, compat),
	F(tarnfs_log_header, ro_compat), F(tarnfs_log_header, incompat),
	F(tarnfs_log_header, ckpt_records), F(tarnfs_log_header, ckpt_units),
	F(tarnfs_log_header, data_end), F(tarnfs_log_header, data_end),
}, record_fields[] = {
	F(tarnfs_record, type), F(tarnfs_record, class), F(tarnfs_record, flags),
	F(tarnfs_record, units), F(tarnfs_record, fixed), F(tarnfs_record, batch_index),
	F(tarnfs_record, batch_left), F(tarnfs_record, seq),
}, node_fields[] = {
	F(tarnfs_rec_node, ino), F(tarnfs_rec_node, parent), F(tarnfs_rec_node, mtime_sec),
	F(tarnfs_rec_node, mtime_nsec), F(tarnfs_rec_node, uid), F(tarnfs_rec_node, gid),
	F(tarnfs_rec_node, mode), F(tarnfs_rec_node, name_len), F(tarnfs_rec_node, ino),
	F(tarnfs_rec_node, parent), F(tarnfs_rec_node, name_len),
}, file_fields[] = {
	F(tarnfs_rec_file, size), F(tarnfs_rec_file, flags), F(tarnfs_rec_file, layout),
	F(tarnfs_rec_file, extents), { 80, 8 }, { 88, 8 }, { 80, 8 }, { 88, 8 }, { 96, 2 }, { 98, 2 },
	F(tarnfs_rec_symlink, target_len),
}, end_fields[] = {
	F(tarnfs_rec_checkpoint_end, directories), F(tarnfs_rec_checkpoint_end, files),
	F(tarnfs_rec_checkpoint_end, symlinks), F(tarnfs_rec_checkpoint_end, pending_free),
	F(tarnfs_rec_checkpoint_end, hosts), F(tarnfs_rec_checkpoint_end, others),
}, identity_fields[] = {
	F(tarnfs_identity, nonce), F(tarnfs_identity, claims), F(tarnfs_identity, host),
	F(tarnfs_identity, state), F(tarnfs_identity, flags),
}, control_fields[] = {
	F(tarnfs_control, generation), F(tarnfs_control, area_off), F(tarnfs_control, area_len),
	F(tarnfs_control, next_off), F(tarnfs_control, next_len), F(tarnfs_control, host),
	F(tarnfs_control, state), F(tarnfs_control, slot), F(tarnfs_control, next_slot),
	F(tarnfs_control, generation), F(tarnfs_control, state),
}, line_fields[] = {
	F(tarnfs_hoststatus, nonce), F(tarnfs_hoststatus, released),
	F(tarnfs_hoststatus, applied_generation), F(tarnfs_hoststatus, applied_seq),
	F(tarnfs_hoststatus, applied_host), F(tarnfs_hoststatus, flags),
	F(tarnfs_quiesce, final_units), F(tarnfs_quiesce, host),
};

static void change_value(uint8_t *at, uint32_t width)
{
	static const uint64_t steps[] = { 1, 2, 16, 64, 4096, TARNFS_HUGE, TARNFS_AREA_MIN };
	uint64_t v = 0;

	memcpy(&v, at, width);
	switch (rnd(6)) {
	case 0:
		v ^= 1ULL << rnd(8 * width);
		break;
	case 1:
		v += PICK(steps);
		break;
	case 2:
		v -= PICK(steps);
		break;
	case 3:
		v = rnd(2) ? rnd(32) : rng >> (64 - 8 * width);
		break;
	default:
		v = value();
		break;
	}
	memcpy(at, &v, width);
}

#define CHANGE(at, fields) change_one(at, fields, TARN_ARRAY_SIZE(fields))

static void change_one(uint8_t *at, const struct field *fields, size_t n)
{
	const struct field *f = &fields[rnd((uint32_t)n)];

	change_value(at + f->off, f->width);
}

/* Bytes that are no field, too: all fields are aligned. */
static void change_field(uint8_t *at, uint32_t len)
{
	static const uint32_t widths[] = { 1, 2, 4, 8 };
	uint32_t width = PICK(widths);

	change_value(at + rnd(len / width) * width, width);
}

static void change_record(uint8_t *at, uint32_t len)
{
	uint16_t type = le16toh(((struct tarnfs_record *)at)->type);

	switch (rnd(8)) {
	case 0:
		change_field(at, len < 128 ? len : 128);
		break;
	case 1:
	case 2:
		CHANGE(at, record_fields);
		break;
	default:
		if (type == TARNFS_REC_CHECKPOINT_END)
			CHANGE(at, end_fields);
		else if (type == TARNFS_REC_DIRECTORY || len < 128 || rnd(2))
			CHANGE(at, node_fields);
		else
			CHANGE(at, file_fields);
		break;
	}
}

static void change_line(uint8_t *at, uint32_t line)
{
	if (!rnd(4) || line > TARNFS_LINE_QUIESCE)
		change_field(at, TARNFS_LINE);
	else if (line == TARNFS_LINE_IDENTITY)
		CHANGE(at, identity_fields);
	else if (line == TARNFS_LINE_CONTROL)
		CHANGE(at, control_fields);
	else
		CHANGE(at, line_fields);
}

static void change_bytes(uint8_t *at, uint32_t len)
{
	uint8_t buf[256];

	if (len > sizeof(buf))
		len = sizeof(buf);
	memcpy(buf, at, len);
	LLVMFuzzerMutate(buf, len, len);
	memcpy(at, buf, len);
}

/* ---- records ---- */

static uint64_t some_ino(bool directory)
{
	uint64_t found = TARNFS_INO_ROOT;

	for (uint32_t tries = 0; tries < 4 && count; tries++) {
		uint32_t i = rnd(count);
		uint16_t type = le16toh(record(i)->type);

		if (type < TARNFS_REC_DIRECTORY || type > TARNFS_REC_SYMLINK)
			continue;
		found = le64toh(((struct tarnfs_rec_node *)record(i))->ino);
		if (!directory || type == TARNFS_REC_DIRECTORY)
			break;
	}
	return found;
}

static uint64_t next_ino(void)
{
	uint64_t most = TARNFS_INO_FIRST;

	for (uint32_t i = 0; i < count; i++) {
		uint16_t type = le16toh(record(i)->type);
		uint64_t ino = le64toh(((struct tarnfs_rec_node *)record(i))->ino);

		if (type >= TARNFS_REC_DIRECTORY && type <= TARNFS_REC_SYMLINK && ino > most &&
		    ino < 2 * TARNFS_INO_JUMP)
			most = ino;
	}
	return most + 1;
}

static void new_node(void)
{
	static const char name[TARNFS_NAME_MAX + 1] = "a name that is as long as one can be";
	static const char *const names[] = { "a", "b", "c", "d", "f", "one", "old", "in it", "...",
					     "\n", "\x1b[2J", "\xc3\xa9", "%s%n" };
	static const uint64_t sizes[] = { 0, 1, 4095, 4096, 4097, 5000, 65536, TARNFS_HUGE - 1,
					  TARNFS_HUGE, TARNFS_HUGE + 1, 2 * TARNFS_HUGE };
	static char target[TARNFS_TARGET_MAX];
	struct tarn_rec rec = {
		.type = (uint16_t)(1 + rnd(3)), .seq = 1, .mode = 0644, .uid = 1000, .gid = 100,
		.mtime_sec = -5, .mtime_nsec = 999999999,
		.ino = rnd(8) ? next_ino() : some_ino(false), .parent = some_ino(rnd(8)),
	};
	uint8_t buf[5000];

	if (rnd(8)) {
		rec.name = PICK(names);
		rec.name_len = (uint16_t)strlen(rec.name);
	} else {
		/* the padding is NULs, which no name has */
		memcpy(target, name, sizeof(name));
		memset(target + strlen(name), 'x', sizeof(target) - strlen(name));
		rec.name = target;
		rec.name_len = (uint16_t)(200 + rnd(56));
	}
	if (rec.type == TARNFS_REC_SYMLINK) {
		memset(target, 't', sizeof(target));
		rec.target = target;
		rec.target_len = (uint16_t)(rnd(8) ? 1 + rnd(64) : 1 + rnd(TARNFS_TARGET_MAX));
		if (rec.name == target)
			memset(target, 'x', sizeof(target));
	}
	if (rec.type == TARNFS_REC_FILE) {
		uint64_t step = rnd(8) ? TARNFS_BLOCK : TARNFS_HUGE;

		rec.size = PICK(sizes);
		rec.extents = rec.size ? 1 : 0;
		if (rec.size >= TARNFS_HUGE)
			step = TARNFS_HUGE;
		rec.ext_off = !rec.size ? 0 : !rnd(16) ? sb.data_end :
			sb.data_start + rnd(step == TARNFS_HUGE ? 5 : 64) * step;
		rec.ext_len = tarn_round_up(rec.size, TARNFS_BLOCK);
	}
	if (tarn_rec_encode(buf, sizeof(buf), &rec, &log.seed))
		return;
	insert(rnd(3) ? count : rnd(count + 1), buf, tarn_rec_units(&rec) * TARNFS_LINE);
}

static void new_other(void)
{
	struct tarn_rec rec = { .type = TARNFS_REC_HOST, .seq = 1, .host = (uint16_t)rnd(4),
				.host_flags = (uint16_t)rnd(8), .nonce = fuzz_claim[rnd(3)].nonce };
	struct tarnfs_record *raw;
	uint8_t buf[TARNFS_LINE * 2] __attribute__((aligned(8)));

	if (tarn_rec_encode(buf, sizeof(buf), &rec, &log.seed))
		return;
	raw = (struct tarnfs_record *)buf;
	if (rnd(2)) {
		/* one that is not known, or not built */
		raw->type = htole16((uint16_t)rnd(24));
		raw->class = (uint8_t)rnd(4);
		memset(buf + sizeof(*raw), 0, sizeof(buf) - sizeof(*raw));
		raw->units = htole16(1);
		raw->fixed = htole16((uint16_t)(rnd(2) ? 64 : rnd(200)));
		insert(rnd(count + 1), buf, TARNFS_LINE);
		return;
	}
	insert(rnd(count + 1), buf, sizeof(buf));
}

static void resize(uint32_t i)
{
	uint32_t units = rnd(8) ? le16toh(record(i)->units) + 1 - rnd(3) : (uint32_t)value();

	record(i)->units = htole16((uint16_t)units);
}

/* Another line at its end, with a tagged value in it. */
static void add_tlv(uint32_t i)
{
	uint8_t buf[TARNFS_LINE] __attribute__((aligned(8))) = { 0 };
	struct tarnfs_tlv *tlv = (struct tarnfs_tlv *)buf;
	uint32_t end = start[i + 1];

	if (start[count] + TARNFS_LINE > FUZZ_LOG)
		return;
	tlv->tag = htole16((uint16_t)rnd(4));
	tlv->class = (uint8_t)rnd(4);
	tlv->length = htole32(rnd(4) ? rnd(70) : (uint32_t)value());
	memmove(text + end + TARNFS_LINE, text + end, start[count] - end);
	memcpy(text + end, buf, sizeof(buf));
	record(i)->units = htole16((uint16_t)(le16toh(record(i)->units) + 1));
	index_records();
}

static void swap_records(uint32_t i)
{
	static uint8_t buf[FUZZ_LOG];
	uint32_t len = length(i), next;

	if (i + 1 >= count)
		return;
	next = length(i + 1);
	memcpy(buf, text + start[i], len);
	memmove(text + start[i], text + start[i + 1], next);
	memcpy(text + start[i] + next, buf, len);
	index_records();
}

static void copy_record(uint32_t i)
{
	static uint8_t buf[FUZZ_LOG];
	uint32_t len = length(i);

	memcpy(buf, text + start[i], len);
	insert(rnd(count + 1), buf, len);
}

static void shape_batch(uint32_t i)
{
	record(i)->batch_index = htole16((uint16_t)rnd(3));
	record(i)->batch_left = htole16((uint16_t)(rnd(16) ? rnd(6) : (uint32_t)value()));
}

static void change_log(void)
{
	uint32_t i, what;

	take_log();
	what = count ? rnd(16) : 6;
	i = count ? rnd(count) : 0;
	switch (what) {
	case 0:
	case 1:
	case 2:
		change_record(text + start[i], length(i));
		break;
	case 3:
		change_bytes(text + start[i] + 24, length(i) - 24);
		break;
	case 4:
		delete(i);
		break;
	case 5:
		copy_record(i);
		break;
	case 6:
	case 7:
	case 8:
	case 9:
		new_node();
		break;
	case 10:
		new_other();
		break;
	case 11:
		resize(i);
		break;
	case 12:
		add_tlv(i);
		break;
	case 13:
		swap_records(i);
		break;
	case 14:
		shape_batch(i);
		break;
	default:
		if (rnd(8))
			CHANGE(text, header_fields);
		else
			change_field(text, HEADER);
		break;
	}
	put_log();
}

/* ---- lines and superblocks ---- */

static void new_control(void)
{
	const struct tarn_control c = {
		.generation = rnd(16) ? 1 + rnd(3) : value(),
		.state = (uint8_t)(rnd(4) ? 1 + rnd(2) : 0), .slot = (uint8_t)(rnd(4) ? 0 : rnd(8)),
		.area_off = sb.area[rnd(2)].off, .area_len = sb.area[0].len,
	};
	struct tarnfs_control raw;
	uint32_t page = rnd(FUZZ_PAGES);
	uint64_t was = log.area_off;

	tarn_control_encode(&raw, &c, (uint16_t)page, sb.uuid);
	memcpy(line_of(page, TARNFS_LINE_CONTROL, false), &raw, sizeof(raw));
	if (rnd(4))
		memcpy(line_of(page, TARNFS_LINE_CONTROL, true), &raw, sizeof(raw));
	/* the log goes along, most of the time */
	find_log();
	if (log.area_off != was && rnd(4))
		memmove(image + log.area_off, image + was, FUZZ_LOG);
}

static void new_identity(void)
{
	struct tarn_identity id = { .state = (uint8_t)rnd(3), .claims = rnd(4) };
	struct tarnfs_identity raw;
	uint32_t page = rnd(FUZZ_PAGES);

	if (id.state != TARNFS_PAGE_FREE || !rnd(4)) {
		id.nonce = rnd(2) ? fuzz_claim[page].nonce : value();
		memcpy(id.host_uuid, fuzz_host[rnd(FUZZ_PAGES)].uuid, sizeof(id.host_uuid));
		memcpy(id.boot_id, fuzz_host[rnd(FUZZ_PAGES)].boot_id, sizeof(id.boot_id));
	}
	tarn_identity_encode(&raw, &id, (uint16_t)page, sb.uuid);
	memcpy(line_of(page, TARNFS_LINE_IDENTITY, rnd(2)), &raw, sizeof(raw));
}

static void change_page(void)
{
	uint32_t page = rnd(FUZZ_PAGES), line = rnd(8) ? rnd(8) : rnd(64);
	bool mirror = line < 2 && !rnd(4);
	uint8_t *at = line_of(page, line, mirror);

	switch (rnd(8)) {
	case 0:
		memset(at, 0, TARNFS_LINE);
		break;
	case 1:
		memcpy(at, line_of(rnd(FUZZ_PAGES), rnd(4) ? line : rnd(16), false), TARNFS_LINE);
		break;
	case 2:
		change_bytes(at, TARNFS_LINE);
		break;
	case 3:
		new_control();
		break;
	case 4:
		new_identity();
		break;
	default:
		change_line(at, line);
		break;
	}
}

static void change_super(void)
{
	uint8_t *at = image + (rnd(4) ? TARNFS_SUPER_OFF : TARNFS_SUPER2_OFF);

	switch (rnd(8)) {
	case 0:
		memcpy(image + TARNFS_SUPER2_OFF, image, TARNFS_SUPER_LEN);
		break;
	case 1:
		change_bytes(at + rnd(8) * TARNFS_LINE, TARNFS_LINE);
		break;
	case 2:
		memset(at, 0, TARNFS_SUPER_LEN);
		break;
	default:
		if (rnd(4))
			CHANGE(at, super_fields);
		else
			change_field(at, TARNFS_SUPER_LEN);
		break;
	}
}

static void change_commit(void)
{
	uint32_t units;
	uint64_t word;

	take_log();
	units = rnd(2) ? start[rnd(count + 1)] / TARNFS_LINE
		       : rnd(4) ? start[count] / TARNFS_LINE + 3 - rnd(6) : (uint32_t)value();
	word = tarn_commit_word(&log.seed, log.slot, units);
	memcpy(line_of(log.seed.host, TARNFS_LINE_COMMIT + log.slot, false), &word, sizeof(word));
}

static void change_between(void)
{
	uint32_t n = rnd(FUZZ_LINES - 2);

	if (fuzz_line_off(n) < FUZZ_IMAGE - TARNFS_LINE && fuzz_line_at(fuzz_line_off(n)) == n)
		change_bytes(image + fuzz_line_off(n), TARNFS_LINE);
}

/* ---- repair ---- */

static void seal(uint8_t *at, const uint8_t *was)
{
	uint32_t crc;

	if (!memcmp(at, was, TARNFS_LINE))
		return;
	memset(at + 60, 0, 4);
	crc = htole32(tarn_crc32c(tarn_crc32c(0, sb.uuid, 16), at, TARNFS_LINE));
	memcpy(at + 60, &crc, 4);
}

static void repair_lines(void)
{
	const uint8_t *base = fuzz_base;

	for (uint32_t page = 0; page < FUZZ_PAGES; page++)
		for (uint32_t line = 0; line <= TARNFS_LINE_QUIESCE; line++) {
			uint8_t *at = line_of(page, line, false);

			seal(at, base + (at - image));
			at = line_of(page, line, true);
			if (line <= TARNFS_LINE_CONTROL)
				seal(at, base + (at - image));
		}
}

static void repair_super(uint64_t off)
{
	struct tarnfs_super *raw = (struct tarnfs_super *)(image + off);

	raw->crc = 0;
	raw->crc = htole32(tarn_crc32c(0, raw, sizeof(*raw)));
}

/* Ordinals, sequence numbers, batches and counts as they have to be. */
static void renumber(void)
{
	struct tarnfs_rec_checkpoint_end n = { 0 }, *end;
	uint64_t dirs = 0, files = 0, symlinks = 0, seq;
	uint32_t hosts = 0, others = 0, i, index = 0, left = 0;

	for (i = 0; i < count; i++) {
		uint16_t type = le16toh(record(i)->type);

		record(i)->flags |= TARNFS_RECORD_CKPT;
		record(i)->seq = htole64(i + 1);
		record(i)->batch_index = record(i)->batch_left = 0;
		dirs += type == TARNFS_REC_DIRECTORY;
		files += type == TARNFS_REC_FILE;
		symlinks += type == TARNFS_REC_SYMLINK;
		hosts += type == TARNFS_REC_HOST;
		if (type == TARNFS_REC_CHECKPOINT_END)
			break;
		others += type > TARNFS_REC_SYMLINK && type != TARNFS_REC_HOST &&
			  type != TARNFS_REC_PENDING_FREE;
	}
	if (i == count)
		return;
	end = (struct tarnfs_rec_checkpoint_end *)record(i);
	end->directories = htole64(dirs);
	end->files = htole64(files);
	end->symlinks = htole64(symlinks);
	end->pending_free = n.pending_free;
	end->hosts = htole32(hosts);
	end->others = htole32(others);
	header()->ckpt_records = htole64(i + 1);
	header()->ckpt_units = htole32((start[i + 1] - HEADER) / TARNFS_LINE);
	seq = le64toh(header()->base_seq);
	for (i++; i < count; i++) {
		struct tarnfs_record *rec = record(i);

		rec->flags &= (uint8_t)~TARNFS_RECORD_CKPT;
		rec->seq = htole64(++seq);
		if (!left) {
			index = 0;
			left = le16toh(rec->batch_left);
		} else {
			index++;
			left--;
		}
		if (left > count - 1 - i)
			left = count - 1 - i;
		rec->batch_index = htole16((uint16_t)index);
		rec->batch_left = htole16((uint16_t)left);
	}
}

static void repair_log(bool deep)
{
	uint8_t *commit = line_of(log.seed.host, TARNFS_LINE_COMMIT + log.slot, false);
	uint32_t units;
	uint64_t word;

	take_log();
	if (deep)
		renumber();
	if (rnd(16)) {
		header()->generation = htole64(log.seed.generation);
		header()->host = htole16(log.seed.host);
		memcpy(header()->uuid, log.seed.uuid, sizeof(header()->uuid));
	}
	if (log.seed.generation > 1 && deep)
		header()->prev_generation = htole64(log.seed.generation - 1);
	header()->crc = htole32(tarn_log_crc(&log.seed, text, HEADER,
					     offsetof(struct tarnfs_log_header, crc)));
	for (uint32_t i = 0; i < count; i++)
		record(i)->crc = htole32(tarn_log_crc(&log.seed, record(i), length(i),
						      offsetof(struct tarnfs_record, crc)));
	put_log();
	memcpy(&word, commit, sizeof(word));
	units = deep ? start[count] / TARNFS_LINE : (uint32_t)le64toh(word);
	word = tarn_commit_word(&log.seed, log.slot, units);
	memcpy(commit, &word, sizeof(word));
}

static void repair(void)
{
	find_log();
	if (rnd(16))
		repair_super(TARNFS_SUPER_OFF);
	if (rnd(16))
		repair_super(TARNFS_SUPER2_OFF);
	if (rnd(16))
		repair_lines();
	/* a control line may count only now */
	find_log();
	if (rnd(16))
		repair_log(rnd(4) != 0);
}

/* ---- what libFuzzer calls ---- */

/* Which of the structures a target looks at most; others still come. */
extern const uint8_t fuzz_weights[4];	/* log, pages, superblocks, anything */

static void mutate_image(void)
{
	uint32_t sum = 0, at;

	find_log();
	for (int i = 0; i < 4; i++)
		sum += fuzz_weights[i];
	at = rnd(sum);
	if (at < fuzz_weights[0]) {
		if (rnd(8))
			change_log();
		else
			change_commit();
	} else if (at < fuzz_weights[0] + fuzz_weights[1]) {
		change_page();
	} else if (at < sum - fuzz_weights[3]) {
		change_super();
	} else {
		change_between();
	}
}

static void begin(const uint8_t *data, size_t size, struct fuzz_input *in, unsigned int seed)
{
	fuzz_image_init();
	rnd_seed(seed);
	rnd(2);
	fuzz_image_load(data, size, in);
	if (in->when)
		fuzz_image_fill_late();
	image = fuzz_image;
}

static size_t finish(uint8_t *data, size_t room, const struct fuzz_input *in)
{
	size_t size = fuzz_image_store(data, room, in);

	/* put back: the edits are not noted anywhere */
	memcpy(fuzz_image, fuzz_base, sb.area[0].off + FUZZ_LOG);
	memcpy(fuzz_image + sb.area[1].off, fuzz_base + sb.area[1].off, FUZZ_LOG);
	fuzz_image_reset();
	return size;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned int seed)
{
	struct fuzz_input in;

	/* most of what is kept has a fault; what one alone does is seen from the base */
	begin(data, seed % 6 ? size : 0, &in, seed);
	find_log();
	if (!rnd(32)) {
		finish(data, 0, &in);
		return LLVMFuzzerMutate(data, size, room);
	}
	if (!rnd(8))
		in.opt[rnd(3)] = (uint8_t)(rnd(2) ? rnd(8) : rnd(256));
	if (!rnd(16)) {
		in.when = (uint8_t)(rnd(2) ? 0 : rnd(2) ? 1 + rnd(32) : rnd(256));
		fuzz_image_fill_late();
	}
	if (in.when && rnd(2))
		image = fuzz_late;
	for (uint32_t n = 1 + rnd(4); n; n--)
		mutate_image();
	if (rnd(16))
		repair();
	return finish(data, room, &in);
}

size_t LLVMFuzzerCustomCrossOver(const uint8_t *data1, size_t size1, const uint8_t *data2,
				 size_t size2, uint8_t *out, size_t room, unsigned int seed)
{
	static uint8_t other[FUZZ_IMAGE];
	struct fuzz_input in;
	uint32_t from, to;

	begin(data2, size2, &in, seed);
	find_log();
	memcpy(other, fuzz_image, fuzz_super.area[0].off + FUZZ_LOG);
	memcpy(other + fuzz_super.area[1].off, fuzz_image + fuzz_super.area[1].off, FUZZ_LOG);
	finish(out, 0, &in);
	begin(data1, size1, &in, seed);
	/* the log, or the pages, or any lines of the other */
	from = rnd(2) ? fuzz_line_at(fuzz_super.area[0].off) : rnd(600);
	to = from + 1 + rnd(rnd(2) ? 400 : 16);
	for (; from < to && from < FUZZ_LINES; from++)
		if (fuzz_line_at(fuzz_line_off(from)) == from)
			memcpy(fuzz_image + fuzz_line_off(from), other + fuzz_line_off(from),
			       TARNFS_LINE);
	if (rnd(16))
		repair();
	else
		find_log();
	return finish(out, room, &in);
}
