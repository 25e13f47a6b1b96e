// SPDX-License-Identifier: GPL-2.0-only
/*
 * Replay: a host ends with just what the master committed, whatever it had
 * before, whatever stands in its caches, whatever happens meanwhile; on damage
 * it has what came before, and says where it is.
 */
#include "testkernel.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#define MIB (1ULL << 20)
#define SCAN "fetch page0.control\n" "fetch page1.control\n"
#define LOG_OPEN "invalidate page0.commit0\n" "read64 page0.commit0\n" "fetch area0+0 256\n"
#define FIRST_UNITS 6

static struct memory *mem;
static struct tarn_super sb;
static struct testhost h[2];
static struct tarn_err err;

static int setup(void **state)
{
	(void)state;
	mem = test_mkfs(&sb, TEST_HOSTS, MIB, 4 * MIB, test_owner);
	for (int i = 0; i < TEST_HOSTS; i++) {
		testhost_start(&h[i], mem, &sb, i);
		testhost_mount(&h[i]);
	}
	err.text[0] = '\0';
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	for (int i = 0; i < TEST_HOSTS; i++) {
		testkernel_verify(h[i].t);
		testhost_stop(&h[i]);
	}
	memory_free(mem);
	return 0;
}

static void assert_replay(struct testhost *host, int64_t expect)
{
	int64_t n = testhost_replay(host, &err);

	if (n != expect)
		fail_msg("replay: %lld instead of %lld: %s", (long long)n, (long long)expect,
			 err.text);
}

static void create(const char *name)
{
	if (testhost_create(&h[0], name, 5000, &err))
		fail_msg("%s", err.text);
}

static void assert_same_tree(struct testhost *a, struct testhost *b)
{
	char *x = testkernel_dump(a->t), *y = testkernel_dump(b->t);

	assert_string_equal(x, y);
	free(x);
	free(y);
}

/* Host 1 after a reboot: a fresh kernel, an empty cache. */
static void remount(void)
{
	testhost_stop(&h[1]);
	testhost_start(&h[1], mem, &sb, 1);
	testhost_mount(&h[1]);
}

/* Host 1 with a fresh kernel and a claim, nothing replayed yet. */
static void restart(void)
{
	testhost_stop(&h[1]);
	testhost_start(&h[1], mem, &sb, 1);
	assert_int_equal(tarn_claim_write(h[1].s.media, &sb, &h[1].id, 1, &h[1].s.claim, &err), 0);
	recorder_take(h[1].r);
}

/* ---- order ---- */

/* Scan, commit word, header, records, scan again, apply: each read from memory. */
static void replay_order(void **state)
{
	(void)state;
	create("a");
	create("b");
	restart();
	testkernel_recorder(h[1].t, h[1].r);
	assert_replay(&h[1], 3);
	assert_ops(h[1].r, "lock\n"
			   "fetch super 512\n"
			   "fetch page1.identity\n" SCAN LOG_OPEN "fetch area0+256 384\n" SCAN
			   "APPLY stage 1\n" SCAN "APPLY 2\n"
			   "APPLY at-end 0\n"
			   "unlock\n");
	/* the same process goes on where it was */
	create("c");
	assert_replay(&h[1], 1);
	assert_ops(h[1].r,
		   "lock\n"
		   "fetch super 512\n"
		   "fetch page1.identity\n" SCAN LOG_OPEN "fetch area0+640 128\n" SCAN "APPLY 1\n"
		   "APPLY at-end 0\n"
		   "unlock\n");
	/* another asks the kernel for the place, and does not read what is before it */
	testhost_next_command(&h[1]);
	create("d");
	assert_replay(&h[1], 1);
	assert_ops(h[1].r,
		   "lock\n"
		   "fetch super 512\n"
		   "fetch page1.identity\n" SCAN LOG_OPEN "fetch area0+768 128\n" SCAN "APPLY 1\n"
		   "APPLY at-end 0\n"
		   "unlock\n");
	/* nothing new */
	assert_replay(&h[1], 0);
	assert_ops(h[1].r, "lock\n"
			   "fetch super 512\n"
			   "fetch page1.identity\n" SCAN LOG_OPEN "APPLY at-end 0\n"
			   "unlock\n");
	assert_same_tree(&h[0], &h[1]);
}

