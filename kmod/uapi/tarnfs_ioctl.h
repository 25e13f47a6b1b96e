/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-2-Clause */
/*
 * tarnfs kernel interface, version 1: what the tools tell and ask tarnfs.ko.
 *
 * All calls need CAP_SYS_ADMIN in the initial user namespace (else EPERM) and
 * are made on a descriptor of any directory of the mount, opened O_RDONLY, or
 * of its meta inode (OPEN_META); RESERVE_OPEN on the descriptor that RESERVE
 * returned. Each structure begins with the interface version: another one is
 * EPROTONOSUPPORT, and STATUS still writes the module's version back. Fields
 * named zero, and flag bits not named here, must be 0 (EINVAL). Structures
 * have the same layout for 32 and 64 bit callers; pointers travel as __u64.
 *
 * Errors common to all: EPERM; EFAULT; EINVAL; EPROTONOSUPPORT; EIO after
 * SHUTDOWN (STATUS excepted, which says so, and BADRANGES); ENOMEM.
 * Documentation/kernel-interface.rst has the table of errnos.
 */
#ifndef _TARNFS_IOCTL_H
#define _TARNFS_IOCTL_H

#include <linux/types.h>
#include <linux/ioctl.h>

#define TARNFS_INTERFACE	1
#define TARNFS_IOC_MAGIC	0xda

enum tarnfs_role {
	TARNFS_ROLE_CLIENT	= 0,
	TARNFS_ROLE_MASTER	= 1,
};

/* tarnfs_status.state */
#define TARNFS_ST_FRESH		(1U << 0)	/* nothing applied yet: no generation */
#define TARNFS_ST_ATTACHED	(1U << 1)	/* an AT_END was seen: names are served */
#define TARNFS_ST_SHUTDOWN	(1U << 2)
#define TARNFS_ST_RDONLY	(1U << 3)	/* mounted ro */
#define TARNFS_ST_META		(1U << 4)	/* mounted meta */
#define TARNFS_ST_COHERENT	(1U << 5)	/* mounted coherent */
#define TARNFS_ST_SYNC		(1U << 6)	/* the device is synchronous: MAP_SYNC works */
#define TARNFS_ST_GONE		(1U << 7)	/* shut down because the device was taken away */

struct tarnfs_status {
	__u32	version;		/* in: the caller's; out: the module's */
	__u32	state;			/* TARNFS_ST_* */
	__u8	uuid[16];		/* of the superblock at mount; zero on a meta mount */
	__u32	role;			/* enum tarnfs_role */
	__u16	log_host;		/* with generation: identity of the log applied */
	__u16	page;			/* own host page, 0xffff before it is known */
	__u64	nonce;			/* own nonce, 0 before it is known */
	__u64	generation;		/* 0 while fresh */
	__u64	seq;			/* last record applied */
	__u64	next_ino;		/* the next RESERVE begins here */
	__u64	dev_size;		/* bytes of the device as this kernel sees it */
	__u64	data_start;
	__u64	data_end;
	__u64	directories;		/* the root included */
	__u64	files;
	__u64	symlinks;
	__u64	free_bytes;		/* in no file, reservation or limbo entry */
	__u64	largest_free;		/* bytes of the largest hole */
	__u64	largest_free_huge;	/* bytes of the largest hole counted from its first 2 MiB boundary */
	__u64	reserved_bytes;		/* held by open reservations */
	__u64	limbo_bytes;		/* let go without a commit, free after the next AT_END */
	__u64	unlinked_in_use;	/* nodes; 0 in this version */
	__u64	oldest_unlinked_seq;	/* 0 = none */
	__u64	evicted;		/* in: pointer to __u64[evicted_room], may be 0; out: unchanged */
	__u32	evicted_room;
	__u32	evicted_count;		/* out: nonces of evicted hosts known; at most room are copied */
	__u64	position;		/* as the APPLY that brought seq here gave it, 0 = unknown */
	__u64	zero[7];
};

struct tarnfs_range {
	__u64	off;			/* bytes of the device */
	__u64	len;
};

#define TARNFS_META_RANGES	8

/*
 * A descriptor (O_RDWR|O_CLOEXEC) of the meta inode: [0, data_start) of the
 * device, the whole device on a meta mount. Only the named ranges, multiples
 * of 4096, may be mapped writable (else EACCES from mmap, as from mprotect);
 * write(2) to it is EPERM. read(2) works. All descriptors of one mount share
 * one inode, hence one flock(2): the append lock, and byte-range locks
 * (fcntl(2) F_OFD_SETLK): the page lock. Ranges outside: EINVAL.
 * On a mount without `meta`, count 0 gives a read-only one.
 */
struct tarnfs_open_meta {
	__u32	version;
	__u32	count;			/* ranges used, 0..8 */
	__s32	fd;			/* out */
	__u32	zero;
	struct tarnfs_range writable[TARNFS_META_RANGES];
};

enum tarnfs_node_type {
	TARNFS_TYPE_DIRECTORY	= 1,
	TARNFS_TYPE_FILE	= 2,
	TARNFS_TYPE_SYMLINK	= 3,
};

