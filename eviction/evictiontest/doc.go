// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package evictiontest is the test kit of package eviction: a [Node] in memory whose pods use more and more, until they are evicted
// or the kernel ends one of them, and [TestObserver], a suite that every eviction.Observer passes.
//
// A Node tells the time by package time and computes what has happened since it was asked last, so that in a bubble of testing/synctest
// hours pass at once, and on the clock of the machine it is as slow as that:
//
//	node := evictiontest.NewNode(evictiontest.Options{Memory: 4 << 30})
//	node.Start(evictiontest.Pod{Candidate: eviction.Candidate{UID: "a"}, MemoryPerSecond: 200 << 20})
//	evictor, err := eviction.New(node, node, eviction.Options{Rules: rules})
//
// # What it does not model
//
// Usage grows in a straight line. There is no noise, no page cache but a fixed one, no swapping, no throttling below memory.high but
// a stop, and no writeback. A pod that ends gives everything back at once. The kernel kills who uses most memory, not by OOM score.
// Images and containers that have terminated are a number of bytes. There are no inodes. No reading is ever late unless Lag says so.
//
// # Concurrency
//
// All methods may be called from any goroutine.
package evictiontest
