// SPDX-License-Identifier: GPL-2.0-only
/*
 * Each allocation of each call made to fail once: the n-th of the calling task, for n = 1, 2, 3...
 * until the call ends with no failure hit. The call must say ENOMEM or succeed all the same,
 * leave everything as it was, and succeed when tried again.
 *
 * t_faultinject [DEVICE [CALL]]: destroys what is on DEVICE (default: the guest's), 512 MiB or more;
 * with CALL only the calls whose name begins so.
 * Root, in a guest whose kernel has failslab and fail_page_alloc (a debug kernel); skipped
 * elsewhere. What a failed call may have leaked is for kmemleak to find.
 */
#include "direct.h"

#include <dirent.h>
#include <setjmp.h>
#include <signal.h>

#define BIG		(160 * MIB)	/* more chunks of 2 MiB than a word has bits */
#define MANY		1200		/* operations: makes the kernel's tables grow */
#define COLD		400		/* files, each looked up once */
#define LIMIT		50000		/* of allocations in a call: never reached */

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

static int call_badranges(void)
{
	struct tarnfs_badranges br = { .version = TARNFS_INTERFACE };

	return ioctl(dir, TARNFS_IOC_BADRANGES, &br);
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

/* ---- calls: binding the driver of a devdax ------------------------------ */

#define DRIVER	"tarnfs_dax"
#define DRIVERS	"/sys/bus/dax/drivers/"

#define TRACING	"/sys/kernel/tracing/"

static int bind_fd = -1;
static long references = -1;		/* to the module, with nothing bound or mounted */
/*
 * The numbers of the allocations within arch_add_memory(), first and last. The kernel itself does
 * not bear that these fail (seen with 6.12: it warns, or uses page tables that are not there).
 */
static unsigned int add_memory[2];

static const char *dax_name(void)
{
	return strrchr(device, '/') + 1;
}

static bool is_bound(const char *driver)
{
	char path[128];

	snprintf(path, sizeof(path), DRIVERS "%s/%s", driver, dax_name());
	return !access(path, F_OK);
}

/* Where the kernel has its own driver there is none of ours to bind. */
static bool has_driver(void)
{
	return devdax && is_bound(DRIVER);
}

static int tell(int to)
{
	return write(to, dax_name(), strlen(dax_name())) > 0 ? 0 : -1;
}

static int tell_driver(const char *driver, const char *file)
{
	char path[128];
	int to, ret, err;

	snprintf(path, sizeof(path), DRIVERS "%s/%s", driver, file);
	to = open(path, O_WRONLY | O_CLOEXEC);
	if (to < 0)
		return -1;
	ret = tell(to);
	err = errno;
	close(to);
	errno = err;
	return ret;
}

static long module_references(void)
{
	FILE *f = fopen("/sys/module/tarnfs/refcnt", "re");
	long count = -1;

	if (!f || fscanf(f, "%ld", &count) != 1)
		bail("refcnt");
	fclose(f);
	return count;
}

static int call_bind(void)
{
	return tell(bind_fd);
}

static void trace_put(const char *file, const char *text)
{
	char path[128];
	int to;

	snprintf(path, sizeof(path), TRACING "%s", file);
	to = open(path, O_WRONLY | O_APPEND | O_CLOEXEC | (*text ? 0 : O_TRUNC));
	must(to, path);
	if (*text)
		must(write(to, text, strlen(text)), path);
	close(to);
}

/* One call that is let be, and watched: which of what may fail is within arch_add_memory(). */
static void watch_bind(void)
{
	char line[1024], filter[32];
	unsigned int tries = 0;
	FILE *f;

	trace_put("kprobe_events", "p:tarn_try should_fail_ex");
	trace_put("kprobe_events", "p:tarn_in arch_add_memory");
	trace_put("kprobe_events", "r:tarn_out arch_add_memory");
	snprintf(filter, sizeof(filter), "common_pid == %d", getpid());
	trace_put("events/kprobes/tarn_try/filter", filter);
	trace_put("trace", "");
	trace_put("events/kprobes/enable", "1");
	fail_arm(LIMIT);
	must(call_bind(), "bind");
	fail_disarm();
	trace_put("events/kprobes/enable", "0");
	f = fopen(TRACING "trace", "re");
	if (!f)
		bail("trace");
	while (fgets(line, sizeof(line), f)) {
		tries += !!strstr(line, " tarn_try: ");
		if (strstr(line, " tarn_in: "))
			add_memory[0] = tries + 1;
		if (strstr(line, " tarn_out: "))
			add_memory[1] = tries;
	}
	fclose(f);
	trace_put("kprobe_events", "");
	trace_put("trace", "");
	printf("# %u allocations, %u to %u of them by arch_add_memory()\n", tries, add_memory[0],
	       add_memory[1]);
	/* what is at the end of the trace may be of fail_disarm() */
	if (add_memory[0] < 2 || add_memory[1] < add_memory[0] || tries <= add_memory[1])
		bail("which allocations may not fail is not to be told");
}

/* Slabs alone: of pages, page tables and page structures are made, by arch_add_memory(). */
static void first_bind(void)
{
	if (!knob("fail_page_alloc/min-order", "64"))
		bail("min-order");
	bind_fd = open(DRIVERS DRIVER "/bind", O_WRONLY | O_CLOEXEC);
	must(bind_fd, "bind");
	references = module_references();
	watch_bind();
	must(tell_driver(DRIVER, "unbind"), "unbind");
}

static void before_bind(unsigned int n)
{
	if (dir >= 0)
		close(dir);
	dir = -1;
	if (!is_bound(DRIVER))
		bail("the device is not bound");
	must(tell_driver(DRIVER, "unbind"), "unbind");
	if (bind_fd < 0)
		first_bind();
}

/* What it had before must work with it, and the module be as free to go as it was. */
static bool back_to_device_dax(void)
{
	bool good = !is_bound(DRIVER) && module_references() == references;
	volatile char *at;
	int to;

	if (!good)
		printf("# bound, or %ld references to the module, not %ld\n", module_references(),
		       references);
	if (tell_driver("device_dax", "bind")) {
		printf("# device_dax: %s\n", strerror(errno));
		return false;
	}
	to = open(device, O_RDWR | O_CLOEXEC);
	must(to, device);
	at = mmap(NULL, 2 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, to, 0);
	if (at == MAP_FAILED || memcmp((void *)at, TARNFS_SUPER_MAGIC, TARNFS_MAGIC_LEN)) {
		printf("# device_dax does not map it\n");
		good = false;
	}
	munmap((void *)at, 2 * MIB);
	close(to);
	must(tell_driver("device_dax", "unbind"), "unbind from device_dax");
	return good;
}

static void undo_bind(void)
{
	close(mount_again("role", "master"));
	/* until its end has reached the device */
	close(mount_again("meta", NULL));
}

/* ---- the loop ----------------------------------------------------------- */

struct call {
	const char *name;
	void (*before)(unsigned int n);
	int (*run)(void);
	void (*undo)(void);			/* after it succeeded */
	bool (*wanted)(void);			/* whether there is such a call here */
	bool (*same)(void);			/* refused, it changed nothing; NULL: by STATUS */
	void (*settle)(struct tarnfs_status *st);	/* what of a failed call stays */
	int errnos[3];				/* besides ENOMEM */
	bool mounts;				/* there is nothing to ask for STATUS */
	bool sparse;				/* has so many that not each is tried */
	const unsigned int *not;		/* the first and the last that are not tried */
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
	{ .name = "BADRANGES", .run = call_badranges },
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
	{ .name = "binding the driver", .before = before_bind, .run = call_bind, .undo = undo_bind,
	  .wanted = has_driver, .same = back_to_device_dax, .mounts = true, .not = add_memory,
	  .errnos = { EBUSY /* request_mem_region() says no more than no */ } },
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

		if (call->not && n >= call->not[0] && n <= call->not[1])
			continue;
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
			if (call->same ? !call->same() : !call->mounts && !equal(call, before, n))
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
	if (call->same || !call->mounts)
		ok(!changed, "%s: refused, it changed nothing", call->name);
	ok(!stuck, "%s: works when tried again", call->name);
	printf("# %s: %u allocations made to fail, %u refusals\n", call->name, hits, refusals);
}

static bool is_wanted(const struct call *call, const char *only)
{
	return (!only || !strncmp(call->name, only, strlen(only))) &&
	       (!call->wanted || call->wanted());
}

int main(int argc, char **argv)
{
	const unsigned int count = sizeof(calls) / sizeof(calls[0]);
	const char *only = argc > 2 ? argv[2] : NULL;
	unsigned int i, plan = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("TAP version 13\n");
	if (!fail_setup()) {
		printf("1..0 # SKIP this kernel cannot make allocations fail\n");
		return 0;
	}
	use_device(argc, argv);
	for (i = 0; i < count; i++)
		if (is_wanted(&calls[i], only))
			plan += calls[i].mounts && !calls[i].same ? 2 : 3;
	printf("1..%u\n", plan);
	make_super();

	for (i = 0; i < count; i++) {
		if (!is_wanted(&calls[i], only))
			continue;
		if (!calls[i].mounts && dir < 0)
			attach();
		inject(&calls[i]);
		if (calls[i].run == call_attach || calls[i].run == call_stage)
			undo_mount();
	}
	undo_mount();
	return failures ? 1 : 0;
}
