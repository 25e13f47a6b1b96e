#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# Documentation/lessons.rst: each lesson has its row, in order, with tests or a reason why
# there is none yet, and each test named there exists: the file, and in it the text of the
# point. Prints TAP.

here=$(cd "${0%/*}" && pwd) || exit 1
# shellcheck source=selftests/lib.sh
. "$here/../lib.sh"
top=$here/../..
table=$top/Documentation/lessons.rst
lessons=47
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work" "$t_out"' EXIT

# rows FILE: "NUMBER<tab>FILE<tab>TEXT" for each test named, "NUMBER<tab>-" for a "not yet"
# with its reason, "NUMBER<tab>?" for a row with neither, and for lines of another form
rows() {
	awk '
	function done_with() { if (n != "" && !found) print n "\t?" }
	/^   \* - [0-9]+$/ { done_with(); n = $3; found = 0; column = 1; next }
	/^     - / { column++ }
	n == "" { next }
	column == 3 && /^(     - |       )\| not yet: ./ { print n "\t-"; found = 1; next }
	column == 3 && /^(     - |       )\| [^ ]+: ``.*``$/ {
		line = $0
		sub(/^ *(- )?\| /, "", line)
		file = line
		sub(/: ``.*/, "", file)
		sub(/^[^ ]+: ``/, "", line)
		sub(/``$/, "", line)
		print n "\t" file "\t" line
		found = 1
		next
	}
	column == 3 && /^(     - |       )\|/ { print n "\t?" }
	END { done_with() }' "$1"
}

# check FILE: what is wrong with the tests that it names
check() {
	rows "$1" >"$work/rows"
	t_tab=$(printf '\t')
	while IFS=$t_tab read -r number file text; do
		case $file in
		-) ;;
		'?') echo "lesson $number: a line that names no test" ;;
		*)
			if [ ! -f "$top/$file" ]; then
				echo "lesson $number: no file $file"
			elif ! grep -qF -e "$text" "$top/$file"; then
				echo "lesson $number: $file does not have: $text"
			fi
			;;
		esac
	done <"$work/rows"
}

plan $((lessons + 5))
check "$table" >"$work/wrong"
n=1
while [ $n -le $lessons ]; do
	grep "^lesson $n: " "$work/wrong" >"$t_out"
	grep -q "^$n	" "$work/rows" || echo "no row" >>"$t_out"
	if [ -s "$t_out" ]; then
		result 1 "lesson $n"
	else
		result 0 "lesson $n: $(grep -c "^$n	[^-]" "$work/rows") tests"
	fi
	n=$((n + 1))
done
same "the rows are in order, each once" "$(seq $lessons)" "$(cut -f 1 "$work/rows" | uniq)"

# this check sees what it has to see
sed 's/t_cmd\.sh: /t_cmc.sh: /' "$table" >"$work/broken"
yes "a file that is not there is noticed" sh -c "[ -n '$(check "$work/broken" | grep 'no file selftests/t_cmc.sh')' ]"
# shellcheck disable=SC2016 # not shell
sed '0,/: ``[^`]*``/s//: ``no such point``/' "$table" >"$work/broken"
yes "a point that is not there is noticed" sh -c "[ -n '$(check "$work/broken" | grep 'does not have: no such point')' ]"
# shellcheck disable=SC2016 # not shell
sed '0,/: ``\([^`]*\)``/s//: \1/' "$table" >"$work/broken"
yes "a line of another form is noticed" sh -c "[ -n '$(check "$work/broken" | grep 'names no test')' ]"
sed 's/not yet: .*/not yet:/' "$table" >"$work/broken"
yes "a missing reason is noticed" sh -c "[ -n '$(check "$work/broken" | grep 'names no test')' ]"
finish
