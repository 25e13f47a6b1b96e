// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * log.c - records: encoding, decoding with every field checked, and the walk
 * over a log that a host has committed. What records do is in replay.c.
 */
#include "internal.h"

#include <inttypes.h>

/* ---- seeds ---- */

static uint32_t seed_crc(const struct tarn_seed *seed)
{
	uint64_t generation = htole64(seed->generation);
	uint16_t host = htole16(seed->host);
	uint32_t crc = tarn_crc32c(0, seed->uuid, sizeof(seed->uuid));

	crc = tarn_crc32c(crc, &generation, sizeof(generation));
	return tarn_crc32c(crc, &host, sizeof(host));
}

/* crc of buf, the four bytes at crc_at taken as zero */
static uint32_t seeded_crc(const struct tarn_seed *seed, const void *buf, size_t len, size_t crc_at)
{
	static const uint8_t zeros[4];
	const uint8_t *p = buf;
	uint32_t crc = tarn_crc32c(seed_crc(seed), p, crc_at);

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
	[TARNFS_REC_DIRECTORY] = "directory", [TARNFS_REC_FILE] = "file", [TARNFS_REC_SYMLINK] = "symlink",
	[TARNFS_REC_UNLINK] = "unlink", [TARNFS_REC_RENAME] = "rename", [TARNFS_REC_SETATTR] = "setattr",
	[TARNFS_REC_RECLAIM] = "reclaim", [TARNFS_REC_PENDING_FREE] = "pending-free",
	[TARNFS_REC_HOST] = "host", [TARNFS_REC_DATA_END] = "data-end",
	[TARNFS_REC_CHECKPOINT_END] = "checkpoint-end", [TARNFS_REC_DEVICE] = "device",
	[TARNFS_REC_XATTR] = "xattr", [TARNFS_REC_XATTR_REMOVE] = "xattr-remove", [TARNFS_REC_LINK] = "link",
	[TARNFS_REC_EXTEND] = "extend", [TARNFS_REC_EXCHANGE] = "exchange", [TARNFS_REC_NOTE] = "note",
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
	return type == TARNFS_REC_DIRECTORY || type == TARNFS_REC_FILE || type == TARNFS_REC_SYMLINK;
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
	return ino == TARNFS_INO_ROOT || (ino >= TARNFS_INO_FIRST && ino <= TARNFS_SEQ_MAX);
}

static bool is_root(const struct tarn_rec *rec)
{
	return rec->type == TARNFS_REC_DIRECTORY && rec->ino == TARNFS_INO_ROOT;
}