enum tarnfs_align {
	TARNFS_ALIGN_AUTO	= 0,	/* 2 MiB from a size of 2 MiB on, else 4 KiB */
	TARNFS_ALIGN_BLOCK	= 12,
	TARNFS_ALIGN_HUGE	= 21,
};

#define TARNFS_RESERVE_ZERO	(1U << 0)	/* the whole extent is zero, not its tail alone */

struct tarnfs_reserve_item {
	__u64	size;			/* bytes; 0 for directories and symlinks */
	__u8	type;			/* enum tarnfs_node_type */
	__u8	align;			/* enum tarnfs_align */
	__u16	flags;			/* TARNFS_RESERVE_* */
	__u32	zero;
	__u64	ino;			/* out */
	__u64	off;			/* out: bytes of the device; 0 with len 0 */
	__u64	len;			/* out: size rounded up to 4096; 0 for size 0 */
};

#define TARNFS_RESERVE_MAX	32768

/*
 * All or nothing: inode numbers for each item and an extent for each file of
 * size > 0, held by the descriptor that is returned (O_CLOEXEC). An extent is
 * given away by an APPLY that creates a file of just this inode number,
 * extent and size; what was not, when the last descriptor and mapping are
 * gone, goes to limbo. Errors: EROFS (role client, or mounted ro), EUNATCH
 * (not attached), ENOSPC (failed names the item that found no room; 0 also when
 * too few inode numbers are left), EAGAIN (inode numbers 2^20 ahead of what is
 * committed), EIO (memory failed while it was zeroed: it is remembered, and the
 * next call gets other memory), EINVAL, EINTR (killed). Memory known to be bad is
 * not handed out.
 */
struct tarnfs_reserve {
	__u32	version;
	__u32	count;			/* 1..32768 */
	__u64	items;			/* in, out: pointer to struct tarnfs_reserve_item[count] */
	__s32	fd;			/* out */
	__u32	failed;			/* out, with ENOSPC: index of the item */
	__u64	zero[2];
};

/* A descriptor (O_RDWR|O_CLOEXEC) of a nameless file over a member of the set. */
struct tarnfs_reserve_open {
	__u32	version;
	__s32	fd;			/* out */
	__u64	ino;			/* of a file of size > 0 of this set, not committed; else ENOENT */
	__u64	zero;
};

enum tarnfs_op_type {
	/* the numbers of enum tarnfs_record_type */
	TARNFS_OP_DIRECTORY	= 1,
	TARNFS_OP_FILE		= 2,
	TARNFS_OP_SYMLINK	= 3,
	/* answered EOPNOTSUPP by interface version 1 until built */
	TARNFS_OP_UNLINK	= 4,
	TARNFS_OP_RENAME	= 5,
	TARNFS_OP_SETATTR	= 6,
	TARNFS_OP_RECLAIM	= 7,
	TARNFS_OP_PENDING_FREE	= 8,
	TARNFS_OP_HOST		= 9,
	TARNFS_OP_DATA_END	= 10,
	/* a record that changes nothing here but takes its seq (class ignore) */
	TARNFS_OP_NOTHING	= 255,
};

/*
 * One operation, 128 bytes. One record of the log is one operation, and the
 * i-th of a batch has the seq first_seq + i (in a stage: no seq).
 */
struct tarnfs_op {
	__u16	type;			/* enum tarnfs_op_type */
	__u16	extents;		/* 0, or 1 for a file of size > 0 */
	__u32	flags;			/* TARNFS_FILE_* of the format for a file */
	__u64	ino;
	__u64	parent;			/* inode number of a directory; the root (stage only) is 1 in 1 */
	__s64	mtime_sec;
	__u32	mtime_nsec;		/* 0..999999999 */
	__u32	uid;			/* not 0xffffffff, as gid */
	__u32	gid;
	__u16	mode;			/* 07777 */
	__u16	name_len;		/* 1..255; 0 for the root */
	__u32	name;			/* offset into strings */
	__u32	target;			/* offset into strings */
	__u16	target_len;		/* 1..4095 for a symlink */
	__u16	zero1;
	__u32	zero2;
	__u64	size;			/* file: bytes */
	__u64	off;			/* of the extent */
	__u64	len;
	__u64	arg[5];			/* of later operations; 0 */
};

#define TARNFS_APPLY_CHECK	(1U << 0)	/* validate all, change nothing */
#define TARNFS_APPLY_AT_END	(1U << 1)	/* caller holds the append lock (master) and has replayed all */
#define TARNFS_APPLY_STAGE_BEGIN (1U << 2)	/* ops are (part of) a checkpoint ... */
#define TARNFS_APPLY_STAGE_ADD	(1U << 3)
#define TARNFS_APPLY_STAGE_COMMIT (1U << 4)	/* ... which becomes the tree now */
#define TARNFS_APPLY_SWITCH	(1U << 5)	/* same state, next generation: EOPNOTSUPP until built */
#define TARNFS_APPLY_STAGE	(TARNFS_APPLY_STAGE_BEGIN | TARNFS_APPLY_STAGE_ADD | \
				 TARNFS_APPLY_STAGE_COMMIT)

