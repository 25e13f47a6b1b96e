// SPDX-License-Identifier: GPL-2.0-only
/*
 * A superblock is accepted only as mkfs wrote it; mkfs writes in the order of
 * protocol section 7, and leaves nothing of what stood there before.
 */
#include "testkernel.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#define MIB (1ULL << 20)

static void plan(struct tarn_super *sb, uint64_t dev_size)
{
	struct tarn_mkfs opt = {
		.dev_size = dev_size, .label = "tarn", .now_sec = 1700000000, .now_nsec = 5
	};
	struct tarn_err err;

	assert_int_equal(tarn_mkfs_plan(sb, &opt, &err), 0);
}

static void seal(struct tarnfs_super *raw)
{
	raw->crc = 0;
	raw->crc = htole32(tarn_crc32c(0, raw, sizeof(*raw)));
}

static void round_trip(void **state)
{
	struct tarn_super sb, back;
	struct tarnfs_super raw;
	struct tarn_err err;

	(void)state;
	for (uint64_t size = 16 * MIB; size <= 1ULL << 45; size *= 3) {
		plan(&sb, size);
		tarn_super_encode(&raw, &sb);
		assert_int_equal(tarn_super_decode(&back, &raw, size, &err), 0);
		assert_memory_equal(&sb, &back, sizeof(sb));
		/* a device that has grown is as good, one that shrank is not */
		assert_int_equal(tarn_super_decode(&back, &raw, size + MIB, &err), 0);
		assert_int_equal(tarn_super_decode(&back, &raw, size - 1, &err), -EUCLEAN);
	}
}

static void geometry(void **state)
{
	struct tarn_mkfs opt = { .dev_size = 1024 * MIB };
	struct tarn_super sb;
	struct tarn_err err;

	(void)state;
	assert_int_equal(tarn_mkfs_plan(&sb, &opt, &err), 0);
	assert_int_equal(sb.hosts, TARNFS_HOSTS_DEFAULT);
	assert_int_equal(sb.area[0].len, 8 * MIB);
	assert_int_equal(sb.area[2].off, 18 * MIB);
	assert_int_equal(sb.data_start, 26 * MIB);
	assert_int_equal(sb.data_end, 1024 * MIB);
	opt.dev_size += 4095;
	assert_int_equal(tarn_mkfs_plan(&sb, &opt, &err), 0);
	assert_int_equal(sb.data_end, 1024 * MIB);
	opt.dev_size = 1ULL << 44;
	assert_int_equal(tarn_mkfs_plan(&sb, &opt, &err), 0);
	assert_int_equal(sb.area[0].len, TARNFS_AREA_MAX);
	/* the smallest: 6 MiB of metadata, 2 MiB of data */
	opt.dev_size = 8 * MIB;
	assert_int_equal(tarn_mkfs_plan(&sb, &opt, &err), 0);
	opt.dev_size--;
	assert_int_equal(tarn_mkfs_plan(&sb, &opt, &err), -ENOSPC);
	assert_non_null(strstr(err.text, "8388608"));
	opt.dev_size = 0;
	assert_int_equal(tarn_mkfs_plan(&sb, &opt, &err), -ENOSPC);
	opt.dev_size = 1024 * MIB;
	opt.hosts = TARNFS_HOSTS_MAX + 1;
	assert_int_equal(tarn_mkfs_plan(&sb, &opt, &err), -EINVAL);
	opt.hosts = TARNFS_HOSTS_MAX;
	opt.log_size = TARNFS_AREA_MIN - 1;
	assert_int_equal(tarn_mkfs_plan(&sb, &opt, &err), -EINVAL);
	opt.log_size = TARNFS_AREA_MAX + 1;
	assert_int_equal(tarn_mkfs_plan(&sb, &opt, &err), -EINVAL);
	opt.log_size = TARNFS_AREA_MIN + 1;
	assert_int_equal(tarn_mkfs_plan(&sb, &opt, &err), 0);
	assert_int_equal(sb.area[1].off - sb.area[0].off, TARNFS_AREA_MIN + 4096);
	opt.label = "0123456789012345678901234567890123456789012345678901234567890123";
	assert_int_equal(tarn_mkfs_plan(&sb, &opt, &err), -EINVAL);
	opt.label++;
	assert_int_equal(tarn_mkfs_plan(&sb, &opt, &err), 0);
}

