// SPDX-License-Identifier: GPL-2.0-only
/*
 * The ioctls: copy arguments, ask node.c, tell the VFS. What a batch or a
 * reservation may do is decided in node.c.
 */
#include <linux/anon_inodes.h>
#include <linux/capability.h>
#include <linux/compat.h>
#include <linux/file.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include "tarnfs.h"

static bool tarnfs_all_zero(const __u64 *words, unsigned int count)
{
	return !memchr_inv(words, 0, count * sizeof(*words));
}

/* ---- STATUS ------------------------------------------------------------- */

static u32 tarnfs_state(struct tarnfs_sb_info *sbi)
{
	u32 state = 0;

	if (!sbi->tree.generation)
		state |= TARNFS_ST_FRESH;
	if (sbi->tree.attached)
		state |= TARNFS_ST_ATTACHED;
	if (tarnfs_is_shutdown(sbi))
		state |= TARNFS_ST_SHUTDOWN;
	if (test_bit(TARNFS_SB_GONE, &sbi->state))
		state |= TARNFS_ST_GONE;
	if (sb_rdonly(sbi->sb))
		state |= TARNFS_ST_RDONLY;
	if (sbi->meta)
		state |= TARNFS_ST_META;
	if (sbi->coherent)
		state |= TARNFS_ST_COHERENT;
	if (dax_synchronous(sbi->backing.dax))
		state |= TARNFS_ST_SYNC;
	return state;
}

static long tarnfs_ioctl_status(struct tarnfs_sb_info *sbi, struct tarnfs_status __user *arg)
{
	const struct tarn_tree *tree = &sbi->tree;
	struct tarnfs_status status;
	u64 evicted;
	u32 room;

	if (copy_from_user(&status, arg, sizeof(status)))
		return -EFAULT;
	if (status.version != TARNFS_INTERFACE) {
		if (put_user(TARNFS_INTERFACE, &arg->version))
			return -EFAULT;
		return -EPROTONOSUPPORT;
	}
	if (!tarnfs_all_zero(status.zero, ARRAY_SIZE(status.zero)))
		return -EINVAL;

	evicted = status.evicted;
	room = status.evicted_room;
	memset(&status, 0, sizeof(status));
	status.version = TARNFS_INTERFACE;
	status.evicted = evicted;
	status.evicted_room = room;
	memcpy(status.uuid, sbi->uuid, sizeof(status.uuid));
	status.dev_size = sbi->backing.size;
	status.data_start = sbi->data_start;
	status.data_end = sbi->data_end;

	down_read(&sbi->tree_rwsem);
	status.state = tarnfs_state(sbi);
	status.role = tree->role;
	status.log_host = tree->log_host;
	status.page = tree->page;
	status.nonce = tree->nonce;
	status.generation = tree->generation;
	status.seq = tree->seq;
	status.position = tree->position;
	status.next_ino = tree->next_ino;
	status.directories = tree->directories;
	status.files = tree->files;
	status.symlinks = tree->symlinks;
	status.free_bytes = tree->free_bytes;
	tarn_largest_free(tree, &status.largest_free, &status.largest_free_huge);
	status.reserved_bytes = tree->reserved_bytes;
	status.limbo_bytes = tree->limbo_bytes;
	up_read(&sbi->tree_rwsem);

	return copy_to_user(arg, &status, sizeof(status)) ? -EFAULT : 0;
}

/* ---- OPEN_META ---------------------------------------------------------- */

/* The ranges the caller asks for, checked, as the descriptor keeps them. */
static int tarnfs_meta_ranges(struct tarnfs_sb_info *sbi, const struct tarnfs_open_meta *args,
			      struct tarnfs_meta_file *meta)
{
	u64 size = i_size_read(sbi->meta_inode);
	u32 i;

	if (args->count > TARNFS_META_RANGES || args->zero)
		return -EINVAL;
	if (sbi->meta) {
		/* A read-only meta mount is for looking, whatever is asked for. */
		if (sb_rdonly(sbi->sb))
			return args->count ? -EROFS : 0;
		if (!args->count) {
			meta->count = 1;
			meta->writable[0].len = size;
			return 0;
		}
	}
	for (i = 0; i < args->count; i++) {
		const struct tarnfs_range *range = &args->writable[i];

		if ((range->off | range->len) & (TARNFS_BLOCK - 1) || !range->len ||
		    range->off > size || range->len > size - range->off)
			return -EINVAL;
		meta->writable[i] = *range;
	}
	meta->count = args->count;
	return 0;
}

