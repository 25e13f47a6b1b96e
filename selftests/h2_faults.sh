#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# A file of 64 MiB that is mapped and touched 4 KiB at a time, without populate, costs one
# fault for each 2 MiB, on the master and on a client of another kernel; the client loads
# what the master stored. Prints TAP.

# shellcheck disable=SC2317 # checks are called by name
# shellcheck source=selftests/lib.sh
if [ -e /selftests/lib.sh ]; then . /selftests/lib.sh; else . "${0%/*}/lib.sh"; fi

dev=${TARN_DEV:-/dev/pmem0}
m=/mnt/tarn
trace=/sys/kernel/tracing
mkdir -p $m
umask 022

meet() {
	barrier "$1" || bail "the other host is gone at $1"
}

# measure [-w] FILE: runs mapcount; $pages, $faults, $huge are what it cost
measure() {
	echo 0 >$trace/tracing_on
	echo >$trace/trace
	echo 1 >$trace/events/fs_dax/dax_pmd_fault_done/enable
	echo 1 >$trace/tracing_on
	counted=$(/selftests/mapcount "$@")
	echo 0 >$trace/tracing_on
	note "mapcount: $counted"
	pages=$(echo "$counted" | sed -n 's/.*pages=\([0-9]*\).*/\1/p')
	faults=$(echo "$counted" | sed -n 's/.*faults=\([0-9]*\).*/\1/p')
	sum=$(echo "$counted" | sed -n 's/.*sum=\([0-9]*\).*/\1/p')
	huge=$(grep -c 'dax_pmd_fault_done:.*NOPAGE' $trace/trace)
	note "$huge faults of 2 MiB"
}

# three points on what measure found
judge() {
	same "$1: all pages" 16384 "$pages"
	yes "$1: at most 40 faults ($faults)" [ "${faults:-999}" -le 40 ]
	yes "$1: at least 32 of them of 2 MiB ($huge)" [ "${huge:-0}" -ge 32 ]
}

if [ "$HOST" = 0 ]; then
	plan 10
	yes "mkfs" mkfs.tarnfs -q -f --hosts-fenced $dev
	yes "mount" mount -t tarnfs $dev $m
	yes "creat" tarnfs creat -s 64M $m/read $m/write
	yes "bytes beyond the first chunk" dd if=/dev/urandom of=$m/write bs=1M count=64 conv=notrunc,fsync
	measure $m/read
	judge "master, loads"
	measure -w $m/write
	judge "master, stores"
	meet made
	meet judged
	umount $m
	finish
fi

plan 5
meet made
yes "mount" mount -t tarnfs $dev $m
measure $m/write
judge "client, loads"
same "... what the master stored" \
	"$(awk 'BEGIN { for (i = 0; i < 16384; i++) s += (37 * i + 11) % 256; print s }')" "$sum"
meet judged
umount $m
finish
