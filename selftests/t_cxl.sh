#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# tarnfs in CXL memory, of either type: the device is found to be what it is, a tree comes
# back whole after the device was detached and attached. In persistent memory also with a
# namespace in fsdax mode. Prints TAP.

# shellcheck source=selftests/lib.sh
if [ -e /selftests/lib.sh ]; then . /selftests/lib.sh; else . "${0%/*}/lib.sh"; fi

case ${TARN_BACKING:-} in
cxl-*) ;;
*)
	echo "1..0 # SKIP there is no CXL memory here"
	exit 0
	;;
esac
dev=$TARN_DEV
dax=${dev#/dev/}
m=/mnt/tarn
tree=$(mktemp -d)
mkdir -p $m
umask 022

use() {
	yes "$1: mkfs" mkfs.tarnfs -q -f --hosts-fenced "$2"
	yes "$1: mount" mount -t tarnfs "$2" $m
	yes "$1: cp -r" tarnfs cp -r "$tree" $m/tree
	same "$1: the bytes" "$(sums "$tree")" "$(sums $m/tree)"
	yes "$1: a large file" tarnfs creat -s 64M --fill 5 $m/large
	yes "$1: umount" umount $m
	yes "$1: fsck" fsck.tarnfs -n "$2"
	yes "$1: mount again" mount -t tarnfs "$2" $m
	same "$1: the bytes still" "$(sums "$tree")" "$(sums $m/tree)"
	yes "$1: verify" tarnfs verify -q --seed 5 $m/large
}

make_tree "$tree"
if [ "$TARN_BACKING" = cxl-pmem ]; then
	plan 32
else
	plan 18
fi
size=$(cat /sys/bus/cxl/devices/mem0/"${TARN_BACKING#cxl-}"/size)
yes "mem0 is all $TARN_BACKING" [ "$((size))" -gt 0 ]
yes "$dax is in its region" sh -c "readlink -f /sys/bus/dax/devices/$dax | grep ACPI0017"
use devdax "$dev"
no "devdax: what is mounted is not detached" tarnfs device detach "$dax"
yes "devdax: umount at last" umount $m
yes "devdax: detach" tarnfs device detach "$dax"
yes "devdax: mount -o attach" mount -t tarnfs -o attach "$dev" $m
same "devdax: the bytes once more" "$(sums "$tree")" "$(sums $m/tree)"
yes "devdax: umount then" umount $m

if [ "$TARN_BACKING" = cxl-pmem ]; then
	yes "a namespace in fsdax mode" ndctl create-namespace -f -e namespace0.0 -m fsdax --map=mem
	use fsdax /dev/pmem0
	yes "fsdax: umount at last" umount $m
	yes "a namespace in devdax mode again" ndctl create-namespace -f -e namespace0.0 -m devdax --map=mem
	yes "... attached" tarnfs device attach "$dax"
fi
rm -rf "$tree"
finish
