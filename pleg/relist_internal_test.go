// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
)

// newTestLoop returns a loop with a list of n pods, each with a sandbox, a running and an exited container, and the list in the
// orders in which a runtime may return it.
func newTestLoop(n int, stable bool) (*loop, []cri.Snapshot) {
	var s cri.Snapshot
	rnd := rand.New(rand.NewPCG(1, 2))
	for range n {
		uid := fmt.Sprintf("%08x-0000-4000-8000-%012x", rnd.Uint32(), rnd.Uint64()>>16)
		id := fmt.Sprintf("%016x%016x%016x%015x", rnd.Uint64(), rnd.Uint64(), rnd.Uint64(), rnd.Uint64()>>4)
		s.Sandboxes = append(s.Sandboxes, cri.Sandbox{ID: id + "s", Pod: cri.PodIdentity{UID: uid, Name: "p"}})
		s.Containers = append(s.Containers,
			cri.Container{ID: id + "c", PodUID: uid, State: cri.ContainerRunning},
			cri.Container{ID: id + "d", PodUID: uid, State: cri.ContainerExited})
	}
	snaps := make([]cri.Snapshot, 8)
	for i := range snaps {
		c := cri.Snapshot{}
		for _, sb := range s.Sandboxes {
			sb.ID = string([]byte(sb.ID)) // the lists of a runtime share no strings
			c.Sandboxes = append(c.Sandboxes, sb)
		}
		for _, ctr := range s.Containers {
			ctr.ID = string([]byte(ctr.ID))
			c.Containers = append(c.Containers, ctr)
		}
		if !stable {
			rnd.Shuffle(len(c.Sandboxes), func(i, j int) {
				c.Sandboxes[i], c.Sandboxes[j] = c.Sandboxes[j], c.Sandboxes[i]
			})
			rnd.Shuffle(len(c.Containers), func(i, j int) {
				c.Containers[i], c.Containers[j] = c.Containers[j], c.Containers[i]
			})
		}
		snaps[i] = c
	}
	g := New(cri.ListerFunc(func(context.Context) (cri.Snapshot, error) { return cri.Snapshot{}, nil }), Options{})
	l := newLoop(g, new(sync.WaitGroup))
	l.applyTestList(snaps[0])
	return l, snaps
}

// applyTestList passes a list to the loop as the result of a full list.
func (l *loop) applyTestList(s cri.Snapshot) {
	l.clock++
	l.applyList(listResult{snap: s, start: time.Now(), clock: l.clock})
}

// allPods returns the pods of the cache and fails the test if they may be incomplete.
func allPods(t *testing.T, l *loop) []cri.Pod {
	t.Helper()
	pods, err := l.gen.Pods()
	require.NoError(t, err)
	return pods
}

// A relist without changes allocates nothing, in any order of the runtime's list.
func TestRelistUnchangedAllocatesNothing(t *testing.T) {
	for _, stable := range []bool{true, false} {
		l, snaps := newTestLoop(100, stable)
		require.Len(t, allPods(t, l), 100)
		i := 0
		assert.Zero(t, testing.AllocsPerRun(20, func() {
			i++
			l.applyTestList(snaps[i%len(snaps)])
		}), "stable order: %v", stable)
	}
}

// A pod that was created and removed leaves no record.
func TestLoopRemovesRecordsOfRemovedPods(t *testing.T) {
	l, snaps := newTestLoop(100, true)
	l.applyTestList(cri.Snapshot{})
	assert.Empty(t, allPods(t, l))
	l.applyTestList(cri.Snapshot{})
	assert.Zero(t, len(l.index.byID))
	assert.Zero(t, len(l.records))
	assert.Zero(t, len(l.gen.cache.pods))
	assert.Zero(t, len(l.gen.cache.emptyUIDs))
	assert.Zero(t, len(l.gen.health.pods))
	l.applyTestList(snaps[1])
	assert.Len(t, allPods(t, l), 100)
}

// While full lists fail, the records of removed pods must not accumulate.
func TestLoopRemovesRecordsWhileListsFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newTestLoop(100, true)
		l.gen.podLister = podListerFunc(nil)
		l.queue = nil
		for i := range 1000 {
			rec := l.recordOf(fmt.Sprint("short", i))
			l.publishPod(rec, cri.Pod{PodIdentity: cri.PodIdentity{UID: rec.uid}, Time: time.Now()}, cri.Pod{}, false, l.clock)
			l.publishPod(rec, cri.Pod{PodIdentity: cri.PodIdentity{UID: rec.uid}, Time: time.Now()}, cri.Pod{}, false, l.clock)
		}
		require.Len(t, l.gen.cache.emptyUIDs, 1000)
		time.Sleep(2 * maxEmptyAge)
		l.applyList(listResult{start: time.Now(), clock: l.clock, err: cri.ErrTooLarge})
		pods, err := l.gen.Pods()
		require.ErrorIs(t, err, cri.ErrTooLarge)
		assert.Len(t, pods, 100)
		assert.Len(t, l.records, 100)
		assert.Len(t, l.gen.cache.pods, 100)
		assert.Empty(t, l.gen.cache.emptyUIDs)
		assert.Len(t, l.queue, 100, "existing pods are listed one by one")
	})
}

type podListerFunc func(ctx context.Context, uid string) (cri.Pod, error)

func (f podListerFunc) ListPod(ctx context.Context, uid string) (cri.Pod, error) { return f(ctx, uid) }

func BenchmarkRelist1000(b *testing.B) {
	for name, stable := range map[string]bool{"same-order": true, "other-order": false} {
		b.Run(name, func(b *testing.B) {
			l, snaps := newTestLoop(1000, stable)
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				i++
				l.applyTestList(snaps[i%len(snaps)])
			}
		})
	}
}
