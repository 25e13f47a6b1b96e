#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# The command lines of mkfs.tarnfs, fsck.tarnfs, mount.tarnfs, umount.tarnfs and tarnfs as far as no
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

plan 370

# ---- help, versions, unknown options ----
for c in mkfs.tarnfs fsck.tarnfs mount.tarnfs umount.tarnfs tarnfs; do
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
for o in role=king host=x host=128 host=-1 host= dax=never frob dax=always,frob attach=yes fenced=1; do
	refuse "mount: -o $o is exit 1" 1 "/dev/null on $work: option '" mount.tarnfs /dev/null "$work" -o "$o"
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
same "the commands are those" "check cp creat device flush ln log logplay map mkdir status verify version" \
	"$(tarnfs --list-cmds | tr '\n' ' ' | sed 's/ $//')"
for c in rm rmdir unlink mv chmod chown compact takeover host watch; do
	refuse "tarnfs $c is not built, which is exit 1" 1 "tarnfs: $c is not built yet; ." tarnfs $c x
done
refuse "tarnfs fsck names the program" 2 "fsck.tarnfs" tarnfs fsck x
refuse "tarnfs attach names the command" 2 "tarnfs device attach" tarnfs attach dax0.0
refuse "tarnfs detach too" 2 "tarnfs device detach" tarnfs detach dax0.0
refuse "device: nothing to do" 2 "list, attach or detach?" tarnfs device
refuse "device: an unknown verb" 2 "'frob': list, attach or detach" tarnfs device frob
refuse "device list: a device" 2 "list takes no device" tarnfs device list dax0.0
refuse "device attach: none" 2 "attach: which device?" tarnfs device attach
refuse "device detach: none" 2 "detach: which device?" tarnfs device detach --
refuse "device list: the columns" 0 \
	"^# device *kind *mode *size *align *map *driver *node *tarnfs *mounted *label$" tarnfs device list
as_user=
[ "$(id -u)" != 0 ] || as_user="setpriv --reuid 65534 --regid 65534 --clear-groups"
refuse "device list: not root" 0 "^# not root" $as_user tarnfs device list
refuse "device attach: not root" 1 "only root can attach" $as_user tarnfs device attach dax0.0
refuse "device detach: not root" 1 "only root can detach" $as_user tarnfs device detach dax0.0
if [ -n "$as_user" ]; then
	for d in dax99.0 /dev/dax99.0 region99 dax0.0/../dax0.0 ''; do
		refuse "device attach: '$d' is not there" 1 "tarnfs device list" tarnfs device attach "$d"
	done
	refuse "device attach: a namespace that is not there" 1 "no such namespace" tarnfs device attach namespace99.0
	refuse "device attach: a plain file" 1 "not a device" tarnfs device attach "$work"
	refuse "device attach: /dev/null" 1 "no DAX memory" tarnfs device attach /dev/null
	refuse "device: one bad of two is exit 1" 1 "no such namespace" tarnfs device detach /dev/null namespace99.0
else
	for d in 1 2 3 4 5 6 7 8 9; do
		skip "device attach: names, $d" "needs root"
	done
