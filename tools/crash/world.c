// SPDX-License-Identifier: GPL-2.0-only
/*
 * world.c - see world.h.
 *
 * A process is a coroutine. It gives way when it waits for a lock, when it
 * settles, or when the next operation begins while it is in the middle: then
 * it is paused until whoever runs has ended or waits. A process that is killed
 * or whose host crashed is never resumed.
 */
#include "world.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <ucontext.h>

#include "fsck.h"
#include "node.h"
#include "testkernel.h"

#ifdef __SANITIZE_ADDRESS__
#define STACK (1U << 20)
#else
#define STACK (192U << 10)
#endif

#define HOSTS 4			/* host pages too: the last host finds the last page */
#define PROCESSES 4		/* at once; a sequence has no more operations than that at a time */
#define PORT_ORACLE 5		/* process numbers for the simulator */
#define PORT_KERNEL 6		/* + host */
#define BATCHES 16
#define ENTRIES 2		/* of a batch */
#define EVICTIONS 1		/* seen between two looks, in one run that is not random */
#define MAKING 4		/* mkfs, one after the other, without one that returned */
#define AREA TARNFS_AREA_MIN
#define DATA_START (TARNFS_LOG_OFF + 4 * AREA)	/* three areas, aligned to 2 MiB */
#define DEVICE (DATA_START + TARNFS_HUGE)
#define FILE_SIZE 100		/* more than a line, less than two */

/* ---- memory of the simulated world ------------------------------------- */

/*
 * Processes and kernels allocate from two arenas, which a new run takes back
 * whole: so a process can vanish anywhere, and the kernels as they are at the
 * start are restored by one memcpy().
 */
void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void __real_free(void *p);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);
void *__wrap_reallocarray(void *p, size_t n, size_t size);
void __wrap_free(void *p);
ssize_t __wrap_getrandom(void *buf, size_t len, unsigned int flags);
time_t __wrap_time(time_t *t);
int __wrap_usleep(unsigned int us);

struct arena {
	uint8_t *base;
	size_t size, top;
};

static struct arena user_arena = { .size = 64U << 20 }, kernel_arena = { .size = 32U << 20 };
static bool simulated;		/* allocations are the world's */
static unsigned int in_kernel;

static bool in_arena(const struct arena *a, const void *p)
{
	return a->base && (const uint8_t *)p >= a->base && (const uint8_t *)p < a->base + a->size;
}

static void *arena_alloc(struct arena *a, size_t size)
{
	size_t need = ((size + 15) & ~(size_t)15) + 16;
	uint8_t *p = a->base + a->top;

	if (need > a->size - a->top) {
		fprintf(stderr, "explore: an arena is full\n");
		abort();
	}
	a->top += need;
	*(size_t *)p = size;
	return p + 16;
}

void *__wrap_malloc(size_t size)
{
	return simulated ? arena_alloc(in_kernel ? &kernel_arena : &user_arena, size) :
			   __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
	return simulated ? memset(__wrap_malloc(n * size), 0, n * size) : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t size)
{
	void *new;

	if (!simulated && !in_arena(&user_arena, p) && !in_arena(&kernel_arena, p))
		return __real_realloc(p, size);
	new = __wrap_malloc(size);
	if (p) {
		size_t old = *(size_t *)((uint8_t *)p - 16);

		memcpy(new, p, old < size ? old : size);
	}
	return new;
}

void *__wrap_reallocarray(void *p, size_t n, size_t size)
{
	return __wrap_realloc(p, n * size);
}

void __wrap_free(void *p)
{
	if (p && !in_arena(&user_arena, p) && !in_arena(&kernel_arena, p))
		__real_free(p);
}

/* Nonces and uuids: the same in each run. */
static uint64_t random_count;

ssize_t __wrap_getrandom(void *buf, size_t len, unsigned int flags)
{
	(void)flags;
	for (size_t i = 0; i < len; i += 8) {
		uint64_t v = ++random_count * 0x9e3779b97f4a7c15ULL;

		v ^= v >> 31;
		memcpy((uint8_t *)buf + i, &v, len - i < 8 ? len - i : 8);
	}
	return (ssize_t)len;
}

time_t __wrap_time(time_t *t)
{
	if (t)
		*t = 1700000000;
	return 1700000000;
}

int __wrap_usleep(unsigned int us)
{
	(void)us;
	return 0;
}

/* ---- the world ---------------------------------------------------------- */

struct host {
	struct testkernel *kernel;	/* NULL: not mounted */
	struct tarn_host_id id;
	struct tarn_super sb;		/* as of the mount */
};

struct entry {
	char name[8];
	uint8_t type;
	uint64_t size;
	bool pattern;			/* else zeros */
	bool in_first;			/* in the directory that is entry 0, else in the root */
	const char *target;
};

enum fate {
	RUNNING,	/* or nobody knows any more: all of it, or nothing */
	ACKED,		/* acknowledged or seen: always there */
	NEVER,		/* refused */
};

struct batch {
	enum fate fate;
	uint64_t since;		/* it is ACKED */
	char op;
	unsigned int count;
	struct entry entry[ENTRIES];
};

struct model {			/* one file system as it should be */
	bool there;
	uint8_t uuid[16];
	unsigned int count;
	struct batch batch[BATCHES];
};

enum waiting { FREE, READY, FOR_LOCK, FOR_PAGE, SETTLING };

struct process {
	struct tarn_kernel kernel;	/* first: what the library calls */
	enum waiting waiting;
	unsigned int host, number;
	char op;
	struct testkernel *real;	/* as of its start: a mount that is gone is gone */
	struct tarn_session s;
	uint64_t sets;			/* reservations it holds */
	bool has_lock, has_page, claiming;
	uint32_t settle;		/* processes whose claims it waits for */
	struct batch *batch;
	uint64_t begun;
	bool fresh;			/* something happened since a kill was offered */
	bool news;			/* ... since the next operation was offered */
	ucontext_t context;
	uint8_t *stack;
};

static struct {
	struct host host[HOSTS];
	struct model now;
	/* while mkfs runs, or since it was killed: what it, and others before it, were making */
	struct model next[MAKING];
	unsigned int making;
	uint64_t clock;
	unsigned int names, made;
	unsigned int evictions;		/* that may still be seen between two looks at a line */
	bool raced;			/* two hosts were claiming a page at once */
	unsigned int locked, page_locked;	/* masks of hosts */
	/* a takeover has begun, for good; has read where the old log ends: at this seq */
	bool sealing, taken;
	uint64_t taken_seq;
} w;

static struct process process[PROCESSES];
static struct sim *sim;
static const char *ops;			/* still to begin */
static struct process *current;		/* NULL: nobody, the oracle */
static ucontext_t scheduler;
static jmp_buf leave_env;
static enum world_end result;
static char fault_text[4096];
bool world_tracing;
uint64_t world_recoveries;

static struct {
	struct sim_copy *sim;
	uint8_t *kernels;
	size_t kernels_size;
	uint64_t random;
	unsigned char world[sizeof(w)];
} start[WORLD_STARTS];

const char *world_fault(void)
{
	return fault_text;
}

static void leave(enum world_end end) __attribute__((noreturn));

static void leave(enum world_end end)
{
	result = end;
	in_kernel = 0;
	if (current) {
		setcontext(&scheduler);
		abort();
	}
	longjmp(leave_env, 1);
}

static void wrong(const char *fmt, ...) __attribute__((noreturn, format(printf, 1, 2)));

