/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * tarn.h - what libtarnfs offers to the commands and to its tests.
 *
 * Functions return 0 (or a count) or a negative errno and leave a sentence in
 * the tarn_err they are given: what failed, where, and what to do next. Only
 * user/cmd prints. Numbers are host-endian here; the media's little-endian
 * form ends in super.c, hostpage.c, record.c and log.c.
 */
#ifndef TARN_H
#define TARN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "media.h"
#include "../../kmod/uapi/tarnfs_format.h"
#include "../../kmod/uapi/tarnfs_ioctl.h"

#define TARN_VERSION "0.1"

/* ---- errors (error.c) ---- */
struct tarn_err {
	char text[1024];
};
/* Sets the text and returns -code (code a positive errno). */
int tarn_fail(struct tarn_err *err, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* "what: " in front of a text that is already there. Returns ret unchanged. */
int tarn_fail_prefix(struct tarn_err *err, int ret, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/*
 * Named points where a test may kill the command (environment variable
 * TARNFS_STOP_AT=name[:count[:signal]]: SIGKILL, or that signal, on reaching it
 * for the first or the count-th time): after-reserve, mid-copy (after each piece
 * of a file's bytes; the first time within a file), after-records,
 * after-commit, before-apply, before-at-end. For any thread. Of tarn_mkfs_write(), in this order:
 * mkfs-begin, mkfs-zeroed, mkfs-pages, mkfs-log, mkfs-control, mkfs-commit, mkfs-second,
 * mkfs-first. Of tarn_replay(at_end): replayed. Of mount.tarnfs besides: mount-claimed,
 * mount-at-end, mount-published (before it appears on its directory). Of tarn_dax_attach() and _detach(): device-unbound,
 * device-bound (attach alone: the name is still on the driver's list).
 */
void tarn_stop_point(const char *name);

/* ---- crc32c.c ---- */
uint32_t tarn_crc32c(uint32_t crc, const void *buf, size_t len);	/* start with 0 */

/* ---- uuid.c ---- */
void tarn_uuid_random(uint8_t out[16]);
/*
 * version 5 (RFC 4122) of name under the namespace ns; for host uuids name is the 32 hex
 * digits of machine-id
 */
void tarn_uuid_v5(uint8_t out[16], const uint8_t ns[16], const void *name, size_t len);
void tarn_uuid_text(char out[37], const uint8_t uuid[16]);
int tarn_uuid_parse(uint8_t out[16], const char *text);
bool tarn_uuid_is_zero(const uint8_t uuid[16]);

/* ---- host.c: who this host is ---- */
struct tarn_host_id {
	uint8_t uuid[16];	/* v5 of the machine-id under the fs uuid, or /etc/tarnfs/host */
	uint8_t boot_id[16];
	int page;		/* wanted by host=N in /etc/tarnfs/host, or -1 */
	char node_name[48];
};
/* /etc/tarnfs/host: lines host=N, uuid=U; # begins a comment; anything else is an error. */
int tarn_host_id(struct tarn_host_id *id, const uint8_t fs_uuid[16], struct tarn_err *err);

/* ---- super.c ---- */
struct tarn_super {
	uint8_t uuid[16];
	char label[64];
	uint64_t compat, ro_compat, incompat;
	uint64_t dev_size, data_start, data_end;
	uint64_t hosts_off, mirror_off;
	uint32_t hosts, host_stride;
	uint16_t areas;
	struct tarn_media_range area[TARNFS_AREAS_MAX];
	int64_t created_sec;
	uint32_t created_nsec;
	uint8_t dev_uuid[16];
};
/*
 * Every field checked as if an enemy wrote it. -EUCLEAN damaged, -ENODATA no tarnfs here,
 * -EOPNOTSUPP version or incompat.
 */
int tarn_super_decode(struct tarn_super *sb, const struct tarnfs_super *raw, uint64_t dev_size,
		      struct tarn_err *err);
void tarn_super_encode(struct tarnfs_super *raw, const struct tarn_super *sb);
int tarn_super_read(struct tarn_super *sb, struct tarn_media *m, uint64_t dev_size,
		    struct tarn_err *err);
/*
 * For who knows the file system by its uuid and means to read: where the memory of the first copy
 * has failed, the second serves if it has that uuid.
 */
int tarn_super_reread(struct tarn_super *sb, struct tarn_media *m, uint64_t dev_size,
		      const uint8_t uuid[16], struct tarn_err *err);

struct tarn_mkfs {
	uint64_t dev_size;
	uint32_t hosts;			/* 0 = default */
	uint64_t log_size;		/* bytes an area, 0 = default */
	const char *label;		/* or NULL */
	const uint8_t *uuid;		/* or NULL: random */
	const uint8_t *owner;		/* uuid page 0 is bound to, or NULL: first mount */
	int owner_self;			/* 1: this host (its uuid follows from the new fs uuid) */
	int64_t now_sec;
	uint32_t now_nsec;
	uint16_t root_mode;		/* 0 = 0755 */
	uint32_t root_uid, root_gid;
};
/* What mkfs would destroy: for its refusals. Fails only when the media cannot be read. */
struct tarn_mkfs_probe {
	bool found;		/* a superblock of tarnfs, be it damaged or of a newer version */
	bool valid;		/* the rest is known: by the first copy, else by the second */
	struct tarn_super sb;
	uint32_t claimed;	/* host pages that some host has claimed */
};
int tarn_mkfs_probe(struct tarn_mkfs_probe *probe, struct tarn_media *m, uint64_t dev_size,
		    struct tarn_err *err);
/* Geometry for the options: -EINVAL, -ENOSPC (device too small) with the sentence. */
int tarn_mkfs_plan(struct tarn_super *sb, const struct tarn_mkfs *opt, struct tarn_err *err);
/* Writes it in the order of protocol section 7. */
int tarn_mkfs_write(struct tarn_media *m, const struct tarn_super *sb, const struct tarn_mkfs *opt,
		    struct tarn_err *err);

/* ---- hostpage.c ---- */
struct tarn_identity {
	uint64_t nonce;
	uint8_t host_uuid[16], boot_id[16];
	uint64_t claims;
	uint8_t state;		/* enum tarnfs_identity_state */
	bool bad;		/* neither copy is readable: counts as claimed */
};
struct tarn_control {
	uint64_t generation, area_off, area_len, next_off, next_len;
	uint8_t state, slot, next_slot;
	bool bad;		/* neither copy: -EUCLEAN, stop and ask for fsck */
};
struct tarn_hoststatus {
	uint64_t nonce, released, applied_generation, applied_seq;
	uint16_t applied_host;
	bool valid;
};
struct tarn_quiesce { uint64_t nonce, generation, final_seq; uint32_t final_units; bool valid; };
struct tarn_page {
	struct tarn_identity id;
	struct tarn_control control;
	struct tarn_hoststatus status;
	struct tarn_quiesce quiesce;
	uint64_t contend;
	struct tarnfs_info info;
};

/* The log that counts: highest (generation, host) active control line. */
struct tarn_current {
	uint64_t generation;	/* 0: none */
	uint16_t host;
	uint8_t slot;
	bool sealed;		/* a sealing line stands above it */
	uint64_t area_off, area_len;
};

/*
 * Invalidates and reads identity and control of every page (mirrors where a
 * page is bad). -EUCLEAN when a control line is bad in both copies.
 * ids may be NULL, else room for sb->hosts entries.
 */
int tarn_scan(struct tarn_media *m, const struct tarn_super *sb, struct tarn_current *cur,
	      struct tarn_identity *ids, struct tarn_err *err);
int tarn_page_read(struct tarn_media *m, const struct tarn_super *sb, uint16_t page,
		   struct tarn_page *out, struct tarn_err *err);

struct tarn_claim {
	uint16_t page;
	uint64_t nonce;
	bool again;		/* re-claimed */
};
/*
 * Which page this host takes, by the order of protocol section 5, without
 * writing. wanted: -o host=N or -1. *settle: a free page by the automatic
 * order, so the caller waits (2 s) and calls tarn_claim_check.
 * -EUSERS: no page, the text lists them all and the ways out.
 */
int tarn_claim_choose(struct tarn_media *m, const struct tarn_super *sb,
		      const struct tarn_host_id *id, int wanted, uint16_t *page, bool *again,
		      bool *settle, struct tarn_err *err);
/* Writes the claim in its order (media must have page and mirror writable): new nonce. */
int tarn_claim_write(struct tarn_media *m, const struct tarn_super *sb,
		     const struct tarn_host_id *id, uint16_t page, struct tarn_claim *claim,
		     struct tarn_err *err);
/* Re-reads the identity: -EAGAIN when another host's claim stands there. */
int tarn_claim_check(struct tarn_media *m, const struct tarn_super *sb,
		     const struct tarn_claim *claim, struct tarn_err *err);
#define TARN_CLAIM_TRIES 8
struct tarn_claim_steps {	/* what tarn_claim_take leaves to its caller */
	/* Page is chosen: refuse it, or map it and its mirror writable (into *media). */
	int (*ready)(void *arg, uint16_t page, struct tarn_err *err);
	/* The claim is written; with settle: wait. */
	void (*written)(void *arg, uint16_t page, bool again, bool settle);
	/* Another host has it: the next is chosen. */
	void (*lost)(void *arg, uint16_t page);
};
/* choose, write, check; again, up to TARN_CLAIM_TRIES times, while other hosts are faster. */
int tarn_claim_take(struct tarn_media **media, const struct tarn_super *sb,
		    const struct tarn_host_id *id, int wanted, const struct tarn_claim_steps *steps,
		    void *arg, struct tarn_claim *claim, struct tarn_err *err);
/*
 * The page is claimed under this host's uuid, at another boot and by a node of another name: a
 * clone with the same machine-id, perhaps, that lives. node: that name, as it stands there.
 */
bool tarn_claim_other_node(struct tarn_media *m, const struct tarn_super *sb,
			   const struct tarn_host_id *id, uint16_t page, char node[49]);
/* Host pages whose hosts may live: claimed, and not by `self`. */
struct tarn_claims {
	uint32_t count;
	/* of those pages; the others are free here, so that tarn_pages_text() leaves them out */
	struct tarn_identity ids[TARNFS_HOSTS_MAX];
	int clone;		/* a page that may be that of a clone of this host, or -1 */
	char node[49];		/* and that node */
};
/* self: of a host that has it not mounted, or NULL: its own count too. */
void tarn_claims_find(struct tarn_claims *c, struct tarn_media *m, const struct tarn_super *sb,
		      const struct tarn_host_id *self);
/* One sentence part for each page that is not free, as far as the room goes. */
void tarn_pages_text(char *out, size_t room, struct tarn_media *m, const struct tarn_super *sb,
		     const struct tarn_identity *ids);
/* At a clean umount: the master publishes quiesce {gen, units, seq}; then identity state bound. */
int tarn_claim_release(struct tarn_media *m, const struct tarn_super *sb,
		       const struct tarn_claim *claim, struct tarn_err *err);
/* status line {nonce, released, applied...} and info; [page lock held by the caller] */
int tarn_status_publish(struct tarn_media *m, const struct tarn_super *sb,
			const struct tarn_claim *claim, uint64_t generation, uint16_t log_host,
			uint64_t seq, struct tarn_err *err);

/* ---- record.c ---- */
struct tarn_rec {
	uint16_t type;		/* enum tarnfs_record_type */
	uint8_t class_, flags;
	uint64_t seq;
	uint16_t batch_index, batch_left;
	uint64_t off;		/* of the record on the media */
	uint32_t units;
	/* directory, file, symlink */
	uint64_t ino, parent;
	int64_t mtime_sec;
	uint32_t mtime_nsec, uid, gid;
	uint16_t mode;
	const char *name;	/* not NUL terminated; into the caller's or reader's buffer */
	uint16_t name_len;
	const char *target;
	uint16_t target_len;
	uint64_t size;
	uint32_t file_flags;
	uint16_t extents;
	uint64_t ext_off, ext_len;
	/* checkpoint end */
	uint64_t directories, files, symlinks, pending_free;
	uint32_t hosts, others;
	/* host */
	uint16_t host, host_flags;
	uint64_t nonce;
	uint8_t uuid[16];
	uint64_t time, last_generation, last_seq;
	/* it, or a tagged value in it, is unknown and of class read-only */
	bool readonly;
};
struct tarn_seed {		/* of CRCs in one log */
	uint8_t uuid[16];
	uint64_t generation;
	uint16_t host;
};
/* Types whose fields are decoded: the others of version 1 are known by name and length alone. */
bool tarn_rec_built(uint16_t type);
/* "file", "checkpoint-end"...; NULL: no such type in version 1. */
const char *tarn_rec_type_name(uint16_t type);
/* Units the record takes. */
uint32_t tarn_rec_units(const struct tarn_rec *rec);
/* Encodes into buf (units * 64 bytes). -EINVAL for what could not be decoded again. */
int tarn_rec_encode(void *buf, size_t room, const struct tarn_rec *rec,
		    const struct tarn_seed *seed);
/*
 * Decodes one record at buf (room bytes readable), every field checked:
 * crc, lengths, names (no NUL, '/', "." or ".."), reserved bytes.
 * -EUCLEAN with the sentence; -EOPNOTSUPP for an unknown type of class refuse.
 * seed NULL: these bytes were checked against their crc before.
 */
int tarn_rec_decode(struct tarn_rec *rec, const void *buf, size_t room,
		    const struct tarn_seed *seed, struct tarn_err *err);

/* ---- log.c ---- */
struct tarn_log {		/* one generation as read */
	struct tarn_seed seed;
	uint8_t slot;
	uint64_t area_off, area_len;
	uint32_t units;		/* committed, from the area's start */
	uint64_t base_seq, next_ino, prev_generation, data_end;
	uint16_t prev_host;
	uint64_t ckpt_records;
	uint32_t ckpt_units;
	bool readonly;		/* an unknown ro_compat feature: neither append nor allocate */
	uint64_t next_seq;	/* of the record where the last walk ended, 0 = unknown */
};
/* Commit word, then header, of the current log. */
int tarn_log_open(struct tarn_log *log, struct tarn_media *m, const struct tarn_super *sb,
		  const struct tarn_current *cur, struct tarn_err *err);
/*
 * Reads records from unit position *pos (start with TARNFS_LOG_HEADER_UNITS) up to log->units, a
 * batch or the checkpoint at a time: calls fn for each record. Invalidates what it reads.
 */
typedef int (*tarn_rec_fn)(void *arg, const struct tarn_rec *rec);
int tarn_log_walk(struct tarn_log *log, struct tarn_media *m, uint32_t *pos, tarn_rec_fn fn,
		  void *arg, struct tarn_err *err);

/* ---- kernel.c: the kernel as the library sees it; tests put node.c behind it ---- */
struct tarn_kernel;
struct tarn_kernel_ops {
	int (*status)(struct tarn_kernel *k, struct tarnfs_status *st);
	/* *set: handle of the reservation, release() lets go of it */
	int (*reserve)(struct tarn_kernel *k, struct tarnfs_reserve_item *items, uint32_t count,
		       int *set, uint32_t *failed);
	void (*release)(struct tarn_kernel *k, int set);
	/* a descriptor of the nameless file of that inode number */
	int (*reserve_open)(struct tarn_kernel *k, int set, uint64_t ino);
	/* fills version, op_size, count checks; *done as the ioctl */
	int (*apply)(struct tarn_kernel *k, struct tarnfs_apply *args, const struct tarnfs_op *ops,
		     const char *strings);
	int (*shutdown)(struct tarn_kernel *k);
	/* the append lock; page lock */
	int (*lock)(struct tarn_kernel *k);
	void (*unlock)(struct tarn_kernel *k);
	int (*page_lock)(struct tarn_kernel *k, uint16_t page);
	void (*page_unlock)(struct tarn_kernel *k, uint16_t page);
};
struct tarn_kernel { const struct tarn_kernel_ops *ops; };
/*
 * Bad memory that the mount of dirfd knows of, in order: *out (malloc()ed, NULL when there is
 * none) and *count. A negative errno: -EOPNOTSUPP from a module that does not know yet.
 */
int tarn_kernel_badranges(int dirfd, struct tarnfs_range **out, uint32_t *count);

/* ---- session: one mounted fs as a command uses it (session.c) ---- */
struct tarn_session {
	int dirfd;			/* a directory of the mount */
	int metafd;
	struct tarn_kernel *kernel;
	struct tarn_media *media;
	struct tarn_super sb;
	struct tarn_claim claim;	/* page and nonce as the kernel remembers them */
	struct tarnfs_status st;	/* as of open or the last replay */
	/* how far this process has read (replay.c); generation 0 = not at all */
	struct tarn_log log;
	uint32_t log_pos;		/* units; what is before it is in the kernel */
	bool readonly; /* an unknown record of class read-only was met: no append */
};
#define TARN_OPEN_APPEND 1 /* maps own page and log areas writable; -EROFS unless master */
/*
 * path: any existing file or directory on a mount. -EMEDIUMTYPE not a tarnfs,
 * -EPROTO another interface version, -EROFS not the master, -EIO shut down.
 */
int tarn_session_open(struct tarn_session *s, const char *path, unsigned int flags,
		      struct tarn_err *err);
/* For mount.tarnfs: over an open root directory of a fresh mount, with the page not yet known. */
int tarn_session_attach(struct tarn_session *s, int dirfd, struct tarn_err *err);
/* Maps these ranges writable from now on (a new OPEN_META). */
int tarn_session_writable(struct tarn_session *s, const struct tarn_media_range *r, size_t n,
			  struct tarn_err *err);
void tarn_session_close(struct tarn_session *s);

/* ---- replay.c ---- */
/*
 * Scan, read, scan again, apply: until the end. Fresh kernels get the
 * checkpoint as a stage. at_end: the last APPLY carries AT_END (mount, logplay,
 * append); the caller holds the append lock. Returns records applied. -EUCLEAN names the offset
 * of the corruption: what came before is applied and stays usable.
 * -ESTALE after SHUTDOWN when the media is no longer this fs or this host was
 * evicted. A foreign nonce in the own page: SHUTDOWN, -ESTALE.
 */
int64_t tarn_replay(struct tarn_session *s, bool at_end, struct tarn_err *err);

/* ---- append.c ---- */
struct tarn_new {		/* a file, directory or symlink to come */
	struct tarnfs_reserve_item item; /* in: type, size, align, flags; out: ino, off, len */
	uint64_t parent;	/* inode number; 0: parent_index */
	size_t parent_index;	/* of an earlier entry of the same batch */
	const char *name;	/* NUL terminated, 1..255 bytes */
	const char *path;	/* for messages, as the user gave it; NULL: the name */
	const char *target;	/* symlink */
	int64_t mtime_sec;
	uint32_t mtime_nsec, uid, gid;
	uint16_t mode;
	uint32_t file_flags;
};
enum tarn_fate {
	TARN_NOT_COMMITTED,
	TARN_MAYBE_COMMITTED,	/* known after the next replay */
	TARN_COMMITTED,		/* every host that replays sees it */
};
struct tarn_reservation {
	int set;		/* -1 = none */
	enum tarn_fate fate;	/* after tarn_commit, whatever it returned */
	struct tarn_new *news;
	size_t count;
};
/*
 * Names are checked, numbers and space reserved, nothing visible yet. -ENOSPC says needed,
 * free, largest.
 */
int tarn_reserve_files(struct tarn_session *s, struct tarn_reservation *r, struct tarn_new *news,
		       size_t count, struct tarn_err *err);
/*
 * A descriptor (O_RDWR) of the nameless file news[i], to write its bytes through. May be called
 * from several threads at once, and more than once for a file, while nothing else is done with
 * the reservation and the session.
 */
int tarn_reserve_open_file(struct tarn_session *s, struct tarn_reservation *r, size_t i,
			   struct tarn_err *err);
/*
 * Protocol section 2 from the append lock on: one commit for all of it. The
 * caller has written the data and called fsync on it. -EEXIST names the entry;
 * -ENOSPC the log is full (compaction is not built yet); -ESTALE evicted.
 * On -EINPROGRESS the outcome is unknown until the next replay.
 */
int tarn_commit(struct tarn_session *s, struct tarn_reservation *r, struct tarn_err *err);
void tarn_reservation_drop(struct tarn_session *s, struct tarn_reservation *r);
/* Bytes of log that the records of these entries take. */
uint64_t tarn_log_bytes(const struct tarn_new *news, size_t count);
/*
 * Is there room for that many bytes of records in the log? -ENOSPC with the sentence if not.
 * *left (may be NULL): bytes left for creates, in both cases.
 */
int tarn_log_left(struct tarn_session *s, uint64_t bytes, uint64_t *left, struct tarn_err *err);
/* Whether these entries would be taken, and have room in the log: as tarn_log_left(). */
int tarn_log_room(struct tarn_session *s, const struct tarn_new *news, size_t count,
		  struct tarn_err *err);

/* ---- dax.c, dax_bind.c: devices of the dax bus, and their drivers ---- */
enum tarn_dax_kind { TARN_DAX_NVDIMM, TARN_DAX_CXL, TARN_DAX_HMEM, TARN_DAX_OTHER };
struct tarn_dax {
	char name[32];		/* "dax0.0" */
	char node[64];		/* "/dev/dax0.0" */
	uint32_t major, minor;
	char driver[64];	/* "device_dax", "kmem"...; "" = none */
	uint64_t size, align;	/* bytes */
	int target_node;	/* NUMA node of the memory, -1 = not told */
	enum tarn_dax_kind kind;
	char namespace[64];	/* of an NVDIMM, else "" */
	bool map_dev;		/* page structures are on the device: --map=dev */
	bool pieces;		/* memory in more than one range */
};
/*
 * what: dax0.0, a path of its node, namespace0.0, or a region that has just one. -ENOTTY: in
 * fsdax mode, so nothing has to be attached; -ENOENT, -ENOTUNIQ, -EOPNOTSUPP (no DAX): each with
 * the sentence.
 */
int tarn_dax_find(struct tarn_dax *dax, const char *what, struct tarn_err *err);
/* The driver that tarnfs needs on this kernel. */
const char *tarn_dax_wanted(void);
/* 0: bound to it. -ENXIO, -ENODEV (system-ram) with the command that changes that. */
int tarn_dax_ready(const struct tarn_dax *dax, struct tarn_err *err);
/*
 * To the driver that tarnfs needs, and back to device_dax. dax is read again. 1: done; 0: was so
 * already; on an error it is bound to what it was bound to, or the sentence says it is not.
 * -EBUSY: mounted, or a process has it open or mapped.
 */
int tarn_dax_attach(struct tarn_dax *dax, struct tarn_err *err);
int tarn_dax_detach(struct tarn_dax *dax, struct tarn_err *err);

/* ---- device.c: from a path to a device or a mount ---- */
struct tarn_device {
	char path[4096];	/* as opened, canonical */
	bool is_file;		/* a plain file (image) */
	bool is_dax;		/* a character device of the dax bus: dax says more */
	struct tarn_dax dax;
	uint64_t size;
	char mounted_on[4096];	/* "" or where this kernel has it mounted */
	bool mounted_tarnfs;
};
/*
 * A dax device is found whichever driver it is bound to, but kmem (-ENODEV): tarn_dax_ready()
 * says whether it can be mounted, and tarn_meta_open() asks it.
 */
int tarn_device_find(struct tarn_device *d, const char *path, struct tarn_err *err);
/*
 * fsopen("tarnfs"), options "k=v" or "flag" NULL terminated, create, fsmount, openat(".").
 * *mntfd is the mount (close it to undo), *dirfd its root directory, usable for ioctls.
 * Errors carry the kernel's own message (fsopen log) and what to do next; -ENODEV: module not
 * loaded.
 */
int tarn_mount_new(const char *device, const char *const *options, int *mntfd, int *dirfd,
		   struct tarn_err *err);
/*
 * Metadata of any device: a detached `meta` mount, or the file itself. writable: all of
 * [0, data_start or size).
 */
struct tarn_meta {
	int mntfd, dirfd, fd;
	struct tarn_media *media;
	uint64_t dev_size;
	bool sync;			/* an image that was written to: fsync(2) at close */
};
int tarn_meta_open(struct tarn_meta *meta, const struct tarn_device *d, bool writable,
		   struct tarn_err *err);
void tarn_meta_close(struct tarn_meta *meta);

#endif
