// SPDX-License-Identifier: GPL-2.0-only
/*
 * Each limit of the format and of the kernel interface: exactly at it all works, and other
 * hosts see the same; one over is refused in words, and neither memory nor kernel has changed.
 * Documentation/format.rst has the table, which is compared with the constants here.
 *
 * Over the real back end of media.h, on a file in memory, with no cache of its own: a log of
 * 1,000,000 records takes seconds. LIMITS_RECORDS is another number of them. With LIMITS_IMAGE
 * they alone are tested, and an image of them is left there.
 */
#include "testkernel.h"
#include "fsck.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <ctype.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define KIB (1ULL << 10)
#define MIB (1ULL << 20)
#define GIB (1ULL << 30)
#define FIRST_UNITS (TARNFS_LOG_HEADER_UNITS + 2)	/* header, root, end of the checkpoint */
#define NOW 1700000000

#if defined(__SANITIZE_ADDRESS__)
#define RECORDS 100000
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define RECORDS 100000
#endif
#endif
#ifndef RECORDS
#define RECORDS 1000000
#endif

static const char *image_name;		/* the memory is this file */
static int fd = -1;			/* the memory: [0, data_start) of the device */
static struct tarn_super sb;
static struct testhost h[2];		/* host 0 is the master; both are there after begin() */
static int nr_hosts;
static struct tarn_err err;

/* ---- a file system ---- */

static struct tarn_media *map(void)
{
	struct tarn_media_range all = { 0, sb.data_start };
	struct tarn_media *m;

	assert_int_equal(tarn_media_map(&m, fd, sb.data_start, &all, 1), 0);
	return m;
}

static void mkfs(struct tarn_mkfs opt)
{
	struct tarn_media *m;

	opt.owner = test_owner;
	opt.now_sec = NOW;
	if (tarn_mkfs_plan(&sb, &opt, &err))
		fail_msg("mkfs: %s", err.text);
	fd = image_name ? open(image_name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600) :
			  memfd_create("limits", MFD_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)sb.data_start), 0);
	m = map();
	if (tarn_mkfs_write(m, &sb, &opt, &err))
		fail_msg("mkfs: %s", err.text);
	tarn_media_close(m);
}

static void mount_hosts(void)
{
	for (nr_hosts = 0; nr_hosts < 2; nr_hosts++) {
		testhost_start_on(&h[nr_hosts], map(), &sb, nr_hosts);
		testhost_mount(&h[nr_hosts]);
	}
	assert_int_equal(h[0].s.st.role, TARNFS_ROLE_MASTER);
}

/* Two hosts over logs of `area` bytes and that much data. */
static void begin(uint64_t area, uint64_t data)
{
	mkfs((struct tarn_mkfs){
		.dev_size = tarn_round_up(TARNFS_LOG_OFF + TARNFS_AREAS * area, TARNFS_HUGE) + data,
		.log_size = area,
	});
	mount_hosts();
}

static void end(void)
{
	while (nr_hosts) {
		testkernel_verify(h[--nr_hosts].t);
		testhost_stop(&h[nr_hosts]);
	}
	if (fd >= 0)
		close(fd);
	fd = -1;
}

/* What a test that failed left behind is not the next one's fault. */
static int teardown(void **state)
{
	(void)state;
	end();
	return 0;
}

/* ---- what must be the same, or must not have changed ---- */

static void same_dumps(struct testhost *a, struct testhost *b)
{
	char *mine = testkernel_dump(a->t), *theirs = testkernel_dump(b->t);
	size_t at = 0, line = 0;

	while (mine[at] && mine[at] == theirs[at])
		if (mine[at++] == '\n')
			line = at;
	if (mine[at] != theirs[at])
		fail_msg("%.200s\n... and the other has\n%.200s", mine + line, theirs + line);
	free(mine);
	free(theirs);
}

static void on_finding(void *arg, const struct tarn_fsck_finding *f)
{
	(void)arg;
	fail_msg("fsck: %u at 0x%llx: %s", f->number, (unsigned long long)f->off, f->text);
}

static struct tarn_fsck fsck(void)
{
	struct tarn_fsck f = { .dev_size = sb.dev_size, .finding = on_finding };
	struct tarn_media *m = map();

	if (tarn_fsck(&f, m, &err))
		fail_msg("fsck: %s", err.text);
	tarn_media_close(m);
	return f;
}

/*
 * The other host follows, one that reads the whole log for the first time sees the same, and
 * fsck finds nothing.
 */
static void all_agree(void)
{
	struct testhost late;

	if (testhost_replay(&h[1], &err) < 0)
		fail_msg("replay: %s", err.text);
	same_dumps(&h[0], &h[1]);
	testhost_start_on(&late, map(), &sb, 2);
	testhost_mount(&late);
	same_dumps(&h[0], &late);
	testkernel_verify(late.t);
	testhost_stop(&late);
	fsck();
}

struct image {
	uint8_t *bytes;
	size_t len;
};

/* What of the memory was ever written, each piece after its place. */
static struct image image(void)
{
	struct image im = { 0 };
	off_t from = 0, to;

	while ((from = lseek(fd, from, SEEK_DATA)) >= 0) {
		to = lseek(fd, from, SEEK_HOLE);
		im.bytes = realloc(im.bytes, im.len + sizeof(from) + (size_t)(to - from));
		assert_non_null(im.bytes);
		memcpy(im.bytes + im.len, &from, sizeof(from));
		im.len += sizeof(from);
		assert_int_equal(pread(fd, im.bytes + im.len, (size_t)(to - from), from), to - from);
		im.len += (size_t)(to - from);
		from = to;
	}
	return im;
}

static int create(struct tarn_new *news, size_t n)
{
	struct tarn_reservation r = { .set = -1 };
	int ret = tarn_reserve_files(&h[0].s, &r, news, n, &err);

	if (!ret)
		ret = tarn_commit(&h[0].s, &r, &err);
	tarn_reservation_drop(&h[0].s, &r);
	return ret;
}

