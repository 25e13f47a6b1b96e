// SPDX-License-Identifier: GPL-2.0-only
/*
 * What the tests of failing memory, removal and pins need a program for. Each
 * command prints what it saw in one line; exit status 0 unless it could not
 * get that far. FILE@OFFSET names a byte of a file, DIR@OFFSET one of metadata.
 *
 *	memfail hit FILE@OFFSET		the page fails, as it would by a machine check
 *	memfail hit-meta DIR@OFFSET	the same for metadata, through OPEN_META
 *	memfail hit-reserved DIR	the same for a reservation that is let go; "OFF SIGNAL"
 *	memfail hit-dirty FILE@OFFSET	the same in a mapping of all of FILE that has stored to each
 *					4 KiB; fsync twice
 *	memfail join FILE OTHER		every second page of FILE's first 8 MiB fails, which fills
 *					the list of bad ranges, then the first page of OTHER: what
 *					of the first good page of FILE is left to who stored there
 *	memfail touch FILE@OFFSET [write]	one load or store: "fine" or the signal
 *	memfail touch-huge FILE@OFFSET	a load at OFFSET after one in every other page of its 2 MiB
 *	memfail watch FILE@OFFSET DIR	touch it until a signal comes; files in DIR
 *					say how far it is; then fsync twice
 *	memfail read FILE@OFFSET LEN	pread: bytes, or errno when it is the first
 *	memfail write FILE@OFFSET LEN	pwrite of what is there already, or zeroes
 *	memfail ranges DIR		"OFF+LEN ..." from BADRANGES
 *	memfail ranges-rules DIR	its rules; prints "good" or what is not
 *	memfail reserve DIR SIZE COUNT [zero]	"OFF+LEN ..." of a reservation, let go again
 *	memfail extent FILE		"OFF LEN" of the device, by FIEMAP
 *	memfail press DIR		take memory until the kernel looks for some to reclaim:
 *					"reclaimed", or "none" when all was taken in vain
 *	memfail pin FILE@OFFSET DIR	a pipe holds the page, nothing else does, until
 *					DIR/drain exists
 *	memfail pin-reserved MOUNT DIR	the same with a page of a reservation that is let go
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "../kmod/uapi/tarnfs_ioctl.h"

#define HUGE	(2UL << 20)
#define RESERVE_MAX	4096

static sigjmp_buf jump;
static volatile int got_code, got_lsb;
static void *volatile got_addr;

static void __attribute__((noreturn)) die(const char *what)
{
	fprintf(stderr, "memfail: %s: %s\n", what, strerror(errno));
	exit(3);
}

static void on_sigbus(int sig, siginfo_t *si, void *context)
{
	got_code = si->si_code;
	got_addr = si->si_addr;
	got_lsb = si->si_addr_lsb;
	siglongjmp(jump, 1);
}

static void catch_sigbus(void)
{
	struct sigaction act = { .sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO };

	if (sigaction(SIGBUS, &act, NULL))
		die("sigaction");
}

/* FILE@OFFSET taken apart */
static uint64_t split(char *arg)
{
	char *at = strrchr(arg, '@');

	if (!at) {
		errno = EINVAL;
		die(arg);
	}
	*at = '\0';
	return strtoull(at + 1, NULL, 0);
}

static int open_file(const char *path)
{
	int fd = open(path, O_RDWR);

	if (fd < 0)
		fd = open(path, O_RDONLY);
	if (fd < 0)
		die(path);
	return fd;
}

