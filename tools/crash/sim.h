/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * sim.h - hosts whose caches nothing keeps coherent: a back end of media.h
 * (protocol section 8), for the explorer and for unit tests.
 *
 * What can happen
 *
 * Memory consists of lines of 64 bytes. In the cache of each host a line is
 * absent, clean (a copy, perhaps of long ago), or dirty.
 *
 *  - A write is a sequence of aligned 8-byte stores, of which none is torn, in
 *    ascending order of addresses (sim_descending(): descending, since a
 *    memcpy(3) is free to do so). It fills the line from memory if it is
 *    absent, and makes it dirty.
 *  - A dirty line may be evicted at any moment, also between any two stores of
 *    one write: the whole line, as this host has it then, goes to memory.
 *  - A write back of a dirty line puts it on its way: it is in memory for
 *    certain only after a fence of the same process, and at any moment before,
 *    or after the process is gone, as with an eviction.
 *  - An invalidate writes what is dirty, drops the lines, and ends with a fence
 *    of its own (media.h).
 *  - A clean line may be dropped, and an absent one filled from memory, at any
 *    moment: so a read may return any content that memory had since this host
 *    last invalidated the line, but never an older one than a read before it did.
 *    Each line of a read that touches several is filled by itself.
 *  - When a host crashes each of its dirty lines is lost, or is in memory as it
 *    was at any moment since it was last in memory for certain.
 *  - A process that is killed leaves the cache as it is.
 *  - Two hosts that have one line dirty overwrite each other's whole line, in
 *    either order: the protocol says that this must not happen, the simulator
 *    does not.
 *
 * How it is done
 *
 * None of that is decided when it happens. A line is the list of all contents
 * it has had in some cache, in the order of the stores, and a mark up to which
 * memory has come for certain. What memory holds is decided when somebody looks:
 * then the simulator asks (sim_choose()) which of the possible contents it is,
 * and what was answered restricts what can be answered later. Contents that are
 * equal are one answer. So a caller that explores every answer sees every
 * behaviour of the rules above, and what nobody reads costs nothing.
 *
 * Answer 0 is always the newest content: who answers 0 to everything (as does
 * who sets no function) has coherent hosts.
 */
#ifndef SIM_H
#define SIM_H

#include "internal.h"

#define SIM_HOSTS 5	/* at most */
#define SIM_PROCESSES 12 /* at most, of all hosts together */

struct sim;

/* A memory of `size` bytes (a multiple of 64), all zero; empty caches. NULL: out of memory. */
struct sim *sim_new(uint64_t size);
void sim_free(struct sim *s);
/* As after sim_new(): functions, names and the order of stores stay. */
void sim_reset(struct sim *s);
/* What memory holds behind all caches, as if it had always been so; for lines nobody stored to. */
void sim_fill(struct sim *s, uint64_t off, const void *buf, size_t len);

/* All state, to come back to; a copy belongs to the sim it was made from. */
struct sim_copy;
struct sim_copy *sim_save(struct sim *s);	/* NULL: out of memory */
void sim_restore(struct sim *s, const struct sim_copy *copy);
void sim_copy_free(struct sim_copy *copy);

/*
 * How processes `process` (0..SIM_PROCESSES - 1, each of one host alone at a time) of `host`
 * reaches memory. Lives as long as the sim; its close does nothing.
 */
struct tarn_media *sim_media(struct sim *s, unsigned int host, unsigned int process);

/* ---- questions ---- */

enum sim_what {
	SIM_READ,	/* what does a read of this line return? */
	SIM_MEMORY,	/* what is in memory after the crash of a host that had it dirty? */
	SIM_OTHER,	/* two hosts have it dirty: was the other's copy (of host `other`) written
			 * before (1), so that it is clean now, or is it dirty still (0)? */
};

struct sim_question {
	enum sim_what what;
	unsigned int host;	/* who looks */
	unsigned int other;	/* SIM_OTHER alone */
	uint64_t off;		/* of the line */
	bool store;		/* asked because of a store to the line ... */
	bool whole;		/* ... by a write of all of it */
	/*
	 * Somebody has looked before, when the newest answer was there already, and got an older
	 * one. Another answer than `before` means that the line is evicted between the two looks.
	 */
	bool again;
	unsigned int before;
	unsigned int answers;	/* 0..answers - 1, at least 2 */
};
typedef unsigned int (*sim_choose_fn)(void *arg, const struct sim_question *q);
/* NULL: the answer is 0. */
void sim_choose(struct sim *s, sim_choose_fn fn, void *arg);

/*
 * Which contents are all the same to whoever reads them: those that no checksum fits. They count
 * as equal from then on, the oldest standing for all. Asked once for each content, when it is
 * stored. torn: a write of the whole line is in the middle. NULL: none.
 */
typedef bool (*sim_garbage_fn)(void *arg, uint64_t off, const uint8_t line[TARNFS_LINE],
			       bool torn);
void sim_garbage(struct sim *s, sim_garbage_fn fn, void *arg);

/* ---- steps ---- */

enum sim_op {
	SIM_OP_READ,		/* read, read64 */
	SIM_OP_WRITE,		/* write, write64: before the first store */
	SIM_OP_STORED,		/* after a store (8 bytes at off) that changed its line, but the last */
	SIM_OP_WRITEBACK,
	SIM_OP_INVALIDATE,
	SIM_OP_FENCE,
};

struct sim_step {
	enum sim_op op;
	unsigned int host, process;
	uint64_t off;
	size_t len;
	/*
	 * Will something be in memory for certain that was not before (fence, invalidate)?
	 */
	bool settles;
};
/* Called before each operation. It may never return (a process that is killed). NULL: none. */
typedef void (*sim_step_fn)(void *arg, const struct sim_step *step);
void sim_step(struct sim *s, sim_step_fn fn, void *arg);

/* ---- what happens to hosts and processes ---- */

/* Killed, or ended: what it wrote back and did not fence stays dirty. The number is free again. */
void sim_process_gone(struct sim *s, unsigned int process);
/* The host loses its cache, and all of its processes are gone. */
void sim_crash(struct sim *s, unsigned int host);
/*
 * All dirty lines of the host in this range are evicted now, for certain; and all clean ones are
 * dropped.
 */
void sim_evict(struct sim *s, unsigned int host, uint64_t off, size_t len);
/* Stores of a write go from the highest address down (at first: up). */
void sim_descending(struct sim *s, bool on);

/* ---- what there is ---- */

/* Is any line of the range dirty (or under way without a fence) in the cache of that host? */
bool sim_is_dirty(const struct sim *s, unsigned int host, uint64_t off, size_t len);
/* ... or in any, the loser's of a crash that memory may or may not hold included. */
bool sim_is_settled(const struct sim *s, uint64_t off, size_t len);
/*
 * The contents that memory may have in this line now, each once, newest first: how many there
 * are. At most max are copied to out.
 */
unsigned int sim_contents(const struct sim *s, uint64_t off, uint8_t (*out)[TARNFS_LINE],
			  unsigned int max);
/* What a read by that host may return now, in the order of the answers; as sim_contents(). */
unsigned int sim_readable(const struct sim *s, unsigned int host, uint64_t off,
			  uint8_t (*out)[TARNFS_LINE], unsigned int max);
/*
 * Of everything that can still be told apart by a later read of any host: equal numbers mean
 * equal futures. memory_only: as if all hosts had crashed now.
 */
uint64_t sim_hash(const struct sim *s, bool memory_only);

/* "page0.control", "area0+256", "0x1234000": for people. sb NULL: offsets alone. */
void sim_name(const struct tarn_super *sb, uint64_t off, char *out, size_t room);

#endif
