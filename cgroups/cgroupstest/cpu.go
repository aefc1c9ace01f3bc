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

// changeCPU sets the CPU demand of a process.
func (t *Tree) changeCPU(pr *proc, cpus float64) {
	t.cpuDivided = t.cpuDivided && pr.demand == cpus
	pr.demand = cpus
}

func checkCPUs(cpus float64) error {
	if !(cpus >= 0 && cpus <= maxDemand) { // also false for NaN
		return fmt.Errorf("demand of %g CPUs: %w", cpus, syscall.EINVAL)
	}
	return nil
}

// Schedule runs all processes for the duration d with constant demands, as the fair scheduler of Linux does on average. It adds
// CPU time, quota periods and throttling to the counters of the cgroups, and stall time to their cpu.pressure. In V1 there is no
// pressure.
//
// The CPUs of the machine, Options.CPUs, are divided among the root's children and processes by their weights, and the share of
// each cgroup among its own children and processes. None gets more than its demand; the rest is divided among the others again. A
// thread has the weight of a cgroup with cpu.weight 100. A cgroup whose quota is used up gets nothing until its period ends, and then
// runs first for a tick. All periods begin at the same time.
func (t *Tree) Schedule(d time.Duration) {
	if d <= 0 {
		return
	}
	_ = t.lockAndNotify(func() error {
		if !t.cpuDivided {
			t.dividePeriod()
			t.cpuDivided = true
		}
		t.root.countCPU(d, t.numCPU())
		if t.opts.Mode == V2 {
			t.root.countStall(d)
			t.firePressure()
		}
		return nil
	})
}

// cpuShare is the share of a cgroup or a process in the CPUs of the machine. All rates are in CPUs.
type cpuShare struct {
	weight  float64
	threads float64 // runnable threads, if each waits until it has a CPU
	wanted  float64 // rate without competition and without quotas
	got     float64 // average rate
	// throttled is the fraction of the time in which the quota of the cgroup stops its processes.
	throttled float64

	free float64 // rate in the last phase in which the quota did not limit it; zero: there was none
	left float64 // quota that is left in the period: CPUs × periods; negative: there is no quota
	// In the present phase:
	runnable    float64 // highest rate that the quotas of its children permit
	limit, rate float64 // highest and actual rate
	priority    float64 // weight
}

// phases is the number of parts of a quota period. In each part all rates are constant.
const phases = 20

// dividePeriod computes the CPU shares of all cgroups and processes in one quota period.
func (t *Tree) dividePeriod() {
	// when the quota of a cgroup is used up, other cgroups get its CPUs until the period ends
	t.root.sumDemand(t.numCPU(), t.opts.Mode, false)
	t.dividePhases(0)
	// a cgroup that was throttled in the first division has waited longest, so it runs first for one tick of the scheduler
	if t.root.markResumed() {
		t.root.sumDemand(t.numCPU(), t.opts.Mode, false)
		t.dividePhases(min(0.5, float64(t.opts.Tick)/float64(cgroups.DefaultPeriod*time.Microsecond)))
	}
}

// dividePhases computes the rates in all phases of a quota period. In an additional first phase, cgroups that resume run before others.
func (t *Tree) dividePhases(firstPhase float64) {
	t.root.cpu.rate = 0
	for phase := range phases + 1 {
		begin, length := firstPhase+float64(phase-1)*(1-firstPhase)/phases, (1-firstPhase)/phases
		if phase == 0 {
			begin, length = 0, firstPhase
		}
		if length == 0 {
			continue
		}
		t.root.limitRates(length)
		t.root.cpu.rate = t.root.cpu.limit
		divideCPU(t.root, phase == 0)
		if rest := 1 - begin; phase > 0 && !t.root.exhausts(rest) { // these rates last until the period ends
			t.root.spend(rest, length)
			return
		}
		t.root.spend(length, length)
	}
}

// markResumed marks the cgroups that resume after throttling, and reports whether there are any.
func (n *node) markResumed() (found bool) {
	n.resumes = n.cpu.throttled > 0
	waiting := 0.0
	for _, c := range n.children {
		found = c.markResumed() || found
		if c.resumes {
			waiting += c.cpu.threads
		}
	}
	// all its threads are in children that resume
	n.resumes = n.resumes || waiting > 0 && waiting == n.cpu.threads
	return found || n.resumes
}

// sumDemand initializes the CPU shares of n, its descendants and their processes: weight, runnable threads and demand.
func (n *node) sumDemand(cpus float64, mode Mode, parentFrozen bool) {
	frozen := parentFrozen || n.frozen
	s := cpuShare{weight: n.limits.cpuWeight(mode), left: -1}
	for _, pr := range n.procs {
		pr.cpu = cpuShare{weight: threadWeight}
		if !frozen && pr.demand > 0 {
			pr.cpu.threads = math.Ceil(pr.demand)
			pr.cpu.weight *= pr.cpu.threads
			pr.cpu.wanted = min(pr.demand, cpus)
		}
		s.wanted += pr.cpu.wanted
		s.threads += pr.cpu.threads
	}
	for _, c := range n.children {
		c.sumDemand(cpus, mode, frozen)
		s.wanted += c.cpu.wanted
		s.threads += c.cpu.threads
	}
	s.wanted = min(s.wanted, cpus)
	if n.limits.quota != cgroups.Unlimited {
		s.left = n.limits.quotaCPUs()
	}
	n.cpu = s
}

