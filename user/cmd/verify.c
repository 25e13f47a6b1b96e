// SPDX-License-Identifier: GPL-2.0-only
/*
 * verify.c - tarnfs verify: every byte of files that creat --fill made, on any
 * host. Threads take pieces of files, in order; a piece is opened, read and
 * closed, so that no number of files runs out of descriptors.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands.h"
#include "extent.h"
#include "pattern.h"

#define PIECE		(8 << 20)	/* what a thread takes at once: some ms of work */
#define BUFFER		(256 << 10)	/* of a thread, twice: both stay in its L2 cache */
#define THREADS_MAX	256

struct file {
	const char *path;
	uint64_t size;
	bool known;		/* size is */
	bool failed;		/* and that was said, or wrong says it */
	uint64_t wrong;		/* first wrong offset, UINT64_MAX: none so far */
	unsigned char is, pattern;
};

struct job {
	pthread_mutex_t lock;	/* all below */
	struct file *files;
	size_t count, next;	/* the file that the next piece is of */
	uint64_t next_off, bytes;
	uint64_t seed;
};

static void usage(void)
{
	printf("Usage: tarnfs verify --seed SEED [-j N] [-q] FILE...\n"
	       "Checks every byte of files that 'tarnfs creat --fill SEED' made under these names,\n"
	       "here or on another host, or of copies with the same names anywhere.\n"
	       "\n"
	       "      --seed SEED  the number that --fill was given\n"
	       "  -j, --jobs N     threads, 1 to %u (1)\n"
	       "  -q, --quiet      print nothing but errors\n"
	       "  -h, --help\n"
	       "\n"
	       "Exit status: 0 all right, 1 not (with the first wrong offset of each file), 2 wrong\n"
	       "usage.\n", THREADS_MAX);
}

/* The next piece; size and existence of a file are looked at when its first piece is taken. */
static bool take_piece(struct job *j, struct file **file, uint64_t *off, uint64_t *len)
{
	bool found = false;

	pthread_mutex_lock(&j->lock);
	while (!found && j->next < j->count) {
		struct file *f = &j->files[j->next];
		struct stat st;
		int fd;

		if (!f->known) {
			fd = open_regular(f->path, false, &st);
			f->known = true;
			f->failed = fd < 0;
			f->size = fd < 0 ? 0 : (uint64_t)st.st_size;
			if (fd >= 0)
				close(fd);
		}
		/* after an error, or a wrong byte, what is behind it says nothing more */
		if (f->failed || f->wrong != UINT64_MAX || j->next_off >= f->size) {
			j->next++;
			j->next_off = 0;
			continue;
		}
		*file = f;
		*off = j->next_off;
		*len = f->size - *off < PIECE ? f->size - *off : PIECE;
		j->next_off += *len;
		found = true;
	}
	pthread_mutex_unlock(&j->lock);
	return found;
}

/* error 0: it ended */
static void read_failed(struct job *j, struct file *f, int fd, uint64_t off, int error)
{
	pthread_mutex_lock(&j->lock);
	if (!f->failed)
		complain("%s: offset %llu%s: %s%s", shown(f->path), (unsigned long long)off,
			 device_offset_text(fd, off),
			 error ? strerror(error) : "the file became shorter",
			 failed_memory_text(fd, off, error));
	f->failed = true;
	pthread_mutex_unlock(&j->lock);
}

static void found_wrong(struct job *j, struct file *f, uint64_t off, const unsigned char *is,
			const unsigned char *pattern)
{
	while (*is == *pattern) {
		is++;
		pattern++;
		off++;
	}
	pthread_mutex_lock(&j->lock);
	if (off < f->wrong) {
		f->wrong = off;
		f->is = *is;
		f->pattern = *pattern;
	}
	pthread_mutex_unlock(&j->lock);
}

/* Bytes that were read and right. */
static uint64_t check_piece(struct job *j, struct file *f, uint64_t off, uint64_t len,
			    unsigned char *is, unsigned char *pattern)
{
	uint64_t key = pattern_key(j->seed, f->path), end = off + len, start = off;
	struct stat st;
	int fd;

	pthread_mutex_lock(&j->lock);
	fd = open_regular(f->path, false, &st);
	if (fd < 0)
		f->failed = true;
	pthread_mutex_unlock(&j->lock);
	if (fd < 0)
		return 0;
	while (off < end) {
		size_t want = end - off < BUFFER ? end - off : BUFFER;
		ssize_t n = pread(fd, is, want, (off_t)off);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			read_failed(j, f, fd, off, n ? errno : 0);
			break;
		}
		pattern_fill(key, off, pattern, (size_t)n);
		if (memcmp(is, pattern, (size_t)n)) {
			found_wrong(j, f, off, is, pattern);
			break;
		}
		off += (uint64_t)n;
	}
	close(fd);
	return off - start;
}

