// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package config gets this file by way of the overlay: it opens what the kubelet makes of the pods that a source sends.
package config

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
)

// ConformanceSource is the pods of one source.
type ConformanceSource struct {
	storage *podStorage
	updates chan kubetypes.PodUpdate
	name    string
}

// NewConformanceSource returns a source that has sent nothing.
func NewConformanceSource(name string) *ConformanceSource {
	updates := make(chan kubetypes.PodUpdate, 8) // more than one list makes
	return &ConformanceSource{newPodStorage(updates, &record.FakeRecorder{}, unobserved{}), updates, name}
}

// Send replaces the pods of the source, and returns what the sync loop is told and the pods as they are then.
func (s *ConformanceSource) Send(ctx context.Context, pods []*v1.Pod) (told []kubetypes.PodUpdate, all []*v1.Pod) {
	if err := s.storage.Merge(ctx, s.name, sourceUpdate{Pods: pods}); err != nil {
		panic(err) // it never returns one
	}
	for len(s.updates) > 0 {
		told = append(told, <-s.updates)
	}
	for _, pod := range s.storage.pods[s.name] {
		all = append(all, pod)
	}
	return told, copyPods(all)
}

type unobserved struct{}

func (unobserved) ObservedPodOnWatch(klog.Logger, *v1.Pod, time.Time) {}
