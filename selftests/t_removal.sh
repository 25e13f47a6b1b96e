#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# The device is taken away under a mount, by unbinding its driver: idle, mapped, pinned by a
# pipe, in the middle of creating files, against umount and against mount. Nothing hangs but
# who waits for a pin, nothing crashes, and afterwards the files are there. Prints TAP.

# shellcheck source=selftests/lib.sh
if [ -e /selftests/lib.sh ]; then . /selftests/lib.sh; else . "${0%/*}/lib.sh"; fi
# shellcheck source=selftests/memory.sh
. /selftests/memory.sh

m=/mnt/tarn
mkdir -p $m
umask 022

is_gone() {
	! mountpoint -q $m
}

# whatever umount.tarnfs says of a device that is not there: it must be unmounted
leave() {
	umount $m >out 2>&1 || umount -i $m >>out 2>&1
	is_gone
}

again() {
	give && mount -t tarnfs "$dev" $m
}

plan 61
yes "mkfs" mkfs.tarnfs -q -f --hosts-fenced --log-size 4M "$dev"
yes "mount" mount -t tarnfs "$dev" $m
yes "files" tarnfs creat --fill 5 -s 20000 $m/small $m/pinned
yes "a large one" tarnfs creat --fill 5 -s 6291456 $m/large

note "idle"
yes "the device is taken away" take
no "nothing can be read" cat $m/small
refuse "... since I/O fails" 1 "Input/output error" cat $m/small
refuse "nothing can be created, and it says why" 1 "removed\|taken away\|shut down" tarnfs creat -s 5 $m/new
refuse "status says so" 1 "removed\|taken away\|shut down" tarnfs status $m
yes "sync" sync -f $m
if [ -b "$dev" ]; then
	yes "the device comes back" give
	refuse "the dead mount is in the way, and mount says what to do" 1 "taken away: umount that one" \
		/selftests/fsmount "$dev"
	yes "the device is taken away again" take
else
	skip "the device comes back" "t_devdax does this"
	skip "... and mount says what to do" "likewise"
	skip "... and goes again" "likewise"
fi
yes "umount" leave
yes "the module can go" rmmod tarnfs
yes "... and comes back" modprobe tarnfs
yes "the device comes back, and a mount" again
refuse "the files are right" 0 "^3 of 3" tarnfs verify --seed 5 $m/small $m/pinned $m/large

note "mapped"
mkdir w1 w2
$f watch $m/small@4096 w1 >s1 &
p1=$!
$f watch $m/large@2097152 w2 >s2 &
p2=$!
yes "a process touches a small file" wait_until test -e w1/touched
yes "another one a large one" wait_until test -e w2/touched
yes "the device is taken away" take
wait $p1 $p2
same "the first gets a SIGBUS" "EIO EIO BUS_ADRERR addr+0 lsb 0" "$(cat s1)"
same "so does the second" "EIO EIO BUS_ADRERR addr+0 lsb 0" "$(cat s2)"
yes "umount" leave
yes "the module can go" rmmod tarnfs
yes "... and comes back" modprobe tarnfs
yes "the device comes back, and a mount" again

note "pinned by a pipe"
mkdir pin
$f pin $m/pinned@4096 pin >pipe &
p1=$!
yes "a pipe has a page" wait_until test -e pin/pinned
(take; : >taken) &
p2=$!
yes "the device is being taken away" wait_until sh -c "! cat $m/small >/dev/null 2>&1"
no "other files fail at once" cat $m/large
refuse "... so do commands" 1 "removed\|taken away\|shut down" tarnfs creat -s 5 $m/new
yes "other file systems do not wait" sh -c 'echo a >file; sync -f file; echo 3 >/proc/sys/vm/drop_caches'
no "it is not gone yet" test -e taken
: >pin/drain
wait $p1
same "the pipe has the bytes" drained "$(cat pipe)"
wait $p2
yes "then it is gone" test -e taken
yes "umount" leave
yes "the device comes back, and a mount" again
refuse "the files are right" 0 "^3 of 3" tarnfs verify --seed 5 $m/small $m/pinned $m/large

note "in the middle of work"
work() {
	i=0
	while tarnfs creat --fill 5 -s 300000 "$m/$1$i" >>"work.$1" 2>&1; do
		echo "$m/$1$i" >>"done.$1"
		i=$((i + 1))
	done
}
zero() {
	i=0
	while tarnfs creat -s 20000000 "$m/$1$i" >>"work.$1" 2>&1; do
		i=$((i + 1))
	done
}
reads() {
	while cat $m/large >/dev/null 2>&1; do
		:
	done
}
work a &
p1=$!
zero z &
p2=$!
reads &
p3=$!
# shellcheck disable=SC2016 # the inner shell's
yes "files are being made" wait_until sh -c '[ $(cat done.a 2>/dev/null | wc -l) -ge 3 ]'
yes "the device is taken away" take
yes "all who worked there end" wait $p1 $p2 $p3
yes "umount" leave
yes "the module can go" rmmod tarnfs
yes "... and comes back" modprobe tarnfs
yes "the device comes back" give
yes "fsck finds nothing" fsck.tarnfs -n "$dev"
yes "mount" mount -t tarnfs "$dev" $m
# shellcheck disable=SC2046 # a list
yes "every file that was made is right" tarnfs verify -q --seed 5 $(cat done.a)
same "no file is there that is not whole" "" "$(find $m -name 'a*' ! -size 300000c)"
rm -f done.a

note "against umount"
rounds=0
bad=0
while [ $rounds -lt 20 ]; do
	rounds=$((rounds + 1))
	$f touch $m/large@5000 >/dev/null
	$f touch $m/small@5000 write >/dev/null
	take &
	p1=$!
	[ $((rounds % 3)) != 0 ] || sleep 0.0$((rounds % 10))
	umount -i $m >>out 2>&1
	wait $p1 || bad=$((bad + 1))
	leave || bad=$((bad + 1))
	again || bad=$((bad + 1))
done
same "20 rounds: each time unmounted and mounted again" 0 $bad
refuse "the files are right" 0 "^3 of 3" tarnfs verify --seed 5 $m/small $m/pinned $m/large
yes "umount" umount $m

rounds=0
bad=0
while [ $rounds -lt 10 ]; do
	rounds=$((rounds + 1))
	mount -t tarnfs "$dev" $m
	take &
	p1=$!
	# the command of the package, which mounts once more to let the host page go
	umount $m >>out 2>&1
	wait $p1 || bad=$((bad + 1))
	leave || bad=$((bad + 1))
	give || bad=$((bad + 1))
done
same "10 rounds against umount.tarnfs" 0 $bad

note "against mount"
rounds=0
bad=0
mounted=0
while [ $rounds -lt 15 ]; do
	rounds=$((rounds + 1))
	(mount -i -t tarnfs "$dev" $m; :) >>out 2>&1 &
	p1=$!
	sleep "$(printf '0.%03d' $((rounds * 40 % 500)))"
	take || bad=$((bad + 1))
	wait $p1
	if ! is_gone; then
		mounted=$((mounted + 1))
		leave || bad=$((bad + 1))
	fi
	give || bad=$((bad + 1))
done
note "$mounted of 15 mounts came first"
same "15 rounds: either mounted or not" 0 $bad
yes "mount" mount -t tarnfs "$dev" $m
refuse "the files are right" 0 "^3 of 3" tarnfs verify --seed 5 $m/small $m/pinned $m/large
yes "umount" umount $m
yes "the device is taken away" take
yes "the module can go" rmmod tarnfs
yes "... and comes back" modprobe tarnfs
yes "the device comes back" give
finish
