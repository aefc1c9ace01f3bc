// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroups

import "bytes"

// MemoryStat is what memory is used for, in bytes, and how often it was asked for. It has the counters of memory.stat
// that say something about a workload; on v1 they are those of the whole hierarchy, named total_ there.
type MemoryStat struct {
	Anon          uint64 // not backed by files; rss on v1
	File          uint64 // page cache, Shmem included; cache on v1
	Kernel        uint64 // all memory of the kernel; v2 since Linux 5.18
	KernelStack   uint64 // v2
	PageTables    uint64 // v2
	PerCPU        uint64 // v2
	Sock          uint64 // buffers of the network; v2
	Shmem         uint64 // tmpfs and shared memory, which only swap can free
	Zswap         uint64 // compressed memory; v2
	FileMapped    uint64
	FileDirty     uint64
	FileWriteback uint64
	SwapCached    uint64
	Swap          uint64 // v1; on v2 a file of its own, see [MemoryStats]
	AnonTHP       uint64 // transparent huge pages; rss_huge on v1

	InactiveAnon      uint64
	ActiveAnon        uint64
	InactiveFile      uint64
	ActiveFile        uint64
	Unevictable       uint64
	SlabReclaimable   uint64 // v2
	SlabUnreclaimable uint64 // v2

	PageFaults      uint64 // all, also those that needed no disk
	MajorPageFaults uint64 // those that needed one
	RefaultAnon     uint64 // pages that came back soon after they had been reclaimed
	RefaultFile     uint64
	PagesScanned    uint64 // by reclaim; v2
	PagesReclaimed  uint64 // v2
}

// ParseMemoryStat parses memory.stat of v2 or v1. Keys that it does not know are left out.
func ParseMemoryStat(b []byte) (MemoryStat, error) {
	var m MemoryStat
	v1 := bytes.Contains(b, []byte("\ntotal_cache "))
	s := scanner{kind: "memory stat", rest: b}
	for s.next() {
		key := s.key
		if v1 {
			var ok bool
			if key, ok = bytes.CutPrefix(key, []byte("total_")); !ok {
				continue // of this cgroup without those below
			}
		}
		if field := m.field(string(key)); field != nil {
			*field = s.number()
		}
	}
	return m, s.err
}

// field returns where a key goes, nil for one that goes nowhere.
func (m *MemoryStat) field(key string) *uint64 {
	switch key {
	case "anon", "rss":
		return &m.Anon
	case "file", "cache":
		return &m.File
	case "kernel":
		return &m.Kernel
	case "kernel_stack":
		return &m.KernelStack
	case "pagetables":
		return &m.PageTables
	case "percpu":
		return &m.PerCPU
	case "sock":
		return &m.Sock
	case "shmem":
		return &m.Shmem
	case "zswap":
		return &m.Zswap
	case "file_mapped", "mapped_file":
		return &m.FileMapped
	case "file_dirty", "dirty":
		return &m.FileDirty
	case "file_writeback", "writeback":
		return &m.FileWriteback
	case "swapcached":
		return &m.SwapCached
	case "swap":
		return &m.Swap
	case "anon_thp", "rss_huge":
		return &m.AnonTHP
	}
	return m.listField(key)
}

// listField is field for the lists of the page reclaim and its counters.
func (m *MemoryStat) listField(key string) *uint64 {
	switch key {
	case "inactive_anon":
		return &m.InactiveAnon
	case "active_anon":
		return &m.ActiveAnon
	case "inactive_file":
		return &m.InactiveFile
	case "active_file":
		return &m.ActiveFile
	case "unevictable":
		return &m.Unevictable
	case "slab_reclaimable":
		return &m.SlabReclaimable
	case "slab_unreclaimable":
		return &m.SlabUnreclaimable
	case "pgfault":
		return &m.PageFaults
	case "pgmajfault":
		return &m.MajorPageFaults
	case "workingset_refault_anon":
		return &m.RefaultAnon
	case "workingset_refault_file":
		return &m.RefaultFile
	case "pgscan":
		return &m.PagesScanned
	case "pgsteal":
		return &m.PagesReclaimed
	}
	return nil
}
