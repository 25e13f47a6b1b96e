#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# A page that a pipe holds, after munmap and close: nobody but umount waits for it, and it is
# not given to another file before the pipe lets go. Prints TAP.

# shellcheck source=selftests/lib.sh
if [ -e /selftests/lib.sh ]; then . /selftests/lib.sh; else . "${0%/*}/lib.sh"; fi
# shellcheck source=selftests/memory.sh
. /selftests/memory.sh

m=/mnt/tarn
other=/mnt/other
mkdir -p $m $other
umask 022

free_bytes() {
	tarnfs status $m | sed -n 's/^free  *\([0-9]*\) .*/\1/p'
}

# limbo_bytes: 0 when there is no such line
limbo_bytes() {
	tarnfs status $m | sed -n 's/^limbo  *\([0-9]*\) .*/\1/p' | grep . || echo 0
}

plan 40
yes "mkfs" mkfs.tarnfs -q -f --hosts-fenced --log-size 4M "$dev"
yes "mount" mount -t tarnfs "$dev" $m
yes "files" tarnfs creat --fill 5 -s 20000 $m/a $m/b

note "a page of a file"
mkdir one
$f pin $m/a@4096 one >pipe &
pinner=$!
yes "a pipe has a page" wait_until test -e one/pinned
yes "drop_caches does not wait" sh -c 'echo 3 >/proc/sys/vm/drop_caches'
yes "more files are made" tarnfs creat --fill 5 -s 100000 $m/c $m/d
yes "logplay does not wait" tarnfs logplay -q $m
refuse "all files are read, that one too" 0 "^4 of 4" tarnfs verify --seed 5 $m/a $m/b $m/c $m/d
yes "it is flushed" tarnfs flush $m/a
yes "it is mapped" $f touch $m/a@4096
yes "sync of this file system does not wait" sync -f $m
yes "another file system is mounted" mount -t tmpfs none $other
yes "... written, and synced" sh -c "echo text >$other/file; sync -f $other"
# far from the memory that is left when somebody gets killed for it
scale=$(cat /proc/sys/vm/watermark_scale_factor)
echo 1000 >/proc/sys/vm/watermark_scale_factor
same "memory is short, and nobody waits" reclaimed "$($f press .)"
echo "$scale" >/proc/sys/vm/watermark_scale_factor
yes "... the other is unmounted" umount $other
no "the pipe still has it" test -e one/drained
: >one/drain
wait $pinner
same "the pipe has the bytes" drained "$(cat pipe)"

note "umount alone waits"
mkdir two
$f pin $m/b@0 two >pipe &
pinner=$!
yes "a pipe has a page" wait_until test -e two/pinned
(umount -i $m; : >unmounted) &
waiter=$!
yes "umount begins" wait_until sh -c "! mountpoint -q $m"
yes "another file system is mounted, synced, unmounted" sh -c \
	"mount -t tmpfs none $other && echo text >$other/file && sync -f $other && umount $other"
# as sync(2), what drops page caches asks every superblock, this one too; inodes and dentries can go
yes "reclaim does not wait" sh -c 'echo 2 >/proc/sys/vm/drop_caches'
no "umount has not ended" test -e unmounted
: >two/drain
wait $pinner
same "the pipe has the bytes" drained "$(cat pipe)"
wait $waiter
yes "then it ends" test -e unmounted
yes "mount" mount -t tarnfs "$dev" $m

note "a page of a reservation that is let go"
yes "all but 8 MiB is taken" tarnfs creat --no-zero -s $(($(free_bytes) / 2097152 * 2097152 - 8388608)) $m/ballast
before=$(free_bytes)
mkdir three
$f pin-reserved $m three >pipe &
pinner=$!
yes "a pipe has a page" wait_until test -e three/pinned
at=$(cat three/extent)
yes "logplay" tarnfs logplay -q $m
yes "... again" tarnfs logplay -q $m
same "it is not free" $((before - 4096)) "$(free_bytes)"
pages=$(($(free_bytes) / 4096))
$f reserve $m 4096 $pages zero | tr ' ' '\n' >given
same "all that is free can be had" $pages "$(grep -c + given)"
same "... and that page is not among it" 0 "$(grep -c "^$at+" given)"
yes "they are let go" tarnfs logplay -q $m
yes "more files are made" tarnfs creat --fill 5 -s 100000 $m/e
yes "... that are right" tarnfs verify -q --seed 5 $m/e
no "the pipe still has it" test -e three/drained
: >three/drain
wait $pinner
same "the pipe has the bytes: nobody wrote there" drained "$(cat pipe)"
# shellcheck disable=SC2317 # called through wait_until
free_again() {
	tarnfs logplay -q $m
	[ "$(free_bytes)" = $((before - 102400)) ]
}
yes "then the page is free after a logplay" wait_until free_again
same "nothing is in limbo" 0 "$(limbo_bytes)"
yes "umount" umount $m
finish