/* No bit can be flipped unseen. */
static void every_bit(void **state)
{
	struct tarn_super sb, back;
	struct tarnfs_super raw;
	struct tarn_err err;

	(void)state;
	plan(&sb, 64 * MIB);
	tarn_super_encode(&raw, &sb);
	for (size_t bit = 0; bit < sizeof(raw) * 8; bit++) {
		((uint8_t *)&raw)[bit / 8] ^= (uint8_t)(1 << bit % 8);
		err.text[0] = '\0';
		assert_int_not_equal(tarn_super_decode(&back, &raw, 64 * MIB, &err), 0);
		assert_true(err.text[0]);
		((uint8_t *)&raw)[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	assert_int_equal(tarn_super_decode(&back, &raw, 64 * MIB, &err), 0);
}

/*
 * The same with a checksum that fits, as an enemy writes it: whatever is
 * accepted keeps within the device and is what encoding gives back.
 */
static void every_bit_sealed(void **state)
{
	struct tarn_super sb, back;
	struct tarnfs_super raw, again;
	struct tarn_err err;

	(void)state;
	plan(&sb, 64 * MIB);
	for (size_t bit = 0; bit < sizeof(raw) * 8; bit++) {
		tarn_super_encode(&raw, &sb);
		((uint8_t *)&raw)[bit / 8] ^= (uint8_t)(1 << bit % 8);
		seal(&raw);
		if (tarn_super_decode(&back, &raw, 64 * MIB, &err))
			continue;
		tarn_super_encode(&again, &back);
		assert_memory_equal(&raw, &again, sizeof(raw));
		assert_true(back.data_start < back.data_end && back.data_end <= 64 * MIB);
		assert_true(back.mirror_off + back.hosts * 4096ULL <= back.area[0].off);
	}
}

#define SET(raw, field, value, expect) do {					\
		struct tarnfs_super r_ = (raw);					\
		struct tarn_super back_;					\
		struct tarn_err err_;						\
										\
		r_.field = (value);						\
		seal(&r_);							\
		if (tarn_super_decode(&back_, &r_, 64 * MIB, &err_) != (expect))	\
			fail_msg(#field " = " #value ": %s", err_.text);	\
	} while (0)

/* Each field, wrong in each way that matters, the checksum right. */
static void every_field(void **state)
{
	struct tarnfs_super raw;
	struct tarn_super sb;

	(void)state;
	plan(&sb, 64 * MIB);
	tarn_super_encode(&raw, &sb);
	SET(raw, magic[0], 'X', -ENODATA);
	SET(raw, version, htole32(2), -EOPNOTSUPP);
	SET(raw, version, htole32(0), -EOPNOTSUPP);
	SET(raw, length, htole32(511), -EUCLEAN);
	SET(raw, compat, htole64(1ULL << 63), 0);
	SET(raw, ro_compat, htole64(1), 0);
	SET(raw, incompat, htole64(1), -EOPNOTSUPP);
	SET(raw, block_size, htole32(8192), -EUCLEAN);
	SET(raw, label[63], 'x', -EUCLEAN);
	SET(raw, label[5], 'x', -EUCLEAN);		/* behind its NUL */
	SET(raw, dev_size, htole64(65 * MIB), -EUCLEAN);
	SET(raw, dev_size, htole64(UINT64_MAX), -EUCLEAN);
	SET(raw, dev_size, htole64(0), -EUCLEAN);
	SET(raw, data_start, htole64(sb.data_start + 4096), -EUCLEAN);
	SET(raw, data_start, htole64(0), -EUCLEAN);
	SET(raw, data_start, htole64(4 * MIB), -EUCLEAN);	/* within the logs */
	SET(raw, data_start, htole64(66 * MIB), -EUCLEAN);
	SET(raw, data_start, htole64(UINT64_MAX << 21), -EUCLEAN);
	SET(raw, data_end, htole64(64 * MIB - 1), -EUCLEAN);
	SET(raw, data_end, htole64(64 * MIB + 4096), -EUCLEAN);
	SET(raw, data_end, htole64(sb.data_start - 4096), -EUCLEAN);
	SET(raw, hosts_off, htole64(4096), -EUCLEAN);	/* the second superblock */
	SET(raw, hosts_off, htole64(65536 + 64), -EUCLEAN);
	SET(raw, hosts_off, htole64(MIB), -EUCLEAN);
	SET(raw, hosts_off, htole64(UINT64_MAX << 12), -EUCLEAN);
	SET(raw, hosts_mirror_off, htole64(65536), -EUCLEAN);
	SET(raw, hosts_mirror_off, htole64(2 * MIB), -EUCLEAN);
	SET(raw, hosts_mirror_off, htole64(UINT64_MAX << 12), -EUCLEAN);
	SET(raw, hosts, 0, -EUCLEAN);
	SET(raw, hosts, htole32(129), -EUCLEAN);
	SET(raw, hosts, htole32(UINT32_MAX), -EUCLEAN);
	SET(raw, host_stride, htole32(8192), -EUCLEAN);
	SET(raw, areas, 0, -EUCLEAN);
	SET(raw, areas, htole16(2), -EUCLEAN);		/* one more stands there */
	SET(raw, areas, htole16(4), -EUCLEAN);
	SET(raw, areas, htole16(9), -EUCLEAN);
	SET(raw, area_entry, htole16(24), -EUCLEAN);
	SET(raw, csum, 2, -EUCLEAN);
	SET(raw, line_shift, 7, -EUCLEAN);
	SET(raw, align_shift, 30, -EUCLEAN);
	SET(raw, role, 1, -EOPNOTSUPP);
	SET(raw, created_nsec, htole32(1000000000), -EUCLEAN);
	SET(raw, dev_index, htole16(1), -EOPNOTSUPP);
	SET(raw, dev_count, htole16(2), -EOPNOTSUPP);
	SET(raw, zero1[23], 1, -EOPNOTSUPP);
	SET(raw, zero2[0], 1, -EOPNOTSUPP);
	SET(raw, area[0].off, htole64(MIB), -EUCLEAN);	/* the mirrors */
	SET(raw, area[0].off, raw.area[1].off, -EUCLEAN);
	SET(raw, area[1].off, htole64(le64toh(raw.area[1].off) - 4096), -EUCLEAN);
	SET(raw, area[1].len, htole64(4096), -EUCLEAN);
	SET(raw, area[1].len, htole64(MIB + 64), -EUCLEAN);
	SET(raw, area[2].len, htole64(UINT64_MAX << 12), -EUCLEAN);
	SET(raw, area[2].off, htole64(UINT64_MAX << 12), -EUCLEAN);
	SET(raw, area[2].off, htole64(64 * MIB), -EUCLEAN);
	SET(raw, area[3].off, htole64(4096), -EUCLEAN);
	memset(raw.uuid, 0, 15);
	SET(raw, uuid[15], 0, -EUCLEAN);
}

/*
 * Order of section 7, a fence between each: both superblocks dead; pages and
 * mirrors; log; control; commit; second copy; first copy; all of it given up.
 */
static const char mkfs_order[] =
	"write super 65536\n" "writeback super 65536\n" "fence\n"
	"write page0.identity 2031616\n"
	"write page0.identity 128\n" "write mirror0.identity 128\n"
	"write page1.identity 128\n" "write mirror1.identity 128\n"
	"writeback page0.identity 2031616\n" "fence\n"
	"write area0+0 4096\n" "writeback area0+0 4096\n" "fence\n"
	"write area1+0 4096\n" "writeback area1+0 4096\n" "fence\n"
	"write area2+0 4096\n" "writeback area2+0 4096\n" "fence\n"
	"write area0+0 384\n" "writeback area0+0 384\n" "fence\n"
	"write page0.control\n" "writeback page0.control\n" "fence\n"
	"write mirror0.control\n" "writeback mirror0.control\n" "fence\n"
	"write64 page0.commit0\n" "writeback page0.commit0\n" "fence\n"
	"write super2 512\n" "writeback super2 512\n" "fence\n"
	"write super 512\n" "writeback super 512\n" "fence\n"
	"invalidate super 2097152\n"
	"invalidate area0+0 4096\n" "invalidate area1+0 4096\n" "invalidate area2+0 4096\n";

struct mkfs {
	struct tarn_super sb;
	struct tarn_mkfs opt;
	struct memory *mem;
	struct recorder *r;
};

static void mkfs_begin(struct mkfs *f)
{
	struct tarn_err err;

	memset(f, 0, sizeof(*f));
	f->opt = (struct tarn_mkfs){ .dev_size = 16 * MIB, .hosts = 2, .owner = test_owner };
	assert_int_equal(tarn_mkfs_plan(&f->sb, &f->opt, &err), 0);
	f->mem = memory_new(f->sb.data_start, 0xa5);
	f->r = recorder_new(f->mem);
	recorder_geometry(f->r, &f->sb);
}

static void mkfs_end(struct mkfs *f)
{
	recorder_free(f->r);
	memory_free(f->mem);
}

static void mkfs_writes_in_order(void **state)
{
	struct tarn_err err;
	struct mkfs f;

	(void)state;
	mkfs_begin(&f);
	assert_int_equal(tarn_mkfs_write(recorder_media(f.r), &f.sb, &f.opt, &err), 0);
	assert_ops(f.r, mkfs_order);
	mkfs_end(&f);
}

/* A host that never saw these lines reads a file system: page 0 bound, one active log, a root. */
static void mkfs_is_read_back(void **state)
{
	struct tarn_identity ids[2];
	struct tarn_current cur;
	struct tarn_super back;
	struct tarn_page page;
	struct tarn_log log;
	struct tarn_media *m;
	struct recorder *other;
	struct tarn_err err;
	struct mkfs f;

	(void)state;
	mkfs_begin(&f);
	other = recorder_new(f.mem);	/* its cache: what stood there before */
	m = recorder_media(other);
	assert_int_equal(tarn_super_read(&back, m, 16 * MIB, &err), -ENODATA);
	assert_int_equal(tarn_mkfs_write(recorder_media(f.r), &f.sb, &f.opt, &err), 0);
	assert_int_equal(tarn_super_read(&back, m, 16 * MIB, &err), 0);
	assert_memory_equal(&back, &f.sb, sizeof(back));
	assert_memory_equal(memory_bytes(f.mem), memory_bytes(f.mem) + 4096, 512);
	assert_int_equal(tarn_scan(m, &back, &cur, ids, &err), 0);
	assert_int_equal(cur.generation, 1);
	assert_int_equal(cur.host, 0);
	assert_false(cur.sealed);
	assert_int_equal(ids[0].state, TARNFS_PAGE_BOUND);
	assert_memory_equal(ids[0].host_uuid, test_owner, 16);
	assert_int_equal(ids[1].state, TARNFS_PAGE_FREE);
	assert_int_equal(tarn_log_open(&log, m, &back, &cur, &err), 0);
	assert_int_equal(log.units, 6);
	assert_int_equal(log.base_seq, 0);
	assert_int_equal(log.next_ino, TARNFS_INO_FIRST);
	assert_int_equal(tarn_page_read(m, &back, 1, &page, &err), 0);
	assert_false(page.status.valid || page.quiesce.valid || page.control.bad || page.id.bad);
	assert_int_equal(page.contend, 0);
	/* nothing of before shows through, areas beyond their heads apart */
	for (uint64_t i = 512; i < TARNFS_HOSTS_OFF; i++)
		if (i - 4096 >= 512)
			assert_int_equal(memory_bytes(f.mem)[i], 0);
	for (uint64_t i = TARNFS_HOSTS_OFF + 2 * 4096; i < TARNFS_MIRROR_OFF; i++)
		assert_int_equal(memory_bytes(f.mem)[i], 0);
	recorder_free(other);
	mkfs_end(&f);
}

/*
 * Cut at any operation there is no file system, or all of it: the first copy of the
 * superblock comes last.
 */
struct cut {
	struct recorder *r;
	int left;
	jmp_buf env;
};

static void cut_hook(void *arg, const char *op)
{
	struct cut *cut = arg;

	(void)op;
	if (!cut->left--)
		longjmp(cut->env, 1);
}

static void mkfs_cut_anywhere(void **state)
{
	struct tarn_super back;
	struct tarn_err err;
	struct mkfs f, old;

	(void)state;
	mkfs_begin(&old);
	assert_int_equal(tarn_mkfs_write(recorder_media(old.r), &old.sb, &old.opt, &err), 0);
	for (volatile int ops = 0;; ops++) {
		struct cut cut = { .left = ops };
		struct recorder *other;

		mkfs_begin(&f);
		memcpy(memory_bytes(f.mem), memory_bytes(old.mem), f.sb.data_start);
		recorder_reboot(f.r);
		cut.r = f.r;
		if (!setjmp(cut.env)) {
			recorder_hook(f.r, cut_hook, &cut);
			assert_int_equal(tarn_mkfs_write(recorder_media(f.r), &f.sb, &f.opt, &err),
					 0);
			mkfs_end(&f);
			break;
		}
		recorder_hook(f.r, NULL, NULL);
		other = recorder_new(f.mem);
		if (!tarn_super_read(&back, recorder_media(other), 16 * MIB, &err)) {
			struct tarn_current cur;
			struct tarn_log log;

			assert_int_equal(tarn_scan(recorder_media(other), &back, &cur, NULL, &err),
					 0);
			assert_int_equal(
				tarn_log_open(&log, recorder_media(other), &back, &cur, &err), 0);
		}
		recorder_free(other);
		mkfs_end(&f);
	}
	mkfs_end(&old);
}

static void mkfs_owner(void **state)
{
	struct tarn_identity id;
	struct tarn_err err;
	struct mkfs f;

	(void)state;
	mkfs_begin(&f);
	f.opt.owner = NULL;
	assert_int_equal(tarn_mkfs_write(recorder_media(f.r), &f.sb, &f.opt, &err), 0);
	assert_int_equal(tarn_identity_read(recorder_media(f.r), &f.sb, 0, &id), 0);
	assert_int_equal(id.state, TARNFS_PAGE_FREE);
	mkfs_end(&f);
}

static void mkfs_on_bad_memory(void **state)
{
	struct tarn_err err;
	struct mkfs f;

	(void)state;
	mkfs_begin(&f);
	recorder_rules(f.r, false);
	recorder_poison(f.r, TARNFS_HOSTS_OFF + 70);
	assert_int_equal(tarn_mkfs_write(recorder_media(f.r), &f.sb, &f.opt, &err), -EIO);
	assert_non_null(strstr(err.text, "0x10046"));
	mkfs_end(&f);
}

/* Whoever knows the uuid goes on with the second copy where the first cannot be read, and only there. */
static void reread(void **state)
{
	static const uint8_t other[16] = { 1 };
	struct tarn_super sb;
	struct tarn_media *m;
	struct tarn_err err;
	struct mkfs f;

	(void)state;
	mkfs_begin(&f);
	recorder_rules(f.r, false);
	m = recorder_media(f.r);
	assert_int_equal(tarn_mkfs_write(m, &f.sb, &f.opt, &err), 0);
	assert_int_equal(tarn_super_reread(&sb, m, 16 * MIB, other, &err), 0);
	assert_memory_equal(sb.uuid, f.sb.uuid, 16);
	recorder_poison(f.r, 130);
	assert_int_equal(tarn_super_read(&sb, m, 16 * MIB, &err), -EIO);
	memset(&sb, 0, sizeof(sb));
	assert_int_equal(tarn_super_reread(&sb, m, 16 * MIB, f.sb.uuid, &err), 0);
	assert_memory_equal(&sb, &f.sb, sizeof(sb));
	assert_int_equal(tarn_super_reread(&sb, m, 16 * MIB, other, &err), -EIO);
	assert_non_null(strstr(err.text, "0x0:"));
	assert_non_null(strstr(err.text, "0x1000"));
	memory_bytes(f.mem)[4096 + 200] ^= 1;
	assert_int_equal(tarn_super_reread(&sb, m, 16 * MIB, f.sb.uuid, &err), -EIO);
	/* damage is no poison: the first copy has the word */
	recorder_poison(f.r, UINT64_MAX);
	memory_bytes(f.mem)[4096 + 200] ^= 1;
	memory_bytes(f.mem)[200] ^= 1;
	assert_int_equal(tarn_super_reread(&sb, m, 16 * MIB, f.sb.uuid, &err), -EUCLEAN);
	memset(memory_bytes(f.mem), 0, 8);
	assert_int_equal(tarn_super_reread(&sb, m, 16 * MIB, f.sb.uuid, &err), -ENODATA);
	mkfs_end(&f);
}

static void probe(void **state)
{
	struct tarn_mkfs_probe p;
	struct tarn_host_id id = { .uuid = { 9 }, .node_name = "other\33[1m" };
	struct tarn_claim claim;
	struct tarn_media *m;
	struct tarn_err err;
	struct mkfs f;

	(void)state;
	mkfs_begin(&f);
	m = recorder_media(f.r);
	assert_int_equal(tarn_mkfs_probe(&p, m, 16 * MIB, &err), 0);
	assert_false(p.found || p.valid);
	assert_int_equal(tarn_mkfs_write(m, &f.sb, &f.opt, &err), 0);
	assert_int_equal(tarn_mkfs_probe(&p, m, 16 * MIB, &err), 0);
	assert_true(p.found && p.valid && !p.claimed);
	assert_int_equal(tarn_claim_write(m, &f.sb, &id, 1, &claim, &err), 0);
	/* a first copy that is gone hides no host */
	for (int lost = 0; lost < 2; lost++) {
		assert_int_equal(tarn_mkfs_probe(&p, m, 16 * MIB, &err), 0);
		assert_true(p.found && p.valid);
		assert_int_equal(p.claimed, 1);
		memory_bytes(f.mem)[lost] ^= 0xff;
	}
	memory_bytes(f.mem)[4096 + 200] ^= 1;
	assert_int_equal(tarn_mkfs_probe(&p, m, 16 * MIB, &err), 0);
	assert_true(p.found && !p.valid);
	assert_no_fault(f.r);
	mkfs_end(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(round_trip),
		cmocka_unit_test(geometry),
		cmocka_unit_test(every_bit),
		cmocka_unit_test(every_bit_sealed),
		cmocka_unit_test(every_field),
		cmocka_unit_test(mkfs_writes_in_order),
		cmocka_unit_test(mkfs_is_read_back),
		cmocka_unit_test(mkfs_cut_anywhere),
		cmocka_unit_test(mkfs_owner),
		cmocka_unit_test(mkfs_on_bad_memory),
		cmocka_unit_test(reread),
		cmocka_unit_test(probe),
	};

	return cmocka_run_group_tests_name("super", tests, NULL, NULL);
}
