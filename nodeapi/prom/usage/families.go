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

// containerFamilies are those of the kubelet's page that can be had from cgroups and from the list of the runtime.
func containerFamilies() []family {
	return slices.Concat(cpuFamilies(), lifeFamilies(), memoryFamilies(), ioFamilies(), diskFamilies(), networkFamilies(), taskFamilies(),
		processFamilies(), pressureFamilies(), specFamilies())
}

// lifeFamilies say since when there is a cgroup, and until when.
func lifeFamilies() []family {
	return []family{
		{
			name: "container_creation_time_seconds", kind: gauge, help: "When a container was made, in seconds since the epoch.",
			each: func(e *emitter, r *row) { e.moment(r.created()) },
		}, {
			name: "container_health_state", kind: gauge, help: "1 for a healthy container, 0 for another one, -1 without a health check, which no runtime has.",
			each: func(e *emitter, _ *row) { e.value(-1) },
		}, {
			name: "container_last_seen", kind: gauge, help: "When a container was last seen, in seconds since the epoch.",
			each: func(e *emitter, r *row) {
				e.at = r.now
				e.value(float64(r.now.Unix()))
			},
		}, {
			name: "container_start_time_seconds", kind: gauge, help: "When a container was started, in seconds since the epoch.",
			each: func(e *emitter, r *row) {
				if !r.Container.StartedAt.IsZero() {
					e.moment(r.Container.StartedAt)
					return
				}
				e.moment(r.created())
			},
		},
	}
}

// moment is a series with a time as its value, if there is one, and without a time stamp.
func (e *emitter) moment(at time.Time) {
	if !at.IsZero() {
		e.series(e.row.labels, "", float64(at.Unix()), time.Time{})
	}
}

// created returns when what a cgroup is of was made; zero: nobody says.
func (r *row) created() time.Time {
	if r.kind == ofContainer {
		return r.Container.CreatedAt
	}
	return r.Sandbox.CreatedAt
}

// one is a family with one value for each cgroup.
func one(name, kind, help string, parts cgroups.Parts, value func(s *cgroups.Stats) float64) family {
	return family{name: name, kind: kind, help: help, parts: parts, each: func(e *emitter, r *row) { e.value(value(&r.Stats)) }}
}

// bandwidth is a family of CPU quotas, for cgroups that have one.
func bandwidth(name, help string, value func(c *cgroups.CPUStat) float64) family {
	return family{name: name, kind: counter, help: help, parts: cgroups.PartCPU | cgroups.PartCPULimit, each: func(e *emitter, r *row) {
		if r.cpuLimit().Quota > 0 {
			e.value(value(&r.Stats.CPU))
		}
	}}
}

func seconds(nanoseconds uint64) float64 { return float64(nanoseconds) / 1e9 }

func cpuFamilies() []family {
	return []family{
		bandwidth("container_cpu_cfs_burst_periods_total", "Periods in which CPU time was used that had been saved.",
			func(c *cgroups.CPUStat) float64 { return float64(c.Bursts) }),
		bandwidth("container_cpu_cfs_burst_seconds_total", "CPU time above the quota.",
			func(c *cgroups.CPUStat) float64 { return seconds(c.BurstTime) }),
		bandwidth("container_cpu_cfs_periods_total", "Periods of the CPU quota.",
			func(c *cgroups.CPUStat) float64 { return float64(c.Periods) }),
		bandwidth("container_cpu_cfs_throttled_periods_total", "Periods in which the CPU quota was used up.",
			func(c *cgroups.CPUStat) float64 { return float64(c.Throttled) }),
		bandwidth("container_cpu_cfs_throttled_seconds_total", "Time for which a container was held back by its CPU quota.",
			func(c *cgroups.CPUStat) float64 { return seconds(c.ThrottledTime) }),
		one("container_cpu_system_seconds_total", counter, "CPU time in the kernel.", cgroups.PartCPU,
			func(s *cgroups.Stats) float64 { return seconds(s.CPU.System) }),
		{
			name: "container_cpu_usage_seconds_total", kind: counter, help: "CPU time.", parts: cgroups.PartCPU,
			each: func(e *emitter, r *row) {
				if r.Stats.CPU.Usage > 0 {
					e.with(`cpu="total"`, seconds(r.Stats.CPU.Usage))
				}
			},
		},
		one("container_cpu_user_seconds_total", counter, "CPU time in user mode.", cgroups.PartCPU,
			func(s *cgroups.Stats) float64 { return seconds(s.CPU.User) }),
	}
}

