#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# tools/vm/run must notice everything that can go wrong in a guest. Each way is planted here,
# and the exit status and output of the runner are looked at. Runs on the build host, at most
# two guests at a time; prints TAP.

set -u

top=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
run=$top/tools/vm/run
tap=$top/tools/tap
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/tmp"
export O="$work/build" TARNFS_VM_TMP="$work/tmp"

count=0
failed=0
result() {
	count=$((count + 1))
	if [ "$1" = 0 ]; then
		echo "ok $count $2"
	else
		echo "not ok $count $2"
		failed=1
		[ -z "${3:-}" ] || sed 's/^/#   /' "$3"
	fi
}

# plant NAME EXPECTED ARGS...: the guest script comes on stdin; result later by NAME
plant() {
	name=$1 expected=$2
	shift 2
	cat >"$work/$name.sh"
	echo "$expected" >"$work/$name.expected"
	{
		"$run" "$@" "$work/$name.sh" >"$work/$name.out" 2>&1
		echo "$?" >"$work/$name.code"
	} &
	lanes="$lanes $!"
}

# judge NAME WHAT [PATTERN]: status as expected, and a line of the output that matches
judge() {
	bad=0
	[ "$(cat "$work/$1.code")" = "$(cat "$work/$1.expected")" ] || bad=1
	if [ -n "${3:-}" ]; then
		grep -Eq "$3" "$work/$1.out" || bad=1
	fi
	[ "$bad" = 0 ] || echo "# exit $(cat "$work/$1.code"), expected $(cat "$work/$1.expected")"
	result "$bad" "$2" "$work/$1.out"
}

lanes=
both() {
	# shellcheck disable=SC2086
	wait $lanes
	lanes=
}

echo "TAP version 13"

# --- the texts of kernel logs ---

while read -r text; do
	echo "[    1.000000] $text" >"$work/log"
	"$run" --scan "$work/log" 2>/dev/null
	[ $? = 123 ]
	result $? "report seen: $text"
