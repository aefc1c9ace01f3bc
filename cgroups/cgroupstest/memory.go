// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroupstest

import (
	"errors"
	"syscall"

	"github.com/seed81659283/nodeagent/cgroups"
)

// SetCache sets the size of the page cache of cgroup p, in addition to the memory of its processes. It is smaller if less
// memory is free. The tree reclaims unprotected cache before it kills processes; cache remains when processes exit.
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

// allocate increases the memory of a process, reclaims page cache and runs the OOM killer as a kernel does at each page.
func (t *Tree) allocate(process *proc, bytes int64) error {
	for !process.dead && process.totalMemory() < bytes {
		room, full := process.node.memoryRoom()
		step := min(bytes-process.totalMemory(), max(room, 0))
		process.memory += step
		process.node.addMemory(step)
		if process.totalMemory() == bytes {
			break
		}
		t.countEvent(full, func(e *cgroups.MemoryEvents) { e.Max++ })
		if t.reclaimMemory(full, bytes-process.totalMemory()) == 0 && !t.runOOMKiller(full) {
			return syscall.ENOMEM
		}
	}
	return nil
}

// countThrottled reclaims the memory by which an allocation would exceed memory.high, in the cgroup and its ancestors.
func (t *Tree) countThrottled(cgroup *node, allocation int64) {
	for c := range cgroup.selfAndAncestors() {
		if over := c.usage.memory + allocation - c.limits.memoryHigh; over > 0 {
			t.countEvent(c, func(e *cgroups.MemoryEvents) { e.High++ })
			t.reclaimMemory(c, over)
		}
	}
}

// reclaimMemory frees memory below a cgroup, and returns the freed bytes. It takes page cache first and then swaps processes
// out.
func (t *Tree) reclaimMemory(cgroup *node, bytes int64) (freed int64) {
	bytes = t.roundToPages(bytes)
	for _, pass := range []reclaimPass{{}, {includeActive: true}, {includeActive: true, includeLow: true}} {
		freed += t.reclaimCache(cgroup, bytes-freed, pass)
	}
	freed += t.swapOut(cgroup, bytes-freed)
	if freed > 0 {
		t.reclaims++
	}
	return freed
}
