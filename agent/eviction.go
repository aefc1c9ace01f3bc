// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"time"

	"github.com/seed81659283/nodeagent/eviction"
	"github.com/seed81659283/nodeagent/eviction/podevict"
	"github.com/seed81659283/nodeagent/lifecycle"
)

// makeEvictor makes the engine that evicts pods when the node is short of a resource. Static pods of a node without a cluster are evicted as
// well, and wait until the node has recovered; the kubelet never evicts them.
func (a *Agent) makeEvictor(o *lifecycle.Options) error {
	measurer := a.options.Measurer
	if measurer == nil && a.collector != nil {
		measurer = a.collector
	}
	k := &a.config.Kubelet
	thresholds, err := k.Thresholds()
	if err != nil || measurer == nil || len(thresholds) == 0 {
		return err
	}
	for _, doubt := range eviction.Contradictions(thresholds) {
		a.log.Warn("thresholds of evictions", "error", doubt)
	}
	options := podevict.NodeOptions{
		Measurer: measurer, Pods: func() podevict.Pods { return &a.pods }, Hold: a.cluster == nil,
		Images: a.unused, Runtime: a.generator.Pods, Event: a.annotatedEvent,
		Eviction: eviction.Options{Logger: a.log, Rules: eviction.Rules{
			Thresholds: thresholds, TransitionPeriod: k.EvictionPressureTransitionPeriod.Duration, Ranker: a.options.Ranker,
			MaxGracePeriod: time.Duration(k.EvictionMaxPodGracePeriod) * time.Second,
		}, Hooks: a.meter.Eviction(a.options.Hooks.Eviction, eviction.Hooks{Conditions: func([]eviction.Condition) {
			if a.cluster != nil {
				a.node.Reporter.Changed()
			}
		}})},
	}
	if a.cgroups.tree != nil {
		options.Cgroups, options.Path, options.Machine = a.cgroups.driver, a.cgroups.tree.Path, a.cgroups.machine
	}
	node, err := podevict.NewNode(options)
	if err != nil {
		return err
	}
	a.evictor, o.Admit = node.Evictor(), node.Admit
	a.add("evictor", node.Run)
	return nil
}
