// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroupstest

import (
	"errors"
	"syscall"

	"github.com/seed81659283/nodeagent/cgroups"
)

// SetCache lets a cgroup hold so many bytes of page cache, beside the memory of its processes. Cache outlives them,
// and is what the kernel takes back before it kills, except from what memory.min and memory.low protect. It takes
// no more than there is room for.
func (t *Tree) SetCache(p cgroups.Path, bytes int64) error {
	return t.do("set the cache of", p, func() error {
		n, err := t.find(p)
		if err = errors.Join(err, checkBytes(bytes)); err != nil {
			return err
		}
		n.addCache(-n.cache)
		want := t.pages(bytes)
		room, full := n.room()
		if room < want {
			t.count(full, func(e *cgroups.MemoryEvents) { e.Max++ })
			want = max(room, 0)
		}
		n.addCache(want)
		t.throttle(n, 0)
		return nil
	})
}

// charge adds bytes to the memory of n and of all above it.
func (n *node) charge(bytes int64) {
	for c := range n.upwards() {
		c.usage.memory += bytes
		c.usage.memoryPeak = max(c.usage.memoryPeak, c.usage.memory)
	}
}

func (n *node) addCache(bytes int64) {
	n.cache += bytes
	for c := range n.upwards() {
		c.usage.cache += bytes
	}
	if n.active > n.cache {
		n.addActive(n.cache - n.active)
	}
	n.charge(bytes)
}

// room returns how many bytes fit into n, and the lowest cgroup that takes no more than that.
func (n *node) room() (bytes int64, full *node) {
	bytes = noLimit
	for c := range n.upwards() {
		if left := c.limits.memoryMax - c.usage.memory; c.limits.memoryMax != noLimit && left < bytes {
			bytes, full = left, c
		}
	}
	return bytes, full
}

// grow lets a process take memory as a kernel does that hands out pages one by one: as long as they fit, they are
// taken; then the cgroup that is full gives back cache, and at last somebody dies.
func (t *Tree) grow(pr *proc, want int64) error {
	t.throttle(pr.node, want-pr.holds())
	for !pr.dead && pr.holds() < want {
		room, full := pr.node.room()
		step := min(want-pr.holds(), max(room, 0))
		pr.memory += step
		pr.node.charge(step)
		if pr.holds() == want {
			break
		}
		t.count(full, func(e *cgroups.MemoryEvents) { e.Max++ })
		if t.reclaim(full, want-pr.holds()) == 0 && !t.outOfMemory(full) {
			return syscall.ENOMEM
		}
	}
	return nil
}

// throttle counts who is over memory.high with so many bytes more, after its cache was taken back as far as that. To
// slow down is left to the test: nothing here takes time.
func (t *Tree) throttle(n *node, more int64) {
	for c := range n.upwards() {
		if over := c.usage.memory + more - c.limits.memoryHigh; over > 0 {
			t.count(c, func(e *cgroups.MemoryEvents) { e.High++ })
			t.reclaim(c, over)
		}
	}
}

// reclaim takes up to so many bytes from n and what is below, and returns how many it got: first the inactive cache that
// memory.low does not protect, then the active one, then all cache but what memory.min protects, and at last it swaps.
func (t *Tree) reclaim(n *node, bytes int64) (got int64) {
	bytes = t.pages(bytes)
	for _, pass := range []pass{{}, {active: true}, {active: true, pressed: true}} {
		got += t.shrink(n, bytes-got, 0, noLimit, pass)
	}
	return got + t.swapOut(n, bytes-got)
}

// pass is what a walk over the cgroups takes.
type pass struct {
	active  bool // also cache that was used lately
	pressed bool // also what memory.low protects
}

// protected returns how much of its memory n asks to keep; pressed, no more than memory.min.
func (n *node) protected(pressed bool) float64 {
	bytes := n.limits.memoryMin
	if !pressed {
		bytes = max(bytes, n.limits.memoryLow)
	}
	return float64(min(bytes, n.usage.memory))
}

// shrink takes up to so many bytes of cache from n and then from its children in order of their names. It leaves
// keep bytes to n. The children are protected by share bytes together: where they ask for more, each in proportion.
func (t *Tree) shrink(n *node, bytes, keep, share int64, pass pass) (got int64) {
	bytes = min(bytes, n.usage.memory-keep)
	if bytes <= 0 || n.usage.cache == 0 {
		return 0
	}
	cache := n.cache
	if !pass.active {
		cache -= n.active
	}
	if got = min(bytes, cache); got > 0 {
		n.addCache(-got)
		if pass.pressed && n.limits.memoryLow > 0 {
			t.count(n, func(e *cgroups.MemoryEvents) { e.Low++ })
		}
	}
	var asked float64
	for _, c := range n.children {
		asked += c.protected(pass.pressed)
	}
	scale := min(1, float64(share)/max(1, asked))
	for _, c := range n.sorted() {
		keep := int64(c.protected(pass.pressed) * scale)
		got += t.shrink(c, bytes-got, keep, keep, pass)
	}
	return got
}
