#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Removes each cache operation of user/lib in turn, in a copy, and runs the unit tests: every one
# must be noticed by a test. Prints each with the test that failed; exits 1 if one survives.
#
#	mutate-cacheops.sh [-j JOBS] [-l]		-l: list the operations only
#
# What is removed: calls of tarn_media_writeback, _invalidate and _fence and of the operations they
# come down to; a fetch becomes a plain read, a store a plain write; in cacheops.c the instructions.

set -eu
top=$(cd "$(dirname "$0")/../.." && pwd)
jobs=$(nproc)
list=
while getopts j:l opt; do
	case $opt in
	j) jobs=$OPTARG ;;
	l) list=1 ;;
	*) exit 2 ;;
	esac
done

# those that notice most come first
tests="test_super test_hostpage test_fsck test_append test_replay test_media_map test_log test_cacheops"

# FILE [N]: without N how many operations the file has; with N the file without the N-th, and where
# it was on stderr
remove='
	my ($file, $nth) = @ARGV;
	open(my $in, "<", $file) or die;
	my $text = join("", <$in>);
	my $n = 0;
	my $args = qr/(?<args>\((?:[^()]++|(?&args))*\))/;
	my $call = qr/(?<call>tarn_media_(?:writeback|invalidate|fence|fetch|store)|(?:\w+(?:\(m\))?->)?ops->(?:writeback|invalidate|fence))\s*$args/;
	$call = qr/(?<call>__asm__ volatile)\s*$args/ if $file =~ /cacheops\.c$/;
	$text =~ s{(?<before>^int )?$call}{
		my ($before, $what, $args, $all) = ($+{before}, $+{call}, $+{args}, $&);
		my $line = 1 + (substr($text, 0, $-[0]) =~ tr/\n//);
		if (defined $before || ++$n != ($nth // 0)) {
			$all;
		} else {
			$args =~ s/\s+/ /g;
			print STDERR "$line: $what$args\n";
			$what eq "tarn_media_fetch" ? "tarn_media_read$args" :
			$what eq "tarn_media_store" ? "tarn_media_write$args" : "(void)0" x ($what =~ /asm/) || "0";
		}
	}gem;
	print defined $nth ? $text : "$n\n";
'

operations() {
	for file in "$top"/user/lib/*.c; do
		for n in $(seq "$(perl -e "$remove" "$file")"); do
			echo "$(basename "$file") $n"
		done
	done
}

if [ -n "$list" ]; then
	operations | while read -r file n; do
		echo "$file:$(perl -e "$remove" "$top/user/lib/$file" "$n" 2>&1 >/dev/null)"
	done
	exit
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# one copy a job, built once, so that a removal costs one object and the links
for job in $(seq "$jobs"); do
	mkdir -p "$work/$job/user" "$work/$job/selftests"
	cp -a "$top/kmod" "$work/$job/kmod"
	cp -a "$top/user/lib" "$work/$job/user/lib"
	cp -a "$top/selftests/unit" "$work/$job/selftests/unit"
done

build() {
	local target= t
	for t in $tests; do target="$target $1/build/unit/gcc/$t"; done
	# shellcheck disable=SC2086
	make -s -C "$1/selftests/unit" O="$1/build" CC=gcc $target >"$1/log" 2>&1
}

one() {	# FOLDER FILE N
	local where t
	where="$2:$(perl -e "$remove" "$top/user/lib/$2" "$3" 2>&1 >"$1/user/lib/$2")"
	if ! build "$1"; then
		echo "ERROR    $where: does not compile"
	else
		for t in $tests; do
			if ! (cd "$1/selftests/unit" && timeout 120 "$1/build/unit/gcc/$t") >"$1/log" 2>&1; then
				echo "noticed  $where by $t $(grep -ao 'FAILED  \] [a-z_]*$' "$1/log" | head -n 1 | cut -c 11-)"
				cp -p "$top/user/lib/$2" "$1/user/lib/$2"
				touch "$1/user/lib/$2"
				return
			fi
		done
		echo "SURVIVED $where"
	fi
	cp -p "$top/user/lib/$2" "$1/user/lib/$2"
	touch "$1/user/lib/$2"
}

for job in $(seq "$jobs"); do
	build "$work/$job" || { cat "$work/$job/log" >&2; exit 1; }
done
operations >"$work/operations"
for job in $(seq "$jobs"); do
	awk -v j="$job" -v n="$jobs" 'NR % n == j % n' "$work/operations" | while read -r file n; do
		one "$work/$job" "$file" "$n"
	done >"$work/$job/result" &
done
wait
cat "$work"/*/result | sort
total=$(wc -l <"$work/operations")
seen=$(cat "$work"/*/result | wc -l)
bad=$(cat "$work"/*/result | grep -vc '^noticed' || true)
echo "$total operations removed, $((seen - bad)) noticed by a test, $bad not"
[ "$seen" = "$total" ] && [ "$bad" = 0 ] && [ "$total" -gt 0 ]
