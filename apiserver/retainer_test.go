// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/apiserver"
	"github.com/seed81659283/nodeagent/lifecycle"
)

// podWithVolume returns a pod with a volume of the config map of its name.
func podWithVolume(name string) *corev1.Pod {
	pod := newPod(name, "uid-"+name, "")
	pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}},
	}}}
	return pod
}

// retaining is a scene whose objects watch the config maps a, b and c.
type retaining struct {
	*scene
	retainer *apiserver.Retainer
	working  []lifecycle.PodState // pods that have a worker in the agent
}

// newRetaining reads one config map for each pod, which starts its watch. If synced, it waits until the API server has
// listed the pods of the node.
func newRetaining(t *testing.T, synced bool) *retaining {
	r := &retaining{scene: newScene(t, apiserver.Options{})}
	objects, err := r.source.Objects(apiserver.ObjectsOptions{})
	require.NoError(t, err)
	if synced {
		r.runAll(objects.Run, r.pods)
	} else {
		r.runAll(objects.Run)
	}
	synctest.Wait() // until the parts run
	for _, name := range []string{"a", "b", "c"} {
		require.NoError(t, r.server.Put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}))
		_, err := objects.Volumes().ConfigMap(t.Context(), "default", name)
		require.NoError(t, err)
	}
	r.retainer = r.source.Retainer(objects, func() []lifecycle.PodState { return r.working })
	r.retainer.Set(lifecycle.PodSet{Source: apiserver.API, Pods: []*corev1.Pod{podWithVolume("a"), podWithVolume("b"), podWithVolume("c")}})
	require.Equal(t, 3, r.countWatches())
	return r
}

// countWatches returns the number of watched config maps.
func (r *retaining) countWatches() int {
	synctest.Wait()
	return r.server.OpenWatches("configmaps")
}

func TestRetainerKeepsObjectsOfListedAndRunningPods(t *testing.T) {
	runInBubble(t, func(t *testing.T) {
		r := newRetaining(t, true)
		r.working = []lifecycle.PodState{{Spec: podWithVolume("b")}, {Spec: nil}} // a terminating pod, and an orphaned pod
		r.retainer.Set(lifecycle.PodSet{Source: apiserver.API, Pods: []*corev1.Pod{podWithVolume("a")}})
		require.Equal(t, 2, r.countWatches())
		r.retainer.PodRemoved("uid-b")
		require.Equal(t, 1, r.countWatches(), "objects are released although the pod still has a worker when the hook is called")
		r.retainer.Set(lifecycle.PodSet{Source: "file"})
		r.working = nil
		r.retainer.Set(lifecycle.PodSet{Source: "file"})
		require.Equal(t, 1, r.countWatches(), "the pods of another source do not replace those of the API server")
	})
}

// Pods of the API server that are not listed yet refer to objects as well.
func TestRetainerBeforeFirstListDropsNothing(t *testing.T) {
	runInBubble(t, func(t *testing.T) {
		r := newRetaining(t, false)
		r.retainer.Set(lifecycle.PodSet{Source: "file"})
		r.retainer.PodRemoved("uid-a")
		require.Equal(t, 3, r.countWatches())
	})
}

// The caller may reuse its slice for the next set.
func TestRetainerAfterSetDoesNotChangePodsOfCaller(t *testing.T) {
	runInBubble(t, func(t *testing.T) {
		r := newRetaining(t, true)
		set := []*corev1.Pod{podWithVolume("a"), podWithVolume("b")}
		kept := slices.Clone(set)
		r.retainer.Set(lifecycle.PodSet{Source: apiserver.API, Pods: set})
		r.retainer.PodRemoved("uid-a")
		require.Equal(t, kept, set)
		require.Equal(t, 1, r.countWatches())
	})
}

func TestRetainerWithoutRequiredArgumentPanicsWithItsName(t *testing.T) {
	runInBubble(t, func(t *testing.T) {
		s := newScene(t, apiserver.Options{})
		s.runAll(s.pods)
		objects, err := s.source.Objects(apiserver.ObjectsOptions{})
		require.NoError(t, err)
		require.PanicsWithValue(t, "Source.Retainer: argument objects is nil: required, such as Source.Objects", func() {
			s.source.Retainer(nil, func() []lifecycle.PodState { return nil })
		})
		require.PanicsWithValue(t, "Source.Retainer: argument pods is nil: required, such as lifecycle.Reconciler.Pods", func() {
			s.source.Retainer(objects, nil)
		})
	})
}
