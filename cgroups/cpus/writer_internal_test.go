// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cpus

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups/topology"
)

// newIdleWriter returns a writer after its first pass. 240 of 250 pods run in the shared pool of a machine with 64 CPUs, and ten have four CPUs each.
func newIdleWriter(tb testing.TB, record string) (w *Writer, running []RunningContainer, writes *atomic.Int64) {
	tb.Helper()
	machine, err := topology.Parse("2 sockets 2 nodes 16 cores 2 threads")
	require.NoError(tb, err)
	policy, err := NewPolicy(machine, Config{Policy: PolicyStatic, ReservedMillis: 1000})
	require.NoError(tb, err)
	a, err := NewAllocator(policy, AllocatorOptions{Record: record})
	require.NoError(tb, err)
	for i := range 250 {
		uid, millis := fmt.Sprint("pod-", i), int64(100)
		if i < 10 {
			millis = 4000
		}
		require.NoError(tb, a.Reserve(&Pod{UID: uid, Guaranteed: true, Containers: []Container{{Name: "app", Millis: millis}}}, nil))
		running = append(running, RunningContainer{ID: "id-" + uid, PodUID: uid, Container: "app"})
	}
	writes = new(atomic.Int64)
	w, err = NewWriter(a, WriterOptions{
		Running: func(context.Context) ([]RunningContainer, error) { return running, nil },
		Write:   func(context.Context, string, topology.CPUSet) error { writes.Add(1); return nil },
	})
	require.NoError(tb, err)
	require.NoError(tb, w.pass(tb.Context()))
	require.EqualValues(tb, 250, writes.Load())
	return w, running, writes
}

// A pass that changes nothing makes no call of the runtime, writes no file, and allocates nothing.
func TestPassWithoutChangeCostsNothing(t *testing.T) {
	record := filepath.Join(t.TempDir(), "cpus")
	w, _, writes := newIdleWriter(t, record)
	before, err := os.Stat(record)
	require.NoError(t, err)
	ctx := t.Context()
	allocated := testing.AllocsPerRun(100, func() {
		if err := w.pass(ctx); err != nil {
			t.Error(err)
		}
	})
	require.Zero(t, allocated)
	require.NoError(t, w.allocator.Release("no such pod"))
	require.NoError(t, w.allocator.Retain(func(string) bool { return true }))
	after, err := os.Stat(record)
	require.NoError(t, err)
	require.True(t, os.SameFile(before, after), "the record was replaced")
	require.Equal(t, before.ModTime(), after.ModTime())
	require.EqualValues(t, 250, writes.Load())
}

// A container that was written before its start is written once more after it. A container that is gone is forgotten.
func TestPassWritesAgainAfterStart(t *testing.T) {
	w, running, writes := newIdleWriter(t, "")
	pass := func(want int64) {
		t.Helper()
		before := writes.Load()
		require.NoError(t, w.pass(t.Context()))
		require.Equal(t, want, writes.Load()-before)
	}
	running[7].ID, running[7].Created = "new", true
	pass(1)
	pass(0)
	running[7].Created = false
	pass(1)
	pass(0)
	running[7].Created = true // an old list
	pass(0)
	require.Len(t, w.written, 250)
	require.NotContains(t, w.written, "id-pod-7")
}

// BenchmarkPassWithoutChange is the pass of each 10 s on a node with 250 pods.
func BenchmarkPassWithoutChange(b *testing.B) {
	w, _, writes := newIdleWriter(b, filepath.Join(b.TempDir(), "cpus"))
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		if err := w.pass(ctx); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(writes.Load()-250)/float64(b.N), "calls/op")
}