/* The 2 MiB around off, as far as the file goes, congruent with it modulo 2 MiB. */
static volatile char *map_around(int fd, uint64_t off, bool writable)
{
	uint64_t start = off & ~(HUGE - 1);
	char *room = mmap(NULL, 2 * HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *at = (char *)(((uintptr_t)room + HUGE - 1) & ~(HUGE - 1));

	if (room == MAP_FAILED)
		die("mmap");
	at = mmap(at, HUGE, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED | MAP_FIXED, fd,
		  start);
	if (at == MAP_FAILED)
		die("mmap of the file");
	return at + (off - start);
}

static const char *code_name(int code)
{
	switch (code) {
	case BUS_MCEERR_AR:
		return "BUS_MCEERR_AR";
	case BUS_MCEERR_AO:
		return "BUS_MCEERR_AO";
	case BUS_ADRERR:
		return "BUS_ADRERR";
	default:
		return "other";
	}
}

/* where: which byte it was for, from the one we meant */
static void say_signal(volatile char *meant)
{
	printf("%s addr%+ld lsb %d\n", code_name(got_code), (long)((char *)got_addr - (char *)meant),
	       got_code == BUS_ADRERR ? 0 : got_lsb);
	fflush(stdout);
}

static int hit_at(volatile char *at, const char *what)
{
	char *page = (char *)((uintptr_t)at & ~4095UL);
	volatile char sink;

	catch_sigbus();
	if (!sigsetjmp(jump, 1)) {
		sink = *at;
		(void)sink;
		/* the signal is for the system call that brings it about */
		if (madvise(page, 4096, MADV_HWPOISON))
			die(what);
		printf("no signal\n");
		return 0;
	}
	say_signal(page);
	return 0;
}

static int hit(char *arg)
{
	uint64_t off = split(arg);

	return hit_at(map_around(open_file(arg), off, true), "madvise(MADV_HWPOISON)");
}

static int hit_meta(char *arg)
{
	uint64_t off = split(arg);
	struct tarnfs_open_meta args = { .version = TARNFS_INTERFACE };
	int dir = open(arg, O_RDONLY | O_DIRECTORY);

	if (dir < 0 || ioctl(dir, TARNFS_IOC_OPEN_META, &args))
		die(arg);
	return hit_at(map_around(args.fd, off, false), "madvise(MADV_HWPOISON)");
}

static int touch(char *arg, bool store, bool huge)
{
	uint64_t off = split(arg), i;
	volatile char *at = map_around(open_file(arg), off, store);
	volatile char *start = (volatile char *)((uintptr_t)at & ~(HUGE - 1));
	volatile char sink;

	catch_sigbus();
	if (!sigsetjmp(jump, 1)) {
		for (i = 0; huge && i < HUGE; i += 4096)
			if (start + i != (volatile char *)((uintptr_t)at & ~4095UL))
				sink = start[i];
		if (store)
			*at = *at;
		else
			sink = *at;
		(void)sink;
		printf("fine\n");
		return 0;
	}
	say_signal(at);
	return 0;
}

static void make(const char *dir, const char *name)
{
	char path[4096];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_WRONLY | O_CREAT, 0600);
	if (fd < 0)
		die(path);
	close(fd);
}

static bool is_there(const char *dir, const char *name)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return !access(path, F_OK);
}

static const char *fsync_result(int fd)
{
	return fsync(fd) ? strerrorname_np(errno) : "done";
}

static int watch(char *arg, const char *dir)
{
	uint64_t off = split(arg);
	int fd = open_file(arg);
	volatile char *at = map_around(fd, off, false);
	volatile char sink;

	catch_sigbus();
	if (!sigsetjmp(jump, 1)) {
		sink = *at;
		(void)sink;
		make(dir, "touched");
		for (;;) {
			sink = *at;
			usleep(1000);
		}
	}
	printf("%s ", fsync_result(fd));
	printf("%s ", fsync_result(fd));
	say_signal(at);
	return 0;
}

static int do_read(char *arg, size_t len)
{
	uint64_t off = split(arg);
	char *buf = malloc(len);
	ssize_t ret;

	if (!buf)
		die("malloc");
	ret = pread(open_file(arg), buf, len, off);
	if (ret < 0)
		printf("%s\n", strerrorname_np(errno));
	else
		printf("%zd\n", ret);
	return 0;
}

static int do_write(char *arg, size_t len)
{
	uint64_t off = split(arg);
	int fd = open_file(arg);
	char *buf = calloc(1, len);
	ssize_t ret, got = 0;

	if (!buf)
		die("malloc");
	while (got < (ssize_t)len) {
		ret = pread(fd, buf + got, len - got, off + got);
		if (ret <= 0)
			break;
		got += ret;
	}
	ret = pwrite(fd, buf, len, off);
	if (ret < 0)
		printf("%s\n", strerrorname_np(errno));
	else
		printf("%zd\n", ret);
	return 0;
}

static int open_dir(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY);

	if (fd < 0)
		die(path);
	return fd;
}

static void print_range(uint64_t off, uint64_t len, bool first)
{
	printf("%s%llu+%llu", first ? "" : " ", (unsigned long long)off, (unsigned long long)len);
}

