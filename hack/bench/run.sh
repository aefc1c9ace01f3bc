#!/usr/bin/env bash
# SPDX-FileCopyrightText: The nodeagent Authors
# SPDX-License-Identifier: Apache-2.0

# Measures examples/agent on the lab, which has to be up: hack/bench/run.sh [FLAG OF hack/bench]...
# KUBELET=path measures that kubelet too (hack/bench/kubelet.sh builds one), and AGENTS="NAME=PATH ..." other builds of
# examples/agent, such as that of an earlier commit, as far as they know the fields of the config below. VM=uml or VM=qemu does all of that in the kernel of hack/vm, which
# has cgroup v2, on a lab of its own.
set -euo pipefail
cd "$(dirname "$0")/../.."

. hack/bench/internal/run.sh

if [ -z "${IN_TEST_VM:-}" ]; then build .lab/bin examples/agent hack/bench; fi
if [ -n "${VM:-}" ] && [ -z "${IN_TEST_VM:-}" ]; then
	export VM_MEM=${VM_MEM:-2048} VM_TIMEOUT=${VM_TIMEOUT:-3600}
	exec "hack/vm/$VM" .lab/bin/lab exec hack/bench/run.sh "$@"
fi

# User Mode Linux names no clock speed, and a kubelet does not start without one.
if [ -n "${IN_TEST_VM:-}" ] && ! grep -q '^cpu MHz' /proc/cpuinfo; then
	cpuinfo=$(mktemp)
	sed 's/^\(bogomips.*\)/cpu MHz\t\t: 2000.000\n\1/' /proc/cpuinfo >"$cpuinfo"
	mount --bind "$cpuinfo" /proc/cpuinfo
fi

set_up bench
# Pods get cgroups, no image goes however full the disk is, and a log of every status is not what is measured.
cat >"$work/agent.yaml" <<YAML
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
case " $* " in *" -volumes"*) printf 'objectsDir: objects\n' >>"$work/agent.yaml" ;; esac # where the bench puts the config map
agents=()
for agent in "agent=.lab/bin/agent" ${AGENTS:-}; do
	agents+=(-agent "$agent -config $work/agent.yaml -container-runtime-endpoint {cri} -pod-manifest-path {manifests} -root-dir $work/node")
done
.lab/bin/bench -cri "$endpoint" -image nodeagent.test/busybox:1 "${agents[@]}" ${KUBELET:+-kubelet "$KUBELET"} "$@"
