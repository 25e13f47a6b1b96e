// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * super.c - the superblock, and mkfs: geometry, and everything a new file
 * system consists of, in the order of protocol section 7.
 */
#include "internal.h"

_Static_assert(sizeof(((struct tarn_super *)0)->label) == TARNFS_LABEL_MAX + 1, "label");

static uint32_t super_crc(const struct tarnfs_super *raw)
{
	struct tarnfs_super copy = *raw;

	copy.crc = 0;
	return tarn_crc32c(0, &copy, sizeof(copy));
}

static int damaged(struct tarn_err *err, const char *what)
{
	return tarn_fail(err, EUCLEAN,
			 "superblock: %s (its checksum is right: written wrong, not damaged)",
			 what);
}

static int decode_areas(struct tarn_super *sb, const struct tarnfs_super *raw, struct tarn_err *err)
{
	uint64_t mirror_end = sb->mirror_off + (uint64_t)sb->hosts * sb->host_stride;

	if (sb->areas < 2 || sb->areas > TARNFS_AREAS_MAX)
		return damaged(err, "number of log areas");
	for (int i = 0; i < TARNFS_AREAS_MAX; i++) {
		uint64_t off = le64toh(raw->area[i].off), len = le64toh(raw->area[i].len);

		if (i >= sb->areas) {
			if (off || len)
				return damaged(err, "a log area more than it counts");
			continue;
		}
		if (off % TARNFS_BLOCK || len % TARNFS_BLOCK || len < TARNFS_AREA_MIN ||
		    len > TARNFS_AREA_MAX || off < mirror_end || off > sb->data_start ||
		    len > sb->data_start - off)
			return damaged(err, "place or length of a log area");
		for (int j = 0; j < i; j++)
			if (off < sb->area[j].off + sb->area[j].len && sb->area[j].off < off + len)
				return damaged(err, "two log areas overlap");
		sb->area[i].off = off;
		sb->area[i].len = len;
	}
	return 0;
}

static int decode_geometry(struct tarn_super *sb, const struct tarnfs_super *raw, uint64_t dev_size,
			   struct tarn_err *err)
{
	uint64_t hosts_len;

	if (le32toh(raw->block_size) != TARNFS_BLOCK || raw->csum != TARNFS_CSUM_CRC32C ||
	    raw->line_shift != TARNFS_LINE_SHIFT || raw->align_shift != TARNFS_HUGE_SHIFT ||
	    le16toh(raw->area_entry) != sizeof(struct tarnfs_area))
		return damaged(
			err,
			"block size, checksum, line or alignment that version 1 does not have");
	if (raw->role != TARNFS_DEVICE_FIRST || le16toh(raw->dev_index) ||
	    le16toh(raw->dev_count) != 1)
		return tarn_fail(err, EOPNOTSUPP,
				 "superblock: one of several devices, which needs a newer tarnfs");
	sb->dev_size = le64toh(raw->dev_size);
	sb->data_start = le64toh(raw->data_start);
	sb->data_end = le64toh(raw->data_end);
	if (sb->dev_size > TARNFS_SIZE_MAX || sb->data_start % TARNFS_HUGE ||
	    sb->data_end % TARNFS_BLOCK || sb->data_start > sb->data_end ||
	    sb->data_end > sb->dev_size)
		return damaged(err, "start or end of the data");
	if (dev_size && sb->dev_size > dev_size)
		return tarn_fail(err, EUCLEAN,
				 "file system was made for %llu bytes, the device has %llu; is it "
				 "the same namespace?",
				 (unsigned long long)sb->dev_size, (unsigned long long)dev_size);
	sb->hosts = le32toh(raw->hosts);
	sb->host_stride = le32toh(raw->host_stride);
	sb->hosts_off = le64toh(raw->hosts_off);
	sb->mirror_off = le64toh(raw->hosts_mirror_off);
	if (!sb->hosts || sb->hosts > TARNFS_HOSTS_MAX || sb->host_stride != TARNFS_HOST_STRIDE)
		return damaged(err, "number or length of host pages");
	hosts_len = (uint64_t)sb->hosts * sb->host_stride;
	if (sb->hosts_off % TARNFS_BLOCK || sb->mirror_off % TARNFS_BLOCK ||
	    sb->hosts_off < TARNFS_SUPER2_OFF + TARNFS_BLOCK || sb->hosts_off > sb->data_start ||
	    sb->mirror_off > sb->data_start || sb->mirror_off < sb->hosts_off + hosts_len ||
	    hosts_len > sb->data_start - sb->mirror_off)
		return damaged(err, "place of the host pages");
	return 0;
}

