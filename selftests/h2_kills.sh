#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# A copy that is killed at each named point: on the client no file is partial, before and
# after the master goes on; the repeated copy is the same tree on both hosts, and fsck has
# no finding. Prints TAP.

# shellcheck disable=SC2317 # checks are called by name
# shellcheck source=selftests/lib.sh
if [ -e /selftests/lib.sh ]; then . /selftests/lib.sh; else . "${0%/*}/lib.sh"; fi

dev=${TARN_DEV:-/dev/pmem0}
m=/mnt/tarn
points="after-reserve mid-copy after-records after-commit before-apply before-at-end"
work=$(mktemp -d)
mkdir -p $m
umask 022
cd "$work" || exit 1

meet() {
	barrier "$1" || bail "the other host is gone at $1"
}

# whole DIR: every file below it is one of the tree's, byte for byte
whole() {
	[ -d "$1" ] || return 0
	(cd "$1" && find . -type f | while read -r f; do
		cmp "$f" "$work/tree/$f" || exit 1
	done)
}

make_tree tree || bail "no tree"
seq 1 900000 >tree/big
touch -d @1222222222.75 tree/big tree

if [ "$HOST" = 0 ]; then
	plan 32
	yes "mkfs" mkfs.tarnfs -q -f --hosts-fenced $dev
	yes "mount" mount -t tarnfs $dev $m
	meet made
	for point in $points; do
		env TARNFS_STOP_AT="$point" tarnfs cp -r -p -j 4 tree/. "$m/$point" >/dev/null 2>&1
		same "killed at $point" 137 $?
		yes "... no file is partial here" whole "$m/$point"
		meet "killed-$point"
		meet "seen-$point"
		tarnfs mkdir -p "$m/$point"	# it may be there, and this host not know it yet
		yes "... copied again" tarnfs cp -r -p -j 4 tree/. "$m/$point"
		same "... contents" "$(sums tree)" "$(sums "$m/$point")"
		yes "... fsck" fsck.tarnfs -n $m
		meet "again-$point"
		meet "compared-$point"
	done
	umount $m
	finish
fi

plan 25
meet made
yes "mount" mount -t tarnfs $dev $m
for point in $points; do
	meet "killed-$point"
	yes "killed at $point: logplay" tarnfs logplay $m
	yes "... no file is partial on the client" whole "$m/$point"
	meet "seen-$point"
	meet "again-$point"
	tarnfs logplay -q $m
	same "... copied again: contents" "$(sums tree)" "$(sums "$m/$point")"
	yes "... the tree agrees with the log" tarnfs check $m
	meet "compared-$point"
done
umount $m
finish
