#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# One host: fsck.tarnfs finds a file system clean that is, mounted or not, while files are
# being created and after a kill; a damaged copy is not, and what is mounted is checked with
# -n alone. tarnfs check finds every way in which the tree here and the log can differ, and
# none when they do not. Prints TAP.

# shellcheck source=selftests/lib.sh
if [ -e /selftests/lib.sh ]; then . /selftests/lib.sh; else . "${0%/*}/lib.sh"; fi

dev=${TARN_DEV:-/dev/pmem0}
m=/mnt/tarn
work=$(mktemp -d)
mkdir -p "$m"
umask 022
uuid=12345678-9abc-def0-1234-56789abcdef0

value() {
	tarnfs status "$m" | sed -n "s/^$1  *//p"
}
# log_pages FILE in|out [MOUNTPOINT]: the first pages of the first log area
log_pages() {
	if [ "$2" = out ]; then
		/selftests/media ${3:+-m "$3"} read $((512 * 4096)) $((4 * 4096)) >"$1"
	else
		/selftests/media ${3:+-m "$3"} write $((512 * 4096)) <"$1"
	fi
}

plan 88

# ---- clean ----
yes "mkfs" mkfs.tarnfs -q -f --hosts-fenced --log-size 1M $dev
refuse "fsck of a new one" 0 "${dev##*/}: clean, 1 directories, 0 files" fsck.tarnfs $dev
refuse "... through fsck's options too" 0 "clean" fsck.tarnfs -a -f -C 2 $dev
yes "mount" mount -t tarnfs $dev "$m"
make_tree "$work/tree"
yes "cp -r" tarnfs cp -r "$work/tree" "$m/copy"
yes "creat" tarnfs creat -s 5000 --shared-write "$m/file"
refuse "fsck -n of the device, mounted" 0 "clean, 6 directories, 17 files, 2 symlinks" fsck.tarnfs -n $dev
refuse "fsck -n of the mount point" 0 "clean, 6 directories, 17 files, 2 symlinks" fsck.tarnfs -n "$m"
refuse "fsck without -n" 8 "mounted on $m: umount it, or .* -n" fsck.tarnfs $dev
refuse "fsck -p of the mount point" 8 "mounted on $m" fsck.tarnfs -p "$m"
refuse "fsck of what is no mount point" 8 "no tarnfs is mounted" fsck.tarnfs -n "$m/copy"
refuse "fsck of another file system's mount point" 8 "no tarnfs is mounted" fsck.tarnfs -n /tmp
refuse "check" 0 "^25 names compared .* 0 differences" tarnfs check "$m"
refuse "check of a directory on it is all of it" 0 "^25 names compared .* 0 differences" tarnfs check "$m/copy/deep"
refuse "check of what is none" 1 "not on a tarnfs" tarnfs check /tmp

# ---- while it changes ----
mkdir "$work/many"
(cd "$work/many" && seq 1 1500 | while read -r n; do echo "$n" >"$n"; done)
tarnfs cp -r "$work/many" "$m" >/dev/null &
copy=$!
bad=0 runs=0
while [ "$runs" -lt 3 ] || kill -0 $copy 2>/dev/null; do
	fsck.tarnfs -n $dev >>"$t_out" 2>&1 || bad=1
	tarnfs check "$m" >>"$t_out" 2>&1 || bad=1
	runs=$((runs + 1))
done
result $bad "fsck -n and check while files are created"
yes "... which goes well" wait $copy
refuse "... all of them" 0 "clean, 7 directories, 1517 files" fsck.tarnfs -n "$m"
refuse "... compared" 0 "^1526 names compared .* 0 differences" tarnfs check "$m"
(cd "$work" && make_deep deep)
yes "a path of 6,000 bytes" tarnfs cp -r "$work/deep" "$m"
refuse "... compared" 0 "^1559 names compared .* 0 differences" tarnfs check "$m"

# ---- after kills ----
for point in after-reserve after-records after-commit; do
	env TARNFS_STOP_AT=$point tarnfs creat -s 4096 "$m/killed-$point" >/dev/null 2>&1
	refuse "killed at $point: fsck" 0 "clean" fsck.tarnfs -n "$m"
	refuse "... check" 0 " 0 differences" tarnfs check "$m"
done
yes "logplay" tarnfs logplay -q "$m"
refuse "... check has one more" 0 "^1560 names compared .* 0 differences" tarnfs check "$m"
mount -t tmpfs none "$m/copy/deep"
refuse "check sees what is mounted over a directory" 1 "^./copy/deep: something is mounted over it" tarnfs check "$m"
umount "$m/copy/deep"

