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
	waitTimeout = 60 * time.Second      // time limit for any event on a busy machine
	poll        = 20 * time.Millisecond // pause between two checks
	slack       = 20 * time.Second      // tolerated delay of a timed event
)

// testCase is the state of one case of TestRuntime. Its methods that fail the test quote the violated rule.
type testCase struct {
	*suite.Check
	f    Fixture
	rt   cri.Runtime
	ctx  context.Context
	logs string // directory of all pods' logs; empty: no logs

	mu   sync.Mutex      // guards all fields below
	pods map[string]bool // UIDs of the pods of this case
}

func newTestCase(t *testing.T, fixture Fixture) *testCase {
	tr := &testCase{Check: &suite.Check{T: t, Timeout: waitTimeout, Poll: poll}, f: fixture, rt: fixture.New(t), ctx: t.Context(), pods: map[string]bool{}}
	if fixture.Logs {
		tr.logs = t.TempDir() // before removePods is registered, so that it is removed after it
	}
	t.Cleanup(tr.removePods)
	return tr
}

// reopenRuntime replaces the runtime under test by the result of Fixture.Reopen.
func (t *testCase) reopenRuntime() {
	t.rt = t.f.Reopen(t.T, t.rt)
	// before that runtime is closed
	t.Cleanup(t.removePods)
}

// removePods removes all sandboxes of the test's pods, including sandboxes whose RunSandbox call has failed.
func (t *testCase) removePods() {
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

// requireError fails the test unless err wraps want, and is a *cri.Error that names a call. The failure message contains rule,
// the violated rule, and call, a text for the call that returned err.
func (t *testCase) requireError(err, want error, rule, call string) {
	t.Helper()
	t.Hold(errors.Is(err, want), rule, "%s: error is %v, want one that is %q", call, err, want)
	e, ok := errors.AsType[*cri.Error](err)
	t.Hold(ok && e.Op != "", ruleError, "%s: error %v is no *cri.Error that names the call", call, err)
}

// newPodConfig returns the config of a sandbox for a new pod, with a random name and UID.
func (t *testCase) newPodConfig() *cri.SandboxConfig {
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
		Security: cri.SandboxSecurity{Namespaces: t.namespaceOptions()},
	}
	if !t.f.IsolatedNetwork {
		s.Hostname = ""
	}
	if t.f.Logs {
		s.LogDirectory = filepath.Join(t.logs, pod.Namespace+"_"+pod.Name+"_"+pod.UID)
	}
	return s
}

// newContainerConfig returns the config of a container with this name that runs prog. The container has the labels that the
// kubelet sets.
func (t *testCase) newContainerConfig(sandboxConfig *cri.SandboxConfig, name string, prog program) *cri.ContainerConfig {
	return &cri.ContainerConfig{
		Name:        name,
		Image:       cri.ImageSpec{Image: t.f.Image, UserSpecifiedImage: t.f.Image},
		Command:     prog.argv(t.f.Shell),
		Env:         []cri.EnvVar{{Name: "CRITEST", Value: "variable"}, {Name: "PATH", Value: "/bin:/usr/bin:/sbin:/usr/sbin"}},
		Annotations: map[string]string{"critest/note": "of the container"},
		Labels: map[string]string{
			cri.LabelPodName:       sandboxConfig.Pod.Name,
			cri.LabelPodNamespace:  sandboxConfig.Pod.Namespace,
			cri.LabelPodUID:        sandboxConfig.Pod.UID,
			cri.LabelContainerName: name,
			"critest/label":        "of the container",
		},
		LogPath:  filepath.Join(name, "0.log"),
		Security: cri.ContainerSecurity{Namespaces: t.namespaceOptions()},
	}
}

func (t *testCase) namespaceOptions() cri.NamespaceOptions {
	n := cri.NamespaceOptions{PID: cri.NamespaceContainer}
	if !t.f.IsolatedNetwork {
		n.Network = cri.NamespaceNode
	}
	return n
}

// tryRunSandbox runs a sandbox and returns the error of RunSandbox. The sandbox is removed at the end of the test.
func (t *testCase) tryRunSandbox(config *cri.SandboxConfig) (id string, err error) {
	if t.f.Adjust != nil {
		t.f.Adjust(config, nil)
	}
	if config.LogDirectory != "" {
		if err := os.MkdirAll(config.LogDirectory, 0o755); err != nil {
			return "", err
		}
	}
	t.mu.Lock()
	t.pods[config.Pod.UID] = true
	t.mu.Unlock()
	err = t.checkConfigUnchanged(config, func() error {
		id, err = t.rt.RunSandbox(t.ctx, config)
		return err
	})
	return id, err
}

// runSandbox runs a sandbox like tryRunSandbox, and returns its ID. On error, the test fails.
func (t *testCase) runSandbox(config *cri.SandboxConfig) string {
	t.Helper()
	id, err := t.tryRunSandbox(config)
	t.Succeed(err, ruleRunSandbox, "RunSandbox")
	t.Hold(id != "", ruleRunSandbox, "RunSandbox returned an empty ID")
	return id
}