// limitRates computes the highest rates of n, its descendants and processes in a phase, whose length is a fraction of the quota period.
func (n *node) limitRates(length float64) {
	var sum float64
	for _, pr := range n.procs {
		pr.cpu.limit, pr.cpu.rate = pr.cpu.wanted, 0
		sum += pr.cpu.limit
	}
	for _, c := range n.children {
		c.limitRates(length)
		sum += c.cpu.limit
	}
	n.cpu.rate = 0
	n.cpu.runnable = min(n.cpu.wanted, sum)
	if n.cpu.limit = n.cpu.runnable; n.cpu.left >= 0 {
		n.cpu.limit = min(n.cpu.limit, n.cpu.left/length)
	}
}

// exhausts reports whether n or a descendant uses up its quota in the rest of the period.
func (n *node) exhausts(remaining float64) bool {
	if n.cpu.left >= 0 && n.cpu.rate > 0 && n.cpu.rate*remaining > n.cpu.left+negligible {
		return true
	}
	return slices.ContainsFunc(n.children, func(c *node) bool { return c.exhausts(remaining) })
}

// spend runs n and its descendants for a fraction of the quota period, and adds the CPU time to shares and quotas.
func (n *node) spend(length, phase float64) {
	s := &n.cpu
	if s.left >= 0 && s.threads > 0 {
		if s.runnable > s.left/phase+negligible { // its own quota limits it, and not those of its children
			s.throttled += length * (1 - min(1, s.rate/s.throttledRate()))
		}
		if s.left > s.rate*length+negligible {
			s.free = s.rate
		}
		s.left = max(0, s.left-s.rate*length)
	}
	s.got += s.rate * length
	for _, pr := range n.procs {
		pr.cpu.got += pr.cpu.rate * length
	}
	for _, c := range n.children {
		c.spend(length, phase)
	}
}

// throttledRate returns the rate at which the cgroup runs until its quota is used up.
func (s *cpuShare) throttledRate() float64 {
	// the rate in the last phase in which the quota did not limit the cgroup, or else the rate without competition
	if s.free > 0 {
		return s.free
	}
	return s.wanted
}

// numCPU returns the number of CPUs of the machine.
func (t *Tree) numCPU() float64 { return float64(max(t.opts.CPUs, 1)) }

// threadWeight is the weight of a thread in units of cpu.weight.
const threadWeight = 100

// cpuWeight returns the weight of a cgroup in units of cpu.weight.
func (l *limits) cpuWeight(mode Mode) float64 {
	if mode == V1 {
		return float64(l.weight) * threadWeight / 1024
	}
	return float64(l.weight)
}

// resumeFactor is the factor for the weight of a cgroup that runs before all others.
const resumeFactor = 1e6

// divideCPU divides the rate of a cgroup among its processes and children, down the tree.
func divideCPU(cgroup *node, resumedFirst bool) {
	shares := make([]*cpuShare, 0, len(cgroup.procs)+len(cgroup.children))
	for _, pr := range cgroup.procs {
		if pr.cpu.limit > 0 {
			pr.cpu.priority = pr.cpu.weight
			shares = append(shares, &pr.cpu)
		}
	}
	for _, c := range cgroup.children {
		if c.cpu.limit > 0 {
			c.cpu.priority = c.cpu.weight
			if resumedFirst && c.resumes {
				c.cpu.priority *= resumeFactor
			}
			shares = append(shares, &c.cpu)
		}
	}
	divideFairly(shares, cgroup.cpu.rate)
	for _, c := range cgroup.children {
		if c.cpu.rate > 0 {
			divideCPU(c, resumedFirst)
		}
	}
}

// divideFairly divides the capacity in proportion to the priorities of the shares, up to the limit of each share.
func divideFairly(shares []*cpuShare, capacity float64) {
	order := slices.Clone(shares)
	slices.SortStableFunc(order, func(a, b *cpuShare) int {
		switch x, y := a.limit*b.priority, b.limit*a.priority; { // limit per weight
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	})
	var weights float64
	for _, s := range order {
		weights += s.priority
	}
	for _, s := range order {
		s.rate = min(s.limit, capacity*s.priority/weights)
		capacity -= s.rate
		weights -= s.priority
	}
}

// negligible is a difference between two rates that rounding explains.
const negligible = 1e-9

// countCPU adds the CPU time, quota periods and throttling of the duration to the counters, and returns the used nanoseconds.
func (n *node) countCPU(d time.Duration, cpus float64) (used uint64) {
	for _, pr := range n.procs {
		used += uint64(math.Round(pr.cpu.got * float64(d)))
	}
	for _, c := range n.children {
		used += c.countCPU(d, cpus)
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
		u.ThrottledTime += uint64(n.cpu.throttled * min(n.cpu.threads, cpus) * float64(d)) // each CPU with a thread counts
	}
	return used
}