static void wrong(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(fault_text, sizeof(fault_text), fmt, ap);
	va_end(ap);
	leave(WORLD_WRONG);
}

/* What testkernel.c asserts with: cmocka is not linked. */
void _assert_true(const uintmax_t value, const char *expression, const char *file, int line);
void _assert_int_equal(uintmax_t a, uintmax_t b, const char *file, int line);
void _fail(const char *file, int line);
void print_error(const char *fmt, ...);

void _assert_true(const uintmax_t value, const char *expression, const char *file, int line)
{
	if (!value)
		wrong("%s:%d: not so: %s", file, line, expression);
}

void _assert_int_equal(uintmax_t a, uintmax_t b, const char *file, int line)
{
	if (a != b)
		wrong("%s:%d: %ju is not %ju", file, line, a, b);
}

static char assert_text[512];

void _fail(const char *file, int line)
{
	wrong("%s:%d: %s", file, line, assert_text);
}

void print_error(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(assert_text, sizeof(assert_text), fmt, ap);
	va_end(ap);
}

/* ---- scheduling --------------------------------------------------------- */

static struct process *next_new;	/* to be begun by the scheduler */

static bool op_possible(char op);
static void op_begin(char op);

/* Back to the scheduler; returns when this process is resumed. */
static void give_way(struct process *p, enum waiting why)
{
	p->waiting = why;
	swapcontext(&p->context, &scheduler);
}

static void process_gone(struct process *p)
{
	if (p->real && w.host[p->host].kernel == p->real) {
		struct tarn_kernel *k = testkernel_ops(p->real);

		in_kernel++;
		for (int i = 0; i < 64; i++)
			if (p->sets >> i & 1)
				k->ops->release(k, i);
		if (p->has_lock)
			k->ops->unlock(k);
		if (p->has_page)
			k->ops->page_unlock(k, 0);
		in_kernel--;
	}
	if (p->has_lock)
		w.locked &= ~(1U << p->host);
	if (p->has_page)
		w.page_locked &= ~(1U << p->host);
	sim_process_gone(sim, p->number);
	p->waiting = FREE;
	p->sets = 0;
	p->has_lock = p->has_page = p->claiming = false;
	for (int i = 0; i < PROCESSES; i++)
		process[i].settle &= ~(1U << p->number);
}

static void process_leave(struct process *p) __attribute__((noreturn));

/* The process that runs is gone. */
static void process_leave(struct process *p)
{
	process_gone(p);
	current = NULL;
	setcontext(&scheduler);
	abort();
}

static void host_crash(unsigned int h)
{
	for (int i = 0; i < PROCESSES; i++) {
		struct process *p = &process[i];

		if (p->waiting == FREE || p->host != h)
			continue;
		p->waiting = FREE;
		p->sets = 0;
		p->has_lock = p->has_page = p->claiming = false;
		for (int j = 0; j < PROCESSES; j++)
			process[j].settle &= ~(1U << p->number);
	}
	w.host[h].kernel = NULL;
	w.locked &= ~(1U << h);
	w.page_locked &= ~(1U << h);
	/* another boot */
	w.host[h].id.boot_id[15]++;
	sim_crash(sim, h);
}

/*
 * What may happen at this point of the process that runs: the next operation
 * begins (switching), the process is killed, its host crashes, or all hosts
 * lose their power and what is left is looked at. crash: offered at those
 * points alone where something becomes certain next; kill: when something
 * happened since it was offered last. storing: in the middle of a write; of mkfs nobody can tell
 * that from its end, since no other host stores to these lines before there is a superblock.
 */
static void point(struct process *p, bool switching, bool crash, bool storing)
{
	char op = *ops;
	enum { GO, NEXT, KILL, CRASH, POWER } ways[5];
	unsigned int n = 0;

	ways[n++] = GO;
	if (op == 'x') {
		if (p->fresh)
			ways[n++] = KILL;
		p->fresh = false;
	} else if (op == 'X') {
		if (crash)
			ways[n++] = CRASH;
	} else if (op && (p->news || switching) && !(p->op == 'K' && storing)) {
		if (op_possible(op))
			ways[n++] = NEXT;
		p->news = false;
	}
	if (crash)
		ways[n++] = POWER;
	if (n == 1)
		return;
	switch (ways[world_ask(n, true)]) {
	case GO:
		return;
	case NEXT:
		world_trace("-- %s of host %u is paused", world_op_text(p->op), p->host);
		ops++;
		op_begin(op);
		if (p->waiting == FREE) {	/* mkfs: the other hosts are off */
			current = NULL;
			setcontext(&scheduler);
		}
		give_way(p, READY);
		world_trace("-- %s of host %u goes on", world_op_text(p->op), p->host);
		return;
	case KILL:
		world_trace("-- %s of host %u is killed", world_op_text(p->op), p->host);
		ops++;
		process_leave(p);
	case CRASH:
		world_trace("-- host %u crashes", p->host);
		ops++;
		host_crash(p->host);
		current = NULL;
		setcontext(&scheduler);
		abort();
	case POWER:
		world_trace("-- the power fails, of all hosts");
		/* looked at from outside of any process */
		ops = "!";
		current = NULL;
		setcontext(&scheduler);
		abort();
	}
}

/* Is that operation one that do not care for what this read returns? */
static bool cares_for_reads(char op)
{
	/* what logplay stores nobody reads but fsck and itself */
	return op != 'l' && op != 'L';
}

/*
 * The lines of a superblock are read at once and have one checksum: it is the newest, or as it
 * was, or any mix spoils it, whichever it is. So of mixes those are asked about in which one
 * line differs from all others, and those that begin with an old one.
 */
static struct {
	enum { BEGINS, NEWEST, OLDEST, SPOILT } lines;	/* so far */
} unit;

static void on_step(void *arg, const struct sim_step *st)
{
	struct process *p = current;

	(void)arg;
	if (world_tracing) {
		static const char *const names[] = { "read", "write", "stored", "write back",
						     "invalidate", "fence" };
		char name[64];

		sim_name(&w.host[st->host].sb, st->off, name, sizeof(name));
		if (st->op == SIM_OP_FENCE)
			world_trace("   host %u %s", st->host, names[st->op]);
		else
			world_trace("   host %u %s %s %zu", st->host, names[st->op], name, st->len);
	}
	/* a read of lines that belong together begins */
	if (st->op == SIM_OP_READ)
		unit.lines = BEGINS;
	if (!p || in_kernel)
		return;
	point(p, st->op == SIM_OP_READ && *ops && cares_for_reads(*ops), st->settles,
	      st->op == SIM_OP_STORED);
	if (st->op != SIM_OP_READ && (st->op != SIM_OP_INVALIDATE || st->settles))
		p->fresh = p->news = true;
}

static bool in_super(uint64_t off)
{
	return off < TARNFS_SUPER2_OFF + TARNFS_SUPER_LEN && off % TARNFS_SUPER2_OFF < TARNFS_SUPER_LEN;
}

static unsigned int ask_of_unit(const struct sim_question *q)
{
	const unsigned int oldest = q->answers - 1;
	unsigned int a = 0;

	switch (unit.lines) {
	case BEGINS:
		a = world_ask(q->answers, false);
		unit.lines = !a ? NEWEST : a == oldest ? OLDEST : SPOILT;
		break;
	case NEWEST:
		a = world_ask(2, false) ? oldest : 0;
		unit.lines = a ? SPOILT : NEWEST;
		break;
	case OLDEST:
		a = world_ask(2, false) ? 0 : oldest;
		unit.lines = a ? OLDEST : SPOILT;
		break;
	case SPOILT:
		break;
	}
	return a;
}

