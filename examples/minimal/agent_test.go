// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// binary builds the example once, with the race detector watching it where the tests are watched themselves.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "minimal")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "minimal")
	args := []string{"build", "-o", path}
	if raceEnabled {
		args = append(args, "-race")
	}
	out, err := exec.Command("go", append(args, ".")...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := binary(); err == nil {
		_ = os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

// agent is a run of the example as a process of its own.
type agent struct {
	t    *testing.T
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended

	mu    sync.Mutex
	lines []string // of stdout and stderr
}

// start runs the example. It is killed when the test ends, if it still runs.
func start(t *testing.T, args ...string) *agent {
	t.Helper()
	path, err := binary()
	require.NoError(t, err)
	a := &agent{t: t, cmd: exec.Command(path, args...), done: make(chan struct{})}
	// The write end is the process's alone: a keeper of a container must not hold the test up.
	r, w, err := os.Pipe()
	require.NoError(t, err)
	a.cmd.Stdout, a.cmd.Stderr = w, w
	require.NoError(t, a.cmd.Start())
	require.NoError(t, w.Close())
	go a.read(r)
	go func() {
		_ = a.cmd.Wait()
		close(a.done)
	}()
	t.Cleanup(func() {
		a.kill()
		_ = r.Close()
		if t.Failed() {
			t.Logf("the agent said:\n%s", a.output())
		}
		require.NotContains(t, a.output(), "DATA RACE")
	})
	return a
}

func (a *agent) read(r io.Reader) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		a.mu.Lock()
		a.lines = append(a.lines, lines.Text())
		a.mu.Unlock()
	}
}

func (a *agent) output() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return strings.Join(a.lines, "\n")
}

// kill ends the agent as a crash would.
func (a *agent) kill() {
	_ = a.cmd.Process.Kill()
	<-a.done
}

// terminate asks the agent to end, and waits until it has.
func (a *agent) terminate(within time.Duration) {
	a.t.Helper()
	require.NoError(a.t, a.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case <-a.done:
	case <-time.After(within):
		require.Failf(a.t, "the agent does not end", "within %s of SIGTERM", within)
	}
}

// says waits until the agent has printed a line with all of the words.
func (a *agent) says(within time.Duration, words ...string) string {
	a.t.Helper()
	var found string
	eventually(a.t, within, func() error {
		for line := range strings.Lines(a.output()) {
			if containsAll(line, words) {
				found = line
				return nil
			}
		}
		return fmt.Errorf("no line with %q", words)
	})
	return found
}

func containsAll(line string, words []string) bool {
	for _, w := range words {
		if !strings.Contains(line, w) {
			return false
		}
	}
	return true
}

// eventually asks until there is no error, and fails with the last one when time is up.
func eventually(t *testing.T, within time.Duration, check func() error) {
	t.Helper()
	deadline := time.Now().Add(within)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			require.NoError(t, err, "after %s", within)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// manifests is a directory of manifests.
type manifests struct {
	t   *testing.T
	dir string
}

func newManifests(t *testing.T) manifests { return manifests{t, t.TempDir()} }

// write puts a manifest in place at once, as a careful deployment would.
func (m manifests) write(name, content string) {
	m.t.Helper()
	tmp := filepath.Join(m.dir, "."+name+".tmp")
	require.NoError(m.t, os.WriteFile(tmp, []byte(content), 0o600))
	require.NoError(m.t, os.Rename(tmp, filepath.Join(m.dir, name)))
}

func (m manifests) remove(name string) {
	m.t.Helper()
	require.NoError(m.t, os.Remove(filepath.Join(m.dir, name)))
}

// podYAML is a pod of one container that runs a shell command.
func podYAML(name, script string, spec ...string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata:
  name: %s
spec:
  terminationGracePeriodSeconds: 2
%s  containers:
    - name: main
      image: nodeagent.test/busybox:1
      command: ["/bin/sh", "-c", %q]
`, name, strings.Join(spec, ""), script)
}

const sleeper = "trap 'exit 0' TERM; while :; do sleep 0.1; done"

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