static void taken(struct tarn_new *news, size_t n)
{
	if (create(news, n))
		fail_msg("%s", err.text);
}

/* Refused with that errno and just that sentence, and nothing is different afterwards. */
static void refused(struct tarn_new *news, size_t n, int ret, const char *text)
{
	char *before = testkernel_dump(h[0].t), *after;
	struct image old = image(), now;

	assert_int_equal(create(news, n), ret);
	assert_string_equal(err.text, text);
	after = testkernel_dump(h[0].t);
	assert_string_equal(before, after);
	now = image();
	assert_int_equal(old.len, now.len);
	assert_memory_equal(old.bytes, now.bytes, old.len);
	free(before);
	free(after);
	free(old.bytes);
	free(now.bytes);
	testkernel_verify(h[0].t);
}

static struct tarn_new new_of(enum tarnfs_node_type type, const char *name)
{
	return (struct tarn_new){ .item = { .type = (uint8_t)type }, .parent = TARNFS_INO_ROOT,
				  .name = name, .mode = 0644, .mtime_sec = NOW };
}

static struct tarn_new new_file(const char *name, uint64_t size)
{
	struct tarn_new n = new_of(TARNFS_TYPE_FILE, name);

	n.item.size = size;
	return n;
}

static struct tarn_new new_symlink(const char *name, const char *target)
{
	struct tarn_new n = new_of(TARNFS_TYPE_SYMLINK, name);

	n.target = target;
	return n;
}

/* len times that byte: malloc()ed */
static char *run_of(char c, size_t len)
{
	char *text = malloc(len + 1);

	assert_non_null(text);
	memset(text, c, len);
	text[len] = '\0';
	return text;
}

/* ---- a log written by hand: what these tools would not write, and much of it ---- */

struct hand {
	struct tarn_media *media;
	struct tarn_log log;		/* units: where the next record goes */
	uint64_t seq;			/* of the last record */
};

static void hand_put(struct hand *w, const struct tarn_rec *rec)
{
	uint8_t raw[8192];
	size_t len = (size_t)tarn_rec_units(rec) * TARNFS_LINE;

	if (tarn_rec_encode(raw, sizeof(raw), rec, &w->log.seed))
		fail_msg("record %llu cannot be encoded", (unsigned long long)rec->seq);
	assert_int_equal(tarn_media_write(w->media,
					  w->log.area_off + (uint64_t)w->log.units * TARNFS_LINE,
					  raw, len), 0);
	w->log.units += (uint32_t)(len / TARNFS_LINE);
}

static void hand_root(struct hand *w)
{
	hand_put(w, &(struct tarn_rec){ .type = TARNFS_REC_DIRECTORY, .flags = TARNFS_RECORD_CKPT,
					.seq = 1, .ino = TARNFS_INO_ROOT,
					.parent = TARNFS_INO_ROOT, .mode = 0755, .name = "" });
}

/* The current log so far, to append to it. */
static void hand_open(struct hand *w)
{
	struct tarn_current cur;

	memset(w, 0, sizeof(*w));
	w->media = map();
	assert_int_equal(tarn_scan(w->media, &sb, &cur, NULL, &err), 0);
	assert_int_equal(tarn_log_open(&w->log, w->media, &sb, &cur, &err), 0);
}

static void hand_commit(struct hand *w)
{
	assert_int_equal(tarn_media_write64(w->media, tarn_commit_off(&sb, &w->log),
					    tarn_commit_word(&w->log.seed, w->log.slot,
							     w->log.units)), 0);
	tarn_media_close(w->media);
}

/* Generation 2 in the second area, as a compaction by host 0 would leave it; the root is there. */
static void hand_second(struct hand *w, uint64_t base_seq, uint64_t next_ino)
{
	memset(w, 0, sizeof(*w));
	w->media = map();
	w->seq = base_seq;
	memcpy(w->log.seed.uuid, sb.uuid, sizeof(w->log.seed.uuid));
	w->log.seed.generation = 2;
	w->log.slot = 1;
	w->log.area_off = sb.area[1].off;
	w->log.area_len = sb.area[1].len;
	w->log.units = TARNFS_LOG_HEADER_UNITS;
	w->log.prev_generation = 1;
	w->log.base_seq = base_seq;
	w->log.next_ino = next_ino;
	w->log.data_end = sb.data_end;
	hand_root(w);
}

/* The checkpoint ends with `records` records in all, the end included. */
static void hand_second_done(struct hand *w, uint64_t directories, uint64_t files)
{
	const struct tarn_control control = {
		.generation = 2, .state = TARNFS_CONTROL_ACTIVE, .slot = 1,
		.area_off = w->log.area_off, .area_len = w->log.area_len,
	};
	struct tarnfs_log_header header;
	struct tarnfs_control raw;

	w->log.ckpt_records = directories + files + 1;
	hand_put(w, &(struct tarn_rec){ .type = TARNFS_REC_CHECKPOINT_END,
					.flags = TARNFS_RECORD_CKPT, .seq = w->log.ckpt_records,
					.directories = directories, .files = files });
	w->log.ckpt_units = w->log.units - TARNFS_LOG_HEADER_UNITS;
	tarn_log_header_encode(&header, &w->log, 1, NOW);
	assert_int_equal(tarn_media_write(w->media, w->log.area_off, &header, sizeof(header)), 0);
	tarn_control_encode(&raw, &control, 0, sb.uuid);
	assert_int_equal(tarn_media_write(w->media, tarn_line_off(&sb, 0, TARNFS_LINE_CONTROL),
					  &raw, sizeof(raw)), 0);
	assert_int_equal(tarn_media_write(w->media,
					  tarn_mirror_line_off(&sb, 0, TARNFS_LINE_CONTROL), &raw,
					  sizeof(raw)), 0);
	hand_commit(w);
}

