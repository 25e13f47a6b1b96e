// SPDX-License-Identifier: GPL-2.0-only
/*
 * The kernel module alone, by its ioctls: what mounts and what is refused and
 * why, names appear with their batch, bytes are right by every way of access,
 * every refusal has its errno, a pinned page holds up nobody but umount.
 *
 * t_kernel [DEVICE]: destroys what is on DEVICE (default $TARN_DEV, else /dev/pmem0),
 * an fsdax namespace of 256 MiB or more, or a devdax bound to the driver that tarnfs
 * needs. Root, in a guest. No tool of tarnfs is used.
 */
#include "base.h"

#include <dirent.h>
#include <linux/blkpg.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <linux/types.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/statfs.h>
#include <sys/swap.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>

#define PLAN	473
#define BIG	(64 * MIB)
#define SMALL	5000
#define SUID	8192
#define UID	1000
#define POINT	"/tmp/t_kernel.mnt"

#ifndef MAP_SYNC
#define MAP_SYNC 0x080000
#endif
#ifndef STATX_ATTR_DAX
#define STATX_ATTR_DAX 0x00200000
#endif

static char mount_log[4096];

/* ---- TAP ---------------------------------------------------------------- */

static void is(long long got, long long want, const char *what)
{
	ok(got == want, "%s", what);
	if (got != want)
		printf("#   got %lld, want %lld\n", got, want);
}

/* A call that must fail with this errno; 0: must not fail. */
static void fails(long ret, int want, const char *what)
{
	int got = ret < 0 ? errno : 0;

	ok(got == want, "%s: %s", what, want ? strerrorname_np(want) : "done");
	if (got != want)
		printf("#   got %s\n", got ? strerrorname_np(got) : "success");
}

static void skip(int n, const char *what)
{
	while (n--)
		printf("ok %d - # SKIP %s\n", ++points, what);
}

/* ---- mounts ------------------------------------------------------------- */

/*
 * A directory descriptor of a new detached mount, or -1 with errno, and the
 * kernel's words in mount_log. Options: "name" or "name=value", commas between.
 */
static int mount_at(const char *options, int *mount_fd)
{
	char copy[256], *save = NULL;
	int fs = fsopen("tarnfs", FSOPEN_CLOEXEC), mnt, fd = -1, err = 0;
	size_t used = 0;
	ssize_t n;

	mount_log[0] = '\0';
	if (fs < 0)
		return -1;
	if (fsconfig(fs, FSCONFIG_SET_STRING, "source", device, 0))
		err = errno;
	snprintf(copy, sizeof(copy), "%s", options);
	for (char *o = strtok_r(copy, ",", &save); o && !err; o = strtok_r(NULL, ",", &save)) {
		char *value = strchr(o, '=');

		if (value)
			*value++ = '\0';
		if (value ? fsconfig(fs, FSCONFIG_SET_STRING, o, value, 0) :
			    fsconfig(fs, FSCONFIG_SET_FLAG, o, NULL, 0))
			err = errno;
	}
	if (!err && fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0))
		err = errno;
	if (err) {
		while (used < sizeof(mount_log) - 1 &&
		       (n = read(fs, mount_log + used, sizeof(mount_log) - 1 - used)) > 0)
			used += n;
		mount_log[used] = '\0';
	} else {
		mnt = fsmount(fs, FSMOUNT_CLOEXEC, 0);
		if (mnt < 0) {
			err = errno;
		} else {
			fd = openat(mnt, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
			if (fd < 0)
				err = errno;
			if (mount_fd && fd >= 0)
				*mount_fd = mnt;
			else
				close(mnt);
		}
	}
	close(fs);
	errno = err;
	return fd;
}

/* Teardown of the last mount is synchronous, but for the last fput of a file. */
static int mount_again(const char *options)
{
	for (int i = 0; i < 50; i++) {
		int fd = mount_at(options, NULL);

		if (fd >= 0 || errno != EBUSY)
			return fd;
		usleep(20000);
	}
	errno = EBUSY;
	return -1;
}

static void refused(const char *options, int want, const char *words, const char *what)
{
	int fd = mount_again(options);

	fails(fd, want, what);
	if (fd >= 0)
		close(fd);
	if (words) {
		ok(strstr(mount_log, words), "... and says so");
		if (!strstr(mount_log, words))
			printf("#   said: %s\n", mount_log);
	}
}

static int open_meta(int dir, unsigned int count, const struct tarnfs_range *ranges)
{
	struct tarnfs_open_meta om = { .version = TARNFS_INTERFACE, .count = count };

	if (count)
		memcpy(om.writable, ranges, count * sizeof(*ranges));
	return ioctl(dir, TARNFS_IOC_OPEN_META, &om) ? -1 : om.fd;
}

static struct tarnfs_super good_super(void)
{
	struct tarnfs_super s = {
		.magic = TARNFS_SUPER_MAGIC, .version = 1, .length = sizeof(s),
		.block_size = 4096, .label = "t_kernel", .dev_size = device_size,
		.data_start = data_start, .data_end = device_size & ~4095ULL,
		.hosts_off = TARNFS_HOSTS_OFF, .hosts_mirror_off = TARNFS_MIRROR_OFF,
		.hosts = 16, .host_stride = 4096, .areas = 3, .area_entry = 16,
		.csum = TARNFS_CSUM_CRC32C, .line_shift = 6, .align_shift = 21, .dev_count = 1,
	};

	memset(s.uuid, 0x5a, sizeof(s.uuid));
	for (int i = 0; i < 3; i++) {
		s.area[i].off = (2 + i) * MIB;
		s.area[i].len = MIB;
	}
	return s;
}

/* Writes a superblock through a meta mount; seals it unless `seal` is false. */
static void write_super(struct tarnfs_super s, bool seal)
{
	int dir = mount_again("meta"), meta;
	struct tarnfs_super *map;

	must(dir, "meta mount");
	meta = open_meta(dir, 0, NULL);
	must(meta, "OPEN_META");
	map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, meta, 0);
	if (map == MAP_FAILED)
		bail("mmap of the superblock");
	s.crc = 0;
	s.crc = crc32c(&s, sizeof(s)) ^ !seal;
	memcpy(map, &s, sizeof(s));
	munmap(map, 4096);
	close(meta);
	close(dir);
}

static struct tarnfs_status status_of(int dir)
{
	struct tarnfs_status st = { .version = TARNFS_INTERFACE };

	must(ioctl(dir, TARNFS_IOC_STATUS, &st), "STATUS");
	return st;
}

/* ---- batches ------------------------------------------------------------ */

static struct tarnfs_op ops[16384];
static char strings[1 << 20];
static unsigned int nr_ops, nr_strings, apply_done;
static unsigned int role = TARNFS_ROLE_MASTER;
static uint64_t stage_next_ino = TARNFS_INO_FIRST;	/* of the log's header */

static struct tarnfs_op *add_op(int type, uint64_t ino, uint64_t parent, const char *name)
{
	struct tarnfs_op *op = &ops[nr_ops++];

	*op = (struct tarnfs_op){
		.type = type, .ino = ino, .parent = parent, .mtime_sec = 1000000000 + ino,
		.mtime_nsec = 123456789, .mode = 0755, .name = nr_strings,
		.name_len = strlen(name),
	};
	memcpy(strings + nr_strings, name, op->name_len);
	nr_strings += op->name_len;
	return op;
}

static struct tarnfs_op *add_file(const struct tarnfs_reserve_item *item, uint64_t parent,
				  const char *name, unsigned int mode)
{
	struct tarnfs_op *op = add_op(TARNFS_OP_FILE, item->ino, parent, name);

	op->mode = mode;
	op->size = item->size;
	op->off = item->off;
	op->len = item->len;
	op->extents = !!item->len;
	return op;
}

static struct tarnfs_op *add_symlink(uint64_t ino, uint64_t parent, const char *name,
				     const char *target)
{
	struct tarnfs_op *op = add_op(TARNFS_OP_SYMLINK, ino, parent, name);

	op->target = nr_strings;
	op->target_len = strlen(target);
	memcpy(strings + nr_strings, target, op->target_len);
	nr_strings += op->target_len;
	return op;
}

static int apply(int dir, unsigned int flags)
{
	struct tarnfs_status st = status_of(dir);
	struct tarnfs_apply ap = {
		.version = TARNFS_INTERFACE, .flags = flags, .generation = 1, .role = role,
		.nonce = 77, .page = 3, .count = nr_ops,
		.next_ino = flags & TARNFS_APPLY_STAGE ? stage_next_ino : 0,
		.first_seq = flags & TARNFS_APPLY_STAGE ? 100 : st.seq + 1,
		.op_size = sizeof(ops[0]), .ops = (uintptr_t)ops, .strings = (uintptr_t)strings,
		.strings_len = nr_strings,
	};
	int ret = ioctl(dir, TARNFS_IOC_APPLY, &ap);

	apply_done = ap.done;
	nr_ops = 0;
	nr_strings = 0;
	return ret;
}

static int reserve(int dir, struct tarnfs_reserve_item *items, unsigned int count)
{
	struct tarnfs_reserve rs = {
		.version = TARNFS_INTERFACE, .count = count, .items = (uintptr_t)items,
	};

	return ioctl(dir, TARNFS_IOC_RESERVE, &rs) ? -1 : rs.fd;
}

static int reserve_open(int set, uint64_t ino)
{
	struct tarnfs_reserve_open ro = { .version = TARNFS_INTERFACE, .ino = ino };

	return ioctl(set, TARNFS_IOC_RESERVE_OPEN, &ro) ? -1 : ro.fd;
}

/* ---- tracefs ------------------------------------------------------------ */

#define TRACEFS "/sys/kernel/tracing/"

static void trace_write(const char *file, const char *text)
{
	char path[256];
	int fd;

	snprintf(path, sizeof(path), TRACEFS "%s", file);
	fd = open(path, O_WRONLY | O_TRUNC);
	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		printf("# tracefs: %s: %s\n", path, strerror(errno));
	if (fd >= 0)
		close(fd);
}

