// SPDX-License-Identifier: GPL-2.0-only
/*
 * fsck.tarnfs - looks at everything that stands on a device, in an image, or
 * under a mount, says what is wrong with it, and with -p or -y puts right what
 * needs no guess. See fsck_repair.c for what that is.
 *
 * A device that is not mounted here is opened through an exclusive `meta`
 * mount; what is mounted here is read through its mount, with -n alone. Hosts
 * elsewhere may change it meanwhile: see fsck.h for what that does. Nothing is
 * repaired while a host anywhere may have it mounted.
 *
 * Exit codes are the bits of fsck(8): 0 clean, 1 something was repaired, 4 errors or
 * warnings were found and left, 8 operational error, 16 wrong usage, 32 stopped by SIGINT
 * or SIGTERM.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../lib/fsck.h"
#include "common.h"

enum {
	FSCK_OK		= 0,
	FSCK_CORRECTED	= 1,
	FSCK_UNCORRECTED = 4,
	FSCK_ERROR	= 8,
	FSCK_USAGE	= 16,
	FSCK_CANCELED	= 32,
};

struct options {
	const char *path;
	bool no, preen, yes, fenced, truncate;
	uint64_t truncate_seq;
	int progress_fd;		/* -1: none */
};

struct report {
	const struct options *o;
	const char *device;
	unsigned int step, percent;
};

static volatile sig_atomic_t stopped;

static void on_signal(int sig)
{
	(void)sig;
	stopped = 1;
}

static void usage(void)
{
	printf("Usage: fsck.tarnfs [-n|-p|-y] [-f] [--hosts-fenced] [--truncate-log SEQ]\n"
	       "                   [-C FD] [-V] [-h] DEVICE|IMAGE\n"
	       "       fsck.tarnfs -n [-f] [-C FD] DIR\n"
	       "Checks superblocks, host pages, log, names and extents of a tarnfs. Nothing is\n"
	       "changed without -p or -y, nor while a host may have it mounted.\n"
	       "\n"
	       "  -n          change nothing, and say what -p and -y would repair; with it a\n"
	       "              file system that is mounted here can be checked, by the device or\n"
	       "              the directory it is mounted on\n"
	       "  -a, -p      repair what is certain and harmless\n"
	       "  -y          repair all that needs no guess\n"
	       "  -f          accepted: every check is a full one\n"
	       "  --hosts-fenced\n"
	       "              hosts that still claim pages are powered off or reset: your word,\n"
	       "              which nothing can check\n"
	       "  --truncate-log SEQ\n"
	       "              with -y: give up for good what follows that record in a damaged\n"
	       "              log; SEQ is the last good one, as fsck.tarnfs -n says it\n"
	       "  -C FD       progress to that descriptor, as fsck(8) reads it; 0: to a terminal\n"
	       "  -V          print the version\n"
	       "  -h, --help  print this\n"
	       "\n"
	       "Exit status, a sum: 0 clean, 1 repaired, 4 errors or warnings found and left, 8 it\n"
	       "could not be checked, 16 wrong usage, 32 stopped.\n");
}

/* 0 go on, 1 stop with success, negative: wrong usage. */
static int parse(struct options *o, int argc, char **argv)
{
	enum { OPT_FENCED = 256, OPT_TRUNCATE };
	static const struct option longs[] = {
		{ "hosts-fenced", no_argument, NULL, OPT_FENCED },
		{ "truncate-log", required_argument, NULL, OPT_TRUNCATE },
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'V' },
		{ 0 }
	};
	uint64_t fd;
	int c;

	o->progress_fd = -1;
	while ((c = getopt_long(argc, argv, "nfapyC:Vh", longs, NULL)) != -1) {
		switch (c) {
		case 'n':
			o->no = true;
			break;
		case 'f':
			break;
		case 'a':
		case 'p':
			o->preen = true;
			break;
		case 'y':
			o->yes = true;
			break;
		case OPT_FENCED:
			o->fenced = true;
			break;
		case OPT_TRUNCATE:
			if (parse_number(optarg, 0, TARNFS_SEQ_MAX, &o->truncate_seq)) {
				complain("--truncate-log: '%s' is not the number of a record",
					 shown(optarg));
				complain_usage();
				return -EINVAL;
			}
			o->truncate = true;
			break;
		case 'C':
			if (parse_number(optarg, 0, INT32_MAX, &fd)) {
				complain("-C: '%s' is not the number of a descriptor", shown(optarg));
				complain_usage();
				return -EINVAL;
			}
			/* one that is not open would become the device's */
			o->progress_fd = fcntl((int)fd, F_GETFD) < 0 ? -1 : (int)fd;
			if (o->progress_fd < 0)
				complain("-C: descriptor %s is not open: no progress is shown", optarg);
			break;
		case 'V':
			printf("fsck.tarnfs %s, media format %u\n", TARN_VERSION,
			       TARNFS_FORMAT_VERSION);
			return 1;
		case 'h':
			usage();
			return 1;
		default:
			complain_usage();
			return -EINVAL;
		}
	}
	if (o->no && (o->preen || o->yes))
		complain("-n, which changes nothing, goes with none of -a, -p and -y");
	else if (o->truncate && !o->yes && !o->no)
		complain("--truncate-log gives up records for good, and so wants -y (or -n, to see)");
	else if (argc - optind != 1)
		complain("one device, image or directory is needed");
	else
		o->path = argv[optind];
	if (!o->path)
		complain_usage();
	return o->path ? 0 : -EINVAL;
}

