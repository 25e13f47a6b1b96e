#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# Every command that creates names, killed at each named point: what is visible is whole,
# fsck has no finding, the same command goes on, and no space stays held. (cp has t_cp.sh.)
# mkfs killed at each step: there is no tarnfs then, or a whole one, and mkfs can be
# repeated. mount killed at each step: nothing is mounted, and the next mount takes the page
# that it had claimed. Prints TAP.

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

plan 227
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
yes "umount" umount $m

# ---- mkfs ----
uuid() {
	tarnfs status $dev | sed -n 's/^uuid  *//p'
}
old=$(uuid)
for point in mkfs-begin mkfs-zeroed mkfs-pages mkfs-log mkfs-control mkfs-commit mkfs-second mkfs-first; do
	env TARNFS_STOP_AT=$point mkfs.tarnfs -q -f $dev >/dev/null 2>&1
	same "mkfs killed at $point" 137 $?
	case $point in
	mkfs-begin)
		same "... the old one is untouched" "$old" "$(uuid)"
		yes "... fsck" fsck.tarnfs -n $dev
		yes "... mount" mount -t tarnfs $dev $m
		yes "... its files" tarnfs verify -q --seed 7 $m/fill-*
		yes "... umount" umount $m
		;;
	mkfs-second)
		# of two copies the first counts, and that is what fsck says
		refuse "... no mount" 32 "no tarnfs superblock" mount -t tarnfs $dev $m
		refuse "... fsck" 4 "error 101 at 0x0:" fsck.tarnfs -n $dev
		refuse "... mkfs wants --force" 1 "there is a tarnfs" mkfs.tarnfs $dev
		;;
	mkfs-first)
		yes "... fsck" fsck.tarnfs -n $dev
		yes "... mount" mount -t tarnfs $dev $m
		same "... it is the new one, and empty" "" "$(ls -A $m)"
		yes "... umount" umount $m
		no "... with another uuid" test "$old" = "$(uuid)"
		;;
	*)
		refuse "... no mount" 32 "no tarnfs superblock" mount -t tarnfs $dev $m
		no "... fsck" fsck.tarnfs -n $dev
		refuse "... status" 1 "no tarnfs" tarnfs status $dev
		;;
	esac
	# once without --force, where nothing of a tarnfs is left
	case $point in
	mkfs-begin | mkfs-second | mkfs-first) force=-f ;;
	*) force= ;;
	esac
	yes "... mkfs again" mkfs.tarnfs -q $force $dev
	yes "... fsck has no finding" fsck.tarnfs -n $dev
	yes "... mount" mount -t tarnfs $dev $m
	same "... no old name" "" "$(ls -A $m)"
	yes "... a file" tarnfs creat -s 3M --fill 7 $m/fill-1
	yes "... umount" umount $m
	old=$(uuid)
done

# ---- mount ----
page() {
	tarnfs status $dev | grep -c ' claimed '
}
for point in mount-claimed replayed mount-at-end mount-published; do
	env TARNFS_STOP_AT=$point mount.tarnfs $dev $m >/dev/null 2>&1
	same "mount killed at $point" 137 $?
	no "... nothing is mounted" mountpoint -q $m
	same "... the page is claimed" 1 "$(page)"
	yes "... fsck has no finding" fsck.tarnfs -n $dev
	yes "... the next mount takes it again" mount -t tarnfs $dev $m
	same "... the same page, and no other" "1 0" "$(tarnfs status $m | grep -c '^ *[0-9][0-9]* .*this host') $(page)"
	yes "... its file" tarnfs verify -q --seed 7 $m/fill-1
	yes "... a new one" tarnfs creat -s 1M $m/new-$point
	yes "... umount" umount $m
	same "... lets the page go" 0 "$(page)"
done
finish
