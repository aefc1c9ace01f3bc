// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package nodeshutdown gets this file by the overlay of package conformance. It exports the groups of pods in a node shutdown.
package nodeshutdown

import (
	"context"
	"sort"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/volumemanager"
	"k8s.io/utils/clock"
)

// ConformanceGroup is a group of pods that the kubelet terminates together, with its lowest priority and its grace period in
// seconds.
type ConformanceGroup struct {
	Priority int32
	Seconds  int64
	Pods     []string
}

// ConformanceGroups returns the groups of pods that the kubelet terminates in turn at a node shutdown, and the grace period of
// each pod in seconds, by name. list has the grace periods by priority; if it is empty, total and critical are
// shutdownGracePeriod and shutdownGracePeriodCriticalPods.
func ConformanceGroups(ctx context.Context, list []kubeletconfig.ShutdownGracePeriodByPodPriority, total, critical time.Duration, pods []*v1.Pod) ([]ConformanceGroup, map[string]int64) {
	var mu sync.Mutex
	var killed sync.WaitGroup
	killed.Add(len(pods))
	graces := map[string]int64{}
	m := newPodManager(&Config{
		Logger: klog.Background(), Clock: clock.RealClock{}, VolumeManager: volumemanager.NewFakeVolumeManager(nil, 0, nil, false),
		ShutdownGracePeriodRequested: total, ShutdownGracePeriodCriticalPods: critical, ShutdownGracePeriodByPodPriority: list,
		KillPodFunc: func(pod *v1.Pod, _ bool, grace *int64, _ func(*v1.PodStatus)) error {
			defer killed.Done()
			mu.Lock()
			defer mu.Unlock()
			graces[pod.Name] = *grace
			return nil
		},
	})
	if len(m.shutdownGracePeriodByPodPriority) == 0 {
		return nil, graces
	}
	var groups []ConformanceGroup
	for _, g := range groupByPriority(m.shutdownGracePeriodByPodPriority, pods) {
		group := ConformanceGroup{Priority: g.Priority, Seconds: g.ShutdownGracePeriodSeconds}
		for _, pod := range g.Pods {
			group.Pods = append(group.Pods, pod.Name)
		}
		sort.Strings(group.Pods)
		groups = append(groups, group)
	}
	if err := m.killPods(ctx, pods); err != nil {
		panic(err)
	}
	killed.Wait() // the kubelet does not wait for a group without time
	return groups, graces
}
