// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package device

import (
	"cmp"
	"fmt"
	"slices"
)

// Device is a device of a plugin.
type Device struct {
	ID      string // unique within its resource
	Healthy bool
	Nodes   Mask // NUMA nodes to which it is connected; zero: none
}

// Pool has the devices of one resource, in the order in which [Pick] prefers them.
type Pool struct {
	Resource string // name of the extended resource, for example "example.com/gpu"
	Devices  []Device
	InUse    map[string]bool // IDs of devices that containers hold
}

// hasTopology reports whether any device has a NUMA node.
func (p *Pool) hasTopology() bool {
	return slices.ContainsFunc(p.Devices, func(d Device) bool { return d.Nodes != 0 })
}

// Request is the request of one container for devices of one resource.
type Request struct {
	PodUID    string // for errors
	Container string // for errors
	Count     int
	Held      []string // IDs that the container holds already
	Reusable  []string // IDs of earlier init containers of the pod, in the order of preference
	Nodes     Mask     // NUMA nodes of the merged hint; zero: any
}

// Choice is the selection of devices for a request. [Pick] starts the selection; [Choice.Complete] adds the devices that a plugin prefers.
type Choice struct {
	Count  int      // number of devices of the request
	Chosen []string // IDs that Pick has chosen; the plugin must include them
	Open   []string // IDs from which the plugin may choose; empty: no call of the plugin is needed

	fallback []string // IDs after the preferred ones, the best first
}

// Pick starts the selection of devices for a request, from healthy devices that are not in use. It chooses reusable devices first. Then it prefers
// devices on the NUMA nodes of the request to devices on other nodes, and these to devices without nodes. In each group, nodes with fewer free
// devices come first.
//
// If Choice.Open is not empty, the caller asks the plugin for its preferences. Then [Choice.Complete] returns the devices. If the container holds the
// devices already, the Choice is empty. The errors are those of the kubelet. Source: devicesToAllocate in pkg/kubelet/cm/devicemanager/manager.go.
func Pick(pool *Pool, request Request) (Choice, error) {
	c := Choice{Count: request.Count}
	if err := pool.checkRequest(request); err != nil || len(request.Held) == request.Count {
		return c, err
	}
	c.Chosen = slices.Clone(request.Reusable[:min(len(request.Reusable), request.Count)])
	needed := request.Count - len(c.Chosen)
	if needed == 0 {
		return c, nil
	}
	free := pool.findFree(c.Chosen)
	if len(free) < needed {
		return c, fmt.Errorf("requested number of devices unavailable for %s. Requested: %d, Available: %d", pool.Resource, needed, len(free))
	}
	aligned, others := pool.splitByHint(free, request.Nodes)
	if needed < len(aligned) {
		c.Open, c.fallback = aligned, aligned
		return c, nil
	}
	c.Chosen = append(c.Chosen, aligned...)
	if needed > len(aligned) {
		c.Open, c.fallback = others, others
	}
	return c, nil
}

// findFree returns the indexes in p.Devices of the devices that are healthy, not in use and not in taken.
func (p *Pool) findFree(taken []string) []int {
	skip := toSet(taken)
	free := make([]int, 0, len(p.Devices))
	for i := range p.Devices {
		d := &p.Devices[i]
		if d.Healthy && !p.InUse[d.ID] && (len(skip) == 0 || !skip[d.ID]) {
			free = append(free, i)
		}
	}
	return free
}

// checkRequest returns the kubelet's error if the container holds another number of devices or an unhealthy device, or if no device is healthy.
func (p *Pool) checkRequest(request Request) error {
	if held := len(request.Held); held > 0 && held != request.Count {
		return fmt.Errorf("pod %q container %q changed request for resource %q from %d to %d", request.PodUID, request.Container, p.Resource, held, request.Count)
	}
	if !slices.ContainsFunc(p.Devices, func(d Device) bool { return d.Healthy }) {
		return fmt.Errorf("no healthy devices present; cannot allocate unhealthy devices %s", p.Resource)
	}
	unhealthy := toSet(request.Held)
	for i := range p.Devices {
		if p.Devices[i].Healthy {
			delete(unhealthy, p.Devices[i].ID)
		}
	}
	if len(unhealthy) > 0 {
		return fmt.Errorf("previously allocated devices are no longer healthy; cannot allocate unhealthy devices %s", p.Resource)
	}
	return nil
}

// Complete returns the IDs of the devices for the request: first Chosen, then the IDs in preferred, then the best other devices in Open. It ignores
// IDs in preferred that are not in Open. preferred is nil if the plugin has no preference.
func (c *Choice) Complete(preferred []string) []string {
	ids := slices.Grow(slices.Clone(c.Chosen), c.Count-len(c.Chosen))
	if len(preferred) == 0 {
		return append(ids, c.fallback[:min(len(c.fallback), c.Count-len(ids))]...)
	}
	open := toSet(c.Open)
	for _, list := range [][]string{preferred, c.fallback} {
		for _, id := range list {
			if len(ids) == c.Count {
				return ids
			}
			if open[id] {
				open[id] = false
				ids = append(ids, id)
			}
		}
	}
	return ids
}

// noNode is the position of devices without NUMA nodes in the list of counts.
const noNode = 64

// splitByHint splits the devices at the indexes free: into IDs on the NUMA nodes of hint, and others in their order of preference. A device with
// several nodes counts for the best node. Source: filterByAffinity in pkg/kubelet/cm/devicemanager/manager.go.
func (p *Pool) splitByHint(free []int, hint Mask) (aligned, others []string) {
	if hint == 0 || !p.hasTopology() {
		others = make([]string, len(free))
		for i, at := range free {
			others[i] = p.Devices[at].ID
		}
		return nil, others
	}
	order := p.rankNodes(free, hint)
	var sizes [noNode + 1]int
	best := make([]uint8, len(free)) // node of each device
	for i, at := range free {
		best[i] = noNode
		if n := slices.IndexFunc(order, p.Devices[at].Nodes.Has); n >= 0 {
			best[i] = uint8(order[n])
		}
		sizes[best[i]]++
	}
	var next [noNode + 1]int // position of the next device of each node
	total := 0
	for _, n := range append(order, noNode) {
		next[n] = total
		total += sizes[n]
	}
	ids := make([]string, len(free))
	for i, at := range free {
		ids[next[best[i]]] = p.Devices[at].ID
		next[best[i]]++
	}
	count := 0 // of aligned devices, which are first
	for n := range hint.Nodes() {
		count += sizes[n]
	}
	return ids[:count:count], ids[count:]
}

// rankNodes returns the NUMA nodes of the devices at the indexes free: nodes in hint first, then nodes with fewer devices.
func (p *Pool) rankNodes(free []int, hint Mask) []int {
	var counts [noNode]int
	var all Mask
	for _, at := range free {
		all |= p.Devices[at].Nodes
		for n := range p.Devices[at].Nodes.Nodes() {
			counts[n]++
		}
	}
	return slices.SortedFunc(all.Nodes(), func(a, b int) int {
		return cmp.Or(-compareBool(hint.Has(a), hint.Has(b)), cmp.Compare(counts[a], counts[b]), cmp.Compare(a, b))
	})
}

// compareBool orders false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

func toSet(ids []string) map[string]bool {
	set := make(map[string]bool, len(ids))
	for _, id := range ids {
		set[id] = true
	}
	return set
}
