# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=sh
#
# What the shell tools share: messages, the package list, the cache folder.
# Sourced with $tools set to this folder.

TARNFS_CACHE=${TARNFS_CACHE:-/var/cache/tarnfs}
export TARNFS_CACHE

say() {
	printf '%s\n' "== $*"
}

die() {
	printf '%s\n' "${0##*/}: $*" >&2
	exit 1
}

# run_logged LOG CMD...: the command's output goes to LOG and is shown only when it fails.
run_logged() {
	_log=$1
	shift
	if ! "$@" >"$_log" 2>&1; then
		tail -n 40 "$_log" >&2
		return 1
	fi
}

# package_list [LIST]: of this folder, tools/packages without one
package_list() {
	sed 's/#.*//' "${tools:?}/${1:-packages}" | tr -s '[:space:]' '\n' | grep .
}

missing_packages() {
	for _p in $(package_list "${1:-packages}"); do
		# shellcheck disable=SC2016
		_s=$(dpkg-query -W -f='${Status}' "$_p" 2>/dev/null) || _s=
		case $_s in
		*' ok installed') ;;
		*) printf '%s\n' "$_p" ;;
		esac
	done
}

# apt_update: once a process tree, and only when somebody needs it.
apt_update() {
	[ -z "${TARNFS_APT_UPDATED:-}" ] || return 0
	say "apt-get update"
	apt-get -q -o DPkg::Lock::Timeout=300 update >"$TARNFS_CACHE/apt-update.log" 2>&1 ||
		{ tail -n 20 "$TARNFS_CACHE/apt-update.log" >&2; die "apt-get update failed"; }
	TARNFS_APT_UPDATED=1
	export TARNFS_APT_UPDATED
}

# install_packages [LIST]
install_packages() {
	mkdir -p "$TARNFS_CACHE"
	_m=$(missing_packages "${1:-packages}")
	[ -n "$_m" ] || return 0
	[ "$(id -u)" = 0 ] || die "must be root to install:" "$(echo "$_m" | tr '\n' ' ')"
	apt_update
	say "installing" "$(echo "$_m" | tr '\n' ' ')"
	# shellcheck disable=SC2086
	DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends \
		-o DPkg::Lock::Timeout=300 install $_m >"$TARNFS_CACHE/apt-install.log" 2>&1 ||
		{ tail -n 20 "$TARNFS_CACHE/apt-install.log" >&2; die "apt-get install failed"; }
}
