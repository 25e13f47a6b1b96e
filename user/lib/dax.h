/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * dax.h - devices of the dax bus as sysfs shows them, and which driver has
 * them. Public names are in tarn.h; what is here has the places as an argument,
 * so that tests can have a sysfs of their own. No program can choose them.
 */
#ifndef TARN_DAX_H
#define TARN_DAX_H

#include "internal.h"

struct tarn_dax_places {
	const char *sys, *dev, *proc;	/* "/sys", "/dev", "/proc" */
	const char *release;		/* of the kernel; NULL: uname(2) says it */
	/* One word into a file of sysfs: 0 or a negative errno. */
	int (*store)(const char *path, const char *word);
	/* modprobe: 0 or a negative errno. */
	int (*load)(const char *module);
	/* Is a mount of it left, wherever: -EBUSY with the sentence, or 0. */
	int (*mounted)(const struct tarn_dax *dax, struct tarn_err *err);
};
extern const struct tarn_dax_places tarn_dax_here;

/* One attribute, without the newline: its length, or a negative errno. */
int tarn_sysfs_read(char *out, size_t room, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* ---- dax.c ---- */
/* "dax0.0": all that sysfs says about it. -ENOENT: no such device. */
int tarn_dax_read(const struct tarn_dax_places *p, struct tarn_dax *dax, const char *name);
/* A character device by its number. -ENOENT: not of the dax bus. */
int tarn_dax_by_number(const struct tarn_dax_places *p, struct tarn_dax *dax, unsigned int major,
		       unsigned int minor);
int tarn_dax_find_in(const struct tarn_dax_places *p, struct tarn_dax *dax, const char *what,
		     struct tarn_err *err);
int tarn_dax_ready_in(const struct tarn_dax_places *p, const struct tarn_dax *dax,
		      struct tarn_err *err);
/* "tarnfs_dax" before Linux 7.2, "fsdev_dax" from then on. */
const char *tarn_dax_wanted_in(const struct tarn_dax_places *p);
/* The sentence for a device in system-ram mode: -ENODEV. */
int tarn_dax_is_ram(const struct tarn_dax *dax, struct tarn_err *err);
/* The sentence for one whose page structures are on it: -EOPNOTSUPP. */
int tarn_dax_is_map_dev(const struct tarn_dax *dax, struct tarn_err *err);
/* The sentence for memory that no driver makes fit for a tarnfs, or 0: it can be attached. */
int tarn_dax_unfit(const struct tarn_dax *dax, struct tarn_err *err);
/* The namespace that a block device, or a partition of it, is of: "namespace0.0", "" of none. */
int tarn_block_namespace(const struct tarn_dax_places *p, dev_t dev, char *out, size_t room);
/* Whether a source in mountinfo is this device. */
bool tarn_dax_is_source(const struct tarn_dax_places *p, const struct tarn_dax *dax,
			const char *source);
/* The topmost mount of it that this process sees: its directory and type; -ENOENT. */
int tarn_dax_mount(const struct tarn_dax_places *p, const struct tarn_dax *dax, char *dir,
		   size_t room, bool *is_tarnfs);

/* ---- dax_bind.c ---- */
int tarn_dax_attach_in(const struct tarn_dax_places *p, struct tarn_dax *dax,
		       struct tarn_err *err);
int tarn_dax_detach_in(const struct tarn_dax_places *p, struct tarn_dax *dax,
		       struct tarn_err *err);

/* ---- device.c ---- */
/* Is there a mount of it that mountinfo here does not show: -EBUSY with the sentence, or 0. */
int tarn_dax_mounted(const struct tarn_dax *dax, struct tarn_err *err);

#endif
