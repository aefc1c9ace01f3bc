// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import "time"

// ContainerStats is the resource usage of one container. Nil fields were not reported by the runtime.
type ContainerStats struct {
	ID            string
	Name          string
	Attempt       uint32
	Labels        map[string]string
	Annotations   map[string]string
	CPU           *CPUUsage
	Memory        *MemoryUsage
	Swap          *SwapUsage
	IO            *IOUsage
	WritableLayer *FilesystemUsage
}

// SandboxStats is the resource usage of one sandbox and its containers. Nil fields were not reported by the runtime.
type SandboxStats struct {
	ID          string
	Pod         PodIdentity
	Attempt     uint32
	Labels      map[string]string
	Annotations map[string]string
	CPU         *CPUUsage
	Memory      *MemoryUsage
	Network     *NetworkUsage
	IO          *IOUsage
	Processes   *uint64
	Containers  []ContainerStats
}

// CPUUsage is the CPU time of a container or sandbox.
type CPUUsage struct {
	Time                 time.Time
	UsageCoreNanoSeconds *uint64 // cumulative since the start, over all cores
	UsageNanoCores       *uint64 // average over the runtime's last sampling interval
	PSI                  *PSI
}

// MemoryUsage is the memory usage of a container or sandbox.
type MemoryUsage struct {
	Time            time.Time
	WorkingSetBytes *uint64
	AvailableBytes  *uint64 // memory limit minus working set
	UsageBytes      *uint64
	RSSBytes        *uint64
	PageFaults      *uint64
	MajorPageFaults *uint64
	PSI             *PSI
}

// SwapUsage is the swap usage of a container.
type SwapUsage struct {
	Time           time.Time
	AvailableBytes *uint64
	UsageBytes     *uint64
}

// IOUsage is the pressure on block devices.
type IOUsage struct {
	Time time.Time
	PSI  *PSI
}

// PSI is pressure stall information (Documentation/accounting/psi.rst of the kernel).
type PSI struct {
	Some, Full PSIData
}

// PSIData is the time that tasks were stalled on a resource, and the stalled share of the last 10, 60 and 300 seconds.
type PSIData struct {
	Total                time.Duration
	Avg10, Avg60, Avg300 float64 // percent
}

// NetworkUsage is the network traffic of a sandbox.
type NetworkUsage struct {
	Time       time.Time
	Default    *InterfaceUsage // the interface with the pod's primary address
	Interfaces []InterfaceUsage
}

// InterfaceUsage is the cumulative traffic of one network interface.
type InterfaceUsage struct {
	Name                                 string
	RxBytes, RxErrors, TxBytes, TxErrors *uint64
}
