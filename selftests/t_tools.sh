#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# One host: tarnfs map agrees with FIEMAP and with the log, flush takes whole files and
# goes on after an error, log filters and follows, creat --fill and verify agree beyond the
# first chunk and notice every change, status says all that it can. Prints TAP.

# shellcheck disable=SC2317 # checks are called by name
# shellcheck source=selftests/lib.sh
if [ -e /selftests/lib.sh ]; then . /selftests/lib.sh; else . "${0%/*}/lib.sh"; fi

dev=${TARN_DEV:-/dev/pmem0}
m=/mnt/tarn
work=$(mktemp -d)
mkdir -p "$m"
umask 022

# value NAME: a line of tarnfs status
value() {
	tarnfs status "${2:-$m}" | sed -n "s/^$1  *//p"
}
# mapped FILE: its line of tarnfs map without the path
mapped() {
	tarnfs map "$1" | sed -n '2p' | cut -d ' ' -f 1-4
}
# logged NAME: "size length offset" of its record
logged() {
	tarnfs log --name "$1" "$m" | sed -n 's/.* size=\([0-9]*\) extent=\([0-9]*\)+\([0-9]*\).*/\1 \3 \2/p'
}
# until_there FILE PATTERN: within 60 s
until_there() {
	t_i=0
	while ! grep -q -e "$2" "$1"; do
		t_i=$((t_i + 1))
		[ "$t_i" -lt 300 ] || return 1
		sleep 0.2
	done
}
# ends PID: its exit status, within 60 s
ends() {
	t_i=0
	while kill -0 "$1" 2>/dev/null; do
		t_i=$((t_i + 1))
		[ "$t_i" -lt 300 ] || return 99
		sleep 0.2
	done
	wait "$1"
}

plan 80
yes "mkfs" mkfs.tarnfs -q -f --hosts-fenced -L 'tools' $dev
yes "mount" mount -t tarnfs $dev $m

# ---- map ----
yes "files of sizes around every border" tarnfs creat --from - <<END
0 644 $m/s0
1 644 $m/s1
4096 644 $m/s4096
4097 644 $m/s4097
2097151 644 $m/s2097151
2097152 644 $m/s2097152
2097153 644 $m/s2097153
10485760 644 $m/s10485760
END
same "map of an empty file" "0 0 - 0" "$(mapped $m/s0)"
for size in 1 4096 4097 2097151 2097152 2097153 10485760; do
	# shellcheck disable=SC2046 # four numbers
	set -- $(mapped $m/s$size)
	same "map of $size bytes agrees with the log" "$(logged s$size)" "$1 $2 $3"
	pieces=0
	[ $((${3:-1} % 2097152)) != 0 ] || pieces=$((${2:-0} / 2097152))
	same "... pieces of 2 MiB" "$pieces" "$4"
	if command -v filefrag >/dev/null; then
		# extents in blocks: "0: first.. last: first.. last: length: ... flags"
		frag=$(filefrag -v -b4096 $m/s$size | tr -s ' .:' ' ' | sed -n 's/^ 0 \(.*\)/\1/p' | cut -d ' ' -f 1-5)
		same "... and with filefrag" "0 $((${2:-0} / 4096 - 1)) $((${3:-0} / 4096)) $(((${3:-0} + ${2:-0}) / 4096 - 1)) $((${2:-0} / 4096))" "$frag"
	else
		skip "... and with filefrag" "no filefrag"
	fi
done
same "a file of 10 MiB is five pieces" 5 "$(mapped $m/s10485760 | cut -d ' ' -f 4)"
same "a line a file, and one above" 4 "$(tarnfs map $m/s0 $m/s1 $m/s4096 | wc -l)"
refuse "map goes on after an error" 1 " $m/s1$" tarnfs map $m/none $m/s1
refuse "... which it names" 1 "none: No such file" tarnfs map $m/none $m/s1
refuse "map of a file elsewhere" 1 "not on a tarnfs" tarnfs map /etc/passwd
same "the byte is where map says" "$(printf 'here it is' | sha256sum)" "$(
	printf 'here it is' | dd of=$m/s4097 bs=1 seek=4000 conv=notrunc,fsync 2>/dev/null
	at=$(mapped $m/s4097 | cut -d ' ' -f 3)
	umount $m
	/selftests/media read $((at + 4000)) 10 | sha256sum
	mount -t tarnfs $dev $m
)"

# ---- flush ----
yes "flush of all files" tarnfs flush $m/s*
same "... -v names them" 8 "$(tarnfs flush -v $m/s* | wc -l)"
refuse "flush goes on after an error" 1 "^$m/s1$" tarnfs flush -v $m/none $m/s1
refuse "flush of a directory" 1 "is a directory" tarnfs flush $m
refuse "flush of a file elsewhere" 1 "not on a tarnfs" tarnfs flush /etc/passwd
trace=/sys/kernel/tracing
/selftests/mapcount -w $m/s10485760 >/dev/null
echo 1 >$trace/events/tarnfs/enable
echo 1 >$trace/tracing_on
echo >$trace/trace
yes "flush of what was stored through a mapping" tarnfs flush $m/s10485760
yes "... writes it back" grep -q 'tarnfs_writeback:.*reason=fsync' $trace/trace
same "... and drops every byte of the file" 10485760 "$(sed -n 's/.*tarnfs_invalidate:.* len=\([0-9]*\).*/\1/p' $trace/trace |
	{ sum=0; while read -r n; do sum=$((sum + n)); done; echo $sum; })"
