// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package critest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/suite"
)

const (
	waitTimeout = 60 * time.Second      // for anything to happen on a busy machine
	poll        = 20 * time.Millisecond // between looks
	slack       = 20 * time.Second      // how much later than due something may happen
)

// trial is what one case works with. Its methods that fail the test name the rule that is broken.
type trial struct {
	*suite.Check
	f    Fixture
	rt   cri.Runtime
	ctx  context.Context
	logs string // directory of all pods' logs; empty: no logs

	mu   sync.Mutex      // guards all below
	pods map[string]bool // UIDs of the pods that were made
}

func newTrial(t *testing.T, f Fixture) *trial {
	tr := &trial{Check: &suite.Check{T: t, Timeout: waitTimeout, Poll: poll}, f: f, rt: f.New(t), ctx: t.Context(), pods: map[string]bool{}}
	if f.Logs {
		tr.logs = t.TempDir() // before clear, to be removed after it
	}
	t.Cleanup(tr.clear)
	return tr
}

// reopen replaces the runtime. It clears up before what Reopen opened is closed.
func (t *trial) reopen() {
	t.rt = t.f.Reopen(t.T, t.rt)
	t.Cleanup(t.clear)
}

// clear removes the sandboxes of all pods that the case made, those included that a failed RunSandbox left behind.
func (t *trial) clear() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), waitTimeout)
	defer cancel()
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.pods) == 0 {
		return
	}
	snap, err := t.rt.List(ctx)
	for _, sb := range snap.Sandboxes {
		if t.pods[sb.Pod.UID] {
			err = errors.Join(err, t.rt.StopSandbox(ctx, sb.ID), t.rt.RemoveSandbox(ctx, sb.ID))
		}
	}
	if err != nil {
		t.Errorf("remove sandboxes at the end of the test: %v\n\tbroken: %q", err, ruleRepeat)
	}
	clear(t.pods)
}

// fail fails the test unless err is want, in the form that package cri promises.
func (t *trial) fail(err, want error, rule, call string) {
	t.Helper()
	t.Hold(errors.Is(err, want), rule, "%s: error is %v, want one that is %q", call, err, want)
	e, ok := errors.AsType[*cri.Error](err)
	t.Hold(ok && e.Op != "", ruleError, "%s: error %v is no *cri.Error that names the call", call, err)
}

// pod returns the config of a sandbox of a new pod.
func (t *trial) pod() *cri.SandboxConfig {
	uid := strings.ToLower(rand.Text())
	pod := cri.PodIdentity{UID: uid, Name: "critest-" + uid[:8], Namespace: "critest"}
	s := &cri.SandboxConfig{
		Pod:         pod,
		Hostname:    pod.Name,
		Annotations: map[string]string{"critest/note": "of the sandbox"},
		Labels: map[string]string{
			cri.LabelPodName:      pod.Name,
			cri.LabelPodNamespace: pod.Namespace,
			cri.LabelPodUID:       pod.UID,
			"critest/label":       "of the sandbox",
		},
		Security: cri.SandboxSecurity{Namespaces: t.namespaces()},
	}
	if !t.f.IsolatedNetwork {
		s.Hostname = ""
	}
	if t.f.Logs {
		s.LogDirectory = filepath.Join(t.logs, pod.Namespace+"_"+pod.Name+"_"+pod.UID)
	}
	return s
}

// container returns the config of a container that runs a program.
func (t *trial) container(s *cri.SandboxConfig, name string, p program) *cri.ContainerConfig {
	return &cri.ContainerConfig{
		Name:        name,
		Image:       cri.ImageSpec{Image: t.f.Image, UserSpecifiedImage: t.f.Image},
		Command:     p.argv(t.f.Shell),
		Env:         []cri.EnvVar{{Name: "CRITEST", Value: "variable"}, {Name: "PATH", Value: "/bin:/usr/bin:/sbin:/usr/sbin"}},
		Annotations: map[string]string{"critest/note": "of the container"},
		Labels: map[string]string{
			cri.LabelPodName:       s.Pod.Name,
			cri.LabelPodNamespace:  s.Pod.Namespace,
			cri.LabelPodUID:        s.Pod.UID,
			cri.LabelContainerName: name,
			"critest/label":        "of the container",
		},
		LogPath:  filepath.Join(name, "0.log"),
		Security: cri.ContainerSecurity{Namespaces: t.namespaces()},
	}
}

func (t *trial) namespaces() cri.NamespaceOptions {
	n := cri.NamespaceOptions{PID: cri.NamespaceContainer}
	if !t.f.IsolatedNetwork {
		n.Network = cri.NamespaceNode
	}
	return n
}

// tryRun runs a sandbox that is removed at the end of the test.
func (t *trial) tryRun(s *cri.SandboxConfig) (id string, err error) {
	if t.f.Adjust != nil {
		t.f.Adjust(s, nil)
	}
	if s.LogDirectory != "" {
		if err := os.MkdirAll(s.LogDirectory, 0o755); err != nil {
			return "", err
		}
	}
	t.mu.Lock()
	t.pods[s.Pod.UID] = true
	t.mu.Unlock()
	err = t.unchanged(s, func() error {
		id, err = t.rt.RunSandbox(t.ctx, s)
		return err
	})
	return id, err
}

