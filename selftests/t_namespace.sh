#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# A raw namespace and one made with --map=dev are refused, and the kernel says which
# command makes a good one; that one mounts. Destroys the namespace's data. Prints TAP.

# shellcheck source=selftests/lib.sh
if [ -e /selftests/lib.sh ]; then . /selftests/lib.sh; else . "${0%/*}/lib.sh"; fi

dev=/dev/pmem0
m=$(mktemp -d)

# said PATTERN: in the kernel log since the last mark
mark() {
	marks=$((${marks:-0} + 1))
	echo "t_namespace: mark $$ $marks" >/dev/kmsg
}
said() {
	dmesg | sed "1,/t_namespace: mark $$ $marks\$/d" | grep -q -e "$1"
}
remake() {
	ndctl create-namespace -f -e namespace0.0 "$@"
}

plan 10
yes "the namespace made raw" remake -m raw
mark
no "mount of a raw namespace" mount -i -t tarnfs -o meta $dev "$m"
yes "... says that it has no DAX" said 'no DAX'
yes "... and the command that helps" said 'ndctl create-namespace -f -e NAMESPACE -m fsdax --map=mem'
yes "the namespace made with --map=dev" remake -m fsdax --map=dev
mark
no "mount of it" mount -i -t tarnfs -o meta $dev "$m"
yes "... says what is wrong" said 'made with --map=dev'
yes "the namespace made with --map=mem" remake -m fsdax --map=mem
yes "mount of it" mount -i -t tarnfs -o meta $dev "$m"
yes "umount" umount -i "$m"
rmdir "$m"
finish
