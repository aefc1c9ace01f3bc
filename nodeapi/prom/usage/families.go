// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/stats"
)

// containerFamilies returns all metrics about cgroups on the page /metrics/cadvisor. Metrics of the kubelet are missing if
// neither cgroups nor the runtime provide their values.
func containerFamilies() []family {
	return slices.Concat(cpuFamilies(), timeFamilies(), memoryFamilies(), ioFamilies(), diskFamilies(), networkFamilies(), taskFamilies(),
		processFamilies(), pressureFamilies(), specFamilies())
}

// timeFamilies returns the metrics about when a container was created, started and last seen, and the metric
// container_health_state, which is always -1.
func timeFamilies() []family {
	return []family{
		{
			name: "container_creation_time_seconds", kind: gauge, help: "When a container was made, in seconds since the epoch.",
			emit: func(e *emitter, r *cgroupRow) { e.writeTime(r.createdAt()) },
		}, {
			name: "container_health_state", kind: gauge, help: "1 for a healthy container, 0 for another one, -1 without a health check, which no runtime has.",
			emit: func(e *emitter, _ *cgroupRow) { e.writeValue(-1) },
		}, {
			name: "container_last_seen", kind: gauge, help: "When a container was last seen, in seconds since the epoch.",
			emit: func(e *emitter, r *cgroupRow) {
				e.at = r.now
				e.writeValue(float64(r.now.Unix()))
			},
		}, {
			name: "container_start_time_seconds", kind: gauge, help: "When a container was started, in seconds since the epoch.",
			emit: func(e *emitter, r *cgroupRow) {
				if !r.Container.StartedAt.IsZero() {
					e.writeTime(r.Container.StartedAt)
					return
				}
				e.writeTime(r.createdAt())
			},
		},
	}
}

// writeTime writes a series whose value is t in seconds since 1970. It writes nothing if t is zero.
func (e *emitter) writeTime(t time.Time) {
	if !t.IsZero() {
		e.writeSeries(e.row.labels, "", float64(t.Unix()), time.Time{})
	}
}

// createdAt returns the time at which the container or sandbox of the cgroup was created, or zero if it is unknown.
func (r *cgroupRow) createdAt() time.Time {
	if r.kind == ofContainer {
		return r.Container.CreatedAt
	}
	return r.Sandbox.CreatedAt
}

// cgroupFamily returns a metric with one series per cgroup. The function read returns the value of a series, and parts
// selects the cgroup counters that read needs.
func cgroupFamily(name, kind, help string, parts cgroups.Parts, read func(s *cgroups.Stats) float64) family {
	return family{name: name, kind: kind, help: help, parts: parts, emit: func(e *emitter, r *cgroupRow) { e.writeValue(read(&r.Stats)) }}
}

// quotaFamily returns a metric about CPU quotas, with one series per cgroup that has a quota. The function read returns the
// value of a series.
func quotaFamily(name, help string, read func(c *cgroups.CPUStat) float64) family {
	return family{name: name, kind: counter, help: help, parts: cgroups.PartCPU | cgroups.PartCPULimit, emit: func(e *emitter, r *cgroupRow) {
		if r.cpuLimit().Quota > 0 {
			e.writeValue(read(&r.Stats.CPU))
		}
	}}
}

func nanosToSeconds(nanoseconds uint64) float64 { return float64(nanoseconds) / 1e9 }

func cpuFamilies() []family {
	return []family{
		quotaFamily("container_cpu_cfs_burst_periods_total", "Periods in which CPU time was used that had been saved.",
			func(c *cgroups.CPUStat) float64 { return float64(c.Bursts) }),
		quotaFamily("container_cpu_cfs_burst_seconds_total", "CPU time above the quota.",
			func(c *cgroups.CPUStat) float64 { return nanosToSeconds(c.BurstTime) }),
		quotaFamily("container_cpu_cfs_periods_total", "Periods of the CPU quota.",
			func(c *cgroups.CPUStat) float64 { return float64(c.Periods) }),
		quotaFamily("container_cpu_cfs_throttled_periods_total", "Periods in which the CPU quota was used up.",
			func(c *cgroups.CPUStat) float64 { return float64(c.Throttled) }),
		quotaFamily("container_cpu_cfs_throttled_seconds_total", "Time for which a container was held back by its CPU quota.",
			func(c *cgroups.CPUStat) float64 { return nanosToSeconds(c.ThrottledTime) }),
		cgroupFamily("container_cpu_system_seconds_total", counter, "CPU time in the kernel.", cgroups.PartCPU,
			func(s *cgroups.Stats) float64 { return nanosToSeconds(s.CPU.System) }),
		{
			name: "container_cpu_usage_seconds_total", kind: counter, help: "CPU time.", parts: cgroups.PartCPU,
			emit: func(e *emitter, r *cgroupRow) {
				if r.Stats.CPU.Usage > 0 {
					e.writeWithLabels(`cpu="total"`, nanosToSeconds(r.Stats.CPU.Usage))
				}
			},
		},
		cgroupFamily("container_cpu_user_seconds_total", counter, "CPU time in user mode.", cgroups.PartCPU,
			func(s *cgroups.Stats) float64 { return nanosToSeconds(s.CPU.User) }),
	}
}

