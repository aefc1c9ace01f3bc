// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/process/internal/shim"
	"github.com/seed81659283/nodeagent/cri/process/internal/translate"
)

// sandbox is a sandbox and its persisted record. No process belongs to it.
type sandbox struct {
	cri.Sandbox         // State and IPs are guarded by Runtime.mu
	LogDirectory string // absolute, or empty

	Network      *SandboxNetwork   // own network until it is torn down; nil: the host's; guarded by Runtime.mu
	Hostname     string            // host name of its containers; empty: the host's
	Sysctls      map[string]string // sysctls of its network namespace
	CgroupParent string
	ResolvConf   bool // the directory has a file with its DNS settings

	resolv   string // content of that file; used during creation only
	dir      string
	stopping bool // no container may start any more; guarded by Runtime.mu
}

func loadSandbox(dir string) (*sandbox, error) {
	s, err := shim.ReadRecord[*sandbox](filepath.Join(dir, recordFile))
	if err != nil {
		return nil, err
	}
	if s == nil || s.ID != filepath.Base(dir) {
		return nil, fmt.Errorf("record %s: not of this directory", filepath.Join(dir, recordFile))
	}
	if s.Network != nil && !s.Network.isPresent() {
		s.State = cri.SandboxNotReady // the machine was rebooted; StopSandbox removes the remaining state of the network plugins
	}
	s.dir, s.stopping = dir, s.State != cri.SandboxReady
	return s, nil
}

func (s *sandbox) uniqueName() string {
	return fmt.Sprintf("%s_%s_%s_%d", s.Pod.Name, s.Pod.Namespace, s.Pod.UID, s.Attempt)
}

// podLogger returns a logger with attributes that identify a pod.
func (r *Runtime) podLogger(pod cri.PodIdentity) *slog.Logger {
	return r.log.With("namespace", pod.Namespace, "pod", pod.Name)
}

// RunSandbox sets up the network of a sandbox, if it has one, and persists the sandbox.
func (r *Runtime) RunSandbox(ctx context.Context, c *cri.SandboxConfig) (string, error) {
	id, err := r.runSandbox(ctx, c)
	return id, wrapError("RunPodSandbox", c.Pod.Name, err)
}

func (r *Runtime) runSandbox(ctx context.Context, c *cri.SandboxConfig) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", context.Cause(ctx)
	}
	if err := r.rejectUnsupported(r.podLogger(c.Pod), unsupportedSandbox(c, r.options.Network != nil)); err != nil {
		return "", err
	}
	if c.LogDirectory != "" && !filepath.IsAbs(c.LogDirectory) {
		return "", fmt.Errorf("log_directory %q: not an absolute path", c.LogDirectory)
	}
	s := &sandbox{
		Sandbox: cri.Sandbox{
			ID:          newID(),
			Pod:         c.Pod,
			Attempt:     c.Attempt,
			CreatedAt:   time.Now(),
			Labels:      maps.Clone(c.Labels),
			Annotations: maps.Clone(c.Annotations),
			Namespaces: cri.NamespaceOptions{
				Network: cri.NamespaceNode,
				PID:     cri.NamespaceNode,
				IPC:     cri.NamespaceNode,
			},
		},
		LogDirectory: c.LogDirectory,
		CgroupParent: c.CgroupParent,
		ResolvConf:   r.options.Mounts && c.DNS != nil,
	}
	if c.DNS != nil {
		var err error
		if s.resolv, err = translate.ResolvConf(c.DNS); err != nil {
			return "", err
		}
	}
	if err := r.reserveName(s.uniqueName()); err != nil {
		return "", err
	}
	if err := r.addSandbox(ctx, s, c); err != nil {
		r.releaseName(s.uniqueName())
		return "", err
	}
	return s.ID, nil
}