/* What is wrong with a node, or NULL: one rule for encoding and decoding. */
static const char *node_fault(const struct tarn_rec *rec)
{
	if (!is_ino(rec->ino) || !is_ino(rec->parent))
		return "inode number";
	if (rec->ino == TARNFS_INO_ROOT) {
		if (rec->type != TARNFS_REC_DIRECTORY || rec->parent != TARNFS_INO_ROOT || rec->name_len ||
		    !(rec->flags & TARNFS_RECORD_CKPT))
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
	if (rec->type == TARNFS_REC_FILE) {
		if (rec->size > TARNFS_SIZE_MAX)
			return "size";
		if (rec->extents != (rec->size ? 1 : 0))
			return "number of extents";
		if (rec->extents &&
		    (rec->ext_off % TARNFS_BLOCK || rec->ext_len % TARNFS_BLOCK || rec->ext_len < rec->size ||
		     rec->ext_off > TARNFS_SIZE_MAX || rec->ext_len > TARNFS_SIZE_MAX - rec->ext_off))
			return "extent";
	}
	if (rec->type == TARNFS_REC_SYMLINK &&
	    (!rec->target_len || rec->target_len > TARNFS_TARGET_MAX || memchr(rec->target, '\0', rec->target_len)))
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

int tarn_rec_encode(void *buf, size_t room, const struct tarn_rec *rec, const struct tarn_seed *seed)
{
	uint32_t units = tarn_rec_units(rec);
	size_t at = fixed_len(rec->type), len = (size_t)units * TARNFS_LINE;
	union raw_record raw;

	if (!tarn_rec_built(rec->type) || rec->class_ != TARNFS_CLASS_REFUSE ||
	    rec->flags & ~TARNFS_RECORD_CKPT || batch_fault(rec) || (is_node(rec->type) && node_fault(rec)) ||
	    rec->file_flags & ~TARNFS_FILE_FLAGS || len > room ||
	    (rec->type == TARNFS_REC_HOST && (rec->host >= TARNFS_HOSTS_MAX || rec->host_flags & ~HOST_FLAGS)) ||
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
	raw.head.crc = htole32(seeded_crc(seed, &raw, len, offsetof(struct tarnfs_record, crc)));
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
	if (!tarn_all_zero(raw.zero1, sizeof(raw.zero1)) || !tarn_all_zero(raw.zero2, sizeof(raw.zero2)))
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

int tarn_rec_decode(struct tarn_rec *rec, const void *buf, size_t room, const struct tarn_seed *seed,
		    struct tarn_err *err)
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
	if (le32toh(head.crc) != seeded_crc(seed, buf, c.len, offsetof(struct tarnfs_record, crc)))
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
			return tarn_fail(err, EOPNOTSUPP, "record of unknown type %u: it needs a newer tarnfs", rec->type);
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

/* ---- header and commit word ---- */

void tarn_log_header_encode(struct tarnfs_log_header *raw, const struct tarn_log *log,
			    uint64_t nonce, uint64_t time_sec)
{
	memset(raw, 0, sizeof(*raw));
	memcpy(raw->magic, TARNFS_LOG_MAGIC, TARNFS_MAGIC_LEN);
	raw->length = htole32(TARNFS_LOG_HEADER_LEN);
	memcpy(raw->uuid, log->seed.uuid, sizeof(raw->uuid));
	raw->generation = htole64(log->seed.generation);
	raw->host = htole16(log->seed.host);
	raw->prev_host = htole16(log->prev_host);
	raw->prev_generation = htole64(log->prev_generation);
	raw->base_seq = htole64(log->base_seq);
	raw->next_ino = htole64(log->next_ino);
	raw->ckpt_records = htole64(log->ckpt_records);
	raw->ckpt_units = htole32(log->ckpt_units);
	raw->writer_nonce = htole64(nonce);
	raw->time = htole64(time_sec);
	raw->data_end = htole64(log->data_end);
	raw->crc = htole32(seeded_crc(&log->seed, raw, sizeof(*raw), offsetof(struct tarnfs_log_header, crc)));
}

static const char *header_fault(const struct tarn_log *log, const struct tarnfs_log_header *raw,
				const struct tarn_super *sb)
{
	if (memcmp(raw->magic, TARNFS_LOG_MAGIC, TARNFS_MAGIC_LEN))
		return "no log header there";
	if (le32toh(raw->length) != TARNFS_LOG_HEADER_LEN)
		return "length";
	if (le32toh(raw->crc) != seeded_crc(&log->seed, raw, sizeof(*raw), offsetof(struct tarnfs_log_header, crc)))
		return "checksum";
	if (memcmp(raw->uuid, sb->uuid, sizeof(raw->uuid)) ||
	    le64toh(raw->generation) != log->seed.generation || le16toh(raw->host) != log->seed.host)
		return "of another log";
	if (log->prev_generation >= log->seed.generation || (log->seed.generation == 1 && log->prev_host))
		return "previous generation";
	if (log->base_seq > TARNFS_SEQ_MAX || (log->seed.generation == 1 && log->base_seq))
		return "sequence number";
	if (log->next_ino < TARNFS_INO_FIRST || log->next_ino > TARNFS_SEQ_MAX)
		return "inode number";
	if (log->ckpt_records < 2 || log->ckpt_units < log->ckpt_records ||
	    log->ckpt_units > log->units - TARNFS_LOG_HEADER_UNITS)
		return "length of the checkpoint";
	if (log->data_end < sb->data_start || log->data_end > sb->dev_size || log->data_end % TARNFS_BLOCK)
		return "end of the data";
	return NULL;
}

static int header_read(struct tarn_log *log, struct tarn_media *m, const struct tarn_super *sb,
		       struct tarn_err *err)
{
	struct tarnfs_log_header raw;
	const char *what;
	int ret = tarn_media_fetch(m, log->area_off, &raw, sizeof(raw));

	if (ret)
		return tarn_fail(err, -ret, "log header: cannot be read at device offset 0x%" PRIx64 ": %s",
				 m->bad, strerror(-ret));
	log->base_seq = le64toh(raw.base_seq);
	log->next_ino = le64toh(raw.next_ino);
	log->prev_generation = le64toh(raw.prev_generation);
	log->prev_host = le16toh(raw.prev_host);
	log->data_end = le64toh(raw.data_end);
	log->ckpt_records = le64toh(raw.ckpt_records);
	log->ckpt_units = le32toh(raw.ckpt_units);
	log->readonly = (le64toh(raw.ro_compat) | sb->ro_compat) & ~TARNFS_RO_COMPAT_KNOWN;
	what = header_fault(log, &raw, sb);
	if (what)
		return tarn_fail(err, EUCLEAN, "log header at device offset 0x%" PRIx64 ": damaged (%s)",
				 log->area_off, what);
	if (le64toh(raw.incompat) & ~TARNFS_INCOMPAT_KNOWN)
		return tarn_fail(err, EOPNOTSUPP, "log header: feature bits 0x%" PRIx64 " need a newer tarnfs",
				 (uint64_t)le64toh(raw.incompat));
	if (le32toh(raw.flags) & ~TARNFS_LOG_TAKEOVER || !tarn_all_zero(raw.zero1, sizeof(raw.zero1)) ||
	    !tarn_all_zero(raw.zero2, sizeof(raw.zero2)))
		return tarn_fail(err, EOPNOTSUPP, "log header: flags or reserved bytes are set: it needs a newer tarnfs");
	return 0;
}

int tarn_log_open(struct tarn_log *log, struct tarn_media *m, const struct tarn_super *sb,
		  const struct tarn_current *cur, struct tarn_err *err)
{
	uint64_t off, word;
	int ret;

	memset(log, 0, sizeof(*log));
	if (!cur->generation)
		return tarn_fail(err, EUCLEAN, "no host page holds an active log: fsck.tarnfs has to mend it");
	memcpy(log->seed.uuid, sb->uuid, sizeof(log->seed.uuid));
	log->seed.generation = cur->generation;
	log->seed.host = cur->host;
	log->slot = cur->slot;
	log->area_off = cur->area_off;
	log->area_len = cur->area_len;
	off = tarn_commit_off(sb, log);
	ret = tarn_media_invalidate(m, off, TARNFS_LINE);
	if (!ret)
		ret = tarn_media_read64(m, off, &word);
	if (ret)
		return tarn_fail(err, -ret, "commit word: cannot be read at device offset 0x%" PRIx64 ": %s", off,
				 strerror(-ret));
	log->units = (uint32_t)le64toh(word);
	if (word != tarn_commit_word(&log->seed, log->slot, log->units))
		return tarn_fail(err, EUCLEAN, "commit word at device offset 0x%" PRIx64 ": damaged (checksum)", off);
	if (log->units < TARNFS_LOG_HEADER_UNITS + 2 || (uint64_t)log->units * TARNFS_LINE > log->area_len)
		return tarn_fail(err, EUCLEAN, "commit word at device offset 0x%" PRIx64 ": %u units in an area of %" PRIu64 " bytes",
				 off, log->units, log->area_len);
	return header_read(log, m, sb, err);
}

/* ---- the walk ---- */

/* How far one fetch reads ahead, never past what is committed. */
#define WINDOW_UNITS 1024

struct window {			/* units [start, start + have) of the area */
	uint8_t *buf;
	size_t room;		/* units that buf holds */
	uint32_t start, have;
};

static uint8_t *window_at(const struct window *w, uint32_t unit)
{
	return w->buf + (size_t)(unit - w->start) * TARNFS_LINE;
}

/* Has units [start of the window, end) in the buffer. end <= log->units */
static int window_fill(struct window *w, const struct tarn_log *log, struct tarn_media *m, uint32_t end,
		       struct tarn_err *err)
{
	uint32_t have_to = w->start + w->have, want;
	uint64_t off = log->area_off + (uint64_t)have_to * TARNFS_LINE;
	int ret;

	if (end <= have_to)
		return 0;
	want = end - have_to;
	if (want < WINDOW_UNITS)
		want = WINDOW_UNITS;
	if (want > log->units - have_to)
		want = log->units - have_to;
	if (w->have + (size_t)want > w->room) {
		size_t room = w->room * 2 > w->have + (size_t)want ? w->room * 2 : w->have + (size_t)want;
		uint8_t *buf = realloc(w->buf, room * TARNFS_LINE);

		if (!buf)
			return tarn_fail(err, ENOMEM, "no memory for %zu bytes of the log", room * TARNFS_LINE);
		w->buf = buf;
		w->room = room;
	}
	ret = tarn_media_fetch(m, off, w->buf + (size_t)w->have * TARNFS_LINE, (size_t)want * TARNFS_LINE);
	if (ret)
		return tarn_fail(err, -ret, "log: cannot be read at device offset 0x%" PRIx64 ": %s",
				 ret == -EIO ? m->bad : off, strerror(-ret));
	w->have += want;
	return 0;
}

/* Drops what stands before unit. */
static void window_advance(struct window *w, uint32_t unit)
{
	uint32_t gone = unit - w->start;

	if (gone >= w->have) {
		w->have = 0;
	} else {
		memmove(w->buf, window_at(w, unit), (size_t)(w->have - gone) * TARNFS_LINE);
		w->have -= gone;
	}
	w->start = unit;
}

struct counts {
	uint64_t records, directories, files, symlinks, pending_free, hosts, others;
};

static void count_record(struct counts *n, const struct tarn_rec *rec)
{
	n->records++;
	switch (rec->type) {
	case TARNFS_REC_DIRECTORY:	n->directories++; break;
	case TARNFS_REC_FILE:		n->files++; break;
	case TARNFS_REC_SYMLINK:	n->symlinks++; break;
	case TARNFS_REC_PENDING_FREE:	n->pending_free++; break;
	case TARNFS_REC_HOST:		n->hosts++; break;
	case TARNFS_REC_CHECKPOINT_END:	break;
	default:			n->others++; break;
	}
}

/* One record at `unit`, decoded; its offset goes into a sentence about it. */
static int record_at(struct tarn_rec *rec, struct window *w, const struct tarn_log *log, struct tarn_media *m,
		     uint32_t unit, uint32_t limit, struct tarn_err *err)
{
	uint64_t off = log->area_off + (uint64_t)unit * TARNFS_LINE;
	struct tarnfs_record head;
	uint32_t units;
	int ret;

	if (unit >= limit)
		return tarn_fail(err, EUCLEAN, "log at device offset 0x%" PRIx64 ": ends within a batch", off);
	ret = window_fill(w, log, m, unit + 1, err);
	if (ret)
		return ret;
	memcpy(&head, window_at(w, unit), sizeof(head));
	units = le16toh(head.units);
	if (units > limit - unit)
		return tarn_fail(err, EUCLEAN, "log at device offset 0x%" PRIx64 ": record damaged (length)", off);
	if (units > 1) {
		ret = window_fill(w, log, m, unit + units, err);
		if (ret)
			return ret;
	}
	ret = tarn_rec_decode(rec, window_at(w, unit), (size_t)(limit - unit < units ? limit - unit : units) * TARNFS_LINE,
			      &log->seed, err);
	rec->off = off;
	if (ret)
		return tarn_fail_prefix(err, ret, "log at device offset 0x%" PRIx64 ": ", off);
	return 0;
}

static int misplaced(const struct tarn_rec *rec, struct tarn_err *err, const char *what)
{
	return tarn_fail(err, EUCLEAN, "log at device offset 0x%" PRIx64 ": record out of place (%s)", rec->off, what);
}

/* The checkpoint stands from the header to ckpt_units: all of it is checked. */
static int load_checkpoint(struct window *w, const struct tarn_log *log, struct tarn_media *m, uint32_t *end,
			   struct tarn_err *err)
{
	uint32_t unit = TARNFS_LOG_HEADER_UNITS, limit = unit + log->ckpt_units;
	struct counts n = { 0 };
	struct tarn_rec rec;

	do {
		int ret = record_at(&rec, w, log, m, unit, limit, err);

		if (ret)
			return ret;
		if (!(rec.flags & TARNFS_RECORD_CKPT))
			return misplaced(&rec, err, "in the checkpoint");
		if (rec.seq != n.records + 1)
			return misplaced(&rec, err, "ordinal");
		if (is_root(&rec) != !n.records)
			return misplaced(&rec, err, "the root comes first, and once");
		count_record(&n, &rec);
		unit += rec.units;
	} while (rec.type != TARNFS_REC_CHECKPOINT_END);
	if (unit != limit || n.records != log->ckpt_records)
		return misplaced(&rec, err, "the checkpoint ends too early");
	if (rec.directories != n.directories || rec.files != n.files || rec.symlinks != n.symlinks ||
	    rec.pending_free != n.pending_free || rec.hosts != n.hosts || rec.others != n.others)
		return misplaced(&rec, err, "the checkpoint's counts are not those of its records");
	*end = unit;
	return 0;
}

static int load_batch(struct window *w, const struct tarn_log *log, struct tarn_media *m, uint32_t unit,
		      uint64_t seq, uint32_t *end, struct tarn_err *err)
{
	uint32_t index = 0, left = 0;
	struct tarn_rec rec;

	do {
		int ret = record_at(&rec, w, log, m, unit, log->units, err);

		if (ret)
			return ret;
		if (rec.flags & TARNFS_RECORD_CKPT || rec.type == TARNFS_REC_PENDING_FREE)
			return misplaced(&rec, err, "outside the checkpoint");
		if (seq && rec.seq != seq)
			return misplaced(&rec, err, "sequence number");
		if (rec.batch_index != index || (index && rec.batch_left != left - 1))
			return misplaced(&rec, err, "place in its batch");
		seq = rec.seq + 1;
		index++;
		left = rec.batch_left;
		unit += rec.units;
	} while (left);
	*end = unit;
	return 0;
}

int tarn_log_walk(struct tarn_log *log, struct tarn_media *m, uint32_t *pos, tarn_rec_fn fn, void *arg,
		  struct tarn_err *err)
{
	uint32_t after_ckpt = TARNFS_LOG_HEADER_UNITS + log->ckpt_units;
	struct window w = { .start = *pos };
	int ret = 0;

	if (*pos != TARNFS_LOG_HEADER_UNITS && *pos < after_ckpt)
		return tarn_fail(err, EINVAL, "walk of the log from unit %u, within its checkpoint", *pos);
	while (*pos < log->units) {
		uint32_t end = 0, unit = *pos;
		struct tarn_rec rec = { .seq = 0 };

		/* checked whole before anyone sees its first record */
		if (unit == TARNFS_LOG_HEADER_UNITS)
			ret = load_checkpoint(&w, log, m, &end, err);
		else
			ret = load_batch(&w, log, m, unit, log->next_seq, &end, err);
		for (; !ret && unit < end; unit += rec.units) {
			ret = record_at(&rec, &w, log, m, unit, end, err);
			if (!ret)
				ret = fn(arg, &rec);
		}
		if (ret)
			break;
		log->next_seq = *pos == TARNFS_LOG_HEADER_UNITS ? log->base_seq + 1 : rec.seq + 1;
		*pos = end;
		window_advance(&w, end);
	}
	free(w.buf);
	return ret;
}
