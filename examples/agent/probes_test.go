// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/exetest"
)

// Probes connect to the address of the container. It becomes ready by its readiness probe, stays ready across a restart of
// the agent, and is restarted when its liveness probe fails.
func TestIntegrationProbes(t *testing.T) {
	n := newNode(t)
	pod := podYAML("web", `mkdir /www; echo fine > /www/ready; httpd -p 8080 -h /www; `+sleeper) + `      ports: [{name: http, containerPort: 8080}]
      startupProbe: {tcpSocket: {port: http}, periodSeconds: 1, failureThreshold: 60}
      readinessProbe: {httpGet: {port: http, path: /ready}, periodSeconds: 1, timeoutSeconds: 60, failureThreshold: 1}
      livenessProbe: {exec: {command: [/bin/sh, -c, "test ! -e /sick"]}, periodSeconds: 1, timeoutSeconds: 60, failureThreshold: 2}
`
	n.manifests.Write("web.yaml", pod)
	a := n.start(nil)
	a.AwaitLine(60*time.Second, "pod=web-n1 phase=Running", `summary="1/1 restarts=0`)
	c := n.awaitRunning(time.Second, "web-n1")["web-n1"]
	run := func(command string) {
		_, err := n.client.ExecSync(within(t, 30*time.Second), c.ID, []string{"/bin/sh", "-c", command}, 10*time.Second)
		require.NoError(t, err)
	}
	run("rm /www/ready")
	a.AwaitLine(20*time.Second, "pod=web-n1 phase=Running", `summary="0/1 restarts=0`)
	run("echo fine > /www/ready")
	exetest.Eventually(t, 20*time.Second, func() error {
		lines := strings.Split(strings.TrimSpace(a.Output()), "\n")
		for _, line := range slices.Backward(lines) {
			if strings.Contains(line, "pod=web-n1 phase=Running") {
				if strings.Contains(line, `summary="1/1`) {
					return nil
				}
				return fmt.Errorf("last: %s", line)
			}
		}
		return nil
	})
	a.Kill()

	a = n.start(nil)
	a.AwaitLine(20*time.Second, "pod=web-n1 phase=Running", `summary="1/1 restarts=0`)
	require.NotContains(t, a.Output(), `summary="0/1`)
	run("touch /sick")
	a.AwaitLine(60*time.Second, "pod=web-n1 phase=Running", `summary="1/1 restarts=1`)
	n.manifests.Remove("web.yaml")
	n.awaitNoLeftovers(60 * time.Second)
	a.Terminate(10 * time.Second)
}
