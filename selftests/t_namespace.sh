#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# A raw namespace and one made with --map=dev are refused, and the kernel says which
# command makes a good one; that one mounts. Destroys the namespace's data. Prints TAP.

# shellcheck disable=SC2317 # checks are called by name
# shellcheck source=selftests/lib.sh
if [ -e /selftests/lib.sh ]; then . /selftests/lib.sh; else . "${0%/*}/lib.sh"; fi

dev=${TARN_DEV:-/dev/pmem0}
if [ ! -b $dev ]; then
	echo "1..0 # SKIP $dev is no block device; t_device.sh has the devdax namespaces"
	exit 0
fi
m=$(mktemp -d)
# of the kernel's message the tools make a command that can be run
help='ndctl create-namespace -f -e namespace0.0 -m fsdax --map=mem'

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

plan 15
yes "the namespace made raw" remake -m raw
mark
no "mount of a raw namespace" mount -i -t tarnfs -o meta $dev "$m"
yes "... says that it has no DAX" said 'no DAX'
refuse "mkfs.tarnfs of it says so as well" 1 "no DAX.*$help" mkfs.tarnfs -f $dev
refuse "mount.tarnfs too" 32 "no DAX.*$help" mount -t tarnfs $dev "$m"
yes "... and the command that helps" said 'ndctl create-namespace -f -e NAMESPACE -m fsdax --map=mem'
yes "the namespace made with --map=dev" remake -m fsdax --map=dev
mark
no "mount of it" mount -i -t tarnfs -o meta $dev "$m"
yes "... says what is wrong" said 'made with --map=dev'
refuse "mkfs.tarnfs of it says so as well" 1 "made with --map=dev.*$help" mkfs.tarnfs -f $dev
refuse "mount.tarnfs too" 32 "made with --map=dev.*$help" mount -t tarnfs $dev "$m"
refuse "status too" 1 "made with --map=dev.*$help" tarnfs status $dev
yes "the namespace made with --map=mem" remake -m fsdax --map=mem
yes "mount of it" mount -i -t tarnfs -o meta $dev "$m"
yes "umount" umount -i "$m"
rmdir "$m"
finish
