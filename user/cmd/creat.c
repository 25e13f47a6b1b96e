// SPDX-License-Identifier: GPL-2.0-only
/*
 * creat.c - tarnfs creat: files of a given size, all in one commit. The bytes
 * are zero, or the pattern of --fill, before any host can see a name, unless
 * --no-zero was given.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "commands.h"
#include "pattern.h"

#define FILL_BUFFER (1 << 20)

struct wish {			/* one file as the command line or the list has it */
	char *path;
	uint64_t size;
	uint16_t mode;
};

struct options {
	uint64_t size;
	uint16_t mode;
	bool mode_given, shared_write, no_zero, nul_separated, fill;
	uint64_t seed;
	const char *from;
	struct wish *wishes;
	size_t count, room;
};

static void usage(void)
{
	printf("Usage: tarnfs creat [options] PATH...\n"
	       "       tarnfs creat [options] --from LIST\n"
	       "Creates files, all of them in one commit (at most %u) or none.\n"
	       "\n"
	       "  -s, --size SIZE     bytes of each file: 4096, 64M, 1GiB (0)\n"
	       "  -m, --mode MODE     octal, not changed by the umask (0666 less the umask)\n"
	       "      --shared-write  clients may write into it as well\n"
	       "      --no-zero       leave what the memory holds: faster, and whoever may read\n"
	       "                      the file sees old bytes until it is written\n"
	       "      --fill SEED     bytes made from this number, the name and the offset, for\n"
	       "                      'tarnfs verify --seed SEED' to check on any host\n"
	       "      --from LIST     lines 'SIZE MODE PATH' from a file, or from stdin with -;\n"
	       "                      MODE '-' is the default; the path is the rest of the line\n"
	       "  -0, --null          entries of LIST end with a NUL instead of a newline\n"
	       "  -h, --help\n"
	       "\n"
	       "Exit status: 0 all created, 1 none created, 2 wrong usage.\n",
	       TARNFS_BATCH_MAX);
}

static void add_wish(struct options *o, const char *path, uint64_t size, uint16_t mode)
{
	if (o->count == o->room) {
		o->room = o->room ? 2 * o->room : 64;
		o->wishes = must_alloc(realloc(o->wishes, o->room * sizeof(*o->wishes)));
	}
	o->wishes[o->count].path = must_alloc(strdup(path));
	o->wishes[o->count].size = size;
	o->wishes[o->count].mode = mode;
	o->count++;
}

/* The next word of *line, NUL terminated; *line then stands after the one space that ends it. */
static char *word(char **line)
{
	char *start = *line, *space = strchr(start, ' ');

	if (!space || space == start)
		return NULL;
	*space = '\0';
	*line = space + 1;
	return start;
}

static int read_list(struct options *o)
{
	const char *name = strcmp(o->from, "-") == 0 ? "standard input" : shown(o->from);
	int end = o->nul_separated ? '\0' : '\n';
	char *line = NULL, *rest, *size_word, *mode_word;
	FILE *f = strcmp(o->from, "-") == 0 ? stdin : fopen(o->from, "re");
	uint64_t size, number = 0;
	uint16_t mode;
	size_t room = 0;
	ssize_t len;
	int ret = 0;

	if (!f) {
		complain("--from: %s: %s", name, strerror(errno));
		return EXIT_FAILED;
	}
	while (!ret && (len = getdelim(&line, &room, end, f)) > 0) {
		number++;
		if (line[len - 1] == end)
			line[--len] = '\0';
		if (!len)
			continue;
		rest = line;
		size_word = word(&rest);
		mode_word = size_word ? word(&rest) : NULL;
		mode = o->mode;
		if (!mode_word || !*rest || strlen(rest) != (size_t)(line + len - rest)) {
			complain("%s, entry %llu: not of the form SIZE MODE PATH", name,
				 (unsigned long long)number);
			ret = EXIT_USAGE;
		} else if (parse_size(size_word, &size)) {
			complain("%s, entry %llu: '%s' is not a size", name,
				 (unsigned long long)number, shown(size_word));
			ret = EXIT_USAGE;
		} else if (strcmp(mode_word, "-") != 0 && parse_mode(mode_word, &mode)) {
			complain("%s, entry %llu: '%s' is not an octal mode", name,
				 (unsigned long long)number, shown(mode_word));
			ret = EXIT_USAGE;
		} else {
			add_wish(o, rest, size, mode);
		}
	}
	if (!ret && ferror(f)) {
		complain("--from: %s: %s", name, strerror(errno));
		ret = EXIT_FAILED;
	}
	free(line);
	if (f != stdin)
		fclose(f);
	return ret;
}

