// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/dirlock"
	"github.com/seed81659283/nodeagent/internal/exetest"
)

// Without -cri pods are plain processes, which need no root, no runtime and no images.
func TestPodsAsProcesses(t *testing.T) {
	m, state, logs := exetest.NewDir(t), t.TempDir(), t.TempDir()
	args := []string{"-manifests", m.Path, "-state", state, "-logs", logs, "-node", "n1"}
	m.Write("web.yaml", podYAML("web", sleeper))
	m.Write("job.yaml", podYAML("job", "echo hello; exit 0", "  restartPolicy: Never\n"))
	a := program.Start(t, args...)
	a.AwaitLine(10*time.Second, "default/web-n1", "Running", "restarts=0")
	a.AwaitLine(10*time.Second, "default/job-n1", "Succeeded", "Completed exit=0")
	files, err := filepath.Glob(filepath.Join(logs, "default_job-n1_*", "main", "0.log"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	log, err := os.ReadFile(files[0])
	require.NoError(t, err)
	require.Contains(t, string(log), " stdout F hello\n")

	// The agent leaves the pods running on SIGTERM, and a restarted agent adopts them.
	a.Terminate(5 * time.Second)
	a = program.Start(t, append(args, "-stop-on-exit")...)
	a.AwaitLine(10*time.Second, "default/web-n1", "Running", "restarts=0")
	a.AwaitLine(10*time.Second, "default/job-n1", "Succeeded")
	m.Remove("job.yaml")
	a.AwaitLine(10*time.Second, "default/job-n1", "Gone")
	a.Terminate(20 * time.Second)
	require.Contains(t, a.Output(), "default/web-n1 Gone")
}

// An invalid manifest causes an error that names it, and does not affect other pods.
func TestBadManifests(t *testing.T) {
	m := exetest.NewDir(t)
	m.Write("good.yaml", podYAML("good", sleeper))
	a := program.Start(t, "-manifests", m.Path, "-state", t.TempDir(), "-logs", t.TempDir(), "-node", "n1", "-stop-on-exit")
	a.AwaitLine(10*time.Second, "default/good-n1", "Running")
	good := podYAML("bad", sleeper)
	for _, tt := range []struct {
		file, content string
		says          []string
	}{
		{"field.yaml", strings.Replace(good, "      image:", "      imagee:", 1), []string{"field.yaml:9", "spec.containers[0].imagee"}},
		{"half.yaml", good[:len(good)/2+3], []string{"half.yaml"}},
		{"text.yaml", "hello, world\n", []string{"text.yaml"}},
		{"twin.yaml", podYAML("good", sleeper), []string{"twin.yaml", "good.yaml"}},
		{"wrong.yaml", strings.Replace(good, "name: main", "name: Main_", 1), []string{"wrong.yaml:8", "spec.containers[0].name"}},
		{"later.yaml", strings.Replace(good, "spec:", "spec:\n  volumes: [{name: data, emptyDir: {}}]", 1), []string{"default/bad-n1", "spec.volumes"}},
	} {
		m.Write(tt.file, tt.content)
		a.AwaitLine(10*time.Second, tt.says...)
	}
	big := filepath.Join(m.Path, "big.yaml")
	require.NoError(t, os.WriteFile(big, nil, 0o600))
	require.NoError(t, os.Truncate(big, 10<<20+1))
	a.AwaitLine(30*time.Second, "big.yaml")

	// A manifest that becomes invalid leaves its pod unchanged.
	m.Write("good.yaml", "spec: [")
	a.AwaitLine(10*time.Second, "good.yaml:1")
	require.NotContains(t, a.Output(), "default/good-n1 Gone")
	require.NotContains(t, a.Output(), "restarts=1")
	m.Write("good.yaml", podYAML("good", sleeper))
	m.Write("more.yaml", podYAML("more", sleeper))
	a.AwaitLine(10*time.Second, "default/more-n1", "Running")
	a.Terminate(20 * time.Second)
}

func TestMissingSocketFailsWithinSeconds(t *testing.T) {
	m := exetest.NewDir(t)
	a := program.Start(t, "-cri", "unix:///nonexistent/containerd.sock", "-manifests", m.Path)
	require.Equal(t, 1, a.Wait(10*time.Second))
	require.Contains(t, a.AwaitLine(time.Second, "minimal:"), "/nonexistent/containerd.sock")
}

// A second agent with the same state directory exits with an error that names the process of the first one.
func TestSecondAgentOfDirectoryExits(t *testing.T) {
	m, state := exetest.NewDir(t), t.TempDir()
	pods := filepath.Join(state, "pods")
	require.NoError(t, os.Mkdir(pods, 0o750))
	lock, err := dirlock.Acquire(pods, ".lock") // like an agent with another runtime
	require.NoError(t, err)
	a := program.Start(t, "-manifests", m.Path, "-state", state, "-logs", t.TempDir(), "-node", "n1")
	a.AwaitLine(10*time.Second, "minimal:", pods, fmt.Sprintf("process %d", os.Getpid()))
	require.NoError(t, lock.Release())
}
