// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/agent"
	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/eviction"
	"github.com/seed81659283/nodeagent/nodetest"
	"github.com/seed81659283/nodeagent/qos"
)

// maxPolicies limits the columns of the page.
const maxPolicies = 4

// rankers are the eviction rankings by name; nil is the ranking of the kubelet. A ranking of your own needs an entry here.
var rankers = map[string]func(eviction.Layout) eviction.EvictionRanker{ //nolint:gochecknoglobals // a constant table
	"kubelet": nil, "relative-excess": relativeExcess,
}

// policy is a policy of a node: its eviction ranking, eviction thresholds and memory.high. The zero value is the kubelet's default.
type policy struct {
	name       string
	ranker     func(eviction.Layout) eviction.EvictionRanker
	hard       map[string]string // amount by signal, in place of those of the script
	throttling *float64          // memoryThrottlingFactor of the kubelet; nil: no memory.high

	threshold eviction.Amount // of memory.available; set when the node starts
}

// parsePolicies parses a list of policies, separated by commas. A policy is a list of terms, separated by "+":
//
//	kubelet, relative-excess      an eviction ranking
//	memory.available<1Gi          a hard eviction threshold
//	memory.high=0.9               memory.high of each container: its memory request plus this fraction of limit minus request
func parsePolicies(text string) (list []*policy, err error) {
	seen := map[string]bool{}
	for name := range strings.SplitSeq(text, ",") {
		p, err := parsePolicy(strings.TrimSpace(name))
		if err != nil {
			return nil, err
		}
		if seen[p.name] {
			return nil, fmt.Errorf("policy %q is listed twice", p.name)
		}
		seen[p.name] = true
		list = append(list, p)
	}
	if len(list) > maxPolicies {
		return nil, fmt.Errorf("%d policies, more than %d", len(list), maxPolicies)
	}
	return list, nil
}

// parsePolicy parses one policy.
func parsePolicy(name string) (*policy, error) {
	p := &policy{name: name, hard: map[string]string{}}
	for term := range strings.SplitSeq(name, "+") {
		if factor, ok := strings.CutPrefix(term, "memory.high="); ok {
			f, err := strconv.ParseFloat(factor, 64)
			if err != nil || !(f > 0 && f <= 1) {
				return nil, fmt.Errorf("policy %q: memory.high=%s: not a number above 0 and at most 1", name, factor)
			}
			p.throttling = &f
			continue
		}
		if signal, amount, ok := strings.Cut(term, "<"); ok {
			if _, err := eviction.ParseThresholds(eviction.Config{Hard: map[string]string{signal: amount}}); err != nil {
				return nil, fmt.Errorf("policy %q: %w", name, err)
			}
			p.hard[signal] = amount
			continue
		}
		ranker, ok := rankers[term]
		if !ok {
			return nil, fmt.Errorf("policy %q: %q is no ranking, SIGNAL<AMOUNT or memory.high=FACTOR", name, term)
		}
		p.ranker = ranker
	}
	return p, nil
}

// adjust sets eviction ranking and thresholds in the options of a node. Thresholds of the policy replace those of the script.
func (p *policy) adjust(o *nodetest.Options) {
	hard := eviction.DefaultHard()
	maps.Copy(hard, o.Config.Kubelet.EvictionHard)
	maps.Copy(hard, p.hard)
	o.Config.Kubelet.EvictionHard = hard
	o.Adjust = func(a *agent.Options) { a.Ranker = p.ranker }
	p.threshold, _ = eviction.ParseAmount(hard[string(eviction.MemoryAvailable)]) // the node reports an error
}

// limitMemory sets memory.high of the containers of a running pod that have none, as the kubelet does with memoryThrottlingFactor.
func (p *policy) limitMemory(ctx context.Context, n nodetest.ObservedNode, s *nodetest.Sample, pod *nodetest.PodSample) error {
	if p.throttling == nil || pod.MemoryHigh > 0 || pod.Usage.Tasks == 0 {
		return nil
	}
	found, ok := n.Pod(strings.TrimPrefix(pod.Name, corev1.NamespaceDefault+"/"))
	if !ok {
		return nil
	}
	node := qos.Node{MemoryCapacity: s.Memory, MemoryAllocatable: s.Memory - p.threshold.Of(s.Memory), PageSize: 4096, ThrottlingFactor: p.throttling}
	r, err := qos.ContainerResources(found, &found.Spec.Containers[0], node) // pods of a script have one container
	high := r.Unified["memory.high"]
	if err != nil || high == "" {
		return err
	}
	tree := n.Machine().Cgroups()
	path := cgroups.PodPath("", cgroups.QOS(qos.StatusClass(found)), string(found.UID))
	containers, err := tree.Children(ctx, path)
	for _, c := range containers {
		err = errors.Join(err, tree.Apply(ctx, path.Join(c), cgroups.Resources{Unified: map[string]string{"memory.high": high}}))
	}
	return err
}
