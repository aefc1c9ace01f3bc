// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import "time"

// ContainerStats is the usage of one container. A nil part or number is one the runtime did not report.
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

// SandboxStats is the usage of one sandbox and of its containers.
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

// CPUUsage is CPU time.
type CPUUsage struct {
	Time                 time.Time
	UsageCoreNanoSeconds *uint64 // since the start, over all cores
	UsageNanoCores       *uint64 // in the last interval of the runtime
	PSI                  *PSI
}

// MemoryUsage is memory in bytes.
type MemoryUsage struct {
	Time            time.Time
	WorkingSetBytes *uint64
	AvailableBytes  *uint64 // limit less working set
	UsageBytes      *uint64
	RSSBytes        *uint64
	PageFaults      *uint64
	MajorPageFaults *uint64
	PSI             *PSI
}

// SwapUsage is swap in bytes.
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

// PSIData is the share of time that tasks stalled.
type PSIData struct {
	Total                time.Duration
	Avg10, Avg60, Avg300 float64 // percent
}

// NetworkUsage is the traffic of a sandbox.
type NetworkUsage struct {
	Time       time.Time
	Default    *InterfaceUsage // of the interface with the pod's address
	Interfaces []InterfaceUsage
}

// InterfaceUsage is the traffic of one interface.
type InterfaceUsage struct {
	Name                                 string
	RxBytes, RxErrors, TxBytes, TxErrors *uint64
}
