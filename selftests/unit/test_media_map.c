// SPDX-License-Identifier: GPL-2.0-only
/*
 * The real back end: bounds, the ranges that may be written, what reaches the
 * cache operations, and memory that fails under it.
 */
#include "internal.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096
#define PAGES 4

static int fd;
static struct tarn_media *m;
static const struct tarn_media_range writable[] = { { PAGE, PAGE }, { 3 * PAGE, PAGE } };

/* Within the test, since cmocka sets its own signal handlers just before it. */
static void begin(void)
{
	fd = memfd_create("tarn-media", MFD_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, PAGES * PAGE), 0);
	assert_int_equal(tarn_media_map(&m, fd, PAGES * PAGE, writable, 2), 0);
}

static int teardown(void **state)
{
	(void)state;
	tarn_cacheops_override(NULL);
	tarn_media_close(m);
	close(fd);
	return 0;
}

static void reads_and_writes(void **state)
{
	uint64_t word = 0;
	char buf[8] = "";

	(void)state;
	begin();
	assert_int_equal(tarn_media_write(m, PAGE + 5, "hello", 6), 0);
	assert_int_equal(tarn_media_read(m, PAGE + 5, buf, 6), 0);
	assert_string_equal(buf, "hello");
	assert_int_equal(pread(fd, buf, 6, PAGE + 5), 6);
	assert_string_equal(buf, "hello");
	assert_int_equal(tarn_media_write64(m, 2 * PAGE - 8, 0x1122334455667788), 0);
	assert_int_equal(tarn_media_read64(m, 2 * PAGE - 8, &word), 0);
	assert_int_equal(word, 0x1122334455667788);
	assert_int_equal(tarn_media_fetch(m, PAGE + 5, buf, 6), 0);
	assert_string_equal(buf, "hello");
	assert_int_equal(tarn_media_store(m, 3 * PAGE, "x", 1), 0);
}

static void bounds(void **state)
{
	const uint64_t end = PAGES * PAGE;
	uint64_t word;
	char buf[16];

	(void)state;
	begin();
	assert_int_equal(tarn_media_read(m, end - 8, buf, 8), 0);
	assert_int_equal(tarn_media_read(m, end - 8, buf, 9), -EINVAL);
	assert_int_equal(tarn_media_read(m, end + 1, buf, 0), -EINVAL);
	assert_int_equal(tarn_media_read(m, UINT64_MAX, buf, 8), -EINVAL);
	assert_int_equal(tarn_media_write(m, end - 8, buf, 9), -EINVAL);
	assert_int_equal(tarn_media_write(m, UINT64_MAX - 3, buf, 8), -EINVAL);
	assert_int_equal(tarn_media_writeback(m, end - 8, 9), -EINVAL);
	assert_int_equal(tarn_media_invalidate(m, UINT64_MAX - 7, 16), -EINVAL);
	assert_int_equal(tarn_media_fetch(m, end, buf, 1), -EINVAL);
	assert_int_equal(tarn_media_read64(m, 4, &word), -EINVAL);
	assert_int_equal(tarn_media_write64(m, PAGE + 4, 0), -EINVAL);
	assert_int_equal(tarn_media_read64(m, end, &word), -EINVAL);
}

/* Stores outside the ranges are refused before they fault, and would fault. */
static void only_writable_ranges(void **state)
{
	char line[512];
	FILE *maps;
	int ro = 0, rw = 0;

	(void)state;
	begin();
	assert_int_equal(tarn_media_write(m, PAGE - 1, "ab", 2), -EACCES);
	assert_int_equal(tarn_media_write(m, 2 * PAGE - 1, "ab", 2), -EACCES);
	assert_int_equal(tarn_media_write(m, 2 * PAGE, "a", 1), -EACCES);
	assert_int_equal(tarn_media_write64(m, 0, 1), -EACCES);
	assert_int_equal(tarn_media_write(m, 2 * PAGE - 1, "a", 1), 0);
	assert_int_equal(tarn_media_write(m, PAGES * PAGE - 1, "a", 1), 0);
	/* what may be written is mapped so, and nothing else is */
	maps = fopen("/proc/self/maps", "re");
	assert_non_null(maps);
	while (fgets(line, sizeof(line), maps)) {
		uintptr_t from, to;
		char perms[5];

		if (!strstr(line, "tarn-media") ||
		    sscanf(line, "%lx-%lx %4s", &from, &to, perms) != 3)
			continue;
		assert_int_equal(to - from, PAGE);
		rw += !strcmp(perms, "rw-s");
		ro += !strcmp(perms, "r--s");
	}
	fclose(maps);
	assert_int_equal(rw, 2);
	assert_int_equal(ro, 2);
}