/* ---- names, targets, records ---- */

static void longest_name(void **state)
{
	char *longest = run_of('n', TARNFS_NAME_MAX), *over = run_of('n', TARNFS_NAME_MAX + 1);
	struct tarn_new news[3] = { new_of(TARNFS_TYPE_DIRECTORY, longest),
				    new_file(longest, 4097), new_symlink(longest, "t") };
	char every[256], text[300];
	size_t n = 0;

	(void)state;
	begin(MIB, 4 * MIB);
	for (int i = 0; i < 3; i++) {
		news[i].name = over;
		refused(&news[i], 1, -ENAMETOOLONG,
			"nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn...: a name has at most 255 bytes");
		news[i].name = longest;
	}
	/* the same name in each: the other two are in the first */
	news[1].parent = news[2].parent = 0;
	longest[0] = '2';
	taken(news, 1);
	news[1].parent = news[0].item.ino;
	taken(&news[1], 1);
	news[2].parent = news[0].item.ino;
	snprintf(text, sizeof(text), "%s: exists already", longest);
	refused(&news[2], 1, -EEXIST, text);
	longest[254] = '3';	/* the last byte counts */
	taken(&news[2], 1);
	/* each byte that a name can have, in one name */
	for (int c = 1; c < 256; c++)
		if (c != '/')
			every[n++] = (char)c;
	every[n] = '\0';
	assert_int_equal(n, 254);
	news[0].name = every;
	taken(news, 1);
	all_agree();
	free(longest);
	free(over);
}

static void longest_target(void **state)
{
	char *target = run_of('t', TARNFS_TARGET_MAX + 1), *name = run_of('n', TARNFS_NAME_MAX);
	struct tarn_new new = new_symlink("link", target);
	uint32_t units;

	(void)state;
	begin(MIB, 4 * MIB);
	refused(&new, 1, -ENAMETOOLONG, "link: its target has more than 4095 bytes");
	new.target = "";
	refused(&new, 1, -ENOENT, "link: a symlink needs a target");
	target[TARNFS_TARGET_MAX] = '\0';
	new.target = target;
	taken(&new, 1);
	/* with the longest name it is the largest record there is */
	new.name = name;
	units = h[0].s.log.units;
	taken(&new, 1);
	assert_int_equal(h[0].s.log.units - units, 70);
	/* and the smallest of each type */
	new = new_symlink("a", "b");
	taken(&new, 1);
	assert_int_equal(h[0].s.log.units - units, 72);
	new = new_of(TARNFS_TYPE_DIRECTORY, "d");
	taken(&new, 1);
	assert_int_equal(h[0].s.log.units - units, 74);
	all_agree();
	free(target);
	free(name);
}

/* How long the strings of a record of two lines can be. */
static void short_records(void **state)
{
	char *name = run_of('n', 65), *target = run_of('t', 46);
	struct tarn_new new[4] = { new_file(name + 65 - 24, 1), new_file(name + 65 - 48, 0),
				   new_of(TARNFS_TYPE_DIRECTORY, name + 1),
				   new_symlink(name + 65 - 10, target) };

	(void)state;
	for (int i = 0; i < 4; i++) {
		assert_int_equal(tarn_log_bytes(&new[i], 1), 2 * TARNFS_LINE);
		new[i].name--;
		assert_int_equal(tarn_log_bytes(&new[i], 1), 3 * TARNFS_LINE);
	}
	free(name);
	free(target);
}

/* A number above the documented end in a field that could hold it. */
static void numbers_of_a_node(void **state)
{
	static const int64_t seconds[] = { INT64_MIN, INT64_MIN + 1, -1, 0, 1, INT32_MAX,
					   INT32_MAX + 1LL, UINT32_MAX + 1LL, INT64_MAX };
	struct tarn_new new = new_file("f", 0);
	char name[16];

	(void)state;
	begin(MIB, 4 * MIB);
	for (size_t i = 0; i < TARN_ARRAY_SIZE(seconds); i++) {
		snprintf(name, sizeof(name), "m%zu", i);
		new = new_file(name, i);
		new.mtime_sec = seconds[i];
		new.mtime_nsec = 999999999;
		taken(&new, 1);
	}
	new = new_file("f", 0);
	new.mtime_nsec = 1000000000;
	refused(&new, 1, -EINVAL, "f: mode, owner, mtime or flags out of range");
	new = new_file("f", 0);
	new.uid = UINT32_MAX;
	refused(&new, 1, -EINVAL, "f: mode, owner, mtime or flags out of range");
	new = new_file("f", 0);
	new.gid = UINT32_MAX;
	refused(&new, 1, -EINVAL, "f: mode, owner, mtime or flags out of range");
	new.gid = new.uid = UINT32_MAX - 1;
	new.mode = 010000;
	refused(&new, 1, -EINVAL, "f: mode, owner, mtime or flags out of range");
	new.mode = 07777;
	taken(&new, 1);
	new = new_file("g", TARNFS_SIZE_MAX + 1);
	refused(&new, 1, -EFBIG, "g: 9223372036854775808 bytes are too many");
	all_agree();
}

/* ---- batches ---- */

