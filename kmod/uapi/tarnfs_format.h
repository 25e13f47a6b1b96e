/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-2-Clause */
/*
 * tarnfs media format, version 1: every byte that hosts share.
 *
 * All numbers are little-endian and of fixed width; every byte that is not
 * named here is zero and must be read as "unknown feature" when it is not.
 * Metadata is made of 64-byte lines (one cache line on every machine that
 * CXL 2.0/3.0 memory is attached to), and each line has one purpose and one
 * writer host. Offsets and lengths are bytes of the device unless a name
 * says units; one unit is one line.
 *
 * Checksums are CRC-32C (Castagnoli, reflected, initial value and final
 * exclusive-or 0xffffffff: the one of iSCSI, RFC 3720) of the concatenation
 * seed || structure, the structure's own crc field taken as zero:
 *
 *   superblock               no seed, over `length` bytes
 *   identity, control,
 *   window, status, quiesce  seed = fs uuid (16 bytes), over the 64-byte line
 *   log header               seed = uuid, generation (le64), host (le16), over `length`
 *   record                   same seed, over all its units
 *   commit word              same seed and slot (u8), over the 4 bytes of `units`
 *
 * Documentation/format.rst explains; this file decides.
 */
#ifndef _TARNFS_FORMAT_H
#define _TARNFS_FORMAT_H

#include <linux/types.h>

#define TARNFS_FORMAT_VERSION	1

#define TARNFS_LINE_SHIFT	6
#define TARNFS_LINE		64		/* bytes in a line, and in a unit of the log */
#define TARNFS_BLOCK		4096		/* smallest allocation, the only PAGE_SIZE served */
#define TARNFS_BLOCK_SHIFT	12
#define TARNFS_HUGE		2097152		/* the size of a PMD mapping on x86-64 */
#define TARNFS_HUGE_SHIFT	21

#define TARNFS_SUPER_OFF	0		/* first copy: the one that counts */
#define TARNFS_SUPER2_OFF	4096		/* second copy: for fsck alone */
#define TARNFS_SUPER_LEN	512
#define TARNFS_HOSTS_OFF	65536
#define TARNFS_MIRROR_OFF	1048576
#define TARNFS_HOST_STRIDE	4096
#define TARNFS_LOG_OFF		2097152		/* the first log area */

#define TARNFS_HOSTS_DEFAULT	16
#define TARNFS_HOSTS_MAX	128
#define TARNFS_AREAS		3		/* log areas made by mkfs */
#define TARNFS_AREAS_MAX	8		/* room in the superblock */
#define TARNFS_AREA_MIN		1048576ULL	/* 1 MiB */
#define TARNFS_AREA_MAX		1073741824ULL	/* 1 GiB */
#define TARNFS_AREA_FRACTION	128		/* an area is 1/128 of the device unless told */
#define TARNFS_LOG_RESERVE_FRACTION 16		/* creates leave this share of an area free, */
#define TARNFS_LOG_RESERVE_MIN	65536		/* and at least this many bytes */
#define TARNFS_SLOTS		8		/* commit lines in a host page */

#define TARNFS_INO_ROOT		1
#define TARNFS_INO_FIRST	16		/* the first the master hands out */
/* A takeover jumps by this; RESERVE never runs further ahead of what is committed. */
#define TARNFS_INO_JUMP		1048576ULL
#define TARNFS_NAME_MAX		255		/* bytes in a name: NAME_MAX of POSIX and Linux */
#define TARNFS_TARGET_MAX	4095		/* bytes in a symlink target: PATH_MAX less the NUL */
#define TARNFS_LABEL_MAX	63		/* bytes in a label; the 64th is NUL */
#define TARNFS_SEQ_MAX		0x7fffffffffffffffULL
#define TARNFS_SIZE_MAX		0x7fffffffffffffffULL

