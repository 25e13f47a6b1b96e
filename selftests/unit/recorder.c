// SPDX-License-Identifier: GPL-2.0-only
/*
 * recorder.c - see recorder.h.
 */
#include "recorder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <sys/mman.h>

#define TEXT_MAX (4U << 20)

enum {
	DIRTY = 1,		/* stored to since it was last written back */
	PENDING = 2,		/* written back, not fenced */
	FRESH = 4,		/* invalidated, only reads since */
};

struct memory {
	uint64_t size;
	uint8_t bytes[];
};

struct last { /* the operation at the end of the list, to join the next one to it */
	char op;		/* 'w' write, 'i' invalidate, 0 none */
	uint64_t off, end;
	size_t text;		/* where its line begins */
};

struct recorder {
	struct tarn_media media;
	struct memory *mem;
	struct tarn_super sb;
	uint8_t *cache, *pending, *state;
	size_t lines;
	uint64_t *fresh;	/* numbers of lines that are FRESH */
	size_t nr_fresh, nr_unsettled;
	bool rules;
	uint64_t poison;
	void (*hook)(void *arg, const char *op);
	void *hook_arg;
	struct last last;
	size_t text_len;
	char fault[256];
	char text[TEXT_MAX];
};

static void *shared_alloc(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_true(p != MAP_FAILED);
	return p;
}

struct memory *memory_new(uint64_t size, int fill)
{
	struct memory *mem = shared_alloc(sizeof(*mem) + size);

	mem->size = size;
	if (fill)
		memset(mem->bytes, fill, size);
	return mem;
}

void memory_free(struct memory *mem)
{
	munmap(mem, sizeof(*mem) + mem->size);
}

uint8_t *memory_bytes(struct memory *mem)
{
	return mem->bytes;
}

/* ---- the list ---- */

static void name_line(const struct recorder *r, uint64_t off, char *out, size_t room)
{
	static const char *const names[] = {
		"identity", "control", "window",  "status",  "quiesce", "contend",
		"info",	    "line7",   "commit0", "commit1", "commit2", "commit3",
		"commit4",  "commit5", "commit6", "commit7",
	};
	const struct tarn_super *sb = &r->sb;
	uint64_t pages = (uint64_t)sb->hosts * TARNFS_HOST_STRIDE;

	if (off == TARNFS_SUPER_OFF || off == TARNFS_SUPER2_OFF) {
		snprintf(out, room, off ? "super2" : "super");
		return;
	}
	for (int i = 0; i < 2 && sb->hosts; i++) {
		uint64_t start = i ? sb->mirror_off : sb->hosts_off, in = off - start;

		if (off < start || in >= pages ||
		    in % TARNFS_HOST_STRIDE / TARNFS_LINE >= TARN_ARRAY_SIZE(names))
			continue;
		snprintf(out, room, "%s%u.%s", i ? "mirror" : "page",
			 (unsigned int)(in / TARNFS_HOST_STRIDE),
			 names[in % TARNFS_HOST_STRIDE / TARNFS_LINE]);
		return;
	}
	for (int i = 0; i < sb->areas; i++) {
		if (off < sb->area[i].off || off - sb->area[i].off >= sb->area[i].len)
			continue;
		snprintf(out, room, "area%d+%u", i, (unsigned int)(off - sb->area[i].off));
		return;
	}
	snprintf(out, room, "0x%llx", (unsigned long long)off);
}

static void append_text(struct recorder *r, const char *text)
{
	size_t len = strlen(text);

	assert_true(r->text_len + len + 2 < TEXT_MAX);
	memcpy(r->text + r->text_len, text, len);
	r->text_len += len;
	r->text[r->text_len++] = '\n';
	r->text[r->text_len] = '\0';
}

static void list(struct recorder *r, const char *verb, uint64_t off, uint64_t len)
{
	char name[64], line[128];

	name_line(r, off, name, sizeof(name));
	if (len == TARNFS_LINE)
		snprintf(line, sizeof(line), "%s %s", verb, name);
	else
		snprintf(line, sizeof(line), "%s %s %llu", verb, name, (unsigned long long)len);
	append_text(r, line);
}

static void relist(struct recorder *r, const char *verb, uint64_t off, uint64_t len)
{
	r->text_len = r->last.text;
	list(r, verb, off, len);
}

static void record(struct recorder *r, char op, const char *verb, uint64_t off, uint64_t len)
{
	if (op == 'w' && r->last.op == 'w' && r->last.end == off) {
		r->last.end += len;
		relist(r, verb, r->last.off, r->last.end - r->last.off);
		return;
	}
	if (op == 'r' && r->last.op == 'i' && r->last.off == off && r->last.end == off + len) {
		relist(r, "fetch", off, len);
		r->last.op = 0;
		return;
	}
	r->last = (struct last){ op, off, off + len, r->text_len };
	list(r, verb, off, len);
}

