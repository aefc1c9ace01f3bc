// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package nodes measures simulated nodes of a real control plane: examples/virtualnode beside KWOK. It sees both through watches and the metrics
// of the API server, and through /proc.
//
//	make bench-nodes                                              # 10, 100 and 1,000 nodes
//	make bench-nodes BENCHFLAGS='-nodes 100 -rest 1m -repeat 3'   # one size, three times
//	make bench-nodes BENCHFLAGS='-nodes 1000 -rest 1h -together'  # does memory grow?
//
// # Measurements
//
// Each size and each repeat measures every simulator with etcd, API server, scheduler and controller manager of its own, one after the other, or at
// the same time with -together:
//
//   - ready: from the start of the simulator until a watcher has seen all nodes Ready. The harness creates the Node objects for KWOK before that;
//     nodes of virtualnode create their own.
//   - scaled: a Deployment is created with -pods pods per node. All running is the time from its creation until a watcher has seen the last
//     pod with phase Running, and pods per second follow from it. p50 and p99 are the times of single pods between two events of the watcher: that
//     of the binding and that of phase Running. Requests are those that the API server has counted in that time, and API server CPU is its own.
//   - at rest: after -settle, CPU time and resident memory of the simulator and CPU time of the API server over -rest. Growth is the
//     difference of the resident memory between its start and its end. Kept Ready is the lowest number of Ready nodes at any time since all
//     were Ready.
//
// KWOK has the stages of its default configuration, node-initialize, node-heartbeat-with-lease, pod-ready, pod-complete and pod-delete, and leases of 40 s,
// as kwokctl sets them. Its containers have no probes, events, back-off and usage; those of virtualnode have.
//
// The scheduler and the controller manager have no rate limit for requests. On a machine with two processors they, etcd and the API server
// use most of the time while pods are created, so that pods per second are mostly theirs.
package nodes
