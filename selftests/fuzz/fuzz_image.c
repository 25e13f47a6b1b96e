// SPDX-License-Identifier: GPL-2.0-only
/*
 * fuzz_image.c - the image of fuzz.h: made by the library at start, changed by
 * an input, and put back line by line, so that a run costs what it changed.
 */
#include "fuzz.h"
#include "records.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <sys/random.h>
#include <unistd.h>

struct tarn_super fuzz_super;
uint64_t rng;
struct tarn_claim fuzz_claim[FUZZ_PAGES];
struct tarn_host_id fuzz_host[FUZZ_PAGES];

uint8_t fuzz_base[FUZZ_IMAGE] __attribute__((aligned(64)));
uint8_t fuzz_image[FUZZ_IMAGE] __attribute__((aligned(64)));
uint8_t fuzz_late[FUZZ_IMAGE] __attribute__((aligned(64)));

#define HEAD 4
#define PIECE 3

/* The host pages begin as early as they may, and the log behind them: less to look at. */
#define HOSTS_OFF	(2 * TARNFS_BLOCK)
#define MIRROR_OFF	(HOSTS_OFF + FUZZ_PAGES * TARNFS_BLOCK)
#define AREA_OFF	(MIRROR_OFF + FUZZ_PAGES * TARNFS_BLOCK)
#define LOW_LINES	((AREA_OFF + FUZZ_LOG) / TARNFS_LINE)

_Static_assert(LOW_LINES + FUZZ_LOG / TARNFS_LINE <= FUZZ_LINES, "lines in reach");

/* ---- determinism ---- */

static uint64_t random_bytes;

/* Nonces are the same in each run of an input. */
ssize_t getrandom(void *buf, size_t len, unsigned int flags)
{
	uint8_t *p = buf;

	(void)flags;
	for (size_t i = 0; i < len; i++) {
		random_bytes = random_bytes * 6364136223846793005ULL + 1442695040888963407ULL;
		p[i] = (uint8_t)(random_bytes >> 33);
	}
	return (ssize_t)len;
}

/* Pauses between attempts would be all that a run does. */
int usleep(useconds_t usec)
{
	(void)usec;
	return 0;
}

/* ---- faults ---- */

void fuzz_fail(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fprintf(stderr, "fuzz: ");
	vfprintf(stderr, fmt, ap);
	fprintf(stderr, "\n");
	va_end(ap);
	abort();
}

void fuzz_check_text(const char *text)
{
	for (const char *p = text; *p; p++)
		fuzz_check(*p >= ' ' && *p <= '~', "byte 0x%02x in the text: %s",
			   (unsigned char)*p, text);
}

void fuzz_check_err(int ret, const struct tarn_err *err)
{
	fuzz_check(ret <= 0 && ret > -4096, "returned %d", ret);
	fuzz_check(!ret || err->text[0], "failed with %d and no sentence", ret);
	fuzz_check_text(err->text);
}

/* What testkernel.c and recorder.c want of cmocka, which there is no test around of. */
void _fail(const char *const file, const int line)
{
	fuzz_fail("%s:%d: failed", file, line);
}

void _assert_true(const LargestIntegralType result, const char *const expression,
		  const char *const file, const int line)
{
	fuzz_check(result, "%s:%d: %s", file, line, expression);
}

void _assert_int_equal(const LargestIntegralType a, const LargestIntegralType b,
		       const char *const file, const int line)
{
	fuzz_check(a == b, "%s:%d: 0x%llx is not 0x%llx", file, line, (unsigned long long)a,
		   (unsigned long long)b);
}

void print_error(const char *const format, ...)
{
	va_list ap;

	va_start(ap, format);
	vfprintf(stderr, format, ap);
	va_end(ap);
}

/* ---- media ---- */

static struct flat {
	struct tarn_media media;
	uint8_t *bytes;
	uint32_t reads;
} flat, flat_late;

static uint32_t when;			/* late lines come at this read; 0: they are not, or are here */
static uint8_t changed[FUZZ_LINES];	/* in the image, against the base */
static uint8_t late[FUZZ_LINES];	/* in the late image, against the image */
static bool stored_out_of_reach;

static void late_arrive(void)
{
	when = 0;
	for (uint32_t n = 0; n < FUZZ_LINES; n++)
		if (late[n]) {
			memcpy(fuzz_image + fuzz_line_off(n), fuzz_late + fuzz_line_off(n),
			       TARNFS_LINE);
			changed[n] = 1;
		}
}

