// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroups

import "bytes"

// MemoryStat holds the counters of memory.stat that describe a workload, in bytes or as event counts. On v1 they are the total_
// counters, which include the descendants of the cgroup.
type MemoryStat struct {
	Anon          uint64 // anonymous memory; rss on v1
	File          uint64 // page cache including Shmem; cache on v1
	Kernel        uint64 // all kernel memory; v2 since Linux 5.18
	KernelStack   uint64 // v2
	PageTables    uint64 // v2
	PerCPU        uint64 // v2
	Sock          uint64 // network buffers; v2
	Shmem         uint64 // tmpfs and shared memory, which can be freed only by swapping
	Zswap         uint64 // compressed swap in memory; v2
	FileMapped    uint64
	FileDirty     uint64
	FileWriteback uint64
	SwapCached    uint64
	Swap          uint64 // v1; on v2 see [MemoryStats]
	AnonTHP       uint64 // anonymous transparent huge pages; rss_huge on v1

	InactiveAnon      uint64
	ActiveAnon        uint64
	InactiveFile      uint64
	ActiveFile        uint64
	Unevictable       uint64
	SlabReclaimable   uint64 // v2
	SlabUnreclaimable uint64 // v2

	PageFaults      uint64 // page faults, including minor ones without I/O
	MajorPageFaults uint64 // page faults that needed I/O
	RefaultAnon     uint64 // anonymous pages that were used again soon after reclaim
	RefaultFile     uint64 // file pages that were used again soon after reclaim
	PagesScanned    uint64 // by reclaim; v2
	PagesReclaimed  uint64 // v2
}

// ParseMemoryStat parses memory.stat of cgroup v1 or v2. Keys without a field in [MemoryStat] are ignored.
func ParseMemoryStat(content []byte) (MemoryStat, error) {
	var m MemoryStat
	v1 := bytes.Contains(content, []byte("\ntotal_cache "))
	s := scanner{kind: "memory stat", rest: content}
	for s.nextPair() {
		key := s.key
		if v1 {
			var ok bool
			if key, ok = bytes.CutPrefix(key, []byte("total_")); !ok {
				continue // the counter without descendants
			}
		}
		if field := m.fieldForKey(string(key)); field != nil {
			*field = s.parseValue()
		}
	}
	return m, s.err
}

// fieldForKey returns the field of m for a key of memory.stat. It returns nil if the key is to be ignored.
func (m *MemoryStat) fieldForKey(key string) *uint64 {
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
	return m.reclaimFieldForKey(key)
}

// reclaimFieldForKey returns the field of m for a key of memory.stat about page lists or reclaim. It returns nil for all
// other keys.
func (m *MemoryStat) reclaimFieldForKey(key string) *uint64 {
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
