#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# One host: every command does what it says on a mounted tarnfs, mount(8), umount(8) and
# fstab work, nothing appears on a mount point that failed, and after a kill at each stop
# point no partial file is visible and the next command goes on. Prints TAP.

# shellcheck disable=SC2317 # checks are called by name
# shellcheck source=selftests/lib.sh
if [ -e /selftests/lib.sh ]; then . /selftests/lib.sh; else . "${0%/*}/lib.sh"; fi

dev=${TARN_DEV:-/dev/pmem0}
m=/mnt/tarn
work=$(mktemp -d)
mkdir -p "$m" /mnt/second
umask 022
tree=$work/tree

# value NAME: a line of tarnfs status
value() {
	tarnfs status "$m" | sed -n "s/^$1  *//p"
}
seq_here() {
	value 'seq here' | cut -d ' ' -f 1
}
mounted() {
	grep -q " $m tarnfs " /proc/mounts
}
nobody() {
	setpriv --reuid 65534 --regid 65534 --clear-groups "$@"
}
killed_at() {
	point=$1
	shift
	env TARNFS_STOP_AT="$point" "$@" >/dev/null 2>&1
	[ $? = 137 ]
}

plan 155

# ---- before anything is there ----
dd if=/dev/zero of="$work/zero" bs=1M count=1 2>/dev/null
refuse "umount of nothing" 32 "nothing is mounted" umount.tarnfs "$m"
# shellcheck disable=SC2016
refuse "... without /proc nobody knows" 32 "is mounted there is not known" \
	unshare -m sh -c 'umount -l /proc; exec umount.tarnfs "$1"' sh "$m"
if [ -b $dev ]; then
	busybox mke2fs $dev >/dev/null 2>&1
	sync
	refuse "mkfs refuses an ext2 on the device" 1 "signature of 'ext2'" mkfs.tarnfs --hosts-fenced $dev
	yes "... which is whole" sh -c "blkid -p $dev | grep -q ext2"
	yes "mkfs on the device" mkfs.tarnfs -f --hosts-fenced -L 'one host' $dev
	no "... nothing of the ext2 is left" sh -c "blkid -p $dev | grep -q ext2"
else
	skip "mkfs refuses an ext2 on the device" "nothing else writes to a character device"
	skip "... which is whole" "nothing else writes to a character device"
	yes "mkfs on the device" mkfs.tarnfs -f --hosts-fenced -L 'one host' $dev
	skip "... nothing of the ext2 is left" "nothing else writes to a character device"
fi
refuse "mkfs refuses it the second time" 1 "label one host.*--force" mkfs.tarnfs $dev
refuse "log of a device that is not mounted" 0 "checkpoint-end" tarnfs log $dev
refuse "status of a device that is not mounted" 0 "^mounted  *not on this host" tarnfs status $dev

# ---- mount ----
refuse "mount with role=client: this is the master's device" 32 "role=client" mount -t tarnfs -o role=client $dev "$m"
no "... and nothing is mounted" mounted
refuse "mount with a page beyond the table" 32 "host=99\|page 99" mount -t tarnfs -o host=99 $dev "$m"
no "... nor then" mounted
refuse "mount on a directory that is not there" 32 "No such file" mount.tarnfs $dev /mnt/none
refuse "... lets the page go" 0 "^ *0 *bound" tarnfs status $dev
yes "mount -t tarnfs" mount -t tarnfs -o role=master,noatime,nodev $dev "$m"
yes "... is in /proc/mounts" mounted
yes "... with the flags of the mount" grep -q " $m tarnfs rw,.*nodev.*noatime" /proc/mounts
same "the role is master" master "$(value role)"
same "the host page is 0" 0 "$(value 'host page')"
refuse "status says this host is there" 0 "^ *0 *this host *current" tarnfs status "$m"
refuse "a second mount of the device is refused" 32 "mounted\|busy\|in use" mount.tarnfs $dev /mnt/second
refuse "mkfs on a mounted device is refused" 1 "$m" mkfs.tarnfs -f --hosts-fenced $dev
same "status of the device is that of its mount" "$(tarnfs status "$m" | grep -v '^nonce\|seen')" "$(tarnfs status $dev | grep -v '^nonce\|seen')"
refuse "version: the module speaks the tools' interface" 0 "module interface  1, as" tarnfs version "$m"
refuse "version: and of any mount" 0 "module interface  1, as" tarnfs version
refuse "version of what is no tarnfs" 1 "not on a tarnfs" tarnfs version /proc

