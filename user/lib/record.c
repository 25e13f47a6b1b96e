// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * record.c - the records of a log: encoding, and decoding with every field
 * checked. How a log is made of them is in log.c, what they do in replay.c.
 */
#include "internal.h"

/* ---- seeds ---- */

static uint32_t seed_crc(const struct tarn_seed *seed)
{
	uint64_t generation = htole64(seed->generation);
	uint16_t host = htole16(seed->host);
	uint32_t crc = tarn_crc32c(0, seed->uuid, sizeof(seed->uuid));

	crc = tarn_crc32c(crc, &generation, sizeof(generation));
	return tarn_crc32c(crc, &host, sizeof(host));
}

uint32_t tarn_log_crc(const struct tarn_seed *seed, const void *buf, size_t len, size_t crc_at)
{
	static const uint8_t zeros[4];
	const uint8_t *p = buf;
	uint32_t crc = seed_crc(seed);

	crc = tarn_crc32c(crc, p, crc_at);
	crc = tarn_crc32c(crc, zeros, sizeof(zeros));
	return tarn_crc32c(crc, p + crc_at + 4, len - crc_at - 4);
}

uint64_t tarn_commit_word(const struct tarn_seed *seed, uint8_t slot, uint32_t units)
{
	uint32_t le = htole32(units), crc = tarn_crc32c(seed_crc(seed), &slot, sizeof(slot));

	crc = tarn_crc32c(crc, &le, sizeof(le));
	return htole64((uint64_t)crc << 32 | units);
}

/* ---- records ---- */

static const char *const type_names[] = {
	[TARNFS_REC_DIRECTORY] = "directory",
	[TARNFS_REC_FILE] = "file",
	[TARNFS_REC_SYMLINK] = "symlink",
	[TARNFS_REC_UNLINK] = "unlink",
	[TARNFS_REC_RENAME] = "rename",
	[TARNFS_REC_SETATTR] = "setattr",
	[TARNFS_REC_RECLAIM] = "reclaim",
	[TARNFS_REC_PENDING_FREE] = "pending-free",
	[TARNFS_REC_HOST] = "host",
	[TARNFS_REC_DATA_END] = "data-end",
	[TARNFS_REC_CHECKPOINT_END] = "checkpoint-end",
	[TARNFS_REC_DEVICE] = "device",
	[TARNFS_REC_XATTR] = "xattr",
	[TARNFS_REC_XATTR_REMOVE] = "xattr-remove",
	[TARNFS_REC_LINK] = "link",
	[TARNFS_REC_EXTEND] = "extend",
	[TARNFS_REC_EXCHANGE] = "exchange",
	[TARNFS_REC_NOTE] = "note",
};

const char *tarn_rec_type_name(uint16_t type)
{
	return type < TARN_ARRAY_SIZE(type_names) ? type_names[type] : NULL;
}

int tarn_name_check(const char *name, size_t len)
{
	if (!len || len > TARNFS_NAME_MAX || memchr(name, '\0', len) || memchr(name, '/', len) ||
	    (len == 1 && name[0] == '.') || (len == 2 && name[0] == '.' && name[1] == '.'))
		return -EINVAL;
	return 0;
}

static bool is_node(uint16_t type)
{
	return type == TARNFS_REC_DIRECTORY || type == TARNFS_REC_FILE ||
	       type == TARNFS_REC_SYMLINK;
}

/* Bytes to where extents, else the name, start; 0: a type that version 1 does not know. */
static size_t fixed_len(uint16_t type)
{
	switch (type) {
	case TARNFS_REC_DIRECTORY:	return sizeof(struct tarnfs_rec_node);
	case TARNFS_REC_FILE:		return sizeof(struct tarnfs_rec_file);
	case TARNFS_REC_SYMLINK:	return sizeof(struct tarnfs_rec_symlink);
	case TARNFS_REC_UNLINK:		return sizeof(struct tarnfs_rec_unlink);
	case TARNFS_REC_RENAME:		return sizeof(struct tarnfs_rec_rename);
	case TARNFS_REC_SETATTR:	return sizeof(struct tarnfs_rec_setattr);
	case TARNFS_REC_RECLAIM:	return sizeof(struct tarnfs_rec_reclaim);
	case TARNFS_REC_PENDING_FREE:	return sizeof(struct tarnfs_rec_pending_free);
	case TARNFS_REC_HOST:		return sizeof(struct tarnfs_rec_host);
	case TARNFS_REC_DATA_END:	return sizeof(struct tarnfs_rec_data_end);
	case TARNFS_REC_CHECKPOINT_END:	return sizeof(struct tarnfs_rec_checkpoint_end);
	default:			return 0;
	}
}

