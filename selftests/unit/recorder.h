/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A back end of media.h for tests: hosts with private caches over one memory,
 * and a list of what each did.
 *
 * The caches are as bad as the protocol allows: every line of the memory is in
 * every cache from the start, a clean line stays as it was cached however much
 * memory changes, and comes back into the cache the moment it is invalidated.
 * Stores stay in the cache until they are written back and fenced; what
 * reaches memory is the line as it was at the write back.
 *
 * Rules that hold in every test, whatever it asserts (recorder_fault() says
 * which was broken first):
 *  - a line is read only after it was invalidated, with no other operation
 *    but reads since;
 *  - when a publication is stored (a superblock, identity, control, quiesce or
 *    commit line) no other line is dirty, or written back without a fence;
 *  - at the end of a call (recorder_end()) no line is.
 *
 * All of it lies in shared anonymous memory, so that it outlives a test's
 * child process as caches outlive a killed command.
 */
#ifndef RECORDER_H
#define RECORDER_H

#include "internal.h"

/* A memory of `size` bytes, all `fill`. */
struct memory;
struct memory *memory_new(uint64_t size, int fill);
void memory_free(struct memory *mem);
uint8_t *memory_bytes(struct memory *mem);	/* as they are in memory, behind all caches */

/* A host's cache over it. sb: for names of lines, may be set later. */
struct recorder;
struct recorder *recorder_new(struct memory *mem);
void recorder_free(struct recorder *r);
struct tarn_media *recorder_media(struct recorder *r);
void recorder_geometry(struct recorder *r, const struct tarn_super *sb);
/* As after a reboot, or a crash that loses what is dirty: the cache holds what memory does. */
void recorder_reboot(struct recorder *r);

/* Called before each operation, e.g. to let another host act in between. NULL: none. */
void recorder_hook(struct recorder *r, void (*fn)(void *arg, const char *op), void *arg);
/* Accesses that touch this byte of the device fail with -EIO (UINT64_MAX: none). */
void recorder_poison(struct recorder *r, uint64_t off);

/* A line of the list that is not an operation on media. */
void recorder_note(struct recorder *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The list so far, an operation a line; it is empty afterwards. */
const char *recorder_take(struct recorder *r);
/* Rules are (not) checked; they are at first. */
void recorder_rules(struct recorder *r, bool on);
/* End of a call: what it left dirty is a fault. */
void recorder_end(struct recorder *r);
/* The first rule that was broken, or NULL. */
const char *recorder_fault(struct recorder *r);

/* cmocka assertions with a readable difference; both end the call. */
void assert_ops(struct recorder *r, const char *expected);
void assert_no_fault(struct recorder *r);

#endif
