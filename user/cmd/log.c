// SPDX-License-Identifier: GPL-2.0-only
/*
 * log.c - tarnfs log: the current log as text, a line a record, with the
 * offset on the device where each record stands; and with --follow, what is
 * committed from then on.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands.h"
#include "source.h"

/* Of --follow: a look costs a few lines of every host page, and half a second is soon enough. */
#define POLL_MILLISECONDS 500

struct filter {
	uint64_t ino;		/* 0: any */
	const char *name;	/* NULL: any */
	size_t name_len;
};

static volatile sig_atomic_t ended;

static void usage(void)
{
	printf("Usage: tarnfs log [--ino N] [--name NAME] DIR|DEVICE|IMAGE\n"
	       "       tarnfs log -f [--ino N] [--name NAME] DIR\n"
	       "Prints the current log: its header, then a line a record: offset on the device,\n"
	       "seq (c and an ordinal in the checkpoint), type, and what the record says. Names\n"
	       "are in quotes, with \\xHH for bytes that cannot be printed.\n"
	       "\n"
	       "      --ino N      only records about inode N\n"
	       "      --name NAME  only records with this name (the last component of a path)\n"
	       "  -f, --follow     go on with each record as it is committed, until interrupted; looks\n"
	       "                   twice a second, and applies nothing\n"
	       "  -h, --help\n"
	       "\n"
	       "Exit status: 0 printed, or interrupted; 1 could not be read (all good records before\n"
	       "are printed), or what is followed was replaced by another log; 2 wrong usage.\n");
}

/* A quote in a name must not look like the end of it. */
static void print_quoted(const char *key, const char *bytes, size_t len)
{
	char *text = printable(bytes ? bytes : "", len), *p;

	printf(" %s=\"", key);
	for (p = text; *p; p++) {
		if (*p == '"')
			fputs("\\x22", stdout);
		else
			putchar(*p);
	}
	putchar('"');
	free(text);
}

static void print_node(const struct tarn_rec *rec)
{
	printf(" ino=%llu parent=%llu", (unsigned long long)rec->ino,
	       (unsigned long long)rec->parent);
	print_quoted("name", rec->name, rec->name_len);
	printf(" mode=%04o uid=%u gid=%u mtime=%lld.%09u", rec->mode, rec->uid, rec->gid,
	       (long long)rec->mtime_sec, rec->mtime_nsec);
	if (rec->type == TARNFS_REC_FILE) {
		printf(" size=%llu", (unsigned long long)rec->size);
		if (rec->extents)
			printf(" extent=%llu+%llu", (unsigned long long)rec->ext_off,
			       (unsigned long long)rec->ext_len);
		if (rec->file_flags & TARNFS_FILE_SHARED_WRITE)
			printf(" shared-write");
	} else if (rec->type == TARNFS_REC_SYMLINK) {
		print_quoted("target", rec->target, rec->target_len);
	}
}

static bool passes(const struct filter *f, const struct tarn_rec *rec)
{
	bool node = rec->type == TARNFS_REC_DIRECTORY || rec->type == TARNFS_REC_FILE ||
		    rec->type == TARNFS_REC_SYMLINK;

	if (f->ino && (!node || rec->ino != f->ino))
		return false;
	return !f->name || (node && rec->name_len == f->name_len &&
			    (!f->name_len || memcmp(rec->name, f->name, f->name_len) == 0));
}