func memoryFamilies() []family {
	return []family{
		cgroupFamily("container_memory_cache", gauge, "Page cache in bytes.", cgroups.PartMemory,
			func(s *cgroups.Stats) float64 { return float64(s.Memory.Stat.File) }),
		cgroupFamily("container_memory_events_high_total", counter, "How often a container was slowed down by memory.high.", cgroups.PartMemoryEvents,
			func(s *cgroups.Stats) float64 { return float64(s.Memory.Events.High) }),
		cgroupFamily("container_memory_events_max_total", counter, "How often memory.max was reached.", cgroups.PartMemoryEvents,
			func(s *cgroups.Stats) float64 { return float64(s.Memory.Events.Max) }),
		cgroupFamily("container_memory_failcnt", counter, "How often the limit of memory was reached.", cgroups.PartMemoryEvents,
			func(s *cgroups.Stats) float64 { return float64(s.Memory.Events.Max) }),
		{
			name: "container_memory_failures_total", kind: counter, help: "Page faults.", parts: cgroups.PartMemory,
			emit: func(e *emitter, r *cgroupRow) {
				all, major := float64(r.Stats.Memory.Stat.PageFaults), float64(r.Stats.Memory.Stat.MajorPageFaults)
				e.writeWithLabels(`failure_type="pgfault",scope="container"`, all)
				e.writeWithLabels(`failure_type="pgfault",scope="hierarchy"`, all)
				e.writeWithLabels(`failure_type="pgmajfault",scope="container"`, major)
				e.writeWithLabels(`failure_type="pgmajfault",scope="hierarchy"`, major)
			},
		},
		cgroupFamily("container_memory_file_dirty_bytes", gauge, "Page cache that is to be written in bytes.", cgroups.PartMemory,
			func(s *cgroups.Stats) float64 { return float64(s.Memory.Stat.FileDirty) }),
		cgroupFamily("container_memory_file_writeback_bytes", gauge, "Page cache that is being written in bytes.", cgroups.PartMemory,
			func(s *cgroups.Stats) float64 { return float64(s.Memory.Stat.FileWriteback) }),
		cgroupFamily("container_memory_kernel_usage", gauge, "Memory of the kernel in bytes.", cgroups.PartMemory,
			func(s *cgroups.Stats) float64 { return float64(s.Memory.Stat.Kernel) }),
		cgroupFamily("container_memory_mapped_file", gauge, "Mapped files in bytes.", cgroups.PartMemory,
			func(s *cgroups.Stats) float64 { return float64(s.Memory.Stat.FileMapped) }),
		cgroupFamily("container_memory_max_usage_bytes", gauge, "The most memory that was in use in bytes.", cgroups.PartMemoryPeak,
			func(s *cgroups.Stats) float64 { return float64(s.Memory.Peak) }),
		cgroupFamily("container_memory_pgscan_total", counter, "Pages that reclaim has looked at.", cgroups.PartMemory,
			func(s *cgroups.Stats) float64 { return float64(s.Memory.Stat.PagesScanned) }),
		cgroupFamily("container_memory_pgsteal_total", counter, "Pages that were reclaimed.", cgroups.PartMemory,
			func(s *cgroups.Stats) float64 { return float64(s.Memory.Stat.PagesReclaimed) }),
		cgroupFamily("container_memory_rss", gauge, "Anonymous memory in bytes.", cgroups.PartMemory,
			func(s *cgroups.Stats) float64 { return float64(s.Memory.Stat.Anon) }),
		cgroupFamily("container_memory_swap", gauge, "Swap in use in bytes.", cgroups.PartSwap,
			func(s *cgroups.Stats) float64 { return float64(s.Memory.Swap) }),
		cgroupFamily("container_memory_total_active_file_bytes", gauge, "Page cache that is in use in bytes.", cgroups.PartMemory,
			func(s *cgroups.Stats) float64 { return float64(s.Memory.Stat.ActiveFile) }),
		cgroupFamily("container_memory_total_inactive_file_bytes", gauge, "Page cache that was not used lately in bytes.", cgroups.PartMemory,
			func(s *cgroups.Stats) float64 { return float64(s.Memory.Stat.InactiveFile) }),
		cgroupFamily("container_memory_usage_bytes", gauge, "Memory in use in bytes, page cache included.", cgroups.PartMemory,
			func(s *cgroups.Stats) float64 { return float64(s.Memory.Current) }),
		cgroupFamily("container_memory_working_set_bytes", gauge, "Working set in bytes.", cgroups.PartMemory,
			func(s *cgroups.Stats) float64 { return float64(s.Memory.WorkingSet()) }),
		cgroupFamily("container_memory_workingset_refault_anon_total", counter, "Anonymous pages that came back soon after they were reclaimed.", cgroups.PartMemory,
			func(s *cgroups.Stats) float64 { return float64(s.Memory.Stat.RefaultAnon) }),
		cgroupFamily("container_memory_workingset_refault_file_total", counter, "Pages of files that came back soon after they were reclaimed.", cgroups.PartMemory,
			func(s *cgroups.Stats) float64 { return float64(s.Memory.Stat.RefaultFile) }),
		cgroupFamily("container_oom_events_total", counter, "Processes that the OOM killer has killed.", cgroups.PartMemoryEvents,
			func(s *cgroups.Stats) float64 { return float64(s.Memory.Events.OOMKill) }),
	}
}