fi
refuse "creat: a bad size" 2 "is not a size" tarnfs creat -s 12q x
refuse "creat: a size past 2^63" 2 "is not a size" tarnfs creat -s 9999999T x
refuse "creat: a negative size" 2 "is not a size" tarnfs creat -s -1 x
refuse "creat: a bad mode" 2 "octal" tarnfs creat -m 888 x
refuse "creat: paths and a list" 2 "not both" tarnfs creat --from - x
refuse "creat: a list that is none" 2 "entry 2: not of the form" sh -c 'printf "1 - a\nx\n" | tarnfs creat --from -'
refuse "creat: outside of any tarnfs" 1 "tarnfs" tarnfs creat "$work/x"
refuse "creat: a seed that is none" 2 "--fill: '-1' is not a number" tarnfs creat --fill -1 x
refuse "creat: a seed past 2^64" 2 "not a number" tarnfs creat --fill 18446744073709551616 x
refuse "creat: --fill and --no-zero" 2 "not both" tarnfs creat --fill 1 --no-zero x
refuse "map: no file" 2 "no file" tarnfs map
refuse "flush: no file" 2 "no file" tarnfs flush
refuse "verify: no file" 2 "no file" tarnfs verify --seed 1
refuse "verify: no seed" 2 "--seed is needed" tarnfs verify x
refuse "verify: no threads" 2 "1 to 256" tarnfs verify --seed 1 -j 0 x
refuse "verify: too many threads" 2 "1 to 256" tarnfs verify --seed 1 -j 257 x
refuse "log: a bad inode number" 2 "not an inode number" tarnfs log --ino 0 x
refuse "map: a file that is on no tarnfs" 1 "run.sh: not on a tarnfs" tarnfs map "$here/run.sh"
refuse "flush: so too" 1 "run.sh: not on a tarnfs" tarnfs flush "$here/run.sh"
same "... and no line without a file" "" "$(tarnfs map "$here/run.sh" 2>/dev/null)"
refuse "log: a name with a slash" 2 "'/f1' has a slash, and records have the last component" tarnfs log --name /f1 x
refuse "map: a directory" 1 "is a directory" tarnfs map /
refuse "flush: a device is not opened" 1 "/dev/null: is not a regular file" tarnfs flush /dev/null
mkfifo fifo
refuse "map, flush, verify: a fifo is not waited for" 1 "fifo: is not a regular file" \
	timeout 20 sh -c "tarnfs map fifo; tarnfs flush fifo; tarnfs verify --seed 1 fifo"
refuse "flush: an error is one file's, the rest goes on" 1 "none2: No such file" tarnfs flush none1 none2
refuse "cp: one name is too few" 2 "a source and a destination" tarnfs cp x
refuse "ln: hard links are refused" 2 "use -s" tarnfs ln a b

# ---- images ----
refuse "mkfs: no such image: says how to make one" 1 "truncate -s" mkfs.tarnfs none
no "mkfs: no such device: does not say so, a file in /dev is none" sh -c "mkfs.tarnfs /dev/none 2>&1 | grep truncate"
refuse "... but where devices are listed" 1 "/dev/none: there is no such device; ndctl list" mkfs.tarnfs /dev/none
refuse "mkfs: a character device that is no DAX memory" 1 "/dev/null: a character device, and no DAX memory" mkfs.tarnfs /dev/null
refuse "status of one" 1 "/dev/null: a character device, and no DAX memory" tarnfs status /dev/null
image small 3K
refuse "status of a file too short" 1 "small: no tarnfs superblock here: it has 3072 bytes in all" tarnfs status small
refuse "log of one" 1 "small: no tarnfs superblock here: it has 3072 bytes" tarnfs log small
image small 64M
refuse "mkfs: a log too large for the image says what size it needs" 1 "truncate -s 1540M .*or a smaller --log-size" \
	mkfs.tarnfs --log-size 512M small