static long tarnfs_ioctl_open_meta(struct file *file, struct tarnfs_open_meta __user *arg)
{
	struct tarnfs_sb_info *sbi = tarnfs_sb(file_inode(file)->i_sb);
	struct tarnfs_meta_file *meta;
	struct tarnfs_open_meta args;
	struct file *meta_file;
	int fd, err;

	if (copy_from_user(&args, arg, sizeof(args)))
		return -EFAULT;
	if (args.version != TARNFS_INTERFACE)
		return -EPROTONOSUPPORT;
	meta = kzalloc(sizeof(*meta), GFP_KERNEL);
	if (!meta)
		return -ENOMEM;
	err = tarnfs_meta_ranges(sbi, &args, meta);
	if (err)
		goto out_free;
	fd = get_unused_fd_flags(O_CLOEXEC);
	if (fd < 0) {
		err = fd;
		goto out_free;
	}

	/* Not by a path, and not counted as a writer: that a mount is ro is about files. */
	ihold(sbi->meta_inode);
	meta_file = alloc_file_pseudo(sbi->meta_inode, file->f_path.mnt, "tarnfs-meta",
				      O_RDWR | O_LARGEFILE, &tarnfs_meta_operations);
	if (IS_ERR(meta_file)) {
		iput(sbi->meta_inode);
		err = PTR_ERR(meta_file);
		goto out_fd;
	}
	/* alloc_file_pseudo() takes no reference for fops.owner, and __fput() drops one */
	__module_get(THIS_MODULE);
	meta_file->f_mode |= TARNFS_FMODE | FMODE_LSEEK | FMODE_PREAD | FMODE_PWRITE;
	meta_file->private_data = meta;

	if (put_user(fd, &arg->fd)) {
		fput(meta_file);	/* frees meta */
		put_unused_fd(fd);
		return -EFAULT;
	}
	fd_install(fd, meta_file);
	return 0;

out_fd:
	put_unused_fd(fd);
out_free:
	kfree(meta);
	return err;
}

/* ---- RESERVE ------------------------------------------------------------ */

/* A reservation's descriptor: the set, and the mount it keeps from going. */
struct tarnfs_set_file {
	struct tarn_set		set;
	struct tarnfs_sb_info	*sbi;
	struct vfsmount		*mnt;
};

static int tarnfs_set_release(struct inode *inode, struct file *file)
{
	struct tarnfs_set_file *sf = file->private_data;
	struct tarnfs_sb_info *sbi = sf->sbi;
	struct tarn_node *node;

	for (;;) {
		down_write(&sbi->tree_rwsem);
		node = tarn_set_pop(&sf->set);
		up_write(&sbi->tree_rwsem);
		if (!node)
			break;
		/* Who has a descriptor of it still open does this again at its end. */
		tarnfs_invalidate(sbi, node->ino, node->extent.off, node->extent.len,
				  TARNFS_LAST_USE);
		down_write(&sbi->tree_rwsem);
		tarn_node_put(&sbi->tree, node);
		up_write(&sbi->tree_rwsem);
		cond_resched();
	}
	mntput(sf->mnt);
	kfree(sf);
	return 0;
}

static long tarnfs_reserve_open(struct tarnfs_set_file *sf, struct tarnfs_reserve_open __user *arg)
{
	struct tarnfs_sb_info *sbi = sf->sbi;
	struct tarnfs_reserve_open args;
	struct path path = { .mnt = sf->mnt };
	struct tarn_node *node;
	struct file *file;
	int fd;

	if (copy_from_user(&args, arg, sizeof(args)))
		return -EFAULT;
	if (args.version != TARNFS_INTERFACE)
		return -EPROTONOSUPPORT;
	if (args.zero)
		return -EINVAL;
	if (tarnfs_is_shutdown(sbi))
		return -EIO;
	fd = get_unused_fd_flags(O_CLOEXEC);
	if (fd < 0)
		return fd;

	down_write(&sbi->tree_rwsem);
	node = tarn_set_member(&sbi->tree, &sf->set, args.ino);
	if (node)
		tarn_node_get(node);
	up_write(&sbi->tree_rwsem);
	if (!node) {
		put_unused_fd(fd);
		return -ENOENT;
	}

	path.dentry = d_obtain_alias(tarnfs_iget(sbi->sb, node));
	if (IS_ERR(path.dentry)) {
		put_unused_fd(fd);
		return PTR_ERR(path.dentry);
	}
	file = dentry_open(&path, O_RDWR | O_LARGEFILE, current_cred());
	dput(path.dentry);
	if (IS_ERR(file)) {
		put_unused_fd(fd);
		return PTR_ERR(file);
	}
	if (put_user(fd, &arg->fd)) {
		fput(file);
		put_unused_fd(fd);
		return -EFAULT;
	}
	fd_install(fd, file);
	return 0;
}

