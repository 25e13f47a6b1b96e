/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * planted.h - faults planted on purpose, to show that the tests find them.
 *
 * Each is one condition, TARN_PLANTED(NAME), at the place that keeps a rule.
 * It is constant false, and so no code at all, in every build but those of
 * tools/crash and of selftests/unit/planted.sh, which define TARN_PLANT: there
 * tools/crash/planted.c switches one on by its name.
 */
#ifndef TARN_PLANTED_H
#define TARN_PLANTED_H

#include <stdbool.h>

/*
 * In the code, on a command line, the section of the protocol (or the promise in
 * Documentation/coherence.rst), and the rule that is broken. Only what can be seen is here:
 * tools/crash/explore --faults has to find each.
 */
#define TARN_FAULTS(FAULT) \
	FAULT(MKFS_OLD_SUPER_STAYS, "mkfs-old-super-stays", "section 7", \
	      "mkfs: both superblocks die before anything else is written") \
	FAULT(MKFS_SUPER_FIRST, "mkfs-super-first", "section 7", \
	      "mkfs: the first superblock is written last") \
	FAULT(MKFS_LOG_DIRTY, "mkfs-log-dirty", "section 7", \
	      "mkfs: the log is in memory before the superblock says that there is one") \
	FAULT(LINES_CACHED, "lines-cached", "section 3", \
	      "hosts: a line of a host page is invalidated before it is read") \
	FAULT(CLAIM_RETRY_ON_COPY, "claim-retry-on-copy", "section 5", \
	      "hosts: another attempt reads all host pages again") \
	FAULT(CLAIM_NO_CHECK, "claim-no-check", "section 5", \
	      "hosts: a claim counts when it still stands after the wait") \
	FAULT(CLAIM_DIRTY, "claim-dirty", "section 5", \
	      "hosts: a claim is in memory when the wait begins") \
	FAULT(CLAIM_AT_ONCE, "claim-at-once", "section 5", \
	      "hosts: the mirror follows when the page is in memory: one of them is whole") \
	FAULT(NONCE_IGNORED, "nonce-ignored", "section 5", \
	      "hosts: the own nonce is looked at after a claim, and before each append and replay") \
	FAULT(APPEND_LOCK_LET_GO, "append-lock-let-go", "section 2", \
	      "append: the append lock is held from the replay on") \
	FAULT(APPEND_NO_CHECK, "append-no-check", "section 2", \
	      "append: the kernel has checked a batch before it is written") \
	FAULT(APPEND_RECORDS_DIRTY, "append-records-dirty", "section 2", \
	      "append: records are written back before the commit word") \
	FAULT(APPEND_NO_FENCE, "append-no-fence", "section 2", \
	      "append: a fence stands between the records and the commit word") \
	FAULT(APPEND_COMMIT_FIRST, "append-commit-first", "section 2", \
	      "append: the commit word follows the records") \
	FAULT(APPEND_COMMIT_HALVES, "append-commit-halves", "section 2", \
	      "append: the commit word is one store of 8 bytes") \
	FAULT(APPEND_COMMIT_TWICE, "append-commit-twice", "section 2", \
	      "append: a batch is one commit") \
	FAULT(APPEND_COMMIT_DIRTY, "append-commit-dirty", "section 2", \
	      "append: the own commit word is acted on when it is in memory") \
	FAULT(APPEND_APPLY_FIRST, "append-apply-first", "section 2", \
	      "append: nothing is visible before it is committed") \
	FAULT(APPEND_NO_RESCAN, "append-no-rescan", "section 2", \
	      "append: the host pages are scanned again after the commit word") \
	FAULT(REPLAY_NO_RESCAN, "replay-no-rescan", "section 3", \
	      "replay: the host pages are scanned again before anything is applied") \
	FAULT(REPLAY_HALF_BATCH, "replay-half-batch", "section 1", \
	      "replay: a batch is handed to the kernel in one call") \
	FAULT(REPLAY_COMMIT_CACHED, "replay-commit-cached", "section 3", \
	      "replay: the commit word is invalidated before it is read") \
	FAULT(REPLAY_RECORDS_CACHED, "replay-records-cached", "section 3", \
	      "replay: records are invalidated before they are read") \
	FAULT(LIMBO_SKIPPED, "limbo-skipped", "section 2", \
	      "kernel: a reservation that was let go is free after the next AT_END only") \
	FAULT(CHECK_STAYS, "check-stays", "section 2", \
	      "kernel: CHECK leaves no trace of the batch") \
	FAULT(CHECK_POSITION, "check-position", "section 2", \
	      "kernel: the position in the log is that of what is applied") \
	FAULT(INO_AGAIN, "ino-again", "section 1", \
	      "kernel: no inode number is handed out twice") \
	FAULT(MADE_EVERYWHERE, "made-everywhere", "first look", \
	      "kernel: only the host that made a file has no old bytes of it in its cache") \
	FAULT(CP_NO_FSYNC, "cp-no-fsync", "names after bytes", \
	      "cp: a file's bytes are in memory before its name is committed")

enum tarn_fault {
	TARN_FAULT_NONE,
#define TARN_FAULT_ENUM(name, text, section, rule)	TARN_FAULT_##name,
	TARN_FAULTS(TARN_FAULT_ENUM)
#undef TARN_FAULT_ENUM
	TARN_FAULTS_END
};

#ifdef TARN_PLANT
bool tarn_planted(enum tarn_fault fault);
#define TARN_PLANTED(name)	tarn_planted(TARN_FAULT_##name)

/* Which one is there from now on; at first that which TARNFS_PLANTED=NAME names, or none. */
void tarn_plant(enum tarn_fault fault);
enum tarn_fault tarn_fault_find(const char *text);	/* TARN_FAULT_NONE: no such name */
const char *tarn_fault_name(enum tarn_fault fault);
const char *tarn_fault_rule(enum tarn_fault fault);
const char *tarn_fault_section(enum tarn_fault fault);
#else
/* the name has to be right in every build */
#define TARN_PLANTED(name)	((void)TARN_FAULT_##name, false)
#endif

#endif
