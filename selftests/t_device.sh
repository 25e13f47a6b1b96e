#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# tarnfs device and mount -o attach: a devdax device is moved to the driver that tarnfs needs,
# used, and moved back, 20 times; what is mounted, in use, or of another mode is refused and
# left as it is; each step that is killed is mended by the next attach or detach; a pmem device
# has nothing to attach. Makes its namespaces itself, whatever it is given. Prints TAP.

# shellcheck source=selftests/lib.sh
if [ -e /selftests/lib.sh ]; then . /selftests/lib.sh; else . "${0%/*}/lib.sh"; fi

m=/mnt/tarn
dax=/dev/dax0.0
bus=/sys/bus/dax/drivers
mkdir -p $m /mnt/other
umask 022

case $(uname -r) in
6.*) ours=tarnfs_dax ;;
*) ours=fsdev_dax ;;
esac

# the name of the driver that has dax0.0, or "none"
driver() {
	if [ -e /sys/bus/dax/devices/dax0.0/driver ]; then
		basename "$(readlink /sys/bus/dax/devices/dax0.0/driver)"
	else
		echo none
	fi
}
# column DEVICE N
column() {
	tarnfs device list | awk -v d="$1" -v n="$2" '$1 == d { print $n }'
}
namespace() {
	ndctl create-namespace -f -e namespace0.0 "$@"
}
# hold HOW: in the background, ready when this returns
hold() {
	rm -f /tmp/hold
	mkfifo /tmp/hold
	/selftests/holddev "$1" $dax >/tmp/hold 2>&1 &
	holder=$!
	read -r t_word </tmp/hold
	[ "$t_word" = ready ]
}

case ${TARN_BACKING:-pmem} in
cxl-*)
	echo "1..0 # SKIP there is no NVDIMM namespace to be made in CXL memory"
	exit 0
	;;
esac

plan 184

# ---- a pmem block device ----
tarnfs device detach dax0.0 >/dev/null 2>&1
yes "an fsdax namespace" namespace -m fsdax --map=mem
yes "mkfs" mkfs.tarnfs -q -f --hosts-fenced -L "one two" /dev/pmem0
uuid=$(tarnfs status /dev/pmem0 | sed -n 's/^uuid  *//p')
same "list: kind, mode" "nvdimm fsdax" "$(column /dev/pmem0 2) $(column /dev/pmem0 3)"
same "... size in one word" "$(($(cat /sys/class/block/pmem0/size) / 2048))MiB" "$(column /dev/pmem0 4)"
same "... alignment, map, driver" "2MiB mem nd_pmem" \
	"$(column /dev/pmem0 5) $(column /dev/pmem0 6) $(column /dev/pmem0 7)"
same "... what is on it" "$uuid - one\\x20two" \
	"$(column /dev/pmem0 9) $(column /dev/pmem0 10) $(column /dev/pmem0 11)"
same "... one line" 1 "$(tarnfs device list | grep -vc '^#')"
yes "mount -o attach of what needs none" mount -t tarnfs -o attach /dev/pmem0 $m
same "list: mounted" "$uuid $m one\\x20two" \
	"$(column /dev/pmem0 9) $(column /dev/pmem0 10) $(column /dev/pmem0 11)"
refuse "list: not root" 0 "^# not root" setpriv --reuid 1000 --regid 1000 --clear-groups tarnfs device list
same "... sees where it is mounted, and not what it is" "unknown $m -" \
	"$(setpriv --reuid 1000 --regid 1000 --clear-groups tarnfs device list |
		awk '$1 == "/dev/pmem0" { print $9, $10, $11 }')"
yes "umount" umount $m
for d in /dev/pmem0 pmem0 namespace0.0; do
	refuse "attach $d: nothing to attach" 0 "$d is in fsdax mode.*nothing to attach" tarnfs device attach $d
	refuse "detach $d" 0 "nothing to attach" tarnfs device detach $d
done
refuse "attach of no such device" 1 "there is no such device" tarnfs device attach dax0.0
refuse "attach of its region" 0 "region0 has no devdax device: its namespace0.0 is in fsdax.*nothing to attach" \
	tarnfs device attach region0
refuse "attach of no such region" 1 "no devdax device is there" tarnfs device attach region77

# ---- other modes ----
if [ -e /sys/bus/nd/devices/btt0.0 ]; then
	yes "a sector namespace" namespace -m sector
	same "list: sector" "sector no" "$(column /dev/pmem0s 3) $(column /dev/pmem0s 9)"
	for d in /dev/pmem0s namespace0.0; do
		refuse "attach $d" 1 "sector mode.*ndctl create-namespace -f -e namespace0.0 -m devdax --map=mem" \
			tarnfs device attach $d
	done
