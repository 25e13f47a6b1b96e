// SPDX-License-Identifier: GPL-2.0-only
/*
 * Mount, options, the superblock's check, statfs, teardown; and the module.
 */
#include <linux/blkdev.h>
#include <linux/crc32.h>
#include <linux/device.h>
#include <linux/fs_context.h>
#include <linux/fs_parser.h>
#include <linux/module.h>
#include <linux/namei.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/statfs.h>
#include <linux/uaccess.h>
#include <asm/cacheflush.h>
#define CREATE_TRACE_POINTS
#include "tarnfs.h"

#define TARNFS_MODULE_VERSION	"0.1"

/* ---- the superblock on the media ---------------------------------------- */

static int tarnfs_read_super(struct tarnfs_sb_info *sbi, struct fs_context *fc,
			     struct tarnfs_super *raw)
{
	unsigned long left = sizeof(*raw);
	void *kaddr;
	long pages;
	int id;

	id = dax_read_lock();
	pages = dax_direct_access(sbi->backing.dax,
				  PHYS_PFN(sbi->backing.start + TARNFS_SUPER_OFF), 1, DAX_ACCESS,
				  &kaddr, NULL);
	/* The kernel may have unmapped a page that is known to be bad. */
	if (pages > 0 && !PageHWPoison(virt_to_page(kaddr))) {
		tarnfs_clean_and_invalidate(kaddr, sizeof(*raw));
		left = copy_mc_to_kernel(raw, kaddr, sizeof(*raw));
	}
	dax_read_unlock(id);
	if (left) {
		errorfc(fc, "%s: superblock at device offset %#x cannot be read: poisoned memory, or the device is being removed; repair the memory, bind its driver anew, then fsck.tarnfs has a look at the second copy",
			sbi->sb->s_id, TARNFS_SUPER_OFF);
		return -EIO;
	}
	return 0;
}

static u32 tarnfs_super_crc(const struct tarnfs_super *raw)
{
	struct tarnfs_super copy = *raw;

	copy.crc = 0;
	return ~crc32c(~0, (const unsigned char *)&copy, sizeof(copy));
}

static bool tarnfs_areas_are_good(const struct tarnfs_super *raw, u64 first, u64 end)
{
	unsigned int areas = le16_to_cpu(raw->areas), i, j;

	if (areas < 1 || areas > TARNFS_AREAS_MAX)
		return false;
	for (i = 0; i < TARNFS_AREAS_MAX; i++) {
		u64 off = le64_to_cpu(raw->area[i].off);
		u64 len = le64_to_cpu(raw->area[i].len);

		if (i >= areas) {
			if (off || len)
				return false;
			continue;
		}
		if ((off | len) & (TARNFS_BLOCK - 1) || len < TARNFS_AREA_MIN ||
		    len > TARNFS_AREA_MAX || off < first || off > end || len > end - off)
			return false;
		for (j = 0; j < i; j++) {
			u64 other = le64_to_cpu(raw->area[j].off);

			if (off < other + le64_to_cpu(raw->area[j].len) && other < off + len)
				return false;
		}
	}
	return true;
}

