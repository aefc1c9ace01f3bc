// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package prom

import (
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed81659283/nodeagent/cgroups/cpus"
	"github.com/seed81659283/nodeagent/cgroups/numa"
	"github.com/seed81659283/nodeagent/device"
)

// Values of the labels scope and boundary.
const (
	scopeContainer = "container"
	scopePod       = "pod"

	boundaryCore  = "physical_cpu"
	boundaryNode  = "numa_node"
	boundaryCache = "uncore_cache"
)

// managerMetrics are the metrics of the kubelet's CPU and memory managers.
type managerMetrics struct {
	group                          *group
	cpuRequests, cpuErrors         *counter
	memoryRequests, memoryErrors   *counter
	shared, exclusive, perNUMANode *computedGauge

	podLevel                                   *group // metrics of the gate PodLevelResourceManagers
	allocations, allocationErrors, assignments *counter

	mu    sync.Mutex        // guards usage
	usage func() cpus.Usage // nil: not known, and the gauges have no series
}

func (m *Metrics) buildManagers(g *group) {
	c := &m.managers
	c.group = g
	c.cpuRequests = g.addCounter("kubelet_cpu_manager_pinning_requests_total", "Containers that were to get exclusive CPUs.")
	c.cpuErrors = g.addCounter("kubelet_cpu_manager_pinning_errors_total", "Containers that could not get their exclusive CPUs.")
	c.memoryRequests = g.addCounter("kubelet_memory_manager_pinning_requests_total", "Containers that were to get memory of certain NUMA nodes.")
	c.memoryErrors = g.addCounter("kubelet_memory_manager_pinning_errors_total", "Containers that could not get their memory of certain NUMA nodes.")
	c.shared = m.newComputedGauge("kubelet_cpu_manager_shared_pool_size_millicores", "Shared CPUs that a container could get exclusively, in millicores.")
	c.exclusive = m.newComputedGauge("kubelet_cpu_manager_exclusive_cpu_allocation_count", "CPUs that containers have exclusively.")
	c.perNUMANode = m.newComputedGauge("kubelet_cpu_manager_allocation_per_numa", "CPUs of a NUMA node that containers have exclusively.", boundaryNode)
	g.collectors = append(g.collectors, c)
}

func (m *Metrics) buildPodLevelManagers(g *group) {
	c := &m.managers
	c.podLevel = g
	c.allocations = g.addCounter("kubelet_resource_manager_allocations_total", "Allocations of exclusive CPUs or memory.", "resource_name", "source")
	c.allocationErrors = g.addCounter("kubelet_resource_manager_allocation_errors_total", "Containers or pods that could not get their exclusive CPUs or memory.", "resource_name", "source")
	c.assignments = g.addCounter("kubelet_resource_manager_container_assignments_total", "Containers that got CPUs or memory, for themselves or with containers of their pod.", "resource_name", "assignment_type")
}

// recordShare counts the allocations for a container of which package placement has reported the outcome.
func (c *managerMetrics) recordShare(resource string, share device.Share, taken int, err error) {
	source, kind := "node", "node_exclusive"
	switch share {
	case device.OfNode:
	case device.OfPod:
		source, kind = "pod", "pod_exclusive"
	case device.SharedOfPod:
		source, kind = "pod", "pod_shared"
	}
	switch {
	case err != nil:
		c.allocationErrors.inc(resource, source)
	case taken > 0:
		c.allocations.add(float64(taken), resource, source)
		c.assignments.inc(resource, kind)
	}
}

// Describe implements prometheus.Collector.
func (c *managerMetrics) Describe(descs chan<- *prometheus.Desc) {
	for _, gauge := range []*computedGauge{c.shared, c.exclusive, c.perNUMANode} {
		if gauge != nil {
			descs <- gauge.desc
		}
	}
}

// Collect implements prometheus.Collector.
func (c *managerMetrics) Collect(metrics chan<- prometheus.Metric) {
	c.mu.Lock()
	usage := c.usage
	c.mu.Unlock()
	if usage == nil {
		return
	}
	u, t := usage(), gaugeValues{}
	t.addValue(c.shared, float64(u.Free)*1000)
	t.addValue(c.exclusive, float64(u.Exclusive))
	for id, count := range u.Nodes {
		t.addValue(c.perNUMANode, float64(count), strconv.Itoa(id))
	}
	t.sendMetrics(metrics)
}

// CPUUsage sets the function that returns the CPUs in use. Each request of a page calls it.
func (m *Metrics) CPUUsage(usage func() cpus.Usage) {
	c := &m.managers
	c.mu.Lock()
	defer c.mu.Unlock()
	c.usage = usage
}

// CPUs returns a function for the hook CPUsPinned of package device/placement, which counts containers that need exclusive CPUs. config is the
// configuration of the CPU manager.
func (m *Metrics) CPUs(config cpus.Config) (pinned func(cpus.Pinning)) {
	d := &m.devices
	m.managers.group.enabled.Store(true)
	if config.Gates.PodLevel {
		m.managers.podLevel.enabled.Store(true)
	}
	if config.Policy == cpus.PolicyStatic { // as in the kubelet, these series exist before the first pod
		d.aligned.add(0, scopeContainer, boundaryCore)
		d.aligned.add(0, scopeContainer, boundaryCache)
		d.notAligned.add(0, scopeContainer, boundaryCore)
	}
	if config.Topology != device.None {
		for _, scope := range []string{scopeContainer, scopePod} {
			d.aligned.add(0, scope, boundaryNode)
			d.notAligned.add(0, scope, boundaryNode)
		}
	}
	return m.recordPinning
}

// recordPinning counts a container that needs exclusive CPUs, or shares those of its pod. Source: allocateForAdd and allocatePodForAdd in
// pkg/kubelet/cm/cpumanager/policy_static.go.
func (m *Metrics) recordPinning(p cpus.Pinning) {
	c, d := &m.managers, &m.devices
	c.recordShare("cpu", p.Share, min(1, p.Taken.Len()), p.Err)
	if p.Share != device.SharedOfPod {
		c.cpuRequests.inc()
	}
	switch {
	case p.Err != nil:
		c.cpuErrors.inc()
		if p.WholeCores {
			d.notAligned.inc(scopeContainer, boundaryCore)
		}
		return
	case p.WholeCores:
		d.aligned.inc(scopeContainer, boundaryCore)
	}
	if p.OneCache {
		d.aligned.inc(scopeContainer, boundaryCache)
	}
}

// Memory returns a function for the hook MemoryPinned of package device/placement, which counts containers with memory of their own or of their pod.
func (m *Metrics) Memory() (pinned func(numa.Pinning)) {
	c := &m.managers
	c.group.enabled.Store(true)
	return func(p numa.Pinning) {
		c.recordShare("memory", p.Share, p.Taken, p.Err)
		if p.Share != device.SharedOfPod {
			c.memoryRequests.inc()
		}
		if p.Err != nil {
			c.memoryErrors.inc()
		}
	}
}
