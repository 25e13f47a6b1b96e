/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tracepoints: one for each cache operation on file data, with the bytes of
 * the device it was for and why, one for each batch and each fault.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM tarnfs

#if !defined(_TARNFS_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _TARNFS_TRACE_H

#include <linux/tracepoint.h>
#include <linux/types.h>

#ifndef _TARNFS_TRACE_REASONS
#define _TARNFS_TRACE_REASONS
enum tarnfs_reason {
	TARNFS_FIRST_USE,		/* bytes made by another host, seen here the first time */
	TARNFS_FADVISE,			/* posix_fadvise(POSIX_FADV_DONTNEED) */
	TARNFS_FSYNC,
	TARNFS_SYNC,			/* sync(2), umount */
	TARNFS_EVICT,			/* the inode leaves memory */
	TARNFS_LAST_USE,		/* the range may be given to another file */
};
#endif

TRACE_DEFINE_ENUM(TARNFS_FIRST_USE);
TRACE_DEFINE_ENUM(TARNFS_FADVISE);
TRACE_DEFINE_ENUM(TARNFS_FSYNC);
TRACE_DEFINE_ENUM(TARNFS_SYNC);
TRACE_DEFINE_ENUM(TARNFS_EVICT);
TRACE_DEFINE_ENUM(TARNFS_LAST_USE);

#define show_tarnfs_reason(reason)			\
	__print_symbolic(reason,			\
		{ TARNFS_FIRST_USE,	"first_use" },	\
		{ TARNFS_FADVISE,	"fadvise" },	\
		{ TARNFS_FSYNC,		"fsync" },	\
		{ TARNFS_SYNC,		"sync" },	\
		{ TARNFS_EVICT,		"evict" },	\
		{ TARNFS_LAST_USE,	"last_use" })

DECLARE_EVENT_CLASS(tarnfs_cache_operation,
	TP_PROTO(u64 ino, u64 off, u64 len, enum tarnfs_reason reason),
	TP_ARGS(ino, off, len, reason),
	TP_STRUCT__entry(
		__field(u64, ino)
		__field(u64, off)
		__field(u64, len)
		__field(int, reason)
	),
	TP_fast_assign(
		__entry->ino = ino;
		__entry->off = off;
		__entry->len = len;
		__entry->reason = reason;
	),
	TP_printk("ino=%llu off=%llu len=%llu reason=%s",
		  __entry->ino, __entry->off, __entry->len,
		  show_tarnfs_reason(__entry->reason))
);

/* Lines of [off, off + len) written back if dirty, and dropped. */
DEFINE_EVENT(tarnfs_cache_operation, tarnfs_invalidate,
	TP_PROTO(u64 ino, u64 off, u64 len, enum tarnfs_reason reason),
	TP_ARGS(ino, off, len, reason));

/* Lines of [off, off + len) that mappings dirtied written back. */
DEFINE_EVENT(tarnfs_cache_operation, tarnfs_writeback,
	TP_PROTO(u64 ino, u64 off, u64 len, enum tarnfs_reason reason),
	TP_ARGS(ino, off, len, reason));

TRACE_EVENT(tarnfs_apply,
	TP_PROTO(u64 generation, u64 first_seq, u32 count, u32 done, u32 flags, int error),
	TP_ARGS(generation, first_seq, count, done, flags, error),
	TP_STRUCT__entry(
		__field(u64, generation)
		__field(u64, first_seq)
		__field(u32, count)
		__field(u32, done)
		__field(u32, flags)
		__field(int, error)
	),
	TP_fast_assign(
		__entry->generation = generation;
		__entry->first_seq = first_seq;
		__entry->count = count;
		__entry->done = done;
		__entry->flags = flags;
		__entry->error = error;
	),
	TP_printk("generation=%llu first_seq=%llu count=%u done=%u flags=%#x error=%d",
		  __entry->generation, __entry->first_seq, __entry->count,
		  __entry->done, __entry->flags, __entry->error)
);

TRACE_EVENT(tarnfs_fault,
	TP_PROTO(u64 ino, u64 pos, unsigned int order, bool write, unsigned int result),
	TP_ARGS(ino, pos, order, write, result),
	TP_STRUCT__entry(
		__field(u64, ino)
		__field(u64, pos)
		__field(unsigned int, order)
		__field(bool, write)
		__field(unsigned int, result)
	),
	TP_fast_assign(
		__entry->ino = ino;
		__entry->pos = pos;
		__entry->order = order;
		__entry->write = write;
		__entry->result = result;
	),
	TP_printk("ino=%llu pos=%llu order=%u write=%d result=%#x",
		  __entry->ino, __entry->pos, __entry->order, __entry->write,
		  __entry->result)
);

/* Bytes of the device that failed, after nobody of ours touches them any more. */
TRACE_EVENT(tarnfs_failure,
	TP_PROTO(u64 off, u64 len, int flags),
	TP_ARGS(off, len, flags),
	TP_STRUCT__entry(
		__field(u64, off)
		__field(u64, len)
		__field(int, flags)
	),
	TP_fast_assign(
		__entry->off = off;
		__entry->len = len;
		__entry->flags = flags;
	),
	TP_printk("off=%llu len=%llu flags=%#x", __entry->off, __entry->len, __entry->flags)
);

#endif /* _TARNFS_TRACE_H */

#undef TRACE_INCLUDE_PATH
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_PATH .
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
