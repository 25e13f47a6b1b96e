#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Which unit test finds which of the planted faults (user/lib/planted.h)? Builds the unit tests
# with them and switches on one after the other. Prints TAP: a point a fault, with the test that
# failed first. Those that only the explorer can find (tools/crash, which finds each of them) are
# skipped, and named below: such a one that a unit test finds is a failure, as is one that is not
# named and not found.
#
#	planted.sh [-j JOBS] [NAME...]

set -eu
cd "$(dirname "$0")"
top=$(cd ../.. && pwd)
jobs=2
while getopts j: opt; do
	case $opt in
	j) jobs=$OPTARG ;;
	*) exit 2 ;;
	esac
done
shift $((OPTIND - 1))

explorer_only="cp-no-fsync"

# those that notice most, and the quick ones, come first
tests="test_super test_hostpage test_append test_log test_replay test_node test_node_bad test_node_model"

out=${O:-$top/build}/unit/gcc-plant
make -s -j "$jobs" CC=gcc PLANT=1 O="${O:-$top/build}" $(for t in $tests; do echo "$out/$t"; done)
if [ $# = 0 ]; then
	# shellcheck disable=SC2046
	set -- $(sed -n 's/^\tFAULT([A-Z_]*, "\([a-z-]*\)".*/\1/p' "$top/user/lib/planted.h")
fi

try() {	# NAME: the test that finds it, or nothing
	local t log
	for t in $tests; do
		if ! log=$(TARNFS_PLANTED=$1 timeout 120 "$out/$t" 2>&1); then
			echo "$t: $(grep -ao 'FAILED  \] [a-z_0-9]*$' <<<"$log" | head -n 1 | cut -c 11-)"
			return
		fi
	done
}

echo "1..$#"
n=0
bad=0
for name; do
	n=$((n + 1))
	where=$(try "$name")
	only=
	case " $explorer_only " in *" $name "*) only=1 ;; esac
	if [ -n "$where" ] && [ -z "$only" ]; then
		echo "ok $n $name: $where"
	elif [ -z "$where" ] && [ -n "$only" ]; then
		echo "ok $n $name # SKIP for the explorer alone"
	else
		echo "not ok $n $name: ${where:-no unit test finds it}"
		bad=1
	fi
done
exit $bad