/* Answers to the simulator. */
static unsigned int on_question(void *arg, const struct sim_question *q)
{
	unsigned int a;

	(void)arg;
	/*
	 * What the bytes of a file to come were before, or a line that is overwritten as a
	 * whole: the newest. What is seen of it is a mix that no checksum fits, or that nobody
	 * can know of.
	 */
	if (q->store && (q->whole || q->off >= DATA_START))
		return 0;
	if (q->again && !w.evictions && !world_random)
		return q->before;
	a = !q->store && in_super(q->off) ? ask_of_unit(q) : world_ask(q->answers, false);
	if (q->again && a != q->before && w.evictions)
		w.evictions--;
	if (world_tracing) {
		char name[64];

		sim_name(&w.host[0].sb, q->off, name, sizeof(name));
		world_trace("   %s: %s: %u of %u", name,
			    q->what == SIM_READ ? "content that is read, 0 the newest" :
			    q->what == SIM_MEMORY ? "content that survived, 0 the newest" :
						    "another host's copy was written before", a,
			    q->answers);
	}
	return a;
}

static bool line_fits(const uint8_t line[TARNFS_LINE], const uint8_t uuid[16])
{
	static const uint8_t zero[4];
	uint32_t crc = tarn_crc32c(tarn_crc32c(tarn_crc32c(0, uuid, 16), line, TARNFS_LINE - 4), zero, 4),
		 stored;

	memcpy(&stored, line + TARNFS_LINE - 4, 4);
	return le32toh(stored) == crc;
}

/*
 * A line of a host page that has a checksum, and it fits under no uuid that there is: whoever
 * reads it learns that it is bad, and looks at nothing else of it. Or a line of a superblock in
 * the middle of a store: so is the superblock.
 */
static bool on_garbage(void *arg, uint64_t off, const uint8_t line[TARNFS_LINE], bool torn)
{
	uint64_t in = off - (off < TARNFS_MIRROR_OFF ? TARNFS_HOSTS_OFF : TARNFS_MIRROR_OFF);

	(void)arg;
	if (in_super(off))
		return torn;
	if (off < TARNFS_HOSTS_OFF || in >= HOSTS * TARNFS_HOST_STRIDE ||
	    in % TARNFS_HOST_STRIDE / TARNFS_LINE > TARNFS_LINE_QUIESCE)
		return false;
	if (tarn_all_zero(line, TARNFS_LINE) || line_fits(line, w.now.uuid))
		return false;
	for (unsigned int i = 0; i < w.making; i++)
		if (line_fits(line, w.next[i].uuid))
			return false;
	return true;
}

/* ---- the kernel as a process sees it ------------------------------------- */

static struct process *to_process(struct tarn_kernel *k)
{
	return (struct process *)k;
}

static struct tarn_kernel *enter(struct tarn_kernel *k, const char *what)
{
	struct process *p = to_process(k);

	if (current)
		point(p, true, false, false);
	world_trace("   host %u kernel: %s", p->host, what);
	in_kernel++;
	return testkernel_ops(p->real);
}

static int done(struct tarn_kernel *k, int ret)
{
	struct process *p = to_process(k);

	in_kernel--;
	p->fresh = p->news = true;
	return ret;
}

static int k_status(struct tarn_kernel *k, struct tarnfs_status *st)
{
	struct tarn_kernel *real = testkernel_ops(to_process(k)->real);

	return real->ops->status(real, st);
}

/* The kernel zeroes what the caller will not write: a tail, or all of it. */
static void kernel_zero(unsigned int host, uint64_t off, uint64_t len)
{
	struct tarn_media *m = sim_media(sim, host, PORT_KERNEL + host);
	static const uint8_t zeros[TARNFS_BLOCK];

	if (!len)
		return;
	tarn_media_write(m, off, zeros, len);
	tarn_media_writeback(m, off, len);
	tarn_media_fence(m);
}

static int k_reserve(struct tarn_kernel *k, struct tarnfs_reserve_item *items, uint32_t count,
		     int *set, uint32_t *failed)
{
	struct tarn_kernel *real = enter(k, "RESERVE");
	int ret = real->ops->reserve(real, items, count, set, failed);

	if (!ret) {
		to_process(k)->sets |= 1ULL << *set;
		for (uint32_t i = 0; i < count; i++) {
			uint64_t from = items[i].flags & TARNFS_RESERVE_ZERO ? 0 : items[i].size;

			kernel_zero(to_process(k)->host, items[i].off + from, items[i].len - from);
		}
	}
	return done(k, ret);
}

static void k_release(struct tarn_kernel *k, int set)
{
	struct tarn_kernel *real = enter(k, "close of the reservation");

	real->ops->release(real, set);
	to_process(k)->sets &= ~(1ULL << set);
	done(k, 0);
}

static int k_reserve_open(struct tarn_kernel *k, int set, uint64_t ino)
{
	(void)k;
	(void)set;
	(void)ino;
	return -EOPNOTSUPP;
}

static int k_apply(struct tarn_kernel *k, struct tarnfs_apply *args, const struct tarnfs_op *list,
		   const char *strings)
{
	struct tarn_kernel *real = enter(k, args->flags & TARNFS_APPLY_CHECK ? "APPLY (check)" :
					    args->flags & TARNFS_APPLY_STAGE ? "APPLY (stage)" :
					    args->flags & TARNFS_APPLY_AT_END ? "APPLY (at end)" :
										"APPLY");

	return done(k, real->ops->apply(real, args, list, strings));
}

static int k_shutdown(struct tarn_kernel *k)
{
	struct tarn_kernel *real = enter(k, "SHUTDOWN");

	return done(k, real->ops->shutdown(real));
}

static int k_lock(struct tarn_kernel *k)
{
	struct process *p = to_process(k);
	struct tarn_kernel *real = enter(k, "append lock");
	int ret;

	in_kernel--;
	while (w.locked >> p->host & 1)
		give_way(p, FOR_LOCK);
	in_kernel++;
	w.locked |= 1U << p->host;
	p->has_lock = true;
	ret = real->ops->lock(real);
	return done(k, ret);
}

static void k_unlock(struct tarn_kernel *k)
{
	struct process *p = to_process(k);
	struct tarn_kernel *real = enter(k, "append lock let go");

	real->ops->unlock(real);
	p->has_lock = false;
	w.locked &= ~(1U << p->host);
	done(k, 0);
}

static int k_page_lock(struct tarn_kernel *k, uint16_t page)
{
	struct process *p = to_process(k);
	struct tarn_kernel *real = enter(k, "page lock");
	int ret;

	in_kernel--;
	while (w.page_locked >> p->host & 1)
		give_way(p, FOR_PAGE);
	in_kernel++;
	w.page_locked |= 1U << p->host;
	p->has_page = true;
	ret = real->ops->page_lock(real, page);
	return done(k, ret);
}

static void k_page_unlock(struct tarn_kernel *k, uint16_t page)
{
	struct process *p = to_process(k);
	struct tarn_kernel *real = enter(k, "page lock let go");

	real->ops->page_unlock(real, page);
	p->has_page = false;
	w.page_locked &= ~(1U << p->host);
	done(k, 0);
}