static long tarnfs_set_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	if (cmd != TARNFS_IOC_RESERVE_OPEN)
		return -ENOTTY;
	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;
	return tarnfs_reserve_open(file->private_data, (void __user *)arg);
}

static const struct file_operations tarnfs_set_operations = {
	.owner		= THIS_MODULE,
	.release	= tarnfs_set_release,
	.unlocked_ioctl	= tarnfs_set_ioctl,
	.compat_ioctl	= compat_ptr_ioctl,
	.llseek		= noop_llseek,
};

static struct file *tarnfs_set_file(struct tarnfs_sb_info *sbi, struct vfsmount *mnt)
{
	struct tarnfs_set_file *sf = kzalloc(sizeof(*sf), GFP_KERNEL);
	struct file *file;

	if (!sf)
		return ERR_PTR(-ENOMEM);
	tarn_set_init(&sf->set);
	sf->sbi = sbi;
	file = anon_inode_getfile("[tarnfs-reservation]", &tarnfs_set_operations, sf,
				  O_RDWR | O_CLOEXEC);
	if (IS_ERR(file))
		kfree(sf);
	else
		sf->mnt = mntget(mnt);
	return file;
}

/* Zeroes a page of the device, past the caches, if it still is ours to give. */
static int tarnfs_zero_page(struct tarnfs_sb_info *sbi, u64 at)
{
	int io = tarnfs_io_begin(sbi);
	int err, id;

	if (tarnfs_is_shutdown(sbi) ||
	    !tarnfs_good_bytes(sbi, at - sbi->backing.start, PAGE_SIZE)) {
		err = -EIO;
	} else if (READ_ONCE(sbi->tree.role) != TARNFS_ROLE_MASTER) {
		err = -EROFS;
	} else {
		id = dax_read_lock();
		err = dax_zero_page_range(sbi->backing.dax, PHYS_PFN(at), 1);
		dax_read_unlock(id);
	}
	tarnfs_io_end(sbi, io);
	return err;
}

static int tarnfs_zero_pages(struct tarnfs_sb_info *sbi, u64 off, u64 len)
{
	u64 at = sbi->backing.start + off;
	u64 end = at + len;
	int err = 0;

	for (; !err && at < end; at += PAGE_SIZE) {
		err = tarnfs_zero_page(sbi, at);
		/* Next time it is not handed out. */
		if (err == -EIO && !tarnfs_is_shutdown(sbi))
			tarnfs_bad_page(sbi, at - sbi->backing.start);
		if (at % TARNFS_HUGE)
			continue;
		cond_resched();
		if (!err && fatal_signal_pending(current))
			err = -EINTR;
	}
	return err;
}

/* The last page of a file that does not fill it, or all, before anyone can see it. */
static int tarnfs_zero_items(struct tarnfs_sb_info *sbi, const struct tarnfs_reserve_item *items,
			     u32 count)
{
	int err = 0;
	u32 i;

	for (i = 0; !err && i < count; i++) {
		const struct tarnfs_reserve_item *item = &items[i];

		if (item->flags & TARNFS_RESERVE_ZERO)
			err = tarnfs_zero_pages(sbi, item->off, item->len);
		else if (item->size & (PAGE_SIZE - 1))
			err = tarnfs_zero_pages(sbi, item->off + item->len - PAGE_SIZE, PAGE_SIZE);
		if (!err && fatal_signal_pending(current))
			err = -EINTR;
		cond_resched();
	}
	pmem_wmb();
	return err;
}

