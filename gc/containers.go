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

// ContainerOptions configures a [Containers]. The zero value has no information about pods, so that only the limits of the policy
// apply.
type ContainerOptions struct {
	// Policy limits the containers that do not run. Nil: [DefaultContainerPolicy].
	Policy *ContainerPolicy
	// Period is the time from the end of one collection of Run to the next. Zero: 1 minute.
	Period time.Duration

	// Pod returns the state of a pod; see [OwnedBy]. It is called again right before a removal. Nil: all pods are PodActive.
	Pod func(uid string) PodState
	// Ready reports whether all sources have reported their pods. Nil: they have.
	Ready func() bool
	// MayRemove reports by labels whether a container or sandbox may be removed. Nil: all may.
	MayRemove func(labels map[string]string) bool

	// LogRoot is the directory with the logs of pods, /var/log/pods in the kubelet. Empty: no logs are removed.
	LogRoot string
	// KeepLogs keeps the logs and directories below LogRoot, for a LogRoot shared with other agents. Only dangling links are
	// removed.
	KeepLogs bool
	// LogLinks is the directory of links to logs, for example /var/log/containers. Empty: none.
	LogLinks string
	// PodRoot is the directory with a directory per pod, named by UID. Empty: no pod directories are removed.
	PodRoot string
	// Release releases the resources of a pod, for example its volumes, before its directory is removed. Nil: nothing to release.
	Release func(ctx context.Context, uid string) error
	// MinDirAge is the time since the last change of a directory before its removal. Zero: 10 minutes; negative: none.
	MinDirAge time.Duration

	Logger *slog.Logger // nil: no logs
	Hooks  ContainerHooks
}

// ContainerHooks are called by the goroutine that calls a method of [Containers]. Each may be nil.
type ContainerHooks struct {
	// Removed is called after the removal of each container and sandbox.
	Removed func(r Removal)
	// DirRemoved is called after the removal of each directory and link.
	DirRemoved func(path string)
	// Event is called for node events: EventContainerGCFailed.
	Event func(reason, message string)
}

// Containers removes remains of pods that no other component removes: containers, sandboxes, logs, links to logs, and pod
// directories. [NewContainers] creates it.
type Containers struct {
	runtime   cri.Runtime
	inspector cri.Inspector // nil: lists are complete
	policy    ContainerPolicy
	opts      ContainerOptions
	running   runonce.Guard
	passSlot  chan struct{} // full while Collect or CollectTerminated runs
}

// NewContainers returns a collector that removes the containers and sandboxes in the runtime, and their logs and
// directories. It starts nothing. It returns an error if runtime is nil or Options.Policy is invalid.
func NewContainers(runtime cri.Runtime, opts ContainerOptions) (*Containers, error) {
	if err := required.Args("gc.NewContainers", required.Arg{Name: "runtime", Value: runtime, Hint: "a *remote.Client"}); err != nil {
		return nil, err
	}
	policy := DefaultContainerPolicy()
	if opts.Policy != nil {
		policy = *opts.Policy
	}
	if err := policy.Validate(); err != nil {
		return nil, err
	}
	if opts.Period <= 0 {
		opts.Period = time.Minute
	}
	if opts.MinDirAge == 0 {
		opts.MinDirAge = 10 * time.Minute
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	g := &Containers{runtime: runtime, policy: policy, opts: opts, passSlot: make(chan struct{}, 1)}
	g.inspector, _ = runtime.(cri.Inspector)
	return g, nil
}

// Run calls [Containers.Collect] at once and then every Options.Period. It logs errors. It returns nil when ctx ends. A
// second call returns an error.
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

// Collect removes containers, then sandboxes, then logs and directories, as far as the policy and the pod states permit. It
// continues after a failed removal. The error joins all failures. Source: GarbageCollect in
// pkg/kubelet/kuberuntime/kuberuntime_gc.go.
func (g *Containers) Collect(ctx context.Context) error { return g.runPass(ctx, false) }

// CollectTerminated works like [Containers.Collect], but also removes the remains of pods in state PodTerminated. Call it
// when the disk is full.
func (g *Containers) CollectTerminated(ctx context.Context) error { return g.runPass(ctx, true) }

func (g *Containers) runPass(ctx context.Context, includeTerminated bool) error {
	select {
	case g.passSlot <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("wait for an earlier pass: %w", ctx.Err())
	}
	defer func() { <-g.passSlot }()
	var errs []error
	state, err := g.readState(ctx, includeTerminated)
	if err != nil {
		errs = append(errs, fmt.Errorf("find containers to remove: %w", err))
	} else {
		for _, r := range PlanContainers(g.policy, *state) {
			errs = append(errs, g.removeContainer(ctx, state, r))
		}
	}
	if state, err = g.readState(ctx, includeTerminated); err != nil {
		errs = append(errs, fmt.Errorf("find sandboxes to remove: %w", err))
	} else {
		for _, r := range PlanSandboxes(*state) {
			errs = append(errs, g.removeSandbox(ctx, state, r))
		}
	}
	if state, err = g.readState(ctx, includeTerminated); err != nil { // without the list of containers the owner of a directory is unknown
		errs = append(errs, fmt.Errorf("find directories to remove: %w", err))
	} else {
		errs = append(errs, g.removeLogs(ctx, state), g.removeLinks(ctx, state), g.removePodDirs(ctx, state))
	}
	return errors.Join(errs...)
}

// readState lists the containers and sandboxes of the runtime, as input for [PlanContainers] and [PlanSandboxes]. If
// includeTerminated is true, the plans also remove the remains of terminated pods.
func (g *Containers) readState(ctx context.Context, includeTerminated bool) (*ContainerState, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	snap, err := callWithTimeout(ctx, callTimeout, g.runtime.List)
	if err != nil {
		return nil, err
	}
	ready := g.opts.Ready == nil || g.opts.Ready()
	return &ContainerState{Snapshot: snap, Now: time.Now(), Pod: g.opts.Pod, MayRemove: g.opts.MayRemove, NotReady: !ready, IncludeTerminated: includeTerminated}, nil
}

// isStillRemovable reports whether the planned removal is still allowed. It returns false if a source has listed the pod
// again since the plan was made.
func isStillRemovable(state *ContainerState, removal *Removal) bool {
	current := state.podState(removal.PodUID)
	return current == removal.Pod || current != PodOwned && state.isRemovable(current)
}

// unknownGrace is the least grace period for stopping a container in state unknown. maxUnknownGrace is the longest grace period
// that its annotation can request. Source: minimumGracePeriodInSeconds in pkg/kubelet/kuberuntime/kuberuntime_container.go.
const (
	unknownGrace    = 2 * time.Second
	maxUnknownGrace = 10 * time.Minute
)

// annotationGrace is the container annotation with the grace period of the pod in seconds. Source:
// pkg/kubelet/kuberuntime/labels.go.
const annotationGrace = "io.kubernetes.pod.terminationGracePeriod"

// removeContainer executes the planned removal of a container: it removes the log and then the container.
func (g *Containers) removeContainer(ctx context.Context, s *ContainerState, r Removal) error {
	if ctx.Err() != nil || !isStillRemovable(s, &r) {
		return ctx.Err()
	}
	wrap := func(err error) error {
		return fmt.Errorf("remove container %s (%s) of pod %s: %w", r.ID, r.Name, r.PodUID, err)
	}
	c, err := g.readStatus(ctx, s, r.ID)
	switch {
	case errors.Is(err, cri.ErrNotFound):
		return nil
	case err != nil:
		return wrap(err)
	case c.State == cri.ContainerRunning:
		return nil // it was started since the plan
	}
	if r.Stop || c.State == cri.ContainerUnknown {
		grace := unknownGracePeriod(&c)
		_, err := callWithTimeout(ctx, grace+callTimeout, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, g.runtime.StopContainer(ctx, r.ID, grace)
		})
		if err != nil {
			return wrap(err)
		}
	}
	// If the log cannot be removed, the container stays, because only the container records the path of its log.
	if err := g.removeLog(s, &c); err != nil {
		return wrap(err)
	}
	if err := g.callRemove(ctx, g.runtime.RemoveContainer, r); err != nil {
		return wrap(err)
	}
	return nil
}

