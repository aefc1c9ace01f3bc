// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri/process"
	"github.com/seed81659283/nodeagent/internal/agentfile"
	"github.com/seed81659283/nodeagent/internal/exetest"
)

// program is the example agent.
var program exetest.Program

func TestMain(m *testing.M) {
	process.Main()        // needed by tests that open the runtime of an agent
	runtime.GOMAXPROCS(1) // golang/go#78156
	os.Exit(program.Main(m))
}

// timeout is the longest wait for something that happens at once on an idle machine.
const timeout = 30 * time.Second

// files are the directories of an agent. They outlive the agent process.
type files struct {
	t                  *testing.T
	manifests, objects exetest.Dir
	state, logs        string
	port               int // of the agent's own API, if it has one
}

func newFiles(t *testing.T) files {
	return files{t, exetest.NewDir(t), exetest.NewDir(t), t.TempDir(), t.TempDir(), exetest.FreePort(t)}
}

// start starts an agent with these directories. fields are added to its config.
func (f files) start(fields map[string]any) *exetest.Process {
	f.t.Helper()
	return program.Start(f.t, "-config", f.config(fields))
}

// config writes the config of an agent with these directories and returns its path. fields are added to the config.
func (f files) config(fields map[string]any) string {
	f.t.Helper()
	all := map[string]any{
		"nodeName": "n1", "rootDir": f.state, "podLogsDir": f.logs, "staticPodPath": f.manifests.Path, "objectsDir": f.objects.Path,
		"port": f.port,
	}
	maps.Copy(all, fields)
	text, err := agentfile.Marshal(all)
	require.NoError(f.t, err)
	path := filepath.Join(f.t.TempDir(), "config.yaml")
	require.NoError(f.t, os.WriteFile(path, text, 0o600))
	return path
}

// log returns the output of a container of the pod: all attempts, without rotated files.
func (f files) log(pod, container string) string {
	paths, err := filepath.Glob(filepath.Join(f.logs, "*_"+pod+"_*", container, "*.log"))
	require.NoError(f.t, err)
	var all strings.Builder
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it is being rotated
		}
		require.NoError(f.t, err)
		for line := range strings.Lines(string(text)) {
			// time, stream, tag and text
			if fields := strings.SplitN(line, " ", 4); len(fields) == 4 {
				all.WriteString(fields[3])
			}
		}
	}
	return all.String()
}

// awaitLog waits until the log of a container has all lines.
func (f files) awaitLog(pod, container string, lines ...string) {
	f.t.Helper()
	exetest.Eventually(f.t, timeout, func() error {
		log := "\n" + f.log(pod, container)
		for _, line := range lines {
			if !strings.Contains(log, "\n"+line+"\n") {
				return fmt.Errorf("no line %q in the log of %s/%s:%s", line, pod, container, log)
			}
		}
		return nil
	})
}

// podYAML is a pod of one container that runs a shell command. more is appended to the container.
func podYAML(name, script string, more ...string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata:
  name: %s
spec:
  terminationGracePeriodSeconds: 2
  containers:
    - name: main
      image: nodeagent.test/busybox:1
      command: ["/bin/sh", "-c", %q]
%s`, name, script, strings.Join(more, ""))
}

// sleeper is a script that exits on SIGTERM.
const sleeper = "trap 'exit 0' TERM; while :; do sleep 0.1; done"

// within returns a context for one call, with a longer timeout on a busy machine. It outlives the test, so that cleanups can
// use it.
func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), exetest.TimeoutFactor*d)
	t.Cleanup(cancel)
	return ctx
}
