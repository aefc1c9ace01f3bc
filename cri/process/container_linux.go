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

// startTimeout limits the start of a process, independently of the caller's context.
const startTimeout = 30 * time.Second

// containerRecord is the persisted record of a container, as it was created.
type containerRecord struct {
	cri.Container                   // fields that change over time are guarded by Runtime.mu
	Cgroup        cgroups.Path      // empty: the agent's cgroup
	Limits        cgroups.Resources // resource limits of the cgroup
}

// container is a container and, while it runs, the handle of its shim.
type container struct {
	containerRecord

	dir     string
	pod     cri.PodIdentity // pod of its sandbox, if known
	opLock  chan struct{}   // capacity 1; holds a token while a call starts or removes the container
	shim    *shim.Handle    // nil unless running; guarded by Runtime.mu
	removed bool            // guarded by Runtime.mu

	// For a container in state unknown: the time of the next examination and the delay before it. Guarded by Runtime.mu.
	examineAt    time.Time
	examineDelay time.Duration
}

func (c *container) uniqueName() string {
	return fmt.Sprintf("%s_%s_%d", c.SandboxID, c.Name, c.Attempt)
}

// containerLogger returns a logger with attributes that identify the container.
func (r *Runtime) containerLogger(c *container) *slog.Logger {
	return r.podLogger(c.pod).With("container", c.Name, "containerID", c.ID)
}

// envMark returns the environment entry that identifies the processes of a container.
func envMark(id string) string { return "NODEAGENT_CONTAINER_ID=" + id }

// loadContainer loads a container from its directory and finds its shim.
func (r *Runtime) loadContainer(dir string, deadline time.Time) (*container, error) {
	record, err := shim.ReadRecord[containerRecord](filepath.Join(dir, recordFile))
	if err != nil {
		return nil, err
	}
	if record.ID != filepath.Base(dir) {
		return nil, fmt.Errorf("record %s: not of this directory", filepath.Join(dir, recordFile))
	}
	c := &container{containerRecord: record, dir: dir, opLock: make(chan struct{}, 1)}
	c.pod = r.podIdentity(c)
	_ = r.examineContainer(c, deadline) // the error is logged, and the state is unknown
	return c, nil
}

// recordExit records the exit of a container. A non-nil err means that the exit is unknown.
func (c *container) recordExit(exit shim.Exit, err error) {
	if err != nil {
		exit = shim.Exit{Code: 137, Reason: shim.ReasonUnknown, Message: err.Error(), Started: c.StartedAt, At: time.Now()}
	}
	c.State = cri.ContainerExited
	c.StartedAt, c.FinishedAt = exit.Started, exit.At
	c.ExitCode, c.Reason, c.Message = exit.Code, exit.Reason, exit.Message
}

// CreateContainer validates a config and persists a container.
func (r *Runtime) CreateContainer(ctx context.Context, sandboxID string, c *cri.ContainerConfig, _ *cri.SandboxConfig) (string, error) {
	id, err := r.createContainer(ctx, sandboxID, c)
	return id, wrapError("CreateContainer", c.Name, err)
}

func (r *Runtime) createContainer(ctx context.Context, sandboxID string, config *cri.ContainerConfig) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", context.Cause(ctx)
	}
	s, err := r.findSandbox(sandboxID)
	if err != nil {
		return "", fmt.Errorf("sandbox %s: %w", sandboxID, err)
	}
	unsupported := unsupportedContainer(config, os.Geteuid(), r.options.Mounts)
	if err := r.rejectUnsupported(r.podLogger(s.Pod).With("container", config.Name), unsupported); err != nil {
		return "", err
	}
	c := &container{containerRecord: containerRecord{Container: newContainer(config, s)}, pod: s.Pod, opLock: make(chan struct{}, 1)}
	spec, err := r.newSpec(config, s, c)
	if err != nil {
		return "", err
	}
	c.LogPath = spec.Log
	if spec.User != nil {
		c.User = translate.ContainerUser(spec.User)
	}
	if err := r.reserveName(c.uniqueName()); err != nil {
		return "", err
	}
	c.dir, err = r.createDir(containersDir, c.ID, func(dir string) error {
		return errors.Join(shim.WriteSpec(dir, spec), shim.WriteRecord(filepath.Join(dir, recordFile), c.containerRecord))
	})
	if err == nil {
		if err = r.addContainer(c, s); err != nil {
			err = errors.Join(err, removeDir(c.dir))
		}
	}
	if err != nil {
		r.releaseName(c.uniqueName())
		return "", err
	}
	return c.ID, nil
}

