// SPDX-License-Identifier: GPL-2.0-only
/*
 * status.c - tarnfs status: what this kernel holds, what the media says, and
 * who the hosts are. Of a device or image that is not mounted here, the media
 * alone.
 */
#define _GNU_SOURCE
#include <endian.h>
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "commands.h"
#include "source.h"

static void usage(void)
{
	printf("Usage: tarnfs status DIR|DEVICE|IMAGE\n"
	       "Prints role, position here and in memory, files, space, and the hosts. Of what is\n"
	       "not mounted here, only what stands in memory.\n"
	       "\n"
	       "  -h, --help\n"
	       "\n"
	       "Exit status: 0 all is well, 1 the state could not be read or is shut down,\n"
	       "2 wrong usage.\n");
}

static void line_size(const char *what, uint64_t bytes)
{
	char text[SIZE_TEXT];

	printf("%-20s%llu (%s)\n", what, (unsigned long long)bytes, size_text(text, bytes));
}

static void line_number(const char *what, uint64_t n)
{
	printf("%-20s%llu\n", what, (unsigned long long)n);
}

static void print_kernel(const struct tarnfs_status *st)
{
	printf("%-20s%s\n", "role", st->role == TARNFS_ROLE_MASTER ? "master" : "client");
	if (st->page != 0xffff)
		printf("%-20s%u\n", "host page", st->page);
	printf("%-20s%016llx\n", "nonce", (unsigned long long)st->nonce);
	printf("%-20s%s%s%s%s%s\n", "mounted", st->state & TARNFS_ST_RDONLY ? "ro" : "rw",
	       st->state & TARNFS_ST_COHERENT ? ",coherent" : "",
	       st->state & TARNFS_ST_SYNC ? ",map_sync" : "",
	       st->state & TARNFS_ST_ATTACHED ? "" : ",not attached",
	       st->state & TARNFS_ST_SHUTDOWN ? ",SHUT DOWN" : "");
	line_number("directories", st->directories);
	line_number("files", st->files);
	line_number("symlinks", st->symlinks);
	line_size("data", st->data_end - st->data_start);
	line_size("free", st->free_bytes);
	line_size("largest hole", st->largest_free);
	line_size("largest 2 MiB hole", st->largest_free_huge);
	if (st->reserved_bytes)
		line_size("reserved", st->reserved_bytes);
	if (st->limbo_bytes)
		line_size("limbo", st->limbo_bytes);
}

static int last_seq(void *arg, const struct tarn_rec *rec)
{
	if (!(rec->flags & TARNFS_RECORD_CKPT))
		*(uint64_t *)arg = rec->seq;
	return 0;
}

/* *committed: the last that is, 0 when it could not be read */
static int print_log_state(const struct source *s, struct tarn_current *cur, uint64_t *committed,
			   struct tarn_err *err)
{
	uint32_t pos = TARNFS_LOG_HEADER_UNITS;
	struct tarn_log log;
	uint64_t seq;
	int ret;

	ret = tarn_scan(s->media, s->sb, cur, NULL, err);
	if (ret)
		return ret;
	if (!cur->generation)
		return tarn_fail(err, EUCLEAN, "no host page names a log");
	printf("%-20s%u\n", "log of host page", cur->host);
	printf("%-20s%llu%s\n", "generation", (unsigned long long)cur->generation,
	       cur->sealed ? ", sealed by a takeover" : "");
	ret = tarn_log_open(&log, s->media, s->sb, cur, err);
	if (ret)
		return ret;
	seq = log.base_seq;
	ret = tarn_log_walk(&log, s->media, &pos, last_seq, &seq, err);
	*committed = seq;
	if (s->mounted)
		printf("%-20s%llu of generation %llu\n", "seq here",
		       (unsigned long long)s->session.st.seq,
		       (unsigned long long)s->session.st.generation);
	printf("%-20s%llu%s\n", "seq committed", (unsigned long long)seq,
	       ret < 0 ? " and more that cannot be read" : "");
	printf("%-20s%llu of %llu bytes\n", "log used", (unsigned long long)log.units * TARNFS_LINE,
	       (unsigned long long)log.area_len);
	return ret < 0 ? ret : 0;
}

