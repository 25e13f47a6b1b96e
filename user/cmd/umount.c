// SPDX-License-Identifier: GPL-2.0-only
/*
 * umount.tarnfs - the helper that umount(8) runs for file systems of type
 * tarnfs: /sbin/umount.tarnfs DIR [-flnrv] [-N namespace].
 *
 * The kernel flushes; this program then reaches the device through the
 * exclusive `meta` mount, which succeeds only when nothing of the mount is
 * left, and lets this host's page go (a master publishes its final position
 * with it). Where that is not possible the page stays claimed, which costs
 * nothing: the next mount on this host takes it again.
 *
 * Exit codes as in umount(8): 0 unmounted; 1 wrong usage or no permission;
 * 2 system error; 32 the umount failed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "common.h"

enum {
	UMOUNT_OK	= 0,
	UMOUNT_USAGE	= 1,
	UMOUNT_SYSTEM	= 2,
	UMOUNT_FAILED	= 32,
};

struct options {
	const char *target, *namespace;
	bool force, lazy, read_only, verbose;
};

static void usage(void)
{
	printf("Usage: umount.tarnfs DIR|DEVICE [-flnrv] [-N namespace]\n"
	       "Usually called by umount(8): umount DIR\n"
	       "\n"
	       "  -f      force: accepted, makes no difference for memory\n"
	       "  -l      lazy: detach now; the host page stays claimed\n"
	       "  -n      ignored: no mount table is written\n"
	       "  -r      if it is busy, remount it read-only\n"
	       "  -v      say what is done\n"
	       "  -N NS   unmount in that mount namespace (a path, or a process number)\n"
	       "  -h, --help; -V, --version\n"
	       "\n"
	       "Exit status: 0 unmounted, 1 wrong usage or no permission, 2 system error,\n"
	       "32 the umount failed.\n");
}

static int parse(struct options *o, int argc, char **argv)
{
	static const struct option longs[] = {
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'V' },
		{ 0 }
	};
	int c;

	while ((c = getopt_long(argc, argv, "flnrvN:t:hV", longs, NULL)) != -1) {
		switch (c) {
		case 'f':
			o->force = true;
			break;
		case 'l':
			o->lazy = true;
			break;
		case 'n':
		case 't':
			break;
		case 'r':
			o->read_only = true;
			break;
		case 'v':
			o->verbose = true;
			break;
		case 'N':
			o->namespace = optarg;
			break;
		case 'h':
			usage();
			return 1;
		case 'V':
			printf("umount.tarnfs %s, interface %u, media format %u\n", TARN_VERSION,
			       TARNFS_INTERFACE, TARNFS_FORMAT_VERSION);
			return 1;
		default:
			complain_usage();
			return -EINVAL;
		}
	}
	if (argc - optind != 1) {
		complain("one directory or device is needed, %d were given", argc - optind);
		complain_usage();
		return -EINVAL;
	}
	o->target = argv[optind];
	return 0;
}

/* The mount on (or of) target: its entry and the directory in canonical form. */
static int find_mount(const char *target, struct mount_entry *e)
{
	char *dir = realpath(target, NULL);
	struct tarn_err err = { "" };
	struct tarn_device d;
	int ret;

	/* A shut down mount answers EIO: the path as given is then the best there is. */
	ret = mount_entry_find(dir ? dir : target, e);
	if (ret && dir && tarn_device_find(&d, dir, &err) == 0 && d.mounted_on[0])
		ret = mount_entry_find(d.mounted_on, e);
	free(dir);
	if (ret) {
		if (ret == -ENOENT)
			complain("%s: nothing is mounted there", shown(target));
		else
			complain("%s: whether something is mounted there is not known: "
				 "/proc/self/mountinfo: %s: is /proc mounted?", shown(target),
				 strerror(-ret));
		return ret;
	}
	if (strcmp(e->type, "tarnfs") != 0) {
		complain("%s: what is mounted there is a %s, no tarnfs: umount %s", shown(e->dir),
			 e->type, shown(e->dir));
		mount_entry_free(e);
		return -EMEDIUMTYPE;
	}
	return 0;
}

/* What only the mounted kernel knows, before it is gone. */
struct identity {
	bool known;
	struct tarn_claim claim;
	uint8_t uuid[16];
};

static void remember(struct identity *id, const struct mount_entry *e)
{
	struct tarn_err err = { "" };
	struct tarn_session s;

	id->known = false;
	if (tarn_session_open(&s, e->dir, 0, &err))
		return;
	id->claim = s.claim;
	memcpy(id->uuid, s.sb.uuid, 16);
	id->known = s.claim.nonce != 0 && !(s.st.state & TARNFS_ST_SHUTDOWN);
	/* a descriptor left open would keep the mount busy */
	tarn_session_close(&s);
}

