#!/usr/bin/env bash
# SPDX-FileCopyrightText: The nodeagent Authors
# SPDX-License-Identifier: Apache-2.0

# Measures examples/agent on the lab, which has to be up, or simulated nodes, which need no lab:
# hack/bench/run.sh static|cluster|api|nodes [FLAG OF bench COMMAND]...
# KUBELET=path measures that kubelet, too (hack/bench/kubelet.sh builds one).
# static: AGENTS="NAME=PATH ..." also measures other builds of examples/agent, such as an earlier commit, if they accept the configuration
# below. VM=uml or VM=qemu measures in the kernel of hack/vm, which has cgroup v2, on a lab of its own.
# cluster: FLOOR=none does not measure bare CRI calls.
# nodes: KWOK=path and STAGES=path measure that kwok, too (hack/bench/kwok.sh builds one and writes its stages).
set -euo pipefail
cd "$(dirname "$0")/../.."
command=${1:?"usage: hack/bench/run.sh static|cluster|api|nodes [FLAG]..."}
shift

# build DIR builds examples/agent, examples/virtualnode and bench into DIR with release flags.
build() {
	CGO_ENABLED=0 go build -tags=grpcnotrace -trimpath -ldflags='-s -w' -o "$1/agent" ./examples/agent
	CGO_ENABLED=0 go build -tags=grpcnotrace -trimpath -ldflags='-s -w' -o "$1/virtualnode" ./examples/virtualnode
	CGO_ENABLED=0 go build -C hack/bench -tags=grpcnotrace -trimpath -ldflags='-s -w' -o "$(cd "$1" && pwd)/bench" .
}

# set_up finds the lab, sets $endpoint and $bridge to those of the lab, $work to a new directory, and $root to a new cgroup in every
# hierarchy that is mounted, for the kubepods of agents. Directory and cgroups are removed when the script exits.
set_up() {
	local lab tree
	lab=$(.lab/bin/lab status)
	endpoint=$(awk '$1 == "endpoint" { print $2; exit }' <<<"$lab")
	bridge=$(awk '$1 == "network" { print $4; exit }' <<<"$lab")
	[ -n "$endpoint" ] || { echo "run.sh: the lab is not up: make lab" >&2; exit 1; }
	root=nodeagent-bench-$command-$$
	trees=()
	for tree in /sys/fs/cgroup /sys/fs/cgroup/*; do
		if [ -e "$tree/cgroup.procs" ] && [ ! -L "$tree" ]; then trees+=("$tree"); fi
		if [ -e /sys/fs/cgroup/cgroup.procs ]; then break; fi # cgroup v2 is one tree
	done
	work=$(mktemp -d)
	trap clean_up EXIT
	mkdir "${trees[@]/%//$root}"
}

clean_up() {
	local tree
	rm -rf "$work"
	for tree in "${trees[@]}"; do find "$tree/$root" -depth -type d -exec rmdir {} + || true; done
}

bench_static() {
	# User Mode Linux reports no clock speed, and a kubelet does not start without one.
	if [ -n "${IN_TEST_VM:-}" ] && ! grep -q '^cpu MHz' /proc/cpuinfo; then
		cpuinfo=$(mktemp)
		sed 's/^\(bogomips.*\)/cpu MHz\t\t: 2000.000\n\1/' /proc/cpuinfo >"$cpuinfo"
		mount --bind "$cpuinfo" /proc/cpuinfo
	fi
	set_up
	# Pods get cgroups, images are never removed because of a full disk, and the agent does not log every status.
	cat >"$work/agent.yaml" <<-YAML
	apiVersion: kubelet.config.k8s.io/v1beta1
	kind: KubeletConfiguration
	cgroupRoot: /$root
	evictionHard: {}
	imageGCHighThresholdPercent: 100
	---
	apiVersion: nodeagent/v1alpha1
	kind: NodeConfiguration
	logLevel: WARN
	YAML
	case " $* " in *" -volumes"*) printf 'objectsDir: objects\n' >>"$work/agent.yaml" ;; esac # where bench writes the config map
	agents=()
	for agent in "agent=.lab/bin/agent" ${AGENTS:-}; do
		agents+=(-agent "$agent -config $work/agent.yaml -container-runtime-endpoint {cri} -pod-manifest-path {manifests} -root-dir $work/node")
	done
	.lab/bin/bench static -cri "$endpoint" -image nodeagent.test/busybox:1 "${agents[@]}" ${KUBELET:+-kubelet "$KUBELET"} "$@"
}

bench_cluster() {
	set_up
	floor=()
	if [ "${FLOOR:-}" = none ]; then floor=(-floor=false); fi
	.lab/bin/bench cluster -cri "$endpoint" -image nodeagent.test/busybox:1 -bridge "$bridge" -agent .lab/bin/agent -cgroup-root "/$root" \
		${KUBELET:+-kubelet "$KUBELET"} "${floor[@]}" "$@"
}

bench_api() {
	set_up
	.lab/bin/bench api -cri "$endpoint" -image nodeagent.test/busybox:1 -agent .lab/bin/agent -cgroup-root "/$root" \
		${KUBELET:+-kubelet "$KUBELET"} "$@"
}

bench_nodes() {
	.lab/bin/bench nodes -virtualnode .lab/bin/virtualnode ${KWOK:+-kwok "$KWOK" -stages "${STAGES:?"stages of KWOK"}"} "$@"
}

case $command in
static | cluster | api | nodes) ;;
*) echo "run.sh: unknown command $command: static, cluster, api or nodes" >&2 && exit 2 ;;
esac
if [ -z "${IN_TEST_VM:-}" ]; then build .lab/bin; fi
if [ -n "${VM:-}" ] && [ -z "${IN_TEST_VM:-}" ]; then
	export VM_MEM=${VM_MEM:-2048} VM_TIMEOUT=${VM_TIMEOUT:-3600}
	exec "hack/vm/$VM" .lab/bin/lab exec hack/bench/run.sh "$command" "$@"
fi
"bench_$command" "$@"
