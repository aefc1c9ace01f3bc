// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package numa

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/cgroups/topology"
	"github.com/seed81659283/nodeagent/device"
)

// The values of [Config.Policy].
const (
	PolicyNone   = "None"   // no container has memory of its own
	PolicyStatic = "Static" // containers of Guaranteed pods have memory of their own
)

// The types of memory are the resource names [Memory] and, for huge pages, [HugePages] followed by the size of a page, for example "hugepages-2Mi".
const (
	Memory    = "memory"
	HugePages = "hugepages-"
)

// isMemory reports whether a resource is a type of memory.
func isMemory(name string) bool { return name == Memory || strings.HasPrefix(name, HugePages) }

// Config configures a [Policy] with the values of a kubelet's configuration. The zero value is the policy None.
type Config struct {
	Policy string // memoryManagerPolicy: [PolicyNone] or [PolicyStatic]; empty: [PolicyNone]
	// ReservedMemory is reservedMemory: the memory of each NUMA node that no container gets. The policy Static needs more than zero bytes of [Memory]. For
	// each type, the sum over all NUMA nodes must equal the sum of SystemReserved, KubeReserved and, for [Memory], HardEviction.
	ReservedMemory []Reservation
	SystemReserved map[string]resource.Quantity // systemReserved, by resource; only types of memory are read
	KubeReserved   map[string]resource.Quantity // kubeReserved, by resource; only types of memory are read
	HardEviction   resource.Quantity            // threshold of memory.available in evictionHard in bytes: the caller converts a percentage; zero: none
	PodLevel       bool                         // the gate PodLevelResourceManagers: pods with pod-level resources have memory of their own, too
	Kubelet        Kubelet
}

// Reservation is a value of [Config]: the memory of a NUMA node that no container gets. It is not the transaction [PodReservation].
type Reservation struct {
	Node   int                          // ID of the NUMA node
	Limits map[string]resource.Quantity // by type of memory
}

// Kubelet switches off differences between a [Policy] and the kubelet. The zero value keeps all differences.
type Kubelet struct {
	FreeInit      bool // [Policy.Start] frees the memory of the init containers before the started container
	RefuseChanged bool // [Policy.Restore] returns an error if the policy, the reserved memory or the machine has changed
}

// Source: validateReservedMemoryConfiguration in pkg/kubelet/apis/config/validation.
func checkReservations(list []Reservation) error {
	var errs []error
	type key struct {
		node int
		name string
	}
	seen := map[key]bool{}
	for _, r := range list {
		for _, name := range slices.Sorted(maps.Keys(r.Limits)) {
			q := r.Limits[name]
			if !isMemory(name) {
				errs = append(errs, fmt.Errorf("invalid configuration: the limit type %q for NUMA node %d is not supported, only [memory hugepages-<HugePageSize>] is accepted", name, r.Node))
			}
			if q.IsZero() {
				errs = append(errs, fmt.Errorf("invalid configuration: reserved memory may not be zero for NUMA node %d and resource %q", r.Node, name))
			}
			if seen[key{r.Node, name}] {
				errs = append(errs, fmt.Errorf("invalid configuration: the reserved memory has a duplicate value for NUMA node %d and resource %q", r.Node, name))
			}
			seen[key{r.Node, name}] = true
		}
	}
	return errors.Join(errs...)
}

// reservation returns the bytes that c reserves of each type of memory, by NUMA node of the machine. Source: getSystemReservedMemory in
// pkg/kubelet/cm/memorymanager/memory_manager.go.
func (c *Config) reservation(machine *topology.Machine) (map[int]map[string]uint64, error) {
	byNode := make(map[int]map[string]uint64, len(machine.Nodes))
	for i := range machine.Nodes {
		byNode[machine.Nodes[i].ID] = map[string]uint64{}
	}
	totals := map[string]resource.Quantity{}
	for _, r := range c.ReservedMemory {
		if byNode[r.Node] == nil {
			return nil, fmt.Errorf("the reserved memory configuration references a NUMA node %d that does not exist on this machine", r.Node)
		}
		for name, q := range r.Limits {
			sum := q.DeepCopy()
			if total, ok := totals[name]; ok {
				sum.Add(total)
			}
			totals[name] = sum
		}
	}
	if err := c.checkTotals(totals); err != nil {
		return nil, err
	}
	for _, r := range c.ReservedMemory {
		for _, name := range slices.Sorted(maps.Keys(r.Limits)) {
			q := r.Limits[name]
			bytes, ok := q.AsInt64()
			if !ok {
				return nil, errors.New("could not covert a variable of type Quantity to int64")
			}
			if bytes < 0 {
				return nil, fmt.Errorf("reservedMemory: NUMA node %d, %s: %s is negative", r.Node, name, q.String())
			}
			byNode[r.Node][name] = uint64(bytes)
		}
	}
	return byNode, nil
}

