/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What programs share that drive the kernel module by its ioctls alone, without any tool of
 * tarnfs: detached mounts, a superblock, batches. Included first, by a program of one file.
 */
#ifndef _DIRECT_H
#define _DIRECT_H

#include "base.h"

#define OPS_MAX		2048

/* ---- mounts ------------------------------------------------------------- */

/* A directory descriptor of a new detached mount. */
static __unused int mount_at(const char *option, const char *value)
{
	int fs = fsopen("tarnfs", FSOPEN_CLOEXEC), mnt = -1, dir = -1, err;

	if (fs < 0)
		return -1;
	if (!fsconfig(fs, FSCONFIG_SET_STRING, "source", device, 0) &&
	    !fsconfig(fs, value ? FSCONFIG_SET_STRING : FSCONFIG_SET_FLAG, option, value, 0) &&
	    !fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0)) {
		mnt = fsmount(fs, FSMOUNT_CLOEXEC, 0);
		if (mnt >= 0)
			dir = openat(mnt, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	}
	err = errno;
	if (mnt >= 0)
		close(mnt);
	close(fs);
	errno = err;
	return dir;
}

/* Teardown of the last mount is synchronous, but for the last fput of a file. */
static __unused int mount_again(const char *option, const char *value)
{
	int dir = -1;

	for (int i = 0; i < 100; i++) {
		dir = mount_at(option, value);
		if (dir >= 0 || errno != EBUSY)
			break;
		usleep(20000);
	}
	must(dir, "mount");
	return dir;
}

static __unused int open_meta(int dir)
{
	struct tarnfs_open_meta om = { .version = TARNFS_INTERFACE };

	return ioctl(dir, TARNFS_IOC_OPEN_META, &om) ? -1 : om.fd;
}

static __unused void make_super(void)
{
	struct tarnfs_super s = {
		.magic = TARNFS_SUPER_MAGIC, .version = 1, .length = sizeof(s),
		.block_size = 4096, .label = "t_faultinject", .dev_size = device_size,
		.data_start = data_start, .data_end = device_size & ~4095ULL,
		.hosts_off = TARNFS_HOSTS_OFF, .hosts_mirror_off = TARNFS_MIRROR_OFF,
		.hosts = 16, .host_stride = 4096, .areas = 1, .area_entry = 16,
		.csum = TARNFS_CSUM_CRC32C, .line_shift = 6, .align_shift = 21, .dev_count = 1,
		.area[0] = { .off = 2 * MIB, .len = MIB },
	};
	int dir = mount_again("meta", NULL), meta = open_meta(dir);
	void *map;

	must(meta, "OPEN_META");
	map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, meta, 0);
	if (map == MAP_FAILED)
		bail("mmap of the superblock");
	memset(s.uuid, 0x5a, sizeof(s.uuid));
	s.crc = crc32c(&s, sizeof(s));
	memcpy(map, &s, sizeof(s));
	munmap(map, 4096);
	close(meta);
	close(dir);
}

/* ---- batches ------------------------------------------------------------ */

static int dir = -1;			/* of the mount all calls are made on */
static unsigned long long top;		/* where files end that nobody reserved */
static struct tarnfs_op ops[OPS_MAX];
static char strings[1 << 20];
static unsigned int nr_ops, nr_strings, ops_done;

static __unused struct tarnfs_status status_of(void)
{
	struct tarnfs_status st = { .version = TARNFS_INTERFACE };

	must(ioctl(dir, TARNFS_IOC_STATUS, &st), "STATUS");
	return st;
}

static __unused struct tarnfs_op *add_op(int type, uint64_t ino, const char *name)
{
	struct tarnfs_op *op = &ops[nr_ops++];

	*op = (struct tarnfs_op){
		.type = type, .ino = ino, .parent = TARNFS_INO_ROOT, .mtime_sec = 1000000000,
		.mode = 0755, .name = nr_strings, .name_len = strlen(name),
	};
	memcpy(strings + nr_strings, name, op->name_len);
	nr_strings += op->name_len;
	return op;
}

static __unused void add_file(uint64_t ino, const char *name, uint64_t size)
{
	struct tarnfs_op *op = add_op(TARNFS_OP_FILE, ino, name);

	op->size = size;
	op->extents = !!size;
	op->len = (size + 4095) & ~4095ULL;
	top -= op->len;
	if (size >= 2 * MIB)
		top &= ~(2 * MIB - 1);
	op->off = size ? top : 0;
}

static __unused void add_symlink(uint64_t ino, const char *name, const char *target)
{
	struct tarnfs_op *op = add_op(TARNFS_OP_SYMLINK, ino, name);

	op->target = nr_strings;
	op->target_len = strlen(target);
	memcpy(strings + nr_strings, target, op->target_len);
	nr_strings += op->target_len;
}

/* The operations from number ops_done on, which moves on by those that were done. */
static __unused int apply(unsigned int flags)
{
	struct tarnfs_status st = status_of();
	struct tarnfs_apply ap = {
		.version = TARNFS_INTERFACE, .flags = flags, .generation = 1,
		.role = TARNFS_ROLE_MASTER, .nonce = 77, .page = 3, .count = nr_ops - ops_done,
		.next_ino = flags & TARNFS_APPLY_STAGE ? 1000000 : 0,
		.first_seq = flags & TARNFS_APPLY_STAGE ? 100 : st.seq + 1,
		.op_size = sizeof(ops[0]), .ops = (uintptr_t)(ops + ops_done),
		.strings = (uintptr_t)strings, .strings_len = nr_strings,
	};
	int ret = ioctl(dir, TARNFS_IOC_APPLY, &ap);

	if (!(flags & (TARNFS_APPLY_STAGE | TARNFS_APPLY_CHECK)))
		ops_done += ap.done;
	return ret;
}

static __unused void clear(void)
{
	nr_ops = 0;
	nr_strings = 0;
	ops_done = 0;
}

#endif /* _DIRECT_H */
