#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# The command lines of mkfs.tarnfs, mount.tarnfs, umount.tarnfs and tarnfs as far as no
# kernel module is needed: options, exit codes, images, refusals, output that cannot be
# written. Prints TAP. O=FOLDER is where the tools were built.

here=$(cd "${0%/*}" && pwd) || exit 1
# shellcheck source=selftests/lib.sh
. "$here/../lib.sh"
tools=${O:-$here/../../build}/user
tools=$(cd "$tools" 2>/dev/null && pwd) || {
	echo "no tools in ${O:-build}/user: make user" >&2
	exit 1
}
PATH=$tools:$PATH:/usr/sbin:/sbin
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work" "$t_out"' EXIT
cd "$work" || exit 1
umask 022

# image NAME SIZE: a new, empty one
image() {
	rm -f "$1"
	truncate -s "$2" "$1"
}
field() {
	sed -n "s/^  $1  *//p"
}

plan 194

# ---- help, versions, unknown options ----
for c in mkfs.tarnfs mount.tarnfs umount.tarnfs tarnfs; do
	refuse "$c --help prints usage and exits 0" 0 '^Usage: ' $c --help
	yes "$c --help prints nothing on stderr" sh -c "[ -z \"\$($c --help 2>&1 >/dev/null)\" ]"
	refuse "$c -h too" 0 '^Usage: ' $c -h
	refuse "$c --version says which" 0 "$c [0-9]" $c --version
done
refuse "mkfs: an unknown option is exit 1" 1 "mkfs.tarnfs --help" mkfs.tarnfs --frobnicate x
refuse "mkfs: an unknown letter is exit 1" 1 "mkfs.tarnfs --help" mkfs.tarnfs -v -f x
refuse "mkfs: no device is exit 1" 1 "no device" mkfs.tarnfs
refuse "mkfs: two devices are exit 1" 1 "too many" mkfs.tarnfs a b
refuse "mount: an unknown letter is exit 1" 1 "mount.tarnfs --help" mount.tarnfs -z a b
refuse "mount: no directory is exit 1" 1 "directory" mount.tarnfs /dev/null
for o in role=king host=x host=128 host=-1 host= dax=never frob dax=always,frob attach fenced=1; do
	refuse "mount: -o $o is exit 1" 1 "option '" mount.tarnfs /dev/null "$work" -o "$o"
done
refuse "umount: an unknown letter is exit 1" 1 "umount.tarnfs --help" umount.tarnfs -z a
refuse "umount: no directory is exit 1" 1 "directory" umount.tarnfs
refuse "tarnfs: no command is exit 2" 2 "which command" tarnfs
refuse "tarnfs: an unknown command is exit 2" 2 "no command 'frob'" tarnfs frob
refuse "tarnfs: an unknown option is exit 2" 2 "no option '--frob'" tarnfs --frob
for c in $(tarnfs --list-cmds); do
	refuse "tarnfs $c --help" 0 "^Usage: tarnfs $c" tarnfs "$c" --help
	refuse "tarnfs help $c" 0 "^Usage: tarnfs $c" tarnfs help "$c"
	refuse "tarnfs $c: an unknown option is exit 2" 2 "tarnfs $c --help" tarnfs "$c" --frob a b
done
same "the commands are those" "cp creat ln log logplay mkdir status version" \
	"$(tarnfs --list-cmds | tr '\n' ' ' | sed 's/ $//')"
for c in rm rmdir unlink mv chmod chown compact takeover host watch fsck attach detach map flush check verify; do
	refuse "tarnfs $c is not built, which is exit 1" 1 "tarnfs: $c is not built yet; ." tarnfs $c x
done
refuse "creat: a bad size" 2 "is not a size" tarnfs creat -s 12q x
refuse "creat: a size past 2^63" 2 "is not a size" tarnfs creat -s 9999999T x
refuse "creat: a negative size" 2 "is not a size" tarnfs creat -s -1 x
refuse "creat: a bad mode" 2 "octal" tarnfs creat -m 888 x
refuse "creat: paths and a list" 2 "not both" tarnfs creat --from - x
refuse "creat: a list that is none" 2 "entry 2: not of the form" sh -c 'printf "1 - a\nx\n" | tarnfs creat --from -'
refuse "creat: outside of any tarnfs" 1 "tarnfs" tarnfs creat "$work/x"
refuse "cp: one name is too few" 2 "a source and a destination" tarnfs cp x
refuse "ln: hard links are refused" 2 "use -s" tarnfs ln a b