func memoryFamilies() []family {
	return []family{
		one("container_memory_cache", gauge, "Page cache in bytes.", cgroups.PartMemory,
			func(s *cgroups.Stats) float64 { return float64(s.Memory.Stat.File) }),
		one("container_memory_events_high_total", counter, "How often a container was slowed down by memory.high.", cgroups.PartMemoryEvents,
			func(s *cgroups.Stats) float64 { return float64(s.Memory.Events.High) }),
		one("container_memory_events_max_total", counter, "How often memory.max was reached.", cgroups.PartMemoryEvents,
			func(s *cgroups.Stats) float64 { return float64(s.Memory.Events.Max) }),
		one("container_memory_failcnt", counter, "How often the limit of memory was reached.", cgroups.PartMemoryEvents,
			func(s *cgroups.Stats) float64 { return float64(s.Memory.Events.Max) }),
		{
			name: "container_memory_failures_total", kind: counter, help: "Page faults.", parts: cgroups.PartMemory,
			each: func(e *emitter, r *row) {
				all, major := float64(r.Stats.Memory.Stat.PageFaults), float64(r.Stats.Memory.Stat.MajorPageFaults)
				e.with(`failure_type="pgfault",scope="container"`, all)
				e.with(`failure_type="pgfault",scope="hierarchy"`, all)
				e.with(`failure_type="pgmajfault",scope="container"`, major)
				e.with(`failure_type="pgmajfault",scope="hierarchy"`, major)
			},
		},
		one("container_memory_file_dirty_bytes", gauge, "Page cache that is to be written in bytes.", cgroups.PartMemory,
			func(s *cgroups.Stats) float64 { return float64(s.Memory.Stat.FileDirty) }),
		one("container_memory_file_writeback_bytes", gauge, "Page cache that is being written in bytes.", cgroups.PartMemory,
			func(s *cgroups.Stats) float64 { return float64(s.Memory.Stat.FileWriteback) }),
		one("container_memory_kernel_usage", gauge, "Memory of the kernel in bytes.", cgroups.PartMemory,
			func(s *cgroups.Stats) float64 { return float64(s.Memory.Stat.Kernel) }),
		one("container_memory_mapped_file", gauge, "Mapped files in bytes.", cgroups.PartMemory,
			func(s *cgroups.Stats) float64 { return float64(s.Memory.Stat.FileMapped) }),
		one("container_memory_max_usage_bytes", gauge, "The most memory that was in use in bytes.", cgroups.PartMemoryPeak,
			func(s *cgroups.Stats) float64 { return float64(s.Memory.Peak) }),
		one("container_memory_pgscan_total", counter, "Pages that reclaim has looked at.", cgroups.PartMemory,
			func(s *cgroups.Stats) float64 { return float64(s.Memory.Stat.PagesScanned) }),
		one("container_memory_pgsteal_total", counter, "Pages that were reclaimed.", cgroups.PartMemory,
			func(s *cgroups.Stats) float64 { return float64(s.Memory.Stat.PagesReclaimed) }),
		one("container_memory_rss", gauge, "Anonymous memory in bytes.", cgroups.PartMemory,
			func(s *cgroups.Stats) float64 { return float64(s.Memory.Stat.Anon) }),
		one("container_memory_swap", gauge, "Swap in use in bytes.", cgroups.PartSwap,
			func(s *cgroups.Stats) float64 { return float64(s.Memory.Swap) }),
		one("container_memory_total_active_file_bytes", gauge, "Page cache that is in use in bytes.", cgroups.PartMemory,
			func(s *cgroups.Stats) float64 { return float64(s.Memory.Stat.ActiveFile) }),
		one("container_memory_total_inactive_file_bytes", gauge, "Page cache that was not used lately in bytes.", cgroups.PartMemory,
			func(s *cgroups.Stats) float64 { return float64(s.Memory.Stat.InactiveFile) }),
		one("container_memory_usage_bytes", gauge, "Memory in use in bytes, page cache included.", cgroups.PartMemory,
			func(s *cgroups.Stats) float64 { return float64(s.Memory.Current) }),
		one("container_memory_working_set_bytes", gauge, "Working set in bytes.", cgroups.PartMemory,
			func(s *cgroups.Stats) float64 { return float64(s.Memory.WorkingSet()) }),
		one("container_memory_workingset_refault_anon_total", counter, "Anonymous pages that came back soon after they were reclaimed.", cgroups.PartMemory,
			func(s *cgroups.Stats) float64 { return float64(s.Memory.Stat.RefaultAnon) }),
		one("container_memory_workingset_refault_file_total", counter, "Pages of files that came back soon after they were reclaimed.", cgroups.PartMemory,
			func(s *cgroups.Stats) float64 { return float64(s.Memory.Stat.RefaultFile) }),
		one("container_oom_events_total", counter, "Processes that the OOM killer has killed.", cgroups.PartMemoryEvents,
			func(s *cgroups.Stats) float64 { return float64(s.Memory.Events.OOMKill) }),
	}
}

