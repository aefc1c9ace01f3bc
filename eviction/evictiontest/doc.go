// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package evictiontest is the test kit of package eviction: a simulated [Node] whose pods use ever more resources, and
// [TestObserver], the conformance suite of eviction.Observer.
//
//	node := evictiontest.NewNode(evictiontest.Options{Memory: 4 << 30})
//	node.StartPod(evictiontest.Pod{Candidate: eviction.Candidate{UID: "a"}, MemoryPerSecond: 200 << 20})
//	evictor, err := eviction.New(node, node, eviction.Options{Rules: rules})
//	...
//	evicted := node.EventUIDs("evict")
//
// A Node reads the time from package time and computes its state at each call. In a testing/synctest bubble hours pass at once;
// outside it runs in real time.
//
// # Limits of the model
//
// Usage grows linearly. The page cache has a fixed size. There is no swapping, no writeback and no throttling: LimitMemory stops
// the growth. A terminated pod frees everything at once. The kernel kills the pod with the most memory, not by OOM score. Images
// and terminated containers are one number of bytes. There are no inodes. Freed disk space appears after FreeDelay.
//
// # Concurrency
//
// All methods may be called concurrently.
package evictiontest