// deviceFamily returns a metric with one series per cgroup and block device. read returns the value of a device.
func deviceFamily(name, help string, read func(d *cgroups.IODevice) uint64, ofDisk func(counts *[11]uint64) float64) family {
	f := family{name: name, kind: counter, help: help, parts: cgroups.PartIO, procParts: procDisks, emit: func(e *emitter, r *cgroupRow) {
		for i := range r.Stats.IO.Devices {
			e.writeWithLabels(r.devices[i], float64(read(&r.Stats.IO.Devices[i])))
		}
		// In the root cgroup, the kernel has no counters for some disks: /proc/diskstats has them.
		if ofDisk != nil {
			e.writeDisks(r, ofDisk, r.devices)
		}
	}}
	if ofDisk != nil {
		f.procParts |= procMounts
	}
	return f
}

func ioFamilies() []family {
	return []family{
		{
			name: "container_blkio_device_usage_total", kind: counter, help: "Bytes read from and written to a block device.", parts: cgroups.PartIO, procParts: procDisks,
			emit: func(e *emitter, r *cgroupRow) {
				for i := range r.Stats.IO.Devices {
					d := &r.Stats.IO.Devices[i]
					of := r.devices[i] + `,major="` + strconv.FormatUint(uint64(d.Major), 10) + `",minor="` + strconv.FormatUint(uint64(d.Minor), 10) + `",operation=`
					e.writeWithLabels(of+`"Read"`, float64(d.ReadBytes))
					e.writeWithLabels(of+`"Write"`, float64(d.WriteBytes))
				}
			},
		},
		deviceFamily("container_fs_reads_bytes_total", "Bytes read.", func(d *cgroups.IODevice) uint64 { return d.ReadBytes }, nil),
		deviceFamily("container_fs_reads_total", "Reads.", func(d *cgroups.IODevice) uint64 { return d.Reads }, diskCounter(diskReads)),
		deviceFamily("container_fs_writes_bytes_total", "Bytes written.", func(d *cgroups.IODevice) uint64 { return d.WriteBytes }, nil),
		deviceFamily("container_fs_writes_total", "Writes.", func(d *cgroups.IODevice) uint64 { return d.Writes }, diskCounter(diskWrites)),
	}
}