// device is a family of block devices. Where ofDisk is not nil, the machine has its file systems beside what its cgroup has counted.
func device(name, help string, value func(d *cgroups.IODevice) uint64, ofDisk func(counts *[11]uint64) float64) family {
	f := family{name: name, kind: counter, help: help, parts: cgroups.PartIO, reads: readsDisks, each: func(e *emitter, r *row) {
		for i := range r.Stats.IO.Devices {
			e.with(r.devices[i], float64(value(&r.Stats.IO.Devices[i])))
		}
		if ofDisk != nil {
			e.ofDisks(r, ofDisk, r.devices)
		}
	}}
	if ofDisk != nil {
		f.reads |= readsMounts
	}
	return f
}

func ioFamilies() []family {
	return []family{
		{
			name: "container_blkio_device_usage_total", kind: counter, help: "Bytes read from and written to a block device.", parts: cgroups.PartIO, reads: readsDisks,
			each: func(e *emitter, r *row) {
				for i := range r.Stats.IO.Devices {
					d := &r.Stats.IO.Devices[i]
					of := r.devices[i] + `,major="` + strconv.FormatUint(uint64(d.Major), 10) + `",minor="` + strconv.FormatUint(uint64(d.Minor), 10) + `",operation=`
					e.with(of+`"Read"`, float64(d.ReadBytes))
					e.with(of+`"Write"`, float64(d.WriteBytes))
				}
			},
		},
		device("container_fs_reads_bytes_total", "Bytes read.", func(d *cgroups.IODevice) uint64 { return d.ReadBytes }, nil),
		device("container_fs_reads_total", "Reads.", func(d *cgroups.IODevice) uint64 { return d.Reads }, count(diskReads)),
		device("container_fs_writes_bytes_total", "Bytes written.", func(d *cgroups.IODevice) uint64 { return d.WriteBytes }, nil),
		device("container_fs_writes_total", "Writes.", func(d *cgroups.IODevice) uint64 { return d.Writes }, count(diskWrites)),
	}
}