static void largest_batch(void **state)
{
	struct tarn_new *news = calloc(TARNFS_BATCH_MAX + 1, sizeof(*news));
	char (*names)[8] = calloc(TARNFS_BATCH_MAX + 1, sizeof(*names));

	(void)state;
	begin(16 * MIB, 4 * MIB);
	assert_int_equal(TARNFS_BATCH_MAX, TARNFS_RESERVE_MAX);
	for (int i = 0; i <= TARNFS_BATCH_MAX; i++) {
		snprintf(names[i], sizeof(names[i]), "%d", i);
		news[i] = new_file(names[i], 0);
	}
	refused(news, TARNFS_BATCH_MAX + 1, -E2BIG, "32769 entries: a commit takes at most 32768");
	/* one that is refused last, and nothing of the others is there */
	news[TARNFS_BATCH_MAX - 1].name = "0";
	refused(news, TARNFS_BATCH_MAX, -EEXIST, "0: exists already");
	news[TARNFS_BATCH_MAX - 1].name = names[TARNFS_BATCH_MAX - 1];
	taken(news, TARNFS_BATCH_MAX);
	assert_int_equal(h[0].s.st.files, TARNFS_BATCH_MAX);
	/* twice that and one: more than a call of APPLY takes, when all is read at once */
	for (int i = 0; i <= TARNFS_BATCH_MAX; i++)
		names[i][0] = (char)(names[i][0] - '0' + 'a');
	taken(news, TARNFS_BATCH_MAX);
	taken(news + TARNFS_BATCH_MAX, 1);
	all_agree();
	free(names);
	free(news);
}

static void longest_strings(void **state)
{
	const size_t each = 8 + TARNFS_TARGET_MAX, count = TARNFS_STRINGS_MAX / each + 1;
	char *target = run_of('t', TARNFS_TARGET_MAX);
	struct tarn_new *news = calloc(count, sizeof(*news));
	char (*names)[9] = calloc(count, sizeof(*names));
	size_t rest;

	(void)state;
	begin(80 * MIB, 4 * MIB);
	for (size_t i = 0; i < count; i++) {
		snprintf(names[i], sizeof(names[i]), "%08zu", i);
		news[i] = new_symlink(names[i], target);
	}
	/* so that all strings together are just as long as a call may have them, and a byte more */
	rest = TARNFS_STRINGS_MAX - (count - 1) * each - 8;
	news[count - 1].target = target + TARNFS_TARGET_MAX - rest - 1;
	refused(news, count, -E2BIG,
		"names and targets of 67108865 bytes: a commit takes at most 67108864");
	news[count - 1].target++;
	taken(news, count);
	all_agree();
	free(target);
	free(names);
	free(news);
}

/* ---- a checkpoint ---- */

/* A stage is one call in this version: that many entries, the root included. */
static void largest_checkpoint(void **state)
{
	struct testhost late;
	char name[16];

	(void)state;
	for (uint32_t more = 0; more < 2; more++) {
		uint32_t count = TARNFS_APPLY_MAX + more;
		struct hand w;

		mkfs((struct tarn_mkfs){ .dev_size = 80 * MIB, .log_size = 16 * MIB });
		hand_second(&w, 7, TARNFS_INO_FIRST + count);
		for (uint32_t i = 1; i < count; i++) {
			snprintf(name, sizeof(name), "%u", i);
			hand_put(&w, &(struct tarn_rec){
				.type = TARNFS_REC_FILE, .flags = TARNFS_RECORD_CKPT, .seq = i + 1,
				.ino = TARNFS_INO_FIRST + i, .parent = TARNFS_INO_ROOT, .name = name,
				.name_len = (uint16_t)strlen(name) });
		}
		hand_second_done(&w, 1, count - 1);
		fsck();
		testhost_start_on(&late, map(), &sb, 0);
		if (!more) {
			testhost_mount(&late);
			assert_int_equal(late.s.st.files, TARNFS_APPLY_MAX - 1);
			assert_int_equal(late.s.st.seq, 7);
		} else {
			late.s.claim.nonce = 1;
			assert_int_equal(tarn_claim_write(late.s.media, &sb, &late.id, 0,
							  &late.s.claim, &err), 0);
			assert_int_equal(testhost_replay(&late, &err), -EOPNOTSUPP);
			assert_string_equal(err.text,
					    "the checkpoint has more than 65536 entries, which this "
					    "version cannot load");
			assert_true(late.s.st.state & TARNFS_ST_FRESH);
			assert_int_equal(testkernel_lookup(late.t, "/"), 0);
		}
		testkernel_verify(late.t);
		testhost_stop(&late);
		end();
	}
}

/* ---- hosts ---- */

/* A claim and a mount by a host that is not in h[]. */
static int claim(struct testhost *host, int n, int wanted)
{
	bool again, settle;
	uint16_t page;
	int ret;

	testhost_start_on(host, map(), &sb, n);
	ret = tarn_claim_choose(host->s.media, &sb, &host->id, wanted, &page, &again, &settle,
				&err);
	if (!ret)
		testhost_mount(host);
	return ret;
}

static void all_hosts(uint32_t hosts)
{
	struct testhost *all = calloc(hosts, sizeof(*all)), over;
	struct image old, now;
	char expected[64];

	mkfs((struct tarn_mkfs){ .dev_size = 16 * MIB, .hosts = hosts });
	for (uint32_t i = 0; i < hosts; i++) {
		assert_int_equal(claim(&all[i], (int)i, -1), 0);
		assert_int_equal(all[i].s.claim.page, i);
	}
	h[0] = all[0];
	taken((struct tarn_new[]){ new_file("f", 4096) }, 1);
	for (uint32_t i = 1; i < hosts; i++) {
		assert_int_equal(testhost_replay(&all[i], &err), 1);
		same_dumps(&h[0], &all[i]);
	}
	all[0] = h[0];
	/* one more has no place, says which pages there are, and writes nothing */
	old = image();
	assert_int_equal(claim(&over, 200, -1), -EUSERS);
	snprintf(expected, sizeof(expected), "no host page is free: ");
	assert_memory_equal(err.text, expected, strlen(expected));
	testhost_stop(&over);
	assert_int_equal(claim(&over, 200, (int)hosts - 1), -EUSERS);
	testhost_stop(&over);
	now = image();
	assert_int_equal(old.len, now.len);
	assert_memory_equal(old.bytes, now.bytes, old.len);
	free(old.bytes);
	free(now.bytes);
	/* a page that is released stays bound to its host, which gets it again */
	assert_int_equal(tarn_claim_release(all[hosts - 1].s.media, &sb, &all[hosts - 1].s.claim,
					    &err), 0);
	testhost_stop(&all[hosts - 1]);
	assert_int_equal(claim(&over, 200, -1), -EUSERS);
	testhost_stop(&over);
	assert_int_equal(claim(&all[hosts - 1], (int)hosts - 1, -1), 0);
	assert_int_equal(all[hosts - 1].s.claim.page, hosts - 1);
	assert_int_equal(all[hosts - 1].s.st.files, 1);
	fsck();
	for (uint32_t i = 0; i < hosts; i++)
		testhost_stop(&all[i]);
	memset(h, 0, sizeof(h));
	free(all);
	end();
}

