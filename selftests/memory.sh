# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=sh
#
# For tests that take the device's memory away and give it back: the driver of /dev/pmem0,
# or the one that serves a devdax to tarnfs. Sourced after lib.sh.

dev=${TARN_DEV:-/dev/pmem0}
# shellcheck disable=SC2034 # for the tests
f=/selftests/memfail
if [ -b "$dev" ]; then
	mem_name=$(basename "$(readlink -f "/sys/block/${dev#/dev/}/device")")
	mem_driver=/sys/bus/nd/drivers/nd_pmem
else
	mem_name=${dev#/dev/}
	mem_driver=$(readlink -f "/sys/bus/dax/devices/$mem_name/driver")
fi

take() {
	echo "$mem_name" >"$mem_driver/unbind"
}

is_bound() {
	[ -e "$mem_driver/$mem_name" ] && [ -e "$dev" ]
}

give() {
	# a driver that was loaded anew has to be told the name, which binds it too
	sh -c 'echo "$0" >"$1"' "$mem_name" "$mem_driver/bind" 2>/dev/null ||
		sh -c 'echo "$0" >"$1"' "$mem_name" "$mem_driver/new_id" || return 1
	wait_until is_bound
}

# the page structures are made anew, and what the driver had noted is forgotten
rebind() {
	take && give
}
