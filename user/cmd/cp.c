// SPDX-License-Identifier: GPL-2.0-only
/*
 * cp.c - tarnfs cp: files and trees into a tarnfs. Options, signals, the
 * progress line, and what is said before and after; cp.h says where the rest is.
 *
 * The sources are walked twice. The first pass changes nothing: it counts what
 * there is to do, so that a log that is too small is known before any byte is
 * copied. The second fills batches; in each the data is in memory before one
 * commit gives all its files their names.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "cp.h"

#define THREADS		4	/* unless -j says more */
#define THREADS_MAX	64	/* each has 3 descriptors, of 1024 that a process may have */

_Atomic int cp_signal;

static void usage(void)
{
	printf("Usage: tarnfs cp [options] SOURCE... DEST\n"
	       "Copies files, and with -r trees, into a tarnfs on its master. DEST is a directory\n"
	       "there or, for one source, a new name. Modes and mtimes are kept. No host sees a\n"
	       "file before all of its bytes are there.\n"
	       "\n"
	       "  -r, -R, --recursive\n"
	       "                      copy directories with all that is in them; symbolic links as\n"
	       "                      links (without -r, one named on the command line is followed;\n"
	       "                      with a slash behind it, the directory that it leads to)\n"
	       "  -T, --no-target-directory\n"
	       "                      DEST is the name of the copy, also when that directory exists\n"
	       "  -p, --preserve      keep owners too; without it the copies belong to the caller\n"
	       "  -j, --jobs N        threads that copy (1 to %u; the processors, at most %u)\n"
	       "  -n, --dry-run       copy nothing: say what would be done, and which space and\n"
	       "                      log it takes\n"
	       "  -v, --verbose       print each name once it is there\n"
	       "      --shared-write  clients may write into the files as well\n"
	       "  -h, --help\n"
	       "\n"
	       "A file that is there with equal size and mtime is skipped, so the same command\n"
	       "goes on where one was interrupted (with -T where DEST was a new name); any other\n"
	       "name that exists is an error for that file, and a directory that exists is merged\n"
	       "into. What has no space or log for all of it is not begun. A source that changes\n"
	       "meanwhile is not copied, and devices, sockets and fifos never are. The rest is\n"
	       "copied all the same.\n"
	       "Exit status: 0 everything is there, 1 something is not, 2 wrong usage; 130 or 143\n"
	       "after SIGINT or SIGTERM: what was copied whole is there.\n",
	       THREADS_MAX, THREADS);
}

/* ---- signals ---- */

static void note_signal(int number)
{
	if (atomic_exchange(&cp_signal, number)) {
		signal(number, SIG_DFL);
		raise(number);	/* blocked in here: it comes on return */
	}
}

