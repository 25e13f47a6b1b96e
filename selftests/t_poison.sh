#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# Memory that fails: who has the page mapped is killed with the right signal, read and write
# end before it, the rest of the file and all other files go on, the page is never handed out
# again, and every command says where. What a remount knows of it, what the driver knows, and
# what is forgotten when the driver is bound anew, which also ends this test. Prints TAP.

# shellcheck source=selftests/lib.sh
if [ -e /selftests/lib.sh ]; then . /selftests/lib.sh; else . "${0%/*}/lib.sh"; fi
# shellcheck source=selftests/memory.sh
. /selftests/memory.sh

m=/mnt/tarn
tracing=/sys/kernel/tracing
mkdir -p $m
umask 022

off_of() {
	$f extent "$1" | cut -d ' ' -f 1
}

free_bytes() {
	tarnfs status $m | sed -n 's/^free  *\([0-9]*\) .*/\1/p'
}

# part FILE FIRST COUNT: sum of COUNT blocks of 4 KiB from FIRST on
part() {
	dd if="$1" bs=4096 skip="$2" count="$3" 2>/dev/null | sha256sum
}

plan 157
rebind || bail "the driver cannot be bound anew"
yes "mkfs" mkfs.tarnfs -q -f --hosts-fenced --log-size 4M "$dev"
yes "mount" mount -t tarnfs "$dev" $m
same "no bad ranges" "" "$($f ranges $m)"
refuse "... as status says" 0 "^bad ranges *none$" tarnfs status $m
yes "mkdir" tarnfs mkdir -p $m/some/where
awk -v d="$m/some/where" 'BEGIN { for (i = 0; i < 100; i++) printf "%d 644 %s/f%02d\n", 20000 + i, d, i }' >list
yes "100 files" tarnfs creat --fill 7 --from list
yes "... and three large ones" tarnfs creat --fill 7 -s 6291456 $m/big $m/big2 $m/driver
hit=$m/some/where/f50
rest=$(part $hit 0 1; part $hit 2 3)
mkdir whole
cp -p $hit $m/some/where/f51 whole

# --- one page of one file ----------------------------------------------------------------
mkdir w
$f watch $hit@4100 w >watched &
watcher=$!
yes "a process has it mapped" wait_until test -e w/touched
same "the page fails: a signal with its address" "BUS_MCEERR_AR addr+0 lsb 12" "$($f hit $hit@4096)"
wait $watcher
same "... the other process gets one when it touches it; fsync fails once" \
	"EIO done BUS_MCEERR_AR addr+0 lsb 12" "$(cat watched)"
