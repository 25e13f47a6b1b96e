/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * cp.h - what the files of tarnfs cp share.
 *
 * One thread walks the source, talks to the library and prints; the threads of
 * cp_data.c only read the source and write to nameless descriptors, between a
 * batch's reservation and its commit. What they have to say they leave in the
 * items they were given.
 */
#ifndef TARN_CMD_CP_H
#define TARN_CMD_CP_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include "commands.h"

#define BATCH_FILES	1000			/* names in one commit */
#define BATCH_BYTES	(1ULL << 30)		/* a batch ends with the file that passes this */

enum dir_state {
	DIR_THERE,		/* ino is known, and there may be names in it */
	DIR_PENDING,		/* news[index] of the batch that is being filled */
	DIR_FAILED,		/* could not be created: nothing in it can */
};

/* A directory on both sides. While threads run nothing in it changes. */
struct dir {
	struct dir *parent;	/* NULL: the top, whose sides are opened by path */
	struct dir *next_made;	/* list of all, to free */
	struct dir *next;	/* stack of those to walk */
	char *source, *dest;	/* path at the top, else one name */
	uint64_t ino;		/* of the destination */
	size_t index;
	enum dir_state state;
	bool fresh;		/* created by this run: no name in it yet but ours */
	bool bare[2];		/* a top that is "." because nobody said where: [source] */
};

struct item {
	struct dir *dir;	/* where it is */
	struct dir *self;	/* a directory's own */
	char *source, *dest;	/* names */
	char *target;		/* of a symbolic link */
	struct stat st;
	bool dropped;
	/* of a file, by the threads */
	uint64_t left;		/* chunks that are not whole yet [pool lock] */
	char *why;		/* the first failure [pool lock] */
	bool xattrs, acls;	/* by who copies its first chunk */
};

struct opened {			/* the most recent directory of one side, for one thread */
	const struct dir *dir;	/* NULL: none */
	int fd;
};

struct totals {
	uint64_t files, directories, symlinks, bytes;
	uint64_t skipped, errors;
	uint64_t differing;	/* there already, with another owner, mode or shared-write flag */
	uint64_t linked;	/* files with more than one name in the source */
	uint64_t xattrs, acls;	/* names that have some; acls are among xattrs */
	uint64_t space, largest;	/* of the plan: in whole blocks */
	uint64_t largest_huge;		/* ... of those that begin at a multiple of 2 MiB */
	uint64_t log;			/* of the plan: bytes */
};

struct pool;

struct copy {
	struct tarn_session session;
	bool recursive, verbose, keep_owner, shared_write, dry_run;
	bool exact;		/* DEST is the name of the copy, whatever is there */
	unsigned int threads;
	bool planning;		/* the first pass: everything is looked at, nothing done */
	bool quiet;		/* ... and what it finds is said by the second */
	bool again;		/* an earlier source may have put the same name there */
	bool renamed;		/* a directory gets a name that was not there */
	bool dotted;		/* a source was one without a name, as in "a/." */
	uint64_t linked_sources; /* symbolic links to directories, copied as links */
	const char *linked_source; /* ... the first */
	bool stop;		/* going on makes no sense */
	bool cut_short;		/* a signal left something out */
	struct totals plan, done;
	struct dir *dirs, *stack;
	struct opened source, dest;
	dev_t dev;		/* of the tarnfs */
	struct { dev_t dev; ino_t ino; } *above;	/* the destination and its ancestors */
	size_t above_count;
	/* inode numbers of shared-write files, in order, once the log was asked for them */
	uint64_t *shared, shared_until;
	size_t shared_count, shared_room;
	bool shared_known;
	/* bad memory that the mount knew of when somebody asked first */
	struct tarnfs_range *bad;
	uint32_t bad_count;
	bool bad_known;
	struct item *entries;
	struct tarn_new *news;
	size_t count;
	uint64_t batch_bytes;
	struct pool *pool;
	bool progress, drawn;	/* a terminal; a line stands on it */
	struct timespec start;
	/* by the threads, for the progress line */
	_Atomic uint64_t files_read, bytes_read;
};

/* ---- cp.c ---- */
/* The signal that asked for an end, or 0. */
extern _Atomic int cp_signal;
void cp_progress(struct copy *c);
/* Before anything else is printed. */
void cp_progress_clear(struct copy *c);

/* ---- cp_walk.c ---- */
/* A complaint about one source name, counted as an error. name NULL: the directory itself. */
void cp_fail(struct copy *c, const struct dir *d, const char *name, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* "top/a/b/name" of one side as the user began it, malloc()ed; name may be NULL */
char *cp_path(const struct dir *d, bool source, const char *name);
/*
 * Descriptor of a directory, kept in *o until its next call. Opened name by
 * name without following links. Negative errno. For any thread with its own *o.
 */
int cp_open_dir(struct opened *o, const struct dir *d, bool source);
void cp_opened_close(struct opened *o);
/* A name that is there already: merged, skipped or an error. 1 = dealt with. */
int cp_already_there(struct copy *c, struct item *e);
/* A signal came (which leaves something out), or going on makes no sense. */
bool cp_stopped(struct copy *c);
/* One pass over all sources: the plan, or with the batches that it fills. */
void cp_walk(struct copy *c, char **sources, int count, const char *dest);
void cp_free_dirs(struct copy *c);
void cp_free_item(struct item *e);

/* ---- cp_batch.c ---- */
/* What the record of an item will say. */
void cp_describe(const struct copy *c, const struct item *e, struct tarn_new *n);
/* Reserves, fills and commits entries[0..count), and empties it. */
void cp_flush_batch(struct copy *c);

/* ---- cp_data.c ---- */
int cp_pool_start(struct copy *c);
void cp_pool_stop(struct copy *c);
/*
 * Copies the bytes of all files of the batch that are not dropped. Of a file
 * whose copy is whole and in memory, left is 0 and why is NULL; of others why
 * is set, or neither when a signal came first.
 */
void cp_pool_fill(struct copy *c, struct item *entries, struct tarn_reservation *r, size_t count);
/* Which extended attributes an open file has, as far as they could be copied. */
void cp_look_at_xattrs(int fd, bool *xattrs, bool *acls);

#endif
