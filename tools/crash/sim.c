// SPDX-License-Identifier: GPL-2.0-only
/*
 * sim.c - see sim.h.
 *
 * A line has a history: what memory has held, as far as somebody has seen it
 * or it is certain. Each host that has the line dirty has a list besides: every
 * content that its copy had since it was last certain to be in memory, oldest
 * first, the last one being what it has now. Whoever looks takes something of
 * the history, not older than what he saw last, or something of another host's
 * list: then that, and nothing older of this list, was in memory.
 *
 * A line that has always been zero, and to which nothing but zero was stored,
 * is not kept: a bit for each host tells that it has it dirty.
 */
#include "sim.h"

#include <inttypes.h>

#define WORDS (TARNFS_LINE / 8)
#define CHUNK 64		/* lines: a word of zero bits */
#define CHUNK_BYTES ((uint64_t)CHUNK * TARNFS_LINE)
#define NONE UINT32_MAX
#define LINES_MAX 4096
#define NODES_MAX 65536
#define ANSWERS_MAX 2048
#define FLIGHTS_MAX 2048
#define RANGES_MAX 64

struct node {			/* a content */
	uint64_t word[WORDS];
	uint64_t hash;
	uint32_t next;		/* the newer one of the same list */
	uint32_t number;	/* counts the contents of one host in one line; never 0 */
	bool garbage;		/* see sim_garbage() */
};

struct copy {			/* what one host has of a line */
	uint32_t low;		/* in the history: nothing older can be read */
	uint32_t head, tail;	/* its list, NONE: not dirty */
	uint32_t numbers;	/* given out */
	uint32_t written;	/* the highest number that was written back */
	uint32_t mark;		/* numbers up to here are from before another's crash */
	bool lost;		/* the host crashed with it: it comes no more, but may have come */
	bool after;		/* whatever is read was filled after the last such crash */
};

struct line {
	uint64_t number;
	uint32_t oldest, newest;	/* history */
	uint32_t looked;		/* what could have been had at a look that got an older one */
	uint8_t dirty, lost;		/* masks of hosts with a list */
	struct copy copy[SIM_HOSTS];
};

struct flight {			/* written back by a process, no fence yet */
	uint16_t line;
	uint8_t host, process;
	uint32_t number;
};

struct range {			/* the same of lines that are not kept */
	uint64_t first, end;
	uint8_t host, process;
};

struct state {
	uint32_t nr_lines, nr_nodes, nr_flights, nr_ranges;
	bool zeros;		/* a bit is set for some host */
	struct flight flights[FLIGHTS_MAX];
	struct range ranges[RANGES_MAX];
};

struct port {
	struct tarn_media media;
	struct sim *s;
	uint8_t host, process;
};

struct sim {
	uint64_t nr;		/* lines of memory */
	uint16_t *at;		/* number of a line to 1 + its index, 0 = not kept */
	uint8_t *some;		/* of CHUNK lines: how many are kept */
	uint64_t *zero[SIM_HOSTS];
	size_t zero_words;
	struct line *line;
	struct node *node;
	struct state st;
	struct port port[SIM_HOSTS][SIM_PROCESSES];
	sim_choose_fn choose;
	void *choose_arg;
	sim_step_fn step;
	void *step_arg;
	sim_garbage_fn garbage;
	void *garbage_arg;
	bool descending;
	bool storing, whole;	/* look() is for a store, of a write that has all of the line */
};

struct sim_copy {
	struct state st;
	struct line *line;
	struct node *node;
	uint64_t *zero[SIM_HOSTS];	/* NULL: none set */
};

static void broken(const char *what)
{
	fprintf(stderr, "simulator: %s\n", what);
	abort();
}

/* ---- contents ---- */

static uint64_t mix(uint64_t h, uint64_t v)
{
	h = (h ^ v) * 0x9e3779b97f4a7c15ULL;
	return h ^ h >> 29;
}

static uint64_t hash_words(const uint64_t *word)
{
	uint64_t h = 0;

	for (int i = 0; i < WORDS; i++)
		h = mix(h, word[i] + (uint64_t)i);
	return h;
}

static uint32_t new_node(struct sim *s, const uint64_t *word)
{
	struct node *n;

	if (s->st.nr_nodes == NODES_MAX)
		broken("too many stores: raise NODES_MAX");
	n = &s->node[s->st.nr_nodes];
	memcpy(n->word, word, sizeof(n->word));
	n->hash = hash_words(n->word);
	n->next = NONE;
	n->number = 0;
	n->garbage = false;
	return s->st.nr_nodes++;
}

static void judge(struct sim *s, const struct line *l, uint32_t n, bool torn)
{
	s->node[n].garbage = s->garbage &&
			     s->garbage(s->garbage_arg, l->number * TARNFS_LINE,
					(const uint8_t *)s->node[n].word, torn);
}

static bool same(const struct sim *s, uint32_t a, uint32_t b)
{
	return a == b || (s->node[a].garbage && s->node[b].garbage) ||
	       (s->node[a].hash == s->node[b].hash &&
			  !memcmp(s->node[a].word, s->node[b].word, TARNFS_LINE));
}

