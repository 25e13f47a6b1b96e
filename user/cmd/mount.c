// SPDX-License-Identifier: GPL-2.0-only
/*
 * mount.tarnfs - the helper that mount(8) runs for file systems of type
 * tarnfs: /sbin/mount.tarnfs DEVICE DIR [-sfnv] [-N namespace] [-o options].
 *
 * The mount is made detached, this host takes its host page, everything
 * committed is replayed, and only then does the mount appear on DIR. When any
 * of that fails nothing is mounted, and a page taken meanwhile is let go.
 *
 * Exit codes as in mount(8): 0 mounted; 1 wrong usage or no permission;
 * 2 system error; 32 the mount failed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common.h"

enum {
	MOUNT_OK	= 0,
	MOUNT_USAGE	= 1,
	MOUNT_SYSTEM	= 2,
	MOUNT_FAILED	= 32,
};

#define SETTLE_SECONDS	2	/* protocol.md section 5: the one timing assumption */

struct options {
	const char *device, *dir, *namespace;
	bool verbose, fake, sloppy;
	bool ro, remount, coherent, dax, dax_always, nofail, attach;
	int host;			/* -1: not given */
	int role;			/* enum tarnfs_role, -1: not given */
	uint64_t attr_set, attr_clear;	/* of mount_setattr(2) */
};

static void usage(void)
{
	printf("Usage: mount.tarnfs DEVICE DIR [-sfnv] [-N namespace] [-o options]\n"
	       "Usually called by mount(8): mount -t tarnfs DEVICE DIR\n"
	       "\n"
	       "  -o options   comma-separated; those of tarnfs:\n"
	       "       ro, rw            read-only, read-write (a host page is taken either way)\n"
	       "       host=N            take host page N; the word that N belongs to this host alone\n"
	       "       role=master|client  an assertion: refuse to mount as anything else\n"
	       "       coherent          the hardware keeps all hosts' caches coherent\n"
	       "       dax, dax=always   accepted; a tarnfs is always DAX\n"
	       "       attach            a devdax: tarnfs device attach before it, if need be\n"
	       "     and of mount(8): nosuid nodev noexec noatime nodiratime relatime strictatime\n"
	       "       nosymfollow remount nofail _netdev user auto defaults x-* comment=...\n"
	       "  -s           ignore unknown options\n"
	       "  -f           do all but the mount\n"
	       "  -n           ignored: no mount table is written\n"
	       "  -v           say what is done\n"
	       "  -N NS        mount in that mount namespace (a path, or a process number)\n"
	       "  -h, --help; -V, --version\n"
	       "\n"
	       "Exit status: 0 mounted, 1 wrong usage or no permission, 2 system error,\n"
	       "32 the mount failed (nothing is mounted then).\n");
}

/* Options of mount(8) that are flags of one mount. */
static const struct {
	const char *name;
	uint64_t set, clear;
} attr_options[] = {
	{ "nosuid", MOUNT_ATTR_NOSUID, 0 },
	{ "suid", 0, MOUNT_ATTR_NOSUID },
	{ "nodev", MOUNT_ATTR_NODEV, 0 },
	{ "dev", 0, MOUNT_ATTR_NODEV },
	{ "noexec", MOUNT_ATTR_NOEXEC, 0 },
	{ "exec", 0, MOUNT_ATTR_NOEXEC },
	{ "nodiratime", MOUNT_ATTR_NODIRATIME, 0 },
	{ "diratime", 0, MOUNT_ATTR_NODIRATIME },
	{ "nosymfollow", MOUNT_ATTR_NOSYMFOLLOW, 0 },
	{ "symfollow", 0, MOUNT_ATTR_NOSYMFOLLOW },
	/* one of a set: the old one goes */
	{ "noatime", MOUNT_ATTR_NOATIME, MOUNT_ATTR__ATIME },
	{ "strictatime", MOUNT_ATTR_STRICTATIME, MOUNT_ATTR__ATIME },
	{ "relatime", MOUNT_ATTR_RELATIME, MOUNT_ATTR__ATIME },
	{ "atime", MOUNT_ATTR_RELATIME, MOUNT_ATTR__ATIME },
	{ "norelatime", MOUNT_ATTR_RELATIME, MOUNT_ATTR__ATIME },
};

/* Options for mount(8) itself, or without meaning for a file system without atime and quota. */
static const char *const ignored_options[] = {
	"auto", "noauto", "user", "nouser", "users", "nousers", "owner", "noowner", "group",
	"nogroup", "defaults", "_netdev", "async", "iversion", "noiversion", "nolazytime",
	"silent", "loud",
};

