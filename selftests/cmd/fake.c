// SPDX-License-Identifier: GPL-2.0-only
/*
 * fake.c - libtarnfs as far as tarnfs cp, creat, mkdir, ln and version use it, over a
 * plain directory: their own logic can then be tested on any machine, also
 * where a real kernel hardly ever goes. A directory has the inode number that
 * its file system gave it.
 *
 * Environment: FAKE_ROOT the directory; FAKE_SPACE bytes in all (ENOSPC from
 * RESERVE past it); FAKE_RACE name: the first commit finds that this file was
 * just created by somebody else; FAKE_LOG records left in the log; FAKE_DURING
 * a shell command that runs once the first file's copy has begun;
 * FAKE_INTERFACE the version of the interface that the module speaks.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../../user/lib/tarn.h"

static const char *root(void)
{
	const char *r = getenv("FAKE_ROOT");

	if (!r)
		abort();
	return r;
}

static uint64_t number(const char *name, uint64_t otherwise)
{
	const char *v = getenv(name);

	return v ? strtoull(v, NULL, 10) : otherwise;
}

/* Over libc's. */
int ioctl(int fd, unsigned long request, ...)
{
	va_list ap;
	void *arg;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	if (getenv("FAKE_INTERFACE") && request == TARNFS_IOC_STATUS) {
		((struct tarnfs_status *)arg)->version = (uint32_t)number("FAKE_INTERFACE", 0);
		errno = EPROTONOSUPPORT;
		return -1;
	}
	return (int)syscall(SYS_ioctl, fd, request, arg);
}

int tarn_fail(struct tarn_err *err, int code, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(err->text, sizeof(err->text), fmt, ap);
	va_end(ap);
	return -code;
}

int tarn_fail_prefix(struct tarn_err *err, int ret, const char *fmt, ...)
{
	(void)err;
	(void)fmt;
	return ret;
}

void tarn_stop_point(const char *name)
{
	const char *at = getenv("TARNFS_STOP_AT");

	if (at && strcmp(at, name) == 0)
		kill(getpid(), SIGKILL);
}

static int nothing(struct tarn_kernel *k)
{
	(void)k;
	return 0;
}

static void nothing_at_all(struct tarn_kernel *k)
{
	(void)k;
}

static const struct tarn_kernel_ops ops = { .lock = nothing, .unlock = nothing_at_all };
static struct tarn_kernel kernel = { .ops = &ops };