static void fewest_and_most_hosts(void **state)
{
	struct tarn_mkfs opt = { .dev_size = 16 * MIB, .hosts = TARNFS_HOSTS_MAX + 1 };

	(void)state;
	all_hosts(1);
	all_hosts(TARNFS_HOSTS_MAX);
	assert_int_equal(tarn_mkfs_plan(&sb, &opt, &err), -EINVAL);
	assert_string_equal(err.text, "129 hosts: at most 128 are possible");
}

/* ---- devices ---- */

static void plan_refused(struct tarn_mkfs opt, int ret, const char *text)
{
	struct tarn_super none;

	assert_int_equal(tarn_mkfs_plan(&none, &opt, &err), ret);
	assert_string_equal(err.text, text);
}

/* Files of just what is free: in one piece, and with a file of one block beside it. */
static void fill_device(void)
{
	uint64_t all = sb.data_end - sb.data_start;
	struct tarn_new one = new_file("one", all + 1), none = new_file("none", 0),
			more = new_file("more", 1);
	char text[300];

	snprintf(text, sizeof(text),
		 "one: no space: needed in one piece %llu bytes, free %llu, largest piece %llu "
		 "(from a 2 MiB boundary %llu); space is not given back yet: make the file system "
		 "on a larger device", (unsigned long long)(all + TARNFS_BLOCK),
		 (unsigned long long)all, (unsigned long long)all, (unsigned long long)all);
	refused(&one, 1, -ENOSPC, text);
	one.item.size = all;
	taken(&one, 1);
	assert_int_equal(one.item.off, sb.data_start);
	assert_int_equal(h[0].s.st.free_bytes, 0);
	refused(&more, 1, -ENOSPC,
		"more: no space: needed in one piece 4096 bytes, free 0, largest piece 0 (from a 2 "
		"MiB boundary 0); space is not given back yet: make the file system on a larger "
		"device");
	/* what takes no space has room all the same */
	taken(&none, 1);
	assert_int_equal(none.item.off, 0);
	all_agree();
}

static void smallest_device(void **state)
{
	(void)state;
	/* three logs of 1 MiB behind the first 2 MiB, the data from a multiple of 2 MiB on */
	plan_refused((struct tarn_mkfs){ .dev_size = 8 * MIB - 1 }, -ENOSPC,
		     "device too small: 8388607 bytes, at least 8388608 are needed with logs of "
		     "1048576 bytes");
	mkfs((struct tarn_mkfs){ .dev_size = 8 * MIB });
	assert_int_equal(sb.data_end - sb.data_start, 2 * MIB);
	mount_hosts();
	fill_device();
}

static void largest_device(void **state)
{
	(void)state;
	plan_refused((struct tarn_mkfs){ .dev_size = TARNFS_SIZE_MAX + 1 }, -EINVAL,
		     "device of 9223372036854775808 bytes: at most 9223372036854775807 are "
		     "possible: make a smaller one");
	mkfs((struct tarn_mkfs){ .dev_size = TARNFS_SIZE_MAX });
	assert_int_equal(sb.area[0].len, TARNFS_AREA_MAX);
	assert_int_equal(sb.data_end, TARNFS_SIZE_MAX + 1 - TARNFS_BLOCK);
	mount_hosts();
	fill_device();
}

/* The last block, and sizes that end a byte before a block does. */
static void last_block(void **state)
{
	struct tarn_new news[2] = { new_file("most", 2 * MIB - 2 * TARNFS_BLOCK + 1),
				    new_file("last", TARNFS_BLOCK) };

	(void)state;
	begin(MIB, 2 * MIB);
	taken(news, 2);
	assert_int_equal(news[0].item.len, 2 * MIB - TARNFS_BLOCK);
	assert_int_equal(news[1].item.off + news[1].item.len, sb.data_end);
	assert_int_equal(h[0].s.st.free_bytes, 0);
	all_agree();
}

/* ---- the log ---- */

/* Creates symlinks until just `left` units are left for creates. */
static void fill_log(uint32_t left)
{
	static int serial;
	uint64_t bytes;
	char *target = run_of('t', TARNFS_TARGET_MAX);

	assert_int_equal(tarn_log_left(&h[0].s, 0, &bytes, &err), 0);
	for (uint64_t rest = bytes / TARNFS_LINE - left; rest;) {
		struct tarn_new news[256];
		char names[256][16];
		size_t n = 0;

		for (; rest && n < 256; n++) {
			/* of 2 to 64 units, so that none of 1 is left over */
			uint32_t units = rest > 66 ? 64 : rest > 64 ? (uint32_t)rest / 2 :
								      (uint32_t)rest;

			snprintf(names[n], sizeof(names[n]), "fill%08d", serial++);
			news[n] = new_symlink(names[n], target + TARNFS_TARGET_MAX -
					      (units * TARNFS_LINE - 72 - 12 - 3));
			rest -= units;
		}
		taken(news, n);
	}
	assert_int_equal(tarn_log_left(&h[0].s, 0, &bytes, &err), 0);
	assert_int_equal(bytes, left * TARNFS_LINE);
	free(target);
}

