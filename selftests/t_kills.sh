#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# Every command that creates names, killed at each named point: what is visible is whole,
# fsck has no finding, the same command goes on, and no space stays held. (cp has t_cp.sh.)
# Prints TAP.

# shellcheck source=selftests/lib.sh
if [ -e /selftests/lib.sh ]; then . /selftests/lib.sh; else . "${0%/*}/lib.sh"; fi

dev=${TARN_DEV:-/dev/pmem0}
m=/mnt/tarn
mkdir -p $m
umask 022

value() {
	tarnfs status $m | sed -n "s/^$1  *//p"
}

# killed POINT NAME CMD...: four points. CMD creates NAME; made afterwards if it was not there.
killed() {
	k_point=$1 k_name=$2
	shift 2
	env TARNFS_STOP_AT="$k_point" "$@" >/dev/null 2>&1
	same "$2 killed at $k_point" 137 $?
	yes "... fsck has no finding" fsck.tarnfs -n $m
	# the next command of any kind finds out whether it was committed
	tarnfs logplay -q $m
	case $k_point in
	after-commit | before-apply | before-at-end) yes "... what was committed is there" ls "$k_name" ;;
	*)
		no "... nothing of it is there" ls "$k_name"
		"$@" >/dev/null
		;;
	esac
	yes "... the tree agrees with the log" tarnfs check $m
}

plan 102
yes "mkfs" mkfs.tarnfs -q -f --hosts-fenced $dev
yes "mount" mount -t tarnfs $dev $m

for point in after-reserve after-records after-commit before-apply before-at-end; do
	killed $point "$m/file-$point" tarnfs creat -s 3M "$m/file-$point"
	same "... zeroed and whole" "3145728 0" \
		"$(stat -c %s "$m/file-$point") $(tr -d '\0' <"$m/file-$point" | wc -c)"
	killed $point "$m/fill-$point" tarnfs creat -s 3M --fill 7 "$m/fill-$point"
	yes "... every byte is that of the pattern" tarnfs verify --seed 7 "$m/fill-$point"
	killed $point "$m/dir-$point/a/b" tarnfs mkdir -p "$m/dir-$point/a/b"
	killed $point "$m/link-$point" tarnfs ln -s /nowhere "$m/link-$point"
	same "... its target" /nowhere "$(readlink "$m/link-$point")"
done

same "no space stays held" "" "$(value reserved)$(value limbo)"
yes "umount" umount $m
yes "mount" mount -t tarnfs $dev $m
yes "the patterns are there still" tarnfs verify --seed 7 $m/fill-*
same "... and the rest" "5 5 16" \
	"$(find $m -name 'file-*' | wc -l) $(find $m -type l | wc -l) $(find $m -type d | wc -l)"
umount $m
finish
