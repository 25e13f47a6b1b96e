// SPDX-License-Identifier: GPL-2.0-only
/*
 * The rules of the simulated memory (tools/crash/sim.h), each by everything
 * that can be seen: a scenario is run with all answers to all questions of the
 * simulator, and the set of what it returned is compared. So a rule that is
 * kept too well fails as does one that is broken.
 */
#include "sim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#define SIZE (1U << 20)
#define LINE TARNFS_LINE
#define SEEN_MAX 64
#define DEPTH 64

/* ---- all answers ---- */

static struct {
	unsigned int answer[DEPTH], of[DEPTH];
	unsigned int at, len;
} way;

static unsigned int choose(void *arg, const struct sim_question *q)
{
	(void)arg;
	assert_true(q->answers >= 2 && q->off % LINE == 0);
	assert_true(way.at < DEPTH);
	if (way.at == way.len) {
		way.answer[way.len] = 0;
		way.of[way.len++] = q->answers;
	}
	assert_int_equal(way.of[way.at], q->answers);
	return way.answer[way.at++];
}

static bool next_way(void)
{
	while (way.len && ++way.answer[way.len - 1] == way.of[way.len - 1])
		way.len--;
	way.at = 0;
	return way.len;
}

static struct sim *s;

/* The distinct results of a scenario, in ascending order: "0 1 11". */
static const char *seen(uint64_t (*scenario)(void))
{
	static char text[SEEN_MAX * 20];
	uint64_t found[SEEN_MAX];
	unsigned int n = 0;
	size_t len = 0;

	way.at = way.len = 0;
	do {
		uint64_t result;
		unsigned int i;

		sim_reset(s);
		result = scenario();
		/* every answer was asked for again */
		assert_int_equal(way.at, way.len);
		for (i = 0; i < n && found[i] < result; i++)
			;
		if (i < n && found[i] == result)
			continue;
		assert_true(n < SEEN_MAX);
		memmove(&found[i + 1], &found[i], (n - i) * sizeof(found[0]));
		found[i] = result;
		n++;
	} while (next_way());
	for (unsigned int i = 0; i < n; i++)
		len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%llu", i ? " " : "",
					(unsigned long long)found[i]);
	return text;
}

static int setup(void **state)
{
	(void)state;
	s = sim_new(SIZE);
	assert_non_null(s);
	sim_choose(s, choose, NULL);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	sim_free(s);
	return 0;
}

/* ---- what scenarios are made of: process n of host h is process 2h + n ---- */

#define AT 0x4000		/* a line; others follow it */

static struct tarn_media *media(unsigned int host, unsigned int n)
{
	return sim_media(s, host, 2 * host + n);
}

static void put(unsigned int host, uint64_t off, uint64_t value)
{
	assert_int_equal(tarn_media_write64(media(host, 0), off, value), 0);
}

static uint64_t get(unsigned int host, uint64_t off)
{
	uint64_t value;

	assert_int_equal(tarn_media_read64(media(host, 0), off, &value), 0);
	return value;
}

static void writeback(unsigned int host, uint64_t off)
{
	assert_int_equal(tarn_media_writeback(media(host, 0), off, LINE), 0);
}

static void fence(unsigned int host)
{
	assert_int_equal(tarn_media_fence(media(host, 0)), 0);
}

static void invalidate(unsigned int host, uint64_t off)
{
	assert_int_equal(tarn_media_invalidate(media(host, 0), off, LINE), 0);
}

static uint64_t fetch(unsigned int host, uint64_t off)
{
	invalidate(host, off);
	return get(host, off);
}

static void publish(unsigned int host, uint64_t off, uint64_t value)
{
	put(host, off, value);
	writeback(host, off);
	fence(host);
}

/* ---- one line, one store ---- */

static uint64_t own_store(void)
{
	put(0, AT, 1);
	return get(0, AT);
}

static uint64_t others_store(void)
{
	put(0, AT, 1);
	return fetch(1, AT);
}

static void test_private_caches(void **state)
{
	(void)state;
	assert_string_equal(seen(own_store), "1");
	/* it stays in the cache, or is evicted */
	assert_string_equal(seen(others_store), "0 1");
}

static uint64_t published(void)
{
	publish(0, AT, 1);
	return fetch(1, AT);
}

static uint64_t written_back(void)
{
	put(0, AT, 1);
	writeback(0, AT);
	return fetch(1, AT);
}

