#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# Limits as a kernel shows them: names of 255 bytes with every byte there is, a tree 1,000
# deep whose paths no open() takes at once, 100,000 names in one directory; and all of it again
# after umount and mount. The others are in unit/test_limits.c. Prints TAP.

# shellcheck disable=SC2317 # checks are called by name
# shellcheck source=selftests/lib.sh
if [ -e /selftests/lib.sh ]; then . /selftests/lib.sh; else . "${0%/*}/lib.sh"; fi

dev=${TARN_DEV:-/dev/pmem0}
m=/mnt/tarn
names=100000
work=$(mktemp -d)
mkdir -p $m
umask 022

remount() {
	umount $m && mount -t tarnfs $dev $m
}
# deepest DIR: how many directories are below it in a chain, and what is at the end
deepest() {
	find "$1" -mindepth 1 -printf '%d %y %s\n' | sort -n | tail -n 1
}
# in_deepest CMD...: run where the file at the end of $m/tree is. Never a shell: it would hand a
# path that is too long for an exec to its children as $PWD
in_deepest() {
	find $m/tree -name file -execdir "$@" \; -fprintf "$work/ran" 'ran' && [ -s "$work/ran" ]
}
listed() {
	find "$m/many" -mindepth 1 -printf '%f\n'
}

plan 56
yes "mkfs" mkfs.tarnfs -q -f --hosts-fenced --log-size 32M $dev
yes "mount" mount -t tarnfs $dev $m

# ---- names ----
# each byte from 1 to 255 but the slash: 254 of them
LC_ALL=C awk 'BEGIN { for (i = 1; i < 256; i++) if (i != 47) printf "%c", i }' >"$work/bytes"
same "there are 254 bytes for names" 254 "$(wc -c <"$work/bytes")"
(printf '0 644 %s/' $m; cat "$work/bytes"; printf '\0') >"$work/list"
yes "creat of a name with all of them" tarnfs creat -0 --from "$work/list"
(cd $m && find . -mindepth 1 -printf '%f') >"$work/got"
yes "... which readdir gives back" cmp "$work/bytes" "$work/got"
yes "... and a lookup finds" xargs -0 -a "$work/list" sh -c '[ -f "${0#0 644 }" ]'
n=$(printf '%0254d' 0)
yes "mkdir of 255 bytes" tarnfs mkdir "$m/d$n"
yes "creat of 255 bytes in it" tarnfs creat -s 4097 "$m/d$n/f$n"
t=$(printf '%04095d' 7)
yes "ln of 255 bytes to a target of 4,095" tarnfs ln -s "$t" "$m/d$n/l$n"
same "... read back" "$t" "$(readlink "$m/d$n/l$n")"
same "stat" 4097 "$(stat -c %s "$m/d$n/f$n")"
refuse "creat of 256 bytes" 1 ": a name in it has 256 bytes, and at most 255" tarnfs creat "$m/f0$n"
refuse "mkdir of 256 bytes" 1 ": a name in it has 256 bytes, and at most 255" tarnfs mkdir "$m/d0$n"
refuse "ln of 256 bytes" 1 ": a name in it has 256 bytes, and at most 255" tarnfs ln -s x "$m/l0$n"
refuse "ln to a target of 4,096 bytes" 2 "4096 bytes: 1 to 4095" tarnfs ln -s "0$t" "$m/l"
no "a lookup of 256 bytes" stat "$m/f0$n"
no "... of 254" stat "$m/$n"

# ---- numbers ----
mkdir "$work/times"
for s in -9223372036854775807 -62135596800 -1 0 2147483648 4294967296 253402300799 9223372036854775807; do
	: >"$work/times/$s"
	touch -d "@$s" "$work/times/$s" 2>/dev/null || rm "$work/times/$s"
