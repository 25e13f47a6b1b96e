#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# fsck.tarnfs on images that tarnfs-inject broke: `images` says what it has to find in each, what
# -n, -p and -y exit with, and what they leave. For each: -n writes nothing, and says just what
# -y then does; after -p and -y a second run finds nothing of what was repaired and writes nothing;
# a kill before any store of -y leaves what the next -y makes as good as one that was not killed.
# Prints TAP. O=FOLDER is where the tools were built.

here=$(cd "${0%/*}" && pwd) || exit 1
# shellcheck source=selftests/lib.sh
. "$here/../lib.sh"
build=$(cd "${O:-$here/../../build}" 2>/dev/null && pwd)
if [ ! -x "$build/user/fsck.tarnfs" ] || [ ! -x "$build/selftests/tarnfs-inject" ]; then
	echo "no tools in ${O:-build}: make user selftests" >&2
	exit 1
fi
PATH=$build/user:$build/selftests:$PATH:/usr/sbin:/sbin
# each repair ends with fsync(2), hundreds of them
work=$(mktemp -d -p /dev/shm 2>/dev/null || mktemp -d) || exit 1
trap 'rm -rf "$work" "$t_out"' EXIT
cd "$work" || exit 1
umask 022

# copy FROM: the image i anew
copy() {
	cp --sparse=always "$1" i
}
# fsck OPTION...: its exit status; what it says is in out
fsck() {
	fsck.tarnfs "$@" i >out 2>&1
	code=$?
}
# the numbers found in out, in their order
found() {
	numbers=$(sed -n 's/^[^ ]*: \(note\|warning\|error\) \([0-9]*\) at .*/\2/p' out | tr '\n' ' ')
	numbers=${numbers% }
	echo "${numbers:--}"
}
# what out says was repaired, or would be
repairs() {
	sed -n 's/^[^ ]*: \(-[py] repairs\|repaired\) \([0-9]* at [^ ]*: .*\)/\2/p' out
}
trim() {
	echo "$1" | sed 's/^ *//; s/ *$//'
}

table=$(grep -c '^[^#].*|' "$here/images")
cuts=7
plan $((table * 8 + cuts * 4 + 46))

# ---- bases ----
uuid=12345678-9abc-def0-1234-56789abcdef0
truncate -s 8M tree
yes "a new image" mkfs.tarnfs -q --hosts 4 --log-size 1M -U $uuid tree
yes "... with a tree" tarnfs-inject --populate tree
cp --sparse=always tree bound
yes "one that was let go" tarnfs-inject bound page0.identity.state=1 page0.identity.nonce=77 \
	page0.identity.claims=3 page0.identity.host_uuid=00000000-0000-5000-8000-000000000001 \
	mirror0.identity.raw=@page0.identity.raw page0.window.nonce=77 page0.status.nonce=77 \
	page0.status.released=5 page0.status.applied_generation=1 page0.status.applied_seq=5 \
	page0.quiesce.nonce=77 page0.quiesce.generation=1 page0.quiesce.final_seq=5 page0.quiesce.final_units=16
cp --sparse=always bound claimed
yes "one that is claimed" tarnfs-inject claimed page0.identity.state=2 mirror0.identity.state=2 \
	page0.quiesce.generation=0 page0.quiesce.final_seq=0 page0.quiesce.final_units=0
for base in tree bound claimed; do
	copy $base
	refuse "$base is clean" 0 "clean, 2 directories, 3 files, 1 symlinks, 12288 of .* generation 1, seq 5$" fsck.tarnfs i
done

# ---- the table ----
# kills ARGUMENTS: broken copies in `broken`; every kill leaves what the next run repairs as if there had been none
kills() {
	store=0
	while [ $store -lt 40 ]; do
		store=$((store + 1))
		cp --sparse=always broken i
		TARNFS_STOP_AT=repair-store:$store fsck.tarnfs "$@" i >out 2>&1
		code=$?
		[ $code = 137 ] || break
		fsck "$@"
		cmp -s repaired i || {
			echo "killed at store $store: another image than without" >>out
			return 1
		}
	done
	[ $code != 137 ] && cmp -s repaired i
}
# show NAME: the last output goes with a point that failed
point() {
	cp out "$t_out"
	result "$1" "$2"
}
while IFS='|' read -r name base args found n p y left log_before log_after; do
	case $name in
	\#* | '') continue ;;
	esac
	name=$(trim "$name")
	base=$(trim "$base") found=$(trim "$found") left=$(trim "$left")
	copy "$base"
	options=
	case $args in
	*--keep-crc*) options=--keep-crc args=${args#*--keep-crc} ;;
	esac
	# shellcheck disable=SC2086 # several fields
	yes "$name: made" tarnfs-inject $options i $args
	cp --sparse=always i broken
	fsck -n
	got=$(found)
	n_repairs=$(repairs)
	[ "$got" = "$found" ] && [ $code = $((n)) ] && cmp -s broken i
	point $? "$name: -n finds $found, exit $((n)): $got, exit $code"
	tarnfs log i >out 2>&1
	code=$?
	point $((code != log_before)) "$name: tarnfs log, exit $((log_before)): $code"

	fsck -p
	first=$code
	cp --sparse=always i preened
	fsck -p
	[ "$first" = $((p)) ] && [ $code = $((p & ~1)) ] && cmp -s preened i
	point $? "$name: -p, exit $((p)): $first, and then $code"

	cp --sparse=always broken i
	fsck -y
	first=$code
	y_repairs=$(repairs)
	cp --sparse=always i repaired
	if [ $((y & 1)) = 0 ]; then
		cmp -s broken i || first="$code and it wrote"
	elif cmp -s broken i; then
		first="$code and it wrote nothing"
	fi
	[ "$first" = $((y)) ]
	point $? "$name: -y, exit $((y)): $first"
	printf '%s\n-- of -y:\n%s\n' "$n_repairs" "$y_repairs" >out
	case $y_repairs in
	"$n_repairs"*) point 0 "$name: -n says what -y does" ;;
	*) point 1 "$name: -n says what -y does" ;;
	esac
	fsck -y
	got=$(found)
	[ "$got" = "$left" ] && [ $code = $((y & ~1)) ] && cmp -s repaired i
	result_code=$?
	tarnfs log i >>out 2>&1
	log=$?
	[ $result_code = 0 ] && [ $log = $((log_after)) ]
	point $? "$name: then it finds $left, and writes nothing: $got; tarnfs log $((log_after)): $log"
	kills -y
	point $? "$name: killed before each of its $((store - 1)) stores"