# ---- creat ----
yes "creat of three files" tarnfs creat -s 64K -m 640 "$m/a" "$m/b" "$m/c"
same "... have size, mode and owner" "65536 640 0:0" "$(stat -c '%s %a %u:%g' "$m/b")"
yes "... and are zero" cmp -n 65536 "$m/b" /dev/zero
refuse "creat of a name that exists creates none of them" 1 "/a: exists" tarnfs creat "$m/new" "$m/a"
no "... none" test -e "$m/new"
refuse "creat of the mount itself" 1 "$m: exists already and is a directory: name the file to create in it" tarnfs creat -s 1M "$m"
refuse "creat elsewhere as well" 1 "/new2: not on\|/new2 is not on the tarnfs" tarnfs creat "$m/new" "$work/new2"
refuse "creat in a directory that is not there" 1 "No such file" tarnfs creat "$m/no/x"
refuse "creat in a file" 1 "not a directory" tarnfs creat "$m/a/x"
yes "creat honours the umask" sh -c "umask 077; tarnfs creat '$m/masked'"
same "... but not for -m" "600 0" "$(stat -c '%a %s' "$m/masked")"
i=0
while [ $i -lt 500 ]; do
	echo "4096 - $m/list-$i"
	i=$((i + 1))
done >"$work/list"
before=$(seq_here)
yes "creat --from a list" tarnfs creat --from "$work/list"
same "... all of them" 500 "$(find "$m" -name 'list-*' -size 4096c | wc -l)"
same "... in one commit" 500 "$(tarnfs log "$m" | grep -c 'name="list-.* batch=[0-9]*/500')"
same "... takes 500 numbers" $((before + 500)) "$(seq_here)"
yes "creat --from -0" sh -c "printf '5 604 $m/with\nnewline\0' | tarnfs creat -0 --from -"
same "... has its newline" "5 604" "$(stat -c '%s %a' "$m/with
newline")"
refuse "... printed as \\x0a" 0 'name="with\\x0anewline"' tarnfs log "$m"
refuse "creat of more than there is says how much there is" 1 "[0-9]" tarnfs creat -s 100G "$m/huge"
refuse "a name of 256 bytes" 1 "." tarnfs creat "$m/$(printf '%0256d' 1)"
yes "a name of 255 bytes" tarnfs creat "$m/$(printf '%0255d' 1)"

# ---- mkdir, ln ----
yes "mkdir" tarnfs mkdir "$m/d"
refuse "mkdir again" 1 "exists" tarnfs mkdir "$m/d"
refuse "mkdir without its parent" 1 "-p" tarnfs mkdir "$m/x/y"
yes "mkdir -p" tarnfs mkdir -p -m 750 "$m/d" "$m/x/y/z"
same "... modes" "755 755 750" "$(stat -c %a "$m/x" "$m/x/y" "$m/x/y/z" | tr '\n' ' ' | sed 's/ $//')"
refuse "mkdir over a file" 1 "exists" tarnfs mkdir "$m/a"
yes "ln -s" tarnfs ln -s ../a "$m/d/link"
same "... leads there" ../a "$(readlink "$m/d/link")"
yes "ln -s into a directory" tarnfs ln -s /some/where "$m/d"
same "... is named like its target" /some/where "$(readlink "$m/d/where")"
refuse "ln -s over a name" 1 "exists" tarnfs ln -s x "$m/d/link"

