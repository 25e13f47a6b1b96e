// SPDX-License-Identifier: GPL-2.0-only
/*
 * Who a host is: its machine-id under the fs uuid, or what /etc/tarnfs/host
 * says; anything else in that file is an error. Sentences, and stop points.
 */
#include "internal.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[] = "/tmp/tarn-host-XXXXXX";
static char config[64], machine_id[64], boot_id[64];
static const struct tarn_host_files files = { config, machine_id, boot_id };
static const uint8_t fs_uuid[16] = { 1, 2, 3 };

static void put(const char *path, const char *text)
{
	FILE *f = fopen(path, "we");

	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static int setup(void **state)
{
	(void)state;
	if (!mkdtemp(dir))
		return -1;
	snprintf(config, sizeof(config), "%s/host", dir);
	snprintf(machine_id, sizeof(machine_id), "%s/machine-id", dir);
	snprintf(boot_id, sizeof(boot_id), "%s/boot_id", dir);
	put(machine_id, "0123456789abcdef0123456789abcdef\n");
	put(boot_id, "11111111-2222-3333-4444-555555555555\n");
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	unlink(config);
	unlink(machine_id);
	unlink(boot_id);
	return rmdir(dir);
}

static void by_machine_id(void **state)
{
	static const uint8_t other_fs[16] = { 1, 2, 4 };
	struct tarn_host_id id, other;
	struct tarn_err err;
	uint8_t expect[16];

	(void)state;
	unlink(config);
	assert_int_equal(tarn_host_id_from(&id, fs_uuid, &files, &err), 0);
	tarn_uuid_v5(expect, fs_uuid, "0123456789abcdef0123456789abcdef", 32);
	assert_memory_equal(id.uuid, expect, 16);
	assert_int_equal(id.boot_id[0], 0x11);
	assert_int_equal(id.page, -1);
	assert_true(id.node_name[0]);
	/*
	 * the machine-id itself is on no media, and two file systems do not show that a host is
	 * the same
	 */
	assert_int_equal(tarn_host_id_from(&other, other_fs, &files, &err), 0);
	assert_memory_not_equal(id.uuid, other.uuid, 16);
}

static void by_config(void **state)
{
	struct tarn_host_id id;
	struct tarn_err err;

	(void)state;
	put(config,
	    "# this host\n\n  host = 7   # its page\nuuid=aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee");
	unlink(machine_id);	/* not needed then */
	assert_int_equal(tarn_host_id_from(&id, fs_uuid, &files, &err), 0);
	assert_int_equal(id.page, 7);
	assert_int_equal(id.uuid[0], 0xaa);
	assert_int_equal(id.uuid[15], 0xee);
	/* without uuid= it is, and the way out is said */
	put(config, "host=0\n");
	assert_int_equal(tarn_host_id_from(&id, fs_uuid, &files, &err), -ENOENT);
	assert_non_null(strstr(err.text, "systemd-machine-id-setup"));
	put(machine_id, "0123456789abcdef0123456789abcdef\n");
	assert_int_equal(tarn_host_id_from(&id, fs_uuid, &files, &err), 0);
	assert_int_equal(id.page, 0);
	put(config, "");
	assert_int_equal(tarn_host_id_from(&id, fs_uuid, &files, &err), 0);
}

static void refused(void **state)
{
	static const char *const configs[] = {
		"host=\n",
		"host=x\n",
		"host=-1\n",
		"host=128\n",
		"host=1 2\n",
		"host=99999999999999999999\n",
		"host\n",
		"hosts=1\n",
		"uuid=1\n",
		"uuid=\n",
		"uuid=00000000-0000-0000-0000-000000000000\n",
		"=1\n",
		"garbage",
	};
	static const char *const ids[] = {
		"",
		"\n",
		"uninitialized\n",
		"0123456789ABCDEF0123456789abcdef\n",
		"0123456789abcdef0123456789abcde\n",
		"00000000000000000000000000000000\n",
		"0123456789abcdef0123456789abcdef0\n",
	};
	struct tarn_host_id id;
	struct tarn_err err;
	char long_line[600];

	(void)state;
	for (size_t i = 0; i < TARN_ARRAY_SIZE(configs); i++) {
		char text[128];

		snprintf(text, sizeof(text), "# comment\n%s", configs[i]);
		put(config, text);
		assert_int_equal(tarn_host_id_from(&id, fs_uuid, &files, &err), -EINVAL);
		assert_non_null(strstr(err.text, "line 2"));
	}
	memset(long_line, '#', sizeof(long_line));
	long_line[sizeof(long_line) - 1] = '\0';
	put(config, long_line);
	assert_int_equal(tarn_host_id_from(&id, fs_uuid, &files, &err), -EINVAL);
	unlink(config);
	for (size_t i = 0; i < TARN_ARRAY_SIZE(ids); i++) {
		put(machine_id, ids[i]);
		assert_int_not_equal(tarn_host_id_from(&id, fs_uuid, &files, &err), 0);
	}
	put(machine_id, "0123456789abcdef0123456789abcdef\n");
	put(boot_id, "no uuid\n");
	assert_int_equal(tarn_host_id_from(&id, fs_uuid, &files, &err), -EINVAL);
	unlink(boot_id);
	assert_int_equal(tarn_host_id_from(&id, fs_uuid, &files, &err), -ENOENT);
	put(boot_id, "11111111-2222-3333-4444-555555555555\n");
}

/* ---- error.c ---- */

static void sentences(void **state)
{
	struct tarn_err err;
	char longest[2000];

	(void)state;
	assert_int_equal(tarn_fail(&err, ENOENT, "no %s", "such"), -ENOENT);
	assert_string_equal(err.text, "no such");
	assert_int_equal(tarn_fail_prefix(&err, -5, "here%d: ", 1), -5);
	assert_string_equal(err.text, "here1: no such");
	memset(longest, 'x', sizeof(longest));
	longest[sizeof(longest) - 1] = '\0';
	tarn_fail(&err, EIO, "%s", longest);
	assert_int_equal(strlen(err.text), sizeof(err.text) - 1);
	tarn_fail_prefix(&err, -EIO, "p: ");
	assert_int_equal(strlen(err.text), sizeof(err.text) - 1);
	assert_int_equal(strncmp(err.text, "p: xxx", 6), 0);
	tarn_fail_prefix(&err, -EIO, "%s", longest);
	assert_int_equal(strlen(err.text), sizeof(err.text) - 1);
	/* who wants no sentence gets none */
	assert_int_equal(tarn_fail(NULL, EIO, "x"), -EIO);
	assert_int_equal(tarn_fail_prefix(NULL, -EIO, "x"), -EIO);
}

static int run_to(const char *at, const char *point)
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		if (at)
			setenv("TARNFS_STOP_AT", at, 1);
		else
			unsetenv("TARNFS_STOP_AT");
		tarn_stop_point(point);
		_exit(0);
	}
	waitpid(pid, &status, 0);
	return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void stop_points(void **state)
{
	(void)state;
	assert_int_equal(run_to("mid-copy", "mid-copy"), SIGKILL);
	assert_int_equal(run_to("mid-copy", "after-commit"), 0);
	assert_int_equal(run_to(NULL, "mid-copy"), 0);
	assert_int_equal(run_to("", "mid-copy"), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(by_machine_id),
		cmocka_unit_test(by_config),
		cmocka_unit_test(refused),
		cmocka_unit_test(sentences),
		cmocka_unit_test(stop_points),
	};

	return cmocka_run_group_tests_name("host", tests, setup, teardown);
}