int tarn_super_decode(struct tarn_super *sb, const struct tarnfs_super *raw, uint64_t dev_size,
		      struct tarn_err *err)
{
	int ret;

	memset(sb, 0, sizeof(*sb));
	if (memcmp(raw->magic, TARNFS_SUPER_MAGIC, TARNFS_MAGIC_LEN))
		return tarn_fail(err, ENODATA, "no tarnfs superblock here");
	if (le32toh(raw->length) != TARNFS_SUPER_LEN) {
		if (le32toh(raw->version) > TARNFS_FORMAT_VERSION)
			return tarn_fail(err, EOPNOTSUPP,
					 "superblock: media version %u, these tools know %d",
					 le32toh(raw->version), TARNFS_FORMAT_VERSION);
		return tarn_fail(err, EUCLEAN, "superblock: damaged (length %u)",
				 le32toh(raw->length));
	}
	if (super_crc(raw) != le32toh(raw->crc))
		return tarn_fail(err, EUCLEAN, "superblock: damaged (checksum)");
	if (le32toh(raw->version) != TARNFS_FORMAT_VERSION)
		return tarn_fail(err, EOPNOTSUPP,
				 "superblock: media version %u, these tools know %d",
				 le32toh(raw->version), TARNFS_FORMAT_VERSION);
	sb->compat = le64toh(raw->compat);
	sb->ro_compat = le64toh(raw->ro_compat);
	sb->incompat = le64toh(raw->incompat);
	if (sb->incompat & ~TARNFS_INCOMPAT_KNOWN)
		return tarn_fail(err, EOPNOTSUPP,
				 "superblock: feature bits 0x%llx need a newer tarnfs",
				 (unsigned long long)(sb->incompat & ~TARNFS_INCOMPAT_KNOWN));
	if (!tarn_all_zero(raw->zero1, sizeof(raw->zero1)) ||
	    !tarn_all_zero(raw->zero2, sizeof(raw->zero2)))
		return tarn_fail(err, EOPNOTSUPP,
				 "superblock: reserved bytes are set: it needs a newer tarnfs");
	memcpy(sb->uuid, raw->uuid, sizeof(sb->uuid));
	memcpy(sb->dev_uuid, raw->dev_uuid, sizeof(sb->dev_uuid));
	if (tarn_uuid_is_zero(sb->uuid))
		return damaged(err, "no uuid");
	memcpy(sb->label, raw->label, sizeof(sb->label));
	if (!memchr(sb->label, '\0', sizeof(sb->label)) ||
	    !tarn_all_zero(sb->label + strlen(sb->label), sizeof(sb->label) - strlen(sb->label)))
		return damaged(err, "label");
	sb->created_sec = (int64_t)le64toh(raw->created_sec);
	sb->created_nsec = le32toh(raw->created_nsec);
	if (sb->created_nsec > 999999999)
		return damaged(err, "time");
	ret = decode_geometry(sb, raw, dev_size, err);
	if (ret)
		return ret;
	sb->areas = le16toh(raw->areas);
	return decode_areas(sb, raw, err);
}