# ---- cp ----
make_tree "$tree"
refuse "cp of a directory without -r" 1 "-r copies it" tarnfs cp "$tree" "$m"
refuse "cp -r" 0 "^16 files, 5 directories, 2 symlinks" tarnfs cp -r "$tree" "$m/copy"
same "... names, modes, mtimes, sizes, targets" "$(describe "$tree")" "$(describe "$m/copy")"
same "... contents" "$(sums "$tree")" "$(sums "$m/copy")"
refuse "cp -r again: all of it is there" 0 "^0 files, 0 directories, .*, 18 skipped$" tarnfs cp -r "$tree/." "$m/copy"
mkfifo "$tree/fifo"
echo late >"$tree/deep/late"
refuse "cp -r merges" 0 "^1 files, .*, 5 skipped$" sh -c "tarnfs cp -r '$tree/deep' '$m/copy' 2>/dev/null"
refuse "... and skips a fifo, saying so" 1 "fifo; skipped" tarnfs cp -r "$tree/fifo" "$m/copy"
same "... merged" late "$(cat "$m/copy/deep/late")"
rm "$tree/fifo"
yes "cp of one file to a new name" tarnfs cp "$tree/size-4097" "$m/renamed"
yes "... is it" cmp "$tree/size-4097" "$m/renamed"
yes "cp of several into a directory" tarnfs cp "$tree/size-1" "$tree/size-63" "$m/d"
refuse "cp of several onto a file" 1 "not a directory" tarnfs cp "$tree/size-1" "$tree/size-63" "$m/renamed"
refuse "cp of what is not there copies the rest" 1 "1 files" tarnfs cp "$tree/none" "$tree/size-64" "$m/d"
refuse "cp out of a tarnfs: plain cp does" 1 "out of one, plain cp does" tarnfs cp "$m/renamed" "$work/out"
refuse "cp to what is no tarnfs" 1 "tarnfs" tarnfs cp "$tree/size-1" "$work/out"
refuse "cp of a tree into itself" 1 "contains the destination" tarnfs cp -r "$m/x" "$m/x/y"
refuse "cp from tarnfs to tarnfs" 0 "^17 files" tarnfs cp -r "$m/copy" "$m/again"
same "... contents" "$(sums "$m/copy")" "$(sums "$m/again")"
refuse "cp of a file of /proc, whose size lies" 1 "more than the 0 bytes" tarnfs cp /proc/version "$m/version"
no "... is not there" test -e "$m/version"
truncate -s 8G "$work/huge"
refuse "cp of a file that does not fit says what is needed and free, and copies nothing" 1 \
	"no space for all of it: 8589938688 bytes needed, the largest file 8589934592; [0-9]* are free" \
	tarnfs cp "$work/huge" "$tree/size-65" "$m/d"
no "... nothing" test -e "$m/d/size-65"
(cd "$work" && make_deep deep)
refuse "cp of a path of 6,000 bytes" 0 "^1 files, 32 directories" tarnfs cp -r "$work/deep" "$m"
same "... is there" 1 "$(find "$m/deep" -type f -size 5c | wc -l)"
mkdir "$work/many"
(cd "$work/many" && seq 1 2500 | while read -r n; do echo "$n" >"$n"; done)
refuse "cp of 2,500 files" 0 "^2500 files" tarnfs cp -r "$work/many" "$m"
same "... contents" "$(sums "$work/many")" "$(sums "$m/many")"
same "... in three commits" "1000 1000 501" "$(tarnfs log "$m" | sed -n 's/.* batch=1\/\([0-9]*\)$/\1/p' | tail -n 3 | tr '\n' ' ' | sed 's/ $//')"
refuse "logplay is up to date" 0 "^up to date" tarnfs logplay "$m"

# ---- what applications get ----
refuse "touch of a new name" 1 "not permitted" touch "$m/touched"
refuse "rm" 1 "not permitted" rm "$m/a"
yes "writing in place" dd if="$work/zero" of="$m/c" bs=4096 count=1 conv=notrunc,fsync
refuse "... but not past the end" 1 "No space" dd if="$work/zero" of="$m/c" bs=4096 seek=16 count=1 conv=notrunc
chmod 755 "$work"
refuse "a user reads what its mode lets" 0 "^1$" nobody cat "$m/many/1"
refuse "... and nothing else" 1 "Permission denied" nobody cat "$m/masked"
refuse "... creates nothing" 1 "Permission denied" nobody touch "$m/touched"
refuse "... not with tarnfs either" 1 "." nobody tarnfs creat "$m/touched"
refuse "... nor mounts" 1 "only root" nobody mount.tarnfs $dev /mnt/second

# ---- umount, remount, fstab ----
# a path of 6,000 bytes is nothing that sha256sum opens
sum=$(sums "$m" 2>/dev/null | sha256sum)
exec 9<"$m/a"
refuse "umount of a busy mount" 32 "busy" umount.tarnfs "$m"
exec 9<&-
yes "mount -o remount,ro" mount -o remount,ro "$m"
refuse "... creates nothing" 1 "read-only" tarnfs creat "$m/ro"
yes "mount -o remount,rw" mount -o remount,rw "$m"
yes "umount" umount "$m"
no "... is gone" mounted
refuse "... and the page bound" 0 "^ *0 *bound" tarnfs status $dev
echo "$dev $m tarnfs noauto,nosuid,dax=always,_netdev,x-test.y 0 0" >>/etc/fstab
yes "mount DIR, from fstab" mount "$m"
same "still the master" master "$(value role)"
same "still page 0" 0 "$(value 'host page')"
same "all files are there" "$sum" "$(sums "$m" 2>/dev/null | sha256sum)"

