/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * extent.h - regular files as map, flush and verify open them, and where a
 * file is on the device.
 */
#ifndef TARN_CMD_EXTENT_H
#define TARN_CMD_EXTENT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "../lib/tarn.h"

/*
 * Opened for reading; links are followed. need_tarnfs: files of other file
 * systems are refused. Complains itself.
 */
int open_regular(const char *path, bool need_tarnfs, struct stat *st);

/*
 * The one extent of a file, as FIEMAP has it: bytes of the device. len 0: an
 * empty file. -EUCLEAN: the kernel names more than one, or one that does not
 * begin with the file.
 */
int file_extent(int fd, uint64_t *off, uint64_t *len);

/* " (device offset 0x...)" of a file offset, or "" where that is not known; one buffer a thread. */
const char *device_offset_text(int fd, uint64_t off);

/*
 * The first byte of the file from off on that is in one of the ranges of bad
 * memory. False: none is.
 */
bool file_first_bad(int fd, const struct tarnfs_range *ranges, uint32_t count, uint64_t off,
		    uint64_t *at);
/* The same, of what the kernel knows now. False also where it does not say: to root alone it does. */
bool file_first_bad_now(int fd, uint64_t off, uint64_t *at);
/* What is to be added to an errno of that byte: ": memory has failed...", or "". Constant. */
const char *failed_memory_text(int fd, uint64_t off, int error);

#endif