static int print_record(void *arg, const struct tarn_rec *rec)
{
	const char *type = tarn_rec_type_name(rec->type);
	char uuid[37];

	if (ended)
		return -EINTR;
	if (!passes(arg, rec))
		return 0;
	printf("%llu %s%llu ", (unsigned long long)rec->off,
	       rec->flags & TARNFS_RECORD_CKPT ? "c" : "", (unsigned long long)rec->seq);
	if (type)
		printf("%s", type);
	else
		printf("type-%u", rec->type);
	switch (rec->type) {
	case TARNFS_REC_DIRECTORY:
	case TARNFS_REC_FILE:
	case TARNFS_REC_SYMLINK:
		print_node(rec);
		break;
	case TARNFS_REC_HOST:
		tarn_uuid_text(uuid, rec->uuid);
		printf(" host=%u flags=0x%x nonce=%016llx uuid=%s", rec->host, rec->host_flags,
		       (unsigned long long)rec->nonce, uuid);
		break;
	case TARNFS_REC_CHECKPOINT_END:
		printf(" directories=%llu files=%llu symlinks=%llu pending-free=%llu hosts=%u others=%u",
		       (unsigned long long)rec->directories, (unsigned long long)rec->files,
		       (unsigned long long)rec->symlinks, (unsigned long long)rec->pending_free,
		       rec->hosts, rec->others);
		break;
	default:
		/* of a newer tarnfs, or of a type that is not built yet: how long it is, is known */
		printf(" units=%u", rec->units);
		break;
	}
	if (rec->batch_index || rec->batch_left)
		printf(" batch=%u/%u", rec->batch_index + 1, rec->batch_index + 1 + rec->batch_left);
	putchar('\n');
	/* a full disk or a closed pipe ends it */
	return ferror(stdout) ? -EIO : 0;
}

static void print_header(const struct tarn_log *log, const struct tarn_current *cur)
{
	char uuid[37];

	tarn_uuid_text(uuid, log->seed.uuid);
	printf("# uuid=%s generation=%llu host=%u%s slot=%u area=%llu+%llu used=%llu base_seq=%llu "
	       "next_ino=%llu previous=%llu/%u checkpoint_records=%llu\n",
	       uuid, (unsigned long long)log->seed.generation, log->seed.host,
	       cur->sealed ? " sealed" : "", log->slot, (unsigned long long)log->area_off,
	       (unsigned long long)log->area_len, (unsigned long long)log->units * TARNFS_LINE,
	       (unsigned long long)log->base_seq, (unsigned long long)log->next_ino,
	       (unsigned long long)log->prev_generation, log->prev_host,
	       (unsigned long long)log->ckpt_records);
}

/* Is the log of `is` the one that `was` read? -ESTALE says what it is now. */
static int same_log(const struct source *s, const struct tarn_log *was, struct tarn_current *is,
		    struct tarn_err *err)
{
	struct tarn_super now;
	int ret = tarn_super_reread(&now, s->media, s->dev_size, was->seed.uuid, err);

	/* mkfs takes the old superblock away first */
	if (ret == -ENODATA)
		return tarn_fail(err, ESTALE, "the superblock is gone: another file system is being "
				 "made on the device: umount it");
	if (ret)
		return ret;
	if (memcmp(now.uuid, was->seed.uuid, sizeof(now.uuid)))
		return tarn_fail(err, ESTALE, "another file system was made on the device: umount it");
	ret = tarn_scan(s->media, s->sb, is, NULL, err);
	if (ret)
		return ret;
	if (is->generation != was->seed.generation || is->host != was->seed.host)
		return tarn_fail(err, ESTALE, "generation %llu of host page %u has ended: generation "
				 "%llu of host page %u follows: run it again",
				 (unsigned long long)was->seed.generation, was->seed.host,
				 (unsigned long long)is->generation, is->host);
	return 0;
}

/* What was committed since *pos. */
static int print_more(const struct source *s, struct tarn_log *log, uint32_t *pos,
		      struct filter *filter, struct tarn_err *err)
{
	struct tarn_err first = { "" };
	struct tarn_current cur;
	struct tarn_log now;
	int ret, after;

	ret = same_log(s, log, &cur, err);
	if (!ret)
		ret = tarn_log_open(&now, s->media, s->sb, &cur, err);
	if (!ret && now.units < *pos)
		ret = tarn_fail(err, EUCLEAN, "the log ends at unit %u, and was read to unit %u",
				now.units, *pos);
	if (!ret) {
		now.next_seq = log->next_seq;
		*log = now;
		ret = tarn_log_walk(log, s->media, pos, print_record, filter, err);
	}
	if (ret < 0 && ret != -EINTR) {
		/* the area may have become another log's meanwhile, which is then what happened */
		first = *err;
		after = same_log(s, log, &cur, err);
		if (after != -ESTALE)
			*err = first;
	}
	return ret;
}