static const struct tarn_kernel_ops kernel_ops = {
	.status = k_status,
	.reserve = k_reserve,
	.release = k_release,
	.reserve_open = k_reserve_open,
	.apply = k_apply,
	.shutdown = k_shutdown,
	.lock = k_lock,
	.unlock = k_unlock,
	.page_lock = k_page_lock,
	.page_unlock = k_page_unlock,
};

/* ---- kernels ------------------------------------------------------------- */

/* A reservation is let go of: the kernel gives the range up. */
static void on_flush(void *arg, uint64_t off, uint64_t len)
{
	unsigned int h = (unsigned int)(uintptr_t)arg;

	/* the whole file may be mapped; what was never stored to costs nothing */
	tarn_media_invalidate(sim_media(sim, h, PORT_KERNEL + h), off, len);
}

static struct testkernel *kernel_new(unsigned int h, const struct tarn_super *sb)
{
	struct testkernel *t;

	in_kernel++;
	t = testkernel_new(sb);
	testkernel_flush(t, on_flush, (void *)(uintptr_t)h);
	in_kernel--;
	return t;
}

static uint64_t mix(uint64_t h, uint64_t v)
{
	h = (h ^ v) * 0x9e3779b97f4a7c15ULL;
	return h ^ h >> 29;
}

static uint64_t mix_text(uint64_t h, const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++)
		h = mix(h, (uint8_t)text[i]);
	return h;
}

/* Of the tree as users see it; all: of what is hidden from them too. */
static uint64_t kernel_hash(struct testkernel *t, bool all)
{
	struct tarn_tree *tree = testkernel_tree(t);
	uint64_t h = mix(tree->seq, tree->generation);

	for (u64 ino = 1; ino < tree->next_ino; ino++) {
		const struct tarn_node *n = tarn_find(tree, ino);

		if (!n || (!all && n->state != TARN_NODE_LIVE))
			continue;
		h = mix(mix(h, ino), n->state | (uint64_t)n->type << 8 | (uint64_t)n->mode << 16);
		h = mix(mix(mix(h, n->extent.off), n->extent.len), n->size);
		if (n->state == TARN_NODE_LIVE) {
			h = mix_text(mix(h, n->parent->ino), n->name, n->name_len);
			if (n->type == TARNFS_TYPE_SYMLINK)
				h = mix_text(h, n->target, strlen(n->target));
		}
		if (all)
			h = mix(h, n->flags);
	}
	if (!all)
		return h;
	h = mix(mix(mix(h, tree->next_ino), tree->committed_ino), tree->position);
	return mix(mix(h, tree->nonce), tree->page | (uint64_t)tree->attached << 16 |
					(uint64_t)testkernel_is_shut(t) << 17);
}

/* ---- what the commands do ------------------------------------------------ */

static void session_begin(struct process *p)
{
	struct host *h = &w.host[p->host];
	struct tarn_session *s = &p->s;

	p->kernel.ops = &kernel_ops;
	p->real = h->kernel;
	memset(s, 0, sizeof(*s));
	s->dirfd = s->metafd = -1;
	s->kernel = &p->kernel;
	s->media = sim_media(sim, p->host, p->number);
	s->sb = h->sb;
	k_status(&p->kernel, &s->st);
	s->claim.page = s->st.page;
	s->claim.nonce = s->st.nonce;
}

static int do_mkfs(struct process *p, struct tarn_err *err)
{
	struct tarn_mkfs opt = {
		.dev_size = DEVICE, .hosts = HOSTS, .log_size = AREA,
		.uuid = w.next[w.making - 1].uuid, .owner = w.host[0].id.uuid, .now_sec = 1700000000,
	};
	struct tarn_media *m = sim_media(sim, p->host, p->number);
	struct tarn_mkfs_probe probe;
	struct tarn_super sb, back;
	int ret = tarn_mkfs_plan(&sb, &opt, err);

	if (!ret)
		ret = tarn_mkfs_probe(&probe, m, DEVICE, err);
	if (ret)
		return ret;
	ret = tarn_mkfs_write(m, &sb, &opt, err);
	if (!ret)
		ret = tarn_super_read(&back, m, DEVICE, err);
	if (!ret && memcmp(back.uuid, sb.uuid, 16))
		return tarn_fail(err, ESTALE, "what was read back is another file system");
	return ret;
}

/* Byte i of a file with a pattern. */
static uint8_t pattern(const char *name, uint64_t i)
{
	return (uint8_t)(1 + (mix_text(7, name, strlen(name)) + i * 37) % 255);
}

static int do_append(struct process *p, struct tarn_err *err)
{
	struct batch *b = p->batch;
	struct tarn_reservation r = { .set = -1 };
	struct tarn_new news[ENTRIES];
	struct tarn_media *m;
	int ret;

	session_begin(p);
	m = p->s.media;
	memset(news, 0, sizeof(news));
	for (unsigned int i = 0; i < b->count; i++) {
		const struct entry *e = &b->entry[i];

		news[i].item.type = e->type;
		news[i].item.size = e->size;
		news[i].item.flags = e->size && !e->pattern ? TARNFS_RESERVE_ZERO : 0;
		news[i].parent = e->in_first ? 0 : TARNFS_INO_ROOT;
		news[i].name = e->name;
		news[i].target = e->target;
		news[i].mtime_sec = 1700000000 + (int64_t)i;
		news[i].mode = 0640;
	}
	ret = tarn_reserve_files(&p->s, &r, news, b->count, err);
	for (unsigned int i = 0; !ret && i < b->count; i++) {
		uint8_t bytes[FILE_SIZE];

		if (!b->entry[i].pattern)
			continue;
		for (uint64_t j = 0; j < sizeof(bytes); j++)
			bytes[j] = pattern(b->entry[i].name, j);
		/* write(2), fsync(2) */
		ret = TARN_PLANTED(CP_NO_FSYNC) ?
			      tarn_media_write(m, news[i].item.off, bytes, sizeof(bytes)) :
			      tarn_media_store(m, news[i].item.off, bytes, sizeof(bytes));
	}
	if (!ret)
		ret = tarn_commit(&p->s, &r, err);
	if (ret && r.fate == TARN_NOT_COMMITTED)
		b->fate = NEVER;
	if (!ret && b->fate != ACKED) {
		b->fate = ACKED;
		b->since = ++w.clock;
	}
	tarn_reservation_drop(&p->s, &r);
	return ret;
}

/* logplay, and the end of a mount */
static int replay_and_publish(struct tarn_session *s, struct tarn_err *err)
{
	struct tarn_kernel *k = s->kernel;
	int64_t n;
	int ret = k->ops->lock(k);

	if (ret)
		return ret;
	n = tarn_replay(s, true, err);
	k->ops->unlock(k);
	if (n < 0)
		return (int)n;
	k->ops->status(k, &s->st);
	ret = k->ops->page_lock(k, s->claim.page);
	if (ret)
		return ret;
	ret = tarn_status_publish(s->media, &s->sb, &s->claim, s->st.generation, s->st.log_host,
				  s->st.seq, err);
	k->ops->page_unlock(k, s->claim.page);
	return ret;
}

static int claim_ready(void *arg, uint16_t page, struct tarn_err *err)
{
	(void)arg;
	(void)page;
	(void)err;
	return 0;
}

/*
 * The one timing assumption: a host that had chosen a page before this claim was written has
 * written its own when the wait is over.
 */