static int flat_read(struct tarn_media *m, uint64_t off, void *buf, size_t len)
{
	struct flat *f = (struct flat *)m;

	if (when && f == &flat && ++f->reads >= when)
		late_arrive();
	memcpy(buf, f->bytes + off, len);
	return 0;
}

static int flat_read64(struct tarn_media *m, uint64_t off, uint64_t *value)
{
	return flat_read(m, off, value, sizeof(*value));
}

static int flat_write(struct tarn_media *m, uint64_t off, const void *buf, size_t len)
{
	struct flat *f = (struct flat *)m;

	for (uint64_t at = off / TARNFS_LINE * TARNFS_LINE; at < off + len; at += TARNFS_LINE) {
		uint32_t n = fuzz_line_at(at);

		if (n < FUZZ_LINES)
			changed[n] = 1;
		else
			stored_out_of_reach = true;
	}
	memcpy(f->bytes + off, buf, len);
	return 0;
}

static int flat_write64(struct tarn_media *m, uint64_t off, uint64_t value)
{
	return flat_write(m, off, &value, sizeof(value));
}

static int flat_nothing(struct tarn_media *m, uint64_t off, size_t len)
{
	(void)m;
	(void)off;
	(void)len;
	return 0;
}

static int flat_fence(struct tarn_media *m)
{
	(void)m;
	return 0;
}

static const struct tarn_media_ops flat_ops = {
	.read = flat_read, .write = flat_write, .read64 = flat_read64, .write64 = flat_write64,
	.writeback = flat_nothing, .invalidate = flat_nothing, .fence = flat_fence,
};

struct tarn_media *fuzz_media(void)
{
	return &flat.media;
}

struct tarn_media *fuzz_media_late(void)
{
	return &flat_late.media;
}

/* ---- the base ---- */

static uint32_t units;

static void put(const struct tarn_rec *rec, const struct tarn_seed *seed)
{
	uint8_t *at = fuzz_image + fuzz_super.area[0].off + units * TARNFS_LINE;

	fuzz_check(!tarn_rec_encode(at, FUZZ_LOG / 2, rec, seed), "record of the base");
	units += tarn_rec_units(rec);
}

static void make_log(void)
{
	struct tarn_log log = {
		.next_ino = 18, .data_end = fuzz_super.data_end, .ckpt_records = 4,
		.seed = { .generation = 1 },
	};
	struct tarn_rec rec;
	uint64_t word;

	memcpy(log.seed.uuid, fuzz_super.uuid, sizeof(log.seed.uuid));
	units = TARNFS_LOG_HEADER_UNITS;
	rec = record_node(TARNFS_REC_DIRECTORY, 1, 1, 1, "");
	rec.flags = TARNFS_RECORD_CKPT;
	put(&rec, &log.seed);
	rec = record_node(TARNFS_REC_DIRECTORY, 2, 16, 1, "old");
	rec.flags = TARNFS_RECORD_CKPT;
	put(&rec, &log.seed);
	rec = record_file(&fuzz_super, 3, 17, 16, "in it", 5000, 0);
	rec.flags = TARNFS_RECORD_CKPT;
	put(&rec, &log.seed);
	rec = (struct tarn_rec){ .type = TARNFS_REC_CHECKPOINT_END, .flags = TARNFS_RECORD_CKPT,
				 .seq = 4, .directories = 2, .files = 1 };
	put(&rec, &log.seed);
	log.ckpt_units = units - TARNFS_LOG_HEADER_UNITS;
	rec = record_node(TARNFS_REC_DIRECTORY, 1, 20, 1, "d");
	put(&rec, &log.seed);
	rec = record_file(&fuzz_super, 2, 21, 20, "f", 4096, 8192);
	put(&rec, &log.seed);
	rec = record_node(TARNFS_REC_SYMLINK, 3, 22, 20, "l");
	rec.target = "../f";
	rec.target_len = 4;
	put(&rec, &log.seed);
	rec = record_file(&fuzz_super, 4, 23, 1, "one", 1, 12288);
	rec.batch_left = 2;
	put(&rec, &log.seed);
	rec = record_file(&fuzz_super, 5, 24, 1, "two", 0, 0);
	rec.batch_index = 1;
	rec.batch_left = 1;
	put(&rec, &log.seed);
	rec = record_file(&fuzz_super, 6, 25, 20, "huge", TARNFS_HUGE, TARNFS_HUGE);
	rec.batch_index = 2;
	put(&rec, &log.seed);
	tarn_log_header_encode((struct tarnfs_log_header *)(fuzz_image + fuzz_super.area[0].off),
			       &log, 1, 1700000000);
	word = tarn_commit_word(&log.seed, 0, units);
	memcpy(fuzz_image + tarn_line_off(&fuzz_super, 0, TARNFS_LINE_COMMIT), &word, sizeof(word));
}

