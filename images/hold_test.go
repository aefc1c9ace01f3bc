// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package images_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/images"
)

// Hold accepts every form of an image name: short, full, with a digest, or an ID.
func TestHoldAcceptsEveryFormOfName(t *testing.T) {
	const digest = "sha256:0123456789012345678901234567890123456789012345678901234567890123"
	image := cri.Image{
		ID: digest, RepoTags: []string{"docker.io/library/app:latest", "r.io/app:v1"}, RepoDigests: []string{"r.io/app@" + digest},
	}
	var p pullRecorder
	puller, _ := newPuller(t, &p, images.Options{})
	for name, held := range map[string]bool{
		"app": true, "docker.io/library/app": true, "app:latest": true, "r.io/app:v1": true, "r.io/app:v9@" + digest: true,
		digest: true, "app:v1": false, "r.io/app": false, "Not A Name": false, "": false,
	} {
		release := puller.Hold(name)
		unclaim, ok := puller.Claim(image, time.Now())
		assert.Equal(t, !held, ok, name)
		if ok {
			unclaim()
		}
		release()
		release() // a second release has no effect
		unclaim, ok = puller.Claim(image, time.Now())
		require.True(t, ok, name)
		unclaim()
	}
	_, ok := puller.Claim(cri.Image{}, time.Now())
	require.False(t, ok, "an image without ID cannot be claimed")
}

// An image returned by Ensure stays held under the requested name, even if its tags change. After the release, Claim fails
// for a container list that was read before the release.
func TestClaimFailsForHeldImage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pullRecorder
		puller, _ := newPuller(t, &p, images.Options{})
		release := puller.Hold("app")
		image, err := puller.Ensure(t.Context(), request("a", "app", ""))
		require.NoError(t, err)
		image.RepoTags = nil // another pull has moved the tag
		listed := time.Now()
		_, ok := puller.Claim(image, listed)
		require.False(t, ok)
		time.Sleep(time.Second)
		release() // after the container was created
		_, ok = puller.Claim(image, listed)
		require.False(t, ok, "the list from before the release lacks the container")
		time.Sleep(time.Second)
		unclaim, ok := puller.Claim(image, time.Now())
		require.True(t, ok)
		_, ok = puller.Claim(image, time.Now())
		require.False(t, ok, "an image cannot be claimed twice")
		unclaim()
	})
}

// If the image is being removed, Ensure waits for the end of the removal and pulls the image again.
func TestEnsureWaitsForRemoval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pullRecorder
		puller, rt := newPuller(t, &p, images.Options{})
		image, err := puller.Ensure(t.Context(), request("a", "app:v1", ""))
		require.NoError(t, err)
		time.Sleep(time.Second)
		unclaim, ok := puller.Claim(image, time.Now())
		require.True(t, ok)
		go func() {
			time.Sleep(10 * time.Second)
			assert.NoError(t, rt.RemoveImage(t.Context(), cri.ImageSpec{Image: image.ID}))
			unclaim()
		}()
		began := time.Now()
		again, err := puller.Ensure(t.Context(), request("b", "app:v1", ""))
		require.NoError(t, err)
		require.Equal(t, image.ID, again.ID)
		require.Equal(t, 11*time.Second, time.Since(began), "10 s for the removal and 1 s for the pull")
		require.Len(t, p.users, 2)
	})
}

// Ensure does not wait forever for a removal that hangs.
func TestEnsureTimesOutOnHungRemoval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pullRecorder
		puller, _ := newPuller(t, &p, images.Options{})
		image, err := puller.Ensure(t.Context(), request("a", "app:v1", ""))
		require.NoError(t, err)
		time.Sleep(time.Second)
		unclaim, ok := puller.Claim(image, time.Now())
		require.True(t, ok)
		defer unclaim()
		_, err = puller.Ensure(t.Context(), request("b", "app:v1", ""))
		e, ok := errors.AsType[*images.Error](err)
		require.True(t, ok)
		require.Equal(t, images.ReasonImageInspectError, e.Reason)
		require.ErrorContains(t, err, "the image is being removed, and the removal takes too long")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = puller.Ensure(ctx, request("b", "app:v1", ""))
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestHasPullRecordReadsRecords(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var p pullRecorder
		puller, _ := newPuller(t, &p, images.Options{Records: dir})
		image, err := puller.Ensure(t.Context(), request("a", "app:v1", ""))
		require.NoError(t, err)
		require.True(t, puller.HasPullRecord(image.ID))
		require.False(t, puller.HasPullRecord("sha256:other"))
		require.NoError(t, os.RemoveAll(dir))
		require.False(t, puller.HasPullRecord(image.ID))
		without, _ := newPuller(t, &p, images.Options{})
		_, err = without.Ensure(t.Context(), request("a", "app:v1", ""))
		require.NoError(t, err)
		require.False(t, without.HasPullRecord(image.ID), "no pull record without Options.Records")
	})
}