static long tarnfs_ioctl_reserve(struct file *file, struct tarnfs_reserve __user *arg)
{
	struct tarnfs_sb_info *sbi = tarnfs_sb(file_inode(file)->i_sb);
	struct tarnfs_reserve_item *items;
	struct tarnfs_set_file *sf;
	struct tarnfs_reserve args;
	struct file *set_file;
	size_t bytes;
	int fd, err;

	if (copy_from_user(&args, arg, sizeof(args)))
		return -EFAULT;
	if (args.version != TARNFS_INTERFACE)
		return -EPROTONOSUPPORT;
	if (!args.count || args.count > TARNFS_RESERVE_MAX ||
	    !tarnfs_all_zero(args.zero, ARRAY_SIZE(args.zero)))
		return -EINVAL;
	err = mnt_want_write_file(file);
	if (err)
		return err;

	bytes = array_size(args.count, sizeof(*items));
	items = vmemdup_user(u64_to_user_ptr(args.items), bytes);
	if (IS_ERR(items)) {
		err = PTR_ERR(items);
		goto out_write;
	}
	fd = get_unused_fd_flags(O_CLOEXEC);
	if (fd < 0) {
		err = fd;
		goto out_items;
	}
	set_file = tarnfs_set_file(sbi, file->f_path.mnt);
	if (IS_ERR(set_file)) {
		err = PTR_ERR(set_file);
		goto out_fd;
	}

	sf = set_file->private_data;
	down_write(&sbi->tree_rwsem);
	err = tarn_reserve(&sbi->tree, &sf->set, items, args.count, &args.failed);
	up_write(&sbi->tree_rwsem);
	if (err) {
		if (put_user(args.failed, &arg->failed))
			err = -EFAULT;
		goto out_set;
	}
	err = tarnfs_zero_items(sbi, items, args.count);
	if (err)
		goto out_set;

	if (copy_to_user(u64_to_user_ptr(args.items), items, bytes) || put_user(fd, &arg->fd)) {
		err = -EFAULT;
		goto out_set;
	}
	fd_install(fd, set_file);
	kvfree(items);
	mnt_drop_write_file(file);
	return 0;

out_set:
	fput(set_file);		/* lets go of what was reserved */
out_fd:
	put_unused_fd(fd);
out_items:
	kvfree(items);
out_write:
	mnt_drop_write_file(file);
	return err;
}

/* ---- BADRANGES ---------------------------------------------------------- */

static long tarnfs_ioctl_badranges(struct tarnfs_sb_info *sbi,
				   struct tarnfs_badranges __user *arg)
{
	struct tarnfs_badranges args;
	struct tarnfs_range *list;
	long err = 0;
	size_t bytes;

	if (copy_from_user(&args, arg, sizeof(args)))
		return -EFAULT;
	if (args.version != TARNFS_INTERFACE)
		return -EPROTONOSUPPORT;
	if (args.zero)
		return -EINVAL;
	list = tarnfs_bad_list(sbi, &args.count);
	if (!list)
		return -ENOMEM;
	bytes = min(args.room, args.count) * sizeof(*list);
	if (bytes && copy_to_user(u64_to_user_ptr(args.ranges), list, bytes))
		err = -EFAULT;
	if (!err && put_user(args.count, &arg->count))
		err = -EFAULT;
	kvfree(list);
	return err;
}

/* ---- APPLY -------------------------------------------------------------- */

/*
 * Inodes that were opened through a reservation and have a name since this
 * batch. Such nodes have a user already; others get their inode from a lookup,
 * and so does this in one that comes before us.
 * Called without the tree's lock: ilookup() may wait for an eviction.
 */
static void tarnfs_link_inodes(struct tarnfs_sb_info *sbi, const struct tarnfs_op *ops, u32 done)
{
	u32 i;

	for (i = 0; i < done; i++) {
		const struct tarn_node *node;
		struct inode *inode;
		bool candidate;

		if (ops[i].type != TARNFS_OP_FILE || !ops[i].extents)
			continue;
		down_read(&sbi->tree_rwsem);
		node = tarn_find(&sbi->tree, ops[i].ino);
		candidate = node && node->users && node->flags & TARN_NODE_MADE_HERE;
		up_read(&sbi->tree_rwsem);
		if (!candidate)
			continue;
		inode = ilookup(sbi->sb, ops[i].ino);
		if (!inode)
			continue;
		tarnfs_inode_link(inode);
		iput(inode);
	}
}