#define TARNFS_APPLY_MAX	65536		/* operations in a call */
#define TARNFS_STRINGS_MAX	67108864	/* bytes of strings in a call: 64 MiB */

/*
 * Apply a batch. Ordinary: {generation, log_host} must be the kernel's and
 * first_seq its seq + 1, else ESTALE and nothing is done (STATUS tells where
 * it is). Stops at the first operation refused, done = those that were; the
 * kernel's seq follows an operation at a time; readers on this host see all
 * that was done of a call, or none of it.
 *
 * In this version a stage is one call with all three STAGE flags, on a kernel
 * that is FRESH (else EOPNOTSUPP), first_seq = base_seq of the checkpoint;
 * all or nothing. Its first operation is the root.
 *
 * AT_END may come with count 0. The first one attaches the mount and fixes
 * page and nonce, which every later APPLY must repeat (ESTALE). It empties the
 * limbo that was there when the call began.
 *
 * Errors: ESTALE; EEXIST (name or inode number taken); ENOENT (parent unknown);
 * ENOTDIR (parent is a file or symlink); EUCLEAN (extent outside the data,
 * overlapping another, misaligned, shorter than size; differs from the
 * reservation of that inode number); EINVAL (malformed); EOPNOTSUPP; EUNATCH
 * (ordinary batch on a fresh kernel); ENAMETOOLONG never (EINVAL).
 */
struct tarnfs_apply {
	__u32	version;
	__u32	flags;			/* TARNFS_APPLY_* */
	__u64	generation;		/* >= 1 */
	__u16	log_host;		/* host of the log */
	__u16	page;			/* own host page */
	__u32	role;			/* enum tarnfs_role: what this host is from now on */
	__u64	nonce;			/* own nonce, not 0 */
	__u64	next_ino;		/* of the log header; 0 = no news */
	__u64	first_seq;
	__u32	count;			/* 0..65536 */
	__u32	op_size;		/* sizeof(struct tarnfs_op) */
	__u64	ops;			/* pointer */
	__u64	strings;		/* pointer to names and targets, not NUL terminated */
	__u32	strings_len;
	__u32	done;			/* out */
	/*
	 * Where in its log the caller is after this batch: a note for the next
	 * reader, which STATUS returns and the kernel does not look at. Kept if
	 * the whole batch was done, else forgotten. 0 = unknown.
	 */
	__u64	position;
	__u64	zero[3];
};

/*
 * Bad memory that this mount knows of: ranges of whole 4096-byte pages anywhere
 * on the device, in order, none touching the next, at most 1024. They are what
 * failed since the mount, what the driver knew then or answered later, and (not
 * on a meta mount) what failed under an earlier mount since the driver was
 * bound. With room 0, ranges is not looked at. A range stays until umount. When
 * more than 1024 are bad, the two with the least between them become one, with
 * what is between. The copy is of one moment; count may be larger at the next
 * call, so a caller whose room was less than count calls again. No errors but
 * those common to all; works on every mount, also after SHUTDOWN.
 */
struct tarnfs_badranges {
	__u32	version;
	__u32	room;			/* in: entries at ranges */
	__u32	count;			/* out: entries known; min(room, count) are copied */
	__u32	zero;
	__u64	ranges;			/* pointer to struct tarnfs_range[room] */
};

#define TARNFS_IOC_STATUS	_IOWR(TARNFS_IOC_MAGIC, 1, struct tarnfs_status)
#define TARNFS_IOC_OPEN_META	_IOWR(TARNFS_IOC_MAGIC, 2, struct tarnfs_open_meta)
#define TARNFS_IOC_RESERVE	_IOWR(TARNFS_IOC_MAGIC, 3, struct tarnfs_reserve)
#define TARNFS_IOC_RESERVE_OPEN	_IOWR(TARNFS_IOC_MAGIC, 4, struct tarnfs_reserve_open)
#define TARNFS_IOC_APPLY	_IOWR(TARNFS_IOC_MAGIC, 5, struct tarnfs_apply)
#define TARNFS_IOC_BADRANGES	_IOWR(TARNFS_IOC_MAGIC, 6, struct tarnfs_badranges)
/*
 * The media is no longer ours: from now on EIO for everything, SIGBUS for
 * mappings, and nothing is written back any more. The number ext4, xfs and
 * f2fs have for it; the argument is read and must be 0, 1 or 2 as theirs,
 * which make no difference here.
 */
#define TARNFS_IOC_SHUTDOWN	_IOR('X', 125, __u32)

_Static_assert(sizeof(struct tarnfs_op) == 128, "size of tarnfs_op");
_Static_assert(sizeof(struct tarnfs_reserve_item) == 40, "size of tarnfs_reserve_item");
_Static_assert(sizeof(struct tarnfs_apply) == 112, "size of tarnfs_apply");
_Static_assert(sizeof(struct tarnfs_status) == 248, "size of tarnfs_status");

#endif /* _TARNFS_IOCTL_H */