# ---- images ----
refuse "mkfs: no such image: says how to make one" 1 "truncate -s" mkfs.tarnfs none
image small 4M
refuse "mkfs: an image that is too small" 1 "too small" mkfs.tarnfs small
same "... is left alone" "" "$(tr -d '\0' <small)"
for size in 8M 64M 100000000 2G 16G; do
	image i $size
	yes "mkfs: an image of $size" mkfs.tarnfs i
done
image i 64M
mkfs.tarnfs -L "a label" -U 12345678-9abc-def0-1234-56789abcdef0 --hosts 3 --log-size 2M i >out
same "mkfs prints the uuid" 12345678-9abc-def0-1234-56789abcdef0 "$(field uuid <out)"
same "mkfs prints the label" "a label" "$(field label <out)"
same "mkfs prints the hosts" 3 "$(field hosts <out)"
same "mkfs prints the log size" "3 areas of 2 MiB" "$(field log <out)"
same "mkfs prints the size" "64 MiB (67108864 bytes)" "$(field size <out)"
refuse "mkfs refuses a tarnfs, naming it and the flag" 1 \
	"tarnfs, uuid 12345678-9abc-def0-1234-56789abcdef0, label a label.*--force" mkfs.tarnfs i
refuse "log: the header and the root" 0 "^[0-9]* c1 directory ino=1 parent=1 name=\"\"" tarnfs log i
refuse "log: the end of the checkpoint" 0 "c2 checkpoint-end directories=1 files=0 symlinks=0" tarnfs log i
refuse "status of an image" 0 "^uuid *12345678-9abc-def0-1234-56789abcdef0" tarnfs status i
refuse "status counts free host pages" 0 "3 of 3 host pages are free\|2 of 3 host pages are free" tarnfs status i
yes "mkfs --force makes a new one" mkfs.tarnfs --force -q i
no "... with another uuid" sh -c 'tarnfs log i | grep -q uuid=12345678'
same "-q prints nothing" "" "$(mkfs.tarnfs -f -q i 2>&1)"
refuse "mkfs: a label of 64 bytes" 1 "63" mkfs.tarnfs -f -L "$(printf '%064d' 1)" i
yes "mkfs: a label of 63 bytes" mkfs.tarnfs -f -L "$(printf '%063d' 1)" i
refuse "mkfs: 0 hosts" 1 "1 to 128" mkfs.tarnfs -f --hosts 0 i
refuse "mkfs: 129 hosts" 1 "1 to 128" mkfs.tarnfs -f --hosts 129 i
yes "mkfs: 128 hosts" mkfs.tarnfs -f --hosts 128 i
refuse "mkfs: a bad uuid" 1 "not a uuid" mkfs.tarnfs -f -U 1234 i
refuse "mkfs: a log size out of range" 1 "1M to 1G" mkfs.tarnfs -f --log-size 2G i
refuse "mkfs: logs larger than the image" 1 "too small" mkfs.tarnfs -f --log-size 32M i
yes "mkfs: an owner" mkfs.tarnfs -f --owner 00000000-0000-5000-8000-000000000001 i
refuse "... is in the table of hosts" 0 "^ *0 *bound .*00000000-0000-5000-8000-000000000001" tarnfs status i

