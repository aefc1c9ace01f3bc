// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/process/internal/shim"
	"github.com/seed81659283/nodeagent/cri/process/internal/translate"
)

// startTime bounds the wait for a process to be started, whatever the caller allows.
const startTime = 30 * time.Second

// containerRecord is what is written of a container, as it was created.
type containerRecord struct {
	cri.Container                   // what changes over time is guarded by Runtime.mu
	Cgroup        cgroups.Path      // empty: that of the agent
	Limits        cgroups.Resources // of the cgroup
}

// container is a container and, while it runs, the hold on its shim.
type container struct {
	containerRecord

	dir  string
	pod  cri.PodIdentity // whose it is, as far as its sandbox is known
	op   chan struct{}   // holds one token, for whoever starts or removes the container
	shim *shim.Handle    // nil unless running; guarded by Runtime.mu
	gone bool            // removed; guarded by Runtime.mu

	// Of a container in state unknown: when it is examined again, and the wait that led there. Guarded by Runtime.mu.
	again time.Time
	pause time.Duration
}

func (c *container) name() string {
	return fmt.Sprintf("%s_%s_%d", c.SandboxID, c.Name, c.Attempt)
}

// logAbout returns the logger for lines about a container.
func (r *Runtime) logAbout(c *container) *slog.Logger {
	return r.logOf(c.pod).With("container", c.Name, "containerID", c.ID)
}

// mark is the environment entry by which the processes of a container are known.
func mark(id string) string { return "NODEAGENT_CONTAINER_ID=" + id }

// loadContainer reads a container back and finds its shim.
func (r *Runtime) loadContainer(dir string, deadline time.Time) (*container, error) {
	record, err := shim.Read[containerRecord](filepath.Join(dir, recordFile))
	if err != nil {
		return nil, err
	}
	if record.ID != filepath.Base(dir) {
		return nil, fmt.Errorf("record %s: not of this directory", filepath.Join(dir, recordFile))
	}
	c := &container{containerRecord: record, dir: dir, op: make(chan struct{}, 1)}
	c.pod = r.podOf(c)
	_ = r.examine(c, deadline) // it is logged, and the state says it
	return c, nil
}

// finish takes over how the container ended, or that nobody knows.
func (c *container) finish(exit shim.Exit, err error) {
	if err != nil {
		exit = shim.Exit{Code: 137, Reason: shim.ReasonUnknown, Message: err.Error(), Started: c.StartedAt, At: time.Now()}
	}
	c.State = cri.ContainerExited
	c.StartedAt, c.FinishedAt = exit.Started, exit.At
	c.ExitCode, c.Reason, c.Message = exit.Code, exit.Reason, exit.Message
}

// CreateContainer checks a config and records it.
func (r *Runtime) CreateContainer(ctx context.Context, sandboxID string, c *cri.ContainerConfig, _ *cri.SandboxConfig) (string, error) {
	id, err := r.create(ctx, sandboxID, c)
	return id, fail("CreateContainer", c.Name, err)
}

func (r *Runtime) create(ctx context.Context, sandboxID string, config *cri.ContainerConfig) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", context.Cause(ctx)
	}
	s, err := r.findSandbox(sandboxID)
	if err != nil {
		return "", fmt.Errorf("sandbox %s: %w", sandboxID, err)
	}
	unsupported := unsupportedContainer(config, os.Geteuid(), r.options.Mounts)
	if err := r.judge(r.logOf(s.Pod).With("container", config.Name), unsupported); err != nil {
		return "", err
	}
	c := &container{containerRecord: containerRecord{Container: describe(config, s)}, pod: s.Pod, op: make(chan struct{}, 1)}
	spec, err := r.specOf(config, s, c)
	if err != nil {
		return "", err
	}
	c.LogPath = spec.Log
	if spec.User != nil {
		c.User = translate.User(spec.User)
	}
	if err := r.reserve(c.name()); err != nil {
		return "", err
	}
	c.dir, err = r.makeDir(containersDir, c.ID, func(dir string) error {
		return errors.Join(shim.WriteSpec(dir, spec), shim.Write(filepath.Join(dir, recordFile), c.containerRecord))
	})
	if err == nil {
		if err = r.add(c, s); err != nil {
			err = errors.Join(err, removeDir(c.dir))
		}
	}
	if err != nil {
		r.release(c.name())
		return "", err
	}
	return c.ID, nil
}

