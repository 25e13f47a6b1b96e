// SPDX-License-Identifier: GPL-2.0-only
/*
 * Records come back as they were encoded; nothing else is accepted: no flipped
 * bit, no short record, no name that could escape, no batch or checkpoint that
 * is not whole.
 */
#include "recorder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static const struct tarn_seed seed = { .uuid = { 1, 2, 3 }, .generation = 7, .host = 3 };

static struct tarn_rec file_rec(const char *name)
{
	return (struct tarn_rec){
		.type = TARNFS_REC_FILE,
		.seq = 42,
		.batch_index = 1,
		.batch_left = 2,
		.ino = 17,
		.parent = 1,
		.mtime_sec = -5,
		.mtime_nsec = 999999999,
		.uid = 1000,
		.gid = 0xfffffffe,
		.mode = 06755,
		.name = name,
		.name_len = (uint16_t)strlen(name),
		.size = 5000,
		.file_flags = TARNFS_FILE_SHARED_WRITE,
		.extents = 1,
		.ext_off = 6 << 20,
		.ext_len = 8192,
	};
}

static void assert_same(const struct tarn_rec *a, const struct tarn_rec *b)
{
#define SAME(field) assert_true(a->field == b->field)
	SAME(type); SAME(class_); SAME(flags); SAME(seq); SAME(batch_index); SAME(batch_left);
	SAME(ino);
	SAME(parent);
	SAME(mtime_sec);
	SAME(mtime_nsec);
	SAME(uid);
	SAME(gid);
	SAME(mode);
	SAME(size); SAME(file_flags); SAME(extents); SAME(ext_off); SAME(ext_len);
	SAME(directories);
	SAME(files);
	SAME(symlinks);
	SAME(pending_free);
	SAME(hosts);
	SAME(others);
	SAME(host);
	SAME(host_flags);
	SAME(nonce);
	SAME(time);
	SAME(last_generation);
	SAME(last_seq);
	SAME(readonly);
#undef SAME
	assert_memory_equal(a->uuid, b->uuid, sizeof(a->uuid));
	assert_int_equal(a->name_len, b->name_len);
	if (a->name_len)
		assert_memory_equal(a->name, b->name, a->name_len);
	assert_int_equal(a->target_len, b->target_len);
	if (a->target_len)
		assert_memory_equal(a->target, b->target, a->target_len);
}

static void round_trip_one(const struct tarn_rec *rec, uint32_t units)
{
	size_t len = units * TARNFS_LINE;
	/* just as long: the address sanitizer sees a byte too many */
	uint8_t *buf = malloc(len);
	struct tarn_rec back;
	struct tarn_err err = { "" };

	assert_int_equal(tarn_rec_units(rec), units);
	assert_int_equal(tarn_rec_encode(buf, len - 1, rec, &seed), -EINVAL);
	assert_int_equal(tarn_rec_encode(buf, len, rec, &seed), 0);
	if (tarn_rec_decode(&back, buf, len, &seed, &err))
		fail_msg("%s", err.text);
	assert_int_equal(back.units, units);
	assert_same(rec, &back);
	for (size_t room = 0; room < len; room++)
		assert_int_equal(tarn_rec_decode(&back, buf, room, &seed, &err), -EUCLEAN);
	free(buf);
}

