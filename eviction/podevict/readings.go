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

// Readings returns the readings in a stats summary, sorted by signal. A signal without a measurement or with invalid
// numbers has no reading. The error names the signals with invalid numbers. Source: makeSignalObservations in
// pkg/kubelet/eviction/helpers.go.
func Readings(summary *statsapi.Summary) ([]eviction.Reading, error) {
	b := readingBuilder{list: make([]eviction.Reading, 0, 9)}
	b.addMemory(eviction.MemoryAvailable, summary.Node.Memory)
	for i := range summary.Node.SystemContainers {
		if c := &summary.Node.SystemContainers[i]; c.Name == statsapi.SystemContainerPods {
			b.addMemory(eviction.AllocatableMemoryAvailable, c.Memory)
			break
		}
	}
	b.addFilesystem(eviction.NodeFSAvailable, eviction.NodeFSInodesFree, summary.Node.Fs)
	if r := summary.Node.Runtime; r != nil {
		b.addFilesystem(eviction.ImageFSAvailable, eviction.ImageFSInodesFree, r.ImageFs)
		b.addFilesystem(eviction.ContainerFSAvailable, eviction.ContainerFSInodesFree, r.ContainerFs)
	}
	if r := summary.Node.Rlimit; r != nil && r.MaxPID != nil && r.NumOfRunningProcesses != nil {
		b.addReading(eviction.PIDAvailable, *r.MaxPID-*r.NumOfRunningProcesses, *r.MaxPID, r.Time.Time)
	}
	return b.list, errors.Join(b.errs...)
}

// readingBuilder collects the readings of a summary and the errors of skipped numbers.
type readingBuilder struct {
	list []eviction.Reading
	errs []error
}

func (b *readingBuilder) addReading(s eviction.Signal, available, capacity int64, at time.Time) {
	b.list = append(b.list, eviction.Reading{Signal: s, Available: available, Capacity: capacity, Time: at})
}

// addMemory adds the reading of a memory signal.
func (b *readingBuilder) addMemory(signal eviction.Signal, memory *statsapi.MemoryStats) {
	if memory == nil || memory.AvailableBytes == nil || memory.WorkingSetBytes == nil {
		return
	}
	// AvailableBytes is a negative number if a cgroup exceeds its limit, as uint64
	capacity := *memory.AvailableBytes + *memory.WorkingSetBytes
	if capacity > math.MaxInt64 || *memory.WorkingSetBytes > math.MaxInt64 {
		b.errs = append(b.errs, fmt.Errorf("reading of %s: availableBytes %d and workingSetBytes %d are more than 2^63-1 bytes", signal, *memory.AvailableBytes, *memory.WorkingSetBytes))
		return
	}
	b.addReading(signal, int64(*memory.AvailableBytes), int64(capacity), memory.Time.Time)
}

// addFilesystem adds a reading of the free bytes and a reading of the free inodes. bytes and inodes are the signals of
// these readings. It omits missing and invalid numbers.
func (b *readingBuilder) addFilesystem(bytes, inodes eviction.Signal, filesystem *statsapi.FsStats) {
	if filesystem == nil {
		return
	}
	for _, n := range []struct {
		signal              eviction.Signal
		available, capacity *uint64
	}{{bytes, filesystem.AvailableBytes, filesystem.CapacityBytes}, {inodes, filesystem.InodesFree, filesystem.Inodes}} {
		switch {
		case n.available == nil || n.capacity == nil:
		case *n.available > math.MaxInt64 || *n.capacity > math.MaxInt64:
			b.errs = append(b.errs, fmt.Errorf("reading of %s: available %d and capacity %d: more than 2^63-1", n.signal, *n.available, *n.capacity))
		case n.signal == inodes && *n.capacity == 0: // for example on btrfs
		default:
			b.addReading(n.signal, int64(*n.available), int64(*n.capacity), filesystem.Time.Time)
		}
	}
}