# ---- what stands there already ----
image i 64M
mke2fs -q -F i >/dev/null 2>&1
refuse "mkfs refuses an ext2, naming it and the flag" 1 "signature of 'ext2'" mkfs.tarnfs i
refuse "... the flag" 1 "force" mkfs.tarnfs i
yes "... and has not touched it" e2fsck -fn i
yes "mkfs --force over an ext2" mkfs.tarnfs -f i
no "... of which nothing is left" sh -c 'blkid -p i | grep -q ext2'
image i 64M
# a partition table of the DOS kind, one entry
printf '\200\001\001\000\203\376\377\377\000\010\000\000\000\100\000\000' | dd of=i bs=1 seek=446 conv=notrunc 2>/dev/null
printf '\125\252' | dd of=i bs=1 seek=510 conv=notrunc 2>/dev/null
refuse "mkfs refuses a partition table" 1 "signature of 'dos'" mkfs.tarnfs i
yes "mkfs --force over it" mkfs.tarnfs -f i
image i 64M
# a RAID that keeps its signature at the end
printf 'Intel Raid ISM Cfg Sig. 1.0.00' | dd of=i bs=1 seek=$((67108864 - 1024)) conv=notrunc 2>/dev/null
refuse "mkfs refuses what stands at the end" 1 "signature of 'isw_raid_member'" mkfs.tarnfs i
yes "mkfs --force over it" mkfs.tarnfs -f i
no "... wipes it there" sh -c 'tail -c 1024 i | grep -q "Intel Raid"'
yes "... and the next mkfs finds none" sh -c 'mkfs.tarnfs -f i 2>&1 | grep -c signature | grep -q "^0$"'
# the superblock damaged: still a tarnfs
printf 'x' | dd of=i bs=1 seek=100 conv=notrunc 2>/dev/null
refuse "mkfs refuses a tarnfs with one damaged superblock" 1 "tarnfs.*--force" mkfs.tarnfs i
refuse "log of a damaged superblock is exit 1" 1 "superblock" tarnfs log i
image i 64M
refuse "log of no tarnfs is exit 1" 1 "superblock" tarnfs log i
refuse "log of nothing is exit 1" 1 "No such file" tarnfs log none

# ---- output that cannot be written ----
mkfs.tarnfs -q i
for c in "tarnfs --help" "tarnfs log i" "tarnfs status i" "tarnfs version" "mkfs.tarnfs -f i"; do
	refuse "$c to a full disk is exit 1" 1 "standard output" sh -c "$c >/dev/full"
	refuse "$c to a closed descriptor is exit 1" 1 "standard output" sh -c "$c >&-"
done
refuse "... and the image is whole" 0 "checkpoint-end" tarnfs log i

# ---- cp, mkdir, ln, creat over a plain directory ----
# fake.c stands in for libtarnfs: what cp itself decides, also when space, log or names run out
cmd=$here/../../user/cmd
yes "the commands build over the fake" "${CC:-gcc}" -g -O1 -no-pie -fsanitize=address,undefined \
	-pthread -Wl,--unresolved-symbols=ignore-all,--wrap=pread,--wrap=sendfile,--wrap=fsync \
	-o "$work/fake" "$here/fake.c" "$cmd/tarnfs.c" "$cmd"/cp*.c "$cmd/creat.c" "$cmd/mkdir.c" "$cmd/ln.c" "$cmd/common.c"
fake=$work/fake
r=$work/root
export FAKE_ROOT="$r"
mkdir "$r" src
make_tree src/tree
refuse "cp -r" 0 "^16 files, 5 directories, 2 symlinks, 12595420 bytes" "$fake" cp -r src/tree "$r/copy"
same "... contents" "$(sums src/tree)" "$(sums "$r/copy")"
# directories' mtimes change here as names are put into them, and in a tarnfs they do not
same "... all else" "$(describe src/tree | sed 's/^\(d [0-9]*\) [0-9.]*/\1/')" \
	"$(describe "$r/copy" | sed 's/^\(d [0-9]*\) [0-9.]*/\1/')"
