// SPDX-License-Identifier: GPL-2.0-only
/*
 * A log of an enemy, replayed into node.c: the tree that comes out is a whole
 * one, holds no part of a batch, holds what the records say, and replay has
 * nothing to do when it is called again.
 */
#include "fuzz.h"
#include "fuzz_kernel.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

const uint8_t fuzz_weights[4] = { 13, 2, 0, 1 };

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	fuzz_image_init();
	return 0;
}

struct expected {
	struct testkernel *t;
	uint64_t seq;		/* of the kernel */
	bool last_of_batch;	/* a record of that seq is */
	uint64_t files, directories, symlinks;
};

static int on_record(void *arg, const struct tarn_rec *rec)
{
	struct expected *e = arg;

	if (!(rec->flags & TARNFS_RECORD_CKPT)) {
		if (rec->seq > e->seq)
			return 0;
		if (rec->seq == e->seq)
			e->last_of_batch = !rec->batch_left;
	}
	e->directories += rec->type == TARNFS_REC_DIRECTORY;
	e->files += rec->type == TARNFS_REC_FILE;
	e->symlinks += rec->type == TARNFS_REC_SYMLINK;
	return 0;
}

/* What stands in the log up to the kernel's seq is what the kernel has. */
static void check_tree(struct fuzz_session *f)
{
	struct expected e = { .t = f->kernel };
	struct tarn_current cur;
	struct tarnfs_status st;
	struct tarn_log log;
	uint32_t pos = TARNFS_LOG_HEADER_UNITS;

	f->s.kernel->ops->status(f->s.kernel, &st);
	if (st.state & TARNFS_ST_FRESH) {
		fuzz_check(!st.files && !st.directories && !st.symlinks, "a fresh tree has names");
		return;
	}
	if (tarn_scan(fuzz_media(), &fuzz_super, &cur, NULL, NULL) ||
	    tarn_log_open(&log, fuzz_media(), &fuzz_super, &cur, NULL) ||
	    log.seed.generation != st.generation || log.seed.host != st.log_host)
		return;
	e.seq = st.seq;
	e.last_of_batch = st.seq == log.base_seq;
	tarn_log_walk(&log, fuzz_media(), &pos, on_record, &e, NULL);
	fuzz_check(e.last_of_batch, "seq %llu is applied, which is within a batch",
		   (unsigned long long)st.seq);
	fuzz_check(e.files == st.files && e.directories == st.directories &&
		   e.symlinks == st.symlinks, "the tree has %llu files, %llu directories, %llu "
		   "symlinks, and the log %llu, %llu, %llu", (unsigned long long)st.files,
		   (unsigned long long)st.directories, (unsigned long long)st.symlinks,
		   (unsigned long long)e.files, (unsigned long long)e.directories,
		   (unsigned long long)e.symlinks);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_session f;
	struct tarn_err err = { "" };
	struct fuzz_input in;
	int64_t ret, again;
	uint64_t seq;
	bool still = fuzz_image_load(data, size, &in);

	fuzz_session_open(&f, in.opt[0] & 1 ? 2 : 0);
	ret = tarn_replay(&f.s, true, &err);
	fuzz_check_err(ret < 0 ? (int)ret : 0, &err);
	testkernel_verify(f.kernel);
	/* what an enemy changes meanwhile may become anything, but no tree that is not whole */
	if (still) {
		check_tree(&f);
		seq = f.s.st.seq;
		again = tarn_replay(&f.s, true, &err);
		fuzz_check((again < 0) == (ret < 0) && again <= 0, "again: %lld after %lld: %s",
			   (long long)again, (long long)ret, err.text);
		fuzz_check(ret < 0 || f.s.st.seq == seq, "again: another seq");
	} else {
		fuzz_image_settle();
		tarn_replay(&f.s, true, &err);
		fuzz_check_text(err.text);
	}
	testkernel_verify(f.kernel);
	/* another process of this host, which knows what the kernel knows */
	fuzz_session_next(&f);
	again = tarn_replay(&f.s, false, &err);
	fuzz_check(!still || ((again < 0) == (ret < 0) && again <= 0),
		   "the next command: %lld after %lld: %s", (long long)again, (long long)ret,
		   err.text);
	testkernel_verify(f.kernel);
	fuzz_session_close(&f);
	fuzz_image_reset();
	return 0;
}