same "... so does who maps it later" "BUS_MCEERR_AR addr+0 lsb 12" "$($f touch $hit@8191)"
same "... and stores" "BUS_MCEERR_AR addr+0 lsb 12" "$($f touch $hit@4100 write)"
same "the page before it is fine" fine "$($f touch $hit@4095 write)"
same "the page after it is fine" fine "$($f touch $hit@8192 write)"
same "read up to it" 4096 "$($f read $hit@0 20000)"
same "read up to it, from the middle" 96 "$($f read $hit@4000 20000)"
same "read at it" EIO "$($f read $hit@4096 1)"
same "read in it" EIO "$($f read $hit@8191 100)"
same "read after it" 11858 "$($f read $hit@8192 20000)"
same "write up to it" 96 "$($f write $hit@4000 20000)"
same "write at it" EIO "$($f write $hit@4096 8192)"
same "write after it" 11858 "$($f write $hit@8192 20000)"
same "the rest of the file is right" "$rest" "$(part $hit 0 1; part $hit 2 3)"
refuse "verify: that one cannot be read, 99 are right" 1 "^99 of 100 files are right" \
	tarnfs verify --seed 7 $m/some/where/*
at=$(off_of $hit)
refuse "... and it is named, with its offset on the device and why" 1 \
	"f50: offset 4096 (device offset $(printf '0x%x' $((at + 4096)))): Input/output error: memory has failed (tarnfs status" \
	tarnfs verify --seed 7 $hit
same "BADRANGES" "$((at + 4096))+4096" "$($f ranges $m)"
refuse "status: how many" 0 "^bad ranges *1, 4096 bytes$" tarnfs status $m
refuse "status: where and whose" 0 \
	"^  $(printf '0x%x' $((at + 4096))) *4096 *file /some/where/f50 from byte 4096$" tarnfs status $m
no "cp says so" cp $hit copy
refuse "... the same of tarnfs cp" 1 \
	"f50: reading at byte 4096 (device offset $(printf '0x%x' $((at + 4096)))): Input/output error: memory has failed (tarnfs status.*; not copied" \
	tarnfs cp $hit $m/copy
no "... and makes no file" test -e $m/copy
refuse "tarnfs cp of what it was made from does not call it right" 1 \
	"^tarnfs cp: whole/f50: .*f50 is there already, but its memory has failed at byte 4096 (device offset $(printf '0x%x' $((at + 4096)))).*dd conv=notrunc" \
	tarnfs cp whole/f50 $m/some/where
refuse "... it counts as an error" 1 "^0 files, 0 directories, 0 symlinks, 0 bytes, 1 errors$" \
	tarnfs cp whole/f50 $m/some/where
refuse "... another is skipped" 0 "1 skipped$" tarnfs cp whole/f51 $m/some/where
no "... dd ends there" dd if=whole/f50 of=$hit bs=4096 conv=notrunc,fsync
refuse "fsck of the mount: a note, and how many" 0 \
	": note: 1 range of bad memory, 4096 bytes, .*tarnfs status $m" fsck.tarnfs -n $m
refuse "... which is no finding" 0 ": clean, [0-9]* directories" fsck.tarnfs -n $m
yes "flush goes around it" tarnfs flush $hit

# --- in a mapping of 2 MiB ----------------------------------------------------------------
same "a page of a 2 MiB mapping fails: its length is in the signal" "BUS_MCEERR_AR addr+0 lsb 21" \
	"$($f hit $m/big@$((2097152 + 40960)))"
same "... later only the page" "BUS_MCEERR_AR addr+0 lsb 12" "$($f touch-huge $m/big@$((2097152 + 40960)))"
same "... its neighbours are fine" fine "$($f touch $m/big@$((2097152 + 45056)))"
same "... even all at once" "fine" "$($f touch-huge $m/big@4096)"
at=$(off_of $m/big)
same "BADRANGES has both" "$(($(off_of $hit) + 4096))+4096 $((at + 2097152 + 40960))+4096" "$($f ranges $m)"
same "rules of BADRANGES" good "$($f ranges-rules $m)"

# --- dirty lines around it ---------------------------------------------------------------
echo 1 >$tracing/events/fs_dax/dax_writeback_one/enable
: >$tracing/trace
same "a page of a dirty file fails; fsync says so, once" "BUS_MCEERR_AR addr+0 lsb 21
EIO done" "$($f hit-dirty $m/big2@$((2097152 + 8192)))"
echo 0 >$tracing/events/fs_dax/dax_writeback_one/enable
wrote=$(sed -n 's/.*dax_writeback_one.*pgoff \(0x[0-9a-f]*\) pglen \(0x[0-9a-f]*\).*/\1+\2/p' \
	$tracing/trace | sort -u | tr '\n' ' ')
same "... the kernel writes back what is not in that 2 MiB" "0x0+0x200 0x400+0x200 " "$wrote"
yes "sync" sync $m/big2
refuse "the rest of it is right" 1 "cannot\|error" tarnfs verify --seed 7 $m/big2
same "the first 2 MiB can be read" 2097152 "$($f read $m/big2@0 2097152)"
same "... and what follows, up to the page" 8192 "$($f read $m/big2@2097152 2097152)"