void tarn_super_encode(struct tarnfs_super *raw, const struct tarn_super *sb)
{
	memset(raw, 0, sizeof(*raw));
	memcpy(raw->magic, TARNFS_SUPER_MAGIC, TARNFS_MAGIC_LEN);
	raw->version = htole32(TARNFS_FORMAT_VERSION);
	raw->length = htole32(TARNFS_SUPER_LEN);
	raw->compat = htole64(sb->compat);
	raw->ro_compat = htole64(sb->ro_compat);
	raw->incompat = htole64(sb->incompat);
	raw->block_size = htole32(TARNFS_BLOCK);
	memcpy(raw->uuid, sb->uuid, sizeof(raw->uuid));
	memcpy(raw->label, sb->label, sizeof(raw->label));
	raw->dev_size = htole64(sb->dev_size);
	raw->data_start = htole64(sb->data_start);
	raw->data_end = htole64(sb->data_end);
	raw->hosts_off = htole64(sb->hosts_off);
	raw->hosts_mirror_off = htole64(sb->mirror_off);
	raw->hosts = htole32(sb->hosts);
	raw->host_stride = htole32(sb->host_stride);
	raw->areas = htole16(sb->areas);
	raw->area_entry = htole16(sizeof(struct tarnfs_area));
	raw->csum = TARNFS_CSUM_CRC32C;
	raw->line_shift = TARNFS_LINE_SHIFT;
	raw->align_shift = TARNFS_HUGE_SHIFT;
	raw->role = TARNFS_DEVICE_FIRST;
	raw->created_sec = htole64((uint64_t)sb->created_sec);
	raw->created_nsec = htole32(sb->created_nsec);
	raw->dev_count = htole16(1);
	memcpy(raw->dev_uuid, sb->dev_uuid, sizeof(raw->dev_uuid));
	for (int i = 0; i < sb->areas; i++) {
		raw->area[i].off = htole64(sb->area[i].off);
		raw->area[i].len = htole64(sb->area[i].len);
	}
	raw->crc = htole32(super_crc(raw));
}

static int super_read_at(struct tarn_super *sb, struct tarn_media *m, uint64_t off,
			 uint64_t dev_size, struct tarn_err *err)
{
	struct tarnfs_super raw;
	int ret;

	if (m->size < off + sizeof(raw))
		return tarn_fail(err, ENODATA, "too small for a tarnfs superblock: %llu bytes",
				 (unsigned long long)m->size);
	ret = tarn_media_fetch(m, off, &raw, sizeof(raw));
	if (ret)
		return tarn_fail(err, -ret,
				 "superblock: cannot be read at device offset 0x%llx: %s",
				 (unsigned long long)m->bad, strerror(-ret));
	return tarn_super_decode(sb, &raw, dev_size, err);
}

int tarn_super_read(struct tarn_super *sb, struct tarn_media *m, uint64_t dev_size,
		    struct tarn_err *err)
{
	return super_read_at(sb, m, TARNFS_SUPER_OFF, dev_size, err);
}

/* mkfs destroys both copies before anything else: the second is as good a witness. */
int tarn_super_reread(struct tarn_super *sb, struct tarn_media *m, uint64_t dev_size,
		      const uint8_t uuid[16], struct tarn_err *err)
{
	int ret = tarn_super_read(sb, m, dev_size, err);

	if (ret != -EIO)
		return ret;
	if (super_read_at(sb, m, TARNFS_SUPER2_OFF, dev_size, NULL) ||
	    memcmp(sb->uuid, uuid, sizeof(sb->uuid)))
		return tarn_fail(err, EIO, "superblock: cannot be read at device offset 0x%x: its memory has "
				 "failed, and its second copy, at 0x%x, is no better: umount, repair the "
				 "memory, then fsck.tarnfs", TARNFS_SUPER_OFF, TARNFS_SUPER2_OFF);
	return 0;
}

int tarn_mkfs_probe(struct tarn_mkfs_probe *probe, struct tarn_media *m, uint64_t dev_size,
		    struct tarn_err *err)
{
	struct tarn_identity id;
	int ret;

