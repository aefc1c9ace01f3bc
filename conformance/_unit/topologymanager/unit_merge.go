// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package topologymanager gets the files of this directory by the overlay of the kubelet's unit tests. The policies merge hints with package device.
package topologymanager

import (
	"slices"
	"sync/atomic"

	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager/bitmask"

	"github.com/seed81659283/nodeagent/device"
)

// unitMerges counts the calls of device.Merger.
var unitMerges atomic.Int64 //nolint:gochecknoglobals // the kubelet creates the policies, so that no value of the tests can hold the number

func (p *nonePolicy) Merge(_ klog.Logger, providersHints []map[string][]TopologyHint) (TopologyHint, bool) {
	return unitMerge(device.None, nil, PolicyOptions{}, providersHints)
}

func (p *bestEffortPolicy) Merge(_ klog.Logger, providersHints []map[string][]TopologyHint) (TopologyHint, bool) {
	return unitMerge(device.BestEffort, p.numaInfo, p.opts, providersHints)
}

func (p *restrictedPolicy) Merge(_ klog.Logger, providersHints []map[string][]TopologyHint) (TopologyHint, bool) {
	return unitMerge(device.Restricted, p.numaInfo, p.opts, providersHints)
}

func (p *singleNumaNodePolicy) Merge(_ klog.Logger, providersHints []map[string][]TopologyHint) (TopologyHint, bool) {
	return unitMerge(device.SingleNUMANode, p.numaInfo, p.opts, providersHints)
}

// unitMerge merges hints with a device.Merger.
func unitMerge(policy device.Policy, info *NUMAInfo, opts PolicyOptions, providersHints []map[string][]TopologyHint) (TopologyHint, bool) {
	unitMerges.Add(1)
	options := map[string]string{}
	if opts.PreferClosestNUMA {
		options[device.PreferClosestNUMANodes] = "true"
	}
	merger, err := device.NewMerger(policy, options, unitNodes(info))
	if err != nil {
		panic(err)
	}
	hint, admit := merger.Merge(unitResources(providersHints))
	out := TopologyHint{Preferred: hint.Preferred}
	if hint.Nodes != 0 {
		if out.NUMANodeAffinity, err = bitmask.NewBitMask(slices.Collect(hint.Nodes.Nodes())...); err != nil {
			panic(err)
		}
	}
	return out, admit
}

// unitNodes converts NUMA nodes.
func unitNodes(info *NUMAInfo) (nodes []device.NUMANode) {
	if info == nil {
		return nil
	}
	for _, id := range info.Nodes {
		node := device.NUMANode{ID: id}
		for _, distance := range info.NUMADistances[id] {
			node.Distances = append(node.Distances, int(distance))
		}
		nodes = append(nodes, node)
	}
	return nodes
}

// unitResources converts the hints of all providers. Nil is no preference.
func unitResources(providersHints []map[string][]TopologyHint) (resources [][]device.Hint) {
	for _, byResource := range providersHints {
		for _, hints := range byResource {
			var list []device.Hint
			if hints != nil {
				list = []device.Hint{}
			}
			for _, h := range hints {
				hint := device.Hint{Preferred: h.Preferred}
				if h.NUMANodeAffinity != nil {
					for _, n := range h.NUMANodeAffinity.GetBits() {
						hint.Nodes |= 1 << n
					}
				}
				list = append(list, hint)
			}
			resources = append(resources, list)
		}
	}
	return resources
}
