#!/usr/bin/env bash
# SPDX-FileCopyrightText: The nodeagent Authors
# SPDX-License-Identifier: Apache-2.0

# Measures examples/agent on the lab, which has to be up: hack/bench/run.sh [FLAG OF hack/bench]...
# KUBELET=path measures that kubelet too (hack/bench/kubelet.sh builds one), and AGENTS="NAME=PATH ..." other builds of
# examples/agent, such as that of an earlier commit. VM=uml or VM=qemu does all of that in the kernel of hack/vm, which
# has cgroup v2, on a lab of its own.
set -euo pipefail
cd "$(dirname "$0")/../.."

if [ -z "${IN_TEST_VM:-}" ]; then
	for package in examples/agent hack/bench; do
		CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o ".lab/bin/$(basename "$package")" "./$package"
	done
fi
if [ -n "${VM:-}" ] && [ -z "${IN_TEST_VM:-}" ]; then
	export VM_MEM=${VM_MEM:-2048} VM_TIMEOUT=${VM_TIMEOUT:-3600}
	exec "hack/vm/$VM" .lab/bin/lab exec hack/bench/run.sh "$@"
fi

endpoint=$(.lab/bin/lab status | awk '$1 == "endpoint" { print $2 }')
[ -n "$endpoint" ] || { echo "run.sh: the lab is not up: make lab" >&2; exit 1; }
# The agents' kubepods goes into a cgroup of this run's own, in every hierarchy that is mounted.
root=nodeagent-bench-$$
trees=()
for tree in /sys/fs/cgroup /sys/fs/cgroup/*; do
	if [ -e "$tree/cgroup.procs" ] && [ ! -L "$tree" ]; then trees+=("$tree"); fi
	if [ -e /sys/fs/cgroup/cgroup.procs ]; then break; fi # cgroup v2 is one tree
done
state=$(mktemp -d)
cleanup() {
	rm -rf "$state"
	for tree in "${trees[@]}"; do find "$tree/$root" -depth -type d -exec rmdir {} + || true; done
}
trap cleanup EXIT
mkdir "${trees[@]/%//$root}"
# Pods get cgroups, and a log of every status is not what is measured.
printf 'cgroupRoot: /%s\nlogLevel: WARN\n' "$root" >"$state/agent.yaml"
agents=()
for agent in "agent=.lab/bin/agent" ${AGENTS:-}; do
	agents+=(-agent "$agent -config $state/agent.yaml -runtime {cri} -manifests {manifests} -state $state/node")
done
.lab/bin/bench -cri "$endpoint" -image nodeagent.test/busybox:1 "${agents[@]}" ${KUBELET:+-kubelet "$KUBELET"} "$@"
