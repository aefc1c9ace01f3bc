#!/bin/bash
# SPDX-FileCopyrightText: The nodeagent Authors
# SPDX-License-Identifier: Apache-2.0
#
# systemd.sh COMMAND [ARG...]: runs a command under a real systemd, as root in a throw-away VM.
#
#   go test -count=1 -exec "$PWD/hack/vm/systemd.sh" -run TestIntegrationSystemd ./cgroups/driver/...
#
# Systemd is PID 1 of its own PID namespace and has the cgroups of the whole VM. It has no units except dbus and its
# dependencies, so that it starts fast. The command runs in that namespace, with NODEAGENT_SYSTEMD=1 in its environment.
# It reaches systemd by the message bus and by systemd's own socket. Its exit status is passed on.
#
# VM_RUNNER is the script that starts the VM: hack/vm/uml, or hack/vm/qemu for cpuset, hugetlb and PSI.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
units=/usr/lib/systemd/system

# Outside of the VM: install systemd if it is missing, and start the VM with this script as its command.
if [ -z "${IN_TEST_VM:-}" ]; then
	if [ ! -x /usr/lib/systemd/systemd ] || [ ! -x /usr/bin/dbus-daemon ] || [ ! -e $units/dbus.socket ]; then
		install=(apt-get install -y --no-install-recommends systemd dbus)
		"${install[@]}" >&2 || { apt-get update >&2 && "${install[@]}" >&2; }
	fi
	# The flags of go test name files beside the test binary, which would be read-only in the VM.
	case ${1:-} in
	*/go-build*/*.test) export VM_RW="${VM_RW:+$VM_RW:}$(dirname "$1")" ;;
	esac
	exec "${VM_RUNNER:-$here/uml}" "${BASH_SOURCE[0]}" "$@"
fi

# Inside: hide the units and generators of this machine, and create the few that are needed.
work=$(mktemp -d)
cp $units/dbus.socket $units/dbus.service "$work"
for dir in $units /etc/systemd/system /usr/lib/systemd/system-generators; do
	mkdir -p $dir && mount -t tmpfs none $dir
done
cp "$work"/dbus.* $units
for target in sysinit basic sockets shutdown; do
	echo "[Unit]" >$units/$target.target
done
printf '[Unit]\nWants=dbus.service\n' >$units/default.target

setsid unshare --fork --pid --mount --mount-proc --kill-child -- env -i container=nodeagent PATH="$PATH" \
	/usr/lib/systemd/systemd --system --log-target=console --log-level=info --show-status=no \
	</dev/null >"$work/log" 2>&1 &
unshare=$!

# In the parent's namespaces systemd is the only child of unshare.
init() { cat /proc/$unshare/task/$unshare/children | tr -d ' '; }
enter() { nsenter --target "$(init)" --pid --mount --wdns="$PWD" -- "$@"; }

ready=
for ((i = 0; i < 300; i++)); do
	if [ -S /run/systemd/private ] && enter busctl --timeout=1 status org.freedesktop.systemd1 >/dev/null 2>&1; then
		ready=1
		break
	fi
	sleep 0.1
done
if [ -z $ready ]; then
	echo "systemd.sh: systemd did not come up:" >&2
	cat "$work/log" >&2
	exit 125
fi

status=0
NODEAGENT_SYSTEMD=1 enter "$@" || status=$?
if [ $status != 0 ]; then
	echo "systemd.sh: output of systemd:" >&2
	tail -n 40 "$work/log" >&2
fi
exit $status
