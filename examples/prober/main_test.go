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

// TestMain lets the test binary be the example.
func TestMain(m *testing.M) {
	if os.Getenv("PLAY_PROBER") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// player is a run of the example.
type player struct {
	cmd *exec.Cmd
	mu  sync.Mutex
	out bytes.Buffer
}

func (p *player) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Write(b)
}

func (p *player) says() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

func play(t *testing.T, args ...string) *player {
	p := &player{cmd: exec.CommandContext(t.Context(), "/proc/self/exe", args...)}
	p.cmd.Env = append(os.Environ(), "PLAY_PROBER=1")
	p.cmd.Stdout, p.cmd.Stderr = p, p
	require.NoError(t, p.cmd.Start())
	return p
}

func (p *player) end(t *testing.T) {
	require.NoError(t, p.cmd.Process.Signal(os.Interrupt))
	require.NoError(t, p.cmd.Wait(), p.says())
}

// until waits for what was said of a server last.
func (p *player) until(t *testing.T, server, what string) {
	t.Helper()
	last := func() (what string) {
		for line := range strings.Lines(p.says()) {
			if _, after, ok := strings.Cut(line, server+" "); ok {
				what = strings.TrimSpace(after)
			}
		}
		return what
	}
	for deadline := time.Now().Add(time.Minute); last() != what; time.Sleep(10 * time.Millisecond) {
		require.True(t, time.Now().Before(deadline), "%s is not %q in:\n%s", server, what, p.says())
	}
}

func TestServersThatComeAndGo(t *testing.T) {
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

	p := play(t, args...)
	p.until(t, web.URL, "success")
	p.until(t, tcp, "success")
	p.until(t, command, "failure") // as everything is until it is asked
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	p.until(t, command, "success")
	sick.Store(true)
	p.until(t, web.URL, "failure")
	p.end(t)

	// The next one begins with what the last one knew.
	p = play(t, append([]string{"-period", "1h"}, args[2:]...)...)
	p.until(t, web.URL, "failure")
	p.until(t, tcp, "success")
	p.end(t)
}

func TestWhatIsNoServer(t *testing.T) {
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
