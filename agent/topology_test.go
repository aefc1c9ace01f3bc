// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/agent"
	"github.com/seed81659283/nodeagent/lifecycle/source"
)

// A topology policy with a wrong option, for which a kubelet does not start, is an error of New. The policy none ignores options.
func TestNewRefusesWrongOptionsOfTopologyPolicy(t *testing.T) {
	for policy, want := range map[string]string{"best-effort": `make the agent: unknown Topology Manager Policy option: "closest"`, "none": ""} {
		var config agent.Config
		config.Node.RootDir = t.TempDir()
		config.Kubelet.TopologyManagerPolicy = policy
		config.Kubelet.TopologyManagerPolicyOptions = map[string]string{"closest": "true"}
		a, err := agent.New(t.Context(), config, agent.Options{Logger: quiet, Sources: []source.Source{source.Pods("code", nil)}})
		if want != "" {
			require.EqualError(t, err, want)
			continue
		}
		require.NoError(t, err)
		require.NotNil(t, a)
	}
}
