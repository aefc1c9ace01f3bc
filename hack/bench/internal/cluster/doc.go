// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package cluster measures node agents as nodes of a real control plane, from outside: through a watch of the API server, its audit log,
// the container runtime and /proc. It shares no code with the agents, and does not check their correctness.
//
//	make bench-cluster KUBELET=.lab/bin/kubelet                                # as hack/bench/run.sh cluster does
//	make bench-cluster BENCHFLAGS='-n 10 -rest 10s -kills 3 -services 100'     # a short run
//
// # Measurements
//
// The floor is measured first: the same number of pods by bare CRI calls, as in bench static, at the best degree of parallelism. Each
// repeat then measures the agent and the kubelet, each as its own node of one control plane on one containerd, which is empty before:
//
//   - bound: -n unscheduled pods are bound at the same time. All running is the time from the first binding until a watcher has received
//     the last pod with phase Running; p50 and p99 are the times of single pods from their own binding. Requests are the requests of the
//     node for pods in that time. Status requests are a subset: the kubelet sends GET and PATCH for each change.
//   - at rest: after -settle, requests per minute of the node over -rest by the audit log, resident memory at the end, and CPU time in
//     millicores.
//   - killed: from SIGKILL of the first process of a container to the event of the runtime (GetContainerEvents), and to the status of
//     the pod at a watcher. Gaps between kills are random, and no container is killed twice.
//   - services: the additional resident memory when the cluster has -services more services.
//
// The pods have the token volume that the API server gives to every pod; those of the floor have none. The kubelet has no cgroups per
// QoS class, no iptables and no image garbage collection, which makes it cheaper than in a cluster. Neither serves its API:
// bench api measures that.
//
// The time of a watch event is that of its receipt in the harness, on the same machine. etcd, API server and harness use the same share of
// the processors for all agents, but not during the floor: on a machine with two cores the ratio to the floor is an upper bound.
//
// # Clean-up
//
// The control plane, its files, nodes and pods are removed at the end, also after a failure or SIGINT.
package cluster