/* What does not fit in a sound superblock, or NULL. */
static const char *tarnfs_super_flaw(const struct tarnfs_super *raw)
{
	u64 dev_size = le64_to_cpu(raw->dev_size);
	u64 data_start = le64_to_cpu(raw->data_start);
	u64 data_end = le64_to_cpu(raw->data_end);
	u64 hosts_off = le64_to_cpu(raw->hosts_off);
	u64 mirror_off = le64_to_cpu(raw->hosts_mirror_off);
	u64 hosts = le32_to_cpu(raw->hosts);
	u64 hosts_len = hosts * TARNFS_HOST_STRIDE;
	size_t label_len = strnlen(raw->label, sizeof(raw->label));

	if (le32_to_cpu(raw->block_size) != TARNFS_BLOCK)
		return "block size";
	if (raw->csum != TARNFS_CSUM_CRC32C || raw->line_shift != TARNFS_LINE_SHIFT ||
	    raw->align_shift != TARNFS_HUGE_SHIFT)
		return "checksum type, line size or alignment";
	if (raw->role != TARNFS_DEVICE_FIRST || raw->dev_index || le16_to_cpu(raw->dev_count) != 1)
		return "number of devices";
	if (!memchr_inv(raw->uuid, 0, sizeof(raw->uuid)))
		return "uuid";
	if (label_len == sizeof(raw->label) ||
	    memchr_inv(raw->label + label_len, 0, sizeof(raw->label) - label_len))
		return "label";
	if (le32_to_cpu(raw->created_nsec) > 999999999)
		return "time of creation";
	if (dev_size > TARNFS_SIZE_MAX || data_start & (TARNFS_HUGE - 1) ||
	    data_end & (TARNFS_BLOCK - 1) || data_start > data_end || data_end > dev_size)
		return "start or end of the data";
	if (hosts < 1 || hosts > TARNFS_HOSTS_MAX ||
	    le32_to_cpu(raw->host_stride) != TARNFS_HOST_STRIDE)
		return "number or length of host pages";
	if ((hosts_off | mirror_off) & (TARNFS_BLOCK - 1) ||
	    hosts_off < TARNFS_SUPER2_OFF + TARNFS_BLOCK || hosts_off > data_start ||
	    mirror_off > data_start || mirror_off < hosts_off + hosts_len ||
	    hosts_len > data_start - mirror_off)
		return "place of the host pages";
	if (le16_to_cpu(raw->area_entry) != sizeof(struct tarnfs_area) ||
	    !tarnfs_areas_are_good(raw, mirror_off + hosts_len, data_start))
		return "log areas";
	if (memchr_inv(raw->zero1, 0, sizeof(raw->zero1)) ||
	    memchr_inv(raw->zero2, 0, sizeof(raw->zero2)))
		return "reserved bytes";
	return NULL;
}

/* Everything in it is taken for written by an enemy. */
static int tarnfs_load_super(struct tarnfs_sb_info *sbi, struct fs_context *fc)
{
	const char *id = sbi->sb->s_id;
	struct tarnfs_super *raw;
	const char *flaw;
	u64 unknown;
	int err;

	raw = kmalloc(sizeof(*raw), GFP_KERNEL);
	if (!raw)
		return -ENOMEM;
	err = tarnfs_read_super(sbi, fc, raw);
	if (err)
		goto out;

	err = -EINVAL;
	if (memcmp(raw->magic, TARNFS_SUPER_MAGIC, TARNFS_MAGIC_LEN)) {
		errorfc(fc, "%s: no tarnfs superblock; if there was one, fsck.tarnfs looks for its second copy; mkfs.tarnfs makes a new file system", id);
		goto out;
	}
	if (le32_to_cpu(raw->version) != TARNFS_FORMAT_VERSION) {
		errorfc(fc, "%s: media format version %u, this module knows %u", id,
			le32_to_cpu(raw->version), TARNFS_FORMAT_VERSION);
		goto out;
	}
	err = -EUCLEAN;
	if (le32_to_cpu(raw->length) != sizeof(*raw) ||
	    le32_to_cpu(raw->crc) != tarnfs_super_crc(raw)) {
		errorfc(fc, "%s: superblock is damaged (length or checksum); fsck.tarnfs can restore it from its second copy",
			id);
		goto out;
	}
	err = -EOPNOTSUPP;
	unknown = le64_to_cpu(raw->incompat) & ~TARNFS_INCOMPAT_KNOWN;
	if (unknown) {
		errorfc(fc, "%s: features %#llx (incompat) are not known to this module; a newer one is needed",
			id, unknown);
		goto out;
	}
	err = -EROFS;
	unknown = le64_to_cpu(raw->ro_compat) & ~TARNFS_RO_COMPAT_KNOWN;
	if (unknown && !sb_rdonly(sbi->sb)) {
		errorfc(fc, "%s: features %#llx (ro_compat) are not known to this module; mount with -o ro",
			id, unknown);
		goto out;
	}
	err = -EUCLEAN;
	flaw = tarnfs_super_flaw(raw);
	if (flaw) {
		errorfc(fc, "%s: superblock says what cannot be: %s; run fsck.tarnfs", id, flaw);
		goto out;
	}
	if (le64_to_cpu(raw->dev_size) > sbi->backing.size) {
		errorfc(fc, "%s: file system was made for %llu bytes, the device has %llu; is it the same namespace?",
			id, le64_to_cpu(raw->dev_size), sbi->backing.size);
		goto out;
	}

	err = 0;
	sbi->ro_only = unknown;
	sbi->data_start = le64_to_cpu(raw->data_start);
	sbi->data_end = le64_to_cpu(raw->data_end);
	memcpy(sbi->uuid, raw->uuid, sizeof(sbi->uuid));
	super_set_uuid(sbi->sb, raw->uuid, sizeof(raw->uuid));
out:
	kfree(raw);
	return err;
}