done <"$here/images"

# ---- giving up the end of a log ----
# give_up NAME BASE SEQ NUMBER FIELD...: the log is good up to SEQ
give_up() {
	name=$1 base=$2 seq=$3 number=$4
	shift 4
	copy "$base"
	tarnfs-inject "$@" >/dev/null || bail "tarnfs-inject $*"
	cp --sparse=always i broken
	refuse "$name: -n names the last good record" 4 \
		"not repaired: $number at 0x[0-9a-f]*: the log is good up to seq $seq, .*--truncate-log=$seq, with -y" fsck.tarnfs -n i
	refuse "$name: no other number is taken" 4 "another number was given; --truncate-log=$seq" \
		fsck.tarnfs -y --truncate-log $((seq + 1)) i
	cmp -s broken i || bail "it was written to"
	fsck -y --truncate-log "$seq"
	cp --sparse=always i repaired
	[ $code = 1 ] && grep -q "clean, .* generation 1, seq $seq$" out && tarnfs log i >/dev/null && fsck -y && [ $code = 0 ] &&
		cmp -s repaired i
	point $? "$name: --truncate-log=$seq makes it clean"
	kills -y --truncate-log "$seq"
	point $? "$name: killed before each of its $((store - 1)) stores"
}
give_up "a torn record" tree 2 401 --keep-crc i log.record[4].mode
give_up "the last of a batch: all of it goes" tree 3 401 --keep-crc i log.record[6].seq
give_up "what the kernel refuses" tree 3 505 i log.record[6].name=t:one
give_up "an extent of another file" tree 3 602 i log.record[5].extent[0].off=@log.record[3].extent[0].off
give_up "a batch without its end" tree 3 410 i commit.units=14
give_up "all after the checkpoint" tree 0 401 --keep-crc i log.record[2].mode
give_up "lines that say more go before" bound 2 401 --keep-crc i log.record[4].mode
for field in log.record[0].mode log.record[1].files; do
	copy tree
	tarnfs-inject --keep-crc i "$field"
	no "a checkpoint that is damaged is not cut: $field" sh -c "fsck.tarnfs -n i | grep truncate"
	refuse "... be it asked" 4 "." fsck.tarnfs -y --truncate-log 0 i
done
copy tree
cp i whole
refuse "nothing is cut of a whole log" 0 "clean" fsck.tarnfs -y --truncate-log 2 i
yes "... at all" cmp i whole
copy claimed
tarnfs-inject --keep-crc i log.record[4].mode
cp i broken
refuse "nor of one that a host has mounted" 4 "not repaired: 401" fsck.tarnfs -y --truncate-log 2 i
yes "... at all" cmp i broken

# ---- hosts that may have it mounted ----
copy claimed
tarnfs-inject i mirror0.identity.raw=x:ff page0.status.raw=x:ff
refuse "-p names the host that has it" 4 "hosts may have it mounted: page 0 claimed by 00000000-0000-5000-8000-000000000001" fsck.tarnfs -p i
refuse "... and the ways out" 4 "umount it there; or, .* --hosts-fenced" fsck.tarnfs -y i
refuse "-n says so too" 4 "hosts may have it mounted" fsck.tarnfs -n i
refuse "... with the word -p does" 1 "clean, 2 repaired" fsck.tarnfs -p --hosts-fenced i
yes "... and the page is its host's as before" sh -c \
	"[ \"\$(tarnfs-inject --list i | grep -c 'identity.state 0x.* 1 2$')\" = 2 ]"

# ---- tarnfs-inject itself ----
copy tree
cp i whole
refuse "inject: no image" 1 "none: No such file" tarnfs-inject none bytes[0]
refuse "inject: no tarnfs" 1 "no tarnfs superblock" sh -c 'truncate -s 8M zeros; exec tarnfs-inject zeros bytes[0]'
refuse "inject: nothing to do" 2 "try --help" tarnfs-inject i
for f in super.third.magic super.first.frob page4.identity.state page0.frob.x page0.identity "log.record[99].ino" \
	"log.record[x].ino" mirror0.status.nonce "area[3].header.host" "page0.commit[8].units" "bytes[8388608]" \
	"log.record[1].name" frob ''; do
	refuse "inject: no field '$f'" 2 "no field '\|too large\|number is needed" tarnfs-inject i "$f=1"
done
for f in super.first.version=x super.first.version=4294967296 super.first.csum=256 super.first.version=+0 \
	super.first.magic=x:zz super.first.magic=t:123456789 super.first.uuid=12 super.first.version=@super.first.uuid; do
	refuse "inject: no value '$f'" 2 "${f%%=*}: " tarnfs-inject i $f
done
yes "... and nothing was changed" cmp i whole

finish
