// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package critest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/suite"
)

// SessionFixture describes the runtime whose sessions [TestSessions] tests.
type SessionFixture struct {
	// New opens the runtime and the runner of its sessions. It is called once per case and registers their Close with t.Cleanup.
	New func(t *testing.T) (cri.Runtime, cri.SessionRunner)
	// Image is an image with a shell and common commands, such as busybox. Empty for a runtime without images.
	Image string
	// Adjust may change each config before it is used. May be nil.
	Adjust func(sandbox *cri.SandboxConfig, container *cri.ContainerConfig)
	// ServedByURL means that the runtime serves sessions at the URL of a [cri.Streamer]. Then the suite tolerates commands that
	// outlive their client, slow clients that delay other clients, and lost output at the exit of a container, as sometimes with
	// containerd.
	ServedByURL bool
	// NoAttach skips the cases of RunAttach, for a runtime that plays no container processes.
	NoAttach bool
}

// TestSessions checks the sessions of a runtime against the documentation of package cri. It takes some seconds, and removes its
// pods at the end. A failure quotes the sentence of the documentation that is violated.
func TestSessions(t *testing.T, fixture SessionFixture) {
	for _, c := range []struct {
		name string
		test func(t *sessionTestCase)
	}{
		{"exec/streams", execStreams},
		{"exec/no stdin", execNoStdin},
		{"exec/exit codes", execCodes},
		{"exec/files", execFiles},
		{"exec/slow client", execSlow},
		{"exec/terminal", execTerminal},
		{"exec/many", execMany},
		{"exec/client leaves", execLeaves},
		{"exec/unknown", sessionExecUnknown},
		{"attach/end", attachEnd},
		{"attach/several", attachSeveral},
		{"attach/stdin once", attachStdinOnce},
		{"attach/stdin ends", attachStdinEnds},
		{"attach/terminal", attachTerminal},
		{"attach/client does not read", attachSlow},
		{"attach/unknown", attachUnknown},
		{"forward/data", forwardData},
		{"forward/many", forwardMany},
		{"forward/refused", forwardRefused},
	} {
		t.Run(c.name, func(t *testing.T) {
			if fixture.NoAttach && strings.HasPrefix(c.name, "attach/") {
				t.Skip("the runtime plays no containers")
			}
			t.Parallel()
			c.test(newSessionTestCase(t, fixture))
		})
	}
}

// killTimeout is the time limit for a command to be killed after its client has disconnected.
const killTimeout = 15 * time.Second

// sessionTestCase is the state of one case of TestSessions.
type sessionTestCase struct {
	*suite.Check
	f       SessionFixture
	rt      cri.Runtime
	run     cri.SessionRunner
	ctx     context.Context
	pod     *cri.SandboxConfig
	sandbox string
}

// newSessionTestCase returns a test case with a sandbox on the host network, which it removes at the end of the test.
func newSessionTestCase(t *testing.T, fixture SessionFixture) *sessionTestCase {
	tr := &sessionTestCase{Check: &suite.Check{T: t, Timeout: waitTimeout, Poll: poll}, f: fixture}
	tr.rt, tr.run = fixture.New(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*waitTimeout)
	t.Cleanup(cancel)
	tr.ctx = ctx
	uid := strings.ToLower(rand.Text())
	tr.pod = &cri.SandboxConfig{
		Pod:      cri.PodIdentity{UID: uid, Name: "critest-" + uid[:8], Namespace: "critest"},
		Labels:   map[string]string{cri.LabelPodUID: uid},
		Security: cri.SandboxSecurity{Namespaces: cri.NamespaceOptions{Network: cri.NamespaceNode}},
	}
	if fixture.Adjust != nil {
		fixture.Adjust(tr.pod, nil)
	}
	var err error
	tr.sandbox, err = tr.rt.RunSandbox(tr.ctx, tr.pod)
	if err != nil {
		t.Fatalf("run sandbox: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), waitTimeout)
		defer cancel()
		if err := errors.Join(tr.rt.StopSandbox(ctx, tr.sandbox), tr.rt.RemoveSandbox(ctx, tr.sandbox)); err != nil {
			t.Errorf("remove sandbox: %v", err)
		}
	})
	return tr
}

// startContainer starts a container that runs prog, and returns its ID. change may modify the config, or be nil.
func (t *sessionTestCase) startContainer(prog sessionProgram, change func(*cri.ContainerConfig)) string {
	t.Helper()
	c := &cri.ContainerConfig{
		Name:     "main",
		Image:    cri.ImageSpec{Image: t.f.Image, UserSpecifiedImage: t.f.Image},
		Command:  prog.argv(),
		Env:      []cri.EnvVar{{Name: "PATH", Value: "/bin:/usr/bin:/sbin:/usr/sbin"}},
		Labels:   map[string]string{cri.LabelPodUID: t.pod.Pod.UID},
		Security: cri.ContainerSecurity{Namespaces: cri.NamespaceOptions{Network: cri.NamespaceNode}},
	}
	if change != nil {
		change(c)
	}
	if t.f.Adjust != nil {
		t.f.Adjust(t.pod, c)
	}
	id, err := t.rt.CreateContainer(t.ctx, t.sandbox, c, t.pod)
	if err == nil {
		err = t.rt.StartContainer(t.ctx, id)
	}
	if err != nil {
		t.Fatalf("start container: %v", err)
	}
	return id
}

// execProgram runs a program in the container with this ID, and returns the results of RunExec.
func (t *sessionTestCase) execProgram(id string, prog sessionProgram, session cri.Session) (int, error) {
	return t.run.RunExec(t.ctx, id, prog.argv(), session)
}

// containerState returns the state that List reports for the container with this ID. The test fails if List does not contain it.
func (t *sessionTestCase) containerState(id string) cri.ContainerState {
	t.Helper()
	snapshot, err := t.rt.List(t.ctx)
	if err != nil {
		t.Fatalf("list: %v", err)
	}
	for _, c := range snapshot.Containers {
		if c.ID == id {
			return c.State
		}
	}
	t.Fatalf("list does not show container %s", id)
	return cri.ContainerUnknown
}

// outputBuffer is a concurrency-safe buffer of output.
type outputBuffer struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (b *outputBuffer) Write(data []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.Write(data)
}

func (b *outputBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.String()
}

// awaitOutput waits until the output contains the text want. After a minute, it fails the test with a message that contains
// rule, the violated rule.
func (t *sessionTestCase) awaitOutput(out *outputBuffer, want, rule string) {
	t.Helper()
	t.Until(rule, func() (bool, string) {
		got := out.String()
		return strings.Contains(got, want), "the output is " + quoteTruncated(got) + ", and has no " + quoteTruncated(want)
	})
}

// quoteTruncated returns s in quotes. It shortens a long text to its first and last 100 bytes.
func quoteTruncated(s string) string {
	if len(s) > 300 {
		s = s[:100] + " ... " + s[len(s)-100:]
	}
	return "\"" + s + "\""
}
