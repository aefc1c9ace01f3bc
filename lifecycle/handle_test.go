// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// requireNoPods checks the results of a Handle without a Reconciler: no pod is listed, and no pod may be removed.
func requireNoPods(t *testing.T, h *lifecycle.Handle) {
	t.Helper()
	require.Nil(t, h.Reconciler())
	require.Empty(t, h.Pods())
	_, ok := h.Pod("uid-a")
	require.False(t, ok)
	active, complete := h.Active()
	require.Empty(t, active)
	require.False(t, complete, "the list is incomplete, so that callers do not take the node for empty")
	require.Empty(t, h.ImagesInUse())
	require.True(t, h.MayRun("uid-a"), "unknown pods may run, so that callers do not delete them from the API server")
	require.True(t, h.IsManaged("uid-a"), "unknown pods are managed, so that callers do not remove their containers")
	err := h.Evict(t.Context(), "uid-a", podstatus.Eviction{Reason: "Evicted"})
	require.ErrorIs(t, err, cri.ErrNotFound)
	require.ErrorContains(t, err, "pod uid-a")
	require.NoError(t, h.RemoveTerminatedContainers(t.Context()), "a node without pods has no terminated containers")
}

func TestHandleBeforeSetHasNoPodsAndRemovesNone(t *testing.T) {
	var h lifecycle.Handle
	requireNoPods(t, &h)
	h.Set(nil)
	requireNoPods(t, &h)
}

func TestHandleAfterSetHasPodsOfReconciler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		n := startAgent(t, rt, rt, lifecycle.Options{})
		var h lifecycle.Handle
		h.Set(n.reconciler)
		n.set(podtest.Pod("a"))
		time.Sleep(time.Second)

		require.Same(t, n.reconciler, h.Reconciler())
		require.Equal(t, n.reconciler.Pods(), h.Pods())
		state, ok := h.Pod("uid-a")
		require.True(t, ok)
		require.Equal(t, "a", state.Pod.Name)
		active, complete := h.Active()
		require.Len(t, active, 1)
		require.True(t, complete)
		require.Equal(t, n.reconciler.ImagesInUse(), h.ImagesInUse())
		require.True(t, h.MayRun("uid-a"))
		require.False(t, h.MayRun("uid-b"))
		require.True(t, h.IsManaged("uid-a"))
		require.False(t, h.IsManaged("uid-b"))
		require.ErrorContains(t, h.RemoveTerminatedContainers(t.Context()), "Options.Dirs.Pods or LoseStatuses: required", "Handle returns the error of the Reconciler")
		require.NoError(t, h.Evict(t.Context(), "uid-a", podstatus.Eviction{Reason: "Evicted"}))
		require.Equal(t, corev1.PodFailed, n.phase("a"))
	})
}

// The Admit option of a Reconciler needs the pods of this Reconciler, so the Handle is created first.
func TestHandleInOptionsHasPodsWhenAdmitIsCalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h lifecycle.Handle
		var mu sync.Mutex
		var listed [][]string
		rt := critest.New(critest.Options{})
		n := startAgent(t, rt, rt, lifecycle.Options{Admit: func(context.Context, *corev1.Pod, []*corev1.Pod) error {
			var names []string
			for _, p := range h.Pods() {
				names = append(names, p.Pod.Name)
			}
			mu.Lock()
			defer mu.Unlock()
			listed = append(listed, names)
			return nil
		}})
		h.Set(n.reconciler)
		n.set(podtest.Pod("a"))
		time.Sleep(time.Second)
		n.set(podtest.Pod("a"), podtest.Pod("b"))
		time.Sleep(time.Second)
		mu.Lock()
		defer mu.Unlock()
		require.Equal(t, [][]string{{"a"}, {"a", "b"}}, listed)
	})
}
