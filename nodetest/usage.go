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

// Usage is the demand of the process of a container over the age of the container. A nil curve is zero. If the machine or the limits of the container
// do not allow a demand, the process gets less.
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

// amounts are the amounts of a usage at one age.
type amounts struct {
	evaluated bool
	changed   bool // the last evaluation has changed an amount
	scalar    [6]float64
	volumes   []float64 // in the order of names
	names     []string  // of the volumes, sorted
}

// evaluate sets a to the amounts of the usage u at the given age. It reports whether an amount has changed, and returns true
// for the first evaluation.
func (a *amounts) evaluate(u *Usage, age time.Duration) (changed bool) {
	if !a.evaluated {
		a.names = slices.Sorted(maps.Keys(u.Volumes))
		a.volumes = make([]float64, len(a.names))
	}
	scalar := [...]float64{u.CPU.at(age), u.Memory.at(age), u.Cache.at(age), u.Tasks.at(age), u.Layer.at(age), u.Logs.at(age)}
	a.changed = !a.evaluated || scalar != a.scalar
	a.scalar, a.evaluated = scalar, true
	for i, name := range a.names {
		amount := u.Volumes[name].at(age)
		a.changed = a.changed || amount != a.volumes[i]
		a.volumes[i] = amount
	}
	return a.changed
}

// demand returns the demand of a process with these amounts: files of the container, and volumes of the pod with this UID.
func (a *amounts) demand(u *Usage, container, uid string) machine.Demand {
	d := machine.Demand{CPU: min(a.scalar[0], maxCPUs), Memory: toBytes(a.scalar[1]), Cache: toBytes(a.scalar[2]), Tasks: int(min(a.scalar[3], maxTasks))}
	if u.Layer != nil {
		d.Files = append(d.Files, directory(machine.ImageDisk, container, layerDirectory, a.scalar[4]))
	}
	if u.Logs != nil {
		d.Files = append(d.Files, directory(machine.NodeDisk, container, logsDirectory, a.scalar[5]))
	}
	for i, name := range a.names {
		d.Files = append(d.Files, directory(machine.NodeDisk, uid, volumeDirectory+name, a.volumes[i]))
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

// directory returns a directory with this many bytes, and one inode for each fileSize bytes.
func directory(disk machine.DiskName, owner, name string, bytes float64) machine.Files {
	size := toBytes(bytes)
	return machine.Files{Disk: disk, Owner: owner, Directory: name, Bytes: size, Inodes: (size + fileSize - 1) / fileSize}
}
