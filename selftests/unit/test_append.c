// SPDX-License-Identifier: GPL-2.0-only
/*
 * An append is protocol section 2, in that order and no other: records, fence,
 * commit word, fence, and nothing else is stored. It commits all of a batch or
 * nothing, wherever it is killed, and says which.
 */
#include "testkernel.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1ULL << 20)
#define SCAN "fetch page0.control\n" "fetch page1.control\n"
#define SCAN_IDS \
	"fetch page0.identity\n" \
	"fetch page0.control\n" \
	"fetch page1.identity\n" \
	"fetch page1.control\n"
#define OURS "fetch super 512\n" "fetch page0.identity\n"
#define LOG_OPEN "invalidate page0.commit0\n" "read64 page0.commit0\n" "fetch area0+0 256\n"

/* of a 1 MiB area: less the reserve of 64 KiB, in units */
#define USABLE 15360
#define FIRST_UNITS 6		/* header, root, end */

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
	assert_int_equal(h[0].s.st.role, TARNFS_ROLE_MASTER);
	assert_int_equal(h[1].s.st.role, TARNFS_ROLE_CLIENT);
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

static struct tarn_new new_file(const char *name, uint64_t size)
{
	return (struct tarn_new){ .item = { .type = TARNFS_TYPE_FILE, .size = size },
				  .parent = 1,
				  .name = name,
				  .mode = 0644 };
}

static int create(struct testhost *host, struct tarn_new *news, size_t n)
{
	struct tarn_reservation r = { .set = -1 };
	int ret = tarn_reserve_files(&host->s, &r, news, n, &err);

	if (!ret)
		ret = tarn_commit(&host->s, &r, &err);
	tarn_reservation_drop(&host->s, &r);
	return ret;
}

/* ---- order ---- */

static void append_order(void **state)
{
	(void)state;
	testkernel_recorder(h[0].t, h[0].r);
	assert_int_equal(testhost_create(&h[0], "a", 5000, &err), 0);
	assert_ops(h[0].r,
		   "RESERVE\n" "lock\n" OURS SCAN LOG_OPEN SCAN_IDS "APPLY check 1\n"
		   "write area0+384 128\n" "writeback area0+384 128\n" "fence\n"
		   "write64 page0.commit0\n" "writeback page0.commit0\n" "fence\n"
		   SCAN_IDS "APPLY 1\n" "APPLY at-end 0\n" "unlock\n");
	/* the next one stores behind it, and only that */
	assert_int_equal(testhost_create(&h[0], "b", 0, &err), 0);
	assert_ops(h[0].r,
		   "RESERVE\n" "lock\n" OURS SCAN LOG_OPEN SCAN_IDS "APPLY check 1\n"
		   "write area0+512 128\n" "writeback area0+512 128\n" "fence\n"
		   "write64 page0.commit0\n" "writeback page0.commit0\n" "fence\n"
		   SCAN_IDS "APPLY 1\n" "APPLY at-end 0\n" "unlock\n");
	/* nor does another command read what the kernel has already (lesson 13) */
	testhost_next_command(&h[0]);
	assert_int_equal(testhost_create(&h[0], "c", 0, &err), 0);
	assert_ops(h[0].r,
		   "RESERVE\n"
		   "lock\n" OURS SCAN LOG_OPEN SCAN_IDS "APPLY check 1\n"
		   "write area0+640 128\n"
		   "writeback area0+640 128\n"
		   "fence\n"
		   "write64 page0.commit0\n"
		   "writeback page0.commit0\n"
		   "fence\n" SCAN_IDS "APPLY 1\n"
		   "APPLY at-end 0\n"
		   "unlock\n");
}