	memset(probe, 0, sizeof(*probe));
	ret = super_read_at(&probe->sb, m, TARNFS_SUPER_OFF, dev_size, err);
	if (ret == -ENODATA || ret == -EUCLEAN) {
		/* a first copy that is damaged must not hide hosts that live here */
		int second = super_read_at(&probe->sb, m, TARNFS_SUPER2_OFF, dev_size, err);

		if (!second || second != -ENODATA)
			ret = second;
	}
	if (ret == -ENODATA)
		return 0;
	probe->found = true;
	if (ret)	/* a tarnfs whose host pages cannot be read with what is known */
		return ret == -EUCLEAN || ret == -EOPNOTSUPP ? 0 : ret;
	probe->valid = true;
	for (uint32_t i = 0; i < probe->sb.hosts; i++) {
		ret = tarn_identity_read(m, &probe->sb, (uint16_t)i, &id);
		if (ret)
			return tarn_fail(err, -ret, "host page %u: %s", i, strerror(-ret));
		if (id.state == TARNFS_PAGE_CLAIMED)
			probe->claimed++;
	}
	return 0;
}

int tarn_mkfs_plan(struct tarn_super *sb, const struct tarn_mkfs *opt, struct tarn_err *err)
{
	uint64_t area = opt->log_size;

	memset(sb, 0, sizeof(*sb));
	sb->hosts = opt->hosts ? opt->hosts : TARNFS_HOSTS_DEFAULT;
	if (sb->hosts > TARNFS_HOSTS_MAX)
		return tarn_fail(err, EINVAL, "%u hosts: at most %d are possible", sb->hosts,
				 TARNFS_HOSTS_MAX);
	if (!area) {
		area = tarn_round_up(opt->dev_size / TARNFS_AREA_FRACTION, TARNFS_BLOCK);
		if (area < TARNFS_AREA_MIN)
			area = TARNFS_AREA_MIN;
		if (area > TARNFS_AREA_MAX)
			area = TARNFS_AREA_MAX;
	} else if (area < TARNFS_AREA_MIN || area > TARNFS_AREA_MAX) {
		return tarn_fail(err, EINVAL,
				 "log size %llu: must be from %llu (1 MiB) to %llu (1 GiB)",
				 (unsigned long long)area, TARNFS_AREA_MIN, TARNFS_AREA_MAX);
	}
	area = tarn_round_up(area, TARNFS_BLOCK);
	if (opt->label) {
		if (strlen(opt->label) > TARNFS_LABEL_MAX)
			return tarn_fail(err, EINVAL, "label: %zu bytes, at most %d are possible",
					 strlen(opt->label), TARNFS_LABEL_MAX);
		strcpy(sb->label, opt->label);
	}
	sb->dev_size = opt->dev_size;
	sb->data_end = opt->dev_size / TARNFS_BLOCK * TARNFS_BLOCK;
	sb->data_start = tarn_round_up(TARNFS_LOG_OFF + TARNFS_AREAS * area, TARNFS_HUGE);
	if (opt->dev_size > TARNFS_SIZE_MAX)
		return tarn_fail(err, EINVAL, "device of %llu bytes: at most %llu are possible: make a "
				 "smaller one", (unsigned long long)opt->dev_size,
				 (unsigned long long)TARNFS_SIZE_MAX);
	if (sb->data_end < sb->data_start + TARNFS_HUGE)
		return tarn_fail(err, ENOSPC,
				 "device too small: %llu bytes, at least %llu are needed with logs "
				 "of %llu bytes",
				 (unsigned long long)opt->dev_size,
				 (unsigned long long)(sb->data_start + TARNFS_HUGE),
				 (unsigned long long)area);
	sb->hosts_off = TARNFS_HOSTS_OFF;
	sb->mirror_off = TARNFS_MIRROR_OFF;
	sb->host_stride = TARNFS_HOST_STRIDE;
	sb->areas = TARNFS_AREAS;
	for (int i = 0; i < TARNFS_AREAS; i++) {
		sb->area[i].off = TARNFS_LOG_OFF + (uint64_t)i * area;
		sb->area[i].len = area;
	}
	if (opt->uuid)
		memcpy(sb->uuid, opt->uuid, sizeof(sb->uuid));
	else
		tarn_uuid_random(sb->uuid);
	if (tarn_uuid_is_zero(sb->uuid))
		return tarn_fail(err, EINVAL, "uuid: all zero");
	tarn_uuid_random(sb->dev_uuid);
	sb->created_sec = opt->now_sec;
	sb->created_nsec = opt->now_nsec;
	return 0;
}

/* The first bytes of each area: no old header may stand there. */
#define AREA_HEAD TARNFS_BLOCK