static void round_trips(void **state)
{
	char name[256], target[TARNFS_TARGET_MAX + 1];
	struct tarn_rec rec;

	(void)state;
	memset(name, 'n', 255);
	name[255] = '\0';
	memset(target, '/', TARNFS_TARGET_MAX);
	target[TARNFS_TARGET_MAX] = '\0';
	rec = file_rec("a");
	round_trip_one(&rec, 2);
	rec = file_rec("123456789012345678901234");
	round_trip_one(&rec, 2);		/* 128 bytes for names up to 24 */
	rec = file_rec("1234567890123456789012345");
	round_trip_one(&rec, 3);
	rec = file_rec(name);
	round_trip_one(&rec, 6);
	rec = file_rec("\xff\x01 -\n");	/* any byte but NUL and '/' */
	round_trip_one(&rec, 2);
	rec.size = 0;
	rec.extents = 0;
	rec.ext_off = rec.ext_len = 0;
	round_trip_one(&rec, 2);
	rec = (struct tarn_rec){ .type = TARNFS_REC_DIRECTORY,
				 .seq = TARNFS_SEQ_MAX,
				 .ino = 16,
				 .parent = 1,
				 .name = name,
				 .name_len = 255 };
	round_trip_one(&rec, 5);
	rec.name = "...";
	rec.name_len = 3;
	round_trip_one(&rec, 2);
	rec = (struct tarn_rec){ .type = TARNFS_REC_DIRECTORY,
				 .flags = TARNFS_RECORD_CKPT,
				 .seq = 1,
				 .ino = 1,
				 .parent = 1,
				 .name = "" };
	round_trip_one(&rec, 1);
	rec = (struct tarn_rec){ .type = TARNFS_REC_SYMLINK,
				 .seq = 1,
				 .ino = 16,
				 .parent = 1,
				 .name = name,
				 .name_len = 255,
				 .target = target,
				 .target_len = TARNFS_TARGET_MAX };
	round_trip_one(&rec, 70);
	rec.name_len = rec.target_len = 1;
	round_trip_one(&rec, 2);
	rec = (struct tarn_rec){ .type = TARNFS_REC_CHECKPOINT_END,
				 .flags = TARNFS_RECORD_CKPT,
				 .seq = 9,
				 .directories = 1,
				 .files = 2,
				 .symlinks = 3,
				 .pending_free = 4,
				 .hosts = 5,
				 .others = 6 };
	round_trip_one(&rec, 1);
	rec = (struct tarn_rec){ .type = TARNFS_REC_HOST,
				 .seq = 9,
				 .host = 127,
				 .host_flags = TARNFS_HOST_EVICTED,
				 .nonce = 5,
				 .uuid = { 1 },
				 .time = 7,
				 .last_generation = 8,
				 .last_seq = 9 };
	round_trip_one(&rec, 2);
}

static int encode(const struct tarn_rec *rec)
{
	uint8_t buf[70 * TARNFS_LINE];

	return tarn_rec_encode(buf, sizeof(buf), rec, &seed);
}

#define REFUSED(field, value) do {			\
		struct tarn_rec r_ = file_rec("name");	\
							\
		r_.field = (value);			\
		if (encode(&r_) != -EINVAL)		\
			fail_msg(#field " = " #value);	\
	} while (0)

