// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest

import (
	"net/netip"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

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
	config  nodestatus.Config
	info    hardware.Info
	ips     []netip.Addr // of the node
	spec    podspec.Options
	tree    podtree.Options
	policy  *eviction.Policy // nil: no thresholds
	podCIDR netip.Prefix
}

// newLoopSetup returns the setup of a node with the machine spec. ranker creates the ranker that orders pods for eviction;
// nil means the order of the kubelet. now is the current time. sharer may be nil.
func newLoopSetup(
	o *Options, spec machine.Spec, ranker func(eviction.Layout) eviction.EvictionRanker, now time.Time, sharer *setupSharer,
) (s *loopSetup, err error) {
	s = &loopSetup{}
	config := o.nodeConfig()
	config.Node.Kubeconfig, config.Kubelet.EnableServer = "nodetest", new(bool)
	if err := config.SetDefaults(); err != nil {
		return nil, err
	}
	if err := config.Validate(); err != nil {
		return nil, err
	}
	rules, err := config.Kubelet.EvictionRules()
	if err != nil {
		return nil, err
	}
	rules.Ranker = ranker
	if s.policy, err = sharer.newPolicy(rules); err != nil {
		return nil, err
	}
	reserved, err := config.Kubelet.Reserved()
	if err != nil {
		return nil, err
	}
	s.tree = podtree.MachineOptions(spec.CPUs, spec.Memory, spec.Swap)
	s.tree.Reserved = podtree.Reserved{System: reserved.System, Kube: reserved.Kube}
	s.config, s.info, s.ips = config.NodeStatus(), hostInfo(o.Name, spec), config.Node.NodeIPs
	if len(s.ips) == 0 {
		s.ips = []netip.Addr{nodeIP(o.Name)}
	}
	s.node, _ = nodestatus.Initial(nodestatus.Facts{Config: s.config, Machine: s.info, Now: now})
	dns, err := config.Kubelet.DNS()
	if err != nil {
		return nil, err
	}
	ips, allocatable := s.ips, sharer.shareList(s.node.Status.Allocatable)
	s.spec = podspec.Options{
		HostIPs:     func() []netip.Addr { return ips },
		Allocatable: func() corev1.ResourceList { return allocatable },
		ClusterDNS:  dns, ClusterDomain: config.Kubelet.ClusterDomain, Node: new(s.tree.Node),
	}
	if s.podCIDR = o.PodCIDR; !s.podCIDR.IsValid() {
		s.podCIDR = netip.MustParsePrefix("10.88.0.0/16")
	}
	return s, nil
}

// setupSharer has the values that nodes with equal options share. A nil sharer shares nothing.
type setupSharer struct {
	policies []sharedPolicy
	lists    []corev1.ResourceList
}

// sharedPolicy is a policy with the order of the kubelet. It is immutable.
type sharedPolicy struct {
	rules  eviction.Rules
	policy *eviction.Policy
}

// maxShared is the number of different values that a setupSharer keeps of each kind.
const maxShared = 16

// newPolicy returns the policy with these rules.
func (s *setupSharer) newPolicy(rules eviction.Rules) (*eviction.Policy, error) {
	if s == nil || rules.Ranker != nil { // functions cannot be compared
		return eviction.NewPolicy(rules)
	}
	for _, known := range s.policies {
		if reflect.DeepEqual(known.rules, rules) {
			return known.policy, nil
		}
	}
	policy, err := eviction.NewPolicy(rules)
	if err == nil && len(s.policies) < maxShared {
		s.policies = append(s.policies, sharedPolicy{rules, policy})
	}
	return policy, err
}

// shareList returns a list that is equal to list. The caller must not change it.
func (s *setupSharer) shareList(list corev1.ResourceList) corev1.ResourceList {
	if s == nil {
		return list
	}
	for _, known := range s.lists {
		if apiequality.Semantic.DeepEqual(known, list) {
			return known
		}
	}
	if len(s.lists) < maxShared {
		s.lists = append(s.lists, list)
	}
	return list
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