/* ---- the main job ---- */

/*
 * 10,000 files in commits of 1,000; another host has just the same afterwards, at once or
 * step by step.
 */
static void ten_thousand_files(void **state)
{
	struct tarn_new *news = calloc(1000, sizeof(*news));
	char (*names)[32] = calloc(1000, sizeof(*names));
	struct testhost late, master;
	struct memory *big;
	struct tarn_super big_sb;
	uint64_t next_uid = 0;

	(void)state;
	big = test_mkfs(&big_sb, 3, 2 * MIB, 64 * MIB, test_owner);
	testhost_start(&master, big, &big_sb, 0);
	testhost_mount(&master);
	testhost_start(&late, big, &big_sb, 1);
	testhost_mount(&late);
	for (unsigned int commit = 0; commit < 10; commit++) {
		struct tarn_reservation r = { .set = -1 };

		for (unsigned int i = 0; i < 1000; i++) {
			snprintf(names[i], sizeof(names[i]), "file %u of %u", i, commit);
			news[i] = (struct tarn_new){
				.item = { .type = TARNFS_TYPE_FILE,
					  .size = i % 100 == 7 ? 0 : 4096 },
				.parent = 1,
				.name = names[i],
				.uid = (uint32_t)next_uid++,
				.mode = (uint16_t)(i & 07777),
				.mtime_sec = -(int64_t)i,
				.mtime_nsec = i,
			};
		}
		if (tarn_reserve_files(&master.s, &r, news, 1000, &err) ||
		    tarn_commit(&master.s, &r, &err))
			fail_msg("%s", err.text);
		tarn_reservation_drop(&master.s, &r);
		assert_no_fault(master.r);
		recorder_take(master.r);
		if (commit == 4)
			assert_int_equal(testhost_replay(&late, &err), 5000);
	}
	free(news);
	free(names);
	assert_int_equal(testhost_replay(&late, &err), 5000);
	assert_same_tree(&master, &late);
	assert_no_fault(late.r);
	testhost_stop(&late);
	testhost_start(&late, big, &big_sb, 2);
	testhost_mount(&late);
	assert_same_tree(&master, &late);
	assert_int_equal(late.s.st.files, 10000);
	testkernel_verify(late.t);
	testhost_stop(&late);
	testhost_stop(&master);
	memory_free(big);
}

/* More than one APPLY takes: whole batches go in each, and all of it arrives. */
static void more_than_one_call(void **state)
{
	const unsigned int per_commit = 10000, commits = 7;
	struct tarn_new *news = calloc(per_commit, sizeof(*news));
	char (*names)[16] = calloc(per_commit, sizeof(*names));
	struct testhost master, client;
	struct memory *big;
	struct tarn_super big_sb;
	const char *ops;

	(void)state;
	big = test_mkfs(&big_sb, 2, 10 * MIB, 4 * MIB, test_owner);
	testhost_start(&master, big, &big_sb, 0);
	testhost_mount(&master);
	for (unsigned int commit = 0; commit < commits; commit++) {
		struct tarn_reservation r = { .set = -1 };

		for (unsigned int i = 0; i < per_commit; i++) {
			snprintf(names[i], sizeof(names[i]), "%u.%u", commit, i);
			news[i] = (struct tarn_new){ .item = { .type = TARNFS_TYPE_FILE },
						     .parent = 1, .name = names[i] };
		}
		if (tarn_reserve_files(&master.s, &r, news, per_commit, &err) ||
		    tarn_commit(&master.s, &r, &err))
			fail_msg("%s", err.text);
		tarn_reservation_drop(&master.s, &r);
	}
	testhost_start(&client, big, &big_sb, 1);
	testkernel_recorder(client.t, client.r);
	assert_int_equal(tarn_claim_write(client.s.media, &big_sb, &client.id, 1, &client.s.claim,
					  &err), 0);
	assert_int_equal(testhost_replay(&client, &err), per_commit * commits + 1);
	ops = recorder_take(client.r);
	assert_non_null(strstr(ops, "APPLY check 60000\nAPPLY 60000\n" SCAN
			       "APPLY check 10000\nAPPLY 10000\nAPPLY at-end 0\n"));
	assert_same_tree(&master, &client);
	assert_no_fault(client.r);
	free(news);
	free(names);
	testhost_stop(&client);
	testhost_stop(&master);
	memory_free(big);
}

