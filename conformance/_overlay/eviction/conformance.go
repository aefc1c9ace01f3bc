// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package eviction gets this file by the overlay of package conformance. It exports single passes of the eviction manager, and
// its rank functions.
package eviction

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	evictionapi "k8s.io/kubernetes/pkg/kubelet/eviction/api"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/kubernetes/pkg/kubelet/server/stats"
	"k8s.io/utils/clock"
)

// ConformanceManager is an eviction manager whose passes a test runs one by one.
type ConformanceManager struct{ m *managerImpl }

// NewConformanceManager returns the kubelet's eviction manager, which calls the given components.
func NewConformanceManager(summary stats.SummaryProvider, config Config, kill KillPodFunc, images ImageGC, containers ContainerGC,
	recorder record.EventRecorder, c clock.WithTicker, localStorage bool,
) *ConformanceManager {
	m, _ := NewManager(summary, config, kill, images, containers, recorder, &v1.ObjectReference{Kind: "Node", Name: "node"}, c, localStorage)
	return &ConformanceManager{m.(*managerImpl)}
}

// Synchronize runs one pass of the manager, which reads its summary and evicts a pod if necessary. It calls pods() for the
// active pods.
func (c *ConformanceManager) Synchronize(ctx context.Context, disks DiskInfoProvider, pods ActivePodsFunc) error {
	_, err := c.m.synchronize(ctx, disks, pods)
	return err
}

// Conditions returns the types of the node conditions that the manager reports as True.
func (c *ConformanceManager) Conditions() []v1.NodeConditionType { return c.m.nodeConditions }

// SetConditions replaces the types of the node conditions that the manager reports as True.
func (c *ConformanceManager) SetConditions(conditions []v1.NodeConditionType) {
	c.m.nodeConditions = conditions
}

// Admit returns the manager's decision whether pod may start on the node.
func (c *ConformanceManager) Admit(ctx context.Context, pod *v1.Pod) lifecycle.PodAdmitResult {
	return c.m.Admit(ctx, &lifecycle.PodAdmitAttributes{Pod: pod})
}

// Save saves the state of the manager. The returned function restores it, so that a test can repeat a pass. This is
// necessary because the kubelet handles thresholds of equal rank in random order, the order of a map.
func (c *ConformanceManager) Save() (restore func()) {
	conditions, observed, first, met, last := c.m.nodeConditions, c.m.nodeConditionsLastObservedAt, c.m.thresholdsFirstObservedAt, c.m.thresholdsMet, c.m.lastObservations
	return func() {
		c.m.nodeConditions, c.m.nodeConditionsLastObservedAt, c.m.thresholdsFirstObservedAt, c.m.thresholdsMet, c.m.lastObservations = conditions, observed, first, met, last
	}
}

// ConformanceRank sorts pods in the order in which the kubelet evicts them for signal. If dedicated is true, images have a
// filesystem of their own. If split is true, images and writable layers are on different filesystems.
func ConformanceRank(signal evictionapi.Signal, dedicated, split bool, pods []*v1.Pod, summary *statsapi.Summary) {
	_, statsOf := makeSignalObservations(klog.Background(), summary)
	buildSignalToRankFunc(dedicated, split)[signal](pods, statsOf)
}