// add makes a container known, unless its sandbox has been stopped.
func (r *Runtime) add(c *container, s *sandbox) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.stopping {
		return fmt.Errorf("sandbox %s: not ready", s.ID)
	}
	r.containers = append(r.containers, c)
	r.emit(cri.EventCreated, c.ID, s.Pod, nil)
	return nil
}

// StartContainer starts the process of a container. Where that fails, the container has exited with code 128 and
// reason StartError.
func (r *Runtime) StartContainer(ctx context.Context, id string) error {
	c, err := r.find(id)
	if err == nil {
		err = r.start(ctx, c)
	}
	return fail("StartContainer", id, err)
}

func (r *Runtime) start(ctx context.Context, c *container) error {
	if err := c.claim(ctx); err != nil {
		return err
	}
	defer c.unclaim()
	pod, err := r.startable(c)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	handle, run, err := r.launch(ctx, c)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		exit, lost := shim.Outcome(c.dir, mark(c.ID))
		if lost != nil || exit.Reason != shim.ReasonStartError {
			exit, lost = shim.StartFailed(c.dir, err)
		}
		c.finish(exit, lost)
		r.emit(cri.EventStopped, c.ID, pod, nil)
		return err
	}
	c.shim, c.State, c.StartedAt = handle, cri.ContainerRunning, run.At
	r.emit(cri.EventStarted, c.ID, pod, c)
	return nil
}

// launch starts the shim of a container, in a cgroup that is limited before.
func (r *Runtime) launch(ctx context.Context, c *container) (*shim.Handle, shim.Run, error) {
	if err := r.applyLimits(ctx, c); err != nil {
		return nil, shim.Run{}, err
	}
	return shim.Start(ctx, c.dir)
}

// startable reports whether a container may start, and returns its pod.
func (r *Runtime) startable(c *container) (cri.PodIdentity, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return cri.PodIdentity{}, errClosed
	}
	if c.gone {
		return cri.PodIdentity{}, cri.ErrNotFound
	}
	if c.State != cri.ContainerCreated {
		return cri.PodIdentity{}, fmt.Errorf("container is %s, not created", c.State)
	}
	i := slices.IndexFunc(r.sandboxes, func(s *sandbox) bool { return s.ID == c.SandboxID })
	if i < 0 || r.sandboxes[i].stopping {
		return cri.PodIdentity{}, fmt.Errorf("sandbox %s: not ready", c.SandboxID)
	}
	return r.sandboxes[i].Pod, nil
}

// RemoveContainer kills a container that runs, and forgets it. Its log file stays.
func (r *Runtime) RemoveContainer(ctx context.Context, id string) error {
	c, err := r.find(id)
	if errors.Is(err, cri.ErrNotFound) {
		return nil
	}
	if err == nil {
		err = r.remove(ctx, c)
	}
	return fail("RemoveContainer", id, err)
}

func (r *Runtime) remove(ctx context.Context, c *container) error {
	for {
		if err := r.stop(ctx, c, 0); err != nil {
			return err
		}
		if err := c.claim(ctx); err != nil {
			return err
		}
		done, err := r.forget(ctx, c)
		c.unclaim()
		if done || err != nil {
			return err
		}
	}
}

// forget removes a container that does not run, and reports whether it did.
func (r *Runtime) forget(ctx context.Context, c *container) (bool, error) {
	if r.runs(c) {
		return false, nil // started since it was stopped
	}
	// It is claimed, so that it does not start meanwhile.
	if err := r.removeCgroup(ctx, c); err != nil {
		return false, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.gone {
		return true, nil
	}
	if err := removeDir(c.dir); err != nil {
		return false, err
	}
	c.gone = true
	r.containers = slices.DeleteFunc(r.containers, func(other *container) bool { return other == c })
	delete(r.names, c.name())
	r.emit(cri.EventDeleted, c.ID, r.podOf(c), nil)
	return true, nil
}

func (r *Runtime) runs(c *container) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return c.shim != nil
}

// claim takes the right to start or remove the container.
func (c *container) claim(ctx context.Context) error {
	select {
	case c.op <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *container) unclaim() { <-c.op }

// find returns a container by its ID.
func (r *Runtime) find(id string) (*container, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, errClosed
	}
	for _, c := range r.containers {
		if c.ID == id {
			return c, nil
		}
	}
	return nil, cri.ErrNotFound
}
