#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# One host, as a new user meets it: refusals and warnings that name the way out, two machines
# with one machine-id, and what README.md and commands.rst say of plain tools, streams, the
# log and fstab. Prints TAP.

# shellcheck disable=SC2317 # checks are called by name
# shellcheck source=selftests/lib.sh
if [ -e /selftests/lib.sh ]; then . /selftests/lib.sh; else . "${0%/*}/lib.sh"; fi

dev=${TARN_DEV:-/dev/pmem0}
m=/mnt/tarn
work=$(mktemp -d)
mkdir -p "$m" /etc/tarnfs
umask 022

value() {
	tarnfs status "$m" | sed -n "s/^$1  *//p"
}
mounted() {
	grep -q " $m tarnfs " /proc/mounts
}
# the column `applied` of the table of hosts, of page 0
applied() {
	tarnfs status "$m" | sed -n 's/^ *0  *this host  *current  *\([0-9]*\) .*/\1/p'
}
# another boot and another name, as they are in a clone of this machine
boot=/proc/sys/kernel/random/boot_id
become() {
	hostname "$1"
	mount --bind "$2" $boot
}
become_self() {
	hostname host0
	umount $boot
}
echo 11111111-2222-4333-8444-555555555555 >"$work/boot"
cat $boot >"$work/same-boot"

plan 88

# ---- one machine-id, two machines ----
yes "mkfs" mkfs.tarnfs -f --hosts-fenced --hosts 4 $dev
yes "mount" mount -t tarnfs $dev "$m"
yes "umount -i leaves the page claimed" umount -i "$m"
hostname renamed
yes "mkfs over an own page, renamed since" mkfs.tarnfs -q -f --hosts 4 $dev
hostname host0
yes "mount" mount -t tarnfs $dev "$m"
umount -i "$m"
become host0 "$work/boot"
yes "mkfs over an own page, after a reboot" mkfs.tarnfs -q -f --hosts 4 $dev
become_self
yes "mount" mount -t tarnfs $dev "$m"
umount -i "$m"
become clone "$work/boot"
refuse "mkfs over the page of another node at another boot is refused" 1 \
	"hosts may have mounted: page 0 claimed by .* host0: not made.*--hosts-fenced" mkfs.tarnfs -f $dev
refuse "... and says what that may be" 1 \
	"page 0 was claimed by node host0 .*this is node clone: if that host still runs, the machine-id is shared" mkfs.tarnfs -f $dev
refuse "... without -f too" 1 "machine-id is shared" mkfs.tarnfs $dev
refuse "a mount warns, and goes on" 0 \
	"warning: host page 0 was claimed by node host0 .*this is node clone.*systemd-machine-id-setup" mount -t tarnfs $dev "$m"
yes "... it is mounted" mounted
yes "umount" umount "$m"
same "no warning over a page that was let go" "" "$(become_self; mount -t tarnfs $dev "$m" 2>&1; umount "$m" 2>&1)"
mount -t tarnfs $dev "$m"
umount -i "$m"
become clone "$work/boot"
yes "the operator's word is enough for mkfs" mkfs.tarnfs -q -f --hosts-fenced --hosts 4 $dev
become_self

# ---- mkfs names the pages that matter ----
yes "mount" mount -t tarnfs $dev "$m"
umount -i "$m"
echo "uuid = 01010101-0101-4101-8101-010101010101	# another host" >/etc/tarnfs/host
yes "another host takes a page" mount -t tarnfs -o host=2 $dev "$m"
umount "$m"
echo "uuid=02020202-0202-4202-8202-020202020202" >/etc/tarnfs/host
yes "and one more, which stays claimed" mount -t tarnfs $dev "$m"
umount -i "$m"
rm /etc/tarnfs/host
refuse "mkfs names the claimed page alone" 1 "have mounted: page 1 claimed by 02020202-[^,]*: not made" mkfs.tarnfs -f $dev
yes "mkfs" mkfs.tarnfs -q -f --hosts-fenced --hosts 4 $dev

