/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * internal.h - what the files of libtarnfs share among themselves (and with
 * their unit tests), and no command needs. Included first everywhere, since
 * it asks for the GNU interfaces.
 */
#ifndef TARN_INTERNAL_H
#define TARN_INTERNAL_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tarn.h"
#include "planted.h"

#define TARN_ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

static inline uint64_t tarn_round_up(uint64_t v, uint64_t align)
{
	return (v + align - 1) / align * align;
}

static inline bool tarn_all_zero(const void *buf, size_t len)
{
	const uint8_t *p = buf;

	/* each byte is the one before it, and the first is zero */
	return !len || (!*p && !memcmp(p, p + 1, len - 1));
}

/* ---- media.c ---- */
/* write, write back, fence: when it returns the bytes are in memory */
int tarn_media_store(struct tarn_media *m, uint64_t off, const void *buf, size_t len);
/* The same of one aligned word that is never torn, with its line. */
int tarn_media_store64(struct tarn_media *m, uint64_t off, uint64_t value);

/* ---- cacheops.c ---- */
/* The most that one write back of a line overwrites in memory. */
size_t tarn_cache_granule(void);

/* ---- device.c ---- */
/* 0, or -EOPNOTSUPP: pages of another size than the format's blocks, or lines too large. */
int tarn_machine_fits(size_t page, size_t granule, struct tarn_err *err);
int tarn_machine_check(struct tarn_err *err);	/* the same of this machine */

/* ---- uuid.c ---- */
uint64_t tarn_nonce(void);	/* random, never 0 */

/* ---- host.c ---- */
struct tarn_host_files {
	const char *config;	/* /etc/tarnfs/host */
	const char *machine_id;
	const char *boot_id;
};
int tarn_host_id_from(struct tarn_host_id *id, const uint8_t fs_uuid[16],
		      const struct tarn_host_files *files, struct tarn_err *err);

/* ---- hostpage.c ---- */
static inline uint64_t tarn_line_off(const struct tarn_super *sb, uint16_t page, unsigned int line)
{
	return sb->hosts_off + (uint64_t)page * sb->host_stride + line * TARNFS_LINE;
}

static inline uint64_t tarn_mirror_line_off(const struct tarn_super *sb, uint16_t page,
					    unsigned int line)
{
	return sb->mirror_off + (uint64_t)page * sb->host_stride + line * TARNFS_LINE;
}

/* The media form of a line, its crc included (seed: fs uuid). */
void tarn_identity_encode(struct tarnfs_identity *raw, const struct tarn_identity *id,
			  uint16_t page, const uint8_t fs_uuid[16]);
void tarn_control_encode(struct tarnfs_control *raw, const struct tarn_control *control,
			 uint16_t page, const uint8_t fs_uuid[16]);
/*
 * A checked line as it stands in memory. -EIO or -EUCLEAN: bad; -ENODATA: all zero, never
 * written.
 */
int tarn_line_read(struct tarn_media *m, const struct tarn_super *sb, uint64_t off, void *line);
/*
 * Window, status, quiesce or contend as a claim with that nonce leaves it; nonce 0: as mkfs does.
 */
void tarn_line_cleared(void *raw, const struct tarn_super *sb, uint16_t page, unsigned int line,
		       uint64_t nonce);
/* One copy, of page or mirror: as tarn_line_read, and -EUCLEAN for a bad field. */
int tarn_identity_copy(struct tarn_media *m, const struct tarn_super *sb, uint64_t off,
		       uint16_t page, struct tarn_identity *id);
int tarn_control_copy(struct tarn_media *m, const struct tarn_super *sb, uint64_t off,
		      uint16_t page, struct tarn_control *control);
/*
 * The identity of a page, from its mirror if need be (then it counts as
 * claimed), `bad` when from neither. Fails on nothing but misuse.
 */
int tarn_identity_read(struct tarn_media *m, const struct tarn_super *sb, uint16_t page,
		       struct tarn_identity *id);
