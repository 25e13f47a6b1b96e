#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# tarnfs cp over a plain directory (../cmd/fake.c in place of the library): threads, files
# that fail in mid-copy, restarts, kills, signals, dry runs, owners, links, attributes, the
# progress line. Prints TAP. SAN=thread tests it with the thread sanitizer instead of the
# address sanitizer.

# shellcheck disable=SC2094,SC2016,SC2317 # checks are called by name, other shells expand $PPID
here=$(cd "${0%/*}" && pwd) || exit 1
# shellcheck source=selftests/lib.sh
. "$here/../lib.sh"
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work" "$t_out"' EXIT
cd "$work" || exit 1
umask 022
cmd=$here/../../user/cmd
fake=$work/fake
r=$work/root
export FAKE_ROOT="$r"
mkdir "$r" "$r.store"

# a fresh destination directory: $d
fresh() {
	d=$(mktemp -d "$r/XXXXXX")
	chmod 755 "$d"
}
# describe, less the mtimes of directories, which change here as names are put into them
looks() {
	describe "$1" | sed 's/^\(d [0-9]*\) [0-9.]*/\1/'
}
# alike NAME SOURCE COPY: two points
alike() {
	same "$1: names, modes, mtimes, sizes, targets" "$(looks "$2")" "$(looks "$3")"
	same "$1: contents" "$(sums "$2")" "$(sums "$3")"
}
# whole SOURCE COPY: every file of the copy is one of the source, with all its bytes
whole() {
	(cd "$2" && find . -type f) | while read -r w_name; do
		cmp "$1/$w_name" "$2/$w_name" || exit 1
	done
}
nothing_left() {
	[ -z "$(ls "$r.store")" ]
}
# the last line on a terminal, with the control characters in the open
on_a_terminal() {
	script -qec "$*" /dev/null </dev/null | tr '\r' '\n' | sed 's/\x1b\[K/<clear>/g'
}

plan 181

yes "cp builds over the fake" "${CC:-gcc}" -g -O1 -no-pie -Wall -Wextra "-fsanitize=${SAN:-address,undefined}" \
	-pthread -Wl,--unresolved-symbols=ignore-all,--wrap=pread,--wrap=sendfile,--wrap=fsync \
	-o "$fake" "$here/../cmd/fake.c" "$cmd/tarnfs.c" "$cmd"/cp*.c \
	"$cmd/creat.c" "$cmd/mkdir.c" "$cmd/ln.c" "$cmd/common.c" "$cmd/extent.c"

# ---- the tree: small files, and one of 40 MiB, which is three chunks ----
make_tree tree
mkdir tree/some
(cd tree/some && seq 1 300 | while read -r n; do seq 1 "$n" >"$n"; done)
seq 1 5400000 | head -c 41943041 >tree/big
chmod 604 tree/big
find tree -newermt '2010-01-01' -exec touch -h -d '@1111111111.25' {} +

# ---- options ----
for j in 0 65 x -1 ''; do
	refuse "-j '$j' is wrong usage" 2 "1 to 64" "$fake" cp -j "$j" tree "$r"
done

# ---- threads ----
for j in 1 2 4 16 64; do
	fresh
	refuse "cp -r -j $j" 0 "^317 files, 6 directories, 2 symlinks, [0-9]* bytes$" "$fake" cp -r -j $j tree "$d"
	alike "-j $j" tree "$d/tree"
done
fresh
refuse "with neither -j nor a terminal nothing goes to stderr" 0 "^317 files" "$fake" cp -r tree "$d"
fresh
same "... nothing" "" "$("$fake" cp -r tree "$d" 2>&1 >/dev/null)"
fresh
refuse "without sendfile" 0 "^317 files" env FAKE_NO_SENDFILE=1 "$fake" cp -r -j 4 tree "$d"
alike "without sendfile" tree "$d/tree"
fresh
refuse "64 threads in 250 descriptors" 0 "^317 files" sh -c "ulimit -n 250; '$fake' cp -r -j 64 tree '$d'"
fresh
refuse "too few descriptors are errors of files, each told" 1 ": .*: Too many open files" \
	sh -c "ulimit -n 20; '$fake' cp -r -j 16 tree '$d'"
