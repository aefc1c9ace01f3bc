// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/cgroupstest"
	"github.com/seed81659283/nodeagent/internal/sleep"
	"github.com/seed81659283/nodeagent/nodetest/machine"
)

// clock returns the present time: time.Now, or the time of a Loop.
type clock func() time.Time

// kernel runs the processes of containers on a simulated machine, in the time of a clock. The usage curves of a process are its demand for CPU,
// memory and files. kernel evaluates all curves at the end of each interval of length resolution, and when a process starts. Demands are constant
// between two evaluations.
//
// Each access to the machine first simulates it up to the current time: the result does not depend on the order of concurrent goroutines. While no
// demand changes and the machine is settled, one long step simulates many intervals.
type kernel struct {
	machine    *machine.Machine
	clock      clock
	resolution time.Duration
	begin      time.Time
	// processKilled is called without locks for each process that the OOM killer or a kill of its cgroup has ended.
	processKilled func(cgroupstest.KilledProc)

	mu        sync.Mutex // guards the fields below
	now       time.Time  // time up to which the machine is simulated
	evaluated time.Time  // multiple of the resolution at which the curves were evaluated last
	processes []*running // in order of their starts
	observed  bool       // a caller has the machine and may change it: run simulates all intervals
	changes   int        // starts and ends of processes, and other changes that may end an idle time

	killsMu sync.Mutex
	kills   []cgroupstest.KilledProc // not yet reported to processKilled
	killed  chan struct{}            // capacity one: kills has entries
	woken   chan struct{}            // capacity one: the machine is no longer idle
}

// running is the process of a running container.
type running struct {
	container string // ID
	uid       string // of the pod
	pid       int
	started   time.Time
	usage     Usage
	wanted    amounts // at the last evaluation
}

// newKernel returns a kernel for a new simulated machine. resolution is the interval at which usage curves are evaluated.
// The kernel calls processKilled for each process that was killed.
func newKernel(spec machine.Spec, clock clock, resolution time.Duration, processKilled func(cgroupstest.KilledProc)) (*kernel, error) {
	now := clock()
	k := &kernel{
		clock: clock, resolution: resolution, begin: now, now: now, evaluated: now, processKilled: processKilled, killed: make(chan struct{}, 1),
		woken: make(chan struct{}, 1),
	}
	forward := spec.Killed
	spec.Killed = func(p cgroupstest.KilledProc) {
		if forward != nil {
			forward(p)
		}
		k.recordKill(p)
	}
	var err error
	k.machine, err = machine.New(spec)
	return k, err
}

// run simulates the machine until ctx ends. It evaluates the usage curves at the end of each interval, except while the machine is idle: see isIdle.
func (k *kernel) run(ctx context.Context) {
	began := time.Now()
	timer := time.NewTimer(k.resolution)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			if k.evaluate(); !k.isIdle() {
				timer.Reset(k.resolution - time.Since(began)%k.resolution)
			}
		case <-k.woken: // a timer that has not fired yet gets the same time
			timer.Reset(k.resolution - time.Since(began)%k.resolution)
		case <-k.killed:
		}
		k.reportKills()
	}
}

// recordKill stores a killed process until run reports it.
func (k *kernel) recordKill(p cgroupstest.KilledProc) {
	k.killsMu.Lock()
	k.kills = append(k.kills, p)
	k.killsMu.Unlock()
	sleep.Wake(k.killed)
}

// reportKills calls processKilled for each killed process that was not reported yet.
func (k *kernel) reportKills() {
	k.killsMu.Lock()
	kills := k.kills
	k.kills = nil
	k.killsMu.Unlock()
	for _, p := range kills {
		k.processKilled(p)
	}
}

// advance simulates the machine up to the current time.
func (k *kernel) advance() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.advanceLocked()
}

// advanceLocked simulates the machine up to the current time. It evaluates the usage curves at each multiple of k.resolution
// on the way. The caller holds k.mu.
func (k *kernel) advanceLocked() {
	k.evaluateLocked()
	if now := k.clock(); k.now.Before(now) {
		k.machine.Step(now.Sub(k.now))
		k.now = now
	}
}

// evaluate evaluates the usage curves at the end of each interval up to the current time. Before each change of demands, it simulates the machine up
// to that time.
func (k *kernel) evaluate() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.evaluateLocked()
}

