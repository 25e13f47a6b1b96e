#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# fsck.tarnfs on images, where no kernel module is needed: exit codes are those of fsck(8),
# every damage is found by its number and offset, nothing is changed unless asked, and wrappers may
# give the options that fsck(8) gives. Prints TAP. O=FOLDER is where the tools were built.

here=$(cd "${0%/*}" && pwd) || exit 1
# shellcheck source=selftests/lib.sh
. "$here/../lib.sh"
tools=${O:-$here/../../build}/user
tools=$(cd "$tools" 2>/dev/null && pwd) || {
	echo "no tools in ${O:-build}/user: make user" >&2
	exit 1
}
PATH=$tools:$PATH:/usr/sbin:/sbin
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work" "$t_out"' EXIT
cd "$work" || exit 1
umask 022

# image NAME SIZE: a new, empty one
image() {
	rm -f "$1"
	truncate -s "$2" "$1"
}
# bytes OFFSET COUNT: changes bytes of the image i
bytes() {
	other_bytes i "$1" "$2"
}
# damage NAME NUMBER OFFSET COUNT [OFFSET COUNT]: found by number at the line of the first offset
damage() {
	cp --sparse=always whole i
	bytes "$3" "$4"
	[ $# = 4 ] || bytes "$5" "$6"
	refuse "damage: $1" 4 "^$work/i: [a-z]* $2 at $(printf '0x%x' $(($3 / 64 * 64))): " fsck.tarnfs i
}

as_user=
[ "$(id -u)" != 0 ] || as_user="setpriv --reuid 65534 --regid 65534 --clear-groups"

plan 100

# ---- usage ----
refuse "no name" 16 "fsck.tarnfs --help" fsck.tarnfs
refuse "two names" 16 "fsck.tarnfs --help" fsck.tarnfs a b
refuse "an unknown option" 16 "fsck.tarnfs --help" fsck.tarnfs --frob a
refuse "an unknown letter" 16 "fsck.tarnfs --help" fsck.tarnfs -z a
for o in x -1 1x ''; do
	refuse "-C '$o'" 16 "not the number of a descriptor" fsck.tarnfs -C "$o" a
done
refuse "-n and -y" 16 "-n, which changes nothing" fsck.tarnfs -n -y a
refuse "-n and -p" 16 "-n, which changes nothing" fsck.tarnfs -p -n a

# ---- what cannot be checked ----
refuse "no such file" 8 "No such file" fsck.tarnfs none
refuse "an empty file" 8 "." sh -c ': >empty; exec fsck.tarnfs empty'
image i 1000
refuse "a file of 1,000 bytes" 8 "." fsck.tarnfs i
image i 64M
refuse "zeros" 8 "no tarnfs superblock" fsck.tarnfs i
mke2fs -q -F i >/dev/null 2>&1
refuse "an ext2" 8 "no tarnfs superblock" fsck.tarnfs i
refuse "a directory that nothing is mounted on" 8 "no tarnfs is mounted" fsck.tarnfs -n "$work"
refuse "... nor what is mounted on /proc" 8 "no tarnfs is mounted" fsck.tarnfs -n /proc
refuse "a character device" 8 "." fsck.tarnfs /dev/null

# ---- clean ----
image whole 64M
mkfs.tarnfs -q --hosts 4 --log-size 1M whole
refuse "a new image" 0 "^$work/whole: clean, 1 directories, 0 files, 0 symlinks, 0 of [0-9]* bytes used, generation 1, seq 0$" \
	fsck.tarnfs whole
for o in -n -f -a -p -y "-a -f -C0" "-p -C 2"; do
	# shellcheck disable=SC2086 # several options
	refuse "... with $o" 0 "clean" fsck.tarnfs $o whole
done
same "nothing on stderr" "" "$(fsck.tarnfs whole 2>&1 >/dev/null)"
for o in "--hosts 1" "--hosts 128" "--log-size 8M" "--owner 00000000-0000-5000-8000-000000000001"; do
	image i 64M
	# shellcheck disable=SC2086 # several options
	mkfs.tarnfs -q $o i
	refuse "a new one with $o" 0 "clean" fsck.tarnfs i
done
image i 16G
mkfs.tarnfs -q i
refuse "a new one of 16 GiB" 0 "clean" fsck.tarnfs i

# ---- damage: host pages from 64 KiB, mirrors from 1 MiB, log from 2 MiB ----
damage "superblock" 101 0 8
damage "superblock, at its start" 101 0 512
damage "second superblock" 102 4096 64
damage "both superblocks" 101 16 24 4112 24
damage "identity" 201 65536 4
damage "identity in the mirror" 201 $((1048576 + 4096)) 4
damage "identity in both" 202 65536 4 1048576 4
damage "control" 205 $((65536 + 64)) 4
damage "control in both" 206 $((65536 + 64)) 4 $((1048576 + 64)) 4
damage "status" 210 $((65536 + 192)) 4
damage "commit word" 301 $((65536 + 512)) 4
damage "bytes behind the last commit word" 216 $((65536 + 1024)) 64
damage "log header" 303 2097152 4
damage "log header's end" 303 2097152 256
damage "the root's record" 401 $((2097152 + 256)) 4
damage "the last byte of the root's record" 401 $((2097152 + 319)) 1
damage "the end of the checkpoint" 401 $((2097152 + 320)) 4
damage "bytes before the host pages" 701 8192 1
damage "bytes before the log" 701 $((2097152 - 64)) 64
cp --sparse=always whole i
bytes $((2097152 + 384)) 4096
refuse "bytes behind the log are none" 0 "clean" fsck.tarnfs i
cp --sparse=always whole i
truncate -s 32M i
refuse "a truncated image: what it was made for" 4 "error 106 at 0x0: made for 67108864 bytes, and there are 33554432: " fsck.tarnfs i
refuse "... the rest is looked at" 4 "^$work/i: 1 error, 0 warnings, 1 directories" fsck.tarnfs i
truncate -s 3M i
refuse "... cut within its metadata" 4 "error 1 at 0x300000: metadata reach to " fsck.tarnfs i
refuse "... that too" 4 "error 106 at 0x0: " fsck.tarnfs i
refuse "... which ends it" 4 "^$work/i: 2 errors, 0 warnings, only the superblocks were looked at$" fsck.tarnfs i
cp --sparse=always whole i
truncate -s 128M i
refuse "an image that was enlarged is as good" 0 "clean" fsck.tarnfs i
cp --sparse=always whole i
bytes $((65536 + 512)) 4
refuse "what is not known is not told: a damaged commit word" 4 "^$work/i: 1 error, 0 warnings, the log was not looked at$" fsck.tarnfs i
cp --sparse=always whole i
bytes 2097152 4
refuse "... a damaged header" 4 "^$work/i: 1 error, 0 warnings, the log was not looked at$" fsck.tarnfs i
cp --sparse=always whole i
bytes $((65536 + 64)) 4
bytes $((1048576 + 64)) 4
refuse "... no log" 4 "^$work/i: 2 errors, 0 warnings, the log was not looked at$" fsck.tarnfs i
no "status promises no repair of it" sh -c "tarnfs status i 2>&1 | grep 'has to mend'"
cp --sparse=always whole i
bytes $((2097152 + 256)) 4
refuse "status counts nothing of a log that it cannot read" 1 "^free  *unknown$" tarnfs status i
no "... no file, no hole" sh -c "tarnfs status i 2>&1 | grep -E '^(files|largest hole)  *[0-9]'"
cp --sparse=always whole i
bytes $((65536 + 64)) 4
bytes $((1048576 + 64)) 4
refuse "... but says what there is" 1 "control line is bad.*fsck.tarnfs -n says" tarnfs status i

# ---- what commands.rst says can be done by hand ----
cp --sparse=always whole i
image other 64M
mkfs.tarnfs -q --hosts 4 --log-size 1M -L second other
dd if=other of=i bs=4096 skip=1 seek=1 count=1 conv=notrunc 2>/dev/null
refuse "103: the second superblock of another one" 4 " 103 at 0x1000" fsck.tarnfs i
dd if=i of=second bs=4096 skip=1 count=1 2>/dev/null
truncate -s 64M second
refuse "... can be looked at" 1 "^label  *second$" tarnfs status second
cp --sparse=always whole i
bytes 0 64
refuse "a damaged superblock does not hide the rest" 4 "1 error, 0 warnings, 1 directories" fsck.tarnfs i
bytes 65600 4
refuse "... nor what else is wrong" 4 "1 error, 1 warning, 1 directories" fsck.tarnfs i

# ---- nothing is changed ----
before=$(sha256sum <i)
for o in '' -n "-n --hosts-fenced" "-n --truncate-log 0"; do
	# shellcheck disable=SC2086 # several options, or none
	refuse "damage with '$o'" 4 "101 at 0x0" fsck.tarnfs $o i
done
no "without -n, -p, -y nothing is said of repair" sh -c "fsck.tarnfs i | grep repair"
refuse "-n says what -p would do" 4 ": -p repairs 101 at 0x0: the second copy over the first" fsck.tarnfs -n i
refuse "--truncate-log without -y" 16 "wants -y" fsck.tarnfs --truncate-log 0 i
refuse "... of no number" 16 "'x' is not the number of a record" fsck.tarnfs -y --truncate-log x i
same "the image is as before" "$before" "$(sha256sum <i)"
chmod 400 i
refuse "an image that may only be read" 4 "101 at" fsck.tarnfs i
# shellcheck disable=SC2086 # none, or a command and its options
refuse "... is not repaired" 8 "i: Permission denied" $as_user fsck.tarnfs -y i

# ---- output ----
refuse "to a full disk" 8 "standard output" sh -c 'fsck.tarnfs whole >/dev/full'
refuse "to a closed descriptor" 8 "standard output" sh -c 'fsck.tarnfs whole >&-'
refuse "... findings are findings all the same" 4 "standard output" sh -c 'fsck.tarnfs i >&-'
fsck.tarnfs -C 3 whole 3>progress >/dev/null
yes "-C 3: steps as fsck(8) reads them" grep -q "^1 0 4 $work/whole$" progress
for step in 1 2 3 4; do
	yes "... step $step is done at its end" grep -q "^$step \([0-9]*\) \1 " progress
done
same "... as is all of it" "4 1 1 $work/whole" "$(tail -n 1 progress)"
fsck.tarnfs -C 3 i 3>progress >/dev/null
same "... of a damaged one too" "4 1 1 $work/i" "$(tail -n 1 progress)"
no "... and no other line" grep -v "^[1-4] [0-9]* [0-9]* $work/i$" progress
same "-C 0 prints nothing but to a terminal" "" "$(fsck.tarnfs -C 0 whole 2>&1 | grep -v clean)"
refuse "-C of a closed descriptor" 0 "clean" fsck.tarnfs -C 3 whole
refuse "... is said" 0 "-C: descriptor 3 is not open" fsck.tarnfs -C 3 whole
refuse "-C of a full disk" 0 "clean" sh -c 'fsck.tarnfs -C 3 whole 3>/dev/full'
refuse "--help: warnings are findings" 0 "4 errors or warnings found and left" fsck.tarnfs --help
refuse "... and a directory is for -n" 0 "fsck.tarnfs -n .* DIR$" fsck.tarnfs --help
refuse "-C of a pipe that nobody reads" 0 "clean" sh -c 'fsck.tarnfs -C 3 whole 3>&1 >result | :; cat result'

# ---- stopped: a name so long that its progress fills a pipe that nobody reads ----
part=$(printf '%0200d' 1)
mkdir -p "$part/$part/$part/$part"
image "$part/$part/$part/$part/i" 64M
mkfs.tarnfs -q --hosts 128 "$part/$part/$part/$part/i"
mkfifo pipe
exec 3<>pipe
for s in INT TERM; do
	fsck.tarnfs -C 3 "$part/$part/$part/$part/i" >out 2>&1 &
	sleep 1
	kill -s $s $!
	wait $!
	same "SIG$s is exit 32" "32 stopped" "$? $(sed -n 's/.*: //p' out)"
done

finish