echo 0 >$trace/events/tarnfs/enable

# ---- creat --fill, verify ----
yes "creat --fill" tarnfs creat --fill 123 -s 20000001 -m 600 $m/fill1 $m/fill2
same "... mode and size" "600 20000001" "$(stat -c '%a %s' $m/fill2)"
refuse "verify -j 2" 0 "^2 of 2 files are right, 40000002 bytes" tarnfs verify --seed 123 -j 2 $m/fill1 $m/fill2
refuse "verify of another seed" 1 "fill1: first wrong offset 0 " tarnfs verify --seed 124 $m/fill1
at=$(mapped $m/fill2 | cut -d ' ' -f 3)
printf '\001\002\003\004' | dd of=$m/fill2 bs=1 seek=19000000 conv=notrunc,fsync 2>/dev/null
refuse "verify says where the first wrong byte is, beyond the first chunk" 1 \
	"fill2: first wrong offset 1900000[0-3] (device offset 0x$(printf '%x' $((at + 19000000)) | sed 's/.$/./'))" \
	tarnfs verify --seed 123 -j 2 $m/fill1 $m/fill2
refuse "... and that the other is right" 1 "^1 of 2 files are right" tarnfs verify --seed 123 $m/fill1 $m/fill2
env TARNFS_STOP_AT=mid-copy tarnfs creat --fill 5 -s 8M $m/killed 2>/dev/null
same "creat --fill killed while it writes" 137 $?
no "... no name of it is there" test -e $m/killed
refuse "creat of nothing but empty files, filled" 0 "^0 records\|^1 of 1 files are right, 0 bytes" sh -c \
	"tarnfs creat --fill 9 $m/nothing && tarnfs verify --seed 9 $m/nothing"
same "... nothing stays reserved" "" "$(value reserved)$(value limbo)"

# ---- set-user-id ----
echo program >"$work/program"
chown 1000:1000 "$work/program"
chmod 6755 "$work/program"
yes "cp of another user's set-user-id program" tarnfs cp "$work/program" $m/program
same "... as root's it has no such bits" "755 0:0" "$(stat -c '%a %u:%g' $m/program)"

# ---- log ----
ino=$(stat -c %i $m/fill2)
same "log --ino: the header and one record" 2 "$(tarnfs log --ino "$ino" $m | wc -l)"
refuse "... of that inode" 0 " ino=$ino .*name=\"fill2\"" tarnfs log --ino "$ino" $m
same "log --name and --ino that do not go together" 1 "$(tarnfs log --ino "$ino" --name fill1 $m | wc -l)"
tarnfs log -f $m >"$work/all" 2>"$work/err" &
all=$!
tarnfs log -f --name wanted $m >"$work/some" 2>&1 &
some=$!
yes "log -f prints what is there" until_there "$work/all" 'name="nothing"'
yes "mkdir" tarnfs mkdir $m/dir
yes "creat" tarnfs creat $m/dir/unwanted $m/dir/wanted
yes "log -f prints what is committed" until_there "$work/all" 'name="wanted".*batch=2/2'
yes "... with a filter too" until_there "$work/some" 'name="wanted"'
same "... that alone" 2 "$(wc -l <"$work/some")"
same "log -f is the log" "$(tarnfs log $m | sed 1d)" "$(sed 1d "$work/all")"
kill -TERM $all
ends $all
same "SIGTERM ends it well" 0 $?
same "... without a word" "" "$(cat "$work/err")"
# a shell starts background jobs with SIGINT ignored; tarnfs takes it all the same
kill -INT $some
ends $some
same "SIGINT too" 0 $?
refuse "log -f to a full disk is exit 1" 1 "standard output" timeout 60 sh -c "tarnfs log -f $m >/dev/full"
refuse "log -f whose reader goes ends, with nothing to print" 1 "standard output: closed" \
	timeout 60 sh -c "{ tarnfs log -f --name none $m; echo \$? >$work/code; } | head -n 1 >/dev/null; exit \$(cat $work/code)"
refuse "log -f of a device that is mounted" 0 "^# uuid" timeout --preserve-status 3 tarnfs log -f $dev

# ---- status ----
refuse "status: the master" 0 "^master *host page 0 (node host0), this host$" tarnfs status $m
for line in uuid label device role 'host page' mounted directories files symlinks data free 'largest hole' \
	'largest 2 MiB hole' generation 'seq here' 'seq committed' 'log used' 'bad ranges'; do
	[ -n "$(value "$line")" ] || echo "no line: $line"
done >"$work/missing"
same "status: every line" "" "$(cat "$work/missing")"
for c in "map $m/s1" "flush -v $m/s1" "status $m" "log $m" "version $m" "verify --seed 9 $m/nothing" "logplay $m"; do
	refuse "tarnfs $c to a full disk is exit 1" 1 "standard output" sh -c "tarnfs $c >/dev/full"
done
files=$(value files) free=$(value free) hole=$(value 'largest hole') huge=$(value 'largest 2 MiB hole')
yes "umount" umount $m
same "status of the device counts what the kernel counted" "$files, $free, $hole, $huge" \
	"$(value files $dev), $(value free $dev), $(value 'largest hole' $dev), $(value 'largest 2 MiB hole' $dev)"
refuse "status: the master is away" 0 "^master *host page 0 (node host0), which has it not mounted" tarnfs status $dev
refuse "log -f of a device that is not mounted" 1 "not mounted here.*without -f" tarnfs log -f $dev
rm -rf "$work"
finish
