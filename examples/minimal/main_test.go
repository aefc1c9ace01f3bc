// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Without -cri the pods are plain processes: no root, no runtime, no images.
func TestPodsAsProcesses(t *testing.T) {
	m, state, logs := newManifests(t), t.TempDir(), t.TempDir()
	args := []string{"-manifests", m.dir, "-state", state, "-logs", logs, "-node", "n1"}
	m.write("web.yaml", podYAML("web", sleeper))
	m.write("job.yaml", podYAML("job", "echo hello; exit 0", "  restartPolicy: Never\n"))
	a := start(t, args...)
	a.says(10*time.Second, "default/web-n1", "Running", "restarts=0")
	a.says(10*time.Second, "default/job-n1", "Succeeded", "Completed exit=0")
	files, err := filepath.Glob(filepath.Join(logs, "default_job-n1_*", "main", "0.log"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	log, err := os.ReadFile(files[0])
	require.NoError(t, err)
	require.Contains(t, string(log), " stdout F hello\n")

	// SIGTERM leaves the pods running; the next agent finds them as they are.
	a.terminate(5 * time.Second)
	a = start(t, append(args, "-stop-on-exit")...)
	a.says(10*time.Second, "default/web-n1", "Running", "restarts=0")
	a.says(10*time.Second, "default/job-n1", "Succeeded")
	m.remove("job.yaml")
	a.says(10*time.Second, "default/job-n1", "Gone")
	a.terminate(20 * time.Second)
	require.Contains(t, a.output(), "default/web-n1 Gone")
}

// One bad manifest is one clear error, and nobody else's business.
func TestBadManifests(t *testing.T) {
	m := newManifests(t)
	m.write("good.yaml", podYAML("good", sleeper))
	a := start(t, "-manifests", m.dir, "-state", t.TempDir(), "-logs", t.TempDir(), "-node", "n1", "-stop-on-exit")
	a.says(10*time.Second, "default/good-n1", "Running")
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
		{"later.yaml", strings.Replace(good, "spec:", "spec:\n  initContainers: [{name: i, image: x}]", 1), []string{"later.yaml", "spec.initContainers"}},
	} {
		m.write(tt.file, tt.content)
		a.says(10*time.Second, tt.says...)
	}
	big := filepath.Join(m.dir, "big.yaml")
	require.NoError(t, os.WriteFile(big, nil, 0o600))
	require.NoError(t, os.Truncate(big, 10<<20+1))
	a.says(30*time.Second, "big.yaml")

	// A manifest that turns bad keeps its pod as it was.
	m.write("good.yaml", "spec: [")
	a.says(10*time.Second, "good.yaml:1")
	require.NotContains(t, a.output(), "default/good-n1 Gone")
	require.NotContains(t, a.output(), "default/good-n1 Pending restarts=1")
	m.write("good.yaml", podYAML("good", sleeper))
	m.write("more.yaml", podYAML("more", sleeper))
	a.says(10*time.Second, "default/more-n1", "Running")
	a.terminate(20 * time.Second)
}

func TestWrongSocketIsSaidInSeconds(t *testing.T) {
	m := newManifests(t)
	begun := time.Now()
	a := start(t, "-cri", "unix:///nonexistent/containerd.sock", "-manifests", m.dir)
	select {
	case <-a.done:
	case <-time.After(10 * time.Second):
		require.Fail(t, "the agent still runs")
	}
	require.Less(t, time.Since(begun), 10*time.Second)
	require.Equal(t, 1, a.cmd.ProcessState.ExitCode())
	eventually(t, time.Second, func() error { _, err := os.Stat("."); return err })
	require.Contains(t, a.says(time.Second, "minimal:"), "/nonexistent/containerd.sock")
}
