// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/mount"
	"github.com/seed81659283/nodeagent/internal/mounttest"
	"github.com/seed81659283/nodeagent/internal/podtest"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
	"github.com/seed81659283/nodeagent/volume"
	"github.com/seed81659283/nodeagent/volume/volumetest"
)

// newOptionsWithClaims returns options of an agent whose pods also have claims.
func newOptionsWithClaims(t *testing.T, root string, claims volume.Claims) volume.Options {
	m, err := newObjects()
	require.NoError(t, err)
	o := localOptions(filepath.Join(root, "pods"), m)
	o.Claims = claims
	return o
}

// The exports of a real server are mounted read-write and read-only. An export that does not exist is an error, and nothing stays
// mounted.
func TestIntegrationNFS(t *testing.T) {
	mounttest.Need(t)
	s, root := serveNFS(t), t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(s.dir, "sub"), 0o777))
	claims := &volumetest.Claims{}
	claims.Bind("default", "share", s.volume("pv1", "/"))
	claims.Bind("default", "sub", s.volume("pv2", "/sub"))
	claims.Bind("default", "missing", s.volume("pv3", "/missing"))
	a := startAgent(t, newOptionsWithClaims(t, root, claims))

	reader, writer := podWithClaims("reader", "share", "sub"), podWithClaims("writer", "share", "sub")
	for i := range reader.Spec.Volumes {
		reader.Spec.Volumes[i].PersistentVolumeClaim.ReadOnly = true
	}
	host := map[string]map[string]podspec.Volume{}
	for _, p := range []*corev1.Pod{reader, writer} { // the read-only mount comes first and must not make the second one read-only
		require.NoError(t, a.Prepare(t.Context(), p))
		l := podspec.Launch{}
		require.NoError(t, a.Container(t.Context(), p, &p.Spec.Containers[0], &l))
		host[string(p.UID)] = l.Volumes
	}
	require.True(t, host["reader"]["v-share"].ReadOnly)
	file := filepath.Join(host["writer"]["v-sub"].HostPath, "file")
	require.NoError(t, os.WriteFile(file, []byte("from a pod"), 0o600))
	for _, path := range []string{filepath.Join(s.dir, "sub/file"), filepath.Join(host["reader"]["v-sub"].HostPath, "file"), filepath.Join(host["reader"]["v-share"].HostPath, "sub/file")} {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, "from a pod", string(data), path)
	}
	require.ErrorIs(t, os.WriteFile(filepath.Join(host["reader"]["v-sub"].HostPath, "other"), nil, 0o600), unix.EROFS)
	usage, err := a.Usage(t.Context(), "writer", "v-share")
	require.NoError(t, err)
	assert.NotZero(t, usage.CapacityBytes)

	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		err := a.Prepare(ctx, podWithClaims("lost", "missing"))
		return err != nil && strings.Contains(err.Error(), "127.0.0.1:/missing")
	}, time.Minute, time.Millisecond)

	for _, uid := range []string{"reader", "writer", "lost"} {
		require.NoError(t, a.Release(t.Context(), uid))
	}
	assert.Empty(t, remainingPaths(t, filepath.Join(root, "pods")))
	assert.FileExists(t, filepath.Join(s.dir, "sub/file"), "the files stay on the server")
}

// A server that hangs delays only pods with its exports. Twenty other pods start as usual, and all are deleted in bounded time.
// Data is intact when the server responds again.
func TestIntegrationNFSServerGone(t *testing.T) {
	mounttest.Need(t)
	s, root := serveNFS(t), t.TempDir()
	claims := &volumetest.Claims{}
	claims.Bind("default", "share", s.volume("pv1", "/"))
	o := newOptionsWithClaims(t, root, claims)
	o.StepTimeout = 30 * time.Second // more than a forced and a lazy unmount take
	w := newPodAgent(t, o)
	createPods := func(prefix string) (pods []*corev1.Pod, names []string) {
		for i := range 20 {
			names = append(names, fmt.Sprint(prefix, i))
			pods = append(pods, renamePod(podWithFiveVolumes(t, ""), names[i]))
		}
		return pods, names
	}
	sharing := func(name string) *corev1.Pod {
		return renamePod(podtest.Pod(t, "volumes: [{name: v-share, persistentVolumeClaim: {claimName: share}}]", "{volumeMounts: [{name: v-share, mountPath: /v}]}"), name)
	}
	before := sharing("before")
	first, names := createPods("first")
	w.setPods(append(first, before)...)
	usual := w.await(time.Minute, "pods run while the server responds", w.allRunning(append(names, "before")...))
	shared := filepath.Join(root, "pods/uid-before/volumes/kubernetes.io~nfs/pv1")
	require.NoError(t, os.WriteFile(filepath.Join(shared, "kept"), []byte("x"), 0o600))

	s.relay.hang()
	late := sharing("late")
	second, names := createPods("second")
	w.setPods(append(second, before, late)...)
	took := w.await(time.Minute, "pods without the volume run while the server hangs", w.allRunning(names...))
	t.Logf("21 pods run after %v, and 20 with a hung server after %v", usual, took)
	assert.Less(t, took, 2*usual+20*time.Second)
	w.await(30*time.Second, "the waiting pod has an error of its volume", func() bool {
		err := w.volumes.WaitError("uid-late")
		return err != nil && strings.Contains(err.Error(), `volume "v-share"`)
	})
	assert.False(t, w.allRunning("late")())

	w.setPods(append(second, before)...)
	removed := w.await(30*time.Second, "the pod with a hung mount call is removed", func() bool { return w.removed["late"] })
	t.Logf("the pod with a hung mount call is removed after %v", removed)
	s.relay.wake()
	data, err := os.ReadFile(filepath.Join(shared, "kept"))
	require.NoError(t, err)
	assert.Equal(t, "x", string(data))

	s.relay.hang()
	w.setPods(second...)
	removed = w.await(45*time.Second, "the pod with a mounted volume is removed", func() bool { return w.removed["before"] })
	t.Logf("the pod with a mounted volume is removed after %v", removed)
	w.setPods()
	w.await(time.Minute, "all pods are removed", func() bool { return len(w.removed) == 42 })
	assert.Empty(t, remainingPaths(t, filepath.Join(root, "pods")))
	s.relay.wake() // the kernel still has requests for the server
	table, err := mount.ReadTable()
	require.NoError(t, err)
	assert.Empty(t, mount.MountsBelow(table, root))
}
