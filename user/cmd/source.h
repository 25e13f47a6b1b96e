/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * source.h - metadata to read, wherever it is.
 */
#ifndef TARN_CMD_SOURCE_H
#define TARN_CMD_SOURCE_H

#include "common.h"

struct source {
	struct tarn_media *media;
	const struct tarn_super *sb;
	uint64_t dev_size;
	bool mounted;			/* session is open, else meta is */
	struct tarn_session session;
	struct tarn_device device;
	struct tarn_meta meta;
	struct tarn_super own_sb;
};

/* path: a directory on a mount, a device, an image. Read-only; what is mounted here is read through its mount. */
int source_open(struct source *s, const char *path, struct tarn_err *err);
void source_close(struct source *s);

#endif
