// SPDX-License-Identifier: GPL-2.0-only
/*
 * mkfs.tarnfs - makes a tarnfs on a device or in a plain file.
 *
 * A device is reached through an exclusive, detached `meta` mount of it, never
 * through its page cache, and so cannot be mounted here at the same time. What
 * stands on it already is refused, each finding with its own message and the
 * flag that overrules it:
 *
 *   another signature (libblkid)    --force: wiped, ends of the device included
 *   a tarnfs                        --force
 *   a mount on this host            none: umount it
 *   host pages claimed by others    --hosts-fenced: the operator's word that
 *                                   those hosts are powered off or reset
 *
 * A page that this very host claimed (same host uuid) is no obstacle on a
 * device: the exclusive mount proves that nothing lives here. Unless it was at
 * another boot and by a node of another name: two machines may share one
 * machine-id, and the other one lives.
 *
 * Exit codes: 0 made; 1 everything else, wrong usage and refusals included.
 */
#define _GNU_SOURCE
#include <blkid/blkid.h>
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common.h"

struct options {
	const char *path;
	const char *label;
	bool force, fenced, quiet, have_uuid, have_owner, owner_none, owner_self;
	uint8_t uuid[16], owner[16];
	uint32_t hosts;
	uint64_t log_size;
};

static void usage(void)
{
	printf("Usage: mkfs.tarnfs [options] DEVICE|IMAGE\n"
	       "Makes a tarnfs, which several hosts may then mount at the same time.\n"
	       "\n"
	       "  -f, --force         even where another file system or a tarnfs stands\n"
	       "  -L, --label LABEL   at most %u bytes\n"
	       "  -U, --uuid UUID     instead of a random one\n"
	       "      --hosts N       host pages, that is hosts that can mount it: 1..%u (%u)\n"
	       "      --log-size S    bytes of each of the %u log areas: 1M..1G (1/%u of the device)\n"
	       "      --owner UUID|none|self\n"
	       "                      host whose page 0 is bound, and who so is the master:\n"
	       "                      self on a device, none (first host to mount) in an image\n"
	       "      --hosts-fenced  hosts that still claim pages are powered off or reset:\n"
	       "                      your word, which nothing can check\n"
	       "  -q, --quiet         print nothing but errors\n"
	       "  -V, --version       print the version\n"
	       "  -h, --help          print this\n"
	       "\n"
	       "An image is a plain file made beforehand: truncate -s 1G FILE\n"
	       "Exit status: 0 made, 1 refused, wrong usage, or any error.\n",
	       TARNFS_LABEL_MAX, TARNFS_HOSTS_MAX, TARNFS_HOSTS_DEFAULT, TARNFS_AREAS,
	       TARNFS_AREA_FRACTION);
}

static int wrong(const char *fmt, const char *what)
{
	complain(fmt, what);
	complain_usage();
	return -EINVAL;
}