// TestRemovalDuringPodStarts starts pods while another goroutine removes every image that it can claim. The image must exist
// at the creation of each container.
func TestRemovalDuringPodStarts(t *testing.T) {
	seeds := uint64(8)
	if os.Getenv("NODEAGENT_SOAK") != "" {
		seeds = 1000
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) { removeDuringPodStarts(t, rand.New(rand.NewPCG(seed, 1))) })
	}
}

func removeDuringPodStarts(t *testing.T, rnd *rand.Rand) {
	rt := critest.New(critest.Options{
		Images: []cri.Image{},
		Pull: func(_ context.Context, i cri.ImageSpec, _ *cri.Auth) (cri.Image, error) {
			time.Sleep(3 * time.Millisecond)
			return critest.NewImage(i.Image, 1), nil
		},
	})
	puller, err := images.New(rt, rt, images.Options{QPS: -1})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var pods, remover sync.WaitGroup
	removed := 0
	remover.Go(func() {
		for ctx.Err() == nil {
			removed += removeUnused(t, rt, puller)
			time.Sleep(time.Millisecond)
		}
	})
	for pod := range 5 {
		waits := make([]time.Duration, 40)
		for i := range waits {
			waits[i] = time.Duration(rnd.IntN(4)) * time.Millisecond
		}
		pods.Go(func() {
			for i, wait := range waits {
				startAndRemove(t, rt, puller, fmt.Sprintf("p%d-%d", pod, i), fmt.Sprintf("r.io/app:v%d", i%3), wait)
			}
		})
	}
	pods.Wait()
	cancel()
	remover.Wait()
	require.Greater(t, removed, 3, "too few images were removed for a valid test")
}

// removeUnused claims and removes all images that no container uses.
func removeUnused(t *testing.T, rt *critest.Runtime, puller *images.Puller) (removed int) {
	snap, err := rt.List(t.Context())
	assert.NoError(t, err)
	used := map[string]bool{}
	for i := range snap.Containers {
		used[snap.Containers[i].Image.Image] = true
	}
	present, err := rt.ListImages(t.Context())
	assert.NoError(t, err)
	time.Sleep(time.Millisecond) // containers are created during this pause
	for _, image := range present {
		if used[image.ID] {
			continue
		}
		if release, ok := puller.Claim(image, snap.Time); ok {
			time.Sleep(time.Millisecond)
			assert.NoError(t, rt.RemoveImage(t.Context(), cri.ImageSpec{Image: image.ID}))
			release()
			removed++
		}
	}
	return removed
}

// startAndRemove starts a container like an agent, and removes it later.
func startAndRemove(t *testing.T, rt *critest.Runtime, puller *images.Puller, pod, image string, wait time.Duration) {
	ctx := t.Context()
	sandbox := &cri.SandboxConfig{Pod: cri.PodIdentity{UID: pod, Name: pod, Namespace: "ns"}}
	id, err := rt.RunSandbox(ctx, sandbox)
	assert.NoError(t, err)
	release := puller.Hold(image)
	got, err := puller.Ensure(ctx, request(pod, image, ""))
	assert.NoError(t, err)
	time.Sleep(wait)
	_, err = rt.CreateContainer(ctx, id, &cri.ContainerConfig{Name: "c", Image: cri.ImageSpec{Image: got.ID}}, sandbox)
	assert.NoError(t, err, "the image exists when the container is created")
	release()
	time.Sleep(wait)
	assert.NoError(t, rt.StopSandbox(ctx, id))
	assert.NoError(t, rt.RemoveSandbox(ctx, id))
}