/* Memory holds this from now on. */
static uint32_t history_add(struct sim *s, struct line *l, uint32_t content)
{
	const uint64_t *word = s->node[content].word;
	uint32_t n;

	if (!memcmp(s->node[l->newest].word, word, TARNFS_LINE))
		return l->newest;
	n = new_node(s, word);
	s->node[n].garbage = s->node[content].garbage;
	s->node[l->newest].next = n;
	l->newest = n;
	return n;
}

static struct line *kept(const struct sim *s, uint64_t number)
{
	return s->at[number] ? &s->line[s->at[number] - 1] : NULL;
}

/* The next kept line from `number` on that is before end, or end. */
static uint64_t next_kept(const struct sim *s, uint64_t number, uint64_t end)
{
	while (number < end && !s->at[number]) {
		if (number % CHUNK == 0 && !s->some[number / CHUNK])
			number += CHUNK;
		else
			number++;
	}
	return number < end ? number : end;
}

#define LAST(off, len) (((off) + (len) + TARNFS_LINE - 1) / TARNFS_LINE)
/* l: the kept lines of a range, in ascending order */
#define FOR_KEPT(s, n, off, len)						\
	for (uint64_t n = next_kept(s, (off) / TARNFS_LINE, LAST(off, len));	\
	     n < LAST(off, len); n = next_kept(s, n + 1, LAST(off, len)))

static bool zero_bit(const struct sim *s, unsigned int host, uint64_t number)
{
	return s->zero[host][number / 64] >> number % 64 & 1;
}

static void list_add_content(struct sim *s, struct line *l, unsigned int host,
			     const uint64_t *word, bool torn)
{
	struct copy *c = &l->copy[host];
	uint32_t n;

	/* dirty as before: nobody could tell the two apart */
	if (c->tail != NONE && s->node[c->tail].number > c->written &&
	    !memcmp(s->node[c->tail].word, word, TARNFS_LINE))
		return;
	n = new_node(s, word);
	judge(s, l, n, torn);
	s->node[n].number = ++c->numbers;
	if (c->tail == NONE)
		c->head = n;
	else
		s->node[c->tail].next = n;
	c->tail = n;
	l->dirty |= (uint8_t)(1U << host);
}

static struct line *keep(struct sim *s, uint64_t number)
{
	static const uint64_t zeros[WORDS];
	struct line *l = kept(s, number);

	if (l)
		return l;
	if (s->st.nr_lines == LINES_MAX)
		broken("too many lines: raise LINES_MAX");
	l = &s->line[s->st.nr_lines++];
	s->at[number] = (uint16_t)s->st.nr_lines;
	s->some[number / CHUNK]++;
	memset(l, 0, sizeof(*l));
	l->number = number;
	l->oldest = l->newest = new_node(s, zeros);
	l->looked = NONE;
	for (unsigned int h = 0; h < SIM_HOSTS; h++) {
		l->copy[h] = (struct copy){ .low = l->oldest, .head = NONE, .tail = NONE };
		if (!s->st.zeros || !zero_bit(s, h, number))
			continue;
		s->zero[h][number / 64] &= ~(1ULL << number % 64);
		list_add_content(s, l, h, zeros, false);
		for (uint32_t i = 0; i < s->st.nr_ranges; i++) {
			const struct range *r = &s->st.ranges[i];

			if (r->host != h || number < r->first || number >= r->end)
				continue;
			if (s->st.nr_flights == FLIGHTS_MAX)
				broken("too many write backs: raise FLIGHTS_MAX");
			l->copy[h].written = l->copy[h].numbers;
			s->st.flights[s->st.nr_flights++] = (struct flight){
				.line = (uint16_t)(l - s->line), .host = (uint8_t)h,
				.process = r->process, .number = l->copy[h].numbers,
			};
		}
	}
	return l;
}

static void list_clear(struct line *l, unsigned int host)
{
	struct copy *c = &l->copy[host];

	c->head = c->tail = NONE;
	c->lost = false;
	l->dirty &= (uint8_t)~(1U << host);
	l->lost &= (uint8_t)~(1U << host);
}

/* ---- questions ---- */

/* before: the answer that an earlier look got, if any is meant */
static unsigned int ask_again(struct sim *s, enum sim_what what, unsigned int host,
			      unsigned int other, const struct line *l, unsigned int answers,
			      bool again, unsigned int before)
{
	struct sim_question q = {
		.what = what, .store = s->storing, .whole = s->storing && s->whole, .host = host, .other = other, .off = l->number * TARNFS_LINE,
		.answers = answers, .again = again, .before = before,
	};
	unsigned int answer;

	if (!s->choose || answers < 2)
		return 0;
	answer = s->choose(s->choose_arg, &q);
	if (answer >= answers)
		broken("an answer out of range");
	return answer;
}

static unsigned int ask(struct sim *s, enum sim_what what, unsigned int host, unsigned int other,
			const struct line *l, unsigned int answers)
{
	return ask_again(s, what, host, other, l, answers, false, 0);
}

