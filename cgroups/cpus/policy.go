// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cpus

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/seed81659283/nodeagent/cgroups/topology"
	"github.com/seed81659283/nodeagent/device"
)

// Policy decides which containers have exclusive CPUs, and which CPUs. It keeps no state: its methods are functions of a [State] and return the next
// one. A Policy is immutable, and may be used from several goroutines.
type Policy struct {
	layout   *Layout
	static   bool
	take     Options
	strict   bool // strict-cpu-reservation
	podLevel bool // the gate PodLevelResourceManagers is on
	topology device.Policy
	kubelet  Kubelet

	nodeSizes     []int          // numbers of CPUs of the NUMA nodes, the largest first
	whole         [2]device.Hint // the set of all NUMA nodes with CPUs: not preferred, and preferred
	reserved      topology.CPUSet
	reservedCores topology.CPUSet // all CPUs of the cores of reserved
}

// NewPolicy returns the policy of this configuration on a machine. It has the kubelet's error texts, with which a kubelet of this configuration does
// not start; of several wrong options, the kubelet's error names any one. Source: NewManager in pkg/kubelet/cm/cpumanager/cpu_manager.go, NewStaticPolicy
// in policy_static.go, getReservedCPUs in cmd/kubelet/app/server.go.
func NewPolicy(machine *topology.Machine, config Config) (*Policy, error) {
	if len(machine.CPUs) == 0 {
		return nil, errors.New("could not detect number of cpus")
	}
	layout, err := NewLayout(machine)
	if err != nil {
		return nil, err
	}
	p := &Policy{layout: layout, topology: config.Topology, podLevel: config.Gates.PodLevel, kubelet: config.Kubelet}
	for i := range layout.nodes.sets {
		p.nodeSizes = append(p.nodeSizes, layout.nodes.sets[i].Len())
		p.whole[0].Nodes |= layout.maskNode(i)
	}
	p.whole[1] = device.Hint{Nodes: p.whole[0].Nodes, Preferred: true}
	slices.SortFunc(p.nodeSizes, func(a, b int) int { return b - a })
	switch cmp.Or(config.Policy, PolicyNone) {
	case PolicyNone:
		if len(config.Options) > 0 {
			return nil, fmt.Errorf("new none policy error: None policy: received unsupported options=%v", config.Options)
		}
	case PolicyStatic:
		p.static = true
		if err := p.configure(config); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("unknown policy: %q", config.Policy)
	}
	return p, nil
}

// configure sets the fields of the policy static.
func (p *Policy) configure(config Config) error {
	count := int(config.ReservedMillis/1000 + min(1, config.ReservedMillis%1000))
	switch set := config.ReservedCPUs; {
	case !set.Minus(p.layout.all).IsEmpty():
		return fmt.Errorf("reserved-cpus: %s is not a subset of online-cpus: %s", set, p.layout.all)
	case config.ReservedMillis < 0:
		return fmt.Errorf("Config.ReservedMillis is %d: it must not be negative", config.ReservedMillis)
	case config.ReservedMillis == 0 && set.IsEmpty():
		return errors.New("[cpumanager] unable to determine reserved CPU resources for static policy")
	case config.ReservedMillis == 0:
		count = set.Len()
	}
	err := p.setOptions(config.Options, config.Gates)
	if err == nil {
		err = p.checkSocket()
	}
	if err == nil {
		err = p.setReserved(config.ReservedCPUs, count)
	}
	if err != nil {
		return fmt.Errorf("new static policy error: %w", err)
	}
	return nil
}

// Name returns [PolicyNone] or [PolicyStatic].
func (p *Policy) Name() string {
	if p.static {
		return PolicyStatic
	}
	return PolicyNone
}

// Topology returns Config.Topology.
func (p *Policy) Topology() device.Policy { return p.topology }

// Reserved returns the CPUs that no container gets exclusively. It is empty for the policy none.
func (p *Policy) Reserved() topology.CPUSet { return p.reserved }

// Allocatable returns the CPUs that containers can have exclusively if all of them are free. It is empty for the policy none.
func (p *Policy) Allocatable() topology.CPUSet {
	if !p.static {
		return topology.CPUSet{}
	}
	return p.layout.all.Minus(p.reserved)
}

// pool returns the CPUs of the machine that are shared as long as no container has exclusive CPUs.
func (p *Policy) pool() topology.CPUSet {
	if p.strict {
		return p.layout.all.Minus(p.reserved)
	}
	return p.layout.all
}
