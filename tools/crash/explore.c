// SPDX-License-Identifier: GPL-2.0-only
/*
 * explore.c - every answer to every question of the world, for every short
 * sequence of operations. (The header is written last.)
 */
#include "world.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <time.h>

#include "planted.h"

#define DEPTH 65536

struct choice {
	uint16_t n, value;
};

static struct choice choice[DEPTH];
static unsigned int depth, given, at;	/* made; of them from before; where this run is */
static bool exploring;
bool world_random;
static uint64_t walk_state;

static uint64_t runs, states;

void world_trace(const char *fmt, ...)
{
	va_list ap;

	if (!world_tracing)
		return;
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
}

static uint64_t walk_random(void)
{
	walk_state ^= walk_state << 13;
	walk_state ^= walk_state >> 7;
	walk_state ^= walk_state << 17;
	return walk_state;
}

unsigned int world_ask(unsigned int n, bool rare)
{
	if (!exploring)
		return 0;
	if (at == DEPTH) {
		fprintf(stderr, "explore: too many questions in one run\n");
		exit(2);
	}
	if (at < depth) {
		if (choice[at].n && choice[at].n != n) {
			fprintf(stderr, "explore: question %u had %u answers, now %u: the same "
				"answers did not make the same world\n", at, choice[at].n, n);
			exit(2);
		}
		choice[at].n = (uint16_t)n;
		if (choice[at].value >= n) {
			fprintf(stderr, "explore: that seed is not of this program\n");
			exit(2);
		}
		return choice[at++].value;
	}
	choice[at].n = (uint16_t)n;
	choice[at].value = 0;
	if (world_random && (!rare || walk_random() % 40 == 0))
		choice[at].value = (uint16_t)(walk_random() % n);
	depth = at + 1;
	return choice[at++].value;
}

/* ---- states that were seen ---- */

static uint64_t *seen;
static size_t seen_room, seen_count;

static bool seen_add(uint64_t h)
{
	size_t i;

	h |= !h;
	for (i = h % seen_room; seen[i]; i = (i + 1) % seen_room)
		if (seen[i] == h)
			return true;
	seen[i] = h;
	seen_count++;
	return false;
}

static void seen_reset(void)
{
	free(seen);
	seen_room = 1 << 16;
	seen_count = 0;
	seen = calloc(seen_room, sizeof(*seen));
}

static void seen_grow(void)
{
	uint64_t *old = seen;
	size_t room = seen_room;

	seen_room *= 4;
	seen_count = 0;
	seen = calloc(seen_room, sizeof(*seen));
	if (!seen) {
		fprintf(stderr, "explore: no memory for the states seen\n");
		exit(2);
	}
	for (size_t i = 0; i < room; i++)
		if (old[i])
			seen_add(old[i]);
	free(old);
}

bool world_seen(uint64_t hash)
{
	/* another answer after this very state: it is under way */
	if (at < given || world_random || world_tracing)
		return false;
	if (seen_add(hash))
		return true;
	states++;
	return false;
}

/* ---- seeds ---- */

static const char *const start_names[WORLD_STARTS] = { "raw", "made" };

struct seed {
	enum world_start start;
	char ops[32];
	bool descending;
};

static void seed_print(const struct seed *s)
{
	bool first = true;

	printf("%s:%s:%s:", start_names[s->start], s->ops, s->descending ? "down" : "up");
	for (unsigned int i = 0; i < depth; i++) {
		if (!choice[i].value)
			continue;
		printf("%s%u=%u", first ? "" : ",", i, choice[i].value);
		first = false;
	}
	putchar('\n');
}

static int seed_parse(struct seed *s, const char *text)
{
	char start[8], down[8];
	int used = 0;

	depth = 0;
	memset(choice, 0, sizeof(choice));
	if (sscanf(text, "%7[a-z]:%31[A-Za-z]:%7[a-z]:%n", start, s->ops, down, &used) != 3 || !used)
		return -EINVAL;
	for (s->start = 0; s->start < WORLD_STARTS; s->start++)
		if (!strcmp(start, start_names[s->start]))
			break;
	if (s->start == WORLD_STARTS || strspn(s->ops, WORLD_OPS) != strlen(s->ops) ||
	    (strcmp(down, "up") && strcmp(down, "down")))
		return -EINVAL;
	s->descending = !strcmp(down, "down");
	for (text += used; *text; text += *text == ',') {
		unsigned int i, v;

		if (sscanf(text, "%u=%u%n", &i, &v, &used) != 2 || i >= DEPTH || v > UINT16_MAX)
			return -EINVAL;
		choice[i].value = (uint16_t)v;
		depth = depth > i + 1 ? depth : i + 1;
		text += used;
		if (*text && *text != ',')
			return -EINVAL;
	}
	return 0;
}

