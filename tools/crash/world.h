/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * world.h - hosts with kernels and processes over the simulator, the operations
 * that they do, and the oracle.
 *
 * The code that runs is all of user/lib, and kmod/node.c in selftests/unit/testkernel.c.
 * What the commands in user/cmd do around it is short, and stands in world.c
 * again: the steps of mount.tarnfs, umount.tarnfs, mkfs.tarnfs, logplay and cp.
 * What the kernel does with the bytes of files (zeroes the tail, writes back
 * and invalidates a reservation that is let go of, invalidates before the
 * first use) is there too.
 *
 * Everything is made of questions that explore.c answers (world_ask()): the
 * same answers make the same world.
 */
#ifndef WORLD_H
#define WORLD_H

#include "sim.h"

/* How a world begins. */
enum world_start {
	WORLD_RAW,	/* old bytes on the device, no host has mounted anything */
	WORLD_MADE,	/* a file system with one file; host 0, the master, and host 1 have it
			 * mounted, hosts 2 and 3 have not */
	WORLD_STARTS
};

/* An operation is a letter. */
#define WORLD_OPS "dcpsMmlLuUxXTK"
const char *world_op_text(char op);

/* ---- what explore.c provides ---- */

/* n >= 2 ways to go on, 0..n-1. 0 is the plain one; rare: and what a random walk mostly takes. */
unsigned int world_ask(unsigned int n, bool rare);
/* What happens next is kept by explore.c, if it traces. */
void world_trace(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
extern bool world_tracing;
/* Runs are random ones: no bound but time. */
extern bool world_random;
/*
 * Has a state with this number been seen before in this search? Then the same
 * follows as then, and this run may end.
 */
bool world_seen(uint64_t hash);

/* ---- what world.c does ---- */

enum world_end {
	WORLD_FINE,	/* to the end, and nothing was wrong */
	WORLD_PRUNED,	/* ended early: an operation was not possible, or the state is known */
	WORLD_WRONG,	/* world_fault() says what */
};

int world_init(void);	/* once: 0, or -ENOMEM */
/* One run: ops is a string of letters. */
enum world_end world_run(enum world_start start, const char *ops);
const char *world_fault(void);
void world_descending(bool on);	/* of sim_descending() */
/* Runs so far that came to an end of their own, and calls of recovery. */
extern uint64_t world_recoveries;

#endif
