// SPDX-License-Identifier: GPL-2.0-only
/*
 * fsck finds each fault that is planted, by its number and no other; nothing in
 * what is whole, be it changed meanwhile; never calls clean what a checksum or a
 * zero covers and has changed; and bears whatever stands on the media. What it
 * repairs is as good as before, once and for all.
 */
#include "records.h"
#include "testkernel.h"
#include "fsck.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#define MIB (1ULL << 20)
#define HOSTS 3
#define NONCE 0x1122334455667788ULL

static struct memory *mem;
static uint8_t *bytes;
static struct tarn_super sb;
static struct tarn_seed seed;
static uint32_t units;			/* committed, of the log of build_log() */
static uint64_t log_area;

/* ---- media without caches ---- */

static struct flat {
	struct tarn_media media;
	uint64_t poison;		/* UINT64_MAX: none */
	void (*hook)(uint64_t off, size_t len);	/* before each read */
} flat;

static int flat_read(struct tarn_media *m, uint64_t off, void *buf, size_t len)
{
	if (flat.hook)
		flat.hook(off, len);
	if (flat.poison - off < len) {
		m->bad = flat.poison;
		return -EIO;
	}
	memcpy(buf, bytes + off, len);
	return 0;
}

static int flat_read64(struct tarn_media *m, uint64_t off, uint64_t *value)
{
	return flat_read(m, off, value, sizeof(*value));
}

static int flat_invalidate(struct tarn_media *m, uint64_t off, size_t len)
{
	(void)m;
	(void)off;
	(void)len;
	return 0;
}

static const struct tarn_media_ops flat_ops = {
	.read = flat_read, .read64 = flat_read64, .invalidate = flat_invalidate,
};

/* ---- running it ---- */

static bool provoked[1000];
static unsigned int found[64];
static size_t nr_found;
static char texts[16384];
static uint64_t found_off;

static void on_finding(void *arg, const struct tarn_fsck_finding *f)
{
	size_t len = strlen(texts);

	(void)arg;
	assert_true(f->number < 1000);
	if (nr_found < TARN_ARRAY_SIZE(found))
		found[nr_found] = f->number;
	nr_found++;
	found_off = f->off;
	snprintf(texts + len, sizeof(texts) - len, "%u at 0x%llx: %s\n", f->number,
		 (unsigned long long)f->off, f->text);
}

static struct tarn_err err;

static int run_on(struct tarn_media *m, struct tarn_fsck *f)
{
	f->dev_size = sb.dev_size;
	f->finding = on_finding;
	nr_found = 0;
	texts[0] = '\0';
	err.text[0] = '\0';
	return tarn_fsck(f, m, &err);
}

static struct tarn_fsck run(void)
{
	struct tarn_fsck f = { 0 };
	int ret = run_on(&flat.media, &f);

	if (ret)
		fail_msg("fsck: %d: %s", ret, err.text);
	return f;
}

/* Just these numbers, in ascending order, each as often as it stands there; 0 ends them. */
static void assert_found(const unsigned int *numbers)
{
	size_t count = 0;

	run();
	while (numbers[count])
		count++;
	if (nr_found != count || memcmp(found, numbers, count * sizeof(*numbers)))
		fail_msg("wanted %zu findings, the first %u; found:\n%s", count, numbers[0], texts);
	for (size_t i = 0; i < count; i++)
		provoked[numbers[i]] = true;
}

static void assert_clean(void)
{
	const unsigned int none[] = { 0 };

	assert_found(none);
}

/* ---- making images ---- */

static void seal(uint64_t off)
{
	uint32_t crc;

	memset(bytes + off + 60, 0, 4);
	crc = htole32(tarn_crc32c(tarn_crc32c(0, sb.uuid, 16), bytes + off, TARNFS_LINE));
	memcpy(bytes + off + 60, &crc, 4);
}

static void seal_super(uint64_t off)
{
	struct tarnfs_super *raw = (struct tarnfs_super *)(bytes + off);

	raw->crc = 0;
	raw->crc = htole32(tarn_crc32c(0, raw, sizeof(*raw)));
}

static struct tarnfs_log_header *header(void)
{
	return (struct tarnfs_log_header *)(bytes + log_area);
}

static void seal_header(void)
{
	header()->crc = htole32(tarn_log_crc(&seed, header(), sizeof(*header()),
					     offsetof(struct tarnfs_log_header, crc)));
}

static void *at(uint32_t unit)
{
	return bytes + log_area + (uint64_t)unit * TARNFS_LINE;
}

static void seal_record(uint32_t unit)
{
	struct tarnfs_record *rec = at(unit);

	rec->crc = htole32(tarn_log_crc(&seed, rec, (size_t)le16toh(rec->units) * TARNFS_LINE,
					offsetof(struct tarnfs_record, crc)));
}

static void commit(uint32_t to)
{
	uint64_t word = tarn_commit_word(&seed, 0, to);

	memcpy(bytes + tarn_line_off(&sb, seed.host, TARNFS_LINE_COMMIT), &word, 8);
	units = to;
}

/* At the end of the log; committed by commit(). */
static void put(const struct tarn_rec *rec)
{
	assert_int_equal(tarn_rec_encode(at(units), MIB / 2, rec, &seed), 0);
	units += tarn_rec_units(rec);
}

/* Where the records of build_log() stand. */
enum { C_ROOT = 4, C_DIR = 5, C_FILE = 7, C_END = 9, R_DIR = 10, R_FILE = 12, R_LINK = 14,
       R_BATCH = 16, R_END = 20 };

static void put_control(uint16_t page, const struct tarn_control *c)
{
	struct tarnfs_control raw;

	tarn_control_encode(&raw, c, page, sb.uuid);
	memcpy(bytes + tarn_line_off(&sb, page, TARNFS_LINE_CONTROL), &raw, sizeof(raw));
	memcpy(bytes + tarn_mirror_line_off(&sb, page, TARNFS_LINE_CONTROL), &raw, sizeof(raw));
}

static void put_identity(uint16_t page, const struct tarn_identity *id)
{
	struct tarnfs_identity raw;

	tarn_identity_encode(&raw, id, page, sb.uuid);
	memcpy(bytes + tarn_line_off(&sb, page, TARNFS_LINE_IDENTITY), &raw, sizeof(raw));
	memcpy(bytes + tarn_mirror_line_off(&sb, page, TARNFS_LINE_IDENTITY), &raw, sizeof(raw));
}

/* A checkpoint with a directory and a file, then records up to seq 5. */
static void build_log(uint16_t host, uint64_t generation, int area)
{
	struct tarn_log log = {
		.base_seq = 0, .next_ino = 18, .data_end = sb.data_end, .ckpt_records = 4,
		.ckpt_units = R_DIR - C_ROOT, .prev_generation = generation - 1,
	};
	struct tarn_rec rec;

	memcpy(seed.uuid, sb.uuid, 16);
	seed.generation = generation;
	seed.host = host;
	log.seed = seed;
	log_area = sb.area[area].off;
	tarn_log_header_encode(header(), &log, NONCE, 1700000000);
	units = C_ROOT;
	rec = record_node(TARNFS_REC_DIRECTORY, 1, 1, 1, "");
	rec.flags = TARNFS_RECORD_CKPT;
	put(&rec);
	rec = record_node(TARNFS_REC_DIRECTORY, 2, 16, 1, "old");
	rec.flags = TARNFS_RECORD_CKPT;
	put(&rec);
	rec = record_file(&sb, 3, 17, 16, "in it", 5000, 0);
	rec.flags = TARNFS_RECORD_CKPT;
	put(&rec);
	rec = (struct tarn_rec){ .type = TARNFS_REC_CHECKPOINT_END, .flags = TARNFS_RECORD_CKPT,
				 .seq = 4, .directories = 2, .files = 1 };
	put(&rec);
	assert_int_equal(units, R_DIR);
	rec = record_node(TARNFS_REC_DIRECTORY, 1, 20, 1, "d");
	put(&rec);
	rec = record_file(&sb, 2, 21, 20, "f", 4096, 8192);
	put(&rec);
	rec = record_node(TARNFS_REC_SYMLINK, 3, 22, 20, "l");
	rec.target = "../f";
	rec.target_len = 4;
	put(&rec);
	rec = record_file(&sb, 4, 23, 1, "one", 1, 12288);
	rec.batch_left = 1;
	put(&rec);
	rec = record_file(&sb, 5, 24, 1, "two", 0, 0);
	rec.batch_index = 1;
	put(&rec);
	assert_int_equal(units, R_END);
	commit(units);
	put_control(host, &(struct tarn_control){ .generation = generation,
						  .state = TARNFS_CONTROL_ACTIVE,
						  .area_off = sb.area[area].off,
						  .area_len = sb.area[area].len });
}