// tryCreateContainer creates a container and returns the error of CreateContainer. First it lets Fixture.Adjust change the
// configs, and creates the log directory of the container.
func (t *testCase) tryCreateContainer(sandbox string, sandboxConfig *cri.SandboxConfig, config *cri.ContainerConfig) (id string, err error) {
	if t.f.Adjust != nil {
		t.f.Adjust(sandboxConfig, config)
	}
	if sandboxConfig.LogDirectory != "" {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(sandboxConfig.LogDirectory, config.LogPath)), 0o755); err != nil {
			return "", err
		}
	}
	err = t.checkConfigUnchanged([]any{sandboxConfig, config}, func() error {
		id, err = t.rt.CreateContainer(t.ctx, sandbox, config, sandboxConfig)
		return err
	})
	return id, err
}

// checkConfigUnchanged returns the error of call, and fails the test if call has modified the config.
func (t *testCase) checkConfigUnchanged(cfg any, call func() error) error {
	before, err := json.Marshal(cfg)
	if err != nil {
		t.Errorf("marshal config: %v", err) // not Fatalf: some calls are made outside the goroutine of the test
	}
	defer func() {
		if after, _ := json.Marshal(cfg); !bytes.Equal(before, after) {
			t.Errorf("the config was changed from %s to %s\n\tbroken: %q", before, after, ruleConfig)
		}
	}()
	return call()
}

// createContainer creates a container like tryCreateContainer. On error, the test fails.
func (t *testCase) createContainer(sandbox string, sandboxConfig *cri.SandboxConfig, config *cri.ContainerConfig) string {
	t.Helper()
	id, err := t.tryCreateContainer(sandbox, sandboxConfig, config)
	t.Succeed(err, ruleCreate, "CreateContainer")
	t.Hold(id != "", ruleCreate, "CreateContainer returned an empty ID")
	return id
}

// startContainer creates and starts a container. On error, the test fails. If the container's program prints "ready",
// startContainer waits for that output.
func (t *testCase) startContainer(sandbox string, sandboxConfig *cri.SandboxConfig, config *cri.ContainerConfig) string {
	t.Helper()
	id := t.createContainer(sandbox, sandboxConfig, config)
	t.Succeed(t.rt.StartContainer(t.ctx, id), ruleStart, "StartContainer")
	if !strings.Contains(config.Command[2], "echo ready") {
		return id
	}
	if !t.f.Logs {
		time.Sleep(time.Second) // nothing signals that the program is ready
		return id
	}
	path := filepath.Join(sandboxConfig.LogDirectory, config.LogPath)
	t.Until(ruleLogPath, func() (bool, string) {
		log, err := os.ReadFile(path)
		return strings.Contains(string(log), "ready"), path + " does not contain the output of the container: " + errorText(err)
	})
	return id
}

// startInNewPod starts a container that runs prog, as the only container of a new pod. It returns the ID of the container.
func (t *testCase) startInNewPod(prog program) string {
	t.Helper()
	s := t.newPodConfig()
	return t.startContainer(t.runSandbox(s), s, t.newContainerConfig(s, "main", prog))
}

// awaitExit waits until the container with this ID has exited, and returns its status.
func (t *testCase) awaitExit(id string) (c cri.Container) {
	t.Helper()
	t.Until(ruleStates, func() (bool, string) {
		c = t.containerStatus(id)
		return c.State == cri.ContainerExited, "container " + id + " is " + c.State.String() + ", want exited"
	})
	return c
}

// listPod returns the pod with this UID from List.
func (t *testCase) listPod(uid string) cri.Pod {
	t.Helper()
	snap, err := t.rt.List(t.ctx)
	t.Succeed(err, ruleList, "List")
	return snap.Pod(uid)
}

// findContainer returns the container that List reports for this ID. Of an Inspector, it has no details.
func (t *testCase) findContainer(id string) (cri.Container, bool) {
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

// containerStatus returns the container with this ID and all its details.
func (t *testCase) containerStatus(id string) cri.Container {
	t.Helper()
	if i, ok := t.rt.(cri.Inspector); ok {
		c, err := i.ContainerStatus(t.ctx, id)
		t.Succeed(err, ruleStatus, "ContainerStatus")
		return c
	}
	c, ok := t.findContainer(id)
	t.Hold(ok, ruleList, "List does not show container %s", id)
	return c
}

// sandboxStatus returns the sandbox with this ID, in the pod of config, and all its details.
func (t *testCase) sandboxStatus(config *cri.SandboxConfig, id string) cri.Sandbox {
	t.Helper()
	if i, ok := t.rt.(cri.Inspector); ok {
		sb, err := i.SandboxStatus(t.ctx, id)
		t.Succeed(err, ruleStatus, "SandboxStatus")
		return sb
	}
	for _, sb := range t.listPod(config.Pod.UID).Sandboxes {
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