refuse "again: all are there" 0 "^0 files, 0 directories, 0 symlinks, 0 bytes, 18 skipped" "$fake" cp -r src/tree/. "$r/copy"
refuse "a tree on itself" 1 "contains the destination" "$fake" cp -r "$r" "$r/copy"
refuse "all there is" 1 "contains the destination" "$fake" cp -r / "$r/copy"
yes "cp -r . to a new name" sh -c "cd src && '$fake' cp -r . '$r/dot'"
same "... contents" "$(sums src)" "$(sums "$r/dot")"
mkdir many
(cd many && seq 1 2500 | while read -r n; do echo "$n" >"$n"; done)
refuse "2,500 files" 0 "^2500 files, 1 directories" "$fake" cp -r many "$r"
same "... contents" "$(sums many)" "$(sums "$r/many")"
refuse "too little log for all of it: nothing is begun" 1 "the log is full; nothing was copied" env FAKE_LOG=1500 "$fake" cp -r many "$r/many2"
no "... nothing" test -e "$r/many2"
refuse "the log is full half-way: what was committed stays" 1 "^999 files" env FAKE_LOG_LATER=1500 "$fake" cp -r many "$r/many2"
same "... 999 of them" 999 "$(find "$r/many2" -type f | wc -l)"
mkdir -p a/t b/t
echo 1 >a/t/1
echo 2 >b/t/2
echo 3 >b/t/1
refuse "two sources of one name are merged" 1 "^2 files, 1 directories" "$fake" cp -r a/t b/t "$r"
same "... the first wins" "1 2" "$(cat "$r/t/1" "$r/t/2" | tr '\n' ' ' | sed 's/ $//')"
refuse "no space for all of them: those that fit" 1 "^13 files, 5 directories, 2 symlinks" \
	env FAKE_SPACE=5000000 "$fake" cp -r src/tree "$r/space"
mkdir -p "$r/race1" "$r/race2/tree/deep"
refuse "a file that another process creates meanwhile" 1 "^15 files, 4 directories" \
	env FAKE_RACE=size-64 "$fake" cp -r src/tree/. "$r/race1"
refuse "a directory that another process creates meanwhile" 0 "^16 files, 2 directories" \
	env FAKE_RACE=er "$fake" cp -r src/tree "$r/race2"
same "... contents" "$(sums src/tree)" "$(sums "$r/race2/tree")"
refuse "... the top one" 0 "^16 files, 4 directories" env FAKE_RACE=race3 "$fake" cp -r src/tree "$r/race3"
mkfifo src/fifo
refuse "a fifo is skipped, the rest copied" 1 "^16 files, 6 directories" "$fake" cp -r src "$r/fifo"
rm src/fifo
# what happens to a source once its copy has begun
during() {
	rm -rf changing "$r/changing"
	cp -a src/tree changing
	refuse "a source that $1 is not copied, the rest is" 1 "^15 files" \
		env FAKE_DURING="$2" "$fake" cp -r changing "$r"
	no "... is not there" test -e "$r/changing/$3"
}
# the first file of the tree by name that has bytes is size-1
during grows "echo x >>changing/size-1" size-1
during shrinks ": >changing/size-1" size-1
during "is written in place" "printf y | dd of=changing/size-1 conv=notrunc 2>/dev/null" size-1
during vanishes "rm changing/size-64" size-64
during "becomes a link" "ln -sf /etc/passwd changing/size-64" size-64
during "becomes a fifo" "rm changing/size-64; mkfifo changing/size-64" size-64
refuse "one of /proc, whose size lies" 1 "more than the 0 bytes" "$fake" cp /proc/version "$r"
yes "mkdir -p" "$fake" mkdir -p "$r/m/n/o" "$r/m/n/p"
same "... parents first" "m m/n m/n/o m/n/p" "$(cd "$r" && find m | sort | tr '\n' ' ' | sed 's/ $//')"
refuse "mkdir over a name" 1 "exists" "$fake" mkdir "$r/m"
refuse "mkdir -p with .. behind what is not there" 1 "." "$fake" mkdir -p "$r/m/zz/../y"
yes "ln -s" "$fake" ln -s target "$r/m"
same "... reads" target "$(readlink "$r/m/target")"
yes "creat" "$fake" creat -s 10 -m 600 "$r/m/f1" "$r/m/f2"
same "... size and mode" "10 600" "$(stat -c '%s %a' "$r/m/f2")"
refuse "creat: one exists, none is created" 1 "exists" "$fake" creat "$r/m/f3" "$r/m/f2"
no "... none" test -e "$r/m/f3"
refuse "cp -v names both sides" 0 "src/tree/size-4097 -> $r/m/size-4097" "$fake" cp -v src/tree/size-4097 "$r/m"
refuse "cp follows a link that it is given" 0 "^1 files" "$fake" cp src/tree/deep/link "$r/m/followed"
refuse "cp -r does not" 0 "1 symlinks" "$fake" cp -r src/tree/deep/link "$r/m/link"

finish