static void set_attr(struct options *o, uint64_t set, uint64_t clear)
{
	o->attr_set = (o->attr_set & ~clear) | set;
	o->attr_clear = (o->attr_clear & ~set) | clear;
}

static bool one_of(const char *word, const char *const *list, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		if (strcmp(word, list[i]) == 0)
			return true;
	return false;
}

static bool generic_option(struct options *o, const char *word)
{
	size_t i;

	for (i = 0; i < sizeof(attr_options) / sizeof(attr_options[0]); i++) {
		if (strcmp(word, attr_options[i].name) == 0) {
			set_attr(o, attr_options[i].set, attr_options[i].clear);
			return true;
		}
	}
	/* these imply what mount(8) says they imply; an explicit suid after them undoes it */
	if (strcmp(word, "user") == 0 || strcmp(word, "users") == 0 || strncmp(word, "user=", 5) == 0)
		set_attr(o, MOUNT_ATTR_NOEXEC | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, 0);
	else if (strcmp(word, "owner") == 0 || strcmp(word, "group") == 0)
		set_attr(o, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, 0);
	return one_of(word, ignored_options, sizeof(ignored_options) / sizeof(ignored_options[0])) ||
	       strncmp(word, "user=", 5) == 0 || strncmp(word, "x-", 2) == 0 ||
	       strncmp(word, "X-", 2) == 0 || strncmp(word, "comment=", 8) == 0;
}

static int parse_option(struct options *o, const char *word)
{
	const char *dev = shown(o->device), *dir = shown(o->dir);
	uint64_t n;

	/* of many lines in fstab the message tells which */
	if (!*word || generic_option(o, word))
		return 0;
	if (strcmp(word, "ro") == 0) {
		o->ro = true;
	} else if (strcmp(word, "rw") == 0) {
		o->ro = false;
	} else if (strcmp(word, "remount") == 0) {
		o->remount = true;
	} else if (strcmp(word, "nofail") == 0) {
		o->nofail = true;
	} else if (strcmp(word, "coherent") == 0) {
		o->coherent = true;
	} else if (strcmp(word, "dax") == 0) {
		o->dax = true;
	} else if (strcmp(word, "dax=always") == 0) {
		o->dax_always = true;
	} else if (strncmp(word, "dax=", 4) == 0) {
		complain("%s on %s: option '%s': a tarnfs is always DAX: only dax and dax=always can be given",
			 dev, dir, shown(word));
		return -EINVAL;
	} else if (strcmp(word, "role=master") == 0) {
		o->role = TARNFS_ROLE_MASTER;
	} else if (strcmp(word, "role=client") == 0) {
		o->role = TARNFS_ROLE_CLIENT;
	} else if (strncmp(word, "role=", 5) == 0) {
		complain("%s on %s: option '%s': role=master or role=client", dev, dir, shown(word));
		return -EINVAL;
	} else if (strncmp(word, "host=", 5) == 0) {
		if (parse_number(word + 5, 0, TARNFS_HOSTS_MAX - 1, &n)) {
			complain("%s on %s: option '%s': host=N with N from 0 to %u", dev, dir, shown(word),
				 TARNFS_HOSTS_MAX - 1);
			return -EINVAL;
		}
		o->host = (int)n;
	} else if (strcmp(word, "attach") == 0) {
		o->attach = true;
	} else if (strncmp(word, "fenced=", 7) == 0) {
		complain("%s on %s: option '%s' is not built yet", dev, dir, shown(word));
		return -EINVAL;
	} else if (!o->sloppy) {
		complain("%s on %s: option '%s' is unknown", dev, dir, shown(word));
		return -EINVAL;
	}
	return 0;
}

/* Options are parsed last, since -s may follow -o. 0 go on, 1 stop with success. */
static int parse(struct options *o, int argc, char **argv)
{
	static const struct option longs[] = {
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'V' },
		{ 0 }
	};
	char *list = NULL, *next, *word;
	int c, ret = 0;

	while ((c = getopt_long(argc, argv, "sfnvN:o:t:hV", longs, NULL)) != -1) {
		switch (c) {
		case 's':
			o->sloppy = true;
			break;
		case 'f':
			o->fake = true;
			break;
		case 'n':
		case 't':	/* type.subtype: there is one type */
			break;
		case 'v':
			o->verbose = true;
			break;
		case 'N':
			o->namespace = optarg;
			break;
		case 'o':
			next = list;
			list = next ? must_format("%s,%s", next, optarg) : must_format("%s", optarg);
			free(next);
			break;
		case 'h':
			usage();
			return 1;
		case 'V':
			printf("mount.tarnfs %s, interface %u, media format %u\n", TARN_VERSION,
			       TARNFS_INTERFACE, TARNFS_FORMAT_VERSION);
			return 1;
		default:
			complain_usage();
			return -EINVAL;
		}
	}
	if (argc - optind != 2) {
		complain("a device and a directory are needed, %d were given", argc - optind);
		complain_usage();
		return -EINVAL;
	}
	o->device = argv[optind];
	o->dir = argv[optind + 1];
	next = list;
	while (!ret && (word = strsep(&next, ",")) != NULL)
		ret = parse_option(o, word);
	free(list);
	if (ret)
		complain_usage();
	return ret;
}