static int ranges(const char *dir)
{
	struct tarnfs_badranges args = { .version = TARNFS_INTERFACE, .room = 1024 };
	struct tarnfs_range list[1024];

	args.ranges = (uintptr_t)list;
	if (ioctl(open_dir(dir), TARNFS_IOC_BADRANGES, &args))
		die("BADRANGES");
	for (uint32_t i = 0; i < args.count; i++)
		print_range(list[i].off, list[i].len, !i);
	printf("\n");
	return 0;
}

static int rule(bool good, const char *what)
{
	if (!good)
		printf("not so: %s (%s)\n", what, strerrorname_np(errno));
	return !good;
}

/* With two ranges at least. */
static int ranges_rules(const char *dir)
{
	int fd = open_dir(dir), bad = 0;
	struct tarnfs_badranges args = { .version = TARNFS_INTERFACE };
	struct tarnfs_range list[3];
	uint32_t count;

	bad |= rule(!ioctl(fd, TARNFS_IOC_BADRANGES, &args) && args.count >= 2,
		    "without room the count alone");
	count = args.count;
	memset(list, 0xee, sizeof(list));
	args.room = 1;
	args.ranges = (uintptr_t)list;
	bad |= rule(!ioctl(fd, TARNFS_IOC_BADRANGES, &args) && args.count == count && args.room == 1,
		    "with room for one the count of all");
	bad |= rule(list[0].len == 4096 && list[1].len == 0xeeeeeeeeeeeeeeeeULL, "one range is copied");
	args.ranges = 1;
	bad |= rule(ioctl(fd, TARNFS_IOC_BADRANGES, &args) == -1 && errno == EFAULT, "EFAULT");
	args.ranges = (uintptr_t)list;
	args.zero = 1;
	bad |= rule(ioctl(fd, TARNFS_IOC_BADRANGES, &args) == -1 && errno == EINVAL, "EINVAL");
	args.zero = 0;
	args.version = TARNFS_INTERFACE + 1;
	bad |= rule(ioctl(fd, TARNFS_IOC_BADRANGES, &args) == -1 && errno == EPROTONOSUPPORT,
		    "EPROTONOSUPPORT");
	args.version = TARNFS_INTERFACE;
	if (seteuid(1000))
		die("seteuid");
	bad |= rule(ioctl(fd, TARNFS_IOC_BADRANGES, &args) == -1 && errno == EPERM, "EPERM");
	if (!bad)
		printf("good\n");
	return 0;
}

static int reserve(const char *dir, uint64_t size, uint32_t count, bool zero)
{
	static struct tarnfs_reserve_item items[RESERVE_MAX];
	struct tarnfs_reserve args = { .version = TARNFS_INTERFACE, .count = count };

	if (count > RESERVE_MAX) {
		errno = E2BIG;
		die("reserve");
	}
	for (uint32_t i = 0; i < count; i++) {
		items[i].size = size;
		items[i].type = TARNFS_TYPE_FILE;
		items[i].flags = zero ? TARNFS_RESERVE_ZERO : 0;
	}
	args.items = (uintptr_t)items;
	if (ioctl(open_dir(dir), TARNFS_IOC_RESERVE, &args)) {
		printf("%s\n", strerrorname_np(errno));
		return 0;
	}
	for (uint32_t i = 0; i < count; i++)
		print_range(items[i].off, items[i].len, !i);
	printf("\n");
	return 0;
}

static int extent(const char *path)
{
	struct {
		struct fiemap map;
		struct fiemap_extent extent;
	} args = { .map = { .fm_length = ~0ULL, .fm_extent_count = 1 } };

	if (ioctl(open_file(path), FS_IOC_FIEMAP, &args) || args.map.fm_mapped_extents != 1)
		die("FIEMAP");
	printf("%llu %llu\n", (unsigned long long)args.map.fm_extents[0].fe_physical,
	       (unsigned long long)args.map.fm_extents[0].fe_length);
	return 0;
}