/* The kernel stopped in the middle of a batch: what is missing of it comes next. */
static void middle_of_a_batch(void **state)
{
	struct tarn_new news[3] = { { .name = "a" }, { .name = "b" }, { .name = "c" } };
	struct tarn_reservation r = { .set = -1 };
	struct tarnfs_apply args;
	struct tarnfs_op op = {
		.type = TARNFS_OP_DIRECTORY, .parent = 1, .name_len = 1, .mode = 0755
	};

	(void)state;
	for (int i = 0; i < 3; i++) {
		news[i].item.type = TARNFS_TYPE_DIRECTORY;
		news[i].parent = 1;
		news[i].mode = 0755;
	}
	assert_int_equal(tarn_reserve_files(&h[0].s, &r, news, 3, &err), 0);
	assert_int_equal(tarn_commit(&h[0].s, &r, &err), 0);
	tarn_reservation_drop(&h[0].s, &r);
	tarn_apply_args(&h[1].s, &h[1].s.log, 0, &args);
	args.first_seq = 1;
	args.count = 1;
	args.strings_len = 1;
	op.ino = news[0].item.ino;
	assert_int_equal(h[1].s.kernel->ops->apply(h[1].s.kernel, &args, &op, "a"), 0);
	assert_replay(&h[1], 2);
	assert_same_tree(&h[0], &h[1]);
}

/* ---- damage ---- */

static uint64_t log_off(uint32_t unit)
{
	return sb.area[0].off + (uint64_t)unit * TARNFS_LINE;
}

static void flip(uint64_t off)
{
	memory_bytes(mem)[off] ^= 0x10;
}

static void damaged_in_the_middle(void **state)
{
	char text[256];
	uint64_t word = 0;

	(void)state;
	create("a");
	create("b");
	create("c");
	flip(log_off(FIRST_UNITS + 2) + 60);
	assert_replay(&h[1], -EUCLEAN);
	/* where, which, why, and what is left */
	snprintf(text, sizeof(text),
		 "log at device offset 0x%llx, seq 2: record: damaged (checksum); what came before it, "
		 "up to seq 1, is good: fsck.tarnfs -n says more",
		 (unsigned long long)log_off(FIRST_UNITS + 2));
	assert_string_equal(err.text, text);
	/* what is before it is there and stays usable, what is after it is not */
	assert_int_not_equal(testkernel_lookup(h[1].t, "/a"), 0);
	assert_int_equal(testkernel_lookup(h[1].t, "/b") + testkernel_lookup(h[1].t, "/c"), 0);
	assert_false(testkernel_is_shut(h[1].t));
	/* again: the same, be it that nothing is new */
	assert_replay(&h[1], -EUCLEAN);
	assert_string_equal(err.text, text);
	/* a master that meets it appends nothing */
	testhost_stop(&h[0]);
	testhost_start(&h[0], mem, &sb, 0);
	assert_int_equal(tarn_claim_write(h[0].s.media, &sb, &h[0].id, 0, &h[0].s.claim, &err), 0);
	assert_replay(&h[0], -EUCLEAN);
	memcpy(&word, memory_bytes(mem) + tarn_line_off(&sb, 0, TARNFS_LINE_COMMIT), sizeof(word));
	assert_int_equal(testhost_create(&h[0], "d", 0, &err), -EUNATCH);
	assert_memory_equal(&word, memory_bytes(mem) + tarn_line_off(&sb, 0, TARNFS_LINE_COMMIT),
			    sizeof(word));
	assert_int_not_equal(testkernel_lookup(h[0].t, "/a"), 0);
	/* mended: goes on */
	flip(log_off(FIRST_UNITS + 2) + 60);
	assert_replay(&h[1], 2);
	assert_replay(&h[0], 2);
	assert_same_tree(&h[0], &h[1]);
	assert_no_fault(h[1].r);
}