static int setup(void **state)
{
	(void)state;
	mem = test_mkfs(&sb, HOSTS, MIB, 4 * MIB, test_owner);
	bytes = memory_bytes(mem);
	flat = (struct flat){ .media = { .ops = &flat_ops, .size = sb.data_start },
			      .poison = UINT64_MAX };
	build_log(0, 1, 0);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	memory_free(mem);
	return 0;
}

/* ---- faults: superblocks ---- */

static void poisoned(void) { flat.poison = tarn_line_off(&sb, 1, TARNFS_LINE_COMMIT) + 60; }
static void super_first(void) { bytes[100] ^= 1; }
static void super_second(void) { bytes[TARNFS_SUPER2_OFF + 100] ^= 1; }

static void super_differ(void)
{
	bytes[TARNFS_SUPER2_OFF + offsetof(struct tarnfs_super, label)] = 'x';
	seal_super(TARNFS_SUPER2_OFF);
}

static void super_foreign(void)
{
	super_first();
	bytes[TARNFS_SUPER2_OFF + offsetof(struct tarnfs_super, uuid)] ^= 1;
	seal_super(TARNFS_SUPER2_OFF);
}

static void super_newer(void)
{
	bytes[offsetof(struct tarnfs_super, zero2)] = 1;
	seal_super(0);
}

static void super_size(void)
{
	for (uint64_t off = 0; off <= TARNFS_SUPER2_OFF; off += TARNFS_SUPER2_OFF) {
		((struct tarnfs_super *)(bytes + off))->dev_size = htole64(sb.dev_size + MIB);
		seal_super(off);
	}
}

/* ---- host pages ---- */

static uint8_t *line(uint16_t page, unsigned int n)
{
	return bytes + tarn_line_off(&sb, page, n);
}

static uint8_t *mirror(uint16_t page, unsigned int n)
{
	return bytes + tarn_mirror_line_off(&sb, page, n);
}

static void seal_line(uint16_t page, unsigned int n)
{
	seal(tarn_line_off(&sb, page, n));
}

/* Page 1 is claimed by a host that has applied all. */
static void claim_page(uint16_t page)
{
	struct tarn_identity id = { .nonce = NONCE, .claims = 7, .state = TARNFS_PAGE_CLAIMED };
	struct tarnfs_hoststatus status = { .nonce = htole64(NONCE), .released = htole64(5),
					    .applied_generation = htole64(1),
					    .applied_seq = htole64(5) };
	struct tarnfs_quiesce quiesce = { .nonce = htole64(NONCE), .host = htole16(page) };
	struct tarnfs_window window = { .nonce = htole64(NONCE) };

	memset(id.host_uuid, 0x40 + page, 16);
	put_identity(page, &id);
	memcpy(line(page, TARNFS_LINE_STATUS), &status, sizeof(status));
	memcpy(line(page, TARNFS_LINE_QUIESCE), &quiesce, sizeof(quiesce));
	memcpy(line(page, TARNFS_LINE_WINDOW), &window, sizeof(window));
	seal_line(page, TARNFS_LINE_STATUS);
	seal_line(page, TARNFS_LINE_QUIESCE);
	seal_line(page, TARNFS_LINE_WINDOW);
}

static void identity_page(void) { line(0, TARNFS_LINE_IDENTITY)[9] ^= 1; }
static void identity_mirror(void) { mirror(2, TARNFS_LINE_IDENTITY)[9] ^= 1; }
static void identity_both(void) { identity_page(); mirror(0, TARNFS_LINE_IDENTITY)[63] ^= 1; }

static void identity_field(void)
{
	line(0, TARNFS_LINE_IDENTITY)[offsetof(struct tarnfs_identity, flags)] = 1;
	seal_line(0, TARNFS_LINE_IDENTITY);
}

static void identity_cut(void)
{
	claim_page(1);
	line(1, TARNFS_LINE_IDENTITY)[offsetof(struct tarnfs_identity, claims)]++;
	seal_line(1, TARNFS_LINE_IDENTITY);
}

static void identity_differ(void)
{
	claim_page(1);
	line(1, TARNFS_LINE_IDENTITY)[offsetof(struct tarnfs_identity, boot_id)]++;
	seal_line(1, TARNFS_LINE_IDENTITY);
}

static void control_page(void) { line(0, TARNFS_LINE_CONTROL)[0] ^= 1; }
static void control_mirror(void) { mirror(0, TARNFS_LINE_CONTROL)[59] ^= 1; }

static void control_both(void)
{
	line(1, TARNFS_LINE_CONTROL)[0] ^= 1;
	mirror(1, TARNFS_LINE_CONTROL)[0] ^= 2;
}

static void control_old_mirror(void)
{
	struct tarnfs_control raw;

	tarn_control_encode(&raw, &(struct tarn_control){ 0 }, 0, sb.uuid);
	memcpy(mirror(0, TARNFS_LINE_CONTROL), &raw, sizeof(raw));
}

static void no_log(void) { put_control(0, &(struct tarn_control){ 0 }); }

static void two_logs(void)
{
	build_log(2, 1, 1);
	header()->prev_host = 0;
	seal_header();
}

static void sealing(void)
{
	put_control(1, &(struct tarn_control){ .generation = 2, .state = TARNFS_CONTROL_SEALING,
					       .area_off = sb.area[1].off,
					       .area_len = sb.area[1].len });
}

/* Of one generation the higher page counts, sealing or active. */
static void sealing_same(void)
{
	put_control(1, &(struct tarn_control){ .generation = 1, .state = TARNFS_CONTROL_SEALING,
					       .area_off = sb.area[1].off,
					       .area_len = sb.area[1].len });
}

static void status_line(void) { claim_page(1); line(1, TARNFS_LINE_STATUS)[8] ^= 1; }
static void quiesce_line(void) { claim_page(1); line(1, TARNFS_LINE_QUIESCE)[8] ^= 1; }
static void window_line(void) { claim_page(1); line(1, TARNFS_LINE_WINDOW)[8] ^= 1; }

static void status_flags(void)
{
	claim_page(1);
	line(1, TARNFS_LINE_STATUS)[offsetof(struct tarnfs_hoststatus, flags)] = 1;
	seal_line(1, TARNFS_LINE_STATUS);
}

static void status_released(void)
{
	claim_page(1);
	line(1, TARNFS_LINE_STATUS)[offsetof(struct tarnfs_hoststatus, released)] = 6;
	seal_line(1, TARNFS_LINE_STATUS);
}

static void window_used(void)
{
	claim_page(1);
	line(1, TARNFS_LINE_WINDOW)[offsetof(struct tarnfs_window, range)] = 6;
	seal_line(1, TARNFS_LINE_WINDOW);
}