image small 1539M
refuse "... no less" 1 "truncate -s 1540M" mkfs.tarnfs --log-size 512M small
image small 1540M
yes "... which is enough" mkfs.tarnfs --log-size 512M small
truncate -s 40M small
refuse "status of an image that was cut" 1 \
	"small: file system was made for 1614807040 bytes, the device has 41943040; is it the same namespace?" tarnfs status small
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
refuse "log --ino" 0 "^[0-9]* c1 directory ino=1 " tarnfs log --ino 1 i
same "... that inode alone" 2 "$(tarnfs log --ino 1 i | wc -l)"
same "log --ino of another" 1 "$(tarnfs log --ino 2 i | wc -l)"
same "log --name of no file" 1 "$(tarnfs log --name root i | wc -l)"
refuse "log -f of an image: says what to do" 1 "not mounted here.*without -f" tarnfs log -f i
refuse "status counts files of an image" 0 "^files *0" tarnfs status i
refuse "... and says who is the master" 0 "^master *host page 0" tarnfs status i
refuse "... and that an image has no bad memory to know of" 0 "^bad ranges *unknown: an image is not memory" tarnfs status i
same "... free is all, in one hole" "$(tarnfs status i | sed -n 's/^data *//p') $(tarnfs status i | sed -n 's/^free *//p')" \
	"$(tarnfs status i | sed -n 's/^free *//p') $(tarnfs status i | sed -n 's/^largest hole *//p')"
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
for c in $(tarnfs --list-cmds); do
	refuse "tarnfs $c --help to a full disk is exit 1" 1 "standard output" sh -c "tarnfs $c --help >/dev/full"
	refuse "tarnfs $c --help to a closed descriptor is exit 1" 1 "standard output" sh -c "tarnfs $c --help >&-"
done
: >zero
for c in "tarnfs verify --seed 1 zero" "tarnfs log --ino 1 i"; do
	refuse "$c to a full disk is exit 1" 1 "standard output" sh -c "$c >/dev/full"
	refuse "$c to a closed descriptor is exit 1" 1 "standard output" sh -c "$c >&-"
done
for c in mount.tarnfs umount.tarnfs; do
	refuse "$c --help to a full disk is exit 2" 2 "standard output" sh -c "$c --help >/dev/full"
	refuse "$c --help to a closed descriptor is exit 2" 2 "standard output" sh -c "$c --help >&-"
done
refuse "... and the image is whole" 0 "checkpoint-end" tarnfs log i

# ---- cp, mkdir, ln, creat over a plain directory ----
# fake.c stands in for libtarnfs: what cp itself decides, also when space, log or names run out
cmd=$here/../../user/cmd
yes "the commands build over the fake" "${CC:-gcc}" -g -O1 -no-pie -fsanitize=address,undefined \
	-pthread -Wl,--unresolved-symbols=ignore-all,--wrap=pread,--wrap=sendfile,--wrap=fsync \
	-o "$work/fake" "$here/fake.c" "$cmd/tarnfs.c" "$cmd"/cp*.c "$cmd/creat.c" "$cmd/mkdir.c" "$cmd/ln.c" "$cmd/common.c" \
	"$cmd/pattern.c" "$cmd/verify.c" "$cmd/extent.c" "$cmd/version.c"
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
refuse "again, with memory that has failed: those that have it are errors" 1 \
	"^0 files, 0 directories, 0 symlinks, 0 bytes, 14 skipped, 4 errors" env FAKE_BAD=2000000 "$fake" cp -r src/tree/. "$r/copy"
refuse "... each with its byte" 1 "size-2097153: .*copy/size-2097153 is there already, but its memory has failed at byte 1998848 .*dd conv" \
	env FAKE_BAD=2000000 "$fake" cp -r src/tree/. "$r/copy"
refuse "... in a dry run too" 1 "14 skipped, 4 errors" env FAKE_BAD=2000000 "$fake" cp -n -r src/tree/. "$r/copy"
refuse "... what is behind a file's end is nobody's" 0 "18 skipped" env FAKE_BAD=90000000 "$fake" cp -r src/tree/. "$r/copy"
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
refuse "no space for all of them: nothing is begun" 1 "no space for all of it: .*; nothing was copied" \
	env FAKE_SPACE=5000000 "$fake" cp -r src/tree "$r/space"
no "... nothing" test -e "$r/space"
refuse "space that goes meanwhile: those that fit" 1 "^13 files, 5 directories, 2 symlinks" \
	env FAKE_SPACE_LATER=5000000 "$fake" cp -r src/tree "$r/space"
refuse "... which is said once for each" 1 "cp: src/tree/size-2097153: no space for 1$" \
	env FAKE_SPACE_LATER=100000 "$fake" cp -r src/tree/size-2097153 "$r/none"
