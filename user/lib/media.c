// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * media.c - the narrow interface to metadata bytes: range checks, and the two
 * compositions that everything else is made of. The back ends are elsewhere.
 */
#include "internal.h"

static int in_range(const struct tarn_media *m, uint64_t off, uint64_t len)
{
	return off <= m->size && len <= m->size - off ? 0 : -EINVAL;
}

int tarn_media_read(struct tarn_media *m, uint64_t off, void *buf, size_t len)
{
	return in_range(m, off, len) ? -EINVAL : m->ops->read(m, off, buf, len);
}

int tarn_media_write(struct tarn_media *m, uint64_t off, const void *buf, size_t len)
{
	return in_range(m, off, len) ? -EINVAL : m->ops->write(m, off, buf, len);
}

int tarn_media_read64(struct tarn_media *m, uint64_t off, uint64_t *value)
{
	return off % 8 || in_range(m, off, 8) ? -EINVAL : m->ops->read64(m, off, value);
}

int tarn_media_write64(struct tarn_media *m, uint64_t off, uint64_t value)
{
	return off % 8 || in_range(m, off, 8) ? -EINVAL : m->ops->write64(m, off, value);
}

int tarn_media_writeback(struct tarn_media *m, uint64_t off, size_t len)
{
	return in_range(m, off, len) ? -EINVAL : m->ops->writeback(m, off, len);
}

int tarn_media_invalidate(struct tarn_media *m, uint64_t off, size_t len)
{
	return in_range(m, off, len) ? -EINVAL : m->ops->invalidate(m, off, len);
}

int tarn_media_fence(struct tarn_media *m)
{
	return m->ops->fence(m);
}

void tarn_media_close(struct tarn_media *m)
{
	if (m)
		m->ops->close(m);
}

int tarn_media_fetch(struct tarn_media *m, uint64_t off, void *buf, size_t len)
{
	int ret = tarn_media_invalidate(m, off, len);

	return ret ? ret : tarn_media_read(m, off, buf, len);
}

int tarn_media_store64(struct tarn_media *m, uint64_t off, uint64_t value)
{
	int ret = tarn_media_write64(m, off, value);

	if (!ret)
		ret = tarn_media_writeback(m, off - off % TARNFS_LINE, TARNFS_LINE);
	if (!ret)
		ret = tarn_media_fence(m);
	return ret;
}

int tarn_media_store(struct tarn_media *m, uint64_t off, const void *buf, size_t len)
{
	int ret = tarn_media_write(m, off, buf, len);

	if (!ret)
		ret = tarn_media_writeback(m, off, len);
	if (!ret)
		ret = tarn_media_fence(m);
	return ret;
}
