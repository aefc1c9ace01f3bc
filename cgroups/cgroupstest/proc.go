// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroupstest

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/seed81659283/nodeagent/cgroups"
)

// Proc is a process of a [Tree]. It runs in a cgroup and uses memory there.
type Proc struct {
	PID         int          // set by Start
	Cgroup      cgroups.Path // where it runs
	Name        string       // for error messages and tests; not used by the tree
	OOMScoreAdj int          // -1000, which the OOM killer never kills, to 1000
	Memory      int64        // bytes in memory, rounded up to pages
	Swapped     int64        // bytes in swap; ignored by Start
	Tasks       int          // processes and threads that it counts as in pids.current; ignored by Start, which sets one
}

// proc is a running process of a [Tree]. The exported description is [Proc].
type proc struct {
	pid     int
	name    string
	adj     int
	memory  int64
	swapped int64
	tasks   int
	node    *node
	index   int // in node.procs
	dead    bool
	demand  float64  // CPUs, see Demand
	cpu     cpuShare // of the last Schedule call
}

// toProc converts pr to the exported type Proc.
func (pr *proc) toProc() Proc {
	return Proc{PID: pr.pid, Cgroup: pr.node.path(), Name: pr.name, OOMScoreAdj: pr.adj, Memory: pr.memory, Swapped: pr.swapped, Tasks: pr.tasks}
}

// totalMemory returns the bytes of the process in memory and in swap.
func (pr *proc) totalMemory() int64 { return pr.memory + pr.swapped }

// Start starts a process and returns its PID; process.PID is ignored. It fails like a kernel: with EAGAIN at pids.max, EBUSY in a V2 cgroup
// with children, or ENOMEM. The OOM killer may have killed the new process, see [Tree.SetMemory].
func (t *Tree) Start(process Proc) (pid int, err error) {
	err = t.runLocked("start a process in", process.Cgroup, func() error {
		if err := errors.Join(checkAdj(process.OOMScoreAdj), checkBytes(process.Memory)); err != nil {
			return err
		}
		n, err := t.findNode(process.Cgroup)
		if err != nil {
			return err
		}
		if t.opts.Mode == V2 && n != t.root && n.hadChildren {
			return &fileError{"cgroup.procs", syscall.EBUSY}
		}
		if _, full := n.pidsRoom(); full != nil {
			t.countRefusedFork(n, full)
			return &fileError{"pids.max", syscall.EAGAIN}
		}
		pr := t.addProc(n, process)
		pid = pr.pid
		t.countThrottled(pr.node, t.roundToPages(process.Memory))
		err = t.allocate(pr, t.roundToPages(process.Memory))
		if err != nil {
			t.removeProc(pr)
			pid = 0
		}
		return err
	})
	return pid, err
}

// Exit ends the process with this PID and frees its memory. If it is not running, the error wraps ESRCH.
func (t *Tree) Exit(pid int) error {
	return t.withProc(pid, func(pr *proc) error {
		t.removeProc(pr)
		return nil
	})
}

// SetMemory sets the memory of a process in bytes, including swapped memory. At memory.max, the tree reclaims page cache, and then kills
// processes below that limit. The memory of a frozen process does not grow; this is no error.
//
// The error wraps ESRCH if the process does not run or was killed by this call, and ENOMEM if no process can be killed.
func (t *Tree) SetMemory(pid int, bytes int64) error {
	if err := checkBytes(bytes); err != nil {
		return fmt.Errorf("process %d: %w", pid, err)
	}
	return t.withProc(pid, func(pr *proc) error {
		return t.resizeMemory(pr, t.roundToPages(bytes), func(_ *proc, more int64) int64 { return more })
	})
}

// resizeMemory sets the memory of a process in whole pages, as SetMemory does. allowed limits how much it may grow.
func (t *Tree) resizeMemory(pr *proc, bytes int64, allowed func(pr *proc, more int64) int64) error {
	if bytes <= pr.totalMemory() {
		less := min(pr.totalMemory()-bytes, pr.memory)
		pr.node.addMemory(-less)
		pr.memory -= less
		pr.addSwap(bytes - pr.totalMemory())
		return nil
	}
	if pr.node.isFrozen() {
		return nil
	}
	more := bytes - pr.totalMemory()
	t.countThrottled(pr.node, more)
	if err := t.allocate(pr, pr.totalMemory()+t.roundToPages(allowed(pr, more))); err != nil {
		return err
	}
	if pr.dead {
		return syscall.ESRCH
	}
	return nil
}

