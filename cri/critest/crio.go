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
//   - RunSandbox and CreateContainer return the ID of the object that already has the name.
//   - StopSandbox gives running containers until the deadline of its context to exit.
//   - The stats of all containers and sandboxes hang while any container is being stopped. The stats of one sandbox
//     hang while one of its containers is being stopped.
//   - No event reports the creation of an object.
//
// Like any other runtime it can be wrapped by an [Interceptor].
type CRIO struct {
	SummaryRuntime

	mu       sync.Mutex     // guards stopping
	stopping map[string]int // number of StopContainer calls in progress, by sandbox ID
}

var _ FullRuntime = (*CRIO)(nil)

// defaultCRIOGrace is the grace period of StopSandbox if its context has no deadline.
const defaultCRIOGrace = 10 * time.Second

// statsPoll is the pause between two checks whether a hanging stats call can continue.
const statsPoll = 100 * time.Millisecond

// RunSandbox runs a sandbox. If a sandbox of the same pod and attempt exists, it returns the ID of that sandbox.
func (r *CRIO) RunSandbox(ctx context.Context, config *cri.SandboxConfig) (string, error) {
	id, err := r.SummaryRuntime.RunSandbox(ctx, config)
	if !errors.Is(err, cri.ErrAlreadyExists) {
		return id, err
	}
	pod, err := r.SummaryRuntime.ListPod(ctx, config.Pod.UID)
	for i := range pod.Sandboxes {
		if s := &pod.Sandboxes[i]; s.Pod == config.Pod && s.Attempt == config.Attempt {
			return s.ID, nil
		}
	}
	return "", errors.Join(err, cri.ErrAlreadyExists)
}

// CreateContainer creates a container. If the sandbox has a container of the same name and attempt, it returns the ID of that
// container.
func (r *CRIO) CreateContainer(ctx context.Context, sandboxID string, config *cri.ContainerConfig, sandboxConfig *cri.SandboxConfig) (string, error) {
	id, err := r.SummaryRuntime.CreateContainer(ctx, sandboxID, config, sandboxConfig)
	if !errors.Is(err, cri.ErrAlreadyExists) {
		return id, err
	}
	all, err := r.SummaryRuntime.List(ctx)
	for i := range all.Containers {
		if o := &all.Containers[i]; o.SandboxID == sandboxID && o.Name == config.Name && o.Attempt == config.Attempt {
			return o.ID, nil
		}
	}
	return "", errors.Join(err, cri.ErrAlreadyExists)
}

// StopSandbox stops the running containers of the sandbox, and then the sandbox. The grace period of the containers lasts until
// the deadline of ctx.
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

// StopContainer stops a container. Until it returns, calls that return the stats of the container hang.
func (r *CRIO) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	if c, err := r.SummaryRuntime.ContainerStatus(ctx, id); err == nil {
		r.addStopping(c.SandboxID, 1)
		defer r.addStopping(c.SandboxID, -1)
	}
	return r.SummaryRuntime.StopContainer(ctx, id, grace)
}

// addStopping adds n to the number of StopContainer calls in progress in a sandbox.
func (r *CRIO) addStopping(sandboxID string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopping == nil {
		r.stopping = map[string]int{}
	}
	if r.stopping[sandboxID] += n; r.stopping[sandboxID] == 0 {
		delete(r.stopping, sandboxID)
	}
}

// awaitStops waits until no StopContainer call is in progress in the sandbox, or in any sandbox if the ID is empty.
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

// ContainerStats measures all containers. It waits until no StopContainer call is in progress.
func (r *CRIO) ContainerStats(ctx context.Context) ([]cri.ContainerStats, error) {
	if err := r.awaitStops(ctx, "ListContainerStats", ""); err != nil {
		return nil, err
	}
	return r.SummaryRuntime.ContainerStats(ctx)
}

// PodContainerStats measures the containers of a sandbox. It waits until no StopContainer call is in progress in that sandbox.
func (r *CRIO) PodContainerStats(ctx context.Context, sandboxID string) ([]cri.ContainerStats, error) {
	if err := r.awaitStops(ctx, "ListContainerStats", sandboxID); err != nil {
		return nil, err
	}
	return r.SummaryRuntime.PodContainerStats(ctx, sandboxID)
}

// SandboxStats measures all sandboxes. It waits until no StopContainer call is in progress.
func (r *CRIO) SandboxStats(ctx context.Context) ([]cri.SandboxStats, error) {
	if err := r.awaitStops(ctx, "ListPodSandboxStats", ""); err != nil {
		return nil, err
	}
	return r.SummaryRuntime.SandboxStats(ctx)
}

// StreamEvents calls fn for each later change of a sandbox or container, except for creations.
func (r *CRIO) StreamEvents(ctx context.Context, fn func(cri.Event) error) error {
	return r.SummaryRuntime.StreamEvents(ctx, func(e cri.Event) error {
		if e.Type == cri.EventCreated {
			return nil
		}
		return fn(e)
	})
}
