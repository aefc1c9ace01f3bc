// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/exetest"
)

// probedPod is a pod with exec probes: readiness runs ready, liveness runs alive.
func probedPod(ready, alive string) string {
	return podYAML("web", sleeper) + fmt.Sprintf(`      readinessProbe: {exec: {command: [/bin/sh, -c, %q]}, periodSeconds: 1, timeoutSeconds: 60, failureThreshold: 1}
      livenessProbe: {exec: {command: [/bin/sh, -c, %q]}, periodSeconds: 1, timeoutSeconds: 60, failureThreshold: 2}
`, ready, alive)
}

// A container becomes ready by its readiness probe, stays ready across a restart of the agent, and is restarted when its
// liveness probe fails.
func TestProbes(t *testing.T) {
	m, marks := exetest.NewDir(t), t.TempDir()
	args := []string{"-manifests", m.Path, "-state", t.TempDir(), "-logs", t.TempDir(), "-node", "n1"}
	m.Write("web.yaml", probedPod("test -e "+marks+"/ready", "test ! -e "+marks+"/sick"))
	a := program.Start(t, args...)
	a.AwaitLine(20*time.Second, "default/web-n1 Running", "ready=false restarts=0")
	mark := func(name string) { require.NoError(t, os.WriteFile(filepath.Join(marks, name), nil, 0o600)) }
	mark("ready")
	a.AwaitLine(10*time.Second, "default/web-n1 Running", "ready=true restarts=0")
	a.Kill()

	a = program.Start(t, append(args, "-stop-on-exit")...)
	a.AwaitLine(10*time.Second, "default/web-n1 Running", "ready=true restarts=0")
	require.NotContains(t, a.Output(), "ready=false", "the container stays ready across the restart of the agent")
	mark("sick")
	a.AwaitLine(20*time.Second, "default/web-n1", "restarts=1")
	a.Terminate(20 * time.Second)
}