done <<'EOF'
WARNING: CPU: 0 PID: 1 at fs/dax.c:372 dax_insert_entry+0x2b/0x3c
BUG: kernel NULL pointer dereference, address: 0000000000000008
Oops: 0000 [#1] PREEMPT SMP NOPTI
BUG: KASAN: use-after-free in tarnfs_lookup+0x1/0x2
WARNING: possible circular locking dependency detected
WARNING: suspicious RCU usage
tarnfs-leaks before: unreferenced object 0xffff888008a1c200 (size 256):
kmemleak: 3 new suspected memory leaks (see /sys/kernel/debug/kmemleak)
kmemleak: Kernel memory leak detector disabled
ODEBUG: free active (active state 0) object: ffff888008a1c200 object type: work_struct
INFO: trying to register non-static key.
turning off the locking correctness validator.
INFO: task cat:71 blocked for more than 120 seconds.
rcu: INFO: rcu_preempt self-detected stall on CPU
general protection fault, probably for non-canonical address 0xdead000000000100
Call Trace:
sysfs: cannot create duplicate filename '/fs/tarnfs'
refcount_t: underflow; use-after-free.
BUG tarnfs_inode (Tainted: G           O      ): Objects remaining in tarnfs_inode on __kmem_cache_shutdown()
VFS: Busy inodes after unmount of pmem0. Self-destruct in 5 seconds.
watchdog: BUG: soft lockup - CPU#0 stuck for 26s!
Kernel panic - not syncing: sysrq triggered crash
EOF
cat >"$work/log" <<'EOF'
[    0.000000] Linux version 6.12.117+deb12-amd64
[    0.000000] kasan: KernelAddressSanitizer initialized
[    1.500000] tarnfs: loading out-of-tree module taints kernel.
[    2.000000] tarnfs-test: begin t_debug
EOF
"$run" --scan "$work/log"
result $? "nothing seen in a clean log"

# --- TAP ---

judge_tap() {
	printf '%b' "$3" | "$tap" >"$work/tap.out"
	[ $? = "$1" ]
	result $? "tap: $2" "$work/tap.out"
}
judge_tap 0 "all well" '1..2\nok 1 a\nok 2 b # SKIP none\n'
judge_tap 1 "no plan" 'ok 1 a\n'
judge_tap 1 "no output" ''
judge_tap 1 "fewer than planned" '1..2\nok 1 a\n'
judge_tap 1 "more than planned" '1..1\nok 1 a\nok 2 b\n'
judge_tap 1 "not ok" '1..1\nnot ok 1 a\n'
judge_tap 1 "numbers out of order" '1..2\nok 2 a\nok 1 b\n'
judge_tap 1 "two plans" '1..1\nok 1 a\n1..1\n'
judge_tap 1 "bail out" '1..1\nok 1 a\nBail out! no\n'
judge_tap 0 "all skipped" '1..0 # SKIP no device\n'
[ "$(printf '1..2\nok 1 a\nok 2 # SKIP b\n' | "$tap")" = "1 passed, 0 failed, 1 skipped" ]
result $? "tap: counts"

# --- usage ---

"$run" >"$work/log" 2>&1
[ $? = 125 ]
result $? "no script: 125"
echo : >"$work/x"
"$run" --kernel 5.10 "$work/x" >"$work/log" 2>&1
[ $? = 125 ]
result $? "no such kernel: 125"
"$run" "$work/does-not-exist" >"$work/log" 2>&1
[ $? = 125 ]
result $? "no such script: 125"

# usage WHAT PATTERN ARGS...: 125, one sentence with the pattern, and where to look: no more
usage() {
	what=$1 pattern=$2
	shift 2
	"$run" "$@" >"$work/log" 2>&1
	code=$?
	[ "$code" = 125 ] && [ "$(wc -l <"$work/log")" = 2 ] &&
		head -n 1 "$work/log" | grep -q -e "^run: .*$pattern" &&
		[ "$(tail -n 1 "$work/log")" = "try 'run --help'" ]
	result $? "usage: $what" "$work/log"
}
usage "no script" "required: SCRIPT"
usage "an unknown option" "unrecognized arguments: --frob" --frob "$work/x"
usage "no hosts" "--hosts 0: 1 to 16" --hosts 0 "$work/x"
usage "too many hosts" "--hosts 17: 1 to 16" --hosts 17 "$work/x"
usage "--hosts is no number" "invalid int value" --hosts x "$work/x"
usage "kept memory in a missing folder" "--keep-memory $work/none/m: no such folder: $work/none$" \
	--keep-memory "$work/none/m" "$work/x"
usage "kept memory that is a folder" "not a plain file" --keep-memory "$work" "$work/x"
usage "--file without a path" "--file $work/x: FILE:PATH" --file "$work/x" "$work/x"
usage "--file of a relative path" "FILE:PATH" --file "$work/x:y" "$work/x"
usage "--file of nothing" "no such file: $work/none" --file "$work/none:/x" "$work/x"
usage "too little --ram" "--ram must be at least 272M with --size 512M" --ram 271M "$work/x"
usage "--ram that is no size" "not a size: much" --ram much "$work/x"
usage "--size too small" "at least 32M" --size 30M "$work/x"
usage "--env without a value" "NAME=VALUE" --env X "$work/x"
usage "--allow that is no pattern" "--allow (: " --allow '(' "$work/x"
usage "no time" "at least 1" --timeout 0 "$work/x"

# --- guests ---

plant ok 0 --raw --backing none --kernel 6.1 --ram 272M --file "$work/x:/put/here" <<'EOF'
[ "$(cat /put/here)" = : ] || exit 1
echo "on $(uname -r) as $(id -un)"
mount --version
ls -d /dev/pts/ptmx /dev/shm /sys/kernel/tracing/events >/dev/null || exit 1
setpriv --reuid=user --regid=user --clear-groups id -un
EOF
plant seven 7 --raw --backing none --kernel 6.12 <<'EOF'
echo out; echo err >&2; printf 'no newline'; exit 7
EOF
both
judge ok "a good script: 0" '^host0\| on 6\.1\..* as root$'
grep -q '^host0| mount from util-linux' "$work/ok.out"
result $? "util-linux's mount"
grep -qx 'host0| user' "$work/ok.out"
result $? "an unprivileged user"
judge seven "the script's exit status" '^host0\| err$'
grep -q '^host0| no newline' "$work/seven.out"
result $? "a last line without newline"

plant warn 123 --raw --backing none --kernel 6.1 <<'EOF'
echo "WARNING: planted" >/dev/kmsg
EOF
plant panic 123 --raw --backing none --kernel 6.12 <<'EOF'
echo c >/proc/sysrq-trigger; sleep 60
EOF
both
judge warn "WARNING in the log of a script that ends with 0: 123" 'kernel log: .*WARNING: planted'
judge panic "panic: 123" 'Kernel panic|sysrq triggered crash'
ls "$O"/vm-logs/*/host0.console >/dev/null 2>&1
result $? "logs of failed runs are kept"

plant died 122 --raw --backing none --kernel 6.1 <<'EOF'
poweroff -f; sleep 60
EOF
plant hang 124 --raw --backing none --kernel 6.12 --timeout 30 <<'EOF'
echo hanging; sleep 600
EOF
both
judge died "guest death: 122"
judge hang "hang: 124"

# One boot of two hosts for everything that takes two.
mkdir "$work/disk"
head -c 3000000 /dev/urandom >"$work/disk/big"
sum=$(sha256sum <"$work/disk/big")
plant two 9 --raw --kernel 6.12,6.1 --size 64M --disk "$work/disk" --keep-memory "$work/memory" \
	--env "SUM=$sum" <<'EOF'
set -e
write() { echo "from host $HOST" | dd of=/dev/pmem0 bs=4096 seek=$((4 + HOST)) conv=sync,fsync oflag=direct 2>/dev/null; }
see() { dd if=/dev/pmem0 bs=4096 skip=$((4 + 1 - HOST)) count=1 iflag=direct 2>/dev/null | tr -d '\0'; }
echo "kernel $TARN_KERNEL of $HOSTS, machine $(cat /etc/machine-id)"
[ "$(sha256sum </disk0/big)" = "$SUM" ] && echo "disk is good"
grep -q '^fsdax\|^1' /sys/block/pmem0/queue/dax && echo "pmem has dax"
barrier start
write
barrier written
echo "I see: $(see)"
setpriv --reuid=user --regid=user --clear-groups barrier as-user && echo "barrier as user"
if [ "$HOST" = 1 ]; then exit 9; fi
barrier alone && exit 1
echo "barrier failed as it must"
EOF
both
judge two "status of the host that failed" '^host1\| kernel 6\.1 of 2'
for line in 'host0| I see: from host 1' 'host1| I see: from host 0' 'host0| disk is good' \
	'host1| pmem has dax' 'host1| barrier as user' 'host0| barrier failed as it must'; do
	grep -qxF "$line" "$work/two.out"
	result $? "two hosts: ${line#*| }" "$work/two.out"
done
[ "$(sed -n 's/.*machine //p' "$work/two.out" | sort -u | wc -l)" = 2 ]
result $? "two hosts: distinct machine-ids"

# The kept memory goes on living; run-tests leads two hosts out of a test that one leaves.
mkdir -p "$O/selftests"
cat >"$O/selftests/h2_left" <<'EOF'
#!/bin/sh
echo 1..1
if [ "$HOST" = 0 ]; then echo "not ok 1 left"; exit 1; fi
barrier inside || echo "ok 1 not waited for ever"
EOF
printf '#!/bin/sh\necho 1..1; barrier inside && echo ok 1 met again\n' >"$O/selftests/h2_next"
chmod +x "$O"/selftests/*
plant tests 0 --raw --kernel 6.1,6.12 --keep-memory "$work/memory" <<'EOF'
echo "kept: $(dd if=/dev/pmem0 bs=4096 skip=5 count=1 iflag=direct 2>/dev/null | tr -d '\0')"
run-tests h2_left h2_next
if [ "$HOST" = 0 ]; then powercut; fi
EOF
both
judge tests "powercut counts as a good end" '^host0\| kept: from host 1$'
grep -qx 'host1| ok 1 not waited for ever' "$work/tests.out"
result $? "a test left by one host does not hang the other" "$work/tests.out"
grep -qx 'host1| ok 1 met again' "$work/tests.out"
result $? "the next test has its barriers" "$work/tests.out"
grep -qx 'host0| # exit h2_left 1' "$work/tests.out"
result $? "run-tests says the exit status of a test" "$work/tests.out"

# A runner that is killed takes its guests with it.
echo "sleep 600" >"$work/sleep"
"$run" --raw --backing none "$work/sleep" >/dev/null 2>&1 &
runner=$!
guest=
n=0
while [ -z "$guest" ] && [ "$n" -lt 100 ]; do
	sleep 0.2
	n=$((n + 1))
	guest=$(cat "/proc/$runner/task/$runner/children")
	guest=${guest%% *}
	[ -z "$guest" ] || grep -q qemu "/proc/$guest/comm" || guest=
done
kill -KILL "$runner"
wait "$runner" 2>/dev/null
n=0
while [ -d "/proc/$guest" ] && [ "$n" -lt 50 ]; do
	sleep 0.2
	n=$((n + 1))
done
[ -n "$guest" ] && [ ! -d "/proc/$guest" ]
result $? "a killed runner leaves no guest"
rm -rf "$work/tmp"/*initrd* # that one could not clean up
[ "$(find "$work/tmp" -mindepth 1 -maxdepth 1 | wc -l)" -le 1 ]
result $? "all other runs removed their files"

echo "1..$count"
exit "$failed"
