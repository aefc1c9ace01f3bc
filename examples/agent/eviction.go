// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/eviction"
	"github.com/seed81659283/nodeagent/eviction/podevict"
	"github.com/seed81659283/nodeagent/lifecycle"
	nodestats "github.com/seed81659283/nodeagent/nodestatus/summary"
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

// pressure measures the node and evicts its pods: an eviction.Observer and an eviction.Actor.
type pressure struct {
	*agent

	mu     sync.Mutex // guards what follows
	layout eviction.Layout
	last   *statsapi.Summary // that was decided from
}

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
	p := &pressure{agent: a, last: &statsapi.Summary{}}
	p.evictor, err = eviction.New(p, p, eviction.Options{Logger: a.log, Rules: eviction.Rules{
		Thresholds: thresholds, TransitionPeriod: a.EvictionTransition.Duration, MaxGracePeriod: time.Duration(a.EvictionMaxGraceSeconds) * time.Second,
	}, Hooks: a.meter.Eviction(eviction.Hooks{Conditions: func([]eviction.Condition) {
		if a.cluster != nil {
			a.cluster.reporter.Changed()
		}
	}})})
	if err != nil {
		return err
	}
	o.Admit = p.admit
	a.parts = append(a.parts, p.evictor.Run, p.watch)
	return nil
}

// admit refuses pods that would make it worse.
func (p *pressure) admit(_ context.Context, pod *corev1.Pod, _ []*corev1.Pod) error {
	state, _ := p.Pod(string(pod.UID))
	err := podevict.Admit(pod, p.evictor.Status().Conditions, state.Evicted)
	if refusal, ok := errors.AsType[*podevict.Refusal](err); ok {
		return &lifecycle.Rejection{Reason: refusal.Reason, Message: refusal.Message}
	}
	return err
}

// Signals measures the node.
func (p *pressure) Signals(ctx context.Context) (o eviction.Observation, err error) {
	s, err := p.collector.Signals(ctx)
	switch {
	case s.ImageDevice == s.NodeDevice || s.ImageDevice == 0:
	case s.ContainerDevice != s.ImageDevice && s.ContainerDevice != 0:
		o.Layout = eviction.SplitFS
	default:
		o.Layout = eviction.DedicatedImageFS
	}
	for _, r := range []struct {
		signal eviction.Signal
		amount *nodestats.Amount
		cache  cgroups.MemoryStat
	}{
		{eviction.MemoryAvailable, s.Memory, s.Root.Memory.Stat},
		{eviction.MemoryAvailable, s.MemAvailable, cgroups.MemoryStat{}}, // the less of the two counts
		{eviction.AllocatableMemoryAvailable, s.Allocatable, s.Pods.Memory.Stat},
		{eviction.NodeFSAvailable, s.NodeFs, cgroups.MemoryStat{}},
		{eviction.NodeFSInodesFree, s.NodeInodes, cgroups.MemoryStat{}},
		{eviction.ImageFSAvailable, s.ImageFs, cgroups.MemoryStat{}},
		{eviction.ImageFSInodesFree, s.ImageInodes, cgroups.MemoryStat{}},
		{eviction.ContainerFSAvailable, s.ContainerFs, cgroups.MemoryStat{}},
		{eviction.ContainerFSInodesFree, s.ContainerInodes, cgroups.MemoryStat{}},
		{eviction.PIDAvailable, s.PIDs, cgroups.MemoryStat{}},
		{eviction.PIDAvailable, s.AllocatablePIDs, cgroups.MemoryStat{}},
	} {
		if r.amount != nil && r.amount.Capacity > 0 {
			o.Readings = append(o.Readings, eviction.Reading{
				Signal: r.signal, Available: r.amount.Available, Capacity: r.amount.Capacity, Time: r.amount.Time,
				Reclaimable: int64(r.cache.ActiveFile + r.cache.SlabReclaimable),
			})
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.layout = o.Layout
	return o, err
}

// Candidates measures the pods.
func (p *pressure) Candidates(ctx context.Context) ([]eviction.Candidate, error) {
	s, err := p.collector.Summary(ctx)
	pods, _ := p.Active()
	pods = slices.DeleteFunc(pods, p.yetToBegin)
	p.mu.Lock()
	p.last = s
	layout := p.layout
	p.mu.Unlock()
	list, wrong := podevict.Candidates(pods, s, podevict.Options{Layout: layout, EvictStatic: p.cluster == nil, Evicting: func(pod *corev1.Pod) bool {
		state, _ := p.Pod(string(pod.UID))
		return state.Evicted
	}})
	return list, errors.Join(err, wrong)
}
