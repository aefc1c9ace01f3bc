// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroupstest

import (
	"errors"
	"fmt"
	"syscall"
	"time"
)

// Demand is the CPU, the memory and the number of tasks that a process wants.
type Demand struct {
	// CPUs is how many CPUs it uses while no other process competes and no quota applies. A demand of 1.5 is that of two threads, one of which
	// sleeps half of the time. [Tree.Schedule] divides the CPUs.
	CPUs   float64
	Memory int64 // bytes, including swapped memory
	Tasks  int   // itself, its threads and its children: at least one
}

// SetDemand sets the demand of a process, which gets the tasks and memory that its limits allow within the given time. met is true if it gets
// all of them; pids.max is no error. Errors are those of [Tree.SetMemory].
func (t *Tree) SetDemand(pid int, d Demand, during time.Duration) (met bool, err error) {
	if err := errors.Join(checkCPUs(d.CPUs), checkBytes(d.Memory), checkTasks(d.Tasks)); err != nil {
		return false, fmt.Errorf("process %d: %w", pid, err)
	}
	err = t.withProc(pid, func(pr *proc) error {
		t.changeCPU(pr, d.CPUs)
		if err := t.changeTasks(pr, d.Tasks); err != nil && !errors.Is(err, syscall.EAGAIN) {
			return err
		}
		want := t.roundToPages(d.Memory)
		if want != pr.totalMemory() {
			if err := t.resizeMemory(pr, want, t.growthDuring(during)); err != nil {
				return err
			}
		}
		met = pr.tasks == d.Tasks && pr.totalMemory() == want
		return nil
	})
	return met, err
}

// Reclaims returns how often the tree has reclaimed page cache or swapped out memory. When the number has increased, a
// caller of [Tree.SetCache] must set the page cache again.
func (t *Tree) Reclaims() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.reclaims
}