static void quiesce_host(void)
{
	claim_page(1);
	line(1, TARNFS_LINE_QUIESCE)[offsetof(struct tarnfs_quiesce, host)] = 2;
	seal_line(1, TARNFS_LINE_QUIESCE);
}

static void other_nonce(void)
{
	claim_page(1);
	line(1, TARNFS_LINE_STATUS)[0] ^= 1;
	seal_line(1, TARNFS_LINE_STATUS);
}

static void contending(void) { claim_page(1); line(1, TARNFS_LINE_CONTEND)[0] = 1; }

static void status_ahead(void)
{
	claim_page(1);
	line(1, TARNFS_LINE_STATUS)[offsetof(struct tarnfs_hoststatus, applied_seq)] = 6;
	seal_line(1, TARNFS_LINE_STATUS);
}

static void status_generation(void)
{
	claim_page(1);
	line(1, TARNFS_LINE_STATUS)[offsetof(struct tarnfs_hoststatus, applied_generation)] = 2;
	seal_line(1, TARNFS_LINE_STATUS);
}

static void quiesced(uint64_t seq, uint32_t final_units)
{
	struct tarnfs_quiesce quiesce = { .nonce = htole64(NONCE), .generation = htole64(1),
					  .final_seq = htole64(seq),
					  .final_units = htole32(final_units) };

	claim_page(0);
	memcpy(line(0, TARNFS_LINE_QUIESCE), &quiesce, sizeof(quiesce));
	seal_line(0, TARNFS_LINE_QUIESCE);
}

static void quiesce_seq(void) { quiesced(4, R_END); }
static void quiesce_units(void) { quiesced(5, R_END - 2); }

static void two_pages(void)
{
	claim_page(1);
	claim_page(2);
	memset(line(2, TARNFS_LINE_IDENTITY) + 8, 0x41, 16);
	memset(mirror(2, TARNFS_LINE_IDENTITY) + 8, 0x41, 16);
	seal_line(2, TARNFS_LINE_IDENTITY);
	seal(tarn_mirror_line_off(&sb, 2, TARNFS_LINE_IDENTITY));
}

static void page_tail(void) { line(1, 63)[63] = 1; }
static void page_seven(void) { line(1, 7)[0] = 1; }
static void page_commit(void) { line(1, 9)[8] = 1; }
static void mirror_tail(void) { mirror(1, 2)[0] = 1; }

static void free_page(void)
{
	put_identity(1, &(struct tarn_identity){ .claims = 1, .nonce = 3 });
}

static void compacting(void)
{
	put_control(0, &(struct tarn_control){ .generation = 1, .state = TARNFS_CONTROL_ACTIVE,
					       .area_off = sb.area[0].off,
					       .area_len = sb.area[0].len,
					       .next_off = sb.area[1].off,
					       .next_len = sb.area[1].len });
}

static void reserved_super(void) { bytes[512] = 1; }
static void reserved_hosts(void) { bytes[TARNFS_HOSTS_OFF - 1] = 1; }
static void reserved_mirror(void) { bytes[TARNFS_MIRROR_OFF - 1] = 1; }
static void reserved_log(void) { bytes[TARNFS_LOG_OFF - 1] = 1; }

/* ---- log ---- */

static void commit_word(void) { line(0, TARNFS_LINE_COMMIT)[0] ^= 1; }
static void commit_long(void) { commit((uint32_t)(MIB / TARNFS_LINE) + 1); }
static void commit_short(void) { commit(5); }
static void header_crc(void) { header()->time ^= 1; }
static void header_magic(void) { header()->magic[0] ^= 1; }
static void header_field(void) { header()->next_ino = 0; seal_header(); }
static void header_end(void) { header()->data_end = htole64(sb.data_end - 4096); seal_header(); }
static void header_newer(void) { header()->zero2[0] = 1; seal_header(); }
static void header_incompat(void) { header()->incompat = htole64(4); seal_header(); }
static void header_readonly(void) { header()->ro_compat = htole64(4); seal_header(); }

static void record_crc(void) { ((struct tarnfs_record *)at(R_LINK))->crc ^= 1; }
static void record_length(void) { ((struct tarnfs_record *)at(R_LINK))->units = htole16(9999); }

/* The last one: nothing good follows, and its batch has no end. */
static void record_last(void) { ((uint8_t *)at(R_END - 2))[50] ^= 1; }

static void record_field(void)
{
	((struct tarnfs_rec_node *)at(R_LINK))->mode = htole16(0100644);
	seal_record(R_LINK);
}

static void record_own_parent(void)
{
	((struct tarnfs_rec_node *)at(R_LINK))->parent = htole64(22);
	seal_record(R_LINK);
}

static void set_type(uint32_t unit, uint16_t type, uint8_t class_)
{
	struct tarnfs_record *rec = at(unit);

	rec->type = htole16(type);
	rec->class = class_;
	seal_record(unit);
}

static void record_newer(void) { set_type(R_LINK, 77, TARNFS_CLASS_REFUSE); }
static void record_readonly(void) { set_type(R_LINK, 77, TARNFS_CLASS_READONLY); }
static void record_ignored(void) { set_type(R_LINK, 77, TARNFS_CLASS_IGNORE); }
static void record_host(void)
{
	struct tarn_rec rec = { .type = TARNFS_REC_HOST, .seq = 6, .host = 1,
				.host_flags = TARNFS_HOST_BOUND, .uuid = { 1 } };

	put(&rec);
	commit(units);
}

static void record_unbuilt(void) { set_type(R_LINK, TARNFS_REC_UNLINK, 0); }

static void seq_gap(void)
{
	struct tarn_rec rec = record_node(TARNFS_REC_DIRECTORY, 7, 30, 1, "n");

	put(&rec);
	commit(units);
}

/* What is after a damaged record is in order again, or is not. */
static void record_crc_seq_gap(void)
{
	record_crc();
	seq_gap();
}

static void batch_place(void)
{
	((struct tarnfs_record *)at(R_LINK))->batch_index = htole16(1);
	seal_record(R_LINK);
}

static void batch_end(void) { commit(R_BATCH + 2); }

static void ckpt_outside(void)
{
	((struct tarnfs_record *)at(R_LINK))->flags = TARNFS_RECORD_CKPT;
	seal_record(R_LINK);
}

static void ckpt_inside(void)
{
	((struct tarnfs_record *)at(C_FILE))->flags = 0;
	seal_record(C_FILE);
}

static void pending_free_outside(void) { set_type(R_LINK, TARNFS_REC_PENDING_FREE, 0); }

static void ordinal(void)
{
	((struct tarnfs_record *)at(C_END))->seq = htole64(5);
	seal_record(C_END);
}

/* "old" is in the root all the same: by number, which is what a parent is. */
static void root_twice(void)
{
	memcpy(at(C_ROOT + 1), at(C_ROOT), TARNFS_LINE);
	((struct tarnfs_record *)at(C_ROOT + 1))->seq = htole64(2);
	((struct tarnfs_record *)at(C_ROOT + 1))->units = htole16(2);
	memset(at(C_ROOT + 2), 0, TARNFS_LINE);
	seal_record(C_ROOT + 1);
	((struct tarnfs_rec_node *)at(C_FILE))->parent = htole64(1);
	seal_record(C_FILE);
}

static void ckpt_records(void) { header()->ckpt_records = htole64(5); seal_header(); }

