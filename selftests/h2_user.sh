#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# Two hosts, as new users meet them: both mount for the first time at the same moment; a clone
# with the other's machine-id is told so and the other stops; what plain tools get on a
# client. Prints TAP.

# shellcheck disable=SC2317 # checks are called by name
# shellcheck source=selftests/lib.sh
if [ -e /selftests/lib.sh ]; then . /selftests/lib.sh; else . "${0%/*}/lib.sh"; fi

dev=${TARN_DEV:-/dev/pmem0}
m=/mnt/tarn
mkdir -p $m
umask 022

value() {
	tarnfs status $m | sed -n "s/^$1  *//p"
}
meet() {
	barrier "$1" || bail "the other host is gone at $1"
}
# two states of the table of hosts that differ, in pages that differ
both_claimed() {
	tarnfs status $m | grep -c '^ *[0-9]*  \(claimed\|this host\) ' | grep -qx 2
}

if [ "$HOST" = 0 ]; then
	plan 23
	for round in 1 2 3; do
		yes "mkfs without an owner, round $round" mkfs.tarnfs -q -f --hosts-fenced --owner none --hosts 3 $dev
		meet "made-$round"
		yes "mount at the same moment" mount -t tarnfs $dev $m
		meet "mounted-$round"
		yes "... each has a page" both_claimed
		meet "seen-$round"
		yes "umount" umount $m
		meet "gone-$round"
	done
	yes "mkfs" mkfs.tarnfs -q -f --hosts-fenced $dev
	yes "mount" mount -t tarnfs $dev $m
	yes "creat" tarnfs creat -s 1M $m/file
	meet master
	meet plain
	yes "creat of one more" tarnfs creat $m/more
	yes "... and a shared one" tarnfs creat -s 4K -m 666 --shared-write $m/shared
	meet more
	meet client-gone
	# the other host has this one's machine-id now
	cat /etc/machine-id >/tmp/id
	meet clone
	refuse "a clone has taken the page: this host stops" 1 "claimed anew.*shut down" tarnfs creat $m/late
	yes "umount" umount $m
	meet stopped
	meet clone-gone
	yes "mount" mount -t tarnfs $dev $m
	no "... nothing late is there" test -e $m/late
	yes "... what was committed is" test -e $m/more
	yes "umount" umount $m
	meet end
	finish
fi

plan 31
for round in 1 2 3; do
	meet "made-$round"
	yes "mount at the same moment, round $round" mount -t tarnfs $dev $m
	meet "mounted-$round"
	yes "... each has a page" both_claimed
	meet "seen-$round"
	yes "umount" umount $m
	meet "gone-$round"
done
meet master
refuse "mount -v says that this is a client" 0 "this host is a client" mount -v -t tarnfs $dev $m
for c in "touch $m/new" "touch $m/file" "mkdir $m/new" "cp /etc/fstab $m/new" "mv $m/file $m/new" \
	"rm -f $m/file" "chmod 600 $m/file"; do
	# shellcheck disable=SC2086
	refuse "$c" 1 "Read-only" $c
done
refuse "> FILE" 1 "[Rr]ead-only" sh -c "echo x >$m/file || exit 1"
refuse "> of a new name" 1 "[Rr]ead-only" sh -c "echo x >$m/new || exit 1"
refuse "dd into what is not shared" 1 "Read-only" dd if=/dev/zero of=$m/file bs=1 count=1 conv=notrunc
meet plain
meet more
refuse "logplay" 0 "^2 records applied" tarnfs logplay $m
yes "dd into what is shared" dd if=/dev/zero of=$m/shared bs=4K count=1 conv=notrunc,fsync
yes "umount" umount $m
own=$(cat /etc/machine-id)
meet client-gone
# the machine-id of guest 0 (tools/vm/run makes it from the number)
printf 'tarnfs guest 0' | sha256sum | cut -c 1-32 >/etc/machine-id
refuse "mkfs by a clone of the master is refused" 1 "page 0 was claimed by node host0 .*machine-id is shared" mkfs.tarnfs -f $dev
refuse "a mount by it warns" 0 "warning: host page 0 was claimed by node host0 " mount -t tarnfs $dev $m
meet clone
meet stopped
yes "umount" umount $m
echo "$own" >/etc/machine-id
refuse "with its own machine-id it is itself again" 0 "host page 1 is this host's already" mount -v -t tarnfs $dev $m
same "... a client" client "$(value role)"
same "... without a word about clones" "" "$(umount $m; mount -t tarnfs $dev $m 2>&1)"
yes "umount" umount $m
meet clone-gone
meet end
refuse "all pages are bound" 0 "^ *0  *bound" tarnfs status $dev
finish