# ---- not mounted ----
used=$(fsck.tarnfs -n "$m" | sed 's/.* symlinks, \([0-9]*\) of.*/\1/')
same "bytes used are what is not free" "$(($(value data | cut -d ' ' -f 1) - $(value free | cut -d ' ' -f 1)))" "$used"
at=$(tarnfs log "$m" | grep -m 1 'name="file"' | cut -d ' ' -f 1)
yes "umount" umount "$m"
refuse "fsck" 0 "clean, 39 directories" fsck.tarnfs $dev
unshare -m --propagation private sh -c "mount -t tarnfs $dev $m && sleep 1000" &
other=$!
sleep 5
refuse "fsck of what is mounted in another namespace" 8 "on this host already\|in use" fsck.tarnfs -n $dev
kill $other
wait $other 2>/dev/null
# the sleep that it left holds the namespace
for p in /proc/[0-9]*; do
	[ "$(tr '\0' ' ' <"$p/cmdline" 2>/dev/null)" = "sleep 1000 " ] && kill "${p#/proc/}"
done
sleep 1
refuse "fsck after it was left mounted" 0 "clean" fsck.tarnfs $dev
/selftests/media read 0 $((6 << 20)) >"$work/image"
truncate -s "$(/selftests/media size)" "$work/image"
refuse "fsck of a copy" 0 "clean, 39 directories" fsck.tarnfs "$work/image"
other_bytes "$work/image" $((at + 50)) 1
refuse "fsck of a damaged copy" 4 "error 401 at $(printf '0x%x' "$at"): " fsck.tarnfs "$work/image"
refuse "... whose records are not dropped unasked" 4 "not repaired: 401: records are not dropped" fsck.tarnfs -y "$work/image"

# ---- a tree that is not the log's: the log of another history of the same length ----
mkfs.tarnfs -q -f --hosts-fenced --log-size 1M -U $uuid $dev
mount -t tarnfs $dev "$m"
tarnfs creat -s 0 "$m/a" && tarnfs mkdir "$m/d" && tarnfs ln -s x "$m/l" &&
	tarnfs creat -s 4096 -m 600 "$m/f" && tarnfs creat "$m/only-a"
umount "$m"
log_pages "$work/a" out
mkfs.tarnfs -q -f --hosts-fenced --log-size 1M -U $uuid $dev
mount -t tarnfs $dev "$m"
tarnfs mkdir "$m/a" && tarnfs creat "$m/d" && tarnfs ln -s y "$m/l" &&
	tarnfs creat -s 8192 -m 640 "$m/f" && tarnfs creat "$m/only-b"
log_pages "$work/b" out "$m"
refuse "check of the second history" 0 " 0 differences" tarnfs check "$m"
log_pages "$work/a" in "$m"
tarnfs check -m 100 "$m" >"$work/out" 2>&1
same "check with the log of the first is exit 1" 1 $?
for text in '^\./a: a directory, in the log a file$' '^\./d: a file, in the log a directory$' \
	'^\./l: leads elsewhere' '^\./f: size 8192, in the log 4096$' '^\./f: mode 0640, in the log 0600$' \
	'^\./f: mtime .*, in the log ' '^\./f: extent [0-9]*+8192, in the log [0-9]*+4096$' \
	'^\./only-a: missing here$' '^\./only-b: not in the log$'; do
	yes "... says $text" grep "$text" "$work/out"
done
refuse "... lists as many as it may, and counts all" 1 "^and [0-9]* more" tarnfs check -m 2 "$m"
log_pages "$work/b" in "$m"
refuse "with its own log again" 0 " 0 differences" tarnfs check "$m"
yes "umount" umount "$m"
refuse "fsck" 0 "clean, 2 directories, 3 files, 1 symlinks" fsck.tarnfs $dev

# ---- what is no difference ----
mkfs.tarnfs -q -f --hosts-fenced --log-size 1M $dev
mount -t tarnfs $dev "$m"
tarnfs mkdir "$m/odd"
refuse "cp of links whose modes are odd, as those of /proc/PID/fd" 0 "^0 files, 1 directories, [1-9][0-9]* symlinks" \
	sh -c "tarnfs cp -r /proc/\$\$/fd '$m/odd'"