mkdir -p "$r/race1" "$r/race2/tree/deep"
refuse "a file that another process creates meanwhile" 1 "^15 files, 4 directories" \
	env FAKE_RACE=size-64 "$fake" cp -r src/tree/. "$r/race1"
refuse "a directory that another process creates meanwhile" 0 "^16 files, 2 directories" \
	env FAKE_RACE=er "$fake" cp -r src/tree "$r/race2"
same "... contents" "$(sums src/tree)" "$(sums "$r/race2/tree")"
refuse "... the top one" 0 "^16 files, 4 directories" env FAKE_RACE=race3 "$fake" cp -r src/tree "$r/race3"
mkdir -p names/d/sub names/e "$r/race4"
echo x >names/d/x; echo z >names/d/sub/z; echo y >names/e/y
refuse "a file in place of a directory: what was in that is not copied" 1 "^1 files, 1 directories" \
	env FAKE_RACE_FILE=d "$fake" cp -r names/. "$r/race4"
same "... and stands nowhere else" "./d ./e/y" "$(cd "$r/race4" && find . -type f | sort | tr '\n' ' ' | sed 's/ $//')"
refuse "cp of a file to a directory that is not there" 1 "typo/: no such directory" "$fake" cp names/e/y "$r/typo/"
no "... makes none, and no file of that name" test -e "$r/typo"
refuse "cp of a file that is named as a directory" 1 "y: Not a directory" "$fake" cp names/e/y/ "$r/race4"
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
refuse "mkdir -p with .. behind what is not there" 1 "zz/../y: .*zz/.. leads nowhere yet.*create that first" \
	"$fake" mkdir -p "$r/m/zz/../y"
yes "mkdir of a name with a slash" "$fake" mkdir "$r/m/slash/"
refuse "creat of a missing name with a slash" 1 "m/typo/: no such directory" "$fake" creat "$r/m/typo/"
refuse "creat of a directory with a slash" 1 "slash/: exists already and is a directory" "$fake" creat "$r/m/slash/"
refuse "creat of a directory" 1 "m/slash: exists already and is a directory" "$fake" creat "$r/m/slash"
refuse "ln of a missing name with a slash" 1 "m/typo/: no such directory" "$fake" ln -s x "$r/m/typo/"
no "... none of them is there" test -e "$r/m/typo"
yes "ln into a directory with a slash" "$fake" ln -s x "$r/m/slash/"
same "... is in it" x "$(readlink "$r/m/slash/x")"
yes "ln -s" "$fake" ln -s target "$r/m"
same "... reads" target "$(readlink "$r/m/target")"
yes "creat" "$fake" creat -s 10 -m 600 "$r/m/f1" "$r/m/f2"
same "... size and mode" "10 600" "$(stat -c '%s %a' "$r/m/f2")"
refuse "creat: one exists, none is created" 1 "exists" "$fake" creat "$r/m/f3" "$r/m/f2"
no "... none" test -e "$r/m/f3"
refuse "creat of a name given twice" 1 "m/./f3: named twice; nothing was created" "$fake" creat "$r/m/f3" "$r/m/f4" "$r/m/./f3"
no "... none" test -e "$r/m/f4"
yes "... the same name in two directories is another" "$fake" creat "$r/m/f3" "$r/m/slash/f3"
refuse "cp -v names both sides" 0 "src/tree/size-4097 -> $r/m/size-4097" "$fake" cp -v src/tree/size-4097 "$r/m"
refuse "cp follows a link that it is given" 0 "^1 files" "$fake" cp src/tree/deep/link "$r/m/followed"
refuse "cp -r does not" 0 "1 symlinks" "$fake" cp -r src/tree/deep/link "$r/m/link"

truncate -s 64M unread
mkfs.tarnfs -q unread
for at in 16 4112; do
	printf '\001' | dd of=unread bs=1 seek=$at conv=notrunc 2>/dev/null
