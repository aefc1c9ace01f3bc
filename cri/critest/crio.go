// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package critest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/sleep"
)

// CRIO is a [SummaryRuntime] that differs from containerd as CRI-O 1.37 does, within the contract of package cri:
//
//   - RunSandbox and CreateContainer return the ID of the object that has the name.
//   - StopSandbox gives running containers until the deadline of its context to exit.
//   - The stats of all containers and sandboxes hang while a container is being stopped; those of one sandbox, while one of its
//     containers is.
//   - No event says that an object was created.
//
// Use it behind an [Interceptor] as any other runtime.
type CRIO struct {
	SummaryRuntime

	mu       sync.Mutex     // guards stopping
	stopping map[string]int // calls in flight that stop containers, by sandbox
}

var _ FullRuntime = (*CRIO)(nil)

// defaultCRIOGrace is how long StopSandbox waits where its context has no deadline.
const defaultCRIOGrace = 10 * time.Second

// statsPoll is how often a call about stats checks whether it may go on.
const statsPoll = 100 * time.Millisecond

// RunSandbox runs a sandbox, or returns the one that has the name.
func (r *CRIO) RunSandbox(ctx context.Context, c *cri.SandboxConfig) (string, error) {
	id, err := r.SummaryRuntime.RunSandbox(ctx, c)
	if !errors.Is(err, cri.ErrAlreadyExists) {
		return id, err
	}
	pod, err := r.SummaryRuntime.ListPod(ctx, c.Pod.UID)
	for i := range pod.Sandboxes {
		if s := &pod.Sandboxes[i]; s.Pod == c.Pod && s.Attempt == c.Attempt {
			return s.ID, nil
		}
	}
	return "", errors.Join(err, cri.ErrAlreadyExists)
}

// CreateContainer creates a container, or returns the one that has the name.
func (r *CRIO) CreateContainer(ctx context.Context, sandboxID string, c *cri.ContainerConfig, s *cri.SandboxConfig) (string, error) {
	id, err := r.SummaryRuntime.CreateContainer(ctx, sandboxID, c, s)
	if !errors.Is(err, cri.ErrAlreadyExists) {
		return id, err
	}
	all, err := r.SummaryRuntime.List(ctx)
	for i := range all.Containers {
		if o := &all.Containers[i]; o.SandboxID == sandboxID && o.Name == c.Name && o.Attempt == c.Attempt {
			return o.ID, nil
		}
	}
	return "", errors.Join(err, cri.ErrAlreadyExists)
}

// StopSandbox stops what runs in the sandbox with the grace that the deadline of ctx leaves, and then the sandbox.
func (r *CRIO) StopSandbox(ctx context.Context, id string) error {
	grace := defaultCRIOGrace
	if deadline, ok := ctx.Deadline(); ok {
		grace = time.Until(deadline)
	}
	all, err := r.SummaryRuntime.List(ctx)
	if err != nil {
		return err
	}
	var stops sync.WaitGroup
	for i := range all.Containers {
		if c := &all.Containers[i]; c.SandboxID == id && c.State == cri.ContainerRunning {
			stops.Go(func() { _ = r.StopContainer(ctx, c.ID, grace) })
		}
	}
	stops.Wait()
	return r.SummaryRuntime.StopSandbox(ctx, id)
}

// StopContainer stops a container.
func (r *CRIO) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	if c, err := r.SummaryRuntime.ContainerStatus(ctx, id); err == nil {
		r.count(c.SandboxID, 1)
		defer r.count(c.SandboxID, -1)
	}
	return r.SummaryRuntime.StopContainer(ctx, id, grace)
}

func (r *CRIO) count(sandboxID string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopping == nil {
		r.stopping = map[string]int{}
	}
	if r.stopping[sandboxID] += n; r.stopping[sandboxID] == 0 {
		delete(r.stopping, sandboxID)
	}
}

// awaitStops returns when no container of a sandbox is being stopped, or of any sandbox where none is named.
func (r *CRIO) awaitStops(ctx context.Context, op, sandboxID string) error {
	for {
		r.mu.Lock()
		busy := len(r.stopping) > 0
		if sandboxID != "" {
			busy = r.stopping[sandboxID] > 0
		}
		r.mu.Unlock()
		if !busy {
			return nil
		}
		if err := sleep.For(ctx, statsPoll); err != nil {
			return &cri.Error{Op: op, ID: sandboxID, Err: err}
		}
	}
}

// ContainerStats measures all containers once none is being stopped.
func (r *CRIO) ContainerStats(ctx context.Context) ([]cri.ContainerStats, error) {
	if err := r.awaitStops(ctx, "ListContainerStats", ""); err != nil {
		return nil, err
	}
	return r.SummaryRuntime.ContainerStats(ctx)
}

// PodContainerStats measures the containers of a sandbox once none of them is being stopped.
func (r *CRIO) PodContainerStats(ctx context.Context, sandboxID string) ([]cri.ContainerStats, error) {
	if err := r.awaitStops(ctx, "ListContainerStats", sandboxID); err != nil {
		return nil, err
	}
	return r.SummaryRuntime.PodContainerStats(ctx, sandboxID)
}

// SandboxStats measures all sandboxes once no container is being stopped.
func (r *CRIO) SandboxStats(ctx context.Context) ([]cri.SandboxStats, error) {
	if err := r.awaitStops(ctx, "ListPodSandboxStats", ""); err != nil {
		return nil, err
	}
	return r.SummaryRuntime.SandboxStats(ctx)
}

// StreamEvents reports all events but those of creation.
func (r *CRIO) StreamEvents(ctx context.Context, fn func(cri.Event) error) error {
	return r.SummaryRuntime.StreamEvents(ctx, func(e cri.Event) error {
		if e.Type == cri.EventCreated {
			return nil
		}
		return fn(e)
	})
}
