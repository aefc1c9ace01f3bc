// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	kubeeviction "k8s.io/kubernetes/pkg/kubelet/eviction"
	evictionapi "k8s.io/kubernetes/pkg/kubelet/eviction/api"

	"github.com/seed81659283/nodeagent/conformance"
	"github.com/seed81659283/nodeagent/eviction"
	"github.com/seed81659283/nodeagent/eviction/podevict"
)

// TestEvictionSpeed ranks 10,000 pods of one summary on both sides. The time includes the creation of the candidates.
func TestEvictionSpeed(t *testing.T) {
	if !*speed {
		t.Skip("without -speed")
	}
	// No minimum for process IDs: the kubelet compares mostly priorities and reads no statistics, while candidates have all
	// statistics.
	faster := map[eviction.Signal]float64{eviction.MemoryAvailable: 10, eviction.NodeFSAvailable: 10, eviction.NodeFSInodesFree: 10}
	var pods []*corev1.Pod
	summary := &statsapi.Summary{}
	for i := range uint64(10_000) {
		pod, stats := conformance.EvictionPod(conformance.NewChoices(conformance.RandomBytes(1, i)), int(i))
		pods = append(pods, pod)
		if stats != nil {
			summary.Pods = append(summary.Pods, *stats)
		}
	}
	ranker := eviction.NewRanker(eviction.RankOptions{IgnoreSwap: true})
	for _, signal := range []eviction.Signal{eviction.MemoryAvailable, eviction.PIDAvailable, eviction.NodeFSAvailable, eviction.NodeFSInodesFree} {
		kubelet, ours := time.Hour, time.Hour
		for range 3 {
			theirs := slices.Clone(pods)
			began := time.Now()
			kubeeviction.ConformanceRank(evictionapi.Signal(signal), false, false, theirs, summary)
			kubelet = min(kubelet, time.Since(began))

			began = time.Now()
			candidates, err := podevict.Candidates(pods, summary, podevict.Options{NoLocalStorage: true})
			if err != nil {
				t.Fatal(err)
			}
			ranker.Rank(signal, candidates)
			ours = min(ours, time.Since(began))
		}
		times := float64(kubelet) / float64(ours)
		fmt.Printf("rank 10,000 pods for %-20s kubelet %v, ours %v, %.1fx\n", signal, kubelet, ours, times)
		if times < faster[signal] {
			t.Errorf("%s: %.1f times as fast as the kubelet's, want at least %v", signal, times, faster[signal])
		}
	}
}