static int zero(struct tarn_media *m, uint64_t off, uint64_t len)
{
	static const uint8_t zeros[65536];

	for (uint64_t done = 0; done < len;) {
		size_t n = len - done < sizeof(zeros) ? (size_t)(len - done) : sizeof(zeros);
		int ret = tarn_media_write(m, off + done, zeros, n);

		if (ret)
			return ret;
		done += n;
	}
	return 0;
}

static int zero_store(struct tarn_media *m, uint64_t off, uint64_t len)
{
	int ret = zero(m, off, len);

	if (!ret)
		ret = tarn_media_writeback(m, off, len);
	if (!ret)
		ret = tarn_media_fence(m);
	return ret;
}

/* Everything between superblocks and logs: pages and mirrors, free but for page 0's owner. */
static int write_pages(struct tarn_media *m, const struct tarn_super *sb, const uint8_t owner[16])
{
	int ret = zero(m, sb->hosts_off, TARNFS_LOG_OFF - sb->hosts_off);

	for (uint32_t page = 0; !ret && page < sb->hosts; page++) {
		struct tarn_identity id = { .claims = 1 };
		const struct tarn_control none = { 0 };
		struct { struct tarnfs_identity identity; struct tarnfs_control control; } raw;

		if (!page && owner) {
			id.state = TARNFS_PAGE_BOUND;
			memcpy(id.host_uuid, owner, sizeof(id.host_uuid));
		}
		tarn_identity_encode(&raw.identity, &id, (uint16_t)page, sb->uuid);
		tarn_control_encode(&raw.control, &none, (uint16_t)page, sb->uuid);
		_Static_assert(TARNFS_LINE_CONTROL == TARNFS_LINE_IDENTITY + 1 &&
				       sizeof(raw) == 2 * TARNFS_LINE,
			       "identity and control are neighbours");
		ret = tarn_media_write(m, tarn_line_off(sb, (uint16_t)page, TARNFS_LINE_IDENTITY),
				       &raw, sizeof(raw));
		if (!ret)
			ret = tarn_media_write(
				m, tarn_mirror_line_off(sb, (uint16_t)page, TARNFS_LINE_IDENTITY),
				&raw, sizeof(raw));
	}
	if (!ret)
		ret = tarn_media_writeback(m, sb->hosts_off, TARNFS_LOG_OFF - sb->hosts_off);
	if (!ret)
		ret = tarn_media_fence(m);
	return ret;
}

/* Generation 1: header, root, end. */
static int write_log(struct tarn_media *m, const struct tarn_super *sb, const struct tarn_mkfs *opt,
		     struct tarn_log *log)
{
	struct {
		struct tarnfs_log_header header;
		uint8_t root[TARNFS_LINE];
		uint8_t end[TARNFS_LINE];
	} raw;
	struct tarn_rec root = {
		.type = TARNFS_REC_DIRECTORY, .flags = TARNFS_RECORD_CKPT, .seq = 1,
		.ino = TARNFS_INO_ROOT, .parent = TARNFS_INO_ROOT,
		.mtime_sec = opt->now_sec, .mtime_nsec = opt->now_nsec,
		.uid = opt->root_uid, .gid = opt->root_gid,
		.mode = opt->root_mode ? opt->root_mode : 0755, .name = "",
	};
	struct tarn_rec end = {
		.type = TARNFS_REC_CHECKPOINT_END, .flags = TARNFS_RECORD_CKPT, .seq = 2,
		.directories = 1,
	};
	int ret;

	memset(log, 0, sizeof(*log));
	memcpy(log->seed.uuid, sb->uuid, sizeof(log->seed.uuid));
	log->seed.generation = 1;
	log->area_off = sb->area[0].off;
	log->area_len = sb->area[0].len;
	log->units = sizeof(raw) / TARNFS_LINE;
	log->next_ino = TARNFS_INO_FIRST;
	log->data_end = sb->data_end;
	log->ckpt_records = 2;
	log->ckpt_units = log->units - TARNFS_LOG_HEADER_UNITS;

