// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroupstest

import (
	"fmt"
	"math"
	"slices"
	"syscall"
	"time"

	"github.com/seed81659283/nodeagent/cgroups"
)

// maxDemand bounds the CPU demand of a process, so that sums keep their precision.
const maxDemand = 1 << 20

// SetCPU sets the CPU demand of the process with this PID: how many CPUs it uses while no other process competes and no quota
// applies. A demand of 1.5 is that of two threads, one of which sleeps half of the time. [Tree.Schedule] divides the CPUs.
func (t *Tree) SetCPU(pid int, cpus float64) error {
	if !(cpus >= 0 && cpus <= maxDemand) { // also false for NaN
		return fmt.Errorf("process %d: demand of %g CPUs: %w", pid, cpus, syscall.EINVAL)
	}
	return t.withProc(pid, func(pr *proc) error {
		pr.demand = cpus
		return nil
	})
}

// Schedule runs all processes for the duration d with constant demands, as the fair scheduler of Linux does on average. It adds
// CPU time, quota periods and throttling to the counters of the cgroups, and stall time to their cpu.pressure. In V1 there is no
// pressure.
//
// The CPUs of the machine, Options.CPUs, are divided among the root's children and processes by their weights, and the share of
// each cgroup among its own children and processes. None gets more than its demand or its quota; the rest is divided among the
// others again. A thread has the weight of a cgroup with cpu.weight 100.
func (t *Tree) Schedule(d time.Duration) {
	if d <= 0 {
		return
	}
	_ = t.lockAndNotify(func() error {
		t.sumDemand(t.root, false)
		t.root.cpu.got = t.root.cpu.limit
		t.divideCPU(t.root)
		t.root.countCPU(d)
		if t.opts.Mode == V2 {
			t.root.countStall(d)
			t.firePressure()
		}
		return nil
	})
}

// cpuShare is the result of one Schedule call for a cgroup or a process. All rates are in CPUs.
type cpuShare struct {
	weight  float64
	threads float64 // runnable threads, if each waits until it has a CPU
	wanted  float64 // rate without competition and without a quota of its own
	limit   float64 // wanted, or the quota if that is lower
	got     float64 // the rate that it gets
	// throttled is the fraction of the time in which the quota of the cgroup stops its processes.
	throttled float64
}

// sumDemand computes weight, threads, wanted and limit of cgroup, its descendants and their processes. frozen means that an
// ancestor is frozen.
func (t *Tree) sumDemand(cgroup *node, frozen bool) {
	frozen = frozen || cgroup.frozen
	s := cpuShare{weight: cgroup.limits.cpuWeight(t.opts.Mode)}
	for _, pr := range cgroup.procs {
		pr.cpu = cpuShare{weight: 100}
		if !frozen && pr.demand > 0 {
			pr.cpu.threads = math.Ceil(pr.demand)
			pr.cpu.weight *= pr.cpu.threads
			pr.cpu.wanted = min(pr.demand, t.numCPU())
		}
		pr.cpu.limit = pr.cpu.wanted
		s.wanted += pr.cpu.limit
		s.threads += pr.cpu.threads
	}
	for _, c := range cgroup.children {
		t.sumDemand(c, frozen)
		s.wanted += c.cpu.limit
		s.threads += c.cpu.threads
	}
	s.wanted = min(s.wanted, t.numCPU())
	s.limit = s.wanted
	if cgroup.limits.quota != cgroups.Unlimited {
		s.limit = min(s.limit, cgroup.limits.quotaCPUs())
	}
	cgroup.cpu = s
}

// numCPU returns the number of CPUs of the machine.
func (t *Tree) numCPU() float64 { return float64(max(t.opts.CPUs, 1)) }

// cpuWeight returns the weight of a cgroup in units of cpu.weight, where a thread has 100.
func (l *limits) cpuWeight(mode Mode) float64 {
	if mode == V1 {
		return float64(l.weight) * 100 / 1024
	}
	return float64(l.weight)
}

// divideCPU divides the rate that cgroup gets among its children and processes.
func (t *Tree) divideCPU(cgroup *node) {
	var shares []*cpuShare
	for _, pr := range cgroup.procs {
		if pr.cpu.limit > 0 {
			shares = append(shares, &pr.cpu)
		}
	}
	for _, c := range cgroup.children {
		if c.cpu.limit > 0 {
			shares = append(shares, &c.cpu)
		}
	}
	divideFairly(shares, cgroup.cpu.got)
	for _, c := range cgroup.children {
		if c.cpu.got > 0 {
			c.cpu.throttled = c.throttledFraction(shares, t.numCPU())
			t.divideCPU(c)
		}
	}
}

// divideFairly sets got of all shares: capacity in proportion to the weights, but at most the limit of each. The unused part of a
// limited share is divided among the remaining shares again.
func divideFairly(shares []*cpuShare, capacity float64) {
	order := slices.Clone(shares)
	slices.SortStableFunc(order, func(a, b *cpuShare) int {
		switch x, y := a.limit*b.weight, b.limit*a.weight; { // limit per weight
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	})
	var weights float64
	for _, s := range order {
		weights += s.weight
	}
	for _, s := range order {
		s.got = min(s.limit, capacity*s.weight/weights)
		capacity -= s.got
		weights -= s.weight
	}
}

// negligible is a difference between two rates that rounding explains.
const negligible = 1e-9

// throttledFraction returns the fraction of each quota period in which n is throttled. Without its quota n would run at a higher
// rate, and at this rate it uses its quota up before the period ends. shares are those of its parent.
func (n *node) throttledFraction(shares []*cpuShare, cpus float64) float64 {
	s := &n.cpu
	if s.limit >= s.wanted-negligible || s.got < s.limit-negligible {
		return 0
	}
	unlimited := make([]*cpuShare, 0, len(shares))
	var capacity float64
	active := *s
	active.limit = s.wanted
	for _, other := range shares {
		capacity += other.got
		if other != s {
			copied := *other
			unlimited = append(unlimited, &copied)
		}
	}
	unlimited = append(unlimited, &active)
	idle := cpus - capacity // CPUs that no process of the parent uses; another cgroup may use them
	divideFairly(unlimited, capacity+max(idle, 0))
	if active.got <= s.got+negligible {
		return 0
	}
	return 1 - s.got/active.got
}

// countCPU adds CPU time, quota periods and throttling of the duration d to the counters of n and its descendants. It returns the
// added CPU time of n in nanoseconds.
func (n *node) countCPU(d time.Duration) (used uint64) {
	for _, pr := range n.procs {
		used += uint64(math.Round(pr.cpu.got * float64(d)))
	}
	for _, c := range n.children {
		used += c.countCPU(d)
	}
	u := &n.usage.cpu
	u.Usage += used
	u.User += used
	if n.limits.quota == cgroups.Unlimited || n.cpu.threads == 0 {
		n.periodRest = 0
		return used
	}
	period := time.Duration(n.limits.period) * time.Microsecond
	n.periodRest += d
	periods := uint64(n.periodRest / period)
	n.periodRest %= period
	u.Periods += periods
	if n.cpu.throttled > 0 {
		u.Throttled += periods
		u.ThrottledTime += uint64(n.cpu.throttled * min(n.cpu.threads, n.cpu.wanted+1) * float64(d))
	}
	return used
}
