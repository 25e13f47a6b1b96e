/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * common.h - what every tarnfs program shares: messages, numbers as people
 * write them, names made safe to print, and where things are mounted.
 */
#ifndef TARN_CMD_COMMON_H
#define TARN_CMD_COMMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "../lib/tarn.h"

/* Exit codes of tarnfs; mkfs, mount and umount have their own. */
enum {
	EXIT_OK		= 0,
	EXIT_FAILED	= 1,
	EXIT_USAGE	= 2,
};

/*
 * First call of main(): the name that messages begin with. Closed standard
 * descriptors are filled so that no device is ever opened as descriptor 1.
 */
void program_start(const char *name);
/* "tarnfs cp" instead of "tarnfs" from now on. */
void program_name(const char *name);

/* "NAME: text" and a newline on stderr. */
void complain(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* The text of err, or what errno number -ret means; with "what: " in front unless what is NULL. */
void complain_err(const struct tarn_err *err, int ret, const char *what);
/* "try 'NAME --help'", the second line of every usage error. */
void complain_usage(void);
/*
 * Last call of main(): closes stdout; when that fails (disk full, closed),
 * says so and returns `failed` in place of an exit code of 0.
 */
int program_end(int code, int failed);

/* "64M", "1GiB", "4096": bytes, K M G T are powers of 1024. -EINVAL, -ERANGE. */
int parse_size(const char *text, uint64_t *bytes);
/* 0..07777 in octal. -EINVAL. */
int parse_mode(const char *text, uint16_t *mode);
/* Decimal within [min, max]. -EINVAL. */
int parse_number(const char *text, uint64_t min, uint64_t max, uint64_t *value);

/* "1.5 GiB": at most 15 characters and NUL; whole when it divides. */
#define SIZE_TEXT 16
const char *size_text(char out[SIZE_TEXT], uint64_t bytes);

/*
 * Printable form of bytes from the media or a file system: control bytes,
 * backslash and what is not UTF-8 become \xHH. malloc()ed, never NULL.
 */
char *printable(const char *bytes, size_t len);
/* The same, into one of eight buffers used in turn: for messages. */
const char *shown(const char *name);

void *must_alloc(void *p);
char *must_format(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* One line of /proc/self/mountinfo. */
struct mount_entry {
	unsigned int id, major, minor;
	char *root, *dir, *type, *source;
};
/* The topmost mount whose mount point is dir (canonical). -ENOENT. */
int mount_entry_find(const char *dir, struct mount_entry *out);
/* Any mount of that type, the first. -ENOENT. */
int mount_entry_of_type(const char *type, struct mount_entry *out);
void mount_entry_free(struct mount_entry *e);
/*
 * Of a device that is in use although no mount of it can be seen: adds what that may be. What
 * the kernel says there ("mounted already") names a mount that nobody finds.
 */
void busy_unseen(const struct tarn_device *d, int ret, struct tarn_err *err);
/* Is that a regular file on a mounted tarnfs, and so hardly an image of one? */
bool file_on_tarnfs(const char *path);
/* -N of mount(8): a path, or the number of a process. Complains itself. */
int enter_mount_namespace(const char *name);

/* The two pages of one host. */
void host_page_ranges(const struct tarn_super *sb, uint16_t page, struct tarn_media_range out[2]);
/*
 * Publishes the status line of this host for what its kernel has applied,
 * under the page lock. The own page must be mapped writable.
 */
int publish_status(struct tarn_session *s, struct tarn_err *err);
/* replay(at_end) under the append lock: returns the records applied. */
int64_t replay_to_end(struct tarn_session *s, struct tarn_err *err);

#endif