static uint64_t fenced(void)
{
	put(0, AT, 1);
	fence(0);
	return fetch(1, AT);
}

static uint64_t another_line_written_back(void)
{
	put(0, AT, 1);
	writeback(0, AT + LINE);
	fence(0);
	return fetch(1, AT);
}

static uint64_t fence_of_another_process(void)
{
	put(0, AT, 1);
	writeback(0, AT);
	tarn_media_fence(media(0, 1));
	return fetch(1, AT);
}

static uint64_t store_after_write_back(void)
{
	put(0, AT, 1);
	writeback(0, AT);
	put(0, AT, 2);
	fence(0);
	return fetch(1, AT);
}

static uint64_t written_back_by_another_process(void)
{
	put(0, AT, 1);
	tarn_media_writeback(media(0, 1), AT, LINE);
	tarn_media_fence(media(0, 1));
	return fetch(1, AT);
}

static void test_write_back_and_fence(void **state)
{
	(void)state;
	assert_string_equal(seen(published), "1");
	assert_string_equal(seen(written_back), "0 1");
	assert_string_equal(seen(fenced), "0 1");
	assert_string_equal(seen(another_line_written_back), "0 1");
	assert_string_equal(seen(fence_of_another_process), "0 1");
	assert_string_equal(seen(store_after_write_back), "1 2");
	/* the cache is the host's */
	assert_string_equal(seen(written_back_by_another_process), "1");
}

/* ---- what a reader has in its cache ---- */

static uint64_t stale(void)
{
	get(1, AT);
	publish(0, AT, 1);
	return get(1, AT);
}

static uint64_t stale_though_never_read(void)
{
	publish(0, AT, 1);
	return get(1, AT);
}

static uint64_t never_back(void)
{
	uint64_t first;

	publish(0, AT, 1);
	publish(0, AT, 2);
	first = get(1, AT);
	return first * 10 + get(1, AT);
}

static uint64_t filled_after_invalidate(void)
{
	publish(0, AT, 1);
	invalidate(1, AT);
	publish(0, AT, 2);
	return get(1, AT);
}

static uint64_t two_lines(void)
{
	uint64_t word[2 * LINE / 8];

	publish(0, AT, 1);
	publish(0, AT + LINE, 1);
	assert_int_equal(tarn_media_read(media(1, 0), AT, word, sizeof(word)), 0);
	return word[0] * 10 + word[LINE / 8];
}

static uint64_t second_process_of_reader(void)
{
	uint64_t value;

	publish(0, AT, 1);
	fetch(1, AT);
	tarn_media_read64(media(1, 1), AT, &value);
	return value;
}

static void test_staleness(void **state)
{
	(void)state;
	assert_string_equal(seen(stale), "0 1");
	/* a line may be filled at any moment, by nobody's wish */
	assert_string_equal(seen(stale_though_never_read), "0 1");
	/* 10, 20, 21: memory does not go back, nor does a cache */
	assert_string_equal(seen(never_back), "0 1 2 11 12 22");
	assert_string_equal(seen(filled_after_invalidate), "1 2");
	/* each line by itself */
	assert_string_equal(seen(two_lines), "0 1 10 11");
	assert_string_equal(seen(second_process_of_reader), "1");
}

/* ---- torn lines ---- */

/* A bit for each word that is new. */
static uint64_t mask_of(const uint64_t word[LINE / 8])
{
	uint64_t mask = 0;

	for (unsigned int i = 0; i < LINE / 8; i++) {
		assert_true(!word[i] || word[i] == 0x0101010101010101ULL);
		if (word[i])
			mask |= 1ULL << i;
	}
	return mask;
}

static uint64_t torn(void)
{
	uint64_t word[LINE / 8];

	memset(word, 1, sizeof(word));
	assert_int_equal(tarn_media_write(media(0, 0), AT, word, sizeof(word)), 0);
	assert_int_equal(tarn_media_fetch(media(1, 0), AT, word, sizeof(word)), 0);
	return mask_of(word);
}

static void test_torn_line(void **state)
{
	(void)state;
	assert_string_equal(seen(torn), "0 1 3 7 15 31 63 127 255");
	sim_descending(s, true);
	assert_string_equal(seen(torn), "0 128 192 224 240 248 252 254 255");
	sim_descending(s, false);
}