/* at: a mapped page; after this only a pipe has it. */
static int pin_page(volatile char *at, const char *dir)
{
	struct iovec iov = { .iov_base = (void *)((uintptr_t)at & ~4095UL), .iov_len = 4096 };
	char buf[4096], first = *at;
	int fds[2], bad = 0;

	if (pipe(fds) || vmsplice(fds[1], &iov, 1, 0) != 4096)
		die("vmsplice");
	if (munmap((void *)((uintptr_t)at & ~(HUGE - 1)), HUGE))
		die("munmap");
	make(dir, "pinned");
	while (!is_there(dir, "drain"))
		usleep(2000);
	if (read(fds[0], buf, sizeof(buf)) != sizeof(buf))
		die("read of the pipe");
	bad = buf[(uintptr_t)at & 4095] != first;
	make(dir, "drained");
	printf("%s\n", bad ? "changed" : "drained");
	return 0;
}

static int pin(char *arg, const char *dir)
{
	uint64_t off = split(arg);
	int fd = open_file(arg);
	volatile char *at = map_around(fd, off, false);
	volatile char sink = *at;

	(void)sink;
	close(fd);
	return pin_page(at, dir);
}

/* A page of a reservation, mapped, that is let go when the mapping goes. */
static volatile char *map_reserved(const char *mount, uint64_t *off)
{
	struct tarnfs_reserve_item item = {
		.size = 4096, .type = TARNFS_TYPE_FILE, .flags = TARNFS_RESERVE_ZERO,
	};
	struct tarnfs_reserve args = {
		.version = TARNFS_INTERFACE, .count = 1, .items = (uintptr_t)&item,
	};
	struct tarnfs_reserve_open opened = { .version = TARNFS_INTERFACE };
	volatile char *at;
	int fd = open_dir(mount);

	if (ioctl(fd, TARNFS_IOC_RESERVE, &args))
		die("RESERVE");
	opened.ino = item.ino;
	if (ioctl(args.fd, TARNFS_IOC_RESERVE_OPEN, &opened))
		die("RESERVE_OPEN");
	at = mmap(NULL, 2 * HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	at = (volatile char *)(((uintptr_t)at + HUGE - 1) & ~(HUGE - 1));
	if (mmap((void *)at, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, opened.fd, 0) ==
	    MAP_FAILED)
		die("mmap of the reservation");
	*at = 'p';
	close(opened.fd);
	close(args.fd);
	close(fd);
	*off = item.off;
	return at;
}

static int pin_reserved(const char *mount, const char *dir)
{
	uint64_t off;
	volatile char *at = map_reserved(mount, &off);
	char path[4096];
	FILE *f;

	snprintf(path, sizeof(path), "%s/extent", dir);
	f = fopen(path, "w");
	if (!f)
		die(path);
	fprintf(f, "%llu\n", (unsigned long long)off);
	fclose(f);
	return pin_page(at, dir);
}

static int hit_reserved(const char *mount)
{
	uint64_t off;
	volatile char *at = map_reserved(mount, &off);

	printf("%llu ", (unsigned long long)off);
	return hit_at(at, "madvise(MADV_HWPOISON)");
}

static int hit_dirty(char *arg)
{
	uint64_t off = split(arg), i;
	int fd = open_file(arg);
	volatile char *room, *at;
	struct stat st;

	if (fstat(fd, &st))
		die(arg);
	room = mmap(NULL, st.st_size + HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	at = (volatile char *)(((uintptr_t)room + HUGE - 1) & ~(HUGE - 1));
	at = mmap((void *)at, st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
	if (at == MAP_FAILED)
		die("mmap");
	for (i = 0; i < (uint64_t)st.st_size; i += 4096)
		at[i] = at[i];
	hit_at(at + off, "madvise(MADV_HWPOISON)");
	/* again, now in pages of 4 KiB where the page failed */
	for (i = 0; i < (uint64_t)st.st_size; i += 4096)
		if (i != (off & ~4095UL))
			at[i] = at[i];
	printf("%s ", fsync_result(fd));
	printf("%s\n", fsync_result(fd));
	return 0;
}

static volatile char *map_small(int fd, size_t len)
{
	void *at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (at == MAP_FAILED || (madvise(at, len, MADV_NOHUGEPAGE) && errno != EINVAL))
		die("mmap");
	return at;
}

static void fail_page(volatile char *at)
{
	if (!sigsetjmp(jump, 1) && madvise((void *)at, 4096, MADV_HWPOISON))
		die("madvise(MADV_HWPOISON)");
}

/* One load: prints what touch does, but for the end of the line. */
static void load(volatile char *at)
{
	volatile char sink;

	if (!sigsetjmp(jump, 1)) {
		sink = *at;
		(void)sink;
		printf("fine ");
		return;
	}
	printf("%s lsb %d ", code_name(got_code), got_lsb);
}

static int join(const char *file, const char *other)
{
	int fd = open_file(file), again = open_file(file);
	volatile char *at = map_small(fd, 4 * HUGE), *third = map_small(open_file(other), 4096);
	char byte;

	catch_sigbus();
	for (size_t i = 0; i < 4 * HUGE; i += 8192)
		fail_page(at + i);
	printf("%s ", fsync_result(fd));
	printf("%s ", fsync_result(fd));
	at[4096] = 'j';
	at[3 * 4096] = 'j';
	fail_page(third);
	load(at + 4096);
	load(at + 3 * 4096);
	printf("%s ", pread(fd, &byte, 1, 4096) < 0 ? strerrorname_np(errno) : "read");
	printf("%s ", fsync_result(fd));
	printf("%s ", fsync_result(fd));
	printf("%s\n", fsync_result(again));
	return 0;
}

/* A number of /proc/meminfo or /proc/vmstat. */
static uint64_t proc_number(const char *path, const char *name)
{
	char line[256];
	uint64_t value = 0;
	size_t len = strlen(name);
	FILE *f = fopen(path, "r");

	if (!f)
		die(path);
	while (fgets(line, sizeof(line), f))
		if (!strncmp(line, name, len) && (line[len] == ' ' || line[len] == ':'))
			value = strtoull(line + len + 1, NULL, 10);
	fclose(f);
	return value;
}

/*
 * In small steps at the end: what wakes the reclaiming thread is a little more
 * memory than what ends in somebody being killed for lack of it.
 */
static int press(void)
{
	uint64_t before = proc_number("/proc/vmstat", "slabs_scanned"), free_kb;

	while ((free_kb = proc_number("/proc/meminfo", "MemFree")) > 6144) {
		bool slow = free_kb < 131072;

		if (mmap(NULL, slow ? 65536 : HUGE, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0) == MAP_FAILED)
			break;
		if (slow)
			usleep(1000);
		if (proc_number("/proc/vmstat", "slabs_scanned") > before) {
			printf("reclaimed\n");
			return 0;
		}
	}
	printf("none\n");
	return 0;
}

int main(int argc, char **argv)
{
	const char *what = argc > 2 ? argv[1] : "";

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (!strcmp(what, "hit"))
		return hit(argv[2]);
	if (!strcmp(what, "hit-meta"))
		return hit_meta(argv[2]);
	if (!strcmp(what, "hit-reserved"))
		return hit_reserved(argv[2]);
	if (!strcmp(what, "hit-dirty"))
		return hit_dirty(argv[2]);
	if (!strcmp(what, "join") && argc > 3)
		return join(argv[2], argv[3]);
	if (!strcmp(what, "touch"))
		return touch(argv[2], argc > 3, false);
	if (!strcmp(what, "touch-huge"))
		return touch(argv[2], false, true);
	if (!strcmp(what, "watch") && argc > 3)
		return watch(argv[2], argv[3]);
	if (!strcmp(what, "read") && argc > 3)
		return do_read(argv[2], strtoul(argv[3], NULL, 0));
	if (!strcmp(what, "write") && argc > 3)
		return do_write(argv[2], strtoul(argv[3], NULL, 0));
	if (!strcmp(what, "ranges"))
		return ranges(argv[2]);
	if (!strcmp(what, "ranges-rules"))
		return ranges_rules(argv[2]);
	if (!strcmp(what, "reserve") && argc > 4)
		return reserve(argv[2], strtoull(argv[3], NULL, 0), strtoul(argv[4], NULL, 0),
			       argc > 5);
	if (!strcmp(what, "press"))
		return press();
	if (!strcmp(what, "extent"))
		return extent(argv[2]);
	if (!strcmp(what, "pin") && argc > 3)
		return pin(argv[2], argv[3]);
	if (!strcmp(what, "pin-reserved") && argc > 3)
		return pin_reserved(argv[2], argv[3]);
	fprintf(stderr, "memfail: see the head of memfail.c\n");
	return 2;
}
