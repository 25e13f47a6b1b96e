// SPDX-License-Identifier: GPL-2.0-only
/*
 * fsmount DEVICE [OPTION[=VALUE]]...: a mount without mount.tarnfs and without a
 * mount point, gone at once. Prints the kernel's words, and "done" or the errno's
 * name. Exit status: 0 done, 1 refused.
 *
 * With -s MILLISECONDS before DEVICE it stays mounted that long.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	int fs = fsopen("tarnfs", 0), err = 0, mnt, stay = 0;
	char words[4096];
	ssize_t n;

	if (argc > 2 && !strcmp(argv[1], "-s")) {
		stay = atoi(argv[2]);
		argv += 2;
		argc -= 2;
	}
	if (argc < 2 || fs < 0) {
		fprintf(stderr, "fsmount: %s\n", argc < 2 ? "no device" : strerror(errno));
		return 2;
	}
	if (fsconfig(fs, FSCONFIG_SET_STRING, "source", argv[1], 0))
		err = errno;
	for (int i = 2; i < argc && !err; i++) {
		char *value = strchr(argv[i], '=');

		if (value)
			*value++ = '\0';
		if (fsconfig(fs, value ? FSCONFIG_SET_STRING : FSCONFIG_SET_FLAG, argv[i], value, 0))
			err = errno;
	}
	if (!err && fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0))
		err = errno;
	while ((n = read(fs, words, sizeof(words) - 1)) > 0)
		printf("%.*s\n", (int)n, words);
	if (!err) {
		mnt = fsmount(fs, 0, 0);
		if (mnt < 0)
			err = errno;
		else
			usleep(stay * 1000);
	}
	printf("%s\n", err ? strerrorname_np(err) : "done");
	return !!err;
}