static uint64_t word_torn(void)
{
	put(0, AT, 0x100000001ULL);
	return fetch(1, AT);
}

static uint64_t halves(void)
{
	const uint32_t one = 1;

	tarn_media_write(media(0, 0), AT, &one, sizeof(one));
	tarn_media_write(media(0, 0), AT + 4, &one, sizeof(one));
	return fetch(1, AT);
}

static uint64_t bytes_across(void)
{
	uint64_t word[2];
	const uint16_t both = 0x0101;

	/* the last byte of one word and the first of the next */
	tarn_media_write(media(0, 0), AT + 7, &both, sizeof(both));
	tarn_media_fetch(media(1, 0), AT, word, sizeof(word));
	return (word[0] >> 56) * 10 + word[1];
}

static void test_words_are_whole(void **state)
{
	(void)state;
	assert_string_equal(seen(word_torn), "0 4294967297");
	assert_string_equal(seen(halves), "0 1 4294967297");
	assert_string_equal(seen(bytes_across), "0 10 11");
}

static uint64_t order_of_lines(void)
{
	uint64_t second;

	put(0, AT, 1);
	put(0, AT + LINE, 1);
	second = fetch(1, AT + LINE);
	return second * 10 + fetch(1, AT);
}

static uint64_t order_with_fence(void)
{
	uint64_t second;

	put(0, AT, 1);
	writeback(0, AT);
	fence(0);
	put(0, AT + LINE, 1);
	second = fetch(1, AT + LINE);
	return second * 10 + fetch(1, AT);
}

static uint64_t order_within_line(void)
{
	uint64_t word[2];

	put(0, AT, 1);
	put(0, AT + 8, 1);
	tarn_media_fetch(media(1, 0), AT, word, sizeof(word));
	return word[1] * 10 + word[0];
}

static void test_order(void **state)
{
	(void)state;
	/* 10: the later line alone */
	assert_string_equal(seen(order_of_lines), "0 1 10 11");
	assert_string_equal(seen(order_with_fence), "1 11");
	assert_string_equal(seen(order_within_line), "0 1 11");
}

/* ---- invalidate ---- */

static uint64_t invalidated_dirty(void)
{
	put(0, AT, 1);
	invalidate(0, AT);
	return fetch(1, AT);
}

static uint64_t invalidated_clean(void)
{
	publish(0, AT, 1);
	publish(1, AT, 2);
	/* host 0's clean copy is dropped, not written */
	invalidate(0, AT);
	return fetch(2, AT);
}

static uint64_t invalidate_fences(void)
{
	put(0, AT, 1);
	writeback(0, AT);
	invalidate(0, AT + LINE);
	return fetch(1, AT);
}

static void test_invalidate(void **state)
{
	(void)state;
	assert_string_equal(seen(invalidated_dirty), "1");
	assert_string_equal(seen(invalidate_fences), "1");
	/* with host 1's line filled before or after host 0 published */
	assert_string_equal(seen(invalidated_clean), "2");
}

/* ---- crash of a host ---- */

static uint64_t crash_subset(void)
{
	put(0, AT, 1);
	put(0, AT + LINE, 1);
	put(0, AT + 2 * LINE, 1);
	sim_crash(s, 0);
	return fetch(1, AT) * 100 + fetch(1, AT + LINE) * 10 + fetch(1, AT + 2 * LINE);
}

static uint64_t crash_after_fence(void)
{
	publish(0, AT, 1);
	put(0, AT + LINE, 1);
	sim_crash(s, 0);
	return fetch(1, AT) * 10 + fetch(1, AT + LINE);
}

static uint64_t crash_any_version(void)
{
	publish(0, AT, 1);
	put(0, AT, 2);
	put(0, AT, 3);
	put(0, AT, 4);
	sim_crash(s, 0);
	return fetch(1, AT);
}

static uint64_t crash_decides_once(void)
{
	uint64_t first;

	put(0, AT, 1);
	put(0, AT, 2);
	sim_crash(s, 0);
	first = fetch(1, AT);
	return first * 100 + fetch(2, AT) * 10 + fetch(0, AT);
}

static uint64_t crash_of_another(void)
{
	put(0, AT, 1);
	sim_crash(s, 1);
	return get(0, AT);
}

static uint64_t crash_loses_clean(void)
{
	get(0, AT);
	publish(1, AT, 1);
	sim_crash(s, 0);
	/* booted again: nothing of before the crash is in its cache */
	return get(0, AT);
}