/* ---- super operations --------------------------------------------------- */

static int tarnfs_statfs(struct dentry *dentry, struct kstatfs *buf)
{
	struct super_block *sb = dentry->d_sb;
	struct tarnfs_sb_info *sbi = tarnfs_sb(sb);
	const struct tarn_tree *tree = &sbi->tree;

	buf->f_type = TARNFS_STATFS_MAGIC;
	buf->f_bsize = TARNFS_BLOCK;
	buf->f_namelen = TARNFS_NAME_MAX;
	buf->f_fsid = u64_to_fsid(huge_encode_dev(sb->s_dev));
	if (sbi->meta) {
		buf->f_blocks = sbi->backing.size >> TARNFS_BLOCK_SHIFT;
		return 0;
	}
	buf->f_blocks = (sbi->data_end - sbi->data_start) >> TARNFS_BLOCK_SHIFT;
	down_read(&sbi->tree_rwsem);
	buf->f_bfree = tree->free_bytes >> TARNFS_BLOCK_SHIFT;
	buf->f_files = tree->directories + tree->files + tree->symlinks;
	up_read(&sbi->tree_rwsem);
	buf->f_bavail = buf->f_bfree;
	/* nobody counts inodes: as many as there is room for their data */
	buf->f_ffree = buf->f_bfree;
	buf->f_files += buf->f_ffree;
	return 0;
}

static int tarnfs_show_options(struct seq_file *seq, struct dentry *root)
{
	struct tarnfs_sb_info *sbi = tarnfs_sb(root->d_sb);

	if (sbi->meta)
		seq_puts(seq, ",meta");
	else
		seq_printf(seq, ",role=%s", READ_ONCE(sbi->tree.role) == TARNFS_ROLE_MASTER ?
			   "master" : "client");
	if (sbi->coherent)
		seq_puts(seq, ",coherent");
	seq_puts(seq, ",dax=always");
	return 0;
}

static int tarnfs_sync_fs(struct super_block *sb, int wait)
{
	struct tarnfs_sb_info *sbi = tarnfs_sb(sb);

	if (!wait || tarnfs_is_shutdown(sbi))
		return 0;
	return tarnfs_backing_flush(&sbi->backing);
}

/* Inodes are evicted by now: nothing has a DAX entry any more. */
static void tarnfs_put_super(struct super_block *sb)
{
	/* the last use of a range may have to be written back */
	flush_work(&tarnfs_sb(sb)->put_work);
	tarnfs_failure_remove(tarnfs_sb(sb));
	tarnfs_backing_close(&tarnfs_sb(sb)->backing, sb);
}

