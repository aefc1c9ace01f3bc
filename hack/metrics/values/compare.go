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
	apart  = 0.05            // allowed relative difference of a value
	moving = 0.2             // allowed fraction of differing values of a family: a probe may start a process between two measurements
	window = 2 * time.Second // period around the time of a kubelet's value in which our values are compared
)

// tick is twice the unit in which the kernel counts user and system CPU time, because both sides round at different times.
const tick = 0.02

// exception is a family, given by a pattern, whose values may differ, and the reason.
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

// exceptionsV2 returns the exceptions on cgroup v2.
func exceptionsV2() []exception {
	return []exception{{"/metrics/cadvisor", "container_memory_failcnt", "the kubelet's is 0"}}
}

// exceptionsV1 returns the exceptions on cgroup v1, alone or in hybrid mode.
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

// tally is the result of the comparison of one family.
type tally struct {
	same, apart, missing, unread int
	worst                        float64
	example                      string
}

// comparison stores this project's readings, and compares them with the kubelet's.
type comparison struct {
	history map[string]map[series][]reading // by page
	tallies map[string]map[string]*tally    // by page and family
	seen    map[string]map[series]time.Time
	except  []exception
}

// addOurs stores readings of this project.
func (c *comparison) addOurs(page string, all readings) {
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

// compareKubelet compares readings of the kubelet with stored ones. A measurement is compared only once.
func (c *comparison) compareKubelet(page string, all readings) {
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
		t.compareReading(s, r, c.history[page][s])
	}
}

// compareReading compares a reading of the kubelet with readings of this project of about the same time.
func (t *tally) compareReading(s series, theirs reading, ours []reading) {
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

// movable returns how many of n values may differ; at least one.
func movable(values int) int {
	if values < 3 {
		return 0
	}
	return int(math.Ceil(moving * float64(values)))
}

// exceptionFor returns the reason why a family is excepted, or "".
func (c *comparison) exceptionFor(page, family string) string {
	for _, e := range c.except {
		if ok, _ := path.Match(e.family, family); ok && e.page == page {
			return e.why
		}
	}
	return ""
}

// formatReport returns a line per family, and an error if a family differs that is not excepted.
func (c *comparison) formatReport() (string, error) {
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
			if reason := c.exceptionFor(page, family); reason != "" {
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