/*
 * Content n of that host's list is in memory now, and what is older of it no more will be.
 * Others that have the line dirty were before it, and are clean, or come later. reader: its own
 * copy, if dirty, must have been before it, or it could not have seen this.
 */
static void settle(struct sim *s, struct line *l, unsigned int host, uint32_t n,
		   unsigned int reader)
{
	struct copy *c = &l->copy[host];
	uint32_t copy_of;

	for (unsigned int o = 0; l->dirty & ~(1U << host) && o < SIM_HOSTS; o++) {
		if (o == host || !(l->dirty >> o & 1) || l->copy[o].lost)
			continue;
		if (o != reader && !ask(s, SIM_OTHER, reader, o, l, 2))
			continue;
		l->copy[o].low = history_add(s, l, l->copy[o].tail);
		list_clear(l, o);
	}
	/* stored after the crash of another: that one came before it, if at all */
	for (unsigned int o = 0; l->lost & ~(1U << host) && o < SIM_HOSTS; o++)
		if (o != host && l->lost >> o & 1 && !c->lost && s->node[n].number > c->mark)
			list_clear(l, o);
	copy_of = history_add(s, l, n);
	if (!c->lost)
		c->low = copy_of;
	if (n == c->tail)
		list_clear(l, host);
	else
		c->head = s->node[n].next;
}

struct answer {
	uint32_t node;
	int host;		/* whose list, -1 = history */
};

struct answers {
	unsigned int count;
	struct answer a[ANSWERS_MAX];
};

/* Equal contents are one answer: the oldest of them, which leaves open whether it is newer. */
static void add_answer(const struct sim *s, struct answers *to, uint32_t node, int host)
{
	for (unsigned int i = 0; i < to->count; i++) {
		if (same(s, to->a[i].node, node)) {
			to->a[i] = (struct answer){ node, host };
			return;
		}
	}
	if (to->count == ANSWERS_MAX)
		broken("too many contents of a line: raise ANSWERS_MAX");
	to->a[to->count++] = (struct answer){ node, host };
}

static void add_list(const struct sim *s, struct answers *to, uint32_t first, uint32_t last, int host)
{
	unsigned int n = 0;
	uint32_t i, order[ANSWERS_MAX];

	if (first == NONE)
		return;
	for (i = first;; i = s->node[i].next) {
		if (n == ANSWERS_MAX)
			broken("too many contents of a line: raise ANSWERS_MAX");
		order[n++] = i;
		if (i == last)
			break;
	}
	while (n--)
		add_answer(s, to, order[n], host);
}

/* What a read by that host may return, newest first. */
static void readable(const struct sim *s, const struct line *l, unsigned int host, struct answers *to)
{
	const struct copy *c = &l->copy[host];
	bool dirty = l->dirty >> host & 1;

	to->count = 0;
	if (dirty)
		to->a[to->count++] = (struct answer){ c->tail, (int)host };
	for (unsigned int o = SIM_HOSTS; o-- && l->dirty;)
		if (o != host && l->dirty >> o & 1 && !(dirty && l->copy[o].lost))
			add_list(s, to, l->copy[o].head, l->copy[o].tail, (int)o);
	if (!dirty)
		add_list(s, to, c->low, l->newest, -1);
}

/* What memory holds after crashes, all of it to be decided now. */
static void decide(struct sim *s, struct line *l, unsigned int host)
{
	struct answers to = { .count = 0 };
	struct answer a;

	for (unsigned int o = SIM_HOSTS; o--;)
		if (l->lost >> o & 1)
			add_list(s, &to, l->copy[o].head, l->copy[o].tail, (int)o);
	add_answer(s, &to, l->newest, -1);
	a = to.a[ask(s, SIM_MEMORY, host, 0, l, to.count)];
	if (a.host >= 0)
		settle(s, l, (unsigned int)a.host, a.node, SIM_HOSTS);
	for (unsigned int o = 0; o < SIM_HOSTS; o++) {
		if (l->lost >> o & 1)
			list_clear(l, o);
		if (l->copy[o].after)
			l->copy[o].low = l->newest;
	}
}

/* The content that host has in its cache when it looks now: a node. */
static uint32_t look(struct sim *s, struct line *l, unsigned int host)
{
	static struct answers to;	/* questions do not come back here */
	struct copy *c = &l->copy[host];
	uint32_t newest;
	unsigned int before;
	struct answer a;

	/* the usual cases: nobody has anything newer */
	if (l->dirty == 1U << host && !c->lost)
		return c->tail;
	if (!l->dirty && c->low == l->newest)
		return l->newest;
	if (l->lost && (c->after || c->lost))
		decide(s, l, host);
	readable(s, l, host, &to);
	newest = to.a[0].node;
	for (before = 0; before + 1 < to.count && !same(s, to.a[before].node, l->newest);)
		before++;
	a = to.a[ask_again(s, SIM_READ, host, 0, l, to.count, l->looked == newest, before)];
	if (a.node != newest)
		l->looked = newest;
	if (a.host == (int)host)
		return a.node;
	if (a.host < 0) {
		c->low = a.node;
		return a.node;
	}
	settle(s, l, (unsigned int)a.host, a.node, host);
	c->low = l->newest;
	return l->newest;
}