/* What could not be decoded again is not encoded. */
static void encode_refuses(void **state)
{
	struct tarn_rec rec = file_rec("name");

	(void)state;
	assert_int_equal(encode(&rec), 0);
	REFUSED(name_len, 0);
	REFUSED(name_len, 256);
	REFUSED(name, "na/e");
	REFUSED(name, "na\0e");
	REFUSED(ino, 0);
	REFUSED(ino, 1);
	REFUSED(ino, 15);
	REFUSED(ino, TARNFS_SEQ_MAX + 1);
	REFUSED(parent, 0);
	REFUSED(parent, 2);
	REFUSED(parent, 17);
	REFUSED(mode, 010000);
	REFUSED(mtime_nsec, 1000000000);
	REFUSED(uid, UINT32_MAX);
	REFUSED(gid, UINT32_MAX);
	REFUSED(size, 8193);
	REFUSED(size, 0);
	REFUSED(size, TARNFS_SIZE_MAX + 1);
	REFUSED(extents, 0);
	REFUSED(extents, 2);
	REFUSED(ext_off, 4097);
	REFUSED(ext_off, UINT64_MAX << 12);
	REFUSED(ext_len, 4096);
	REFUSED(ext_len, 8193);
	REFUSED(ext_len, UINT64_MAX << 12);
	REFUSED(file_flags, 2);
	REFUSED(seq, 0);
	REFUSED(seq, TARNFS_SEQ_MAX + 1);
	REFUSED(batch_left, TARNFS_BATCH_MAX - 1);
	REFUSED(batch_left, UINT16_MAX);
	REFUSED(flags, 2);
	REFUSED(flags, TARNFS_RECORD_CKPT);	/* with a place in a batch */
	REFUSED(class_, TARNFS_CLASS_IGNORE);
	REFUSED(type, TARNFS_REC_UNLINK);
	REFUSED(type, 0);
	REFUSED(type, 255);
	rec = (struct tarn_rec){ .type = TARNFS_REC_SYMLINK,
				 .seq = 1,
				 .ino = 16,
				 .parent = 1,
				 .name = "s",
				 .name_len = 1 };
	assert_int_equal(encode(&rec), -EINVAL);
	rec.target = "a\0b";
	rec.target_len = 3;
	assert_int_equal(encode(&rec), -EINVAL);
	rec = (struct tarn_rec){
		.type = TARNFS_REC_DIRECTORY, .seq = 1, .ino = 1, .parent = 1, .name = ""
	};
	assert_int_equal(encode(&rec), -EINVAL);	/* a root outside a checkpoint */
	rec = (struct tarn_rec){ .type = TARNFS_REC_CHECKPOINT_END, .seq = 1 };
	assert_int_equal(encode(&rec), -EINVAL);
	rec = (struct tarn_rec){ .type = TARNFS_REC_HOST, .seq = 1, .host = 128 };
	assert_int_equal(encode(&rec), -EINVAL);
}

static void names(void **state)
{
	static const char *const bad[] = { "", ".", "..", "/", "a/b", "/a", "a/", "../a" };
	static const char *const good[] = { "a", "...", "..a",	    ".a", "a.",
					    " ", "\n",	"\xff\xfe", "-" };
	char longest[257];

	(void)state;
	for (size_t i = 0; i < TARN_ARRAY_SIZE(bad); i++)
		assert_int_equal(tarn_name_check(bad[i], strlen(bad[i])), -EINVAL);
	for (size_t i = 0; i < TARN_ARRAY_SIZE(good); i++)
		assert_int_equal(tarn_name_check(good[i], strlen(good[i])), 0);
	assert_int_equal(tarn_name_check("a\0b", 3), -EINVAL);
	memset(longest, 'x', sizeof(longest));
	assert_int_equal(tarn_name_check(longest, 255), 0);
	assert_int_equal(tarn_name_check(longest, 256), -EINVAL);
}

/* ---- media form, broken on purpose ---- */

struct raw {
	_Alignas(8) uint8_t bytes[8 * TARNFS_LINE];
	size_t len;
};

static struct raw raw_of(const struct tarn_rec *rec)
{
	struct raw raw = { .len = tarn_rec_units(rec) * TARNFS_LINE };

	assert_int_equal(tarn_rec_encode(raw.bytes, sizeof(raw.bytes), rec, &seed), 0);
	return raw;
}

static uint32_t log_crc(const struct tarn_seed *s, const void *buf, size_t len)
{
	uint64_t generation = htole64(s->generation);
	uint16_t host = htole16(s->host);
	uint32_t crc = tarn_crc32c(0, s->uuid, 16);

	crc = tarn_crc32c(crc, &generation, 8);
	crc = tarn_crc32c(crc, &host, 2);
	return tarn_crc32c(crc, buf, len);
}

static void seal(struct raw *raw)
{
	uint32_t crc;

	memset(raw->bytes, 0, 4);
	crc = htole32(log_crc(&seed, raw->bytes, raw->len));
	memcpy(raw->bytes, &crc, 4);
}

static int decode(const struct raw *raw, struct tarn_rec *rec)
{
	struct tarn_err err = { "" };
	struct tarn_rec mine;
	uint8_t *exact = malloc(raw->len);
	int ret;

	memcpy(exact, raw->bytes, raw->len);
	ret = tarn_rec_decode(rec ? rec : &mine, exact, raw->len, &seed, &err);
	free(exact);
	if (ret)
		assert_true(err.text[0]);
	return ret;
}

