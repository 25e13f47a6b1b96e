#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# Two hosts over one memory: what the master creates, the client sees after logplay, byte
# for byte and beyond the first 2 MiB; the client creates nothing; a shared-write file is
# written by the client and read by the master; both come and go. Prints TAP.

# shellcheck disable=SC2317 # checks are called by name
# shellcheck source=selftests/lib.sh
if [ -e /selftests/lib.sh ]; then . /selftests/lib.sh; else . "${0%/*}/lib.sh"; fi

dev=${TARN_DEV:-/dev/pmem0}
m=/mnt/tarn
tree=$(mktemp -d)/tree
mkdir -p $m
umask 022

value() {
	tarnfs status $m | sed -n "s/^$1  *//p"
}
# what this host has cached of a file goes; the next read comes from memory
forget() {
	dd if="$1" iflag=nocache count=0 2>/dev/null
}
meet() {
	barrier "$1" || bail "the other host is gone at $1"
}

make_tree "$tree" || bail "no tree"
seq 1 900000 >"$tree/big"	# 5.9 MB: in three 2 MiB chunks
touch -d @1222222222.75 "$tree/big" "$tree"

if [ "$HOST" = 0 ]; then
	plan 21
	yes "mkfs" mkfs.tarnfs -f --hosts-fenced -L 'two hosts' $dev
	yes "mount" mount -t tarnfs $dev $m
	same "this host is the master on page 0" "master 0" "$(value role) $(value 'host page')"
	yes "cp -r" tarnfs cp -r "$tree" $m/copy
	same "... contents" "$(sums "$tree")" "$(sums $m/copy)"
	meet copied
	meet compared

	yes "creat of a shared file" tarnfs creat -s 3M --shared-write -m 666 $m/shared
	# read first, so that something old is in this host's caches
	yes "... zero so far" cmp -n 3145728 $m/shared /dev/zero
	yes "cp of one more file" tarnfs cp "$tree/big" $m/later
	meet more
	meet written
	yes "forget what was read before" forget $m/shared
	same "what the client wrote is there" "$(sha256sum <"$tree/size-2097153")" \
		"$(head -c 2097153 $m/shared | sha256sum)"
	yes "... and behind it still zero" sh -c "tail -c +2097154 $m/shared | cmp -n 1048575 - /dev/zero"
	refuse "status sees the client's page" 0 "^ *1 *claimed .*host1" tarnfs status $m

	# a commit that this master's kernel has not applied is for the client to see as well
	env TARNFS_STOP_AT=after-commit tarnfs creat -s 8K $m/committed 2>/dev/null
	same "creat killed after its commit" 137 $?
	meet killed
	meet seen
	yes "the next command applies it" tarnfs mkdir $m/next
	yes "... here too" cmp -n 8192 $m/committed /dev/zero

	meet client-gone
	yes "umount of the master" umount $m
	meet master-gone
	meet client-alone
	yes "mount" mount -t tarnfs -o role=master $dev $m
	same "master again on page 0" "master 0" "$(value role) $(value 'host page')"
	yes "creat" tarnfs creat $m/last
	meet master-back
	meet end
	refuse "the client's page is bound" 0 "^ *1 *bound" tarnfs status $m
	yes "umount" umount $m
	finish
fi

plan 31
meet copied
refuse "role=master is refused here" 32 "role=master" mount -t tarnfs -o role=master $dev $m
no "... and nothing is mounted" grep -q " $m " /proc/mounts
yes "mount" mount -t tarnfs $dev $m
same "this host is a client on page 1" "client 1" "$(value role) $(value 'host page')"
same "names, modes, mtimes, sizes, targets" "$(describe "$tree")" "$(describe $m/copy)"
same "contents" "$(sums "$tree")" "$(sums $m/copy)"
yes "bytes of each 2 MiB chunk" cmp "$tree/big" $m/copy/big
refuse "creating here names the master and its host" 1 "client.*host 0 (node host0)" tarnfs creat $m/x
refuse "... cp too" 1 "client.*host 0" tarnfs cp "$tree/big" $m/x
refuse "... mkdir too" 1 "client.*host 0" tarnfs mkdir $m/x
refuse "... ln too" 1 "client.*host 0" tarnfs ln -s x $m/x
refuse "touch is EROFS" 1 "Read-only file system" touch $m/x
refuse "writing is EROFS" 1 "Read-only file system" dd if=/dev/zero of=$m/copy/big bs=1 count=1 conv=notrunc
refuse "logplay is up to date" 0 "^up to date" tarnfs logplay $m
meet compared

meet more
no "new files are not there before logplay" test -e $m/later
refuse "logplay applies them" 0 "^2 records applied" tarnfs logplay $m
yes "... contents" cmp "$tree/big" $m/later
same "a shared file may be written here" 3145728 "$(stat -c %s $m/shared)"
yes "... is written and synced" dd if="$tree/size-2097153" of=$m/shared bs=64K conv=notrunc,fsync
refuse "... not past its end" 1 "No space" dd if=/dev/zero of=$m/shared bs=1M seek=3 count=1 conv=notrunc
meet written

meet killed
refuse "what was committed and not applied on the master" 0 "^1 record applied" tarnfs logplay $m
yes "... is there" cmp -n 8192 $m/committed /dev/zero
meet seen

yes "umount" umount $m
yes "mount" mount -t tarnfs -o ro,role=client $dev $m
same "the same page" "client 1" "$(value role) $(value 'host page')"
refuse "a read-only client writes no shared file" 1 "Read-only file system" dd if=/dev/zero of=$m/shared bs=1 count=1 conv=notrunc
meet client-gone
meet master-gone
same "without the master all is still readable" "$(sums "$tree")" "$(sums $m/copy)"
meet client-alone
meet master-back
yes "logplay" tarnfs logplay $m
yes "... sees what the new incarnation created" test -e $m/last
yes "umount" umount $m
refuse "the page is bound" 0 "^ *1 *bound" tarnfs status $dev
meet end
finish
