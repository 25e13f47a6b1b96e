// SPDX-License-Identifier: GPL-2.0-only
/*
 * testkernel.c - see testkernel.h.
 */
#include "testkernel.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <unistd.h>

#include "node.h"

#define SETS 64

struct testkernel {
	struct tarn_kernel kernel;
	struct tarn_tree tree;
	struct tarn_super sb;
	struct tarn_set sets[SETS];
	bool used[SETS];
	bool shut, locked, page_locked;
	int fail_apply;
	struct recorder *r;
	void (*hook)(void *arg, uint32_t flags);
	void *hook_arg;
	void (*flush)(void *arg, uint64_t off, uint64_t len);
	void *flush_arg;
};

static struct testkernel *to_test(struct tarn_kernel *k)
{
	return (struct testkernel *)k;
}

static void note(struct testkernel *t, const char *text)
{
	if (t->r)
		recorder_note(t->r, "%s", text);
}

static int t_status(struct tarn_kernel *k, struct tarnfs_status *st)
{
	struct testkernel *t = to_test(k);
	uint64_t any, huge;

	memset(st, 0, sizeof(*st));
	st->version = TARNFS_INTERFACE;
	if (!t->tree.generation)
		st->state |= TARNFS_ST_FRESH;
	if (t->tree.attached)
		st->state |= TARNFS_ST_ATTACHED;
	if (t->shut)
		st->state |= TARNFS_ST_SHUTDOWN;
	memcpy(st->uuid, t->sb.uuid, sizeof(st->uuid));
	st->role = t->tree.role;
	st->log_host = t->tree.log_host;
	st->page = t->tree.page;
	st->nonce = t->tree.nonce;
	st->generation = t->tree.generation;
	st->seq = t->tree.seq;
	st->position = t->tree.position;
	st->next_ino = t->tree.next_ino;
	st->dev_size = t->sb.dev_size;
	st->data_start = t->sb.data_start;
	st->data_end = t->sb.data_end;
	st->directories = t->tree.directories;
	st->files = t->tree.files;
	st->symlinks = t->tree.symlinks;
	st->free_bytes = t->tree.free_bytes;
	st->reserved_bytes = t->tree.reserved_bytes;
	st->limbo_bytes = t->tree.limbo_bytes;
	tarn_largest_free(&t->tree, (u64 *)&any, (u64 *)&huge);
	st->largest_free = any;
	st->largest_free_huge = huge;
	return 0;
}

static int t_reserve(struct tarn_kernel *k, struct tarnfs_reserve_item *items, uint32_t count,
		     int *set, uint32_t *failed)
{
	struct testkernel *t = to_test(k);
	int ret;

	note(t, "RESERVE");
	if (t->shut)
		return -EIO;
	for (int i = 0; i < SETS; i++) {
		if (t->used[i])
			continue;
		tarn_set_init(&t->sets[i]);
		ret = tarn_reserve(&t->tree, &t->sets[i], items, count, failed);
		if (!ret) {
			t->used[i] = true;
			*set = i;
		}
		return ret;
	}
	return -EMFILE;
}

static void t_release(struct tarn_kernel *k, int set)
{
	struct testkernel *t = to_test(k);
	struct tarn_node *node;

	assert_true(t->used[set]);
	while ((node = tarn_set_pop(&t->sets[set]))) {
		if (t->flush && node->extent.len)
			t->flush(t->flush_arg, node->extent.off, node->extent.len);
		tarn_node_put(&t->tree, node);
	}
	t->used[set] = false;
}

static int t_reserve_open(struct tarn_kernel *k, int set, uint64_t ino)
{
	struct testkernel *t = to_test(k);

	/* any descriptor does: nothing of the data is simulated */
	return tarn_set_member(&t->tree, &t->sets[set], ino) ? dup(1) : -ENOENT;
}

