/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * fsck.h - does everything on the media say what it can say? And repair of what can be put
 * right without a guess, where it is asked for.
 *
 * Other hosts, and this one, may change the media meanwhile. A pass over all of
 * it that ends with another log than it began with counts for nothing, and what
 * a pass finds is told only when the next pass finds it too.
 */
#ifndef TARN_FSCK_H
#define TARN_FSCK_H

#include "tarn.h"

enum tarn_fsck_severity {
	TARN_FSCK_NOTE,		/* a state that a crash or a takeover leaves: no fault */
	TARN_FSCK_WARNING,	/* damage that something stands in for */
	TARN_FSCK_ERROR,	/* damage that replay stops at, or that loses something */
};

/* Never renumbered: scripts and the table in Documentation/commands.rst hold them. */
enum tarn_fsck_number {
	TARN_FSCK_UNREADABLE	= 1,

	TARN_FSCK_SUPER_FIRST	= 101,
	TARN_FSCK_SUPER_SECOND	= 102,
	TARN_FSCK_SUPER_DIFFER	= 103,
	TARN_FSCK_SUPER_FOREIGN	= 104,
	TARN_FSCK_SUPER_NEWER	= 105,
	TARN_FSCK_SUPER_SIZE	= 106,

	TARN_FSCK_IDENTITY_ONE	= 201,
	TARN_FSCK_IDENTITY_BOTH	= 202,
	TARN_FSCK_COPIES_DIFFER	= 203,
	TARN_FSCK_COPIES_CUT	= 204,
	TARN_FSCK_CONTROL_ONE	= 205,
	TARN_FSCK_CONTROL_BOTH	= 206,
	TARN_FSCK_NO_LOG	= 207,
	TARN_FSCK_TWO_LOGS	= 208,
	TARN_FSCK_SEALED	= 209,
	TARN_FSCK_LINE		= 210,
	TARN_FSCK_LINE_FIELD	= 211,
	TARN_FSCK_LINE_NONCE	= 212,
	TARN_FSCK_STATUS_AHEAD	= 213,
	TARN_FSCK_QUIESCE	= 214,
	TARN_FSCK_TWO_PAGES	= 215,
	TARN_FSCK_PAGE_RESERVED	= 216,
	TARN_FSCK_FREE_PAGE	= 217,
	TARN_FSCK_COMPACTION	= 218,

	TARN_FSCK_COMMIT	= 301,
	TARN_FSCK_COMMIT_UNITS	= 302,
	TARN_FSCK_HEADER	= 303,
	TARN_FSCK_HEADER_FIELD	= 304,
	TARN_FSCK_HEADER_NEWER	= 305,
	TARN_FSCK_READONLY	= 306,
	TARN_FSCK_TAIL		= 307,
	TARN_FSCK_LEFTOVER	= 308,

	TARN_FSCK_RECORD	= 401,
	TARN_FSCK_RECORD_LENGTH	= 402,
	TARN_FSCK_RECORD_FIELD	= 403,
	TARN_FSCK_RECORD_NEWER	= 404,
	TARN_FSCK_RECORD_READONLY = 405,
	TARN_FSCK_RECORD_IGNORED = 406,
	TARN_FSCK_RECORD_UNBUILT = 407,
	TARN_FSCK_SEQ		= 408,
	TARN_FSCK_BATCH		= 409,
	TARN_FSCK_BATCH_END	= 410,
	TARN_FSCK_MISPLACED	= 411,
	TARN_FSCK_ORDINAL	= 412,
	TARN_FSCK_ROOT		= 413,
	TARN_FSCK_CKPT_LENGTH	= 414,
	TARN_FSCK_CKPT_COUNTS	= 415,
	TARN_FSCK_GIVEN_UP	= 416,

	TARN_FSCK_INO_TWICE	= 501,
	TARN_FSCK_NO_PARENT	= 502,
	TARN_FSCK_PARENT_LATER	= 503,
	TARN_FSCK_PARENT_TYPE	= 504,
	TARN_FSCK_NAME_TWICE	= 505,
	TARN_FSCK_INO_RANGE	= 506,