bool tarn_rec_built(uint16_t type)
{
	return is_node(type) || type == TARNFS_REC_CHECKPOINT_END || type == TARNFS_REC_HOST;
}

static size_t rec_len(const struct tarn_rec *rec)
{
	size_t len = fixed_len(rec->type);

	if (rec->type == TARNFS_REC_FILE)
		len += (size_t)rec->extents * sizeof(struct tarnfs_extent);
	if (is_node(rec->type))
		len += rec->name_len;
	if (rec->type == TARNFS_REC_SYMLINK)
		len += rec->target_len;
	return len;
}

uint32_t tarn_rec_units(const struct tarn_rec *rec)
{
	return (uint32_t)(tarn_round_up(rec_len(rec), TARNFS_LINE) / TARNFS_LINE);
}

#define HOST_FLAGS (TARNFS_HOST_BOUND | TARNFS_HOST_EVICTED | TARNFS_HOST_FORGET)

/* Inode numbers 2 to 15 are kept. */
static bool is_ino(uint64_t ino)
{
	return ino == TARNFS_INO_ROOT || (ino >= TARNFS_INO_FIRST && ino < TARNFS_SEQ_MAX);
}

/* What is wrong with a node, or NULL: one rule for encoding and decoding. */
static const char *node_fault(const struct tarn_rec *rec)
{
	if (!is_ino(rec->ino) || !is_ino(rec->parent))
		return "inode number";
	if (rec->ino == TARNFS_INO_ROOT) {
		if (rec->type != TARNFS_REC_DIRECTORY || rec->parent != TARNFS_INO_ROOT ||
		    rec->name_len || !(rec->flags & TARNFS_RECORD_CKPT))
			return "root";
	} else if (rec->parent == rec->ino) {
		return "its own parent";
	} else if (tarn_name_check(rec->name, rec->name_len)) {
		return "name";
	}
	if (rec->mode & ~07777)
		return "mode";
	if (rec->mtime_nsec > 999999999)
		return "mtime";
	if (rec->uid == UINT32_MAX || rec->gid == UINT32_MAX)
		return "owner";
	if (rec->type == TARNFS_REC_FILE) {
		if (rec->size > TARNFS_SIZE_MAX)
			return "size";
		if (rec->extents != (rec->size ? 1 : 0))
			return "number of extents";
		if (rec->extents && (rec->ext_off % TARNFS_BLOCK || rec->ext_len % TARNFS_BLOCK ||
				     rec->ext_len < rec->size || rec->ext_off > TARNFS_SIZE_MAX ||
				     rec->ext_len > TARNFS_SIZE_MAX - rec->ext_off))
			return "extent";
	}
	if (rec->type == TARNFS_REC_SYMLINK &&
	    (!rec->target_len || rec->target_len > TARNFS_TARGET_MAX ||
	     memchr(rec->target, '\0', rec->target_len)))
		return "target";
	return NULL;
}

static const char *batch_fault(const struct tarn_rec *rec)
{
	if (!rec->seq || rec->seq > TARNFS_SEQ_MAX)
		return "sequence number";
	if (rec->flags & TARNFS_RECORD_CKPT) {
		if (rec->batch_index || rec->batch_left)
			return "a batch in the checkpoint";
	} else if (rec->batch_index + rec->batch_left >= TARNFS_BATCH_MAX) {
		return "length of its batch";
	}
	return NULL;
}

static void encode_node(struct tarnfs_rec_node *raw, const struct tarn_rec *rec)
{
	raw->ino = htole64(rec->ino);
	raw->parent = htole64(rec->parent);
	raw->mtime_sec = htole64((uint64_t)rec->mtime_sec);
	raw->mtime_nsec = htole32(rec->mtime_nsec);
	raw->uid = htole32(rec->uid);
	raw->gid = htole32(rec->gid);
	raw->mode = htole16(rec->mode);
	raw->name_len = htole16(rec->name_len);
}

static void encode_file(struct tarnfs_rec_file *raw, const struct tarn_rec *rec)
{
	raw->size = htole64(rec->size);
	raw->flags = htole32(rec->file_flags);
	raw->layout = htole16(TARNFS_LAYOUT_LINEAR);
	raw->extents = htole16(rec->extents);
}