yes "... and no other file is there" whole tree "$d/tree"
yes "nothing stays reserved" nothing_left

# ---- files that fail ----
# fails NAME COUNT PATTERN ENV...: the rest is copied, and big is not
fails() {
	f_name=$1 f_pattern=$2
	shift 2
	for j in 1 4; do
		fresh
		refuse "-j $j: $f_name: told" 1 "$f_pattern" env "$@" "$fake" cp -r -j $j tree "$d"
		no "... it is not there" test -e "$d/tree/big"
		same "... the rest is" 316 "$(find "$d/tree" -type f | wc -l)"
	done
}
fails "a source with an I/O error in its second chunk" "tree/big: reading at byte [0-9]*: Input/output error; not copied" \
	FAKE_EIO=big:20000000
fails "... at its very end" "tree/big: reading.*: Input/output error; not copied" FAKE_EIO=big:41943041
fresh
refuse "the errors are counted" 1 "^316 files, .*, 1 errors" env FAKE_EIO=big:0 "$fake" cp -r tree "$d"
# the 3rd descriptor of a copy is that of big's last chunk: big comes first by name
for change in "echo x >>tree/big" "truncate -s 30000000 tree/big" "rm tree/big" \
	"printf y | dd of=tree/big conv=notrunc 2>/dev/null" "rm tree/big; mkfifo tree/big" "touch tree/big"; do
	cp -p tree/big keep
	fresh
	refuse "a large file: '$change' in mid-copy" 1 "tree/big: .*; not copied" \
		env FAKE_DURING="$change" FAKE_DURING_AT=3 "$fake" cp -r -j 4 tree "$d"
	no "... it is not there" test -e "$d/tree/big"
	same "... the rest is" 316 "$(find "$d/tree" -type f | wc -l)"
	rm -f tree/big
	mv keep tree/big
done
fresh
refuse "fsync fails: told for each" 1 "^1 files.*, 316 errors" env FAKE_NO_FSYNC=1 "$fake" cp -r -j 4 tree "$d"
same "... only the empty one is there" 1 "$(find "$d/tree" -type f | wc -l)"
fresh
mkfifo tree/fifo
refuse "a fifo is skipped with a message" 1 "tree/fifo: is a device, socket or fifo; skipped" "$fake" cp -r -j 4 tree "$d"
rm tree/fifo
alike "... the rest" tree "$d/tree"
fresh
refuse "no space for one, which shows only then: the rest is copied" 1 "^316 files" env FAKE_SPACE_LATER=20000000 "$fake" cp -r tree "$d"
refuse "no space for all: what is needed and free is said" 1 \
	"no space for all of it: [0-9]* bytes needed, the largest file 41947136; 20000000 are free.*; nothing was copied" \
	env FAKE_SPACE=20000000 "$fake" cp -r tree "$r/none"
no "... nothing was copied" test -e "$r/none"
yes "what is there already takes no space" "$fake" cp -r tree/some tree/deep "$d"
refuse "... nor counts again" 0 "^0 files.*, 305 skipped$" env FAKE_SPACE=10 "$fake" cp -r tree/some tree/deep "$d"
yes "nothing stays reserved" nothing_left

# ---- there already ----
fresh
yes "cp" "$fake" cp -r tree "$d"
refuse "again: all skipped" 0 "^0 files, 0 directories, 0 symlinks, 0 bytes, 319 skipped$" "$fake" cp -r tree "$d"
refuse "-v says which" 0 "tree/big is there already" "$fake" cp -rv tree "$d"
touch "$d/tree/some/1"
printf x >>"$d/tree/some/2"
touch -r tree/some/2 "$d/tree/some/2"
rm "$d/tree/some/3" "$d/tree/some/4" "$d/tree/deep/link"
ln -s elsewhere "$d/tree/deep/link"
mkdir "$d/tree/some/4"
rm "$d/tree/some/5"
refuse "another mtime, size, type or target is an error each; the rest goes on" 1 \
	"^2 files, 0 directories, 0 symlinks, [0-9]* bytes, 313 skipped, 4 errors$" \
	"$fake" cp -r tree "$d"
