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

// containerRecord is the persisted record of a container, as it was created, with the resources of the last update.
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

// containerLogger returns a logger that adds the name of the pod, the name of the container and the container ID.
func (r *Runtime) containerLogger(ctr *container) *slog.Logger {
	return r.podLogger(ctr.pod).With("container", ctr.Name, "containerID", ctr.ID)
}

// envMark returns an environment entry that only the processes of the container with this ID have.
func envMark(id string) string { return "NODEAGENT_CONTAINER_ID=" + id }

// loadContainer reads the record of a container, and determines its state. It waits for a starting shim until the deadline.
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

// recordExit changes the state of the container to exited, with exit code 137 and err as message if the exit is unknown.
func (c *container) recordExit(exit shim.Exit, err error) {
	if err != nil {
		exit = shim.Exit{Code: 137, Reason: shim.ReasonUnknown, Message: err.Error(), Started: c.StartedAt, At: time.Now()}
	}
	c.State = cri.ContainerExited
	c.StartedAt, c.FinishedAt = exit.Started, exit.At
	c.ExitCode, c.Reason, c.Message = exit.Code, exit.Reason, exit.Message
}

// CreateContainer checks the config, persists a container in state created, and returns its ID. It starts no process.
func (r *Runtime) CreateContainer(ctx context.Context, sandboxID string, config *cri.ContainerConfig, _ *cri.SandboxConfig) (string, error) {
	id, err := r.createContainer(ctx, sandboxID, config)
	return id, wrapError("CreateContainer", config.Name, err)
}

func (r *Runtime) createContainer(ctx context.Context, sandboxID string, config *cri.ContainerConfig) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", context.Cause(ctx)
	}
	s, err := r.findSandbox(sandboxID)
	if err != nil {
		return "", fmt.Errorf("sandbox %s: %w", sandboxID, err)
	}
	unsupported := append(unsupportedContainer(config, os.Geteuid(), r.options.Mounts), unsupportedCpusets(config.Resources, r.options.Cgroups != nil)...)
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

// addContainer adds a created container to r.containers, and emits EventCreated. It returns an error if the sandbox was
// stopped meanwhile.
func (r *Runtime) addContainer(ctr *container, sb *sandbox) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if sb.stopping {
		return fmt.Errorf("sandbox %s: not ready", sb.ID)
	}
	r.containers = append(r.containers, ctr)
	r.emitEvent(cri.EventCreated, ctr.ID, sb.Pod, nil)
	return nil
}

// StartContainer starts the process of a container. If the process cannot be started, the container gets state exited, with code
// 128 and reason StartError.
func (r *Runtime) StartContainer(ctx context.Context, id string) error {
	c, err := r.findContainer(id)
	if err == nil {
		err = r.startContainer(ctx, c)
	}
	return wrapError("StartContainer", id, err)
}

func (r *Runtime) startContainer(ctx context.Context, ctr *container) error {
	if err := ctr.lockOp(ctx); err != nil {
		return err
	}
	defer ctr.unlockOp()
	pod, err := r.checkStartable(ctr)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	handle, run, err := r.startShim(ctx, ctr)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		exit, lost := shim.ReadOutcome(ctr.dir, envMark(ctr.ID))
		if lost != nil || exit.Reason != shim.ReasonStartError {
			exit, lost = shim.RecordStartFailure(ctr.dir, err)
		}
		ctr.recordExit(exit, lost)
		r.emitEvent(cri.EventStopped, ctr.ID, pod, nil)
		return err
	}
	ctr.shim, ctr.State, ctr.StartedAt = handle, cri.ContainerRunning, run.At
	r.emitEvent(cri.EventStarted, ctr.ID, pod, ctr)
	return nil
}

// startShim creates the container's cgroup, and starts the shim, which starts and supervises the container's process.
func (r *Runtime) startShim(ctx context.Context, ctr *container) (*shim.Handle, shim.Run, error) {
	if err := r.createCgroup(ctx, ctr); err != nil {
		return nil, shim.Run{}, err
	}
	return shim.StartShim(ctx, ctr.dir)
}

// checkStartable returns an error unless the container is in state created and its sandbox is ready. It also returns the pod
// of the container.
func (r *Runtime) checkStartable(ctr *container) (cri.PodIdentity, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return cri.PodIdentity{}, errClosed
	}
	if ctr.removed {
		return cri.PodIdentity{}, cri.ErrNotFound
	}
	if ctr.State != cri.ContainerCreated {
		return cri.PodIdentity{}, fmt.Errorf("container is %s, not created", ctr.State)
	}
	i := slices.IndexFunc(r.sandboxes, func(s *sandbox) bool { return s.ID == ctr.SandboxID })
	if i < 0 || r.sandboxes[i].stopping {
		return cri.PodIdentity{}, fmt.Errorf("sandbox %s: not ready", ctr.SandboxID)
	}
	return r.sandboxes[i].Pod, nil
}

// RemoveContainer removes a container, which it kills first if it runs. The log file remains. A missing container is no error.
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

func (r *Runtime) removeContainer(ctx context.Context, ctr *container) error {
	for {
		if err := r.stopContainer(ctx, ctr, 0); err != nil {
			return err
		}
		if err := ctr.lockOp(ctx); err != nil {
			return err
		}
		done, err := r.removeStopped(ctx, ctr)
		ctr.unlockOp()
		if done || err != nil {
			return err
		}
	}
}

// removeStopped removes a container that does not run, and returns true. If the container is running, it returns false. The
// caller has locked opLock.
func (r *Runtime) removeStopped(ctx context.Context, ctr *container) (bool, error) {
	if r.isRunning(ctr) {
		return false, nil // started after it was stopped
	}
	// The caller holds ctr.opLock, so that the container cannot start.
	if err := r.removeCgroup(ctx, ctr); err != nil {
		return false, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if ctr.removed {
		return true, nil
	}
	if err := removeDir(ctr.dir); err != nil {
		return false, err
	}
	ctr.removed = true
	r.containers = slices.DeleteFunc(r.containers, func(other *container) bool { return other == ctr })
	delete(r.names, ctr.uniqueName())
	r.emitEvent(cri.EventDeleted, ctr.ID, r.podIdentity(ctr), nil)
	return true, nil
}

// isRunning reports whether the container has a running shim.
func (r *Runtime) isRunning(ctr *container) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return ctr.shim != nil
}

// lockOp locks opLock, which a call must hold to start or remove the container. If ctx ends first, it returns the cause of ctx.
func (c *container) lockOp(ctx context.Context) error {
	select {
	case c.opLock <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// unlockOp releases the lock that lockOp acquired.
func (c *container) unlockOp() { <-c.opLock }

// findContainer returns the container with this ID, or cri.ErrNotFound.
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