static void every_bit(void **state)
{
	struct tarn_rec rec = file_rec("a name of some length, so that it has two lines");
	struct raw raw = raw_of(&rec);

	(void)state;
	for (size_t bit = 0; bit < raw.len * 8; bit++) {
		raw.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_int_equal(decode(&raw, NULL), -EUCLEAN);
		raw.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	assert_int_equal(decode(&raw, NULL), 0);
}

/* A record belongs to one log: another fs, generation or host, and it is none. */
static void other_seeds(void **state)
{
	struct tarn_rec rec = file_rec("a"), back;
	struct raw raw = raw_of(&rec);
	struct tarn_seed other;
	struct tarn_err err;

	(void)state;
	other = seed;
	other.uuid[15]++;
	assert_int_equal(tarn_rec_decode(&back, raw.bytes, raw.len, &other, &err), -EUCLEAN);
	other = seed;
	other.generation++;
	assert_int_equal(tarn_rec_decode(&back, raw.bytes, raw.len, &other, &err), -EUCLEAN);
	other = seed;
	other.host++;
	assert_int_equal(tarn_rec_decode(&back, raw.bytes, raw.len, &other, &err), -EUCLEAN);
	assert_int_not_equal(tarn_commit_word(&seed, 0, 6), tarn_commit_word(&seed, 1, 6));
	assert_int_not_equal(tarn_commit_word(&seed, 0, 6), tarn_commit_word(&other, 0, 6));
	assert_int_equal((uint32_t)tarn_commit_word(&seed, 0, 6), 6);
}

/*
 * Any bit, with a checksum that fits: what is accepted encodes to the same
 * bytes again, so nothing of it was overlooked.
 */
static void every_bit_sealed(void **state)
{
	struct tarn_rec recs[4] = {
		file_rec("file with a name that takes three lines"),
		{ .type = TARNFS_REC_DIRECTORY,
		  .seq = 3,
		  .ino = 16,
		  .parent = 1,
		  .name = "dir",
		  .name_len = 3 },
		{ .type = TARNFS_REC_SYMLINK,
		  .seq = 3,
		  .ino = 16,
		  .parent = 1,
		  .name = "link",
		  .name_len = 4,
		  .target = "target",
		  .target_len = 6 },
		{ .type = TARNFS_REC_CHECKPOINT_END,
		  .flags = TARNFS_RECORD_CKPT,
		  .seq = 3,
		  .directories = 1 },
	};

	(void)state;
	for (size_t i = 0; i < TARN_ARRAY_SIZE(recs); i++) {
		struct raw good = raw_of(&recs[i]);

		for (size_t bit = 32; bit < good.len * 8; bit++) {
			struct raw bad = good, again = { .len = good.len };
			struct tarn_rec rec;
			struct tarn_err err;

			bad.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
			seal(&bad);
			if (tarn_rec_decode(&rec, bad.bytes, bad.len, &seed, &err) || rec.class_ ||
			    !tarn_rec_built(rec.type))
				continue;
			/* a name may become shorter, and then what follows it is not zero */
			if (tarn_rec_encode(again.bytes, sizeof(again.bytes), &rec, &seed) ||
			    memcmp(again.bytes, bad.bytes, bad.len))
				fail_msg("record %zu, bit %zu of byte %zu: accepted as something "
					 "else",
					 i, bit % 8, bit / 8);
		}
	}
}

static struct tarn_rec dir_rec(const char *name)
{
	return (struct tarn_rec){ .type = TARNFS_REC_DIRECTORY,
				  .seq = 3,
				  .ino = 16,
				  .parent = 1,
				  .name = name,
				  .name_len = (uint16_t)strlen(name) };
}

/* Types of later versions: ignored, read-only, or refused, as their class says. */
static void unknown_types(void **state)
{
	static const uint16_t types[] = { TARNFS_REC_DEVICE, TARNFS_REC_NOTE, 99, 0xffff };
	struct tarn_rec rec = dir_rec("a"), back;

	(void)state;
	for (size_t i = 0; i < TARN_ARRAY_SIZE(types); i++) {
		struct raw raw = raw_of(&rec);
		struct tarnfs_record *head = (struct tarnfs_record *)raw.bytes;

		head->type = htole16(types[i]);
		seal(&raw);
		assert_int_equal(decode(&raw, &back), -EOPNOTSUPP);
		head->class = TARNFS_CLASS_IGNORE;
		seal(&raw);
		assert_int_equal(decode(&raw, &back), 0);
		assert_false(back.readonly);
		assert_int_equal(back.type, types[i]);
		head->class = TARNFS_CLASS_READONLY;
		seal(&raw);
		assert_int_equal(decode(&raw, &back), 0);
		assert_true(back.readonly);
		head->class = 3;
		seal(&raw);
		assert_int_equal(decode(&raw, &back), -EOPNOTSUPP);
	}
}

/* Types of version 1 that are not built are known by name and length. */
static void unbuilt_types(void **state)
{
	static const uint16_t types[] = { TARNFS_REC_UNLINK,	   TARNFS_REC_RENAME,
					  TARNFS_REC_SETATTR,	   TARNFS_REC_RECLAIM,
					  TARNFS_REC_PENDING_FREE, TARNFS_REC_DATA_END };
	struct tarn_rec rec = dir_rec("a"), back;

	(void)state;
	for (size_t i = 0; i < TARN_ARRAY_SIZE(types); i++) {
		struct raw raw = raw_of(&rec);

		((struct tarnfs_record *)raw.bytes)->type = htole16(types[i]);
		seal(&raw);
		assert_int_equal(decode(&raw, &back), 0);
		assert_int_equal(back.type, types[i]);
		assert_false(tarn_rec_built(back.type));
		assert_non_null(tarn_rec_type_name(types[i]));
		((struct tarnfs_record *)raw.bytes)->fixed = htole16(8);
		seal(&raw);
		assert_int_equal(decode(&raw, &back), -EUCLEAN);
	}
	assert_null(tarn_rec_type_name(0));
	assert_null(tarn_rec_type_name(19));
	assert_null(tarn_rec_type_name(0xffff));
}

/* Tagged values behind the name: skipped, read-only or refused; never read past the record. */
static void tagged_values(void **state)
{
	struct tarn_rec rec = dir_rec("12345678"), back;	/* name ends at 72 */
	struct raw raw = raw_of(&rec);
	struct tarnfs_tlv tlv = { .tag = htole16(77),
				  .class = TARNFS_CLASS_IGNORE,
				  .length = htole32(9) };

	(void)state;
	memcpy(raw.bytes + 72, &tlv, sizeof(tlv));
	memset(raw.bytes + 80, 0xee, 9);
	seal(&raw);
	assert_int_equal(decode(&raw, &back), 0);
	assert_false(back.readonly);
	((struct tarnfs_tlv *)(raw.bytes + 72))->class = TARNFS_CLASS_READONLY;
	seal(&raw);
	assert_int_equal(decode(&raw, &back), 0);
	assert_true(back.readonly);
	((struct tarnfs_tlv *)(raw.bytes + 72))->class = TARNFS_CLASS_REFUSE;
	seal(&raw);
	assert_int_equal(decode(&raw, &back), -EOPNOTSUPP);
	tlv.length = htole32(48);	/* up to the very end */
	memcpy(raw.bytes + 72, &tlv, sizeof(tlv));
	memset(raw.bytes + 80, 0xee, 48);
	seal(&raw);
	assert_int_equal(decode(&raw, &back), 0);
	tlv.length = htole32(49);
	memcpy(raw.bytes + 72, &tlv, sizeof(tlv));
	seal(&raw);
	assert_int_equal(decode(&raw, &back), -EUCLEAN);
	tlv.length = htole32(UINT32_MAX);
	memcpy(raw.bytes + 72, &tlv, sizeof(tlv));
	seal(&raw);
	assert_int_equal(decode(&raw, &back), -EUCLEAN);
	/* tag 0 ends the list: nothing may stand behind it */
	memset(raw.bytes + 72, 0, 8);
	seal(&raw);
	assert_int_equal(decode(&raw, &back), -EOPNOTSUPP);
}

/* ---- the walk, over a log made by hand ---- */

#define AREA (1U << 20)

struct hand {
	struct memory *mem;
	struct recorder *r;
	struct tarn_super sb;
	struct tarn_log log;
	uint32_t at;		/* units written */
	uint64_t seq;
	struct tarn_err err;
	unsigned int seen;
	uint64_t last;
};

static void hand_put(struct hand *h, const struct tarn_rec *rec)
{
	uint8_t *to = memory_bytes(h->mem) + h->log.area_off + (size_t)h->at * TARNFS_LINE;

	assert_int_equal(tarn_rec_encode(to, AREA - (size_t)h->at * TARNFS_LINE, rec, &h->log.seed),
			 0);
	h->at += tarn_rec_units(rec);
}

static void hand_batch(struct hand *h, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++) {
		struct tarn_rec rec = dir_rec("some directory");

		rec.seq = ++h->seq;
		rec.ino = 15 + rec.seq;
		rec.batch_index = (uint16_t)i;
		rec.batch_left = (uint16_t)(n - 1 - i);
		hand_put(h, &rec);
	}
}

