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

// SessionFixture is a runtime whose sessions are tested.
type SessionFixture struct {
	// New opens the runtime, and what runs its sessions. Each case calls it once; what it opens is closed by t.Cleanup.
	New func(t *testing.T) (cri.Runtime, cri.SessionRunner)
	// Image has a shell with the usual commands (busybox). Empty where there are no images.
	Image string
	// Adjust has the last word on every config before it is used. May be nil.
	Adjust func(s *cri.SandboxConfig, c *cri.ContainerConfig)
	// ServedByURL says that somebody else serves the sessions, at a URL of a [cri.Streamer]: a command may outlive its client,
	// a client that does not read may delay others, and the end of stdout or of stderr may be lost when a container ends, as
	// one of them now and then is with containerd.
	ServedByURL bool
	// NoAttach leaves out the cases of RunAttach, for a runtime that plays no containers.
	NoAttach bool
}

// TestSessions checks the sessions of a runtime against the documentation of package cri. It takes some seconds and removes
// what it made. A failure names the sentence that is broken.
func TestSessions(t *testing.T, f SessionFixture) {
	for _, c := range []struct {
		name string
		test func(t *sessionTrial)
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
			if f.NoAttach && strings.HasPrefix(c.name, "attach/") {
				t.Skip("the runtime plays no containers")
			}
			t.Parallel()
			c.test(newSessionTrial(t, f))
		})
	}
}

// leaveTime is how long a command may run whose client has left.
const leaveTime = 15 * time.Second

// sessionTrial is the state of one case of TestSessions.
type sessionTrial struct {
	*suite.Check
	f       SessionFixture
	rt      cri.Runtime
	run     cri.SessionRunner
	ctx     context.Context
	pod     *cri.SandboxConfig
	sandbox string
}

// newSessionTrial runs a sandbox on the host's network until the end of the test.
func newSessionTrial(t *testing.T, f SessionFixture) *sessionTrial {
	tr := &sessionTrial{Check: &suite.Check{T: t, Timeout: waitTimeout, Poll: poll}, f: f}
	tr.rt, tr.run = f.New(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*waitTimeout)
	t.Cleanup(cancel)
	tr.ctx = ctx
	uid := strings.ToLower(rand.Text())
	tr.pod = &cri.SandboxConfig{
		Pod:      cri.PodIdentity{UID: uid, Name: "critest-" + uid[:8], Namespace: "critest"},
		Labels:   map[string]string{cri.LabelPodUID: uid},
		Security: cri.SandboxSecurity{Namespaces: cri.NamespaceOptions{Network: cri.NamespaceNode}},
	}
	if f.Adjust != nil {
		f.Adjust(tr.pod, nil)
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

// start runs a container until the end of the test.
func (t *sessionTrial) start(p sessionProgram, change func(*cri.ContainerConfig)) string {
	t.Helper()
	c := &cri.ContainerConfig{
		Name:     "main",
		Image:    cri.ImageSpec{Image: t.f.Image, UserSpecifiedImage: t.f.Image},
		Command:  p.argv(),
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

// exec runs a command with a time limit.
func (t *sessionTrial) exec(id string, p sessionProgram, s cri.Session) (int, error) {
	return t.run.RunExec(t.ctx, id, p.argv(), s)
}

// state returns the state of a container.
func (t *sessionTrial) state(id string) cri.ContainerState {
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

// text collects output, and may be read meanwhile.
type text struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (b *text) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.Write(p)
}

func (b *text) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.String()
}

// shows waits for something in an output.
func (t *sessionTrial) shows(out *text, want, rule string) {
	t.Helper()
	t.Until(rule, func() (bool, string) {
		got := out.String()
		return strings.Contains(got, want), "the output is " + quote(got) + ", and has no " + quote(want)
	})
}

func quote(s string) string {
	if len(s) > 300 {
		s = s[:100] + " ... " + s[len(s)-100:]
	}
	return "\"" + s + "\""
}