/* A batch is one write, one commit. */
static void batch_order(void **state)
{
	struct tarn_new news[] = {
		{ .item = { .type = TARNFS_TYPE_DIRECTORY },
		  .parent = 1,
		  .name = "d",
		  .mode = 01777 },
		{ .item = { .type = TARNFS_TYPE_DIRECTORY },
		  .parent_index = 0,
		  .name = "e",
		  .mode = 0755 },
		{ .item = { .type = TARNFS_TYPE_FILE, .size = 4000 },
		  .parent_index = 1,
		  .name = "f",
		  .mode = 04755,
		  .uid = 7,
		  .gid = 8,
		  .mtime_sec = -1,
		  .mtime_nsec = 9,
		  .file_flags = TARNFS_FILE_SHARED_WRITE },
		{ .item = { .type = TARNFS_TYPE_SYMLINK },
		  .parent_index = 0,
		  .name = "l",
		  .target = "../x",
		  .mode = 0777 },
	};
	char *mine, *theirs;

	(void)state;
	testkernel_recorder(h[0].t, h[0].r);
	assert_int_equal(create(&h[0], news, 4), 0);
	assert_ops(h[0].r,
		   "RESERVE\n" "lock\n" OURS SCAN LOG_OPEN SCAN_IDS "APPLY check 4\n"
		   "write area0+384 512\n" "writeback area0+384 512\n" "fence\n"
		   "write64 page0.commit0\n" "writeback page0.commit0\n" "fence\n"
		   SCAN_IDS "APPLY 4\n" "APPLY at-end 0\n" "unlock\n");
	assert_int_equal(testkernel_lookup(h[0].t, "/d/e/f"), news[2].item.ino);
	assert_int_equal(testkernel_lookup(h[0].t, "/d/l"), news[3].item.ino);
	/* the other host sees nothing before it replays, then just the same */
	assert_int_equal(testkernel_lookup(h[1].t, "/d"), 0);
	assert_int_equal(testhost_replay(&h[1], &err), 4);
	mine = testkernel_dump(h[0].t);
	theirs = testkernel_dump(h[1].t);
	assert_string_equal(mine, theirs);
	free(mine);
	free(theirs);
	assert_no_fault(h[1].r);
}

/* ---- refusals: nothing is written ---- */

static void assert_nothing_written(struct testhost *host)
{
	const char *ops = recorder_take(host->r);

	assert_null(strstr(ops, "write"));
	assert_no_fault(host->r);
}

static void refused_by_check(void **state)
{
	struct tarn_new news[3] = { new_file("one", 1), new_file("two", 1), new_file("three", 1) };
	struct tarn_new file_inside = new_file("x", 0);

	(void)state;
	assert_int_equal(create(&h[0], news, 1), 0);
	recorder_take(h[0].r);
	/* exists: the entry is named, nothing of the batch is there */
	news[0].name = "zero";
	news[1].name = "one";
	assert_int_equal(create(&h[0], news, 3), -EEXIST);
	assert_string_equal(err.text, "one: exists already");
	assert_int_equal(testkernel_lookup(h[0].t, "/zero"), 0);
	/* twice in one batch */
	news[1].name = "zero";
	assert_int_equal(create(&h[0], news, 3), -EEXIST);
	assert_string_equal(err.text, "zero: exists already");
	news[1].name = "two";
	news[1].parent = 9999;
	assert_int_equal(create(&h[0], news, 3), -ENOENT);
	assert_string_equal(err.text, "two: its directory does not exist");
	file_inside.parent = testkernel_lookup(h[0].t, "/one");
	assert_int_equal(create(&h[0], &file_inside, 1), -ENOTDIR);
	assert_string_equal(err.text, "x: what it should stand in is not a directory");
	assert_nothing_written(&h[0]);
	/* space of all of these is free again after the next commit */
	news[0].name = "last";
	news[0].item.size = 0;
	assert_int_equal(create(&h[0], news, 1), 0);
	assert_int_equal(h[0].s.st.limbo_bytes + h[0].s.st.reserved_bytes, 0);
}

