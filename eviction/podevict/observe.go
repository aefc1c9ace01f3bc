// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podevict

import (
	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/eviction"
	"github.com/seed81659283/nodeagent/stats"
)

// Observe converts the signals that a stats.Collector has measured to an observation without candidates. It derives the
// filesystem layout from the device numbers. A signal may get two readings; the evictor then uses the reading with less
// available.
func Observe(signals *stats.Signals) (o eviction.Observation) {
	switch {
	case signals.ImageDevice == signals.NodeDevice || signals.ImageDevice == 0:
	case signals.ContainerDevice != signals.ImageDevice && signals.ContainerDevice != 0:
		o.Layout = eviction.SplitFS
	default:
		o.Layout = eviction.DedicatedImageFS
	}
	var none cgroups.MemoryStat
	for _, r := range []struct {
		signal eviction.Signal
		amount *stats.Amount
		cache  cgroups.MemoryStat
	}{
		{eviction.MemoryAvailable, signals.Memory, signals.Root.Memory.Stat},
		{eviction.MemoryAvailable, signals.MemAvailable, none},
		{eviction.AllocatableMemoryAvailable, signals.Allocatable, signals.Pods.Memory.Stat},
		{eviction.NodeFSAvailable, signals.NodeFs, none},
		{eviction.NodeFSInodesFree, signals.NodeInodes, none},
		{eviction.ImageFSAvailable, signals.ImageFs, none},
		{eviction.ImageFSInodesFree, signals.ImageInodes, none},
		{eviction.ContainerFSAvailable, signals.ContainerFs, none},
		{eviction.ContainerFSInodesFree, signals.ContainerInodes, none},
		{eviction.PIDAvailable, signals.PIDs, none},
		{eviction.PIDAvailable, signals.AllocatablePIDs, none},
	} {
		if r.amount != nil && r.amount.Capacity > 0 {
			o.Readings = append(o.Readings, eviction.Reading{
				Signal: r.signal, Available: r.amount.Available, Capacity: r.amount.Capacity, Time: r.amount.Time,
				Reclaimable: int64(r.cache.ActiveFile + r.cache.SlabReclaimable),
			})
		}
	}
	return o
}