/* A header and a checkpoint of a root and three directories. */
static void hand_new(struct hand *h)
{
	struct tarn_rec rec = { .type = TARNFS_REC_DIRECTORY,
				.flags = TARNFS_RECORD_CKPT,
				.seq = 1,
				.ino = 1,
				.parent = 1,
				.name = "" };

	memset(h, 0, sizeof(*h));
	h->mem = memory_new(AREA, 0);
	h->log = (struct tarn_log){
		.seed = seed, .area_len = AREA, .base_seq = 100, .ckpt_records = 5
	};
	h->at = TARNFS_LOG_HEADER_UNITS;
	hand_put(h, &rec);
	for (unsigned int i = 0; i < 3; i++) {
		rec = dir_rec("checkpointed");
		rec.flags = TARNFS_RECORD_CKPT;
		rec.seq = i + 2;
		rec.ino = 16 + i;
		hand_put(h, &rec);
	}
	rec = (struct tarn_rec){ .type = TARNFS_REC_CHECKPOINT_END,
				 .flags = TARNFS_RECORD_CKPT,
				 .seq = 5,
				 .directories = 4 };
	hand_put(h, &rec);
	h->log.ckpt_units = h->at - TARNFS_LOG_HEADER_UNITS;
	h->seq = 100;
}