/* ---- operations ---- */

static struct port *to_port(struct tarn_media *m)
{
	return (struct port *)m;
}

static void step(struct port *p, enum sim_op op, uint64_t off, size_t len, bool settles)
{
	struct sim_step st = {
		.op = op, .host = p->host, .process = p->process, .off = off, .len = len,
		.settles = settles,
	};

	if (p->s->step)
		p->s->step(p->s->step_arg, &st);
}

static int sim_op_read(struct tarn_media *m, uint64_t off, void *buf, size_t len)
{
	struct port *p = to_port(m);
	struct sim *s = p->s;
	uint64_t end = off + len;

	step(p, SIM_OP_READ, off, len, false);
	memset(buf, 0, len);
	if (!len)
		return 0;
	FOR_KEPT(s, n, off, len) {
		uint64_t from = n * TARNFS_LINE, to = from + TARNFS_LINE;
		const struct node *node = &s->node[look(s, kept(s, n), p->host)];

		from = from > off ? from : off;
		to = to < end ? to : end;
		memcpy((uint8_t *)buf + (from - off), (const uint8_t *)node->word + from % TARNFS_LINE,
		       to - from);
	}
	return 0;
}

/*
 * At most 8 bytes, which do not cross a multiple of 8. line: what the write that they are of
 * makes of the whole line, or NULL. Has the line another content now?
 */
static bool store(struct sim *s, unsigned int host, uint64_t off, const uint8_t *from, size_t len,
		  const uint8_t *line)
{
	struct line *l = keep(s, off / TARNFS_LINE);
	uint64_t word[WORDS];
	bool changed, torn;
	uint32_t n;

	s->storing = true;
	n = look(s, l, host);
	s->storing = false;

	memcpy(word, s->node[n].word, sizeof(word));
	memcpy((uint8_t *)word + off % TARNFS_LINE, from, len);
	changed = memcmp(word, s->node[n].word, sizeof(word)) != 0;
	torn = line && memcmp(word, line, TARNFS_LINE) && (changed || s->node[n].garbage);
	list_add_content(s, l, host, word, torn);
	return changed;
}

static bool all_zero(const uint8_t *p, size_t len)
{
	static const uint8_t zeros[4096];

	for (; len > sizeof(zeros); p += sizeof(zeros), len -= sizeof(zeros))
		if (memcmp(p, zeros, sizeof(zeros)))
			return false;
	return !memcmp(p, zeros, len);
}

/* Zeros onto lines that have always been zero: [off, off + len) of one line. */
static bool store_zero(struct sim *s, unsigned int host, uint64_t off, const uint8_t *from,
		       size_t len)
{
	uint64_t number = off / TARNFS_LINE;

	if (kept(s, number) || !all_zero(from, len))
		return false;
	s->zero[host][number / 64] |= 1ULL << number % 64;
	s->st.zeros = true;
	return true;
}

static int sim_op_write(struct tarn_media *m, uint64_t off, const void *buf, size_t len)
{
	struct port *p = to_port(m);
	struct sim *s = p->s;
	const uint8_t *from = buf;
	uint64_t at, end = off + len, changed_at = off;
	bool changed = false;

	step(p, SIM_OP_WRITE, off, len, false);
	for (uint64_t done = 0; done < len;) {
		uint64_t last, n;

		if (!s->descending && (off + done) % CHUNK_BYTES == 0 && len - done >= CHUNK_BYTES &&
		    !s->some[(off + done) / CHUNK_BYTES] && all_zero(from + done, CHUNK_BYTES)) {
			s->zero[p->host][(off + done) / CHUNK_BYTES] = UINT64_MAX;
			s->st.zeros = true;
			done += CHUNK_BYTES;
			continue;
		}
		if (!s->descending) {
			at = off + done;
			last = at / TARNFS_LINE * TARNFS_LINE + TARNFS_LINE;
			n = (last < end ? last : end) - at;
		} else {
			last = end - done;
			at = (last - 1) / TARNFS_LINE * TARNFS_LINE;
			at = at > off ? at : off;
			n = last - at;
		}
		done += n;
		if (store_zero(s, p->host, at, from + (at - off), n))
			continue;
		for (uint64_t in_line = 0; in_line < n;) {
			uint64_t word_at, w;

			/* told only now: the last store of all is the next operation's to tell */
			if (changed)
				step(p, SIM_OP_STORED, changed_at, 8, false);
			s->whole = n == TARNFS_LINE;
			if (!s->descending) {
				word_at = at + in_line;
				w = 8 - word_at % 8;
				w = w < n - in_line ? w : n - in_line;
			} else {
				uint64_t top = at + n - in_line;

				word_at = (top - 1) / 8 * 8;
				word_at = word_at > at ? word_at : at;
				w = top - word_at;
			}
			in_line += w;
			changed = store(s, p->host, word_at, from + (word_at - off), w,
					n == TARNFS_LINE ? from + (at - off) : NULL);
			changed_at = word_at;
		}
	}
	return 0;
}