static void claim_written(void *arg, uint16_t page, bool again, bool settle)
{
	struct process *p = arg;

	(void)page;
	(void)again;
	p->claiming = false;
	for (int i = 0; i < PROCESSES; i++)
		process[i].settle &= ~(1U << p->number);
	p->settle = 0;
	if (!settle || !current)
		return;
	for (int i = 0; i < PROCESSES; i++)
		if (process[i].waiting != FREE && process[i].claiming)
			p->settle |= 1U << i;
	world_trace("   host %u waits for 2 s", p->host);
	while (p->settle)
		give_way(p, SETTLING);
}

static void claim_lost(void *arg, uint16_t page)
{
	struct process *p = arg;

	(void)page;
	p->claiming = true;
}

static const struct tarn_claim_steps claim_steps = {
	.ready = claim_ready, .written = claim_written, .lost = claim_lost,
};

static int do_mount(struct process *p, struct tarn_err *err)
{
	struct host *h = &w.host[p->host];
	struct tarn_media *m = sim_media(sim, p->host, p->number);
	struct tarn_claim claim;
	struct testkernel *t;
	struct tarn_super sb;
	int ret = tarn_super_read(&sb, m, DEVICE, err);

	if (ret)
		return ret;
	h->sb = sb;
	/* the operator mounts what is being made over: not promised to work (crash.rst) */
	for (int i = 0; i < PROCESSES; i++)
		if (process[i].waiting != FREE && process[i].op == 'K' &&
		    !memcmp(sb.uuid, w.now.uuid, 16))
			leave(WORLD_PRUNED);
	/* detached: nobody sees it yet, and it is gone when this process is */
	t = kernel_new(p->host, &sb);
	h->kernel = t;
	session_begin(p);
	h->kernel = NULL;
	for (int i = 0; i < PROCESSES; i++)
		w.raced |= process[i].waiting != FREE && process[i].claiming;
	p->claiming = true;
	ret = tarn_claim_take(&p->s.media, &sb, &h->id, -1, &claim_steps, p, &claim, err);
	p->claiming = false;
	if (ret)
		return ret;
	p->s.claim = claim;
	ret = replay_and_publish(&p->s, err);
	if (!ret) {
		h->kernel = t;
	} else {
		struct tarn_err ignored;

		if (!tarn_claim_check(p->s.media, &sb, &claim, &ignored))
			tarn_claim_release(p->s.media, &sb, &claim, &ignored);
	}
	return ret;
}

static int do_logplay(struct process *p, struct tarn_err *err)
{
	session_begin(p);
	return replay_and_publish(&p->s, err);
}

static int do_umount(struct process *p, struct tarn_err *err)
{
	struct host *h = &w.host[p->host];
	struct tarn_media *m = sim_media(sim, p->host, p->number);
	struct tarn_claim claim;
	struct tarn_super sb, was = h->sb;
	int ret;

	session_begin(p);
	claim = p->s.claim;
	/* the mount goes; what is reserved would keep it busy */
	h->kernel = NULL;
	p->real = NULL;
	p->fresh = p->news = true;
	ret = tarn_super_read(&sb, m, DEVICE, err);
	if (!ret && memcmp(sb.uuid, was.uuid, 16))
		ret = tarn_fail(err, ESTALE, "another file system");
	if (!ret)
		ret = tarn_claim_check(m, &sb, &claim, err);
	if (!ret)
		ret = tarn_claim_release(m, &sb, &claim, err);
	return ret;
}

static int last_seq(void *arg, const struct tarn_rec *rec)
{
	if (!(rec->flags & TARNFS_RECORD_CKPT))
		*(uint64_t *)arg = rec->seq;
	return 0;
}

/*
 * The beginning of a takeover, by the operator's word that the master is off, while it is paused
 * in truth: seal, scan, read where its log ends. From then on whatever is not in there counts
 * for nothing, so nobody may say or apply more. (The library cannot take over yet, but has to
 * keep to what a newer one does.) Nothing follows it: the log stays sealed.
 */
static int do_takeover(struct process *p, struct tarn_err *err)
{
	struct tarn_control control = { .state = TARNFS_CONTROL_SEALING };
	struct tarnfs_control raw;
	struct tarn_current cur, now;
	struct tarn_session *s = &p->s;
	uint32_t pos = TARNFS_LOG_HEADER_UNITS;
	struct tarn_log log;
	uint16_t page;
	uint64_t seq;
	int ret;

	session_begin(p);
	page = s->claim.page;
	ret = tarn_scan(s->media, &s->sb, &cur, NULL, err);
	if (ret)
		return ret;
	control.generation = cur.generation + 1;
	control.area_off = s->sb.area[1].off;
	control.area_len = s->sb.area[1].len;
	tarn_control_encode(&raw, &control, page, s->sb.uuid);
	w.sealing = true;
	ret = tarn_media_store(s->media, tarn_line_off(&s->sb, page, TARNFS_LINE_CONTROL), &raw,
			       sizeof(raw));
	if (!ret)
		ret = tarn_media_store(s->media, tarn_mirror_line_off(&s->sb, page,
								      TARNFS_LINE_CONTROL),
				       &raw, sizeof(raw));
	if (!ret)
		ret = tarn_scan(s->media, &s->sb, &now, NULL, err);
	if (!ret)
		ret = tarn_log_open(&log, s->media, &s->sb, &cur, err);
	if (ret)
		return ret;
	seq = log.base_seq;
	ret = tarn_log_walk(&log, s->media, &pos, last_seq, &seq, err);
	if (!ret) {
		w.taken = true;
		w.taken_seq = seq;
	}
	return ret;
}

static void check_taken(void)
{
	for (unsigned int h = 0; w.taken && h < HOSTS; h++) {
		uint64_t seq = w.host[h].kernel ? testkernel_tree(w.host[h].kernel)->seq : 0;

		if (seq > w.taken_seq)
			wrong("host %u has applied seq %" PRIu64 " of a log that the takeover ended at "
			      "%" PRIu64, h, seq, w.taken_seq);
	}
}

/* A host page is one host's. */
static void check_pages(unsigned int h)
{
	for (unsigned int o = 0; o < HOSTS; o++)
		if (o != h && w.host[o].kernel && !memcmp(w.host[o].sb.uuid, w.host[h].sb.uuid, 16) &&
		    testkernel_tree(w.host[o].kernel)->page == testkernel_tree(w.host[h].kernel)->page)
			wrong("hosts %u and %u have both taken host page %u", h, o,
			      testkernel_tree(w.host[h].kernel)->page);
}

/* ---- operations ---------------------------------------------------------- */

const char *world_op_text(char op)
{
	switch (op) {
	case 'K': return "mkfs";
	case 'd': return "mkdir";
	case 'c': return "creat";
	case 'p': return "cp";
	case 's': return "ln -s";
	case 'M': return "mount (master)";
	case 'm': return "mount (client)";
	case 'l': return "logplay (client)";
	case 'L': return "logplay (master)";
	case 'u': return "umount (client)";
	case 'U': return "umount (master)";
	case 'x': return "kill";
	case 'X': return "host crash";
	case 'T': return "takeover (begun)";
	default: return "?";
	}
}

static bool busy(unsigned int h)
{
	for (int i = 0; i < PROCESSES; i++)
		if (process[i].waiting != FREE && process[i].host == h)
			return true;
	return false;
}

/* Who would mount next, or HOSTS. */
static unsigned int next_client(void)
{
	for (unsigned int h = 1; h < HOSTS; h++)
		if (!w.host[h].kernel && !busy(h))
			return h;
	return HOSTS;
}