static const struct super_operations tarnfs_super_operations = {
	.alloc_inode	= tarnfs_alloc_inode,
	.free_inode	= tarnfs_free_inode,
	.drop_inode	= tarnfs_drop_inode,
	.evict_inode	= tarnfs_evict_inode,
	.put_super	= tarnfs_put_super,
	.sync_fs	= tarnfs_sync_fs,
	.statfs		= tarnfs_statfs,
	.show_options	= tarnfs_show_options,
	TARNFS_SHUTDOWN_OP
};

/* ---- mount -------------------------------------------------------------- */

enum tarnfs_option {
	TARNFS_OPT_ROLE,
	TARNFS_OPT_META,
	TARNFS_OPT_COHERENT,
	TARNFS_OPT_DAX,
};

static const struct constant_table tarnfs_roles[] = {
	{ "client",	TARNFS_ROLE_CLIENT },
	{ "master",	TARNFS_ROLE_MASTER },
	{}
};

static const struct constant_table tarnfs_dax_modes[] = {
	{ "always",	0 },
	{}
};

static const struct fs_parameter_spec tarnfs_parameters[] = {
	fsparam_enum("role",		TARNFS_OPT_ROLE, tarnfs_roles),
	fsparam_flag("meta",		TARNFS_OPT_META),
	fsparam_flag("coherent",	TARNFS_OPT_COHERENT),
	fsparam_flag("dax",		TARNFS_OPT_DAX),
	fsparam_enum("dax",		TARNFS_OPT_DAX, tarnfs_dax_modes),
	{}
};

static int tarnfs_parse_param(struct fs_context *fc, struct fs_parameter *param)
{
	struct tarnfs_options *opt = fc->fs_private;
	struct fs_parse_result result;
	int which = fs_parse(fc, tarnfs_parameters, param, &result);

	if (which < 0)
		return which;
	opt->seen |= BIT(which);
	if (which == TARNFS_OPT_ROLE)
		opt->role = result.uint_32;
	return 0;
}

static bool tarnfs_option_given(const struct tarnfs_options *opt, enum tarnfs_option which)
{
	return opt->seen & BIT(which);
}

static int tarnfs_fill_super(struct super_block *sb, struct fs_context *fc)
{
	struct tarnfs_sb_info *sbi = tarnfs_sb(sb);
	const struct tarnfs_options *opt = fc->fs_private;
	struct inode *inode;
	int err;

	sbi->sb = sb;
	sbi->role = opt->role;
	sbi->meta = tarnfs_option_given(opt, TARNFS_OPT_META);
	sbi->coherent = tarnfs_option_given(opt, TARNFS_OPT_COHERENT);
	sb->s_magic = TARNFS_STATFS_MAGIC;
	sb->s_op = &tarnfs_super_operations;
	set_default_d_op(sb, &tarnfs_dentry_operations);
	sb->s_maxbytes = MAX_LFS_FILESIZE;
	sb->s_time_gran = 1;
	sb->s_flags |= SB_NOATIME;

	if (PAGE_SIZE != TARNFS_BLOCK) {
		errorfc(fc, "this kernel's pages are %lu bytes, tarnfs works with 4096 only",
			PAGE_SIZE);
		return -EINVAL;
	}
	if (sbi->backing.dev) {
		sb->s_blocksize = TARNFS_BLOCK;
		sb->s_blocksize_bits = TARNFS_BLOCK_SHIFT;
	/* A namespace has sectors of 512 bytes else, and fs/dax.c refuses to write back. */
	} else if (!sb_set_blocksize(sb, TARNFS_BLOCK)) {
		errorfc(fc, "%s: device does not take blocks of 4096 bytes", sb->s_id);
		return -EINVAL;
	}
	tarnfs_failure_begin(sbi);
	err = tarnfs_backing_open(&sbi->backing, sb, fc);
	if (err)
		return err;
	if (!sbi->meta) {
		err = tarnfs_load_super(sbi, fc);
		if (err)
			return err;
	}
	err = tarn_tree_init(&sbi->tree, sbi->data_start, sbi->data_end, sbi->role);
	if (err)
		return err;
	set_bit(TARNFS_SB_TREE, &sbi->state);

	inode = tarnfs_new_meta_inode(sb, sbi->meta ? sbi->backing.size & ~(u64)(PAGE_SIZE - 1) :
				      sbi->data_start);
	if (IS_ERR(inode))
		return PTR_ERR(inode);
	sbi->meta_inode = inode;

	inode = tarnfs_iget_root(sb);
	if (IS_ERR(inode))
		return PTR_ERR(inode);
	sb->s_root = d_make_root(inode);
	if (!sb->s_root)
		return -ENOMEM;
	err = tarnfs_failure_add(sbi);
	if (err) {
		errorfc(fc, "%s: device was removed while it was being mounted (or many others were): try again",
			sb->s_id);
		return err;
	}
	err = tarnfs_backing_confirm(&sbi->backing, sb, fc);
	if (err)
		return err;
	err = tarnfs_bad_scan(sbi);
	if (err && err != -EINTR)
		errorfc(fc, "%s: cannot be looked through for bad memory: error %d; is it being removed?",
			sb->s_id, err);
	return err;
}