static int sim_op_read64(struct tarn_media *m, uint64_t off, uint64_t *value)
{
	return sim_op_read(m, off, value, sizeof(*value));
}

static int sim_op_write64(struct tarn_media *m, uint64_t off, uint64_t value)
{
	return sim_op_write(m, off, &value, sizeof(value));
}

static bool any_flight(const struct sim *s, unsigned int process)
{
	for (uint32_t i = 0; i < s->st.nr_flights; i++) {
		const struct flight *f = &s->st.flights[i];
		const struct line *l = &s->line[f->line];

		if (f->process == process && l->dirty >> f->host & 1 && !l->copy[f->host].lost &&
		    s->node[l->copy[f->host].head].number <= f->number)
			return true;
	}
	for (uint32_t i = 0; i < s->st.nr_ranges; i++)
		if (s->st.ranges[i].process == process)
			return true;
	return false;
}

static void zero_clear(struct sim *s, unsigned int host, uint64_t first, uint64_t end)
{
	for (uint64_t i = first; s->st.zeros && i < end; i++) {
		if (i % 64 == 0 && end - i >= 64) {
			s->zero[host][i / 64] = 0;
			i += 63;
		} else {
			s->zero[host][i / 64] &= ~(1ULL << i % 64);
		}
	}
}

static void do_fence(struct sim *s, unsigned int process)
{
	uint32_t left = 0;

	for (uint32_t i = 0; i < s->st.nr_flights; i++) {
		const struct flight *f = &s->st.flights[i];
		struct line *l = &s->line[f->line];
		struct copy *c = &l->copy[f->host];
		uint32_t n;

		if (f->process != process) {
			s->st.flights[left++] = *f;
			continue;
		}
		if (!(l->dirty >> f->host & 1) || c->lost || s->node[c->head].number > f->number)
			continue;
		for (n = c->head; s->node[n].next != NONE && n != c->tail &&
		     s->node[s->node[n].next].number <= f->number;)
			n = s->node[n].next;
		settle(s, l, f->host, n, SIM_HOSTS);
	}
	s->st.nr_flights = left;
	left = 0;
	for (uint32_t i = 0; i < s->st.nr_ranges; i++) {
		const struct range *r = &s->st.ranges[i];

		if (r->process != process)
			s->st.ranges[left++] = *r;
		else
			zero_clear(s, r->host, r->first, r->end);
	}
	s->st.nr_ranges = left;
}

static int sim_op_writeback(struct tarn_media *m, uint64_t off, size_t len)
{
	struct port *p = to_port(m);
	struct sim *s = p->s;

	step(p, SIM_OP_WRITEBACK, off, len, false);
	if (!len)
		return 0;
	if (s->st.zeros) {
		if (s->st.nr_ranges == RANGES_MAX)
			broken("too many write backs: raise RANGES_MAX");
		s->st.ranges[s->st.nr_ranges++] = (struct range){
			.first = off / TARNFS_LINE,
			.end = (off + len + TARNFS_LINE - 1) / TARNFS_LINE,
			.host = p->host, .process = p->process,
		};
	}
	FOR_KEPT(s, n, off, len) {
		struct line *l = kept(s, n);
		struct copy *c;

		if (!(l->dirty >> p->host & 1) || l->copy[p->host].lost)
			continue;
		c = &l->copy[p->host];
		if (s->st.nr_flights == FLIGHTS_MAX)
			broken("too many write backs: raise FLIGHTS_MAX");
		c->written = s->node[c->tail].number;
		s->st.flights[s->st.nr_flights++] = (struct flight){
			.line = (uint16_t)(l - s->line), .host = p->host, .process = p->process,
			.number = c->written,
		};
	}
	return 0;
}

static int sim_op_fence(struct tarn_media *m)
{
	struct port *p = to_port(m);

	step(p, SIM_OP_FENCE, 0, 0, any_flight(p->s, p->process));
	do_fence(p->s, p->process);
	return 0;
}

static void drop(struct sim *s, unsigned int host, uint64_t off, size_t len)
{
	FOR_KEPT(s, n, off, len) {
		struct line *l = kept(s, n);
		struct copy *c = &l->copy[host];

		if (l->dirty >> host & 1 && !c->lost)
			settle(s, l, host, c->tail, SIM_HOSTS);
		c->low = l->newest;
		c->after = true;
	}
	zero_clear(s, host, off / TARNFS_LINE, (off + len + TARNFS_LINE - 1) / TARNFS_LINE);
}

static int sim_op_invalidate(struct tarn_media *m, uint64_t off, size_t len)
{
	struct port *p = to_port(m);
	struct sim *s = p->s;
	bool settles = any_flight(s, p->process);

	if (!settles && len)
		settles = sim_is_dirty(s, p->host, off, len);
	step(p, SIM_OP_INVALIDATE, off, len, settles);
	if (len)
		drop(s, p->host, off, len);
	do_fence(s, p->process);
	return 0;
}

static void sim_op_close(struct tarn_media *m)
{
	(void)m;
}