static uint64_t crash_written_back(void)
{
	put(0, AT, 1);
	writeback(0, AT);
	sim_crash(s, 0);
	return fetch(0, AT);
}

static uint64_t crash_then_store(void)
{
	uint64_t word[2];

	put(0, AT, 1);
	sim_crash(s, 0);
	publish(0, AT + 8, 1);
	tarn_media_fetch(media(1, 0), AT, word, sizeof(word));
	return word[0] * 10 + word[1];
}

static uint64_t crash_seen_before(void)
{
	uint64_t before;

	put(0, AT, 1);
	before = fetch(1, AT);
	sim_crash(s, 0);
	return before * 10 + fetch(1, AT);
}

/* Filled before the crash, and memory came to hold something else. */
static uint64_t crash_stale(void)
{
	uint64_t cached;

	publish(0, AT + 8, 1);
	invalidate(1, AT);
	put(0, AT, 1);
	sim_crash(s, 0);
	cached = get(1, AT);
	return cached * 10 + fetch(2, AT);
}

/* The other writer stored after the crash: what was lost comes no more. */
static uint64_t crash_then_another_stores(void)
{
	uint64_t word[2];

	put(0, AT, 1);
	sim_crash(s, 0);
	publish(1, AT + 8, 1);
	tarn_media_fetch(media(2, 0), AT, word, sizeof(word));
	return word[0] * 10 + word[1];
}

/* It stored before: either may have reached memory last. */
static uint64_t crash_of_one_of_two_writers(void)
{
	uint64_t word[2];

	put(1, AT + 8, 1);
	put(0, AT, 1);
	sim_crash(s, 0);
	writeback(1, AT);
	fence(1);
	tarn_media_fetch(media(2, 0), AT, word, sizeof(word));
	return word[0] * 10 + word[1];
}

static uint64_t crash_torn(void)
{
	uint64_t word[LINE / 8];

	memset(word, 1, sizeof(word));
	tarn_media_write(media(0, 0), AT, word, sizeof(word));
	sim_crash(s, 0);
	tarn_media_fetch(media(0, 0), AT, word, sizeof(word));
	return mask_of(word);
}

static void test_crash(void **state)
{
	(void)state;
	assert_string_equal(seen(crash_subset), "0 1 10 11 100 101 110 111");
	assert_string_equal(seen(crash_after_fence), "10 11");
	assert_string_equal(seen(crash_any_version), "1 2 3 4");
	assert_string_equal(seen(crash_decides_once), "0 111 222");
	assert_string_equal(seen(crash_of_another), "1");
	assert_string_equal(seen(crash_loses_clean), "1");
	assert_string_equal(seen(crash_written_back), "0 1");
	assert_string_equal(seen(crash_then_store), "1 11");
	/* 10: what somebody has seen in memory is there */
	assert_string_equal(seen(crash_seen_before), "0 1 11");
	assert_string_equal(seen(crash_torn), "0 1 3 7 15 31 63 127 255");
	/* 10: what is in a cache was in memory */
	assert_string_equal(seen(crash_stale), "0 1 11");
	assert_string_equal(seen(crash_then_another_stores), "1 11");
	assert_string_equal(seen(crash_of_one_of_two_writers), "1 10 11");
}

/* ---- kill of a process ---- */

static uint64_t killed_dirty(void)
{
	uint64_t value;

	put(0, AT, 1);
	sim_process_gone(s, 0);
	tarn_media_read64(media(0, 1), AT, &value);
	return value * 10 + fetch(1, AT);
}

static uint64_t killed_then_written_back(void)
{
	put(0, AT, 1);
	sim_process_gone(s, 0);
	tarn_media_writeback(media(0, 1), AT, LINE);
	tarn_media_fence(media(0, 1));
	return fetch(1, AT);
}

static uint64_t killed_between_write_back_and_fence(void)
{
	put(0, AT, 1);
	writeback(0, AT);
	sim_process_gone(s, 0);
	/* another process of that number */
	fence(0);
	return fetch(1, AT);
}

static uint64_t killed_late_eviction(void)
{
	uint64_t before;

	put(0, AT, 1);
	sim_process_gone(s, 0);
	before = fetch(1, AT);
	return before * 10 + fetch(1, AT);
}