// run runs a sandbox.
func (t *trial) run(s *cri.SandboxConfig) string {
	t.Helper()
	id, err := t.tryRun(s)
	t.Succeed(err, ruleRunSandbox, "RunSandbox")
	t.Hold(id != "", ruleRunSandbox, "RunSandbox returned an empty ID")
	return id
}

// tryCreate creates a container.
func (t *trial) tryCreate(sandbox string, s *cri.SandboxConfig, c *cri.ContainerConfig) (id string, err error) {
	if t.f.Adjust != nil {
		t.f.Adjust(s, c)
	}
	if s.LogDirectory != "" {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(s.LogDirectory, c.LogPath)), 0o755); err != nil {
			return "", err
		}
	}
	err = t.unchanged([]any{s, c}, func() error {
		id, err = t.rt.CreateContainer(t.ctx, sandbox, c, s)
		return err
	})
	return id, err
}

// unchanged makes a call and sees that it left its config as it was. It is an Errorf, because some calls are made
// beside the test's own goroutine.
func (t *trial) unchanged(cfg any, call func() error) error {
	before, err := json.Marshal(cfg)
	if err != nil {
		t.Errorf("marshal config: %v", err)
	}
	defer func() {
		if after, _ := json.Marshal(cfg); !bytes.Equal(before, after) {
			t.Errorf("the config was changed from %s to %s\n\tbroken: %q", before, after, ruleConfig)
		}
	}()
	return call()
}

// create creates a container.
func (t *trial) create(sandbox string, s *cri.SandboxConfig, c *cri.ContainerConfig) string {
	t.Helper()
	id, err := t.tryCreate(sandbox, s, c)
	t.Succeed(err, ruleCreate, "CreateContainer")
	t.Hold(id != "", ruleCreate, "CreateContainer returned an empty ID")
	return id
}

// start creates and starts a container, and waits until its program has set itself up.
func (t *trial) start(sandbox string, s *cri.SandboxConfig, c *cri.ContainerConfig) string {
	t.Helper()
	id := t.create(sandbox, s, c)
	t.Succeed(t.rt.StartContainer(t.ctx, id), ruleStart, "StartContainer")
	if !strings.Contains(c.Command[2], "echo ready") {
		return id
	}
	if !t.f.Logs {
		time.Sleep(time.Second) // there is no sign to wait for
		return id
	}
	path := filepath.Join(s.LogDirectory, c.LogPath)
	t.Until(ruleLogPath, func() (bool, string) {
		log, err := os.ReadFile(path)
		return strings.Contains(string(log), "ready"), path + " shows nothing of what the container printed: " + errorText(err)
	})
	return id
}

// single runs a pod with one container and returns the container's ID.
func (t *trial) single(p program) string {
	t.Helper()
	s := t.pod()
	return t.start(t.run(s), s, t.container(s, "main", p))
}

// await waits until a container has exited.
func (t *trial) await(id string) (c cri.Container) {
	t.Helper()
	t.Until(ruleOneLife, func() (bool, string) {
		c = t.status(id)
		return c.State == cri.ContainerExited, "container " + id + " is " + c.State.String() + ", want exited"
	})
	return c
}

// list returns one pod out of List.
func (t *trial) list(uid string) cri.Pod {
	t.Helper()
	snap, err := t.rt.List(t.ctx)
	t.Succeed(err, ruleList, "List")
	return snap.Pod(uid)
}

// find returns a container out of List, without details where the runtime is an Inspector.
func (t *trial) find(id string) (cri.Container, bool) {
	t.Helper()
	snap, err := t.rt.List(t.ctx)
	t.Succeed(err, ruleList, "List")
	for _, c := range snap.Containers {
		if c.ID == id {
			return c, true
		}
	}
	return cri.Container{}, false
}

// status returns a container with details.
func (t *trial) status(id string) cri.Container {
	t.Helper()
	if i, ok := t.rt.(cri.Inspector); ok {
		c, err := i.ContainerStatus(t.ctx, id)
		t.Succeed(err, ruleStatus, "ContainerStatus")
		return c
	}
	c, ok := t.find(id)
	t.Hold(ok, ruleList, "List does not show container %s", id)
	return c
}

// sandbox returns a sandbox with details.
func (t *trial) sandbox(s *cri.SandboxConfig, id string) cri.Sandbox {
	t.Helper()
	if i, ok := t.rt.(cri.Inspector); ok {
		sb, err := i.SandboxStatus(t.ctx, id)
		t.Succeed(err, ruleStatus, "SandboxStatus")
		return sb
	}
	for _, sb := range t.list(s.Pod.UID).Sandboxes {
		if sb.ID == id {
			return sb
		}
	}
	t.Hold(false, ruleList, "List does not show sandbox %s", id)
	return cri.Sandbox{}
}

func errorText(err error) string {
	if err == nil {
		return "no error"
	}
	return err.Error()
}
