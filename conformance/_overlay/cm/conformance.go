// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package cm gets this file by the overlay of package conformance. It exports the cgroup operations of the kubelet's container
// manager.
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

// ConformanceNode is a started container manager. It writes to the CgroupManager of the caller.
type ConformanceNode struct{ m *containerManagerImpl }

// NewConformanceNode returns a container manager for a node with this capacity and at most pids processes. It calls pods()
// for the active pods. The cgroup of all pods is kubepods in config.CgroupRoot, a path in cgroupfs form.
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

// Pods returns the manager of the cgroups of single pods.
func (n *ConformanceNode) Pods() PodContainerManager { return n.m.NewPodContainerManager() }

// Allocatable returns two amounts of resources: the node allocatable that the cgroup of all pods enforces, and the resources
// that the scheduler must not use. It returns an error if the kubelet rejects the configuration.
func (n *ConformanceNode) Allocatable() (absolute, reserved v1.ResourceList, err error) {
	return n.m.GetNodeAllocatableAbsolute(), n.m.GetNodeAllocatableReservation(), n.m.validateNodeAllocatable()
}

// Start writes the cgroups that a starting kubelet writes, in the same order. It calls enforced() after enforcing the node
// allocatable. Then it updates the cgroups of the QoS classes, as the kubelet does a minute later.
func (n *ConformanceNode) Start(ctx context.Context, enforced func()) error {
	logger := klog.FromContext(ctx)
	if err := n.m.createNodeAllocatableCgroups(logger); err != nil {
		return err
	}
	if err := n.startClasses(ctx); err != nil {
		return err
	}
	// The kubelet updates the cgroup of all pods in a goroutine, which may still run when Start returns.
	err := n.m.enforceNodeAllocatableCgroups(logger)
	enforced()
	return errors.Join(err, n.m.qosContainerManager.UpdateCgroups(logger))
}

// startClasses creates the cgroups of the QoS classes, with a second manager whose update loop it stops.
func (n *ConformanceNode) startClasses(ctx context.Context) error {
	classes, err := NewQOSContainerManager(nil, n.m.cgroupRoot, n.m.NodeConfig, n.m.cgroupManager)
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	// The update loop calls end to list the active pods, and end exits the goroutine of the loop.
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

// ConformanceResources returns the resources that the kubelet passes to the cgroup library for config, on a host with all
// cgroup controllers.
func ConformanceResources(ctx context.Context, config *ResourceConfig) *libcontainercgroups.Resources {
	availableRootControllersOnce.Do(func() {
		availableRootControllers = sets.New("cpu", "cpuset", "hugetlb", "io", "memory", "pids")
	})
	m := &cgroupCommon{subsystems: &CgroupSubsystems{MountPoints: map[string]string{"hugetlb": "/sys/fs/cgroup/hugetlb"}}}
	return m.toResources(klog.FromContext(ctx), config)
}

// ConformanceWeight returns the cpu.weight of cgroup v2 that the kubelet writes for these CPU shares of cgroup v1.
func ConformanceWeight(shares uint64) uint64 { return getCPUWeight(&shares) }

// ConformanceShares returns the CPU shares of cgroup v1 that the kubelet computes from this cpu.weight of cgroup v2.
func ConformanceShares(weight uint64) uint64 { return cpuWeightToCPUShares(weight) }