void recorder_note(struct recorder *r, const char *fmt, ...)
{
	char line[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	r->last.op = 0;
	append_text(r, line);
}

const char *recorder_take(struct recorder *r)
{
	const char *text = r->text_len ? r->text : "";

	/* the text stays until the next operation */
	r->text_len = 0;
	r->last.op = 0;
	return text;
}

/* ---- the rules ---- */

static void fault(struct recorder *r, const char *what, uint64_t line)
{
	char name[64];

	if (!r->rules || r->fault[0])
		return;
	name_line(r, line * TARNFS_LINE, name, sizeof(name));
	snprintf(r->fault, sizeof(r->fault), "%s: %s", name, what);
}

static uint64_t first_unsettled(const struct recorder *r, uint64_t but)
{
	for (uint64_t i = 0; r->nr_unsettled && i < r->lines; i++)
		if (i != but && r->state[i] & (DIRTY | PENDING))
			return i;
	return UINT64_MAX;
}

static bool is_publication(const struct recorder *r, uint64_t off, uint64_t len)
{
	const struct tarn_super *sb = &r->sb;

	if (len == TARNFS_SUPER_LEN)
		return off == TARNFS_SUPER_OFF || off == TARNFS_SUPER2_OFF;
	if (len > TARNFS_LINE || !sb->hosts)
		return false;
	for (int i = 0; i < 2; i++) {
		uint64_t in = off - (i ? sb->mirror_off : sb->hosts_off),
			 line = in % TARNFS_HOST_STRIDE / TARNFS_LINE;

		if (in >= (uint64_t)sb->hosts * TARNFS_HOST_STRIDE)
			continue;
		return line == TARNFS_LINE_IDENTITY || line == TARNFS_LINE_CONTROL ||
		       line == TARNFS_LINE_QUIESCE || line >= TARNFS_LINE_COMMIT;
	}
	return false;
}

void recorder_rules(struct recorder *r, bool on)
{
	r->rules = on;
}

void recorder_end(struct recorder *r)
{
	uint64_t line = first_unsettled(r, UINT64_MAX);

	if (line != UINT64_MAX)
		fault(r, r->state[line] & DIRTY ? "left dirty" : "left without a fence", line);
}

const char *recorder_fault(struct recorder *r)
{
	return r->fault[0] ? r->fault : NULL;
}

/* ---- the operations ---- */

static struct recorder *to_recorder(struct tarn_media *m)
{
	return (struct recorder *)m;
}

static int begin(struct recorder *r, const char *op, uint64_t off, size_t len)
{
	if (r->hook)
		r->hook(r->hook_arg, op);
	if (r->poison >= off && r->poison - off < len) {
		r->media.bad = r->poison;
		return -EIO;
	}
	return 0;
}

static void not_fresh(struct recorder *r)
{
	for (size_t i = 0; i < r->nr_fresh; i++)
		r->state[r->fresh[i]] &= (uint8_t)~FRESH;
	r->nr_fresh = 0;
}

static void set_state(struct recorder *r, uint64_t line, uint8_t state)
{
	bool was = r->state[line] & (DIRTY | PENDING), is = state & (DIRTY | PENDING);

	r->nr_unsettled += (size_t)is - (size_t)was;
	r->state[line] = state;
}

#define FOR_LINES(line, off, len) \
	for (uint64_t line = (off) / TARNFS_LINE; line * TARNFS_LINE < (off) + (len); line++)

static int rec_read(struct tarn_media *m, uint64_t off, void *buf, size_t len)
{
	struct recorder *r = to_recorder(m);
	int ret = begin(r, "read", off, len);

	record(r, 'r', "read", off, len);
	if (ret)
		return ret;
	FOR_LINES(line, off, len)
		if (!(r->state[line] & FRESH))
			fault(r, "read without an invalidate just before", line);
	memcpy(buf, r->cache + off, len);
	return 0;
}

static void store(struct recorder *r, uint64_t off, const void *buf, size_t len)
{
	not_fresh(r);
	if (is_publication(r, off, len)) {
		uint64_t line = first_unsettled(r,
						len > TARNFS_LINE ? UINT64_MAX : off / TARNFS_LINE);

		if (line != UINT64_MAX)
			fault(r, "not in memory at the next publication", line);
	}
	memcpy(r->cache + off, buf, len);
	FOR_LINES(line, off, len)
		set_state(r, line, r->state[line] | DIRTY);
}

static int rec_write(struct tarn_media *m, uint64_t off, const void *buf, size_t len)
{
	struct recorder *r = to_recorder(m);
	int ret = begin(r, "write", off, len);

	record(r, 'w', "write", off, len);
	if (ret)
		return ret;
	store(r, off, buf, len);
	return 0;
}

static int rec_read64(struct tarn_media *m, uint64_t off, uint64_t *value)
{
	struct recorder *r = to_recorder(m);
	int ret = begin(r, "read64", off, 8);

	record(r, '8', "read64", off, TARNFS_LINE);
	if (ret)
		return ret;
	if (!(r->state[off / TARNFS_LINE] & FRESH))
		fault(r, "read without an invalidate just before", off / TARNFS_LINE);
	memcpy(value, r->cache + off, 8);
	return 0;
}

static int rec_write64(struct tarn_media *m, uint64_t off, uint64_t value)
{
	struct recorder *r = to_recorder(m);
	int ret = begin(r, "write64", off, 8);

	record(r, '8', "write64", off, TARNFS_LINE);
	if (ret)
		return ret;
	store(r, off, &value, 8);
	return 0;
}

static int rec_writeback(struct tarn_media *m, uint64_t off, size_t len)
{
	struct recorder *r = to_recorder(m);
	int ret = begin(r, "writeback", off, len);

	record(r, 'b', "writeback", off, len);
	if (ret)
		return ret;
	not_fresh(r);
	FOR_LINES(line, off, len) {
		if (!(r->state[line] & DIRTY))
			continue;
		memcpy(r->pending + line * TARNFS_LINE, r->cache + line * TARNFS_LINE, TARNFS_LINE);
		set_state(r, line, PENDING);
	}
	return 0;
}

static int rec_fence(struct tarn_media *m)
{
	struct recorder *r = to_recorder(m);
	size_t left;

	begin(r, "fence", 0, 0);
	append_text(r, "fence");
	r->last.op = 0;
	not_fresh(r);
	left = r->nr_unsettled;
	for (uint64_t line = 0; left && line < r->lines; line++) {
		if (!(r->state[line] & (DIRTY | PENDING)))
			continue;
		left--;
		if (!(r->state[line] & PENDING))
			continue;
		memcpy(r->mem->bytes + line * TARNFS_LINE, r->pending + line * TARNFS_LINE,
		       TARNFS_LINE);
		set_state(r, line, r->state[line] & (uint8_t)~PENDING);
	}
	return 0;
}

static int rec_invalidate(struct tarn_media *m, uint64_t off, size_t len)
{
	struct recorder *r = to_recorder(m);

	begin(r, "invalidate", off, 0);
	record(r, 'i', "invalidate", off, len);
	not_fresh(r);
	FOR_LINES(line, off, len) {
		uint8_t *cached = r->cache + line * TARNFS_LINE,
			*in_memory = r->mem->bytes + line * TARNFS_LINE;

		/* invalidating a dirty line writes it */
		if (r->state[line] & DIRTY)
			memcpy(in_memory, cached, TARNFS_LINE);
		else if (r->state[line] & PENDING)
			memcpy(in_memory, r->pending + line * TARNFS_LINE, TARNFS_LINE);
		memcpy(cached, in_memory, TARNFS_LINE);
		set_state(r, line, FRESH);
		r->fresh[r->nr_fresh++] = line;
	}
	return 0;
}

static void rec_close(struct tarn_media *m)
{
	(void)m;
}

static const struct tarn_media_ops recorder_ops = {
	.read = rec_read,
	.write = rec_write,
	.read64 = rec_read64,
	.write64 = rec_write64,
	.writeback = rec_writeback,
	.invalidate = rec_invalidate,
	.fence = rec_fence,
	.close = rec_close,
};

struct recorder *recorder_new(struct memory *mem)
{
	struct recorder *r = shared_alloc(sizeof(*r));

	r->media.ops = &recorder_ops;
	r->media.size = mem->size;
	r->mem = mem;
	r->lines = mem->size / TARNFS_LINE;
	r->cache = shared_alloc(mem->size);
	r->pending = shared_alloc(mem->size);
	r->state = shared_alloc(r->lines);
	r->fresh = shared_alloc(r->lines * sizeof(*r->fresh));
	r->rules = true;
	r->poison = UINT64_MAX;
	memcpy(r->cache, mem->bytes, mem->size);
	return r;
}

void recorder_free(struct recorder *r)
{
	munmap(r->cache, r->mem->size);
	munmap(r->pending, r->mem->size);
	munmap(r->state, r->lines);
	munmap(r->fresh, r->lines * sizeof(*r->fresh));
	munmap(r, sizeof(*r));
}

struct tarn_media *recorder_media(struct recorder *r)
{
	return &r->media;
}

void recorder_geometry(struct recorder *r, const struct tarn_super *sb)
{
	r->sb = *sb;
}

void recorder_reboot(struct recorder *r)
{
	not_fresh(r);
	memset(r->state, 0, r->lines);
	r->nr_unsettled = 0;
	memcpy(r->cache, r->mem->bytes, r->mem->size);
}

void recorder_hook(struct recorder *r, void (*fn)(void *arg, const char *op), void *arg)
{
	r->hook = fn;
	r->hook_arg = arg;
}

void recorder_poison(struct recorder *r, uint64_t off)
{
	r->poison = off;
}

/* ---- assertions ---- */

void assert_no_fault(struct recorder *r)
{
	recorder_end(r);
	if (r->fault[0])
		fail_msg("rule of the protocol broken: %s", r->fault);
}

void assert_ops(struct recorder *r, const char *expected)
{
	const char *got = recorder_take(r);
	size_t at = 0, line = 0;

	if (strcmp(got, expected)) {
		for (; got[at] && got[at] == expected[at]; at++)
			if (got[at] == '\n')
				line = at + 1;
		print_error("operations differ; expected from there:\n%.2000s\ngot:\n%.2000s\n",
			    expected + line, got + line);
		fail_msg("order of operations");
	}
	assert_no_fault(r);
}
