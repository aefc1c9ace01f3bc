// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cpus

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/seed81659283/nodeagent/cgroups/topology"
	"github.com/seed81659283/nodeagent/device"
)

// The values of [Config.Policy].
const (
	PolicyNone   = "none"   // no container gets exclusive CPUs
	PolicyStatic = "static" // containers of Guaranteed pods that request whole CPUs get exclusive CPUs
)

// Config configures a [Policy] with the values of a kubelet's configuration. The zero value is the policy none.
type Config struct {
	Policy  string            // cpuManagerPolicy: [PolicyNone] or [PolicyStatic]; empty: [PolicyNone]
	Options map[string]string // cpuManagerPolicyOptions; the policy none has no options
	// ReservedMillis is the CPU of kubeReserved and systemReserved together, in millicores. The policy static reserves this number of CPUs, rounded up
	// to whole CPUs. NewPolicy returns an error if ReservedCPUs has another number. Zero: the number of CPUs in ReservedCPUs.
	ReservedMillis int64
	// ReservedCPUs is reservedSystemCPUs: the CPUs that no container gets exclusively. Empty: the policy static chooses them.
	ReservedCPUs topology.CPUSet
	// Topology is the policy of the topology manager that merges the hints. SingleNUMANode excludes the option align-by-socket.
	Topology device.Policy
	Gates    Gates
	Kubelet  Kubelet
}

// Gates are the feature gates of options that are not stable. The zero value has the defaults of Kubernetes 1.37.
type Gates struct {
	AlphaOptions  bool // CPUManagerPolicyAlphaOptions is true
	NoBetaOptions bool // CPUManagerPolicyBetaOptions is false
	PodLevel      bool // PodLevelResourceManagers is true: pods with pod-level resources have exclusive CPUs, too
}

// Kubelet switches off differences between a [Policy] and the kubelet. The zero value keeps all differences.
type Kubelet struct {
	EmptyPool     bool // the shared pool may become empty: with strict-cpu-reservation, containers may get its last CPU exclusively
	RefuseChanged bool // Restore and ReadCheckpoint return an error for a state that does not fit the machine or the configuration
	RefuseRunning bool // hints and reservations may refuse a running pod after a restart
}

// The levels of options.
const (
	stable = iota
	beta
	alpha
)

// option is an option of the policy static.
type option struct {
	level int
	value *bool // where its value is stored
}

// options returns the options of the policy static by name. Source: pkg/kubelet/cm/cpumanager/policy_options.go.
func (p *Policy) options() map[string]option {
	return map[string]option{
		"full-pcpus-only":                  {stable, &p.take.WholeCores},
		"strict-cpu-reservation":           {stable, &p.strict},
		"prefer-align-cpus-by-uncorecache": {stable, &p.take.AlignCaches},
		"distribute-cpus-across-numa":      {beta, &p.take.SpreadNodes},
		"align-by-socket":                  {alpha, &p.take.AlignSocket},
		"distribute-cpus-across-cores":     {alpha, &p.take.SpreadCores},
	}
}

// setOptions stores the values of the options in p. Of several errors it returns that of the first name.
func (p *Policy) setOptions(values map[string]string, gates Gates) error {
	known := p.options()
	for _, name := range slices.Sorted(maps.Keys(values)) {
		o, ok := known[name]
		switch {
		case !ok:
			return fmt.Errorf("unknown CPU Manager Policy option: %q", name)
		case o.level == alpha && !gates.AlphaOptions:
			return fmt.Errorf("CPU Manager Policy Alpha-level Options not enabled, but option %q provided", name)
		case o.level == beta && gates.NoBetaOptions:
			return fmt.Errorf("CPU Manager Policy Beta-level Options not enabled, but option %q provided", name)
		}
		value, err := strconv.ParseBool(values[name])
		if err != nil {
			return fmt.Errorf("bad value for option %q: %w", name, err)
		}
		*o.value = value
	}
	for _, pair := range [][2]string{
		{"full-pcpus-only", "distribute-cpus-across-cores"},
		{"distribute-cpus-across-numa", "distribute-cpus-across-cores"},
		{"prefer-align-cpus-by-uncorecache", "distribute-cpus-across-cores"},
		{"prefer-align-cpus-by-uncorecache", "distribute-cpus-across-numa"},
	} {
		if *known[pair[0]].value && *known[pair[1]].value {
			return fmt.Errorf("static policy options %s and %s can not be used at the same time", pair[0], pair[1])
		}
	}
	return nil
}

// checkSocket returns an error if the option align-by-socket fits neither the topology policy nor the machine.
func (p *Policy) checkSocket() error {
	switch {
	case !p.take.AlignSocket:
		return nil
	case p.topology == device.SingleNUMANode:
		return fmt.Errorf("Topolgy manager %s policy is incompatible with CPUManager align-by-socket policy option", p.topology) //nolint:staticcheck // the kubelet's text
	case len(p.layout.sockets.ids) > len(p.layout.nodes.ids):
		return errors.New("Align by socket is not compatible with hardware where number of sockets are more than number of NUMA") //nolint:staticcheck // the kubelet's text
	}
	return nil
}

// setReserved stores the reserved CPUs: those of the configuration, or count CPUs that Take chooses from all CPUs.
func (p *Policy) setReserved(configured topology.CPUSet, count int) error {
	p.reserved = configured
	if configured.IsEmpty() {
		p.reserved, _ = p.layout.Take(p.layout.all, count, p.take) // too few CPUs are none, and the error is that of the size
	}
	if p.reserved.Len() != count {
		return fmt.Errorf("[cpumanager] unable to reserve the required amount of CPUs (size of %s did not equal %d)", p.reserved, count)
	}
	for id := range p.reserved.All() {
		p.reservedCores = p.reservedCores.Union(p.layout.cores.sets[p.layout.cores.of[id]])
	}
	return nil
}
