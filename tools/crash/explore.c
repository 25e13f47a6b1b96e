// SPDX-License-Identifier: GPL-2.0-only
/*
 * explore.c - every answer to every question of the simulated world, for every
 * short sequence of operations.
 *
 * A run is a function of the sequence and of the answers to the questions that
 * it asks (which process goes on, is one killed, does the power fail now, what
 * does this read return). The search makes a run, and then the next one in the
 * order of answers, until there is none: depth first, nothing is kept but the
 * answers under way and the numbers (64-bit hashes) of states seen.
 *
 * What is enumerated: all sequences of up to N operations out of WORLD_OPS, each
 * from a raw device (sequences that begin with mkfs) and from a file system with
 * one file that two hosts have mounted. An operation begins when the one before
 * it has ended, or while it is paused at any point that matters; it then runs to
 * its end, or until it waits or is interrupted itself. The power fails for all
 * hosts, one host crashes (X), or one process is killed (x), at every point that
 * matters. At the end all hosts go on, or all have crashed and start again, and
 * the oracle (world.c) looks.
 *
 * What is left out, and why nothing is missed by it (a, b, c, e, f, g), or what is (d, h, i):
 *
 * a) Contents of memory are decided when somebody reads them (sim.h): subsets of
 *    lost lines are taken over the lines that recovery reads, no others.
 * b) A crash is offered just before something becomes certain to be in memory, and
 *    at the end. Between two such points what memory may hold only grows, the crashed
 *    host's kernel and processes are gone anyway, and nothing is acknowledged: so the
 *    last moment before has all outcomes of those earlier.
 * c) A kill is offered after each store of 8 bytes that changed its line, each fence and
 *    each call of the kernel: in between nothing changed that outlives the process.
 * d) Another operation begins before each read (what it stores may then be read or
 *    not: the line was invalidated before), and after each change as in c. It is paused
 *    for a third one in the same way, but nobody switches between two that are under
 *    way before one of them waits or ends: N operations are N - 1 preemptions.
 *    Logplay is not offered before reads, since nobody decides by what it stores; in the
 *    middle of one write of mkfs nothing is, since others see each part of it later too.
 * e) Contents that no checksum fits are one: their readers learn no more of them. So
 *    are mixes of the lines of a superblock (world.c, ask_of_unit()).
 * f) A line that is overwritten as a whole is not asked what it held before: what is seen
 *    of it in the middle is a mix that no checksum fits, or lies behind the commit word.
 *    Nor are the bytes of a file that has no name yet. The newest is taken.
 * g) When a state at the end (all contents that memory and caches may have, kernels,
 *    what was promised) was seen before, the same follows as then. That nonces and names
 *    are other ones by then makes no difference to anything but their equality.
 *    This rests on 64-bit hashes being different.
 * h) In one run one line is evicted at most (EVICTIONS) between two looks at it, when it
 *    could have been seen at the first. Crashes are not bounded by it.
 * i) The 8-byte stores of one write go up. Random walks (--seconds) take either order, have
 *    no bound h, and go beyond N.
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

/*
 * Runs of one sequence at most, 0 = no limit. Only to find a planted fault: what it spoils may
 * make more ways to read than are worth looking at, while another sequence shows it at once.
 */
static uint64_t limit;