static void hand_free(struct hand *h)
{
	if (h->r)
		recorder_free(h->r);
	memory_free(h->mem);
}

static int see(void *arg, const struct tarn_rec *rec)
{
	struct hand *h = arg;

	h->seen++;
	h->last = rec->seq;
	return 0;
}

static int hand_walk(struct hand *h, uint32_t *pos)
{
	int ret;

	if (h->r)
		recorder_free(h->r);
	h->r = recorder_new(h->mem);
	h->log.units = h->at;
	h->log.next_seq = 0;
	h->seen = 0;
	*pos = TARNFS_LOG_HEADER_UNITS;
	ret = tarn_log_walk(&h->log, recorder_media(h->r), pos, see, h, &h->err);
	assert_no_fault(h->r);
	return ret;
}

static void walk_all(void **state)
{
	struct hand h;
	uint32_t pos, middle;

	(void)state;
	hand_new(&h);
	assert_int_equal(hand_walk(&h, &pos), 0);
	assert_int_equal(h.seen, 5);
	assert_int_equal(pos, h.at);
	assert_int_equal(h.log.next_seq, 101);
	hand_batch(&h, 1);
	hand_batch(&h, 3);
	middle = h.at;
	hand_batch(&h, 2000);	/* more than one window */
	hand_batch(&h, 1);
	assert_int_equal(hand_walk(&h, &pos), 0);
	assert_int_equal(h.seen, 5 + 2005);
	assert_int_equal(h.last, 100 + 2005);
	assert_int_equal(pos, h.at);
	/* from a place that was reached before */
	h.seen = 0;
	pos = middle;
	h.log.next_seq = 105;
	assert_int_equal(tarn_log_walk(&h.log, recorder_media(h.r), &pos, see, &h, &h.err), 0);
	assert_int_equal(h.seen, 2001);
	/* not from within the checkpoint */
	pos = TARNFS_LOG_HEADER_UNITS + 1;
	assert_int_equal(tarn_log_walk(&h.log, recorder_media(h.r), &pos, see, &h, &h.err),
			 -EINVAL);
	hand_free(&h);
}

