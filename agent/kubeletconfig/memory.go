// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/cgroups/numa"
	"github.com/seed81659283/nodeagent/cgroups/podtree"
	"github.com/seed81659283/nodeagent/cgroups/topology"
	"github.com/seed81659283/nodeagent/internal/quantity"
)

// MemoryReservation is the memory of a NUMA node that no container gets.
type MemoryReservation struct {
	NUMANode int32             `json:"numaNode"`
	Limits   map[string]Amount `json:"limits"` // by type: memory, or huge pages such as hugepages-2Mi
}

// Amount is a resource quantity from untrusted JSON. Text with a huge exponent, which takes minutes to decode, is an error.
type Amount struct{ resource.Quantity }

// UnmarshalJSON decodes a string or a number. It refuses a number with a huge exponent.
func (a *Amount) UnmarshalJSON(text []byte) (err error) {
	number := strings.TrimSpace(string(text))
	if number == "null" {
		return nil
	}
	if strings.HasPrefix(number, `"`) {
		if err := json.Unmarshal(text, &number); err != nil {
			return err
		}
	}
	if a.Quantity, err = quantity.Parse(number); err != nil {
		return fmt.Errorf("%q: %w", number, err)
	}
	return nil
}

// MemoryManager returns the configuration of memory on NUMA nodes. memory is the memory of the machine in bytes, of which evictionHard may keep a part
// free. Whether the configuration suits the machine is checked by numa.NewPolicy.
func (c *Configuration) MemoryManager(memory int64) (config numa.Config, err error) {
	for _, r := range c.ReservedMemory {
		limits := map[string]resource.Quantity{}
		for name, amount := range r.Limits {
			limits[name] = amount.Quantity
		}
		config.ReservedMemory = append(config.ReservedMemory, numa.Reservation{Node: int(r.NUMANode), Limits: limits})
	}
	var policyErr, reservedErr error
	switch c.MemoryManagerPolicy {
	case "", numa.PolicyNone, numa.PolicyStatic:
	case "BestEffort":
		policyErr = errors.New(`memoryManagerPolicy: policy "BestEffort" is not available for platform "linux"`)
	default:
		policyErr = fmt.Errorf("memoryManagerPolicy: unknown policy: %q, want None or Static", shortenText([]byte(c.MemoryManagerPolicy)))
	}
	if _, err := numa.NewPolicy(&topology.Machine{}, config); err != nil { // the policy None: only reservedMemory is checked
		reservedErr = fmt.Errorf("reservedMemory: %s", strings.ReplaceAll(err.Error(), "\n", "\nreservedMemory: "))
	}
	if err := errors.Join(policyErr, reservedErr); err != nil {
		return config, err
	}
	reserved, err := c.Reserved()
	if err != nil {
		return config, err
	}
	capacity := corev1.ResourceList{corev1.ResourceMemory: *resource.NewQuantity(memory, resource.BinarySI)}
	evicted := podtree.Reserved{MemoryAvailable: reserved.MemoryAvailable}.Reservation(capacity)
	config.Policy, config.HardEviction, config.PodLevel = c.MemoryManagerPolicy, evicted[corev1.ResourceMemory], c.hasPodLevelManagers()
	config.SystemReserved, config.KubeReserved = memoryOf(reserved.System), memoryOf(reserved.Kube)
	return config, nil
}

// memoryOf returns the memory in a list of resources.
func memoryOf(list corev1.ResourceList) map[string]resource.Quantity {
	return map[string]resource.Quantity{numa.Memory: list[corev1.ResourceMemory]}
}
