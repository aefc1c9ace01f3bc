// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package placement gives the containers of pods their devices, exclusive CPUs and memory, from the same NUMA nodes where the topology policy asks for
// that. It connects the packages device/poddevice, cgroups/cpus and cgroups/numa to the pods of package lifecycle.
//
//	placed, err := placement.New(placement.Options{Devices: devices, Policy: policy, Containers: generator, Updater: runtime})
//	go placed.Run(ctx)
//	opts := lifecycle.Options{Devices: placed, AdmitResize: placed.AdmitResize}
//
// # Model
//
// A pod gets its devices, CPUs and memory before anything of it starts, or nothing. Containers without exclusive CPUs share the remaining CPUs, the shared
// pool. When a pod takes CPUs out of the pool, Reserve returns only after the containers in the pool have left these CPUs. A container that is created
// meanwhile leaves them before it starts. A container with memory of its
// own has cpuset.mems from its start on; a container without it may use all NUMA nodes.
//
// With the gate PodLevelResourceManagers, a pod with pod-level resources has CPUs and memory as a whole under the topology scope "pod". Its containers without
// CPUs or memory of their own share what is left of these. The gate is cpus.Gates.PodLevel, numa.Config.PodLevel and, for the texts of refusals,
// device.Topology.PodLevel.
//
// # Concurrency
//
// Methods may be called from any goroutine. Run starts the goroutines of the devices and of the writer of CPUs.
//
// # Errors
//
// A pod that cannot have its devices, CPUs or memory gets a [*podstatus.Rejection] with the kubelet's reason and message, and with an explanation that its
// event shows: what is free on each NUMA node. Errors of the loops go to Options.Logger.
//
// # Differs from the kubelet
//
// The kubelet changes the shared pool of running containers within 10 s; until then they run on CPUs that another container has exclusively. It does
// not change the CPUs of ephemeral containers. Kubelet.LateShared switches the first difference off.
//
// A pod that runs keeps its resources after a restart of the agent, also if the topology policy would not admit it any more. The kubelet refuses it.
// DIFFERENCES.md lists all differences.
//
// Test kit: devicetest, critest and topology.Parse.
package placement
