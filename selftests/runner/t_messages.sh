#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# What the tools say where nothing can be mounted: a kernel without the module, a devdax
# character device that is not attached, a device in system-ram mode. Each has its own message, with the next
# command to type, and what it says to type does work. Runs a guest; prints TAP.

set -u

top=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/guest.sh" <<'GUEST'
#!/bin/sh
. /selftests/lib.sh
dev=/dev/pmem0
dax=/dev/dax0.0

plan 36

# ---- no module ----
for c in "mkfs.tarnfs $dev" "tarnfs status $dev" "tarnfs log $dev"; do
	refuse "no module: ${c% *}" 1 "$dev: the kernel has no tarnfs: modprobe tarnfs" $c
done
refuse "no module: mount.tarnfs is exit 2" 2 "$dev: the kernel has no tarnfs: modprobe tarnfs" mount.tarnfs $dev /mnt
refuse "no module: mount -t tarnfs" 2 "the kernel has no tarnfs: modprobe tarnfs" mount -t tarnfs $dev /mnt
refuse "no module: version" 0 "not loaded (modprobe tarnfs)" tarnfs version
refuse "no module: status of a directory" 1 "/mnt: not on a tarnfs" tarnfs status /mnt
refuse "no module: creat" 1 "not on a tarnfs" tarnfs creat /mnt/x

# ---- a devdax character device ----
yes "a devdax namespace" ndctl create-namespace -f -e namespace0.0 -m devdax --map=mem
for c in "mkfs.tarnfs -f $dax" "tarnfs status $dax" "tarnfs log $dax"; do
	refuse "devdax: $c" 1 "$dax is bound to device_dax: tarnfs device attach dax0.0" $c
done
refuse "devdax: fsck" 8 "is bound to device_dax: tarnfs device attach dax0.0" fsck.tarnfs $dax
refuse "devdax: mount" 32 "is bound to device_dax: tarnfs device attach dax0.0" mount -t tarnfs $dax /mnt
ln -s dax0.0 /dev/named
refuse "devdax: by a symbolic link" 1 "$dax is bound to device_dax: tarnfs device attach dax0.0" mkfs.tarnfs /dev/named
echo dax0.0 >/sys/bus/dax/drivers/device_dax/unbind
refuse "devdax: without a driver" 1 "$dax has no driver: tarnfs device attach dax0.0" mkfs.tarnfs $dax
mv $dax /dev/aside
refuse "devdax: without its node in /dev" 1 "the device is there, but not its node in /dev.*mknod $dax c [0-9]" mkfs.tarnfs $dax
refuse "... mount" 32 "the device is there, but not its node in /dev" mount.tarnfs $dax /mnt
yes "... the command of the message" sh -c "$(mkfs.tarnfs $dax 2>&1 | sed 's/.*\(mknod .*\)/\1/')"
refuse "... makes it" 1 "$dax has no driver" mkfs.tarnfs $dax
mv /dev/aside $dax
echo dax0.0 >/sys/bus/dax/drivers/device_dax/bind

# ---- system-ram ----
# its memory stays offline, so that the guest can give it back
echo offline >/sys/devices/system/memory/auto_online_blocks
yes "the device in system-ram mode" daxctl reconfigure-device --mode=system-ram --no-online dax0.0
for c in "mkfs.tarnfs -f $dax" "tarnfs status $dax"; do
	refuse "system-ram: $c" 1 "$dax is in system-ram mode.*daxctl reconfigure-device --mode=devdax --force dax0.0" $c
done
refuse "system-ram: mount" 32 "is in system-ram mode.*daxctl reconfigure-device" mount -t tarnfs $dax /mnt
for c in attach detach; do
	refuse "system-ram: device $c" 1 "daxctl reconfigure-device --mode=devdax --force dax0.0" tarnfs device $c dax0.0
done
refuse "system-ram: device list" 0 "^$dax  *nvdimm  *system-ram .* kmem .* - *- *-$" tarnfs device list
refuse "... and what to do" 0 "^# $dax is in system-ram mode.*daxctl reconfigure-device" tarnfs device list
# as where udev has not made it; daxctl itself needs it
mv $dax /dev/aside
for c in mkfs.tarnfs "tarnfs status"; do
	refuse "system-ram, without its node in /dev: $c" 1 "is in system-ram mode" $c $dax
done
refuse "... and a device that is not there is no image to be made" 1 "/dev/dax9.9: there is no such device" mkfs.tarnfs /dev/dax9.9
mv /dev/aside $dax
yes "the command of the message" sh -c "$(mkfs.tarnfs $dax 2>&1 | sed 's/.*\(daxctl .*dax0.0\).*/\1/')"
refuse "... makes it a devdax" 1 "is bound to device_dax" mkfs.tarnfs $dax
refuse "no module: device attach" 1 "the kernel has no driver tarnfs_dax, and modprobe tarnfs did not bring it" tarnfs device attach dax0.0
refuse "no module: mount -o attach" 32 "the kernel has no driver tarnfs_dax" mount -t tarnfs -o attach $dax /mnt
refuse "... it is where it was" 0 "^$dax .* device_dax .*unknown" tarnfs device list
finish
GUEST
"$top/tools/vm/run" --raw --module kmem "$work/guest.sh" >"$work/out"
code=$?
sed -n 's/^host0| //p' "$work/out"
exit $code
