// SPDX-License-Identifier: GPL-2.0-only
/*
 * Not a test but a tool of the test scripts: maps a file without populating
 * it, loads (or with -w stores, and writes back) one byte of each 4 KiB, and
 * prints how many page faults that cost, by getrusage(2), and the sum of those
 * bytes: "pages=N faults=N sum=N". Page n gets the byte 37 * n + 11.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static long faults(void)
{
	struct rusage ru;

	if (getrusage(RUSAGE_SELF, &ru)) {
		perror("getrusage");
		exit(1);
	}
	return ru.ru_minflt + ru.ru_majflt;
}

int main(int argc, char **argv)
{
	int writes = argc == 3 && !strcmp(argv[1], "-w");
	const char *path = argv[argc - 1];
	volatile unsigned char *map;
	unsigned long pages = 0;
	unsigned long sum = 0;
	struct stat st;
	long before;
	off_t i;
	int fd;

	if (argc != 2 + writes) {
		fprintf(stderr, "usage: mapcount [-w] FILE\n");
		return 2;
	}
	fd = open(path, writes ? O_RDWR : O_RDONLY);
	if (fd < 0 || fstat(fd, &st)) {
		perror(path);
		return 1;
	}
	map = mmap(NULL, st.st_size, PROT_READ | (writes ? PROT_WRITE : 0), MAP_SHARED, fd, 0);
	if (map == MAP_FAILED) {
		perror("mmap");
		return 1;
	}
	/* the pages of this program itself are not what is counted */
	before = faults();
	before = faults();
	for (i = 0; i < st.st_size; i += 4096, pages++) {
		if (writes)
			map[i] = (unsigned char)(37 * pages + 11);
		else
			sum += map[i];
	}
	printf("pages=%lu faults=%ld sum=%lu\n", pages, faults() - before, sum);
	if (writes && msync((void *)map, st.st_size, MS_SYNC)) {
		perror("msync");
		return 1;
	}
	return 0;
}