/*
 * Superblocks of character devices. sget_fc() would compare what they have in
 * s_fs_info, but it looks at dying ones too, when that may be gone already.
 */
static DEFINE_SPINLOCK(tarnfs_chars_lock);
static LIST_HEAD(tarnfs_chars);			/* tarnfs_sb_info.char_link */

static int tarnfs_test_char(struct super_block *sb, struct fs_context *fc)
{
	const struct tarnfs_sb_info *new = fc->s_fs_info, *sbi;
	int found = 0;

	spin_lock(&tarnfs_chars_lock);
	list_for_each_entry(sbi, &tarnfs_chars, char_link)
		found |= sbi->sb == sb && sbi->char_key == new->char_key;
	spin_unlock(&tarnfs_chars_lock);
	return found;
}

static int tarnfs_set_char(struct super_block *sb, struct fs_context *fc)
{
	struct tarnfs_sb_info *sbi = fc->s_fs_info;
	int err = set_anon_super_fc(sb, fc);

	if (err)
		return err;
	sbi->sb = sb;
	spin_lock(&tarnfs_chars_lock);
	list_add(&sbi->char_link, &tarnfs_chars);
	spin_unlock(&tarnfs_chars_lock);
	return 0;
}

/* get_tree_bdev() for what is no block device; like it, it may return a live superblock. */
static int tarnfs_get_tree_char(struct fs_context *fc)
{
	struct tarnfs_sb_info *sbi = fc->s_fs_info;
	struct super_block *sb;
	int err;

	sbi->char_key = sbi->backing.dax;
	fc->sb_flags |= SB_NOSEC;
	sb = sget_fc(fc, tarnfs_test_char, tarnfs_set_char);
	if (IS_ERR(sb))
		return PTR_ERR(sb);
	if (sb->s_root) {
		fc->root = dget(sb->s_root);
		return 0;
	}
	strscpy(sb->s_id, dev_name(sbi->backing.dev), sizeof(sb->s_id));
	/* Of its own, or sync(2) would pass over what mappings dirtied. */
	err = super_setup_bdi(sb);
	if (!err)
		err = tarnfs_fill_super(sb, fc);
	if (err) {
		deactivate_locked_super(sb);
		return err;
	}
	sb->s_flags |= SB_ACTIVE;
	fc->root = dget(sb->s_root);
	return 0;
}

static int tarnfs_get_tree_source(struct fs_context *fc)
{
	struct tarnfs_sb_info *sbi = fc->s_fs_info;
	struct path path;
	umode_t mode;
	int err;

	if (!fc->source)
		return invalfc(fc, "no device given");
	err = kern_path(fc->source, LOOKUP_FOLLOW, &path);
	if (err) {
		errorfc(fc, "%s: cannot be found: error %d", fc->source, err);
		return err;
	}
	mode = d_backing_inode(path.dentry)->i_mode;
	if (S_ISCHR(mode))
		err = tarnfs_backing_find(&sbi->backing, &path, fc);
	path_put(&path);
	if (err)
		return err;
	if (S_ISCHR(mode))
		return tarnfs_get_tree_char(fc);
	if (S_ISBLK(mode))
		return get_tree_bdev(fc, tarnfs_fill_super);
	errorfc(fc, "%s: neither a block device nor a character device of the dax bus (/dev/daxN.M)",
		fc->source);
	return -ENOTBLK;
}

