// SPDX-License-Identifier: GPL-2.0-only
/*
 * Each allocation of each call made to fail once: the n-th of the calling task, for n = 1, 2, 3...
 * until the call ends with no failure hit. The call must say ENOMEM or succeed all the same,
 * leave everything as it was, and succeed when tried again.
 *
 * t_faultinject [DEVICE]: destroys what is on DEVICE (default /dev/pmem0), an fsdax namespace
 * of 512 MiB or more. Root, in a guest whose kernel has failslab and fail_page_alloc (a debug
 * kernel); skipped elsewhere. What a failed call may have leaked is for kmemleak to find.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../kmod/uapi/tarnfs_format.h"
#include "../kmod/uapi/tarnfs_ioctl.h"

#define MIB		(1024UL * 1024)
#define BIG		(160 * MIB)	/* more chunks of 2 MiB than a word has bits */
#define MANY		1200		/* operations: makes the kernel's tables grow */
#define COLD		400		/* files, each looked up once */
#define LIMIT		2000		/* of allocations in a call: never reached */
#define POINTS		3		/* of each call */

static const char *device = "/dev/pmem0";
static unsigned long long device_size;
static const unsigned long long data_start = 6 * MIB;
static int points, failures;

static void __attribute__((format(printf, 2, 3))) ok(bool good, const char *fmt, ...)
{
	va_list ap;

	points++;
	if (!good)
		failures++;
	printf("%sok %d - ", good ? "" : "not ", points);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\n");
	fflush(stdout);
}

static void __attribute__((noreturn)) bail(const char *what)
{
	printf("Bail out! %s: %s\n", what, strerror(errno));
	exit(1);
}

static void must(long ret, const char *what)
{
	if (ret < 0)
		bail(what);
}

/* ---- failures on request ------------------------------------------------ */

static int fail_nth = -1;