static void refused_before_reserve(void **state)
{
	static const char *const bad[] = { "", ".", "..", "a/b", "/", NULL };
	char long_name[257], long_target[4097];
	struct tarn_new new = new_file("x", 1), two[2];

	(void)state;
	testkernel_recorder(h[0].t, h[0].r);
	for (int i = 0; bad[i]; i++) {
		new.name = bad[i];
		assert_int_equal(create(&h[0], &new, 1), -EINVAL);
	}
	new.name = NULL;
	assert_int_equal(create(&h[0], &new, 1), -EINVAL);
	memset(long_name, 'n', 256);
	long_name[256] = '\0';
	new.name = long_name;
	assert_int_equal(create(&h[0], &new, 1), -ENAMETOOLONG);
	new = new_file("x", TARNFS_SIZE_MAX + 1);
	assert_int_equal(create(&h[0], &new, 1), -EFBIG);
	new = new_file("x", 1);
	new.mode = 010644;
	assert_int_equal(create(&h[0], &new, 1), -EINVAL);
	new = new_file("x", 1);
	new.item.type = 9;
	assert_int_equal(create(&h[0], &new, 1), -EINVAL);
	new.item.type = TARNFS_TYPE_DIRECTORY;	/* with a size */
	assert_int_equal(create(&h[0], &new, 1), -EINVAL);
	new.item = (struct tarnfs_reserve_item){ .type = TARNFS_TYPE_SYMLINK };
	assert_int_equal(create(&h[0], &new, 1), -ENOENT);
	new.target = "";
	assert_int_equal(create(&h[0], &new, 1), -ENOENT);
	memset(long_target, 't', 4096);
	long_target[4096] = '\0';
	new.target = long_target;
	assert_int_equal(create(&h[0], &new, 1), -ENAMETOOLONG);
	two[0] = two[1] = new_file("x", 1);
	two[0].parent = 0;		/* in itself */
	assert_int_equal(create(&h[0], two, 2), -EINVAL);
	two[0] = two[1];
	two[1].parent = 0;		/* in a file */
	assert_int_equal(create(&h[0], two, 2), -EINVAL);
	assert_int_equal(create(&h[0], two, 0), -EINVAL);
	assert_ops(h[0].r, "");
	/* the longest that fit */
	long_name[255] = '\0';
	long_target[4095] = '\0';
	new.name = long_name;
	assert_int_equal(create(&h[0], &new, 1), 0);
	assert_int_equal(testhost_replay(&h[1], &err), 1);
}

static void too_many(void **state)
{
	struct tarn_new *news = calloc(TARNFS_BATCH_MAX + 1, sizeof(*news));

	(void)state;
	for (size_t i = 0; i <= TARNFS_BATCH_MAX; i++)
		news[i] = new_file("x", 0);
	assert_int_equal(create(&h[0], news, TARNFS_BATCH_MAX + 1), -E2BIG);
	assert_int_equal(tarn_log_room(&h[0].s, news, TARNFS_BATCH_MAX + 1, &err), -E2BIG);
	free(news);
}

static void no_space(void **state)
{
	struct tarn_new new = new_file("big", 5 * MIB);

	(void)state;
	assert_int_equal(create(&h[0], &new, 1), -ENOSPC);
	assert_string_equal(err.text,
			    "big: no space: needed in one piece 5242880 bytes, free 4194304, "
			    "largest piece 4194304 (from a 2 MiB boundary 4194304); space is not "
			    "given back yet: make the file system on a larger device");
	/* what the user typed, where the caller has it */
	new.path = "a/b/big";
	assert_int_equal(create(&h[0], &new, 1), -ENOSPC);
	assert_non_null(strstr(err.text, "a/b/big: no space: "));
	assert_nothing_written(&h[0]);
}

static void not_the_master(void **state)
{
	struct tarn_reservation r = { .set = -1 };
	struct tarn_new new = new_file("x", 0);

	(void)state;
	assert_int_equal(create(&h[1], &new, 1), -EROFS);
	/* and should its kernel take it for one */
	new.item.ino = 16;
	r.news = &new;
	r.count = 1;
	assert_int_equal(tarn_commit(&h[1].s, &r, &err), -EROFS);
	assert_nothing_written(&h[1]);
}

/* ---- a full log ---- */

static struct tarn_new *many(size_t n, const char *prefix)
{
	struct tarn_new *news = calloc(n, sizeof(*news));

	for (size_t i = 0; i < n; i++) {
		char name[24];

		snprintf(name, sizeof(name), "%s%zu", prefix, i);
		news[i] = new_file(strdup(name), 0);	/* two units each */
	}
	return news;
}

static void many_free(struct tarn_new *news, size_t n)
{
	for (size_t i = 0; i < n; i++)
		free((char *)news[i].name);
	free(news);
}

/*
 * Exactly full is fine, one over is refused with nothing written, and the reserve stays
 * untouched.
 */