static void trace_begin(void)
{
	trace_write("buffer_size_kb", "4096");
	trace_write("events/tarnfs/enable", "1");
	trace_write("events/fs_dax/dax_pmd_fault_done/enable", "1");
	trace_write("trace", "");
}

/* Lines of the trace since trace_begin() that have both words. */
static int trace_count(const char *word1, const char *word2)
{
	FILE *f = fopen(TRACEFS "trace", "r");
	char line[1024];
	int n = 0;

	if (!f)
		return -1;
	while (fgets(line, sizeof(line), f))
		n += strstr(line, word1) && strstr(line, word2);
	fclose(f);
	return n;
}

/* ---- small helpers ------------------------------------------------------ */

static sigjmp_buf sigbus_jump;

static void on_sigbus(int sig)
{
	siglongjmp(sigbus_jump, 1);
}

/* Whether touching the byte raises SIGBUS. */
static bool sigbus(volatile char *p, bool store)
{
	struct sigaction sa = { .sa_handler = on_sigbus }, old;
	bool got = false;

	sigaction(SIGBUS, &sa, &old);
	if (sigsetjmp(sigbus_jump, 1))
		got = true;
	else if (store)
		*p = 1;
	else
		(void)*p;
	sigaction(SIGBUS, &old, NULL);
	return got;
}

static long minor_faults(void)
{
	struct rusage ru;

	getrusage(RUSAGE_SELF, &ru);
	return ru.ru_minflt + ru.ru_majflt;
}

static void drop_dentries(void)
{
	int fd = open("/proc/sys/vm/drop_caches", O_WRONLY);

	if (fd >= 0) {
		if (write(fd, "2", 1) != 1)
			printf("# reclaim: %s\n", strerror(errno));
		close(fd);
	}
}

static unsigned char pattern(size_t at)
{
	return at * 2654435761U >> 13 ^ at >> 20;
}

static bool has_pattern(const unsigned char *p, size_t from, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (p[i] != pattern(from + i))
			return false;
	return true;
}

static char *scratch;		/* BIG bytes */
static void *volatile nowhere = (void *)8;

/* Runs fn as an ordinary user in a child, whose results count here. */
static void as_user(void (*fn)(int dir), int dir)
{
	int result[2], back[2] = { points, failures };
	pid_t pid;

	must(pipe(result), "pipe");
	fflush(stdout);
	pid = fork();
	must(pid, "fork");
	if (!pid) {
		if (setresgid(UID, UID, UID) || setresuid(UID, UID, UID))
			_exit(1);
		fn(dir);
		back[0] = points;
		back[1] = failures;
		if (write(result[1], back, sizeof(back)) != sizeof(back))
			_exit(1);
		_exit(0);
	}
	close(result[1]);
	if (read(result[0], back, sizeof(back)) != sizeof(back))
		ok(false, "the user's part came to its end");
	close(result[0]);
	waitpid(pid, NULL, 0);
	points = back[0];
	failures = back[1];
}

/* ---- tests -------------------------------------------------------------- */

static void test_refused_mounts(void)
{
	const char *saved = device;
	struct tarnfs_super s;

	memset(&s, 0, sizeof(s));
	write_super(s, false);
	refused("", EINVAL, "no tarnfs superblock", "mount without a superblock");
	s = good_super();
	write_super(s, false);
	refused("", EUCLEAN, "checksum", "mount with a wrong checksum");
	s.version = 2;
	write_super(s, true);
	refused("", EINVAL, "version 2", "mount of version 2");
	s = good_super();
	s.length = 500;
	write_super(s, true);
	refused("", EUCLEAN, "length", "mount with a wrong length");
	s = good_super();
	s.incompat = 4;
	write_super(s, true);
	refused("", EOPNOTSUPP, "0x4 (incompat)", "mount with an unknown incompat feature");
	s = good_super();
	s.zero1[7] = 1;
	write_super(s, true);
	refused("", EUCLEAN, "reserved bytes", "mount with a reserved byte set");
	s = good_super();
	s.zero2[143] = 1;
	write_super(s, true);
	refused("", EUCLEAN, "reserved bytes", "mount with the last reserved byte set");
	s = good_super();
	s.data_end = s.dev_size + 4096;
	write_super(s, true);
	refused("", EUCLEAN, "end of the data", "mount with data past the device");
	s = good_super();
	s.dev_size += 4096;
	s.data_end = s.dev_size & ~4095ULL;
	write_super(s, true);
	refused("", EUCLEAN, "the device has", "mount of a larger file system");
	s = good_super();
	s.data_start += 4096;
	write_super(s, true);
	refused("", EUCLEAN, "start or end", "mount with data_start no multiple of 2 MiB");
	s = good_super();
	s.hosts = 129;
	write_super(s, true);
	refused("", EUCLEAN, "host pages", "mount with too many hosts");
	s = good_super();
	s.hosts_mirror_off = s.hosts_off + 4096;
	write_super(s, true);
	refused("", EUCLEAN, "host pages", "mount with mirrors over the host pages");
	s = good_super();
	s.area[1].off += 4096;
	write_super(s, true);
	refused("", EUCLEAN, "log areas", "mount with log areas that overlap");
	s = good_super();
	s.area[2].off = ~0ULL - 4095;
	write_super(s, true);
	refused("", EUCLEAN, "log areas", "mount with a log area whose end wraps");
	s = good_super();
	s.area[5].len = 4096;
	write_super(s, true);
	refused("", EUCLEAN, "log areas", "mount with a log area too many");
	s = good_super();
	memset(s.label, 'x', sizeof(s.label));
	write_super(s, true);
	refused("", EUCLEAN, "label", "mount with an endless label");
	s = good_super();
	s.dev_count = 2;
	write_super(s, true);
	refused("", EUCLEAN, "devices", "mount of one of two devices");

	s = good_super();
	s.ro_compat = 8;
	write_super(s, true);
	refused("", EROFS, "0x8 (ro_compat)", "mount rw with an unknown ro_compat feature");
	refused("ro", 0, NULL, "... and ro");

	write_super(good_super(), true);
	refused("nonsense", EINVAL, NULL, "mount with an unknown option");
	refused("role=king", EINVAL, NULL, "mount with an unknown role");
	refused("dax=never", EINVAL, NULL, "mount with dax=never");
	refused("dax", 0, NULL, "mount with dax");
	refused("dax=always,coherent", 0, NULL, "mount with dax=always and coherent");

	device = "/proc/version";
	refused("", ENOTBLK, NULL, "mount of what is no device");
	device = "/dev/zero";
	refused("", ENXIO, "no device of the dax bus", "mount of another character device");
	device = "/dev/nonesuch";
	refused("", ENOENT, NULL, "mount of what is not there");
	device = saved;
}

/* What is on the data before must not be seen in files. */
static void fill_with_garbage(void)
{
	int dir = mount_again("meta"), meta;
	char *map;

	must(dir, "meta mount");
	is(status_of(dir).state & (TARNFS_ST_META | TARNFS_ST_FRESH),
	   TARNFS_ST_META | TARNFS_ST_FRESH, "STATUS of a meta mount");
	meta = open_meta(dir, 0, NULL);
	must(meta, "OPEN_META");
	is(lseek(meta, 0, SEEK_END), device_size & ~4095ULL, "a meta mount's inode is the device");
	map = mmap(NULL, 200 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, meta, 0);
	if (map == MAP_FAILED)
		bail("mmap of the device");
	memset(map + data_start, 0xaa, 200 * MIB - data_start);
	munmap(map, 200 * MIB);
	fails(reserve(dir, NULL, 1), EOPNOTSUPP, "RESERVE on a meta mount");
	fails(apply(dir, TARNFS_APPLY_AT_END), EOPNOTSUPP, "APPLY on a meta mount");
	fails(openat(dir, "x", O_RDONLY), EUNATCH, "lookup on a meta mount");
	close(meta);
	close(dir);

	dir = mount_again("meta,ro");
	must(dir, "meta mount, ro");
	refused("meta,ro", EBUSY, "is at work on it", "a second meta mount");
	meta = open_meta(dir, 0, NULL);
	must(meta, "OPEN_META, ro");
	map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, meta, 0);
	fails(map == MAP_FAILED ? -1 : 0, EACCES, "writable map of a read-only meta mount");
	close(meta);
	close(dir);
}

static void test_fresh(int dir)
{
	struct tarnfs_status st = { .version = 99 };
	struct tarnfs_reserve_item item = { .type = TARNFS_TYPE_FILE, .size = 10 };
	struct statfs sf;
	struct stat sb;
	DIR *d;

	fails(ioctl(dir, TARNFS_IOC_STATUS, &st), EPROTONOSUPPORT, "STATUS of version 99");
	is(st.version, TARNFS_INTERFACE, "... writes the module's version");
	st.zero[6] = 1;
	fails(ioctl(dir, TARNFS_IOC_STATUS, &st), EINVAL, "STATUS with a reserved word set");
	st = status_of(dir);
	is(st.state & ~TARNFS_ST_SYNC, TARNFS_ST_FRESH, "STATUS: fresh and nothing else");
	is(st.role, TARNFS_ROLE_MASTER, "STATUS: role of the mount option");
	is(st.page, 0xffff, "STATUS: no page yet");
	is(st.dev_size, device_size, "STATUS: size of the device");
	is(st.data_start, data_start, "STATUS: data_start");
	is(st.free_bytes, st.data_end - st.data_start, "STATUS: all is free");
	ok(st.uuid[0] == 0x5a && st.uuid[15] == 0x5a, "STATUS: uuid");
	fails(fstat(dir, &sb), 0, "stat of the root before AT_END");
	is(sb.st_ino, TARNFS_INO_ROOT, "... its inode number");
	fails(openat(dir, "x", O_RDONLY), EUNATCH, "lookup before AT_END");
	d = fdopendir(dup(dir));
	errno = 0;
	fails(readdir(d) ? 0 : -1, EUNATCH, "readdir before AT_END");
	closedir(d);
	fails(reserve(dir, &item, 1), EUNATCH, "RESERVE before AT_END");
	fails(apply(dir, TARNFS_APPLY_AT_END), EUNATCH, "AT_END before a checkpoint");
	is(fstatfs(dir, &sf), 0, "statfs");
	is(sf.f_type, TARNFS_STATFS_MAGIC, "... type");
	is(sf.f_bsize, 4096, "... block size");
	is(sf.f_blocks, st.free_bytes / 4096, "... blocks");
	is(sf.f_bfree, st.free_bytes / 4096, "... free blocks");

	refused("role=master", EBUSY, "mounted on this host already", "a second mount");
	refused("role=master,ro", EBUSY, "mounted on this host already", "a second mount, ro");
	refused("meta", EBUSY, "mounted on this host already", "a meta mount of a mounted device");
	fails(fstat(dir, &sb), 0, "the first mount is still there");
}

