// SPDX-License-Identifier: GPL-2.0-only
/*
 * fake.c - libtarnfs as far as tarnfs cp, creat, mkdir, ln and version use it, over a
 * plain directory: their own logic can then be tested on any machine, also
 * where a real kernel hardly ever goes. A directory has the inode number that
 * its file system gave it.
 *
 * Environment: FAKE_ROOT the directory (nameless files are in FAKE_ROOT.store);
 * FAKE_SPACE bytes in all (ENOSPC from RESERVE past it), FAKE_SPACE_LATER the same, but STATUS
 * does not know; FAKE_SHARED path: the one file of which the log says shared-write; FAKE_RACE name: the
 * first commit finds that this file was just created by somebody else; FAKE_LOG
 * records left in the log; FAKE_LOG_LATER the same, but found only by a batch;
 * FAKE_DURING a shell command that runs once the first file's copy has begun, or
 * the FAKE_DURING_AT-th; FAKE_EIO name:N: reading that source fails from byte N on;
 * FAKE_RACE_FILE name: as FAKE_RACE, but what is created is a file in any case;
 * FAKE_NO_SENDFILE, FAKE_NO_FSYNC: these fail; FAKE_INTERFACE the version of
 * the interface that the module speaks; FAKE_BAD N: every file is at 1 MiB of the device, where
 * the page of 4096 bytes with byte N of the file has failed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
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
	if (getenv("FAKE_BAD") && request == FS_IOC_FIEMAP) {
		struct fiemap *map = arg;

		map->fm_mapped_extents = 1;
		map->fm_extents[0].fe_physical = 1 << 20;
		map->fm_extents[0].fe_length = 1ULL << 40;
		map->fm_extents[0].fe_flags = FIEMAP_EXTENT_LAST;
		return 0;
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
	static _Atomic long reached;
	size_t len = strlen(name);

	if (!at || strncmp(at, name, len) || (at[len] && at[len] != ':'))
		return;
	if (++reached == (at[len] ? atol(at + len + 1) : 1))
		kill(getpid(), SIGKILL);
}

/* ---- reads of the source that fail ---- */

static bool fails(int fd, off_t off)
{
	const char *eio = getenv("FAKE_EIO");
	char link[64], path[4096];
	ssize_t n;
	size_t len;

	if (!eio)
		return false;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path));
	len = strcspn(eio, ":");
	return n > (ssize_t)len && path[n - (ssize_t)len - 1] == '/' &&
	       memcmp(path + n - len, eio, len) == 0 && off >= atol(eio + len + 1);
}

ssize_t __real_pread(int fd, void *buffer, size_t len, off_t off);
ssize_t __real_sendfile(int out, int in, off_t *off, size_t len);
int __real_fsync(int fd);

ssize_t __wrap_pread(int fd, void *buffer, size_t len, off_t off)
{
	if (!fails(fd, off))
		return __real_pread(fd, buffer, len, off);
	errno = EIO;
	return -1;
}

ssize_t __wrap_sendfile(int out, int in, off_t *off, size_t len)
{
	if (!getenv("FAKE_NO_SENDFILE") && !fails(in, *off))
		return __real_sendfile(out, in, off, len);
	errno = EIO;
	return -1;
}

int __wrap_fsync(int fd)
{
	if (!getenv("FAKE_NO_FSYNC"))
		return __real_fsync(fd);
	errno = EIO;
	return -1;
}

/* ---- the library ---- */

static int nothing(struct tarn_kernel *k)
{
	(void)k;
	return 0;
}

static void nothing_at_all(struct tarn_kernel *k)
{
	(void)k;
}

static uint64_t used;
static uint64_t log_used;

static int status(struct tarn_kernel *k, struct tarnfs_status *st)
{
	(void)k;
	memset(st, 0, sizeof(*st));
	st->free_bytes = number("FAKE_SPACE", UINT64_MAX) - used;
	st->largest_free = st->free_bytes;
	st->largest_free_huge = st->free_bytes;
	return 0;
}

