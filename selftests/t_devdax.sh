#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# A devdax at the kernel's own level: which driver may have it and what mount says of the
# others, what the driver refuses, binding by hand and back, the device taken away under a
# mount, in the middle of mounting, and together with its namespace. Runs on a devdax
# (--backing devdax), else it skips all. Prints TAP.

# shellcheck source=selftests/lib.sh
if [ -e /selftests/lib.sh ]; then . /selftests/lib.sh; else . "${0%/*}/lib.sh"; fi

TESTS=94
plan $TESTS
if [ "${TARN_BACKING:-}" != devdax ]; then
	while [ $t_run -lt $TESTS ]; do
		skip "all" "not a devdax"
	done
	finish
fi

dev=$TARN_DEV
name=${dev#/dev/}
m=/mnt/tarn
bus=/sys/bus/dax
try=/selftests/fsmount
mkdir -p $m
umask 022

if [ -d $bus/drivers/fsdev_dax ]; then
	ours=fsdev_dax
else
	ours=tarnfs_dax
fi

# the name of the driver that has it, or "none"
driver() {
	if [ -e "$bus/devices/$name/driver" ]; then
		basename "$(readlink "$bus/devices/$name/driver")"
	else
		echo none
	fi
}
unbind() {
	echo "$name" >"$bus/drivers/$(driver)/unbind"
}
# to_ours and to_dax: from whatever has it
to_ours() {
	[ "$(driver)" = none ] || unbind
	echo "$name" >$bus/drivers/$ours/new_id
	[ "$(driver)" = $ours ]
}
to_dax() {
	[ "$(driver)" = none ] || unbind
	echo "$name" >$bus/drivers/$ours/remove_id 2>/dev/null
	echo "$name" >$bus/drivers/device_dax/bind
	[ "$(driver)" = device_dax ]
}
mark() {
	echo "t_devdax mark $((mark_nr = ${mark_nr:-0} + 1))" >/dev/kmsg
}
# log PATTERN: in the kernel log since the last call of mark
# shellcheck disable=SC2317 # called through yes
log() {
	dmesg | sed -n "/t_devdax mark $mark_nr\$/,\$p" | grep -q -e "$1"
}

# ---- which driver ----
same "bound as the guest's init left it" $ours "$(driver)"
yes "mkfs" mkfs.tarnfs -q -f --hosts-fenced --log-size 4M "$dev"
yes "mount" mount -t tarnfs "$dev" $m
same "/proc/mounts has the device's path" "$dev" "$(awk -v m=$m '$2 == m { print $1 }' /proc/mounts)"
same "... and its file system no other device" 0 "$(stat -c %d $m | awk '{ print int($1 / 256) }')"
yes "files" tarnfs creat --fill 5 -s 20000 $m/small $m/other
yes "a large one" tarnfs creat --fill 5 -s 6291456 $m/large
same "blocks of 4096 bytes" 4096 "$(stat -f -c %s $m)"
refuse "a second mount" 1 "^EBUSY" $try "$dev"
refuse "... says so" 1 "mounted on this host already" $try "$dev"
refuse "a meta mount meanwhile" 1 "^EBUSY" $try "$dev" meta
refuse "... read-only too" 1 "^EBUSY" $try "$dev" meta ro
yes "umount" umount $m
yes "a meta mount after it" $try "$dev" meta
yes "unbind" unbind
refuse "no driver: mount" 1 "^EOPNOTSUPP" $try "$dev"
refuse "... says what to do" 1 "$dev: is bound to no driver, tarnfs needs $ours: tarnfs device attach $dev" $try "$dev"
yes "bind to device_dax" to_dax
refuse "device_dax: mount" 1 "^EOPNOTSUPP" $try "$dev" meta
refuse "... says what to do" 1 "$dev: is bound to device_dax, tarnfs needs $ours: tarnfs device attach $dev" $try "$dev"
if [ -d $bus/drivers/kmem ]; then
	yes "unbind" unbind
	# without this the kernel may give the memory to whoever asks
	echo offline >/sys/devices/system/memory/auto_online_blocks
	yes "bind to kmem" sh -c "echo $name >$bus/drivers/kmem/new_id"
	refuse "kmem: mount" 1 "^EOPNOTSUPP" $try "$dev"
	refuse "... says what to do" 1 "is system memory (driver kmem).*daxctl reconfigure-device --mode=devdax --force $name" $try "$dev"
	yes "unbind" unbind
	yes "take it off kmem's list" sh -c "echo $name >$bus/drivers/kmem/remove_id"
	yes "bind to device_dax" to_dax
else
	for t in 1 2 3 4 5 6 7; do
		skip "kmem $t" "no kmem driver in this guest"
	done
fi
yes "bind to $ours" to_ours
yes "mount" mount -t tarnfs "$dev" $m
yes "the files are right" tarnfs verify -q --seed 5 $m/small $m/other $m/large
yes "umount" umount $m

# ---- the path ----
mkdir -p /tmp/nodev
mount -t tmpfs -o nodev tmpfs /tmp/nodev
# shellcheck disable=SC2046 # two numbers
mknod /tmp/nodev/dax c $(tr : ' ' <"$bus/devices/$name/dev")
# shellcheck disable=SC2046 # two numbers
mknod /tmp/node c $(tr : ' ' <"$bus/devices/$name/dev")
refuse "a device node under nodev" 1 "^EACCES" $try /tmp/nodev/dax
refuse "... says so" 1 "mounted with nodev" $try /tmp/nodev/dax
umount /tmp/nodev
yes "a device node elsewhere" $try /tmp/node meta
ln -s /tmp/node /tmp/link
yes "... through a symbolic link" $try /tmp/link meta
refuse "not root" 1 "EPERM\|Operation not permitted" setpriv --reuid 1000 --regid 1000 --clear-groups \
	sh -c "$try $dev meta 2>&1 || exit 1"
refuse "another character device" 1 "^ENXIO" $try /dev/null
refuse "... says so" 1 "/dev/null: no device of the dax bus has its number (1:3)" $try /dev/null
refuse "a regular file" 1 "^ENOTBLK" $try /etc/passwd

# ---- there and back, by hand ----
i=0
bad=
while [ $i -lt 20 ]; do
	i=$((i + 1))
	to_dax && to_ours && $try "$dev" meta >/dev/null && $try "$dev" >/dev/null || bad="$bad $i"
done
same "20 rounds with device_dax between" "" "$bad"
i=0
bad=
while [ $i -lt 20 ]; do
	i=$((i + 1))
	unbind && to_ours && $try "$dev" >/dev/null || bad="$bad $i"
done
same "20 rounds without" "" "$bad"
yes "mount" mount -t tarnfs "$dev" $m
yes "the files are right" tarnfs verify -q --seed 5 $m/small $m/other $m/large
if [ $ours = tarnfs_dax ]; then
	refuse "rmmod while it is mounted" 1 "in use\|temporarily unavailable" rmmod tarnfs
	umount $m
	refuse "rmmod while it is bound" 1 "in use\|temporarily unavailable" rmmod tarnfs
	yes "unbind" unbind
	yes "rmmod" rmmod tarnfs
	yes "bind to device_dax" to_dax
	yes "modprobe" modprobe tarnfs
	same "the driver takes nothing by itself" device_dax "$(driver)"
else
	refuse "rmmod while it is mounted" 1 "in use\|temporarily unavailable" rmmod tarnfs
	umount $m
	yes "unbind" unbind
	mark
	echo "$name" >$bus/drivers/tarnfs_lookup/new_id 2>/dev/null
	same "the module's own driver takes no device when told to" none "$(driver)"
	yes "... and says which does" log "the driver to bind is fsdev_dax"
	echo "$name" >$bus/drivers/tarnfs_lookup/remove_id
	yes "bind to device_dax" to_dax
	yes "rmmod" rmmod tarnfs
	yes "modprobe" modprobe tarnfs
fi
yes "bind to $ours" to_ours

# ---- taken away under a mount ----
yes "mount" mount -t tarnfs "$dev" $m
mkdir -p w1 w2
/selftests/memfail watch $m/small@4096 w1 >s1 &
p1=$!
/selftests/memfail watch $m/large@2097152 w2 >s2 &
p2=$!
yes "a process maps a small file" wait_until test -e w1/touched
yes "another one a large one" wait_until test -e w2/touched
yes "unbind under the mount" unbind
wait $p1 $p2
same "the first gets a SIGBUS" "EIO EIO BUS_ADRERR addr+0 lsb 0" "$(cat s1)"
same "... the second too" "EIO EIO BUS_ADRERR addr+0 lsb 0" "$(cat s2)"
refuse "reads fail" 1 "Input/output error" cat $m/small
yes "bind it again, with the dead mount there" to_ours
if [ $ours = tarnfs_dax ]; then
	# another binding is another device, so the dead mount is in nobody's way
	yes "a new mount" $try "$dev"
	skip "... says why not" "it is one"
else
	refuse "a new mount" 1 "^EBUSY" $try "$dev"
	refuse "... says why not" 1 "taken away: umount that one" $try "$dev"
fi
refuse "... revives nothing" 1 "Input/output error" cat $m/small
umount $m 2>/dev/null || umount -i $m
no "umount" mountpoint -q $m
yes "mount" mount -t tarnfs "$dev" $m
yes "the files are right" tarnfs verify -q --seed 5 $m/small $m/other $m/large
yes "umount" umount $m

# Each mount in the middle of an unbind is refused, or is there and dies.
i=0
bad=
while [ $i -lt 30 ]; do
	i=$((i + 1))
	for t in 1 2 3; do
		$try -s 20 "$dev" meta >"r$t" &
	done
	[ $((i % 3)) = 0 ] || sleep 0.0$((i % 5))
	unbind || bad="$bad $i-unbind"
	wait
	[ "$(sort -u r1 r2 r3 | grep -v '^\(done\|EBUSY\|ENXIO\|ENODEV\|EOPNOTSUPP\|EIO\|e tarnfs.*\)$')" = "" ] ||
		bad="$bad $i: $(cat r1 r2 r3)"
	to_ours || bad="$bad $i-bind"
done
same "30 unbinds among mounts: done, or an errno that says it" "" "$bad"
yes "mount" mount -t tarnfs "$dev" $m
yes "the files are right" tarnfs verify -q --seed 5 $m/small $m/other $m/large
yes "umount" umount $m

# ---- its namespace goes ----
nd=/sys/bus/nd/drivers/dax_pmem
parent=$(basename "$(ls -d $nd/dax[0-9]*)")
yes "mount" mount -t tarnfs "$dev" $m
yes "the namespace is taken away under it" sh -c "echo $parent >$nd/unbind"
refuse "reads fail" 1 "Input/output error" cat $m/small
umount $m 2>/dev/null || umount -i $m
no "umount" mountpoint -q $m
refuse "a device node that was left" 1 "^ENXIO" $try /tmp/node
refuse "... says so" 1 "it is gone" $try /tmp/node
yes "the namespace comes back" sh -c "echo $parent >$nd/bind"
yes "... and its device" wait_until test -e "$bus/devices/$name"
[ "$(driver)" != none ] || wait_until test -e "$bus/devices/$name/driver"
yes "bind to $ours" to_ours
yes "mount" mount -t tarnfs "$dev" $m
yes "the files are right" tarnfs verify -q --seed 5 $m/small $m/other $m/large
yes "umount" umount $m

# ---- what no tarnfs can be on ----
yes "bind to device_dax" to_dax
yes "a namespace with --map=dev" ndctl create-namespace -f -e namespace0.0 -m devdax --map=dev
mark
to_ours
if [ $ours = tarnfs_dax ]; then
	same "the driver refuses it" none "$(driver)"
	yes "... and says what to do" log "tarnfs_dax $name: namespace was made with --map=dev.*-m devdax --map=mem"
else
	refuse "mount refuses it" 1 "^EOPNOTSUPP" $try "$dev" meta
	refuse "... and says what to do" 1 "made with --map=dev.*-m devdax --map=mem" $try "$dev" meta
fi
yes "device_dax can have it" to_dax
# where its first byte is depends on the memory; by itself 4 KiB is no reason to refuse
yes "one with --align=4K" ndctl create-namespace -f -e namespace0.0 -m devdax --map=mem --align=4K
mark
to_ours
start=$(cat "$bus/devices/$name/resource")
if [ $((start % 2097152)) = 0 ]; then
	same "begins at a multiple of 2 MiB: bound" $ours "$(driver)"
	yes "... and mounted" $try "$dev" meta
elif [ $ours = tarnfs_dax ]; then
	same "the driver refuses it" none "$(driver)"
	yes "... and says what to do" log "tarnfs_dax $name: first byte at physical address 0x[0-9a-f]*, not a multiple of 2 MiB.*--align=2M"
else
	refuse "mount refuses it" 1 "^EINVAL" $try "$dev" meta
	refuse "... and says what to do" 1 "not a multiple of 2 MiB.*-m devdax --map=mem --align=2M" $try "$dev" meta
fi
yes "device_dax can have it" to_dax
yes "one as it should be" ndctl create-namespace -f -e namespace0.0 -m devdax --map=mem
yes "bind to $ours" to_ours
yes "mount" $try "$dev" meta
finish
