// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
)

// A name without a tag gets the tag latest, as in a registry: otherwise crictl prints "errorRepoTag".
func TestImagesHaveTagOrDigest(t *testing.T) {
	rt := openRuntime(t, t.TempDir())
	for name, want := range map[string][2][]string{
		"none":                    {{"none:latest"}, nil},
		"web:1.2":                 {{"web:1.2"}, nil},
		"localhost:5000/web":      {{"localhost:5000/web:latest"}, nil},
		"localhost:5000/web:1":    {{"localhost:5000/web:1"}, nil},
		"web@sha256:abc":          {nil, {"web@sha256:abc"}},
		"host:1/web:2@sha256:abc": {nil, {"host:1/web:2@sha256:abc"}},
	} {
		image, err := rt.ImageStatus(t.Context(), cri.ImageSpec{Image: name})
		require.NoError(t, err)
		assert.Equal(t, want, [2][]string{image.RepoTags, image.RepoDigests}, name)
		assert.Equal(t, name, image.ID)
	}
}

// Every event contains the pod with its sandbox and containers after the change; the event of a removed sandbox contains that
// sandbox.
func TestEventsHavePod(t *testing.T) {
	rt := openRuntime(t, t.TempDir())
	var mu sync.Mutex
	var events []cri.Event
	ctx, cancel := context.WithCancel(t.Context())
	var streaming sync.WaitGroup
	streaming.Go(func() {
		_ = rt.StreamEvents(ctx, func(e cri.Event) error {
			mu.Lock()
			defer mu.Unlock()
			events = append(events, e)
			return nil
		})
	})
	defer streaming.Wait()
	defer cancel()
	find := func(typ cri.EventType, id string) (found cri.Event) {
		t.Helper()
		require.Eventually(t, func() bool {
			mu.Lock()
			defer mu.Unlock()
			for _, e := range events {
				if e.Type == typ && e.ID == id {
					found = e
					return true
				}
			}
			return false
		}, time.Minute, time.Millisecond)
		return found
	}
	for { // no event reports that the stream has started
		id, err := rt.RunSandbox(t.Context(), &cri.SandboxConfig{Pod: cri.PodIdentity{UID: "early", Name: "early"}})
		require.NoError(t, err)
		require.NoError(t, rt.RemoveSandbox(t.Context(), id))
		mu.Lock()
		n := len(events)
		mu.Unlock()
		if n > 0 {
			break
		}
	}

	sandbox, _ := runPodSandbox(t, rt)
	id := startContainer(t, rt, sandbox, shellConfig(`exit 3`))
	started := find(cri.EventStarted, id)
	require.Len(t, started.Pod.Sandboxes, 1)
	assert.Equal(t, sandbox, started.Pod.Sandboxes[0].ID)
	stopped := find(cri.EventStopped, id)
	require.Len(t, stopped.Pod.Containers, 1)
	assert.Equal(t, cri.ContainerExited, stopped.Pod.Containers[0].State)
	assert.EqualValues(t, 3, stopped.Pod.Containers[0].ExitCode)
	assert.Equal(t, sandbox, stopped.Pod.Containers[0].SandboxID)

	require.NoError(t, rt.RemoveContainer(t.Context(), id))
	assert.Empty(t, find(cri.EventDeleted, id).Pod.Containers)
	require.NoError(t, rt.RemoveSandbox(t.Context(), sandbox))
	deleted := find(cri.EventDeleted, sandbox)
	require.Len(t, deleted.Pod.Sandboxes, 1)
	assert.Equal(t, sandbox, deleted.Pod.Sandboxes[0].ID)
}
