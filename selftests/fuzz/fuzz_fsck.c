// SPDX-License-Identifier: GPL-2.0-only
/*
 * An image of an enemy under fsck: every finding has a number of the table and a
 * sentence without bytes of the media, the same image has the same findings, and
 * fsck and replay agree: no errors is a log that is replayed to its end, and a log
 * that is not has an error.
 */
#include "fuzz.h"
#include "fuzz_kernel.h"
#include "fsck.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

const uint8_t fuzz_weights[4] = { 9, 4, 2, 1 };

static enum tarn_fsck_severity severities[1000];
static bool known[1000];

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	const struct tarn_fsck_kind *kinds;
	size_t count;

	(void)argc;
	(void)argv;
	fuzz_image_init();
	kinds = tarn_fsck_kinds(&count);
	for (size_t i = 0; i < count; i++) {
		known[kinds[i].number] = true;
		severities[kinds[i].number] = kinds[i].severity;
	}
	return 0;
}

struct told {
	uint64_t count[TARN_FSCK_ERROR + 1];
	bool number[1000];
	uint64_t sum;		/* of all that was told */
	unsigned int first_error;
	char first_text[256];
};

static void on_finding(void *arg, const struct tarn_fsck_finding *f)
{
	struct told *t = arg;

	fuzz_check((unsigned int)f->number < 1000 && known[f->number], "finding %d", f->number);
	fuzz_check(f->severity == severities[f->number], "severity of %d", f->number);
	fuzz_check(f->text[0], "finding %d without a sentence", f->number);
	fuzz_check_text(f->text);
	fuzz_check(f->off <= fuzz_media()->size || f->off <= fuzz_super.dev_size,
		   "finding %d at 0x%llx", f->number, (unsigned long long)f->off);
	t->count[f->severity]++;
	t->number[f->number] = true;
	t->sum = t->sum * 31 + f->number * 1000003ULL + f->off;
	if (f->severity == TARN_FSCK_ERROR && !t->first_error) {
		t->first_error = f->number;
		snprintf(t->first_text, sizeof(t->first_text), "%s", f->text);
	}
}

static int look(struct told *t, struct tarn_fsck *f, uint64_t dev_size)
{
	struct tarn_err err = { "" };
	int ret;

	memset(t, 0, sizeof(*t));
	*f = (struct tarn_fsck){ .dev_size = dev_size, .finding = on_finding, .arg = t };
	ret = tarn_fsck(f, fuzz_media(), &err);
	fuzz_check_err(ret, &err);
	fuzz_check(ret == 0 || ret == -ENODATA || ret == -EBUSY, "fsck: %d", ret);
	for (int i = 0; !ret && i <= TARN_FSCK_ERROR; i++)
		fuzz_check(f->untold || f->count[i] == t->count[i], "count of severity %d", i);
	return ret;
}

/* Errors at which replay does not stop, by the table: the memory is used no further than that. */
static bool replay_goes_on(const struct told *t)
{
	static const unsigned int numbers[] = {
		TARN_FSCK_SUPER_DIFFER, TARN_FSCK_SUPER_NEWER, TARN_FSCK_SUPER_SIZE,
		TARN_FSCK_IDENTITY_BOTH, TARN_FSCK_INO_RANGE,
	};

	for (size_t i = 0; i < TARN_ARRAY_SIZE(numbers); i++)
		if (t->number[numbers[i]])
			return true;
	return false;
}

static void compare(const struct told *t, const struct tarn_fsck *found)
{
	struct tarn_err err = { "" };
	struct fuzz_session f;
	int64_t ret;

	fuzz_session_open(&f, 2);
	ret = tarn_replay(&f.s, true, &err);
	testkernel_verify(f.kernel);
	/* not what is on the media, but who this host is: another host took its page */
	if (ret < 0 && (testkernel_is_shut(f.kernel) || t->number[TARN_FSCK_IDENTITY_BOTH]))
		goto out;
	if (ret < 0) {
		fuzz_check(t->count[TARN_FSCK_ERROR] || t->number[TARN_FSCK_SEALED],
			   "fsck finds no error, and replay: %s", err.text);
	} else {
		fuzz_check(!t->count[TARN_FSCK_ERROR] || replay_goes_on(t),
			   "replay goes to the end, and fsck: error %u: %s", t->first_error,
			   t->first_text);
		if (!t->count[TARN_FSCK_ERROR])
			fuzz_check(found->log_looked && found->seq == f.s.st.seq &&
				   found->files == f.s.st.files &&
				   found->directories == f.s.st.directories &&
				   found->symlinks == f.s.st.symlinks &&
				   found->used == found->data - f.s.st.free_bytes &&
				   found->generation == f.s.st.generation &&
				   found->log_host == f.s.st.log_host,
				   "fsck and replay have seen different trees");
	}
out:
	fuzz_session_close(&f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct told first, second;
	struct tarn_fsck f, g;
	struct fuzz_input in;
	struct tarn_super sb;
	bool still = fuzz_image_load(data, size, &in);
	uint64_t dev_size = in.opt[0] % 8 == 7 ? FUZZ_IMAGE : fuzz_super.dev_size;
	int ret;

	if (in.opt[1] % 16 == 15)
		fuzz_media()->size = (in.opt[1] / 16 + 1) * (uint64_t)(FUZZ_IMAGE / 16);
	ret = look(&first, &f, dev_size);
	if (still) {
		if (in.opt[2] % 8 == 7)
			fuzz_check(ret == look(&second, &g, dev_size) && first.sum == second.sum,
				   "not the same findings");
		/* replay is of a file system that is mounted: the one that the superblock tells of */
		if (!ret && fuzz_media()->size == FUZZ_IMAGE &&
		    !tarn_super_read(&sb, fuzz_media(), 0, NULL) &&
		    !memcmp(&sb, &fuzz_super, sizeof(sb)))
			compare(&first, &f);
	}
	fuzz_image_reset();
	return 0;
}
