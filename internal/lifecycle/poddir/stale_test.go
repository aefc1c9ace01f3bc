// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package poddir_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/lifecycle/poddir"
	"github.com/seed81659283/nodeagent/internal/lifecycle/resize"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

func TestRemoveStaleKeepsIdentity(t *testing.T) {
	root := t.TempDir()
	r := poddir.NewRecorder(poddir.DirOf(root, "uid-a"), "ns/web")
	r.SetSource("file")
	history := poddir.EvictionHistory{Count: 2, Until: time.Unix(1e9, 0).UTC(), Reason: "Busy"}
	require.NoError(t, r.Update(func(now *poddir.Record) {
		*now = poddir.Record{
			Status: &corev1.PodStatus{Phase: corev1.PodRunning}, PostStartPending: []string{"a"}, Sizes: map[string]string{"a": "b"}, Allocated: &resize.Allocation{},
			Sized: "c", AdmissionPending: true, Rejection: &podstatus.Rejection{Reason: "R"}, Eviction: &podstatus.Eviction{Reason: "E"}, EvictionHistory: history,
		}
	}))
	damaged := filepath.Join(root, "uid-b", "record.json")
	require.NoError(t, os.MkdirAll(filepath.Dir(damaged), 0o700))
	require.NoError(t, os.WriteFile(damaged, []byte("{"), 0o600))
	require.NoError(t, os.MkdirAll(filepath.Join(root, "uid-c"), 0o700))

	require.NoError(t, poddir.RemoveStale(root))

	again := poddir.NewRecorder(poddir.DirOf(root, "uid-a"), "")
	require.NoError(t, again.Load())
	require.Equal(t, poddir.Record{Version: 1, Pod: "ns/web", Source: "file", AdmissionPending: true, EvictionHistory: history}, again.Get())
	require.FileExists(t, damaged)
	require.NoFileExists(t, filepath.Join(root, "uid-c", "record.json"))
	require.NoError(t, poddir.RemoveStale(filepath.Join(root, "none")))
}