static void test_attach(int dir)
{
	struct tarnfs_status st;
	struct stat sb;
	int n = 0;
	DIR *d;

	add_op(TARNFS_OP_DIRECTORY, 1, 1, "");
	fails(apply(dir, TARNFS_APPLY_STAGE_BEGIN), EOPNOTSUPP, "stage in several calls");
	add_op(TARNFS_OP_DIRECTORY, 1, 1, "");
	fails(apply(dir, TARNFS_APPLY_SWITCH), EOPNOTSUPP, "switch of generations");
	add_op(TARNFS_OP_DIRECTORY, 1, 1, "")->mtime_sec = 12345;
	fails(apply(dir, TARNFS_APPLY_STAGE), 0, "stage of a root");
	fails(openat(dir, "x", O_RDONLY), EUNATCH, "lookup between stage and AT_END");
	fails(apply(dir, TARNFS_APPLY_AT_END), 0, "AT_END");
	st = status_of(dir);
	is(st.state & ~TARNFS_ST_SYNC, TARNFS_ST_ATTACHED, "STATUS: attached");
	is(st.seq, 100, "STATUS: seq of the checkpoint");
	is(st.page, 3, "STATUS: page");
	is(st.nonce, 77, "STATUS: nonce");
	fails(openat(dir, "x", O_RDONLY), ENOENT, "lookup of what is not there");
	d = fdopendir(dup(dir));
	rewinddir(d);
	while (readdir(d))
		n++;
	closedir(d);
	is(n, 2, "an empty root has two entries");
	fstat(dir, &sb);
	is(sb.st_mtime, 12345, "mtime of the root is its record's");
	add_op(TARNFS_OP_UNLINK, 20, 1, "");
	fails(apply(dir, 0), EOPNOTSUPP, "APPLY of an unlink");
}

static uint64_t ino_dir, ino_big, ino_small, ino_empty, ino_shared, ino_suid, ino_zero, ino_link;
static struct tarnfs_reserve_item items[8];

static void test_create(int dir)
{
	enum { D, B, S, E, W, U, Z, L };
	unsigned char *map;
	struct stat sb;
	int set, big, small, zero, fd, i;
	char buf[64];

	memset(items, 0, sizeof(items));
	for (i = 0; i < 8; i++)
		items[i].type = TARNFS_TYPE_FILE;
	items[D].type = TARNFS_TYPE_DIRECTORY;
	items[B].size = BIG;
	items[S].size = SMALL;
	items[W].size = 3 * MIB;
	items[U].size = SUID;
	items[Z].size = 70000;
	items[Z].flags = TARNFS_RESERVE_ZERO;
	items[L].type = TARNFS_TYPE_SYMLINK;

	items[B].zero = 1;
	fails(reserve(dir, items, 8), EINVAL, "RESERVE with a reserved word set");
	items[B].zero = 0;
	items[B].size = device_size;
	fails(reserve(dir, items, 8), ENOSPC, "RESERVE of more than there is");
	items[B].size = BIG;
	fails(reserve(dir, (void *)8, 8), EFAULT, "RESERVE from nowhere");
	set = reserve(dir, items, 8);
	fails(set, 0, "RESERVE of eight");
	is(items[B].off % (2 * MIB), 0, "64 MiB are aligned to 2 MiB");
	is(items[S].len, 8192, "an extent is rounded up to 4 KiB");
	is(items[E].len, 0, "an empty file has no extent");
	is(status_of(dir).reserved_bytes,
	   items[B].len + items[S].len + items[W].len + items[U].len + items[Z].len,
	   "STATUS: reserved bytes");

	fails(reserve_open(set, items[D].ino), ENOENT, "RESERVE_OPEN of a directory");
	fails(reserve_open(set, items[E].ino), ENOENT, "RESERVE_OPEN of an empty file");
	fails(reserve_open(set, 12345678), ENOENT, "RESERVE_OPEN of what was not reserved");
	big = reserve_open(set, items[B].ino);
	fails(big, 0, "RESERVE_OPEN of 64 MiB");
	small = reserve_open(set, items[S].ino);
	fails(small, 0, "RESERVE_OPEN of 5000 bytes");
	zero = reserve_open(set, items[Z].ino);
	fails(zero, 0, "RESERVE_OPEN of a zeroed file");
	fstat(big, &sb);
	is(sb.st_nlink, 0, "a reserved file has no link");
	is(sb.st_ino, items[B].ino, "... and its final inode number");
	is(sb.st_size, BIG, "... and its final size");

	for (size_t at = 0; at < BIG; at++)
		scratch[at] = pattern(at);
	is(pwrite(big, scratch, BIG, 0), BIG, "write of 64 MiB");
	is(pwrite(small, scratch, SMALL + 1000, 0), SMALL, "a write past the size is cut at it");
	is(fsync(big), 0, "fsync");
	map = mmap(NULL, 8192, PROT_READ, MAP_SHARED, small, 0);
	for (i = SMALL; i < 8192 && !map[i]; i++)
		;
	is(i, 8192, "the tail of the last page is zero");
	munmap(map, 8192);
	map = mmap(NULL, 70000, PROT_READ, MAP_SHARED, zero, 0);
	for (i = 0; i < 70000 && !map[i]; i++)
		;
	is(i, 70000, "RESERVE_ZERO: all is zero");
	munmap(map, 70000);

	ino_dir = items[D].ino;
	ino_big = items[B].ino;
	ino_small = items[S].ino;
	ino_empty = items[E].ino;
	ino_shared = items[W].ino;
	ino_suid = items[U].ino;
	ino_zero = items[Z].ino;
	ino_link = items[L].ino;
	add_op(TARNFS_OP_DIRECTORY, ino_dir, 1, "dir")->uid = UID;
	add_file(&items[B], ino_dir, "big", 0644)->gid = 7;
	add_file(&items[S], ino_dir, "small", 0666)->uid = UID;
	add_file(&items[E], ino_dir, "empty", 0644);
	add_file(&items[W], ino_dir, "shared", 0666)->flags = TARNFS_FILE_SHARED_WRITE;
	add_file(&items[U], ino_dir, "suid", 06777);
	add_file(&items[Z], ino_dir, "zero", 0600);
	add_symlink(ino_link, 1, "link", "dir/small");
	fails(openat(dir, "dir", O_RDONLY), ENOENT, "a name is absent before its batch");
	{
		unsigned int n = nr_ops, m = nr_strings;

		fails(apply(dir, TARNFS_APPLY_CHECK), 0, "APPLY(CHECK)");
		is(apply_done, 8, "... says how many are good");
		nr_ops = n;
		nr_strings = m;
	}
	fails(openat(dir, "dir", O_RDONLY), ENOENT, "... and changes nothing");
	fails(apply(dir, TARNFS_APPLY_AT_END), 0, "APPLY");
	is(apply_done, 8, "... all done");
	is(status_of(dir).seq, 108, "STATUS: seq follows");
	is(status_of(dir).reserved_bytes, 0, "STATUS: nothing is reserved any more");
	fstat(big, &sb);
	is(sb.st_nlink, 1, "the reserved file has a link now");
	is(sb.st_gid, 7, "... and its group");
	is(sb.st_mode, S_IFREG | 0644, "... and its mode");
	fd = openat(dir, "dir/big", O_RDONLY);
	fails(fd, 0, "the name is there at once");
	fails(reserve_open(set, items[B].ino), ENOENT, "RESERVE_OPEN after the commit");
	close(big);
	close(small);
	close(zero);
	close(set);
	is(status_of(dir).limbo_bytes, 0, "closing a committed set leaves nothing in limbo");
	memset(scratch, 0, BIG);
	is(read(fd, scratch, BIG), BIG, "read of 64 MiB");
	ok(has_pattern((unsigned char *)scratch, 0, BIG), "... has what was written");
	close(fd);
	is(readlinkat(dir, "link", buf, sizeof(buf)), 9, "readlink");
	fd = openat(dir, "link", O_RDONLY);
	fails(fd, 0, "open through a symlink");
	fstat(fd, &sb);
	is(sb.st_ino, ino_small, "... the file it names");
	is(sb.st_blocks, 16, "st_blocks are of the extent");
	is(sb.st_blksize, 4096, "st_blksize");
	is(sb.st_mtim.tv_nsec, 123456789, "mtime in nanoseconds");
	close(fd);
	fstatat(dir, "dir", &sb, 0);
	is(sb.st_uid, UID, "owner of the directory");
	fstat(dir, &sb);
	is(sb.st_nlink, 3, "nlink of the root counts its directories");
}