static void log_exactly_full(void **state)
{
	const size_t fits = (USABLE - FIRST_UNITS) / 2;
	struct tarn_new *news = many(fits + 1, "f");
	const uint8_t *reserve;
	uint64_t left;

	(void)state;
	assert_int_equal(tarn_log_room(&h[0].s, news, fits, &err), 0);
	assert_int_equal(tarn_log_room(&h[0].s, news, fits + 1, &err), -ENOSPC);
	assert_int_equal(tarn_log_bytes(news, fits), 982656);
	assert_int_equal(tarn_log_left(&h[0].s, 982656, &left, &err), 0);
	assert_int_equal(left, 982656);
	assert_int_equal(tarn_log_left(&h[0].s, 982657, &left, &err), -ENOSPC);
	assert_int_equal(left, 982656);
	assert_int_equal(create(&h[0], news, fits + 1), -ENOSPC);
	assert_non_null(strstr(err.text, "compaction is not built yet"));
	assert_non_null(strstr(err.text, "982784 bytes of it needed, 982656 left of 983040"));
	assert_nothing_written(&h[0]);
	assert_int_equal(create(&h[0], news, fits), 0);
	assert_int_equal(h[0].s.log.units, USABLE);
	assert_int_equal(tarn_log_room(&h[0].s, news + fits, 1, &err), -ENOSPC);
	recorder_take(h[0].r);
	assert_int_equal(create(&h[0], news + fits, 1), -ENOSPC);
	assert_nothing_written(&h[0]);
	reserve = memory_bytes(mem) + sb.area[0].off + USABLE * TARNFS_LINE;
	for (uint64_t i = 0; i < TARNFS_LOG_RESERVE_MIN; i++)
		assert_int_equal(reserve[i], 0xa5);
	assert_int_equal(testhost_replay(&h[1], &err), (int64_t)fits);
	assert_no_fault(h[1].r);
	many_free(news, fits + 1);
}

/* ---- another host in between ---- */

static void put_control(uint16_t page, uint8_t control_state, uint64_t generation)
{
	struct tarn_control c = { .generation = generation,
				  .state = control_state,
				  .area_off = sb.area[1].off,
				  .area_len = sb.area[1].len };
	struct tarnfs_control raw;

	if (control_state == TARNFS_CONTROL_NONE)
		c.area_off = c.area_len = 0;
	tarn_control_encode(&raw, &c, page, sb.uuid);
	memcpy(memory_bytes(mem) + tarn_line_off(&sb, page, TARNFS_LINE_CONTROL), &raw, 64);
	memcpy(memory_bytes(mem) + tarn_mirror_line_off(&sb, page, TARNFS_LINE_CONTROL), &raw, 64);
}

static void put_nonce(uint16_t page, uint64_t nonce)
{
	struct tarn_identity id = {
		.nonce = nonce, .state = TARNFS_PAGE_CLAIMED, .host_uuid = { 1 }, .claims = 9
	};
	struct tarnfs_identity raw;

	tarn_identity_encode(&raw, &id, page, sb.uuid);
	memcpy(memory_bytes(mem) + tarn_line_off(&sb, page, 0), &raw, 64);
	memcpy(memory_bytes(mem) + tarn_mirror_line_off(&sb, page, 0), &raw, 64);
}

static void sealed_before(void **state)
{
	(void)state;
	put_control(1, TARNFS_CONTROL_SEALING, 2);
	assert_int_equal(testhost_create(&h[0], "a", 0, &err), -EBUSY);
	assert_non_null(strstr(err.text, "takeover"));
	assert_nothing_written(&h[0]);
	/* withdrawn: goes on */
	put_control(1, TARNFS_CONTROL_NONE, 0);
	assert_int_equal(testhost_create(&h[0], "a", 0, &err), 0);
}

/*
 * A nonce that is not ours: this host was fenced, or has a twin. The mount ends before
 * anything is stored.
 */
static void fenced_before(void **state)
{
	(void)state;
	put_nonce(0, 12345);
	assert_int_equal(testhost_create(&h[0], "a", 0, &err), -ESTALE);
	assert_true(testkernel_is_shut(h[0].t));
	assert_nothing_written(&h[0]);
}