// network is a family of network interfaces.
func network(name, help string, value func(i *stats.Interface) uint64) family {
	return family{name: name, kind: counter, help: help, each: func(e *emitter, r *row) {
		for i := range r.interfaces {
			e.with(label("interface", r.interfaces[i].Name), float64(value(&r.interfaces[i])))
		}
	}}
}

func networkFamilies() []family {
	return []family{
		network("container_network_receive_bytes_total", "Bytes received.", func(i *stats.Interface) uint64 { return i.RxBytes }),
		network("container_network_receive_errors_total", "Errors while receiving.", func(i *stats.Interface) uint64 { return i.RxErrors }),
		network("container_network_receive_packets_dropped_total", "Packets dropped while receiving.", func(i *stats.Interface) uint64 { return i.RxDropped }),
		network("container_network_receive_packets_total", "Packets received.", func(i *stats.Interface) uint64 { return i.RxPackets }),
		network("container_network_transmit_bytes_total", "Bytes sent.", func(i *stats.Interface) uint64 { return i.TxBytes }),
		network("container_network_transmit_errors_total", "Errors while sending.", func(i *stats.Interface) uint64 { return i.TxErrors }),
		network("container_network_transmit_packets_dropped_total", "Packets dropped while sending.", func(i *stats.Interface) uint64 { return i.TxDropped }),
		network("container_network_transmit_packets_total", "Packets sent.", func(i *stats.Interface) uint64 { return i.TxPackets }),
	}
}

func taskFamilies() []family {
	return []family{
		one("container_processes", gauge, "Processes of the cgroup itself.", cgroups.PartProcs,
			func(s *cgroups.Stats) float64 { return float64(len(s.Pids.Procs)) }),
		one("container_threads", gauge, "Processes and threads.", cgroups.PartPids,
			func(s *cgroups.Stats) float64 { return float64(s.Pids.Current) }),
		one("container_threads_max", gauge, "Limit of processes and threads, 0 for none.", cgroups.PartPidsLimit,
			func(s *cgroups.Stats) float64 { return limit(s.Pids.Max) }),
	}
}

// pressure is a family of stalls; there is none where the kernel does not tell.
func pressure(name, help string, part cgroups.Parts, value func(s *cgroups.Stats) *cgroups.Pressure, full bool) family {
	return family{name: name, kind: counter, help: help, parts: part, each: func(e *emitter, r *row) {
		p := value(&r.Stats)
		switch {
		case p == nil:
		case full:
			e.value(micro(p.Full.Total))
		default:
			e.value(micro(p.Some.Total))
		}
	}}
}

// micro returns seconds of a time that the kernel counts in microseconds.
func micro(d time.Duration) float64 { return math.Round(float64(d)/1e3) / 1e6 }

func pressureFamilies() []family {
	return []family{
		pressure("container_pressure_cpu_stalled_seconds_total", "Time for which all waited for CPU.", cgroups.PartCPUPressure, cpuPressure, true),
		pressure("container_pressure_cpu_waiting_seconds_total", "Time for which some waited for CPU.", cgroups.PartCPUPressure, cpuPressure, false),
		pressure("container_pressure_io_stalled_seconds_total", "Time for which all waited for IO.", cgroups.PartIOPressure, ioPressure, true),
		pressure("container_pressure_io_waiting_seconds_total", "Time for which some waited for IO.", cgroups.PartIOPressure, ioPressure, false),
		pressure("container_pressure_memory_stalled_seconds_total", "Time for which all waited for memory.", cgroups.PartMemoryPressure, memoryPressure, true),
		pressure("container_pressure_memory_waiting_seconds_total", "Time for which some waited for memory.", cgroups.PartMemoryPressure, memoryPressure, false),
	}
}

func cpuPressure(s *cgroups.Stats) *cgroups.Pressure    { return s.CPU.Pressure }
func ioPressure(s *cgroups.Stats) *cgroups.Pressure     { return s.IO.Pressure }
func memoryPressure(s *cgroups.Stats) *cgroups.Pressure { return s.Memory.Pressure }