static void test_reservations(int dir)
{
	struct tarnfs_reserve_item item = { .type = TARNFS_TYPE_FILE, .size = 5 * MIB };
	unsigned long long before = status_of(dir).free_bytes;
	int set, fd;
	char *map;

	set = reserve(dir, &item, 1);
	must(set, "RESERVE");
	fd = reserve_open(set, item.ino);
	must(fd, "RESERVE_OPEN");
	close(set);
	is(status_of(dir).reserved_bytes, 5 * MIB, "an open descriptor keeps a range reserved");
	is(pwrite(fd, "x", 1, 0), 1, "... and writable");
	close(fd);
	is(status_of(dir).limbo_bytes, 5 * MIB, "without a commit it goes to limbo");
	is(status_of(dir).free_bytes, before - 5 * MIB, "... which is not free");
	must(apply(dir, TARNFS_APPLY_AT_END), "AT_END");
	is(status_of(dir).free_bytes, before, "... until AT_END");

	set = reserve(dir, &item, 1);
	must(set, "RESERVE");
	fd = reserve_open(set, item.ino);
	map = mmap(NULL, item.size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	map[0] = 1;
	close(set);
	close(fd);
	is(status_of(dir).reserved_bytes, 5 * MIB, "a mapping keeps a range reserved");
	munmap(map, item.size);
	for (int i = 0; i < 100 && status_of(dir).reserved_bytes; i++)
		usleep(50000);
	is(status_of(dir).limbo_bytes, 5 * MIB, "unmapped, the reaper brings it to limbo");
	must(apply(dir, TARNFS_APPLY_AT_END), "AT_END");

	set = reserve(dir, &item, 1);
	fd = reserve_open(set, item.ino);
	map = mmap(NULL, item.size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	map[4097] = 42;
	munmap(map, item.size);
	close(fd);
	add_file(&item, 1, "late", 0644);
	fails(apply(dir, 0), 0, "commit of a file opened, mapped and closed before");
	close(set);
	fd = openat(dir, "late", O_RDONLY);
	is(pread(fd, scratch, 1, 4097), 1, "read of it");
	is(scratch[0], 42, "... has what was stored through the mapping");
	close(fd);
	item.off += 2 * MIB;
	item.ino += 1;
	add_file(&item, 1, "overlap", 0644);
	fails(apply(dir, 0), EUCLEAN, "APPLY of a file over another's bytes");
	fails(openat(dir, "overlap", O_RDONLY), ENOENT, "... makes no name");
}

static void test_huge_faults(int dir)
{
	int fd = openat(dir, "dir/big", O_RDWR), bad = 0;
	unsigned char *map;
	long faults;

	must(fd, "open");
	map = mmap(NULL, BIG, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		bail("mmap");
	is((uintptr_t)map % (2 * MIB), 0, "mmap picks an address aligned to 2 MiB");
	trace_begin();
	faults = minor_faults();
	for (size_t at = 0; at < BIG; at += 4096)
		bad += map[at] != pattern(at);
	faults = minor_faults() - faults;
	ok(faults <= 40, "64 MiB touched 4 KiB at a time: at most 40 faults (%ld)", faults);
	is(bad, 0, "... with the right bytes");
	is(trace_count("dax_pmd_fault_done", "NOPAGE"), 32, "... 32 of them of 2 MiB");
	is(trace_count("tarnfs_invalidate", "first_use"), 0, "a file made here is not invalidated");
	map[5] ^= 0xff;
	is(msync(map, 4096, MS_SYNC), 0, "msync");
	ok(trace_count("tarnfs_writeback", "reason=fsync") >= 1, "... writes back");
	map[5] ^= 0xff;
	munmap(map, BIG);

	map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	map[0] ^= 0xff;
	is(pread(fd, scratch, 1, 0), 1, "read under a private copy");
	is((unsigned char)scratch[0], pattern(0), "... has the file's byte");
	munmap(map, 4096);
	close(fd);
}

static void test_tails(int dir)
{
	int fd = openat(dir, "dir/small", O_RDWR);
	char *map = mmap(NULL, 16384, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	ok(!sigbus(map + 4999, false), "the last byte can be read");
	ok(!sigbus(map + 8191, false), "so can the rest of its page");
	ok(sigbus(map + 8192, false), "past the last page: SIGBUS");
	ok(sigbus(map + 8192, true), "... for stores too");
	munmap(map, 16384);
	close(fd);
	fd = openat(dir, "dir/empty", O_RDONLY);
	map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	ok(sigbus(map, false), "an empty file: SIGBUS");
	is(read(fd, scratch, 100), 0, "... reads as empty");
	munmap(map, 4096);
	close(fd);
	fd = openat(dir, "dir/shared", O_RDWR);
	map = mmap(NULL, 3 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	memset(map, 3, 3 * MIB);
	is(map[3 * MIB - 1], 3, "a file of 3 MiB maps to its end");
	munmap(map, 3 * MIB);
	close(fd);
}

static void test_map_sync(int dir)
{
	int fd = openat(dir, "dir/big", O_RDWR);
	int want = status_of(dir).state & TARNFS_ST_SYNC ? 0 : EOPNOTSUPP;
	char *map;

	map = mmap(NULL, 4 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED_VALIDATE | MAP_SYNC, fd, 0);
	fails(map == MAP_FAILED ? -1 : 0, want, "MAP_SYNC as the device has it");
	if (map != MAP_FAILED) {
		ok(!sigbus(map + 9, true), "... takes a store");
		map[9] = pattern(9);
		munmap(map, 4 * MIB);
	} else {
		ok(true, "... no store to try");
	}
	map = mmap(NULL, 4096, PROT_READ, MAP_SHARED_VALIDATE | 0x200000, fd, 0);
	fails(map == MAP_FAILED ? -1 : 0, EOPNOTSUPP, "an unknown flag with MAP_SHARED_VALIDATE");
	close(fd);
}

static void test_io(int dir)
{
	struct {
		struct fiemap map;
		struct fiemap_extent extent[4];
	} fm;
	struct iovec iov = { .iov_base = scratch, .iov_len = 100 };
	int fd = openat(dir, "dir/small", O_RDWR), big, pipes[2], other;
	char *aligned;
	struct statx stx;
	struct stat sb1, sb2;

	fstat(fd, &sb1);
	is(pread(fd, scratch, 0, 0), 0, "read of zero bytes");
	is(pwrite(fd, scratch, 0, SMALL), 0, "write of zero bytes at the end");
	is(pread(fd, scratch, 100, SMALL - 10), 10, "read over the end");
	is(pread(fd, scratch, 100, SMALL), 0, "read at the end");
	is(pread(fd, scratch, 100, 1 << 30), 0, "read far past the end");
	fails(pread(fd, nowhere, 100, 0), EFAULT, "read to nowhere");
	fails(pwrite(fd, nowhere, 100, 0), EFAULT, "write from nowhere");
	fails(pwrite(fd, scratch, 1, SMALL), ENOSPC, "write at the end");
	fails(pwrite(fd, scratch, 1, 1LL << 40), ENOSPC, "write far past the end");
	other = openat(dir, "dir/small", O_WRONLY | O_APPEND);
	fails(write(other, "x", 1), ENOSPC, "write with O_APPEND");
	close(other);
	memcpy(scratch, "some bytes", 10);
	is(pwrite(fd, scratch, 10, 4090), 10, "write over a page boundary");
	is(pread(fd, scratch + 20, 10, 4090), 10, "read of it");
	ok(!memcmp(scratch, scratch + 20, 10), "... has what was written");
	fstat(fd, &sb2);
	ok(sb1.st_mtim.tv_sec == sb2.st_mtim.tv_sec && sb1.st_mtim.tv_nsec == sb2.st_mtim.tv_nsec &&
	   sb1.st_atim.tv_sec == sb2.st_atim.tv_sec, "neither reads nor writes change times");
	is(preadv2(fd, &iov, 1, 0, RWF_NOWAIT), 100, "read with RWF_NOWAIT");
	is(pwritev2(fd, &iov, 1, 0, RWF_NOWAIT), 100, "write with RWF_NOWAIT");
	is(pwritev2(fd, &iov, 1, 0, RWF_DSYNC), 100, "write with RWF_DSYNC");

	is(lseek(fd, 0, SEEK_END), SMALL, "SEEK_END");
	is(lseek(fd, 100, SEEK_DATA), 100, "SEEK_DATA");
	is(lseek(fd, 100, SEEK_HOLE), SMALL, "SEEK_HOLE is the end");
	fails(lseek(fd, SMALL, SEEK_DATA), ENXIO, "SEEK_DATA at the end");
	memset(&fm, 0, sizeof(fm));
	fm.map.fm_length = ~0ULL;
	fm.map.fm_extent_count = 4;
	is(ioctl(fd, FS_IOC_FIEMAP, &fm), 0, "FIEMAP");
	is(fm.map.fm_mapped_extents, 1, "... one extent");
	is(fm.extent[0].fe_physical, items[2].off, "... where it is on the device");
	is(fm.extent[0].fe_length, 8192, "... as long as the reservation");
	ok(fm.extent[0].fe_flags & FIEMAP_EXTENT_LAST, "... and the last");
	memset(&fm, 0, sizeof(fm));
	fm.map.fm_length = ~0ULL;
	fm.map.fm_extent_count = 4;
	other = openat(dir, "dir/empty", O_RDONLY);
	is(ioctl(other, FS_IOC_FIEMAP, &fm), 0, "FIEMAP of an empty file");
	is(fm.map.fm_mapped_extents, 0, "... no extent");
	close(other);
	is(statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &stx), 0, "statx");
	ok(stx.stx_attributes & STATX_ATTR_DAX, "... says DAX");
	fails(fallocate(fd, 0, 0, 100), EOPNOTSUPP, "fallocate");
	fails(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), EOPNOTSUPP,
	      "fallocate of a hole");

	trace_begin();
	is(posix_fadvise(fd, 100, 50, POSIX_FADV_DONTNEED), 0, "fadvise(DONTNEED)");
	{
		char want[64];

		snprintf(want, sizeof(want), "off=%llu len=50 ",
			 (unsigned long long)items[2].off + 100);
		is(trace_count(want, "reason=fadvise"), 2, "... writes back and invalidates just that");
	}
	is(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0, "fadvise(DONTNEED) to the end");
	is(trace_count("len=8192 ", "reason=fadvise"), 2, "... with the last page's tail");
	is(posix_fadvise(fd, 1 << 20, 0, POSIX_FADV_DONTNEED), 0, "fadvise(DONTNEED) past the end");
	is(posix_fadvise(fd, 0, 0, POSIX_FADV_WILLNEED), 0, "fadvise(WILLNEED)");
	is(posix_fadvise(fd, 0, 0, 99), EINVAL, "fadvise of nonsense");
	is(trace_count("reason=fadvise", ""), 4, "... do nothing");
	is(fsync(fd), 0, "fsync");
	is(fdatasync(fd), 0, "fdatasync");
	is(sync_file_range(fd, 0, 4096, SYNC_FILE_RANGE_WRITE), 0, "sync_file_range");
	aligned = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (aligned == MAP_FAILED)
		bail("mmap");
	aligned[0] = pattern(0);
	trace_begin();
	is(syncfs(fd), 0, "syncfs");
	ok(trace_count("tarnfs_writeback", "reason=sync") >= 1, "... writes back what mappings dirtied");
	munmap(aligned, 4096);
	close(fd);

	big = openat(dir, "dir/big", O_RDWR | O_DIRECT);
	fails(big, 0, "open with O_DIRECT");
	aligned = aligned_alloc(4096, MIB);
	is(pread(big, aligned, MIB, 3 * MIB), MIB, "read with O_DIRECT");
	ok(has_pattern((unsigned char *)aligned, 3 * MIB, MIB), "... the right bytes");
	is(pwrite(big, aligned, MIB, 3 * MIB), MIB, "write with O_DIRECT");
	is(pread(big, aligned + 1, 77, 12345), 77, "O_DIRECT needs no alignment");
	ok(has_pattern((unsigned char *)aligned + 1, 12345, 77), "... the right bytes");

	must(pipe(pipes), "pipe");
	{
		loff_t at = 2 * MIB - 2048;

		is(splice(big, &at, pipes[1], NULL, 8192, 0), 8192, "splice to a pipe");
	}
	is(read(pipes[0], scratch, 8192), 8192, "... and out of it");
	ok(has_pattern((unsigned char *)scratch, 2 * MIB - 2048, 8192), "... the right bytes");
	is(write(pipes[1], scratch, 4096), 4096, "write to a pipe");
	{
		loff_t at = 2 * MIB - 2048;

		is(splice(pipes[0], NULL, big, &at, 4096, 0), 4096, "splice from a pipe");
	}
	other = open("/tmp/t_kernel.tmp", O_RDWR | O_CREAT | O_TRUNC, 0600);
	lseek(big, 5000, SEEK_SET);
	is(sendfile(other, big, NULL, 100000), 100000, "sendfile");
	is(pread(other, scratch, 100000, 0), 100000, "... came through");
	ok(has_pattern((unsigned char *)scratch, 5000, 100000), "... the right bytes");
	{
		loff_t at = 0, to = 8 * MIB;

		is(copy_file_range(other, &at, big, &to, 1000, 0) < 0 ? errno : 0, EXDEV,
		   "copy_file_range between file systems");
	}
	close(other);
	unlink("/tmp/t_kernel.tmp");

	/* a mapping as the buffer of its own file's read: gup of DAX pages */
	{
		char *map = mmap(NULL, 2 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, big, 32 * MIB);

		is(pread(big, map + 4096, 8192, 32 * MIB + 4096), 8192, "read into the file's own mapping");
		ok(has_pattern((unsigned char *)map + 4096, 32 * MIB + 4096, 8192), "... changes nothing");
		is(pwrite(big, map, MIB, 40 * MIB), MIB, "write from the file's own mapping");
		munmap(map, 2 * MIB);
	}
	for (size_t at = 0; at < MIB; at++)
		aligned[at] = pattern(40 * MIB + at);
	is(pwrite(big, aligned, MIB, 40 * MIB), MIB, "write of what was there");
	close(pipes[0]);
	close(pipes[1]);
	close(big);
	free(aligned);
}

static void test_meta(int dir)
{
	const struct tarnfs_range own = { TARNFS_HOSTS_OFF + 4096, 8192 };
	struct tarnfs_range bad = { 4096, 100 };
	int meta, meta2, fd;
	char *map, path[64];

	fails(open_meta(dir, 1, &bad), EINVAL, "OPEN_META with half a page");
	bad = (struct tarnfs_range){ data_start, 4096 };
	fails(open_meta(dir, 1, &bad), EINVAL, "OPEN_META of data");
	bad = (struct tarnfs_range){ ~0ULL - 4095, 8192 };
	fails(open_meta(dir, 1, &bad), EINVAL, "OPEN_META of a range that wraps");
	{
		struct tarnfs_open_meta om = { .version = TARNFS_INTERFACE, .count = 9 };

		fails(ioctl(dir, TARNFS_IOC_OPEN_META, &om), EINVAL, "OPEN_META of nine ranges");
	}
	meta = open_meta(dir, 1, &own);
	fails(meta, 0, "OPEN_META");
	is(lseek(meta, 0, SEEK_END), data_start, "the meta inode ends where the data begins");
	is(pread(meta, scratch, 8, 0), 8, "read of the superblock");
	ok(!memcmp(scratch, TARNFS_SUPER_MAGIC, 8), "... its magic");
	fails(pwrite(meta, "x", 1, own.off), EPERM, "write to the meta inode");
	fails(ftruncate(meta, 0), EPERM, "truncate of the meta inode");
	map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, meta, 0);
	fails(map == MAP_FAILED ? -1 : 0, EACCES, "writable map of the superblock");
	map = mmap(NULL, 12288, PROT_READ | PROT_WRITE, MAP_SHARED, meta, own.off);
	fails(map == MAP_FAILED ? -1 : 0, EACCES, "writable map of a page too many");
	map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, meta, 0);
	fails(mprotect(map, 4096, PROT_READ | PROT_WRITE), EACCES, "mprotect of a read-only map");
	munmap(map, 4096);
	map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, meta, own.off);
	fails(mremap(map, 4096, 2 * MIB, MREMAP_MAYMOVE) == MAP_FAILED ? -1 : 0, EFAULT,
	      "mremap beyond what may be written");
	munmap(map, 4096);
	map = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, meta, own.off);
	fails(map == MAP_FAILED ? -1 : 0, 0, "writable map of the own page");
	map[8191] = 9;
	is(pread(meta, scratch, 1, own.off + 8191), 1, "read of what was stored");
	is(scratch[0], 9, "... is it");
	is(fsync(meta), 0, "fsync of the meta inode");
	is(msync(map, 4096, MS_SYNC), 0, "msync of the meta inode");
	munmap(map, 8192);
	map = mmap(NULL, data_start, PROT_READ, MAP_SHARED, meta, 0);
	ok(!sigbus(map + data_start - 1, false), "the log can be read to its end");
	munmap(map, data_start);

	meta2 = open_meta(dir, 0, NULL);
	fails(meta2, 0, "a second OPEN_META, of no range");
	map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, meta2, own.off);
	fails(map == MAP_FAILED ? -1 : 0, EACCES, "... maps nothing writable");
	is(flock(meta, LOCK_EX | LOCK_NB), 0, "flock of the meta inode");
	fails(flock(meta2, LOCK_EX | LOCK_NB), EWOULDBLOCK, "... excludes the other descriptor");
	{
		struct flock fl = { .l_type = F_WRLCK, .l_start = 10, .l_len = 1 };

		is(fcntl(meta, F_OFD_SETLK, &fl), 0, "byte-range lock of the meta inode");
		fl = (struct flock){ .l_type = F_WRLCK, .l_start = 10, .l_len = 1 };
		fails(fcntl(meta2, F_OFD_SETLK, &fl), EAGAIN, "... excludes too");
	}
	snprintf(path, sizeof(path), "/proc/self/fd/%d", meta);
	fd = open(path, O_RDWR);
	fails(fd, EACCES, "the meta inode cannot be opened again by /proc");
	is(status_of(meta).seq, status_of(dir).seq, "ioctls work on the meta inode");
	close(meta);
	is(flock(meta2, LOCK_EX | LOCK_NB), 0, "close lets go of the lock");
	close(meta2);
}