static void test_kill(void **state)
{
	(void)state;
	assert_string_equal(seen(killed_dirty), "10 11");
	assert_string_equal(seen(killed_then_written_back), "1");
	assert_string_equal(seen(killed_between_write_back_and_fence), "0 1");
	/* it reaches memory long after, or never */
	assert_string_equal(seen(killed_late_eviction), "0 1 11");
}

/* ---- two writers ---- */

static uint64_t two_writers(void)
{
	uint64_t word[2];

	put(0, AT, 1);
	put(1, AT + 8, 1);
	writeback(0, AT);
	fence(0);
	writeback(1, AT);
	fence(1);
	tarn_media_fetch(media(2, 0), AT, word, sizeof(word));
	return word[0] * 10 + word[1];
}

static uint64_t one_after_the_other(void)
{
	uint64_t word[2];

	put(0, AT, 1);
	invalidate(0, AT);
	invalidate(1, AT);
	put(1, AT + 8, 1);
	invalidate(1, AT);
	tarn_media_fetch(media(2, 0), AT, word, sizeof(word));
	return word[0] * 10 + word[1];
}

static uint64_t next_writer_does_not_invalidate(void)
{
	uint64_t word[2];

	publish(0, AT, 1);
	put(1, AT + 8, 1);
	invalidate(1, AT);
	tarn_media_fetch(media(2, 0), AT, word, sizeof(word));
	return word[0] * 10 + word[1];
}

static void test_two_writers(void **state)
{
	(void)state;
	assert_string_equal(seen(two_writers), "1 10 11");
	assert_string_equal(seen(one_after_the_other), "11");
	assert_string_equal(seen(next_writer_does_not_invalidate), "1 11");
}

/* ---- what the simulator says of itself ---- */

static void test_no_questions(void **state)
{
	(void)state;
	/* who does not ask has coherent hosts */
	sim_reset(s);
	sim_choose(s, NULL, NULL);
	put(0, AT, 1);
	assert_int_equal(get(1, AT), 1);
	sim_crash(s, 0);
	assert_int_equal(get(2, AT), 1);
	sim_choose(s, choose, NULL);
}

static void test_dirty_and_settled(void **state)
{
	(void)state;
	sim_reset(s);
	way.at = way.len = 0;
	for (uint64_t value = 0; value < 2; value++) {	/* zeros are kept in another way */
		uint64_t at = AT + value * 4096;

		assert_true(sim_is_settled(s, at, LINE));
		put(0, at, value);
		assert_true(sim_is_dirty(s, 0, at, LINE));
		assert_true(sim_is_dirty(s, 0, at - 4096, 8192));
		assert_false(sim_is_dirty(s, 0, at + LINE, LINE));
		assert_false(sim_is_dirty(s, 1, at, LINE));
		assert_false(sim_is_settled(s, at, LINE));
		writeback(0, at);
		assert_true(sim_is_dirty(s, 0, at, LINE));
		fence(0);
		assert_false(sim_is_dirty(s, 0, at, LINE));
		assert_true(sim_is_settled(s, at, LINE));
		put(0, at, value);
		invalidate(0, at);
		assert_false(sim_is_dirty(s, 0, at, LINE));
		assert_true(sim_is_settled(s, at, LINE));
		put(0, at, value);
		sim_evict(s, 0, at, LINE);
		assert_false(sim_is_dirty(s, 0, at, LINE));
	}
	put(0, AT + 8192, 0);
	put(0, AT, 7);
	sim_crash(s, 0);
	assert_false(sim_is_dirty(s, 0, AT + 8192, LINE));
	assert_false(sim_is_dirty(s, 0, AT, LINE));
	assert_false(sim_is_settled(s, AT, LINE));
	assert_int_equal(way.len, 0);
}

static uint64_t evicted(void)
{
	put(0, AT, 1);
	sim_evict(s, 0, AT, LINE);
	return fetch(1, AT);
}

static uint64_t zeros_then_more(void)
{
	put(0, AT, 0);
	put(0, AT, 1);
	writeback(0, AT);
	fence(0);
	put(0, AT, 0);
	return fetch(1, AT);
}

static void test_evict(void **state)
{
	(void)state;
	assert_string_equal(seen(evicted), "1");
	assert_string_equal(seen(zeros_then_more), "0 1");
}