static void tarnfs_free_sbi(struct tarnfs_sb_info *sbi)
{
	cleanup_srcu_struct(&sbi->io_srcu);
	/* a path walk under RCU may still ask for the role */
	kfree_rcu(sbi, rcu);
}

/* The superblock that has the device, or NULL when nobody knows which one. */
static int tarnfs_say_busy(struct fs_context *fc, const struct tarnfs_sb_info *old)
{
	if (old && test_bit(TARNFS_SB_GONE, &old->state))
		errorfc(fc, "%s: a mount of it is still there whose device was taken away: umount that one, then mount again",
			fc->source);
	else if (old && old->meta)
		errorfc(fc, "%s: mkfs, fsck or umount is at work on it: try again when that is done",
			fc->source);
	else
		errorfc(fc, "%s: mounted on this host already (or held by another user); a device has one mount a host: use that one, or a bind mount of it. If none is to be seen: it may be in another mount namespace (container), be held by files still open after umount -l, or by a running mkfs or fsck",
			fc->source);
	return -EBUSY;
}

static int tarnfs_get_tree(struct fs_context *fc)
{
	struct tarnfs_sb_info *sbi;
	struct super_block *sb;
	int err;

	sbi = kzalloc(sizeof(*sbi), GFP_KERNEL);
	if (!sbi)
		return -ENOMEM;
	err = init_srcu_struct(&sbi->io_srcu);
	if (err) {
		kfree(sbi);
		return err;
	}
	INIT_LIST_HEAD(&sbi->failure_link);
	INIT_LIST_HEAD(&sbi->char_link);
	init_llist_head(&sbi->put_list);
	INIT_WORK(&sbi->put_work, tarnfs_put_work);
	mutex_init(&sbi->apply_mutex);
	init_rwsem(&sbi->tree_rwsem);
	seqlock_init(&sbi->bad_lock);
	spin_lock_init(&sbi->reap_lock);
	INIT_LIST_HEAD(&sbi->reap_list);
	INIT_DELAYED_WORK(&sbi->reap_work, tarnfs_reap_work);

	fc->s_fs_info = sbi;
	err = tarnfs_get_tree_source(fc);
	/* A new superblock takes s_fs_info over; a live one of the device leaves it. */
	if (!err && fc->s_fs_info) {
		sb = fc->root->d_sb;
		dput(fc->root);
		fc->root = NULL;
		err = tarnfs_say_busy(fc, tarnfs_sb(sb));
		deactivate_locked_super(sb);
	} else if (err == -EBUSY && fc->s_fs_info) {
		tarnfs_say_busy(fc, NULL);
	}
	return err;
}

static int tarnfs_reconfigure(struct fs_context *fc)
{
	struct super_block *sb = fc->root->d_sb;
	struct tarnfs_sb_info *sbi = tarnfs_sb(sb);
	const struct tarnfs_options *opt = fc->fs_private;

	if ((tarnfs_option_given(opt, TARNFS_OPT_META) && !sbi->meta) ||
	    (tarnfs_option_given(opt, TARNFS_OPT_COHERENT) && !sbi->coherent) ||
	    (tarnfs_option_given(opt, TARNFS_OPT_ROLE) && opt->role != sbi->role &&
	     opt->role != READ_ONCE(sbi->tree.role))) {
		errorfc(fc, "%s: remount changes ro and rw only; umount, and mount with the other options",
			sb->s_id);
		return -EINVAL;
	}
	if (!(fc->sb_flags & SB_RDONLY) && sbi->ro_only) {
		errorfc(fc, "%s: has features (ro_compat) that this module does not know: it stays read-only",
			sb->s_id);
		return -EROFS;
	}
	sync_filesystem(sb);
	return 0;
}