	tarn_log_header_encode(&raw.header, log, tarn_nonce(), (uint64_t)opt->now_sec);
	ret = tarn_rec_encode(raw.root, sizeof(raw.root), &root, &log->seed);
	if (!ret)
		ret = tarn_rec_encode(raw.end, sizeof(raw.end), &end, &log->seed);
	for (int i = 0; !ret && i < sb->areas; i++)
		ret = zero_store(m, sb->area[i].off, AREA_HEAD);
	if (!ret)
		ret = TARN_PLANTED(MKFS_LOG_DIRTY) ?
			      tarn_media_write(m, log->area_off, &raw, sizeof(raw)) :
			      tarn_media_store(m, log->area_off, &raw, sizeof(raw));
	return ret;
}

static int write_control(struct tarn_media *m, const struct tarn_super *sb,
			 const struct tarn_log *log)
{
	const struct tarn_control control = {
		.generation = log->seed.generation,
		.state = TARNFS_CONTROL_ACTIVE,
		.slot = log->slot,
		.area_off = log->area_off,
		.area_len = log->area_len,
	};
	struct tarnfs_control raw;
	int ret;

	tarn_control_encode(&raw, &control, log->seed.host, sb->uuid);
	ret = tarn_media_store(m, tarn_line_off(sb, log->seed.host, TARNFS_LINE_CONTROL), &raw,
			       sizeof(raw));
	if (!ret)
		ret = tarn_media_store(
			m, tarn_mirror_line_off(sb, log->seed.host, TARNFS_LINE_CONTROL), &raw,
			sizeof(raw));
	return ret;
}

static int write_commit(struct tarn_media *m, const struct tarn_super *sb,
			const struct tarn_log *log)
{
	return tarn_media_store64(m, tarn_commit_off(sb, log),
				  tarn_commit_word(&log->seed, log->slot, log->units));
}

int tarn_mkfs_write(struct tarn_media *m, const struct tarn_super *sb, const struct tarn_mkfs *opt,
		    struct tarn_err *err)
{
	const uint8_t *owner = opt->owner;
	struct tarnfs_super raw;
	struct tarn_host_id id;
	struct tarn_log log;
	int ret;

	if (opt->owner_self) {
		ret = tarn_host_id(&id, sb->uuid, err);
		if (ret)
			return ret;
		owner = id.uuid;
	}
	tarn_super_encode(&raw, sb);

	tarn_stop_point("mkfs-begin");
	ret = TARN_PLANTED(MKFS_OLD_SUPER_STAYS) ? 0 : zero_store(m, 0, sb->hosts_off);
	tarn_stop_point("mkfs-zeroed");
	if (!ret && TARN_PLANTED(MKFS_SUPER_FIRST))
		ret = tarn_media_store(m, TARNFS_SUPER_OFF, &raw, sizeof(raw));
	if (!ret)
		ret = write_pages(m, sb, owner);
	tarn_stop_point("mkfs-pages");
	if (!ret)
		ret = write_log(m, sb, opt, &log);
	tarn_stop_point("mkfs-log");
	if (!ret)
		ret = write_control(m, sb, &log);
	tarn_stop_point("mkfs-control");
	if (!ret)
		ret = write_commit(m, sb, &log);
	tarn_stop_point("mkfs-commit");
	if (!ret)
		ret = tarn_media_store(m, TARNFS_SUPER2_OFF, &raw, sizeof(raw));
	tarn_stop_point("mkfs-second");
	if (!ret)
		ret = tarn_media_store(m, TARNFS_SUPER_OFF, &raw, sizeof(raw));
	tarn_stop_point("mkfs-first");
	/* These lines are given up now: page 0's owner may be another host. */
	if (!ret)
		ret = tarn_media_invalidate(m, 0, TARNFS_LOG_OFF);
	for (int i = 0; !ret && i < sb->areas; i++)
		ret = tarn_media_invalidate(m, sb->area[i].off, AREA_HEAD);
	if (ret)
		return tarn_fail(
			err, -ret,
			"mkfs failed at device offset 0x%llx: %s; no file system is there now",
			(unsigned long long)m->bad, strerror(-ret));
	return 0;
}