/* All answers for one sequence: false at a counterexample. */
static bool search_one(const struct seed *s)
{
	uint64_t before = runs;

	depth = given = 0;
	do {
		if (run(s) == WORLD_WRONG)
			return false;
		if (limit && runs - before == limit)
			break;
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

/* What to explore, and how far. */
struct bounds {
	unsigned int max_ops;
	const char *ops;	/* one sequence alone, or NULL */
	bool quiet;
};

static void search_begin(void)
{
	seen_reset();
	runs = states = 0;
}

/* 0 when nothing was found; then *s is what was. */
static int search(const struct bounds *b, struct seed *s)
{
	uint64_t sequences = 0;
	double began = now();

	search_begin();
	for (unsigned int length = 1; !b->ops && length <= b->max_ops; length++) {
		if (!search_length(length, s, &sequences))
			return 1;
		if (b->quiet)
			continue;
		printf("up to %u operation%s: %" PRIu64 " sequences, %" PRIu64 " runs, %" PRIu64
		       " distinct states to go on or recover from, 0 counterexamples, %.0f s\n",
		       length, length == 1 ? "" : "s", sequences, runs, states, now() - began);
		fflush(stdout);
	}
	for (s->start = 0; b->ops && s->start < WORLD_STARTS; s->start++) {
		snprintf(s->ops, sizeof(s->ops), "%s", b->ops);
		if (worth(s->ops, s->start) && !search_one(s))
			return 1;
	}
	return 0;
}

static int search_and_say(const struct bounds *b)
{
	struct seed s = { .descending = false };
	int ret = search(b, &s);

	if (ret)
		report(&s);
	printf("explore: %d counterexample%s, %" PRIu64 " runs, %" PRIu64 " distinct states\n", ret,
	       ret ? "" : "s", runs, states);
	return ret;
}

/* Random operations and answers, beyond all bounds. */
static int walk(double seconds, uint64_t from)
{
	static const char letters[] = WORLD_OPS;
	struct seed s = { .start = WORLD_RAW };
	double end = now() + seconds;
	uint64_t fine = 0;

	search_begin();
	world_random = true;
	walk_state = from * 2 + 1;
	while (now() < end) {
		unsigned int length = 3 + (unsigned int)(walk_random() % 6);
		enum world_end how;

		s.start = walk_random() % 8 ? WORLD_MADE : WORLD_RAW;
		s.descending = walk_random() % 2;
		for (unsigned int i = 0; i < length; i++)
			s.ops[i] = letters[walk_random() % (sizeof(letters) - 1)];
		if (s.start == WORLD_RAW)
			s.ops[0] = 'K';
		s.ops[length] = '\0';
		depth = given = 0;
		how = run(&s);
		if (how == WORLD_WRONG) {
			report(&s);
			printf("explore: 1 counterexample after %" PRIu64 " random runs from %" PRIu64
			       "\n", runs, from);
			return 1;
		}
		fine += how == WORLD_FINE;
	}
	printf("explore: 0 counterexamples in %" PRIu64 " random runs from %" PRIu64
	       ", %" PRIu64 " of them to the end\n", runs, from, fine);
	return 0;
}

static int replay(const char *text)
{
	enum world_end end;
	struct seed s;

	if (seed_parse(&s, text)) {
		fprintf(stderr, "explore: '%s' is not a seed (START:OPERATIONS:up|down:ANSWERS)\n",
			text);
		return 2;
	}
	world_tracing = true;
	given = depth;
	end = run(&s);
	printf("explore: %s\n", end == WORLD_WRONG ? world_fault() :
		end == WORLD_FINE ? "nothing is wrong at the end of this run" :
				    "an operation was not possible in this run");
	return end == WORLD_WRONG;
}

#ifdef TARN_PLANT
static int fault(enum tarn_fault f, const struct bounds *b)
{
	static const char *const likely[] = { "K", "d", "p", "c", "mm", "px", "cT", "lT", "mT", "pp",
					      "dd", "cx", "pm", "ml", "mx", "clx", "pxp", "dlT" };
	struct bounds quiet = *b;
	struct seed s = { .descending = false };
	double began = now();
	uint64_t all_runs = 0;
	int found = 0;

	quiet.quiet = true;
	tarn_plant(f);
	/* where most of them show: saves the time of the rest */
	for (size_t i = 0; i < TARN_ARRAY_SIZE(likely) && !found && !b->ops; i++) {
		limit = 5000;
		quiet.ops = likely[i];
		found = search(&quiet, &s);
		all_runs += runs;
	}
	quiet.ops = b->ops;
	for (limit = 300; limit <= 30000 && !found; limit *= 10) {
		found = search(&quiet, &s);
		all_runs += runs;
	}
	limit = 0;
	tarn_plant(TARN_FAULT_NONE);
	printf("%s %s: %" PRIu64 " runs, %" PRIu64 " states, %.1f s", found ? "found" : "NOT FOUND",
	       tarn_fault_name(f), all_runs, states, now() - began);
	if (found) {
		printf(": %.160s\n  seed: ", world_fault());
		seed_print(&s);
	} else {
		printf("\n");
	}
	fflush(stdout);
	return !found;
}

static int faults(const char *name, const struct bounds *b)
{
	int bad = 0, count = 0;

	for (int f = TARN_FAULT_NONE + 1; f < TARN_FAULTS_END; f++) {
		if (name && strcmp(name, tarn_fault_name((enum tarn_fault)f)))
			continue;
		count++;
		bad += fault((enum tarn_fault)f, b);
	}
	if (!count) {
		fprintf(stderr, "explore: there is no planted fault '%s'\n", name);
		return 2;
	}
	printf("explore: %d of %d planted faults found\n", count - bad, count);
	return bad != 0;
}
#else
static int faults(const char *name, const struct bounds *b)
{
	(void)name;
	(void)b;
	fprintf(stderr, "explore: built without planted faults: make PLANT=1\n");
	return 2;
}
#endif

static void usage(void)
{
	printf("Usage: explore [--max-ops N] [--ops SEQUENCE] [-v]\n"
	       "       explore --seconds S [--from NUMBER]\n"
	       "       explore --faults | --fault NAME [--max-ops N]\n"
	       "       explore --replay SEED [--planted NAME]\n"
	       "\n"
	       "  --max-ops N   all sequences of up to N operations, 1 to 4 (2)\n"
	       "  --ops SEQ     that sequence alone, of these letters:\n");
	for (const char *op = WORLD_OPS; *op; op++)
		printf("                %c %s\n", *op, world_op_text(*op));
	printf("  --seconds S   random sequences and answers, up to 8 operations\n"
	       "  --from N      where the random numbers begin (the time)\n"
	       "  --replay SEED the run of a counterexample, step by step\n"
	       "  --faults      each planted fault of user/lib/planted.h: is it found?\n"
	       "  --fault NAME  that one alone\n"
	       "  --planted NAME a planted fault that is there in --replay\n"
	       "  -v            a line for each sequence\n"
	       "\n"
	       "Exit status: 0 no counterexample (with --faults: each was found), 1 a counterexample\n"
	       "(a fault that was not found), 2 wrong usage, or it cannot run.\n");
}

static bool number(const char *text, uint64_t max, uint64_t *n)
{
	char *end;

	errno = 0;
	*n = strtoull(text, &end, 10);
	return text[0] >= '0' && text[0] <= '9' && !*end && !errno && *n <= max;
}

int main(int argc, char **argv)
{
	enum { MAX_OPS = 256, OPS, SECONDS, FROM, REPLAY, FAULTS, FAULT_, PLANTED };
	static const struct option longs[] = {
		{ "max-ops", required_argument, NULL, MAX_OPS },
		{ "ops", required_argument, NULL, OPS },
		{ "seconds", required_argument, NULL, SECONDS },
		{ "from", required_argument, NULL, FROM },
		{ "replay", required_argument, NULL, REPLAY },
		{ "faults", no_argument, NULL, FAULTS },
		{ "fault", required_argument, NULL, FAULT_ },
		{ "planted", required_argument, NULL, PLANTED },
		{ "help", no_argument, NULL, 'h' },
		{ 0 }
	};
	struct bounds b = { .max_ops = 2 };
	const char *seed = NULL, *name = NULL, *planted = NULL;
	uint64_t n, seconds = 0, from = (uint64_t)time(NULL);
	bool all_faults = false;
	int c;

	setvbuf(stdout, NULL, _IOLBF, 0);
	while ((c = getopt_long(argc, argv, "vh", longs, NULL)) != -1) {
		switch (c) {
		case MAX_OPS:
			if (!number(optarg, 4, &n) || !n)
				goto wrong;
			b.max_ops = (unsigned int)n;
			break;
		case OPS:
			if (!*optarg || strlen(optarg) > 8 || strspn(optarg, WORLD_OPS) != strlen(optarg))
				goto wrong;
			b.ops = optarg;
			break;
		case SECONDS:
			if (!number(optarg, 1000000, &seconds) || !seconds)
				goto wrong;
			break;
		case FROM:
			if (!number(optarg, UINT64_MAX / 2 - 1, &from))
				goto wrong;
			break;
		case REPLAY:
			seed = optarg;
			break;
		case FAULTS:
			all_faults = true;
			break;
		case FAULT_:
			name = optarg;
			break;
		case PLANTED:
			planted = optarg;
			break;
		case 'v':
			verbose = true;
			break;
		case 'h':
			usage();
			return 0;
		default:
			goto wrong;
		}
	}
	if (optind < argc)
		goto wrong;
	search_begin();
	if (world_init()) {
		fprintf(stderr, "explore: no memory\n");
		return 2;
	}
#ifdef TARN_PLANT
	if (planted && tarn_fault_find(planted) == TARN_FAULT_NONE) {
		fprintf(stderr, "explore: there is no planted fault '%s'\n", planted);
		return 2;
	}
	if (planted)
		tarn_plant(tarn_fault_find(planted));
#else
	if (planted)
		return faults(planted, &b);
#endif
	if (seed)
		return replay(seed);
	if (all_faults || name)
		return faults(name, &b);
	return seconds ? walk((double)seconds, from) : search_and_say(&b);
wrong:
	fprintf(stderr, "explore: wrong usage: --help tells how\n");
	return 2;
}
