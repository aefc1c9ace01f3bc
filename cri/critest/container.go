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

type container struct {
	cri.Container
	pod      cri.PodIdentity
	script   Script
	starting bool                         // a StartContainer is on its way
	gone     bool                         // removed
	exited   chan struct{}                // closed on exit
	execs    map[*Call]context.CancelFunc // commands that run inside
}

// CreateContainer makes a container that has its script.
func (r *Runtime) CreateContainer(ctx context.Context, sandboxID string, cfg *cri.ContainerConfig, s *cri.SandboxConfig) (id string, err error) {
	call := r.begin(Call{Op: "CreateContainer", Name: podName(s.Pod) + "/" + cfg.Name})
	defer r.end(call, &err)
	if err := ctx.Err(); err != nil {
		return "", err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	sb := r.sandbox(sandboxID)
	switch {
	case sb == nil:
		return "", fmt.Errorf("sandbox %s: %w", sandboxID, cri.ErrNotFound)
	case sb.State != cri.SandboxReady:
		return "", fmt.Errorf("sandbox %s: %w", sandboxID, errNotReady)
	case cfg.Name == "":
		return "", errors.New("container has no name")
	}
	for _, c := range r.containers {
		if c.pod == sb.Pod && c.Name == cfg.Name && c.Attempt == cfg.Attempt {
			return "", fmt.Errorf("attempt %d: %w", cfg.Attempt, cri.ErrAlreadyExists)
		}
	}
	img, err := r.use(cfg.Image)
	if err != nil {
		return "", err
	}
	c := &container{
		Container: newContainer(cfg, s, img),
		pod:       sb.Pod,
		script:    r.opts.Script(cfg),
		exited:    make(chan struct{}),
		execs:     map[*Call]context.CancelFunc{},
	}
	c.ID = r.newID(sb.Pod.UID, cfg.Name, attempt(cfg.Attempt))
	c.SandboxID, c.PodUID = sandboxID, sb.Pod.UID
	call.ID = c.ID
	r.containers = append(r.containers, c)
	r.byID[c.ID] = c
	r.publish(cri.EventCreated, c.ID, c.pod)
	return c.ID, nil
}

func newContainer(cfg *cri.ContainerConfig, s *cri.SandboxConfig, img cri.Image) cri.Container {
	c := cri.Container{
		Name:        cfg.Name,
		Attempt:     cfg.Attempt,
		State:       cri.ContainerCreated,
		CreatedAt:   time.Now(),
		Image:       cfg.Image,
		ImageRef:    reference(img),
		ImageID:     img.ID,
		Labels:      maps.Clone(cfg.Labels),
		Annotations: maps.Clone(cfg.Annotations),
		Mounts:      slices.Clone(cfg.Mounts),
		Resources:   cloneResources(cfg.Resources),
		StopSignal:  cmp.Or(cfg.StopSignal, "SIGTERM"),
	}
	if s.LogDirectory != "" && cfg.LogPath != "" {
		c.LogPath = filepath.Join(s.LogDirectory, cfg.LogPath)
	}
	return c
}

// StartContainer begins the container's script. A container that does not start has exited, and as with containerd
// no event says so.
func (r *Runtime) StartContainer(ctx context.Context, id string) (err error) {
	call := r.begin(Call{Op: "StartContainer", ID: id})
	defer r.end(call, &err)
	if err := ctx.Err(); err != nil {
		return err
	}
	started, hook, err := r.start(ctx, id)
	if err == nil && hook != nil {
		hook(started)
	}
	return err
}

// start begins the script of a container, and returns the container as it is then, and its hook.
func (r *Runtime) start(ctx context.Context, id string) (started cri.Container, hook func(cri.Container), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.container(id)
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
	case c.gone:
		return started, nil, cri.ErrNotFound
	case err != nil:
		return started, nil, r.failStart(c, err)
	case c.script.StartError != nil:
		return started, nil, r.failStart(c, c.script.StartError)
	case r.sandbox(c.SandboxID).State != cri.SandboxReady:
		return started, nil, r.failStart(c, errNotReady)
	}
	c.State, c.StartedAt = cri.ContainerRunning, time.Now()
	if e := c.script.Exit; e != nil {
		r.after(e.After, func() { r.exit(c, *e) })
	}
	r.publish(cri.EventStarted, id, c.pod)
	return c.Container, c.script.Started, nil
}

// failStart ends a container that never ran. r.mu is held.
func (r *Runtime) failStart(c *container, err error) error {
	c.State, c.FinishedAt = cri.ContainerExited, time.Now()
	c.ExitCode, c.Reason, c.Message = codeStartError, reasonStartError, err.Error()
	close(c.exited)
	return err
}

// StopContainer begins the Stop part of the script and kills the container after the grace. When ctx ends before,
// the signal has been sent and the kill is not.
func (r *Runtime) StopContainer(ctx context.Context, id string, grace time.Duration) (err error) {
	call := r.begin(Call{Op: "StopContainer", ID: id, Grace: grace})
	defer r.end(call, &err)
	if err := ctx.Err(); err != nil {
		return err
	}
	r.mu.Lock()
	c := r.container(id)
	if c == nil || c.State != cri.ContainerRunning {
		r.mu.Unlock()
		return nil
	}
	killed := Exit{Code: codeKilled}
	abandoned := false
	if grace <= 0 {
		r.exit(c, killed)
	} else {
		e := c.script.stopped(c.StopSignal)
		r.after(e.After, func() { r.exit(c, e) }) // no effect after that of an earlier signal
		r.after(seconds(grace), func() {
			if !abandoned {
				r.exit(c, killed)
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

// RemoveContainer kills the container if it runs, and forgets it.
func (r *Runtime) RemoveContainer(ctx context.Context, id string) (err error) {
	call := r.begin(Call{Op: "RemoveContainer", ID: id})
	defer r.end(call, &err)
	if err := ctx.Err(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.container(id)
	switch {
	case c == nil:
		return nil
	case c.starting:
		return errors.New("container is starting")
	}
	r.exit(c, Exit{Code: codeKilled})
	r.remove(c)
	return nil
}

// exit ends a running container; any other it leaves alone. r.mu is held.
func (r *Runtime) exit(c *container, e Exit) {
	if c.State != cri.ContainerRunning {
		return
	}
	c.State, c.FinishedAt = cri.ContainerExited, time.Now()
	c.ExitCode, c.Reason, c.Message = e.Code, e.reason(), e.Message
	for _, cancel := range c.execs {
		cancel()
	}
	close(c.exited)
	r.publish(cri.EventStopped, c.ID, c.pod)
}

// remove forgets a container. r.mu is held.
func (r *Runtime) remove(c *container) {
	c.gone = true
	r.containers = slices.DeleteFunc(r.containers, func(o *container) bool { return o == c })
	delete(r.byID, c.ID)
	r.publish(cri.EventDeleted, c.ID, c.pod)
}