# ---- host= ----
refuse "host=N with another page: refused" 32 "host=3: this host has page 0 already; leave host= out" mount -t tarnfs -o host=3 $dev "$m"
no "... nothing is mounted" mounted
printf '# page of this host\n\nhost = 2\n' >/etc/tarnfs/host
refuse "... in /etc/tarnfs/host too" 32 "host=2: this host has page 0 already" mount -t tarnfs $dev "$m"
rm /etc/tarnfs/host
yes "host=N with that page" mount -t tarnfs -o host=0 $dev "$m"

# ---- remount ----
for o in coherent host=1 role=client; do
	refuse "remount with $o" 32 "option '${o%%[!a-z]*}.*remount changes ro and rw alone: umount and mount again" \
		mount -o "remount,rw,$o" "$m"
done
yes "remount with what is so already, and dax" mount -o remount,ro,host=0,role=master,dax "$m"
yes "... is read-only now" grep -q " $m tarnfs ro" /proc/mounts
yes "remount rw" mount -o remount,rw "$m"
yes "umount" umount "$m"
yes "mount coherent" mount -t tarnfs -o coherent $dev "$m"
yes "remount of it" mount -o remount,ro "$m"
yes "umount" umount "$m"

# ---- mount ----
: >"$work/file"
refuse "mount on a file" 32 "$work/file: is not a directory" mount.tarnfs $dev "$work/file"
cp /etc/fstab "$work/fstab" 2>/dev/null || : >"$work/fstab"
echo "$dev $m tarnfs frobnicate 0 0" >>/etc/fstab
refuse "mount -a: a bad option names device and directory" 1 "$dev on $m: option 'frobnicate' is unknown" \
	sh -c "mount -a -t tarnfs || exit 1"
cp "$work/fstab" /etc/fstab
refuse "mount -v says who it is" 0 "this host is the master" mount -v -t tarnfs $dev "$m"
refuse "... and mkfs.tarnfs names an absent device" 1 "/dev/pmem9: there is no such device" mkfs.tarnfs /dev/pmem9
exec 9<"$m/."
refuse "umount -l says until when the page is claimed" 0 "takes it again, once the last file is closed" umount -l "$m"
refuse "... that is so" 32 "mounted on this host already" mount.tarnfs $dev "$m"
exec 9<&-
yes "... afterwards it is mounted again" mount -t tarnfs $dev "$m"

# ---- creating ----
yes "mkdir" tarnfs mkdir "$m/d"
refuse "creat of a directory" 1 "$m/d: exists already and is a directory" tarnfs creat "$m/d"
refuse "creat of a missing name with a slash" 1 "$m/typo/: no such directory" tarnfs creat "$m/typo/"
refuse "ln of one" 1 "$m/typo/: no such directory" tarnfs ln -s x "$m/typo/"
refuse "mkdir -p through what is missing" 1 "create that first" tarnfs mkdir -p "$m/x/../y"
refuse "no space: the path as given, and what next" 1 "^tarnfs creat: $m/d/../huge: no space: .*; space is not given back yet" \
	tarnfs creat -s 100G "$m/d/../huge"
yes "creat" tarnfs creat "$m/d/f"
refuse "ln over a name: the path as given" 1 "^tarnfs ln: $m/d/./f: exists already" tarnfs ln -s x "$m/d/./f"
refuse "creat of a long name" 1 "^tarnfs creat: $m/000.*: a name in it has 256 bytes, and at most 255" tarnfs creat "$m/$(printf '%0256d' 1)"

# ---- status ----
yes "creat" tarnfs creat "$m/one" "$m/two"
same "the master has applied what it committed" "$(value 'seq committed')" "$(applied)"
refuse "status says last published" 0 "last published (its clock)  uuid" tarnfs status "$m"
refuse "... and map_sync" 0 "^mounted  *rw.*,map_sync" tarnfs status "$m"
before=$(value 'log used' | cut -d ' ' -f 1)
i=0
while [ $i -lt 1000 ]; do
	echo "0 - $m/d/name-$i"
	i=$((i + 1))