/* Why there is no mount on a directory: perhaps one stands above it. */
static int explain_directory(char *real, const char *path, struct tarn_err *err)
{
	struct mount_entry e = { 0 };
	char *slash;

	while ((slash = strrchr(real, '/')) != NULL && real[1]) {
		slash[slash == real] = '\0';
		if (mount_entry_find(real, &e))
			continue;
		if (strcmp(e.type, "tarnfs") == 0)
			tarn_fail(err, ENOENT, "%s: no tarnfs is mounted on it, but on %s above it: "
				  "name that", shown(path), shown(e.dir));
		else
			slash = NULL;
		mount_entry_free(&e);
		if (slash)
			return -ENOENT;
		break;
	}
	return tarn_fail(err, ENOENT, "%s: no tarnfs is mounted on it", shown(path));
}

/* A directory: the mount on it, whichever device that is of. */
static int find_mount(struct tarn_device *d, const char *path, struct tarn_err *err)
{
	struct mount_entry e = { 0 };
	char *real = realpath(path, NULL);
	int ret = real ? mount_entry_find(real, &e) : -errno;

	memset(d, 0, sizeof(*d));
	if (!ret && strcmp(e.type, "tarnfs") != 0)
		ret = tarn_fail(err, ENOENT, "%s: no tarnfs is mounted on it", shown(path));
	else if (ret == -ENOENT && real)
		ret = explain_directory(real, path, err);
	else if (ret)
		ret = tarn_fail(err, -ret, "%s: %s", shown(path), strerror(-ret));
	else {
		snprintf(d->path, sizeof(d->path), "%s", e.source);
		snprintf(d->mounted_on, sizeof(d->mounted_on), "%s", e.dir);
		d->mounted_tarnfs = true;
	}
	mount_entry_free(&e);
	free(real);
	return ret;
}

static int find(struct tarn_device *d, const struct options *o, struct tarn_err *err)
{
	struct stat st;
	int ret;

	if (stat(o->path, &st) == 0 && S_ISDIR(st.st_mode))
		ret = find_mount(d, o->path, err);
	else
		ret = tarn_device_find(d, o->path, err);
	if (ret || !d->mounted_on[0])
		return ret;
	if (!d->mounted_tarnfs)
		return tarn_fail(err, EBUSY, "%s: it is mounted on %s, and not as a tarnfs",
				 shown(d->path), shown(d->mounted_on));
	if (!o->no)
		return tarn_fail(err, EBUSY,
				 "%s: it is mounted on %s: umount it, or check it as it is with -n",
				 shown(d->path), shown(d->mounted_on));
	return 0;
}

static int on_progress(void *arg, unsigned int step, uint64_t done, uint64_t total)
{
	struct report *r = arg;
	unsigned int percent = total ? (unsigned int)(100.0 * (double)done / (double)total) : 0;

	if (stopped)
		return 1;
	if (r->o->progress_fd < 0 || (step == r->step && percent == r->percent))
		return 0;
	r->step = step;
	r->percent = percent;
	if (r->o->progress_fd > 0) {
		char *text = must_format("%u %llu %llu %s\n", step, (unsigned long long)done,
					 (unsigned long long)total, r->device);
		ssize_t n = write(r->o->progress_fd, text, strlen(text));

		/* whoever was to read it may be gone: that is no reason to stop */
		free(text);
		if (n < 0 && stopped)
			return 1;
	} else if (isatty(STDERR_FILENO)) {
		fprintf(stderr, "\r%s: %3u%%\r", r->device,
			((step - 1) * 100 + percent) / TARN_FSCK_STEPS);
	}
	return 0;
}

static void on_finding(void *arg, const struct tarn_fsck_finding *finding)
{
	static const char *const words[] = { "note", "warning", "error" };
	struct report *r = arg;

	printf("%s: %s %u at 0x%llx: %s\n", r->device, words[finding->severity], finding->number,
	       (unsigned long long)finding->off, finding->text);
}

static void on_repair(void *arg, const struct tarn_fsck_repair *repair)
{
	struct report *r = arg;

	printf("%s: ", r->device);
	switch (repair->outcome) {
	case TARN_FSCK_DONE:
		printf("repaired %u at 0x%llx: ", repair->number, (unsigned long long)repair->off);
		break;
	case TARN_FSCK_WOULD:
		printf("%s repairs %u at 0x%llx: ", repair->when == TARN_FSCK_SAFE ? "-p" : "-y",
		       repair->number, (unsigned long long)repair->off);
		break;
	default:
		if (repair->when == TARN_FSCK_NEVER)
			printf("not repaired: %u: ", repair->number);
		else
			printf("not repaired: %u at 0x%llx: ", repair->number,
			       (unsigned long long)repair->off);
	}
	printf("%s\n", repair->text);
}