static void evicted_before(void **state)
{
	(void)state;
	put_control(1, TARNFS_CONTROL_ACTIVE, 2);
	assert_int_equal(testhost_create(&h[0], "a", 0, &err), -ESTALE);
	assert_non_null(strstr(err.text, "took over"));
	assert_true(testkernel_is_shut(h[0].t));
	assert_nothing_written(&h[0]);
}

/* What happens at the n-th operation of a kind. */
struct at {
	const char *op;
	int left;
	void (*fn)(void);
};

static void at_hook(void *arg, const char *op)
{
	struct at *at = arg;

	if (at->fn && !strcmp(op, at->op) && !at->left--)
		at->fn();
}

static void seal(void)
{
	put_control(1, TARNFS_CONTROL_SEALING, 2);
}

static void fence_off(void)
{
	put_nonce(0, 12345);
}

static void take_over(void)
{
	put_control(1, TARNFS_CONTROL_ACTIVE, 2);
}

/* Between replay and the scan before writing. */
static void changes_between_replay_and_check(void **state)
{
	static void (*const what[])(void) = { seal, fence_off, take_over };
	static const int expect[] = { -EBUSY, -ESTALE, -ESTALE };

	(void)state;
	for (size_t i = 0; i < TARN_ARRAY_SIZE(what); i++) {
		/* super, identity, two controls, commit, header: then the scan that counts */
		struct at at = { "invalidate", 6, what[i] };

		recorder_hook(h[0].r, at_hook, &at);
		assert_int_equal(testhost_create(&h[0], "a", 0, &err), expect[i]);
		assert_true(at.left < 0);
		assert_nothing_written(&h[0]);
		assert_int_equal(testkernel_lookup(h[0].t, "/a"), 0);
		teardown(NULL);
		setup(NULL);
	}
}

/* After the commit word the outcome is unknown when a takeover began; nothing is shown here. */
static void sealed_during_commit(void **state)
{
	struct at at = { "write64", 0, seal };

	(void)state;
	recorder_hook(h[0].r, at_hook, &at);
	assert_int_equal(testhost_create(&h[0], "a", 5000, &err), -EINPROGRESS);
	assert_non_null(strstr(err.text, "after the next replay"));
	assert_int_equal(testkernel_lookup(h[0].t, "/a"), 0);
	assert_no_fault(h[0].r);
	/* a seal that is withdrawn: the next replay shows it */
	recorder_hook(h[0].r, NULL, NULL);
	put_control(1, TARNFS_CONTROL_NONE, 0);
	assert_int_equal(testhost_replay(&h[0], &err), 1);
	assert_int_not_equal(testkernel_lookup(h[0].t, "/a"), 0);
}

/*
 * It lost its place while it wrote: the mount ends before a reservation is flushed over
 * another's files.
 */
static void taken_over_during_commit(void **state)
{
	struct at at = { "write64", 0, take_over };

	(void)state;
	recorder_hook(h[0].r, at_hook, &at);
	assert_int_equal(testhost_create(&h[0], "a", 5000, &err), -ESTALE);
	assert_non_null(strstr(err.text, "known after the next mount"));
	assert_true(testkernel_is_shut(h[0].t));
	assert_int_equal(testkernel_lookup(h[0].t, "/a"), 0);
	assert_no_fault(h[0].r);
}

static void fenced_during_commit(void **state)
{
	struct at at = { "write64", 0, fence_off };

	(void)state;
	recorder_hook(h[0].r, at_hook, &at);
	assert_int_equal(testhost_create(&h[0], "a", 0, &err), -ESTALE);
	assert_true(testkernel_is_shut(h[0].t));
	assert_no_fault(h[0].r);
}

/* ---- another process of this host in between ---- */

static struct tarn_session watch;

static void replay_elsewhere(void *arg, uint32_t flags)
{
	struct tarn_err other;

	(void)arg;
	if (flags & (TARNFS_APPLY_CHECK | TARNFS_APPLY_AT_END))
		return;
	testkernel_hook(h[0].t, NULL, NULL);
	assert_int_equal(tarn_replay(&watch, false, &other), 1);
}

