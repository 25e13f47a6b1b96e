#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# Runs the fuzzers, by the Makefile: run, cover, minimize. See README.

cd "${0%/*}" || exit 1
: "${OUT:?start it by make}" "${TARGETS:?}" "${JOBS:=2}" "${SECONDS_EACH:=10}"
# Memory in proportion to the input, and no run that does not end.
limits='-malloc_limit_mb=64 -rss_limit_mb=1500 -timeout=20 -len_control=0'
quiet='-entropic=0 -reduce_inputs=0 -print_funcs=0 -print_final_stats=1'
# Deeper traces of allocations: ASAN_OPTIONS= of the caller comes last.
ASAN_OPTIONS=quarantine_size_mb=1:thread_local_quarantine_size_kb=64:malloc_context_size=4:${ASAN_OPTIONS:-}
export ASAN_OPTIONS
findings=$OUT/findings
logs=$OUT/logs

# The longest input, in bytes: more only takes time.
room() {
	case $1 in
	text) echo 600 ;;
	apply) echo 1601 ;;
	*) echo "${2:-12288}" ;;
	esac
}

# One a target, in a process of its own; what it has to say is in $logs/TARGET.result.
fuzz_one() {
	target=$1
	program=$OUT/fuzz_$target
	work=$OUT/corpus/$target
	log=$logs/$target.log
	result=$logs/$target.result
	rm -rf "$work"
	mkdir -p "$work" "corpus/$target" "$findings"
	if [ -n "$EXECUTIONS" ]; then
		length=-runs=$EXECUTIONS
	else
		length=-max_total_time=$SECONDS_EACH
	fi
	# shellcheck disable=SC2086
	"$program" $limits $quiet -max_len="$(room "$target")" "$length" -seed="$SEED" -artifact_prefix="$findings/$target-" \
		"$work" "corpus/$target" >"$log" 2>&1 </dev/null
	code=$?
	done=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
	what=$(sed -n 's/^\(fuzz: .*\|.*runtime error: .*\|SUMMARY: .*\)$/\1/p' "$log" | head -n 1)
	kept=$(sed -n 's/.*Test unit written to //p' "$log" | head -n 1)
	if [ $code = 0 ] && [ "${done:-0}" -gt 0 ]; then
		echo "ok - $target: $done executions, seed $SEED" >"$result"
	elif [ -n "$kept" ]; then
		printf '%s\n' "not ok - $target: $what; after ${done:-?} executions, seed $SEED" \
			"# again: $program $kept" >"$result"
	else
		echo "not ok - $target: exit status $code: see $log" >"$result"
	fi
}

if [ "$1" = one ]; then
	fuzz_one "$2"
	exit 0
fi

number=0
point() {
	number=$((number + 1))
	printf '%s\n' "$1" | sed "1s/ok - /ok $number - /"
	case $1 in not*) failed=1 ;; esac
}

# What was found once, by name; then what the mutators go on from.
assets() {
	for asset in assets/"$1"/*; do
		[ -f "$asset" ] || continue
		if "$OUT/fuzz_$1" -timeout=20 -malloc_limit_mb=64 "$asset" >"$logs/asset.log" 2>&1; then
			point "ok - $1: ${asset##*/}"
		else
			point "not ok - $1: ${asset##*/}: again: $OUT/fuzz_$1 selftests/fuzz/$asset"
			sed 's/^/# /' "$logs/asset.log" | head -n 20
		fi
	done
}

run() {
	[ -n "$SEED" ] || SEED=$(($(date +%s) % 1000000000))
	export SEED
	failed=0
	plan=0
	rm -rf "$logs" "$findings"
	mkdir -p "$logs"
	for target in $TARGETS; do
		plan=$((plan + 1))
		for asset in assets/"$target"/*; do
			[ ! -f "$asset" ] || plan=$((plan + 1))
		done
	done
	echo "TAP version 13"
	echo "1..$plan"
	for target in $TARGETS; do
		assets "$target"
	done
	printf '%s\n' $TARGETS | xargs -P "$JOBS" -n 1 "./${0##*/}" one
	for target in $TARGETS; do
		point "$(cat "$logs/$target.result")"
	done
	return $failed
}

cover() {
	rm -rf "$OUT/profile"
	mkdir -p "$OUT/profile"
	for target in $TARGETS; do
		LLVM_PROFILE_FILE=$OUT/profile/$target.raw "$OUT/fuzz_$target" -runs=0 "corpus/$target" \
			$(find "assets/$target" -maxdepth 0 2>/dev/null) >"$OUT/profile/$target.log" 2>&1 || {
			tail "$OUT/profile/$target.log"
			return 1
		}
		$LLVM_PROFDATA merge -o "$OUT/profile/$target.data" "$OUT/profile/$target.raw" || return 1
		echo "== $target"
		$LLVM_COV report "$OUT/fuzz_$target" -instr-profile "$OUT/profile/$target.data" |
			awk '/\.c / && $4 != "0.00%" && $10 + 0 > 0 {
				printf "%-16s functions %s regions %s lines %s\n", $1, $7, $4, $10 }'
	done
}

minimize() {
	for target in $TARGETS; do
		new=$OUT/minimal/$target
		rm -rf "$new"
		mkdir -p "$new" "corpus/$target" "$OUT/corpus/$target"
		# longer ones are cut: the tree is not to be full of them
		# shellcheck disable=SC2086
		"$OUT/fuzz_$target" $limits -max_len="$(room "$target" 1600)" -use_counters=0 -merge=1 "$new" "corpus/$target" "$OUT/corpus/$target" \
			>"$OUT/minimal/$target.log" 2>&1 || { tail "$OUT/minimal/$target.log"; return 1; }
		rm -rf "corpus/$target"
		mv "$new" "corpus/$target"
		echo "$target: $(find "corpus/$target" -type f | wc -l) inputs, $(du -sb "corpus/$target" | cut -f 1) bytes"
	done
}

"$@"
