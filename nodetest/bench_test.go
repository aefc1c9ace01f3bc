// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest_test

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/nodetest"
	"github.com/seed81659283/nodeagent/nodetest/machine"
)

// An hour of a node with 110 pods: a Loop, and a Node in a bubble.
func BenchmarkHour(b *testing.B) {
	o := nodetest.Options{Machine: machine.Spec{CPUs: 16, Memory: 128 << 30}}
	b.Run("loop", func(b *testing.B) {
		for b.Loop() {
			l, err := nodetest.NewLoop(b.Context(), o)
			require.NoError(b, err)
			require.NoError(b, addBusyPods(l, 110))
			l.Advance(time.Hour)
		}
	})
	b.Run("node", func(b *testing.B) {
		for b.Loop() {
			if !testing.RunTests(func(string, string) (bool, error) { return true, nil }, []testing.InternalTest{{Name: "hour", F: func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					n := nodetest.New(t, o)
					require.NoError(t, addBusyPods(n, 110))
					n.Advance(time.Hour)
				})
			}}}) {
				b.Fatal("the simulation failed")
			}
		}
	})
}

// Ten minutes of clusters with 30 pods per node. All nodes are kept until the end, as a study needs them.
func BenchmarkNodes(b *testing.B) {
	for _, count := range []int{10, 100, 1000} {
		b.Run(fmt.Sprint(count), func(b *testing.B) {
			for b.Loop() {
				began := time.Now()
				nodes := simulateNodes(b, count)
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				b.ReportMetric(float64(m.Sys)/(1<<20), "MiB")
				b.ReportMetric(time.Since(began).Seconds()*1000/float64(count), "ms/node")
				runtime.KeepAlive(nodes)
			}
		})
	}
}

// simulateNodes runs nodes for ten minutes, one on each processor at a time.
func simulateNodes(b testing.TB, count int) []*nodetest.Loop {
	b.Helper()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(runtime.NumCPU())) // TestMain has set it to one
	nodes := make([]*nodetest.Loop, count)
	next := make(chan int)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for i := range next {
				l, err := nodetest.NewLoop(b.Context(), nodetest.Options{Name: fmt.Sprint("n", i), Machine: machine.Spec{CPUs: 16, Memory: 64 << 30}, Seed: uint64(i)})
				assert.NoError(b, err)
				assert.NoError(b, addBusyPods(l, 30))
				l.Advance(10 * time.Minute)
				nodes[i] = l
			}
		})
	}
	for i := range count {
		next <- i
	}
	close(next)
	workers.Wait()
	return nodes
}