static bool knob(const char *name, const char *value)
{
	char path[128];
	bool good;
	int fd;

	snprintf(path, sizeof(path), "/sys/kernel/debug/%s", name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	good = write(fd, value, strlen(value)) > 0;
	close(fd);
	return good;
}

/* Of allocations that may sleep too, of every order, and without a word in the log. */
static bool fail_setup(void)
{
	fail_nth = open("/proc/thread-self/fail-nth", O_RDWR | O_CLOEXEC);
	return fail_nth >= 0 &&
	       knob("failslab/ignore-gfp-wait", "N") && knob("failslab/verbose", "0") &&
	       knob("fail_page_alloc/ignore-gfp-wait", "N") &&
	       knob("fail_page_alloc/ignore-gfp-highmem", "N") &&
	       knob("fail_page_alloc/min-order", "0") && knob("fail_page_alloc/verbose", "0");
}

static void fail_arm(unsigned int n)
{
	char text[16];
	int len = snprintf(text, sizeof(text), "%u", n);

	must(pwrite(fail_nth, text, len, 0), "write to fail-nth");
}

/* Whether it was hit; none is from now on. */
static bool fail_disarm(void)
{
	int err = errno;
	char text[16] = "";
	bool hit;

	must(pread(fail_nth, text, sizeof(text) - 1, 0), "read of fail-nth");
	hit = atoi(text) == 0;
	fail_arm(0);
	errno = err;
	return hit;
}

/* ---- mounts ------------------------------------------------------------- */

static uint32_t crc32c(const void *data, size_t len)
{
	const unsigned char *p = data;
	uint32_t crc = ~0U;

	while (len--) {
		crc ^= *p++;
		for (int i = 0; i < 8; i++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
	}
	return ~crc;
}

/* A directory descriptor of a new detached mount. */
static int mount_at(const char *option, const char *value)
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
static int mount_again(const char *option, const char *value)
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

static int open_meta(int dir)
{
	struct tarnfs_open_meta om = { .version = TARNFS_INTERFACE };

	return ioctl(dir, TARNFS_IOC_OPEN_META, &om) ? -1 : om.fd;
}

static void make_super(void)
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
static struct tarnfs_op ops[MANY];
static char strings[1 << 20];
static unsigned int nr_ops, nr_strings, ops_done;

static struct tarnfs_status status_of(void)
{
	struct tarnfs_status st = { .version = TARNFS_INTERFACE };

	must(ioctl(dir, TARNFS_IOC_STATUS, &st), "STATUS");
	return st;
}

static struct tarnfs_op *add_op(int type, uint64_t ino, const char *name)
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

static void add_file(uint64_t ino, const char *name, uint64_t size)
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

static void add_symlink(uint64_t ino, const char *name, const char *target)
{
	struct tarnfs_op *op = add_op(TARNFS_OP_SYMLINK, ino, name);

	op->target = nr_strings;
	op->target_len = strlen(target);
	memcpy(strings + nr_strings, target, op->target_len);
	nr_strings += op->target_len;
}

/* The operations from number ops_done on, which moves on by those that were done. */
static int apply(unsigned int flags)
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

static void clear(void)
{
	nr_ops = 0;
	nr_strings = 0;
	ops_done = 0;
}

/* The checkpoint that every mount begins with. */
static void add_checkpoint(void)
{
	uint64_t ino = TARNFS_INO_FIRST;
	char name[32];

	clear();
	top = device_size & ~4095ULL;
	add_op(TARNFS_OP_DIRECTORY, TARNFS_INO_ROOT, "");
	add_file(ino++, "big", BIG);
	add_file(ino++, "warm", 64 * 4096);
	for (int i = 0; i < COLD; i++) {
		snprintf(name, sizeof(name), "cold-%d", i);
		add_file(ino++, name, 4096);
	}
	add_symlink(ino++, "link", "/somewhere");
}

static void remount(void)
{
	if (dir >= 0)
		close(dir);
	dir = mount_again("role", "master");
	add_checkpoint();
}

static void attach(void)
{
	remount();
	must(apply(TARNFS_APPLY_STAGE), "APPLY of a checkpoint");
	clear();
	must(apply(TARNFS_APPLY_AT_END), "AT_END");
}

/* ---- calls: mount and umount -------------------------------------------- */

static int fd = -1, fd2 = -1;
static struct tarnfs_reserve_item items[4];

static void no_mount(unsigned int n)
{
	if (dir >= 0)
		close(dir);
	dir = -1;
	/* until the last one's end has reached the device */
	close(mount_again("meta", NULL));
}

static int call_mount(void)
{
	dir = mount_at("role", "master");
	return dir;
}

static int call_mount_meta(void)
{
	dir = mount_at("meta", NULL);
	return dir;
}

static void undo_mount(void)
{
	close(dir);
	dir = -1;
}

static char *map;

/* With an inode that was mapped, one that was opened, a descriptor of the meta inode. */
static void before_umount(unsigned int n)
{
	int file, meta;

	attach();
	file = openat(dir, "big", O_RDWR);
	must(file, "open");
	map = mmap(NULL, 4 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (map == MAP_FAILED)
		bail("mmap");
	map[0] = 1;
	map[2 * MIB + 4096] = 1;
	munmap(map, 4 * MIB);
	close(file);
	meta = open_meta(dir);
	must(meta, "OPEN_META");
	close(meta);
	memset(items, 0, sizeof(items));
	items[0] = (struct tarnfs_reserve_item){ .size = 5000, .type = TARNFS_TYPE_FILE };
}

static int call_umount(void)
{
	int ret = close(dir);

	dir = -1;
	return ret;
}

/* ---- calls: replay ------------------------------------------------------ */

static void before_stage(unsigned int n)
{
	remount();
}

static int call_stage(void)
{
	return apply(TARNFS_APPLY_STAGE);
}

static void before_attach(unsigned int n)
{
	remount();
	must(apply(TARNFS_APPLY_STAGE), "APPLY of a checkpoint");
	clear();
}

static int call_attach(void)
{
	return apply(TARNFS_APPLY_AT_END);
}

/* A few of each kind, with names and targets of every length that matters to an allocator. */
static void before_apply(unsigned int n)
{
	uint64_t ino = status_of().next_ino;
	char name[256], target[4096];

	clear();
	for (int i = 0; i < 3; i++) {
		snprintf(name, sizeof(name), "file-%llu", (unsigned long long)ino);
		add_file(ino++, name, i * 3000);
		snprintf(name, sizeof(name), "%0255llu", (unsigned long long)ino);
		add_file(ino++, name, 4096);
		snprintf(name, sizeof(name), "dir-%llu", (unsigned long long)ino);
		add_op(TARNFS_OP_DIRECTORY, ino++, name);
		snprintf(name, sizeof(name), "link-%llu", (unsigned long long)ino);
		snprintf(target, sizeof(target), "%0*d", i ? 4095 / i : 1, 7);
		add_symlink(ino++, name, target);
	}
}

static void before_apply_many(unsigned int n)
{
	uint64_t ino = status_of().next_ino;
	char name[256];

	clear();
	for (int i = 0; i < MANY; i++) {
		snprintf(name, sizeof(name), "many-%llu", (unsigned long long)ino);
		add_file(ino++, name, i % 8 ? 0 : 4096);
	}
}

static int call_apply(void)
{
	return apply(0);
}

static int call_apply_at_end(void)
{
	return apply(TARNFS_APPLY_AT_END);
}

static int call_check(void)
{
	return apply(TARNFS_APPLY_CHECK);
}

/* What STATUS must say after some of a batch was done and the rest was not. */
static void settle_apply(struct tarnfs_status *st)
{
	st->seq += ops_done;
	for (unsigned int i = 0; i < ops_done; i++) {
		st->free_bytes -= ops[i].len;
		st->files += ops[i].type == TARNFS_OP_FILE;
		st->directories += ops[i].type == TARNFS_OP_DIRECTORY;
		st->symlinks += ops[i].type == TARNFS_OP_SYMLINK;
		if (ops[i].ino >= st->next_ino)
			st->next_ino = ops[i].ino + 1;
	}
	if (ops_done) {		/* where the holes are is the unit tests' */
		st->largest_free = 0;
		st->largest_free_huge = 0;
	}
}

/* ---- calls: reservations ------------------------------------------------ */

static int reserve(void)
{
	struct tarnfs_reserve rs = {
		.version = TARNFS_INTERFACE, .count = 4, .items = (uintptr_t)items,
	};

	memset(items, 0, sizeof(items));
	items[0] = (struct tarnfs_reserve_item){ .size = 5000, .type = TARNFS_TYPE_FILE };
	items[1] = (struct tarnfs_reserve_item){ .size = 3 * MIB, .type = TARNFS_TYPE_FILE,
						 .flags = TARNFS_RESERVE_ZERO };
	items[2] = (struct tarnfs_reserve_item){ .type = TARNFS_TYPE_DIRECTORY };
	items[3] = (struct tarnfs_reserve_item){ .size = 1, .type = TARNFS_TYPE_FILE };
	return ioctl(dir, TARNFS_IOC_RESERVE, &rs) ? -1 : rs.fd;
}

static int reserve_open(void)
{
	struct tarnfs_reserve_open ro = { .version = TARNFS_INTERFACE, .ino = items[0].ino };

	return ioctl(fd, TARNFS_IOC_RESERVE_OPEN, &ro) ? -1 : ro.fd;
}

static int call_reserve(void)
{
	fd = reserve();
	return fd;
}

/* What it held goes to limbo, some of it by a worker, and with the next AT_END from there. */
static void undo_reserve(void)
{
	struct tarnfs_status st;

	if (fd2 >= 0)
		close(fd2);
	if (fd >= 0)
		close(fd);
	fd = fd2 = -1;
	clear();
	for (int i = 0; i < 500; i++) {
		st = status_of();
		if (!st.reserved_bytes)
			break;
		usleep(10000);
	}
	if (st.reserved_bytes)
		printf("# reserved for ever: %llu bytes\n", (unsigned long long)st.reserved_bytes);
	must(apply(TARNFS_APPLY_AT_END), "AT_END");
	st = status_of();
	if (st.limbo_bytes)
		printf("# in limbo for ever: %llu bytes\n", (unsigned long long)st.limbo_bytes);
}

static void before_reserve_open(unsigned int n)
{
	must(call_reserve(), "RESERVE");
}

static int call_reserve_open(void)
{
	fd2 = reserve_open();
	return fd2;
}

/* One that was opened before it gets a name. */
static void before_commit(unsigned int n)
{
	char name[32];

	must(call_reserve(), "RESERVE");
	must(call_reserve_open(), "RESERVE_OPEN");
	must(write(fd2, "bytes", 5), "write to a reservation");
	clear();
	for (int i = 0; i < 4; i += 3) {
		snprintf(name, sizeof(name), "made-%llu", (unsigned long long)items[i].ino);
		add_file(items[i].ino, name, 0);
		ops[nr_ops - 1].size = items[i].size;
		ops[nr_ops - 1].off = items[i].off;
		ops[nr_ops - 1].len = items[i].len;
		ops[nr_ops - 1].extents = 1;
	}
}

/* Commits what it has: of the figures only those of files go another way than by settle_apply(). */
static void settle_commit(struct tarnfs_status *st)
{
	for (unsigned int i = 0; i < ops_done; i++) {
		st->free_bytes += ops[i].len;
		st->reserved_bytes -= ops[i].len;
	}
	settle_apply(st);
}

static void undo_commit(void)
{
	struct stat sb;

	if (fstat(fd2, &sb) || sb.st_nlink != 1 || sb.st_size != 5000)
		printf("# %llu has %d links and %lld bytes\n", (unsigned long long)items[0].ino,
		       (int)sb.st_nlink, (long long)sb.st_size);
	undo_reserve();
}

static int call_open_meta(void)
{
	fd = open_meta(dir);
	return fd;
}

static void undo_fds(void)
{
	if (fd2 >= 0)
		close(fd2);
	if (fd >= 0)
		close(fd);
	fd = fd2 = -1;
}

/* ---- calls: files ------------------------------------------------------- */

static char cold_name[32];
static unsigned int cold;
static char buffer[64 * 1024];

static void next_cold(unsigned int n)
{
	snprintf(cold_name, sizeof(cold_name), "cold-%u", cold++);
	if (cold > COLD)
		bail("no cold name left");
}

static int call_stat(void)
{
	struct stat sb;

	return fstatat(dir, cold_name, &sb, 0);
}

static int call_open(void)
{
	fd = openat(dir, cold_name, O_RDWR);
	return fd;
}

/* A file with more chunks than fit in the inode, and nothing of it in memory. */
static void before_open_big(unsigned int n)
{
	for (int i = 0; i < 3; i++) {
		int drop = open("/proc/sys/vm/drop_caches", O_WRONLY);

		if (drop < 0 || write(drop, "2", 1) < 0)
			bail("drop_caches");
		close(drop);
	}
	strcpy(cold_name, "big");
}

static int call_readlink(void)
{
	return readlinkat(dir, "link", buffer, sizeof(buffer));
}

static void before_readdir(unsigned int n)
{
	fd = openat(dir, ".", O_RDONLY | O_DIRECTORY);
	must(fd, "open of the root");
}

static int call_readdir(void)
{
	return getdents64(fd, buffer, sizeof(buffer)) > 0 ? 0 : -1;
}

static void before_io(unsigned int n)
{
	next_cold(n);
	must(call_open(), "open");
}

static int call_write(void)
{
	memset(buffer, cold, 4096);
	return pwrite(fd, buffer, 4096, 0) == 4096 ? 0 : -1;
}

static int call_read(void)
{
	memset(buffer, 1, 4096);
	return pread(fd, buffer, 4096, 0) == 4096 ? 0 : -1;
}

static int call_fsync(void)
{
	return fsync(fd);
}

static int call_fadvise(void)
{
	errno = posix_fadvise(fd, 0, 4096, POSIX_FADV_DONTNEED);
	return errno ? -1 : 0;
}

/* ---- calls: faults ------------------------------------------------------ */

static sigjmp_buf sigbus_jump;
static size_t map_len;

static void on_sigbus(int sig)
{
	siglongjmp(sigbus_jump, 1);
}

static int touch(void)
{
	struct sigaction sa = { .sa_handler = on_sigbus }, old;
	int ret = 0;

	sigaction(SIGBUS, &sa, &old);
	if (sigsetjmp(sigbus_jump, 1)) {
		errno = EFAULT;
		ret = -1;
	} else {
		*(volatile char *)map = 42;
	}
	sigaction(SIGBUS, &old, NULL);
	return ret;
}

/* Each time where the mapping's tree of entries has no node yet. */
static void map_big(off_t off, size_t len)
{
	fd = openat(dir, "big", O_RDWR);
	must(fd, "open");
	map_len = len;
	map = mmap(NULL, map_len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, off);
	if (map == MAP_FAILED)
		bail("mmap");
}

static void before_fault(unsigned int n)
{
	map_big(80 * MIB + n * 256 * 1024, 4096);
}

static void before_huge_fault(unsigned int n)
{
	map_big(n * 2 * MIB, 2 * MIB);
}

static void undo_map(void)
{
	char byte = 0;
	off_t off = 0;
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512];

	while (maps && fgets(line, sizeof(line), maps)) {
		unsigned long start, offset;

		if (sscanf(line, "%lx-%*x %*s %lx", &start, &offset) == 2 &&
		    start == (unsigned long)map)
			off = offset;
	}
	if (maps)
		fclose(maps);
	if (pread(fd, &byte, 1, off) != 1 || byte != 42)
		printf("# what was stored is not there\n");
	munmap(map, map_len);
	undo_fds();
}

/* ---- the loop ----------------------------------------------------------- */

struct call {
	const char *name;
	void (*before)(unsigned int n);
	int (*run)(void);
	void (*undo)(void);			/* after it succeeded */
	void (*settle)(struct tarnfs_status *st);	/* what of a failed call stays */
	int errnos[3];				/* besides ENOMEM */
	bool mounts;				/* there is nothing to ask for STATUS */
	bool sparse;				/* has so many that not each is tried */
};

static const struct call calls[] = {
	{ .name = "mount", .before = no_mount, .run = call_mount, .undo = undo_mount,
	  .mounts = true },
	{ .name = "mount -o meta", .before = no_mount, .run = call_mount_meta, .undo = undo_mount,
	  .mounts = true },
	{ .name = "APPLY of a checkpoint", .before = before_stage, .run = call_stage,
	  .sparse = true },
	{ .name = "the first AT_END", .before = before_attach, .run = call_attach },
	{ .name = "umount", .before = before_umount, .run = call_umount, .mounts = true },
	/* from here on one mount */
	{ .name = "OPEN_META", .run = call_open_meta, .undo = undo_fds },
	{ .name = "RESERVE", .run = call_reserve, .undo = undo_reserve },
	{ .name = "RESERVE_OPEN", .before = before_reserve_open, .run = call_reserve_open,
	  .undo = undo_reserve },
	{ .name = "APPLY", .before = before_apply, .run = call_apply, .settle = settle_apply },
	{ .name = "APPLY with AT_END", .before = before_apply, .run = call_apply_at_end,
	  .settle = settle_apply },
	{ .name = "APPLY with CHECK", .before = before_apply, .run = call_check },
	{ .name = "APPLY of many", .before = before_apply_many, .run = call_apply,
	  .settle = settle_apply, .sparse = true },
	{ .name = "APPLY of many with CHECK", .before = before_apply_many, .run = call_check,
	  .sparse = true },
	{ .name = "APPLY of a reservation", .before = before_commit, .run = call_apply,
	  .undo = undo_commit, .settle = settle_commit },
	{ .name = "stat of a cold name", .before = next_cold, .run = call_stat },
	{ .name = "open of a cold name", .before = next_cold, .run = call_open, .undo = undo_fds },
	{ .name = "open of a cold big file", .before = before_open_big, .run = call_open,
	  .undo = undo_fds },
	{ .name = "readlink", .before = before_open_big, .run = call_readlink },
	{ .name = "readdir", .before = before_readdir, .run = call_readdir, .undo = undo_fds },
	{ .name = "write", .before = before_io, .run = call_write, .undo = undo_fds },
	{ .name = "read", .before = before_io, .run = call_read, .undo = undo_fds },
	{ .name = "fsync", .before = before_io, .run = call_fsync, .undo = undo_fds },
	{ .name = "fadvise", .before = before_io, .run = call_fadvise, .undo = undo_fds },
	{ .name = "first fault of 4 KiB", .before = before_fault, .run = touch, .undo = undo_map },
	{ .name = "first fault of 2 MiB", .before = before_huge_fault, .run = touch,
	  .undo = undo_map },
};

static bool equal(const struct call *call, struct tarnfs_status before, unsigned int n)
{
	struct tarnfs_status after = status_of();

	if (call->settle)
		call->settle(&before);
	if (!before.largest_free)
		after.largest_free = after.largest_free_huge = 0;
	if (!memcmp(&before, &after, sizeof(after)))
		return true;
	printf("# %u: seq %llu, was %llu; next_ino %llu, %llu; free %llu, %llu; reserved %llu, %llu; "
	       "limbo %llu, %llu; files %llu, %llu\n", n,
	       (unsigned long long)after.seq, (unsigned long long)before.seq,
	       (unsigned long long)after.next_ino, (unsigned long long)before.next_ino,
	       (unsigned long long)after.free_bytes, (unsigned long long)before.free_bytes,
	       (unsigned long long)after.reserved_bytes, (unsigned long long)before.reserved_bytes,
	       (unsigned long long)after.limbo_bytes, (unsigned long long)before.limbo_bytes,
	       (unsigned long long)after.files, (unsigned long long)before.files);
	return false;
}

static bool documented(const struct call *call, int err)
{
	if (err == ENOMEM)
		return true;
	for (int i = 0; i < 3; i++)
		if (call->errnos[i] && call->errnos[i] == err)
			return true;
	return false;
}

static void inject(const struct call *call)
{
	unsigned int n, hits = 0, refusals = 0, wrong = 0, changed = 0, stuck = 0;
	struct tarnfs_status before;
	bool ended = false;

	for (n = 1; !ended && n < LIMIT; n += call->sparse ? 1 + n / 6 : 1) {
		bool hit;
		int ret;

		if (call->before)
			call->before(n);
		if (!call->mounts)
			before = status_of();
		fail_arm(n);
		ret = call->run();
		hit = fail_disarm();
		hits += hit;
		ended = !hit;
		if (ret < 0) {
			refusals++;
			if (!hit || !documented(call, errno)) {
				printf("# %u%s: %s\n", n, hit ? "" : " (not hit)", strerror(errno));
				wrong++;
			}
			if (!call->mounts && !equal(call, before, n))
				changed++;
			ret = call->run();
			if (ret < 0) {
				printf("# %u, again: %s\n", n, strerror(errno));
				stuck++;
			}
		}
		if (ret >= 0 && call->undo)
			call->undo();
	}
	ok(ended && !wrong, "%s: ENOMEM or success, whichever allocation fails", call->name);
	ok(!changed, "%s: refused, it changed nothing", call->name);
	ok(!stuck, "%s: works when tried again", call->name);
	printf("# %s: %u allocations made to fail, %u refusals\n", call->name, hits, refusals);
}

int main(int argc, char **argv)
{
	const unsigned int count = sizeof(calls) / sizeof(calls[0]);
	unsigned int i;
	int dev;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc > 1)
		device = argv[1];
	printf("TAP version 13\n");
	if (!fail_setup()) {
		printf("1..0 # SKIP this kernel cannot make allocations fail\n");
		return 0;
	}
	printf("1..%u\n", count * POINTS);
	dev = open(device, O_RDONLY);
	must(dev, device);
	device_size = lseek(dev, 0, SEEK_END);
	close(dev);
	make_super();

	for (i = 0; i < count; i++) {
		if (!calls[i].mounts && dir < 0)
			attach();
		inject(&calls[i]);
		if (calls[i].run == call_attach || calls[i].run == call_stage)
			undo_mount();
	}
	undo_mount();
	return failures ? 1 : 0;
}