done
cp unread before
refuse "mkfs -f over a tarnfs that it cannot read: its hosts may live" 1 "hosts-fenced" mkfs.tarnfs -f unread
yes "... nothing was changed" cmp unread before
refuse "... --hosts-fenced alone is not enough" 1 "force" mkfs.tarnfs --hosts-fenced unread
yes "... both are" mkfs.tarnfs -q -f --hosts-fenced unread
rm -f unread before
same "control bytes in a message reach no terminal" '/none\x1b[31mRED\x0a\xc2\x9bx' \
	"$(tarnfs log "$(printf '/none\033[31mRED\n\302\233x')" 2>&1 | sed 's/^tarnfs log: //; s/: .*//')"

# ---- make: which kernels ----
build() {
	make -C "$here/../.." --no-print-directory O="$work/build" "$@"
}
refuse "make for another kernel names those that there are" 2 \
	"builds for Debian's 6.1, 6.12, 7.2 and 7.3 only; this kernel is 6.18.1; make user builds the tools alone" build modules KERNEL=6.18.1
refuse "... sparse too" 2 "this kernel is 5.10.0-1-amd64" build sparse KERNEL=5.10.0-1-amd64
refuse "... and of a folder" 2 "this kernel is 6.11.2;" sh -c "mkdir -p kd/include/config; echo 6.11.2 >kd/include/config/kernel.release
	: >kd/Makefile; make -C '$here/../..' O='$work/build' modules KDIR='$work/kd'"
refuse "make without headers names the package" 2 "install linux-headers-6.1.0-none" build modules KERNEL=6.1.0-none
refuse "make with a KDIR that is not there names it" 2 "^KDIR=$work/none: no kernel headers there" build modules KDIR="$work/none"
same "make with a KVER that is none: one error" "Makefile: KVER=6.18: there are 6.1, 6.12 and 7.3, 6.12-kasan and 6.12-lockdep." \
	"$(build modules KVER=6.18 2>&1 | sed 's/:[0-9]*: \*\*\*/:/; s/  Stop\.$//')"

refuse "make install: the rule for udev" 0 "install -D -m 644 -t /there/usr/lib/udev/rules.d 61-tarnfs.rules" \
	build -n install DESTDIR=/there
refuse "... where it is asked to be" 0 "/there/lib/rules.d 61-tarnfs.rules" build -n install DESTDIR=/there UDEVDIR=/lib/rules.d
yes "... it is there" grep -q '^ACTION!="remove", SUBSYSTEM=="dax", TAG+="systemd"$' "$here/../../user/61-tarnfs.rules"
same "... and is what devices.rst says" 1 "$(grep -c '^    ACTION!="remove", SUBSYSTEM=="dax", TAG+="systemd"$' \
	"$here/../../Documentation/devices.rst")"

# ---- creat --fill and verify ----
# the same bytes by another program: what commands.rst says, in another language
cat >pattern.py <<'END'
import sys
M = (1 << 64) - 1
def mix(x):
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9 & M
    x = (x ^ x >> 27) * 0x94d049bb133111eb & M
    return x ^ x >> 31
seed, name, size = int(sys.argv[1]), sys.argv[2].encode(), int(sys.argv[3])
key = mix(seed)
for c in name:
    key = (key ^ c) * 0x100000001b3 & M