static void count_text(const char *what, uint64_t n, const char *end)
{
	printf("%llu %s%s%s", (unsigned long long)n, what, n == 1 ? "" : "s", end);
}

/*
 * What the check itself need not have met: it reads metadata alone, and of that what is in use. No
 * finding: what it found is as good as it was.
 */
static void note_bad_memory(int dirfd, const struct tarn_device *d, const char *device)
{
	struct tarnfs_range *ranges;
	uint64_t bytes = 0;
	uint32_t count, i;

	if (dirfd < 0 || tarn_kernel_badranges(dirfd, &ranges, &count))
		return;
	for (i = 0; i < count; i++)
		bytes += ranges[i].len;
	if (count)
		printf("%s: note: %u range%s of bad memory, %llu bytes, known to this host: tarnfs status %s "
		       "says where\n", device, count, count == 1 ? "" : "s",
		       (unsigned long long)bytes, d->mounted_on[0] ? shown(d->mounted_on) : device);
	free(ranges);
}

/* The last line, and the exit code. */
static int summarize(const struct tarn_fsck *f, const char *device)
{
	uint64_t bad = f->count[TARN_FSCK_ERROR] + f->count[TARN_FSCK_WARNING];

	if (f->untold)
		printf("%s: and %llu more\n", device, (unsigned long long)f->untold);
	printf("%s: ", device);
	if (bad) {
		count_text("error", f->count[TARN_FSCK_ERROR], ", ");
		count_text("warning", f->count[TARN_FSCK_WARNING], ", ");
	} else {
		printf("clean, ");
	}
	if (f->count[TARN_FSCK_NOTE])
		count_text("note", f->count[TARN_FSCK_NOTE], ", ");
	if (f->repaired)
		printf("%llu repaired, ", (unsigned long long)f->repaired);
	if (f->super_valid && f->log_looked)
		printf("%llu directories, %llu files, %llu symlinks, %llu of %llu bytes used, "
		       "generation %llu, seq %llu\n", (unsigned long long)f->directories,
		       (unsigned long long)f->files, (unsigned long long)f->symlinks,
		       (unsigned long long)f->used, (unsigned long long)f->data,
		       (unsigned long long)f->generation, (unsigned long long)f->seq);
	else
		printf("%s\n", f->super_valid ? "the log was not looked at" :
						"only the superblocks were looked at");
	return (f->repaired ? FSCK_CORRECTED : FSCK_OK) | (bad ? FSCK_UNCORRECTED : FSCK_OK);
}

static int check(const struct options *o)
{
	struct report r = { .o = o };
	struct tarn_fsck f = {
		.finding = on_finding, .progress = on_progress, .repair = on_repair, .arg = &r,
		.mode = o->yes ? TARN_FSCK_REPAIR : o->preen ? TARN_FSCK_PREEN :
			o->no ? TARN_FSCK_DRY : TARN_FSCK_LOOK,
		.hosts_fenced = o->fenced, .truncate = o->truncate,
		.truncate_seq = o->truncate_seq,
	};
	struct tarn_err err = { "" };
	struct tarn_device d;
	struct tarn_meta meta;
	char *device;
	int ret, code = FSCK_ERROR;

	ret = find(&d, o, &err);
	if (!ret)
		ret = tarn_meta_open(&meta, &d, o->yes || o->preen, &err);
	if (ret) {
		busy_unseen(&d, ret, &err);
		complain_err(&err, ret, NULL);
		return FSCK_ERROR;
	}
	device = printable(d.path, strlen(d.path));
	r.device = device;
	f.dev_size = meta.dev_size;
	f.exclusive = !d.is_file && !d.mounted_on[0];
	ret = tarn_fsck(&f, meta.media, &err);
	if (!ret) {
		note_bad_memory(meta.dirfd, &d, device);
		code = summarize(&f, device);
	} else {
		complain_err(&err, ret, device);
		if (ret == -ENODATA && file_on_tarnfs(o->path))
			complain("%s: a file on a mounted tarnfs: name the directory that it is mounted on, "
				 "with -n", device);
		if (ret == -ECANCELED)
			code = FSCK_CANCELED;
		if (f.repaired)
			code |= FSCK_CORRECTED;
	}
	tarn_meta_close(&meta);
	free(device);
	return code;
}

int main(int argc, char **argv)
{
	/* no SA_RESTART: a reader of -C that reads no more must not hold it */
	const struct sigaction act = { .sa_handler = on_signal };
	struct options o = { 0 };
	int ret, code = FSCK_OK;

	program_start("fsck.tarnfs");
	sigaction(SIGINT, &act, NULL);
	sigaction(SIGTERM, &act, NULL);
	signal(SIGPIPE, SIG_IGN);
	ret = parse(&o, argc, argv);
	if (ret < 0)
		code = FSCK_USAGE;
	else if (ret == 0)
		code = check(&o);
	return program_end(code, FSCK_ERROR);
}