// SetOOMScoreAdj sets the oom_score_adj of the process with this PID.
func (t *Tree) SetOOMScoreAdj(pid, adj int) error {
	if err := checkAdj(adj); err != nil {
		return fmt.Errorf("process %d: %w", pid, err)
	}
	return t.withProc(pid, func(pr *proc) error {
		pr.adj = adj
		return nil
	})
}

// changeTasks sets the number of tasks of a process. At pids.max, it adds those that fit and returns EAGAIN.
func (t *Tree) changeTasks(pr *proc, tasks int) error {
	if pr.tasks == tasks {
		return nil
	}
	room, _ := pr.node.pidsRoom()
	pr.addTasks(int(min(int64(tasks-pr.tasks), max(room, 0))))
	if pr.tasks == tasks {
		return nil
	}
	_, full := pr.node.pidsRoom()
	t.countRefusedFork(pr.node, full)
	return syscall.EAGAIN
}

func checkTasks(tasks int) error {
	if tasks < 1 {
		return fmt.Errorf("%d tasks: %w", tasks, syscall.EINVAL)
	}
	return nil
}

func checkAdj(adj int) error {
	if adj < minAdj || adj > maxAdj {
		return fmt.Errorf("oom_score_adj %d: %w", adj, syscall.EINVAL)
	}
	return nil
}

// maxBytes is more than any machine has; sums of it do not overflow.
const maxBytes = 1 << 50

func checkBytes(bytes int64) error {
	if bytes < 0 || bytes > maxBytes {
		return fmt.Errorf("%d bytes: %w", bytes, syscall.EINVAL)
	}
	return nil
}

// Proc returns the process with this PID. ok is false if it is not running.
func (t *Tree) Proc(pid int) (process Proc, ok bool) {
	ok = t.withProc(pid, func(pr *proc) error {
		process = pr.toProc()
		return nil
	}) == nil
	return process, ok
}

// withProc calls f with the process with this PID, or returns ESRCH if it is not running.
func (t *Tree) withProc(pid int, f func(pr *proc) error) error {
	err := t.lockAndNotify(func() error {
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

// pidsRoom returns how many tasks n can still start. full is the lowest cgroup whose pids.max is reached, or nil.
func (n *node) pidsRoom() (room int64, full *node) {
	room = noLimit
	for c := range n.selfAndAncestors() {
		left := c.limits.pidsMax - c.usage.pids
		if room = min(room, left); left <= 0 && full == nil {
			full = c
		}
	}
	return room, full
}

// countRefusedFork counts a fork that was refused at pids.max: V2 in the cgroup with that limit, V1 in the cgroup of the process.
func (t *Tree) countRefusedFork(cgroup, full *node) {
	if t.opts.Mode == V1 {
		cgroup.usage.refused++
		return
	}
	// as Linux 6.11 does
	for c := range full.selfAndAncestors() {
		c.usage.refused++
	}
}

func (t *Tree) addProc(n *node, p Proc) *proc {
	t.lastPID++
	t.cpuDivided = false
	pr := &proc{pid: t.lastPID, name: p.Name, adj: p.OOMScoreAdj, node: n, index: len(n.procs)}
	t.procs[pr.pid] = pr
	n.procs = append(n.procs, pr)
	pr.addTasks(1)
	return pr
}

// addTasks adds n, which may be negative, to the tasks of the process and of its cgroups.
func (pr *proc) addTasks(n int) {
	pr.tasks += n
	for c := range pr.node.selfAndAncestors() {
		c.usage.pids += int64(n)
		c.usage.pidsPeak = max(c.usage.pidsPeak, c.usage.pids)
	}
}

// removeProc removes process from its cgroup, and subtracts its memory, swap and PID from the usage of the cgroup and its
// ancestors.
func (t *Tree) removeProc(process *proc) {
	process.node.addMemory(-process.memory)
	process.addSwap(-process.swapped)
	delete(t.procs, process.pid)
	t.cpuDivided = false
	n := process.node
	last := n.procs[len(n.procs)-1]
	n.procs[process.index], last.index = last, process.index
	n.procs = n.procs[:len(n.procs)-1]
	process.addTasks(-process.tasks)
	process.dead = true
}
