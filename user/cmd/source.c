// SPDX-License-Identifier: GPL-2.0-only
/*
 * source.c - metadata to read, wherever it is: a directory on a mount, a
 * device (mounted here or not), or an image.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "source.h"

static int open_mounted(struct source *s, const char *path, struct tarn_err *err)
{
	int ret = tarn_session_open(&s->session, path, 0, err);

	if (ret)
		return ret;
	s->mounted = true;
	s->media = s->session.media;
	s->sb = &s->session.sb;
	s->dev_size = s->session.st.dev_size;
	return 0;
}

int source_open(struct source *s, const char *path, struct tarn_err *err)
{
	struct stat st;
	int ret;

	memset(s, 0, sizeof(*s));
	if (stat(path, &st)) {
		ret = errno;
		/* a dax device without a node in /dev is there all the same, in a mode to be told */
		if (ret == ENOENT && tarn_device_find(&s->device, path, err) != -ENOENT)
			return -EOPNOTSUPP;
		return tarn_fail(err, ret, "%s: %s", shown(path), strerror(ret));
	}
	if (S_ISDIR(st.st_mode))
		return open_mounted(s, path, err);
	ret = tarn_device_find(&s->device, path, err);
	if (ret)
		return ret;
	if (s->device.mounted_tarnfs)
		return open_mounted(s, s->device.mounted_on, err);
	if (s->device.mounted_on[0])
		return tarn_fail(err, EBUSY, "%s: it is mounted on %s, and not as a tarnfs",
				 shown(s->device.path), shown(s->device.mounted_on));
	ret = tarn_meta_open(&s->meta, &s->device, false, err);
	if (ret) {
		busy_unseen(&s->device, ret, err);
		return ret;
	}
	ret = tarn_super_read(&s->own_sb, s->meta.media, s->meta.dev_size, err);
	if (ret) {
		tarn_meta_close(&s->meta);
		if (ret == -ENODATA && file_on_tarnfs(path))
			return tarn_fail(err, ENODATA, "%s: no image, but a file on a mounted tarnfs: name "
					 "a directory of that", shown(path));
		return tarn_fail_prefix(err, ret, "%s: ", shown(s->device.path));
	}
	s->media = s->meta.media;
	s->sb = &s->own_sb;
	s->dev_size = s->meta.dev_size;
	return 0;
}

void source_close(struct source *s)
{
	if (s->mounted)
		tarn_session_close(&s->session);
	else
		tarn_meta_close(&s->meta);
}
