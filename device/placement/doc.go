// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package placement gives the containers of pods their devices, exclusive CPUs and memory, from the NUMA nodes that the topology policy chooses. It
// connects the packages device/poddevice, cgroups/cpus and cgroups/numa to the pods of package lifecycle. Package device/plugin calls the device plugins.
//
//	var pods lifecycle.Handle // of the reconciler below
//	devices, err := poddevice.New(poddevice.Options{IsManaged: pods.IsManaged})
//	if err != nil {
//		return err
//	}
//	placed, err := placement.NewNode(os.DirFS("/"), cpuManager, placement.FilesIn(dir, false), placement.Options{
//		Devices: devices, Containers: generator, Updater: runtime, IsManaged: pods.IsManaged, Active: pods.Active, Owns: pods.Owns,
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
// A pod gets its devices, CPUs and memory before any of its containers starts, or nothing. Containers without exclusive CPUs run in the shared pool of the
// node. When a pod takes CPUs out of the pool, Reserve waits until the containers in the pool have left these CPUs. If they have not left after 10 s, or a
// write fails, the pod starts nevertheless, and Run writes their CPUs again. If the pool shrinks after a container was created, PrepareStart writes the
// CPUs of the container before it starts. A container with memory of its own, or of its pod, has cpuset.mems from its start on. Other containers may use
// all NUMA nodes.
//
// With the gate PodLevelResourceManagers and the topology scope "pod", a pod with pod-level resources has CPUs and memory as a whole, unless the topology
// policy is none. The containers without CPUs or memory for themselves share what no other container of the pod has. These fields must agree:
//   - the gate: cpus.Gates.PodLevel and numa.Config.PodLevel, of which New returns an error if both managers have a static policy, and
//     device.Topology.PodLevel for the messages of rejections;
//   - the topology policy: device.Topology.Policy and cpus.Config.Topology, which New does not compare.
//
// The scope is device.Topology.PodScope.
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
//   - Shared pool. Kubelet: running containers leave the CPUs of a new pod within 10 s after its start. Placement: Reserve waits for them, for at most 10 s.
//     Switch: Kubelet.LateShared.
//   - Removed pods. Kubelet: a new pod gets the CPUs and memory of a pod that no source lists, while its containers terminate. Placement: the new pod waits.
//     Switch: Options.Active is nil.
//   - Ephemeral containers. Kubelet: their CPUs do not change. Placement: they follow the shared pool. Switch: none.
//   - Restart. Kubelet: a running pod fails if the topology policy would not admit it any more. Placement: the pod keeps its resources. Switch: none.
//
// DIFFERENCES.md lists all differences.
//
// Test kit: devicetest, critest and topology.Parse.
package placement