yes "... the rest" cmp tree/some/5 "$d/tree/some/5"
refuse "... named" 1 "tree/deep/link: .*link exists already; not copied" "$fake" cp -r tree "$d"
mkdir -p one/t two/t
echo 1 >one/t/f
echo 2 >two/t/f
touch -d @1000000000 one/t/f two/t/f
for pair in "one/t two/t" "one/t/. two/t/." "one/t/f two/t/."; do
	fresh
	# shellcheck disable=SC2086 # two words
	refuse "of two sources of one name, size and mtime the bytes decide: $pair" 1 "two/t.*f: .*exists already" \
		"$fake" cp -r $pair "$d"
done

# what a skipped name does not have of its source
fresh
yes "cp" "$fake" cp -r tree/some tree/deep "$d"
chmod 600 "$d/some/7" "$d/some/8"
chmod 700 "$d/deep"
refuse "there with another mode: counted" 0 "^0 files, .*, 305 skipped, 3 there with another owner, mode or shared-write flag$" \
	"$fake" cp -r tree/some tree/deep "$d"
refuse "... -v says which" 0 "some/7 is there already, with another mode$" "$fake" cp -rv tree/some "$d"
refuse "... of directories too" 0 "deep is there already, with another mode$" "$fake" cp -rv tree/deep "$d"
chmod 644 "$d/some/7" "$d/some/8"
refuse "there, but not for clients to write" 0 "^0 files, .*, 300 skipped, 299 there with another" \
	env FAKE_SHARED="$d/some/9" "$fake" cp -r --shared-write tree/some/[1-9]* "$d/some"
refuse "... and the other way" 0 "some/9 is there already, with another shared-write flag$" \
	env FAKE_SHARED="$d/some/9" "$fake" cp -rv tree/some/[1-9]* "$d/some"
if [ "$(id -u)" = 0 ]; then
	chown 12345 tree/some/7
	refuse "there with another owner" 0 "some/7 is there already, with another owner$" "$fake" cp -rpv tree/some "$d"
	refuse "... which without -p is none" 0 "^0 files, .*, 300 skipped$" "$fake" cp -r tree/some "$d"
	chown 0 tree/some/7
else
	skip "there with another owner" "not root"
	skip "... which without -p is none" "not root"
fi

# ---- names as they were typed ----
fresh
ln -s tree/deep to-deep
yes "cp -r of a link with a slash" "$fake" cp -r to-deep/ "$d"
yes "... copies the directory" diff -r --no-dereference tree/deep "$d/to-deep"
no "... as one" test -L "$d/to-deep"
yes "... to a new name" "$fake" cp -r to-deep/ "$d/new"
yes "... as well" diff -r --no-dereference tree/deep "$d/new"
refuse "... without -r it is refused" 1 "^tarnfs cp: to-deep/: is a directory; -r copies it" "$fake" cp to-deep/ "$d/none"
fresh
refuse "cp -r of a link without one: a note" 0 "note: to-deep is a symbolic link to a directory, copied as a link" "$fake" cp -r to-deep tree/big "$d"
yes "... and a link" test -L "$d/to-deep"
same "... one note" 1 "$("$fake" cp -rn to-deep "$d/other" 2>&1 | grep -c note:)"
mkdir typed
mkfifo typed/fifo
for name in typed ./typed typed/. ./././typed/ "$work/typed" typed/../typed; do
	fresh
	refuse "messages have the name as it was typed: $name" 1 "^tarnfs cp: ${name%/}/fifo: is a device" "$fake" cp -r "$name" "$d"
done
refuse "... in the root directory" 1 "^tarnfs cp: /nosuch: No such file" "$fake" cp //nosuch "$d"
(cd typed && echo dash >-)
refuse "... of a file in this one" 0 "^- -> $d/-$" sh -c "cd typed && '$fake' cp -v - '$d/'"
refuse "... and of a destination" 0 "^$work/tree/big -> name$" sh -c "cd '$d' && '$fake' cp -v '$work/tree/big' name"
refuse "... with a dot" 0 "^$work/tree/big -> ./name2$" sh -c "cd '$d' && '$fake' cp -v '$work/tree/big' ./name2"
rm -r typed