static void refusals(int dir, const char *who, int want, int want_absent, bool may_write_others)
{
	struct timespec times[2] = { { .tv_nsec = UTIME_NOW }, { .tv_nsec = UTIME_NOW } };
	char what[128];
	int fd;

#define REFUSE(call, errno_, name) do {					\
		snprintf(what, sizeof(what), "%s: %s", who, name);	\
		fails(call, errno_, what);				\
	} while (0)

	REFUSE(openat(dir, "dir/new", O_CREAT | O_RDWR, 0644), want_absent, "open(O_CREAT)");
	REFUSE(openat(dir, "dir/small", O_CREAT | O_EXCL | O_RDWR, 0644), EEXIST,
	       "open(O_CREAT|O_EXCL) of what exists");
	fd = openat(dir, "dir/small", O_CREAT | O_RDONLY, 0644);
	REFUSE(fd, 0, "open(O_CREAT) of what exists, for reading");
	close(fd);
	REFUSE(openat(dir, "dir", O_TMPFILE | O_RDWR, 0644), EOPNOTSUPP, "O_TMPFILE");
	REFUSE(openat(dir, "dir/shared", O_RDWR | O_TRUNC), want, "O_TRUNC");
	REFUSE(mkdirat(dir, "dir/new", 0755), want_absent, "mkdir");
	REFUSE(mkdirat(dir, "dir/small", 0755), EEXIST, "mkdir of what exists");
	REFUSE(mknodat(dir, "dir/new", S_IFIFO | 0644, 0), want_absent, "mknod");
	REFUSE(symlinkat("x", dir, "dir/new"), want_absent, "symlink");
	REFUSE(linkat(dir, "dir/small", dir, "dir/new", 0), want_absent, "link");
	REFUSE(unlinkat(dir, "dir/nonesuch", 0), ENOENT, "unlink of what is not there");
	REFUSE(unlinkat(dir, "dir/small", 0), want_absent, "unlink");
	REFUSE(renameat(dir, "dir/small", dir, "dir/new"), want_absent, "rename");
	REFUSE(renameat(dir, "dir/nonesuch", dir, "dir/new"), ENOENT, "rename of what is not there");
	REFUSE(fchmodat(dir, "dir/small", 0600, 0), want, "chmod");
	REFUSE(fchmodat(dir, "dir", 0700, 0), want, "chmod of a directory");
	REFUSE(fchownat(dir, "dir/small", UID, UID, 0), want, "chown");
	REFUSE(fchownat(dir, "link", UID, UID, AT_SYMLINK_NOFOLLOW), want, "chown of a symlink");
	REFUSE(utimensat(dir, "dir/shared", times, 0), want, "utimes");
	fd = openat(dir, "dir/shared", O_RDWR);
	REFUSE(fd, 0, "open of a shared file for writing");
	REFUSE(pwrite(fd, "abc", 3, 0) == 3 ? 0 : -1, 0, "write to it");
	REFUSE(pwrite(fd, "abc", 3, 3 * MIB), ENOSPC, "write at its end");
	REFUSE(ftruncate(fd, 0), want, "ftruncate");
	REFUSE(fsetxattr(fd, "user.x", "y", 1, 0), EOPNOTSUPP, "setxattr");
	close(fd);
	fd = openat(dir, "dir/small", O_RDWR);
	REFUSE(fd, may_write_others ? 0 : EROFS, "open of a file for writing");
	if (fd >= 0)
		close(fd);
}