// interfaceFamily returns a metric with one series per network interface of the node and of each pod. The function read
// returns the value of a series.
func interfaceFamily(name, help string, read func(i *stats.Interface) uint64) family {
	return family{name: name, kind: counter, help: help, emit: func(e *emitter, r *cgroupRow) {
		for i := range r.interfaces {
			e.writeWithLabels(formatLabel("interface", r.interfaces[i].Name), float64(read(&r.interfaces[i])))
		}
	}}
}

func networkFamilies() []family {
	return []family{
		interfaceFamily("container_network_receive_bytes_total", "Bytes received.", func(i *stats.Interface) uint64 { return i.RxBytes }),
		interfaceFamily("container_network_receive_errors_total", "Errors while receiving.", func(i *stats.Interface) uint64 { return i.RxErrors }),
		interfaceFamily("container_network_receive_packets_dropped_total", "Packets dropped while receiving.", func(i *stats.Interface) uint64 { return i.RxDropped }),
		interfaceFamily("container_network_receive_packets_total", "Packets received.", func(i *stats.Interface) uint64 { return i.RxPackets }),
		interfaceFamily("container_network_transmit_bytes_total", "Bytes sent.", func(i *stats.Interface) uint64 { return i.TxBytes }),
		interfaceFamily("container_network_transmit_errors_total", "Errors while sending.", func(i *stats.Interface) uint64 { return i.TxErrors }),
		interfaceFamily("container_network_transmit_packets_dropped_total", "Packets dropped while sending.", func(i *stats.Interface) uint64 { return i.TxDropped }),
		interfaceFamily("container_network_transmit_packets_total", "Packets sent.", func(i *stats.Interface) uint64 { return i.TxPackets }),
	}
}

func taskFamilies() []family {
	return []family{
		cgroupFamily("container_processes", gauge, "Processes of the cgroup itself.", cgroups.PartProcs,
			func(s *cgroups.Stats) float64 { return float64(len(s.Pids.Procs)) }),
		cgroupFamily("container_threads", gauge, "Processes and threads.", cgroups.PartPids,
			func(s *cgroups.Stats) float64 { return float64(s.Pids.Current) }),
		cgroupFamily("container_threads_max", gauge, "Limit of processes and threads, 0 for none.", cgroups.PartPidsLimit,
			func(s *cgroups.Stats) float64 { return limitOrZero(s.Pids.Max) }),
	}
}

// pressureFamily returns a metric about pressure stalls (PSI) of cgroups: the time for which some tasks, or all if full, were
// stalled.
func pressureFamily(name, help string, part cgroups.Parts, read func(s *cgroups.Stats) *cgroups.Pressure, full bool) family {
	return family{name: name, kind: counter, help: help, parts: part, emit: func(e *emitter, r *cgroupRow) {
		p := read(&r.Stats)
		switch {
		case p == nil: // the kernel has no PSI
		case full:
			e.writeValue(roundToMicros(p.Full.Total))
		default:
			e.writeValue(roundToMicros(p.Some.Total))
		}
	}}
}

// roundToMicros returns duration in seconds, rounded to whole microseconds, the resolution of the kernel.
func roundToMicros(duration time.Duration) float64 { return math.Round(float64(duration)/1e3) / 1e6 }

func pressureFamilies() []family {
	return []family{
		pressureFamily("container_pressure_cpu_stalled_seconds_total", "Time for which all waited for CPU.", cgroups.PartCPUPressure, cpuPressure, true),
		pressureFamily("container_pressure_cpu_waiting_seconds_total", "Time for which some waited for CPU.", cgroups.PartCPUPressure, cpuPressure, false),
		pressureFamily("container_pressure_io_stalled_seconds_total", "Time for which all waited for IO.", cgroups.PartIOPressure, ioPressure, true),
		pressureFamily("container_pressure_io_waiting_seconds_total", "Time for which some waited for IO.", cgroups.PartIOPressure, ioPressure, false),
		pressureFamily("container_pressure_memory_stalled_seconds_total", "Time for which all waited for memory.", cgroups.PartMemoryPressure, memoryPressure, true),
		pressureFamily("container_pressure_memory_waiting_seconds_total", "Time for which some waited for memory.", cgroups.PartMemoryPressure, memoryPressure, false),
	}
}

func cpuPressure(s *cgroups.Stats) *cgroups.Pressure    { return s.CPU.Pressure }
func ioPressure(s *cgroups.Stats) *cgroups.Pressure     { return s.IO.Pressure }
func memoryPressure(s *cgroups.Stats) *cgroups.Pressure { return s.Memory.Pressure }
