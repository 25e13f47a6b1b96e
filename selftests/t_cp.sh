#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# One host: tarnfs cp -j 4 killed at each stop point, and ten times at a pseudo-random
# number of written pieces or commits, leaves no partial file visible, and the same command
# completes the tree: contents, modes, mtimes, targets, owners. Prints TAP.

# shellcheck disable=SC2317 # checks are called by name
# shellcheck source=selftests/lib.sh
if [ -e /selftests/lib.sh ]; then . /selftests/lib.sh; else . "${0%/*}/lib.sh"; fi

dev=${TARN_DEV:-/dev/pmem0}
m=/mnt/tarn
mkdir -p $m
umask 022

# a number of tarnfs status
value() {
	tarnfs status $m | sed -n "s/^$1  *\([0-9]*\) .*/\1/p"
}
owners() {
	(cd "$1" && find . -mindepth 1 -printf '%U:%G %p\n' | LC_ALL=C sort -k 2)
}
# what is visible of a copy is whole: its checksums are among those of the source
whole() {
	sums "$1" | LC_ALL=C sort >part.sums
	LC_ALL=C comm -23 part.sums tree.sorted >partial
	[ ! -s partial ] || {
		head -n 5 partial
		return 1
	}
}
# killed NAME POINT STATUS: eight points
killed() {
	k_dir=$m/$1
	tarnfs mkdir "$k_dir"
	env TARNFS_STOP_AT="$2" tarnfs cp -r -p -j 4 tree "$k_dir" >/dev/null 2>&1
	same "$1: cp ends at $2" "$3" $?
	yes "... no file that is visible is partial" whole "$k_dir"
	note "$(wc -l <part.sums) files were visible"
	yes "... fsck has no finding" fsck.tarnfs -n $m
	yes "... again" tarnfs cp -r -p -j 4 tree "$k_dir"
	describe "$k_dir/tree" >now.names
	owners "$k_dir/tree" >now.owners
	sums "$k_dir/tree" >now.sums
	yes "... names, modes, mtimes, sizes, targets" cmp tree.names now.names
	yes "... owners" cmp tree.owners now.owners
	yes "... contents" cmp tree.sums now.sums
	yes "... check of the tree against the log" tarnfs check $m
}

plan 154

# ---- the tree: 1,200 small files, so two commits, and one of two chunks ----
make_tree tree
awk 'BEGIN {
	for (f = 0; f < 1200; f++) {
		if (f % 100 == 0)
			system("mkdir tree/d" f / 100)
		path = sprintf("tree/d%d/f%04d", f / 100, f)
		for (i = 0; i < f % 97; i++)
			printf "%06d %06d\n", f, i >path
		printf "" >path
		close(path)
	}
}'
seq 1 3000000 | head -c 20000001 >tree/big
find tree -name '*7' -exec chown -h 1234:5678 {} + -exec chmod 4750 {} +
find tree -name 'd*' -exec chown 77:88 {} + -exec touch -d @1000000001.000000001 {} +
describe tree >tree.names
owners tree >tree.owners
sums tree >tree.sums
LC_ALL=C sort <tree.sums | sed 's|  ./|  ./tree/|' | LC_ALL=C sort >tree.sorted
files=$(wc -l <tree.sums)

yes "mkfs" mkfs.tarnfs -q -f --hosts-fenced --log-size 16M $dev
yes "mount" mount -t tarnfs $dev $m

# ---- a dry run says what it takes ----
tarnfs cp -r -n tree $m >plan
refuse "cp -n" 0 "^would copy $files files" cat plan
no "... does nothing" test -e $m/tree
space=$(value free)
log=$(value 'log used')
yes "cp --shared-write" tarnfs cp -r --shared-write -j 4 tree $m
same "... takes the space that was said" "$(sed -n 's/^space: \([0-9]*\) .*/\1/p' plan)" $((space - $(value free)))
same "... and the log" "$(sed -n 's/^log: \([0-9]*\) .*/\1/p' plan)" $(($(value 'log used') - log))
refuse "cp -n into what is no directory" 1 "." tarnfs cp -r -n tree/d1 tree/d2 $m/tree/big
same "... and the files may be written by clients" "$files" "$(tarnfs log $m | grep -c ' file .*shared')"
truncate -s 8G huge
refuse "a file that does not fit: needed, free and largest piece" 1 \
	"8589938688 bytes needed, the largest file 8589934592; [0-9]* are free, [0-9]* in one piece" tarnfs cp huge tree/size-65 $m
no "... nothing is copied" test -e $m/size-65
yes "... what fits is" tarnfs cp tree/size-65 $m
refuse "again without --shared-write: skipped, and each is counted" 0 "^0 files.*, $((files + 2)) skipped, $files there with another" \
	tarnfs cp -r tree $m
refuse "... with it" 0 "^0 files.*, $((files + 2)) skipped$" tarnfs cp -r --shared-write tree/. $m/tree
rm huge

# ---- kills ----
for point in after-reserve mid-copy after-records after-commit before-apply before-at-end; do
	killed "$point" "$point" 137
done
seed=20240611
i=0
while [ $i -lt 10 ]; do
	seed=$(((seed * 1103515245 + 12345) % 2147483648))
	n=$((seed / 65536))
	case $((n % 7)) in
	0) point=after-commit:$((1 + n / 7 % 2)) ;;
	1) point=after-records:2 ;;
	*) point=mid-copy:$((1 + n % 1200)) ;;
	esac
	killed "kill-$i" "$point" 137
	i=$((i + 1))
done
killed sigterm mid-copy:1100:15 143
same "no space stays reserved" "" "$(value reserved)$(value limbo)"
yes "umount" umount $m
yes "mount" mount -t tarnfs $dev $m
same "all is there" $((18 * files + 1)) "$(find $m -type f | wc -l)"
umount $m
finish