static void refusals_master_user(int dir)
{
	struct tarnfs_status st = { .version = TARNFS_INTERFACE };

	refusals(dir, "master, owner of the directory", EPERM, EPERM, true);
	fails(mkdirat(dir, "new", 0755), EACCES, "master, user: mkdir where the mode refuses");
	fails(unlinkat(dir, "link", 0), EACCES, "master, user: unlink where the mode refuses");
	fails(openat(dir, "dir/zero", O_RDONLY), EACCES, "user: open of a file of root's");
	fails(ioctl(dir, TARNFS_IOC_STATUS, &st), EPERM, "user: STATUS");
	fails(open_meta(dir, 0, NULL), EPERM, "user: OPEN_META");
	fails(reserve(dir, NULL, 1), EPERM, "user: RESERVE");
}

static void refusals_client_user(int dir)
{
	refusals(dir, "client, owner of the directory", EROFS, EROFS, false);
	fails(openat(dir, "dir/big", O_RDWR), EACCES, "client, user: the mode refuses first");
}

static void test_refusals_master(int dir)
{
	__u32 how = 9;
	int fd;

	refusals(dir, "master, root", EPERM, EPERM, true);
	as_user(refusals_master_user, dir);
	fails(ioctl(dir, _IO(TARNFS_IOC_MAGIC, 99)), ENOTTY, "an unknown ioctl");
	{
		struct tarnfs_badranges br = { .version = TARNFS_INTERFACE };

		br.count = 1;
		must(ioctl(dir, TARNFS_IOC_BADRANGES, &br), "BADRANGES");
		is(br.count, 0, "BADRANGES: none");
	}
	fails(ioctl(dir, TARNFS_IOC_SHUTDOWN, &how), EINVAL, "SHUTDOWN 9");
	fd = openat(dir, "dir/big", O_RDONLY);
	{
		struct tarnfs_status st = { .version = TARNFS_INTERFACE };

		fails(ioctl(fd, TARNFS_IOC_STATUS, &st), ENOTTY, "STATUS on a file");
	}
	close(fd);
	{
		char path[64];

		snprintf(path, sizeof(path), "/proc/self/fd/%d/dir/big", dir);
		fails(swapon(path, 0), EINVAL, "swapon");
	}
}

static void suid_user(int dir)
{
	int fd = openat(dir, "dir/suid", O_RDWR);
	struct stat sb;

	must(fd, "open of suid");
	is(pwrite(fd, "x", 1, 0), 1, "a user's write to a set-uid file works");
	fstat(fd, &sb);
	is(sb.st_mode & 07777, 0777, "... and the bits are gone");
	close(fd);
}

static void test_suid(int dir)
{
	int fd = openat(dir, "dir/suid", O_RDWR);
	struct stat sb;

	is(pwrite(fd, "y", 1, 0), 1, "root's write to a set-uid file");
	fstat(fd, &sb);
	is(sb.st_mode & 07777, 06777, "... keeps the bits");
	close(fd);
	as_user(suid_user, dir);
	drop_dentries();
	fstatat(dir, "dir/suid", &sb, 0);
	is(sb.st_mode & 07777, 0777, "... and stay away when the inode was dropped");
}

#define MANY	5000

static void test_many(int dir)
{
	uint64_t first = status_of(dir).next_ino, last = 0, sub = first;
	bool order = true, seen[MANY] = { false };
	struct tarnfs_reserve_item item = { .type = TARNFS_TYPE_FILE };
	char buf[1024], name[300];
	int fd, n = 0, calls = 0;
	off_t middle = 0;
	ssize_t got;

	memset(name, 'n', 255);
	name[255] = '\0';
	add_op(TARNFS_OP_DIRECTORY, sub, 1, "many");
	for (int i = 0; i < MANY; i++) {
		snprintf(name, 8, "%07d", i);
		name[7] = 'n';
		item.ino = first + 1 + i;
		if (i % 100)
			name[7] = '\0';
		add_file(&item, sub, name, 0644);
	}
	fails(apply(dir, TARNFS_APPLY_AT_END), 0, "APPLY of 5001");
	fd = openat(dir, "many", O_RDONLY | O_DIRECTORY);
	must(fd, "open of many");
	while ((got = syscall(SYS_getdents64, fd, buf, sizeof(buf))) > 0) {
		calls++;
		for (ssize_t at = 0; at < got;) {
			struct dirent64 *d = (void *)(buf + at);

			at += d->d_reclen;
			if (d->d_name[0] == '.')
				continue;
			order &= d->d_ino > last;
			last = d->d_ino;
			if (d->d_ino - first - 1 < MANY && !seen[d->d_ino - first - 1]) {
				seen[d->d_ino - first - 1] = true;
				n++;
			}
			if (n == 2500)
				middle = d->d_off;
		}
	}
	is(n, MANY, "readdir gives each of 5000 once");
	ok(order, "... in the order of inode numbers");
	ok(calls > 100, "... in %d calls", calls);
	lseek(fd, middle, SEEK_SET);
	got = syscall(SYS_getdents64, fd, buf, sizeof(buf));
	is(got > 0 ? ((struct dirent64 *)buf)->d_ino : 0, first + 1 + 2500, "seekdir finds its place");
	close(fd);
	fails(faccessat(dir, "many/0004999", F_OK, 0), 0, "lookup of the last");
	memset(name, 'n', 256);
	name[256] = '\0';
	fails(faccessat(dir, name, F_OK, 0), ENAMETOOLONG, "a name of 256 bytes");
}

static atomic_bool race_stop;
static atomic_ulong race_loops, race_errors;
static int race_dir;

static void *race_reader(void *arg)
{
	unsigned int seed = (uintptr_t)arg;

	while (!race_stop) {
		char name[32];
		int fd;

		snprintf(name, sizeof(name), "race%u", rand_r(&seed) % 300);
		fd = openat(race_dir, name, O_RDONLY);
		if (fd >= 0) {
			char *map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);

			if (map == MAP_FAILED || *map != 'r')
				race_errors++;
			if (map != MAP_FAILED)
				munmap(map, 4096);
			close(fd);
		} else if (errno != ENOENT) {
			race_errors++;
		}
		race_loops++;
	}
	return NULL;
}

static void *race_dropper(void *arg)
{
	while (!race_stop) {
		drop_dentries();
		usleep(30000);
	}
	return NULL;
}

static void test_race(int dir)
{
	pthread_t thread[4];
	int missing = 0;

	race_dir = dir;
	for (long i = 0; i < 3; i++)
		pthread_create(&thread[i], NULL, race_reader, (void *)(i + 1));
	pthread_create(&thread[3], NULL, race_dropper, NULL);
	for (int i = 0; i < 300; i++) {
		struct tarnfs_reserve_item item = { .type = TARNFS_TYPE_FILE, .size = 4096 };
		int set = reserve(dir, &item, 1), fd;
		char name[32];

		must(set, "RESERVE");
		fd = reserve_open(set, item.ino);
		if (pwrite(fd, "r", 1, 0) != 1)
			missing++;
		if (i % 2)
			close(fd);
		snprintf(name, sizeof(name), "race%d", i);
		add_file(&item, 1, name, 0644);
		must(apply(dir, i % 3 ? 0 : TARNFS_APPLY_AT_END), "APPLY");
		missing += faccessat(dir, name, F_OK, 0) != 0;
		if (!(i % 2))
			close(fd);
		close(set);
	}
	race_stop = true;
	for (int i = 0; i < 4; i++)
		pthread_join(thread[i], NULL);
	is(missing, 0, "300 names, each there at once, under readers and reclaim");
	is(race_errors, 0, "... and no reader saw one without its bytes");
	printf("# %lu opens\n", (unsigned long)race_loops);
}

/* ---- mounts by path: pins and umount ------------------------------------ */