static bool op_possible(char op)
{
	switch (op) {
	case 'K':	/* --force --hosts-fenced; the local mount is exclusive */
		return !busy(0) && !w.sealing;
	case 'T':
		return w.host[0].kernel && w.host[1].kernel && !w.sealing;
	case 'd': case 'c': case 'p': case 's': case 'L':
		return w.host[0].kernel;
	case 'U':	/* busy otherwise */
		return w.host[0].kernel && !busy(0);
	case 'M':
		return !w.host[0].kernel && !busy(0) && (w.now.there || w.making);
	case 'm':
		return next_client() < HOSTS && (w.now.there || w.making);
	case 'l':
		return w.host[1].kernel;
	case 'u':
		return w.host[1].kernel && !busy(1);
	default:
		return false;
	}
}

static void new_entry(struct batch *b, uint8_t type, char letter, uint64_t size)
{
	struct entry *e = &b->entry[b->count++];

	memset(e, 0, sizeof(*e));
	snprintf(e->name, sizeof(e->name), "%c%u", letter, w.names++ % 1000);
	e->type = type;
	e->size = size;
}

static struct batch *new_batch(char op)
{
	struct batch *b = &w.now.batch[w.now.count++];

	if (w.now.count > BATCHES)
		abort();
	memset(b, 0, sizeof(*b));
	b->op = op;
	switch (op) {
	case 'd':
		new_entry(b, TARNFS_TYPE_DIRECTORY, 'd', 0);
		break;
	case 'c':	/* two files at once, one of them of some size */
		new_entry(b, TARNFS_TYPE_FILE, 'c', 0);
		new_entry(b, TARNFS_TYPE_FILE, 'c', FILE_SIZE);
		break;
	case 'p':	/* a directory with a file in it */
		new_entry(b, TARNFS_TYPE_DIRECTORY, 'p', 0);
		new_entry(b, TARNFS_TYPE_FILE, 'p', FILE_SIZE);
		b->entry[1].pattern = b->entry[1].in_first = true;
		break;
	case 's':
		new_entry(b, TARNFS_TYPE_SYMLINK, 's', 0);
		b->entry[0].target = "../to";
		break;
	}
	return b;
}

static void check_host(unsigned int h, uint64_t begun);

/* The file system of that uuid is the one that counts from now on. */
static bool adopt(const uint8_t uuid[16])
{
	for (unsigned int i = 0; i < w.making; i++) {
		if (memcmp(w.next[i].uuid, uuid, 16))
			continue;
		if (memcmp(w.now.uuid, uuid, 16))
			w.now = w.next[i];
		w.now.there = true;
		w.making = 0;
		return true;
	}
	return false;
}

/* What the operation returned. */
static void op_done(struct process *p, int ret, const struct tarn_err *err)
{
	bool no_fs = w.making || !w.now.there;

	world_trace("-- %s of host %u returns %d%s%s", world_op_text(p->op), p->host, ret,
		    ret ? ": " : "", ret ? err->text : "");
	/*
	 * Two hosts that store to one line may leave a mix of both there, which no checksum
	 * fits: then that page counts as claimed, and there was none to spare.
	 */
	if (ret == -EUSERS && w.raced)
		return;
	if (ret && w.sealing)
		return;
	if (ret && (p->op == 'K' || !no_fs))
		wrong("%s of host %u fails for no reason: %s (%s)", world_op_text(p->op), p->host,
		      err->text, strerror(-ret));
	if (ret)
		return;
	if (p->op == 'K' && w.making)
		adopt(w.next[w.making - 1].uuid);
	else if (p->op == 'M' || p->op == 'm')
		adopt(w.host[p->host].sb.uuid);
	if (w.host[p->host].kernel && p->op != 'T') {
		check_pages(p->host);
		check_host(p->host, p->begun);
	}
	check_taken();
}

static void process_main(int number)
{
	struct process *p = &process[number];
	struct tarn_err err = { "" };
	int ret = 0;

	switch (p->op) {
	case 'K':
		ret = do_mkfs(p, &err);
		break;
	case 'd': case 'c': case 'p': case 's':
		ret = do_append(p, &err);
		break;
	case 'M': case 'm':
		ret = do_mount(p, &err);
		break;
	case 'l': case 'L':
		ret = do_logplay(p, &err);
		break;
	case 'u': case 'U':
		ret = do_umount(p, &err);
		break;
	case 'T':
		ret = do_takeover(p, &err);
		break;
	}
	op_done(p, ret, &err);
	process_leave(p);
}

static void op_begin(char op)
{
	struct process *p = NULL;

	for (int i = 0; !p && i < PROCESSES; i++)
		if (process[i].waiting == FREE)
			p = &process[i];
	if (!p)
		leave(WORLD_PRUNED);
	p->op = op;
	p->host = op == 'm' ? next_client() : op == 'l' || op == 'u' || op == 'T' ? 1 : 0;
	p->waiting = READY;
	p->fresh = p->news = true;
	p->real = NULL;
	p->batch = strchr("dcps", op) ? new_batch(op) : NULL;
	if (op == 'K') {
		/* the operator's word is true: the others are off */
		for (unsigned int h = 1; h < HOSTS; h++)
			host_crash(h);
		w.host[0].kernel = NULL;
		if (w.making == MAKING)
			leave(WORLD_PRUNED);
		memset(&w.next[w.making], 0, sizeof(w.next[0]));
		memset(w.next[w.making].uuid, 0x51 + (int)w.made, 16);
		w.made++;
		w.making++;
	}
	p->begun = ++w.clock;
	world_trace("-- %s of host %u begins", world_op_text(op), p->host);
	getcontext(&p->context);
	p->context.uc_stack.ss_sp = p->stack;
	p->context.uc_stack.ss_size = STACK;
	p->context.uc_link = NULL;
	makecontext(&p->context, (void (*)(void))process_main, 1, p->number);
	next_new = p;
}

static bool can_run(const struct process *p)
{
	switch (p->waiting) {
	case READY:
		return true;
	case FOR_LOCK:
		return !(w.locked >> p->host & 1);
	case FOR_PAGE:
		return !(w.page_locked >> p->host & 1);
	case SETTLING:
		return !p->settle;
	default:
		return false;
	}
}

static void run_process(struct process *p)
{
	p->waiting = READY;
	current = p;
	next_new = NULL;
	swapcontext(&scheduler, &p->context);
	current = NULL;
	if (result != WORLD_FINE)
		longjmp(leave_env, 1);
}

/* Until all operations are done, and nobody runs. */
static void schedule(void)
{
	while (*ops != '!') {
		struct process *ready[PROCESSES];
		unsigned int n = 0, ways, way, waiting = 0;

		if (next_new) {
			run_process(next_new);
			continue;
		}
		for (int i = 0; i < PROCESSES; i++) {
			waiting += process[i].waiting != FREE;
			if (can_run(&process[i]))
				ready[n++] = &process[i];
		}
		if (waiting && !n)
			wrong("a deadlock: %u processes wait for each other", waiting);
		ways = n;
		if (*ops && *ops != 'x' && (*ops == 'X' ? !n : op_possible(*ops)))
			ways++;
		if (!ways) {
			if (*ops)
				leave(WORLD_PRUNED);
			return;
		}
		way = ways > 1 ? world_ask(ways, false) : 0;
		if (way < n) {
			run_process(ready[way]);
			continue;
		}
		if (*ops == 'X') {
			unsigned int h = world_ask(2, false);

			world_trace("-- host %u crashes", h);
			ops++;
			host_crash(h);
			continue;
		}
		op_begin(*ops++);
	}
}