static void encode_checkpoint_end(struct tarnfs_rec_checkpoint_end *raw, const struct tarn_rec *rec)
{
	raw->directories = htole64(rec->directories);
	raw->files = htole64(rec->files);
	raw->symlinks = htole64(rec->symlinks);
	raw->pending_free = htole64(rec->pending_free);
	raw->hosts = htole32(rec->hosts);
	raw->others = htole32(rec->others);
}

static void encode_host(struct tarnfs_rec_host *raw, const struct tarn_rec *rec)
{
	raw->host = htole16(rec->host);
	raw->flags = htole16(rec->host_flags);
	raw->nonce = htole64(rec->nonce);
	memcpy(raw->uuid, rec->uuid, sizeof(raw->uuid));
	raw->time = htole64(rec->time);
	raw->last_generation = htole64(rec->last_generation);
	raw->last_seq = htole64(rec->last_seq);
}

/* The longest record: a symlink with both strings at their limits. */
#define RECORD_MAX ((sizeof(struct tarnfs_rec_symlink) + TARNFS_NAME_MAX + TARNFS_TARGET_MAX + \
		     TARNFS_LINE - 1) / TARNFS_LINE * TARNFS_LINE)

union raw_record {
	struct tarnfs_record head;
	struct tarnfs_rec_node node;
	struct tarnfs_rec_file file;
	struct tarnfs_rec_symlink symlink;
	struct tarnfs_rec_checkpoint_end end;
	struct tarnfs_rec_host host;
	uint8_t bytes[RECORD_MAX];
};

static size_t put(union raw_record *raw, size_t at, const void *from, size_t len)
{
	if (len)
		memcpy(raw->bytes + at, from, len);
	return at + len;
}

int tarn_rec_encode(void *buf, size_t room, const struct tarn_rec *rec,
		    const struct tarn_seed *seed)
{
	uint32_t units = tarn_rec_units(rec);
	size_t at = fixed_len(rec->type), len = (size_t)units * TARNFS_LINE;
	union raw_record raw;

	if (!tarn_rec_built(rec->type) || rec->class_ != TARNFS_CLASS_REFUSE ||
	    rec->flags & ~TARNFS_RECORD_CKPT || batch_fault(rec) ||
	    (is_node(rec->type) && node_fault(rec)) || rec->file_flags & ~TARNFS_FILE_FLAGS ||
	    len > room ||
	    (rec->type == TARNFS_REC_HOST &&
	     (rec->host >= TARNFS_HOSTS_MAX || rec->host_flags & ~HOST_FLAGS)) ||
	    (rec->type == TARNFS_REC_CHECKPOINT_END && !(rec->flags & TARNFS_RECORD_CKPT)))
		return -EINVAL;
	memset(&raw, 0, len);
	raw.head.type = htole16(rec->type);
	raw.head.class = rec->class_;
	raw.head.flags = rec->flags;
	raw.head.units = htole16((uint16_t)units);
	raw.head.fixed = htole16((uint16_t)at);
	raw.head.batch_index = htole16(rec->batch_index);
	raw.head.batch_left = htole16(rec->batch_left);
	raw.head.seq = htole64(rec->seq);
	if (rec->type == TARNFS_REC_CHECKPOINT_END)
		encode_checkpoint_end(&raw.end, rec);
	else if (rec->type == TARNFS_REC_HOST)
		encode_host(&raw.host, rec);
	else
		encode_node(&raw.node, rec);
	if (rec->type == TARNFS_REC_FILE) {
		const struct tarnfs_extent extent = {
			.off = htole64(rec->ext_off), .len = htole64(rec->ext_len),
		};

		encode_file(&raw.file, rec);
		at = put(&raw, at, &extent, rec->extents * sizeof(extent));
	}
	if (rec->type == TARNFS_REC_SYMLINK)
		raw.symlink.target_len = htole16(rec->target_len);
	if (is_node(rec->type))
		at = put(&raw, at, rec->name, rec->name_len);
	if (rec->type == TARNFS_REC_SYMLINK)
		put(&raw, at, rec->target, rec->target_len);
	raw.head.crc = htole32(tarn_log_crc(seed, &raw, len, offsetof(struct tarnfs_record, crc)));
	memcpy(buf, &raw, len);
	return 0;
}

/* ---- decoding: `buf` may be unaligned, so structures are copied out of it ---- */

struct cursor {
	const uint8_t *buf;
	size_t at, len;
};