static void say(const struct options *o, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

static void say(const struct options *o, const char *fmt, ...)
{
	va_list ap;

	if (!o->verbose)
		return;
	printf("mount.tarnfs: ");
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
	fflush(stdout);
}

/*
 * What only a new mount can change. mount(8) repeats the options of fstab and of the mount
 * that is there, so those that it has already are no change.
 */
static int refuse_changes(const struct options *o)
{
	const char *word = NULL;
	struct tarn_err err = { "" };
	struct tarn_session s;
	int ret;

	if (!o->coherent && o->host < 0 && o->role < 0)
		return 0;
	ret = tarn_session_open(&s, o->dir, 0, &err);
	if (ret) {
		complain_err(&err, ret, NULL);
		return ret;
	}
	if (o->coherent && !(s.st.state & TARNFS_ST_COHERENT))
		word = "coherent";
	else if (o->host >= 0 && s.claim.nonce && s.claim.page != o->host)
		word = "host=";
	else if (o->role >= 0 && s.st.role != (uint32_t)o->role)
		word = "role=";
	tarn_session_close(&s);
	if (!word)
		return 0;
	complain("%s: option '%s': remount changes ro and rw alone: umount and mount again",
		 shown(o->dir), word);
	return -EINVAL;
}

/* Only ro and rw (and flags of the mount) can change. */
static int remount(const struct options *o)
{
	static const struct {
		uint64_t attr;
		unsigned long flag;
	} map[] = {
		{ MOUNT_ATTR_NOSUID, MS_NOSUID },
		{ MOUNT_ATTR_NODEV, MS_NODEV },
		{ MOUNT_ATTR_NOEXEC, MS_NOEXEC },
		{ MOUNT_ATTR_NODIRATIME, MS_NODIRATIME },
		{ MOUNT_ATTR_NOSYMFOLLOW, 256 /* MS_NOSYMFOLLOW, Linux 5.10 */ },
	};
	unsigned long flags = MS_REMOUNT | (o->ro ? MS_RDONLY : 0);
	size_t i;

	if (refuse_changes(o))
		return MOUNT_FAILED;
	for (i = 0; i < sizeof(map) / sizeof(map[0]); i++)
		if (o->attr_set & map[i].attr)
			flags |= map[i].flag;
	if ((o->attr_set & MOUNT_ATTR__ATIME) == MOUNT_ATTR_NOATIME)
		flags |= MS_NOATIME;
	else if ((o->attr_set & MOUNT_ATTR__ATIME) == MOUNT_ATTR_STRICTATIME)
		flags |= MS_STRICTATIME;
	if (mount(o->device, o->dir, "tarnfs", flags, NULL)) {
		complain("%s: remount %s: %s", shown(o->dir), o->ro ? "ro" : "rw", strerror(errno));
		return MOUNT_FAILED;
	}
	return MOUNT_OK;
}

/*
 * What this host will be. The page that holds the current log makes the
 * master; before the first mount of an image without owner there is no log of
 * a live host, which the library decides at the claim.
 */
static int check_role(const struct options *o, struct tarn_session *s, uint16_t page,
		      struct tarn_err *err)
{
	struct tarn_current cur;
	int ret;

	if (o->role < 0)
		return 0;
	ret = tarn_scan(s->media, &s->sb, &cur, NULL, err);
	if (ret)
		return ret;
	if (o->role == TARNFS_ROLE_MASTER && cur.host != page)
		return tarn_fail(err, EROFS, "role=master was asked for, but the log is that of host "
				 "page %u and this host would take page %u: it would be a client; "
				 "mount without role=, or with role=client", cur.host, page);
	if (o->role == TARNFS_ROLE_CLIENT && cur.host == page)
		return tarn_fail(err, EINVAL, "role=client was asked for, but the log is in host page "
				 "%u, which is this host's: it would be the master; mount without "
				 "role=, or with role=master", page);
	return 0;
}

struct taking {
	const struct options *o;
	struct tarn_session *s;
	struct tarn_host_id id;
	uint16_t warned;	/* of this page, 0xffff: of none */
};

/* Page is what this host would take: is it a clone of the one that has it? */
static int ready(void *arg, uint16_t page, struct tarn_err *err)
{
	struct tarn_media_range own[2];
	struct taking *t = arg;
	char node[49];
	int ret = check_role(t->o, t->s, page, err);

	if (ret)
		return ret;
	if (page != t->warned &&
	    tarn_claim_other_node(t->s->media, &t->s->sb, &t->id, page, node)) {
		t->warned = page;
		complain("warning: host page %u was claimed by node %s under this host's identity, and "
			 "this is node %s. If that host still runs, the machine-id is shared, and both "
			 "will damage the file system: umount here at once, and renew the machine-id "
			 "of one of them (rm /etc/machine-id; systemd-machine-id-setup)", page,
			 shown(node), shown(t->id.node_name));
	}
	host_page_ranges(&t->s->sb, page, own);
	return tarn_session_writable(t->s, own, 2, err);
}

static void written(void *arg, uint16_t page, bool again, bool settle)
{
	struct taking *t = arg;

	say(t->o, "host page %u %s", page, again ? "is this host's already" : "taken");
	if (!settle)
		return;
	say(t->o, "waiting %d s in case another host takes page %u at this very moment "
	    "(the first time only; -o host=N avoids it)", SETTLE_SECONDS, page);
	sleep(SETTLE_SECONDS);
}

static void lost(void *arg, uint16_t page)
{
	struct taking *t = arg;

	say(t->o, "another host took page %u", page);
}

static const struct tarn_claim_steps steps = { .ready = ready, .written = written, .lost = lost };

/* Chooses a page and claims it. */
static int take_page(const struct options *o, struct tarn_session *s, struct tarn_err *err)
{
	struct taking t = { .o = o, .s = s, .warned = 0xffff };
	int ret = tarn_host_id(&t.id, s->sb.uuid, err);

	if (ret)
		return ret;
	return tarn_claim_take(&s->media, &s->sb, &t.id, o->host >= 0 ? o->host : t.id.page, &steps,
			       &t, &s->claim, err);
}

/* The claim becomes bound, so that nobody waits for a host that has not mounted. */
static void let_page_go(struct tarn_session *s)
{
	struct tarn_err err = { "" };
	int ret;

	ret = tarn_claim_check(s->media, &s->sb, &s->claim, &err);
	if (!ret)
		ret = tarn_claim_release(s->media, &s->sb, &s->claim, &err);
	if (ret)
		complain("host page %u stays claimed (%s): harmless, the next mount here takes it "
			 "again", s->claim.page, err.text);
}

static int put_in_place(const struct options *o, int mntfd, struct tarn_err *err)
{
	struct mount_attr attr = {
		.attr_set = o->attr_set | (o->ro ? MOUNT_ATTR_RDONLY : 0),
		.attr_clr = o->attr_clear,
	};

	if ((attr.attr_set || attr.attr_clr) &&
	    mount_setattr(mntfd, "", AT_EMPTY_PATH, &attr, sizeof(attr)))
		return tarn_fail(err, errno, "mount_setattr: %s", strerror(errno));
	if (o->namespace && enter_mount_namespace(o->namespace))
		return tarn_fail(err, EINVAL, "not mounted");
	if (move_mount(mntfd, "", AT_FDCWD, o->dir, MOVE_MOUNT_F_EMPTY_PATH))
		return tarn_fail(err, errno, "%s: %s", shown(o->dir), strerror(errno));
	return 0;
}

static int mount_device(const struct options *o, const struct tarn_device *d, int *code)
{
	const char *options[8];
	struct tarn_err err = { "" };
	struct tarn_session s;
	bool claimed = false;
	int mntfd, dirfd, ret;
	int64_t applied;
	size_t n = 0;

	*code = MOUNT_FAILED;
	if (o->ro)
		options[n++] = "ro";
	if (o->coherent)
		options[n++] = "coherent";
	if (o->dax_always)
		options[n++] = "dax=always";
	else if (o->dax)
		options[n++] = "dax";
	options[n] = NULL;
	ret = tarn_mount_new(d->path, options, &mntfd, &dirfd, &err);
	if (ret) {
		complain_err(&err, ret, NULL);
		if (ret == -ENODEV || ret == -EPROTO)
			*code = MOUNT_SYSTEM;
		return ret;
	}
	ret = tarn_session_attach(&s, dirfd, &err);
	if (ret)
		goto out_mount;
	ret = take_page(o, &s, &err);
	if (ret)
		goto out_session;
	claimed = true;
	tarn_stop_point("mount-claimed");
	applied = replay_to_end(&s, &err);
	ret = applied < 0 ? (int)applied : 0;
	if (ret)
		goto out_session;
	tarn_stop_point("mount-at-end");
	ret = publish_status(&s, &err);
	if (ret)
		goto out_session;
	tarn_stop_point("mount-published");
	say(o, "%lld %s applied, generation %llu of host page %u, seq %llu: this host is %s",
	    (long long)applied, applied == 1 ? "record" : "records",
	    (unsigned long long)s.st.generation, s.st.log_host, (unsigned long long)s.st.seq,
	    s.st.role == TARNFS_ROLE_MASTER ? "the master" : "a client");
	ret = put_in_place(o, mntfd, &err);
out_session:
	if (ret) {
		complain_err(&err, ret, shown(d->path));
		if (claimed)
			let_page_go(&s);
	}
	tarn_session_close(&s);
	close(mntfd);
	if (!ret)
		*code = MOUNT_OK;
	return ret;
out_mount:
	if (ret == -EPROTO)
		*code = MOUNT_SYSTEM;
	complain_err(&err, ret, shown(d->path));
	close(dirfd);
	close(mntfd);
	return ret;
}

/* Bound to the driver that tarnfs needs. 1: by us, and now. */
static int attach(const struct options *o, struct tarn_device *d)
{
	struct tarn_err err = { "" };
	int ret = d->is_dax ? tarn_dax_ready(&d->dax, &err) : 0;

	if (ret && o->attach)
		ret = o->fake ? 0 : tarn_dax_attach(&d->dax, &err);
	if (ret < 0)
		complain_err(&err, ret, NULL);
	else if (ret)
		say(o, "%s attached: bound to %s", d->dax.name, d->dax.driver);
	return ret;
}

static void detach(struct tarn_device *d)
{
	struct tarn_err err = { "" };
	int ret = tarn_dax_detach(&d->dax, &err);

	if (ret < 0)
		complain("%s stays attached: %s", shown(d->path), err.text);
	else	/* what is tried next, mkfs.tarnfs say, needs it too */
		complain("%s detached: it is bound to %s again; tarnfs device attach %s attaches it, for "
			 "mkfs.tarnfs and others too", shown(d->path), d->dax.driver, d->dax.name);
}

static int run(const struct options *o)
{
	struct tarn_err err = { "" };
	struct tarn_device d;
	struct stat st;
	int ret, code, attached;

	if (geteuid() != 0) {
		complain("%s: only root can mount a tarnfs", shown(o->device));
		return MOUNT_USAGE;
	}
	if (o->remount)
		return o->fake ? MOUNT_OK : remount(o);
	if (o->nofail && access(o->device, F_OK) && errno == ENOENT) {
		say(o, "%s is not there, and nofail was given", shown(o->device));
		return MOUNT_OK;
	}
	/* before a host page is taken; in another namespace DIR may be something else */
	if (!o->namespace && stat(o->dir, &st) == 0 && !S_ISDIR(st.st_mode)) {
		complain("%s: is not a directory", shown(o->dir));
		return MOUNT_FAILED;
	}
	ret = tarn_device_find(&d, o->device, &err);
	if (ret) {
		complain_err(&err, ret, NULL);
		return MOUNT_FAILED;
	}
	if (d.is_file) {
		complain("%s: it is a plain file, and only DAX memory can be mounted: mkfs.tarnfs and "
			 "tarnfs log read images", shown(d.path));
		return MOUNT_FAILED;
	}
	attached = attach(o, &d);
	if (attached < 0)
		return MOUNT_FAILED;
	if (o->fake)
		return MOUNT_OK;
	if (mount_device(o, &d, &code) && attached)
		detach(&d);
	return code;
}

int main(int argc, char **argv)
{
	struct options o = { .host = -1, .role = -1 };
	int ret;

	program_start("mount.tarnfs");
	ret = parse(&o, argc, argv);
	if (ret < 0)
		return program_end(MOUNT_USAGE, MOUNT_SYSTEM);
	if (ret > 0)
		return program_end(MOUNT_OK, MOUNT_SYSTEM);
	ret = run(&o);
	/* what -v prints is no reason to call a mount that stands failed */
	if (ret == MOUNT_OK)
		return MOUNT_OK;
	return program_end(ret, MOUNT_SYSTEM);
}