static long tarnfs_apply_batch(struct tarnfs_sb_info *sbi, const struct tarnfs_apply *args,
			       const struct tarnfs_op *ops, const char *strings, u32 *done)
{
	u8 old_role;
	int err;

	mutex_lock(&sbi->apply_mutex);
	down_write(&sbi->tree_rwsem);
	old_role = sbi->tree.role;
	if (tarnfs_is_shutdown(sbi)) {
		err = -EIO;
	} else {
		err = tarn_apply(&sbi->tree, args, ops, strings, done);
		tarnfs_bind_root(sbi);
	}
	up_write(&sbi->tree_rwsem);
	trace_tarnfs_apply(args->generation, args->first_seq, args->count, *done, args->flags, err);
	if (err != -EIO && !(args->flags & TARNFS_APPLY_CHECK)) {
		if (args->flags & TARNFS_APPLY_STAGE && !err)
			tarnfs_inode_update(d_inode(sbi->sb->s_root));
		tarnfs_link_inodes(sbi, ops, *done);
		/* Writes and writable mappings were begun by the old role's rules. */
		if (old_role == TARNFS_ROLE_MASTER && READ_ONCE(sbi->tree.role) != old_role)
			tarnfs_revoke(sbi);
	}
	mutex_unlock(&sbi->apply_mutex);
	return err;
}

static long tarnfs_ioctl_apply(struct tarnfs_sb_info *sbi, struct tarnfs_apply __user *arg)
{
	struct tarnfs_op *ops = NULL;
	struct tarnfs_apply args;
	char *strings = NULL;
	u32 done = 0;
	long err;

	if (copy_from_user(&args, arg, sizeof(args)))
		return -EFAULT;
	if (args.version != TARNFS_INTERFACE)
		return -EPROTONOSUPPORT;
	/* What bounds the allocations; the rest is checked with the operations. */
	if (args.op_size != sizeof(*ops) || args.count > TARNFS_APPLY_MAX ||
	    args.strings_len > TARNFS_STRINGS_MAX)
		return -EINVAL;

	if (args.count) {
		ops = vmemdup_user(u64_to_user_ptr(args.ops), array_size(args.count, sizeof(*ops)));
		if (IS_ERR(ops))
			return PTR_ERR(ops);
	}
	if (args.strings_len) {
		strings = vmemdup_user(u64_to_user_ptr(args.strings), args.strings_len);
		if (IS_ERR(strings)) {
			err = PTR_ERR(strings);
			goto out_ops;
		}
	}
	err = tarnfs_apply_batch(sbi, &args, ops, strings, &done);
	/* What was done is done, whether the caller can be told or not. */
	if (put_user(done, &arg->done))
		err = -EFAULT;

	kvfree(strings);
out_ops:
	kvfree(ops);
	return err;
}

/* ---- the rest ----------------------------------------------------------- */

static long tarnfs_ioctl_shutdown(struct tarnfs_sb_info *sbi, __u32 __user *arg)
{
	__u32 how;

	if (get_user(how, arg))
		return -EFAULT;
	if (how > 2)
		return -EINVAL;
	tarnfs_shutdown(sbi);
	return 0;
}

long tarnfs_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct tarnfs_sb_info *sbi = tarnfs_sb(file_inode(file)->i_sb);
	void __user *user = (void __user *)arg;

	switch (cmd) {
	case TARNFS_IOC_STATUS:
	case TARNFS_IOC_OPEN_META:
	case TARNFS_IOC_RESERVE:
	case TARNFS_IOC_APPLY:
	case TARNFS_IOC_BADRANGES:
	case TARNFS_IOC_SHUTDOWN:
		break;
	default:
		return -ENOTTY;
	}
	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;
	/* First of all: the worker may be writing back to what is not ours any more. */
	if (cmd == TARNFS_IOC_SHUTDOWN)
		return tarnfs_ioctl_shutdown(sbi, user);
	/* What was closed before is seen to be closed. */
	flush_work(&sbi->put_work);
	if (cmd == TARNFS_IOC_STATUS)
		return tarnfs_ioctl_status(sbi, user);
	if (cmd == TARNFS_IOC_BADRANGES)
		return tarnfs_ioctl_badranges(sbi, user);
	if (tarnfs_is_shutdown(sbi))
		return -EIO;
	if (cmd == TARNFS_IOC_OPEN_META)
		return tarnfs_ioctl_open_meta(file, user);
	/* A meta mount has no names and no data. */
	if (sbi->meta)
		return -EOPNOTSUPP;
	if (cmd == TARNFS_IOC_RESERVE)
		return tarnfs_ioctl_reserve(file, user);
	return tarnfs_ioctl_apply(sbi, user);
}
