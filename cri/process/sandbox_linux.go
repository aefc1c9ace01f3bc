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

// podLogger returns a logger that adds the name and the namespace of pod.
func (r *Runtime) podLogger(pod cri.PodIdentity) *slog.Logger {
	return r.log.With("namespace", pod.Namespace, "pod", pod.Name)
}

// RunSandbox creates a sandbox and returns its ID. It sets up the network, unless the sandbox is on the host network. No process
// is started.
func (r *Runtime) RunSandbox(ctx context.Context, config *cri.SandboxConfig) (string, error) {
	id, err := r.runSandbox(ctx, config)
	return id, wrapError("RunPodSandbox", config.Pod.Name, err)
}

func (r *Runtime) runSandbox(ctx context.Context, config *cri.SandboxConfig) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", context.Cause(ctx)
	}
	if err := r.rejectUnsupported(r.podLogger(config.Pod), unsupportedSandbox(config, r.options.Network != nil)); err != nil {
		return "", err
	}
	if config.LogDirectory != "" && !filepath.IsAbs(config.LogDirectory) {
		return "", fmt.Errorf("log_directory %q: not an absolute path", config.LogDirectory)
	}
	s := &sandbox{
		Sandbox: cri.Sandbox{
			ID:          newID(),
			Pod:         config.Pod,
			Attempt:     config.Attempt,
			CreatedAt:   time.Now(),
			Labels:      maps.Clone(config.Labels),
			Annotations: maps.Clone(config.Annotations),
			Namespaces: cri.NamespaceOptions{
				Network: cri.NamespaceNode,
				PID:     cri.NamespaceNode,
				IPC:     cri.NamespaceNode,
			},
		},
		LogDirectory: config.LogDirectory,
		CgroupParent: config.CgroupParent,
		ResolvConf:   r.options.Mounts && config.DNS != nil,
	}
	if config.DNS != nil {
		var err error
		if s.resolv, err = translate.ResolvConf(config.DNS); err != nil {
			return "", err
		}
	}
	if err := r.reserveName(s.uniqueName()); err != nil {
		return "", err
	}
	if err := r.addSandbox(ctx, s, config); err != nil {
		r.releaseName(s.uniqueName())
		return "", err
	}
	return s.ID, nil
}

// addSandbox sets up the network of a new sandbox, writes its record and adds it to r.sandboxes. It emits the events of the
// new sandbox.
func (r *Runtime) addSandbox(ctx context.Context, sb *sandbox, config *cri.SandboxConfig) (err error) {
	r.mu.Lock()
	r.pending[sb.ID] = true
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.pending, sb.ID)
		if err == nil {
			r.sandboxes = append(r.sandboxes, sb)
			r.emitEvent(cri.EventCreated, sb.ID, sb.Pod, nil)
			r.emitEvent(cri.EventStarted, sb.ID, sb.Pod, nil)
		}
	}()
	if err := r.setUpNetwork(ctx, sb, config); err != nil {
		return err
	}
	sb.dir, err = r.createDir(sandboxesDir, sb.ID, func(dir string) error {
		if sb.ResolvConf {
			if err := writeForAll(filepath.Join(dir, resolvConfFile), sb.resolv); err != nil {
				return err
			}
		}
		return shim.WriteRecord(filepath.Join(dir, recordFile), sb)
	})
	if err != nil && sb.Network != nil {
		err = errors.Join(err, r.undoNetwork(ctx, sb.ID))
	}
	return err
}

// writeForAll writes text to a file that all users, including the users of containers, can read.
func writeForAll(path, text string) error {
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return err
	}
	return os.Chmod(path, 0o644) // regardless of the agent's umask
}

// StopSandbox kills the containers of a sandbox, concurrently and without a grace period, and then tears down the network. A
// missing sandbox is no error.
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

func (r *Runtime) stopSandbox(ctx context.Context, sb *sandbox) error {
	r.mu.Lock()
	sb.stopping = true
	r.mu.Unlock()
	inside := r.containersIn(sb)
	errs := make([]error, len(inside))
	var wg sync.WaitGroup
	for i, c := range inside {
		wg.Go(func() { errs[i] = r.stopContainer(ctx, c, 0) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := r.tearDownNetwork(ctx, sb); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if sb.State == cri.SandboxNotReady && sb.Network == nil {
		return nil
	}
	stopped := *sb
	stopped.State, stopped.Network, stopped.IPs = cri.SandboxNotReady, nil, nil
	if err := shim.WriteRecord(filepath.Join(sb.dir, recordFile), &stopped); err != nil {
		return err
	}
	alreadyReported := sb.State == cri.SandboxNotReady // for example after a reboot
	sb.State, sb.Network, sb.IPs = cri.SandboxNotReady, nil, nil
	if !alreadyReported {
		r.emitEvent(cri.EventStopped, sb.ID, sb.Pod, nil)
	}
	return nil
}

// RemoveSandbox stops a sandbox, and removes it and its containers. A missing sandbox is no error.
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

func (r *Runtime) removeSandbox(ctx context.Context, sb *sandbox) error {
	if err := r.stopSandbox(ctx, sb); err != nil {
		return err
	}
	for _, c := range r.containersIn(sb) {
		if err := r.removeContainer(ctx, c); err != nil {
			return fmt.Errorf("remove container %s: %w", c.ID, err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.Index(r.sandboxes, sb)
	if i < 0 {
		return nil // removed by a concurrent call
	}
	if err := removeDir(sb.dir); err != nil {
		return err
	}
	r.emitEvent(cri.EventDeleted, sb.ID, sb.Pod, nil) // while the sandbox is listed, so that the event contains its status
	r.sandboxes = slices.Delete(r.sandboxes, i, i+1)
	delete(r.names, sb.uniqueName())
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

// containersIn returns the containers of sandbox sb.
func (r *Runtime) containersIn(sb *sandbox) []*container {
	r.mu.Lock()
	defer r.mu.Unlock()
	var inside []*container
	for _, c := range r.containers {
		if c.SandboxID == sb.ID {
			inside = append(inside, c)
		}
	}
	return inside
}
