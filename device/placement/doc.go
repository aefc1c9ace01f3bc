// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package placement gives the containers of pods their devices, exclusive CPUs and memory, from the NUMA nodes that the topology policy chooses. It connects
// the packages device/poddevice, cgroups/cpus and cgroups/numa to the pods of package lifecycle. Package device/plugin calls the device plugins.
//
//	runtime, err := remote.Dial("unix:///run/containerd/containerd.sock", remote.Options{})
//	generator := pleg.New(runtime, pleg.Options{})
//	aligned, err := placement.ReadNodes(os.DirFS("/"), device.Topology{Policy: device.Restricted})
//	...
//	var pods lifecycle.Handle // Placement and reconciler need each other: the Handle has the pods of the reconciler from Set on
//	devices, err := poddevice.New(poddevice.Options{Allocator: device.Options{Topology: aligned}, IsManaged: pods.IsManaged})
//	...
//	config := cpus.Config{Policy: cpus.PolicyStatic, ReservedMillis: 1000, Topology: aligned.Policy}
//	placed, err := placement.NewNode(os.DirFS("/"), config, placement.FilesIn("/var/lib/agent", false), placement.Options{
//		Devices: devices, Containers: generator, Updater: runtime, IsManaged: pods.IsManaged, Active: pods.Active, Owns: pods.Owns,
//	})
//	...
//	reconciler, err := lifecycle.New(runtime, generator, lifecycle.Options{Devices: placed, AdmitResize: placed.AdmitResize})
//	...
//	pods.Set(reconciler)
//	go func() { failed <- placed.Run(ctx) }() // before reconciler.Run; runs the devices, too
//
// # Model
//
// A pod gets its devices, CPUs and memory before any of its containers starts, or nothing. Containers without exclusive CPUs run in the shared pool of the
// node. When a pod takes CPUs out of the pool, Reserve waits until the containers in the pool have left these CPUs. If they have not left after 10 s, or a
// write fails, the pod starts nevertheless, and Run writes their CPUs again. A container with memory of its own, or of its pod, has cpuset.mems from its
// start on. Other containers may use all NUMA nodes.
//
// Package lifecycle makes the calls for a pod. An agent without it calls Reserve before the first container; for each container, Container before its creation
// in the runtime and PrepareStart between creation and start; and Release after the pod has terminated. A restarted agent calls Reserve for all pods again:
// the running ones, which Options.Containers lists, keep what they have.
//
// With the gate PodLevelResourceManagers and the topology scope "pod", a pod with pod-level resources has CPUs and memory as a whole, unless the topology
// policy is none. The containers without CPUs or memory for themselves share what no other container of the pod has.
//
// Some settings are needed twice. Set them to equal values: the topology policy in device.Topology.Policy and cpus.Config.Topology; the gate in
// device.Topology.PodLevel, cpus.Gates.PodLevel and numa.Config.PodLevel. If they differ, New returns an error; a manager without static policy
// is not compared.
//
// # Concurrency
//
// Methods may be called concurrently, but for one pod only one of Reserve, Container, PrepareStart and Release at a time. Only Run starts goroutines.
// Capacity, WithoutDevices and HasExclusiveCPUs accept a nil Placement.
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
//     Switch: none.
//   - Ephemeral containers. Kubelet: their CPUs do not change. Placement: they follow the shared pool. Switch: none.
//   - Restart. Kubelet: a running pod fails if the topology policy would not admit it any more. Placement: the pod keeps its resources. Switch: none.
//   - The fields Kubelet of cpus.Config and numa.Config switch off further differences.
//
// DIFFERENCES.md lists all differences. Test kit: devicetest, critest and topology.Parse.
package placement
