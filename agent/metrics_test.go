// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/agent"
	"github.com/seed81659283/nodeagent/agent/kubeletconfig"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/lifecycle/source"
)

// Two agents share a registry with the process metrics of the program. The metrics of an agent are unregistered when it
// stops, and also if New fails.
func TestRegistererHasMetricsOfTwoAgents(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	start := func(name string) (*agent.Agent, error) {
		return agent.New(t.Context(), agent.Config{Node: kubeletconfig.NodeConfiguration{NodeName: name}}, agent.Options{
			Logger: quiet, Ephemeral: true, Runtime: critest.New(critest.Options{}), Sources: []source.Source{source.Pods("code", nil)},
			Registerer: prometheus.WrapRegistererWith(prometheus.Labels{"agent": name}, registry),
		})
	}
	nodes := func() map[string]bool {
		families, err := registry.Gather()
		require.NoError(t, err)
		found := map[string]bool{}
		for _, family := range families {
			for _, metric := range family.GetMetric() {
				for _, label := range metric.GetLabel() {
					if label.GetName() == "agent" && family.GetName() == "kubelet_running_pods" {
						found[label.GetValue()] = true
					}
				}
			}
		}
		return found
	}
	first, err := start("n1")
	require.NoError(t, err)
	_, err = start("n2")
	require.NoError(t, err)
	_, err = start("n2")
	require.ErrorContains(t, err, "Options.Registerer: duplicate metrics collector registration attempted")
	require.Equal(t, map[string]bool{"n1": true, "n2": true}, nodes())

	ended, end := context.WithCancel(t.Context())
	end()
	require.NoError(t, first.Run(ended))
	require.Equal(t, map[string]bool{"n2": true}, nodes())
}
