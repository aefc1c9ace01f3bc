// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package placement gives the containers of pods their devices, exclusive CPUs and memory, from NUMA nodes that the topology policy admits. It connects the
// packages device/poddevice, cgroups/cpus and cgroups/numa to the pods of package lifecycle. It calls no device plugin.
//
//	var pods lifecycle.Handle // of the reconciler below
//	devices, err := poddevice.New(poddevice.Options{IsManaged: pods.IsManaged})
//	if err != nil {
//		return err
//	}
//	placed, err := placement.NewNode(os.DirFS("/"), cpuManager, placement.FilesIn(dir, false), placement.Options{
//		Devices: devices, Containers: generator, Updater: runtime, IsManaged: pods.IsManaged,
//	})
//	if err != nil {
//		return err
//	}
//	reconciler, err := lifecycle.New(runtime, generator, lifecycle.Options{Devices: placed, AdmitResize: placed.AdmitResize})
//	if err != nil {
//		return err
//	}
//	pods.Set(reconciler)
//	go func() { failed <- placed.Run(ctx) }() // before reconciler.Run; runs the devices, too
//
// # Model
//
// A pod gets its devices, CPUs and memory before any of its containers starts, or nothing. Containers without exclusive CPUs share the remaining CPUs, the
// shared pool. When a pod takes CPUs out of the pool, Reserve waits until the containers in the pool have left these CPUs, for at most 10 s. A container that
// is created meanwhile leaves them before it starts. A container with memory of its own, or of its pod, has cpuset.mems from its start on. Other containers
// may use all NUMA nodes.
//
// With the gate PodLevelResourceManagers and the topology scope "pod", a pod with pod-level resources has CPUs and memory as a whole, unless the topology
// manager policy is none. Its containers without CPUs or memory of their own share the remainder. Set the gate in cpus.Gates.PodLevel, numa.Config.PodLevel
// and, for the messages of rejections, device.Topology.PodLevel; New returns an error if the first two fields differ and both managers have a static policy.
// The scope is device.Topology.PodScope. cpus.Config.Topology must equal device.Topology.Policy; New does not compare them.
//
// # Concurrency
//
// Methods may be called from any goroutine. Package lifecycle calls Reserve, Container, PrepareStart and Release for one pod in this order; other callers
// must do so, too, one call at a time. Only Run starts goroutines. Capacity, WithoutDevices and HasExclusiveCPUs accept a nil Placement.
//
// # Errors
//
// If a pod must fail, Reserve returns a [*podstatus.Rejection] with the kubelet's reason and message. Its Explanation, for the event of the pod, has the free
// resources of each NUMA node. Errors of the loops go to Options.Logger.
//
// # Differs from the kubelet
//
//   - Shared pool. Kubelet: running containers leave the CPUs of a new pod within 10 s. Placement: they leave before the pod starts. Switch:
//     Kubelet.LateShared.
//   - Ephemeral containers. Kubelet: their CPUs do not change. Placement: they follow the shared pool. Switch: none.
//   - Restart. Kubelet: a running pod fails if the topology policy would not admit it any more. Placement: the pod keeps its resources. Switch: none.
//
// DIFFERENCES.md lists all differences.
//
// Test kit: devicetest, critest and topology.Parse.
package placement
