// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cpumanager

import (
	"sync/atomic"

	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/topology"
	"k8s.io/utils/cpuset"

	"github.com/seed81659283/nodeagent/cgroups/cpus"
)

// unitTakes counts the calls of cpus.Layout.Take.
var unitTakes atomic.Int64 //nolint:gochecknoglobals // the kubelet creates the policies, so that no value of the tests can hold the number

func takeByTopologyNUMAPacked(_ klog.Logger, topo *topology.CPUTopology, availableCPUs cpuset.CPUSet, numCPUs int, cpuSortingStrategy CPUSortingStrategy, preferAlignByUncoreCache bool) (cpuset.CPUSet, error) {
	return unitTake(topo, availableCPUs, numCPUs, cpus.Options{SpreadCores: cpuSortingStrategy == CPUSortingStrategySpread, AlignCaches: preferAlignByUncoreCache})
}

func takeByTopologyNUMADistributed(_ klog.Logger, topo *topology.CPUTopology, availableCPUs cpuset.CPUSet, numCPUs int, cpuGroupSize int, cpuSortingStrategy CPUSortingStrategy, alignBySocket bool) (cpuset.CPUSet, error) {
	return unitTake(topo, availableCPUs, numCPUs, cpus.Options{
		SpreadNodes: true, WholeCores: cpuGroupSize > 1, SpreadCores: cpuSortingStrategy == CPUSortingStrategySpread, AlignSocket: alignBySocket,
	})
}

// unitTake takes CPUs with cpus.Layout.Take.
func unitTake(topo *topology.CPUTopology, available cpuset.CPUSet, count int, options cpus.Options) (cpuset.CPUSet, error) {
	unitTakes.Add(1)
	layout, err := cpus.NewLayout(unitMachine(topo))
	if err != nil {
		return cpuset.New(), err
	}
	taken, err := layout.Take(unitSet(available), count, options)
	return unitKubeletSet(taken), err
}
