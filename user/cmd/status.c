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

#include "badranges.h"
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
	       st->state & TARNFS_ST_GONE ? ",DEVICE REMOVED" :
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

struct extent {
	uint64_t off, len;
};

/* What the log says, for media that no kernel here holds. */
struct tally {
	uint64_t seq;
	bool mounted;		/* then only seq */
	bool unknown;		/* a record that this version cannot add up */
	bool cut;		/* the log goes on where it cannot be read */
	uint64_t directories, files, symlinks;
	struct extent *extents;
	size_t count, room;
};

static void add_extent(struct tally *t, uint64_t off, uint64_t len)
{
	if (t->count == t->room) {
		t->room = t->room ? 2 * t->room : 1024;
		t->extents = must_alloc(realloc(t->extents, t->room * sizeof(*t->extents)));
	}
	t->extents[t->count].off = off;
	t->extents[t->count++].len = len;
}

static int tally_record(void *arg, const struct tarn_rec *rec)
{
	struct tally *t = arg;

	if (!(rec->flags & TARNFS_RECORD_CKPT))
		t->seq = rec->seq;
	if (t->mounted)
		return 0;
	switch (rec->type) {
	case TARNFS_REC_DIRECTORY:
		t->directories++;
		break;
	case TARNFS_REC_FILE:
		t->files++;
		if (rec->extents)
			add_extent(t, rec->ext_off, rec->ext_len);
		break;
	case TARNFS_REC_SYMLINK:
		t->symlinks++;
		break;
	case TARNFS_REC_HOST:
	case TARNFS_REC_CHECKPOINT_END:
		break;
	default:
		t->unknown = true;
		break;
	}
	return 0;
}

static int by_offset(const void *a, const void *b)
{
	const struct extent *x = a, *y = b;

	return x->off < y->off ? -1 : x->off > y->off;
}

/* Sizes of the largest hole, and of the largest counted from its first 2 MiB boundary. */
static void largest_holes(const struct tally *t, uint64_t start, uint64_t end, uint64_t *any,
			  uint64_t *huge)
{
	uint64_t at = start, aligned, to;
	size_t i;

	*any = *huge = 0;
	for (i = 0; i <= t->count; i++) {
		to = i < t->count ? t->extents[i].off : end;
		aligned = (at + TARNFS_HUGE - 1) / TARNFS_HUGE * TARNFS_HUGE;
		if (to > at && to - at > *any)
			*any = to - at;
		if (to > aligned && to - aligned > *huge)
			*huge = to - aligned;
		if (i < t->count && t->extents[i].off + t->extents[i].len > at)
			at = t->extents[i].off + t->extents[i].len;
	}
}

static void print_tally(struct tally *t, const struct tarn_super *sb)
{
	uint64_t used = 0, any, huge;
	size_t i;

	if (t->unknown) {
		printf("%-20s%s\n", "files", "not counted: the log has records of a newer tarnfs");
		return;
	}
	if (t->cut) {
		printf("%-20s%s\n", "files", "unknown: the log cannot be read to its end");
		printf("%-20s%s\n", "free", "unknown");
		return;
	}
	line_number("directories", t->directories);
	line_number("files", t->files);
	line_number("symlinks", t->symlinks);
	for (i = 0; i < t->count; i++)
		used += t->extents[i].len;
	/* a damaged log may say anything */
	line_size("free", used < sb->data_end - sb->data_start ?
		  sb->data_end - sb->data_start - used : 0);
	if (t->count)
		qsort(t->extents, t->count, sizeof(*t->extents), by_offset);
	largest_holes(t, sb->data_start, sb->data_end, &any, &huge);
	line_size("largest hole", any);
	line_size("largest 2 MiB hole", huge);
}

/* Whose host page holds the log. */
static void print_master(const struct source *s, const struct tarn_current *cur)
{
	struct tarn_err err = { "" };
	struct tarn_page p;
	char node[49] = "";
	bool away = false;

	if (tarn_page_read(s->media, s->sb, cur->host, &p, &err) == 0) {
		memcpy(node, p.info.node_name, 48);
		away = !p.id.bad && p.id.state != TARNFS_PAGE_CLAIMED;
	}
	printf("%-20shost page %u%s%s%s%s%s\n", "master", cur->host, node[0] ? " (node " : "",
	       node[0] ? shown(node) : "", node[0] ? ")" : "",
	       s->mounted && s->session.claim.nonce && s->session.claim.page == cur->host ?
	       ", this host" : "", away ? ", which has it not mounted" : "");
}

/* *committed: the last that is, 0 when it could not be read */
static int print_log_state(const struct source *s, struct tarn_current *cur, uint64_t *committed,
			   struct tarn_err *err)
{
	uint32_t pos = TARNFS_LOG_HEADER_UNITS;
	struct tally t = { .mounted = s->mounted };
	struct tarn_log log;
	int ret;

	ret = tarn_scan(s->media, s->sb, cur, NULL, err);
	if (ret)
		return ret;
	if (!cur->generation)
		return tarn_fail(err, EUCLEAN, "no host page names a log");
	print_master(s, cur);
	printf("%-20s%u\n", "log of host page", cur->host);
	printf("%-20s%llu%s\n", "generation", (unsigned long long)cur->generation,
	       cur->sealed ? ", sealed by a takeover" : "");
	ret = tarn_log_open(&log, s->media, s->sb, cur, err);
	if (ret)
		return ret;
	t.seq = log.base_seq;
	ret = tarn_log_walk(&log, s->media, &pos, tally_record, &t, err);
	*committed = t.seq;
	if (s->mounted)
		printf("%-20s%llu of generation %llu\n", "seq here",
		       (unsigned long long)s->session.st.seq,
		       (unsigned long long)s->session.st.generation);
	printf("%-20s%llu%s\n", "seq committed", (unsigned long long)t.seq,
	       ret < 0 ? " and more that cannot be read" : "");
	t.cut = ret < 0;
	if (!s->mounted)
		print_tally(&t, s->sb);
	free(t.extents);
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
	struct badranges *bad;
	uint64_t committed = 0;
	const char *why;
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
	/* after the log was read: what failed under that is in it */
	bad = badranges_get(&s, &why);
	if (bad)
		badranges_print(bad, &s, &cur);
	else
		printf("%-20s%s\n", "bad ranges", why);
	badranges_free(bad);
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