/* A record of that many units, 2 to 70: full to its last byte where it can be. */
static struct tarn_new new_units(uint32_t units, char **name, char **target)
{
	size_t len = units * TARNFS_LINE - 72, of_name;

	of_name = len <= TARNFS_TARGET_MAX ? 1 : len - TARNFS_TARGET_MAX;
	if (of_name > TARNFS_NAME_MAX)
		of_name = TARNFS_NAME_MAX;
	*name = run_of('n', of_name);
	*target = run_of('t', len - of_name < TARNFS_TARGET_MAX ? len - of_name : TARNFS_TARGET_MAX);
	return new_symlink(*name, *target);
}

static void full_text(char text[300], uint64_t needed, uint64_t left, uint64_t usable)
{
	snprintf(text, 300, "the log is full: %llu bytes of it needed, %llu left of %llu for new "
		 "files; compaction is not built yet: make the file system with a larger log "
		 "(mkfs.tarnfs --log-size)", (unsigned long long)needed * TARNFS_LINE,
		 (unsigned long long)left * TARNFS_LINE, (unsigned long long)usable * TARNFS_LINE);
}

/*
 * A record of each length there is into a log where it just fits, and into one that is a line
 * too short; behind it not the smallest has room. Area: how long, and what creates may use.
 */
static void log_full(uint64_t area, uint32_t usable, uint32_t step)
{
	for (uint32_t units = 2; units <= 70; units += step) {
		char *name, *target, text[300];
		struct tarn_new new = new_units(units, &name, &target);
		struct tarn_new small = new_file("s", 0);

		begin(area, 4 * MIB);
		fill_log(units - 1);
		full_text(text, units, units - 1, usable);
		refused(&new, 1, -ENOSPC, text);
		end();

		begin(area, 4 * MIB);
		fill_log(units);
		taken(&new, 1);
		assert_int_equal(h[0].s.log.units, usable);
		full_text(text, 2, 0, usable);
		refused(&small, 1, -ENOSPC, text);
		all_agree();
		end();
		free(name);
		free(target);
	}
}

static void log_exactly_full(void **state)
{
	(void)state;
	/* the smallest log, whose reserve is the least; and those around which 1/16 is more */
	log_full(MIB, 15360, 1);
	log_full(MIB + 4 * KIB, 15420, 34);
	log_full(2 * MIB, 30720, 34);
	plan_refused((struct tarn_mkfs){ .dev_size = 64 * MIB, .log_size = MIB - 1 }, -EINVAL,
		     "log size 1048575: must be from 1048576 (1 MiB) to 1073741824 (1 GiB)");
	plan_refused((struct tarn_mkfs){ .dev_size = 64 * GIB, .log_size = GIB + 1 }, -EINVAL,
		     "log size 1073741825: must be from 1048576 (1 MiB) to 1073741824 (1 GiB)");
}

/* To the last line of the area, which only what is not built yet may use; and one line over. */
static void log_to_its_last_line(void **state)
{
	char name[16], text[300];
	struct hand w;

	(void)state;
	begin(MIB, 4 * MIB);
	hand_open(&w);
	while (w.log.units < MIB / TARNFS_LINE) {
		snprintf(name, sizeof(name), "%llu", (unsigned long long)++w.seq);
		hand_put(&w, &(struct tarn_rec){
			.type = TARNFS_REC_FILE, .seq = w.seq, .ino = TARNFS_INO_FIRST + w.seq,
			.parent = TARNFS_INO_ROOT, .name = name,
			.name_len = (uint16_t)strlen(name) });
	}
	assert_int_equal(w.log.units, MIB / TARNFS_LINE);
	hand_commit(&w);
	assert_int_equal(testhost_replay(&h[0], &err), (int64_t)w.seq);
	all_agree();
	full_text(text, 2, 0, 15360);
	refused((struct tarn_new[]){ new_file("f", 0) }, 1, -ENOSPC, text);
	hand_open(&w);
	w.log.units++;
	hand_commit(&w);
	assert_int_equal(testhost_replay(&h[1], &err), -EUCLEAN);
	assert_non_null(strstr(err.text, ": 16385 units in an area of 1048576 bytes"));
	same_dumps(&h[0], &h[1]);
}

/* ---- numbers that never repeat ---- */

static void last_seq(void **state)
{
	const uint64_t base = TARNFS_SEQ_MAX - 3;
	struct tarn_new news[4] = { new_file("a", 1), new_file("b", 1), new_file("c", 1),
				    new_file("d", 1) };
	struct hand w;

	(void)state;
	mkfs((struct tarn_mkfs){ .dev_size = 16 * MIB });
	hand_second(&w, base, TARNFS_INO_FIRST);
	/* more names in the checkpoint than numbers are left, which those have not */
	for (uint64_t i = 0; i < 8; i++)
		hand_put(&w, &(struct tarn_rec){
			.type = TARNFS_REC_DIRECTORY, .flags = TARNFS_RECORD_CKPT, .seq = i + 2,
			.ino = TARNFS_INO_FIRST + i, .parent = TARNFS_INO_ROOT,
			.name = (char[]){ (char)('0' + i) }, .name_len = 1 });
	w.log.next_ino = TARNFS_INO_FIRST + 8;
	hand_second_done(&w, 9, 0);
	mount_hosts();
	assert_int_equal(h[0].s.st.seq, base);
	refused(news, 4, -ENOSPC,
		"no sequence number for a record: 4 are needed, 3 are left; make a new file "
		"system");
	taken(news, 2);
	refused(news + 2, 2, -ENOSPC,
		"no sequence number for a record: 2 are needed, 1 are left; make a new file "
		"system");
	taken(news + 2, 1);
	assert_int_equal(h[0].s.st.seq, TARNFS_SEQ_MAX);
	refused(news + 3, 1, -ENOSPC,
		"no sequence number for a record: 1 are needed, 0 are left; make a new file "
		"system");
	all_agree();
	assert_int_equal(testhost_replay(&h[1], &err), 0);
}