static void test_contents(void **state)
{
	uint8_t out[4][LINE];

	(void)state;
	sim_reset(s);
	way.at = way.len = 0;
	assert_int_equal(sim_contents(s, AT, out, 4), 1);
	assert_int_equal(out[0][0], 0);
	put(0, AT, 1);
	put(0, AT, 2);
	put(0, AT, 1);
	/* each once, newest first */
	assert_int_equal(sim_contents(s, AT, out, 4), 3);
	assert_int_equal(out[0][0], 1);
	assert_int_equal(out[1][0], 2);
	assert_int_equal(out[2][0], 0);
	assert_int_equal(sim_readable(s, 0, AT, out, 4), 1);
	assert_int_equal(out[0][0], 1);
	assert_int_equal(sim_readable(s, 1, AT, out, 1), 3);
	writeback(0, AT);
	fence(0);
	assert_int_equal(sim_contents(s, AT, out, 4), 1);
	assert_int_equal(out[0][0], 1);
	/* what it was filled with before; 2 and the first 1 may have been there */
	assert_int_equal(sim_readable(s, 1, AT, out, 4), 2);
	invalidate(1, AT);
	assert_int_equal(sim_readable(s, 1, AT, out, 4), 1);
	assert_int_equal(way.len, 0);
}

static void test_fill(void **state)
{
	uint8_t bytes[2 * LINE];

	(void)state;
	sim_reset(s);
	way.at = way.len = 0;
	memset(bytes, 3, sizeof(bytes));
	sim_fill(s, AT + 8, bytes, LINE);
	assert_int_equal(get(0, AT), 0);
	assert_int_equal(get(1, AT + 8), 0x0303030303030303ULL);
	assert_int_equal(get(2, AT + LINE), 0x0303030303030303ULL);
	assert_int_equal(get(2, AT + LINE + 8), 0);
	assert_true(sim_is_settled(s, AT, 2 * LINE));
	sim_reset(s);
	assert_int_equal(get(1, AT + 8), 0);
	assert_int_equal(way.len, 0);
}

static struct sim_step last;

static void on_step(void *arg, const struct sim_step *st)
{
	++*(unsigned int *)arg;
	last = *st;
}

static void test_steps(void **state)
{
	unsigned int steps = 0;
	uint64_t word[LINE / 8];

	(void)state;
	sim_reset(s);
	way.at = way.len = 0;
	sim_step(s, on_step, &steps);
	put(1, AT, 1);
	assert_int_equal(steps, 1);
	assert_int_equal(last.op, SIM_OP_WRITE);
	assert_int_equal(last.host, 1);
	assert_int_equal(last.process, 2);
	assert_int_equal(last.off, AT);
	assert_int_equal(last.len, 8);
	fence(1);
	assert_int_equal(last.op, SIM_OP_FENCE);
	assert_false(last.settles);
	writeback(1, AT);
	assert_int_equal(last.op, SIM_OP_WRITEBACK);
	assert_false(last.settles);
	fence(1);
	assert_true(last.settles);
	fence(1);
	assert_false(last.settles);
	invalidate(1, AT);
	assert_int_equal(last.op, SIM_OP_INVALIDATE);
	assert_false(last.settles);
	put(1, AT, 2);
	invalidate(1, AT);
	assert_true(last.settles);
	get(0, AT);
	assert_int_equal(last.op, SIM_OP_READ);
	/* of 8 stores that change the line each but the last is told of */
	steps = 0;
	memset(word, 9, sizeof(word));
	tarn_media_write(media(0, 0), AT, word, sizeof(word));
	assert_int_equal(steps, 8);
	assert_int_equal(last.op, SIM_OP_STORED);
	steps = 0;
	tarn_media_write(media(0, 0), AT, word, sizeof(word));
	assert_int_equal(steps, 1);
	sim_step(s, NULL, NULL);
}

static uint64_t saved_hash;
static struct sim_copy *saved;

static uint64_t after_restore(void)
{
	uint64_t value;

	put(0, AT, 1);
	put(0, AT + 4096, 0);
	saved_hash = sim_hash(s, false);
	saved = sim_save(s);
	assert_non_null(saved);
	put(0, AT, 2);
	put(2, AT + LINE, 1);
	assert_true(sim_hash(s, false) != saved_hash);
	sim_restore(s, saved);
	assert_true(sim_hash(s, false) == saved_hash);
	assert_true(sim_is_dirty(s, 0, AT + 4096, LINE));
	assert_false(sim_is_dirty(s, 2, AT + LINE, LINE));
	value = fetch(1, AT);
	sim_restore(s, saved);
	sim_copy_free(saved);
	/* the other way is open again */
	return value * 10 + fetch(1, AT);
}

