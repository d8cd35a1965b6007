# Functions that install missing Debian packages. The scripts that source this file define
#
#     missing    prints the packages of all programs that are not installed
#     needed_by  who needs them, for messages, such as "The tests"
#
# and call install_missing. It uses apt-get if it is allowed to (as root, or with
# passwordless sudo). Otherwise it says what to install and fails. It leaves no server
# running or enabled at boot.

# Servers are often installed outside the PATH of a normal user.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
export PATH

policy=/usr/sbin/policy-rc.d
script=$(basename "$0")

have() { command -v "$1" >/dev/null 2>&1; }

have_postgres() {
	for initdb in /usr/lib/postgresql/*/bin/initdb /usr/pgsql-*/bin/initdb /opt/homebrew/opt/postgresql@*/bin/initdb; do
		[ -x "$initdb" ] && return 0
	done
	have initdb
}

# give_up prints the manual steps and fails.
give_up() {
	echo "$script: $1" >&2
	echo "$needed_by need these packages (Debian names; on other systems, the packages with the same programs):" >&2
	echo "    $2" >&2
	echo "On Debian or Ubuntu:" >&2
	echo "    sudo apt-get update && sudo apt-get install -y --no-install-recommends $2" >&2
	echo "Then stop the services that this starts, and try again." >&2
	exit 1
}

# deny_services prevents packages from starting their service during installation.
# allow_services undoes it.
deny_services() {
	if [ -e "$policy" ]; then
		status=0
		"$policy" redis-server start >/dev/null 2>&1 || status=$?
		[ "$status" -eq 101 ] && return 0 # already denied, as in most containers
		mv "$policy" "$policy.before-leased"
	fi
	trap allow_services EXIT
	trap 'exit 1' HUP INT TERM
	printf '#!/bin/sh\nexit 101\n' >"$policy"
	chmod 755 "$policy"
}

allow_services() {
	rm -f "$policy"
	if [ -e "$policy.before-leased" ]; then
		mv "$policy.before-leased" "$policy"
	fi
}

# keep_down disables the services that the packages enable at boot.
keep_down() {
	[ -d /run/systemd/system ] || return 0
	for package; do
		case $package in
		redis-server | postgresql) systemctl disable --quiet "$package" || true ;;
		mariadb-server) systemctl disable --quiet mariadb || true ;;
		prometheus) systemctl disable --quiet prometheus || true ;;
		esac
	done
}

install_packages() {
	deny_services
	export DEBIAN_FRONTEND=noninteractive
	# Another process may hold the package lock.
	wait='-o DPkg::Lock::Timeout=300'
	# shellcheck disable=SC2086 # word splitting is intended
	apt-get $wait -q update || echo "$script: apt-get update failed; using the existing package lists" >&2
	# shellcheck disable=SC2086
	apt-get $wait -q install -y --no-install-recommends "$@" || return 1
	keep_down "$@"
}

install_missing() {
	packages=$(missing | tr '\n' ' ')
	packages=${packages% }
	[ -n "$packages" ] || exit 0

	have apt-get || give_up "packages are missing, and apt-get is not available" "$packages"
	if [ "$(id -u)" -ne 0 ]; then
		have sudo && sudo -n true 2>/dev/null ||
			give_up "packages are missing, and installing them needs root" "$packages"
		echo "$script: installing $packages with sudo" >&2
		exec sudo -n sh "$0"
	fi
	echo "$script: installing $packages" >&2
	# shellcheck disable=SC2086 # word splitting is intended
	install_packages $packages || give_up "apt-get could not install all packages" "$packages"

	packages=$(missing | tr '\n' ' ')
	packages=${packages% }
	[ -z "$packages" ] || give_up "packages were installed, but programs are still missing" "$packages"
}