/* -1 go on, else the exit code */
static int parse(struct options *o, int argc, char **argv)
{
	enum { OPT_SHARED = 256, OPT_NO_ZERO, OPT_FILL, OPT_FROM };
	static const struct option longs[] = {
		{ "size", required_argument, NULL, 's' },
		{ "mode", required_argument, NULL, 'm' },
		{ "shared-write", no_argument, NULL, OPT_SHARED },
		{ "no-zero", no_argument, NULL, OPT_NO_ZERO },
		{ "fill", required_argument, NULL, OPT_FILL },
		{ "from", required_argument, NULL, OPT_FROM },
		{ "null", no_argument, NULL, '0' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 }
	};
	int c, ret;

	while ((c = getopt_long(argc, argv, "s:m:0h", longs, NULL)) != -1) {
		switch (c) {
		case 's':
			if (!parse_size(optarg, &o->size))
				break;
			complain("--size: '%s' is not a size: bytes, or a number with K, M, G or T",
				 shown(optarg));
			complain_usage();
			return EXIT_USAGE;
		case 'm':
			o->mode_given = true;
			if (!parse_mode(optarg, &o->mode))
				break;
			complain("--mode: '%s' is not an octal mode", shown(optarg));
			complain_usage();
			return EXIT_USAGE;
		case OPT_SHARED:
			o->shared_write = true;
			break;
		case OPT_NO_ZERO:
			o->no_zero = true;
			break;
		case OPT_FILL:
			o->fill = true;
			if (!parse_number(optarg, 0, UINT64_MAX, &o->seed))
				break;
			complain("--fill: '%s' is not a number from 0 to 2^64 - 1", shown(optarg));
			complain_usage();
			return EXIT_USAGE;
		case OPT_FROM:
			o->from = optarg;
			break;
		case '0':
			o->nul_separated = true;
			break;
		case 'h':
			usage();
			return EXIT_OK;
		default:
			complain_usage();
			return EXIT_USAGE;
		}
	}
	if (!o->mode_given) {
		mode_t mask = umask(0);

		umask(mask);
		o->mode = (uint16_t)(0666 & ~mask);
	}
	if (o->fill && o->no_zero) {
		complain("--fill or --no-zero, not both: --fill leaves no old byte");
		complain_usage();
		return EXIT_USAGE;
	}
	if (!o->from == (optind == argc) || (o->nul_separated && !o->from)) {
		complain(!o->from && optind == argc ? "no path was given" :
			 o->from && optind < argc ? "paths or --from LIST, not both" :
						    "--null goes with --from LIST");
		complain_usage();
		return EXIT_USAGE;
	}
	for (; optind < argc; optind++)
		add_wish(o, argv[optind], o->size, o->mode);
	ret = o->from ? read_list(o) : 0;
	if (ret)
		return ret;
	if (o->count > TARNFS_BATCH_MAX) {
		complain("%zu files, and one commit takes at most %u: split the list", o->count,
			 TARNFS_BATCH_MAX);
		return EXIT_USAGE;
	}
	return -1;
}

/* Early, since zeroing comes first; the commit decides. */
static int refuse_existing(const char *path, const struct stat *st)
{
	complain("%s: exists already%s; nothing was created", shown(path),
		 S_ISDIR(st->st_mode) ? " and is a directory: name the file to create in it" : "");
	return -EEXIST;
}

static int by_place(const void *a, const void *b)
{
	const struct tarn_new *x = *(const struct tarn_new *const *)a;
	const struct tarn_new *y = *(const struct tarn_new *const *)b;

	if (x->parent != y->parent)
		return x->parent < y->parent ? -1 : 1;
	return strcmp(x->name, y->name);
}

/* A name that is given twice exists only once this very command has created it. */
static int refuse_twice(const struct tarn_new *news, size_t count)
{
	const struct tarn_new **order = must_alloc(calloc(count, sizeof(*order)));
	size_t i;
	int ret = 0;

	for (i = 0; i < count; i++)
		order[i] = &news[i];
	qsort(order, count, sizeof(*order), by_place);
	for (i = 1; i < count && !ret; i++) {
		if (by_place(&order[i - 1], &order[i]))
			continue;
		complain("%s: named twice; nothing was created", shown(order[i]->path));
		ret = -EEXIST;
	}
	free(order);
	return ret;
}