# ---- -T ----
fresh
yes "-T: a tree to a new name" "$fake" cp -rT tree/some "$d/new"
refuse "... again: all of it is there" 0 "^0 files, 0 directories, .*, 300 skipped$" "$fake" cp -rT tree/some "$d/new"
yes "... and nothing was made in it" diff -r --no-dereference tree/some "$d/new"
yes "-T: of a link with a slash" "$fake" cp -rT to-deep/ "$d/new"
yes "... merges" test -L "$d/new/link"
refuse "-T: a file onto a directory" 1 "new: exists already and is a directory; without -T" "$fake" cp -T tree/big "$d/new"
refuse "-T: a link, too" 1 "new: exists already and is a directory; without -T" "$fake" cp -rT to-deep "$d/new"
yes "-T: a file to a new name" "$fake" cp -T tree/big "$d/big"
refuse "-T of two sources" 2 "-T: DEST is the name of one copy, and there are 2 sources" "$fake" cp -rT tree many "$d"
refuse "-T without -r" 1 "is a directory; -r copies it" "$fake" cp -T tree/some "$d/new"
rm to-deep

# ---- killed, and again ----
for point in after-reserve mid-copy mid-copy:7 mid-copy:100 mid-copy:300; do
	fresh
	mkdir "$d/tree"
	TARNFS_STOP_AT=$point "$fake" cp -r -j 4 tree "$d" >/dev/null 2>&1
	same "killed at $point" 137 $?
	same "... nothing is visible" "" "$(ls "$d/tree")"
	yes "... again" "$fake" cp -r -j 4 tree "$d"
	alike "$point" tree "$d/tree"
done
rm -rf "$r.store"

# ---- signals ----
mkdir many
(cd many && seq 10000 12499 | while read -r n; do echo "$n" >"$n"; done)
fresh
refuse "SIGINT in the second batch: exit 130" 130 "ended by SIGINT" \
	env FAKE_DURING='kill -INT $PPID' FAKE_DURING_AT=1500 "$fake" cp -r -j 4 many "$d"
n=$(find "$d/many" -type f | wc -l)
yes "... what was complete is there ($n)" sh -c "[ $n -ge 1490 ] && [ $n -le 1510 ]"
yes "... whole" whole many "$d/many"
refuse "... and again goes on" 0 "^$((2500 - n)) files, 0 directories, .*, $n skipped$" "$fake" cp -r -j 4 many "$d"
alike "after SIGINT" many "$d/many"
fresh
refuse "ended while it made a new name: the command that goes on is named" 130 "the same command with -T copies the rest" \
	env FAKE_DURING='kill -INT $PPID' FAKE_DURING_AT=1500 "$fake" cp -r many "$d/new"
yes "... it does" "$fake" cp -rT many "$d/new"
alike "with -T" many "$d/new"
refuse "ended in a directory that was there: the same command" 130 "the same command copies the rest" \
	env FAKE_DURING='kill -INT $PPID' FAKE_DURING_AT=20 "$fake" cp -r tree "$d"
fresh
refuse "SIGTERM in a large file: exit 143" 143 "^0 files, 6 directories" \
	env FAKE_DURING='kill -TERM $PPID' FAKE_DURING_AT=2 "$fake" cp -r -j 2 tree "$d"
no "... which is not there" test -e "$d/tree/big"
yes "nothing stays reserved" nothing_left
fresh
refuse "SIGINT that was ignored at the start stays so" 0 "^317 files" \
	sh -c "trap '' INT; FAKE_DURING='kill -INT \$PPID' '$fake' cp -r -j 4 tree '$d'"

# ---- dry run ----
fresh
refuse "-n" 0 "^would copy 317 files, 6 directories, 2 symlinks, [0-9]* bytes$" "$fake" cp -rn tree "$d"
same "... did nothing" "" "$(ls "$d")"
refuse "... says what space" 0 "^space: 5[0-9]* bytes needed, 60000000 free, 60000000 in one piece" \
	env FAKE_SPACE=60000000 "$fake" cp -rn tree "$d"