	TARN_FSCK_EXTENT_RANGE	= 601,
	TARN_FSCK_EXTENT_SHARED	= 602,
	TARN_FSCK_EXTENT_ALIGN	= 603,
	TARN_FSCK_EXTENT_LENGTH	= 604,

	TARN_FSCK_RESERVED	= 701,
};

struct tarn_fsck_kind {
	enum tarn_fsck_number number;
	enum tarn_fsck_severity severity;
	const char *text;	/* what it is, without the particulars */
};
/* All of them, in ascending order; *count is set. */
const struct tarn_fsck_kind *tarn_fsck_kinds(size_t *count);

struct tarn_fsck_finding {
	enum tarn_fsck_number number;
	enum tarn_fsck_severity severity;
	uint64_t off;		/* byte of the device */
	const char *text;	/* a sentence, no bytes of the media in it */
};

/* Which findings of a number are repaired. Some of them are refused all the same, with the reason. */
enum tarn_fsck_when {
	TARN_FSCK_NEVER,
	TARN_FSCK_ASKED,	/* by -y: no guess, but it changes what counts, or loses traces */
	TARN_FSCK_SAFE,		/* by -p and -y: certain and harmless */
};
enum tarn_fsck_when tarn_fsck_repairs(enum tarn_fsck_number number);

enum tarn_fsck_mode {
	TARN_FSCK_LOOK,
	TARN_FSCK_DRY,		/* and say what TARN_FSCK_REPAIR would do */
	TARN_FSCK_PREEN,
	TARN_FSCK_REPAIR,
};

struct tarn_fsck_repair {
	enum tarn_fsck_number number;
	uint64_t off;		/* that of the finding */
	enum { TARN_FSCK_DONE, TARN_FSCK_WOULD, TARN_FSCK_LEFT } outcome;
	enum tarn_fsck_when when;
	const char *text;	/* how, or why not: for LEFT of TARN_FSCK_NEVER said once a number */
};

/* Steps of a pass, for progress. */
#define TARN_FSCK_STEPS 4

struct tarn_fsck {
	/* in */
	uint64_t dev_size;	/* bytes; the media may be shorter (a mounted one: up to data_start) */
	void (*finding)(void *arg, const struct tarn_fsck_finding *finding);
	/* step 1..TARN_FSCK_STEPS, done of total; not 0: stop with -ECANCELED. May be NULL. */
	int (*progress)(void *arg, unsigned int step, uint64_t done, uint64_t total);
	void *arg;
	enum tarn_fsck_mode mode;
	/* What was, would be, or is not repaired; not called to LOOK. */
	void (*repair)(void *arg, const struct tarn_fsck_repair *repair);
	bool exclusive;		/* nothing of this host has it mounted: its own claims are void */
	bool hosts_fenced;	/* the operator's word that all hosts are powered off or reset */
	bool truncate;		/* give up what is in the log after truncate_seq */
	uint64_t truncate_seq;
	/* out: what of the log could be read */
	bool super_valid;	/* host pages were looked at */
	bool log_looked;	/* and the log: counts, used and seq are known, of what was good */
	uint8_t uuid[16];
	uint64_t generation, seq;
	uint16_t log_host;
	uint64_t directories, files, symlinks;
	uint64_t used, data;	/* bytes in files' extents, bytes of data */
	uint64_t count[TARN_FSCK_ERROR + 1];	/* findings of each severity */
	uint64_t untold;	/* of them, those after the first TARN_FSCK_TOLD */
	uint64_t repaired;	/* findings; count[] is without them */
};

#define TARN_FSCK_TOLD 10000

/*
 * 0: done, count[] says with what outcome. -ENODATA no tarnfs there; -ECANCELED; -ENOMEM;
 * -EBUSY the log changed hands at every attempt. Takes memory in proportion to what is
 * committed of the log. PREEN and REPAIR need media that can be written up to data_start;
 * -EAGAIN: a host came meanwhile, and no more was repaired.
 */
int tarn_fsck(struct tarn_fsck *f, struct tarn_media *m, struct tarn_err *err);

#endif
