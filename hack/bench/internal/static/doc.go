// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package static measures node agents that run static pods, from outside: it starts each one by its command line, and
// watches the container runtime through CRI and the agent's processes through /proc. It shares no code with what it
// measures, judges nothing but what can be seen there, and says nothing about correctness.
//
//	bench static -cri unix:///run/containerd/containerd.sock -image nodeagent.test/busybox:1 \
//		-agent 'agent=/tmp/agent -container-runtime-endpoint {cri} -pod-manifest-path {manifests}' -kubelet .lab/bin/kubelet \
//		-n 30,100 -repeat 3 -json figures.json
//
// hack/bench/run.sh static does that for examples/agent on the containerd of this checkout's lab, and with VM=uml in a kernel
// with cgroup v2 (hack/vm), which has one CPU and is several times slower.
//
// An agent is NAME=COMMAND, split at spaces (there is no quoting), with {cri} for the runtime's endpoint, {manifests}
// for the directory of manifests and {work} for a scratch directory that is its own; it is started there. It has to label what it creates as
// the kubelet does (io.kubernetes.pod.namespace, io.kubernetes.pod.uid). hack/bench/kubelet.sh builds the kubelet.
//
// # What a measurement is
//
// For every repeat and every number of pods, every agent and the floor in turn, each repeat beginning with the next of them,
// and each when the machine is at rest, has let go of the memory cgroups of removed pods (which slow down whatever comes
// after them), and has run one pod:
//
//   - all running: from the start of the agent, with the manifests in place, to the start of the last container; and
//     first running, to that of the first. The moment is the runtime's own StartedAt, so it does not depend on how often
//     the harness looks.
//   - idle: after -settle, CPU time of the agent's session over -idle, in millicores, and its memory at the
//     end of that. The harness sleeps meanwhile. The runtime's CPU in the same time is shown too, because an agent that
//     polls spends most of its cost there; so is the whole machine's, which tells how quiet the machine was.
//     Part of it is nobody's calls: containerd 2.4 reads the cgroup of every pod that has one, each second, and on cgroup v1 all
//     of its files (internal/cri/server/stats_collector.go). The kubelet that is started here gives pods none (cgroupsPerQOS is
//     off, as it would want the cgroups of the host), nor does the floor, so they are spared what agents with pod cgroups are not.
//   - replaced: from SIGKILL of a container's first process to StartedAt of its replacement. The gaps between kills are
//     random (1 to 3 s), or an agent that looks every second would meet the harness always at the same moment of its
//     second; no container is killed twice, so that no crash back-off takes part.
//   - gone: from the removal of all manifests until no container runs, until no sandbox is ready, and until no sandbox
//     is left. The kubelet removes sandboxes by its garbage collector, once a minute: compare the first two.
//   - the size of the binary, as it is (strip both, or neither).
//
// # The floor
//
// The floor is the same pods by bare CRI calls, with the configuration that the kubelet sends, at each degree of
// parallelism of -parallel; the best degree counts, by its median. No agent can be faster than the runtime, and how fast
// that is depends on the machine and the day: quote ratios of one run, not seconds of two. The floor of a replacement is
// CreateContainer and StartContainer in a pod that is there; a second row has kill, death seen, create and start.
// How long the runtime takes to see that a container has died is in the second row alone, and in every figure of an agent:
// containerd tells nobody before it has cleaned up behind the process. The floor's idle figures are those of a runtime that
// nobody talks to.
//
// The pods of agents have the limits of -limits. The floor has none, whatever an agent's pods have: a limit of CPU slows
// down the runtime's own work in a pod, and that is a cost which an agent can avoid or not.
//
// With -volumes each pod has that many: an empty directory on disk, one in memory, a config map projected together with the labels of the
// pod, and again. The config map is at objects/NAMESPACE/configmaps in the directory in which an agent is started. A kubelet without an
// API server has no config maps and no projected volumes, so beside one only the first two kinds count. The floor makes the same volumes
// with the fewest system calls.
//
// # Where the time goes
//
// With -trace each measurement is followed by the CRI calls of its parts (starting, idle, replacing, stopping): how many,
// and in which time, and for how long how many of them were under way. Agents then talk to the runtime through a proxy in
// the harness, which costs about 0.1 ms of each call: figures of a run with -trace are not to be quoted. A quick look at
// starts and replacements alone is -idle 0 -kills 5 -parallel 4 -repeat 1.
//
// # How to read the table
//
// Figures are medians over all repeats unless the row says otherwise; kills are pooled over the repeats. "x floor" is the
// ratio to the floor (of the first pod: how much later it is), the last column compares agents of the same run. CPU figures have a resolution of one clock tick
// (10 ms) in -idle: a third of a millicore in 30 s. The header has the load before the start, and each
// measurement that before it: with other work on the machine the figures are noise, and the harness says so. "harness" rows are what the harness itself took.
//
// # What it leaves
//
// Nothing: pods carry a namespace of their run and are removed at the end of each measurement, also after a failure or
// SIGINT. A run that was killed leaves pods which -clean removes. The harness refuses to work on a runtime with pods of
// others unless told by -force, and always refuses to run a kubelet there: the kubelet stops every pod it does not know.
package static