#define TARNFS_SUPER_MAGIC	"TARNFS\x1a\n"
#define TARNFS_LOG_MAGIC	"TARNLOG\n"
#define TARNFS_MAGIC_LEN	8
#define TARNFS_STATFS_MAGIC	0x5441524eU	/* "TARN": f_type of statfs(2) */

#define TARNFS_CSUM_CRC32C	1

/* Feature words. None is defined in version 1; an unknown bit means: */
#define TARNFS_COMPAT_KNOWN	0ULL		/* ... ignore */
#define TARNFS_RO_COMPAT_KNOWN	0ULL		/* ... neither append nor allocate */
#define TARNFS_INCOMPAT_KNOWN	0ULL		/* ... refuse to mount */

#define TARNFS_LAYOUT_CHECK(type, member, off) \
	_Static_assert(__builtin_offsetof(struct type, member) == (off), #type "." #member)
#define TARNFS_LAYOUT_SIZE(type, size) \
	_Static_assert(sizeof(struct type) == (size), "size of " #type)

struct tarnfs_area {
	__le64	off;
	__le64	len;
};

enum tarnfs_device_role {
	TARNFS_DEVICE_FIRST	= 0,		/* holds the superblock that counts */
	TARNFS_DEVICE_MEMBER	= 1,		/* reserved: one of several devices */
};

/* 512 bytes at 0, again at 4096. Never changed after mkfs. */
struct tarnfs_super {
	__u8	magic[TARNFS_MAGIC_LEN];
	__le32	version;
	__le32	length;				/* bytes the crc covers: 512 */
	__le64	compat;
	__le64	ro_compat;
	__le64	incompat;
	__le32	crc;
	__le32	block_size;			/* 4096 */
	__u8	uuid[16];
	__u8	label[64];			/* NUL terminated, UTF-8 by convention */
	__le64	dev_size;
	__le64	data_start;			/* multiple of 2 MiB */
	__le64	data_end;			/* multiple of 4 KiB, <= dev_size */
	__le64	hosts_off;
	__le64	hosts_mirror_off;
	__le32	hosts;
	__le32	host_stride;
	__le16	areas;
	__le16	area_entry;			/* sizeof(struct tarnfs_area) */
	__u8	csum;				/* TARNFS_CSUM_CRC32C */
	__u8	line_shift;
	__u8	align_shift;			/* of files of 2 MiB and more: 21 */
	__u8	role;				/* enum tarnfs_device_role */
	__le64	created_sec;			/* since 1970, UTC */
	__le32	created_nsec;
	__le16	dev_index;
	__le16	dev_count;			/* 1 */
	__u8	dev_uuid[16];
	__u8	zero1[24];
	struct tarnfs_area area[TARNFS_AREAS_MAX];
	__u8	zero2[144];
};

TARNFS_LAYOUT_SIZE(tarnfs_super, 512);
TARNFS_LAYOUT_CHECK(tarnfs_super, version, 8);
TARNFS_LAYOUT_CHECK(tarnfs_super, length, 12);
TARNFS_LAYOUT_CHECK(tarnfs_super, compat, 16);
TARNFS_LAYOUT_CHECK(tarnfs_super, ro_compat, 24);
TARNFS_LAYOUT_CHECK(tarnfs_super, incompat, 32);
TARNFS_LAYOUT_CHECK(tarnfs_super, crc, 40);
TARNFS_LAYOUT_CHECK(tarnfs_super, block_size, 44);
TARNFS_LAYOUT_CHECK(tarnfs_super, uuid, 48);
TARNFS_LAYOUT_CHECK(tarnfs_super, label, 64);
TARNFS_LAYOUT_CHECK(tarnfs_super, dev_size, 128);
TARNFS_LAYOUT_CHECK(tarnfs_super, data_start, 136);
TARNFS_LAYOUT_CHECK(tarnfs_super, data_end, 144);
TARNFS_LAYOUT_CHECK(tarnfs_super, hosts_off, 152);
TARNFS_LAYOUT_CHECK(tarnfs_super, hosts_mirror_off, 160);
TARNFS_LAYOUT_CHECK(tarnfs_super, hosts, 168);
TARNFS_LAYOUT_CHECK(tarnfs_super, host_stride, 172);
TARNFS_LAYOUT_CHECK(tarnfs_super, areas, 176);
TARNFS_LAYOUT_CHECK(tarnfs_super, area_entry, 178);
TARNFS_LAYOUT_CHECK(tarnfs_super, csum, 180);
TARNFS_LAYOUT_CHECK(tarnfs_super, line_shift, 181);
TARNFS_LAYOUT_CHECK(tarnfs_super, align_shift, 182);
TARNFS_LAYOUT_CHECK(tarnfs_super, role, 183);
TARNFS_LAYOUT_CHECK(tarnfs_super, created_sec, 184);
TARNFS_LAYOUT_CHECK(tarnfs_super, created_nsec, 192);
TARNFS_LAYOUT_CHECK(tarnfs_super, dev_index, 196);
TARNFS_LAYOUT_CHECK(tarnfs_super, dev_count, 198);
TARNFS_LAYOUT_CHECK(tarnfs_super, dev_uuid, 200);
TARNFS_LAYOUT_CHECK(tarnfs_super, zero1, 216);
TARNFS_LAYOUT_CHECK(tarnfs_super, area, 240);
TARNFS_LAYOUT_CHECK(tarnfs_super, zero2, 368);

/*
 * Host page: 4096 bytes of one host, written by that host alone (mkfs apart).
 * Lines marked (m) stand in the mirror page too, at the same offset.
 */
enum tarnfs_host_line {
	TARNFS_LINE_IDENTITY	= 0,		/* (m) */
	TARNFS_LINE_CONTROL	= 1,		/* (m) */
	TARNFS_LINE_WINDOW	= 2,
	TARNFS_LINE_STATUS	= 3,
	TARNFS_LINE_QUIESCE	= 4,
	TARNFS_LINE_CONTEND	= 5,
	TARNFS_LINE_INFO	= 6,
	TARNFS_LINE_COMMIT	= 8,		/* ... 15, one a slot */
};

enum tarnfs_identity_state {
	TARNFS_PAGE_FREE	= 0,
	TARNFS_PAGE_BOUND	= 1,		/* belongs to host_uuid, which has it not mounted */
	TARNFS_PAGE_CLAIMED	= 2,
};

struct tarnfs_identity {
	__le64	nonce;				/* random, new at each claim; 0 when free */
	__u8	host_uuid[16];
	__u8	boot_id[16];
	__le64	claims;				/* rises at each store; of page and mirror the higher counts */
	__le16	host;				/* number of this page */
	__u8	state;				/* enum tarnfs_identity_state */
	__u8	flags;				/* 0 */
	__u8	zero[8];
	__le32	crc;
};

TARNFS_LAYOUT_SIZE(tarnfs_identity, 64);
TARNFS_LAYOUT_CHECK(tarnfs_identity, host_uuid, 8);
TARNFS_LAYOUT_CHECK(tarnfs_identity, boot_id, 24);
TARNFS_LAYOUT_CHECK(tarnfs_identity, claims, 40);
TARNFS_LAYOUT_CHECK(tarnfs_identity, host, 48);
TARNFS_LAYOUT_CHECK(tarnfs_identity, state, 50);
TARNFS_LAYOUT_CHECK(tarnfs_identity, crc, 60);

enum tarnfs_control_state {
	TARNFS_CONTROL_NONE	= 0,
	TARNFS_CONTROL_SEALING	= 1,
	TARNFS_CONTROL_ACTIVE	= 2,
};

struct tarnfs_control {
	__le64	generation;			/* from 1; 0 with state none */
	__le64	area_off;			/* of the active log; while sealing, of the target */
	__le64	area_len;
	__le64	next_off;			/* area of a compaction under way, else 0 */
	__le64	next_len;
	__le16	host;				/* number of this page */
	__u8	state;				/* enum tarnfs_control_state */
	__u8	slot;				/* commit line of this log, 0..7 */
	__u8	next_slot;
	__u8	zero[15];
	__le32	crc;
};

TARNFS_LAYOUT_SIZE(tarnfs_control, 64);
TARNFS_LAYOUT_CHECK(tarnfs_control, next_off, 24);
TARNFS_LAYOUT_CHECK(tarnfs_control, host, 40);
TARNFS_LAYOUT_CHECK(tarnfs_control, state, 42);
TARNFS_LAYOUT_CHECK(tarnfs_control, slot, 43);
TARNFS_LAYOUT_CHECK(tarnfs_control, next_slot, 44);
TARNFS_LAYOUT_CHECK(tarnfs_control, crc, 60);

/* Allocation window: reserved, unused in version 1; all zero means unknown. */
struct tarnfs_window {
	__le64	nonce;
	__le64	generation;
	struct {
		__le64	off;
		__le64	len;
	} range[2];
	__u8	zero[12];
	__le32	crc;
};

TARNFS_LAYOUT_SIZE(tarnfs_window, 64);
TARNFS_LAYOUT_CHECK(tarnfs_window, range, 16);
TARNFS_LAYOUT_CHECK(tarnfs_window, crc, 60);

struct tarnfs_hoststatus {
	__le64	nonce;				/* another nonce than the identity's: count as absent */
	__le64	released;			/* every unlink up to this seq is out of use here */
	__le64	applied_generation;
	__le64	applied_seq;
	__le16	applied_host;
	__le16	flags;				/* 0 */
	__u8	zero[24];
	__le32	crc;
};

TARNFS_LAYOUT_SIZE(tarnfs_hoststatus, 64);
TARNFS_LAYOUT_CHECK(tarnfs_hoststatus, applied_generation, 16);
TARNFS_LAYOUT_CHECK(tarnfs_hoststatus, applied_seq, 24);
TARNFS_LAYOUT_CHECK(tarnfs_hoststatus, applied_host, 32);
TARNFS_LAYOUT_CHECK(tarnfs_hoststatus, flags, 34);
TARNFS_LAYOUT_CHECK(tarnfs_hoststatus, crc, 60);

struct tarnfs_quiesce {
	__le64	nonce;
	__le64	generation;			/* 0 = not quiesced */
	__le64	final_seq;
	__le32	final_units;
	__le16	host;
	__u8	zero[30];
	__le32	crc;
};

TARNFS_LAYOUT_SIZE(tarnfs_quiesce, 64);
TARNFS_LAYOUT_CHECK(tarnfs_quiesce, final_seq, 16);
TARNFS_LAYOUT_CHECK(tarnfs_quiesce, final_units, 24);
TARNFS_LAYOUT_CHECK(tarnfs_quiesce, host, 28);
TARNFS_LAYOUT_CHECK(tarnfs_quiesce, crc, 60);

/* One atomic 8-byte word, no crc: nonce of the contender, or 0. */
struct tarnfs_contend {
	__le64	word;
	__u8	zero[56];
};

TARNFS_LAYOUT_SIZE(tarnfs_contend, 64);

/* For people; never decides anything, hence no crc. */
struct tarnfs_info {
	__le64	beat;				/* count of publications of status */
	__le64	seconds;			/* since 1970 by that host's clock */
	__u8	node_name[48];			/* uname -n, NUL padded */
};

TARNFS_LAYOUT_SIZE(tarnfs_info, 64);

/*
 * The commit point of the log: {units, crc} is one aligned 8-byte word,
 * stored at once. units counts from the start of the area, header included.
 */
struct tarnfs_commit {
	__le32	units;
	__le32	crc;
	__u8	zero[56];
};

TARNFS_LAYOUT_SIZE(tarnfs_commit, 64);

#define TARNFS_LOG_TAKEOVER	(1U << 0)	/* this generation began with a takeover */

#define TARNFS_LOG_HEADER_LEN	256
#define TARNFS_LOG_HEADER_UNITS	4

/* At the start of a log area. The checkpoint's records follow at once. */
struct tarnfs_log_header {
	__u8	magic[TARNFS_MAGIC_LEN];
	__le32	length;				/* 256 */
	__le32	crc;
	__u8	uuid[16];			/* of the fs */
	__le64	generation;
	__le16	host;				/* the master that writes this log */
	__le16	prev_host;
	__le32	flags;
	__le64	prev_generation;		/* 0 in generation 1 */
	__le64	base_seq;			/* the checkpoint is the state after this seq */
	__le64	next_ino;			/* every inode number in use is below */
	__le64	compat;
	__le64	ro_compat;
	__le64	incompat;
	__le64	ckpt_records;
	__le32	ckpt_units;			/* units of the checkpoint, header not counted */
	__u8	zero1[4];
	__le64	writer_nonce;
	__le64	time;				/* seconds since 1970 */
	__le64	data_end;
	__u8	zero2[120];
};

TARNFS_LAYOUT_SIZE(tarnfs_log_header, 256);
TARNFS_LAYOUT_CHECK(tarnfs_log_header, crc, 12);
TARNFS_LAYOUT_CHECK(tarnfs_log_header, uuid, 16);
TARNFS_LAYOUT_CHECK(tarnfs_log_header, generation, 32);
TARNFS_LAYOUT_CHECK(tarnfs_log_header, host, 40);
TARNFS_LAYOUT_CHECK(tarnfs_log_header, prev_host, 42);
TARNFS_LAYOUT_CHECK(tarnfs_log_header, flags, 44);
TARNFS_LAYOUT_CHECK(tarnfs_log_header, prev_generation, 48);
TARNFS_LAYOUT_CHECK(tarnfs_log_header, base_seq, 56);
TARNFS_LAYOUT_CHECK(tarnfs_log_header, next_ino, 64);
TARNFS_LAYOUT_CHECK(tarnfs_log_header, compat, 72);
TARNFS_LAYOUT_CHECK(tarnfs_log_header, ro_compat, 80);
TARNFS_LAYOUT_CHECK(tarnfs_log_header, incompat, 88);
TARNFS_LAYOUT_CHECK(tarnfs_log_header, ckpt_records, 96);
TARNFS_LAYOUT_CHECK(tarnfs_log_header, ckpt_units, 104);
TARNFS_LAYOUT_CHECK(tarnfs_log_header, writer_nonce, 112);
TARNFS_LAYOUT_CHECK(tarnfs_log_header, time, 120);
TARNFS_LAYOUT_CHECK(tarnfs_log_header, data_end, 128);

enum tarnfs_record_type {
	TARNFS_REC_DIRECTORY	= 1,
	TARNFS_REC_FILE		= 2,
	TARNFS_REC_SYMLINK	= 3,
	TARNFS_REC_UNLINK	= 4,
	TARNFS_REC_RENAME	= 5,
	TARNFS_REC_SETATTR	= 6,
	TARNFS_REC_RECLAIM	= 7,
	TARNFS_REC_PENDING_FREE	= 8,		/* in a checkpoint only */
	TARNFS_REC_HOST		= 9,
	TARNFS_REC_DATA_END	= 10,
	TARNFS_REC_CHECKPOINT_END = 11,
	/* numbers kept for later */
	TARNFS_REC_DEVICE	= 12,
	TARNFS_REC_XATTR	= 13,
	TARNFS_REC_XATTR_REMOVE	= 14,
	TARNFS_REC_LINK		= 15,
	TARNFS_REC_EXTEND	= 16,
	TARNFS_REC_EXCHANGE	= 17,
	TARNFS_REC_NOTE		= 18,
};

/* What a reader that does not know the type does. */
enum tarnfs_record_class {
	TARNFS_CLASS_REFUSE	= 0,		/* stop replay before it */
	TARNFS_CLASS_READONLY	= 1,		/* skip it, but neither append, compact nor allocate */
	TARNFS_CLASS_IGNORE	= 2,
};

#define TARNFS_RECORD_CKPT	(1U << 0)	/* part of the checkpoint: seq is an ordinal 1..n */

#define TARNFS_BATCH_MAX	32768		/* records in one commit */

struct tarnfs_record {
	__le32	crc;				/* over all units */
	__le16	type;				/* enum tarnfs_record_type */
	__u8	class;				/* enum tarnfs_record_class */
	__u8	flags;				/* TARNFS_RECORD_* */
	__le16	units;				/* length of the record in lines, >= 1 */
	__le16	fixed;				/* bytes to where extents, or else the name, start */
	__le16	batch_index;			/* place in its batch, from 0 */
	__le16	batch_left;			/* records of its batch after it */
	__le64	seq;
};

TARNFS_LAYOUT_SIZE(tarnfs_record, 24);
TARNFS_LAYOUT_CHECK(tarnfs_record, type, 4);
TARNFS_LAYOUT_CHECK(tarnfs_record, class, 6);
TARNFS_LAYOUT_CHECK(tarnfs_record, flags, 7);
TARNFS_LAYOUT_CHECK(tarnfs_record, units, 8);
TARNFS_LAYOUT_CHECK(tarnfs_record, fixed, 10);
TARNFS_LAYOUT_CHECK(tarnfs_record, batch_index, 12);
TARNFS_LAYOUT_CHECK(tarnfs_record, batch_left, 14);
TARNFS_LAYOUT_CHECK(tarnfs_record, seq, 16);

/* What directory, file and symlink records have in common. */
struct tarnfs_rec_node {
	struct tarnfs_record rec;
	__le64	ino;
	__le64	parent;				/* inode number; the root is its own parent */
	__le64	mtime_sec;			/* two's complement, since 1970 */
	__le32	mtime_nsec;			/* 0..999999999 */
	__le32	uid;				/* not 0xffffffff, as gid: that means none */
	__le32	gid;
	__le16	mode;				/* permission bits 07777 alone, no type */
	__le16	name_len;			/* 1..255; 0 for the root */
};

TARNFS_LAYOUT_SIZE(tarnfs_rec_node, 64);
TARNFS_LAYOUT_CHECK(tarnfs_rec_node, ino, 24);
TARNFS_LAYOUT_CHECK(tarnfs_rec_node, parent, 32);
TARNFS_LAYOUT_CHECK(tarnfs_rec_node, mtime_sec, 40);
TARNFS_LAYOUT_CHECK(tarnfs_rec_node, mtime_nsec, 48);
TARNFS_LAYOUT_CHECK(tarnfs_rec_node, uid, 52);
TARNFS_LAYOUT_CHECK(tarnfs_rec_node, gid, 56);
TARNFS_LAYOUT_CHECK(tarnfs_rec_node, mode, 60);
TARNFS_LAYOUT_CHECK(tarnfs_rec_node, name_len, 62);

/* A directory is tarnfs_rec_node and its name; fixed = 64. */

struct tarnfs_extent {
	__le64	off;
	__le64	len;				/* multiple of 4 KiB, >= size */
	__le16	dev;				/* 0 in version 1 */
	__le16	flags;				/* 0 */
	__u8	zero[4];
};

TARNFS_LAYOUT_SIZE(tarnfs_extent, 24);
TARNFS_LAYOUT_CHECK(tarnfs_extent, dev, 16);

#define TARNFS_FILE_SHARED_WRITE (1U << 0)	/* clients may write to it in place */
#define TARNFS_FILE_FLAGS	TARNFS_FILE_SHARED_WRITE

#define TARNFS_LAYOUT_LINEAR	0		/* extents one after another; exactly one in version 1 */

/* extents[] and then the name follow; fixed = 80. An empty file has no extent. */
struct tarnfs_rec_file {
	struct tarnfs_rec_node node;
	__le64	size;				/* bytes */
	__le32	flags;				/* TARNFS_FILE_* */
	__le16	layout;				/* TARNFS_LAYOUT_* */
	__le16	extents;			/* 0 or 1 */
};

TARNFS_LAYOUT_SIZE(tarnfs_rec_file, 80);
TARNFS_LAYOUT_CHECK(tarnfs_rec_file, size, 64);
TARNFS_LAYOUT_CHECK(tarnfs_rec_file, flags, 72);
TARNFS_LAYOUT_CHECK(tarnfs_rec_file, layout, 76);
TARNFS_LAYOUT_CHECK(tarnfs_rec_file, extents, 78);

/* The name follows, then the target; fixed = 72. */
struct tarnfs_rec_symlink {
	struct tarnfs_rec_node node;
	__le16	target_len;			/* 1..4095, no NUL inside */
	__u8	zero[6];
};

TARNFS_LAYOUT_SIZE(tarnfs_rec_symlink, 72);
TARNFS_LAYOUT_CHECK(tarnfs_rec_symlink, target_len, 64);

struct tarnfs_rec_unlink {
	struct tarnfs_record rec;
	__le64	ino;
	__le64	parent;
	__u8	zero1[8];
	__le32	flags;
	__u8	zero2[12];
};

TARNFS_LAYOUT_SIZE(tarnfs_rec_unlink, 64);
TARNFS_LAYOUT_CHECK(tarnfs_rec_unlink, parent, 32);
TARNFS_LAYOUT_CHECK(tarnfs_rec_unlink, flags, 48);

/* The new name follows; fixed = 64. */
struct tarnfs_rec_rename {
	struct tarnfs_record rec;
	__le64	ino;
	__le64	old_parent;
	__le64	new_parent;
	__le64	replaced_ino;			/* 0 = none */
	__le32	flags;
	__u8	zero[2];
	__le16	name_len;
};

TARNFS_LAYOUT_SIZE(tarnfs_rec_rename, 64);
TARNFS_LAYOUT_CHECK(tarnfs_rec_rename, new_parent, 40);
TARNFS_LAYOUT_CHECK(tarnfs_rec_rename, replaced_ino, 48);
TARNFS_LAYOUT_CHECK(tarnfs_rec_rename, flags, 56);
TARNFS_LAYOUT_CHECK(tarnfs_rec_rename, name_len, 62);

struct tarnfs_rec_setattr {
	struct tarnfs_record rec;
	__le64	ino;
	__le64	mtime_sec;
	__le32	mtime_nsec;
	__le32	uid;
	__le32	gid;
	__le16	mode;
	__u8	zero[2];
	__le32	mask;				/* which of the fields count */
	__le32	flags;
};

TARNFS_LAYOUT_SIZE(tarnfs_rec_setattr, 64);
TARNFS_LAYOUT_CHECK(tarnfs_rec_setattr, mtime_sec, 32);
TARNFS_LAYOUT_CHECK(tarnfs_rec_setattr, mtime_nsec, 40);
TARNFS_LAYOUT_CHECK(tarnfs_rec_setattr, uid, 44);
TARNFS_LAYOUT_CHECK(tarnfs_rec_setattr, gid, 48);
TARNFS_LAYOUT_CHECK(tarnfs_rec_setattr, mode, 52);
TARNFS_LAYOUT_CHECK(tarnfs_rec_setattr, mask, 56);
TARNFS_LAYOUT_CHECK(tarnfs_rec_setattr, flags, 60);

struct tarnfs_rec_reclaim {
	struct tarnfs_record rec;
	__le64	ino;
	__le64	unlink_seq;
	__u8	zero[24];
};

TARNFS_LAYOUT_SIZE(tarnfs_rec_reclaim, 64);
TARNFS_LAYOUT_CHECK(tarnfs_rec_reclaim, unlink_seq, 32);

/* extents[] follow; fixed = 48. */
struct tarnfs_rec_pending_free {
	struct tarnfs_record rec;
	__le64	ino;
	__le64	unlink_seq;
	__le32	flags;
	__le16	layout;
	__le16	extents;
};

TARNFS_LAYOUT_SIZE(tarnfs_rec_pending_free, 48);
TARNFS_LAYOUT_CHECK(tarnfs_rec_pending_free, flags, 40);
TARNFS_LAYOUT_CHECK(tarnfs_rec_pending_free, extents, 46);

#define TARNFS_HOST_BOUND	(1U << 0)
#define TARNFS_HOST_EVICTED	(1U << 1)
#define TARNFS_HOST_FORGET	(1U << 2)

struct tarnfs_rec_host {
	struct tarnfs_record rec;
	__le16	host;
	__le16	flags;				/* TARNFS_HOST_* */
	__u8	zero1[4];
	__le64	nonce;
	__u8	uuid[16];
	__le64	time;
	__le64	last_generation;
	__le64	last_seq;
	__u8	zero2[48];
};

TARNFS_LAYOUT_SIZE(tarnfs_rec_host, 128);
TARNFS_LAYOUT_CHECK(tarnfs_rec_host, host, 24);
TARNFS_LAYOUT_CHECK(tarnfs_rec_host, flags, 26);
TARNFS_LAYOUT_CHECK(tarnfs_rec_host, nonce, 32);
TARNFS_LAYOUT_CHECK(tarnfs_rec_host, uuid, 40);
TARNFS_LAYOUT_CHECK(tarnfs_rec_host, time, 56);
TARNFS_LAYOUT_CHECK(tarnfs_rec_host, last_generation, 64);
TARNFS_LAYOUT_CHECK(tarnfs_rec_host, last_seq, 72);

struct tarnfs_rec_data_end {
	struct tarnfs_record rec;
	__le16	dev;
	__u8	zero1[6];
	__le64	data_end;
	__le64	dev_size;
	__u8	zero2[16];
};

TARNFS_LAYOUT_SIZE(tarnfs_rec_data_end, 64);
TARNFS_LAYOUT_CHECK(tarnfs_rec_data_end, data_end, 32);
TARNFS_LAYOUT_CHECK(tarnfs_rec_data_end, dev_size, 40);

/* Reserved: several devices. */
struct tarnfs_rec_device {
	struct tarnfs_record rec;
	__le16	dev;
	__le16	flags;
	__u8	zero1[4];
	__u8	uuid[16];
	__le64	size;
	__le64	data_start;
	__le64	data_end;
	__u8	zero2[56];
};

TARNFS_LAYOUT_SIZE(tarnfs_rec_device, 128);
TARNFS_LAYOUT_CHECK(tarnfs_rec_device, uuid, 32);
TARNFS_LAYOUT_CHECK(tarnfs_rec_device, size, 48);

struct tarnfs_rec_checkpoint_end {
	struct tarnfs_record rec;
	__le64	directories;			/* the root included */
	__le64	files;
	__le64	symlinks;
	__le64	pending_free;
	__le32	hosts;
	__le32	others;
};

TARNFS_LAYOUT_SIZE(tarnfs_rec_checkpoint_end, 64);
TARNFS_LAYOUT_CHECK(tarnfs_rec_checkpoint_end, hosts, 56);

/* After name and target, padded to 8: tagged values up to the end of the units. */
struct tarnfs_tlv {
	__le16	tag;				/* 0 ends the list (the padding of the last line) */
	__u8	class;				/* enum tarnfs_record_class */
	__u8	zero;
	__le32	length;				/* bytes of the value, padded to 8 behind it */
};

TARNFS_LAYOUT_SIZE(tarnfs_tlv, 8);

#define TARNFS_TLV_CONTENT_CRC	1		/* reserved: CRC-32C of the content */
#define TARNFS_TLV_XATTR	2		/* reserved */

#endif /* _TARNFS_FORMAT_H */
