// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podevict_test

import (
	"context"
	"fmt"
	"log"
	"time"

	corev1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/eviction"
	"github.com/seed81659283/nodeagent/eviction/podevict"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/pleg"
	"github.com/seed81659283/nodeagent/stats"
)

// The parts of an agent with evictions. The Node is created before the Reconciler, which calls its Admit. A real agent measures
// with a stats.Collector.
func ExampleNewNode() {
	measured := newMachine() // stands for the stats.Collector
	measured.signals.Memory = &stats.Amount{Available: 50 * mi, Capacity: gi}

	var reconciler *lifecycle.Reconciler
	node, err := podevict.NewNode(podevict.NodeOptions{
		Measurer: measured, Pods: func() podevict.Pods { return reconciler }, Eviction: eviction.Options{Rules: rules()},
	})
	if err != nil {
		log.Fatal(err)
	}
	runtime := critest.New(critest.Options{})
	reconciler, err = lifecycle.New(runtime, pleg.New(runtime, pleg.Options{}), lifecycle.Options{Admit: node.Admit})
	if err != nil {
		log.Fatal(err)
	}
	// An agent now runs the generator, the reconciler and node.Run.

	observed, err := node.Signals(context.Background())
	for _, r := range observed.Readings {
		fmt.Println(r.Signal, r.Available/mi, "MiB of", r.Capacity/mi, "MiB", err)
	}
	pods, err := node.Candidates(context.Background())
	fmt.Println(len(pods), "pods can be evicted", err)
	// Output:
	// memory.available 50 MiB of 1024 MiB <nil>
	// 0 pods can be evicted <nil>
}

// A program that checks a threshold with the signals of a stats.Collector, without an eviction.Evictor.
func ExampleObserve() {
	signals := stats.Signals{ // from Collector.Signals
		NodeDevice: 1, ImageDevice: 2,
		Memory: &stats.Amount{Available: 50 * mi, Capacity: gi},
	}
	policy, err := eviction.NewPolicy(rules())
	if err != nil {
		log.Fatal(err)
	}
	observation := podevict.Observe(&signals)
	decision := policy.Decide(eviction.State{}, observation, time.Now())
	fmt.Println(observation.Layout == eviction.DedicatedImageFS, decision.Conditions)
	// Output: true [MemoryPressure]
}

// An analysis of a node with a kubelet: the signals in its /stats/summary, and the events that its evictions would record.
func ExampleReadings() {
	summary := &statsapi.Summary{Pods: []statsapi.PodStats{podStats("web", 200*mi, 0, 0)}}
	summary.Node.Memory = &statsapi.MemoryStats{AvailableBytes: new(uint64(50 * mi)), WorkingSetBytes: new(uint64(950 * mi))}
	web := pod("web", list("memory", "100Mi"), nil)
	web.Spec.Resources = &corev1.ResourceRequirements{Requests: list("memory", "150Mi")}

	readings, err := podevict.Readings(summary)
	if err != nil {
		log.Print(err) // invalid numbers; the remaining readings are valid
	}
	candidates, err := podevict.Candidates([]*corev1.Pod{web}, summary, podevict.Options{})
	if err != nil {
		log.Print(err)
	}
	policy, err := eviction.NewPolicy(rules())
	if err != nil {
		log.Fatal(err)
	}
	observation := eviction.Observation{Readings: readings, Candidates: candidates, Measured: true}
	for _, e := range policy.Decide(eviction.State{}, observation, time.Now()).Evict {
		event := podevict.Explain(e, web, summary).Annotations
		fmt.Println("low on", event[podevict.StarvedResourceKey])
		fmt.Println("pod", event[podevict.OffendingPodKey], event[podevict.OffendingPodUsageKey])
		fmt.Println("containers", event[podevict.OffendingContainersKey], event[podevict.OffendingContainersUsageKey])
	}
	// Output:
	// low on memory
	// pod web 200Mi
	// containers c 200Mi
}
