// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package gc_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/gc"
	"github.com/seed81659283/nodeagent/images"
	"github.com/seed81659283/nodeagent/images/credential"
	"github.com/seed81659283/nodeagent/internal/gctest"
)

// TestMain keeps the tests on one processor: the race detector of Go 1.26 now and then crashes when timers of a
// synctest bubble fire on several (golang/go#78156). Goroutines are still preempted and still checked for races.
func TestMain(m *testing.M) {
	runtime.GOMAXPROCS(1)
	os.Exit(m.Run())
}

var _ gc.Puller = (*images.Puller)(nil)

// TestCollectDuringPodStarts has pods pull images and create containers while images are collected without a minimum age.
// Each container finds its image, and pinned images and images in pod specs stay. Calls take random time.
func TestCollectDuringPodStarts(t *testing.T) {
	removed := 0
	seeds := uint64(10)
	if os.Getenv("NODEAGENT_SOAK") != "" {
		seeds = 1000
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			n := newBusyNode(t, seed)
			ctx, cancel := context.WithCancel(t.Context())
			var pods, collector sync.WaitGroup
			collector.Go(func() { n.collectUntilDone(ctx) })
			for i := range 4 {
				rnd := rand.New(rand.NewPCG(seed, uint64(i)))
				pods.Go(func() { n.runPods(fmt.Sprint("p", i), rnd) })
			}
			pods.Wait()
			cancel()
			collector.Wait()
			for _, image := range n.kept {
				_, err := n.rt.ImageStatus(t.Context(), cri.ImageSpec{Image: image.ID})
				require.NoError(t, err, "pinned or wanted image %s stays", image.RepoTags)
			}
			removed += n.removed
		})
	}
	require.Greater(t, removed, 80, "too few images were removed for a valid test")
}

// busyNode is a runtime whose calls take time, with a puller and a collector.
type busyNode struct {
	t       *testing.T
	rt      *critest.Runtime
	puller  *images.Puller
	g       *gc.Images
	kept    []cri.Image // images that must stay
	removed int
}

func newBusyNode(t *testing.T, seed uint64) *busyNode {
	named := func(name string) cri.Image {
		i := critest.NewImage(name, 100)
		i.RepoDigests = []string{name[:len(name)-len(":v0")] + "@" + i.ID}
		return i
	}
	n := &busyNode{t: t, kept: []cri.Image{named("r.io/pinned:v1"), named("r.io/wanted:v1")}}
	n.kept[0].Pinned = true
	n.rt = critest.New(critest.Options{
		Images: slices.Clone(n.kept),
		Pull: func(_ context.Context, i cri.ImageSpec, _ *cri.Auth) (cri.Image, error) {
			time.Sleep(5 * time.Millisecond)
			return named(i.Image), nil
		},
	})
	var mu sync.Mutex
	rnd := rand.New(rand.NewPCG(seed, 99))
	via := &critest.Interceptor{Runtime: critest.SummaryRuntime{Runtime: n.rt}, Latency: func(string, string) time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return time.Duration(rnd.IntN(2000)) * time.Microsecond
	}}
	var err error
	n.puller, err = images.New(via, via, images.Options{QPS: -1})
	require.NoError(t, err)
	n.g, err = gc.NewImages(via, via, gc.ImageOptions{
		Policy: &gc.ImagePolicy{HighThresholdPercent: 0}, Puller: n.puller, Settle: -1,
		PodImages: func() []string { return []string{"r.io/wanted:v1"} },
		Disk:      func(context.Context) (gc.Disk, error) { return gc.Disk{Capacity: 1 << 40}, nil },
		Hooks:     gc.ImageHooks{Removed: func(gc.Image, gc.RemovalReason) { n.removed++ }},
	})
	require.NoError(t, err)
	return n
}

// collectUntilDone removes all removable images, repeatedly until ctx ends.
func (n *busyNode) collectUntilDone(ctx context.Context) {
	for ctx.Err() == nil {
		_, err := n.g.Reclaim(ctx, gc.ReclaimAll)
		assert.True(n.t, err == nil || ctx.Err() != nil, err)
		time.Sleep(time.Millisecond)
	}
}

// runPods starts and removes pods like an agent.
func (n *busyNode) runPods(name string, rnd *rand.Rand) {
	ctx := n.t.Context()
	for i := range 30 {
		image := fmt.Sprintf("r.io/app:v%d", rnd.IntN(3))
		id := cri.PodIdentity{UID: fmt.Sprint(name, "-", i), Name: name, Namespace: "ns"}
		sandbox := &cri.SandboxConfig{Pod: id, Attempt: uint32(i)}
		sandboxID, err := n.rt.RunSandbox(ctx, sandbox)
		assert.NoError(n.t, err)
		release := n.puller.Hold(image)
		got, err := n.puller.Ensure(ctx, images.Request{
			Pod: credential.Pod{UID: id.UID, Name: id.Name, Namespace: id.Namespace}, Image: image, Policy: images.PullIfNotPresent,
		})
		assert.NoError(n.t, err)
		time.Sleep(time.Duration(rnd.IntN(3)) * time.Millisecond)
		_, err = n.rt.CreateContainer(ctx, sandboxID, &cri.ContainerConfig{Name: "c", Image: cri.ImageSpec{Image: got.ID}}, sandbox)
		assert.NoError(n.t, err, "the image exists when a container is created")
		release()
		time.Sleep(time.Duration(rnd.IntN(5)) * time.Millisecond)
		_, err = n.rt.ImageStatus(ctx, cri.ImageSpec{Image: got.ID})
		assert.NoError(n.t, err, "the image exists while its container exists")
		assert.NoError(n.t, n.rt.StopSandbox(ctx, sandboxID))
		assert.NoError(n.t, n.rt.RemoveSandbox(ctx, sandboxID))
	}
}

