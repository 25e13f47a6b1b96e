/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * fsck_pass.h - one pass of fsck over the media, between fsck.c (who looks and
 * how often), fsck_page.c (superblocks and host pages), fsck_log.c (log,
 * tree, extents) and fsck_repair.c (what can be put right).
 */
#ifndef TARN_FSCK_PASS_H
#define TARN_FSCK_PASS_H

#include "internal.h"
#include "fsck.h"

#include <inttypes.h>

struct found {
	enum tarn_fsck_number number;
	uint64_t off;
	uint64_t len;			/* of what is to be zero from there on, or 0 */
	char *text;
};

struct pass {
	struct tarn_fsck *f;
	struct tarn_media *m;
	struct tarn_err *err;
	int failed;			/* not a finding: it cannot go on, e.g. -ENOMEM */

	struct found *found;
	size_t nr_found, room;
	uint64_t count[TARN_FSCK_ERROR + 1];

	bool super_valid;
	struct tarn_super sb;
	struct tarn_identity ids[TARNFS_HOSTS_MAX];
	struct tarn_hoststatus status[TARNFS_HOSTS_MAX];
	struct tarn_quiesce quiesce[TARNFS_HOSTS_MAX];
	struct tarn_current cur;

	struct tarn_log log;
	bool log_looked;		/* commit word (or its stand-in) and header are good */
	bool by_quiesce;		/* the quiesce line stands in for the commit word */
	bool log_whole;			/* every committed record was good */
	uint64_t seq;			/* of the last good record */
	uint64_t directories, files, symlinks, used;
};

/* ---- fsck.c ---- */
void tarn_fsck_find(struct pass *p, enum tarn_fsck_number number, uint64_t off, const char *fmt,
		    ...) __attribute__((format(printf, 4, 5)));
/* The same, of `len` bytes from there that have to be zero. */
void tarn_fsck_find_set(struct pass *p, enum tarn_fsck_number number, uint64_t off, uint64_t len,
			const char *text);
/* Fetches; what cannot be read is a finding. */
int tarn_fsck_fetch(struct pass *p, uint64_t off, void *buf, size_t len);
/* Progress; true: stop, p->failed is set. */
bool tarn_fsck_step(struct pass *p, unsigned int step, uint64_t done, uint64_t total);
int tarn_fsck_no_memory(struct pass *p, uint64_t bytes);

/* ---- fsck_page.c ---- */
/* Negative: there is no tarnfs at all. p->super_valid: what follows can be looked at. */
int tarn_fsck_supers(struct pass *p);
void tarn_fsck_pages(struct pass *p);
/* Is there a log that is valid under this superblock's uuid? */
bool tarn_fsck_vouched(struct pass *p, const struct tarn_super *sb);
/* The control line of a page, as page or mirror has it; false: neither. */
bool tarn_fsck_control(struct pass *p, uint16_t page, struct tarn_control *control);
/* The log that counts by all control lines that can be read. */
void tarn_fsck_current(struct pass *p, struct tarn_current *cur);
/* What host pages say of the log, once that was read. */
void tarn_fsck_positions(struct pass *p);

/* ---- fsck_log.c ---- */
void tarn_fsck_log(struct pass *p);

/* ---- fsck_repair.c ---- */
/*
 * Says of each finding of a whole pass what becomes of it, and stores that. The number of
 * findings repaired, or negative: it has to end.
 */
int64_t tarn_fsck_repair(struct pass *p);

#endif
