// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package cluster measures node agents as nodes of a real control plane, from outside: through a watch of the API server, its audit log,
// the container runtime and /proc. It shares no code with what it measures, and says nothing about correctness.
//
//	make bench-cluster KUBELET=.lab/bin/kubelet                                # as hack/bench/run.sh cluster does
//	make bench-cluster BENCHFLAGS='-n 10 -rest 10s -kills 3 -services 100'     # a quick look
//
// # What a measurement is
//
// The floor first: as many pods by bare CRI calls, as bench static measures them, at the best degree of parallelism. Then, for every
// repeat, the agent and the kubelet in turn, each as a node of its own of one control plane on one containerd, which is empty before:
//
//   - bound: -n pods exist and wait for a node, and are bound at once. All running is the time from the first binding until a watcher has
//     seen the last pod with phase Running; p50 and p99 are of the pods, each from its own binding. Requests are those for pods that the
//     node has made meanwhile, and of these the status requests: GET and PATCH of the kubelet for each change.
//   - at rest: after -settle, requests a minute of the node over -rest by the audit log, memory that is resident at the end of it, and
//     CPU time in millicores.
//   - killed: from SIGKILL of the first process of a container to the moment at which the runtime tells of its death (GetContainerEvents),
//     and to that at which a watcher sees it in the status of the pod. Gaps between kills are random, and no container is killed twice.
//   - services: how much more memory is resident when the cluster has -services more services.
//
// The pods have the token volume that the API server gives to every pod; those of the floor have none. The kubelet has no cgroups per
// QoS class, no iptables and no image garbage collection, which makes it cheaper than it is in a cluster. Neither serves its API:
// bench api measures that.
//
// The moments of a watch are those at which the harness got them, on the same machine. What etcd, API server and the harness take of its
// processors is the same for all agents, and is missing in the floor: on a machine of two cores the ratio to the floor is an upper bound.
//
// # What it leaves
//
// Nothing: the control plane, its files, nodes and pods go at the end, also after a failure or SIGINT.
package cluster