// addSandbox sets up the network of a sandbox, persists it and adds it to the runtime.
func (r *Runtime) addSandbox(ctx context.Context, s *sandbox, c *cri.SandboxConfig) (err error) {
	r.mu.Lock()
	r.pending[s.ID] = true
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.pending, s.ID)
		if err == nil {
			r.sandboxes = append(r.sandboxes, s)
			r.emitEvent(cri.EventCreated, s.ID, s.Pod, nil)
			r.emitEvent(cri.EventStarted, s.ID, s.Pod, nil)
		}
	}()
	if err := r.setUpNetwork(ctx, s, c); err != nil {
		return err
	}
	s.dir, err = r.createDir(sandboxesDir, s.ID, func(dir string) error {
		if s.ResolvConf {
			if err := writeForAll(filepath.Join(dir, resolvConfFile), s.resolv); err != nil {
				return err
			}
		}
		return shim.WriteRecord(filepath.Join(dir, recordFile), s)
	})
	if err != nil && s.Network != nil {
		err = errors.Join(err, r.undoNetwork(ctx, s.ID))
	}
	return err
}

// writeForAll writes a file that containers of any user can read.
func writeForAll(path, text string) error {
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return err
	}
	return os.Chmod(path, 0o644) // regardless of the agent's umask
}

// StopSandbox kills the containers of a sandbox concurrently and without grace period, and tears down its network.
func (r *Runtime) StopSandbox(ctx context.Context, id string) error {
	s, err := r.findSandbox(id)
	if errors.Is(err, cri.ErrNotFound) {
		return nil
	}
	if err == nil {
		err = r.stopSandbox(ctx, s)
	}
	return wrapError("StopPodSandbox", id, err)
}

func (r *Runtime) stopSandbox(ctx context.Context, s *sandbox) error {
	r.mu.Lock()
	s.stopping = true
	r.mu.Unlock()
	inside := r.containersIn(s)
	errs := make([]error, len(inside))
	var wg sync.WaitGroup
	for i, c := range inside {
		wg.Go(func() { errs[i] = r.stopContainer(ctx, c, 0) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := r.tearDownNetwork(ctx, s); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.State == cri.SandboxNotReady && s.Network == nil {
		return nil
	}
	stopped := *s
	stopped.State, stopped.Network, stopped.IPs = cri.SandboxNotReady, nil, nil
	if err := shim.WriteRecord(filepath.Join(s.dir, recordFile), &stopped); err != nil {
		return err
	}
	alreadyReported := s.State == cri.SandboxNotReady // for example after a reboot
	s.State, s.Network, s.IPs = cri.SandboxNotReady, nil, nil
	if !alreadyReported {
		r.emitEvent(cri.EventStopped, s.ID, s.Pod, nil)
	}
	return nil
}

// RemoveSandbox kills and removes the containers of a sandbox, and removes it.
func (r *Runtime) RemoveSandbox(ctx context.Context, id string) error {
	s, err := r.findSandbox(id)
	if errors.Is(err, cri.ErrNotFound) {
		return nil
	}
	if err == nil {
		err = r.removeSandbox(ctx, s)
	}
	return wrapError("RemovePodSandbox", id, err)
}

func (r *Runtime) removeSandbox(ctx context.Context, s *sandbox) error {
	if err := r.stopSandbox(ctx, s); err != nil {
		return err
	}
	for _, c := range r.containersIn(s) {
		if err := r.removeContainer(ctx, c); err != nil {
			return fmt.Errorf("remove container %s: %w", c.ID, err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.Index(r.sandboxes, s)
	if i < 0 {
		return nil // removed by a concurrent call
	}
	if err := removeDir(s.dir); err != nil {
		return err
	}
	r.emitEvent(cri.EventDeleted, s.ID, s.Pod, nil) // while the sandbox is listed, so that the event contains its status
	r.sandboxes = slices.Delete(r.sandboxes, i, i+1)
	delete(r.names, s.uniqueName())
	return nil
}

func (r *Runtime) findSandbox(id string) (*sandbox, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, errClosed
	}
	for _, s := range r.sandboxes {
		if s.ID == id {
			return s, nil
		}
	}
	return nil, cri.ErrNotFound
}

// containersIn returns the containers of a sandbox.
func (r *Runtime) containersIn(s *sandbox) []*container {
	r.mu.Lock()
	defer r.mu.Unlock()
	var inside []*container
	for _, c := range r.containers {
		if c.SandboxID == s.ID {
			inside = append(inside, c)
		}
	}
	return inside
}
