// SPDX-License-Identifier: GPL-2.0-only
/*
 * Not a test but a tool of the test scripts: has a device open (holddev open DEVICE), or its
 * first 2 MiB mapped and not open (holddev map DEVICE), prints "ready" and waits for a signal.
 * holddev thread DEVICE: open in a thread alone, which has descriptors of its own; holddev
 * orphan-map DEVICE: mapped, by a process whose first thread has ended.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void hold(void)
{
	puts("ready");
	fflush(stdout);
	for (;;)
		pause();
}

static void *own_descriptors(void *device)
{
	if (unshare(CLONE_FILES) || open(device, O_RDWR | O_CLOEXEC) < 0) {
		perror(device);
		_exit(1);
	}
	hold();
	return NULL;
}

static void *without_first(void *first)
{
	pthread_join(*(pthread_t *)first, NULL);
	hold();
	return NULL;
}

int main(int argc, char **argv)
{
	static pthread_t first;
	pthread_t thread;
	int fd;

	if (argc == 3 && strcmp(argv[1], "thread") == 0) {
		if (pthread_create(&thread, NULL, own_descriptors, argv[2])) {
			fputs("no thread\n", stderr);
			return 1;
		}
		pthread_join(thread, NULL);
	}
	fd = argc == 3 ? open(argv[2], O_RDWR | O_CLOEXEC) : -1;
	if (fd < 0) {
		perror(argc == 3 ? argv[2] : "usage: holddev open|map|thread|orphan-map DEVICE");
		return 1;
	}
	if (strcmp(argv[1], "open") != 0) {
		if (mmap(NULL, 2 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED) {
			perror("mmap");
			return 1;
		}
		close(fd);
	}
	if (strcmp(argv[1], "orphan-map") == 0) {
		first = pthread_self();
		if (pthread_create(&thread, NULL, without_first, &first)) {
			fputs("no thread\n", stderr);
			return 1;
		}
		pthread_exit(NULL);
	}
	hold();
	return 0;
}