static void ckpt_units(void)
{
	struct tarn_rec rec = (struct tarn_rec){ .type = TARNFS_REC_CHECKPOINT_END, .seq = 4,
						 .flags = TARNFS_RECORD_CKPT, .directories = 2,
						 .files = 1 };

	units = C_END;
	put(&rec);
	rec.seq = 5;
	put(&rec);
	header()->ckpt_units = htole32(units - C_ROOT);
	header()->ckpt_records = htole64(5);
	seal_header();
	commit(units);
}

static void ckpt_counts(void)
{
	((struct tarnfs_rec_checkpoint_end *)at(C_END))->symlinks = htole64(1);
	seal_record(C_END);
}

/* Records whose heads look well and whose checksums never fit. */
static void given_up(void)
{
	const uint32_t last = (uint32_t)(MIB / TARNFS_LINE);

	for (uint32_t unit = R_END; unit < last; unit++) {
		struct tarnfs_record *rec = at(unit);

		memset(rec, 0, TARNFS_LINE);
		rec->type = htole16(1);
		rec->units = htole16(69);
		rec->seq = htole64(6);
	}
	commit(last);
}

/* The last batch was never committed. */
static void tail(void) { commit(R_BATCH); }

/* A header of the next generation in an area that no control line names. */
static void leftover(void)
{
	struct tarnfs_log_header *raw = (struct tarnfs_log_header *)(bytes + sb.area[1].off);
	struct tarn_seed next = seed;

	next.generation++;
	memcpy(raw, header(), sizeof(*raw));
	raw->generation = htole64(next.generation);
	raw->crc = htole32(tarn_log_crc(&next, raw, sizeof(*raw),
					offsetof(struct tarnfs_log_header, crc)));
}

/* One that is being made; and those of generations that are over are no finding. */
static void leftover_named(void)
{
	leftover();
	compacting();
}

/* ---- tree and extents ---- */

static void add(struct tarn_rec rec)
{
	put(&rec);
	commit(units);
}

static void ino_twice(void) { add(record_file(&sb, 6, 21, 1, "again", 0, 0)); }
static void no_parent(void) { add(record_file(&sb, 6, 30, 29, "x", 0, 0)); }

static void no_parent_twice(void)
{
	add(record_file(&sb, 6, 30, 29, "x", 0, 0));
	add(record_file(&sb, 7, 31, 29, "y", 0, 0));
	add(record_file(&sb, 8, 32, 28, "y", 0, 0));
}

static void parent_later(void)
{
	add(record_file(&sb, 6, 30, 31, "x", 0, 0));
	add(record_node(TARNFS_REC_DIRECTORY, 7, 31, 1, "late"));
}

/* Two directories in each other: the first of them has a later parent. */
static void cycle(void)
{
	add(record_node(TARNFS_REC_DIRECTORY, 6, 30, 31, "x"));
	add(record_node(TARNFS_REC_DIRECTORY, 7, 31, 30, "y"));
}

static void parent_type(void) { add(record_file(&sb, 6, 30, 21, "x", 0, 0)); }
static void name_twice(void) { add(record_file(&sb, 6, 30, 20, "f", 0, 0)); }
static void ino_range(void) { header()->next_ino = htole64(17); seal_header(); }

/* The last number that RESERVE can have handed out is none, the next is. */
static void ino_jump(void)
{
	add(record_node(TARNFS_REC_DIRECTORY, 6, 24 + TARNFS_INO_JUMP, 1, "far"));
	add(record_node(TARNFS_REC_DIRECTORY, 7, 25 + 2 * TARNFS_INO_JUMP, 1, "too far"));
}

static void extent_below(void) { add(record_file(&sb, 6, 30, 1, "x", 1, (uint64_t)0 - 4096)); }
static void extent_above(void) { add(record_file(&sb, 6, 30, 1, "x", 4097, 4 * MIB - 4096)); }
/* A log of a device that has grown: the kernel goes by the superblock. */
static void extent_grown(void)
{
	add(record_file(&sb, 6, 30, 1, "x", 1, 4 * MIB - 4096));
	for (uint64_t off = 0; off <= TARNFS_SUPER2_OFF; off += TARNFS_SUPER2_OFF) {
		((struct tarnfs_super *)(bytes + off))->data_end = htole64(sb.data_end - 4096);
		seal_super(off);
	}
}

static void extent_overlap(void) { add(record_file(&sb, 6, 30, 1, "x", 4097, 4096)); }
static void extent_align(void) { add(record_file(&sb, 6, 30, 1, "x", 2 * MIB, 1 * MIB)); }

/* Each begins within the first, which reaches past all of them. */
static void extent_nested(void)
{
	add(record_file(&sb, 6, 30, 1, "x", 2 * MIB, 2 * MIB));
	add(record_file(&sb, 7, 31, 1, "y", 1, 2 * MIB + 4096));
	add(record_file(&sb, 8, 32, 1, "z", 1, 3 * MIB));
}

static void extent_length(void)
{
	struct tarn_rec rec = record_file(&sb, 6, 30, 1, "x", 1, 65536);

	rec.ext_len = 8192;
	add(rec);
}

static const struct fault {
	const char *name;
	void (*plant)(void);
	unsigned int numbers[6];
} faults[] = {
#define FAULT(plant, ...) { #plant, plant, { __VA_ARGS__ } }
	FAULT(poisoned, 1),
	FAULT(super_first, 101),
	FAULT(super_second, 102),
	FAULT(super_differ, 103),
	FAULT(super_foreign, 101, 104),
	FAULT(super_newer, 105),
	FAULT(super_size, 106),
	FAULT(identity_page, 201),
	FAULT(identity_mirror, 201),
	FAULT(identity_field, 201),
	FAULT(identity_both, 202),
	FAULT(identity_differ, 203),
	FAULT(identity_cut, 204),
	FAULT(control_page, 205),
	FAULT(control_mirror, 205),
	FAULT(control_both, 206),
	FAULT(control_old_mirror, 204),
	FAULT(no_log, 207),
	FAULT(two_logs, 208),
	FAULT(sealing, 209),
	FAULT(sealing_same, 209),
	FAULT(status_line, 210),
	FAULT(quiesce_line, 210),
	FAULT(window_line, 210),
	FAULT(status_flags, 211),
	FAULT(status_released, 211),
	FAULT(window_used, 211),
	FAULT(quiesce_host, 211),
	FAULT(other_nonce, 212),
	FAULT(contending, 212),
	FAULT(status_ahead, 213),
	FAULT(status_generation, 213),
	FAULT(quiesce_seq, 214),
	FAULT(quiesce_units, 214),
	FAULT(two_pages, 215),
	FAULT(page_tail, 216),
	FAULT(page_seven, 216),
	FAULT(page_commit, 216),
	FAULT(mirror_tail, 216),
	FAULT(free_page, 217),
	FAULT(compacting, 218),
	FAULT(leftover_named, 218),
	FAULT(commit_word, 301),
	FAULT(commit_long, 302),
	FAULT(commit_short, 302),
	FAULT(header_crc, 303),
	FAULT(header_magic, 303),
	FAULT(header_field, 304),
	FAULT(header_end, 304),
	FAULT(header_newer, 305),
	FAULT(header_incompat, 305),
	FAULT(header_readonly, 306),
	FAULT(tail, 307),
	FAULT(leftover, 308),
	FAULT(record_crc, 401),
	FAULT(record_last, 401),
	FAULT(record_length, 402),
	FAULT(record_field, 403),
	FAULT(record_own_parent, 403),
	FAULT(record_newer, 404),
	FAULT(record_readonly, 405),
	FAULT(record_ignored, 406),
	FAULT(record_unbuilt, 407),
	FAULT(record_host, 407),
	FAULT(seq_gap, 408),
	FAULT(record_crc_seq_gap, 401, 408),
	FAULT(batch_place, 409),
	FAULT(batch_end, 410),
	FAULT(ckpt_outside, 411),
	FAULT(ckpt_inside, 411),
	FAULT(pending_free_outside, 411),
	FAULT(ordinal, 412),
	FAULT(root_twice, 413),
	FAULT(ckpt_records, 414),
	FAULT(ckpt_units, 414, 414, 414),
	FAULT(ckpt_counts, 415),
	FAULT(given_up, 401, 416),
	FAULT(ino_twice, 501),
	FAULT(no_parent, 502),
	FAULT(no_parent_twice, 502, 502),
	FAULT(parent_later, 503),
	FAULT(cycle, 503),
	FAULT(parent_type, 504),
	FAULT(name_twice, 505),
	FAULT(ino_range, 506),
	FAULT(ino_jump, 506),
	FAULT(extent_below, 601),
	FAULT(extent_above, 601),
	FAULT(extent_grown, 601),
	FAULT(extent_overlap, 602, 602),
	FAULT(extent_nested, 602, 602),
	FAULT(extent_align, 603),
	FAULT(extent_length, 604),
	FAULT(reserved_super, 701),
	FAULT(reserved_hosts, 701),
	FAULT(reserved_mirror, 701),
	FAULT(reserved_log, 701),
};

