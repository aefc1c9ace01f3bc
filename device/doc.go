// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package device decides which devices of a plugin a container gets, as the kubelet's device and topology managers do. It is pure: it talks to no
// plugin, stores nothing and starts no goroutine.
//
//	pool := &device.Pool{Resource: "example.com/gpu", Devices: devices, InUse: inUse}
//	hints, err := device.Hints(pool, request, machine)                       // sets of NUMA nodes with enough free devices
//	hint, admitted := device.Restricted.Merge([][]device.Hint{hints}, machine) // together with hints for CPUs and memory
//	request.Nodes = hint.Nodes
//	choice, err := device.Pick(pool, request)
//	preferred := ...                                                         // GetPreferredAllocation, if choice.Open is not empty
//	ids := choice.Complete(preferred)
//
// [Pick] is deterministic: of devices that are equally good, it takes the first of the pool. The kubelet takes any of them.
//
// All functions are safe for concurrent use, as long as no caller changes their arguments. Errors of [Pick] are the kubelet's, word by word.
//
// Test kit: none, because the functions are pure. The facts are from Kubernetes 1.37.1, pkg/kubelet/cm/devicemanager and pkg/kubelet/cm/topologymanager.
package device
