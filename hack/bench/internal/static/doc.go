// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package static measures node agents that run static pods, from outside: it starts each agent by its command line, and watches the
// container runtime by CRI and the agent's processes by /proc. It shares no code with the agents, and does not check their correctness.
//
//	bench static -cri unix:///run/containerd/containerd.sock -image nodeagent.test/busybox:1 \
//		-agent 'agent=/tmp/agent -container-runtime-endpoint {cri} -pod-manifest-path {manifests}' -kubelet .lab/bin/kubelet \
//		-n 30,100 -repeat 3 -json figures.json
//
// hack/bench/run.sh static does this for examples/agent on the containerd of the lab; with VM=uml in a kernel with cgroup v2 (hack/vm).
// An agent is NAME=COMMAND, split at spaces, with {cri} for the runtime's endpoint, {manifests} for the directory of manifests and {work}
// for its scratch directory, in which it is started. It must label its containers as the kubelet does (io.kubernetes.pod.namespace,
// io.kubernetes.pod.uid).
//
// # Measurements
//
// Each repeat measures every agent and the floor, in rotating order. Before each, the machine is at rest, the kernel has freed the memory
// cgroups of removed pods, which slow down later work, and one pod has run.
//
//   - all running, first running: from the start of the agent to the runtime's StartedAt of the last and of the first container.
//   - idle: after -settle, CPU time of the agent's session over -idle in millicores, and its memory at the end. The CPU time of the runtime
//     is shown too, because an agent that polls has most of its cost there, and that of the whole machine, as a sign of other work.
//     containerd 2.4 reads the cgroup of each pod that has one every second (internal/cri/server/stats_collector.go). The kubelet and the
//     floor give pods no cgroup and are spared this cost.
//   - replaced: from SIGKILL of a container's first process to StartedAt of its replacement. The gaps between kills are random, 1 to 3 s, so
//     that they do not meet a polling agent always at the same moment. No container is killed twice: no back-off takes part.
//   - gone: from the removal of all manifests until no container runs, no sandbox is ready, and no sandbox exists. The kubelet removes
//     sandboxes once a minute: compare the first two.
//   - the size of the binary; strip all or none.
//
// # The floor
//
// The floor creates the same pods by bare CRI calls with the kubelet's configuration, at each degree of -parallel; the best median counts.
// No agent can be faster than the runtime, whose speed differs by machine and day: quote ratios of one run. The floor of a replacement is
// CreateContainer and StartContainer; a second row adds kill and detection. The pods of agents have the limits of -limits, those of the
// floor have none: a CPU limit slows down the runtime's own work, which an agent can avoid.
//
// With -volumes each pod has that many volumes: an emptyDir on disk, one in memory, a config map projected with the pod's labels, and again.
// The config map is in objects/NAMESPACE/configmaps of the agent's directory. A kubelet without an API server has the first two kinds only.
//
// # Trace
//
// With -trace each measurement is followed by the number, duration and concurrency of the CRI calls of its parts. Agents then talk to the
// runtime through a proxy, which costs about 0.1 ms per call: do not quote the figures of such a run.
//
// # The table
//
// Figures are medians over all repeats; kills are pooled. "x floor" is the ratio to the floor (for the first pod the difference), the last
// column the ratio of agents of the same run. CPU has a resolution of one clock tick (10 ms), a third of a millicore in 30 s. With other
// work on the machine the figures are noise, and the output says so. Rows "harness" are the cost of the measurement itself.
//
// # Clean-up
//
// Pods have a namespace of their run and are removed after each measurement, also after a failure or SIGINT; -clean removes the pods of a
// killed run. The harness refuses a runtime with other pods unless -force is given, and never runs a kubelet there: it stops unknown pods.
package static