else
	for t_i in 1 2 3 4; do
		skip "sector mode $t_i" "this kernel has no BTT"
	done
fi
yes "a raw namespace" namespace -m raw
same "list: raw" "raw no" "$(column /dev/pmem0 3) $(column /dev/pmem0 9)"
refuse "... and what to do" 0 "^# .*ndctl create-namespace -f -e namespace0.0 -m fsdax --map=mem" tarnfs device list
refuse "attach it" 1 "raw mode.*ndctl create-namespace" tarnfs device attach /dev/pmem0

# ---- devdax ----
yes "the message's command" sh -c "$(tarnfs device attach namespace0.0 2>&1 | sed 's/.*\(ndctl .*\)/\1/')"
same "list: devdax" "nvdimm devdax 2MiB mem device_dax unknown -" \
	"$(tarnfs device list | awk -v d=$dax '$1 == d { print $2, $3, $5, $6, $7, $9, $10 }')"
refuse "... and what to do" 0 "^# $dax is bound to device_dax: tarnfs device attach dax0.0" tarnfs device list
refuse "mount says so" 32 "is bound to device_dax: tarnfs device attach dax0.0" mount -t tarnfs $dax $m
refuse "attach" 0 "^dax0.0: attached now, bound to $ours$" tarnfs device attach dax0.0
same "... it is" $ours "$(driver)"
refuse "again" 0 "^dax0.0: attached already, bound to $ours$" tarnfs device attach $dax
# a namespace in another mode has the same bytes at the same places
same "list: what was made on it in fsdax mode" "$ours $uuid one\\x20two" "$(column $dax 7) $(column $dax 9) $(column $dax 11)"
refuse "mkfs" 1 "there is a tarnfs, uuid $uuid" mkfs.tarnfs $dax
yes "... --force" mkfs.tarnfs -q -f -L dax $dax
same "list: its label" dax "$(column $dax 11)"
same "... size" "$(($(cat /sys/bus/dax/devices/dax0.0/size) / 1048576))MiB" "$(column $dax 4)"
yes "fsck" fsck.tarnfs -n $dax
yes "mount" mount -t tarnfs $dax $m
same "list: mounted" "$m dax" "$(column $dax 10) $(column $dax 11)"
yes "a file" tarnfs creat -s 8M --fill 3 $m/file
yes "verify" tarnfs verify -q --seed 3 $m/file
for c in "tarnfs status $dax" "tarnfs log $dax" "fsck.tarnfs -n $dax" "tarnfs status $m" "tarnfs log $m"; do
	yes "mounted: $c" $c
done
refuse "mounted: mkfs" 1 "it is mounted on $m" mkfs.tarnfs -f $dax
refuse "mounted: fsck without -n" 8 "it is mounted on $m" fsck.tarnfs $dax
refuse "mounted: a second mount" 32 "is mounted on $m" mount.tarnfs $dax /mnt/other
refuse "mounted: detach" 1 "$dax is mounted on $m: umount it first" tarnfs device detach dax0.0
refuse "mounted: attach is idempotent" 0 "attached already" tarnfs device attach dax0.0
same "... still bound" $ours "$(driver)"
# what mountinfo here does not show
mkfifo /tmp/go /tmp/there
unshare -m sh -c "echo >/tmp/there; read -r x </tmp/go" &
other=$!
read -r t_word </tmp/there
yes "umount here, not in another mount namespace" umount $m
refuse "detach" 1 "is in use: mounted in another mount namespace" tarnfs device detach dax0.0
same "list: in use" "in-use" "$(column $dax 9)"
echo >/tmp/go
wait $other
yes "mount" mount -t tarnfs $dax $m
exec 9<$m/file
yes "a lazy umount" umount -l $m
refuse "detach" 1 "is in use: .*open files of a lazy umount" tarnfs device detach dax0.0
refuse "... by who may not find out" 1 "whether it is mounted somewhere cannot be found out .*CAP_SYS_ADMIN" \
	setpriv --bounding-set -sys_admin tarnfs device detach dax0.0
same "... still bound" $ours "$(driver)"
exec 9<&-
yes "mount by device, umount by device" mount -t tarnfs $dax $m
yes "umount $dax" umount $dax
no "... it is not mounted" mountpoint -q $m
refuse "the page was let go" 0 " bound " tarnfs status $dax
refuse "detach" 0 "^dax0.0: detached now, bound to device_dax$" tarnfs device detach namespace0.0
refuse "again" 0 "^dax0.0: detached already, bound to device_dax$" tarnfs device detach region0
same "... it is" device_dax "$(driver)"

