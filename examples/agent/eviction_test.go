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

// A node with too little memory evicts its pod with a message, and temporarily does not restart it. Once memory is available
// the pod runs again.
func TestIntegrationEviction(t *testing.T) {
	n := newNode(t)
	n.manifests.Write("a.yaml", podYAML("a", sleeper))
	a := n.start(map[string]any{"evictionHard": map[string]string{"memory.available": "1Ei"}})
	exetest.Eventually(t, vmTimeout, func() error {
		out := a.Output()
		switch {
		case !strings.Contains(out, "The node was low on resource: memory. Threshold quantity: 1Ei, available: "):
			return errors.New("no pod is evicted")
		case !strings.Contains(out, "phase=Pending") || !strings.Contains(out, "Evicted"):
			return errors.New("no status has reason Evicted")
		}
		if _, err := n.runningContainer("a-n1"); err == nil {
			return errors.New("the pod still runs")
		}
		return nil
	})
	require.Zero(t, a.Terminate(vmTimeout))
	n.start(nil)
	n.awaitRunning(vmTimeout, "a-n1")
}

// An agent with an invalid threshold exits with an error that names the field and the value.
func TestIntegrationEvictionConfig(t *testing.T) {
	n := newNode(t)
	n.manifests.Write("a.yaml", podYAML("a", sleeper))
	a := n.start(map[string]any{"evictionHard": map[string]string{"memory.available": "much"}})
	require.Equal(t, 1, a.Wait(vmTimeout))
	require.Contains(t, a.Output(), `evictionHard["memory.available"]: "much": not a quantity`)
}
