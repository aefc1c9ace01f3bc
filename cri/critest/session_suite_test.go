// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package critest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/criserver"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/cri/process"
	"github.com/seed81659283/nodeagent/cri/remote"
	"github.com/seed81659283/nodeagent/cri/streaming"
	"github.com/seed81659283/nodeagent/internal/lab"
	"github.com/seed81659283/nodeagent/internal/streaming/streamtest"
)

func TestSessionsOfScripts(t *testing.T) {
	rt := newScriptedRuntime()
	critest.TestSessions(t, critest.SessionFixture{
		New:      func(*testing.T) (cri.Runtime, cri.SessionRunner) { return rt, rt },
		NoAttach: true,
	})
}

// newScriptedRuntime returns a runtime in memory whose ports are those of this machine.
func newScriptedRuntime() *critest.Runtime {
	return critest.New(critest.Options{Script: critest.SessionSuiteScript, Port: func(ctx context.Context, _ cri.Sandbox, port int32, conn io.ReadWriteCloser) error {
		to, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
		if err != nil {
			return err
		}
		defer to.Close()
		go func() {
			_, _ = io.Copy(to, conn)
			to.Close()
		}()
		_, _ = io.Copy(conn, to)
		return nil
	}})
}

func TestSessionsOfProcess(t *testing.T) {
	critest.TestSessions(t, critest.SessionFixture{New: func(t *testing.T) (cri.Runtime, cri.SessionRunner) {
		rt, err := process.Open(t.TempDir(), process.Options{})
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, rt.Close()) })
		return rt, rt
	}})
}

// The sessions of a runtime also conform for a CRI client, which reaches them at a URL.
func TestSessionsOfProcessByCRI(t *testing.T) {
	critest.TestSessions(t, critest.SessionFixture{New: func(t *testing.T) (cri.Runtime, cri.SessionRunner) {
		rt, err := process.Open(t.TempDir(), process.Options{})
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, rt.Close()) })
		client := serveCRI(t, rt)
		return client, viaURL{client}
	}})
}

// serveCRI serves a runtime and its sessions until the test ends, and returns a client.
func serveCRI(t *testing.T, rt *process.Runtime) *remote.Client {
	sessions, err := streaming.New(streaming.Options{Runner: rt})
	require.NoError(t, err)
	urls := streaming.NewURLServer(sessions, streaming.URLOptions{})
	path := filepath.Join(t.TempDir(), "cri.sock")
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	local, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var serving sync.WaitGroup
	serving.Go(func() { assert.NoError(t, urls.Serve(ctx, unbuffered{local})) })
	serving.Go(func() { assert.NoError(t, criserver.New(rt, criserver.Options{Streamer: urls}).Serve(ctx, l)) })
	t.Cleanup(func() {
		stop()
		serving.Wait()
	})
	require.Eventually(t, func() bool { // no URLs are available earlier
		_, err := urls.PortForward(ctx, "ready?", nil)
		return err == nil
	}, time.Minute, time.Millisecond, "the URL server serves requests")
	client, err := remote.Dial(path, remote.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	return client
}

// unbuffered is a listener whose connections have small buffers, so that a client that does not read soon blocks the writer.
type unbuffered struct{ net.Listener }

func (l unbuffered) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		err = c.(*net.TCPConn).SetWriteBuffer(64 << 10)
	}
	return c, err
}

func TestIntegrationSessionsOfContainerd(t *testing.T) {
	client, err := remote.Dial(lab.Start(t).Endpoint(), remote.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	critest.TestSessions(t, critest.SessionFixture{
		New:         func(*testing.T) (cri.Runtime, cri.SessionRunner) { return client, viaURL{client} },
		Image:       lab.BusyboxImage,
		ServedByURL: true,
	})
}

// viaURL runs sessions at the URLs of a Streamer, as a SPDY client.
type viaURL struct{ streamer cri.Streamer }

func streamOptions(s cri.Session) cri.StreamOptions {
	return cri.StreamOptions{Stdin: s.Stdin != nil, Stdout: s.Stdout != nil, Stderr: s.Stderr != nil, TTY: s.TTY}
}

func (v viaURL) RunExec(ctx context.Context, id string, cmd []string, s cri.Session) (int, error) {
	url, err := v.streamer.Exec(ctx, id, cmd, streamOptions(s))
	if err != nil {
		return 0, err
	}
	return runSPDYSession(ctx, url, s)
}

func (v viaURL) RunAttach(ctx context.Context, id string, s cri.Session) error {
	url, err := v.streamer.Attach(ctx, id, streamOptions(s))
	if err != nil {
		return err
	}
	_, err = runSPDYSession(ctx, url, s)
	return err
}

// runSPDYSession runs a session with version 4 of the protocol, whose error stream carries a status.
func runSPDYSession(ctx context.Context, url string, s cri.Session) (int, error) {
	c := streamtest.Command{URL: url, Protocol: "SPDY v4.channel.k8s.io", Stdin: s.Stdin, Stdout: s.Stdout, Stderr: s.Stderr, TTY: s.TTY}
	for len(s.Resize) > 0 {
		c.Sizes = append(c.Sizes, <-s.Resize)
	}
	text, err := c.Run(ctx)
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	if err != nil || text == "" {
		return 0, err
	}
	var how struct {
		Status, Reason, Message string
		Details                 struct {
			Causes []struct{ Reason, Message string }
		}
	}
	if err := json.Unmarshal([]byte(text), &how); err != nil {
		return 0, fmt.Errorf("status %q: %w", text, err)
	}
	if how.Status == "Success" {
		return 0, nil
	}
	for _, cause := range how.Details.Causes {
		if cause.Reason == "ExitCode" {
			return strconv.Atoi(cause.Message)
		}
	}
	return 0, errors.New(how.Message)
}

func (v viaURL) RunPortForward(ctx context.Context, id string, port int32, conn io.ReadWriteCloser) error {
	defer conn.Close()
	url, err := v.streamer.PortForward(ctx, id, []int32{port})
	if err != nil {
		return err
	}
	f, err := streamtest.Forward(ctx, url, false)
	if err != nil {
		return err
	}
	defer f.Close()
	c, err := f.Connect(ctx, int(port))
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(c, conn)
		_ = c.CloseWrite()
	}()
	if _, err := io.Copy(conn, c); err != nil {
		return err
	}
	fault, err := c.ReadError()
	if err == nil && fault != "" {
		err = errors.New(fault)
	}
	return err
}