/* Any committed byte: a host that starts afresh either fails, or has all of it. */
static void every_byte(void **state)
{
	struct tarn_new link = {
		.item = { .type = TARNFS_TYPE_SYMLINK }, .parent = 1, .name = "l", .target = "t"
	};
	struct tarn_reservation r = { .set = -1 };
	uint64_t end;

	(void)state;
	create("a");
	assert_int_equal(tarn_reserve_files(&h[0].s, &r, &link, 1, &err), 0);
	assert_int_equal(tarn_commit(&h[0].s, &r, &err), 0);
	tarn_reservation_drop(&h[0].s, &r);
	end = log_off(FIRST_UNITS + 4);
	for (uint64_t off = log_off(0); off < end; off++) {
		flip(off);
		restart();
		assert_replay(&h[1], -EUCLEAN);
		assert_non_null(strstr(err.text, "device offset 0x20"));
		assert_false(h[1].s.st.state & TARNFS_ST_ATTACHED);
		flip(off);
	}
	/* the commit word */
	for (uint64_t off = 0; off < 8; off++) {
		flip(tarn_line_off(&sb, 0, TARNFS_LINE_COMMIT) + off);
		restart();
		assert_replay(&h[1], -EUCLEAN);
		assert_non_null(strstr(err.text, "commit word"));
		flip(tarn_line_off(&sb, 0, TARNFS_LINE_COMMIT) + off);
	}
	remount();
	assert_same_tree(&h[0], &h[1]);
}

static void poisoned_log(void **state)
{
	(void)state;
	create("a");
	recorder_poison(h[1].r, log_off(FIRST_UNITS) + 9);
	assert_replay(&h[1], -EIO);
	assert_non_null(strstr(err.text, "0x200189"));
	recorder_poison(h[1].r, tarn_line_off(&sb, 0, TARNFS_LINE_COMMIT));
	assert_replay(&h[1], -EIO);
	recorder_poison(h[1].r, sb.area[0].off + 100);
	assert_replay(&h[1], -EIO);
	recorder_poison(h[1].r, 3);
	assert_replay(&h[1], -EIO);
	assert_non_null(strstr(err.text, "0x3: its memory has failed"));
	assert_false(testkernel_is_shut(h[1].t));
	recorder_poison(h[1].r, UINT64_MAX);
	assert_replay(&h[1], 1);
}

/* ---- records by hand ---- */

static uint32_t log_crc(const void *buf, size_t len)
{
	uint64_t generation = htole64(1);
	uint16_t host = 0;
	uint32_t crc = tarn_crc32c(0, sb.uuid, 16);

	crc = tarn_crc32c(crc, &generation, 8);
	crc = tarn_crc32c(crc, &host, 2);
	return tarn_crc32c(crc, buf, len);
}

static void commit_units(uint32_t units)
{
	uint64_t word = tarn_commit_word(&h[0].s.log.seed, 0, units);

	memcpy(memory_bytes(mem) + tarn_line_off(&sb, 0, TARNFS_LINE_COMMIT), &word, 8);
}

/*
 * Appends a record of that type and class with the length of a directory's, as a later
 * version might.
 */
static uint32_t put_type(uint32_t unit, uint64_t seq, uint16_t type, uint8_t class_)
{
	struct tarn_rec rec = { .type = TARNFS_REC_DIRECTORY,
				.seq = seq,
				.ino = 100,
				.parent = 1,
				.name = "x",
				.name_len = 1 };
	uint8_t buf[128];
	struct tarnfs_record *head = (struct tarnfs_record *)buf;

	assert_int_equal(tarn_rec_encode(buf, sizeof(buf), &rec, &h[0].s.log.seed), 0);
	head->type = htole16(type);
	head->class = class_;
	head->crc = 0;
	head->crc = htole32(log_crc(buf, sizeof(buf)));
	memcpy(memory_bytes(mem) + log_off(unit), buf, sizeof(buf));
	return unit + 2;
}