/* A damaged record: all of its batch is unseen, all before it is seen, the offset is named. */
static void walk_stops_at_damage(void **state)
{
	char offset[32];
	struct hand h;
	uint32_t pos, bad;

	(void)state;
	hand_new(&h);
	hand_batch(&h, 2);
	bad = h.at + 4;			/* the third of the next batch */
	hand_batch(&h, 5);
	hand_batch(&h, 1);
	memory_bytes(h.mem)[bad * TARNFS_LINE + 70] ^= 4;
	assert_int_equal(hand_walk(&h, &pos), -EUCLEAN);
	assert_int_equal(h.seen, 5 + 2);
	assert_int_equal(pos, bad - 4);
	snprintf(offset, sizeof(offset), "0x%x", bad * TARNFS_LINE);
	assert_non_null(strstr(h.err.text, offset));
	hand_free(&h);
}

static void walk_poison(void **state)
{
	struct hand h;
	uint32_t pos = TARNFS_LOG_HEADER_UNITS;

	(void)state;
	hand_new(&h);
	h.log.units = h.at;
	h.r = recorder_new(h.mem);
	recorder_poison(h.r, 5 * TARNFS_LINE + 3);
	assert_int_equal(tarn_log_walk(&h.log, recorder_media(h.r), &pos, see, &h, &h.err), -EIO);
	assert_non_null(strstr(h.err.text, "0x143"));
	hand_free(&h);
}

/* What a batch may not be. */
static void walk_refuses_batches(void **state)
{
	struct tarn_rec rec = dir_rec("d");
	struct hand h;
	uint32_t pos;

	(void)state;
	rec.seq = 101;

#define CASE(...) do {								\
		hand_new(&h);							\
		__VA_ARGS__							\
		assert_int_equal(hand_walk(&h, &pos), -EUCLEAN);		\
		assert_int_equal(pos, TARNFS_LOG_HEADER_UNITS + h.log.ckpt_units);	\
		hand_free(&h);							\
	} while (0)

	/* cut off by the commit word */
	CASE({ rec.batch_left = 1; hand_put(&h, &rec); rec.batch_left = 0; });
	CASE({ hand_put(&h, &rec); h.at--; });
	/* begins in its middle */
	CASE({ rec.batch_index = 1; hand_put(&h, &rec); rec.batch_index = 0; });
	/* a seq is left out, comes again */
	CASE({ rec.seq = 102; hand_put(&h, &rec); rec.seq = 101; });
	CASE({ rec.seq = 100; hand_put(&h, &rec); rec.seq = 101; });
	/* its records disagree */
	CASE({
		rec.batch_left = 2; hand_put(&h, &rec);
		rec.batch_index = 1; rec.batch_left = 0; rec.seq = 102; hand_put(&h, &rec);
		rec.batch_index = 0; rec.seq = 101;
	});
	CASE({
		rec.batch_left = 1; hand_put(&h, &rec);
		rec.batch_index = 2; rec.batch_left = 0; rec.seq = 102; hand_put(&h, &rec);
		rec.batch_index = 0; rec.seq = 101;
	});
	/* a record of the checkpoint behind it */
	CASE({ rec.flags = TARNFS_RECORD_CKPT; hand_put(&h, &rec); rec.flags = 0; });
