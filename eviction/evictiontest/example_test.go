// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package evictiontest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/eviction"
	"github.com/seed81659283/nodeagent/eviction/evictiontest"
)

// A node of 1 GiB that runs out of memory, with an evictor that keeps 100 MiB free.
func ExampleNode() {
	node := evictiontest.NewNode(evictiontest.Options{Memory: 1 << 30})
	node.StartPod(evictiontest.Pod{Candidate: eviction.Candidate{UID: "web", Memory: 300 << 20, MemoryRequest: 400 << 20}})
	node.StartPod(evictiontest.Pod{Candidate: eviction.Candidate{UID: "batch", Memory: 700 << 20}})
	thresholds, _ := eviction.ParseThresholds(eviction.Config{Hard: map[string]string{"memory.available": "100Mi"}})
	ctx, cancel := context.WithCancel(context.Background())
	evictor, err := eviction.New(node, node, eviction.Options{
		Rules: eviction.Rules{Thresholds: thresholds},
		Hooks: eviction.Hooks{Evicted: func(eviction.Eviction, error) { cancel() }},
	})
	if err != nil {
		panic(err)
	}
	fmt.Println(evictor.Run(ctx))
	fmt.Println("evicted", node.EventUIDs("evict"), "running", node.RunningPods())
	// Output:
	// <nil>
	// evicted [batch] running [web]
}

// In virtual time, measurements of the node fail for a minute, and then its runtime hangs.
func TestEvictorOnBrokenNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := evictiontest.NewNode(evictiontest.Options{Memory: 1 << 30})
		node.StartPod(evictiontest.Pod{Candidate: eviction.Candidate{UID: "batch", Memory: 950 << 20}})
		thresholds, err := eviction.ParseThresholds(eviction.Config{Hard: map[string]string{"memory.available": "100Mi"}})
		require.NoError(t, err)
		evictor, err := eviction.New(node, node, eviction.Options{Rules: eviction.Rules{Thresholds: thresholds}})
		require.NoError(t, err)
		go func() { _ = evictor.Run(t.Context()) }()

		node.FailObservations(errors.New("no cgroup"))
		time.Sleep(time.Minute)
		require.ErrorContains(t, evictor.Status().Err, "no cgroup")
		require.Empty(t, node.Events())

		node.HangRuntime(true) // the evictor kills the pod by its cgroup
		node.FailObservations(nil)
		time.Sleep(time.Minute)
		require.Empty(t, node.RunningPods())
		last := node.Events()[len(node.Events())-1]
		require.Equal(t, "kill batch", last.Kind+" "+last.UID)
		require.Less(t, time.Since(last.Time), time.Minute)
	})
}

// The suite with an observer, here a simulated node.
func TestObserverPassesSuite(t *testing.T) {
	evictiontest.TestObserver(t, func(*testing.T) eviction.Observer {
		node := evictiontest.NewNode(evictiontest.Options{Memory: 1 << 30, NodeFS: 1 << 30, PIDs: 1000})
		node.StartPod(evictiontest.Pod{Candidate: eviction.Candidate{UID: "web", Memory: 1 << 20, Tasks: 3}})
		return node
	})
}