/* -EAGAIN: another host's nonce stands in our page. -EUCLEAN: no copy of it is readable. */
int tarn_own_nonce(struct tarn_media *m, const struct tarn_super *sb,
		   const struct tarn_claim *claim, struct tarn_err *err);
static inline bool tarn_current_same(const struct tarn_current *a, const struct tarn_current *b)
{
	return a->generation == b->generation && a->host == b->host && a->slot == b->slot &&
	       a->area_off == b->area_off && a->area_len == b->area_len;
}

/* ---- record.c ---- */
/* CRC of what belongs to one log, the four bytes at crc_at taken as zero. */
uint32_t tarn_log_crc(const struct tarn_seed *seed, const void *buf, size_t len, size_t crc_at);
/* As it is stored: little-endian. */
uint64_t tarn_commit_word(const struct tarn_seed *seed, uint8_t slot, uint32_t units);
/* 0, or -EINVAL: one component of 1..255 bytes, not "." or "..", no '/' or NUL */
int tarn_name_check(const char *name, size_t len);

/* ---- log.c ---- */
void tarn_log_header_encode(struct tarnfs_log_header *raw, const struct tarn_log *log,
			    uint64_t nonce, uint64_t time_sec);
/* Magic and checksum, before any field counts. */
bool tarn_log_header_whole(const struct tarnfs_log_header *raw, const struct tarn_seed *seed);
/* The header alone: seed, area and units are set already. */
int tarn_log_header_read(struct tarn_log *log, struct tarn_media *m, const struct tarn_super *sb,
			 struct tarn_err *err);
static inline uint64_t tarn_commit_off(const struct tarn_super *sb, const struct tarn_log *log)
{
	return tarn_line_off(sb, log->seed.host, TARNFS_LINE_COMMIT + log->slot);
}

/* ---- kernel.c ---- */
/* dirfd and metafd stay the caller's; metafd may be -1 until there is one. */
struct tarn_kernel *tarn_kernel_ioctl(int dirfd, int metafd, uint64_t hosts_off);
void tarn_kernel_ioctl_meta(struct tarn_kernel *k, int metafd, uint64_t hosts_off);
void tarn_kernel_ioctl_free(struct tarn_kernel *k);
/* OPEN_META: a descriptor or a negative errno. */
int tarn_kernel_open_meta(int dirfd, const struct tarn_media_range *writable, size_t count);
/* STATUS; st->version is the module's also when -EPROTO (another version) is returned. */
int tarn_kernel_status(int dirfd, struct tarnfs_status *st);
/* The sentence for -EPROTO of the above, which it returns. */
/* The same, with a sentence for each failure; -EIO when the mount is shut down. */
int tarn_mount_status(int dirfd, struct tarnfs_status *st, struct tarn_err *err);
int tarn_kernel_mismatch(const struct tarnfs_status *st, struct tarn_err *err);

/* ---- session.c ---- */
/*
 * The superblock still is the one this mount was made from, and our own page
 * still holds our nonce; else SHUTDOWN and -ESTALE.
 */
int tarn_session_ours(struct tarn_session *s, struct tarn_err *err);

/* ---- replay.c ---- */
/*
 * APPLY with what is the same in every call: version, generation, page, nonce,
 * role; and where in the log the kernel is after it.
 */
void tarn_apply_args(const struct tarn_session *s, const struct tarn_log *log, uint32_t units,
		     struct tarnfs_apply *args);
int tarn_at_end(struct tarn_session *s, struct tarn_err *err);
/* Stops this mount for good and says why: -ESTALE. */
int tarn_lost(struct tarn_session *s, struct tarn_err *err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* A devdax device that went may have come back with the driver device_dax. */
#define TARN_SHUT_DOWN "the file system is shut down: umount it and mount it again (a devdax " \
	"device with -o attach)"

#endif
