#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# Two hosts: files that the master filled are right on the client, beyond the first chunks;
# after a flush on either side the client sees what the master changed in place; log -f on
# the client sees a commit that nobody has replayed there; and a file system with one host
# page says so to the second host, with the ways out. What another host has mounted no
# mkfs here makes anew. Owner and mode arrive as they were given. Prints TAP.

# shellcheck disable=SC2317 # checks are called by name
# shellcheck source=selftests/lib.sh
if [ -e /selftests/lib.sh ]; then . /selftests/lib.sh; else . "${0%/*}/lib.sh"; fi

dev=${TARN_DEV:-/dev/pmem0}
m=/mnt/tarn
work=$(mktemp -d)
mkdir -p $m
umask 022

meet() {
	barrier "$1" || bail "the other host is gone at $1"
}
# until_there FILE PATTERN: within 60 s
until_there() {
	t_i=0
	while ! grep -q -e "$2" "$1"; do
		t_i=$((t_i + 1))
		[ "$t_i" -lt 300 ] || return 1
		sleep 0.2
	done
}

if [ "$HOST" = 0 ]; then
	plan 14
	yes "mkfs with one host page" mkfs.tarnfs -q -f --hosts-fenced --hosts 1 $dev
	yes "mount" mount -t tarnfs $dev $m
	meet one
	meet refused
	yes "umount" umount $m
	yes "mkfs" mkfs.tarnfs -q -f --hosts-fenced $dev
	yes "mount" mount -t tarnfs $dev $m
	yes "creat --fill" tarnfs creat --fill 77 -s 20000000 $m/f1 $m/f2 $m/f3
	meet filled
	meet verified
	yes "a change in place" sh -c "printf 'changed here' | dd of=$m/f2 bs=1 seek=15000000 conv=notrunc 2>/dev/null"
	yes "... flushed" tarnfs flush $m/f2
	meet changed
	meet following
	yes "creat" tarnfs creat -s 8K $m/new
	# a user id without a group id; a mode that every umask would change
	yes "creat as a user of group 0" setpriv --reuid 1000 --regid 0 --clear-groups --inh-caps=+sys_admin \
		--ambient-caps=+sys_admin tarnfs creat -m 666 $m/owned
	yes "mkdir" tarnfs mkdir -m 1777 $m/open
	meet created
	meet seen
	yes "umount" umount $m
	yes "mkfs for the client that follows the old log" mkfs.tarnfs -q -f --hosts-fenced $dev
	meet made
	meet noticed
	yes "mount" mount -t tarnfs $dev $m
	umount $m
	meet end
	finish
fi

plan 33
meet one
refuse "no host page is free: whose they are" 32 "no host page is free: .*0.*host0" mount -t tarnfs $dev $m
refuse "... and the ways out" 32 "uuid=.*/etc/tarnfs/host.*mkfs.tarnfs --hosts" mount -t tarnfs $dev $m
no "... and nothing is mounted" grep -q " $m " /proc/mounts
refuse "mkfs of what another host has mounted names its host page and the flag" 1 \
	"there is a tarnfs that hosts may have mounted: .*host0.*--hosts-fenced" mkfs.tarnfs $dev
refuse "... and --force is not that flag" 1 "hosts may have mounted" mkfs.tarnfs --force $dev
refuse "... and it is whole" 0 "^ *0 *claimed *current" tarnfs status $dev
meet refused
meet filled
yes "mount" mount -t tarnfs $dev $m
refuse "what the master filled is right here" 0 "^3 of 3 files are right, 60000000 bytes" \
	tarnfs verify --seed 77 -j 2 $m/f1 $m/f2 $m/f3
refuse "... and the pattern is no constant" 1 "first wrong offset 0 " tarnfs verify --seed 78 -j 2 $m/f1
meet verified
meet changed
yes "flush on the client" tarnfs flush $m/f2
refuse "the master's change is seen, and where it is" 1 "f2: first wrong offset 15000000 (device offset 0x" \
	tarnfs verify --seed 77 -j 2 $m/f1 $m/f2 $m/f3
refuse "... nothing else changed" 1 "^2 of 3 files are right" tarnfs verify --seed 77 -j 2 $m/f1 $m/f2 $m/f3
tarnfs log -f --name new $m >"$work/follow" 2>"$work/err" &
follow=$!
yes "log -f begins" until_there "$work/follow" '^# uuid'
meet following
meet created
yes "log -f sees the record" until_there "$work/follow" 'file ino=[0-9]* .*name="new"'
no "... before the name is here" test -e $m/new
for c in map flush "verify --seed 1"; do
	# shellcheck disable=SC2086 # a command and its options
	refuse "$c of it says why it may not be here" 1 "new: No such file or directory; this host is 3 records behind: tarnfs logplay" tarnfs $c $m/new
done
refuse "status knows that something was committed since" 0 "^seq committed *6" tarnfs status $m
refuse "... and how far this host is" 0 "^seq here *3 " tarnfs status $m
refuse "... and who the master is" 0 "^master *host page 0 (node host0)$" tarnfs status $m
yes "logplay, with a umask of 077" sh -c "umask 077; tarnfs logplay $m"
yes "... and now it is" test -e $m/new
refuse "map of what is nowhere" 1 "nowhere: No such file or directory$" tarnfs map $m/nowhere
same "the modes are those that were logged" "666 1777" "$(stat -c %a $m/owned $m/open | tr '\n' ' ' | sed 's/ $//')"
same "a user id without a group id is applied" "1000:0" "$(stat -c %u:%g $m/owned)"
meet seen
meet made
wait $follow
same "log -f ends when another file system was made" 1 $?
refuse "... and says so" 0 "another file system \(was\|is being\) made" cat "$work/err"
refuse "the mount is no longer good for anything else" 1 "another file system was made\|superblock" tarnfs logplay $m
for c in "tarnfs status" "tarnfs check" "fsck.tarnfs -n"; do
	$c $m >"$work/said" 2>&1
	refuse "$c says so too" 0 "shut down: umount it and mount it again" cat "$work/said"
done
umount $m
no "... and goes" grep -q " $m " /proc/mounts
meet noticed
meet end
rm -rf "$work"
finish