static void last_ino(void **state)
{
	struct tarn_new news[4] = { new_file("a", 1), new_of(TARNFS_TYPE_DIRECTORY, "b"),
				    new_file("c", 1), new_file("d", 1) };
	struct hand w;

	(void)state;
	mkfs((struct tarn_mkfs){ .dev_size = 16 * MIB });
	hand_second(&w, 100, TARNFS_SEQ_MAX - 3);
	hand_second_done(&w, 1, 0);
	mount_hosts();
	refused(news, 4, -ENOSPC,
		"a: no inode number for it: 4 are needed, 3 are left; make a new file system");
	taken(news, 3);
	assert_int_equal(news[2].item.ino, TARNFS_SEQ_MAX - 1);
	refused(news + 3, 1, -ENOSPC,
		"d: no inode number for it: 1 are needed, 0 are left; make a new file system");
	assert_int_equal(testkernel_lookup(h[0].t, "/c"), TARNFS_SEQ_MAX - 1);
	all_agree();
	end();

	/* one further in the header is none */
	mkfs((struct tarn_mkfs){ .dev_size = 16 * MIB });
	hand_second(&w, 100, TARNFS_SEQ_MAX + 1);
	hand_second_done(&w, 1, 0);
	testhost_start_on(&h[0], map(), &sb, 0);
	nr_hosts = 1;
	assert_int_equal(tarn_claim_write(h[0].s.media, &sb, &h[0].id, 0, &h[0].s.claim, &err), 0);
	assert_int_equal(testhost_replay(&h[0], &err), -EUCLEAN);
	assert_non_null(strstr(err.text, "damaged (inode number)"));
	assert_true(h[0].s.st.state & TARNFS_ST_FRESH);
}

/* RESERVE goes no further ahead of what is committed. */
static void furthest_ino(void **state)
{
	struct tarnfs_reserve_item *items = calloc(TARNFS_RESERVE_MAX, sizeof(*items));
	struct tarn_new new = new_file("f", 1);
	struct tarn_kernel *k;
	uint32_t failed;
	int set;

	(void)state;
	begin(MIB, 4 * MIB);
	k = h[0].s.kernel;
	for (size_t i = 0; i < TARNFS_RESERVE_MAX; i++)
		items[i].type = TARNFS_TYPE_DIRECTORY;
	for (uint64_t n = 0; n < TARNFS_INO_JUMP; n += TARNFS_RESERVE_MAX) {
		assert_int_equal(k->ops->reserve(k, items, TARNFS_RESERVE_MAX, &set, &failed), 0);
		k->ops->release(k, set);
	}
	assert_int_equal(items[TARNFS_RESERVE_MAX - 1].ino, TARNFS_INO_FIRST + TARNFS_INO_JUMP - 1);
	refused(&new, 1, -EAGAIN,
		"too many entries are reserved and not committed: wait for other commands, or end "
		"them");
	free(items);
}

/* ---- trees ---- */

static void deepest_tree(void **state)
{
	const size_t depth = 1000;
	char *name = run_of('d', TARNFS_NAME_MAX), *path = malloc(depth * 256 + 1);
	struct tarn_new *news = calloc(depth, sizeof(*news));

	(void)state;
	begin(MIB, 4 * MIB);
	for (size_t i = 0; i < depth; i++) {
		news[i] = new_of(TARNFS_TYPE_DIRECTORY, name);
		if (i) {
			news[i].parent = 0;
			news[i].parent_index = i - 1;
		}
		path[256 * i] = '/';
		memcpy(path + 256 * i + 1, name, 255);
	}
	path[256 * depth] = '\0';
	taken(news, depth);
	assert_int_equal(testkernel_lookup(h[0].t, path), news[depth - 1].item.ino);
	all_agree();
	assert_int_equal(testkernel_lookup(h[1].t, path), news[depth - 1].item.ino);
	free(news);
	free(path);
	free(name);
}

/* ---- a million records ---- */

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/*
 * count records in batches of that many, each a file of one block; a directory for each 1000,
 * or all in one: *in_one.
 */
static void hand_many(uint32_t count, uint32_t batch, bool in_one)
{
	uint64_t dir = TARNFS_INO_ROOT;
	struct hand w;
	char name[16];

	hand_open(&w);
	for (uint32_t i = 0; i < count; i++) {
		uint32_t left = (batch - 1 - i % batch) < count - 1 - i ? batch - 1 - i % batch
								       : count - 1 - i;
		struct tarn_rec rec = {
			.type = TARNFS_REC_FILE, .seq = ++w.seq, .ino = TARNFS_INO_FIRST + i,
			.parent = dir, .batch_index = (uint16_t)(i % batch),
			.batch_left = (uint16_t)left, .mode = 0644, .name = name, .extents = 1,
			.size = TARNFS_BLOCK, .ext_len = TARNFS_BLOCK,
			.ext_off = sb.data_start + (uint64_t)i * TARNFS_BLOCK,
		};

		if (!in_one && i % 1000 == 0) {
			rec.type = TARNFS_REC_DIRECTORY;
			rec.parent = TARNFS_INO_ROOT;
			rec.extents = 0;
			rec.size = 0;
			dir = rec.ino;
		}
		rec.name_len = (uint16_t)snprintf(name, sizeof(name), "%c%07u",
						  rec.extents ? 'f' : 'd', i);
		hand_put(&w, &rec);
	}
	hand_commit(&w);
}