static const char *state_text(const struct tarn_page *p, bool own)
{
	if (p->id.bad)
		return "UNREADABLE";
	if (p->id.state == TARNFS_PAGE_CLAIMED)
		return own ? "this host" : "claimed";
	return p->id.state == TARNFS_PAGE_BOUND ? "bound" : "free";
}

static void print_hosts(const struct source *s, const struct tarn_current *cur, uint64_t committed)
{
	struct tarn_err err = { "" };
	struct tarn_page p;
	char node[49], uuid[37], when[32];
	uint32_t i, free_pages = 0;
	struct tm tm;
	time_t t;

	printf("\npage  state       log     applied     node                 last published (its clock)  uuid\n");
	for (i = 0; i < s->sb->hosts; i++) {
		bool own = s->mounted && s->session.claim.nonce && i == s->session.claim.page;
		const char *role = "-";
		int ret = tarn_page_read(s->media, s->sb, (uint16_t)i, &p, &err);

		if (ret && ret != -EUCLEAN) {
			printf("%4u  %s\n", i, err.text);
			continue;
		}
		if (!p.id.bad && p.id.state == TARNFS_PAGE_FREE && p.control.state == TARNFS_CONTROL_NONE) {
			free_pages++;
			continue;
		}
		if (p.control.bad)
			role = "BAD";
		else if (cur->generation && cur->host == i)
			role = "current";
		else if (p.control.state == TARNFS_CONTROL_SEALING)
			role = "sealing";
		else if (p.control.state == TARNFS_CONTROL_ACTIVE)
			role = "old";
		memcpy(node, p.info.node_name, 48);
		node[48] = '\0';
		t = (time_t)le64toh(p.info.seconds);
		if (!t || !gmtime_r(&t, &tm) || !strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S", &tm))
			strcpy(when, "-");
		tarn_uuid_text(uuid, p.id.host_uuid);
		printf("%4u  %-10s  %-7s ", i, state_text(&p, own), role);
		/* the master applies what it commits, and publishes at mount and logplay alone */
		if (cur->generation && cur->host == i && committed > p.status.applied_seq)
			printf("%10llu", (unsigned long long)committed);
		else if (p.status.valid)
			printf("%10llu", (unsigned long long)p.status.applied_seq);
		else
			printf("%10s", "-");
		printf("  %-20s %-27s %s\n", node[0] ? shown(node) : "-", when, uuid);
	}
	printf("%u of %u host pages are free\n", free_pages, s->sb->hosts);
}

static int print_status(const char *path)
{
	const struct tarn_cacheops *ops = tarn_cacheops();
	struct tarn_err err = { "" };
	struct tarn_current cur = { 0 };
	uint64_t committed = 0;
	struct source s;
	char uuid[37];
	int ret;

	ret = source_open(&s, path, &err);
	if (ret) {
		complain_err(&err, ret, NULL);
		return ret;
	}
	tarn_uuid_text(uuid, s.sb->uuid);
	printf("%-20s%s\n", "uuid", uuid);
	if (s.sb->label[0])
		printf("%-20s%s\n", "label", shown(s.sb->label));
	line_size("device", s.dev_size);
	if (s.mounted) {
		print_kernel(&s.session.st);
	} else {
		printf("%-20s%s\n", "mounted", "not on this host");
		line_size("data", s.sb->data_end - s.sb->data_start);
	}
	printf("%-20s%s to write back, %s to invalidate\n", "cache instructions",
	       ops->writeback_name, ops->invalidate_name);
	ret = print_log_state(&s, &cur, &committed, &err);
	print_hosts(&s, &cur, committed);
	if (ret)
		complain_err(&err, ret, shown(path));
	source_close(&s);
	return ret;
}

int cmd_status(int argc, char **argv)
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
	return print_status(argv[optind]) ? EXIT_FAILED : EXIT_OK;
}
