// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package usage

import "slices"

// capacityFamily returns a metric about file system capacity, with one series per measured file system of the machine.
func capacityFamily(name, help string, read func(m *mountedFS) uint64) family {
	return family{name: name, kind: gauge, help: help, procParts: procDisks | procMounts | procCapacity, emit: func(e *emitter, r *cgroupRow) {
		for i := range r.mounts {
			if m := &r.mounts[i]; m.measured {
				e.writeWithLabels(m.label, float64(read(m)))
			}
		}
	}}
}

// diskFamily returns a metric about disks, with one series per file system. read(counts) computes the value from
// /proc/diskstats.
func diskFamily(name, kind, help string, read func(counts *[11]uint64) float64) family {
	return family{name: name, kind: kind, help: help, procParts: procDisks | procMounts, emit: func(e *emitter, r *cgroupRow) {
		e.writeDisks(r, read, nil)
	}}
}

// writeDisks writes one series per file system of the machine, except those that are already written.
func (e *emitter) writeDisks(row *cgroupRow, read func(counts *[11]uint64) float64, written []string) {
	for i := range row.mounts {
		if m := &row.mounts[i]; m.disk != nil && !slices.Contains(written, m.label) {
			e.writeWithLabels(m.label, read(&m.disk.counts))
		}
	}
}

// diskCounter returns a function that selects one of a disk's counters: the counter at position index in /proc/diskstats,
// such as diskReads.
func diskCounter(index int) func(counts *[11]uint64) float64 {
	return func(counts *[11]uint64) float64 { return float64(counts[index]) }
}

// diskSeconds returns a function that selects the time counter at this index of /proc/diskstats, in seconds.
func diskSeconds(index int) func(counts *[11]uint64) float64 {
	return func(counts *[11]uint64) float64 { return float64(counts[index]) / 1000 }
}

func diskFamilies() []family {
	return []family{
		capacityFamily("container_fs_inodes_free", "Inodes that are free.", func(m *mountedFS) uint64 { return m.InodesFree }),
		capacityFamily("container_fs_inodes_total", "Inodes.", func(m *mountedFS) uint64 { return m.Inodes }),
		diskFamily("container_fs_io_current", gauge, "Reads and writes that are being made.", diskCounter(diskInProgress)),
		diskFamily("container_fs_io_time_seconds_total", counter, "Time in which something was read or written.", diskSeconds(diskIOTime)),
		diskFamily("container_fs_io_time_weighted_seconds_total", counter, "Time that reads and writes took, added up.", diskSeconds(diskWeightedIOTime)),
		capacityFamily("container_fs_limit_bytes", "Size of the file system.", func(m *mountedFS) uint64 { return m.CapacityBytes }),
		diskFamily("container_fs_read_seconds_total", counter, "Time that reads took, added up.", diskSeconds(diskReadTime)),
		diskFamily("container_fs_reads_merged_total", counter, "Reads that were made together with another one.", diskCounter(diskReadsMerged)),
		diskFamily("container_fs_sector_reads_total", counter, "Sectors of 512 bytes that were read.", diskCounter(diskSectorsRead)),
		diskFamily("container_fs_sector_writes_total", counter, "Sectors of 512 bytes that were written.", diskCounter(diskSectorsWritten)),
		capacityFamily("container_fs_usage_bytes", "Bytes that are used.", func(m *mountedFS) uint64 { return m.UsedBytes() }),
		diskFamily("container_fs_write_seconds_total", counter, "Time that writes took, added up.", diskSeconds(diskWriteTime)),
		diskFamily("container_fs_writes_merged_total", counter, "Writes that were made together with another one.", diskCounter(diskWritesMerged)),
	}
}
