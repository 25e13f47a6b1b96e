/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * pattern.h - the bytes of creat --fill and verify: a function of a seed, the
 * file's name and the offset, so that any piece can be made and checked alone.
 */
#ifndef TARN_CMD_PATTERN_H
#define TARN_CMD_PATTERN_H

#include <stddef.h>
#include <stdint.h>

/* Of the last component of path, without trailing slashes. */
uint64_t pattern_key(uint64_t seed, const char *path);
/* The bytes at [off, off + len) of the file. */
void pattern_fill(uint64_t key, uint64_t off, void *buf, size_t len);

#endif