static void bad_arguments(void **state)
{
	static const struct tarn_media_range bad[] = {
		{ 64, PAGE },
		{ 0, 100 },
		{ PAGES * PAGE, PAGE },
		{ UINT64_MAX << 12, PAGE },
		{ 0, UINT64_MAX << 12 },
	};
	struct tarn_media *other;
	int ro;

	(void)state;
	begin();
	for (size_t i = 0; i < TARN_ARRAY_SIZE(bad); i++)
		assert_int_equal(tarn_media_map(&other, fd, PAGES * PAGE, &bad[i], 1), -EINVAL);
	assert_int_equal(tarn_media_map(&other, fd, 0, NULL, 0), -EINVAL);
	assert_int_equal(tarn_media_map(&other, -1, PAGE, NULL, 0), -EBADF);
	ro = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	assert_int_equal(tarn_media_map(&other, ro, PAGE, &(struct tarn_media_range){ 0, PAGE }, 1),
			 -EACCES);
	assert_int_equal(tarn_media_map(&other, ro, PAGE, NULL, 0), 0);
	tarn_media_close(other);
	close(ro);
	tarn_media_close(NULL);
}

/* ---- what reaches the cache operations ---- */

static char calls[256];
static uintptr_t base;

static void add_call(const char *name, const void *addr, size_t len)
{
	size_t used = strlen(calls);

	if (!base)
		base = (uintptr_t)addr;
	if (addr)
		snprintf(calls + used, sizeof(calls) - used, "%s %lx+%zx;", name,
			 (uintptr_t)addr - base, len);
	else
		snprintf(calls + used, sizeof(calls) - used, "%s;", name);
}

static void fake_writeback(const void *addr, size_t len)
{
	add_call("writeback", addr, len);
}

static void fake_invalidate(const void *addr, size_t len)
{
	add_call("invalidate", addr, len);
}

static void fake_fence(void)
{
	add_call("fence", NULL, 0);
}

static void reaches_the_cache(void **state)
{
	static const struct tarn_cacheops fake = { "a", "b", fake_writeback, fake_invalidate,
						   fake_fence };
	struct tarn_media *mine;
	char buf[64];

	(void)state;
	begin();
	tarn_cacheops_override(&fake);
	assert_ptr_equal(tarn_cacheops(), &fake);
	assert_int_equal(tarn_media_map(&mine, fd, PAGES * PAGE, writable, 2), 0);
	base = 0;
#define CALLS(call, expect) do {				\
		calls[0] = '\0';				\
		assert_int_equal(call, 0);			\
		assert_string_equal(calls, expect);		\
	} while (0)
	CALLS(tarn_media_writeback(mine, 0, 100), "writeback 0+64;");	/* 0x64 bytes from 0 */
	/* an invalidate ends with the fence that orders loads after it */
	CALLS(tarn_media_invalidate(mine, 0x40, 8), "invalidate 40+8;fence;");
	CALLS(tarn_media_fence(mine), "fence;");
	CALLS(tarn_media_fetch(mine, 0x1003, buf, 5), "invalidate 1003+5;fence;");
	CALLS(tarn_media_store(mine, PAGE, buf, 5), "writeback 1000+5;fence;");
	CALLS(tarn_media_read(mine, 0, buf, 5), "");
	CALLS(tarn_media_write(mine, PAGE, buf, 5), "");
	CALLS(tarn_media_write64(mine, PAGE, 5), "");
#undef CALLS
	tarn_media_close(mine);
}

/* ---- memory that fails ---- */

