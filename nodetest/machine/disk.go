// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"maps"
	"slices"
)

// DiskName names a file system of a machine.
type DiskName string

// The file systems of a machine. Without [Spec.ImageDisk] both are the same.
const (
	NodeDisk  DiskName = "node"  // logs and volumes
	ImageDisk DiskName = "image" // images and writable layers
)

// Files is the size of a directory that a process writes.
type Files struct {
	Disk          DiskName // empty: NodeDisk
	Owner         string   // such as the ID of a container, see [Machine.RemoveFiles]
	Directory     string   // such as "layer" or "logs"; unique for the owner
	Bytes, Inodes int64
}

// DiskUsage is the size and the usage of a file system.
type DiskUsage struct {
	Bytes, Inodes         int64 // capacity
	UsedBytes, UsedInodes int64
}

// disk is a file system with directories.
type disk struct {
	usage       DiskUsage
	directories map[directory]Files
}

// directory is the key of a directory on a disk.
type directory struct{ owner, name string }

func newDisk(d Disk) *disk {
	return &disk{usage: DiskUsage{Bytes: d.Bytes, Inodes: d.Inodes}, directories: map[directory]Files{}}
}

// resizeDirectory resizes a directory to want, or to the largest size that fits on the disk. It reports whether want fits.
func (d *disk) resizeDirectory(at directory, want Files) (fitted bool) {
	had, wanted := d.directories[at], want
	want.Bytes = min(want.Bytes, had.Bytes+d.usage.Bytes-d.usage.UsedBytes)
	want.Inodes = min(want.Inodes, had.Inodes+d.usage.Inodes-d.usage.UsedInodes)
	d.usage.UsedBytes += want.Bytes - had.Bytes
	d.usage.UsedInodes += want.Inodes - had.Inodes
	if d.directories[at] = want; want.Bytes == 0 && want.Inodes == 0 {
		delete(d.directories, at)
	}
	return want == wanted
}

// writeFiles resizes the directories in list to the given sizes. It reports whether all sizes fit on the disks.
func (m *Machine) writeFiles(list []Files) (fitted bool) {
	if len(list) == 0 {
		return true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	fitted = true
	for _, f := range list {
		fitted = m.diskOf(f.Disk).resizeDirectory(directory{f.Owner, f.Directory}, f) && fitted
	}
	return fitted
}

// diskOf returns the named disk, or the disk of the node for an unknown name. The caller holds m.mu.
func (m *Machine) diskOf(name DiskName) *disk {
	if d := m.disks[name]; d != nil {
		return d
	}
	return m.disks[NodeDisk]
}

// WriteFiles resizes a directory that belongs to no process, such as the directory of an image. If the disk is full, the
// directory gets the largest size that fits.
func (m *Machine) WriteFiles(f Files) { m.writeFiles([]Files{f}) }

// RemoveFiles removes all directories of owner from the disks. If a process of owner is running, the next Step writes its
// files again.
func (m *Machine) RemoveFiles(owner string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, d := range m.disks {
		for at := range d.directories {
			if at.owner == owner {
				d.resizeDirectory(at, Files{})
				m.removed = true
			}
		}
	}
}

// Files returns the directories of owner, sorted by name.
func (m *Machine) Files(owner string) (list []Files) {
	m.mu.Lock()
	defer m.mu.Unlock()
	disks := []*disk{m.disks[NodeDisk]}
	if m.disks[ImageDisk] != disks[0] {
		disks = append(disks, m.disks[ImageDisk])
	}
	for _, d := range disks {
		for _, at := range slices.SortedFunc(maps.Keys(d.directories), compareDirectories) {
			if at.owner == owner {
				list = append(list, d.directories[at])
			}
		}
	}
	return list
}

// DiskUsage returns the size and the usage of a disk.
func (m *Machine) DiskUsage(name DiskName) DiskUsage {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.diskOf(name).usage
}

func compareDirectories(a, b directory) int {
	return cmp.Or(cmp.Compare(a.owner, b.owner), cmp.Compare(a.name, b.name))
}