static uint32_t put_rec(uint32_t unit, const struct tarn_rec *rec)
{
	assert_int_equal(
		tarn_rec_encode(memory_bytes(mem) + log_off(unit), MIB, rec, &h[0].s.log.seed), 0);
	return unit + tarn_rec_units(rec);
}

static void unknown_types(void **state)
{
	uint32_t unit = FIRST_UNITS + 2;

	(void)state;
	create("a");
	/* ignored: takes its seq, changes nothing, and the master may go on */
	unit = put_type(unit, 2, 77, TARNFS_CLASS_IGNORE);
	commit_units(unit);
	assert_replay(&h[1], 2);
	assert_false(h[1].s.readonly);
	create("b");
	unit += 2;
	assert_replay(&h[1], 1);
	assert_same_tree(&h[0], &h[1]);
	/* refused: replay stops before it */
	unit = put_type(unit, 4, 78, TARNFS_CLASS_REFUSE);
	commit_units(unit);
	assert_replay(&h[1], -EOPNOTSUPP);
	assert_non_null(strstr(err.text, "newer tarnfs"));
	assert_int_equal(h[1].s.st.seq, 3);
	assert_int_equal(testhost_create(&h[0], "c", 0, &err), -EOPNOTSUPP);
}

/* Of this version, not built yet: said by name and place, what is before it is applied. */
static void unbuilt_types(void **state)
{
	static const struct {
		uint16_t type;
		const char *text;
	} types[] = {
		{ TARNFS_REC_UNLINK, "type unlink (seq 2)" }, { TARNFS_REC_RENAME, "type rename" },
		{ TARNFS_REC_SETATTR, "type setattr" }, { TARNFS_REC_RECLAIM, "type reclaim" },
		{ TARNFS_REC_DATA_END, "type data-end" },
	};

	(void)state;
	create("a");
	for (size_t i = 0; i < TARN_ARRAY_SIZE(types); i++) {
		commit_units(put_type(FIRST_UNITS + 2, 2, types[i].type, 0));
		restart();
		assert_replay(&h[1], -EOPNOTSUPP);
		assert_non_null(strstr(err.text, types[i].text));
		assert_non_null(strstr(err.text, "device offset 0x200200"));
		assert_int_not_equal(testkernel_lookup(h[1].t, "/a"), 0);
	}
	{
		struct tarn_rec rec = { .type = TARNFS_REC_HOST,
					.seq = 2,
					.host_flags = TARNFS_HOST_EVICTED };

		commit_units(put_rec(FIRST_UNITS + 2, &rec));
		restart();
		assert_replay(&h[1], -EOPNOTSUPP);
		assert_non_null(strstr(err.text, "type host"));
	}
}

/*
 * A whole record that contradicts the tree: the kernel refuses it, its place is said, the
 * batches before its own stand, and of its own there is nothing.
 */
static void kernel_refuses(void **state)
{
	struct tarn_rec rec = { .type = TARNFS_REC_FILE,
				.seq = 2,
				.batch_left = 2,
				.ino = 50,
				.parent = 1,
				.name = "good",
				.name_len = 4,
				.size = 1,
				.extents = 1,
				.ext_off = sb.data_start + 2 * MIB,
				.ext_len = 4096 };
	uint32_t unit = FIRST_UNITS + 2, bad;

	(void)state;
	create("a");
	rec.batch_left = 0;
	rec.ino = 49;
	rec.name = "before";
	rec.name_len = 6;
	rec.ext_off += MIB;
	unit = put_rec(unit, &rec);
	rec.seq = 3;
	rec.batch_left = 2;
	rec.ino = 50;
	rec.name = "good";
	rec.name_len = 4;
	rec.ext_off -= MIB;
	unit = put_rec(unit, &rec);
	bad = unit;
	rec.seq = 4;
	rec.batch_index = 1;
	rec.batch_left = 1;
	rec.ino = 51;
	rec.name = "evil";	/* its bytes are those of "good" */
	unit = put_rec(unit, &rec);
	rec.seq = 5;
	rec.batch_index = 2;
	rec.batch_left = 0;
	rec.ino = 52;
	rec.name = "last";
	rec.ext_off += 4096;
	commit_units(put_rec(unit, &rec));
	for (int again = 0; again < 2; again++) {
		char offset[96];

		assert_replay(&h[1], -EUCLEAN);
		snprintf(offset, sizeof(offset), "device offset 0x%llx, seq 4: the kernel refused",
			 (unsigned long long)log_off(bad));
		assert_non_null(strstr(err.text, offset));
		assert_int_equal(testkernel_lookup(h[1].t, "/good") +
				 testkernel_lookup(h[1].t, "/evil") +
				 testkernel_lookup(h[1].t, "/last"), 0);
		assert_int_not_equal(testkernel_lookup(h[1].t, "/before"), 0);
		assert_false(testkernel_is_shut(h[1].t));
	}
}