static void make_super(void)
{
	struct tarn_super *sb = &fuzz_super;

	memset(sb->uuid, 0x5a, sizeof(sb->uuid));
	memset(sb->dev_uuid, 0xd5, sizeof(sb->dev_uuid));
	strcpy(sb->label, "fuzz");
	sb->hosts_off = HOSTS_OFF;
	sb->mirror_off = MIRROR_OFF;
	sb->hosts = FUZZ_PAGES;
	sb->host_stride = TARNFS_HOST_STRIDE;
	sb->areas = FUZZ_AREAS;
	for (int i = 0; i < FUZZ_AREAS; i++) {
		sb->area[i].off = AREA_OFF + i * TARNFS_AREA_MIN;
		sb->area[i].len = TARNFS_AREA_MIN;
	}
	sb->data_start = FUZZ_IMAGE;
	sb->data_end = sb->data_start + 4 * TARNFS_HUGE;
	sb->dev_size = sb->data_end + 8192;
	sb->created_sec = 1700000000;
}

static void make_pages(void)
{
	struct tarn_err err = { "" };

	for (int i = 0; i < FUZZ_PAGES; i++) {
		memset(fuzz_host[i].uuid, 0xa0 + i, sizeof(fuzz_host[i].uuid));
		memset(fuzz_host[i].boot_id, 0xb0 + i, sizeof(fuzz_host[i].boot_id));
		snprintf(fuzz_host[i].node_name, sizeof(fuzz_host[i].node_name), "host%d", i);
		fuzz_host[i].page = -1;
	}
	for (uint16_t page = 0; page < FUZZ_PAGES; page += 2) {
		struct tarnfs_info *info = (struct tarnfs_info *)(fuzz_image +
			tarn_line_off(&fuzz_super, page, TARNFS_LINE_INFO));

		fuzz_check(!tarn_claim_write(&flat.media, &fuzz_super, &fuzz_host[page], page,
					     &fuzz_claim[page], &err) &&
			   !tarn_status_publish(&flat.media, &fuzz_super, &fuzz_claim[page], 1, 0,
						6, &err), "claim: %s", err.text);
		info->seconds = htole64(1700000000);
	}
}

void fuzz_image_init(void)
{
	const struct tarn_mkfs opt = { .owner = fuzz_host[0].uuid, .now_sec = 1700000000 };
	struct tarn_err err = { "" };

	if (fuzz_super.hosts)
		return;
	random_bytes = 1;
	make_super();
	flat = (struct flat){ { .ops = &flat_ops, .size = FUZZ_IMAGE }, fuzz_image, 0 };
	flat_late = (struct flat){ { .ops = &flat_ops, .size = FUZZ_IMAGE }, fuzz_late, 0 };
	memset(fuzz_host[0].uuid, 0xa0, sizeof(fuzz_host[0].uuid));
	fuzz_check(!tarn_mkfs_write(&flat.media, &fuzz_super, &opt, &err), "mkfs: %s", err.text);
	make_pages();
	make_log();
	memcpy(fuzz_base, fuzz_image, sizeof(fuzz_base));
	memset(changed, 0, sizeof(changed));
	stored_out_of_reach = false;
}

/* ---- inputs ---- */

uint64_t fuzz_line_off(uint32_t n)
{
	if (n < LOW_LINES)
		return (uint64_t)n * TARNFS_LINE;
	return AREA_OFF + TARNFS_AREA_MIN + (uint64_t)(n - LOW_LINES) * TARNFS_LINE;
}

uint32_t fuzz_line_at(uint64_t off)
{
	const uint64_t second = AREA_OFF + TARNFS_AREA_MIN;

	if (off < (uint64_t)LOW_LINES * TARNFS_LINE)
		return (uint32_t)(off / TARNFS_LINE);
	if (off >= second && off < second + FUZZ_LOG)
		return LOW_LINES + (uint32_t)((off - second) / TARNFS_LINE);
	return FUZZ_LINES;
}

