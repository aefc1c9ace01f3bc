// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/eviction"
	"github.com/seed81659283/nodeagent/eviction/podevict"
	"github.com/seed81659283/nodeagent/lifecycle"
)

// evictionConfig is the part of the config that says when pods are evicted, with the names of the kubelet's.
type evictionConfig struct {
	EvictionHard            map[string]string `json:"evictionHard"` // neither this nor the next: no pod is evicted
	EvictionSoft            map[string]string `json:"evictionSoft"`
	EvictionSoftGracePeriod map[string]string `json:"evictionSoftGracePeriod"`
	EvictionMinimumReclaim  map[string]string `json:"evictionMinimumReclaim"`
	EvictionMaxGraceSeconds int               `json:"evictionMaxPodGracePeriod"`
	EvictionTransition      metav1.Duration   `json:"evictionPressureTransitionPeriod"` // zero: 5m
}

// evicts reports whether pods are evicted.
func (c *evictionConfig) evicts() bool { return c.EvictionHard != nil || c.EvictionSoft != nil }

// evictUnder has pods evicted when the node is short of something. Those of a node without a cluster come from files: the kubelet never
// evicts such, here they wait until the node has recovered.
func (a *agent) evictUnder(o *lifecycle.Options) error {
	if !a.evicts() {
		return nil
	}
	c := eviction.Config{ // without Hard it would have the kubelet's defaults
		Hard: maps.Collect(maps.All(a.EvictionHard)), Soft: a.EvictionSoft, SoftGracePeriod: a.EvictionSoftGracePeriod, MinimumReclaim: a.EvictionMinimumReclaim, EnforcePods: true,
	}
	thresholds, err := eviction.ParseThresholds(c)
	if err != nil {
		return err
	}
	for _, doubt := range eviction.Contradictions(thresholds) {
		a.log.Warn("thresholds of evictions", "error", doubt)
	}
	node, err := podevict.NewNode(podevict.NodeOptions{
		Measurer: a.collector, Pods: func() podevict.Pods { return a.Reconciler }, Hold: a.cluster == nil,
		Cgroups: a.driver, Path: a.tree.Path, Machine: a.machine, Images: a.unused, Runtime: a.generator.Pods, Event: a.annotated,
		Eviction: eviction.Options{Logger: a.log, Rules: eviction.Rules{
			Thresholds: thresholds, TransitionPeriod: a.EvictionTransition.Duration, MaxGracePeriod: time.Duration(a.EvictionMaxGraceSeconds) * time.Second,
		}, Hooks: a.meter.Eviction(eviction.Hooks{Conditions: func([]eviction.Condition) {
			if a.cluster != nil {
				a.cluster.reporter.Changed()
			}
		}})},
	})
	if err != nil {
		return err
	}
	a.evictor, o.Admit = node.Evictor(), node.Admit
	a.parts = append(a.parts, node.Run)
	return nil
}