static void *work(void *arg)
{
	unsigned char *is = must_alloc(malloc(BUFFER)), *pattern = must_alloc(malloc(BUFFER));
	struct job *j = arg;
	uint64_t off, len;
	struct file *f;

	while (take_piece(j, &f, &off, &len)) {
		uint64_t right = check_piece(j, f, off, len, is, pattern);

		pthread_mutex_lock(&j->lock);
		j->bytes += right;
		pthread_mutex_unlock(&j->lock);
	}
	free(is);
	free(pattern);
	return NULL;
}

static void run_threads(struct job *j, unsigned int threads)
{
	pthread_t id[THREADS_MAX];
	unsigned int n = 0;

	/* this thread is one of them; fewer than were asked for do it as well */
	while (n + 1 < threads && pthread_create(&id[n], NULL, work, j) == 0)
		n++;
	work(j);
	while (n--)
		pthread_join(id[n], NULL);
}

static int report(const struct job *j, bool quiet)
{
	size_t i, right = 0;

	for (i = 0; i < j->count; i++) {
		const struct file *f = &j->files[i];
		struct stat st;
		int fd;

		if (!f->failed && f->wrong == UINT64_MAX) {
			right++;
		} else if (f->wrong != UINT64_MAX) {
			fd = open_regular(f->path, false, &st);
			complain("%s: first wrong offset %llu%s: 0x%02x, and the pattern has 0x%02x",
				 shown(f->path), (unsigned long long)f->wrong,
				 fd < 0 ? "" : device_offset_text(fd, f->wrong), f->is, f->pattern);
			if (fd >= 0)
				close(fd);
		}
	}
	if (!quiet)
		printf("%zu of %zu files are right, %llu bytes\n", right, j->count,
		       (unsigned long long)j->bytes);
	return right == j->count ? EXIT_OK : EXIT_FAILED;
}

static int wrong_usage(const char *fmt, const char *what)
{
	complain(fmt, what);
	complain_usage();
	return EXIT_USAGE;
}

int cmd_verify(int argc, char **argv)
{
	enum { OPT_SEED = 256 };
	static const struct option longs[] = {
		{ "seed", required_argument, NULL, OPT_SEED },
		{ "jobs", required_argument, NULL, 'j' },
		{ "quiet", no_argument, NULL, 'q' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 }
	};
	struct job j = { .lock = PTHREAD_MUTEX_INITIALIZER };
	bool quiet = false, seeded = false;
	uint64_t threads = 1;
	size_t i;
	int c;

	while ((c = getopt_long(argc, argv, "j:qh", longs, NULL)) != -1) {
		switch (c) {
		case OPT_SEED:
			if (parse_number(optarg, 0, UINT64_MAX, &j.seed))
				return wrong_usage("--seed: '%s' is not a number from 0 to 2^64 - 1",
						   shown(optarg));
			seeded = true;
			break;
		case 'j':
			if (parse_number(optarg, 1, THREADS_MAX, &threads))
				return wrong_usage("--jobs: '%s' is not a number from 1 to 256",
						   shown(optarg));
			break;
		case 'q':
			quiet = true;
			break;
		case 'h':
			usage();
			return EXIT_OK;
		default:
			complain_usage();
			return EXIT_USAGE;
		}
	}
	if (!seeded)
		return wrong_usage("%s", "--seed is needed: the number that creat --fill was given");
	if (optind == argc)
		return wrong_usage("%s", "no file was named");
	j.count = (size_t)(argc - optind);
	j.files = must_alloc(calloc(j.count, sizeof(*j.files)));
	for (i = 0; i < j.count; i++) {
		j.files[i].path = argv[optind + (int)i];
		j.files[i].wrong = UINT64_MAX;
	}
	run_threads(&j, (unsigned int)threads);
	c = report(&j, quiet);
	free(j.files);
	return c;
}
