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

/* " (device offset 0x...)" of a file offset, or "" where that is not known; one static buffer. */
const char *device_offset_text(int fd, uint64_t off);

#endif