# ---- in use ----
yes "a process opens it" hold open
refuse "attach" 1 "process $holder (holddev) has it open" tarnfs device attach dax0.0
same "... still bound" device_dax "$(driver)"
kill $holder
wait $holder 2>/dev/null
yes "a process maps it" hold map
refuse "attach" 1 "process $holder (holddev) has it mapped: end it first" tarnfs device attach dax0.0
refuse "mount -o attach" 32 "has it mapped" mount -t tarnfs -o attach $dax $m
same "... still bound" device_dax "$(driver)"
kill $holder
wait $holder 2>/dev/null
for how in "thread open" "orphan-map mapped"; do
	yes "a process: ${how% *}" hold "${how% *}"
	refuse "attach" 1 "process $holder (holddev) has it ${how#* }: end it first" tarnfs device attach dax0.0
	same "... still bound" device_dax "$(driver)"
	kill $holder
	wait $holder 2>/dev/null
done
yes "attach, once it has ended" tarnfs device attach dax0.0
if [ $ours = fsdev_dax ]; then
	yes "a process opens it" hold open
	refuse "detach" 1 "process $holder (holddev) has it open: end it first" tarnfs device detach dax0.0
	same "... still bound" $ours "$(driver)"
	kill $holder
	wait $holder 2>/dev/null
else
	no "tarnfs_dax lets nobody open it" hold open
	skip "detach" "nobody has it open"
	skip "... still bound" "nobody has it open"
fi
yes "verify" sh -c "mount -t tarnfs $dax $m && tarnfs verify -q --seed 3 $m/file && umount $m"
yes "detach" tarnfs device detach dax0.0

# ---- there and back ----
i=0
bad=
while [ $i -lt 20 ]; do
	i=$((i + 1))
	tarnfs device attach dax0.0 >/dev/null && mount -t tarnfs $dax $m &&
		tarnfs verify -q --seed 3 $m/file && tarnfs creat -s 64K --fill 3 "$m/round-$i" &&
		umount $m && tarnfs device detach dax0.0 >/dev/null || bad="$bad $i"
done
same "20 rounds" "" "$bad"
same "... device_dax has it" device_dax "$(driver)"
yes "attach" tarnfs device attach dax0.0
yes "mount" mount -t tarnfs $dax $m
yes "what each round made is there" tarnfs verify -q --seed 3 $m/file $m/round-1 $m/round-20
same "... 21 files" 21 "$(find $m -type f | wc -l)"
yes "umount" umount $m

# ---- killed ----
# killed POINT WHAT THEN
killed() {
	env TARNFS_STOP_AT="$1" tarnfs device "$2" dax0.0 >/dev/null 2>&1
	same "$2 killed at $1" "137 $3" "$? $(driver)"
}
# listed: does the driver still have the name? It would take the device at once.
listed() {
	echo dax0.0 >$bus/$ours/unbind
	echo dax0.0 >$bus/$ours/bind 2>/dev/null
	driver
	[ "$(driver)" = none ] && tarnfs device attach dax0.0 >/dev/null
}
killed device-unbound detach none
yes "... detach" tarnfs device detach dax0.0
same "... mends it" device_dax "$(driver)"
killed device-unbound attach none
refuse "... mount says what to do" 32 "has no driver: tarnfs device attach dax0.0" mount -t tarnfs $dax $m
same "... list shows it" "- unknown" "$(column $dax 7) $(column $dax 9)"
yes "... attach" tarnfs device attach dax0.0
same "... mends it" $ours "$(driver)"
same "an attached device is on no list" none "$(listed)"
yes "detach" tarnfs device detach dax0.0
killed device-bound attach $ours
same "... the name is listed" $ours "$(listed)"
refuse "... attach" 0 "attached already" tarnfs device attach dax0.0
same "... takes it from the list" none "$(listed)"
yes "detach" tarnfs device detach dax0.0
killed device-bound attach $ours
yes "... detach" tarnfs device detach dax0.0
same "... mends it" device_dax "$(driver)"
yes "... for good: attach" tarnfs device attach dax0.0
same "... the name is on no list" none "$(listed)"
echo dax0.0 >$bus/$ours/unbind
yes "killed at unbound, then detach" tarnfs device detach dax0.0

