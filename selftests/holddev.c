// SPDX-License-Identifier: GPL-2.0-only
/*
 * Not a test but a tool of the test scripts: has a device open (holddev open DEVICE), or its
 * first 2 MiB mapped and not open (holddev map DEVICE), prints "ready" and waits for a signal.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	int fd = argc == 3 ? open(argv[2], O_RDWR | O_CLOEXEC) : -1;

	if (fd < 0) {
		perror(argc == 3 ? argv[2] : "usage: holddev open|map DEVICE");
		return 1;
	}
	if (strcmp(argv[1], "map") == 0) {
		if (mmap(NULL, 2 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED) {
			perror("mmap");
			return 1;
		}
		close(fd);
	}
	puts("ready");
	fflush(stdout);
	pause();
	return 0;
}