static void test_save_restore(void **state)
{
	(void)state;
	assert_string_equal(seen(after_restore), "0 1 10 11");
}

static void test_hash(void **state)
{
	uint64_t one, memory;

	(void)state;
	sim_reset(s);
	way.at = way.len = 0;
	memory = sim_hash(s, true);
	put(0, AT, 1);
	one = sim_hash(s, false);
	assert_true(sim_hash(s, true) != memory);
	/* nobody can tell them apart */
	put(0, AT, 1);
	assert_true(sim_hash(s, false) == one);
	/* on its way: the same may be seen, but another fence makes it certain */
	writeback(0, AT);
	assert_true(sim_hash(s, false) != one);
	fence(0);
	assert_true(sim_hash(s, false) != one);
	/* host 1 may still have the old line, host 2 not */
	one = sim_hash(s, false);
	memory = sim_hash(s, true);
	invalidate(2, AT);
	assert_true(sim_hash(s, false) != one);
	assert_true(sim_hash(s, true) == memory);
	/* what a crash lost may not be looked at as what is dirty still */
	sim_reset(s);
	put(0, AT, 1);
	one = sim_hash(s, false);
	sim_crash(s, 0);
	assert_true(sim_hash(s, false) != one);
	/* the same in another order */
	sim_reset(s);
	publish(0, AT, 1);
	publish(1, AT + LINE, 2);
	one = sim_hash(s, false);
	sim_reset(s);
	publish(1, AT + LINE, 2);
	publish(0, AT, 1);
	assert_true(sim_hash(s, false) == one);
	assert_int_equal(way.len, 0);
}

static void test_range(void **state)
{
	uint64_t value;

	(void)state;
	assert_int_equal(tarn_media_read64(media(0, 0), SIZE, &value), -EINVAL);
	assert_int_equal(tarn_media_write64(media(0, 0), SIZE - 8, 1), 0);
	assert_int_equal(tarn_media_write64(media(0, 0), 4, 1), -EINVAL);
	assert_int_equal(tarn_media_writeback(media(0, 0), SIZE, LINE), -EINVAL);
}

static void test_names(void **state)
{
	struct tarn_super sb = {
		.hosts = 4, .hosts_off = TARNFS_HOSTS_OFF, .host_stride = TARNFS_HOST_STRIDE,
		.mirror_off = TARNFS_MIRROR_OFF, .areas = 1, .data_start = 8U << 20,
		.area = { { TARNFS_LOG_OFF, 1U << 20 } },
	};
	char name[64];

	(void)state;
	sim_name(&sb, tarn_line_off(&sb, 2, TARNFS_LINE_CONTROL), name, sizeof(name));
	assert_string_equal(name, "page2.control");
	sim_name(&sb, tarn_mirror_line_off(&sb, 0, TARNFS_LINE_IDENTITY), name, sizeof(name));
	assert_string_equal(name, "mirror0.identity");
	sim_name(&sb, TARNFS_LOG_OFF + 256, name, sizeof(name));
	assert_string_equal(name, "area0+256");
	sim_name(&sb, (8U << 20) + 4096, name, sizeof(name));
	assert_string_equal(name, "data+0x1000");
	sim_name(NULL, 0x1234000, name, sizeof(name));
	assert_string_equal(name, "0x1234000");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_private_caches),
		cmocka_unit_test(test_write_back_and_fence),
		cmocka_unit_test(test_staleness),
		cmocka_unit_test(test_torn_line),
		cmocka_unit_test(test_words_are_whole),
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_invalidate),
		cmocka_unit_test(test_crash),
		cmocka_unit_test(test_kill),
		cmocka_unit_test(test_two_writers),
		cmocka_unit_test(test_no_questions),
		cmocka_unit_test(test_dirty_and_settled),
		cmocka_unit_test(test_evict),
		cmocka_unit_test(test_contents),
		cmocka_unit_test(test_fill),
		cmocka_unit_test(test_steps),
		cmocka_unit_test(test_save_restore),
		cmocka_unit_test(test_hash),
		cmocka_unit_test(test_range),
		cmocka_unit_test(test_names),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