/* ---- search ---- */

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static enum world_end run(const struct seed *s)
{
	enum world_end end;

	if (seen_count > seen_room / 2)
		seen_grow();
	at = 0;
	exploring = true;
	world_descending(s->descending);
	end = world_run(s->start, s->ops);
	exploring = false;
	runs++;
	return end;
}

/* The next one of all answers: false when there is none. */
static bool next_answers(void)
{
	depth = at;
	while (depth && choice[depth - 1].value + 1 == choice[depth - 1].n)
		depth--;
	if (!depth)
		return false;
	choice[depth - 1].value++;
	given = depth;
	return true;
}

static void report(const struct seed *s)
{
	printf("counterexample: %s\n", world_fault());
	printf("  operations:");
	for (const char *op = s->ops; *op; op++)
		printf("%s %s", op == s->ops ? "" : ",", world_op_text(*op));
	printf("\n  seed: ");
	seed_print(s);
	fflush(stdout);
}

/* All answers for one sequence: false at a counterexample. */
static bool search_one(const struct seed *s)
{
	depth = given = 0;
	do {
		if (run(s) == WORLD_WRONG)
			return false;
	} while (next_answers());
	return true;
}

static bool worth(const char *ops, enum world_start start)
{
	/* nothing but mkfs can begin on a raw device; kill and crash of nothing */
	if (start == WORLD_RAW ? ops[0] != 'K' : ops[0] == 'x')
		return false;
	return true;
}

static bool verbose;

/* All sequences of that many operations. */
static bool search_length(unsigned int length, struct seed *s, uint64_t *sequences)
{
	static const char letters[] = WORLD_OPS;
	unsigned int index[8] = { 0 };

	for (;;) {
		for (unsigned int i = 0; i < length; i++)
			s->ops[i] = letters[index[i]];
		s->ops[length] = '\0';
		for (s->start = 0; s->start < WORLD_STARTS; s->start++) {
			uint64_t before = runs;
			double began = now();

			if (!worth(s->ops, s->start))
				continue;
			(*sequences)++;
			if (!search_one(s))
				return false;
			if (verbose)
				printf("%s:%s: %" PRIu64 " runs, %.2f s\n", start_names[s->start],
				       s->ops, runs - before, now() - began);
		}
		for (unsigned int i = length; ; i--) {
			if (!i)
				return true;
			if (letters[++index[i - 1]])
				break;
			index[i - 1] = 0;
		}
	}
}

static int search(unsigned int max_ops)
{
	struct seed s = { .descending = false };
	uint64_t sequences = 0;
	double began = now();

	for (unsigned int length = 1; length <= max_ops; length++) {
		if (!search_length(length, &s, &sequences)) {
			report(&s);
			printf("explore: 1 counterexample after %" PRIu64 " runs, %" PRIu64
			       " states\n", runs, states);
			return 1;
		}
		printf("up to %u operation%s: %" PRIu64 " sequences, %" PRIu64 " runs, %" PRIu64
		       " distinct states to go on or recover from, 0 counterexamples, %.0f s\n",
		       length, length == 1 ? "" : "s", sequences, runs, states, now() - began);
		fflush(stdout);
	}
	printf("explore: 0 counterexamples\n");
	return 0;
}

int main(int argc, char **argv)
{
	enum { OPT_MAX = 256, OPT_REPLAY };
	static const struct option longs[] = {
		{ "max-ops", required_argument, NULL, OPT_MAX },
		{ "replay", required_argument, NULL, OPT_REPLAY },
		{ "verbose", no_argument, NULL, 'v' },
		{ 0 }
	};
	unsigned int max_ops = 2;
	const char *replay = NULL;
	struct seed s;
	int c;

	while ((c = getopt_long(argc, argv, "v", longs, NULL)) != -1) {
		switch (c) {
		case OPT_MAX: max_ops = (unsigned int)atoi(optarg); break;
		case OPT_REPLAY: replay = optarg; break;
		case 'v': verbose = true; break;
		default: return 2;
		}
	}
	seen_reset();
	if (world_init())
		return 2;
	if (replay) {
		enum world_end end;

		if (seed_parse(&s, replay)) {
			fprintf(stderr, "explore: not a seed\n");
			return 2;
		}
		world_tracing = true;
		end = run(&s);
		printf("replayed: %s\n", end == WORLD_WRONG ? world_fault() :
		       end == WORLD_FINE ? "nothing wrong" : "an operation was not possible");
		return end == WORLD_WRONG;
	}
	return search(max_ops);
}