// unknownGracePeriod returns the grace period for stopping a container in state unknown, from its annotation.
func unknownGracePeriod(c *cri.Container) time.Duration {
	seconds, err := strconv.ParseInt(c.Annotations[annotationGrace], 10, 32)
	if err != nil {
		return unknownGrace
	}
	return min(max(time.Duration(seconds)*time.Second, unknownGrace), maxUnknownGrace)
}

// readStatus returns the current status of the container with this ID from the runtime. If the runtime does not implement
// cri.Inspector, it returns the container as listed in s.Snapshot.
func (g *Containers) readStatus(ctx context.Context, s *ContainerState, id string) (cri.Container, error) {
	var listed cri.Container
	for i := range s.Snapshot.Containers {
		if s.Snapshot.Containers[i].ID == id {
			listed = s.Snapshot.Containers[i]
		}
	}
	if g.inspector == nil {
		return listed, nil
	}
	now, err := callWithTimeout(ctx, callTimeout, func(ctx context.Context) (cri.Container, error) { return g.inspector.ContainerStatus(ctx, id) })
	now.PodUID, now.SandboxID = listed.PodUID, listed.SandboxID
	return now, err
}

// removeSandbox stops the sandbox of the planned removal r, which tears down its network. It then removes the sandbox.
func (g *Containers) removeSandbox(ctx context.Context, s *ContainerState, r Removal) error {
	if ctx.Err() != nil || !isStillRemovable(s, &r) {
		return ctx.Err()
	}
	_, err := callWithTimeout(ctx, callTimeout, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, g.runtime.StopSandbox(ctx, r.ID)
	})
	if err == nil {
		err = g.callRemove(ctx, g.runtime.RemoveSandbox, r)
	}
	if err != nil {
		return fmt.Errorf("remove sandbox %s of pod %s: %w", r.ID, r.PodUID, err)
	}
	return nil
}

// callRemove calls remove for a container or sandbox, logs the removal and calls Hooks.Removed.
func (g *Containers) callRemove(ctx context.Context, remove func(ctx context.Context, id string) error, r Removal) error {
	_, err := callWithTimeout(ctx, callTimeout, func(ctx context.Context) (struct{}, error) { return struct{}{}, remove(ctx, r.ID) })
	if err != nil {
		return err
	}
	g.opts.Logger.Info("container or sandbox removed", "id", r.ID, "container", r.Name, "podUID", r.PodUID, "why", r.Reason)
	if g.opts.Hooks.Removed != nil {
		g.opts.Hooks.Removed(r)
	}
	return nil
}
