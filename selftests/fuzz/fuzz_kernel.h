/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A session over the image of fuzz.h with a kernel of testkernel.h: a host that
 * has claimed its page and has replayed nothing.
 */
#ifndef FUZZ_KERNEL_H
#define FUZZ_KERNEL_H

#include "fuzz.h"
#include "testkernel.h"

struct fuzz_session {
	struct tarn_session s;
	struct testkernel *kernel;
	struct tarn_claim claim;
};

static inline void fuzz_session_next(struct fuzz_session *f)
{
	memset(&f->s, 0, sizeof(f->s));
	f->s.dirfd = f->s.metafd = -1;
	f->s.kernel = testkernel_ops(f->kernel);
	f->s.media = fuzz_media();
	f->s.sb = fuzz_super;
	f->s.claim = f->claim;
	f->s.kernel->ops->status(f->s.kernel, &f->s.st);
}

/* page: 0 is the master of the base's log, 2 a client. */
static inline void fuzz_session_open(struct fuzz_session *f, int page)
{
	f->kernel = testkernel_new(&fuzz_super);
	f->claim = fuzz_claim[page];
	fuzz_session_next(f);
	/* the append lock, which AT_END of a master wants */
	f->s.kernel->ops->lock(f->s.kernel);
}

static inline void fuzz_session_close(struct fuzz_session *f)
{
	f->s.kernel->ops->unlock(f->s.kernel);
	testkernel_free(f->kernel);
}

#endif