same "... which are 0777 in the log" "" "$(tarnfs log "$m" | grep ' symlink ' | grep -v 'mode=0777')"
refuse "... and to check" 0 " 0 differences$" tarnfs check "$m"
yes "creat of set-id files that all may write" tarnfs creat -s 4096 -m 6777 "$m/odd/suid" "$m/odd/suid2"
refuse "... check" 0 " 0 differences$" tarnfs check "$m"
echo x | setpriv --reuid 65534 --regid 65534 --clear-groups dd of="$m/odd/suid" conv=notrunc 2>/dev/null
same "a user's write takes the bits" 777 "$(stat -c %a "$m/odd/suid")"
refuse "... which is no difference, but said" 0 " 0 differences; 1 set-user-id or set-group-id file lost" tarnfs check "$m"
umount "$m" && mount -t tarnfs $dev "$m"
refuse "... after a mount they are back" 0 " 0 differences$" tarnfs check "$m"
refuse "check of a file on it" 0 " 0 differences$" tarnfs check "$m/odd/suid"
refuse "log of a file on it" 1 "odd/suid: no image, but a file on a mounted tarnfs: name a directory" tarnfs log "$m/odd/suid"
refuse "fsck of a file on it" 8 "a file on a mounted tarnfs: name the directory" fsck.tarnfs -n "$m/odd/suid"
refuse "fsck of a directory on it names the mount" 8 "no tarnfs is mounted on it, but on $m above it: name that" fsck.tarnfs -n "$m/odd"
for c in check logplay; do
	refuse "$c of the device names the directory" 1 "${dev##*/}: a device: name the directory that it is mounted on, $m$" tarnfs $c $dev
done
refuse "check of an image" 1 "image: not on a tarnfs: name the directory of a mount" tarnfs check "$work/image"
refuse "fsck by a user" 8 "^fsck.tarnfs: $m: this needs root" setpriv --reuid 65534 --regid 65534 --clear-groups fsck.tarnfs -n "$m"
exec 9<"$m/odd/suid"
umount -l "$m"
refuse "fsck of what was unmounted with -l, but is open" 8 "umount -l" fsck.tarnfs $dev
refuse "... log too" 1 "umount -l" tarnfs log $dev
exec 9<&-
refuse "... and when it is closed" 0 "clean" fsck.tarnfs $dev

# ---- a damaged superblock ----
head -c 4096 /dev/zero | /selftests/media write 0
refuse "fsck without the first superblock" 4 " 101 at 0x0" fsck.tarnfs $dev
no "... no mount" mount -t tarnfs $dev "$m"
refuse "fsck -p" 1 "repaired 101 at 0x0: the second copy over the first" fsck.tarnfs -p $dev
refuse "... which has nothing left to do" 0 "clean, 3 directories" fsck.tarnfs -p $dev
yes "... mount" mount -t tarnfs $dev "$m"
umount "$m"

# ---- a damaged record: what comes after it is given up, and only when asked ----
mkfs.tarnfs -q -f --hosts-fenced --log-size 1M $dev
mount -t tarnfs $dev "$m"
for f in a b c; do
	tarnfs creat -s 4096 "$m/$f"
done
at=$(tarnfs log "$m" | grep 'name="b"' | cut -d ' ' -f 1)
umount "$m"
printf x | /selftests/media write $((at + 50))
refuse "mount says where, which, why, and what is good" 32 \
	"offset $(printf '0x%x' "$at"), seq 2: record: damaged (checksum); what came before it, up to seq 1, is good" mount -t tarnfs $dev "$m"
refuse "fsck -y drops nothing unasked" 4 "not repaired: 401 at .* good up to seq 1, .*--truncate-log=1, with -y" fsck.tarnfs -y $dev
no "... so it cannot be mounted" mount -t tarnfs $dev "$m"
refuse "fsck -y --truncate-log" 1 "clean, .* seq 1$" fsck.tarnfs -y --truncate-log 1 $dev
refuse "... has nothing more to do" 0 "clean, .* seq 1$" fsck.tarnfs -y --truncate-log 1 $dev
yes "... mount" mount -t tarnfs $dev "$m"
same "... what came before is there" a "$(ls "$m")"
yes "... creat" tarnfs creat -s 4096 "$m/b"
refuse "... logplay" 0 "up to date: .*, seq 2$" tarnfs logplay "$m"
refuse "... check" 0 " 0 differences" tarnfs check "$m"
umount "$m"
# what was given up is not written over yet, and stands behind the end again
refuse "... fsck" 0 "clean, 1 note, 1 directories, 2 files" fsck.tarnfs $dev

finish
