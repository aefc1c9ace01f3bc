// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package nodestatus builds the Node object of a machine from facts: addresses, capacity and allocatable, conditions, images and the
// runtime, and the events about changes of them. It sends nothing: package heartbeat sends its objects and patches to the API server.
//
// [Facts] has all inputs, including the time. [Initial] builds the object to create, and [Build] the successor of the object at the API
// server:
//
//	node, events := nodestatus.Build(previous, facts)
//	if !nodestatus.Changed(previous, node) {
//		return nil
//	}
//	patch, err := nodestatus.Patch(previous, node)
//	if err != nil {
//		return err
//	}
//	// send patch as strategic merge patch of subresource status
//	for _, event := range events {
//		record(event)
//	}
//
// [Reconcile] is for the registration of a Node that exists already. These functions are pure: they read no clock, and their results share
// no memory with their arguments.
//
// [Config] is the configuration by the operator; [Config.Validate] and [Config.ValidateReserved] check it. [NodeName], [ParseLabels],
// [ParseTaints] and [ParseNodeIPs] parse kubelet flags.
//
// The sources of facts are small interfaces: [Conditions], [Capacity], [Images], [DeviceCapacity], [Volumes] and [Runtime]. [Root] and
// [Lookup] read a machine. If a fact is unknown, Build keeps its previous value in the object: a failing source never reduces the capacity
// of a node.
//
// Build changes only fields that a node agent owns: four conditions, its own resources and its default labels. It changes no taint, and
// nothing in the spec of an existing object. A [Patch] contains only these fields, so that other clients may write concurrently.
//
// # Concurrency
//
// The package has no state. Facts and objects may be read by several goroutines.
//
// # Errors
//
// Build returns no error: it keeps values that it cannot compute, and [FactErrors] returns the reasons. Errors about a configuration name
// the setting and its value, one per line.
//
// # Differs from the kubelet
//
// The model is pkg/kubelet/nodestatus and pkg/kubelet/kubelet_node_status.go at 1.37.1. DIFFERENCES.md has the whole list. Main ones:
//
//   - kubeletVersion is [Version], which names this agent after the kubelet's version.
//   - No port is published unless Config.Port is set.
//   - A configuration that the API server would always reject is an error at the start.
//   - A new Node of a machine that cannot be read has no capacity and is not ready.
//   - A patch has the UID of its Node, so that it fails for a recreated Node.
//
// Test kit: none is needed; only [Lookup] reads the machine itself, all other functions are pure or read an fs.FS.
package nodestatus
