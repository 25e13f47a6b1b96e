// SPDX-License-Identifier: GPL-2.0-only
/*
 * Superblocks of an enemy: what is taken has its structures apart from each
 * other and inside the device, and is encoded as it was; and mkfs, which asks
 * what is there, is told.
 */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

const uint8_t fuzz_weights[4] = { 0, 3, 12, 1 };

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	fuzz_image_init();
	return 0;
}

struct span {
	uint64_t off, end;
};

/* In order of place: none reaches into the next one, or out of the metadata. */
static void check_geometry(const struct tarn_super *sb)
{
	const uint64_t pages = (uint64_t)sb->hosts * sb->host_stride;
	struct span s[TARNFS_AREAS_MAX + 3] = {
		{ 0, TARNFS_SUPER2_OFF + TARNFS_SUPER_LEN },
		{ sb->hosts_off, sb->hosts_off + pages },
		{ sb->mirror_off, sb->mirror_off + pages },
	};
	int n = 3;

	fuzz_check(sb->hosts && sb->hosts <= TARNFS_HOSTS_MAX, "%u hosts", sb->hosts);
	fuzz_check(sb->areas >= 2 && sb->areas <= TARNFS_AREAS_MAX, "%u areas", sb->areas);
	for (int i = 0; i < sb->areas; i++)
		s[n++] = (struct span){ sb->area[i].off, sb->area[i].off + sb->area[i].len };
	for (int i = 0; i < n; i++) {
		fuzz_check(s[i].off < s[i].end && s[i].end <= sb->data_start &&
			   !(s[i].off % TARNFS_BLOCK), "structure %d out of the metadata", i);
		for (int j = 0; j < i; j++)
			fuzz_check(s[i].end <= s[j].off || s[j].end <= s[i].off,
				   "structures %d and %d overlap", i, j);
	}
	fuzz_check(sb->data_start <= sb->data_end && sb->data_end <= sb->dev_size &&
		   sb->dev_size <= TARNFS_SIZE_MAX && !(sb->data_start % TARNFS_HUGE) &&
		   !(sb->data_end % TARNFS_BLOCK), "data");
	fuzz_check(!sb->label[sizeof(sb->label) - 1], "label without an end");
}

static void check_decode(const uint8_t *bytes, uint64_t dev_size)
{
	struct tarnfs_super raw, again;
	struct tarn_err err = { "" };
	struct tarn_super sb;
	int ret;

	memcpy(&raw, bytes, sizeof(raw));
	ret = tarn_super_decode(&sb, &raw, dev_size, &err);
	fuzz_check_err(ret, &err);
	fuzz_check(ret == 0 || ret == -EUCLEAN || ret == -ENODATA || ret == -EOPNOTSUPP,
		   "decode: %d", ret);
	if (ret)
		return;
	fuzz_check(!dev_size || sb.dev_size <= dev_size, "larger than the device");
	check_geometry(&sb);
	tarn_super_encode(&again, &sb);
	fuzz_check(!memcmp(&raw, &again, sizeof(raw)), "encoded again it is another one");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint64_t sizes[] = { 0, fuzz_super.dev_size, fuzz_super.dev_size - 1, FUZZ_IMAGE,
				   TARNFS_SIZE_MAX, UINT64_MAX, 512, TARNFS_SUPER2_OFF };
	struct tarn_err err = { "" };
	struct tarn_mkfs_probe probe;
	struct fuzz_input in;
	struct tarn_super sb;
	uint64_t dev_size;
	int ret;

	fuzz_image_load(data, size, &in);
	dev_size = sizes[in.opt[0] % TARN_ARRAY_SIZE(sizes)];
	check_decode(fuzz_image + TARNFS_SUPER_OFF, dev_size);
	check_decode(fuzz_image + TARNFS_SUPER2_OFF, 0);

	/* media of any length: mkfs sees devices of any */
	if (in.opt[1])
		fuzz_media()->size = in.opt[1] < 64 ? in.opt[1] * 128U : in.opt[1] * 16384U;
	ret = tarn_super_read(&sb, fuzz_media(), dev_size, &err);
	fuzz_check_err(ret, &err);
	err.text[0] = '\0';
	ret = tarn_mkfs_probe(&probe, fuzz_media(), dev_size, &err);
	/* a sentence is also left by what was found and is not valid */
	fuzz_check_text(err.text);
	fuzz_check(!ret || err.text[0], "probe: %d and no sentence", ret);
	fuzz_check(!probe.valid || probe.found, "valid, and not found");
	fuzz_check(!probe.claimed || probe.claimed <= probe.sb.hosts, "%u claimed", probe.claimed);
	if (!ret && probe.valid)
		check_geometry(&probe.sb);
	/* that is all that mkfs has to see to write: hostile bytes must not be able to stop it */
	fuzz_check(!ret || !dev_size || fuzz_media()->size < dev_size, "probe: %s", err.text);
	fuzz_image_reset();
	return 0;
}
