// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package eviction_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/seed81659283/nodeagent/eviction"
)

// Decide is pure, so that decisions can be computed without a node.
func ExampleRules_Kubelet() {
	thresholds, _ := eviction.ParseThresholds(eviction.Config{Hard: map[string]string{"memory.available": "100Mi"}})
	policy, err := eviction.NewPolicy(eviction.Rules{Thresholds: thresholds}.Kubelet())
	if err != nil {
		panic(err)
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	decision := policy.Decide(eviction.State{}, eviction.Observation{
		Readings: []eviction.Reading{{Signal: eviction.MemoryAvailable, Available: 90 << 20, Capacity: 8 << 30}},
		Candidates: []eviction.Candidate{
			{UID: "a", Name: "default/a", Priority: 100, Measured: true, Memory: 2 << 30},
			{UID: "b", Name: "default/b", Measured: true, Memory: 1 << 30},
		},
		Measured: true,
	}, now)
	fmt.Println(decision.Conditions, decision.Evict[0].Name, decision.Evict[0].Threshold, decision.Evict[0].Available)
	fmt.Println(decision.State.Conditions(policy, now.Add(6*time.Minute)), decision.Wake.Sub(now))
	// Output:
	// [MemoryPressure] default/b 100Mi 90Mi
	// [] 10s
}

// The thresholds of a node with a separate image filesystem, and the effect of each.
func ExampleLayout_Thresholds() {
	configured, _ := eviction.ParseThresholds(eviction.Config{
		Hard:            map[string]string{"memory.available": "100Mi", "imagefs.available": "15%"},
		Soft:            map[string]string{"pid.available": "10%"},
		SoftGracePeriod: map[string]string{"pid.available": "30s"},
	})
	layout := eviction.DedicatedImageFS
	thresholds, err := layout.Thresholds(configured)
	if err != nil {
		panic(err)
	}
	for _, t := range thresholds {
		removed := "-"
		if layout.ReclaimKinds(t.Signal)&eviction.ReclaimImages != 0 {
			removed = "images"
		}
		fmt.Printf("%-32s hard %-5t %-17s %-14s %s\n", t, t.Hard(), t.Signal.Resource(), t.Signal.Condition(), removed)
	}
	// Output:
	// memory.available<100Mi           hard true  memory            MemoryPressure -
	// imagefs.available<15%            hard true  ephemeral-storage DiskPressure   images
	// pid.available<10% for 30s        hard false pids              PIDPressure    -
	// containerfs.available<15%        hard true  ephemeral-storage DiskPressure   images
}

// The kubelet's ranking, except that batch pods are first: for memory and disks by usage, for process IDs by tasks.
func ExampleRankerFunc() {
	byBatch := func(a, b *eviction.Candidate) int {
		isBatch := func(c *eviction.Candidate) int { return strings.Count(c.Name, "batch/") }
		return isBatch(b) - isBatch(a)
	}
	memory := eviction.OrderedBy(byBatch, eviction.CompareMemoryOverRequest(false), eviction.ComparePriority, eviction.CompareMemoryExcess(false))
	pids := eviction.OrderedBy(byBatch, eviction.ComparePriority, eviction.CompareTasks)
	ranker := eviction.RankerFunc(func(s eviction.Signal, pods []eviction.Candidate) []eviction.Candidate {
		switch s.Resource() {
		case eviction.Memory:
			return memory.Rank(s, pods)
		case eviction.PIDs:
			return pids.Rank(s, pods)
		default:
			over, excess := eviction.CompareStorageOverRequest(eviction.SingleFS, s), eviction.CompareStorageExcess(eviction.SingleFS, s)
			return eviction.OrderedBy(byBatch, over, eviction.ComparePriority, excess).Rank(s, pods)
		}
	})
	pods := []eviction.Candidate{
		{Name: "web/a", Measured: true, Memory: 2 << 30},
		{Name: "batch/b", Measured: true, Memory: 1 << 30, Priority: 1000},
	}
	fmt.Println(ranker.Rank(eviction.MemoryAvailable, pods)[0].Name)
	// Output: batch/b
}

// node is the Observer and Actor of [ExampleMemoryLimiter].
type node struct{}

func (node) Signals(context.Context) (eviction.Observation, error) {
	return eviction.Observation{}, nil
}
func (node) Candidates(context.Context) ([]eviction.Candidate, error) { return nil, nil }
func (node) Reclaim(context.Context, eviction.Reclaim) (int64, error) { return 0, nil }
func (node) Evict(context.Context, eviction.Eviction) error           { return nil }
func (node) LimitMemory(_ context.Context, uid string) error {
	fmt.Println("memory.high of", uid)
	return nil
}

func (node) Kill(_ context.Context, uid string) error { fmt.Println("cgroup.kill of", uid); return nil }

// An actor that can write cgroups also limits and kills pods evicted for memory.
func ExampleMemoryLimiter() {
	var actor eviction.Actor = node{}
	if _, ok := actor.(eviction.MemoryLimiter); ok {
		fmt.Println("the memory of evicted pods is limited")
	}
	if _, ok := actor.(eviction.Killer); ok {
		fmt.Println("evicted pods are killed after their grace period")
	}
	evictor, err := eviction.New(node{}, actor, eviction.Options{})
	if err != nil {
		panic(err)
	}
	evictor.Wake() // for example because the kernel reports memory pressure
	// Output:
	// the memory of evicted pods is limited
	// evicted pods are killed after their grace period
}
