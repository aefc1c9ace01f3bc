// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package eviction gets this file by way of the overlay: it opens one pass of the manager, and the rank functions.
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

// ConformanceManager is a manager whose passes are run one by one.
type ConformanceManager struct{ m *managerImpl }

// NewConformanceManager returns a manager as the kubelet makes it.
func NewConformanceManager(summary stats.SummaryProvider, config Config, kill KillPodFunc, images ImageGC, containers ContainerGC,
	recorder record.EventRecorder, c clock.WithTicker, localStorage bool,
) *ConformanceManager {
	m, _ := NewManager(summary, config, kill, images, containers, recorder, &v1.ObjectReference{Kind: "Node", Name: "node"}, c, localStorage)
	return &ConformanceManager{m.(*managerImpl)}
}

// Synchronize is one pass.
func (c *ConformanceManager) Synchronize(ctx context.Context, disks DiskInfoProvider, pods ActivePodsFunc) error {
	_, err := c.m.synchronize(ctx, disks, pods)
	return err
}

// Conditions returns the conditions that are true.
func (c *ConformanceManager) Conditions() []v1.NodeConditionType { return c.m.nodeConditions }

// SetConditions makes conditions true.
func (c *ConformanceManager) SetConditions(conditions []v1.NodeConditionType) {
	c.m.nodeConditions = conditions
}

// Admit is what is said to a pod.
func (c *ConformanceManager) Admit(ctx context.Context, pod *v1.Pod) lifecycle.PodAdmitResult {
	return c.m.Admit(ctx, &lifecycle.PodAdmitAttributes{Pod: pod})
}

// Save returns a function that brings back the state of now. The order in which thresholds of the same rank are handled is that
// of a map, so that a pass may have to be run more than once for the order that is wanted.
func (c *ConformanceManager) Save() (restore func()) {
	conditions, observed, first, met, last := c.m.nodeConditions, c.m.nodeConditionsLastObservedAt, c.m.thresholdsFirstObservedAt, c.m.thresholdsMet, c.m.lastObservations
	return func() {
		c.m.nodeConditions, c.m.nodeConditionsLastObservedAt, c.m.thresholdsFirstObservedAt, c.m.thresholdsMet, c.m.lastObservations = conditions, observed, first, met, last
	}
}

// ConformanceRank ranks pods for a signal.
func ConformanceRank(signal evictionapi.Signal, dedicated, split bool, pods []*v1.Pod, summary *statsapi.Summary) {
	_, statsOf := makeSignalObservations(klog.Background(), summary)
	buildSignalToRankFunc(dedicated, split)[signal](pods, statsOf)
}