/* The first one ends it in order, a second one at once: nothing half is visible then either. */
static void catch_signals(void)
{
	static const int numbers[] = { SIGINT, SIGTERM };
	struct sigaction new = { .sa_handler = note_signal, .sa_flags = SA_RESETHAND | SA_RESTART };
	struct sigaction old;
	size_t i;

	for (i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		if (!sigaction(numbers[i], NULL, &old) && old.sa_handler != SIG_IGN)
			sigaction(numbers[i], &new, NULL);
}

/* ---- the progress line ---- */

void cp_progress_clear(struct copy *c)
{
	if (c->drawn)
		fputs("\r\033[K", stderr);
	c->drawn = false;
}

void cp_progress(struct copy *c)
{
	uint64_t files = atomic_load(&c->files_read), bytes = atomic_load(&c->bytes_read);
	char done[SIZE_TEXT], all[SIZE_TEXT], rate_text[SIZE_TEXT];
	struct timespec now;
	double seconds, rate;

	if (!c->progress)
		return;
	clock_gettime(CLOCK_MONOTONIC, &now);
	seconds = (double)(now.tv_sec - c->start.tv_sec) +
		  (double)(now.tv_nsec - c->start.tv_nsec) / 1e9;
	rate = seconds > 0 ? (double)bytes / seconds : 0;
	fflush(stdout);
	fprintf(stderr, "\r%llu of %llu files, %s of %s, %s/s", (unsigned long long)files,
		(unsigned long long)c->plan.files, size_text(done, bytes),
		size_text(all, c->plan.bytes), size_text(rate_text, (uint64_t)rate));
	if (rate >= 1 && bytes <= c->plan.bytes) {
		uint64_t eta = (uint64_t)((double)(c->plan.bytes - bytes) / rate + 0.5);

		fprintf(stderr, ", ETA %llu:%02llu:%02llu", (unsigned long long)(eta / 3600),
			(unsigned long long)(eta / 60 % 60), (unsigned long long)(eta % 60));
	}
	fputs("\033[K", stderr);
	fflush(stderr);
	c->drawn = true;
}

/* ---- options ---- */

static unsigned int default_threads(void)
{
	cpu_set_t set;
	int n;

	if (sched_getaffinity(0, sizeof(set), &set))
		return THREADS;
	n = CPU_COUNT(&set);
	return n < 1 ? 1 : n < THREADS ? (unsigned int)n : THREADS;
}

/* -1 go on, else the exit code */
static int parse(struct copy *c, int argc, char **argv)
{
	enum { OPT_SHARED = 256 };
	static const struct option longs[] = {
		{ "recursive", no_argument, NULL, 'r' },
		{ "no-target-directory", no_argument, NULL, 'T' },
		{ "preserve", no_argument, NULL, 'p' },
		{ "jobs", required_argument, NULL, 'j' },
		{ "dry-run", no_argument, NULL, 'n' },
		{ "verbose", no_argument, NULL, 'v' },
		{ "shared-write", no_argument, NULL, OPT_SHARED },
		{ "help", no_argument, NULL, 'h' },
		{ 0 }
	};
	uint64_t threads = default_threads();
	int o;

	while ((o = getopt_long(argc, argv, "rRTpj:nvh", longs, NULL)) != -1) {
		switch (o) {
		case 'r':
		case 'R':
			c->recursive = true;
			break;
		case 'T':
			c->exact = true;
			break;
		case 'p':
			c->keep_owner = true;
			break;
		case 'j':
			if (!parse_number(optarg, 1, THREADS_MAX, &threads))
				break;
			complain("--jobs: '%s' is not a number from 1 to %u", shown(optarg),
				 THREADS_MAX);
			complain_usage();
			return EXIT_USAGE;
		case 'n':
			c->dry_run = true;
			break;
		case 'v':
			c->verbose = true;
			break;
		case OPT_SHARED:
			c->shared_write = true;
			break;
		case 'h':
			usage();
			return EXIT_OK;
		default:
			complain_usage();
			return EXIT_USAGE;
		}
	}
	c->threads = (unsigned int)threads;
	if (argc - optind < 2) {
		complain("a source and a destination are needed");
		complain_usage();
		return EXIT_USAGE;
	}
	if (c->exact && argc - optind > 2) {
		complain("-T: DEST is the name of one copy, and there are %d sources",
			 argc - optind - 1);
		complain_usage();
		return EXIT_USAGE;
	}
	return -1;
}

/* ---- what is said before and after ---- */

static void print_totals(const struct totals *t)
{
	printf("%llu files, %llu directories, %llu symlinks, %llu bytes",
	       (unsigned long long)t->files, (unsigned long long)t->directories,
	       (unsigned long long)t->symlinks, (unsigned long long)t->bytes);
	if (t->skipped)
		printf(", %llu skipped", (unsigned long long)t->skipped);
	if (t->differing)
		printf(", %llu there with another owner, mode or shared-write flag",
		       (unsigned long long)t->differing);
	if (t->errors)
		printf(", %llu errors", (unsigned long long)t->errors);
	putchar('\n');
}

/* Is there room for what the first pass found? If not nothing begins: no name can be taken back. */
static int check_room(struct copy *c)
{
	struct tarn_session *s = &c->session;
	struct totals *t = &c->plan;
	struct tarn_err err = { "" };
	struct tarnfs_status st;
	uint64_t left = 0;
	int ret, room;

	ret = s->kernel->ops->status(s->kernel, &st);
	if (ret) {
		complain("STATUS: %s", strerror(-ret));
		return ret;
	}
	room = tarn_log_left(s, t->log, &left, &err);
	if (room && room != -ENOSPC) {
		complain_err(&err, room, NULL);
		return room;
	}
	if (c->dry_run) {
		printf("space: %llu bytes needed, %llu free, %llu in one piece\n",
		       (unsigned long long)t->space, (unsigned long long)st.free_bytes,
		       (unsigned long long)st.largest_free);
		printf("log: %llu bytes needed, %llu left\n", (unsigned long long)t->log,
		       (unsigned long long)left);
	}
	if (room)
		complain("%s; nothing was copied", err.text);
	if (t->space > st.free_bytes || t->largest > st.largest_free ||
	    t->largest_huge > st.largest_free_huge) {
		complain("no space for all of it: %llu bytes needed, the largest file %llu; %llu are "
			 "free, %llu in one piece, %llu from a multiple of 2 MiB on (where files "
			 "of that size begin); nothing was copied",
			 (unsigned long long)t->space, (unsigned long long)t->largest,
			 (unsigned long long)st.free_bytes, (unsigned long long)st.largest_free,
			 (unsigned long long)st.largest_free_huge);
		room = -ENOSPC;
	}
	return room;
}

static void print_notes(const struct copy *c)
{
	const struct totals *t = c->dry_run ? &c->plan : &c->done;

	if (t->linked)
		complain("note: %llu files have several names (hard links) in the source; each copied "
			 "name is a file of its own", (unsigned long long)t->linked);
	if (t->xattrs)
		complain("note: %llu files and directories have extended attributes in the source, "
			 "%llu of them ACLs; those were not copied", (unsigned long long)t->xattrs,
			 (unsigned long long)t->acls);
	if (c->linked_sources)
		complain("note: %s is a symbolic link to a directory%s, copied as a link: with a slash "
			 "behind its name what is in the directory is copied", shown(c->linked_source),
			 c->linked_sources > 1 ? ", as other sources are" : "");
	if (c->cut_short)
		complain("ended by %s: what was copied whole is there, and the same command%s copies "
			 "the rest", atomic_load(&cp_signal) == SIGINT ? "SIGINT" : "SIGTERM",
			 c->renamed && !c->exact ? " with -T" : "");
}

static int run(struct copy *c, char **sources, int count, const char *dest)
{
	/* the plan, which is silent unless it is all there is */
	c->planning = true;
	c->quiet = !c->dry_run;
	cp_walk(c, sources, count, dest);
	cp_free_dirs(c);
	c->plan = c->done;
	memset(&c->done, 0, sizeof(c->done));
	/* of a silent pass these are the destination's, and for all sources */
	if (c->quiet)
		c->done.errors = c->plan.errors;
	if (c->cut_short || c->done.errors)
		return EXIT_FAILED;
	if (check_room(c)) {
		c->plan.errors++;
		c->done.errors++;
		return EXIT_FAILED;
	}
	if (c->dry_run)
		return c->plan.errors ? EXIT_FAILED : EXIT_OK;

	c->planning = false;
	c->quiet = false;
	c->progress = isatty(STDERR_FILENO) == 1;
	clock_gettime(CLOCK_MONOTONIC, &c->start);
	if (cp_pool_start(c))
		c->done.errors++;
	else
		cp_walk(c, sources, count, dest);
	cp_progress_clear(c);
	cp_pool_stop(c);
	cp_free_dirs(c);
	return c->done.errors ? EXIT_FAILED : EXIT_OK;
}

/* Was a copy out of a tarnfs meant? */
static void explain_way(char **sources, int count)
{
	struct statfs fs;

	while (count--)
		if (statfs(sources[count], &fs) == 0 &&
		    (uint32_t)fs.f_type == TARNFS_STATFS_MAGIC) {
			complain("it copies into a tarnfs; out of one, plain cp does");
			return;
		}
}

int cmd_cp(int argc, char **argv)
{
	struct copy c = { 0 };
	int code;

	code = parse(&c, argc, argv);
	if (code >= 0)
		return code;
	code = open_master(&c.session, argv[argc - 1]);
	if (code == -EMEDIUMTYPE)
		explain_way(argv + optind, argc - 1 - optind);
	if (code)
		return EXIT_FAILED;
	c.entries = must_alloc(calloc(BATCH_FILES, sizeof(*c.entries)));
	c.news = must_alloc(calloc(BATCH_FILES, sizeof(*c.news)));
	catch_signals();
	code = run(&c, argv + optind, argc - 1 - optind, argv[argc - 1]);
	tarn_session_close(&c.session);
	print_notes(&c);
	if (c.dry_run)
		printf("would copy ");
	print_totals(c.dry_run ? &c.plan : &c.done);
	free(c.above);
	free(c.shared);
	free(c.bad);
	free(c.entries);
	free(c.news);
	return c.cut_short ? 128 + atomic_load(&cp_signal) : code;
}