static void planted(void **state)
{
	const struct fault *fault = *state;

	assert_clean();
	fault->plant();
	assert_found(fault->numbers);
}

/* Every number that there is was provoked above. */
static void every_number(void **state)
{
	size_t count;
	const struct tarn_fsck_kind *kinds = tarn_fsck_kinds(&count);

	(void)state;
	for (size_t i = 0; i < count; i++) {
		assert_true(!i || kinds[i].number > kinds[i - 1].number);
		if (!provoked[kinds[i].number])
			fail_msg("%u (%s) was never found", kinds[i].number, kinds[i].text);
	}
}

/* The table of commands.rst has them all, with their severities and words. */
static void documented(void **state)
{
	static const char *const words[] = { "note", "warning", "error" };
	size_t count, next = 0;
	const struct tarn_fsck_kind *kinds = tarn_fsck_kinds(&count);
	FILE *f = fopen(TARN_TOP "/Documentation/commands.rst", "r");
	char text[512];

	(void)state;
	assert_non_null(f);
	while (fgets(text, sizeof(text), f)) {
		unsigned int number;
		char severity[16];

		if (sscanf(text, "%u %15s", &number, severity) != 2 ||
		    (strcmp(severity, "note") && strcmp(severity, "warning") &&
		     strcmp(severity, "error")))
			continue;
		assert_true(next < count);
		if (number != kinds[next].number ||
		    strcmp(severity, words[kinds[next].severity]) ||
		    !strstr(text, kinds[next].text))
			fail_msg("commands.rst: %snot: %u %s %s", text, kinds[next].number,
				 words[kinds[next].severity], kinds[next].text);
		next++;
	}
	fclose(f);
	assert_int_equal(next, count);
}

/* ---- what is whole ---- */

static void numbers_of_a_clean_one(void **state)
{
	struct tarn_fsck f = run();

	(void)state;
	assert_true(f.super_valid);
	assert_true(f.log_looked);
	assert_memory_equal(f.uuid, sb.uuid, 16);
	assert_int_equal(f.generation, 1);
	assert_int_equal(f.seq, 5);
	assert_int_equal(f.directories, 3);
	assert_int_equal(f.files, 4);
	assert_int_equal(f.symlinks, 1);
	assert_int_equal(f.used, 8192 + 4096 + 4096);
	assert_int_equal(f.data, 4 * MIB);
	claim_page(1);
	assert_clean();
	quiesced(5, R_END);
	assert_clean();
}

/* What hosts make through the library, with caches that are as bad as may be. */
static void made_by_hosts(void **state)
{
	struct tarn_new *news = calloc(2000, sizeof(*news));
	char (*names)[16] = calloc(2000, sizeof(*names));
	struct tarn_reservation res = { .set = -1 };
	struct tarn_fsck f = { 0 };
	struct testhost h[2];
	struct memory *big;
	struct recorder *r;
	uint8_t *old = bytes;

	(void)state;
	big = test_mkfs(&sb, 2, 2 * MIB, 64 * MIB, test_owner);
	for (int i = 0; i < 2; i++) {
		testhost_start(&h[i], big, &sb, i);
		testhost_mount(&h[i]);
	}
	for (int i = 0; i < 2000; i++) {
		snprintf(names[i], sizeof(names[i]), "%d", i);
		news[i] = (struct tarn_new){
			.item = { .type = i % 10 ? TARNFS_TYPE_FILE : TARNFS_TYPE_DIRECTORY,
				  .size = i % 10 ? (uint64_t)i * 7 : 0 },
			.parent = i < 10 ? 1 : 0,
			.parent_index = (size_t)(i - 10) / 10 * 10,
			.name = names[i],
		};
	}
	if (tarn_reserve_files(&h[0].s, &res, news, 2000, &err) ||
	    tarn_commit(&h[0].s, &res, &err))
		fail_msg("%s", err.text);
	tarn_reservation_drop(&h[0].s, &res);
	for (int i = 0; i < 20; i++)
		assert_int_equal(testhost_create(&h[0], names[i], 0, &err),
				 i < 10 ? -EEXIST : 0);
	r = recorder_new(big);
	recorder_geometry(r, &sb);
	bytes = memory_bytes(big);
	if (run_on(recorder_media(r), &f))
		fail_msg("%s", err.text);
	assert_string_equal(texts, "");
	assert_int_equal(f.files, 1810);
	assert_int_equal(f.directories, 201);
	assert_no_fault(r);
	recorder_free(r);

	/* a clean end: quiesced and bound */
	assert_int_equal(tarn_claim_release(h[0].s.media, &sb, &h[0].s.claim, &err), 0);
	r = recorder_new(big);
	assert_int_equal(run_on(recorder_media(r), &f), 0);
	assert_string_equal(texts, "");
	recorder_free(r);
	testhost_stop(&h[0]);
	testhost_stop(&h[1]);
	memory_free(big);
	bytes = old;
	free(news);
	free(names);
}

/* ---- flips ---- */

static uint64_t bad_findings(void)
{
	struct tarn_fsck f = { 0 };
	int ret = run_on(&flat.media, &f);

	if (ret == -ENODATA)
		return 1;
	if (ret)
		fail_msg("fsck: %d: %s", ret, err.text);
	return f.count[TARN_FSCK_WARNING] + f.count[TARN_FSCK_ERROR];
}

static void sweep(uint64_t from, uint64_t to, unsigned int stride, bool covered)
{
	for (uint64_t off = from; off < to; off += stride) {
		uint8_t bit = (uint8_t)(1U << off % 8);

		bytes[off] ^= bit;
		if (!bad_findings() && covered)
			fail_msg("clean with a flip at 0x%llx", (unsigned long long)off);
		bytes[off] ^= bit;
	}
	assert_clean();
}

static void sweep_line(uint16_t page, unsigned int n, bool mirrored)
{
	uint64_t off = mirrored ? tarn_mirror_line_off(&sb, page, n) : tarn_line_off(&sb, page, n);

	sweep(off, off + TARNFS_LINE, 1, true);
}