static void replay_many(uint32_t count, uint32_t batch, bool in_one)
{
	double start, replayed, checked;
	struct tarn_fsck f;
	char path[32];

	mkfs((struct tarn_mkfs){ .dev_size = 8 * GIB, .log_size = 192 * MIB });
	hand_many(count, batch, in_one);
	testhost_start_on(&h[0], map(), &sb, 0);
	nr_hosts = 1;
	start = now();
	testhost_mount(&h[0]);
	replayed = now();
	assert_int_equal(h[0].s.st.seq, count);
	assert_int_equal(h[0].s.st.files + h[0].s.st.directories, count + 1);
	for (uint32_t i = 0; i < count; i += in_one ? count - 1 : 999) {
		uint64_t ino = TARNFS_INO_FIRST + i;

		if (in_one)
			snprintf(path, sizeof(path), "/f%07u", i);
		else if (i % 1000)
			snprintf(path, sizeof(path), "/d%07u/f%07u", i / 1000 * 1000, i);
		else
			snprintf(path, sizeof(path), "/d%07u", i);
		assert_int_equal(testkernel_lookup(h[0].t, path), ino);
	}
	checked = now();
	f = fsck();
	assert_int_equal(f.seq, count);
	assert_int_equal(f.files, h[0].s.st.files);
	printf("# %u records, %u a batch%s: replayed in %.2f s, fsck in %.2f s\n", count, batch,
	       in_one ? ", in one directory" : "", replayed - start, now() - checked);
	end();
}

static uint32_t records(void)
{
	const char *n = getenv("LIMITS_RECORDS");

	return n ? (uint32_t)strtoul(n, NULL, 10) : RECORDS;
}

/* Each alone, as a command for each file leaves them; and as many as a commit takes. */
static void million_records(void **state)
{
	struct rusage use;

	(void)state;
	replay_many(records() / 4, 1, false);
	replay_many(records(), TARNFS_BATCH_MAX, false);
	image_name = getenv("LIMITS_IMAGE");
	replay_many(records(), 1, false);
	if (image_name)
		assert_int_equal(truncate(image_name, (off_t)sb.dev_size), 0);
	image_name = NULL;
	getrusage(RUSAGE_SELF, &use);
	printf("# at most %ld MiB of memory\n", use.ru_maxrss / 1024);
}

static void many_in_one_directory(void **state)
{
	(void)state;
	replay_many(100000, 1000, true);
}

/* ---- the table in the documentation ---- */

struct constant {
	const char *name;
	uint64_t value;
	bool seen;
};

#define CONSTANT(name) { #name, name, false }

/* "1,048,576" up to the next blank; UINT64_MAX: no number. */
static uint64_t number(const char *s)
{
	uint64_t n = 0;

	if (!isdigit(*s))
		return UINT64_MAX;
	for (; isdigit(*s) || *s == ','; s++)
		if (*s != ',')
			n = n * 10 + (uint64_t)(*s - '0');
	return n;
}

static void documented(void **state)
{
	struct constant all[] = {
		CONSTANT(TARNFS_NAME_MAX), CONSTANT(TARNFS_TARGET_MAX), CONSTANT(TARNFS_LABEL_MAX),
		CONSTANT(TARNFS_HOSTS_MAX), CONSTANT(TARNFS_HOSTS_DEFAULT), CONSTANT(TARNFS_AREA_MIN),
		CONSTANT(TARNFS_AREA_MAX), CONSTANT(TARNFS_AREA_FRACTION),
		CONSTANT(TARNFS_LOG_RESERVE_FRACTION), CONSTANT(TARNFS_LOG_RESERVE_MIN),
		CONSTANT(TARNFS_BATCH_MAX), CONSTANT(TARNFS_RESERVE_MAX),
		CONSTANT(TARNFS_APPLY_MAX), CONSTANT(TARNFS_STRINGS_MAX), CONSTANT(TARNFS_SEQ_MAX),
		CONSTANT(TARNFS_SIZE_MAX), CONSTANT(TARNFS_INO_JUMP), CONSTANT(TARNFS_META_RANGES),
		CONSTANT(TARNFS_AREAS_MAX), CONSTANT(TARNFS_SLOTS),
	};
	FILE *f = fopen(TARN_TOP "/Documentation/format.rst", "re");
	char line[512], *value, *word;
	bool in_section = false;

	(void)state;
	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		if (!strcmp(line, "Limits\n"))
			in_section = true;
		if (!in_section || strncmp(line, "``TARNFS_", 9))
			continue;
		word = strtok_r(line + 2, "`", &value);
		value += strspn(value, "` ");
		for (size_t i = 0;; i++) {
			if (i == TARN_ARRAY_SIZE(all))
				fail_msg("%s is in the table, and not tested here", word);
			if (strcmp(all[i].name, word))
				continue;
			if (number(value) != all[i].value)
				fail_msg("%s is %llu, and %.30s in the table", word,
					 (unsigned long long)all[i].value, value);
			all[i].seen = true;
			break;
		}
	}
	fclose(f);
	for (size_t i = 0; i < TARN_ARRAY_SIZE(all); i++)
		if (!all[i].seen)
			fail_msg("%s is not in the table of Documentation/format.rst", all[i].name);
}

#define TEST(fn) cmocka_unit_test_teardown(fn, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(longest_name), TEST(longest_target), TEST(short_records),
		TEST(numbers_of_a_node),
		TEST(largest_batch), TEST(longest_strings), TEST(largest_checkpoint),
		TEST(fewest_and_most_hosts), TEST(smallest_device), TEST(largest_device),
		TEST(last_block), TEST(log_exactly_full), TEST(log_to_its_last_line),
		TEST(last_seq), TEST(last_ino), TEST(furthest_ino), TEST(deepest_tree),
		TEST(million_records), TEST(many_in_one_directory), TEST(documented),
	};

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (getenv("LIMITS_IMAGE"))
		cmocka_set_test_filter("million_records");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