/* A header whose data end before those of mkfs: nothing shrinks. */
static void data_end_too_early(void **state)
{
	struct tarnfs_log_header *header =
		(struct tarnfs_log_header *)(memory_bytes(mem) + sb.area[0].off);

	(void)state;
	header->data_end = htole64(sb.data_end - 4096);
	header->crc = htole32(tarn_log_crc(&h[0].s.log.seed, header, sizeof(*header),
					   offsetof(struct tarnfs_log_header, crc)));
	restart();
	assert_replay(&h[1], -EUCLEAN);
	assert_non_null(strstr(err.text, "end of the data"));
}

/* ---- the log moves ---- */

static void put_control(uint16_t page, uint8_t control_state, uint64_t generation)
{
	struct tarn_control c = { .generation = generation, .state = control_state };
	struct tarnfs_control raw;

	if (control_state != TARNFS_CONTROL_NONE) {
		c.area_off = sb.area[page].off;
		c.area_len = sb.area[page].len;
	}
	tarn_control_encode(&raw, &c, page, sb.uuid);
	memcpy(memory_bytes(mem) + tarn_line_off(&sb, page, TARNFS_LINE_CONTROL), &raw, 64);
	memcpy(memory_bytes(mem) + tarn_mirror_line_off(&sb, page, TARNFS_LINE_CONTROL), &raw, 64);
}

/* Generation 2 of host 1, in area 1: a root with another mode and nothing else. */
static void second_generation(void)
{
	struct tarn_log log = { .seed = h[0].s.log.seed,
				.next_ino = 1000,
				.ckpt_records = 2,
				.ckpt_units = 2,
				.base_seq = 7,
				.prev_generation = 1,
				.data_end = sb.data_end };
	struct tarn_rec rec = { .type = TARNFS_REC_DIRECTORY,
				.flags = TARNFS_RECORD_CKPT,
				.seq = 1,
				.ino = 1,
				.parent = 1,
				.name = "",
				.mode = 0700 };
	struct tarnfs_log_header header;
	uint8_t *at = memory_bytes(mem) + sb.area[1].off;
	uint64_t word;

	log.seed.generation = 2;
	log.seed.host = 1;
	tarn_log_header_encode(&header, &log, 1, 0);
	memcpy(at, &header, sizeof(header));
	assert_int_equal(tarn_rec_encode(at + 256, 64, &rec, &log.seed), 0);
	rec = (struct tarn_rec){ .type = TARNFS_REC_CHECKPOINT_END,
				 .flags = TARNFS_RECORD_CKPT,
				 .seq = 2,
				 .directories = 1 };
	assert_int_equal(tarn_rec_encode(at + 320, 64, &rec, &log.seed), 0);
	word = tarn_commit_word(&log.seed, 0, FIRST_UNITS);
	memcpy(memory_bytes(mem) + tarn_line_off(&sb, 1, TARNFS_LINE_COMMIT), &word, 8);
	put_control(1, TARNFS_CONTROL_ACTIVE, 2);
}

struct at {
	int left;
	void (*fn)(void);
};

static void at_hook(void *arg, const char *op)
{
	struct at *at = arg;

	(void)op;
	if (at->fn && !at->left--)
		at->fn();
}

static void seal_forever(void)
{
	put_control(1, TARNFS_CONTROL_SEALING, 2);
}

/* The old log's area is written over, as a later compaction may. */
static void move_and_scribble(void)
{
	second_generation();
	memset(memory_bytes(mem) + sb.area[0].off, 0x77, 4096);
	commit_units(3);
}

