// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podsapi_test

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/nodeapi/podsapi"
)

// states is a fixed list of pods.
type states []lifecycle.PodState

func (s states) Pods() []lifecycle.PodState { return s }

func (s states) Active() ([]*corev1.Pod, bool) { return nil, true }

func TestPodsWithStatusSkipsPodsNotListedBySource(t *testing.T) {
	listed, deleted, status := &corev1.Pod{}, &corev1.Pod{}, &corev1.PodStatus{}
	pods, complete := podsapi.PodsWithStatus(states{{Spec: deleted, Deleted: true}, {Spec: listed, Status: status}}).Pods()
	require.True(t, complete)
	require.Len(t, pods, 1)
	require.Same(t, listed, pods[0].Pod)
	require.Same(t, status, pods[0].Status)
}

func TestListenAndRunLogsTooLongPath(t *testing.T) {
	var log bytes.Buffer
	server := podsapi.New(podsapi.PodsWithStatus(states{}), podsapi.Options{})
	require.NoError(t, server.ListenAndRun(t.Context(), filepath.Join(t.TempDir(), strings.Repeat("x", 200), "pods.sock"), slog.New(slog.NewTextHandler(&log, nil))))
	require.Contains(t, log.String(), "the pods API is not served")
}
