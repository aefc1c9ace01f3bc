// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/seed81659283/nodeagent/nodetest/machine"
)

// Usage is what the process of a container wants of the machine. A nil curve is zero. The machine and the limits of the container
// decide what it gets.
type Usage struct {
	CPU     Curve            // CPUs
	Memory  Curve            // bytes of anonymous memory
	Cache   Curve            // bytes of page cache
	Tasks   Curve            // processes and threads, at least one
	Layer   Curve            // bytes in the writable layer
	Logs    Curve            // bytes of logs
	Volumes map[string]Curve // bytes in volumes of the pod, by volume name
}

// fileSize is the mean size of a file: a directory has an inode for each.
const fileSize = 64 << 10

// demand returns the demand of a process at an age. Its container owns the writable layer and the logs, the pod with this UID the
// volumes.
func (u *Usage) demand(age time.Duration, container, uid string) machine.Demand {
	d := machine.Demand{CPU: min(u.CPU.at(age), maxCPUs), Memory: toBytes(u.Memory.at(age)), Cache: toBytes(u.Cache.at(age)), Tasks: int(min(u.Tasks.at(age), maxTasks))}
	if u.Layer != nil {
		d.Files = append(d.Files, directory(machine.ImageDisk, container, layerDirectory, u.Layer.at(age)))
	}
	if u.Logs != nil {
		d.Files = append(d.Files, directory(machine.NodeDisk, container, logsDirectory, u.Logs.at(age)))
	}
	for _, name := range slices.Sorted(maps.Keys(u.Volumes)) {
		d.Files = append(d.Files, directory(machine.NodeDisk, uid, volumeDirectory+name, u.Volumes[name].at(age)))
	}
	return d
}

// Bounds of a demand, so that a curve cannot exceed those of package machine.
const (
	maxCPUs  = 1 << 20
	maxTasks = 1 << 22
	maxBytes = 1 << 50
)

// Names of directories on the disks of the machine.
const (
	layerDirectory  = "layer"
	logsDirectory   = "logs"
	volumeDirectory = "volume/"
)

func toBytes(amount float64) int64 { return int64(math.Min(amount, maxBytes)) }

// directory returns a directory with this many bytes.
func directory(disk machine.DiskName, owner, name string, bytes float64) machine.Files {
	size := toBytes(bytes)
	return machine.Files{Disk: disk, Owner: owner, Directory: name, Bytes: size, Inodes: (size + fileSize - 1) / fileSize}
}
