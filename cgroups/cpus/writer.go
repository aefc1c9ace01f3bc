// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cpus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/cgroups/topology"
	"github.com/seed81659283/nodeagent/internal/runonce"
	"github.com/seed81659283/nodeagent/internal/sleep"
)

// Limits of a [Writer].
const (
	writePeriod   = 10 * time.Second // default of WriterOptions.Period, as in the kubelet
	writeTimeout  = 10 * time.Second // of one call of WriterOptions.Write
	parallelWrite = 16
)

// RunningContainer is a container of the runtime that runs or is about to run. If WriterOptions.Running omits ephemeral containers, the Writer does not
// change their CPUs; the kubelet does not either.
type RunningContainer struct {
	ID, PodUID, Container string
	// Created is true until the container has started. A runtime may lose an update during the start, so that the first pass after it writes the CPUs again.
	Created bool
}

// WriterOptions configures a [Writer].
type WriterOptions struct {
	// Running returns the running containers of the agent, from a cache: each pass calls it, never concurrently, and uses the slice until the next call.
	// Containers that the Allocator does not know get the shared pool. Required.
	Running func(ctx context.Context) ([]RunningContainer, error)
	// Write sets cpuset.cpus of the container with this ID, as UpdateContainer of package cri. Up to 16 calls run concurrently, with a timeout of 10 s
	// each. The Writer remembers what it has written, and does not call Write again for the same CPUs. Required.
	Write func(ctx context.Context, id string, set topology.CPUSet) error
	// Period is the time between two passes without an event, cpuManagerReconcilePeriod. Zero: 10 s.
	Period time.Duration
	// Error is called for errors of Running and Write, which the next pass repeats. It must not block. Nil: no call.
	Error func(error)
}

// Writer writes the CPUs of the state to running containers: containers of the shared pool leave CPUs that become exclusive, and use CPUs that become
// free.
type Writer struct {
	allocator *Allocator
	opts      WriterOptions
	running   runonce.Guard
	wake      chan struct{}

	mu      sync.Mutex // guards the field below
	waiters []chan error

	// The fields below are of Run.
	written map[string]writtenCPUs // by container ID
	exists  map[string]bool        // containers of the current pass; reused, so that a pass without a change allocates nothing
	state   State                  // of the current pass
}

// writtenCPUs are the CPUs that a container has got from a [Writer].
type writtenCPUs struct {
	set     topology.CPUSet
	created bool // RunningContainer.Created of the write
}

// NewWriter returns a Writer of the allocator's CPUs; call [Writer.Run]. It returns an error if a required option is missing or Period is negative.
// AllocatorOptions.Changed may refer to the Writer before it exists, because NewAllocator does not call Changed:
//
//	var writer *cpus.Writer
//	agent, err := cpus.NewAllocator(policy, cpus.AllocatorOptions{Changed: func() { writer.Wake() }})
//	...
//	writer, err = cpus.NewWriter(agent, opts)
func NewWriter(a *Allocator, opts WriterOptions) (*Writer, error) {
	switch {
	case opts.Running == nil:
		return nil, errors.New("cpus: WriterOptions.Running is nil")
	case opts.Write == nil:
		return nil, errors.New("cpus: WriterOptions.Write is nil")
	case opts.Period < 0:
		return nil, fmt.Errorf("cpus: WriterOptions.Period is %v: it must not be negative", opts.Period)
	case opts.Period == 0:
		opts.Period = writePeriod
	}
	return &Writer{allocator: a, opts: opts, wake: make(chan struct{}, 1), written: map[string]writtenCPUs{}, exists: map[string]bool{}}, nil
}

// Wake makes Run start a pass soon. It does not block. Call it after a change of the state, and when a container has started.
func (w *Writer) Wake() { sleep.Wake(w.wake) }

// Settle makes Run start a pass, and returns when the pass has written the current state to all running containers. It returns an error if Running or
// any Write of the pass fails. Without Run, it blocks until ctx ends, and returns the error of ctx. Call it between [Reservation.Commit] and the start
// of a container with exclusive CPUs: the container then never shares its CPUs with the shared pool.
func (w *Writer) Settle(ctx context.Context) error {
	done := make(chan error, 1)
	w.mu.Lock()
	w.waiters = append(w.waiters, done)
	w.mu.Unlock()
	w.Wake()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Run starts a pass at once, after each Wake, and in each period, until ctx ends; it then returns nil. A pass writes the CPUs of all containers that do
// not have them. A second call returns an error.
//
// Source: reconcileState in pkg/kubelet/cm/cpumanager/cpu_manager.go, which has only the period.
func (w *Writer) Run(ctx context.Context) error {
	if err := w.running.Begin(); err != nil {
		return fmt.Errorf("cpus.Writer: %w", err)
	}
	defer w.running.End()
	ticker := time.NewTicker(w.opts.Period)
	defer ticker.Stop()
	for {
		w.mu.Lock()
		waiters := w.waiters
		w.waiters = nil
		w.mu.Unlock()
		err := w.pass(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && w.opts.Error != nil {
			w.opts.Error(err)
		}
		for _, done := range waiters {
			done <- err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		case <-w.wake:
		}
	}
}

// write is the CPUs that a container must get.
type write struct {
	RunningContainer
	set topology.CPUSet
}

// planWrites returns the containers whose CPUs in w.state are not those that were written, and removes other containers from w.written. Without exclusive
// CPUs, the policy none leaves containers alone that it has not written before: it has no cpusets. A container keeps its CPUs while the shared pool is empty.
func (w *Writer) planWrites(running []RunningContainer) (plan []write) {
	hasCpusets := w.allocator.policy.static || len(w.state.Assigned) > 0
	clear(w.exists)
	for _, c := range running {
		w.exists[c.ID] = true
		set, _ := w.state.CPUs(c.PodUID, c.Container)
		last, isWritten := w.written[c.ID]
		isCurrent := isWritten && last.set == set && (!last.created || c.Created)
		if set.IsEmpty() || isCurrent || !isWritten && !hasCpusets {
			continue
		}
		plan = append(plan, write{c, set})
	}
	for id := range w.written {
		if !w.exists[id] {
			delete(w.written, id)
		}
	}
	return plan
}

// pass writes the CPUs of all containers that do not have them. A container that fails, or whose write hangs, does not delay others for more than
// writeTimeout. A pass that finds no container to write allocates nothing.
func (w *Writer) pass(ctx context.Context) error {
	w.state = w.allocator.State() // before the list: a container of a later state has the CPUs of its start
	running, err := w.opts.Running(ctx)
	if err != nil {
		return fmt.Errorf("cpus: list the running containers: %w", err)
	}
	plan := w.planWrites(running)
	if len(plan) == 0 {
		return nil
	}
	results := make([]error, len(plan))
	var writes sync.WaitGroup
	slots := make(chan struct{}, parallelWrite)
	for i := range plan {
		slots <- struct{}{}
		writes.Go(func() {
			defer func() { <-slots }()
			ctx, cancel := context.WithTimeout(ctx, writeTimeout)
			defer cancel()
			results[i] = w.opts.Write(ctx, plan[i].ID, plan[i].set)
		})
	}
	writes.Wait()
	for i, err := range results {
		if err == nil {
			w.written[plan[i].ID] = writtenCPUs{plan[i].set, plan[i].Created}
			continue
		}
		delete(w.written, plan[i].ID)
		results[i] = fmt.Errorf("cpus: write CPUs %s to container %s of pod %s: %w", plan[i].set, plan[i].Container, plan[i].PodUID, err)
	}
	return errors.Join(results...)
}