static void flips(void **state)
{
	(void)state;
	quiesced(5, R_END);
	sweep(TARNFS_SUPER_OFF, TARNFS_SUPER_LEN, 1, true);
	sweep(TARNFS_SUPER2_OFF, TARNFS_SUPER2_OFF + TARNFS_SUPER_LEN, 1, true);
	for (unsigned int n = TARNFS_LINE_IDENTITY; n <= TARNFS_LINE_QUIESCE; n++)
		sweep_line(0, n, false);
	sweep_line(0, TARNFS_LINE_IDENTITY, true);
	sweep_line(0, TARNFS_LINE_CONTROL, true);
	sweep_line(1, TARNFS_LINE_IDENTITY, false);
	sweep_line(1, TARNFS_LINE_CONTROL, true);
	sweep_line(0, TARNFS_LINE_COMMIT, false);
	/* reserved */
	sweep_line(1, TARNFS_LINE_INFO + 1, false);
	sweep(TARNFS_SUPER_LEN, TARNFS_SUPER2_OFF, 509, true);
	sweep(TARNFS_SUPER2_OFF + TARNFS_SUPER_LEN, TARNFS_HOSTS_OFF, 4093, true);
	sweep(tarn_line_off(&sb, HOSTS, 0), TARNFS_MIRROR_OFF, 32749, true);
	sweep(tarn_mirror_line_off(&sb, HOSTS, 0), TARNFS_LOG_OFF, 32749, true);
	/* no checksum: contend, info, commit words of other logs */
	sweep(tarn_line_off(&sb, 0, TARNFS_LINE_CONTEND), tarn_line_off(&sb, 0, TARNFS_LINE_COMMIT),
	      1, false);
	sweep(tarn_line_off(&sb, 1, TARNFS_LINE_COMMIT), tarn_line_off(&sb, 2, 0), 97, false);
	/* the log, to its last committed byte */
	sweep(log_area, log_area + (uint64_t)R_END * TARNFS_LINE, 1, true);
	/* and what is behind it is nothing */
	bytes[log_area + (uint64_t)R_END * TARNFS_LINE] ^= 1;
	assert_clean();
}

/* ---- whatever stands there ---- */

static uint64_t random_state;

static uint32_t random32(void)
{
	random_state = random_state * 6364136223846793005ULL + 1442695040888963407ULL;
	return (uint32_t)(random_state >> 33);
}

/* Some bytes of some records, their checksums right all the same. */
static void fuzz_records(void **state)
{
	static const uint32_t starts[] = { C_ROOT, C_DIR, C_FILE, C_END, R_DIR, R_FILE, R_LINK,
					   R_BATCH, R_BATCH + 2 };
	uint8_t saved[R_END * TARNFS_LINE];

	(void)state;
	memcpy(saved, at(0), sizeof(saved));
	random_state = 20240607;
	for (int i = 0; i < 4000; i++) {
		for (int n = 1 + (int)(random32() % 4); n; n--) {
			uint32_t unit = starts[random32() % TARN_ARRAY_SIZE(starts)];
			uint8_t *p = at(unit);

			p[4 + random32() % 124] = random32() % 3 ? (uint8_t)random32() :
				(uint8_t)(random32() % 2 ? 0xff : 0);
			/* 0 becomes more than 16 */
			if ((uint16_t)(le16toh(((struct tarnfs_record *)p)->units) - 1) < 16)
				seal_record(unit);
		}
		if (random32() % 8 == 0) {
			((uint8_t *)at(0))[16 + random32() % 240] = (uint8_t)random32();
			seal_header();
		}
		if (random32() % 8 == 0)
			commit(6 + random32() % 40);
		bad_findings();
		memcpy(at(0), saved, sizeof(saved));
		commit(R_END);
	}
	assert_clean();
}

/* Some bytes of lines and superblocks, their checksums right all the same. */
static void fuzz_lines(void **state)
{
	uint8_t *saved = malloc(TARNFS_LOG_OFF);

	(void)state;
	claim_page(1);
	quiesced(5, R_END);
	memcpy(saved, bytes, TARNFS_LOG_OFF);
	random_state = 7;
	for (int i = 0; i < 1500; i++) {
		for (int n = 1 + (int)(random32() % 3); n; n--) {
			uint16_t page = (uint16_t)(random32() % HOSTS);
			unsigned int l = random32() % 5;

			line(page, l)[random32() % 60] = (uint8_t)random32();
			seal_line(page, l);
			if (l < 2 && random32() % 2)
				memcpy(mirror(page, l), line(page, l), TARNFS_LINE);
		}
		if (random32() % 4 == 0) {
			uint64_t super = random32() % 2 ? TARNFS_SUPER_OFF : TARNFS_SUPER2_OFF;

			bytes[super + 128 + random32() % 128] = (uint8_t)random32();
			seal_super(super);
		}
		bad_findings();
		memcpy(bytes, saved, TARNFS_LOG_OFF);
	}
	free(saved);
	assert_clean();
}

/* A full log of the worst that records can say is done in a moment. */
static void full_log(void **state)
{
	uint64_t seq = 6;

	(void)state;
	while (units + 2 <= MIB / TARNFS_LINE) {
		struct tarn_rec rec = record_file(&sb, seq, 30, 29, "same", 2 * MIB, 0);

		put(&rec);
		seq++;
	}
	commit(units);
	assert_true(bad_findings() > 3 * (seq - 7));
	assert_true(nr_found == TARN_FSCK_TOLD);
}

static void no_tarnfs(void **state)
{
	struct tarn_fsck f = { 0 };

	(void)state;
	memset(bytes, 0, TARNFS_HOSTS_OFF);
	assert_int_equal(run_on(&flat.media, &f), -ENODATA);
	flat.media.size = 100;
	assert_int_equal(run_on(&flat.media, &f), -ENODATA);
	flat.media.size = 0;
	assert_int_equal(run_on(&flat.media, &f), -ENODATA);
}

/* A device that ends within its metadata. */
static void cut_short(void **state)
{
	(void)state;
	flat.media.size = TARNFS_LOG_OFF + MIB / 2;
	assert_found((const unsigned int[]){ 1, 0 });
}

/* ---- what changes meanwhile ---- */

static int hook_count;

/* Between commit word and records the master commits one more. */
static void hook_append(uint64_t off, size_t len)
{
	(void)len;
	if (off == log_area && !hook_count++)
		add(record_file(&sb, 6, 30, 1, "new", 1, 65536));
}

static void append_meanwhile(void **state)
{
	(void)state;
	hook_count = 0;
	flat.hook = hook_append;
	assert_clean();
	assert_true(hook_count > 0);
}

/* Another generation in another area, after which the old one is written over. */
static void hook_compact(uint64_t off, size_t len)
{
	(void)len;
	if (off == log_area + 4096 && hook_count++ < 1) {
		memset(at(0), 0, (size_t)units * TARNFS_LINE);
		build_log(0, 2, 1);
	}
}

static void compaction_meanwhile(void **state)
{
	struct tarn_fsck f;

	(void)state;
	while (units < 4096 / TARNFS_LINE + 2)
		add(record_node(TARNFS_REC_DIRECTORY, units / 2 - 4, units + 100, 1,
			 (char[]){ (char)('A' + units / 2), 0 }));
	assert_clean();
	hook_count = 0;
	flat.hook = hook_compact;
	f = run();
	assert_string_equal(texts, "");
	assert_int_equal(hook_count, 1);
	assert_int_equal(f.generation, 2);
}

/* A line that is half written when it is read the first times. */
static void hook_torn(uint64_t off, size_t len)
{
	(void)len;
	if (off == tarn_line_off(&sb, 1, TARNFS_LINE_STATUS) && ++hook_count == 6) {
		line(1, TARNFS_LINE_STATUS)[8] ^= 1;
		flat.hook = NULL;
	}
}

static void torn_meanwhile(void **state)
{
	(void)state;
	status_line();
	hook_count = 0;
	flat.hook = hook_torn;
	assert_clean();
	assert_null(flat.hook);
}

/* A log that changes hands all the time is no damage. */
static void hook_busy(uint64_t off, size_t len)
{
	(void)len;
	if (off == log_area)
		build_log(0, seed.generation + 1, seed.generation % 2);
}

