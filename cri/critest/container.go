// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package critest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/sleep"
)

// container is a container of a [Runtime], and the state of its script.
type container struct {
	cri.Container
	pod      cri.PodIdentity
	script   Script
	starting bool                         // a StartContainer call is in progress
	removed  bool                         // RemoveContainer or RemoveSandbox removed it
	exited   chan struct{}                // closed on exit
	execs    map[*Call]context.CancelFunc // cancels the commands that run in the container
}

// CreateContainer creates a container and returns its ID. [Options.Script] determines how the container behaves.
func (r *Runtime) CreateContainer(ctx context.Context, sandboxID string, config *cri.ContainerConfig, sandboxConfig *cri.SandboxConfig) (id string, err error) {
	call := r.recordCall(Call{Op: "CreateContainer", Name: podName(sandboxConfig.Pod) + "/" + config.Name})
	defer r.recordResult(call, &err)
	if err := ctx.Err(); err != nil {
		return "", err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	sb := r.sandboxByID(sandboxID)
	switch {
	case sb == nil:
		return "", fmt.Errorf("sandbox %s: %w", sandboxID, cri.ErrNotFound)
	case sb.State != cri.SandboxReady:
		return "", fmt.Errorf("sandbox %s: %w", sandboxID, errNotReady)
	case config.Name == "":
		return "", errors.New("container has no name")
	}
	for _, c := range r.containers {
		if c.pod == sb.Pod && c.Name == config.Name && c.Attempt == config.Attempt {
			return "", fmt.Errorf("attempt %d: %w", config.Attempt, cri.ErrAlreadyExists)
		}
	}
	img, err := r.imageForContainer(config.Image)
	if err != nil {
		return "", err
	}
	c := &container{
		Container: newContainer(config, sandboxConfig, img),
		pod:       sb.Pod,
		script:    r.opts.Script(config),
		exited:    make(chan struct{}),
		execs:     map[*Call]context.CancelFunc{},
	}
	c.ID = r.newID(sb.Pod.UID, config.Name, formatAttempt(config.Attempt))
	c.SandboxID, c.PodUID = sandboxID, sb.Pod.UID
	call.ID = c.ID
	r.containers = append(r.containers, c)
	r.byID[c.ID] = c
	r.publishEvent(cri.EventCreated, c.ID, c.pod)
	return c.ID, nil
}

// newContainer returns a container in state created with these configs and this image. The caller sets its ID.
func newContainer(config *cri.ContainerConfig, sandboxConfig *cri.SandboxConfig, img cri.Image) cri.Container {
	c := cri.Container{
		Name:        config.Name,
		Attempt:     config.Attempt,
		State:       cri.ContainerCreated,
		CreatedAt:   time.Now(),
		Image:       config.Image,
		ImageRef:    imageRef(img),
		ImageID:     img.ID,
		Labels:      maps.Clone(config.Labels),
		Annotations: maps.Clone(config.Annotations),
		Mounts:      slices.Clone(config.Mounts),
		Resources:   cloneResources(config.Resources),
		StopSignal:  cmp.Or(config.StopSignal, "SIGTERM"),
	}
	if sandboxConfig.LogDirectory != "" && config.LogPath != "" {
		c.LogPath = filepath.Join(sandboxConfig.LogDirectory, config.LogPath)
	}
	return c
}

// StartContainer runs the script of a created container. If the start fails, the container gets state exited. As in containerd,
// no event reports a failed start.
func (r *Runtime) StartContainer(ctx context.Context, id string) (err error) {
	call := r.recordCall(Call{Op: "StartContainer", ID: id})
	defer r.recordResult(call, &err)
	if err := ctx.Err(); err != nil {
		return err
	}
	started, hook, err := r.startScript(ctx, id)
	if err == nil && hook != nil {
		hook(started)
	}
	return err
}

// startScript starts the script of a created container, and returns the hook Script.Started, to be called without r.mu.
func (r *Runtime) startScript(ctx context.Context, id string) (started cri.Container, hook func(cri.Container), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.containerByID(id)
	switch {
	case c == nil:
		return started, nil, cri.ErrNotFound
	case c.starting:
		return started, nil, errors.New("container is starting")
	case c.State != cri.ContainerCreated:
		return started, nil, errors.New("container is " + c.State.String())
	}
	c.starting = true
	r.mu.Unlock()
	err = sleep.For(ctx, c.script.StartAfter)
	r.mu.Lock()
	c.starting = false
	switch {
	case c.removed:
		return started, nil, cri.ErrNotFound
	case err != nil:
		return started, nil, r.failStart(c, err)
	case c.script.StartError != nil:
		return started, nil, r.failStart(c, c.script.StartError)
	case r.sandboxByID(c.SandboxID).State != cri.SandboxReady:
		return started, nil, r.failStart(c, errNotReady)
	}
	c.State, c.StartedAt = cri.ContainerRunning, time.Now()
	if e := c.script.Exit; e != nil {
		r.schedule(e.After, func() { r.exitContainer(c, *e) })
	}
	r.publishEvent(cri.EventStarted, id, c.pod)
	return c.Container, c.script.Started, nil
}

// failStart marks a container as exited because it could not be started. The message of the container is the text of err.
// failStart returns err. r.mu is held.
func (r *Runtime) failStart(ctr *container, err error) error {
	ctr.State, ctr.FinishedAt = cri.ContainerExited, time.Now()
	ctr.ExitCode, ctr.Reason, ctr.Message = codeStartError, reasonStartError, err.Error()
	close(ctr.exited)
	return err
}

// StopContainer sends the stop signal; the container exits as Script.Stop specifies, or is killed after the grace period. It
// returns when the container has exited. If ctx ends first, the kill is canceled, but the signal remains sent.
func (r *Runtime) StopContainer(ctx context.Context, id string, grace time.Duration) (err error) {
	call := r.recordCall(Call{Op: "StopContainer", ID: id, Grace: grace})
	defer r.recordResult(call, &err)
	if err := ctx.Err(); err != nil {
		return err
	}
	r.mu.Lock()
	c := r.containerByID(id)
	if c == nil || c.State != cri.ContainerRunning {
		r.mu.Unlock()
		return nil
	}
	killed := Exit{Code: codeKilled}
	abandoned := false
	if grace <= 0 {
		r.exitContainer(c, killed)
	} else {
		e := c.script.exitOnSignal(c.StopSignal)
		r.schedule(e.After, func() { r.exitContainer(c, e) }) // no effect if an earlier signal stopped the container first
		r.schedule(roundUpToSeconds(grace), func() {
			if !abandoned {
				r.exitContainer(c, killed)
			}
		})
	}
	r.mu.Unlock()
	select {
	case <-c.exited:
		return nil
	case <-ctx.Done():
		r.mu.Lock()
		defer r.mu.Unlock()
		abandoned = true
		return ctx.Err()
	}
}

// RemoveContainer removes a container, which it kills first if it runs. A missing container is no error.
func (r *Runtime) RemoveContainer(ctx context.Context, id string) (err error) {
	call := r.recordCall(Call{Op: "RemoveContainer", ID: id})
	defer r.recordResult(call, &err)
	if err := ctx.Err(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.containerByID(id)
	switch {
	case c == nil:
		return nil
	case c.starting:
		return errors.New("container is starting")
	}
	r.exitContainer(c, Exit{Code: codeKilled})
	r.removeContainer(c)
	return nil
}

// exitContainer makes a running container exit with the code, reason and message in exit, and emits EventStopped. It ignores
// a container that is not running. r.mu is held.
func (r *Runtime) exitContainer(ctr *container, exit Exit) {
	if ctr.State != cri.ContainerRunning {
		return
	}
	ctr.State, ctr.FinishedAt = cri.ContainerExited, time.Now()
	ctr.ExitCode, ctr.Reason, ctr.Message = exit.Code, exit.reasonOrDefault(), exit.Message
	for _, cancel := range ctr.execs {
		cancel()
	}
	close(ctr.exited)
	if hook := ctr.script.Exited; hook != nil {
		hook(ctr.Container)
	}
	r.publishEvent(cri.EventStopped, ctr.ID, ctr.pod)
}

// removeContainer removes a container in any state from r, and emits EventDeleted. r.mu is held.
func (r *Runtime) removeContainer(ctr *container) {
	ctr.removed = true
	r.containers = slices.DeleteFunc(r.containers, func(o *container) bool { return o == ctr })
	delete(r.byID, ctr.ID)
	r.publishEvent(cri.EventDeleted, ctr.ID, ctr.pod)
}
