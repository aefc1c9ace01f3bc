// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroupstest

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/seed81659283/nodeagent/cgroups"
)

// Proc is a process: what runs in a cgroup and holds memory there.
type Proc struct {
	PID         int          // given by Start
	Cgroup      cgroups.Path // where it runs
	Name        string       // for whoever reads; means nothing to the tree
	OOMScoreAdj int          // from -1000, which the OOM killer never takes, to 1000
	Memory      int64        // bytes in memory, in whole pages
	Swapped     int64        // bytes in swap; means nothing to Start
}

// proc is a process that runs.
type proc struct {
	pid     int
	name    string
	adj     int
	memory  int64
	swapped int64
	node    *node
	index   int // in node.procs
	dead    bool
}

// public returns the process for others to see.
func (pr *proc) public() Proc {
	return Proc{PID: pr.pid, Cgroup: pr.node.path(), Name: pr.name, OOMScoreAdj: pr.adj, Memory: pr.memory, Swapped: pr.swapped}
}

// holds returns what the process has in memory and in swap.
func (pr *proc) holds() int64 { return pr.memory + pr.swapped }

// Start starts a process and returns its PID; p.PID does not count. As in a kernel it fails with EAGAIN where a
// pids.max is reached, with EBUSY in a cgroup of V2 that has children, and with ENOMEM where there is nobody to kill
// for the memory that it wants. The process may be dead when Start returns, see [Tree.SetMemory].
func (t *Tree) Start(p Proc) (pid int, err error) {
	err = t.do("start a process in", p.Cgroup, func() error {
		if err := errors.Join(checkAdj(p.OOMScoreAdj), checkBytes(p.Memory)); err != nil {
			return err
		}
		n, err := t.find(p.Cgroup)
		if err != nil {
			return err
		}
		if t.opts.Mode == V2 && n != t.root && n.inner {
			return &fileError{"cgroup.procs", syscall.EBUSY}
		}
		if full := n.noPIDs(); full != nil {
			t.refuse(n, full)
			return &fileError{"pids.max", syscall.EAGAIN}
		}
		pr := t.fork(n, p)
		pid = pr.pid
		err = t.grow(pr, t.pages(p.Memory))
		if err != nil {
			t.end(pr)
			pid = 0
		}
		return err
	})
	return pid, err
}

// Exit ends a process, whose memory is free then. A process that is gone is an error wrapping ESRCH.
func (t *Tree) Exit(pid int) error {
	return t.with(pid, func(pr *proc) error {
		t.end(pr)
		return nil
	})
}

// SetMemory lets a process hold so many bytes, swapped ones included, no matter how much it held. Where a memory.max is in the way, page
// cache goes first; then the OOM killer chooses among the processes below that limit, until there is room. The error
// wraps ESRCH where the process is gone, be it that it was chosen itself, and ENOMEM where nobody can be killed: it
// then holds as much as there is. A frozen process takes no more than it has, without an error.
func (t *Tree) SetMemory(pid int, bytes int64) error {
	if err := checkBytes(bytes); err != nil {
		return fmt.Errorf("process %d: %w", pid, err)
	}
	return t.with(pid, func(pr *proc) error {
		want := t.pages(bytes)
		if want <= pr.holds() {
			less := min(pr.holds()-want, pr.memory)
			pr.node.charge(-less)
			pr.memory -= less
			pr.addSwap(want - pr.holds())
			return nil
		}
		if pr.node.isFrozen() {
			return nil
		}
		if err := t.grow(pr, want); err != nil {
			return err
		}
		if pr.dead {
			return syscall.ESRCH
		}
		return nil
	})
}

// SetOOMScoreAdj changes how likely the OOM killer takes a process.
func (t *Tree) SetOOMScoreAdj(pid, adj int) error {
	if err := checkAdj(adj); err != nil {
		return fmt.Errorf("process %d: %w", pid, err)
	}
	return t.with(pid, func(pr *proc) error {
		pr.adj = adj
		return nil
	})
}

func checkAdj(adj int) error {
	if adj < minAdj || adj > maxAdj {
		return fmt.Errorf("oom_score_adj %d: %w", adj, syscall.EINVAL)
	}
	return nil
}

// maxBytes is what no machine has; sums of it do not overflow.
const maxBytes = 1 << 50

func checkBytes(bytes int64) error {
	if bytes < 0 || bytes > maxBytes {
		return fmt.Errorf("%d bytes: %w", bytes, syscall.EINVAL)
	}
	return nil
}

// Proc returns a process that runs.
func (t *Tree) Proc(pid int) (p Proc, ok bool) {
	ok = t.with(pid, func(pr *proc) error {
		p = pr.public()
		return nil
	}) == nil
	return p, ok
}

// with calls f with a process that runs.
func (t *Tree) with(pid int, f func(pr *proc) error) error {
	err := t.locked(func() error {
		pr := t.procs[pid]
		if pr == nil {
			return syscall.ESRCH
		}
		return f(pr)
	})
	if err != nil {
		return fmt.Errorf("process %d: %w", pid, err)
	}
	return nil
}

// noPIDs returns the lowest cgroup whose pids.max leaves no room for one more process in n.
func (n *node) noPIDs() *node {
	for c := range n.upwards() {
		if c.usage.pids >= c.limits.pidsMax {
			return c
		}
	}
	return nil
}

// refuse counts a process that pids.max refused: in V2 as a hit of the limit, there and above, as Linux does since 6.11;
// in V1 where the process would have been.
func (t *Tree) refuse(n, full *node) {
	if t.opts.Mode == V1 {
		n.usage.refused++
		return
	}
	for c := range full.upwards() {
		c.usage.refused++
	}
}

func (t *Tree) fork(n *node, p Proc) *proc {
	t.lastPID++
	pr := &proc{pid: t.lastPID, name: p.Name, adj: p.OOMScoreAdj, node: n, index: len(n.procs)}
	t.procs[pr.pid] = pr
	n.procs = append(n.procs, pr)
	for c := range n.upwards() {
		c.usage.pids++
		c.usage.pidsPeak = max(c.usage.pidsPeak, c.usage.pids)
	}
	return pr
}

// end takes a process away with all that it holds.
func (t *Tree) end(pr *proc) {
	pr.node.charge(-pr.memory)
	pr.addSwap(-pr.swapped)
	delete(t.procs, pr.pid)
	n := pr.node
	last := n.procs[len(n.procs)-1]
	n.procs[pr.index], last.index = last, pr.index
	n.procs = n.procs[:len(n.procs)-1]
	for c := range n.upwards() {
		c.usage.pids--
	}
	pr.dead = true
}
