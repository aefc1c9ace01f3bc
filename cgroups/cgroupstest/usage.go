// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroupstest

import (
	"slices"
	"syscall"

	"github.com/seed81659283/nodeagent/cgroups"
)

// usage is what a cgroup and everything below it use.
type usage struct {
	memory, memoryPeak int64
	cache              int64 // part of memory
	active             int64 // part of cache
	swap               int64
	pids, pidsPeak     int64
	refused            uint64
	memoryEvents       cgroups.MemoryEvents
	cpu                cgroups.CPUStat
	devices            []cgroups.IODevice // in the order in which they were first used
	hugetlb            map[string]cgroups.HugetlbStats
}

// AddCPU lets what runs in a cgroup use CPU time, and be held back if c says so: c is added to the counters of the
// cgroup and of all above it. c.Pressure does not count. A frozen cgroup uses none, without an error.
func (t *Tree) AddCPU(p cgroups.Path, c cgroups.CPUStat) error {
	return t.use("use CPU time in", p, func(n *node) error {
		if n.isFrozen() {
			return nil
		}
		for a := range n.upwards() {
			s := &a.usage.cpu
			s.Usage += c.Usage
			s.User += c.User
			s.System += c.System
			s.Periods += c.Periods
			s.Throttled += c.Throttled
			s.ThrottledTime += c.ThrottledTime
			s.Bursts += c.Bursts
			s.BurstTime += c.BurstTime
		}
		return nil
	})
}

// AddIO lets what runs in a cgroup read and write: d is added to the counters of its device, in the cgroup and in all
// above it. A frozen cgroup does neither, without an error.
func (t *Tree) AddIO(p cgroups.Path, d cgroups.IODevice) error {
	return t.use("use a device in", p, func(n *node) error {
		if n.isFrozen() {
			return nil
		}
		for a := range n.upwards() {
			s := a.device(d.Major, d.Minor)
			s.ReadBytes += d.ReadBytes
			s.WriteBytes += d.WriteBytes
			s.DiscardBytes += d.DiscardBytes
			s.Reads += d.Reads
			s.Writes += d.Writes
			s.Discards += d.Discards
		}
		return nil
	})
}

// device returns the counters of one device.
func (n *node) device(major, minor uint32) *cgroups.IODevice {
	all := n.usage.devices
	i := slices.IndexFunc(all, func(d cgroups.IODevice) bool { return d.Major == major && d.Minor == minor })
	if i < 0 {
		i = len(all)
		n.usage.devices = append(all, cgroups.IODevice{Major: major, Minor: minor})
	}
	return &n.usage.devices[i]
}

// SetHugetlb lets a cgroup hold so many bytes of huge pages of a size. Where a limit is in the way, the error wraps
// ENOMEM, and nothing changes but the count of such errors.
func (t *Tree) SetHugetlb(p cgroups.Path, size string, bytes int64) error {
	return t.use("use huge pages in", p, func(n *node) error {
		if !slices.Contains(t.opts.HugepageSizes, size) {
			return &fileError{t.file("hugetlb." + size + ".max"), syscall.ENOENT}
		}
		more := bytes - n.hugetlb[size]
		for c := range n.upwards() {
			limit, limited := c.limits.hugetlb[size]
			if more > 0 && limited && int64(c.usage.hugetlb[size].Current)+more > limit {
				n.addHugetlb(size, 0, 1)
				return &fileError{t.file("hugetlb." + size + ".max"), syscall.ENOMEM}
			}
		}
		n.hugetlb = with(n.hugetlb, size, bytes)
		n.addHugetlb(size, more, 0)
		return nil
	})
}

// addHugetlb adds bytes and errors to n and to all above it.
func (n *node) addHugetlb(size string, bytes int64, refused uint64) {
	for c := range n.upwards() {
		if c.usage.hugetlb == nil {
			c.usage.hugetlb = map[string]cgroups.HugetlbStats{}
		}
		h := c.usage.hugetlb[size]
		c.usage.hugetlb[size] = cgroups.HugetlbStats{Current: uint64(int64(h.Current) + bytes), Refused: h.Refused + refused}
	}
}

// count adds to the memory events of n and, in V2, of all above it.
func (t *Tree) count(n *node, f func(e *cgroups.MemoryEvents)) {
	for c := range n.upwards() {
		f(&c.usage.memoryEvents)
		t.counted(c)
		if t.opts.Mode == V1 {
			break
		}
	}
}

// use does something in a cgroup.
func (t *Tree) use(op string, p cgroups.Path, f func(n *node) error) error {
	return t.do(op, p, func() error {
		n, err := t.find(p)
		if err != nil {
			return err
		}
		return f(n)
	})
}

// stats returns the usage as a driver reads it.
func (t *Tree) stats(n *node) cgroups.Stats {
	u := &n.usage
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
		Events: cgroups.CgroupEvents{Populated: u.pids > 0, Frozen: n.isFrozen()},
	}
	for _, size := range t.opts.HugepageSizes {
		s.Hugetlb = with(s.Hugetlb, size, u.hugetlb[size])
	}
	if t.opts.Mode == V1 { // which counts no other events
		s.Memory.Events = cgroups.MemoryEvents{Max: u.memoryEvents.Max, OOMKill: u.memoryEvents.OOMKill}
		return s
	}
	p := n.pressures()
	s.CPU.Pressure, s.Memory.Pressure, s.IO.Pressure = p[0], p[1], p[2]
	return s
}
