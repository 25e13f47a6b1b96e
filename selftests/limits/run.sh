#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# Limits as commands show them on images, and 1,000,000 records: replayed, then read by status,
# log and fsck. What the library does at each limit is in ../unit/test_limits.c, whose program is
# built here without sanitizers, so that it has all the records. Prints TAP. O=FOLDER is where
# the tools were built.

here=$(cd "${0%/*}" && pwd) || exit 1
# shellcheck source=selftests/lib.sh
. "$here/../lib.sh"
out=$(cd "${O:-$here/../../build}" 2>/dev/null && pwd) || {
	echo "no tools in ${O:-build}: make user" >&2
	exit 1
}
PATH=$out/user:$PATH:/usr/sbin:/sbin
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work" "$t_out"' EXIT
cd "$work" || exit 1
umask 022
records=1000000

# image NAME SIZE: a new, empty one
image() {
	rm -f "$1"
	truncate -s "$2" "$1"
}
# refused NAME PATTERN ARGUMENTS...: mkfs of image i refuses, and writes nothing
refused() {
	r_name=$1 r_pattern=$2
	shift 2
	refuse "$r_name" 1 "$r_pattern" mkfs.tarnfs "$@" i
	same "... and nothing is written" 0 "$(du -k i | cut -f 1)"
}

plan 36

# ---- what mkfs takes ----
image i 8388607
refused "a device of 8 MiB less a byte" "too small: 8388607 bytes, at least 8388608 are needed with logs of 1048576 bytes"
image i 8M
yes "a device of 8 MiB" mkfs.tarnfs i
refuse "... has 2 MiB of data" 0 "^free  *2097152 " tarnfs status i
yes "... and is clean" fsck.tarnfs -n i
image i 8E 2>/dev/null || image i 4E 2>/dev/null || image i 1T
note "the largest image here has $(stat -c %s i) bytes"
yes "a device as large as a file can be" mkfs.tarnfs -q i
refuse "... has logs of 1 GiB" 0 "^log used .* of 1073741824 bytes$" tarnfs status i
yes "... and is clean" fsck.tarnfs -n i
image i 8G
refused "a log of 1 GiB and a byte" "1073741825. is not a size from 1M to 1G" --log-size 1073741825
refused "a log of 1 MiB less a byte" "1048575. is not a size from 1M to 1G" --log-size 1048575
refused "129 hosts" "1 to 128" --hosts 129
refused "no hosts" "1 to 128" --hosts 0
refused "a label of 64 bytes" "63" -L "$(printf '%064d' 1)"
yes "a log of 1 GiB, 128 hosts, a label of 63 bytes" mkfs.tarnfs -q --log-size 1G --hosts 128 -L "$(printf '%063d' 1)" i
refuse "... 127 of 128 host pages are free" 0 "^12[78] of 128 host pages are free$" tarnfs status i
yes "... and it is clean" fsck.tarnfs -n i
image i 8M
yes "a log of 1 MiB, one host" mkfs.tarnfs -q --log-size 1M --hosts 1 i
refuse "... the bytes of its log" 0 "^log used  *384 of 1048576 bytes$" tarnfs status i
rm i

# ---- the command line ----
long=$(printf '%0256d' 1)
target=$(printf '%04096d' 1)
refuse "creat of 32,769 files is refused before anything is looked at" 2 "32769 files, and one commit takes at most 32768" \
	sh -c 'seq 32769 | sed "s/^/0 - x/" | tarnfs creat --from -'
refuse "a target of 4,096 bytes" 2 "the target has 4096 bytes: 1 to 4095 are possible" tarnfs ln -s "$target" x
refuse "a name of 256 bytes" 1 "a name in it has 256 bytes, and at most 255 are possible" tarnfs creat "$long"
mkdir a
refuse "... in the middle of a path" 1 "a name in it has 256 bytes, and at most 255 are possible" tarnfs mkdir -p "a/$long/b"
path=$(printf '%0200d' 0 | sed 's/0/abcdefghijklmnopqrstu\//g')
refuse "a path of 4,400 bytes" 1 "a path of 4400 bytes, and Linux takes at most 4095: cd to" tarnfs mkdir -p "$path"
refuse "... for a file" 1 "a path of 4401 bytes, and Linux takes at most 4095: cd to" tarnfs creat "${path}x"

# ---- 1,000,000 records ----
yes "the unit test builds" make -s -C "$here/../unit" O="$out" WERROR=1 "$out/unit/cc/test_limits"
yes "1,000,000 records are replayed" env LIMITS_IMAGE="$work/many" "LIMITS_RECORDS=$records" \
	CMOCKA_MESSAGE_OUTPUT=TAP sh -c "'$out/unit/cc/test_limits' >'$work/said' 2>&1"
grep '^# [0-9a]' said | sed 's/^# /# /'
refuse "fsck of that log" 0 "." fsck.tarnfs -n many
refuse "status counts them" 0 "^files  *999000$" tarnfs status many
refuse "... and where the log ends" 0 "^seq committed  *$records$" tarnfs status many
same "log prints a line for each, the root, the checkpoint's end and a heading" $((records + 3)) "$(tarnfs log many | wc -l)"
refuse "... one that is named" 0 "^[0-9]* 1000000 file ino=1000015 .*name=.f0999999. " tarnfs log --name f0999999 many
finish