static void stays_claimed(const struct identity *id, const char *why, const char *when)
{
	complain("host page %u stays claimed: %s. That is harmless: the next mount on this host takes "
		 "it again%s", id->claim.page, why, when);
}

static void release_page(const struct options *o, const struct identity *id,
			 const struct mount_entry *e)
{
	struct tarn_err err = { "" };
	struct tarn_super sb;
	struct tarn_device d;
	struct tarn_meta meta;
	char *node = NULL;
	int ret;

	/* of a dax device mountinfo has no number */
	if (access(e->source, F_OK) && e->major)
		node = must_format("/dev/block/%u:%u", e->major, e->minor);
	ret = tarn_device_find(&d, node ? node : e->source, &err);
	free(node);
	if (ret) {
		stays_claimed(id, err.text, "");
		return;
	}
	ret = tarn_meta_open(&meta, &d, true, &err);
	if (ret == -EBUSY && d.mounted_tarnfs) {
		/* what is gone was one of several ways to it: nothing is left behind */
		if (o->verbose)
			printf("umount.tarnfs: still mounted on %s, with host page %u\n",
			       shown(d.mounted_on), id->claim.page);
		return;
	}
	if (ret == -EBUSY) {
		stays_claimed(id, "the file system is still in use, in another mount "
			      "namespace or by open files of a lazy umount",
			      ", once that has ended");
		return;
	}
	if (ret) {
		stays_claimed(id, err.text, "");
		return;
	}
	ret = tarn_super_read(&sb, meta.media, meta.dev_size, &err);
	if (!ret && memcmp(sb.uuid, id->uuid, 16) != 0)
		ret = tarn_fail(&err, ESTALE, "another file system was made on the device meanwhile");
	if (!ret)
		ret = tarn_claim_check(meta.media, &sb, &id->claim, &err);
	if (!ret)
		ret = tarn_claim_release(meta.media, &sb, &id->claim, &err);
	tarn_meta_close(&meta);
	if (ret)
		stays_claimed(id, err.text, "");
	else if (o->verbose)
		printf("umount.tarnfs: host page %u let go\n", id->claim.page);
}

static int unmount(const struct options *o, const struct mount_entry *e)
{
	int flags = UMOUNT_NOFOLLOW | (o->force ? MNT_FORCE : 0) | (o->lazy ? MNT_DETACH : 0);
	struct mount_attr ro = { .attr_set = MOUNT_ATTR_RDONLY };
	const char *dir = shown(e->dir);

	if (umount2(e->dir, flags) == 0) {
		if (o->verbose)
			printf("umount.tarnfs: %s unmounted\n", dir);
		return UMOUNT_OK;
	}
	if (errno == EBUSY && o->read_only) {
		/* not by a remount, which would take nosuid and the like away */
		if (mount_setattr(AT_FDCWD, e->dir, 0, &ro, sizeof(ro)) == 0) {
			complain("%s is busy: remounted read-only", dir);
			return UMOUNT_OK;
		}
		complain("%s is busy, and remounting it read-only failed: %s", dir, strerror(errno));
		return UMOUNT_FAILED;
	}
	if (errno == EBUSY)
		complain("%s is busy: lsof %s or fuser -vm %s tells who uses it", dir, dir, dir);
	else
		complain("%s: %s", dir, strerror(errno));
	return errno == EPERM ? UMOUNT_USAGE : UMOUNT_FAILED;
}

static int run(const struct options *o)
{
	struct mount_entry e;
	struct identity id;
	int code;

	if (geteuid() != 0) {
		complain("%s: only root can unmount a tarnfs", shown(o->target));
		return UMOUNT_USAGE;
	}
	if (o->namespace && enter_mount_namespace(o->namespace))
		return UMOUNT_SYSTEM;
	if (find_mount(o->target, &e))
		return UMOUNT_FAILED;
	remember(&id, &e);
	code = unmount(o, &e);
	if (code == UMOUNT_OK && id.known) {
		struct mount_entry still;

		if (o->lazy) {
			stays_claimed(&id, "the umount is lazy", ", once the last file is closed");
		} else if (o->read_only && mount_entry_find(e.dir, &still) == 0 && still.id == e.id) {
			mount_entry_free(&still);	/* remounted read-only, not gone */
		} else {
			release_page(o, &id, &e);
		}
	}
	mount_entry_free(&e);
	return code;
}

int main(int argc, char **argv)
{
	struct options o = { 0 };
	int ret;

	program_start("umount.tarnfs");
	ret = parse(&o, argc, argv);
	if (ret < 0)
		return program_end(UMOUNT_USAGE, UMOUNT_SYSTEM);
	if (ret > 0)
		return program_end(UMOUNT_OK, UMOUNT_SYSTEM);
	ret = run(&o);
	if (ret == UMOUNT_OK)
		return UMOUNT_OK;
	return program_end(ret, UMOUNT_SYSTEM);
}
