// SPDX-License-Identifier: GPL-2.0-only
/*
 * demo-map FILE: maps a file, touches every 4 KiB of it, says on stderr how many page faults
 * that took, and writes the file's bytes from the mapping to stdout.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static long faults(void)
{
	struct rusage usage;

	if (getrusage(RUSAGE_SELF, &usage))
		fail("getrusage");
	return usage.ru_minflt + usage.ru_majflt;
}

int main(int argc, char **argv)
{
	volatile unsigned char sum = 0;
	const unsigned char *map;
	struct stat st;
	size_t at, size;
	long before;
	int fd;

	if (argc != 2) {
		fprintf(stderr, "usage: demo-map FILE\n");
		return 2;
	}
	fd = open(argv[1], O_RDONLY);
	if (fd < 0 || fstat(fd, &st))
		fail(argv[1]);
	size = st.st_size;
	map = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		fail("mmap");

	before = faults();
	for (at = 0; at < size; at += 4096)
		sum += map[at];
	fprintf(stderr, "%zu %ld\n", size, faults() - before);

	for (at = 0; at < size;) {
		ssize_t done = write(1, map + at, size - at);

		if (done < 0)
			fail("write");
		at += done;
	}
	return 0;
}
