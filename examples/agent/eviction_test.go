// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/exetest"
)

// A node that is short of memory evicts its pod, says why, and holds it back; when it is short of nothing the pod runs again.
func TestIntegrationEviction(t *testing.T) {
	n := newNode(t)
	n.manifests.Write("a.yaml", podYAML("a", sleeper))
	a := n.start(map[string]any{"evictionHard": map[string]string{"memory.available": "1Ei"}})
	exetest.Eventually(t, vmTimeout, func() error {
		out := a.Output()
		switch {
		case !strings.Contains(out, "The node was low on resource: memory. Threshold quantity: 1Ei, available: "):
			return errors.New("nobody was evicted")
		case !strings.Contains(out, "phase=Pending") || !strings.Contains(out, "Evicted"):
			return errors.New("no status says so")
		}
		if _, err := n.running("a-n1"); err == nil {
			return errors.New("the pod still runs")
		}
		return nil
	})
	require.Zero(t, a.Terminate(vmTimeout))
	n.start(nil)
	n.awaitRunning(vmTimeout, "a-n1")
}

// A threshold that cannot be read ends the agent with the field and the value.
func TestIntegrationEvictionConfig(t *testing.T) {
	n := newNode(t)
	n.manifests.Write("a.yaml", podYAML("a", sleeper))
	a := n.start(map[string]any{"evictionHard": map[string]string{"memory.available": "much"}})
	require.Equal(t, 1, a.Wait(vmTimeout))
	require.Contains(t, a.Output(), `evictionHard["memory.available"]: "much": not a quantity`)
}