# ---- kills ----
for point in after-reserve mid-copy after-records; do
	yes "cp killed at $point" killed_at $point tarnfs cp -r "$tree" "$m/kill-$point"
	no "... nothing of it is visible" test -e "$m/kill-$point"
done
for point in after-commit before-apply before-at-end; do
	yes "cp killed at $point" killed_at $point tarnfs cp -r "$tree" "$m/kill-$point"
done
yes "logplay goes on" tarnfs logplay "$m"
for point in after-commit before-apply before-at-end; do
	same "$point: all of it is there" "$(sums "$tree")" "$(sums "$m/kill-$point")"
done
yes "the next cp goes on" tarnfs cp -r "$tree" "$m/kill-mid-copy"
same "... contents" "$(sums "$tree")" "$(sums "$m/kill-mid-copy")"
same "no space stays reserved" "" "$(value reserved)$(value limbo)"

# ---- a log that is damaged ----
at=$(tarnfs log "$m" | grep 'name="renamed"' | cut -d ' ' -f 1)
yes "umount" umount "$m"
/selftests/media read "$at" 64 >"$work/record"
printf x | /selftests/media write $((at + 50))
refuse "a mount of a damaged log names the offset" 32 "offset $(printf '0x%x' "$at")" mount -t tarnfs $dev "$m"
no "... and nothing is mounted" mounted
refuse "... and the page stays claimed, since a master's last position is not known" 1 "^ *0 *claimed" tarnfs status $dev
refuse "... and log prints what is before and fails" 1 "name=\"a\"" tarnfs log $dev
/selftests/media write "$at" <"$work/record"
yes "mended, it is mounted" mount -t tarnfs $dev "$m"

# ---- other namespaces ----
unshare -m --propagation private sleep 1000 &
other=$!
sleep 1
refuse "umount while another namespace has it" 0 "stays claimed.*harmless" umount "$m"
no "... is gone here" mounted
refuse "... and nothing but it can have the device" 1 "in use\|mounted" mkfs.tarnfs -f $dev
refuse "... nor mount it" 32 "in use\|mounted" mount -t tarnfs $dev "$m"
kill $other
wait $other 2>/dev/null
yes "when that is gone, mount" mount -t tarnfs $dev "$m"
yes "umount by the device's name" umount.tarnfs $dev
unshare -m --propagation private sleep 1000 &
other=$!
sleep 1
yes "mount -N in a namespace" mount -N $other -t tarnfs $dev "$m"
no "... is not here" mounted
yes "... but there" grep -q " $m tarnfs " "/proc/$other/mounts"
yes "umount -N" umount -N $other "$m"
no "... is gone there" grep -q " $m tarnfs " "/proc/$other/mounts"
refuse "... and the page bound" 0 "^ *0 *bound" tarnfs status $dev
kill $other
wait $other 2>/dev/null
yes "mount" mount -t tarnfs $dev "$m"

# ---- a mount without the helper ----
umount "$m"
yes "mount -i skips mount.tarnfs" mount -i -t tarnfs $dev "$m"
refuse "... serves no names" 2 "attached" ls "$m"
refuse "... creat says why" 1 "without mount.tarnfs.*umount" tarnfs creat "$m/x"
refuse "... cp too" 1 "without mount.tarnfs.*umount" tarnfs cp "$tree/size-1" "$m"
refuse "... logplay too" 1 "without mount.tarnfs.*umount" tarnfs logplay "$m"
refuse "... and status" 0 "not attached" tarnfs status "$m"
yes "umount" umount "$m"
yes "mount" mount -t tarnfs $dev "$m"

# ---- a mount that was not let go ----
umount -i "$m"
refuse "after umount -i the page stays claimed" 0 "^ *0 *claimed" tarnfs status $dev
yes "mount takes it again" mount -t tarnfs $dev "$m"
same "... as the master" "master 0" "$(value role) $(value 'host page')"
yes "... and creates" tarnfs creat "$m/after"
yes "umount -l" umount -l "$m"
sed -i "\\|^$dev |d" /etc/fstab

finish