done
: >"$work/times/nano"
touch -d "@-1.000000001" "$work/times/nano"
chown 4294967294:4294967294 "$work/times/nano"
note "times: $(find "$work/times" -type f -printf '%f ')"
yes "cp of mtimes before 1970, and far in the future" tarnfs cp -rp "$work/times" $m
same "... are the same" "$(cd "$work/times" && stat -c '%n %y %u %g' ./*)" "$(cd $m/times && stat -c '%n %y %u %g' ./*)"

# ---- depth ----
d=$m/deep
for i in 1 2 3 4 5; do
	d=$d$(printf '%0200d' 0 | sed 's/0/\/d/g')
done
same "a path of 1,000 directories" $((${#m} + 5 + 2000)) ${#d}
yes "mkdir -p of it" tarnfs mkdir -p "$d"
same "... is there, to its end" 1001 "$(find $m/deep -type d | wc -l)"
yes "creat at its end" tarnfs creat -s 10 "$d/file"
same "... is there" "1001 f 10" "$(deepest $m/deep)"
long=$(printf '%0200d' 0 | sed "s/0/\/$(printf '%0100d' 1)/g")
refuse "mkdir -p of a longer path than there is" 1 "a path of 20[0-9]* bytes, and Linux takes at most 4095: cd to" \
	tarnfs mkdir -p "$m$long"

# names of 255 bytes: built from its end, 15 directories a path
part=$(printf '%015d' 0 | sed "s/0/\/$(printf '%0255d' 5)/g")
mkdir -p "$work/a$part"
seq 1 1000 >"$work/a$part/file"
mv "$work/a" "$work/tree"
for i in $(seq 2 66); do
	mkdir -p "$work/a$part"
	mv "$work/tree" "$work/a$part/tree"
	mv "$work/a" "$work/tree"
done
# 66 parts, and between them the name tree
same "a tree of 1,055 directories" "1056 f 3893" "$(deepest "$work/tree")"
yes "cp -r of it" tarnfs cp -r "$work/tree" $m
same "... is there, to its end" "1056 f 3893" "$(deepest $m/tree)"
refuse "... again: all there already" 0 "^0 files, 0 directories, .* 1 skipped$" tarnfs cp -r "$work/tree" $m
seq 1 1000 >"$work/expected"
yes "a file is read there" in_deepest cmp file "$work/expected"
yes "creat in its last directory" in_deepest tarnfs creat --fill 7 -s 9999 other
yes "verify" in_deepest tarnfs verify --seed 7 other
refuse "map" 0 "^9999 12288 [0-9]* 0 other$" in_deepest tarnfs map other
yes "flush" in_deepest tarnfs flush other
yes "mkdir -p" in_deepest tarnfs mkdir -p x/y/z
yes "cp" in_deepest tarnfs cp file x/y/z
refuse "status of that directory" 0 "^directories  *20[0-9][0-9]$" in_deepest tarnfs status .
yes "check" tarnfs check $m

# ---- one directory ----
yes "mkdir" tarnfs mkdir $m/many
awk -v d=$m/many -v n=$names -v part="$work/part." 'BEGIN {
	for (i = 0; i < n; i++)
		printf "0 - %s/%06d\n", d, n - i >(part int(i * 4 / n)) }'
for i in "$work"/part.*; do
	yes "25,000 files in one commit" tarnfs creat --from "$i"
done
cat "$work"/part.* | sed 's/.*\///' >"$work/created"
after() {
	listed >"$work/got"
	yes "$1: readdir gives all names once, in the order of creation" cmp "$work/created" "$work/got"
	yes "$1: the first, the last, one between" ls $m/many/100000 $m/many/000001 $m/many/054321
	no "$1: one that is not there" ls $m/many/000000
	no "$1: nor this" ls $m/many/100001
}
after "100,000 names"
yes "umount and mount" remount
after "mounted again"
same "the tree is there" "1056 f 3893" "$(find $m/tree -name other -prune -o -name x -prune -o -mindepth 1 -printf '%d %y %s\n' | sort -n | tail -n 1)"
yes "check" tarnfs check $m
yes "umount" umount $m
yes "fsck" fsck.tarnfs -n $dev
rm -rf "$work"
finish
