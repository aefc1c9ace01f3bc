// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podevict_test

import (
	"context"
	"fmt"
	"log"

	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/eviction"
	"github.com/seed81659283/nodeagent/eviction/podevict"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/pleg"
	"github.com/seed81659283/nodeagent/stats"
)

// The parts of an agent that evicts: the Node is made before the Reconciler, which asks it whether a pod is admitted. A real one measures
// with a stats.Collector.
func ExampleNewNode() {
	measured := newMachine() // stands in for the Collector
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
