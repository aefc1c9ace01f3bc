// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package gc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/required"
	"github.com/seed81659283/nodeagent/internal/runonce"
	"github.com/seed81659283/nodeagent/internal/sleep"
)

// ContainerOptions tune a [Containers]. The zero value knows of no pods: then only the limits of the policy count.
type ContainerOptions struct {
	// Policy says which containers go. Nil means [DefaultContainerPolicy].
	Policy *ContainerPolicy
	// Period is the time between two passes of Run. Zero means 1 minute.
	Period time.Duration

	// Pod says how a pod is, also right before something of it is removed; see [OwnedBy]. Nil: all are PodActive.
	Pod func(uid string) PodState
	// Ready reports whether all pods are known that the node is to have. Nil: they are.
	Ready func() bool
	// Mine reports by their labels which containers and sandboxes may be removed. Nil: all may.
	Mine func(labels map[string]string) bool

	// LogRoot is the directory of the logs of pods. Empty: logs are left alone.
	LogRoot string
	// KeepLogs leaves the logs below LogRoot and their directories alone, for a LogRoot shared with other agents: only dead links go.
	KeepLogs bool
	// LogLinks is the directory of links to logs, as /var/log/containers. Empty: there are none.
	LogLinks string
	// PodRoot has a directory for each pod, named by its UID. Empty: they are left alone.
	PodRoot string
	// Release gives back what a pod has whose directory is to go, such as its volumes. Nil: nothing.
	Release func(ctx context.Context, uid string) error
	// MinDirAge is for how long a directory must not have changed to go. Zero means 10 minutes; less: it may be new.
	MinDirAge time.Duration

	Logger *slog.Logger // nil discards
	Hooks  ContainerHooks
}

// ContainerHooks are told what happens, by the goroutine that calls a method of [Containers]. Any may be nil.
type ContainerHooks struct {
	// Removed is called for each container and sandbox that was removed.
	Removed func(r Removal)
	// Dir is called for each directory and link that was removed.
	Dir func(path string)
	// Event is called for what the events of a node say: EventContainerGCFailed.
	Event func(reason, message string)
}

// Containers removes what pods have left that nobody else removes: containers, sandboxes, logs, links to logs, and directories.
// Make one with [NewContainers].
type Containers struct {
	runtime   cri.Runtime
	inspector cri.Inspector // nil: lists are complete
	policy    ContainerPolicy
	opts      ContainerOptions
	running   runonce.Guard
	turn      chan struct{} // has an element while a pass is made
}