static int t_apply(struct tarn_kernel *k, struct tarnfs_apply *args, const struct tarnfs_op *ops,
		   const char *strings)
{
	struct testkernel *t = to_test(k);
	u32 done = 0;
	int ret;

	args->version = TARNFS_INTERFACE;
	args->op_size = sizeof(*ops);
	args->done = 0;
	if (t->hook)
		t->hook(t->hook_arg, args->flags);
	if (t->r)
		recorder_note(t->r, "APPLY%s%s%s %u",
			      args->flags & TARNFS_APPLY_CHECK ? " check" : "",
			      args->flags & TARNFS_APPLY_STAGE ? " stage" : "",
			      args->flags & TARNFS_APPLY_AT_END ? " at-end" : "", args->count);
	if (t->shut)
		return -EIO;
	if (args->flags & TARNFS_APPLY_AT_END && args->role == TARNFS_ROLE_MASTER && !t->locked)
		fail_msg("AT_END of the master without the append lock");
	if (t->fail_apply && !(args->flags & TARNFS_APPLY_CHECK)) {
		ret = -t->fail_apply;
		t->fail_apply = 0;
		return ret;
	}
	ret = tarn_apply(&t->tree, args, ops, strings, &done);
	args->done = done;
	return ret;
}

static int t_shutdown(struct tarn_kernel *k)
{
	note(to_test(k), "SHUTDOWN");
	to_test(k)->shut = true;
	return 0;
}

static int t_lock(struct tarn_kernel *k)
{
	note(to_test(k), "lock");
	assert_false(to_test(k)->locked);
	to_test(k)->locked = true;
	return 0;
}

static void t_unlock(struct tarn_kernel *k)
{
	note(to_test(k), "unlock");
	assert_true(to_test(k)->locked);
	to_test(k)->locked = false;
}

static int t_page_lock(struct tarn_kernel *k, uint16_t page)
{
	(void)page;
	assert_false(to_test(k)->page_locked);
	to_test(k)->page_locked = true;
	return 0;
}

static void t_page_unlock(struct tarn_kernel *k, uint16_t page)
{
	(void)page;
	to_test(k)->page_locked = false;
}

static const struct tarn_kernel_ops test_ops = {
	.status = t_status,
	.reserve = t_reserve,
	.release = t_release,
	.reserve_open = t_reserve_open,
	.apply = t_apply,
	.shutdown = t_shutdown,
	.lock = t_lock,
	.unlock = t_unlock,
	.page_lock = t_page_lock,
	.page_unlock = t_page_unlock,
};

struct testkernel *testkernel_new(const struct tarn_super *sb)
{
	struct testkernel *t = calloc(1, sizeof(*t));

	assert_non_null(t);
	t->kernel.ops = &test_ops;
	t->sb = *sb;
	assert_int_equal(tarn_tree_init(&t->tree, sb->data_start, sb->data_end, TARNFS_ROLE_CLIENT),
			 0);
	return t;
}

void testkernel_free(struct testkernel *t)
{
	testkernel_process_gone(t);
	tarn_tree_destroy(&t->tree);
	free(t);
}

struct tarn_kernel *testkernel_ops(struct testkernel *t)
{
	return &t->kernel;
}

void testkernel_recorder(struct testkernel *t, struct recorder *r)
{
	t->r = r;
}

void testkernel_process_gone(struct testkernel *t)
{
	for (int i = 0; i < SETS; i++)
		if (t->used[i])
			t_release(&t->kernel, i);
	t->locked = t->page_locked = false;
}

void testkernel_fail_apply(struct testkernel *t, int err)
{
	t->fail_apply = err;
}

void testkernel_hook(struct testkernel *t, void (*fn)(void *arg, uint32_t flags), void *arg)
{
	t->hook = fn;
	t->hook_arg = arg;
}

void testkernel_flush(struct testkernel *t, void (*fn)(void *arg, uint64_t off, uint64_t len),
		      void *arg)
{
	t->flush = fn;
	t->flush_arg = arg;
}

struct tarn_tree *testkernel_tree(struct testkernel *t)
{
	return &t->tree;
}

bool testkernel_is_shut(const struct testkernel *t)
{
	return t->shut;
}

uint64_t testkernel_lookup(struct testkernel *t, const char *path)
{
	struct tarn_node *node = t->tree.root;

	while (node && *path == '/') {
		size_t len = strcspn(++path, "/");

		if (!len)
			break;
		node = node->type == TARNFS_TYPE_DIRECTORY ? tarn_lookup(&t->tree, node, path, len)
							   : NULL;
		path += len;
	}
	return node ? node->ino : 0;
}

void testkernel_verify(struct testkernel *t)
{
	const char *why = "?";

	if (tarn_tree_verify(&t->tree, &why))
		fail_msg("the kernel's tree: %s", why);
}

