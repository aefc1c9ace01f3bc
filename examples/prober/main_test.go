// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/probe"
)

// TestMain runs the example instead of the tests if PLAY_PROBER is set.
func TestMain(m *testing.M) {
	if os.Getenv("PLAY_PROBER") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// programRun is a running example with its output.
type programRun struct {
	cmd *exec.Cmd
	mu  sync.Mutex
	out bytes.Buffer
}

func (p *programRun) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Write(b)
}

func (p *programRun) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

func startProgram(t *testing.T, args ...string) *programRun {
	p := &programRun{cmd: exec.CommandContext(t.Context(), "/proc/self/exe", args...)}
	p.cmd.Env = append(os.Environ(), "PLAY_PROBER=1")
	p.cmd.Stdout, p.cmd.Stderr = p, p
	require.NoError(t, p.cmd.Start())
	return p
}

func (p *programRun) interrupt(t *testing.T) {
	require.NoError(t, p.cmd.Process.Signal(os.Interrupt))
	require.NoError(t, p.cmd.Wait(), p.output())
}

// awaitStatus waits until the last printed status of a server is want.
func (p *programRun) awaitStatus(t *testing.T, server, want string) {
	t.Helper()
	last := func() (status string) {
		for line := range strings.Lines(p.output()) {
			if _, after, ok := strings.Cut(line, server+" "); ok {
				status = strings.TrimSpace(after)
			}
		}
		return status
	}
	for deadline := time.Now().Add(time.Minute); last() != want; time.Sleep(10 * time.Millisecond) {
		require.True(t, time.Now().Before(deadline), "%s is not %q in:\n%s", server, want, p.output())
	}
}

func TestStatusFollowsServers(t *testing.T) {
	if _, err := os.Stat("/proc/self/exe"); err != nil {
		t.Skip("needs /proc: ", err)
	}
	var sick atomic.Bool
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if sick.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer web.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	dir := t.TempDir()
	file := filepath.Join(dir, "ready")
	tcp, command := "tcp://"+l.Addr().String(), "exec:test -e "+file
	args := []string{"-period", "50ms", "-failures", "2", "-store", filepath.Join(dir, "store"), web.URL, tcp, command}

	p := startProgram(t, args...)
	p.awaitStatus(t, web.URL, "success")
	p.awaitStatus(t, tcp, "success")
	p.awaitStatus(t, command, "failure") // every probe of a server begins as failed
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	p.awaitStatus(t, command, "success")
	sick.Store(true)
	p.awaitStatus(t, web.URL, "failure")
	p.interrupt(t)

	// A restarted program begins with the stored statuses.
	p = startProgram(t, append([]string{"-period", "1h"}, args[2:]...)...)
	p.awaitStatus(t, web.URL, "failure")
	p.awaitStatus(t, tcp, "success")
	p.interrupt(t)
}

func TestInvalidServersAreRefused(t *testing.T) {
	for server, want := range map[string]string{
		"ftp://localhost:21":      `server "ftp://localhost:21": "ftp" is none of http, https, tcp and exec`,
		"http://localhost/x":      `server "http://localhost/x": it has no port`,
		"tcp://localhost:70000":   `server "tcp://localhost:70000": `,
		"http://local host:80":    `server "http://local host:80": `,
		"http://[::1]:80/\x00bad": `server "http://[::1]:80/\x00bad": `,
	} {
		err := runProbes(context.Background(), []string{server}, probe.Spec{}, "", false)
		require.ErrorContains(t, err, want)
	}
	require.ErrorContains(t, runProbes(context.Background(), nil, probe.Spec{}, "", false), "no server")
}
