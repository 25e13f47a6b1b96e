/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A kernel for tests of libtarnfs: kmod/node.c behind struct tarn_kernel_ops.
 *
 * It can live in another process than the library (testkernel_serve and
 * testkernel_proxy), so that it outlives a command that is killed: then the
 * reservations and locks of that command are let go, as the kernel does when
 * descriptors close.
 */
#ifndef TESTKERNEL_H
#define TESTKERNEL_H

#include "recorder.h"

struct testkernel;
struct testkernel *testkernel_new(const struct tarn_super *sb);
void testkernel_free(struct testkernel *t);
struct tarn_kernel *testkernel_ops(struct testkernel *t);
/* Its calls stand in this list too, NULL for none. */
void testkernel_recorder(struct testkernel *t, struct recorder *r);
/* The process that used it is gone. */
void testkernel_process_gone(struct testkernel *t);
/* The next call of APPLY (without CHECK) fails with this errno (0: none). */
void testkernel_fail_apply(struct testkernel *t, int err);
/*
 * Called for each extent of a reservation that is let go of, before it goes to limbo: there the
 * kernel writes back and invalidates it.
 */
void testkernel_flush(struct testkernel *t, void (*fn)(void *arg, uint64_t off, uint64_t len),
		      void *arg);
/* What node.c has of this mount. */
struct tarn_tree *testkernel_tree(struct testkernel *t);
/* Called before each APPLY. */
void testkernel_hook(struct testkernel *t, void (*fn)(void *arg, uint32_t flags), void *arg);

/* Answers a proxy at the other end of fd until it is gone. */
void testkernel_serve(struct testkernel *t, int fd);
struct tarn_kernel *testkernel_proxy(int fd);

/* Is there a file, directory or symlink of that path ("/a/b")? Its inode number, or 0. */
uint64_t testkernel_lookup(struct testkernel *t, const char *path);
/* Fails the test when the tree is inconsistent. */
void testkernel_verify(struct testkernel *t);
/*
 * Everything in the tree, a line a node in order of inode numbers: compares two hosts. The
 * caller frees it.
 */
char *testkernel_dump(struct testkernel *t);
bool testkernel_is_shut(const struct testkernel *t);

/* ---- hosts and file systems over it ---- */

#define TEST_HOSTS 2

struct testhost {
	struct recorder *r;		/* NULL: of testhost_start_on() */
	struct tarn_media *media;
	struct testkernel *t;
	struct tarn_session s;
	struct tarn_host_id id;
};

/*
 * mkfs into a new memory: hosts pages, area bytes a log, data bytes of data (none of it is
 * simulated).
 */
struct memory *test_mkfs(struct tarn_super *sb, uint32_t hosts, uint64_t area, uint64_t data,
			 const uint8_t *owner);
/* A host named by n, with an empty cache and a fresh kernel. */
void testhost_start(struct testhost *h, struct memory *mem, const struct tarn_super *sb, int n);
/* The same over a back end of the caller's, which testhost_stop() closes: nothing is recorded. */
void testhost_start_on(struct testhost *h, struct tarn_media *media, const struct tarn_super *sb,
		       int n);
/* Claims a page and replays, as mount.tarnfs does; fails the test when that fails. */
void testhost_mount(struct testhost *h);
/* What tarn_replay() says, at the end and under the append lock, as tarnfs logplay does. */
int64_t testhost_replay(struct testhost *h, struct tarn_err *err);
void testhost_stop(struct testhost *h);
/* The session ends and a new one begins, as with the next command. */
void testhost_next_command(struct testhost *h);
/* One file of that name and size into the root: what tarn_commit says. */
int testhost_create(struct testhost *h, const char *name, uint64_t size, struct tarn_err *err);

extern const uint8_t test_owner[16];	/* the uuid of host 0 */

#endif
