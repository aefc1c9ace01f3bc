// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/gc"
	"github.com/seed81659283/nodeagent/internal/gctest"
)

// newFullStore returns a store with a used, a pinned, an imported and two unused images, on a full disk.
func newFullStore() *gctest.Store {
	store := gctest.NewStore(1000)
	for _, name := range []string{"app", "one", "two"} {
		store.AddImage(name, gctest.Layer{Name: name, Size: 200})
	}
	store.PutImage(cri.Image{ID: "sha256:pause", RepoTags: []string{"pause:1"}, RepoDigests: []string{"pause@sha256:pause"}, Size: 10, Pinned: true})
	store.PutImage(cri.Image{ID: "sha256:mine", RepoTags: []string{"mine:dev"}, Size: 100}, gctest.Layer{Name: "mine", Size: 100})
	store.AddContainer("container", "sha256:app")
	store.SetOtherBytes(300)
	return store
}

func TestPlanAndRemove(t *testing.T) {
	store := newFullStore()
	s := settings{policy: gc.ImagePolicy{HighThresholdPercent: 85, LowThresholdPercent: 80}}
	var out strings.Builder
	require.NoError(t, printAndCollect(t.Context(), store, store, store.Disk, s, &out))
	require.Contains(t, out.String(), "100% of 1000 bytes used, 200 bytes to free\n")
	for _, line := range []string{"goes one:latest 200", "may go two:latest 200", "stays app:latest 200", "stays pause:1 10", "stays mine:dev 100"} {
		require.Contains(t, strings.Join(strings.Fields(out.String()), " "), line)
	}
	require.Empty(t, store.RemovedIDs(), "no image is removed without settings.remove")

	s.remove = true
	out.Reset()
	require.NoError(t, printAndCollect(t.Context(), store, store, store.Disk, s, &out))
	require.Equal(t, []string{"sha256:one"}, store.RemovedIDs())
	require.Contains(t, out.String(), "removed one:latest, for space\n")

	s.want = 500
	out.Reset()
	err := printAndCollect(t.Context(), store, store, store.Disk, s, &out)
	require.ErrorContains(t, err, "removing images made 200 bytes available, and 500 were wanted")
	require.Contains(t, out.String(), "freed 200 bytes\n")
	require.Equal(t, []string{"sha256:one", "sha256:two"}, store.RemovedIDs())
}

func TestNoRuntime(t *testing.T) {
	var out strings.Builder
	err := runCollector(t.Context(), settings{endpoint: "unix:///nonexistent/containerd.sock", policy: gc.DefaultImagePolicy()}, &out)
	require.Error(t, err)
}
