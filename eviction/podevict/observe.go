// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podevict

import (
	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/eviction"
	"github.com/seed81659283/nodeagent/stats"
)

// Observe converts the signals of a stats.Collector to an observation without candidates: the filesystem layout by device
// numbers, and a reading per measured signal. Of two readings of a signal the evictor uses the lower one.
func Observe(s *stats.Signals) (o eviction.Observation) {
	switch {
	case s.ImageDevice == s.NodeDevice || s.ImageDevice == 0:
	case s.ContainerDevice != s.ImageDevice && s.ContainerDevice != 0:
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
		{eviction.MemoryAvailable, s.Memory, s.Root.Memory.Stat},
		{eviction.MemoryAvailable, s.MemAvailable, none},
		{eviction.AllocatableMemoryAvailable, s.Allocatable, s.Pods.Memory.Stat},
		{eviction.NodeFSAvailable, s.NodeFs, none},
		{eviction.NodeFSInodesFree, s.NodeInodes, none},
		{eviction.ImageFSAvailable, s.ImageFs, none},
		{eviction.ImageFSInodesFree, s.ImageInodes, none},
		{eviction.ContainerFSAvailable, s.ContainerFs, none},
		{eviction.ContainerFSInodesFree, s.ContainerInodes, none},
		{eviction.PIDAvailable, s.PIDs, none},
		{eviction.PIDAvailable, s.AllocatablePIDs, none},
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