// A removal that hangs and ignores its context affects only its own image: the error names it, and it is not called again
// before it has returned.
func TestHungRemovalIsNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := gctest.NewStore(1000)
		stuck := make(chan struct{})
		var calls atomic.Int32
		store.Fault = func(_ context.Context, op, id string) error {
			if op == "RemoveImage" && id == "sha256:a" {
				calls.Add(1)
				<-stuck
			}
			return nil
		}
		for _, name := range []string{"a", "b", "c"} {
			store.AddImage(name, gctest.Layer{Name: name, Size: 100})
		}
		g, err := gc.NewImages(store, store, gc.ImageOptions{Policy: &gc.ImagePolicy{}, Disk: store.Disk})
		require.NoError(t, err)
		freed, err := g.Reclaim(t.Context(), 150)
		require.NoError(t, err)
		require.EqualValues(t, 200, freed)
		_, err = g.Reclaim(t.Context(), 50)
		short, ok := errors.AsType[*gc.ShortError](err)
		require.True(t, ok)
		require.Equal(t, map[gc.KeepReason]gc.Tally{gc.KeepFailed: {Images: 1, Bytes: 100}}, short.Kept)
		require.ErrorContains(t, err, "an earlier removal has not returned")
		require.EqualValues(t, 1, calls.Load())
		close(stuck)
		time.Sleep(time.Second)
		_, err = g.Reclaim(t.Context(), gc.ReclaimAll)
		require.NoError(t, err)
		require.False(t, store.HasImage("sha256:a"))
	})
}

// Run continues after failed passes. It reports an event from the second consecutive failure on.
func TestRunContinuesAfterFailedPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := gctest.NewStore(1000)
		var broken atomic.Bool
		broken.Store(true)
		store.Fault = func(context.Context, string, string) error {
			if broken.Load() {
				return errors.New("out of order")
			}
			return nil
		}
		store.AddImage("a", gctest.Layer{Name: "a", Size: 900})
		events := make(chan string, 10)
		g, err := gc.NewImages(store, store, gc.ImageOptions{
			Policy: &gc.ImagePolicy{HighThresholdPercent: 85, LowThresholdPercent: 80}, Disk: store.Disk,
			Hooks: gc.ImageHooks{Event: func(reason, _ string) { events <- reason }},
		})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- g.Run(ctx) }()
		time.Sleep(time.Minute)
		require.Empty(t, events, "no event for the first failure: the runtime may be starting")
		time.Sleep(5 * time.Minute)
		require.Len(t, events, 1)
		require.Equal(t, gc.EventImageGCFailed, <-events)
		broken.Store(false)
		time.Sleep(5 * time.Minute)
		require.False(t, store.HasImage("sha256:a"))
		require.Error(t, g.Run(ctx), "a second call of Run fails")
		cancel()
		require.NoError(t, <-done)
	})
}

// Before Options.Ready, the agent does not know all pods: an unused image may be in the spec of a pod, and stays.
func TestUnusedImagesStayBeforeReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := gctest.NewStore(1000)
		store.AddImage("a", gctest.Layer{Name: "a", Size: 900})
		var ready atomic.Bool
		g, err := gc.NewImages(store, store, gc.ImageOptions{
			Policy: &gc.ImagePolicy{HighThresholdPercent: 85, LowThresholdPercent: 80}, Disk: store.Disk, Ready: ready.Load,
		})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- g.Run(ctx) }()
		time.Sleep(time.Minute)
		require.True(t, store.HasImage("sha256:a"))
		_, err = g.Reclaim(t.Context(), 100)
		short, ok := errors.AsType[*gc.ShortError](err)
		require.True(t, ok, "%v", err)
		require.Equal(t, map[gc.KeepReason]gc.Tally{gc.KeepNamed: {Images: 1, Bytes: 900}}, short.Kept)
		require.True(t, store.HasImage("sha256:a"))
		ready.Store(true)
		time.Sleep(5 * time.Minute)
		require.False(t, store.HasImage("sha256:a"))
		cancel()
		require.NoError(t, <-done)
	})
}

// TestImagesPassSuite runs the suite of ImageGC on a store in memory.
func TestImagesPassSuite(t *testing.T) {
	gctest.TestImageGC(t, func(t *testing.T) gctest.Subject {
		store := gctest.NewStore(1 << 40)
		g, err := gc.NewImages(store, store, gc.ImageOptions{Policy: &gc.ImagePolicy{}, Disk: store.Disk, Settle: -1})
		require.NoError(t, err)
		return newSubject(g, store)
	})
}

func newSubject(g gc.ImageGC, store *gctest.Store) gctest.Subject {
	return gctest.Subject{
		Collector: g, ImageSize: 1 << 20,
		AddImage: func(_ *testing.T, name string, bytes uint64) string {
			return store.AddImage(name, gctest.Layer{Name: name, Size: bytes})
		},
		AddContainer: func(_ *testing.T, id string) { store.AddContainer("container", id) },
		ImageIDs: func(t *testing.T) (ids []string) {
			list, err := store.ListImages(t.Context())
			require.NoError(t, err)
			for _, i := range list {
				ids = append(ids, i.ID)
			}
			return ids
		},
	}
}