static int by_ino(const void *a, const void *b)
{
	const struct tarn_node *x = *(const struct tarn_node *const *)a;
	const struct tarn_node *y = *(const struct tarn_node *const *)b;

	return x->ino < y->ino ? -1 : x->ino > y->ino;
}

/* All that have a name, each after its directory; *count is set. */
static const struct tarn_node **all_nodes(const struct tarn_tree *tree, size_t *count)
{
	const struct tarn_node **nodes =
		calloc(tree->directories + tree->files + tree->symlinks + 1, sizeof(*nodes));

	assert_non_null(nodes);
	*count = 0;
	if (tree->root)
		nodes[(*count)++] = tree->root;
	for (size_t i = 0; i < *count; i++) {
		const struct tarn_node *n;

		for (u64 after = 0; (n = tarn_next_child(nodes[i], after)); after = n->ino)
			nodes[(*count)++] = n;
	}
	return nodes;
}

char *testkernel_dump(struct testkernel *t)
{
	const struct tarn_node **nodes;
	char *text = NULL;
	size_t len = 0, count;
	FILE *f = open_memstream(&text, &len);

	assert_non_null(f);
	fprintf(f, "seq %llu files %llu directories %llu symlinks %llu free %llu\n",
		(unsigned long long)t->tree.seq, (unsigned long long)t->tree.files,
		(unsigned long long)t->tree.directories, (unsigned long long)t->tree.symlinks,
		(unsigned long long)(t->tree.free_bytes + t->tree.reserved_bytes +
				     t->tree.limbo_bytes));
	nodes = all_nodes(&t->tree, &count);
	qsort(nodes, count, sizeof(*nodes), by_ino);
	for (size_t i = 0; i < count; i++) {
		const struct tarn_node *n = nodes[i];

		fprintf(f,
			"%llu %u in %llu '%s' size %llu at %llu+%llu mode %o %u:%u %lld.%u flags "
			"%u%s%s\n",
			(unsigned long long)n->ino, n->type, (unsigned long long)n->parent->ino,
			n->name, (unsigned long long)n->size, (unsigned long long)n->extent.off,
			(unsigned long long)n->extent.len, n->mode, n->uid, n->gid,
			(long long)n->mtime_sec, n->mtime_nsec, n->file_flags,
			n->type == TARNFS_TYPE_SYMLINK ? " -> " : "",
			n->type == TARNFS_TYPE_SYMLINK ? n->target : "");
	}
	free(nodes);
	fclose(f);
	return text;
}

/* ---- a kernel in another process ---- */

enum call { STATUS, RESERVE, RELEASE, APPLY, SHUTDOWN, LOCK, UNLOCK, PAGE_LOCK, PAGE_UNLOCK };

struct message {
	enum call call;
	int ret, set;
	uint32_t count, failed;
	struct tarnfs_status st;
	struct tarnfs_apply args;
};

struct proxy {
	struct tarn_kernel kernel;
	int fd;
};

static bool get(int fd, void *buf, size_t len)
{
	for (size_t done = 0; done < len;) {
		ssize_t n = read(fd, (char *)buf + done, len - done);

		if (n <= 0)
			return false;
		done += (size_t)n;
	}
	return true;
}

static void put(int fd, const void *buf, size_t len)
{
	for (size_t done = 0; done < len;) {
		ssize_t n = write(fd, (const char *)buf + done, len - done);

		if (n <= 0)
			return;
		done += (size_t)n;
	}
}

static int serve_reserve(struct testkernel *t, int fd, struct message *msg)
{
	struct tarnfs_reserve_item *items = calloc(msg->count, sizeof(*items));

	if (!get(fd, items, msg->count * sizeof(*items))) {
		free(items);
		return -1;
	}
	msg->ret = t_reserve(&t->kernel, items, msg->count, &msg->set, &msg->failed);
	put(fd, msg, sizeof(*msg));
	put(fd, items, msg->count * sizeof(*items));
	free(items);
	return 0;
}

static int serve_apply(struct testkernel *t, int fd, struct message *msg)
{
	struct tarnfs_op *ops = calloc(msg->args.count + 1, sizeof(*ops));
	char *strings = malloc(msg->args.strings_len + 1);
	int ret = -1;

	if (get(fd, ops, msg->args.count * sizeof(*ops)) &&
	    get(fd, strings, msg->args.strings_len)) {
		msg->ret = t_apply(&t->kernel, &msg->args, ops, strings);
		put(fd, msg, sizeof(*msg));
		ret = 0;
	}
	free(ops);
	free(strings);
	return ret;
}