static void end(int sig)
{
	(void)sig;
	ended = 1;
}

static void end_by_signals(void)
{
	struct sigaction act = { .sa_handler = end };

	sigaction(SIGINT, &act, NULL);
	sigaction(SIGTERM, &act, NULL);
}

/* Waits for the next look. -EPIPE: nobody reads what is printed any more. */
static int wait_a_while(struct tarn_err *err)
{
	struct pollfd out = { .fd = STDOUT_FILENO };

	if (poll(&out, 1, POLL_MILLISECONDS) > 0 && out.revents & (POLLERR | POLLHUP))
		return tarn_fail(err, EPIPE, "standard output: closed by its reader");
	return 0;
}

static int print_log(const char *path, struct filter *filter, bool follow)
{
	struct tarn_err err = { "" };
	struct tarn_current cur;
	struct tarn_log log;
	struct source s;
	uint32_t pos = TARNFS_LOG_HEADER_UNITS;
	int ret;

	ret = source_open(&s, path, &err);
	if (ret) {
		complain_err(&err, ret, NULL);
		return ret;
	}
	if (follow && !s.mounted) {
		complain("%s: it is not mounted here, and --follow needs a directory of a mount: the "
			 "same without -f prints what there is", shown(path));
		source_close(&s);
		return -EINVAL;
	}
	if (follow)
		end_by_signals();
	ret = tarn_scan(s.media, s.sb, &cur, NULL, &err);
	if (!ret && !cur.generation)
		ret = tarn_fail(&err, EUCLEAN, "no host page names a log");
	if (!ret)
		ret = tarn_log_open(&log, s.media, s.sb, &cur, &err);
	if (ret)
		goto out;
	print_header(&log, &cur);
	ret = tarn_log_walk(&log, s.media, &pos, print_record, filter, &err);
	while (follow && !ret && !ended && !fflush(stdout)) {
		ret = wait_a_while(&err);
		if (!ret && !ended)
			ret = print_more(&s, &log, &pos, filter, &err);
	}
	if (ferror(stdout) || ended)
		ret = 0;	/* the end of the program says it; an interrupt ends it well */
out:
	if (ret < 0)
		complain_err(&err, ret, shown(path));
	source_close(&s);
	return ret < 0 ? ret : 0;
}

int cmd_log(int argc, char **argv)
{
	enum { OPT_INO = 256, OPT_NAME };
	static const struct option longs[] = {
		{ "ino", required_argument, NULL, OPT_INO },
		{ "name", required_argument, NULL, OPT_NAME },
		{ "follow", no_argument, NULL, 'f' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 }
	};
	struct filter filter = { 0 };
	bool follow = false;
	int c;

	while ((c = getopt_long(argc, argv, "fh", longs, NULL)) != -1) {
		switch (c) {
		case OPT_INO:
			if (!parse_number(optarg, 1, UINT64_MAX, &filter.ino))
				break;
			complain("--ino: '%s' is not an inode number", shown(optarg));
			complain_usage();
			return EXIT_USAGE;
		case OPT_NAME:
			filter.name = optarg;
			filter.name_len = strlen(optarg);
			if (!strchr(optarg, '/'))
				break;
			complain("--name: '%s' has a slash, and records have the last component of a path "
				 "alone", shown(optarg));
			complain_usage();
			return EXIT_USAGE;
		case 'f':
			follow = true;
			break;
		case 'h':
			usage();
			return EXIT_OK;
		default:
			complain_usage();
			return EXIT_USAGE;
		}
	}
	if (argc - optind != 1) {
		complain("one directory, device or image is needed");
		complain_usage();
		return EXIT_USAGE;
	}
	return print_log(argv[optind], &filter, follow) ? EXIT_FAILED : EXIT_OK;
}