/* ---- the oracle ---------------------------------------------------------- */

static struct process oracle = { .number = PORT_ORACLE };

static struct process *as(unsigned int h)
{
	oracle.host = h;
	oracle.op = 'o';
	oracle.has_lock = oracle.has_page = oracle.claiming = false;
	oracle.sets = 0;
	sim_process_gone(sim, PORT_ORACLE);
	return &oracle;
}

/* The bytes of a file, read on host h by the rules. */
static void check_bytes(unsigned int h, const struct tarn_node *node, const struct entry *e)
{
	struct tarn_media *m = sim_media(sim, h, PORT_KERNEL + h);
	uint8_t bytes[2 * TARNFS_LINE];

	if (!(node->flags & TARN_NODE_MADE_HERE))
		tarn_media_invalidate(m, node->extent.off, node->extent.len);
	tarn_media_read(m, node->extent.off, bytes, sizeof(bytes));
	for (uint64_t i = 0; i < sizeof(bytes); i++) {
		uint8_t want = e->pattern && i < e->size ? pattern(e->name, i) : 0;

		if (bytes[i] != want)
			wrong("host %u: %s: byte %" PRIu64 " is 0x%02x, not 0x%02x", h, e->name, i,
			      bytes[i], want);
	}
	for (unsigned int o = 0; o < HOSTS; o++)
		if (sim_is_dirty(sim, o, node->extent.off, node->extent.len))
			wrong("host %u sees %s, and host %u has bytes of it that are not in memory", h,
			      e->name, o);
}

/*
 * The tree of a mounted host: all of each batch or nothing, and all that was there for sure
 * before it began to replay.
 */
static void check_model(unsigned int h, uint64_t begun)
{
	struct tarn_tree *tree = testkernel_tree(w.host[h].kernel);
	uint64_t known = 0;
	const char *why = "?";

	for (unsigned int i = 0; i < w.now.count; i++) {
		struct batch *b = &w.now.batch[i];
		const struct tarn_node *dir = tree->root;
		unsigned int there = 0;

		for (unsigned int j = 0; j < b->count; j++) {
			const struct entry *e = &b->entry[j];
			const struct tarn_node *in = e->in_first ? dir : tree->root, *n;

			n = in ? tarn_lookup(tree, in, e->name, strlen(e->name)) : NULL;
			if (!j && n && n->type == TARNFS_TYPE_DIRECTORY)
				dir = n;
			if (!n)
				continue;
			there++;
			if (n->type != e->type || n->size != (e->target ? strlen(e->target) : e->size) ||
			    n->mode != 0640 || n->mtime_sec != 1700000000 + (int64_t)j ||
			    (e->target && strcmp(n->target, e->target)))
				wrong("host %u: %s is not what was made", h, e->name);
			if (e->size)
				check_bytes(h, n, e);
		}
		known += there;
		if (there && there < b->count)
			wrong("host %u: %s made a batch of %u, and %u of it are there", h,
			      world_op_text(b->op), b->count, there);
		if (there && b->fate == NEVER)
			wrong("host %u: %s is there, and its %s failed", h, b->entry[0].name,
			      world_op_text(b->op));
		if (!there && b->fate == ACKED && b->since < begun)
			wrong("host %u: %s is not there, and its %s returned 0 or some host saw it", h,
			      b->entry[0].name, world_op_text(b->op));
		if (there && b->fate != ACKED) {	/* seen */
			b->fate = ACKED;
			b->since = ++w.clock;
		}
	}
	if (tree->root && known + 1 != tree->directories + tree->files + tree->symlinks)
		wrong("host %u: there are names that nobody made", h);
	if (tarn_tree_verify(tree, &why))
		wrong("host %u: the kernel's tree: %s", h, why);
}

/* After an operation: what its host sees counts as seen from now on. */
static void check_host(unsigned int h, uint64_t begun)
{
	in_kernel++;
	check_model(h, begun);
	in_kernel--;
}

static void oracle_fails(const char *what, unsigned int h, int ret, const struct tarn_err *err)
{
	wrong("%s of host %u fails: %s (%s)", what, h, err->text, strerror(-ret));
}

static void oracle_mount(unsigned int h)
{
	struct tarn_err err = { "" };
	int ret = do_mount(as(h), &err);

	if (ret)
		oracle_fails("in the end a mount", h, ret, &err);
	check_model(h, UINT64_MAX);
}

static void oracle_logplay(unsigned int h)
{
	struct tarn_err err = { "" };
	int ret = do_logplay(as(h), &err);

	if (ret)
		oracle_fails("in the end a logplay", h, ret, &err);
	check_model(h, UINT64_MAX);
}

static void oracle_same(void)
{
	uint64_t first = 0;
	unsigned int from = HOSTS;

	for (unsigned int h = 0; h < HOSTS; h++) {
		uint64_t hash;

		if (!w.host[h].kernel)
			continue;
		hash = kernel_hash(w.host[h].kernel, false);
		if (from == HOSTS) {
			first = hash;
			from = h;
		} else if (hash != first) {
			wrong("hosts %u and %u have replayed all, and have different trees", from, h);
		}
	}
}

static void on_finding(void *arg, const struct tarn_fsck_finding *f)
{
	if (f->severity == TARN_FSCK_ERROR)
		snprintf(arg, 512, "%u at 0x%" PRIx64 ": %s", f->number, f->off, f->text);
}

static void oracle_fsck(unsigned int h)
{
	char text[512] = "?";
	struct tarn_fsck f = { .dev_size = DEVICE, .finding = on_finding, .arg = text };
	struct tarn_err err = { "" };
	int ret = tarn_fsck(&f, sim_media(sim, h, PORT_ORACLE), &err);

	if (ret)
		oracle_fails("in the end fsck", h, ret, &err);
	if (f.count[TARN_FSCK_ERROR])
		wrong("in the end fsck finds %" PRIu64 " errors, one of them %s",
		      f.count[TARN_FSCK_ERROR], text);
}

/* Nothing is stuck: a file can be made, and everybody sees it. */
static void oracle_probe(void)
{
	struct process *p = as(0);
	struct tarn_err err = { "" };
	int ret;

	p->batch = new_batch('p');
	ret = do_append(p, &err);
	if (ret)
		oracle_fails("in the end a cp", 0, ret, &err);
	check_model(0, UINT64_MAX);
	for (unsigned int h = 1; h < HOSTS; h++)
		if (w.host[h].kernel)
			oracle_logplay(h);
	oracle_same();
}

/* The same names again: refused, and nothing of it is in the log. */
static void oracle_refused(void)
{
	struct batch again = w.now.batch[w.now.count - 1];
	struct process *p = as(0);
	struct tarn_err err = { "" };
	int ret;

	p->batch = &again;
	ret = do_append(p, &err);
	if (ret != -EEXIST)
		wrong("in the end a cp of what is there returns %d: %s", ret, err.text);
}

static uint64_t model_hash(const struct model *m)
{
	uint64_t h = m->there;

	for (unsigned int i = 0; i < m->count; i++) {
		const struct batch *b = &m->batch[i];

		h = mix(mix(h, b->fate), mix_text(1, b->entry[0].name, sizeof(b->entry[0].name)));
	}
	return mix_text(h, (const char *)m->uuid, sizeof(m->uuid));
}