// NewContainers returns a collector for a runtime. It starts nothing. The error is about Options.Policy, or a nil
// runtime.
func NewContainers(rt cri.Runtime, o ContainerOptions) (*Containers, error) {
	if err := required.Args("gc.NewContainers", required.Arg{Name: "rt", Value: rt, Hint: "a *remote.Client"}); err != nil {
		return nil, err
	}
	policy := DefaultContainerPolicy()
	if o.Policy != nil {
		policy = *o.Policy
	}
	if err := policy.Validate(); err != nil {
		return nil, err
	}
	if o.Period <= 0 {
		o.Period = time.Minute
	}
	if o.MinDirAge == 0 {
		o.MinDirAge = 10 * time.Minute
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	g := &Containers{runtime: rt, policy: policy, opts: o, turn: make(chan struct{}, 1)}
	g.inspector, _ = rt.(cri.Inspector)
	return g, nil
}

// Run makes a pass at once, and then one each Options.Period, until ctx ends. It returns an error when it is called twice.
func (g *Containers) Run(ctx context.Context) error {
	if err := g.running.Begin(); err != nil {
		return err
	}
	defer g.running.End()
	for {
		err := g.Collect(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			g.opts.Logger.Error("containers were not collected as they should be", "error", err)
			if g.opts.Hooks.Event != nil {
				g.opts.Hooks.Event(EventContainerGCFailed, err.Error())
			}
		}
		if sleep.For(ctx, g.opts.Period) != nil {
			return nil
		}
	}
}

// Collect makes one pass: containers, then sandboxes, then what is on disk. What cannot be removed is part of the error, and the
// rest goes on. Source: GarbageCollect in pkg/kubelet/kuberuntime/kuberuntime_gc.go.
func (g *Containers) Collect(ctx context.Context) error { return g.collect(ctx, false) }

// CollectUnused is a pass in which also goes what pods in state PodTerminated have left. It is for a disk that is full.
func (g *Containers) CollectUnused(ctx context.Context) error { return g.collect(ctx, true) }

func (g *Containers) collect(ctx context.Context, unused bool) error {
	select {
	case g.turn <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("wait for an earlier pass: %w", ctx.Err())
	}
	defer func() { <-g.turn }()
	var errs []error
	state, err := g.state(ctx, unused)
	if err != nil {
		errs = append(errs, fmt.Errorf("containers that are to go: %w", err))
	} else {
		for _, r := range PlanContainers(g.policy, *state) {
			errs = append(errs, g.removeContainer(ctx, state, r))
		}
	}
	if state, err = g.state(ctx, unused); err != nil {
		errs = append(errs, fmt.Errorf("sandboxes that are to go: %w", err))
	} else {
		for _, r := range PlanSandboxes(*state) {
			errs = append(errs, g.removeSandbox(ctx, state, r))
		}
	}
	if state, err = g.state(ctx, unused); err != nil { // without it nobody knows whose a directory is
		errs = append(errs, fmt.Errorf("directories that are to go: %w", err))
	} else {
		errs = append(errs, g.removeLogs(ctx, state), g.removeLinks(ctx, state), g.removePodDirs(ctx, state))
	}
	return errors.Join(errs...)
}

// state returns what is decided by, as it is now.
func (g *Containers) state(ctx context.Context, unused bool) (*ContainerState, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	snap, err := within(ctx, callTimeout, g.runtime.List)
	if err != nil {
		return nil, err
	}
	ready := g.opts.Ready == nil || g.opts.Ready()
	return &ContainerState{Snapshot: snap, Now: time.Now(), Pod: g.opts.Pod, Mine: g.opts.Mine, NotReady: !ready, Unused: unused}, nil
}

// still reports whether what was planned for a pod is to be done: somebody may want the pod by now.
func still(s *ContainerState, r *Removal) bool {
	now := s.pod(r.PodUID)
	return now == r.Pod || now != PodOwned && s.goes(now)
}

// unknownGrace is how long a container of which nobody knows whether it runs has to terminate, and maxUnknownGrace how long it
// has where it says more itself. Source: minimumGracePeriodInSeconds in pkg/kubelet/kuberuntime/kuberuntime_container.go.
const (
	unknownGrace    = 2 * time.Second
	maxUnknownGrace = 10 * time.Minute
)

// annotationGrace is the grace period of its pod, in seconds, on a container. Source: pkg/kubelet/kuberuntime/labels.go.
const annotationGrace = "io.kubernetes.pod.terminationGracePeriod"

// removeContainer removes a container with its logs. Where they cannot be removed it stays, or nobody would know of them.
func (g *Containers) removeContainer(ctx context.Context, s *ContainerState, r Removal) error {
	if ctx.Err() != nil || !still(s, &r) {
		return ctx.Err()
	}
	named := func(err error) error {
		return fmt.Errorf("remove container %s (%s) of pod %s: %w", r.ID, r.Name, r.PodUID, err)
	}
	c, err := g.inspect(ctx, s, r.ID)
	switch {
	case errors.Is(err, cri.ErrNotFound):
		return nil
	case err != nil:
		return named(err)
	case c.State == cri.ContainerRunning:
		return nil // somebody has started it
	}
	if r.Stop || c.State == cri.ContainerUnknown {
		grace := graceOf(&c)
		_, err := within(ctx, grace+callTimeout, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, g.runtime.StopContainer(ctx, r.ID, grace)
		})
		if err != nil {
			return named(err)
		}
	}
	if err := g.removeLog(s, &c); err != nil {
		return named(err)
	}
	if err := g.remove(ctx, g.runtime.RemoveContainer, r); err != nil {
		return named(err)
	}
	return nil
}

// graceOf returns the grace period of a container that is in an unknown state.
func graceOf(c *cri.Container) time.Duration {
	seconds, err := strconv.ParseInt(c.Annotations[annotationGrace], 10, 32)
	if err != nil {
		return unknownGrace
	}
	return min(max(time.Duration(seconds)*time.Second, unknownGrace), maxUnknownGrace)
}

// inspect returns a container as it is now. What only a list says is from the list.
func (g *Containers) inspect(ctx context.Context, s *ContainerState, id string) (cri.Container, error) {
	var listed cri.Container
	for i := range s.Snapshot.Containers {
		if s.Snapshot.Containers[i].ID == id {
			listed = s.Snapshot.Containers[i]
		}
	}
	if g.inspector == nil {
		return listed, nil
	}
	now, err := within(ctx, callTimeout, func(ctx context.Context) (cri.Container, error) { return g.inspector.ContainerStatus(ctx, id) })
	now.PodUID, now.SandboxID = listed.PodUID, listed.SandboxID
	return now, err
}

// removeSandbox tears down the network of a sandbox and removes it.
func (g *Containers) removeSandbox(ctx context.Context, s *ContainerState, r Removal) error {
	if ctx.Err() != nil || !still(s, &r) {
		return ctx.Err()
	}
	_, err := within(ctx, callTimeout, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, g.runtime.StopSandbox(ctx, r.ID)
	})
	if err == nil {
		err = g.remove(ctx, g.runtime.RemoveSandbox, r)
	}
	if err != nil {
		return fmt.Errorf("remove sandbox %s of pod %s: %w", r.ID, r.PodUID, err)
	}
	return nil
}

// remove makes the call that removes a container or a sandbox.
func (g *Containers) remove(ctx context.Context, call func(ctx context.Context, id string) error, r Removal) error {
	_, err := within(ctx, callTimeout, func(ctx context.Context) (struct{}, error) { return struct{}{}, call(ctx, r.ID) })
	if err != nil {
		return err
	}
	g.opts.Logger.Info("container or sandbox removed", "id", r.ID, "container", r.Name, "podUID", r.PodUID, "why", r.Why)
	if g.opts.Hooks.Removed != nil {
		g.opts.Hooks.Removed(r)
	}
	return nil
}