done | tarnfs creat --from -
same "128 bytes of log a name" 128 $((($(value 'log used' | cut -d ' ' -f 1) - before) / 1000))

# ---- plain tools ----
yes "creat of a file to store a stream in" tarnfs creat -s 1M -m 644 "$m/stream"
yes "... dd" sh -c "seq 1 100000 | dd of='$m/stream' conv=notrunc,fsync iflag=fullblock bs=64K 2>/dev/null"
yes "... is there" sh -c "seq 1 100000 | cmp -n 588895 - '$m/stream'"
yes "1<>FILE" sh -c "printf begin 1<>'$m/stream'"
same "... is there" begin "$(head -c 5 "$m/stream")"
refuse "past the size" 1 "No space" sh -c "dd if=/dev/zero bs=1M count=2 1<>'$m/stream'"
refuse "> FILE" 1 "not permitted" sh -c "echo x >'$m/stream' || exit 1"
refuse "> of a new name" 1 "not permitted" sh -c "echo x >'$m/new' || exit 1"
refuse "plain cp" 1 "not permitted" cp /etc/fstab "$m/new"
refuse "plain mkdir" 1 "not permitted" mkdir "$m/new"
refuse "plain mv" 1 "not permitted" mv "$m/one" "$m/new"
refuse "plain rm" 1 "not permitted" rm -f "$m/one"
refuse "plain chmod" 1 "not permitted" chmod 600 "$m/one"
refuse "plain touch" 1 "not permitted" touch "$m/one"
# what a killed command had reserved
free=$(value free)
truncate -s 4M "$work/big"
yes "cp that is killed" sh -c "TARNFS_STOP_AT=mid-copy tarnfs cp '$work/big' '$m/big'; test \$? = 137"
no "... has left no name" test -e "$m/big"
yes "the next creating command" tarnfs mkdir "$m/next"
same "... has its space back" "$free" "$(value free)"

# ---- fstab ----
echo "$dev $m tarnfs nofail,_netdev,x-systemd.requires=network-online.target 0 0" >>/etc/fstab
yes "umount" umount "$m"
yes "mount from fstab" mount "$m"
mkdir -p "$work/bind"
mount --bind "$m" "$work/bind"
same "umount of a bind mount has nothing to say" "" "$(umount "$work/bind" 2>&1)"
mount --bind "$m" "$work/bind"
umount "$m" 2>"$work/err"
same "... nor that of the original" "" "$(cat "$work/err")"
refuse "... the page is still this host's" 0 "this host" tarnfs status "$work/bind"
yes "the last umount" umount "$work/bind"
refuse "... lets the page go" 0 "^ *0 *bound" tarnfs status $dev
yes "mount again" mount "$m"
yes "umount" umount "$m"
cp "$work/fstab" /etc/fstab
echo "$dev $m tarnfs user,noauto 0 0" >>/etc/fstab
chmod u+s "$(command -v mount)"
refuse "option user: only root mounts all the same" 1 "only root can mount" \
	setpriv --reuid 65534 --regid 65534 --clear-groups mount "$m"
yes "... which it may" mount "$m"
yes "... with what user implies" grep -q " $m tarnfs rw,nosuid,nodev,noexec" /proc/mounts
(cd "$m" && umount -r "$m") 2>/dev/null
yes "umount -r of a busy one keeps that" grep -q " $m tarnfs ro,nosuid,nodev,noexec" /proc/mounts
yes "umount" umount "$m"
cp "$work/fstab" /etc/fstab
refuse "LABEL= is not known" 1 "LABEL=x\|can't find" mount -t tarnfs LABEL=x "$m"

finish
