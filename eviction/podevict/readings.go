// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podevict

import (
	"errors"
	"fmt"
	"math"
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/seed81659283/nodeagent/eviction"
)

// Readings returns what the signals are of a node with this summary, in the order of the signals. Signals that the summary has no
// numbers of are missing. The error names numbers that were left out. Source: makeSignalObservations in
// pkg/kubelet/eviction/helpers.go.
func Readings(s *statsapi.Summary) ([]eviction.Reading, error) {
	b := builder{list: make([]eviction.Reading, 0, 9)}
	b.memory(eviction.MemoryAvailable, s.Node.Memory)
	for i := range s.Node.SystemContainers {
		if c := &s.Node.SystemContainers[i]; c.Name == statsapi.SystemContainerPods {
			b.memory(eviction.AllocatableMemoryAvailable, c.Memory)
			break
		}
	}
	b.fs(eviction.NodeFSAvailable, eviction.NodeFSInodesFree, s.Node.Fs)
	if r := s.Node.Runtime; r != nil {
		b.fs(eviction.ImageFSAvailable, eviction.ImageFSInodesFree, r.ImageFs)
		b.fs(eviction.ContainerFSAvailable, eviction.ContainerFSInodesFree, r.ContainerFs)
	}
	if r := s.Node.Rlimit; r != nil && r.MaxPID != nil && r.NumOfRunningProcesses != nil {
		b.add(eviction.PIDAvailable, *r.MaxPID-*r.NumOfRunningProcesses, *r.MaxPID, r.Time.Time)
	}
	return b.list, errors.Join(b.errs...)
}

// builder collects readings and what was wrong with others.
type builder struct {
	list []eviction.Reading
	errs []error
}

func (b *builder) add(s eviction.Signal, available, capacity int64, at time.Time) {
	b.list = append(b.list, eviction.Reading{Signal: s, Available: available, Capacity: capacity, Time: at})
}

// memory adds a signal of memory, whose capacity is what is left and what is used. What is left is below zero where a cgroup
// uses more than its limit: the difference of two unsigned numbers that the summary has then is as large as that is negative.
func (b *builder) memory(s eviction.Signal, m *statsapi.MemoryStats) {
	if m == nil || m.AvailableBytes == nil || m.WorkingSetBytes == nil {
		return
	}
	capacity := *m.AvailableBytes + *m.WorkingSetBytes
	if capacity > math.MaxInt64 || *m.WorkingSetBytes > math.MaxInt64 {
		b.errs = append(b.errs, fmt.Errorf("reading of %s: availableBytes %d and workingSetBytes %d are more than 2^63-1 bytes", s, *m.AvailableBytes, *m.WorkingSetBytes))
		return
	}
	b.add(s, int64(*m.AvailableBytes), int64(capacity), m.Time.Time)
}

// fs adds the two signals of a filesystem.
func (b *builder) fs(bytes, inodes eviction.Signal, f *statsapi.FsStats) {
	if f == nil {
		return
	}
	for _, n := range []struct {
		signal              eviction.Signal
		available, capacity *uint64
	}{{bytes, f.AvailableBytes, f.CapacityBytes}, {inodes, f.InodesFree, f.Inodes}} {
		switch {
		case n.available == nil || n.capacity == nil:
		case *n.available > math.MaxInt64 || *n.capacity > math.MaxInt64:
			b.errs = append(b.errs, fmt.Errorf("reading of %s: available %d and capacity %d: more than 2^63-1", n.signal, *n.available, *n.capacity))
		case n.signal == inodes && *n.capacity == 0: // such as btrfs
		default:
			b.add(n.signal, int64(*n.available), int64(*n.capacity), f.Time.Time)
		}
	}
}
