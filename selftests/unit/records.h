/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Records of a log that a test writes by hand.
 */
#ifndef RECORDS_H
#define RECORDS_H

#include "internal.h"

/* A directory or symlink, or a file without bytes. */
static inline struct tarn_rec record_node(uint16_t type, uint64_t seq, uint64_t ino,
					  uint64_t parent, const char *name)
{
	return (struct tarn_rec){ .type = type, .seq = seq, .ino = ino, .parent = parent,
				  .name = name, .name_len = (uint16_t)strlen(name), .mode = 0644 };
}

/* off: of its bytes, from the start of the data */
static inline struct tarn_rec record_file(const struct tarn_super *sb, uint64_t seq, uint64_t ino,
					  uint64_t parent, const char *name, uint64_t size,
					  uint64_t off)
{
	struct tarn_rec rec = record_node(TARNFS_REC_FILE, seq, ino, parent, name);

	rec.size = size;
	rec.extents = size ? 1 : 0;
	rec.ext_off = size ? sb->data_start + off : 0;
	rec.ext_len = tarn_round_up(size, TARNFS_BLOCK);
	return rec;
}

#endif