# --- memory of no file --------------------------------------------------------------------
yes "all but 8 MiB is taken" tarnfs creat --no-zero -s $(($(free_bytes) / 2097152 * 2097152 - 8388608)) $m/ballast
before=$(free_bytes)
# shellcheck disable=SC2046 # five words
set -- $($f hit-reserved $m)
same "a page of a reservation fails" "BUS_MCEERR_AR addr+0 lsb 12" "$2 $3 $4 $5"
reserved=$1
yes "logplay lets it go" tarnfs logplay -q $m
same "what is free is one page less" $((before - 4096)) "$(free_bytes)"
same "df says the same" $(($(free_bytes) / 1024)) "$(df -P $m | awk 'NR == 2 { print $4 }')"
refuse "status: nobody's" 0 "^  $(printf '0x%x' "$reserved") *4096 *no file$" tarnfs status $m
pages=$(($(free_bytes) / 4096))
$f reserve $m 4096 $pages zero | tr ' ' '\n' >given
same "every free page can be had" $pages "$(grep -c + given)"
same "... and the bad one is not among them" 0 "$(grep -c "^$reserved+" given)"
yes "they are let go" tarnfs logplay -q $m
same "one more cannot be had" ENOSPC "$($f reserve $m 4096 $((pages + 1)))"
same "nothing was lost" $((pages * 4096)) "$(free_bytes)"

# --- metadata -----------------------------------------------------------------------------
area=$(tarnfs log $m | sed -n 's/.* area=\([0-9]*\)+.*/\1/p')
# what nobody needs now: a page far behind the log's end
same "a page of the log fails that is not in use" "BUS_MCEERR_AR" "$($f hit-meta $m@$((area + 2097152)) | cut -d ' ' -f 1)"
refuse "status: which part" 0 "metadata: log area 0" tarnfs status $m
yes "log goes on" sh -c "tarnfs log $m >/dev/null"
yes "creat goes on" tarnfs creat -s 100 $m/more
same "the log's header fails" "BUS_MCEERR_AR" "$($f hit-meta $m@"$area" | cut -d ' ' -f 1)"
hex=$(printf '0x%x' "$area")
refuse "log says where" 1 "$hex" tarnfs log $m
refuse "status says where, and shows the rest" 1 "$hex.*Input/output error\|$hex" tarnfs status $m
refuse "... with the range" 1 "^  $hex *4096 *metadata: log area 0" tarnfs status $m
refuse "logplay says where" 1 "$hex" tarnfs logplay $m
refuse "cp says where" 1 "$hex" tarnfs cp list $m/list
refuse "creat says where" 1 "$hex" tarnfs creat -s 100 $m/evenmore
refuse "fsck -n says where" 4 "$hex" fsck.tarnfs -n $m
yes "files go on" tarnfs verify --seed 7 $m/some/where/f49
ranges=$($f ranges $m)
umount $m >umount.out 2>&1
note "umount said: $(cat umount.out)"
no "... it is unmounted" mountpoint -q $m