// checkTotals compares the memory that ReservedMemory reserves on all NUMA nodes with the memory that the node reserves. Source: validateReservedMemory
// in pkg/kubelet/cm/memorymanager/memory_manager.go, GetNodeAllocatableReservation in pkg/kubelet/cm/node_container_manager_linux.go.
func (c *Config) checkTotals(totals map[string]resource.Quantity) error {
	eviction := map[string]resource.Quantity{Memory: c.HardEviction}
	names := map[string]bool{}
	for _, m := range []map[string]resource.Quantity{totals, c.SystemReserved, c.KubeReserved, eviction} {
		for name := range m {
			if isMemory(name) {
				names[name] = true
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		var allocatable, reserved resource.Quantity
		allocatable.Format, reserved.Format = resource.DecimalSI, resource.DecimalSI
		for _, m := range []map[string]resource.Quantity{c.SystemReserved, c.KubeReserved, eviction} {
			allocatable.Add(m[name])
		}
		reserved.Add(totals[name])
		if !allocatable.Equal(reserved) {
			return fmt.Errorf("the total amount %q of type %q is not equal to the value %q determined by Node Allocatable feature", reserved.String(), name, allocatable.String())
		}
	}
	return nil
}

// NewPolicy returns the policy of config on a machine. It returns the kubelet's error if a kubelet with this configuration would not start; if the sums of
// several types of memory are wrong, the error names the first type, and that of the kubelet a random type. Under [PolicyStatic] it also returns an error
// if an amount in ReservedMemory is negative, if the ID of a NUMA node is above 63 or not unique, or if a NUMA node has more than 2^56 bytes of a type.
// Source: NewManager in pkg/kubelet/cm/memorymanager/memory_manager.go.
func NewPolicy(machine *topology.Machine, config Config) (*Policy, error) {
	if err := checkReservations(config.ReservedMemory); err != nil {
		return nil, err
	}
	switch config.Policy {
	case "", PolicyNone:
		return &Policy{kubelet: config.Kubelet}, nil
	case PolicyStatic:
	case "BestEffort":
		return nil, errors.New(`policy "BestEffort" is not available for platform "linux"`)
	default:
		return nil, fmt.Errorf("unknown policy: %q", config.Policy)
	}
	reserved, err := config.reservation(machine)
	if err != nil {
		return nil, err
	}
	var total uint64
	for _, byType := range reserved {
		total += byType[Memory]
	}
	if total == 0 {
		return nil, errors.New("[memorymanager] you should specify the system reserved memory")
	}
	p := &Policy{static: true, podLevel: config.PodLevel, kubelet: config.Kubelet}
	if err := p.addNodes(machine.Nodes, reserved); err != nil {
		return nil, err
	}
	return p, nil
}

// maxNodeMemory is the largest size of a NUMA node in bytes, so that the sum of all nodes is a number of 64 bits.
const maxNodeMemory = 1 << 56

// addNodes adds the NUMA nodes of the machine to a new policy. reserved has the bytes that no container gets, by node and type.
func (p *Policy) addNodes(nodes []topology.Node, reserved map[int]map[string]uint64) error {
	nodes = slices.SortedFunc(slices.Values(nodes), func(a, b topology.Node) int { return a.ID - b.ID })
	names := map[string]bool{Memory: true}
	tables := make([]map[string]Amounts, len(nodes))
	for i := range nodes {
		mask, err := device.NewMask(nodes[i].ID)
		if err != nil {
			return err
		}
		if p.machine&mask != 0 {
			return fmt.Errorf("NUMA node %d is listed twice", nodes[i].ID)
		}
		p.machine |= mask
		p.ids = append(p.ids, nodes[i].ID)
		p.position[nodes[i].ID] = int8(i)
		if tables[i], err = newTable(&nodes[i], reserved[nodes[i].ID]); err != nil {
			return fmt.Errorf("NUMA node %d: %w", nodes[i].ID, err)
		}
		for name := range tables[i] {
			names[name] = true
		}
	}
	p.types = slices.Sorted(maps.Keys(names))
	for i := range nodes {
		for _, name := range p.types {
			amounts, ok := tables[i][name]
			p.amounts, p.present = append(p.amounts, amounts), append(p.present, ok)
		}
	}
	p.rankNodes()
	p.empty = p.newState()
	p.setSingles()
	return nil
}

// newTable returns the amounts of each type of memory on a NUMA node. reserved has the bytes that no container gets. What exceeds the memory of the node
// leaves zero bytes. Source: getDefaultMachineState in pkg/kubelet/cm/memorymanager/policy_static.go.
func newTable(node *topology.Node, reserved map[string]uint64) (map[string]Amounts, error) {
	table := map[string]Amounts{}
	pages := uint64(0) // bytes
	for _, h := range node.HugePages {
		if h.Size > maxNodeMemory || h.Size != 0 && h.Count > maxNodeMemory/h.Size {
			return nil, fmt.Errorf("%d huge pages of %d bytes: more than %d bytes", h.Count, h.Size, uint64(maxNodeMemory))
		}
		name := HugePages + resource.NewQuantity(int64(h.Size), resource.BinarySI).String()
		table[name] = newAmounts(h.Count*h.Size, reserved[name], 0)
		pages += h.Count * h.Size
	}
	if node.Memory > maxNodeMemory {
		return nil, fmt.Errorf("memory of %d bytes: more than %d bytes", node.Memory, uint64(maxNodeMemory))
	}
	table[Memory] = newAmounts(node.Memory, reserved[Memory], pages)
	return table, nil
}

// newAmounts returns the amounts of a type of memory that no container uses. pages is the number of bytes in huge pages.
func newAmounts(total, reserved, pages uint64) Amounts {
	allocatable := subtract(subtract(total, reserved), pages)
	return Amounts{Total: total, SystemReserved: reserved, Allocatable: allocatable, Free: allocatable}
}

// subtract returns a-b, or zero if b is larger.
func subtract(a, b uint64) uint64 { return a - min(a, b) }