void testkernel_serve(struct testkernel *t, int fd)
{
	struct message msg;

	while (get(fd, &msg, sizeof(msg))) {
		switch (msg.call) {
		case RESERVE:
			if (serve_reserve(t, fd, &msg))
				goto gone;
			continue;
		case APPLY:
			if (serve_apply(t, fd, &msg))
				goto gone;
			continue;
		case STATUS:
			msg.ret = t_status(&t->kernel, &msg.st);
			break;
		case RELEASE:
			t_release(&t->kernel, msg.set);
			break;
		case SHUTDOWN:
			msg.ret = t_shutdown(&t->kernel);
			break;
		case LOCK:
			msg.ret = t_lock(&t->kernel);
			break;
		case UNLOCK:
			t_unlock(&t->kernel);
			break;
		case PAGE_LOCK:
			msg.ret = t_page_lock(&t->kernel, 0);
			break;
		case PAGE_UNLOCK:
			t_page_unlock(&t->kernel, 0);
			break;
		}
		put(fd, &msg, sizeof(msg));
	}
gone:
	testkernel_process_gone(t);
}

static int ask(struct tarn_kernel *k, struct message *msg)
{
	int fd = ((struct proxy *)k)->fd;

	put(fd, msg, sizeof(*msg));
	return get(fd, msg, sizeof(*msg)) ? msg->ret : -EPIPE;
}

static int p_call(struct tarn_kernel *k, enum call call)
{
	struct message msg = { .call = call };

	return ask(k, &msg);
}

static int p_status(struct tarn_kernel *k, struct tarnfs_status *st)
{
	struct message msg = { .call = STATUS };
	int ret = ask(k, &msg);

	*st = msg.st;
	return ret;
}

static int p_reserve(struct tarn_kernel *k, struct tarnfs_reserve_item *items, uint32_t count,
		     int *set, uint32_t *failed)
{
	int fd = ((struct proxy *)k)->fd;
	struct message msg = { .call = RESERVE, .count = count };

	put(fd, &msg, sizeof(msg));
	put(fd, items, count * sizeof(*items));
	if (!get(fd, &msg, sizeof(msg)) || !get(fd, items, count * sizeof(*items)))
		return -EPIPE;
	*set = msg.set;
	*failed = msg.failed;
	return msg.ret;
}

static void p_release(struct tarn_kernel *k, int set)
{
	struct message msg = { .call = RELEASE, .set = set };

	ask(k, &msg);
}

static int p_apply(struct tarn_kernel *k, struct tarnfs_apply *args, const struct tarnfs_op *ops,
		   const char *strings)
{
	int fd = ((struct proxy *)k)->fd;
	struct message msg = { .call = APPLY, .args = *args };

	put(fd, &msg, sizeof(msg));
	put(fd, ops, args->count * sizeof(*ops));
	put(fd, strings, args->strings_len);
	if (!get(fd, &msg, sizeof(msg)))
		return -EPIPE;
	*args = msg.args;
	return msg.ret;
}

static int p_shutdown(struct tarn_kernel *k)
{
	return p_call(k, SHUTDOWN);
}

static int p_lock(struct tarn_kernel *k)
{
	return p_call(k, LOCK);
}

static void p_unlock(struct tarn_kernel *k)
{
	p_call(k, UNLOCK);
}

static int p_page_lock(struct tarn_kernel *k, uint16_t page)
{
	(void)page;
	return p_call(k, PAGE_LOCK);
}

static void p_page_unlock(struct tarn_kernel *k, uint16_t page)
{
	(void)page;
	p_call(k, PAGE_UNLOCK);
}

static const struct tarn_kernel_ops proxy_ops = {
	.status = p_status,
	.reserve = p_reserve,
	.release = p_release,
	.apply = p_apply,
	.shutdown = p_shutdown,
	.lock = p_lock,
	.unlock = p_unlock,
	.page_lock = p_page_lock,
	.page_unlock = p_page_unlock,
};

struct tarn_kernel *testkernel_proxy(int fd)
{
	struct proxy *p = calloc(1, sizeof(*p));

	assert_non_null(p);
	p->kernel.ops = &proxy_ops;
	p->fd = fd;
	return &p->kernel;
}

/* ---- hosts ---- */

const uint8_t test_owner[16] = { 0xa0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };

