/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the fuzz targets share: an image of a small file system that an input
 * changes, media over it, and checks that end the program.
 *
 * An input is 4 bytes and then pieces:
 *
 *   u8 when       0, or: late pieces come at that read, as from another host
 *   u8 opt[3]     for the target: which host, which size...
 *   piece         le16 place, u8 lines (0 counts as 1), lines * 64 bytes of image
 *
 * A place is a line of 64 bytes among those an input reaches (fuzz_image.c); its
 * top bit says that the piece is a late one. What no piece says is as in the base:
 * a whole file system with a few names, which is what an input of no bytes is.
 */
#ifndef FUZZ_H
#define FUZZ_H

#include "internal.h"

#define FUZZ_PAGES	3
#define FUZZ_AREAS	2
#define FUZZ_IMAGE	(4U << 20)	/* bytes that can be touched: data_start */
#define FUZZ_LOG	16384U		/* of each area, as far as inputs reach */
#define FUZZ_LINES	1024U		/* that inputs reach */
#define FUZZ_LATE	0x8000

struct fuzz_input {
	uint8_t when;
	uint8_t opt[3];
};

/* As mounted: the base's. */
extern struct tarn_super fuzz_super;
extern struct tarn_claim fuzz_claim[FUZZ_PAGES];	/* of pages 0 and 2, which are claimed */
extern struct tarn_host_id fuzz_host[FUZZ_PAGES];

extern uint8_t fuzz_base[FUZZ_IMAGE];
extern uint8_t fuzz_image[FUZZ_IMAGE];	/* the base with the input's pieces */
extern uint8_t fuzz_late[FUZZ_IMAGE];	/* and with the late ones; in reach alone is it set */

/* The base image is made; before anything else. Can be called again. */
void fuzz_image_init(void);
/* Puts the pieces into the image. False: there are late ones. */
bool fuzz_image_load(const uint8_t *data, size_t size, struct fuzz_input *in);
/* The late image has what no late piece changes, too: for the mutator. */
void fuzz_image_fill_late(void);
/* As the base again, and the media as new. */
void fuzz_image_reset(void);
/* The same image from now on, late pieces included, without stores of the target. */
void fuzz_image_settle(void);
/* The image, and the late one if in->when, as an input of at most `room` bytes. */
size_t fuzz_image_store(uint8_t *data, size_t room, const struct fuzz_input *in);
/* Where line n of those in reach is, and back: FUZZ_LINES if it is not in reach. */
uint64_t fuzz_line_off(uint32_t n);
uint32_t fuzz_line_at(uint64_t off);

/* Over the image; stores are allowed and undone by fuzz_image_reset(). */
struct tarn_media *fuzz_media(void);
/* Over the late image, for the mutator. */
struct tarn_media *fuzz_media_late(void);

/* A broken rule: says which and ends the program, so that the input is kept. */
void fuzz_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));
#define fuzz_check(cond, ...)			\
	do {					\
		if (!(cond))			\
			fuzz_fail(__VA_ARGS__);	\
	} while (0)
/* The random numbers of the mutators: xorshift64*, Vigna 2016. */
extern uint64_t rng;

static inline void rnd_seed(unsigned int seed)
{
	rng = seed * 0x9e3779b97f4a7c15ULL + 1;
}

static inline uint32_t rnd(uint32_t below)
{
	rng ^= rng >> 12;
	rng ^= rng << 25;
	rng ^= rng >> 27;
	return (uint32_t)((rng * 0x2545f4914f6cdd1dULL >> 33) % below);
}

/* What goes to a terminal: no control bytes, nothing that is not ASCII. */
void fuzz_check_text(const char *text);
/* An error has its sentence, success is 0. */
void fuzz_check_err(int ret, const struct tarn_err *err);

#endif
