#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# Two hosts: a tree of 20,000 small files and one of 300 MB, copied by four threads on the
# master, has on the client the contents, modes, mtimes, sizes and targets of the source,
# beyond the first 128 MiB as well. Prints TAP.

# shellcheck disable=SC2094,SC2317 # checks are called by name
# shellcheck source=selftests/lib.sh
if [ -e /selftests/lib.sh ]; then . /selftests/lib.sh; else . "${0%/*}/lib.sh"; fi

dev=${TARN_DEV:-/dev/pmem0}
m=/mnt/tarn
mkdir -p $m
umask 022

meet() {
	barrier "$1" || bail "the other host is gone at $1"
}

# make_large DIR: 200 folders of 100 files of 0 to 8 KiB, and the large one. Its period of
# 1,000,003 bytes is in step with no chunk of any size.
make_large() {
	mkdir -p "$1" || return 1
	# shellcheck disable=SC2046 # words
	(cd "$1" && mkdir $(seq -f 'd%03g' 0 199)) || return 1
	awk -v top="$1" 'BEGIN {
		for (i = 0; length(text) < 9000; i++)
			text = text sprintf("line %d of many\n", i)
		for (f = 0; f < 20000; f++) {
			path = sprintf("%s/d%03d/f%02d", top, f / 100, f % 100)
			n = f * 37 % 8193
			printf "%s", n ? substr(f " " text, 1, n) : "" >path
			close(path)
		}
	}' || return 1
	head -c 1000003 /dev/urandom >large.part || return 1
	l_i=0
	while [ "$l_i" -lt 300 ]; do
		echo large.part
		l_i=$((l_i + 1))
	done | xargs cat >"$1/large" || return 1
	find "$1" -name '*3' -exec chmod 640 {} + -exec touch -h -d @1000000003.000000007 {} +
	find "$1" -name '*5' -exec chmod 4711 {} + -exec touch -h -d @1234567890.5 {} +
	ln -s d000/f01 "$1/link"
}

if [ "$HOST" = 0 ]; then
	plan 9
	yes "mkfs" mkfs.tarnfs -q -f --hosts-fenced $dev
	yes "mount" mount -t tarnfs $dev $m
	yes "the tree" make_large tree
	mkdir lists
	mv large.part lists/period
	yes "... described" sh -c '. /selftests/lib.sh && describe tree >lists/names && sums tree >lists/sums'
	same "... 20,001 files" 20001 "$(wc -l <lists/sums)"
	refuse "cp -r -j 4" 0 "^20001 files, 201 directories, 1 symlinks, [0-9]* bytes$" tarnfs cp -r -j 4 tree $m
	yes "... and what to compare it with" tarnfs cp -r lists $m
	refuse "all of it again is skipped" 0 "^0 files, .*, 20002 skipped$" tarnfs cp -r -j 4 tree $m
	meet copied
	meet compared
	yes "umount" umount $m
	finish
fi

plan 7
meet copied
yes "mount" mount -t tarnfs $dev $m
describe $m/tree >names
sums $m/tree >sums
same "20,001 files" 20001 "$(wc -l <sums)"
yes "names, modes, mtimes, sizes, targets" cmp $m/lists/names names
yes "contents" cmp $m/lists/sums sums
yes "... the 201st period of the large one" \
	sh -c "tail -c +200000601 $m/tree/large | head -c 1000003 | cmp - $m/lists/period"
refuse "status counts them" 0 "^files  *20004$" tarnfs status $m
yes "umount" umount $m
meet compared
finish