# --- what is known after a remount --------------------------------------------------------
refuse "mount says where, and mounts nothing" 32 "$hex" mount -t tarnfs "$dev" $m
yes "a mount without replay is there" mount -i -t tarnfs "$dev" $m
same "... and knows all that failed since the driver was bound" "$ranges" "$($f ranges $m)"
yes "umount" umount -i $m
refuse "status of the device: what the driver knows" 0 "^bad ranges *none known to the driver" tarnfs status "$dev"
yes "the driver is bound anew" rebind
yes "mount" mount -t tarnfs "$dev" $m
same "nothing is known any more: the memory is as good as new" "" "$($f ranges $m)"
printf x | dd of=$hit bs=1 seek=5000 conv=notrunc 2>/dev/null
yes "repaired: dd stores the bytes anew" dd if=whole/f50 of=$hit bs=1M conv=notrunc,fsync
refuse "... and tarnfs cp finds nothing to do" 0 "1 skipped$" tarnfs cp whole/f50 $m/some/where
refuse "all files are right" 0 "^103 of 103" tarnfs verify --seed 7 $m/some/where/* $m/big $m/big2 $m/driver
yes "umount" umount $m

if [ -b "$dev" ]; then
# --- what the driver knows ----------------------------------------------------------------
cache=/sys/block/${dev#/dev/}/dax/write_cache
echo 0 >"$cache"
yes "mount" mount -t tarnfs "$dev" $m
same "the device's write_cache is on, so that fsync flushes" 1 "$(cat "$cache")"
at=$(off_of $m/driver)
at50=$(off_of $hit)
yes "umount" umount $m
same "... and as it was before after umount" 0 "$(cat "$cache")"
echo "$((at / 512 + 9)) 1" >"/sys/block/${dev#/dev/}/badblocks"
refuse "status of the device lists it" 0 "^  $(printf '0x%x' $((at + 4096))) *4096 *file /driver from byte 4096$" \
	tarnfs status "$dev"
yes "mount" mount -t tarnfs "$dev" $m
same "a mount knows it" "$((at + 4096))+4096" "$($f ranges $m)"
same "read up to it" 4096 "$($f read $m/driver@0 20000)"
same "touch" "BUS_MCEERR_AR addr+0 lsb 12" "$($f touch $m/driver@4096)"
same "the rest of the 2 MiB is fine" fine "$($f touch $m/driver@8192)"
echo "$((at / 512 + 32)) 8" >"/sys/block/${dev#/dev/}/badblocks"
echo "$((at50 / 512 + 8)) 8" >"/sys/block/${dev#/dev/}/badblocks"
same "what it learns later is learnt by a read" 4096 "$($f read $m/some/where/f50@0 20000)"
same "... at it" EIO "$($f read $m/some/where/f50@4096 100)"
same "... or by a touch" "BUS_MCEERR_AR addr+0 lsb 12" "$($f touch $m/driver@16384)"
same "... and remembered" "$((at50 + 4096))+4096 $((at + 4096))+4096 $((at + 16384))+4096" "$($f ranges $m)"
yes "umount" umount $m
echo "0 1" >"/sys/block/${dev#/dev/}/badblocks"
refuse "mount with a bad superblock says so" 32 "superblock.*poison" mount -t tarnfs "$dev" $m
refuse "fsck says where" 4 "error 1 at 0x0: " fsck.tarnfs -n "$dev"
refuse "... and looks at the rest, by the second copy" 4 "[1-9][0-9]* directories, [0-9]* files" fsck.tarnfs -n "$dev"
refuse "mkfs says what to do" 1 "Input/output error" mkfs.tarnfs -f --hosts-fenced "$dev"
refuse "... with the command" 1 "memory of the device failed.*ndctl clear-errors" mkfs.tarnfs -f --hosts-fenced "$dev"
else
	i=0
	while [ $i -lt 20 ]; do
		i=$((i + 1))
		skip "what the driver knows" "that of a devdax knows of no bad memory"
	done
fi
yes "the driver is bound anew" rebind

# --- this host's page ----------------------------------------------------------------------
yes "mount" mount -t tarnfs "$dev" $m
same "this host's page fails" "BUS_MCEERR_AR" "$($f hit-meta $m@65536 | cut -d ' ' -f 1)"
refuse "status says so" 1 "0x10200: Input" tarnfs status $m
refuse "... with the range" 1 "^  0x10000 *4096 *metadata: host page 0" tarnfs status $m
refuse "logplay says so" 1 "0x10200: Input" tarnfs logplay $m
refuse "creat says so" 1 "0x10200: Input" tarnfs creat -s 100 $m/nothing
yes "files go on" tarnfs verify --seed 7 $m/some/where/f49
# the memory of a guest can still be read, and umount lets the page go by a meta mount, as new
yes "umount" umount $m
yes "the driver is bound anew" rebind

# --- the superblocks -----------------------------------------------------------------------
yes "mount" mount -t tarnfs "$dev" $m
same "the superblock's page fails" "BUS_MCEERR_AR" "$($f hit-meta $m@0 | cut -d ' ' -f 1)"
refuse "status says so" 0 "^  0x0 *4096 *metadata: superblock$" tarnfs status $m
refuse "... and all the rest, by the second copy" 0 "^log used " tarnfs status $m
refuse "log goes on likewise" 0 " file ino=" tarnfs log $m
yes "files go on" tarnfs verify --seed 7 $m/some/where/f49
same "... written too" 4096 "$($f write $m/some/where/f49@0 4096)"
says="offset 0x0: its memory has failed.*repair the memory, then fsck.tarnfs"
refuse "creat says where, and what to do" 1 "$says" tarnfs creat -s 100 $m/nothing
refuse "logplay likewise" 1 "$says" tarnfs logplay $m
refuse "cp likewise" 1 "$says" tarnfs cp list $m/list
refuse "fsck -n says where" 4 "error 1 at 0x0: " fsck.tarnfs -n $m
same "the second copy's page fails too" "BUS_MCEERR_AR" "$($f hit-meta $m@4096 | cut -d ' ' -f 1)"
refuse "status says both" 1 "offset 0x0: .*0x1000, is no better: .*fsck.tarnfs" tarnfs status $m
same "BADRANGES is one" "0+8192" "$($f ranges $m)"
yes "files go on" tarnfs verify --seed 7 $m/some/where/f49
yes "umount" umount $m
refuse "mount says where, and what to do" 32 \
	"superblock at device offset 0x0 .*poison.*bind its driver anew, then fsck.tarnfs" mount -t tarnfs "$dev" $m
yes "the driver is bound anew" rebind
refuse "what stood there is lost: the first is empty, the second was good" 4 "error 101 at 0x0: " sh -c \
	'head -c 4096 /dev/zero | /selftests/media write 0 && fsck.tarnfs -n "$0"' "$dev"
refuse "... mount names fsck before mkfs" 32 "no tarnfs superblock.*fsck.tarnfs.*mkfs.tarnfs" mount -t tarnfs "$dev" $m
yes "the second copied over the first" sh -c '/selftests/media read 4096 4096 | /selftests/media write 0'
refuse "fsck is content" 0 ": clean, " fsck.tarnfs -n "$dev"
yes "mount" mount -t tarnfs "$dev" $m
same "only the second copy's page fails" "BUS_MCEERR_AR" "$($f hit-meta $m@4096 | cut -d ' ' -f 1)"
refuse "status says so" 0 "^  0x1000 *4096 *metadata: second superblock$" tarnfs status $m
yes "creat goes on" tarnfs creat -s 100 $m/after
yes "umount" umount $m
yes "mount goes on" mount -t tarnfs "$dev" $m
yes "umount" umount $m
yes "the driver is bound anew" rebind

# --- more bad ranges than fit ----------------------------------------------------------------
yes "mount" mount -t tarnfs "$dev" $m
same "a good page between bad ones is given up: its mapping, and fsync says so; the next is not" \
	"EIO done BUS_MCEERR_AR lsb 12 fine EIO EIO done EIO" "$($f join $m/ballast $m/big)"
# shellcheck disable=SC2046 # as many words as there are
set -- $($f ranges $m)
same "... all ranges are there" 1024 $#
at=$(off_of $m/ballast)
same "... the first two as one" "$at+12288" "$(printf '%s\n' "$@" | grep "^$at+")"
if [ -b "$dev" ]; then
	echo "$(((at + 16777216) / 512)) 8" >"/sys/block/${dev#/dev/}/badblocks"
	same "one more, found by a touch" "BUS_MCEERR_AR addr+0 lsb 12" "$($f touch $m/ballast@16777216)"
	same "... gives up another page of the same file" "BUS_MCEERR_AR addr+0 lsb 12" \
		"$($f touch $m/ballast@12288)"
	same "... and no more" fine "$($f touch $m/ballast@20480)"
else
	skip "one more, found by a touch" "the driver of a devdax knows of no bad memory"
	skip "... gives up another page of the same file" "likewise"
	skip "... and no more" "likewise"
fi
same "the kernel log says once that there is no room" 1 "$(dmesg | grep -c '1024 bad ranges')"
yes "umount" umount $m
yes "the driver is bound anew" rebind
finish