static int newer(struct tarn_err *err, const char *what)
{
	return tarn_fail(err, EOPNOTSUPP, "record: %s: it needs a newer tarnfs", what);
}

static int fault(struct tarn_err *err, const char *what)
{
	return tarn_fail(err, EUCLEAN, "record: damaged (%s)", what);
}

static int decode_extent(struct tarn_rec *rec, struct cursor *c, struct tarn_err *err)
{
	struct tarnfs_extent raw;

	if (c->len - c->at < sizeof(raw))
		return fault(err, "extent past its end");
	memcpy(&raw, c->buf + c->at, sizeof(raw));
	c->at += sizeof(raw);
	if (raw.dev || raw.flags || !tarn_all_zero(raw.zero, sizeof(raw.zero)))
		return newer(err, "an extent with a device or flags");
	rec->ext_off = le64toh(raw.off);
	rec->ext_len = le64toh(raw.len);
	return 0;
}

static int decode_file(struct tarn_rec *rec, struct cursor *c, struct tarn_err *err)
{
	struct tarnfs_rec_file raw;

	memcpy(&raw, c->buf, sizeof(raw));
	rec->size = le64toh(raw.size);
	rec->file_flags = le32toh(raw.flags);
	rec->extents = le16toh(raw.extents);
	if (rec->file_flags & ~TARNFS_FILE_FLAGS)
		return newer(err, "a file with unknown flags");
	if (le16toh(raw.layout) != TARNFS_LAYOUT_LINEAR)
		return newer(err, "a file with an unknown layout");
	if (rec->extents > 1)
		return newer(err, "a file of several extents");
	return rec->extents ? decode_extent(rec, c, err) : 0;
}

static int decode_node(struct tarn_rec *rec, struct cursor *c, struct tarn_err *err)
{
	struct tarnfs_rec_symlink symlink;
	struct tarnfs_rec_node raw;
	const char *what;
	int ret;

	memcpy(&raw, c->buf, sizeof(raw));
	rec->ino = le64toh(raw.ino);
	rec->parent = le64toh(raw.parent);
	rec->mtime_sec = (int64_t)le64toh(raw.mtime_sec);
	rec->mtime_nsec = le32toh(raw.mtime_nsec);
	rec->uid = le32toh(raw.uid);
	rec->gid = le32toh(raw.gid);
	rec->mode = le16toh(raw.mode);
	rec->name_len = le16toh(raw.name_len);
	if (rec->type == TARNFS_REC_FILE) {
		ret = decode_file(rec, c, err);
		if (ret)
			return ret;
	} else if (rec->type == TARNFS_REC_SYMLINK) {
		memcpy(&symlink, c->buf, sizeof(symlink));
		if (!tarn_all_zero(symlink.zero, sizeof(symlink.zero)))
			return newer(err, "reserved bytes are set");
		rec->target_len = le16toh(symlink.target_len);
	}
	if (rec->name_len > c->len - c->at)
		return fault(err, "name past its end");
	rec->name = (const char *)c->buf + c->at;
	c->at += rec->name_len;
	if (rec->target_len > c->len - c->at)
		return fault(err, "target past its end");
	rec->target = (const char *)c->buf + c->at;
	c->at += rec->target_len;
	what = node_fault(rec);
	return what ? fault(err, what) : 0;
}

static int decode_checkpoint_end(struct tarn_rec *rec, struct cursor *c, struct tarn_err *err)
{
	struct tarnfs_rec_checkpoint_end raw;

	memcpy(&raw, c->buf, sizeof(raw));
	rec->directories = le64toh(raw.directories);
	rec->files = le64toh(raw.files);
	rec->symlinks = le64toh(raw.symlinks);
	rec->pending_free = le64toh(raw.pending_free);
	rec->hosts = le32toh(raw.hosts);
	rec->others = le32toh(raw.others);
	return rec->flags & TARNFS_RECORD_CKPT ? 0 : fault(err, "end of a checkpoint outside one");
}