static void busy(void **state)
{
	struct tarn_fsck f = { 0 };

	(void)state;
	flat.hook = hook_busy;
	assert_int_equal(run_on(&flat.media, &f), -EBUSY);
	assert_int_equal(nr_found, 0);
}

/* A line that is whole in every other pass: what else is wrong is told, and it is not. */
static void hook_flicker(uint64_t off, size_t len)
{
	(void)len;
	if (off == TARNFS_SUPER_OFF)
		line(1, TARNFS_LINE_STATUS)[8] ^= 1;
}

static void flicker(void **state)
{
	struct tarn_fsck f;

	(void)state;
	claim_page(1);
	super_second();
	page_tail();
	flat.hook = hook_flicker;
	f = run();
	assert_int_equal(nr_found, 2);
	assert_int_equal(found[0], TARN_FSCK_SUPER_SECOND);
	assert_int_equal(found[1], TARN_FSCK_PAGE_RESERVED);
	assert_int_equal(f.count[TARN_FSCK_WARNING], 2);
}

/* A finding's offset is that of the byte, line or record on the device. */
static void offsets(void **state)
{
	static const struct {
		void (*plant)(void);
		uint64_t off;
	} at_off[] = {
		{ super_second, TARNFS_SUPER2_OFF },
		{ page_tail, TARNFS_HOSTS_OFF + 2 * TARNFS_HOST_STRIDE - 1 },
		{ reserved_log, TARNFS_LOG_OFF - 1 },
		{ identity_mirror, TARNFS_MIRROR_OFF + 2 * TARNFS_HOST_STRIDE },
		{ commit_word, TARNFS_HOSTS_OFF + TARNFS_LINE_COMMIT * TARNFS_LINE },
		{ record_crc, TARNFS_LOG_OFF + R_LINK * TARNFS_LINE },
		{ name_twice, TARNFS_LOG_OFF + R_END * TARNFS_LINE },
		{ extent_length, TARNFS_LOG_OFF + R_END * TARNFS_LINE },
	};

	for (size_t i = 0; i < TARN_ARRAY_SIZE(at_off); i++) {
		at_off[i].plant();
		run();
		assert_int_equal(nr_found, 1);
		assert_int_equal(found_off, at_off[i].off);
		teardown(state);
		setup(state);
	}
}

/* ---- repair ---- */

static char done_texts[16384];
static size_t nr_done, nr_left;

static void on_repair(void *arg, const struct tarn_fsck_repair *repair)
{
	size_t len = strlen(done_texts);

	(void)arg;
	nr_done += repair->outcome == TARN_FSCK_DONE;
	nr_left += repair->outcome == TARN_FSCK_LEFT;
	assert_true(repair->outcome != TARN_FSCK_DONE || repair->when != TARN_FSCK_NEVER);
	snprintf(done_texts + len, sizeof(done_texts) - len, "%u %d: %s\n", repair->number,
		 repair->outcome, repair->text);
}

static int repair_on(struct recorder *r, struct tarn_fsck *f)
{
	int ret;

	f->repair = on_repair;
	if (f->mode == TARN_FSCK_LOOK)
		f->mode = TARN_FSCK_REPAIR;
	done_texts[0] = '\0';
	nr_done = nr_left = 0;
	recorder_take(r);
	ret = run_on(recorder_media(r), f);
	assert_no_fault(r);
	return ret;
}

/* With caches that are as bad as may be. */
static struct tarn_fsck repair(struct tarn_fsck f)
{
	struct recorder *r = recorder_new(mem);
	int ret;

	recorder_geometry(r, &sb);
	ret = repair_on(r, &f);
	if (ret)
		fail_msg("fsck: %d: %s", ret, err.text);
	recorder_free(r);
	return f;
}

/*
 * Whatever is planted: repair stores by the rules of memory, its second run has nothing of what
 * the first repaired, and leaves every byte alone; and what it says that it left is there still.
 */
static void repair_each(void **state)
{
	uint8_t *saved = malloc(sb.data_start);

	for (size_t i = 0; i < TARN_ARRAY_SIZE(faults); i++) {
		struct tarn_fsck f, again;

		if (faults[i].plant == poisoned || faults[i].plant == given_up)
			continue;
		faults[i].plant();
		f = repair((struct tarn_fsck){ .hosts_fenced = true });
		assert_int_equal(f.repaired, nr_done);
		memcpy(saved, bytes, sb.data_start);
		again = repair((struct tarn_fsck){ .hosts_fenced = true });
		if (again.repaired || nr_done ||
		    memcmp(again.count, f.count, sizeof(f.count)) ||
		    memcmp(saved, bytes, sb.data_start))
			fail_msg("%s: the second run repairs again:\n%s", faults[i].name,
				 done_texts);
		teardown(state);
		setup(state);
	}
	free(saved);
}

/* So too of several at once. */
static void repair_several(void **state)
{
	uint8_t *saved = malloc(sb.data_start);
	uint64_t repaired = 0;

	random_state = 99;
	for (int i = 0; i < 60; i++) {
		char names[256] = "";
		struct tarn_fsck f;

		for (int n = 0; n < 4; n++) {
			const struct fault *fault =
				&faults[random32() % TARN_ARRAY_SIZE(faults)];

			if (fault->plant == poisoned || fault->plant == given_up)
				continue;
			fault->plant();
			snprintf(names + strlen(names), sizeof(names) - strlen(names), " %s",
				 fault->name);
		}
		f = repair((struct tarn_fsck){ .hosts_fenced = true });
		repaired += f.repaired;
		memcpy(saved, bytes, sb.data_start);
		f = repair((struct tarn_fsck){ .hosts_fenced = true });
		if (f.repaired || nr_done || memcmp(saved, bytes, sb.data_start))
			fail_msg("%s: the second run repairs again:\n%s", names, done_texts);
		teardown(state);
		setup(state);
	}
	assert_true(repaired > 40);
	free(saved);
}

/* Preen does what the table says that it may, and look and dry run store nothing. */
static void repair_modes(void **state)
{
	uint8_t *saved = malloc(sb.data_start);
	struct tarn_fsck f;

	super_first();
	mirror_tail();
	memcpy(saved, bytes, sb.data_start);
	f = repair((struct tarn_fsck){ .mode = TARN_FSCK_DRY });
	assert_int_equal(f.repaired, 0);
	assert_string_equal(done_texts,
			    "101 1: the second copy over the first: the log is valid under its uuid\n"
			    "216 1: zeroed up to 0x102000: no feature is on that could use them\n");
	assert_memory_equal(saved, bytes, sb.data_start);
	f = repair((struct tarn_fsck){ .mode = TARN_FSCK_PREEN });
	assert_int_equal(f.repaired, 1);
	assert_int_equal(f.count[TARN_FSCK_WARNING], 1);
	f = repair((struct tarn_fsck){ .mode = TARN_FSCK_REPAIR });
	assert_int_equal(f.repaired, 1);
	assert_int_equal(f.count[TARN_FSCK_WARNING], 0);
	assert_clean();
	(void)state;
	free(saved);
}