static const struct tarn_media_ops sim_ops = {
	.read = sim_op_read,
	.write = sim_op_write,
	.read64 = sim_op_read64,
	.write64 = sim_op_write64,
	.writeback = sim_op_writeback,
	.invalidate = sim_op_invalidate,
	.fence = sim_op_fence,
	.close = sim_op_close,
};

/* ---- hosts and processes ---- */

/* No fence will come for what a process (whole_host: all of them) has written back. */
static void never_fenced(struct sim *s, bool whole_host, unsigned int who)
{
	uint32_t left = 0;

	for (uint32_t i = 0; i < s->st.nr_flights; i++) {
		const struct flight *f = &s->st.flights[i];

		if ((whole_host ? f->host : f->process) != who)
			s->st.flights[left++] = *f;
	}
	s->st.nr_flights = left;
	left = 0;
	for (uint32_t i = 0; i < s->st.nr_ranges; i++) {
		const struct range *r = &s->st.ranges[i];

		if ((whole_host ? r->host : r->process) != who)
			s->st.ranges[left++] = *r;
	}
	s->st.nr_ranges = left;
}

void sim_process_gone(struct sim *s, unsigned int process)
{
	never_fenced(s, false, process);
}

void sim_crash(struct sim *s, unsigned int host)
{
	never_fenced(s, true, host);
	if (s->st.zeros)
		memset(s->zero[host], 0, s->zero_words * sizeof(uint64_t));
	for (uint32_t i = 0; i < s->st.nr_lines; i++) {
		struct line *l = &s->line[i];
		struct copy *c = &l->copy[host];

		/* what an earlier crash left open is still open */
		if (l->dirty >> host & 1 && !c->lost) {
			c->lost = true;
			l->lost |= (uint8_t)(1U << host);
			for (unsigned int o = 0; o < SIM_HOSTS; o++) {
				l->copy[o].after = false;
				l->copy[o].mark = l->copy[o].numbers;
			}
		}
		c->low = l->newest;
		c->after = true;
	}
}

void sim_evict(struct sim *s, unsigned int host, uint64_t off, size_t len)
{
	if (len)
		drop(s, host, off, len);
}

void sim_descending(struct sim *s, bool on)
{
	s->descending = on;
}

/* ---- what there is ---- */

static bool any_zero_bit(const struct sim *s, unsigned int host, uint64_t first, uint64_t end)
{
	for (uint64_t n = first; s->st.zeros && n < end; n++) {
		if (zero_bit(s, host, n))
			return true;
		if (n % CHUNK == 0 && !s->zero[host][n / CHUNK])
			n += CHUNK - 1;
	}
	return false;
}

bool sim_is_dirty(const struct sim *s, unsigned int host, uint64_t off, size_t len)
{
	FOR_KEPT(s, n, off, len) {
		const struct line *l = kept(s, n);

		if (l->dirty >> host & 1 && !l->copy[host].lost)
			return true;
	}
	return any_zero_bit(s, host, off / TARNFS_LINE, LAST(off, len));
}

bool sim_is_settled(const struct sim *s, uint64_t off, size_t len)
{
	FOR_KEPT(s, n, off, len)
		if (kept(s, n)->dirty)
			return false;
	for (unsigned int h = 0; h < SIM_HOSTS; h++)
		if (any_zero_bit(s, h, off / TARNFS_LINE, LAST(off, len)))
			return false;
	return true;
}

static unsigned int copy_out(const struct sim *s, const struct answers *to,
			     uint8_t (*out)[TARNFS_LINE], unsigned int max)
{
	for (unsigned int i = 0; i < to->count && i < max; i++)
		memcpy(out[i], s->node[to->a[i].node].word, TARNFS_LINE);
	return to->count;
}

static unsigned int one_zero(uint8_t (*out)[TARNFS_LINE], unsigned int max)
{
	if (max)
		memset(out[0], 0, TARNFS_LINE);
	return 1;
}

static void contents(const struct sim *s, const struct line *l, struct answers *to)
{
	to->count = 0;
	for (unsigned int o = SIM_HOSTS; o-- && l->dirty;)
		if (l->dirty >> o & 1)
			add_list(s, to, l->copy[o].head, l->copy[o].tail, (int)o);
	add_answer(s, to, l->newest, -1);
}

unsigned int sim_contents(const struct sim *s, uint64_t off, uint8_t (*out)[TARNFS_LINE],
			  unsigned int max)
{
	const struct line *l = kept(s, off / TARNFS_LINE);
	static struct answers to;

	if (!l)
		return one_zero(out, max);
	contents(s, l, &to);
	return copy_out(s, &to, out, max);
}

unsigned int sim_readable(const struct sim *s, unsigned int host, uint64_t off,
			  uint8_t (*out)[TARNFS_LINE], unsigned int max)
{
	const struct line *l = kept(s, off / TARNFS_LINE);
	static struct answers to;

	if (!l)
		return one_zero(out, max);
	if (l->lost && (l->copy[host].after || l->copy[host].lost))
		contents(s, l, &to);	/* as memory, which is to be decided */
	else
		readable(s, l, host, &to);
	return copy_out(s, &to, out, max);
}