// addContainer adds a container to the runtime, unless its sandbox was stopped.
func (r *Runtime) addContainer(c *container, s *sandbox) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.stopping {
		return fmt.Errorf("sandbox %s: not ready", s.ID)
	}
	r.containers = append(r.containers, c)
	r.emitEvent(cri.EventCreated, c.ID, s.Pod, nil)
	return nil
}

// StartContainer starts the process of a container. If that fails, the container has exited with code 128 and reason StartError.
func (r *Runtime) StartContainer(ctx context.Context, id string) error {
	c, err := r.findContainer(id)
	if err == nil {
		err = r.startContainer(ctx, c)
	}
	return wrapError("StartContainer", id, err)
}

func (r *Runtime) startContainer(ctx context.Context, c *container) error {
	if err := c.lockOp(ctx); err != nil {
		return err
	}
	defer c.unlockOp()
	pod, err := r.checkStartable(c)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	handle, run, err := r.startShim(ctx, c)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		exit, lost := shim.ReadOutcome(c.dir, envMark(c.ID))
		if lost != nil || exit.Reason != shim.ReasonStartError {
			exit, lost = shim.RecordStartFailure(c.dir, err)
		}
		c.recordExit(exit, lost)
		r.emitEvent(cri.EventStopped, c.ID, pod, nil)
		return err
	}
	c.shim, c.State, c.StartedAt = handle, cri.ContainerRunning, run.At
	r.emitEvent(cri.EventStarted, c.ID, pod, c)
	return nil
}

// startShim creates the cgroup of a container and starts its shim.
func (r *Runtime) startShim(ctx context.Context, c *container) (*shim.Handle, shim.Run, error) {
	if err := r.createCgroup(ctx, c); err != nil {
		return nil, shim.Run{}, err
	}
	return shim.StartShim(ctx, c.dir)
}

// checkStartable returns the pod of a container, or an error if the container cannot be started.
func (r *Runtime) checkStartable(c *container) (cri.PodIdentity, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return cri.PodIdentity{}, errClosed
	}
	if c.removed {
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

// RemoveContainer kills a running container and removes it. Its log file remains.
func (r *Runtime) RemoveContainer(ctx context.Context, id string) error {
	c, err := r.findContainer(id)
	if errors.Is(err, cri.ErrNotFound) {
		return nil
	}
	if err == nil {
		err = r.removeContainer(ctx, c)
	}
	return wrapError("RemoveContainer", id, err)
}

func (r *Runtime) removeContainer(ctx context.Context, c *container) error {
	for {
		if err := r.stopContainer(ctx, c, 0); err != nil {
			return err
		}
		if err := c.lockOp(ctx); err != nil {
			return err
		}
		done, err := r.removeStopped(ctx, c)
		c.unlockOp()
		if done || err != nil {
			return err
		}
	}
}

// removeStopped removes a container and returns true, or false if the container is running.
func (r *Runtime) removeStopped(ctx context.Context, c *container) (bool, error) {
	if r.isRunning(c) {
		return false, nil // started after it was stopped
	}
	// The caller holds c.opLock, so that the container cannot start.
	if err := r.removeCgroup(ctx, c); err != nil {
		return false, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.removed {
		return true, nil
	}
	if err := removeDir(c.dir); err != nil {
		return false, err
	}
	c.removed = true
	r.containers = slices.DeleteFunc(r.containers, func(other *container) bool { return other == c })
	delete(r.names, c.uniqueName())
	r.emitEvent(cri.EventDeleted, c.ID, r.podIdentity(c), nil)
	return true, nil
}

// isRunning reports whether the container has a running shim.
func (r *Runtime) isRunning(c *container) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return c.shim != nil
}

// lockOp acquires the lock for starting and removing the container.
func (c *container) lockOp(ctx context.Context) error {
	select {
	case c.opLock <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// unlockOp releases the lock of lockOp.
func (c *container) unlockOp() { <-c.opLock }

// findContainer returns a container by its ID.
func (r *Runtime) findContainer(id string) (*container, error) {
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
