// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroupstest

import (
	"math"
	"time"

	"github.com/seed81659283/nodeagent/cgroups"
)

// waiting describes the threads of a cgroup that wait for a CPU.
type waiting struct {
	threads float64 // average number of threads that wait for a busy CPU
	free    float64 // fraction of the time in which no descendant is throttled
}

// countStall adds the CPU stall time of the duration to the pressure of n and its descendants. It returns the waiting threads of
// n.
func (n *node) countStall(d time.Duration) waiting {
	w := waiting{free: 1}
	for _, pr := range n.procs {
		if pr.cpu.got < pr.cpu.wanted-negligible {
			w.threads += pr.cpu.threads - pr.cpu.got
		}
	}
	for _, c := range n.children {
		below := c.countStall(d)
		w.threads += below.threads
		w.free *= below.free
	}
	if n.cpu.throttled > 0 { // these threads wait for the quota, and not for a CPU
		w.threads = max(0, w.threads-n.cpu.throttled*n.cpu.threads)
		w.free *= 1 - n.cpu.throttled
	}
	// Threads that share a CPU wait one after the other, up to the whole duration. Cgroups with quotas are throttled
	// independently.
	some := 1 - (1-min(1, w.threads))*w.free
	full := n.cpu.throttled
	if w.threads > negligible {
		full = max(full, 1-n.cpu.got)
	}
	if n.parent == nil {
		full = 0 // a machine runs some thread while another waits
	}
	n.addStall(0, some, min(full, some), d)
	return w
}

// addStall adds the fractions some and full of the duration d to the pressure of a resource: 0 CPU, 1 memory, 2 IO.
func (n *node) addStall(resource int, some, full float64, d time.Duration) {
	p := n.pressure[resource]
	if p == nil {
		if some == 0 {
			return
		}
		p = &cgroups.Pressure{}
		n.pressure[resource] = p
		n.markPressure(resource)
	}
	addFraction(&p.Some, some, d)
	addFraction(&p.Full, full, d)
}

// addFraction adds the stall time of a duration, of which a fraction was lost, to line.
func addFraction(line *cgroups.PressureLine, fraction float64, d time.Duration) {
	line.Total += time.Duration(math.Round(fraction * float64(d)))
	for _, avg := range []struct {
		percent *float64
		window  time.Duration
	}{{&line.Avg10, 10 * time.Second}, {&line.Avg60, time.Minute}, {&line.Avg300, 5 * time.Minute}} {
		// like calc_avgs in kernel/sched/psi.c, but continuously and not every 2 s
		kept := math.Exp(-float64(d) / float64(avg.window))
		*avg.percent = *avg.percent*kept + 100*fraction*(1-kept)
	}
}