#define REACH (LOW_LINES + FUZZ_LOG / TARNFS_LINE)

bool fuzz_image_load(const uint8_t *data, size_t size, struct fuzz_input *in)
{
	size_t at = HEAD;
	bool any = false;

	random_bytes = 1;
	memset(in, 0, sizeof(*in));
	memcpy(in, data, size < HEAD ? size : HEAD);
	while (at + PIECE < size) {
		uint32_t place = data[at] | (uint32_t)data[at + 1] << 8, lines = data[at + 2];
		bool is_late = place & FUZZ_LATE;

		at += PIECE;
		place = (place & ~(uint32_t)FUZZ_LATE) % REACH;
		for (lines += !lines; lines && at < size && place < REACH; lines--, place++) {
			size_t len = size - at < TARNFS_LINE ? size - at : TARNFS_LINE;
			uint8_t *to = is_late ? fuzz_late : fuzz_image;

			if (is_late && !late[place])
				memcpy(to + fuzz_line_off(place), fuzz_image + fuzz_line_off(place),
				       TARNFS_LINE);
			memcpy(to + fuzz_line_off(place), data + at, len);
			*(is_late ? &late[place] : &changed[place]) = 1;
			any |= is_late;
			at += len;
		}
	}
	when = any ? in->when : 0;
	return !when;
}

void fuzz_image_fill_late(void)
{
	for (uint32_t n = 0; n < REACH; n++)
		if (!late[n])
			memcpy(fuzz_late + fuzz_line_off(n), fuzz_image + fuzz_line_off(n),
			       TARNFS_LINE);
}

void fuzz_image_settle(void)
{
	if (when)
		late_arrive();
	flat.reads = 0;
}

void fuzz_image_reset(void)
{
	for (uint32_t n = 0; n < REACH; n++)
		if (changed[n])
			memcpy(fuzz_image + fuzz_line_off(n), fuzz_base + fuzz_line_off(n),
			       TARNFS_LINE);
	if (stored_out_of_reach)
		memcpy(fuzz_image, fuzz_base, sizeof(fuzz_image));
	stored_out_of_reach = false;
	memset(changed, 0, sizeof(changed));
	memset(late, 0, sizeof(late));
	when = 0;
	flat.reads = 0;
	flat.media.size = FUZZ_IMAGE;
}

/* The sanitizers' memcmp() would be a third of a mutation. */
static bool same_line(const uint8_t *a, const uint8_t *b)
{
	const uint64_t *x = (const uint64_t *)a, *y = (const uint64_t *)b;
	uint64_t differ = 0;

	for (size_t i = 0; i < TARNFS_LINE / sizeof(*x); i++)
		differ |= x[i] ^ y[i];
	return !differ;
}

static size_t store_lines(uint8_t *data, size_t at, size_t room, const uint8_t *now,
			  const uint8_t *was, uint32_t flag)
{
	for (uint32_t n = 0; n < REACH;) {
		uint32_t to = n;

		/* a piece: lines one after another in the image, too */
		while (to < REACH && to - n < 255 &&
		       !same_line(now + fuzz_line_off(to), was + fuzz_line_off(to)) &&
		       (to < LOW_LINES || n >= LOW_LINES))
			to++;
		if (to == n) {
			n++;
			continue;
		}
		if (at + PIECE + (size_t)(to - n) * TARNFS_LINE > room)
			return at;
		data[at] = (uint8_t)n;
		data[at + 1] = (uint8_t)((n | flag) >> 8);
		data[at + 2] = (uint8_t)(to - n);
		at += PIECE;
		for (; n < to; n++, at += TARNFS_LINE)
			memcpy(data + at, now + fuzz_line_off(n), TARNFS_LINE);
	}
	return at;
}

size_t fuzz_image_store(uint8_t *data, size_t room, const struct fuzz_input *in)
{
	size_t at = HEAD;

	if (room < HEAD)
		return 0;
	memcpy(data, in, HEAD);
	at = store_lines(data, at, room, fuzz_image, fuzz_base, 0);
	if (in->when)
		at = store_lines(data, at, room, fuzz_late, fuzz_image, FUZZ_LATE);
	return at;
}
