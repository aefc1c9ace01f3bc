// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

func serviceIn(namespace string, i int) *corev1.Service {
	s := serviceObject(i)
	s.Namespace = namespace
	return s
}

// An agent that is started while the API server is unavailable knows the services of namespaces with pods. For other namespaces
// it waits for the first list. A later list replaces the cached services.
func TestServiceCacheIsUsedWithoutAPIServer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "services")
	synctest.Test(t, func(t *testing.T) {
		w := start(t, ObjectsOptions{ServicesFile: path}, true)
		require.NoError(t, w.server.Put(serviceIn("shop", 1), serviceIn("other", 2)))
		synctest.Wait()
		for namespace, n := range map[string]int{"shop": 1, "default": 0, "other": 1} {
			got, err := w.Services(t.Context(), namespace)
			require.NoError(t, err)
			require.Len(t, got, n)
		}
		before, err := os.Stat(path)
		require.NoError(t, err)
		_, err = w.Services(t.Context(), "shop")
		require.NoError(t, err)
		after, err := os.Stat(path)
		require.NoError(t, err)
		require.True(t, os.SameFile(before, after), "unchanged services are not written again")
		w.Retain([]*corev1.Pod{podWithVolume("c")})
	})
	if runtime.GOOS != "windows" {
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, fs.FileMode(0o600), info.Mode().Perm())
	}
	synctest.Test(t, func(t *testing.T) { startedAway(t, path) })
}

func startedAway(t *testing.T, path string) {
	w := start(t, ObjectsOptions{ServicesFile: path}, false)
	w.server.SetUnavailable(true)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	synctest.Wait()
	got, err := w.Services(ctx, "shop")
	require.NoError(t, err)
	require.Equal(t, serviceIn("shop", 1).Spec.Ports, got[0].Spec.Ports)
	require.Equal(t, serviceIn("shop", 1).Spec.ClusterIP, got[0].Spec.ClusterIP)
	got, err = w.Services(ctx, "default")
	require.NoError(t, err)
	require.Empty(t, got, "the cache has an empty list for a namespace without services")
	_, err = w.Services(ctx, "other")
	require.ErrorContains(t, err, "are not listed yet", "services of namespaces without pods are not cached")

	require.NoError(t, w.server.Put(serviceIn("shop", 1), serviceIn("shop", 3)))
	w.server.SetUnavailable(false)
	time.Sleep(time.Minute)
	got, err = w.Services(ctx, "shop")
	require.NoError(t, err)
	require.Len(t, got, 2)
	cancel()
	assert.NoError(t, <-done)
}

func TestServiceCacheFile(t *testing.T) {
	_, _, err := openServiceCache("relative")
	require.ErrorContains(t, err, "must be absolute")
	dir := t.TempDir()
	_, _, err = openServiceCache(dir)
	require.Error(t, err, "a directory is refused as cache file")
	path := filepath.Join(dir, "services")
	require.NoError(t, os.WriteFile(path, []byte(`{"shop": [{`), 0o600))
	k, damaged, err := openServiceCache(path)
	require.NoError(t, err)
	require.ErrorContains(t, damaged, path)
	_, known := k.getServices("shop")
	require.False(t, known)
	require.NoError(t, k.storeServices("shop", []service{{Name: "a", IP: "10.0.0.1"}}))
	k, damaged, err = openServiceCache(path)
	require.NoError(t, err)
	require.NoError(t, damaged)
	got, known := k.getServices("shop")
	require.True(t, known)
	require.Equal(t, []service{{Name: "a", IP: "10.0.0.1"}}, got)
	require.ErrorContains(t, k.storeServices("large", make([]service, 1<<20)), "would be larger")
	_, known = k.getServices("large")
	require.False(t, known)
}