/* `watch` replays the batch before the command applies it: ESTALE, and that is success. */
static void watch_was_first(void **state)
{
	(void)state;
	watch = h[0].s;
	testkernel_hook(h[0].t, replay_elsewhere, NULL);
	assert_int_equal(testhost_create(&h[0], "a", 0, &err), 0);
	assert_int_not_equal(testkernel_lookup(h[0].t, "/a"), 0);
	/* this session knows where the log ends */
	assert_int_equal(testhost_create(&h[0], "b", 0, &err), 0);
	assert_int_equal(testhost_replay(&h[1], &err), 2);
	assert_no_fault(h[0].r);
}

/*
 * The kernel fails after the commit: the sentence says what is true, and the next replay
 * shows it.
 */
static void apply_fails(void **state)
{
	(void)state;
	testkernel_fail_apply(h[0].t, ENOMEM);
	assert_int_equal(testhost_create(&h[0], "a", 5000, &err), -ENOMEM);
	assert_non_null(strstr(err.text, "committed"));
	assert_int_equal(testkernel_lookup(h[0].t, "/a"), 0);
	assert_int_equal(testhost_replay(&h[0], &err), 1);
	assert_int_not_equal(testkernel_lookup(h[0].t, "/a"), 0);
	assert_int_equal(testhost_create(&h[0], "b", 0, &err), 0);
	/* AT_END that does not count is no failure of the entries */
	assert_int_equal(testhost_replay(&h[1], &err), 2);
}

/* ---- bad memory ---- */

static void poisoned_log(void **state)
{
	(void)state;
	recorder_poison(h[0].r, sb.area[0].off + 384 + 70);
	assert_int_equal(testhost_create(&h[0], "a", 0, &err), -EIO);
	assert_non_null(strstr(err.text, "nothing was committed"));
	assert_non_null(strstr(err.text, "0x2001c6"));
	assert_int_equal(testhost_replay(&h[1], &err), 0);
}

static struct recorder *poisoned;

static void poison_commit(void)
{
	recorder_poison(poisoned, tarn_line_off(&sb, 0, TARNFS_LINE_COMMIT));
}

static void poisoned_commit_word(void **state)
{
	struct at at = { "write64", 0, poison_commit };

	(void)state;
	poisoned = h[0].r;
	recorder_hook(h[0].r, at_hook, &at);
	assert_int_equal(testhost_create(&h[0], "a", 0, &err), -EINPROGRESS);
}

/* ---- killed ---- */

/*
 * Runs `tarnfs creat a` in a process that is killed at that point; its kernel and its
 * caches stay.
 */
