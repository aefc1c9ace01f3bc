// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/exetest"
	"github.com/seed81659283/nodeagent/internal/lab"
)

// With -cri pods are containers. They survive the agent, and nothing remains after they are stopped.
func TestIntegrationContainers(t *testing.T) {
	l, m := lab.StartPrivate(t), exetest.NewDir(t)
	args := []string{"-cri", l.Endpoint(), "-manifests", m.Path, "-state", t.TempDir(), "-logs", t.TempDir(), "-node", "n1"}
	m.Write("web.yaml", podYAML("web", sleeper))
	a := program.Start(t, args...)
	a.AwaitLine(60*time.Second, "default/web-n1", "Running", "restarts=0")
	a.Kill()
	a = program.Start(t, append(args, "-stop-on-exit")...)
	a.AwaitLine(10*time.Second, "default/web-n1", "Running", "restarts=0")
	require.Zero(t, a.Terminate(30*time.Second))
	require.Contains(t, a.Output(), "default/web-n1 Gone")
	exetest.Eventually(t, 30*time.Second, func() error {
		left, err := l.Leftovers(within(t, 10*time.Second))
		if err == nil && len(left) > 0 {
			err = errors.New("leftovers: " + left[0])
		}
		return err
	})
}