static uint64_t hash_node(const struct sim *s, uint32_t n)
{
	return s->node[n].garbage ? 0x67617262 : s->node[n].hash;
}

static uint64_t hash_list(const struct sim *s, uint64_t h, uint32_t first, uint32_t last)
{
	uint64_t before = 0;

	for (uint32_t i = first; i != NONE; i = s->node[i].next) {
		if (hash_node(s, i) != before || i == first)
			h = mix(h, hash_node(s, i));
		before = hash_node(s, i);
		if (i == last)
			break;
	}
	return h;
}

static uint64_t hash_line(const struct sim *s, const struct line *l, bool memory_only)
{
	static const uint64_t zeros[WORDS];
	uint64_t h = mix(0x7461726e, l->number);

	if (memory_only) {
		if (!l->dirty && !memcmp(s->node[l->newest].word, zeros, sizeof(zeros)))
			return 0;
		h = mix(h, hash_node(s, l->newest));
		for (unsigned int o = 0; l->dirty && o < SIM_HOSTS; o++)
			if (l->dirty >> o & 1)
				h = hash_list(s, mix(h, o), l->copy[o].head, l->copy[o].tail);
		return h;
	}
	for (unsigned int o = 0; o < SIM_HOSTS; o++) {
		const struct copy *c = &l->copy[o];

		h = mix(h, o | (uint64_t)c->lost << 8 | (uint64_t)c->after << 9);
		h = hash_list(s, h, c->low, l->newest);
		if (l->dirty >> o & 1)
			h = hash_list(s, mix(h, 1), c->head, c->tail);
	}
	return h;
}

uint64_t sim_hash(const struct sim *s, bool memory_only)
{
	uint64_t h = 0;

	/* a sum: the order in which lines came to be kept is nothing */
	for (uint32_t i = 0; i < s->st.nr_lines; i++)
		h += hash_line(s, &s->line[i], memory_only);
	if (memory_only)
		return h;
	for (unsigned int o = 0; s->st.zeros && o < SIM_HOSTS; o++)
		for (size_t i = 0; i < s->zero_words; i++)
			if (s->zero[o][i])
				h += mix(mix(o, i), s->zero[o][i]);
	for (uint32_t i = 0; i < s->st.nr_flights; i++) {
		const struct flight *f = &s->st.flights[i];
		const struct line *l = &s->line[f->line];
		const struct copy *c = &l->copy[f->host];

		if (l->dirty >> f->host & 1 && s->node[c->head].number <= f->number)
			h += mix(mix(l->number, f->process), f->number - s->node[c->head].number);
	}
	return h;
}

void sim_name(const struct tarn_super *sb, uint64_t off, char *out, size_t room)
{
	static const char *const names[] = {
		"identity", "control", "window",  "status",  "quiesce", "contend",
		"info",	    "line7",   "commit0", "commit1", "commit2", "commit3",
		"commit4",  "commit5", "commit6", "commit7",
	};
	uint64_t pages = sb ? (uint64_t)sb->hosts * TARNFS_HOST_STRIDE : 0;

	if (off < TARNFS_SUPER2_OFF + TARNFS_SUPER_LEN && off % TARNFS_SUPER2_OFF < TARNFS_SUPER_LEN) {
		snprintf(out, room, "super%s+%" PRIu64, off < TARNFS_SUPER2_OFF ? "" : "2",
			 off % TARNFS_SUPER2_OFF);
		return;
	}
	for (int i = 0; i < 2 && sb; i++) {
		uint64_t start = i ? sb->mirror_off : sb->hosts_off, in = off - start;

		if (off < start || in >= pages ||
		    in % TARNFS_HOST_STRIDE / TARNFS_LINE >= TARN_ARRAY_SIZE(names))
			continue;
		snprintf(out, room, "%s%" PRIu64 ".%s", i ? "mirror" : "page",
			 in / TARNFS_HOST_STRIDE, names[in % TARNFS_HOST_STRIDE / TARNFS_LINE]);
		return;
	}
	for (int i = 0; sb && i < sb->areas; i++) {
		if (off < sb->area[i].off || off - sb->area[i].off >= sb->area[i].len)
			continue;
		snprintf(out, room, "area%d+%" PRIu64, i, off - sb->area[i].off);
		return;
	}
	if (sb && off >= sb->data_start)
		snprintf(out, room, "data+0x%" PRIx64, off - sb->data_start);
	else
		snprintf(out, room, "0x%" PRIx64, off);
}

/* ---- making, copying ---- */

struct sim *sim_new(uint64_t size)
{
	struct sim *s = calloc(1, sizeof(*s));
	bool good = s;

