// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroupstest

import (
	"errors"
	"syscall"

	"github.com/seed81659283/nodeagent/cgroups"
)

// SetCache sets the size of the page cache of cgroup p. It is counted in addition to the memory of processes, and remains when
// they exit. If less memory is free, the cache becomes smaller than bytes. The tree reclaims cache before it kills processes,
// except cache that memory.min or memory.low protects.
func (t *Tree) SetCache(p cgroups.Path, bytes int64) error {
	return t.runLocked("set the cache of", p, func() error {
		n, err := t.findNode(p)
		if err = errors.Join(err, checkBytes(bytes)); err != nil {
			return err
		}
		want := t.roundToPages(bytes)
		if want == n.cache {
			return nil
		}
		n.addCache(-n.cache)
		room, full := n.memoryRoom()
		if room < want {
			t.countEvent(full, func(e *cgroups.MemoryEvents) { e.Max++ })
			want = max(room, 0)
		}
		n.addCache(want)
		t.countThrottled(n, 0)
		return nil
	})
}

// addMemory adds bytes to the memory usage of n and all its ancestors. bytes may be negative.
func (n *node) addMemory(bytes int64) {
	for c := range n.selfAndAncestors() {
		c.usage.memory += bytes
		c.usage.memoryPeak = max(c.usage.memoryPeak, c.usage.memory)
	}
}

func (n *node) addCache(bytes int64) {
	n.cache += bytes
	for c := range n.selfAndAncestors() {
		c.usage.cache += bytes
	}
	if n.active > n.cache {
		n.addActive(n.cache - n.active)
	}
	n.addMemory(bytes)
}

// memoryRoom returns how many bytes n can still allocate. full is the lowest cgroup whose limit determines this number.
func (n *node) memoryRoom() (bytes int64, full *node) {
	bytes = noLimit
	for c := range n.selfAndAncestors() {
		if left := c.limits.memoryMax - c.usage.memory; c.limits.memoryMax != noLimit && left < bytes {
			bytes, full = left, c
		}
	}
	return bytes, full
}

// allocate increases the memory of process to want bytes. If a limit is reached, it reclaims page cache and then runs the OOM
// killer, as a kernel does at each page.
func (t *Tree) allocate(process *proc, want int64) error {
	for !process.dead && process.totalMemory() < want {
		room, full := process.node.memoryRoom()
		step := min(want-process.totalMemory(), max(room, 0))
		process.memory += step
		process.node.addMemory(step)
		if process.totalMemory() == want {
			break
		}
		t.countEvent(full, func(e *cgroups.MemoryEvents) { e.Max++ })
		if t.reclaimMemory(full, want-process.totalMemory()) == 0 && !t.runOOMKiller(full) {
			return syscall.ENOMEM
		}
	}
	return nil
}

// countThrottled prepares an allocation in cgroup; more is its size in bytes. For cgroup and each ancestor whose usage would
// exceed memory.high, it counts a memory.high event and reclaims the excess. It does not delay the process; only SetDemand
// does.
func (t *Tree) countThrottled(cgroup *node, more int64) {
	for c := range cgroup.selfAndAncestors() {
		if over := c.usage.memory + more - c.limits.memoryHigh; over > 0 {
			t.countEvent(c, func(e *cgroups.MemoryEvents) { e.High++ })
			t.reclaimMemory(c, over)
		}
	}
}

// reclaimMemory frees up to the given bytes in cgroup and its descendants, and returns the freed bytes. It reclaims page cache
// before it swaps processes out, and takes cache that memory.low protects last.
func (t *Tree) reclaimMemory(cgroup *node, bytes int64) (got int64) {
	bytes = t.roundToPages(bytes)
	for _, pass := range []reclaimPass{{}, {includeActive: true}, {includeActive: true, includeLow: true}} {
		got += t.reclaimCache(cgroup, bytes-got, pass)
	}
	got += t.swapOut(cgroup, bytes-got)
	if got > 0 {
		t.reclaims++
	}
	return got
}