static int file_pin(int dir, const char *name, int pipe_fd)
{
	int fd = openat(dir, name, O_RDWR);
	struct iovec iov;
	char *map;

	if (fd < 0)
		return -1;
	map = mmap(NULL, 2 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (map == MAP_FAILED)
		return -1;
	map[0]++;
	iov = (struct iovec){ map, 4096 };
	if (vmsplice(pipe_fd, &iov, 1, 0) != 4096)
		return -1;
	return munmap(map, 2 * MIB);
}

static void test_reaper(int dir)
{
	char want[64];
	int fd, found = 0;
	char *map;

	trace_begin();
	fd = openat(dir, "dir/shared", O_RDWR);
	map = mmap(NULL, 3 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	map[100] = 1;
	munmap(map, 3 * MIB);
	close(fd);
	drop_dentries();
	snprintf(want, sizeof(want), "ino=%llu ", (unsigned long long)ino_shared);
	for (int i = 0; i < 100 && !found; i++) {
		usleep(50000);
		found = trace_count(want, "reason=evict");
	}
	ok(found > 0, "an idle inode that was mapped is written back and evicted");
}

static void test_pin(int dir, int mnt)
{
	int pipes[2], status;
	struct tarnfs_status st;
	time_t began;
	pid_t pid;
	char want[64];

	must(pipe(pipes), "pipe");
	mkdir(POINT, 0755);
	must(move_mount(mnt, "", AT_FDCWD, POINT, MOVE_MOUNT_F_EMPTY_PATH), "move_mount");
	trace_begin();
	is(file_pin(dir, "dir/shared", pipes[1]), 0, "a page of a file in a pipe, its mapping gone");
	began = time(NULL);
	drop_dentries();
	sleep(2);
	ok(time(NULL) - began < 30, "reclaim does not wait for it");
	snprintf(want, sizeof(want), "ino=%llu ", (unsigned long long)ino_shared);
	is(trace_count(want, "reason=evict"), 0, "the inode stays");
	add_op(TARNFS_OP_DIRECTORY, status_of(dir).next_ino, 1, "while-pinned");
	fails(apply(dir, TARNFS_APPLY_AT_END), 0, "APPLY does not wait for it");
	fails(faccessat(dir, "dir/shared", F_OK, 0), 0, "the file can be opened again");
	st = status_of(dir);
	printf("# %llu files\n", (unsigned long long)st.files);

	fails(umount2(POINT, 0), EBUSY, "umount with an open descriptor");
	close(dir);
	close(mnt);
	fflush(stdout);
	pid = fork();
	if (!pid) {
		close(pipes[0]);
		close(pipes[1]);
		_exit(umount2(POINT, 0) ? errno : 0);
	}
	sleep(1);
	is(waitpid(pid, &status, WNOHANG), 0, "umount waits for a pinned page");
	is(read(pipes[0], scratch, 4096), 4096, "the pipe is read");
	for (int i = 0; i < 100 && waitpid(pid, &status, WNOHANG) == 0; i++)
		usleep(50000);
	ok(WIFEXITED(status) && !WEXITSTATUS(status), "... and umount is done");
	close(pipes[0]);
	close(pipes[1]);
	rmdir(POINT);
}

/* ---- a client ----------------------------------------------------------- */

static void stage_again(int dir)
{
	add_op(TARNFS_OP_DIRECTORY, 1, 1, "");
	add_op(TARNFS_OP_DIRECTORY, ino_dir, 1, "dir")->uid = UID;
	add_file(&items[1], ino_dir, "big", 0644)->gid = 7;
	add_file(&items[2], ino_dir, "small", 0666)->uid = UID;
	add_file(&items[3], ino_dir, "empty", 0644);
	{
		struct tarnfs_op *op = add_file(&items[4], ino_dir, "shared", 0666);

		op->flags = TARNFS_FILE_SHARED_WRITE;
		op->uid = UID;
	}
	add_symlink(ino_link, 1, "link", "dir/small");
	stage_next_ino = 1ULL << 32;
	must(apply(dir, TARNFS_APPLY_STAGE), "stage of a tree");
	must(apply(dir, TARNFS_APPLY_AT_END), "AT_END");
}

static void test_client(int dir)
{
	struct tarnfs_reserve_item item = { .type = TARNFS_TYPE_FILE, .size = 10 };
	struct iovec iov = { .iov_base = scratch, .iov_len = 100 };
	int fd;
	unsigned char *map;

	stage_again(dir);
	fails(reserve(dir, &item, 1), EROFS, "client: RESERVE");
	refusals(dir, "client, root", EROFS, EROFS, false);
	as_user(refusals_client_user, dir);

	trace_begin();
	fd = openat(dir, "dir/big", O_RDONLY);
	fails(preadv2(fd, &iov, 1, 0, RWF_NOWAIT), EAGAIN, "RWF_NOWAIT before the first use");
	is(pread(fd, scratch, 100, 2 * MIB - 50), 100, "client: read over a chunk boundary");
	is(trace_count("tarnfs_invalidate", "first_use"), 2, "... invalidates two chunks");
	is(preadv2(fd, &iov, 1, 0, RWF_NOWAIT), 100, "RWF_NOWAIT after it");
	map = mmap(NULL, BIG, PROT_READ, MAP_SHARED, fd, 0);
	ok(has_pattern(map, 0, BIG), "client: the right bytes");
	is(trace_count("tarnfs_invalidate", "first_use"), 32, "... each chunk invalidated once");
	is(trace_count("dax_pmd_fault_done", "NOPAGE"), 32, "... by 32 faults of 2 MiB");
	fails(mprotect(map, 4096, PROT_READ | PROT_WRITE), EACCES, "... no stores");
	munmap(map, BIG);
	close(fd);
}

/*
 * A write whose source is not there beyond 2 MiB: it waits for whoever serves
 * the page faults, which is us, with 2 MiB done.
 */
struct half_write {
	int	fd;
	int	uffd;
	char	*from;
	ssize_t	ret;
	pthread_t thread;
};

static void *half_writer(void *arg)
{
	struct half_write *hw = arg;

	hw->ret = pwrite(hw->fd, hw->from, 3 * MIB, 0);
	return NULL;
}

/* False: this kernel cannot do it. */
static bool half_write_begin(struct half_write *hw, int fd)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	struct pollfd pfd = { .events = POLLIN };

	hw->uffd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	if (hw->uffd < 0 && errno == ENOSYS)
		return false;
	must(hw->uffd, "userfaultfd");
	hw->fd = fd;
	hw->from = mmap(NULL, 3 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	madvise(hw->from, 3 * MIB, MADV_NOHUGEPAGE);
	memset(hw->from, 'w', 2 * MIB);
	must(ioctl(hw->uffd, UFFDIO_API, &api), "UFFDIO_API");
	reg.range.start = (uintptr_t)hw->from;
	reg.range.len = 3 * MIB;
	must(ioctl(hw->uffd, UFFDIO_REGISTER, &reg), "UFFDIO_REGISTER");
	must(-pthread_create(&hw->thread, NULL, half_writer, hw), "thread");
	pfd.fd = hw->uffd;
	must(poll(&pfd, 1, -1), "poll of the userfaultfd");
	return true;
}

static ssize_t half_write_end(struct half_write *hw)
{
	struct uffdio_zeropage zero = {
		.range = { .start = (uintptr_t)hw->from + 2 * MIB, .len = MIB },
	};

	must(ioctl(hw->uffd, UFFDIO_ZEROPAGE, &zero), "UFFDIO_ZEROPAGE");
	pthread_join(hw->thread, NULL);
	close(hw->uffd);
	munmap(hw->from, 3 * MIB);
	return hw->ret;
}

static void test_role_change(int dir)
{
	struct half_write hw;
	bool half;
	int fd, big;
	char *map;

	role = TARNFS_ROLE_MASTER;
	must(apply(dir, 0), "APPLY as master");
	is(status_of(dir).role, TARNFS_ROLE_MASTER, "the role follows APPLY");
	fd = openat(dir, "dir/small", O_RDWR);
	fails(fd, 0, "master again: open for writing");
	map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ok(!sigbus(map, true), "... and a store");
	big = openat(dir, "dir/big", O_RDWR);
	half = half_write_begin(&hw, big);
	role = TARNFS_ROLE_CLIENT;
	must(apply(dir, 0), "APPLY as client");
	if (half)
		is(half_write_end(&hw), 2 * MIB, "a write under way ends where it was");
	else
		skip(1, "no userfaultfd");
	close(big);
	ok(!sigbus(map, false), "client again: a load");
	ok(sigbus(map, true), "... but no store through the old mapping");
	fails(pwrite(fd, "x", 1, 0), EROFS, "... nor a write through the old descriptor");
	munmap(map, 4096);
	close(fd);
}

static void test_remount(int dir, int mnt)
{
	struct tarnfs_reserve_item item = { .type = TARNFS_TYPE_FILE, .size = 10 };
	int set;

	mkdir(POINT, 0755);
	must(move_mount(mnt, "", AT_FDCWD, POINT, MOVE_MOUNT_F_EMPTY_PATH), "move_mount");
	{
		char line[1024];
		bool found = false;
		FILE *f = fopen("/proc/mounts", "r");

		while (fgets(line, sizeof(line), f))
			found |= strstr(line, POINT) && strstr(line, "tarnfs") &&
				 strstr(line, "role=client") && strstr(line, "dax=always");
		fclose(f);
		ok(found, "/proc/mounts has role and dax=always");
	}
	fails(mount(NULL, POINT, NULL, MS_REMOUNT, "role=master"), EINVAL, "remount of another role");
	fails(mount(NULL, POINT, NULL, MS_REMOUNT, "coherent"), EINVAL, "remount with coherent");
	fails(mount(NULL, POINT, NULL, MS_REMOUNT | MS_RDONLY, "role=client,dax=always"), 0,
	      "remount ro");
	ok(status_of(dir).state & TARNFS_ST_RDONLY, "STATUS: ro");
	role = TARNFS_ROLE_MASTER;
	fails(apply(dir, 0), 0, "APPLY on a ro mount");
	fails(reserve(dir, &item, 1), EROFS, "ro: RESERVE");
	fails(openat(dir, "dir/shared", O_RDWR), EROFS, "ro: open of a shared file for writing");
	fails(mkdirat(dir, "dir/new", 0755), EROFS, "ro: mkdir");
	fails(unlinkat(dir, "dir/small", 0), EROFS, "ro: unlink");
	fails(fchmodat(dir, "dir/small", 0600, 0), EROFS, "ro: chmod");
	{
		const struct tarnfs_range own = { TARNFS_HOSTS_OFF, 4096 };
		int meta = open_meta(dir, 1, &own);
		char *map;

		fails(meta, 0, "ro: OPEN_META");
		map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, meta, own.off);
		fails(map == MAP_FAILED ? -1 : 0, 0, "ro: the own page can still be written");
		ok(!sigbus(map, true), "... a store");
		munmap(map, 4096);
		close(meta);
	}
	fails(mount(NULL, POINT, NULL, MS_REMOUNT, ""), 0, "remount rw");
	set = reserve(dir, &item, 1);
	fails(set, 0, "rw: RESERVE");
	close(set);
}

static void test_shutdown(int dir)
{
	int fd = openat(dir, "dir/shared", O_RDWR);
	struct half_write hw;
	__u32 how = 0;
	struct stat sb;
	char *map;
	bool half;

	map = mmap(NULL, 3 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	map[0] = 1;
	map[2 * MIB] = 1;
	half = half_write_begin(&hw, fd);
	fails(ioctl(dir, TARNFS_IOC_SHUTDOWN, &how), 0, "SHUTDOWN");
	if (half)
		is(half_write_end(&hw), 2 * MIB, "shut down: a write under way ends where it was");
	else
		skip(1, "no userfaultfd");
	ok(sigbus(map, false), "shut down: a load is SIGBUS");
	ok(sigbus(map + 2 * MIB, true), "shut down: a store is SIGBUS");
	fails(pread(fd, scratch, 1, 0), EIO, "shut down: read");
	fails(pwrite(fd, scratch, 1, 0), EIO, "shut down: write");
	fails(fsync(fd), EIO, "shut down: fsync");
	is(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), EIO, "shut down: fadvise");
	fails(openat(dir, "dir/big", O_RDONLY), EIO, "shut down: open");
	fails(mkdirat(dir, "dir/new", 0755), EIO, "shut down: mkdir");
	fails(apply(dir, TARNFS_APPLY_AT_END), EIO, "shut down: APPLY");
	fails(open_meta(dir, 0, NULL), EIO, "shut down: OPEN_META");
	fails(fstatat(dir, "dir/big", &sb, 0), 0, "shut down: stat works");
	ok(status_of(dir).state & TARNFS_ST_SHUTDOWN, "shut down: STATUS says so");
	munmap(map, 3 * MIB);
	close(fd);
}

static int partition(int op, unsigned long long start, unsigned long long len)
{
	struct blkpg_partition part = { .start = start, .length = len, .pno = 1 };
	struct blkpg_ioctl_arg arg = { .op = op, .datalen = sizeof(part), .data = &part };
	int disk = open(device, O_RDWR | O_CLOEXEC), ret = -1;

	/* udev, or a last fput, may hold the old one for a moment */
	for (int i = 0; i < 50 && ret; i++) {
		ret = ioctl(disk, BLKPG, &arg);
		if (ret)
			usleep(20000);
	}
	close(disk);
	for (int i = 0; i < 50 && op == BLKPG_ADD_PARTITION && access("/dev/pmem0p1", F_OK); i++)
		usleep(20000);
	return ret;
}

/* A partition begins somewhere in the dax device: offsets are its own nevertheless. */
static void test_partition(void)
{
	struct tarnfs_reserve_item item = { .type = TARNFS_TYPE_FILE, .size = 4 * MIB };
	const char *disk = device;
	unsigned long long disk_size = device_size;
	struct {
		struct fiemap map;
		struct fiemap_extent extent[1];
	} fm = { .map = { .fm_length = ~0ULL, .fm_extent_count = 1 } };
	int dir, set, fd, meta, at;
	unsigned char *map;

	if (devdax) {
		skip(15, "a devdax has no partitions");
		return;
	}
	is(partition(BLKPG_ADD_PARTITION, 65 * MIB, 64 * MIB), 0, "a partition at 65 MiB");
	device = "/dev/pmem0p1";
	refused("meta", EINVAL, "not a multiple of 2 MiB", "mount of it");
	device = disk;
	is(partition(BLKPG_DEL_PARTITION, 0, 0), 0, "partition deleted");
	is(partition(BLKPG_ADD_PARTITION, 64 * MIB, 64 * MIB), 0, "a partition at 64 MiB");
	device = "/dev/pmem0p1";
	device_size = 64 * MIB;
	write_super(good_super(), true);
	dir = mount_again("role=master");
	fails(dir, 0, "mount of it");
	if (dir < 0)
		return;
	is(status_of(dir).dev_size, 64 * MIB, "STATUS: its size");
	add_op(TARNFS_OP_DIRECTORY, 1, 1, "");
	must(apply(dir, TARNFS_APPLY_STAGE), "stage");
	must(apply(dir, TARNFS_APPLY_AT_END), "AT_END");
	set = reserve(dir, &item, 1);
	must(set, "RESERVE");
	fd = reserve_open(set, item.ino);
	for (at = 0; at < (int)(4 * MIB); at++)
		scratch[at] = pattern(at);
	is(pwrite(fd, scratch, 4 * MIB, 0), 4 * MIB, "write of 4 MiB");
	is(ioctl(fd, FS_IOC_FIEMAP, &fm), 0, "FIEMAP");
	is(fm.extent[0].fe_physical, item.off, "... is in bytes of the partition");
	trace_begin();
	map = mmap(NULL, 4 * MIB, PROT_READ, MAP_SHARED, fd, 0);
	ok(has_pattern(map, 0, 4 * MIB), "mapped: the right bytes");
	is(trace_count("dax_pmd_fault_done", "NOPAGE"), 2, "... by 2 faults of 2 MiB");
	munmap(map, 4 * MIB);
	close(fd);
	close(set);
	close(dir);

	/* the same bytes, seen through the whole disk */
	device = disk;
	device_size = disk_size;
	dir = mount_again("meta,ro");
	must(dir, "meta mount of the disk");
	meta = open_meta(dir, 0, NULL);
	is(pread(meta, scratch, 4096, 64 * MIB + item.off + MIB), 4096, "read of the whole disk there");
	ok(has_pattern((unsigned char *)scratch, MIB, 4096), "... has the partition's bytes");
	close(meta);
	close(dir);
	is(partition(BLKPG_DEL_PARTITION, 0, 0), 0, "partition deleted");
}

static int write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	int ret = fd < 0 || write(fd, text, strlen(text)) < 0 ? -errno : 0;

	if (fd >= 0)
		close(fd);
	return ret;
}

