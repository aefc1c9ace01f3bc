// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest

import (
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cgroups/podtree"
	"github.com/seed81659283/nodeagent/eviction"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
	"github.com/seed81659283/nodeagent/nodestatus"
	hardware "github.com/seed81659283/nodeagent/nodestatus/machine"
	"github.com/seed81659283/nodeagent/nodetest/machine"
)

// loopSetup has the values that a Loop computes once from its options.
type loopSetup struct {
	node    *corev1.Node // for admission
	spec    podspec.Options
	tree    podtree.Options
	policy  *eviction.Policy // nil: no thresholds
	podCIDR netip.Prefix
}

// newLoopSetup returns the setup of a node with the machine spec. ranker creates the ranker that orders pods for eviction;
// nil means the order of the kubelet. now is the current time.
func newLoopSetup(o Options, spec machine.Spec, ranker func(eviction.Layout) eviction.EvictionRanker, now time.Time) (s loopSetup, err error) {
	config := o.nodeConfig()
	config.Node.Kubeconfig, config.Kubelet.EnableServer = "nodetest", new(bool)
	if err := config.SetDefaults(); err != nil {
		return s, err
	}
	if err := config.Validate(); err != nil {
		return s, err
	}
	rules, err := config.Kubelet.EvictionRules()
	if err != nil {
		return s, err
	}
	rules.Ranker = ranker
	if s.policy, err = eviction.NewPolicy(rules); err != nil {
		return s, err
	}
	reserved, err := config.Kubelet.Reserved()
	if err != nil {
		return s, err
	}
	s.tree = podtree.MachineOptions(spec.CPUs, spec.Memory, spec.Swap)
	s.tree.Reserved = podtree.Reserved{System: reserved.System, Kube: reserved.Kube}
	info := hostInfo(o.Name, spec)
	s.node, _ = nodestatus.Initial(nodestatus.Facts{Config: config.NodeStatus(), Machine: info, Now: now})
	dns, err := config.Kubelet.DNS()
	if err != nil {
		return s, err
	}
	s.spec = podspec.Options{
		HostIPs:     func() []netip.Addr { return []netip.Addr{nodeIP(o.Name)} },
		Allocatable: func() corev1.ResourceList { return s.node.Status.Allocatable },
		ClusterDNS:  dns, ClusterDomain: config.Kubelet.ClusterDomain, Node: &s.tree.Node,
	}
	if s.podCIDR = o.PodCIDR; !s.podCIDR.IsValid() {
		s.podCIDR = netip.MustParsePrefix("10.88.0.0/16")
	}
	return s, nil
}

// hostInfo describes the hardware of a node.
func hostInfo(name string, spec machine.Spec) hardware.Info {
	return hardware.Info{
		MachineID: name, SystemUUID: name, BootID: name, OSImage: "nodetest", CPUs: spec.CPUs, Memory: spec.Memory, Swap: spec.Swap, RootFS: spec.Disk.Bytes,
	}
}

// planClasses returns the limits for the cgroups of the QoS classes and for the cgroup that contains all pods. pods are the
// active pods of the node.
func (s *loopSetup) planClasses(pods []*corev1.Pod) []podtree.Update {
	return podtree.Plan(s.tree, pods, true)
}