int tarn_session_open(struct tarn_session *s, const char *path, unsigned int flags, struct tarn_err *err)
{
	struct stat a, b;

	(void)flags;
	memset(s, 0, sizeof(*s));
	s->kernel = &kernel;
	if (stat(path, &a) || stat(root(), &b) || a.st_dev != b.st_dev)
		return tarn_fail(err, EMEDIUMTYPE, "%s: not on a tarnfs", path);
	s->dirfd = open(root(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return s->dirfd < 0 ? tarn_fail(err, errno, "%s", strerror(errno)) : 0;
}

void tarn_session_close(struct tarn_session *s)
{
	close(s->dirfd);
}

int64_t tarn_replay(struct tarn_session *s, bool at_end, struct tarn_err *err)
{
	(void)s;
	(void)at_end;
	(void)err;
	return 0;
}

/* "path of directory" by inode number: all directories of the tree are looked through */
static char *directory_of(uint64_t ino, const char *at)
{
	static char command[8192], line[8192];
	static uint64_t known;
	FILE *f;

	if (ino == known)
		return strdup(line);
	snprintf(command, sizeof(command), "find '%s' -type d -inum %llu -printf '%%p\\n'", at,
		 (unsigned long long)ino);
	f = popen(command, "r");
	if (!f || !fgets(line, sizeof(line), f))
		line[0] = '\0';
	if (f)
		pclose(f);
	line[strcspn(line, "\n")] = '\0';
	known = line[0] ? ino : 0;
	return line[0] ? strdup(line) : NULL;
}

static uint64_t used;
static uint64_t log_used;

int tarn_log_room(struct tarn_session *s, const struct tarn_new *news, size_t count, struct tarn_err *err)
{
	(void)s;
	(void)news;
	if (log_used + count > number("FAKE_LOG", UINT64_MAX))
		return tarn_fail(err, ENOSPC, "the log is full");
	return 0;
}

struct set {
	int files[TARNFS_BATCH_MAX];
} set;

int tarn_reserve_files(struct tarn_session *s, struct tarn_reservation *r, struct tarn_new *news, size_t count,
		       struct tarn_err *err)
{
	uint64_t space = number("FAKE_SPACE", UINT64_MAX), sum = 0;
	static uint64_t next = 1000;
	size_t i;

	(void)s;
	if (r->set >= 0)
		abort();
	for (i = 0; i < count; i++) {
		sum += news[i].item.size;
		if (!news[i].parent && news[i].parent_index >= i)
			abort();
	}
	if (used + sum > space)
		return tarn_fail(err, ENOSPC, "no space for %zu", count);
	used += sum;
	for (i = 0; i < count; i++) {
		news[i].item.ino = next++;
		set.files[news[i].item.ino % TARNFS_BATCH_MAX] = -1;
	}
	r->set = 1;
	r->news = news;
	r->count = count;
	return 0;
}

int tarn_reserve_open_file(struct tarn_session *s, struct tarn_reservation *r, size_t i, struct tarn_err *err)
{
	int fd = open(root(), O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
	const char *during = getenv("FAKE_DURING");

	(void)s;
	(void)err;
	if (during && system(during))
		abort();
	unsetenv("FAKE_DURING");
	if (!r->news[i].item.size)
		abort();
	set.files[r->news[i].item.ino % TARNFS_BATCH_MAX] = dup(fd);
	return fd;
}

static int create(const struct tarn_new *n, const char *dir)
{
	struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, { n->mtime_sec, n->mtime_nsec } };
	char path[8192], proc[64];
	struct stat st;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, n->name);
	if (n->item.type == TARNFS_TYPE_DIRECTORY) {
		if (mkdir(path, 0700))
			return -errno;
	} else if (n->item.type == TARNFS_TYPE_SYMLINK) {
		if (symlink(n->target, path))
			return -errno;
	} else if (!n->item.size) {
		fd = open(path, O_CREAT | O_EXCL | O_WRONLY, 0600);
		if (fd < 0)
			return -errno;
		close(fd);
	} else {
		fd = set.files[n->item.ino % TARNFS_BATCH_MAX];
		if (fd < 0) {
			fd = open(root(), O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
			if (ftruncate(fd, (off_t)n->item.size))
				return -errno;
		}
		/* data before name, and all of it */
		if (fstat(fd, &st) || (uint64_t)st.st_size != n->item.size)
			abort();
		snprintf(proc, sizeof(proc), "/proc/self/fd/%d", fd);
		if (linkat(AT_FDCWD, proc, AT_FDCWD, path, AT_SYMLINK_FOLLOW))
			return -errno;
	}
	if (n->item.type != TARNFS_TYPE_SYMLINK && chmod(path, n->mode))
		return -errno;
	return utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW) ? -errno : 0;
}

int tarn_commit(struct tarn_session *s, struct tarn_reservation *r, struct tarn_err *err)
{
	char **dirs = calloc(r->count, sizeof(*dirs)), path[8192];
	const char *race = getenv("FAKE_RACE");
	static bool raced;
	struct stat st;
	size_t i;
	int ret = 0;

	(void)s;
	for (i = 0; i < r->count; i++) {
		struct tarn_new *n = &r->news[i];

		if (n->parent)
			dirs[i] = directory_of(n->parent, root());
		else if (asprintf(&dirs[i], "%s/%s", dirs[n->parent_index], r->news[n->parent_index].name) < 0)
			abort();
		if (!dirs[i]) {
			fprintf(stderr, "fake: no parent %llu\n", (unsigned long long)n->parent);
			abort();
		}
		snprintf(path, sizeof(path), "%s/%s", dirs[i], n->name);
		if (race && !raced && strcmp(race, n->name) == 0) {
			raced = true;
			if (n->item.type == TARNFS_TYPE_DIRECTORY)
				mkdir(path, 0755);
			else
				close(open(path, O_CREAT | O_WRONLY, 0600));
		}
		if (lstat(path, &st) == 0)
			ret = tarn_fail(err, EEXIST, "%s exists", path);
	}
	for (i = 0; !ret && i < r->count; i++)
		ret = create(&r->news[i], dirs[i]);
	/* the numbers that the real file system gave */
	for (i = r->count; !ret && i--;) {
		struct tarn_new *n = &r->news[i];

		if (n->item.type != TARNFS_TYPE_DIRECTORY)
			continue;
		snprintf(path, sizeof(path), "%s/%s", dirs[i], n->name);
		if (stat(path, &st) == 0)
			n->item.ino = st.st_ino;
	}
	for (i = 0; i < r->count; i++)
		free(dirs[i]);
	free(dirs);
	if (!ret)
		log_used += r->count;
	return ret;
}

void tarn_reservation_drop(struct tarn_session *s, struct tarn_reservation *r)
{
	size_t i;

	(void)s;
	for (i = 0; r->set >= 0 && i < TARNFS_BATCH_MAX; i++)
		if (set.files[i] > 0) {
			close(set.files[i]);
			set.files[i] = -1;
		}
	r->set = -1;
}