// evaluateLocked does the work of evaluate. The caller holds k.mu.
func (k *kernel) evaluateLocked() {
	now := k.clock()
	if intervals := now.Sub(k.evaluated) / k.resolution; intervals > 0 && k.isIdleLocked() {
		k.evaluated = k.evaluated.Add(intervals * k.resolution)
		return
	}
	for next := k.evaluated.Add(k.resolution); !next.After(now); next = next.Add(k.resolution) {
		k.evaluated = next
		changed := k.findChanges(next)
		if !changed && k.machine.Settled() {
			continue
		}
		if next.After(k.now) {
			k.machine.Step(next.Sub(k.now))
			k.now = next
		}
		k.setDemands()
	}
}

// findChanges evaluates the usage curves of all processes at the time at. It reports whether the demand of a process has changed. The caller holds
// k.mu.
func (k *kernel) findChanges(at time.Time) (changed bool) {
	for _, p := range k.processes {
		changed = p.wanted.evaluate(&p.usage, at.Sub(p.started)) || changed
	}
	return changed
}

// setDemands passes each changed demand to the machine, and makes the machine apply the demands at once. The caller holds
// k.mu.
func (k *kernel) setDemands() {
	for _, p := range k.processes {
		if p.wanted.changed {
			_ = k.machine.SetDemand(p.pid, p.wanted.demand(&p.usage, p.container, p.uid)) // fails only for a killed process
		}
	}
	k.machine.Step(0)
}

// startProcess starts the process p of a container in a new cgroup with the limits r. p.Name is the ID of the container, uid that of its pod.
func (k *kernel) startProcess(ctx context.Context, uid string, p machine.Process, r cgroups.Resources, usage *Usage) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.advanceLocked()
	if err := k.machine.Cgroups().Apply(ctx, p.Cgroup, r); err != nil {
		return err
	}
	pid, err := k.machine.Start(p)
	if err != nil {
		return err
	}
	k.processes = append(k.processes, &running{container: p.Name, uid: uid, pid: pid, started: k.now, usage: *usage})
	k.changes++
	k.findChanges(k.now)
	k.setDemands()
	if !k.isIdleLocked() {
		sleep.Wake(k.woken)
	}
	return nil
}

// endProcess ends the process of the container with this ID, if the process is running. It always removes the cgroup.
func (k *kernel) endProcess(ctx context.Context, container string, cgroup cgroups.Path) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.advanceLocked()
	k.changes++
	k.processes = slices.DeleteFunc(k.processes, func(p *running) bool {
		if p.container == container {
			_ = k.machine.Exit(p.pid) // fails only for a killed process
			return true
		}
		return false
	})
	_ = k.machine.Cgroups().Remove(ctx, cgroup)
}

// cgroupDriver is the cgroup driver of the agent. Before each call, it simulates the machine up to the current time.
type cgroupDriver struct {
	*cgroupstest.Tree
	kernel *kernel
}

// Apply creates the cgroup p and sets its limits.
func (d cgroupDriver) Apply(ctx context.Context, p cgroups.Path, r cgroups.Resources) error {
	d.kernel.advance()
	return d.Tree.Apply(ctx, p, r)
}

// Remove kills the processes of p and removes it.
func (d cgroupDriver) Remove(ctx context.Context, p cgroups.Path) error {
	d.kernel.advance()
	return d.Tree.Remove(ctx, p)
}

// Stats returns the usage of p.
func (d cgroupDriver) Stats(ctx context.Context, p cgroups.Path) (cgroups.Stats, error) {
	d.kernel.advance()
	return d.Tree.Stats(ctx, p)
}

// Sample advances the machine to the current time. It returns the selected parts of the usage of the cgroup p, or of its child cgroup child if that
// is not empty.
func (d cgroupDriver) Sample(ctx context.Context, p cgroups.Path, child string, parts cgroups.Parts) (cgroups.Stats, error) {
	d.kernel.advance()
	return d.Tree.Sample(ctx, p, child, parts)
}

// Reclaim frees page cache and swaps processes of p out.
func (d cgroupDriver) Reclaim(ctx context.Context, p cgroups.Path, bytes uint64) (freed uint64, err error) {
	d.kernel.advance()
	return d.Tree.Reclaim(ctx, p, bytes)
}

// Kill kills the processes of p.
func (d cgroupDriver) Kill(ctx context.Context, p cgroups.Path) error {
	d.kernel.advance()
	return d.Tree.Kill(ctx, p)
}
