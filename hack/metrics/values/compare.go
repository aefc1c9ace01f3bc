// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"path"
	"slices"
	"strings"
	"time"
)

const (
	apart  = 0.05            // of a value
	moving = 0.2             // of the values of a family that may be further apart: a probe may start a process between two looks
	window = 2 * time.Second // around the time of a value of the kubelet, in which ours are looked at
)

// tick is what the kernel counts CPU time of users and of itself in, twice: the two sides round at different times.
const tick = 0.02

// exception is a family whose values differ, by pattern, and why.
type exception struct{ page, family, why string }

func exceptions() []exception {
	return []exception{
		{"/metrics/cadvisor", "container_last_seen", "it is the time of the page"},
		{"/metrics/cadvisor", "cadvisor_version_info", "the kubelet names no operating system in it"},
		{"/metrics/cadvisor", "container_fs_*_seconds_total", "the kubelet's are a millionth of a second"},
		{"/metrics/cadvisor", "container_fs_io_current", "a number of the moment"},
		{"/metrics/cadvisor", "container_oom_events_total", "ours counts also what happened before"},
		{"/stats/summary", "*.usageNanoCores", "a rate of another while"},
		{"/stats/summary", "*psi*avg*", "a rate of another while"},
		{"/stats/summary", "*.process_stats.*", "we count tasks, the kubelet processes"},
		{"/metrics/cadvisor", "container_memory_kernel_usage", "ours is that of v2, the kubelet's that of v1"},
	}
}

// exceptionsV2 are those of cgroup v2.
func exceptionsV2() []exception {
	return []exception{{"/metrics/cadvisor", "container_memory_failcnt", "the kubelet's is 0"}}
}

// exceptionsV1 are those of cgroup v1, where it is alone or beside v2.
func exceptionsV1() []exception {
	return []exception{
		{"/metrics/cadvisor", "container_memory_failures_total", "ours has the cgroups below"},
		{"/metrics/cadvisor", "container_memory_file_dirty_bytes", "the kubelet's is 0"},
		{"/metrics/cadvisor", "container_memory_file_writeback_bytes", "the kubelet's is 0"},
		{"/metrics/cadvisor", "container_memory_workingset_refault_*_total", "ours has the cgroups below"},
		{"/metrics/resource", "container_swap_limit_bytes", "the kubelet's has memory in it"},
		{"/stats/summary", "node.memory.*ageFaults", "ours has the cgroups below"},
		{"/stats/summary", "node.systemContainers.memory.*ageFaults", "ours has the cgroups below"},
		{"/stats/summary", "pods.memory.*ageFaults", "ours has the cgroups below"},
		{"/stats/summary", "pods.containers.swap.swapAvailableBytes", "the kubelet's has memory in it"},
	}
}

// tally is how a family compares.
type tally struct {
	same, apart, missing, unread int
	worst                        float64
	example                      string
}

// comparison keeps what was read of ours, and how it compares with what the kubelet has.
type comparison struct {
	history map[string]map[series][]reading // by page
	tallies map[string]map[string]*tally    // by page and family
	seen    map[string]map[series]time.Time
	except  []exception
}

// ours takes note of what we have read.
func (c *comparison) ours(page string, all readings) {
	if c.history == nil {
		c.history, c.tallies, c.seen = map[string]map[series][]reading{}, map[string]map[string]*tally{}, map[string]map[series]time.Time{}
	}
	if c.history[page] == nil {
		c.history[page], c.tallies[page], c.seen[page] = map[series][]reading{}, map[string]*tally{}, map[series]time.Time{}
	}
	for s, r := range all {
		c.history[page][s] = append(c.history[page][s], r)
	}
}

// kubelets compares what the kubelet has with ours. What it has measured before and was compared is not compared again.
func (c *comparison) kubelets(page string, all readings) {
	for s, r := range all {
		if r.at.Equal(c.seen[page][s]) {
			continue
		}
		c.seen[page][s] = r.at
		t := c.tallies[page][s.family]
		if t == nil {
			t = &tally{}
			c.tallies[page][s.family] = t
		}
		t.add(s, r, c.history[page][s])
	}
}

// add compares a value with ours of around that time.
func (t *tally) add(s series, theirs reading, ours []reading) {
	if len(ours) == 0 {
		t.missing++
		if t.example == "" {
			t.example = "missing " + s.of
		}
		return
	}
	low, high, read := math.Inf(1), math.Inf(-1), false
	for _, r := range ours {
		if d := r.at.Sub(theirs.at); d <= window && d >= -window {
			low, high, read = min(low, r.value), max(high, r.value), true
		}
	}
	if !read {
		t.unread++
		return
	}
	if strings.HasSuffix(s.family, "_cpu_user_seconds_total") || strings.HasSuffix(s.family, "_cpu_system_seconds_total") {
		low, high = low-tick, high+tick
	}
	off := max(low-theirs.value, theirs.value-high, 0) / max(math.Abs(theirs.value), math.Abs(low), math.Abs(high), 1e-9)
	if off <= apart {
		t.same++
		return
	}
	t.apart++
	if off > t.worst {
		t.worst = off
		t.example = fmt.Sprintf("kubelet %g, ours %g to %g of %s", theirs.value, low, high, s.of)
	}
}

// movable is how many of a number of values may be apart: of a few, one.
func movable(values int) int {
	if values < 3 {
		return 0
	}
	return int(math.Ceil(moving * float64(values)))
}

// why returns why a family is excepted, nothing where it is not.
func (c *comparison) why(page, family string) string {
	for _, e := range c.except {
		if ok, _ := path.Match(e.family, family); ok && e.page == page {
			return e.why
		}
	}
	return ""
}

// report prints a line for each family, and fails where one is apart and not excepted.
func (c *comparison) report() (string, error) {
	var b strings.Builder
	var errs []error
	for _, page := range slices.Sorted(maps.Keys(c.tallies)) {
		compared := 0
		for _, family := range slices.Sorted(maps.Keys(c.tallies[page])) {
			t := c.tallies[page][family]
			compared += t.same + t.apart
			fmt.Fprintf(&b, "%s %s same=%d apart=%d missing=%d unread=%d", page, family, t.same, t.apart, t.missing, t.unread)
			if t.apart > 0 {
				fmt.Fprintf(&b, " worst=%.0f%%", 100*t.worst)
			}
			if reason := c.why(page, family); reason != "" {
				fmt.Fprintf(&b, " excepted: %s", reason)
			} else if t.apart > movable(t.apart+t.same) {
				errs = append(errs, fmt.Errorf("%s %s: %d of %d values are more than %.0f%% apart, such as %s", page, family, t.apart, t.apart+t.same, 100*apart, t.example))
			}
			if t.example != "" {
				fmt.Fprintf(&b, " (%s)", t.example)
			}
			b.WriteByte('\n')
		}
		if compared == 0 {
			errs = append(errs, fmt.Errorf("%s: nothing was compared", page))
		}
	}
	return b.String(), errors.Join(errs...)
}