static int fill_in(struct tarn_session *s, const struct options *o, struct tarn_new *news)
{
	struct place place = { 0 };
	struct timespec now;
	struct stat st;
	bool there;
	size_t i;
	int ret = 0;

	clock_gettime(CLOCK_REALTIME, &now);
	for (i = 0; i < o->count; i++) {
		const struct wish *w = &o->wishes[i];
		struct tarn_new *n = &news[i];

		there = lstat(w->path, &st) == 0;
		ret = refuse_slash(w->path);
		/* the mount itself has its place elsewhere */
		if (!ret && there && st.st_dev == session_dev(s))
			ret = refuse_existing(w->path, &st);
		if (!ret)
			ret = find_place(s, w->path, &place);
		if (!ret && there)
			ret = refuse_existing(w->path, &st);
		if (ret)
			break;
		n->item.type = TARNFS_TYPE_FILE;
		n->item.size = w->size;
		n->item.flags = o->no_zero || o->fill ? 0 : TARNFS_RESERVE_ZERO;
		n->parent = place.parent;
		n->name = place.name;
		n->path = w->path;
		place.name = NULL;
		n->mtime_sec = now.tv_sec;
		n->mtime_nsec = (uint32_t)now.tv_nsec;
		n->uid = geteuid();
		n->gid = getegid();
		n->mode = w->mode;
		n->file_flags = o->shared_write ? TARNFS_FILE_SHARED_WRITE : 0;
	}
	free_place(&place);
	return ret ? ret : refuse_twice(news, o->count);
}

static int fill_failed(const char *path, const struct tarn_new *n, uint64_t off, const char *what,
		       int code)
{
	complain("%s: %s at offset %llu (device offset 0x%llx): %s; nothing was created",
		 shown(path), what, (unsigned long long)off,
		 (unsigned long long)(n->item.off + off), strerror(code));
	return -code;
}

/* The pattern of one file, into memory: it has no name yet. */
static int fill_one(struct tarn_session *s, struct tarn_reservation *r, size_t i, const char *path,
		    uint64_t seed, void *buf)
{
	const struct tarn_new *n = &r->news[i];
	uint64_t key = pattern_key(seed, n->name), off = 0;
	struct tarn_err err = { "" };
	int ret = 0, fd = tarn_reserve_open_file(s, r, i, &err);

	if (fd < 0) {
		complain_err(&err, fd, shown(path));
		return fd;
	}
	while (!ret && off < n->item.size) {
		uint64_t left = n->item.size - off;
		size_t want = left < FILL_BUFFER ? (size_t)left : FILL_BUFFER, at = 0;

		pattern_fill(key, off, buf, want);
		while (!ret && at < want) {
			ssize_t done = pwrite(fd, (char *)buf + at, want - at, (off_t)(off + at));

			if (done > 0)
				at += (size_t)done;
			else if (!done || errno != EINTR)
				ret = fill_failed(path, n, off + at, "writing", done ? errno : EIO);
		}
		off += want;
		tarn_stop_point("mid-copy");
	}
	if (!ret && fsync(fd))
		ret = fill_failed(path, n, 0, "fsync", errno);
	if (close(fd) && !ret)
		ret = fill_failed(path, n, 0, "close", errno);
	return ret;
}

static int fill_all(struct tarn_session *s, struct tarn_reservation *r, const struct options *o)
{
	void *buf = must_alloc(malloc(FILL_BUFFER));
	size_t i;
	int ret = 0;

	for (i = 0; !ret && i < o->count; i++)
		if (r->news[i].item.size)
			ret = fill_one(s, r, i, o->wishes[i].path, o->seed, buf);
	free(buf);
	return ret;
}

static int create(const struct options *o)
{
	struct tarn_err err = { "" };
	struct tarn_reservation r = { .set = -1 };
	struct tarn_session s;
	struct tarn_new *news;
	size_t i;
	int ret;

	ret = open_master(&s, o->wishes[0].path);
	if (ret)
		return ret;
	news = must_alloc(calloc(o->count, sizeof(*news)));
	ret = fill_in(&s, o, news);
	if (ret)
		goto out;
	ret = tarn_log_room(&s, news, o->count, &err);
	if (!ret)
		ret = tarn_reserve_files(&s, &r, news, o->count, &err);
	if (ret) {
		complain_err(&err, ret, NULL);
		goto out;
	}
	if (o->fill)
		ret = fill_all(&s, &r, o);
	if (!ret) {
		ret = tarn_commit(&s, &r, &err);
		if (ret)
			complain_err(&err, ret, NULL);
	}
out:
	tarn_reservation_drop(&s, &r);
	for (i = 0; i < o->count; i++)
		free((char *)news[i].name);
	free(news);
	tarn_session_close(&s);
	return ret;
}

int cmd_creat(int argc, char **argv)
{
	struct options o = { 0 };
	size_t i;
	int ret;

	ret = parse(&o, argc, argv);
	if (ret < 0)
		/* an empty list is a list all the same */
		ret = !o.count || !create(&o) ? EXIT_OK : EXIT_FAILED;
	for (i = 0; i < o.count; i++)
		free(o.wishes[i].path);
	free(o.wishes);
	return ret;
}