refuse "... and log" 0 "^log: $((325 * 64)) bytes needed, $((1000 * 64)) left" env FAKE_LOG=1000 "$fake" cp -rn tree "$d"
refuse "... too little space is exit 1" 1 "no space for all of it" env FAKE_SPACE=20000000 "$fake" cp -rn tree "$d"
refuse "... too little log too" 1 "the log is full" env FAKE_LOG=300 "$fake" cp -rn tree "$d"
refuse "... with -v each name" 0 "^would copy tree/some/17 -> $d/tree/some/17" "$fake" cp -rnv tree "$d"
yes "cp" "$fake" cp -r tree "$d"
refuse "... of what is there" 0 "^would copy 0 files, .*, 319 skipped$" "$fake" cp -rn tree "$d"

# ---- what is kept, and what is not ----
rm -rf attr
mkdir attr
echo 1 >attr/one
ln attr/one attr/two
ln attr/one attr/three
chmod 2750 attr
fresh
refuse "hard links: told once" 0 "note: 3 files have several names" "$fake" cp -r attr "$d"
same "... once" 1 "$("$fake" cp -r attr "$d/new" 2>&1 | grep -c 'several names')"
same "... and are files of their own" 1 "$(stat -c %h "$d/attr/two")"
if [ "$(id -u)" = 0 ]; then
	chown 12345:54321 attr/one attr
	chmod 6755 attr/one
	fresh
	yes "without -p" "$fake" cp -r attr "$d"
	same "... the copy is the caller's, and no set-id bit changes hands" "755 0:0" "$(stat -c '%a %u:%g' "$d/attr/one")"
	fresh
	yes "-p" "$fake" cp -rp attr "$d"
	same "... keeps owner, group and those bits" "6755 12345:54321" "$(stat -c '%a %u:%g' "$d/attr/one")"
	same "... of directories" "2750 12345:54321" "$(stat -c '%a %u:%g' "$d/attr")"
else
	for n in 1 2 3 4 5; do
		skip "owners" "not root"
	done
fi
if python3 -c 'import os; os.setxattr("attr/one", "user.x", b"1"); os.setxattr("attr", "user.y", b"2")' 2>/dev/null; then
	fresh
	refuse "a dry run counts extended attributes" 0 "note: 4 files and directories have extended attributes" "$fake" cp -rn attr "$d"
	refuse "extended attributes are counted and told" 0 "note: 4 files and directories have extended attributes.*, 0 of them ACLs" \
		"$fake" cp -r attr "$d"
	if python3 -c 'import os, struct
e = struct.pack("<IHHIHHIHHIHHIHHI", 2, 1, 7, 0xffffffff, 2, 7, 65534, 4, 5, 0xffffffff, 16, 7, 0xffffffff, 32, 5, 0xffffffff)
open("attr/acl", "w").close()
os.setxattr("attr/acl", "system.posix_acl_access", e)' 2>/dev/null; then
		fresh
		refuse "... ACLs among them" 0 "note: 5 files.*, 1 of them ACLs" "$fake" cp -r attr "$d"
	else
		skip "ACLs" "the file system has none"
	fi
else
	skip "extended attributes" "the file system has none"
	skip "a dry run counts extended attributes" "the file system has none"
	skip "ACLs" "the file system has none"
fi

# ---- progress ----
if ! script -qec true /dev/null >/dev/null 2>&1 </dev/null; then
	skip "on a terminal the progress is shown" "this place has no pseudo-terminals"
	skip "... and goes before the summary" "no terminal"
	skip "... and before a message" "no terminal"
	finish
fi
fresh
on_a_terminal "'$fake' cp -r -j 2 tree '$d'" >shown
yes "on a terminal the progress is shown" grep -q "^317 of 317 files, 5[0-9.]* MiB of 5[0-9.]* MiB, [0-9.]* [KMG]iB/s, ETA 0:00:00<clear>" shown
yes "... and goes before the summary" grep -q "^<clear>317 files" shown
fresh
on_a_terminal "FAKE_EIO=big:0 '$fake' cp -r -j 2 tree '$d'" >shown
yes "... and before a message" grep -q "^<clear>tarnfs cp: tree/big: reading" shown

finish
