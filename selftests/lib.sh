# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=sh
#
# What the test scripts share: TAP with a plan, and checks that show what went
# wrong. Sourced, never run. A script begins with `plan N` and ends with `finish`.

t_plan=0
t_run=0
t_bad=0
t_out=$(mktemp)

plan() {
	t_plan=$1
	echo "TAP version 13"
	echo "1..$1"
}

# result CODE NAME: one point, with what was last captured when it failed
result() {
	t_run=$((t_run + 1))
	if [ "$1" = 0 ]; then
		echo "ok $t_run - $2"
	else
		t_bad=$((t_bad + 1))
		echo "not ok $t_run - $2"
		head -n 25 "$t_out" | cut -c 1-300 | sed 's/^/#   /'
	fi
	: >"$t_out"
}

skip() {
	t_run=$((t_run + 1))
	echo "ok $t_run - $1 # SKIP $2"
}

# yes NAME CMD...: it must succeed
yes() {
	t_name=$1
	shift
	"$@" >"$t_out" 2>&1
	t_code=$?
	[ "$t_code" = 0 ] || echo "exit status $t_code of: $*" >>"$t_out"
	result "$t_code" "$t_name"
}

# no NAME CMD...: it must fail, whatever the code
no() {
	t_name=$1
	shift
	if "$@" >"$t_out" 2>&1; then
		echo "succeeded: $*" >>"$t_out"
		result 1 "$t_name"
	else
		result 0 "$t_name"
	fi
}

# refuse NAME CODE PATTERN CMD...: just this exit status, and the grep pattern in its output
refuse() {
	t_name=$1 t_want=$2 t_pattern=$3
	shift 3
	"$@" >"$t_out" 2>&1
	t_code=$?
	t_ok=0
	if [ "$t_code" != "$t_want" ]; then
		t_ok=1
		echo "exit status $t_code, not $t_want, of: $*" >>"$t_out"
	fi
	if ! grep -q -e "$t_pattern" "$t_out"; then
		t_ok=1
		echo "does not say: $t_pattern" >>"$t_out"
	fi
	result "$t_ok" "$t_name"
}

# same NAME WANTED GOT: two texts
same() {
	printf 'wanted: %s\ngot:    %s\n' "$2" "$3" >"$t_out"
	if [ "$2" = "$3" ]; then
		result 0 "$1"
	else
		result 1 "$1"
	fi
}

note() {
	echo "# $*"
}

bail() {
	echo "Bail out! $*"
	exit 1
}

finish() {
	rm -f "$t_out"
	if [ "$t_run" != "$t_plan" ]; then
		echo "# planned $t_plan, ran $t_run"
		exit 1
	fi
	[ "$t_bad" = 0 ] || exit 1
	exit 0
}

# describe DIR: a line for each name in it with type, mode, mtime, size of files, target of links
describe() {
	(cd "$1" && find . -mindepth 1 \( -type f -printf 'f %m %T@ %s %p\n' \) -o \
		\( -type l -printf 'l %T@ %l %p\n' \) -o -printf '%y %m %T@ %p\n' | LC_ALL=C sort -k 4)
}

# sums DIR: the checksum of each file
sums() {
	(cd "$1" && find . -type f -print0 | LC_ALL=C sort -z | xargs -0 -r sha256sum)
}

# make_tree DIR: the same small tree on every host: sizes around every border, modes, old
# mtimes, links, names of 255 bytes
make_tree() {
	mkdir -p "$1/deep/er/still" "$1/empty" || return 1
	for t_size in 0 1 63 64 65 4095 4096 4097 1048577 2097151 2097152 2097153 5242893; do
		seq $((t_size % 1000)) 2000000 | head -c "$t_size" >"$1/size-$t_size" || return 1
		chmod 640 "$1/size-$t_size"
		touch -d "@$((1000000000 + t_size)).5" "$1/size-$t_size"
	done
	t_long=$(printf '%0255d' 7)
	echo long >"$1/deep/$t_long"
	echo odd >"$1/deep/er/$(printf 'tab\there and \\ back')"
	echo run >"$1/deep/er/still/program"
	chmod 755 "$1/deep/er/still/program"
	ln -s ../size-4096 "$1/deep/link"
	ln -s /nowhere/at/all "$1/deep/er/broken"
	chmod 700 "$1/empty"
	find "$1" -depth -newermt '2010-01-01' -exec touch -h -d '@1111111111.25' {} +
}

# make_deep DIR: one file in a path of 6,000 bytes, which no open() takes at once
make_deep() {
	t_name200=$(printf '%0200d' 1)
	t_path=
	# shellcheck disable=SC2034 # counted, not read
	for t_i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do
		t_path=$t_path/$t_name200
	done
	mkdir -p "$1.half$t_path" "$1$t_path" || return 1
	echo deep >"$1.half$t_path/file"
	mv "$1.half" "$1$t_path/half"
}

# other_bytes FILE OFFSET COUNT: each is one more than it was, so none is what it was
other_bytes() {
	t_bytes=$(mktemp)
	dd if="$1" of="$t_bytes" bs=1 skip="$2" count="$3" 2>/dev/null
	LC_ALL=C tr '\000-\377' '\001-\377\000' <"$t_bytes" | dd of="$1" bs=1 seek="$2" conv=notrunc 2>/dev/null
	rm -f "$t_bytes"
}

# wait_until CMD...: false after a minute or so
wait_until() {
	t_tries=0
	until "$@"; do
		t_tries=$((t_tries + 1))
		[ $t_tries -lt 6000 ] || return 1
		sleep 0.01
	done
}