static int decode_host(struct tarn_rec *rec, struct cursor *c, struct tarn_err *err)
{
	struct tarnfs_rec_host raw;

	memcpy(&raw, c->buf, sizeof(raw));
	if (!tarn_all_zero(raw.zero1, sizeof(raw.zero1)) ||
	    !tarn_all_zero(raw.zero2, sizeof(raw.zero2)))
		return newer(err, "reserved bytes are set");
	rec->host = le16toh(raw.host);
	rec->host_flags = le16toh(raw.flags);
	rec->nonce = le64toh(raw.nonce);
	memcpy(rec->uuid, raw.uuid, sizeof(rec->uuid));
	rec->time = le64toh(raw.time);
	rec->last_generation = le64toh(raw.last_generation);
	rec->last_seq = le64toh(raw.last_seq);
	if (rec->host >= TARNFS_HOSTS_MAX)
		return fault(err, "number of a host");
	if (rec->host_flags & ~HOST_FLAGS)
		return newer(err, "a host with unknown flags");
	return 0;
}

/* The tagged values at the end; none is known in version 1, each says what that means. */
static int decode_tlvs(struct tarn_rec *rec, struct cursor *c, struct tarn_err *err)
{
	size_t padded = tarn_round_up(c->at, 8);

	if (!tarn_all_zero(c->buf + c->at, (padded < c->len ? padded : c->len) - c->at))
		return newer(err, "padding is set");
	c->at = padded;
	while (c->at < c->len) {
		struct tarnfs_tlv tlv;
		uint64_t length;

		if (c->len - c->at < sizeof(tlv))
			return fault(err, "tagged value past its end");
		memcpy(&tlv, c->buf + c->at, sizeof(tlv));
		if (!tlv.tag) {
			if (!tarn_all_zero(c->buf + c->at, c->len - c->at))
				return newer(err, "padding is set");
			return 0;
		}
		c->at += sizeof(tlv);
		length = tarn_round_up(le32toh(tlv.length), 8);
		if (length > c->len - c->at || tlv.class > TARNFS_CLASS_IGNORE || tlv.zero)
			return fault(err, "tagged value");
		if (tlv.class == TARNFS_CLASS_REFUSE)
			return newer(err, "an unknown tagged value");
		if (tlv.class == TARNFS_CLASS_READONLY)
			rec->readonly = true;
		c->at += length;
	}
	return 0;
}

int tarn_rec_decode(struct tarn_rec *rec, const void *buf, size_t room,
		    const struct tarn_seed *seed, struct tarn_err *err)
{
	struct cursor c = { .buf = buf };
	struct tarnfs_record head;
	const char *what;
	size_t fixed;
	int ret = 0;

	memset(rec, 0, sizeof(*rec));
	if (room < TARNFS_LINE)
		return fault(err, "shorter than a line");
	memcpy(&head, buf, sizeof(head));
	rec->type = le16toh(head.type);
	rec->class_ = head.class;
	rec->flags = head.flags;
	rec->seq = le64toh(head.seq);
	rec->batch_index = le16toh(head.batch_index);
	rec->batch_left = le16toh(head.batch_left);
	rec->units = le16toh(head.units);
	c.len = (size_t)rec->units * TARNFS_LINE;
	if (!rec->units || c.len > room)
		return fault(err, "length");
	if (seed && le32toh(head.crc) !=
			    tarn_log_crc(seed, buf, c.len, offsetof(struct tarnfs_record, crc)))
		return fault(err, "checksum");
	if (rec->flags & ~TARNFS_RECORD_CKPT)
		return newer(err, "unknown flags");
	if (rec->class_ > TARNFS_CLASS_IGNORE)
		return newer(err, "unknown class");
	what = batch_fault(rec);
	if (what)
		return fault(err, what);

	fixed = fixed_len(rec->type);
	if (!fixed) {
		if (rec->class_ == TARNFS_CLASS_REFUSE)
			return tarn_fail(err, EOPNOTSUPP,
					 "record of unknown type %u: it needs a newer tarnfs",
					 rec->type);
		rec->readonly = rec->class_ == TARNFS_CLASS_READONLY;
		return 0;
	}
	if (c.len < fixed || le16toh(head.fixed) < fixed)
		return fault(err, "length of its fixed part");
	if (!tarn_rec_built(rec->type))
		return 0;	/* whole, and not looked into: see replay.c */
	if (le16toh(head.fixed) > fixed)
		return newer(err, "a longer fixed part");
	if (rec->class_ != TARNFS_CLASS_REFUSE)
		return fault(err, "class");
	c.at = fixed;
	if (is_node(rec->type))
		ret = decode_node(rec, &c, err);
	else if (rec->type == TARNFS_REC_CHECKPOINT_END)
		ret = decode_checkpoint_end(rec, &c, err);
	else
		ret = decode_host(rec, &c, err);
	return ret ? ret : decode_tlvs(rec, &c, err);
}