	if (!s)
		return NULL;
	s->nr = size / TARNFS_LINE;
	s->zero_words = (s->nr + 63) / 64;
	s->at = calloc(s->nr, sizeof(*s->at));
	s->line = calloc(LINES_MAX, sizeof(*s->line));
	s->node = calloc(NODES_MAX, sizeof(*s->node));
	s->some = calloc(s->zero_words, sizeof(*s->some));
	good = s->at && s->some && s->line && s->node;
	for (unsigned int h = 0; h < SIM_HOSTS; h++) {
		s->zero[h] = calloc(s->zero_words, sizeof(uint64_t));
		good = good && s->zero[h];
		for (unsigned int p = 0; p < SIM_PROCESSES; p++)
			s->port[h][p] = (struct port){
				.media = { .ops = &sim_ops, .size = size },
				.s = s, .host = (uint8_t)h, .process = (uint8_t)p,
			};
	}
	if (!good) {
		sim_free(s);
		return NULL;
	}
	return s;
}

void sim_free(struct sim *s)
{
	if (!s)
		return;
	for (unsigned int h = 0; h < SIM_HOSTS; h++)
		free(s->zero[h]);
	free(s->at);
	free(s->some);
	free(s->line);
	free(s->node);
	free(s);
}

static void zeros_reset(struct sim *s)
{
	for (unsigned int h = 0; s->st.zeros && h < SIM_HOSTS; h++)
		memset(s->zero[h], 0, s->zero_words * sizeof(uint64_t));
	s->st.zeros = false;
}

static void forget_lines(struct sim *s)
{
	for (uint32_t i = 0; i < s->st.nr_lines; i++)
		s->at[s->line[i].number] = s->some[s->line[i].number / CHUNK] = 0;
	s->st.nr_lines = 0;
}

void sim_reset(struct sim *s)
{
	forget_lines(s);
	zeros_reset(s);
	s->st.nr_nodes = s->st.nr_flights = s->st.nr_ranges = 0;
}

void sim_fill(struct sim *s, uint64_t off, const void *buf, size_t len)
{
	const uint8_t *from = buf;

	while (len) {
		size_t in = off % TARNFS_LINE, n = TARNFS_LINE - in < len ? TARNFS_LINE - in : len;
		struct line *l = keep(s, off / TARNFS_LINE);
		struct node *node = &s->node[l->oldest];

		if (l->oldest != l->newest || l->dirty)
			broken("sim_fill() of a line that was stored to");
		memcpy((uint8_t *)node->word + in, from, n);
		node->hash = hash_words(node->word);
		judge(s, l, l->oldest, false);
		from += n;
		off += n;
		len -= n;
	}
}

struct tarn_media *sim_media(struct sim *s, unsigned int host, unsigned int process)
{
	return &s->port[host][process].media;
}

void sim_choose(struct sim *s, sim_choose_fn fn, void *arg)
{
	s->choose = fn;
	s->choose_arg = arg;
}

void sim_garbage(struct sim *s, sim_garbage_fn fn, void *arg)
{
	s->garbage = fn;
	s->garbage_arg = arg;
}

void sim_step(struct sim *s, sim_step_fn fn, void *arg)
{
	s->step = fn;
	s->step_arg = arg;
}

static void state_copy(struct state *to, const struct state *from)
{
	memcpy(to, from, offsetof(struct state, flights));
	memcpy(to->flights, from->flights, from->nr_flights * sizeof(from->flights[0]));
	memcpy(to->ranges, from->ranges, from->nr_ranges * sizeof(from->ranges[0]));
}

struct sim_copy *sim_save(struct sim *s)
{
	struct sim_copy *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	state_copy(&c->st, &s->st);
	c->line = malloc(s->st.nr_lines * sizeof(*c->line) + 1);
	c->node = malloc(s->st.nr_nodes * sizeof(*c->node) + 1);
	if (!c->line || !c->node)
		goto fail;
	memcpy(c->line, s->line, s->st.nr_lines * sizeof(*c->line));
	memcpy(c->node, s->node, s->st.nr_nodes * sizeof(*c->node));
	for (unsigned int h = 0; s->st.zeros && h < SIM_HOSTS; h++) {
		c->zero[h] = malloc(s->zero_words * sizeof(uint64_t));
		if (!c->zero[h])
			goto fail;
		memcpy(c->zero[h], s->zero[h], s->zero_words * sizeof(uint64_t));
	}
	return c;
fail:
	sim_copy_free(c);
	return NULL;
}

void sim_restore(struct sim *s, const struct sim_copy *c)
{
	forget_lines(s);
	zeros_reset(s);
	state_copy(&s->st, &c->st);
	memcpy(s->line, c->line, c->st.nr_lines * sizeof(*c->line));
	memcpy(s->node, c->node, c->st.nr_nodes * sizeof(*c->node));
	for (uint32_t i = 0; i < s->st.nr_lines; i++) {
		s->at[s->line[i].number] = (uint16_t)(i + 1);
		s->some[s->line[i].number / CHUNK]++;
	}
	for (unsigned int h = 0; c->st.zeros && h < SIM_HOSTS; h++)
		memcpy(s->zero[h], c->zero[h], s->zero_words * sizeof(uint64_t));
}

void sim_copy_free(struct sim_copy *c)
{
	if (!c)
		return;
	for (unsigned int h = 0; h < SIM_HOSTS; h++)
		free(c->zero[h]);
	free(c->line);
	free(c->node);
	free(c);
}