out = b"".join(mix(key + i * 0x9e3779b97f4a7c15 & M).to_bytes(8, "little") for i in range((size + 7) // 8))
sys.stdout.buffer.write(out[:size])
END
mkdir "$r/p"
yes "creat --fill" "$fake" creat --fill 42 -s 100003 "$r/p/one" "$r/p/two" "$r/p/three"
same "... the bytes are those of commands.rst" "$(python3 pattern.py 42 one 100003 | sha256sum)" "$(sha256sum <"$r/p/one")"
same "... of each name" "$(python3 pattern.py 42 three 100003 | sha256sum)" "$(sha256sum <"$r/p/three")"
refuse "verify" 0 "^3 of 3 files are right, 300009 bytes" "$fake" verify --seed 42 "$r/p/one" "$r/p/two" "$r/p/three"
yes "... with four threads" "$fake" verify --seed 42 -j 4 "$r/p/one" "$r/p/two" "$r/p/three"
same "... -q prints nothing" "" "$("$fake" verify -q --seed 42 "$r/p/one" 2>&1)"
refuse "another seed: the first byte" 1 "one: first wrong offset 0: 0x.., and the pattern has 0x" "$fake" verify --seed 41 "$r/p/one"
cp "$r/p/two" "$r/p/other"
refuse "another name" 1 "first wrong offset" "$fake" verify --seed 42 "$r/p/other"
for size in 0 1 7 8 9 4095 1048576 1048577 8388608 16777217; do
	yes "creat --fill of $size bytes" "$fake" creat --fill 18446744073709551615 -s $size "$r/p/s$size"
done
refuse "verify of them" 0 "^10 of 10 files are right, 27267098 bytes" "$fake" verify --seed 18446744073709551615 -j 3 "$r"/p/s*
same "... at the end too" "$(python3 pattern.py 18446744073709551615 s16777217 16777217 | tail -c 100 | sha256sum)" \
	"$(tail -c 100 "$r/p/s16777217" | sha256sum)"
# a byte beyond the first 8 MiB, the last, and an earlier one: always the first is named
for at in 16777216 12345678 8388608; do
	printf '\0' | dd of="$r/p/s16777217" bs=1 seek=$at conv=notrunc 2>/dev/null
	printf '\377' | dd of="$r/p/s16777217" bs=1 seek=$((at + 1)) conv=notrunc 2>/dev/null
	truncate -s 16777217 "$r/p/s16777217"
	for j in 1 4; do
		refuse "verify -j $j: a wrong byte at $at" 1 "s16777217: first wrong offset \($at\|$((at + 1))\):" \
			"$fake" verify --seed 18446744073709551615 -j $j "$r/p/s1048577" "$r/p/s16777217" "$r/p/s1"
	done
done
# found last in time, behind another in place: each piece is read to its own first wrong byte
printf '\377\0\377\0\377\0\377\0' >eight
"$fake" creat --fill 3 -s 16777216 "$r/p/twice"
dd if=eight of="$r/p/twice" bs=1 conv=notrunc 2>/dev/null
dd if=eight of="$r/p/twice" bs=1 seek=16777208 conv=notrunc 2>/dev/null
refuse "verify -j 4: of two wrong places the first, whichever thread was last" 1 "twice: first wrong offset [0-7]:" \
	"$fake" verify --seed 3 -j 4 "$r/p/twice"
refuse "... the others are right" 1 "^2 of 3 files are right" "$fake" verify --seed 18446744073709551615 -j 2 "$r/p/s1048577" "$r/p/s16777217" "$r/p/s1"
refuse "verify of what is not there: the rest is checked" 1 "^1 of 2 files are right" "$fake" verify --seed 42 "$r/p/none" "$r/p/one"
refuse "... and it is named" 1 "none: No such file" "$fake" verify --seed 42 "$r/p/none" "$r/p/one"
mkdir hundreds
i=0
while [ $i -lt 300 ]; do
	echo "9 - $r/hundreds/$i"
	i=$((i + 1))
done >list
mkdir "$r/hundreds"
yes "creat --fill of a list" "$fake" creat --fill 7 --from list
yes "verify of 300 files with 16 descriptors" sh -c "ulimit -n 16; '$fake' verify --seed 7 -j 4 '$r'/hundreds/*"

# ---- a module of another interface version ----
refuse "version: a module of another version" 1 "module speaks interface 9 and these tools speak 1" \
	env FAKE_INTERFACE=9 "$fake" version "$r"
refuse "... and what to do" 1 "rmmod tarnfs and modprobe tarnfs" env FAKE_INTERFACE=9 "$fake" version "$r"

finish
