// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package critest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
)

// newCopyingRuntime returns a runtime with one container, in which every command copies its stdin, and with ports that
// respond.
func newCopyingRuntime(t *testing.T) (rt *critest.Runtime, sandbox, id string) {
	t.Helper()
	rt = critest.New(critest.Options{
		Script: func(*cri.ContainerConfig) critest.Script {
			return critest.Script{Session: func(_ context.Context, _ []string, s cri.Session) (int, error) {
				_, err := io.Copy(s.Stdout, s.Stdin)
				return 3, err
			}}
		},
		Port: func(_ context.Context, _ cri.Sandbox, _ int32, conn io.ReadWriteCloser) error {
			_, err := io.Copy(conn, conn)
			return err
		},
	})
	s := &cri.SandboxConfig{Pod: cri.PodIdentity{UID: "uid", Name: "pod"}}
	sandbox, err := rt.RunSandbox(t.Context(), s)
	require.NoError(t, err)
	id, err = rt.CreateContainer(t.Context(), sandbox, &cri.ContainerConfig{Name: "c"}, s)
	require.NoError(t, err)
	require.NoError(t, rt.StartContainer(t.Context(), id))
	return rt, sandbox, id
}

func ExampleSessionFaults() {
	rt := critest.New(critest.Options{})
	ctx := context.Background()
	s := &cri.SandboxConfig{Pod: cri.PodIdentity{UID: "1", Name: "web"}}
	sandbox, _ := rt.RunSandbox(ctx, s)
	id, _ := rt.CreateContainer(ctx, sandbox, &cri.ContainerConfig{Name: "app"}, s)
	_ = rt.StartContainer(ctx, id)
	f := &critest.SessionFaults{Runner: rt, CutAfter: func(string, string) int64 { return 0 }}
	_, err := f.RunExec(ctx, id, []string{"true"}, cri.Session{})
	fmt.Println(errors.Is(err, cri.ErrUnavailable))
	// Output: true
}

// A session breaks after exactly CutAfter bytes, at any position.
func TestSessionFaultsCutAfterBytes(t *testing.T) {
	rt, sandbox, id := newCopyingRuntime(t)
	const data = "0123456789"
	for after := int64(-1); after <= 25; after++ {
		f := &critest.SessionFaults{Runner: rt, CutAfter: func(op, got string) int64 {
			assert.Contains(t, []string{id, sandbox}, got, op)
			return after
		}}
		var out bytes.Buffer
		code, err := f.RunExec(t.Context(), id, []string{"x"}, cri.Session{Stdin: strings.NewReader(data), Stdout: &out})
		if after < 0 || after > 2*int64(len(data)) {
			require.NoError(t, err)
			assert.Equal(t, 3, code)
			assert.Equal(t, data, out.String())
			continue
		}
		require.ErrorIs(t, err, cri.ErrUnavailable, "after %d", after)
		require.ErrorContains(t, err, "Exec "+id)
		assert.Equal(t, max(0, int(after)-len(data)), out.Len(), "after %d", after)
	}
	client, conn := net.Pipe()
	f := &critest.SessionFaults{Runner: rt, CutAfter: func(string, string) int64 { return 5 }}
	go func() { _, _ = client.Write([]byte(data)) }()
	require.ErrorIs(t, f.RunPortForward(t.Context(), sandbox, 1, conn), cri.ErrUnavailable)
	_, err := client.Write([]byte("x"))
	require.Error(t, err, "a session with a closed connection fails")
}

// A session is delayed, hangs, or fails before its start.
func TestSessionFaultsDelayAndReplaceSessions(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // for the race detector beside synctest (golang/go#78156)
	synctest.Test(t, func(t *testing.T) {
		rt, sandbox, id := newCopyingRuntime(t)
		f := &critest.SessionFaults{Runner: rt, Latency: func(string, string) time.Duration { return time.Second }}
		var out bytes.Buffer
		begin := time.Now()
		_, err := f.RunExec(t.Context(), id, []string{"x"}, cri.Session{Stdin: strings.NewReader("data"), Stdout: &out})
		require.NoError(t, err)
		assert.Equal(t, "data", out.String())
		assert.Equal(t, 4*time.Second, time.Since(begin), "four delays: the session, two reads and a write")

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		f = &critest.SessionFaults{Runner: rt, Around: func(ctx context.Context, op, _ string, session func(context.Context) error) error {
			if op == "PortForward" {
				return io.ErrUnexpectedEOF
			}
			return critest.Hang(ctx)
		}}
		require.ErrorIs(t, f.RunAttach(ctx, id, cri.Session{}), context.DeadlineExceeded)
		client, conn := net.Pipe()
		require.ErrorIs(t, f.RunPortForward(t.Context(), sandbox, 1, conn), io.ErrUnexpectedEOF)
		_, err = client.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
	})
}

// Without faults, the wrapped sessions pass the suite.
func TestSessionFaultsPassSuiteUnchanged(t *testing.T) {
	rt := newScriptedRuntime()
	f := &critest.SessionFaults{Runner: rt, Latency: func(string, string) time.Duration { return time.Millisecond }}
	critest.TestSessions(t, critest.SessionFixture{
		New:      func(*testing.T) (cri.Runtime, cri.SessionRunner) { return rt, f },
		NoAttach: true,
	})
}