/*
 * Another generation begins at any moment of the first replay: the host has
 * the old tree whole (and its next replay tells) or the new one whole, never
 * a mixture, and never calls it damage.
 */
static void new_generation_at_any_moment(void **state)
{
	bool saw_old = false, saw_new = false;

	(void)state;
	for (int i = 0;; i++) {
		struct at at = { i, move_and_scribble };
		int64_t n;

		create("a");
		restart();
		recorder_hook(h[1].r, at_hook, &at);
		n = testhost_replay(&h[1], &err);
		recorder_hook(h[1].r, NULL, NULL);
		if (at.left >= 0)
			break;		/* the replay has fewer operations than that */
		assert_no_fault(h[1].r);
		if (n < 0) {
			/* the checkpoint was applied, then the log went away */
			assert_int_equal(n, -EOPNOTSUPP);
			assert_non_null(strstr(err.text, "umount and mount again"));
		} else if (h[1].s.st.generation == 2) {
			assert_int_equal(testkernel_lookup(h[1].t, "/a"), 0);
			assert_int_equal(h[1].s.st.seq, 7);
			saw_new = true;
		} else {
			assert_int_not_equal(testkernel_lookup(h[1].t, "/a"), 0);
			saw_old = true;
		}
		teardown(NULL);
		setup(NULL);
	}
	assert_true(saw_new && saw_old);
}

static void sealed(void **state)
{
	struct at at = { 0, seal_forever };

	(void)state;
	create("a");
	/* before it begins, and between reading and applying */
	for (int i = 0; i < 2; i++) {
		at.left = i ? 12 : 0;
		at.fn = seal_forever;
		recorder_hook(h[1].r, at_hook, &at);
		assert_replay(&h[1], -EBUSY);
		recorder_hook(h[1].r, NULL, NULL);
		assert_true(at.left < 0);
		assert_non_null(strstr(err.text, "takeover"));
		assert_int_equal(testkernel_lookup(h[1].t, "/a"), 0);
		put_control(1, TARNFS_CONTROL_NONE, 0);
	}
	assert_replay(&h[1], 1);
	/* a seal below the current log is an old one */
	put_control(1, TARNFS_CONTROL_NONE, 0);
	create("b");
	assert_replay(&h[1], 1);
}

static void unseal(void)
{
	put_control(1, TARNFS_CONTROL_NONE, 0);
}

/* A seal that is withdrawn while it waits is no error. */
static void seal_withdrawn(void **state)
{
	struct at at = { 30, unseal };

	(void)state;
	create("a");
	seal_forever();
	recorder_hook(h[1].r, at_hook, &at);
	assert_replay(&h[1], 1);
}

static void higher_and_lower_generation(void **state)
{
	(void)state;
	create("a");
	second_generation();
	/* a client cannot follow yet, and says what helps */
	assert_replay(&h[1], -EOPNOTSUPP);
	assert_non_null(strstr(err.text, "umount and mount again"));
	assert_false(testkernel_is_shut(h[1].t));
	/* a master was evicted: it ends before anything else */
	assert_replay(&h[0], -ESTALE);
	assert_true(testkernel_is_shut(h[0].t));
	assert_non_null(strstr(err.text, "took over"));
	assert_replay(&h[0], -EIO);
	/* mounted again it is there */
	restart();
	assert_replay(&h[1], 1);
	assert_int_equal(h[1].s.st.generation, 2);
	assert_int_equal(h[1].s.st.role, TARNFS_ROLE_MASTER);
	/* and never goes back */
	put_control(1, TARNFS_CONTROL_NONE, 0);
	assert_replay(&h[1], -EUCLEAN);
	assert_non_null(strstr(err.text, "older"));
}

static void no_log(void **state)
{
	(void)state;
	put_control(0, TARNFS_CONTROL_NONE, 0);
	restart();
	assert_replay(&h[1], -EUCLEAN);
	assert_non_null(strstr(err.text, "no host page holds an active log"));
}

/* ---- it is not ours any more ---- */

