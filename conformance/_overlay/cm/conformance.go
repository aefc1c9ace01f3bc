// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package cm gets this file by way of the overlay: it opens what the package does to its cgroups.
package cm

import (
	"context"
	"errors"
	"runtime"

	libcontainercgroups "github.com/opencontainers/cgroups"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	"k8s.io/kubernetes/pkg/kubelet/stats/pidlimit"
)

// ConformanceNode is a container manager that has started, on cgroups that the caller holds.
type ConformanceNode struct{ m *containerManagerImpl }

// NewConformanceNode returns the manager of a node that has this capacity, and so many process IDs, and runs these pods.
// The root of the tree is config.CgroupRoot, as a name for the cgroupfs driver; the pods go below kubepods in it.
func NewConformanceNode(ctx context.Context, config NodeConfig, capacity v1.ResourceList, pids int64, cgroups CgroupManager, pods ActivePodsFunc) *ConformanceNode {
	root := NewCgroupName(ParseCgroupfsToCgroupName(config.CgroupRoot), defaultNodeAllocatableCgroupName)
	internal := capacity.DeepCopy()
	if pids > 0 {
		internal[pidlimit.PIDs] = *resource.NewQuantity(pids, resource.DecimalSI)
	}
	m := &containerManagerImpl{
		NodeConfig:       config,
		nodeInfo:         &v1.Node{},
		cgroupManager:    cgroups,
		capacity:         capacity,
		internalCapacity: internal,
		cgroupRoot:       root,
		recorder:         &record.FakeRecorder{},
		cpuManager:       cpumanager.NewFakeManager(klog.FromContext(ctx)),
	}
	m.qosContainerManager = &qosContainerManagerImpl{
		qosContainersInfo: QOSContainersInfo{
			Guaranteed: root,
			Burstable:  NewCgroupName(root, "burstable"),
			BestEffort: NewCgroupName(root, "besteffort"),
		},
		cgroupManager:           cgroups,
		cgroupRoot:              root,
		activePods:              pods,
		getNodeAllocatable:      m.GetNodeAllocatableAbsolute,
		qosReserved:             config.QOSReserved,
		memoryReservationPolicy: config.MemoryReservationPolicy,
	}
	return &ConformanceNode{m}
}

// Pods returns the manager of the cgroups of pods.
func (n *ConformanceNode) Pods() PodContainerManager { return n.m.NewPodContainerManager() }

// Allocatable returns what is left for pods by the cgroup, what is reserved from the scheduler, and whether the
// configuration is refused.
func (n *ConformanceNode) Allocatable() (absolute, reserved v1.ResourceList, err error) {
	return n.m.GetNodeAllocatableAbsolute(), n.m.GetNodeAllocatableReservation(), n.m.validateNodeAllocatable()
}

// Start writes all that the start of the kubelet writes, in its order, and what it writes a minute later. The update
// of the cgroup of all pods runs beside it and may not have ended.
func (n *ConformanceNode) Start(ctx context.Context, enforced func()) error {
	logger := klog.FromContext(ctx)
	if err := n.m.createNodeAllocatableCgroups(logger); err != nil {
		return err
	}
	if err := n.startClasses(ctx); err != nil {
		return err
	}
	err := n.m.enforceNodeAllocatableCgroups(logger)
	enforced()
	return errors.Join(err, n.m.qosContainerManager.UpdateCgroups(logger))
}

// startClasses starts a manager of the cgroups of the classes. Its loop never ends by itself; asking it for the pods
// ends it here, and n.m.qosContainerManager stands in for it.
func (n *ConformanceNode) startClasses(ctx context.Context) error {
	classes, err := NewQOSContainerManager(nil, n.m.cgroupRoot, n.m.NodeConfig, n.m.cgroupManager)
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	end := func() []*v1.Pod {
		defer close(ended)
		runtime.Goexit()
		return nil
	}
	if err := classes.Start(ctx, n.m.GetNodeAllocatableAbsolute, end); err != nil {
		return err
	}
	<-ended
	return nil
}

// ConformanceResources returns what is handed to the library that writes the files, on a host with all controllers.
func ConformanceResources(ctx context.Context, config *ResourceConfig) *libcontainercgroups.Resources {
	availableRootControllersOnce.Do(func() {
		availableRootControllers = sets.New("cpu", "cpuset", "hugetlb", "io", "memory", "pids")
	})
	m := &cgroupCommon{subsystems: &CgroupSubsystems{MountPoints: map[string]string{"hugetlb": "/sys/fs/cgroup/hugetlb"}}}
	return m.toResources(klog.FromContext(ctx), config)
}

// ConformanceWeight is the weight that is written for some shares.
func ConformanceWeight(shares uint64) uint64 { return getCPUWeight(&shares) }

// ConformanceShares is the shares that are read from a weight.
func ConformanceShares(weight uint64) uint64 { return cpuWeightToCPUShares(weight) }
