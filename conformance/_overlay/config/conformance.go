// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package config gets this file by the overlay of package conformance. It exports the merge of a source's pods into updates.
package config

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
)

// ConformanceSource is one pod source of the kubelet, with its pods.
type ConformanceSource struct {
	storage *podStorage
	updates chan kubetypes.PodUpdate
	name    string
}

// NewConformanceSource returns a pod source with this name, which has not sent any pods yet.
func NewConformanceSource(name string) *ConformanceSource {
	updates := make(chan kubetypes.PodUpdate, 8) // more than one list of pods causes
	return &ConformanceSource{newPodStorage(updates, &record.FakeRecorder{}, unobserved{}), updates, name}
}

// Send replaces the pods of the source by pods. It returns the updates that the kubelet sends to its sync loop, and all pods
// that the source has then.
func (s *ConformanceSource) Send(ctx context.Context, pods []*v1.Pod) (told []kubetypes.PodUpdate, all []*v1.Pod) {
	if err := s.storage.Merge(ctx, s.name, sourceUpdate{Pods: pods}); err != nil {
		panic(err) // it never returns an error
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