static const struct tarn_kernel_ops ops = {
	.status = status, .lock = nothing, .unlock = nothing_at_all,
};
static struct tarn_kernel kernel = { .ops = &ops };

int tarn_session_open(struct tarn_session *s, const char *path, unsigned int flags, struct tarn_err *err)
{
	char store[4096];
	struct stat a, b;

	(void)flags;
	memset(s, 0, sizeof(*s));
	s->kernel = &kernel;
	if (stat(path, &a) || stat(root(), &b) || a.st_dev != b.st_dev)
		return tarn_fail(err, EMEDIUMTYPE, "%s: not on a tarnfs", path);
	snprintf(store, sizeof(store), "%s.store", root());
	mkdir(store, 0700);
	s->dirfd = open(root(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return s->dirfd < 0 ? tarn_fail(err, errno, "%s", strerror(errno)) : 0;
}

void tarn_session_close(struct tarn_session *s)
{
	close(s->dirfd);
}

int tarn_kernel_badranges(int dirfd, struct tarnfs_range **out, uint32_t *count)
{
	(void)dirfd;
	*count = getenv("FAKE_BAD") != NULL;
	*out = calloc(1, sizeof(**out));
	if (!*out)
		return -ENOMEM;
	(*out)->off = (1 << 20) + number("FAKE_BAD", 0) / 4096 * 4096;
	(*out)->len = 4096;
	return 0;
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

static int log_room(uint64_t count, const char *name, struct tarn_err *err)
{
	if (log_used + count > number(name, UINT64_MAX))
		return tarn_fail(err, ENOSPC, "the log is full");
	return 0;
}

int tarn_log_room(struct tarn_session *s, const struct tarn_new *news, size_t count, struct tarn_err *err)
{
	(void)s;
	(void)news;
	return log_room(count, "FAKE_LOG_LATER", err);
}

uint64_t tarn_log_bytes(const struct tarn_new *news, size_t count)
{
	(void)news;
	return 64 * count;
}

int tarn_log_left(struct tarn_session *s, uint64_t bytes, uint64_t *left, struct tarn_err *err)
{
	(void)s;
	*left = 64 * (number("FAKE_LOG", 1000000) - log_used);
	return log_room(bytes / 64, "FAKE_LOG", err);
}

/* The log has one record: of the file that FAKE_SHARED names, or of no file. */
int tarn_scan(struct tarn_media *m, const struct tarn_super *sb, struct tarn_current *cur,
	      struct tarn_identity *ids, struct tarn_err *err)
{
	(void)m;
	(void)sb;
	(void)ids;
	(void)err;
	memset(cur, 0, sizeof(*cur));
	return 0;
}

int tarn_log_open(struct tarn_log *log, struct tarn_media *m, const struct tarn_super *sb,
		  const struct tarn_current *cur, struct tarn_err *err)
{
	(void)m;
	(void)sb;
	(void)cur;
	(void)err;
	memset(log, 0, sizeof(*log));
	return 0;
}

int tarn_log_walk(struct tarn_log *log, struct tarn_media *m, uint32_t *pos, tarn_rec_fn fn,
		  void *arg, struct tarn_err *err)
{
	struct tarn_rec rec = { .type = TARNFS_REC_FILE, .ino = UINT64_MAX };
	const char *shared = getenv("FAKE_SHARED");
	struct stat st;

	(void)log;
	(void)m;
	(void)pos;
	(void)err;
	fn(arg, &rec);		/* numbers of a real file system are in no order */
	if (!shared || stat(shared, &st))
		return 0;
	rec.ino = st.st_ino;
	rec.file_flags = TARNFS_FILE_SHARED_WRITE;
	return fn(arg, &rec);
}

/* The nameless file of an inode number: malloc()ed. */
static char *nameless(uint64_t ino)
{
	char *path;

	if (asprintf(&path, "%s.store/%llu", root(), (unsigned long long)ino) < 0)
		abort();
	return path;
}

/* numbers of the reservation, to clean up */
static uint64_t *all;
static size_t all_count;

int tarn_reserve_files(struct tarn_session *s, struct tarn_reservation *r, struct tarn_new *news, size_t count,
		       struct tarn_err *err)
{
	uint64_t space = number("FAKE_SPACE_LATER", number("FAKE_SPACE", UINT64_MAX)), sum = 0;
	static uint64_t next;
	size_t i;

	(void)s;
	if (r->set >= 0)
		abort();
	if (!next)
		next = (uint64_t)getpid() * 1000000;
	for (i = 0; i < count; i++) {
		sum += news[i].item.size;
		if (!news[i].parent && news[i].parent_index >= i)
			abort();
	}
	if (used + sum > space)
		return tarn_fail(err, ENOSPC, "%s: no space for %zu", news[0].name, count);
	used += sum;
	for (i = 0; i < count; i++) {
		news[i].item.ino = next++;
		if (news[i].item.type == TARNFS_TYPE_FILE && news[i].item.size) {
			char *path = nameless(news[i].item.ino);
			int fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);

			if (fd < 0)
				abort();
			close(fd);
			free(path);
		}
	}
	all = realloc(all, count * sizeof(*all));
	for (i = 0; i < count; i++)
		all[i] = news[i].item.ino;
	all_count = count;
	r->set = 1;
	r->news = news;
	r->count = count;
	tarn_stop_point("after-reserve");
	return 0;
}

/* A child of ours, since system() would have us ignore signals meanwhile. */
static void run_command(const char *command)
{
	pid_t child = fork();

	if (!child) {
		execl("/bin/sh", "sh", "-c", command, (char *)NULL);
		_exit(127);
	}
	while (waitpid(child, NULL, 0) < 0)
		if (errno != EINTR)
			abort();
}

int tarn_reserve_open_file(struct tarn_session *s, struct tarn_reservation *r, size_t i, struct tarn_err *err)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static uint64_t opened;
	char *path = nameless(r->news[i].item.ino);
	int fd = open(path, O_RDWR | O_CLOEXEC);

	(void)s;
	if (fd < 0)
		tarn_fail(err, errno, "opening it before its commit: %s", strerror(errno));
	free(path);
	if (!r->news[i].item.size)
		abort();
	pthread_mutex_lock(&lock);
	if (++opened == number("FAKE_DURING_AT", 1) && getenv("FAKE_DURING"))
		run_command(getenv("FAKE_DURING"));
	pthread_mutex_unlock(&lock);
	return fd;
}

static int create(const struct tarn_new *n, const char *dir)
{
	struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, { n->mtime_sec, n->mtime_nsec } };
	char path[8192], *file;
	struct stat st;
	int fd, ret;

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
		file = nameless(n->item.ino);
		/* creat writes nothing: its files are zero */
		if (stat(file, &st) || (!st.st_size && truncate(file, (off_t)n->item.size)))
			abort();
		/* data before name, and all of it */
		if (st.st_size && (uint64_t)st.st_size != n->item.size)
			abort();
		ret = rename(file, path) ? -errno : 0;
		free(file);
		if (ret)
			return ret;
	}
	if ((n->uid != geteuid() || n->gid != getegid()) && lchown(path, n->uid, n->gid))
		return -errno;
	if (n->item.type != TARNFS_TYPE_SYMLINK && chmod(path, n->mode))
		return -errno;
	return utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW) ? -errno : 0;
}

int tarn_commit(struct tarn_session *s, struct tarn_reservation *r, struct tarn_err *err)
{
	char **dirs = calloc(r->count, sizeof(*dirs)), path[8192];
	const char *race_file = getenv("FAKE_RACE_FILE");
	const char *race = race_file ? race_file : getenv("FAKE_RACE");
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
			if (n->item.type == TARNFS_TYPE_DIRECTORY && !race_file)
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
	/* also of those that were taken out of the reservation meanwhile */
	for (i = 0; r->set >= 0 && i < all_count; i++) {
		char *path = nameless(all[i]);

		unlink(path);
		free(path);
	}
	r->set = -1;
}