static void failing_memory(void **state)
{
	uint64_t word;
	char buf[2 * PAGE];

	(void)state;
	begin();
	assert_int_equal(ftruncate(fd, PAGE), 0);	/* what is behind answers with SIGBUS */
	assert_int_equal(tarn_media_read(m, 0, buf, PAGE), 0);
	for (int i = 0; i < 3; i++) {
		m->bad = 0;
		assert_int_equal(tarn_media_read(m, 2 * PAGE + 77, buf, 1), -EIO);
		assert_int_equal(m->bad, 2 * PAGE + 77);
		m->bad = 0;
		assert_int_equal(tarn_media_read(m, 100, buf, 2 * PAGE), -EIO);
		assert_true(m->bad >= PAGE && m->bad < 100 + 2 * PAGE);
	}
	assert_int_equal(tarn_media_read64(m, PAGE, &word), -EIO);
	assert_int_equal(m->bad, PAGE);
	assert_int_equal(tarn_media_write64(m, PAGE + 8, 1), -EIO);
	assert_int_equal(m->bad, PAGE + 8);
	assert_int_equal(tarn_media_write(m, PAGE + 16, "x", 1), -EIO);
	assert_int_equal(m->bad, PAGE + 16);
	/* an emulated CPU (tools/arm64) leaves cache instructions out, so they cannot fail */
	if (!getenv("TARN_TEST_EMULATED")) {
		assert_int_equal(tarn_media_writeback(m, PAGE, 64), -EIO);
		assert_int_equal(tarn_media_invalidate(m, 3 * PAGE, 64), -EIO);
	}
	assert_int_equal(tarn_media_fetch(m, PAGE, buf, 64), -EIO);
	/* it has come back */
	assert_int_equal(ftruncate(fd, PAGES * PAGE), 0);
	assert_int_equal(tarn_media_read(m, 2 * PAGE, buf, PAGE), 0);
}

static void *fail_in_thread(void *arg)
{
	char buf[8];

	(void)arg;
	for (int i = 0; i < 1000; i++)
		if (tarn_media_read(m, PAGE, buf, 8) != -EIO)
			return "not -EIO";
	return NULL;
}

/* Each thread has its own guard. */
static void failing_in_threads(void **state)
{
	pthread_t threads[4];
	char buf[8];

	(void)state;
	begin();
	assert_int_equal(ftruncate(fd, PAGE), 0);
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, fail_in_thread, NULL), 0);
	for (int i = 0; i < 1000; i++)
		assert_int_equal(tarn_media_read(m, 0, buf, 8), 0);
	for (int i = 0; i < 4; i++) {
		void *why;

		pthread_join(threads[i], &why);
		assert_null(why);
	}
}

static sigjmp_buf elsewhere;
static volatile sig_atomic_t chained;

static void before_ours(int sig)
{
	(void)sig;
	chained++;
	siglongjmp(elsewhere, 1);
}

/* A SIGBUS that is not ours goes to the handler that was there before. */
static void others_sigbus(void **state)
{
	volatile char *foreign;
	struct tarn_media *mine;
	int file = memfd_create("foreign", MFD_CLOEXEC);
	char buf[8];

	(void)state;
	begin();
	assert_int_equal(ftruncate(file, PAGE), 0);
	foreign = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, file, 0);
	assert_true(foreign != MAP_FAILED);
	assert_int_equal(ftruncate(file, 0), 0);
	signal(SIGBUS, before_ours);
	/* a mapping puts ours in front again */
	assert_int_equal(tarn_media_map(&mine, fd, PAGES * PAGE, NULL, 0), 0);
	if (!sigsetjmp(elsewhere, 1))
		(void)foreign[0];
	assert_int_equal(chained, 1);
	assert_int_equal(ftruncate(fd, PAGE), 0);
	assert_int_equal(tarn_media_read(mine, PAGE, buf, 8), -EIO);
	assert_int_equal(chained, 1);
	tarn_media_close(mine);
	munmap((void *)foreign, PAGE);
	close(file);
}

static int die_of_sigbus(bool ignore, bool sent)
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		struct tarn_media *mine;
		volatile char *foreign;
		int file = memfd_create("foreign", MFD_CLOEXEC);

		signal(SIGBUS, ignore ? SIG_IGN : SIG_DFL);
		if (ftruncate(file, PAGE))
			_exit(9);
		foreign = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, file, 0);
		if (ftruncate(file, 0) || tarn_media_map(&mine, fd, PAGE, NULL, 0))
			_exit(9);
		if (sent)
			raise(SIGBUS);
		else
			(void)foreign[0];
		_exit(0);
	}
	waitpid(pid, &status, 0);
	return WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
}

static void default_sigbus(void **state)
{
	(void)state;
	begin();
	assert_int_equal(die_of_sigbus(false, false), SIGBUS);
	assert_int_equal(die_of_sigbus(true, false), SIGBUS);	/* a fault cannot be ignored */
	assert_int_equal(die_of_sigbus(false, true), SIGBUS);
	assert_int_equal(die_of_sigbus(true, true), 0);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, NULL, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(reads_and_writes),
		TEST(bounds),
		TEST(only_writable_ranges),
		TEST(bad_arguments),
		TEST(reaches_the_cache),
		TEST(failing_memory),
		TEST(failing_in_threads),
		TEST(default_sigbus),
		TEST(others_sigbus),
	};

	return cmocka_run_group_tests_name("media_map", tests, NULL, NULL);
}
