// SPDX-License-Identifier: GPL-2.0-only
/*
 * log.c - tarnfs log: the current log as text, a line a record, with the
 * offset on the device where each record stands.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "source.h"

static void usage(void)
{
	printf("Usage: tarnfs log DIR|DEVICE|IMAGE\n"
	       "Prints the current log: its header, then a line a record: offset on the device,\n"
	       "seq (c and an ordinal in the checkpoint), type, and what the record says. Names\n"
	       "are in quotes, with \\xHH for bytes that cannot be printed.\n"
	       "\n"
	       "  -h, --help\n"
	       "\n"
	       "Exit status: 0 printed, 1 could not be read (all good records before are\n"
	       "printed), 2 wrong usage.\n");
}

static void print_node(const struct tarn_rec *rec)
{
	char *name = printable(rec->name ? rec->name : "", rec->name_len), *target;

	printf(" ino=%llu parent=%llu name=\"%s\" mode=%04o uid=%u gid=%u mtime=%lld.%09u",
	       (unsigned long long)rec->ino, (unsigned long long)rec->parent, name, rec->mode,
	       rec->uid, rec->gid, (long long)rec->mtime_sec, rec->mtime_nsec);
	free(name);
	if (rec->type == TARNFS_REC_FILE) {
		printf(" size=%llu", (unsigned long long)rec->size);
		if (rec->extents)
			printf(" extent=%llu+%llu", (unsigned long long)rec->ext_off,
			       (unsigned long long)rec->ext_len);
		if (rec->file_flags & TARNFS_FILE_SHARED_WRITE)
			printf(" shared-write");
	} else if (rec->type == TARNFS_REC_SYMLINK) {
		target = printable(rec->target ? rec->target : "", rec->target_len);
		printf(" target=\"%s\"", target);
		free(target);
	}
}

static int print_record(void *arg, const struct tarn_rec *rec)
{
	const char *type = tarn_rec_type_name(rec->type);
	char uuid[37];

	(void)arg;
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

static int print_log(const char *path)
{
	struct tarn_err err = { "" };
	struct tarn_current cur;
	struct tarn_log log;
	struct source s;
	uint32_t pos = TARNFS_LOG_HEADER_UNITS;
	char uuid[37];
	int ret;

	ret = source_open(&s, path, &err);
	if (ret) {
		complain_err(&err, ret, NULL);
		return ret;
	}
	ret = tarn_scan(s.media, s.sb, &cur, NULL, &err);
	if (!ret && !cur.generation)
		ret = tarn_fail(&err, EUCLEAN, "no host page names a log");
	if (!ret)
		ret = tarn_log_open(&log, s.media, s.sb, &cur, &err);
	if (ret)
		goto out;
	tarn_uuid_text(uuid, s.sb->uuid);
	printf("# uuid=%s generation=%llu host=%u%s slot=%u area=%llu+%llu used=%llu base_seq=%llu "
	       "next_ino=%llu previous=%llu/%u checkpoint_records=%llu\n",
	       uuid, (unsigned long long)log.seed.generation, log.seed.host,
	       cur.sealed ? " sealed" : "", log.slot, (unsigned long long)log.area_off,
	       (unsigned long long)log.area_len, (unsigned long long)log.units * TARNFS_LINE,
	       (unsigned long long)log.base_seq, (unsigned long long)log.next_ino,
	       (unsigned long long)log.prev_generation, log.prev_host,
	       (unsigned long long)log.ckpt_records);
	ret = tarn_log_walk(&log, s.media, &pos, print_record, NULL, &err);
	if (ferror(stdout))
		ret = 0;	/* the end of the program says it */
out:
	if (ret < 0)
		complain_err(&err, ret, shown(path));
	source_close(&s);
	return ret < 0 ? ret : 0;
}

int cmd_log(int argc, char **argv)
{
	static const struct option longs[] = {
		{ "help", no_argument, NULL, 'h' },
		{ 0 }
	};
	int c;

	while ((c = getopt_long(argc, argv, "h", longs, NULL)) != -1) {
		switch (c) {
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
	return print_log(argv[optind]) ? EXIT_FAILED : EXIT_OK;
}