# ---- mount -o attach ----
yes "mount -o attach" mount -t tarnfs -o attach $dax $m
same "... attached" $ours "$(driver)"
no "... not an option of the kernel" grep -q 'tarnfs .*attach' /proc/self/mountinfo
yes "... its file" tarnfs verify -q --seed 3 $m/file
yes "umount" umount $m
same "... stays attached" $ours "$(driver)"
yes "detach" tarnfs device detach dax0.0
refuse "a mount that fails" 32 "role=client was asked for" mount -t tarnfs -o attach,role=client $dax $m
same "... detaches" device_dax "$(driver)"
refuse "... -v says both" 32 "detached: it is bound to device_dax again; tarnfs device attach dax0.0" mount.tarnfs -v -o attach,role=client $dax $m
yes "attach" tarnfs device attach dax0.0
no "one that fails, attached before" mount -t tarnfs -o attach,role=client $dax $m
same "... leaves it attached" $ours "$(driver)"
yes "detach" tarnfs device detach dax0.0
yes "mount.tarnfs -f" mount.tarnfs -f -o attach $dax $m
same "... attaches nothing" device_dax "$(driver)"
echo "$dax $m tarnfs attach,nofail 0 0" >/etc/fstab
yes "by fstab" mount -a
same "... attached" $ours "$(driver)"
yes "... its file" tarnfs verify -q --seed 3 $m/file
yes "remount with its options" mount -o remount,ro $m
yes "umount" umount $m
yes "detach" tarnfs device detach dax0.0
: >/etc/fstab
env TARNFS_STOP_AT=device-unbound mount.tarnfs -o attach $dax $m >/dev/null 2>&1
same "mount -o attach killed between" "137 none" "$? $(driver)"
yes "... the next one" mount -t tarnfs -o attach $dax $m
yes "umount" umount $m
yes "detach" tarnfs device detach dax0.0

# ---- made so that no tarnfs can be on it ----
yes "--map=dev" namespace -m devdax --map=dev
same "list: --map=dev" "dev no" "$(column $dax 6) $(column $dax 9)"
refuse "attach" 1 "made with --map=dev.*ndctl create-namespace -f -e namespace0.0 -m devdax --map=mem" \
	tarnfs device attach dax0.0
same "... still bound" device_dax "$(driver)"
refuse "mount -o attach" 32 "made with --map=dev" mount -t tarnfs -o attach $dax $m
yes "--align=4K" namespace -m devdax --map=mem --align=4K
same "list: its alignment" 4KiB "$(column $dax 5)"
for c in "tarnfs device list" "tarnfs status $dax" "mkfs.tarnfs $dax"; do
	no "... $c does not send to attach" sh -c "$c 2>&1 | grep -q 'tarnfs device attach'"
	yes "... but says why not" sh -c "$c 2>&1 | grep -q 'alignment of 4096 bytes.*--align=2M'"
done
refuse "attach" 1 "alignment of 4096 bytes.*--align=2M" tarnfs device attach dax0.0
yes "the message's command" sh -c "$(tarnfs device attach dax0.0 2>&1 | sed 's/.*\(ndctl .*\)/\1/')"
yes "attach" tarnfs device attach dax0.0
refuse "two devices, one is not there" 1 "there is no such device" tarnfs device attach dax7.0 dax0.0
yes "detach" tarnfs device detach dax0.0

# ---- what is forgotten ----
yes "mount" sh -c "mkfs.tarnfs -q -f $dax || { tarnfs device attach dax0.0 && mkfs.tarnfs -q -f --hosts-fenced $dax; } && mount -t tarnfs $dax $m"
yes "two files" tarnfs creat -s 1M $m/one $m/two
yes "umount" umount $m
yes "detach, nothing known" sh -c "! tarnfs device detach dax0.0 2>&1 | grep -q forgotten"
yes "mount" mount -t tarnfs -o attach $dax $m
/selftests/memfail hit $m/one@4096 >/dev/null
/selftests/memfail hit $m/two@8192 >/dev/null
yes "umount" umount $m
refuse "detach says what it forgets" 0 "dax0.0: this host knew of 2 ranges of bad memory there, and has forgotten" \
	tarnfs device detach dax0.0

# ---- taken away under its mount ----
yes "mount" mount -t tarnfs -o attach $dax $m
echo dax0.0 >$bus/$ours/unbind
refuse "unbound: status says what mounts it" 1 "umount it and mount it again (a devdax device with -o attach)" tarnfs status $m
refuse "... list too" 0 "^# .*$m: .*-o attach" tarnfs device list
same "... which shows the mount" "- $m" "$(column $dax 7) $(column $dax 10)"
yes "umount" umount $m
yes "mount -o attach" mount -t tarnfs -o attach $dax $m
yes "the namespace is disabled" ndctl disable-namespace namespace0.0
refuse "list: the mount" 0 "^# $dax is mounted on $m, and is not what was mounted any more: umount $m" tarnfs device list
same "... and the namespace, of which nothing is known" "nvdimm disabled unknown" \
	"$(column namespace0.0 2) $(column namespace0.0 3) $(column namespace0.0 9)"
refuse "... what to do" 0 "^# namespace0.0 is disabled, or was destroyed: ndctl enable-namespace namespace0.0 " tarnfs device list
yes "another namespace" namespace -m fsdax --map=mem
refuse "list: the mount is still said" 0 "^# $dax is mounted on $m" tarnfs device list
yes "umount" umount $m
no "... not any more" sh -c "tarnfs device list | grep -q 'is mounted on'"
finish
