// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package nodestatus makes the Node object of a machine out of what is known of it: addresses, capacity and allocatable, conditions,
// images, the runtime, and the events that follow. It decides whether that is worth a request and what the request says, and sends
// none: package heartbeat does.
//
// # Model
//
// [Facts] is everything that is known at one time, the time among it. From it [Initial] makes the object to create, and [Build] makes the
// next one out of the one that the API server has:
//
//	node, events := nodestatus.Build(previous, facts)
//	if nodestatus.Changed(previous, node) {
//		patch, err := nodestatus.Patch(previous, node)
//		... // a strategic merge patch of subresource status; then emit events
//	}
//
// [Reconcile] is for an agent that finds its object there when it registers. All of these are pure: they read no clock, and the same
// arguments have the same answer. What they make shares nothing with their arguments.
//
// [Config] is what the operator decides; [Config.Validate] and [Config.ValidateReserved] say what is wrong with it before anything is
// registered. [NodeName], [ParseLabels], [ParseTaints] and [ParseNodeIPs] read what the kubelet has as flags.
//
// Facts come from small interfaces: [Conditions], [Capacity], [Images], [DeviceCapacity], [Volumes] and [Runtime]. [Root] and [Lookup]
// read them from a machine. What a source does not know is missing in Facts, and the object keeps what it has there: a fact that is lost for
// a while never makes a node smaller.
//
// # What is whose
//
// Only what a node agent owns is ever changed: four conditions, its own resources, and no taint, no label of others and nothing of the spec
// of an object that is there. A [Patch] has these alone, so that others may write at the same time.
//
// # Concurrency
//
// Nothing is kept. Facts and objects may be used by several goroutines as long as none writes to them.
//
// # Errors
//
// Build has none: what cannot be said is left as it is, and [Problems] says why, a line each. Errors about a configuration name the
// setting and its value, a line each, and are cut to a length that a log can have.
//
// # Differs from the kubelet
//
// The behaviour is that of pkg/kubelet/nodestatus and pkg/kubelet/kubelet_node_status.go at 1.37.1. DIFFERENCES.md has the whole list. What
// a user has to know:
//
//   - kubeletVersion is [Version], which says whose behaviour it is and that this is another agent.
//   - No port is published unless Config.Port has one.
//   - A configuration that the API server would refuse for ever is an error at the start.
//   - A machine of which nothing can be read has no capacity and is not ready, instead of having none of it.
//   - A patch has the UID of its Node, so that it fails on one that was made anew.
//
// # When not to use it
//
// To change Node objects of other machines, or parts of one that a controller owns: use a client.
//
// Test kit: none is needed, everything but [Lookup] is a pure function or reads a file system that is handed in.
package nodestatus