/* 0 go on, 1 stop with success, negative: stop. */
static int parse(struct options *o, int argc, char **argv)
{
	enum { OPT_HOSTS = 256, OPT_LOG_SIZE, OPT_OWNER, OPT_FENCED };
	static const struct option longs[] = {
		{ "force", no_argument, NULL, 'f' },
		{ "label", required_argument, NULL, 'L' },
		{ "uuid", required_argument, NULL, 'U' },
		{ "hosts", required_argument, NULL, OPT_HOSTS },
		{ "log-size", required_argument, NULL, OPT_LOG_SIZE },
		{ "owner", required_argument, NULL, OPT_OWNER },
		{ "hosts-fenced", no_argument, NULL, OPT_FENCED },
		{ "quiet", no_argument, NULL, 'q' },
		{ "version", no_argument, NULL, 'V' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 }
	};
	uint64_t n;
	int c;

	while ((c = getopt_long(argc, argv, "fL:U:qVh", longs, NULL)) != -1) {
		switch (c) {
		case 'f':
			o->force = true;
			break;
		case 'L':
			if (strlen(optarg) > TARNFS_LABEL_MAX)
				return wrong("--label: '%s' is longer than 63 bytes", shown(optarg));
			o->label = optarg;
			break;
		case 'U':
			if (tarn_uuid_parse(o->uuid, optarg) || tarn_uuid_is_zero(o->uuid))
				return wrong("--uuid: '%s' is not a uuid", shown(optarg));
			o->have_uuid = true;
			break;
		case OPT_HOSTS:
			if (parse_number(optarg, 1, TARNFS_HOSTS_MAX, &n))
				return wrong("--hosts: '%s' is not a number from 1 to 128",
					     shown(optarg));
			o->hosts = (uint32_t)n;
			break;
		case OPT_LOG_SIZE:
			if (parse_size(optarg, &n) || n < TARNFS_AREA_MIN || n > TARNFS_AREA_MAX)
				return wrong("--log-size: '%s' is not a size from 1M to 1G",
					     shown(optarg));
			o->log_size = n;
			break;
		case OPT_OWNER:
			o->have_owner = o->owner_none = o->owner_self = false;
			if (strcmp(optarg, "none") == 0)
				o->owner_none = true;
			else if (strcmp(optarg, "self") == 0)
				o->owner_self = true;
			else if (tarn_uuid_parse(o->owner, optarg) || tarn_uuid_is_zero(o->owner))
				return wrong("--owner: '%s' is neither a uuid nor none nor self",
					     shown(optarg));
			else
				o->have_owner = true;
			break;
		case OPT_FENCED:
			o->fenced = true;
			break;
		case 'q':
			o->quiet = true;
			break;
		case 'V':
			printf("mkfs.tarnfs %s, media format %u\n", TARN_VERSION,
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
	if (optind >= argc)
		return wrong("%s", "no device or image was named");
	if (optind + 1 < argc)
		return wrong("one device or image at a time, and '%s' is too many",
			     shown(argv[optind + 1]));
	o->path = argv[optind];
	return 0;
}

/*
 * Other file systems, RAID members, partition tables. The descriptor is the
 * meta inode's (or the file's), so that nothing enters the page cache of the
 * device and what is wiped is really gone. Returns the number found.
 */
static int foreign_signatures(struct tarn_meta *meta, const char *path, bool wipe, bool quiet)
{
	static const char zero[64];
	const char *type, *offset, *magic;
	blkid_probe probe;
	size_t len;
	int ret, found = 0;

	probe = blkid_new_probe();
	if (!probe || blkid_probe_set_device(probe, meta->fd, 0, 0)) {
		complain("%s: libblkid cannot look for other signatures on it%s: try again", path,
			 errno == ENOMEM ? ": out of memory" : "");
		blkid_free_probe(probe);
		return -ENOMEM;
	}
	blkid_probe_enable_superblocks(probe, 1);
	blkid_probe_set_superblocks_flags(probe, BLKID_SUBLKS_MAGIC | BLKID_SUBLKS_TYPE |
						 BLKID_SUBLKS_BADCSUM);
	blkid_probe_enable_partitions(probe, 1);
	blkid_probe_set_partitions_flags(probe, BLKID_PARTS_MAGIC);
	while (errno = 0, (ret = blkid_do_probe(probe)) == 0) {
		if (!blkid_probe_lookup_value(probe, "TYPE", &type, NULL)) {
			if (blkid_probe_lookup_value(probe, "SBMAGIC_OFFSET", &offset, NULL) ||
			    blkid_probe_lookup_value(probe, "SBMAGIC", &magic, &len))
				continue;
		} else if (!blkid_probe_lookup_value(probe, "PTTYPE", &type, NULL)) {
			if (blkid_probe_lookup_value(probe, "PTMAGIC_OFFSET", &offset, NULL) ||
			    blkid_probe_lookup_value(probe, "PTMAGIC", &magic, &len))
				continue;
		} else {
			continue;
		}
		found++;
		if (!wipe) {
			if (!quiet)
				complain("%s: there is a signature of '%s' at offset %s", path, type,
					 offset);
			continue;
		}
		uint64_t at = strtoull(offset, NULL, 10);
		size_t n = len > sizeof(zero) ? sizeof(zero) : len;

		ret = tarn_media_write(meta->media, at, zero, n);
		if (!ret)
			ret = tarn_media_writeback(meta->media, at, n);
		if (!ret)
			ret = tarn_media_fence(meta->media);
		if (!ret)
			ret = tarn_media_invalidate(meta->media, at, n);
		if (ret || found > 1000) {
			complain("%s: wiping the signature of '%s' at offset %s: %s", path, type,
				 offset, ret ? strerror(-ret) : "it does not go away: is another host "
				 "writing to this memory?");
			blkid_free_probe(probe);
			return ret ? ret : -EBUSY;
		}
		/* the same prober again: some formats have more than one copy */
		blkid_probe_step_back(probe);
	}
	blkid_free_probe(probe);
	if (ret < 0) {
		ret = errno ? -errno : -ENODATA;
		complain("%s: looking for other signatures on it failed: %s%s", path,
			 ret != -ENODATA ? strerror(-ret) : "libblkid does not say why",
			 ret != -EIO ? ": try again" : "");
		return ret;
	}
	return found;
}

static int refuse_tarnfs(struct tarn_meta *meta, const struct tarn_device *d, const struct options *o)
{
	const char *path = shown(d->path);
	struct tarn_mkfs_probe probe;
	struct tarn_err err = { "" };
	struct tarn_claims claims;
	struct tarn_host_id self;
	char uuid[37], pages[640];
	int ret;

	ret = tarn_mkfs_probe(&probe, meta->media, meta->dev_size, &err);
	if (ret) {
		complain_err(&err, ret, path);
		return ret;
	}
	if (!probe.found)
		return 0;
	if (!probe.valid) {
		if (o->force && o->fenced)
			return 0;
		/* a newer tool, or a host that sees more of the device, may have it mounted */
		complain("%s: there is a tarnfs that this program cannot read (%s), nor which hosts "
			 "have it mounted: not made; --force makes a new one over it, together with "
			 "--hosts-fenced, your word that all its hosts are powered off or reset",
			 path, err.text);
		return -EEXIST;
	}
	if (probe.claimed && !o->fenced) {
		/* an image has no exclusive mount that shows that nothing of this host lives */
		bool known = !d->is_file && tarn_host_id(&self, probe.sb.uuid, &err) == 0;

		tarn_claims_find(&claims, meta->media, &probe.sb, known ? &self : NULL);
		if (claims.count) {
			tarn_pages_text(pages, sizeof(pages), meta->media, &probe.sb, claims.ids);
			complain("%s: there is a tarnfs that hosts may have mounted: %s: not made; "
				 "umount it there; or, once those hosts are powered off or reset, give "
				 "your word for it with --hosts-fenced", path, pages);
			if (claims.clone >= 0)
				complain("page %d was claimed by node %s under this host's identity, and "
					 "this is node %s: if that host still runs, the machine-id is "
					 "shared: renew it, see commands.rst", claims.clone,
					 shown(claims.node), shown(self.node_name));
			return -EBUSY;
		}
	}
	if (o->force)
		return 0;
	tarn_uuid_text(uuid, probe.sb.uuid);
	complain("%s: there is a tarnfs, uuid %s%s%s: not made; --force makes a new one over it, and "
		 "all its files are lost", path, uuid, probe.sb.label[0] ? ", label " : "",
		 shown(probe.sb.label));
	return -EEXIST;
}

static int look_before(struct tarn_meta *meta, const struct tarn_device *d, const struct options *o)
{
	int ret = foreign_signatures(meta, shown(d->path), false, o->force);

	if (ret < 0)
		return ret;
	if (ret && !o->force) {
		complain("%s: not made: --force wipes what is there", shown(d->path));
		return -EEXIST;
	}
	return refuse_tarnfs(meta, d, o);
}

static void report(const struct tarn_super *sb, const struct tarn_device *d,
		   const struct tarn_mkfs *opt)
{
	char uuid[37], text[SIZE_TEXT];

	printf("tarnfs on %s\n", shown(d->path));
	tarn_uuid_text(uuid, sb->uuid);
	printf("  uuid      %s\n", uuid);
	if (sb->label[0])
		printf("  label     %s\n", shown(sb->label));
	printf("  size      %s (%llu bytes)\n", size_text(text, sb->dev_size),
	       (unsigned long long)sb->dev_size);
	printf("  data      %s (%llu bytes) from offset %llu\n",
	       size_text(text, sb->data_end - sb->data_start),
	       (unsigned long long)(sb->data_end - sb->data_start),
	       (unsigned long long)sb->data_start);
	printf("  log       %u areas of %s\n", sb->areas, size_text(text, sb->area[0].len));
	printf("  hosts     %u\n", sb->hosts);
	if (opt->owner_self) {
		printf("  master    this host (page 0)\n");
	} else if (opt->owner) {
		tarn_uuid_text(uuid, opt->owner);
		printf("  master    host %s (page 0)\n", uuid);
	} else {
		printf("  master    the first host that mounts it\n");
	}
}

/* What to do about memory, or a disk below an image, that cannot be read or written. */
static void complain_bad(const struct tarn_device *d)
{
	if (d->is_file)
		complain("the disk that the image is on fails, or the image was cut meanwhile (dmesg says "
			 "more): make the image elsewhere");
	else if (d->is_dax && d->dax.kind != TARN_DAX_NVDIMM)
		complain("memory of the device failed, or it is being removed (dmesg says which): replace "
			 "the memory that failed");
	else
		complain("memory of the device failed, or it is being removed (dmesg says which): ndctl "
			 "list -M shows bad blocks, ndctl clear-errors %s repairs them where the platform "
			 "can; otherwise replace the module",
			 d->is_dax && d->dax.namespace[0] ? d->dax.namespace : "NAMESPACE");
}

/* Of what is not there: a device is missing, an image may be about to be made. */
static int no_such_file(const char *path)
{
	struct stat st;

	if (stat(path, &st) == 0 || errno != ENOENT)
		return 0;
	/* a plain file there would take the place of the device until the next boot */
	if (strncmp(path, "/dev/", 5) == 0)
		complain("%s: there is no such device; ndctl list -N shows the namespaces and, as "
			 "blockdev, their names in /dev", shown(path));
	else
		complain("%s: there is no such file or device; an image is made first, like this: "
			 "truncate -s 1G %s", shown(path), shown(path));
	return -ENOENT;
}

static int make(const struct options *o)
{
	struct tarn_err err = { "" };
	struct tarn_super sb, back;
	struct tarn_mkfs opt = { 0 };
	struct tarn_device d;
	struct tarn_meta meta;
	struct timespec now;
	int ret;

	ret = tarn_device_find(&d, o->path, &err);
	if (ret == -ENOENT)
		return no_such_file(o->path);
	if (ret) {
		complain_err(&err, ret, NULL);
		return ret;
	}
	if (d.mounted_on[0]) {
		complain("%s: it is mounted on %s: umount %s", shown(d.path), shown(d.mounted_on),
			 shown(d.mounted_on));
		return -EBUSY;
	}

	clock_gettime(CLOCK_REALTIME, &now);
	opt.dev_size = d.size;
	opt.hosts = o->hosts;
	opt.log_size = o->log_size;
	opt.label = o->label;
	opt.uuid = o->have_uuid ? o->uuid : NULL;
	opt.owner = o->have_owner ? o->owner : NULL;
	opt.owner_self = o->owner_self || (!o->have_owner && !o->owner_none && !d.is_file);
	opt.now_sec = now.tv_sec;
	opt.now_nsec = (uint32_t)now.tv_nsec;
	/* before anything is opened: a wrong option touches nothing */
	ret = tarn_mkfs_plan(&sb, &opt, &err);
	if (ret) {
		complain_err(&err, ret, d.path);
		if (ret == -ENOSPC && d.is_file)
			complain("a larger image: truncate -s %lluM %s%s",
				 (unsigned long long)(sb.data_start + TARNFS_HUGE) >> 20,
				 shown(d.path), o->log_size ? ", or a smaller --log-size" : "");
		else if (ret == -ENOSPC)
			complain("a larger device%s", o->log_size ? ", or a smaller --log-size" : "");
		return ret;
	}

	ret = tarn_meta_open(&meta, &d, true, &err);
	if (ret) {
		complain_err(&err, ret, NULL);
		return ret;
	}
	if (meta.dev_size != d.size) {
		opt.dev_size = meta.dev_size;
		ret = tarn_mkfs_plan(&sb, &opt, &err);
		if (ret) {
			complain_err(&err, ret, d.path);
			goto out;
		}
	}
	ret = look_before(&meta, &d, o);
	if (ret)
		goto out;
	if (o->force) {
		ret = foreign_signatures(&meta, d.path, true, false);
		if (ret < 0)
			goto out;
	}
	ret = tarn_mkfs_write(meta.media, &sb, &opt, &err);
	if (!ret)
		ret = tarn_super_read(&back, meta.media, meta.dev_size, &err);
	if (ret) {
		complain_err(&err, ret, d.path);
		goto out;
	}
	if (memcmp(back.uuid, sb.uuid, 16) != 0) {
		complain("%s: what was read back is another file system: is another host writing "
			 "to this memory?", shown(d.path));
		ret = -ESTALE;
		goto out;
	}
	if (d.is_file && fsync(meta.fd)) {
		ret = -errno;
		complain("%s: fsync: %s", shown(d.path), strerror(errno));
		goto out;
	}
	if (!o->quiet)
		report(&sb, &d, &opt);
out:
	tarn_meta_close(&meta);
	if (ret == -EIO)
		complain_bad(&d);
	return ret;
}

int main(int argc, char **argv)
{
	struct options o = { 0 };
	int ret;

	program_start("mkfs.tarnfs");
	ret = parse(&o, argc, argv);
	if (ret == 0)
		ret = make(&o);
	else if (ret > 0)
		ret = 0;
	return program_end(ret ? EXIT_FAILED : EXIT_OK, EXIT_FAILED);
}