static void other_uuid(void **state)
{
	struct tarn_super other = sb;
	struct tarnfs_super raw;

	(void)state;
	other.uuid[0] ^= 1;
	tarn_super_encode(&raw, &other);
	memcpy(memory_bytes(mem), &raw, sizeof(raw));
	assert_replay(&h[1], -ESTALE);
	assert_non_null(strstr(err.text, "another file system"));
	assert_true(testkernel_is_shut(h[1].t));
	assert_int_equal(testhost_create(&h[0], "a", 0, &err), -ESTALE);
	assert_true(testkernel_is_shut(h[0].t));
}

static void superblock_gone(void **state)
{
	(void)state;
	/* damaged is no proof that it is another's: an error, and the mount stays */
	memory_bytes(mem)[200] ^= 1;
	assert_replay(&h[1], -EUCLEAN);
	assert_false(testkernel_is_shut(h[1].t));
	memset(memory_bytes(mem), 0, 4096);
	assert_replay(&h[1], -ESTALE);
	assert_true(testkernel_is_shut(h[1].t));
}

static void foreign_nonce(void **state)
{
	struct tarn_claim twin;

	(void)state;
	create("a");
	/* a clone of host 1 mounts */
	testhost_next_command(&h[1]);
	assert_int_equal(tarn_claim_write(h[0].s.media, &sb, &h[1].id, 1, &twin, &err), 0);
	assert_replay(&h[1], -ESTALE);
	assert_true(testkernel_is_shut(h[1].t));
	assert_int_equal(testkernel_lookup(h[1].t, "/a"), 0);
}

static void kernel_has_another_claim(void **state)
{
	(void)state;
	/* claimed again without a new mount */
	assert_int_equal(tarn_claim_write(h[1].s.media, &sb, &h[1].id, 1, &h[1].s.claim, &err), 0);
	assert_replay(&h[1], -ESTALE);
	assert_non_null(strstr(err.text, "another claim"));
	h[1].s.claim.nonce = 0;
	assert_replay(&h[1], -EUNATCH);
}

/* ---- another process of this host ---- */

static struct tarn_session watch;

static void replay_elsewhere(void *arg, uint32_t flags)
{
	struct tarn_err other;

	(void)arg;
	(void)flags;
	testkernel_hook(h[1].t, NULL, NULL);
	assert_true(tarn_replay(&watch, false, &other) >= 0);
}

/* Two replays at once on one host: one of them applies, both end well. */
static void two_at_once(void **state)
{
	(void)state;
	create("a");
	create("b");
	watch = h[1].s;
	testkernel_hook(h[1].t, replay_elsewhere, NULL);
	assert_replay(&h[1], 0);
	assert_same_tree(&h[0], &h[1]);
	restart();
	watch = h[1].s;
	testkernel_hook(h[1].t, replay_elsewhere, NULL);
	assert_true(testhost_replay(&h[1], &err) >= 0);
	assert_same_tree(&h[0], &h[1]);
}

static void kernel_fails(void **state)
{
	(void)state;
	create("a");
	testkernel_fail_apply(h[1].t, ENOMEM);
	assert_replay(&h[1], -ENOMEM);
	assert_replay(&h[1], 1);
	testkernel_fail_apply(h[1].t, EOPNOTSUPP);
	create("b");
	assert_replay(&h[1], -EOPNOTSUPP);
	assert_replay(&h[1], 1);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(replay_order),
		TEST(ten_thousand_files),
		TEST(more_than_one_call),
		TEST(middle_of_a_batch),
		TEST(damaged_in_the_middle),
		TEST(every_byte),
		TEST(poisoned_log),
		TEST(unknown_types),
		TEST(unbuilt_types),
		TEST(kernel_refuses),
		TEST(data_end_too_early),
		TEST(new_generation_at_any_moment),
		TEST(sealed),
		TEST(seal_withdrawn),
		TEST(higher_and_lower_generation),
		TEST(no_log),
		TEST(other_uuid),
		TEST(superblock_gone),
		TEST(foreign_nonce),
		TEST(kernel_has_another_claim),
		TEST(two_at_once),
		TEST(kernel_fails),
	};

	return cmocka_run_group_tests_name("replay", tests, NULL, NULL);
}
