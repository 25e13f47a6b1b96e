// SPDX-License-Identifier: GPL-2.0-only
/*
 * A log of an enemy: what the walk hands out are whole batches in order, each
 * record is encoded again as it stood there, and a record that is looked at alone
 * is read no further than it goes.
 */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

const uint8_t fuzz_weights[4] = { 14, 1, 0, 1 };

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	fuzz_image_init();
	return 0;
}

static bool still;

static void check_name(const char *name, size_t len)
{
	fuzz_check(len && len <= TARNFS_NAME_MAX, "name of %zu bytes", len);
	for (size_t i = 0; i < len; i++)
		fuzz_check(name[i] && name[i] != '/', "byte %d in a name", name[i]);
	fuzz_check(name[0] != '.' || (len != 1 && (len != 2 || name[1] != '.')), "a name of dots");
}

static void check_record(const struct tarn_rec *rec)
{
	bool node = rec->type >= TARNFS_REC_DIRECTORY && rec->type <= TARNFS_REC_SYMLINK;

	fuzz_check(rec->seq && rec->seq <= TARNFS_SEQ_MAX, "seq");
	fuzz_check(rec->units, "no units");
	if (!node)
		return;
	if (rec->ino == TARNFS_INO_ROOT)
		fuzz_check(!rec->name_len && rec->type == TARNFS_REC_DIRECTORY, "root");
	else
		check_name(rec->name, rec->name_len);
	fuzz_check(!(rec->mode & ~07777) && rec->mtime_nsec < 1000000000 &&
		   rec->uid != UINT32_MAX && rec->gid != UINT32_MAX, "attributes");
	if (rec->type == TARNFS_REC_SYMLINK)
		fuzz_check(rec->target_len && rec->target_len <= TARNFS_TARGET_MAX &&
			   !memchr(rec->target, 0, rec->target_len), "target");
	if (rec->type == TARNFS_REC_FILE)
		fuzz_check(!rec->size == !rec->extents &&
			   (!rec->extents || (rec->ext_len >= rec->size &&
					      rec->ext_off + rec->ext_len > rec->ext_off)),
			   "extent");
}

/* As it is on the media, but for tagged values, which are not kept. */
static void check_again(const struct tarn_rec *rec, const struct tarn_seed *seed,
			const uint8_t *was)
{
	static uint8_t buf[8192];
	uint32_t units = tarn_rec_units(rec);

	if (!tarn_rec_built(rec->type) || rec->units != units)
		return;
	fuzz_check(!tarn_rec_encode(buf, sizeof(buf), rec, seed), "cannot be encoded again");
	fuzz_check(!memcmp(buf + 4, was + 4, (size_t)units * TARNFS_LINE - 4),
		   "encoded again it is another one");
}

struct seen {
	const struct tarn_log *log;
	uint64_t records, seq;
	uint32_t index, left;
	bool ckpt_done;
};

static int on_record(void *arg, const struct tarn_rec *rec)
{
	struct seen *s = arg;

	check_record(rec);
	fuzz_check(rec->off >= s->log->area_off &&
		   rec->off - s->log->area_off + (uint64_t)rec->units * TARNFS_LINE <=
			   (uint64_t)s->log->units * TARNFS_LINE, "record out of the log");
	if (still && fuzz_line_at(rec->off) < FUZZ_LINES)
		check_again(rec, &s->log->seed, fuzz_image + rec->off);
	if (rec->flags & TARNFS_RECORD_CKPT) {
		fuzz_check(!s->ckpt_done, "a record of the checkpoint after its end");
		s->records++;
		s->ckpt_done = rec->type == TARNFS_REC_CHECKPOINT_END;
		return 0;
	}
	fuzz_check(!s->seq || rec->seq == s->seq + 1, "seq %llu after %llu",
		   (unsigned long long)rec->seq, (unsigned long long)s->seq);
	fuzz_check(s->left ? rec->batch_index == s->index + 1 && rec->batch_left == s->left - 1
			   : !rec->batch_index, "place in a batch");
	s->seq = rec->seq;
	s->index = rec->batch_index;
	s->left = rec->batch_left;
	return 0;
}

static void walk(const struct tarn_current *cur, uint32_t from)
{
	struct seen s = { 0 };
	struct tarn_err err = { "" };
	struct tarn_log log;
	uint32_t pos;
	int ret = tarn_log_open(&log, fuzz_media(), &fuzz_super, cur, &err);

	fuzz_check_err(ret, &err);
	if (ret)
		return;
	s.log = &log;
	pos = from ? TARNFS_LOG_HEADER_UNITS + log.ckpt_units + from - 1 : TARNFS_LOG_HEADER_UNITS;
	ret = tarn_log_walk(&log, fuzz_media(), &pos, on_record, &s, &err);
	fuzz_check_err(ret, &err);
	fuzz_check(!s.left, "a part of a batch was handed out");
	fuzz_check(!s.records || (s.ckpt_done && s.records == log.ckpt_records),
		   "a part of the checkpoint was handed out");
	fuzz_check(ret || pos >= log.units, "it ended too early, at %u", pos);
}

/* Each line as if a record stood there, in memory that ends where it is said to. */
static void decode_alone(uint64_t area)
{
	struct tarn_err err = { "" };
	struct tarn_rec rec;

	for (uint32_t unit = TARNFS_LOG_HEADER_UNITS; unit < 40; unit++) {
		const uint8_t *at = fuzz_image + area + unit * TARNFS_LINE;
		size_t units = le16toh(((const struct tarnfs_record *)at)->units);
		size_t room = (units && units < 80 ? units : 1) * TARNFS_LINE;
		uint8_t *copy;

		if (!memcmp(at, fuzz_base + area + unit * TARNFS_LINE, TARNFS_LINE) && unit > 20)
			continue;
		copy = malloc(room);
		memcpy(copy, at, room);
		err.text[0] = '\0';
		fuzz_check_err(tarn_rec_decode(&rec, copy, room, NULL, &err), &err);
		if (!err.text[0])
			check_record(&rec);
		err.text[0] = '\0';
		fuzz_check_err(tarn_rec_decode(&rec, copy, room - 1, NULL, &err), &err);
		free(copy);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct tarn_current cur;
	struct fuzz_input in;

	still = fuzz_image_load(data, size, &in);
	if (tarn_scan(fuzz_media(), &fuzz_super, &cur, NULL, NULL))
		cur = (struct tarn_current){ .generation = 1, .area_off = fuzz_super.area[0].off,
					     .area_len = fuzz_super.area[0].len };
	walk(&cur, 0);
	walk(&cur, 1 + in.opt[0]);
	if (cur.generation)
		decode_alone(cur.area_off);
	fuzz_image_reset();
	return 0;
}