static void tarnfs_free_fc(struct fs_context *fc)
{
	struct tarnfs_sb_info *sbi = fc->s_fs_info;

	kfree(fc->fs_private);
	if (!sbi)
		return;
	tarnfs_backing_close(&sbi->backing, NULL);	/* what was found, but not opened */
	tarnfs_free_sbi(sbi);
}

static const struct fs_context_operations tarnfs_context_operations = {
	.free		= tarnfs_free_fc,
	.parse_param	= tarnfs_parse_param,
	.get_tree	= tarnfs_get_tree,
	.reconfigure	= tarnfs_reconfigure,
};

static int tarnfs_init_fs_context(struct fs_context *fc)
{
	struct tarnfs_options *opt = kzalloc(sizeof(*opt), GFP_KERNEL);

	if (!opt)
		return -ENOMEM;
	opt->role = TARNFS_ROLE_CLIENT;
	fc->fs_private = opt;
	fc->ops = &tarnfs_context_operations;
	return 0;
}

/*
 * The order matters: the reaper holds inodes, inodes hold DAX entries and
 * nodes, and DAX entries need the device.
 */
static void tarnfs_kill_sb(struct super_block *sb)
{
	struct tarnfs_sb_info *sbi = tarnfs_sb(sb);

	if (sbi) {
		spin_lock(&sbi->reap_lock);
		set_bit(TARNFS_SB_UMOUNT, &sbi->state);
		spin_unlock(&sbi->reap_lock);
		cancel_delayed_work_sync(&sbi->reap_work);
		tarnfs_failure_stop(sbi);
		iput(sbi->meta_inode);
	}
	/* evicts; calls put_super if it was mounted */
	if (sbi && !list_empty(&sbi->char_link))
		kill_anon_super(sb);
	else
		kill_block_super(sb);
	if (!sbi)
		return;
	flush_work(&sbi->put_work);	/* of a mount that failed halfway */
	tarnfs_failure_remove(sbi);
	tarnfs_backing_close(&sbi->backing, sb);
	if (test_bit(TARNFS_SB_TREE, &sbi->state))
		tarn_tree_destroy(&sbi->tree);
	spin_lock(&tarnfs_chars_lock);
	list_del(&sbi->char_link);
	spin_unlock(&tarnfs_chars_lock);
	tarnfs_free_sbi(sbi);
}

static struct file_system_type tarnfs_type = {
	.owner		= THIS_MODULE,
	.name		= "tarnfs",
	.init_fs_context = tarnfs_init_fs_context,
	.parameters	= tarnfs_parameters,
	.kill_sb	= tarnfs_kill_sb,
	.fs_flags	= FS_REQUIRES_DEV,
};

static int __init tarnfs_init(void)
{
	int err = tarnfs_inode_cache_create();

	if (err)
		return err;
	err = tarnfs_daxbus_register();
	if (err)
		goto out_cache;
	err = register_filesystem(&tarnfs_type);
	if (err)
		goto out_daxbus;
	return 0;

out_daxbus:
	tarnfs_daxbus_unregister();
out_cache:
	tarnfs_inode_cache_destroy();
	return err;
}

static void __exit tarnfs_exit(void)
{
	unregister_filesystem(&tarnfs_type);
	tarnfs_daxbus_unregister();
	/* inodes and nodes on their way out */
	rcu_barrier();
	tarnfs_inode_cache_destroy();
}

module_init(tarnfs_init);
module_exit(tarnfs_exit);

MODULE_ALIAS_FS("tarnfs");
MODULE_AUTHOR("The tarnfs authors");
MODULE_DESCRIPTION("tarnfs: files in DAX memory shared by hosts");
MODULE_LICENSE("GPL");
MODULE_VERSION(TARNFS_MODULE_VERSION);
