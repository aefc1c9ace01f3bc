// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/exetest"
)

// probedPod is a pod whose container is ready and alive by what its commands say.
func probedPod(ready, alive string) string {
	return podYAML("web", sleeper) + fmt.Sprintf(`      readinessProbe: {exec: {command: [/bin/sh, -c, %q]}, periodSeconds: 1, failureThreshold: 1}
      livenessProbe: {exec: {command: [/bin/sh, -c, %q]}, periodSeconds: 1, failureThreshold: 2}
`, ready, alive)
}

// A container is ready when its probe says so, stays so for an agent that is started anew, and is restarted when it is
// no longer alive.
func TestProbes(t *testing.T) {
	m, marks := exetest.NewDir(t), t.TempDir()
	args := []string{"-manifests", m.Path, "-state", t.TempDir(), "-logs", t.TempDir(), "-node", "n1"}
	m.Write("web.yaml", probedPod("test -e "+marks+"/ready", "test ! -e "+marks+"/sick"))
	a := program.Start(t, args...)
	a.Says(20*time.Second, "default/web-n1 Running ready=0/1 restarts=0")
	mark := func(name string) { require.NoError(t, os.WriteFile(filepath.Join(marks, name), nil, 0o600)) }
	mark("ready")
	a.Says(10*time.Second, "default/web-n1 Running ready=1/1 restarts=0")
	a.Kill()

	a = program.Start(t, append(args, "-stop-on-exit")...)
	a.Says(10*time.Second, "default/web-n1 Running ready=1/1 restarts=0")
	require.NotContains(t, a.Output(), "ready=0/1", "what was ready did not stop being so")
	mark("sick")
	a.Says(20*time.Second, "default/web-n1", "restarts=1")
	a.Terminate(20 * time.Second)
}

// The same through containerd, where a container is asked at its own address.
func TestIntegrationProbes(t *testing.T) {
	n := newNode(t)
	pod := podYAML("web", `mkdir /www; echo fine > /www/ready; httpd -p 8080 -h /www; `+sleeper) + `      ports: [{name: http, containerPort: 8080}]
      startupProbe: {tcpSocket: {port: http}, periodSeconds: 1, failureThreshold: 60}
      readinessProbe: {httpGet: {port: http, path: /ready}, periodSeconds: 1, failureThreshold: 1}
      livenessProbe: {exec: {command: [/bin/sh, -c, "test ! -e /sick"]}, periodSeconds: 1, failureThreshold: 2}
`
	n.m.Write("web.yaml", pod)
	a := program.Start(t, n.args...)
	a.Says(60*time.Second, "default/web-n1 Running ready=1/1 restarts=0")
	c := n.awaitRunning(time.Second, "web-n1")["web-n1"]
	run := func(command string) {
		_, err := n.client.ExecSync(within(t, 30*time.Second), c.ID, []string{"/bin/sh", "-c", command}, 10*time.Second)
		require.NoError(t, err)
	}
	run("rm /www/ready")
	a.Says(20*time.Second, "default/web-n1 Running ready=0/1 restarts=0")
	run("echo fine > /www/ready")
	exetest.Eventually(t, 20*time.Second, func() error {
		lines := strings.Split(strings.TrimSpace(a.Output()), "\n")
		for _, line := range slices.Backward(lines) {
			if strings.Contains(line, "web-n1 Running") {
				if strings.Contains(line, "ready=1/1") {
					return nil
				}
				return fmt.Errorf("last: %s", line)
			}
		}
		return nil
	})
	a.Kill()

	a = program.Start(t, n.args...)
	a.Says(20*time.Second, "default/web-n1 Running ready=1/1 restarts=0")
	require.NotContains(t, a.Output(), "ready=0/1")
	run("touch /sick")
	a.Says(60*time.Second, "default/web-n1 Running ready=1/1 restarts=1")
	n.m.Remove("web.yaml")
	n.awaitNothing(60 * time.Second)
	a.Terminate(10 * time.Second)
}