struct memory *test_mkfs(struct tarn_super *sb, uint32_t hosts, uint64_t area, uint64_t data,
			 const uint8_t *owner)
{
	struct tarn_mkfs opt = {
		.dev_size = tarn_round_up(TARNFS_LOG_OFF + TARNFS_AREAS * area, TARNFS_HUGE) + data,
		.hosts = hosts, .log_size = area, .owner = owner, .now_sec = 1700000000,
	};
	struct tarn_err err = { "" };
	struct memory *mem;
	struct recorder *r;

	if (tarn_mkfs_plan(sb, &opt, &err))
		fail_msg("mkfs: %s", err.text);
	mem = memory_new(sb->data_start, 0xa5);
	r = recorder_new(mem);
	recorder_geometry(r, sb);
	if (tarn_mkfs_write(recorder_media(r), sb, &opt, &err))
		fail_msg("mkfs: %s", err.text);
	assert_no_fault(r);
	recorder_free(r);
	return mem;
}

static void session_begin(struct testhost *h, const struct tarn_super *sb)
{
	memset(&h->s, 0, sizeof(h->s));
	h->s.dirfd = h->s.metafd = -1;
	h->s.kernel = testkernel_ops(h->t);
	h->s.media = h->media;
	h->s.sb = *sb;
	h->s.kernel->ops->status(h->s.kernel, &h->s.st);
	h->s.claim.page = h->s.st.page;
	h->s.claim.nonce = h->s.st.nonce;
}

void testhost_start_on(struct testhost *h, struct tarn_media *media, const struct tarn_super *sb,
		       int n)
{
	memset(h, 0, sizeof(*h));
	h->media = media;
	h->t = testkernel_new(sb);
	memcpy(h->id.uuid, test_owner, sizeof(h->id.uuid));
	h->id.uuid[0] = (uint8_t)(0xa0 + n);
	memset(h->id.boot_id, 0xb0 + n, sizeof(h->id.boot_id));
	h->id.page = -1;
	snprintf(h->id.node_name, sizeof(h->id.node_name), "host%d", n);
	session_begin(h, sb);
}

void testhost_start(struct testhost *h, struct memory *mem, const struct tarn_super *sb, int n)
{
	struct recorder *r = recorder_new(mem);

	recorder_geometry(r, sb);
	testhost_start_on(h, recorder_media(r), sb, n);
	h->r = r;
}

int64_t testhost_replay(struct testhost *h, struct tarn_err *err)
{
	int64_t n;

	h->s.kernel->ops->lock(h->s.kernel);
	n = tarn_replay(&h->s, true, err);
	h->s.kernel->ops->unlock(h->s.kernel);
	return n;
}

void testhost_mount(struct testhost *h)
{
	struct tarn_err err = { "" };
	bool again, settle;
	uint16_t page;

	if (tarn_claim_choose(h->s.media, &h->s.sb, &h->id, -1, &page, &again, &settle, &err) ||
	    tarn_claim_write(h->s.media, &h->s.sb, &h->id, page, &h->s.claim, &err) ||
	    tarn_claim_check(h->s.media, &h->s.sb, &h->s.claim, &err))
		fail_msg("claim: %s", err.text);
	if (testhost_replay(h, &err) < 0)
		fail_msg("replay: %s", err.text);
	if (!h->r)
		return;
	assert_no_fault(h->r);
	recorder_take(h->r);
}

void testhost_stop(struct testhost *h)
{
	testkernel_free(h->t);
	if (h->r)
		recorder_free(h->r);
	else
		tarn_media_close(h->media);
}

void testhost_next_command(struct testhost *h)
{
	struct tarn_super sb = h->s.sb;

	testkernel_process_gone(h->t);
	session_begin(h, &sb);
}

int testhost_create(struct testhost *h, const char *name, uint64_t size, struct tarn_err *err)
{
	struct tarn_new new = {
		.item = { .type = TARNFS_TYPE_FILE, .size = size },
		.parent = TARNFS_INO_ROOT,
		.name = name,
		.mtime_sec = 1700000001,
		.mode = 0644,
	};
	struct tarn_reservation r = { .set = -1 };
	int ret = tarn_reserve_files(&h->s, &r, &new, 1, err);

	if (!ret)
		ret = tarn_commit(&h->s, &r, err);
	tarn_reservation_drop(&h->s, &r);
	return ret;
}