#undef CASE
}

/* What a checkpoint may not be. */
static void walk_refuses_checkpoints(void **state)
{
	struct tarnfs_rec_checkpoint_end *end;
	struct hand h;
	uint32_t pos;
	struct raw raw;

	(void)state;

#define CASE(...) do {								\
		hand_new(&h);							\
		__VA_ARGS__							\
		if (hand_walk(&h, &pos) != -EUCLEAN)				\
			fail_msg(#__VA_ARGS__);					\
		assert_int_equal(h.seen, 0);					\
		hand_free(&h);							\
	} while (0)
#define RECORD(unit) (memory_bytes(h.mem) + (unit) * TARNFS_LINE)
#define END_UNIT (h.at - 1)

	CASE(h.log.ckpt_records = 4;);
	CASE(h.log.ckpt_records = 6;);
	CASE(h.log.ckpt_units--;);
	CASE(h.log.ckpt_units++; hand_batch(&h, 1););
	/* the root is not first, or comes twice */
	CASE(memmove(RECORD(4), RECORD(5), (h.at - 5) * TARNFS_LINE); h.at--; h.log.ckpt_units--;
	     h.log.ckpt_records--;);
	CASE({
		struct tarn_rec root = { .type = TARNFS_REC_DIRECTORY,
					 .flags = TARNFS_RECORD_CKPT,
					 .seq = 2,
					 .ino = 1,
					 .parent = 1,
					 .name = "" };
		uint32_t at = h.at;

		h.at = 5;
		hand_put(&h, &root);
		h.at = at;
	});
	for (int i = 0; i < 6; i++) {
		CASE({
			memcpy(raw.bytes, RECORD(END_UNIT), TARNFS_LINE);
			raw.len = TARNFS_LINE;
			end = (struct tarnfs_rec_checkpoint_end *)raw.bytes;
			((uint8_t *)&end->directories)[i < 4 ? i * 8 : 32 + (i - 4) * 4]++;
			seal(&raw);
			memcpy(RECORD(END_UNIT), raw.bytes, TARNFS_LINE);
		});
	}
#undef CASE
}

/* The caller's function ends the walk. */
static int stop_at_third(void *arg, const struct tarn_rec *rec)
{
	struct hand *h = arg;

	(void)rec;
	return ++h->seen == 3 ? -ECANCELED : 0;
}

static void walk_is_stopped(void **state)
{
	uint32_t pos = TARNFS_LOG_HEADER_UNITS;
	struct hand h;

	(void)state;
	hand_new(&h);
	h.log.units = h.at;
	h.r = recorder_new(h.mem);
	assert_int_equal(
		tarn_log_walk(&h.log, recorder_media(h.r), &pos, stop_at_third, &h, &h.err),
		-ECANCELED);
	assert_int_equal(h.seen, 3);
	assert_int_equal(pos, TARNFS_LOG_HEADER_UNITS);
	hand_free(&h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(round_trips),
		cmocka_unit_test(encode_refuses),
		cmocka_unit_test(names),
		cmocka_unit_test(every_bit),
		cmocka_unit_test(other_seeds),
		cmocka_unit_test(every_bit_sealed),
		cmocka_unit_test(unknown_types),
		cmocka_unit_test(unbuilt_types),
		cmocka_unit_test(tagged_values),
		cmocka_unit_test(walk_all),
		cmocka_unit_test(walk_stops_at_damage),
		cmocka_unit_test(walk_poison),
		cmocka_unit_test(walk_refuses_batches),
		cmocka_unit_test(walk_refuses_checkpoints),
		cmocka_unit_test(walk_is_stopped),
	};

	return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
