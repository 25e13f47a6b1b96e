// SPDX-License-Identifier: GPL-2.0-only
/*
 * version.c - tarnfs version: tools, kernel module and media, and whether
 * they fit together. One message at once in place of a mount that fails
 * for no visible reason.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "commands.h"

static void usage(void)
{
	printf("Usage: tarnfs version [DIR]\n"
	       "Prints the versions of the tools, of the media format and of the kernel module.\n"
	       "Whether the module speaks the tools' interface is asked on DIR, or on any tarnfs\n"
	       "that is mounted.\n"
	       "\n"
	       "  -h, --help\n"
	       "\n"
	       "Exit status: 0 no mismatch was found, 1 there is one, 2 wrong usage.\n");
}

static bool read_line(const char *path, char *out, size_t room)
{
	FILE *f = fopen(path, "re");
	bool ok = f && fgets(out, (int)room, f);

	if (f)
		fclose(f);
	if (ok)
		out[strcspn(out, "\n")] = '\0';
	return ok;
}

/* 0 same, 1 another or unusable */
static int ask_module(const char *dir)
{
	struct tarnfs_status st = { .version = TARNFS_INTERFACE };
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), ret;

	if (fd < 0) {
		complain("%s: %s", shown(dir), strerror(errno));
		return 1;
	}
	ret = ioctl(fd, TARNFS_IOC_STATUS, &st) ? errno : 0;
	close(fd);
	if (ret == EPROTONOSUPPORT) {
		printf("module interface  %u\n", st.version);
		complain("the module speaks interface %u and these tools speak %u: install tools and "
			 "module of one version, then umount, rmmod tarnfs and modprobe tarnfs",
			 st.version, TARNFS_INTERFACE);
		return 1;
	}
	if (ret) {
		complain("%s: %s", shown(dir), ret == ENOTTY ? "is not on a tarnfs" :
			 ret == EPERM ? "only root may ask the module" : strerror(ret));
		return 1;
	}
	printf("module interface  %u, as the tools'\n", st.version);
	return 0;
}

int cmd_version(int argc, char **argv)
{
	static const struct option longs[] = {
		{ "help", no_argument, NULL, 'h' },
		{ 0 }
	};
	struct mount_entry mounted;
	char version[64];
	int c, ret = 0;

	while ((c = getopt_long(argc, argv, "h", longs, NULL)) != -1) {
		switch (c) {
		case 'h':
			usage();
			return EXIT_OK;
		default:
			complain_usage();
			return EXIT_USAGE;
		}
	}
	if (argc - optind > 1) {
		complain("one directory at most");
		complain_usage();
		return EXIT_USAGE;
	}
	printf("tools             %s\n", TARN_VERSION);
	printf("tools interface   %u\n", TARNFS_INTERFACE);
	printf("media format      %u\n", TARNFS_FORMAT_VERSION);
	if (read_line("/sys/module/tarnfs/version", version, sizeof(version)))
		printf("module            %s\n", shown(version));
	else
		printf("module            not loaded (modprobe tarnfs)\n");
	if (optind < argc) {
		ret = ask_module(argv[optind]);
	} else if (geteuid() == 0 && mount_entry_of_type("tarnfs", &mounted) == 0) {
		ret = ask_module(mounted.dir);
		mount_entry_free(&mounted);
	} else {
		printf("module interface  not asked: no tarnfs is mounted%s\n",
		       geteuid() ? ", or you are not root" : "");
	}
	return ret ? EXIT_FAILED : EXIT_OK;
}