static long unload(void)
{
	long ret = -1;

	for (int i = 0; i < 100 && ret; i++) {
		ret = syscall(SYS_delete_module, "tarnfs", O_NONBLOCK);
		if (ret)
			usleep(50000);
	}
	return ret;
}

#define DRIVER	"/sys/bus/dax/drivers/tarnfs_dax/"

static void test_unload(void)
{
	const char *name = strrchr(device, '/') + 1;
	char bound[128];
	bool ours;

	snprintf(bound, sizeof(bound), DRIVER "%s", name);
	ours = devdax && !access(bound, F_OK);
	if (ours) {
		fails(syscall(SYS_delete_module, "tarnfs", O_NONBLOCK), EAGAIN,
		      "rmmod while a device is bound to tarnfs_dax");
		is(write_file(DRIVER "unbind", name), 0, "unbind");
	} else {
		skip(2, "no device is bound to tarnfs_dax");
	}
	fails(unload(), 0, "rmmod");
	is(system("modprobe tarnfs"), 0, "modprobe");
	if (ours)
		is(write_file(DRIVER "new_id", name) ?: access(bound, F_OK), 0, "bound again");
	else
		skip(1, "no device was bound to tarnfs_dax");
	refused("meta", 0, NULL, "mount after it");
}

int main(int argc, char **argv)
{
	int dir, mnt, fd;

	printf("TAP version 13\n1..%d\n", PLAN);
	use_device(argc, argv);
	scratch = mmap(NULL, BIG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	test_refused_mounts();
	fill_with_garbage();

	dir = mount_at("role=master", &mnt);
	must(dir, "mount");
	test_fresh(dir);
	test_attach(dir);
	test_create(dir);
	test_reservations(dir);
	test_huge_faults(dir);
	test_tails(dir);
	test_map_sync(dir);
	test_io(dir);
	test_meta(dir);
	test_refusals_master(dir);
	test_suid(dir);
	test_many(dir);
	test_race(dir);
	test_reaper(dir);
	test_pin(dir, mnt);

	role = TARNFS_ROLE_CLIENT;
	dir = mount_at("role=client", &mnt);
	fails(dir, 0, "mount after umount");
	test_client(dir);
	test_role_change(dir);
	test_remount(dir, mnt);
	test_shutdown(dir);
	close(dir);
	close(mnt);
	fails(umount2(POINT, 0), 0, "umount after a shutdown");
	rmdir(POINT);

	role = TARNFS_ROLE_MASTER;
	dir = mount_at("role=master,coherent", NULL);
	fails(dir, 0, "mount with coherent");
	stage_again(dir);
	trace_begin();
	fd = openat(dir, "dir/big", O_RDONLY);
	is(pread(fd, scratch, 100, 0), 100, "coherent: read");
	is(trace_count("tarnfs_invalidate", "first_use"), 0, "... invalidates nothing");
	close(fd);
	close(dir);
	test_partition();
	trace_write("events/enable", "0");
	test_unload();

	if (points != PLAN) {
		printf("# %d points, planned %d\n", points, PLAN);
		return 1;
	}
	return failures ? 1 : 0;
}