static uint64_t expectation_hash(void)
{
	uint64_t h = mix(model_hash(&w.now), w.making);

	h = mix(mix(h, w.sealing + 2U * w.taken), w.taken_seq);
	for (unsigned int i = 0; i < w.making; i++)
		h = mix(h, model_hash(&w.next[i]));
	return h;
}

static void everything_crashes(void)
{
	for (unsigned int h = 0; h < HOSTS; h++)
		host_crash(h);
}

/*
 * Which file system is there? One that was being made over, the one being made, or, only while
 * that is under way, none.
 */
static bool oracle_super(void)
{
	struct tarn_err err = { "" };
	struct tarn_super sb;
	int ret = tarn_super_read(&sb, sim_media(sim, 0, PORT_ORACLE), DEVICE, &err);

	if (ret) {
		if ((ret == -ENODATA || ret == -EUCLEAN) && (w.making || !w.now.there))
			return false;
		oracle_fails("in the end reading the superblock", 0, ret, &err);
	}
	if (adopt(sb.uuid))
		return true;
	if (w.now.there && !memcmp(sb.uuid, w.now.uuid, 16)) {
		w.making = 0;	/* mkfs had not destroyed it yet */
		return true;
	}
	wrong("there is a superblock of neither the old nor the new file system");
}

/* All hosts have crashed: what there is must be whole, and go on to work. */
static void recovery(void)
{
	uint64_t hash = mix(sim_hash(sim, true), expectation_hash());

	if (world_seen(hash))
		leave(WORLD_PRUNED);
	world_recoveries++;
	world_trace("-- all hosts start again");
	in_kernel++;
	if (oracle_super()) {
		oracle_mount(0);
		oracle_mount(1);
		oracle_same();
		oracle_fsck(1);
		oracle_probe();
	}
	in_kernel--;
}

/* Nobody has crashed, or nobody more: who is mounted goes on. */
static void going_on(void)
{
	uint64_t hash = mix(sim_hash(sim, false), expectation_hash());

	for (unsigned int h = 0; h < HOSTS; h++)
		hash = mix(hash, w.host[h].kernel ? kernel_hash(w.host[h].kernel, true) : 1);
	if (world_seen(mix(hash, 1)))
		leave(WORLD_PRUNED);
	world_trace("-- the hosts go on");
	in_kernel++;
	/* a mkfs that was killed may yet destroy what is there: nothing is promised */
	if (w.making || !w.now.there) {
		in_kernel--;
		return;
	}
	if (!w.host[0].kernel)
		oracle_mount(0);
	for (unsigned int h = 0; h < HOSTS; h++)
		if (w.host[h].kernel)
			oracle_logplay(h);
	oracle_same();
	oracle_probe();
	oracle_refused();
	oracle_fsck(3);
	everything_crashes();
	oracle_mount(0);
	in_kernel--;
}

/* ---- runs ---------------------------------------------------------------- */

static void host_init(unsigned int h)
{
	struct host *host = &w.host[h];

	memset(host, 0, sizeof(*host));
	memset(host->id.uuid, 0xa0 + (int)h, 16);
	memset(host->id.boot_id, 0xb0 + (int)h, 16);
	host->id.page = -1;
	snprintf(host->id.node_name, sizeof(host->id.node_name), "host%u", h);
}

/* Old bytes wherever anybody might take them for something. */
static void fill_raw(void)
{
	uint8_t old[2 * TARNFS_BLOCK];

	memset(old, 0xa5, sizeof(old));
	sim_fill(sim, 0, old, TARNFS_SUPER_LEN);
	sim_fill(sim, TARNFS_SUPER2_OFF, old, TARNFS_SUPER_LEN);
	for (unsigned int h = 0; h < HOSTS; h++) {
		sim_fill(sim, TARNFS_HOSTS_OFF + h * TARNFS_HOST_STRIDE, old, 16 * TARNFS_LINE);
		sim_fill(sim, TARNFS_MIRROR_OFF + h * TARNFS_HOST_STRIDE, old, 2 * TARNFS_LINE);
	}
	sim_fill(sim, TARNFS_LOG_OFF, old, 8 * TARNFS_LINE);
	sim_fill(sim, DATA_START, old, 2 * TARNFS_LINE);
}

static void prepare(enum world_start which)
{
	static const char *const how[WORLD_STARTS] = { "", "KMmp" };

	sim_reset(sim);
	user_arena.top = 0;
	memset(&w, 0, sizeof(w));
	for (unsigned int h = 0; h < HOSTS; h++)
		host_init(h);
	fill_raw();
	result = WORLD_FINE;
	ops = how[which];
	if (!setjmp(leave_env)) {
		schedule();
		if (w.host[1].kernel) {
			in_kernel++;
			oracle_logplay(1);
			in_kernel--;
		}
	}
	if (result != WORLD_FINE) {
		fprintf(stderr, "explore: the start cannot be made: %s\n", fault_text);
		exit(2);
	}
	/* no cache holds anything: else the first runs would find old copies in it */
	for (unsigned int h = 0; h < HOSTS; h++)
		sim_evict(sim, h, 0, DEVICE);
}

int world_init(void)
{
	user_arena.base = malloc(user_arena.size);
	kernel_arena.base = malloc(kernel_arena.size);
	sim = sim_new(DEVICE);
	if (!user_arena.base || !kernel_arena.base || !sim)
		return -ENOMEM;
	for (int i = 0; i < PROCESSES; i++) {
		process[i].number = (unsigned int)i;
		process[i].stack = malloc(STACK);
		if (!process[i].stack)
			return -ENOMEM;
	}
	sim_choose(sim, on_question, NULL);
	sim_step(sim, on_step, NULL);
	sim_garbage(sim, on_garbage, NULL);
	for (int i = 0; i < WORLD_STARTS; i++) {
		kernel_arena.top = 0;
		random_count = 0;
		simulated = true;
		prepare(i);
		simulated = false;
		start[i].sim = sim_save(sim);
		start[i].kernels_size = kernel_arena.top;
		start[i].kernels = malloc(kernel_arena.top + 1);
		if (!start[i].sim || !start[i].kernels)
			return -ENOMEM;
		memcpy(start[i].kernels, kernel_arena.base, kernel_arena.top);
		start[i].random = random_count;
		memcpy(start[i].world, &w, sizeof(w));
	}
	return 0;
}

void world_descending(bool on)
{
	sim_descending(sim, on);
}

enum world_end world_run(enum world_start which, const char *sequence)
{
	sim_restore(sim, start[which].sim);
	memcpy(kernel_arena.base, start[which].kernels, start[which].kernels_size);
	kernel_arena.top = start[which].kernels_size;
	user_arena.top = 0;
	random_count = start[which].random;
	memcpy(&w, start[which].world, sizeof(w));
	w.evictions = EVICTIONS;
	for (int i = 0; i < PROCESSES; i++) {
		process[i].waiting = FREE;
		process[i].sets = process[i].settle = 0;
		process[i].has_lock = process[i].has_page = process[i].claiming = false;
	}
	next_new = current = NULL;
	in_kernel = 0;
	result = WORLD_FINE;
	ops = sequence;
	simulated = true;
	if (!setjmp(leave_env)) {
		schedule();
		/* the end of all operations is a point like others */
		if (w.sealing) {
			check_taken();
		} else if (*ops == '!' || world_ask(2, false)) {
			world_trace("-- all hosts are down");
			everything_crashes();
			recovery();
		} else {
			going_on();
		}
	}
	simulated = false;
	current = NULL;
	return result;
}
