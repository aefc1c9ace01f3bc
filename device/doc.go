// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package device decides which devices of device plugins a container gets, and records the devices of each container, as the kubelet's device and topology
// managers do. It speaks no gRPC: package device/plugin connects real plugins. It reads no pods: package poddevice converts them.
//
//	allocator, err := device.New(device.Options{Record: "/var/lib/agent/devices"})
//	go allocator.Run(ctx)
//	feed, err := allocator.Connect("example.com/gpu", socket, plugin) // a plugin has registered
//	err = feed.Update(devices)                                       // and lists its devices
//	err = allocator.Reserve(ctx, pod)                                // before anything of the pod starts
//	response, err := allocator.Start(ctx, pod.UID, "main")           // for the config of a container, at each start
//	err = allocator.Release(pod.UID)                                 // when the pod has terminated
//
// # Model
//
// Pure functions decide: [Pick] chooses devices for a request, [Hints] finds the NUMA nodes that can satisfy it, and [Policy.Merge] combines the hints
// of several resources. They are exported for studies of placement. An [Allocator] keeps the state of devices, plugins and pods, and calls the plugins.
// A [Partner] reserves CPUs or memory for a pod from the NUMA nodes of its devices.
//
// The record of an allocator is one file with a checksum. It is written before the answer of a plugin is used, so that a restart asks no plugin about
// containers that run. Each container also has an annotation with its devices, which replaces a lost record.
//
// # Concurrency
//
// All functions and methods may be called from any goroutine. A plugin that hangs delays only the pods that need its resource. Hooks are called with no
// lock held.
//
// # Errors
//
// A pod that cannot have its devices gets a [*Refusal] with the kubelet's reason and message. A pod whose plugin has not listed its devices since the
// agent started gets a [*WaitError], for at most [StopGrace]. After other errors, the call may be repeated.
//
// # Differs from the kubelet
//
// The fields of [Kubelet] switch these differences off. The kubelet does not wait for plugins after a restart. It runs a pod without the devices of a resource
// that no plugin has registered. It logs answers of plugins that contradict each other, and uses the first. It reports a device that no plugin lists as Healthy.
//
// Other differences: of equally good devices, [Pick] takes the first of the list; the kubelet takes any. PreStartContainer is called for a resource whose plugin
// wanted it before the restart, too. The devices of a pod are all free after a failed reservation. After a restart a pod keeps its devices, also if no
// plugin lists them yet, or one is unhealthy; the kubelet refuses the pod if its container does not run.
//
// Test kit: package device/devicetest has a plugin in memory. The facts are from Kubernetes 1.37.1, pkg/kubelet/cm/devicemanager and
// pkg/kubelet/cm/topologymanager.
package device
