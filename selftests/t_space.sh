#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# Small files are packed: 10,000 of 4 KiB fit in 64 MiB of data space, made in one commit
# and all there after a remount; what is left is what it should be, and one file more than
# fits is refused with what is needed and free. Prints TAP.

# shellcheck source=selftests/lib.sh
if [ -e /selftests/lib.sh ]; then . /selftests/lib.sh; else . "${0%/*}/lib.sh"; fi

dev=${TARN_DEV:-/dev/pmem0}
m=/mnt/tarn
mkdir -p $m
umask 022

free_bytes() {
	tarnfs status $m | sed -n 's/^free  *\([0-9]*\) .*/\1/p'
}

plan 21
yes "mkfs" mkfs.tarnfs -q -f --hosts-fenced --log-size 4M $dev
yes "mount" mount -t tarnfs $dev $m
yes "status says what is free" [ "$(free_bytes)" -gt 0 ]
yes "all but 64 MiB is taken" tarnfs creat --no-zero -s $(($(free_bytes) - 67108864)) $m/ballast
same "64 MiB are free" 67108864 "$(free_bytes)"

awk -v d="$m/many" 'BEGIN { for (i = 0; i < 10000; i++) printf "4096 644 %s/f%05d\n", d, i }' >/tmp/list
yes "mkdir" tarnfs mkdir $m/many
yes "10,000 files in one commit" tarnfs creat --from /tmp/list
same "... are there" 10000 "$(find $m/many | grep -c /f)"
same "... and took 4 KiB each" $((67108864 - 10000 * 4096)) "$(free_bytes)"
same "df agrees" "$(($(free_bytes) / 1024))" "$(df -P $m | awk 'NR == 2 { print $4 }')"
refuse "a file that does not fit" 1 "$((67108864 - 10000 * 4096))" \
	tarnfs creat -s $((67108864 - 10000 * 4096 + 1)) $m/toomuch
yes "umount" umount $m
yes "mount" mount -t tarnfs $dev $m
same "all are there again" 10000 "$(find $m/many -size 8 | grep -c /f)"
umount $m
rm -f /tmp/list

# ---- space that shows to be too little only while it is used: files of 2 MiB begin at multiples ----
yes "mkfs" mkfs.tarnfs -q -f --hosts-fenced --log-size 4M $dev
mount -t tarnfs $dev $m
yes "all but 9 MiB or a little more is taken" \
	tarnfs creat --no-zero -s $((($(free_bytes) - 9437184) / 2097152 * 2097152)) $m/ballast
mkdir /tmp/four
for i in 1 2 3 4; do
	head -c 2101248 /dev/zero >/tmp/four/$i
done
tarnfs cp -r /tmp/four $m >/tmp/said 2>&1
same "four files of which at most three have room: exit 1" 1 $?
refuse "... those are copied" 0 "^[23] files, 1 directories, .* errors$" cat /tmp/said
refuse "... of the others what is needed and free is said, and the name once" 0 \
	"^tarnfs cp: /tmp/four/4: no space: needed in one piece 2101248 bytes, free" cat /tmp/said
yes "... the first is whole" cmp /tmp/four/1 $m/four/1
no "... the last is not there" test -e $m/four/4
umount $m
rm -r /tmp/four /tmp/said
finish
