// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroupstest

import (
	"slices"
	"syscall"

	"github.com/seed81659283/nodeagent/cgroups"
)

// usage holds the resource usage of a cgroup and its descendants, in bytes unless the names say otherwise.
type usage struct {
	memory, memoryPeak int64
	cache              int64 // included in memory
	active             int64 // included in cache
	swap               int64
	pids, pidsPeak     int64
	refused            uint64
	memoryEvents       cgroups.MemoryEvents
	cpu                cgroups.CPUStat
	devices            []cgroups.IODevice // in the order of first use
	hugetlb            map[string]cgroups.HugetlbStats
}

// AddCPU adds the CPU time and throttling in stat to the counters of p and its ancestors; stat.Pressure is ignored. If p is
// frozen, it adds nothing and returns nil.
func (t *Tree) AddCPU(p cgroups.Path, stat cgroups.CPUStat) error {
	return t.withCgroup("use CPU time in", p, func(n *node) error {
		if n.isFrozen() {
			return nil
		}
		for a := range n.selfAndAncestors() {
			s := &a.usage.cpu
			s.Usage += stat.Usage
			s.User += stat.User
			s.System += stat.System
			s.Periods += stat.Periods
			s.Throttled += stat.Throttled
			s.ThrottledTime += stat.ThrottledTime
			s.Bursts += stat.Bursts
			s.BurstTime += stat.BurstTime
		}
		return nil
	})
}

// AddIO adds the counters of device to p and its ancestors. If p is frozen, it adds nothing and returns nil.
func (t *Tree) AddIO(p cgroups.Path, device cgroups.IODevice) error {
	return t.withCgroup("use a device in", p, func(n *node) error {
		if n.isFrozen() {
			return nil
		}
		for a := range n.selfAndAncestors() {
			s := a.deviceCounters(device.Major, device.Minor)
			s.ReadBytes += device.ReadBytes
			s.WriteBytes += device.WriteBytes
			s.DiscardBytes += device.DiscardBytes
			s.Reads += device.Reads
			s.Writes += device.Writes
			s.Discards += device.Discards
		}
		return nil
	})
}

// deviceCounters returns the counters of the device in n, and creates them if there are none.
func (n *node) deviceCounters(major, minor uint32) *cgroups.IODevice {
	all := n.usage.devices
	i := slices.IndexFunc(all, func(d cgroups.IODevice) bool { return d.Major == major && d.Minor == minor })
	if i < 0 {
		i = len(all)
		n.usage.devices = append(all, cgroups.IODevice{Major: major, Minor: minor})
	}
	return &n.usage.devices[i]
}

// SetHugetlb sets the usage of huge pages of the given size in p. If this would exceed a limit, the error wraps ENOMEM, and only
// the count of refused allocations changes.
func (t *Tree) SetHugetlb(p cgroups.Path, size string, bytes int64) error {
	return t.withCgroup("use huge pages in", p, func(n *node) error {
		if !slices.Contains(t.opts.HugepageSizes, size) {
			return &fileError{t.fileName("hugetlb." + size + ".max"), syscall.ENOENT}
		}
		more := bytes - n.hugetlb[size]
		for c := range n.selfAndAncestors() {
			limit, limited := c.limits.hugetlb[size]
			if more > 0 && limited && int64(c.usage.hugetlb[size].Current)+more > limit {
				n.addHugetlb(size, 0, 1)
				return &fileError{t.fileName("hugetlb." + size + ".max"), syscall.ENOMEM}
			}
		}
		n.hugetlb = withEntry(n.hugetlb, size, bytes)
		n.addHugetlb(size, more, 0)
		return nil
	})
}

// addHugetlb adds bytes to the usage of huge pages, and refused to the refused allocations, in n and its ancestors.
func (n *node) addHugetlb(size string, bytes int64, refused uint64) {
	for c := range n.selfAndAncestors() {
		if c.usage.hugetlb == nil {
			c.usage.hugetlb = map[string]cgroups.HugetlbStats{}
		}
		h := c.usage.hugetlb[size]
		c.usage.hugetlb[size] = cgroups.HugetlbStats{Current: uint64(int64(h.Current) + bytes), Refused: h.Refused + refused}
	}
}

// countEvent calls f to count a memory event of cgroup and, in V2, of each ancestor. It also fires the triggers of
// memory.events.
func (t *Tree) countEvent(cgroup *node, f func(e *cgroups.MemoryEvents)) {
	for c := range cgroup.selfAndAncestors() {
		f(&c.usage.memoryEvents)
		t.fireMemoryEvents(c)
		if t.opts.Mode == V1 {
			break
		}
	}
}

// withCgroup calls f with the node of cgroup p while it holds the lock.
func (t *Tree) withCgroup(op string, p cgroups.Path, f func(n *node) error) error {
	return t.runLocked(op, p, func() error {
		n, err := t.findNode(p)
		if err != nil {
			return err
		}
		return f(n)
	})
}

// toStats converts the simulated usage of cgroup to the statistics that a cgroup driver returns. In mode V1 it leaves out
// values that cgroup v1 does not have, such as pressure.
func (t *Tree) toStats(cgroup *node) cgroups.Stats {
	u := &cgroup.usage
	s := cgroups.Stats{
		CPU:  u.cpu,
		Pids: cgroups.PidsStats{Current: uint64(u.pids), Peak: uint64(u.pidsPeak), Refused: u.refused},
		IO:   cgroups.IOStats{Devices: slices.Clone(u.devices)},
		Memory: cgroups.MemoryStats{
			Current: uint64(u.memory), Peak: uint64(u.memoryPeak), Swap: uint64(u.swap), Events: u.memoryEvents,
			Stat: cgroups.MemoryStat{
				Anon: uint64(u.memory - u.cache), ActiveAnon: uint64(u.memory - u.cache),
				File: uint64(u.cache), ActiveFile: uint64(u.active), InactiveFile: uint64(u.cache - u.active),
			},
		},
		Events: cgroups.CgroupEvents{Populated: u.pids > 0, Frozen: cgroup.isFrozen()},
	}
	for _, size := range t.opts.HugepageSizes {
		s.Hugetlb = withEntry(s.Hugetlb, size, u.hugetlb[size])
	}
	if t.opts.Mode == V1 { // V1 counts no other events
		s.Memory.Events = cgroups.MemoryEvents{Max: u.memoryEvents.Max, OOMKill: u.memoryEvents.OOMKill}
		return s
	}
	p := cgroup.currentPressure()
	s.CPU.Pressure, s.Memory.Pressure, s.IO.Pressure = &p[0], &p[1], &p[2]
	return s
}
