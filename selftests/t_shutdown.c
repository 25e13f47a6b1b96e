// SPDX-License-Identifier: GPL-2.0-only
/*
 * SHUTDOWN comes before everything that is waiting to be done: what a worker has still to write
 * back is not ours any more, and stays as it is.
 *
 * The worker is kept from running, not raced with: it may use the processor only that this
 * program is on, whose priority is higher than that of any worker. So all that was let go is
 * still before it when SHUTDOWN is called; were that to wait for the worker first, the trace
 * would show that every range was written back.
 *
 * t_shutdown [DEVICE]: destroys what is on DEVICE (default: the guest's), 256 MiB or more.
 * Root, in a guest.
 */
#include "direct.h"

#include <sched.h>

#define FILES	24
#define TRACEFS	"/sys/kernel/tracing/"
#define WORKERS	"/sys/devices/virtual/workqueue/cpumask"

static bool put_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
	bool good = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

	if (!good)
		printf("# %s: %s\n", path, strerror(errno));
	if (fd >= 0)
		close(fd);
	return good;
}

static bool get_text(const char *path, char *text, size_t room)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t len = fd < 0 ? -1 : read(fd, text, room - 1);

	if (fd >= 0)
		close(fd);
	text[len > 0 ? len : 0] = '\0';
	return len > 0;
}

/* Ranges written back and dropped since the trace was emptied. */
static int last_uses(void)
{
	FILE *f = fopen(TRACEFS "trace", "re");
	char line[1024];
	int n = 0;

	if (!f)
		return -1;
	while (fgets(line, sizeof(line), f))
		n += strstr(line, "tarnfs_invalidate:") && strstr(line, "last_use");
	fclose(f);
	return n;
}

static void attach(void)
{
	dir = mount_again("role", "master");
	clear();
	top = device_size & ~4095ULL;
	add_op(TARNFS_OP_DIRECTORY, TARNFS_INO_ROOT, "");
	must(apply(TARNFS_APPLY_STAGE), "APPLY of a checkpoint");
	clear();
	must(apply(TARNFS_APPLY_AT_END), "AT_END");
}

/* Reservations whose set is closed, so that the end of each file is the end of its range. */
static void open_files(int *files)
{
	struct tarnfs_reserve_item items[FILES] = { 0 };
	struct tarnfs_reserve rs = {
		.version = TARNFS_INTERFACE, .count = FILES, .items = (uintptr_t)items,
	};

	for (int i = 0; i < FILES; i++)
		items[i] = (struct tarnfs_reserve_item){ .size = MIB, .type = TARNFS_TYPE_FILE };
	must(ioctl(dir, TARNFS_IOC_RESERVE, &rs), "RESERVE");
	for (int i = 0; i < FILES; i++) {
		struct tarnfs_reserve_open ro = {
			.version = TARNFS_INTERFACE, .ino = items[i].ino,
		};

		must(ioctl(rs.fd, TARNFS_IOC_RESERVE_OPEN, &ro), "RESERVE_OPEN");
		files[i] = ro.fd;
		must(pwrite(ro.fd, "bytes", 5, 0), "write");
	}
	close(rs.fd);
}

static void priority(int policy, int value)
{
	struct sched_param param = { .sched_priority = value };

	must(sched_setscheduler(0, policy, &param), "sched_setscheduler");
}

/* Before the worker, which has all of it to do when this returns. */
static void close_files(const int *files)
{
	priority(SCHED_FIFO, 10);
	for (int i = 0; i < FILES; i++)
		close(files[i]);
}

int main(int argc, char **argv)
{
	cpu_set_t one;
	char workers[64];
	__u32 how = 0;
	int files[FILES], done;
	struct tarnfs_status st;

	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("TAP version 13\n1..5\n");
	use_device(argc, argv);
	make_super();

	CPU_ZERO(&one);
	CPU_SET(0, &one);
	must(sched_setaffinity(0, sizeof(one), &one), "sched_setaffinity");
	ok(get_text(WORKERS, workers, sizeof(workers)) && put_text(WORKERS, "1") &&
	   put_text("/proc/sys/kernel/sched_rt_runtime_us", "-1") &&
	   put_text(TRACEFS "buffer_size_kb", "1024") &&
	   put_text(TRACEFS "events/tarnfs/tarnfs_invalidate/enable", "1"),
	   "workers and tracing are as this test needs them");

	/* That the worker would do all of it, were it not for the shutdown. */
	attach();
	open_files(files);
	put_text(TRACEFS "trace", "");
	close_files(files);
	st = status_of();	/* waits for the worker */
	priority(SCHED_OTHER, 0);
	done = last_uses();
	ok(done == FILES && !(st.state & TARNFS_ST_SHUTDOWN),
	   "every range is written back when the worker is waited for");
	printf("# %d of %d\n", done, FILES);

	open_files(files);
	put_text(TRACEFS "trace", "");
	close_files(files);
	must(ioctl(dir, TARNFS_IOC_SHUTDOWN, &how), "SHUTDOWN");
	priority(SCHED_OTHER, 0);
	st = status_of();
	done = last_uses();
	/* none, but for what the worker got done if a close() slept */
	ok(done >= 0 && done < FILES, "SHUTDOWN comes before the worker, which writes back no more");
	printf("# %d of %d\n", done, FILES);
	ok(st.state & TARNFS_ST_SHUTDOWN, "STATUS says so");

	close(dir);
	dir = mount_again("role", "client");
	ok(dir >= 0, "mounts again");
	close(dir);
	put_text(TRACEFS "events/tarnfs/tarnfs_invalidate/enable", "0");
	put_text("/proc/sys/kernel/sched_rt_runtime_us", "950000");
	put_text(WORKERS, workers);
	return failures ? 1 : 0;
}