static void create_and_die(const char *point, const char *name)
{
	int fds[2], status;
	pid_t pid;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		close(fds[0]);
		h[0].s.kernel = testkernel_proxy(fds[1]);
		if (point)
			setenv("TARNFS_STOP_AT", point, 1);
		_exit(testhost_create(&h[0], name, 5000, &err) ? 1 : 0);
	}
	close(fds[1]);
	testkernel_serve(h[0].t, fds[0]);
	close(fds[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (point)
		assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	else
		assert_true(WIFEXITED(status) && !WEXITSTATUS(status));
	testhost_next_command(&h[0]);
}

/*
 * At each point: no host ever sees a part of it, both see the same in the end,
 * the next command goes on, and no byte of space is lost.
 */
static void killed_at_each_point(void **state)
{
	static const struct {
		const char *name;
		bool committed;
	} points[] = {
		{ "after-reserve", false }, { "after-records", false }, { "after-commit", true },
		{ "before-apply", true }, { "before-at-end", true }, { NULL, true },
	};

	(void)state;
	for (size_t i = 0; i < TARN_ARRAY_SIZE(points); i++) {
		uint64_t expect = points[i].committed ? 2 : 1;
		char *mine, *theirs;

		create_and_die(points[i].name, "a");
		if (points[i].committed)
			assert_true(testhost_replay(&h[1], &err) == 1 && testkernel_lookup(h[1].t, "/a"));
		else
			assert_true(testhost_replay(&h[1], &err) == 0 && !testkernel_lookup(h[1].t, "/a"));
		/* the range is not free yet: nobody knows here that it is committed */
		assert_int_equal(testhost_create(&h[0], "b", 5000, &err), 0);
		assert_int_equal(testhost_replay(&h[1], &err), 1);
		mine = testkernel_dump(h[0].t);
		theirs = testkernel_dump(h[1].t);
		assert_string_equal(mine, theirs);
		free(mine);
		free(theirs);
		assert_int_equal(testkernel_lookup(h[0].t, "/a") != 0, points[i].committed);
		assert_int_equal(h[0].s.st.files, expect);
		assert_int_equal(h[0].s.st.free_bytes, 4 * MIB - expect * 8192);
		testkernel_verify(h[0].t);
		assert_no_fault(h[1].r);
		teardown(NULL);
		setup(NULL);
	}
}

/* A record of a later version that allows reading alone. */
static void readonly_record(void **state)
{
	uint8_t buf[128] = { 0 };
	struct tarn_rec rec = { .type = TARNFS_REC_DIRECTORY,
				.seq = 1,
				.ino = 16,
				.parent = 1,
				.name = "x",
				.name_len = 1 };
	struct tarnfs_record *head = (struct tarnfs_record *)buf;
	uint64_t word, generation = htole64(1);
	uint16_t host = 0;
	uint32_t crc;

	(void)state;
	assert_int_equal(tarn_rec_encode(buf, sizeof(buf), &rec, &h[0].s.log.seed), 0);
	head->type = htole16(300);
	head->class = TARNFS_CLASS_READONLY;
	head->crc = 0;
	crc = tarn_crc32c(0, sb.uuid, 16);
	crc = tarn_crc32c(crc, &generation, 8);
	crc = tarn_crc32c(crc, &host, 2);
	head->crc = htole32(tarn_crc32c(crc, buf, 128));
	memcpy(memory_bytes(mem) + sb.area[0].off + 384, buf, 128);
	word = tarn_commit_word(&h[0].s.log.seed, 0, FIRST_UNITS + 2);
	memcpy(memory_bytes(mem) + tarn_line_off(&sb, 0, TARNFS_LINE_COMMIT), &word, 8);
	for (int command = 0; command < 2; command++) {
		assert_int_equal(testhost_create(&h[0], "a", 0, &err), -EROFS);
		assert_non_null(strstr(err.text, "newer tarnfs"));
		testhost_next_command(&h[0]);
	}
	assert_nothing_written(&h[0]);
	/* but it takes its seq */
	assert_int_equal(testhost_replay(&h[1], &err), 1);
	assert_int_equal(h[1].s.st.seq, 1);
}

static void open_reserved(void **state)
{
	struct tarn_new news[2] = { new_file("a", 10), new_file("empty", 0) };
	struct tarn_reservation r = { .set = -1 };
	int fd;

	(void)state;
	assert_int_equal(tarn_reserve_open_file(&h[0].s, &r, 0, &err), -EINVAL);
	assert_int_equal(tarn_reserve_files(&h[0].s, &r, news, 2, &err), 0);
	fd = tarn_reserve_open_file(&h[0].s, &r, 0, &err);
	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(tarn_reserve_open_file(&h[0].s, &r, 1, &err), -EINVAL);
	assert_int_equal(tarn_reserve_open_file(&h[0].s, &r, 2, &err), -EINVAL);
	news[0].item.ino++;
	assert_int_equal(tarn_reserve_open_file(&h[0].s, &r, 0, &err), -ENOENT);
	tarn_reservation_drop(&h[0].s, &r);
	tarn_reservation_drop(&h[0].s, &r);	/* twice does no harm */
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(append_order),
		TEST(batch_order),
		TEST(refused_by_check),
		TEST(refused_before_reserve),
		TEST(too_many),
		TEST(no_space),
		TEST(not_the_master),
		TEST(log_exactly_full),
		TEST(sealed_before),
		TEST(fenced_before),
		TEST(evicted_before),
		TEST(changes_between_replay_and_check),
		TEST(sealed_during_commit),
		TEST(taken_over_during_commit),
		TEST(fenced_during_commit),
		TEST(watch_was_first),
		TEST(apply_fails),
		TEST(poisoned_log),
		TEST(poisoned_commit_word),
		TEST(killed_at_each_point),
		TEST(readonly_record),
		TEST(open_reserved),
	};

	return cmocka_run_group_tests_name("append", tests, NULL, NULL);
}