/* What was repaired, a log that was cut above all, is mounted, replayed and appended to. */
static void repaired_is_replayed(void **state)
{
	struct testhost h[2];
	struct tarn_fsck f;
	char *x, *y;

	(void)state;
	super_first();
	control_mirror();
	quiesced(5, R_END);
	claim_page(1);		/* both are clients' and masters' of long ago */
	line(1, TARNFS_LINE_WINDOW)[8] ^= 1;
	record_crc();
	f = repair((struct tarn_fsck){ .hosts_fenced = true });
	assert_int_equal(f.repaired, 3);
	assert_int_equal(found[nr_found - 1], TARN_FSCK_RECORD);
	f = repair((struct tarn_fsck){ .hosts_fenced = true, .truncate = true, .truncate_seq = 3 });
	assert_int_equal(f.repaired, 0);
	assert_non_null(strstr(done_texts, "good up to seq 2, and 384 bytes of records follow: another"));
	f = repair((struct tarn_fsck){ .hosts_fenced = true, .truncate = true, .truncate_seq = 2 });
	assert_true(f.repaired >= 1);
	assert_int_equal(f.seq, 2);
	assert_int_equal(f.count[TARN_FSCK_ERROR] + f.count[TARN_FSCK_WARNING], 0);
	assert_clean();

	/* page 0, and with it the log, goes to the first host that comes */
	put_identity(0, &(struct tarn_identity){ .claims = 9 });
	put_identity(1, &(struct tarn_identity){ .claims = 9 });
	for (int i = 0; i < 2; i++) {
		testhost_start(&h[i], mem, &sb, i);
		testhost_mount(&h[i]);
	}
	assert_int_not_equal(testkernel_lookup(h[1].t, "/d/f"), 0);
	assert_int_equal(testkernel_lookup(h[1].t, "/d/l"), 0);
	assert_int_equal(testhost_create(&h[0], "new", 5000, &err), 0);
	h[1].s.kernel->ops->lock(h[1].s.kernel);
	assert_int_equal(tarn_replay(&h[1].s, true, &err), 1);
	h[1].s.kernel->ops->unlock(h[1].s.kernel);
	x = testkernel_dump(h[0].t);
	y = testkernel_dump(h[1].t);
	assert_string_equal(x, y);
	free(x);
	free(y);
	for (int i = 0; i < 2; i++) {
		testkernel_verify(h[i].t);
		testhost_stop(&h[i]);
	}
}

static void store_claims(void *arg, const char *op)
{
	if (!strncmp(op, "write", 5) && strncmp(op, "writeback", 9) && !hook_count++)
		claim_page(2);
	(void)arg;
}

/* A host that comes while it repairs: no store more. */
static void claimed_meanwhile(void **state)
{
	struct recorder *r = recorder_new(mem);
	struct tarn_fsck f = { 0 };

	(void)state;
	super_first();
	control_mirror();
	recorder_free(r);
	r = recorder_new(mem);
	recorder_geometry(r, &sb);
	hook_count = 0;
	recorder_hook(r, store_claims, NULL);
	assert_int_equal(repair_on(r, &f), -EAGAIN);
	assert_non_null(strstr(err.text, "a host mounted it meanwhile (page 2 claimed by "));
	recorder_free(r);
	assert_int_equal(hook_count, 1);
	assert_found((const unsigned int[]){ TARN_FSCK_CONTROL_ONE, 0 });
}

/* Bad memory is not stored to, and what cannot be stored is said and left. */
static void repair_of_bad_memory(void **state)
{
	struct recorder *r;
	struct tarn_fsck f = { 0 };

	(void)state;
	super_second();
	r = recorder_new(mem);
	recorder_geometry(r, &sb);
	recorder_poison(r, tarn_mirror_line_off(&sb, 1, TARNFS_LINE_IDENTITY) + 8);
	assert_int_equal(repair_on(r, &f), 0);
	assert_int_equal(f.repaired, 1);
	assert_non_null(strstr(done_texts, "201 2: the memory there is bad: see 1\n"));
	assert_non_null(strstr(done_texts, "1 2: a store does not mend memory"));
	recorder_free(r);
	assert_clean();
}

/* The table "Repair" of commands.rst has each number once, with who repairs it. */
static void documented_repairs(void **state)
{
	static const char *const by[] = { [TARN_FSCK_NEVER] = "no", [TARN_FSCK_ASKED] = "-y",
					  [TARN_FSCK_SAFE] = "-p" };
	bool seen[1000] = { false };
	size_t count;
	const struct tarn_fsck_kind *kinds = tarn_fsck_kinds(&count);
	FILE *f = fopen(TARN_TOP "/Documentation/commands.rst", "r");
	bool within = false;
	char text[1024];

	(void)state;
	assert_non_null(f);
	while (fgets(text, sizeof(text), f)) {
		unsigned int from, to, n = 0;
		const char *at = text;
		int used;

		if (!strncmp(text, "number         by", 17))
			within = true;
		else if (!strncmp(text, "===", 3) && seen[TARN_FSCK_UNREADABLE])
			within = false;
		if (!within || text[0] < '0' || text[0] > '9' || strlen(text) < 18)
			continue;
		while (sscanf(at, "%u%n", &from, &used) == 1 && at - text < 15) {
			at += used;
			to = from;
			if (sscanf(at, " to %u%n", &to, &used) == 1)
				at += used;
			for (size_t i = 0; i < count; i++) {
				if (kinds[i].number < from || kinds[i].number > to)
					continue;
				if (seen[kinds[i].number] ||
				    strncmp(text + 15, by[tarn_fsck_repairs(kinds[i].number)], 2))
					fail_msg("commands.rst: %snot: %u by %s, once", text,
						 kinds[i].number,
						 by[tarn_fsck_repairs(kinds[i].number)]);
				seen[kinds[i].number] = true;
				n++;
			}
			if (*at++ != ',')
				break;
		}
		assert_true(n > 0);
	}
	fclose(f);
	for (size_t i = 0; i < count; i++)
		if (!seen[kinds[i].number])
			fail_msg("commands.rst, Repair: no row for %u", kinds[i].number);
}

static unsigned int cancel_at;

static int on_progress(void *arg, unsigned int step, uint64_t done, uint64_t total)
{
	(void)arg;
	assert_true(step >= 1 && step <= TARN_FSCK_STEPS && done <= total);
	return step == cancel_at;
}

static void canceled(void **state)
{
	(void)state;
	for (cancel_at = 1; cancel_at <= TARN_FSCK_STEPS + 1; cancel_at++) {
		struct tarn_fsck f = { .progress = on_progress };

		assert_int_equal(run_on(&flat.media, &f),
				 cancel_at <= TARN_FSCK_STEPS ? -ECANCELED : 0);
	}
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest others[] = {
		cmocka_unit_test(every_number),
		cmocka_unit_test(documented),
		TEST(numbers_of_a_clean_one),
		TEST(made_by_hosts),
		TEST(flips),
		TEST(fuzz_records),
		TEST(fuzz_lines),
		TEST(full_log),
		TEST(no_tarnfs),
		TEST(cut_short),
		TEST(append_meanwhile),
		TEST(compaction_meanwhile),
		TEST(torn_meanwhile),
		TEST(busy),
		TEST(flicker),
		TEST(offsets),
		TEST(canceled),
		TEST(repair_each),
		TEST(repair_several),
		TEST(repair_modes),
		TEST(repaired_is_replayed),
		TEST(claimed_meanwhile),
		TEST(repair_of_bad_memory),
		cmocka_unit_test(documented_repairs),
	};
	const size_t count = TARN_ARRAY_SIZE(faults);
	struct CMUnitTest tests[TARN_ARRAY_SIZE(faults) + TARN_ARRAY_SIZE(others)];

	for (size_t i = 0; i < count; i++)
		tests[i] = (struct CMUnitTest){ .name = faults[i].name, .test_func = planted,
						.setup_func = NULL, .teardown_func = teardown,
						.initial_state = (void *)(uintptr_t)&faults[i] };
	for (size_t i = 0; i < count; i++)
		tests[i].setup_func = setup;
	memcpy(&tests[count], others, sizeof(others));
	return cmocka_run_group_tests_name("fsck", tests, NULL, NULL);
}
