/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * badranges.h - the bad memory of a device, and whose it is.
 */
#ifndef TARN_CMD_BADRANGES_H
#define TARN_CMD_BADRANGES_H

#include "source.h"

struct badranges;

/* What the kernel knows; NULL: it could not be asked, *why says why (static). */
struct badranges *badranges_get(const struct source *s, const char **why);
/*
 * Prints the part "bad ranges" of status. cur: the log to take names from, or
 * generation 0: then files have none.
 */
void badranges_print(const struct badranges *bad, const struct source *s,
		     const struct tarn_current *cur);
void badranges_free(struct badranges *bad);

#endif
