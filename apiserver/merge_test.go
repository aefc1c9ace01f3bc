// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/apiserver"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/qos"
)

// newPod returns a pod of node n1 as an API server returns it.
func newPod(name, uid, version string) *corev1.Pod {
	pod := podtest.Pod(name)
	pod.UID, pod.ResourceVersion, pod.Spec.NodeName = types.UID(uid), version, "n1"
	return pod
}

func TestMergeKeepsPointers(t *testing.T) {
	a, b := newPod("a", "1", "10"), newPod("b", "2", "11")
	first := apiserver.Merge(apiserver.Update{}, []*corev1.Pod{a, b}, "n1")
	require.Len(t, first.Pods, 2)
	changed := newPod("b", "2", "12")
	changed.Status.Phase = corev1.PodRunning
	second := apiserver.Merge(first, []*corev1.Pod{a.DeepCopy(), changed}, "n1")
	assert.Same(t, first.Pods[0], second.Pods[0], "a pod with an unchanged version keeps its pointer")
	assert.NotSame(t, first.Pods[1], second.Pods[1])
	assert.Equal(t, corev1.PodRunning, second.Pods[1].Status.Phase)
	recreated := newPod("a", "3", "10")
	third := apiserver.Merge(second, []*corev1.Pod{recreated, changed}, "n1")
	assert.Equal(t, types.UID("3"), third.Pods[0].UID, "a recreated pod with an equal version replaces the old one")
	unversioned := newPod("c", "4", "")
	fourth := apiserver.Merge(third, []*corev1.Pod{unversioned}, "n1")
	fifth := apiserver.Merge(fourth, []*corev1.Pod{unversioned}, "n1")
	assert.NotSame(t, fourth.Pods[0], fifth.Pods[0], "a pod without a version counts as changed")
}

// Deletion, a shorter grace period and a resize are in the result.
func TestMergeReturnsChangedPods(t *testing.T) {
	pod := newPod("a", "1", "10")
	first := apiserver.Merge(apiserver.Update{}, []*corev1.Pod{pod}, "n1")
	for i, change := range []func(*corev1.Pod){
		func(p *corev1.Pod) { p.DeletionTimestamp, p.DeletionGracePeriodSeconds = stamp(), new(int64(30)) },
		func(p *corev1.Pod) { p.DeletionTimestamp, p.DeletionGracePeriodSeconds = stamp(), new(int64(2)) },
		func(p *corev1.Pod) { p.Spec.Containers[0].Resources = podtest.ParseRequirements([]string{"cpu=1/2"}) },
		func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"} },
	} {
		next := pod.DeepCopy()
		next.ResourceVersion = fmt.Sprint(20 + i)
		change(next)
		got := apiserver.Merge(first, []*corev1.Pod{next}, "n1").Pods[0].DeepCopy()
		delete(got.Annotations, "kubernetes.io/config.source")
		got.Annotations = next.Annotations
		assert.Equal(t, next, got, "change %d", i)
	}
}

// No annotation of a pod of the API server makes it static or critical.
func TestMergeReplacesHostileAnnotations(t *testing.T) {
	for _, annotations := range []map[string]string{
		nil,
		{"kubernetes.io/config.source": "file"},
		{"kubernetes.io/config.source": "http", "kubernetes.io/config.hash": "0123", "kubernetes.io/config.seen": "2026-01-01T00:00:00Z"},
		{"kubernetes.io/config.source": "", "kubernetes.io/config.hash": ""},
		{"Kubernetes.io/config.source": "file", "kubernetes.io/config.source ": "file"},
	} {
		pod := newPod("a", "1", "10")
		pod.Annotations = maps.Clone(annotations)
		got := apiserver.Merge(apiserver.Update{}, []*corev1.Pod{pod}, "n1")
		require.Len(t, got.Pods, 1)
		assert.Equal(t, annotations, pod.Annotations, "listed pods are not modified")
		assert.Equal(t, "api", got.Pods[0].Annotations["kubernetes.io/config.source"])
		assert.NotContains(t, got.Pods[0].Annotations, "kubernetes.io/config.seen")
		assert.Equal(t, annotations["kubernetes.io/config.hash"], got.Pods[0].Annotations["kubernetes.io/config.hash"])
		assert.False(t, qos.IsStatic(got.Pods[0]) || qos.IsMirror(got.Pods[0]) || qos.IsCritical(got.Pods[0]), "%v", annotations)
	}
	mirror := newPod("a", "1", "10")
	mirror.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "", "kubernetes.io/config.source": "api"}
	got := apiserver.Merge(apiserver.Update{}, []*corev1.Pod{mirror}, "n1")
	assert.Empty(t, got.Pods, "mirror pods are skipped, whichever client created them")
	assert.Equal(t, []*corev1.Pod{mirror}, got.Mirrors)
}

func TestMergeOmitsInvalidPods(t *testing.T) {
	elsewhere, noUID, noName := newPod("b", "2", "10"), newPod("c", "", "10"), newPod("", "4", "10")
	elsewhere.Spec.NodeName = "n2"
	good := newPod("a", "1", "10")
	got := apiserver.Merge(apiserver.Update{}, []*corev1.Pod{nil, elsewhere, noUID, noName, good}, "n1")
	require.Len(t, got.Pods, 1)
	assert.Equal(t, "a", got.Pods[0].Name)
	assert.False(t, got.Incomplete)
	texts := make([]string, len(got.Errs))
	for i, err := range got.Errs {
		texts[i] = err.Error()
	}
	assert.Equal(t, []string{
		"pods of node n1: the list contains a nil pod",
		`pod default/b: spec.nodeName: "n2" is not this node, "n1"`,
		`pod default/c: metadata.uid "": name, namespace and UID: required`,
		`pod default/: metadata.uid "4": name, namespace and UID: required`,
	}, texts)
}

// Merge of the largest pods that an API server accepts is fast.
func TestMergeOfLargePodsIsFast(t *testing.T) {
	var listed []*corev1.Pod
	for i := range 500 {
		pod := newPod(fmt.Sprint("p", i), fmt.Sprint(i), "1")
		pod.Annotations = map[string]string{"text": strings.Repeat("x", 256<<10)}
		for j := range 2000 {
			pod.Spec.Containers[0].Env = append(pod.Spec.Containers[0].Env, corev1.EnvVar{Name: fmt.Sprint("E", j), Value: "v"})
		}
		listed = append(listed, pod)
	}
	began := time.Now()
	first := apiserver.Merge(apiserver.Update{}, listed, "n1")
	second := apiserver.Merge(first, listed, "n1")
	assert.Less(t, time.Since(began), 30*time.Second)
	assert.True(t, slices.Equal(first.Pods, second.Pods))
}

// FuzzMerge compares Merge with the expected result, computed for each pod separately.
func FuzzMerge(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		var before apiserver.Update
		for range 10 {
			listed := randomList(rnd)
			next := apiserver.Merge(before, listed, "n1")
			checkMerge(t, before, next, listed)
			before = next
		}
	})
}

func randomList(rnd *rand.Rand) (listed []*corev1.Pod) {
	for i := range rnd.IntN(6) {
		pod := newPod(fmt.Sprint("p", i), fmt.Sprint(i, "-", rnd.IntN(2)), fmt.Sprint(rnd.IntN(3)))
		pod.Annotations = map[string]string{}
		for _, key := range []string{"kubernetes.io/config.source", "kubernetes.io/config.mirror", "kubernetes.io/config.hash", "kubernetes.io/config.seen", "own"} {
			if rnd.IntN(4) == 0 {
				pod.Annotations[key] = podtest.Pick(rnd, []string{"", "api", "file", "x"})
			}
		}
		if rnd.IntN(8) == 0 {
			pod.Spec.NodeName = podtest.Pick(rnd, []string{"", "n2"})
		}
		listed = append(listed, pod)
	}
	return listed
}

func checkMerge(t *testing.T, before, next apiserver.Update, listed []*corev1.Pod) {
	t.Helper()
	require.Equal(t, apiserver.API, next.Source)
	require.False(t, next.Incomplete)
	require.Len(t, listed, len(next.Pods)+len(next.Mirrors)+len(next.Errs))
	byUID := map[types.UID]*corev1.Pod{}
	for _, pod := range listed {
		byUID[pod.UID] = pod
	}
	for _, pod := range next.Pods {
		require.False(t, qos.IsStatic(pod) || qos.IsMirror(pod) || qos.IsCritical(pod))
		require.Equal(t, "n1", pod.Spec.NodeName)
		require.Equal(t, byUID[pod.UID].ResourceVersion, pod.ResourceVersion)
		i := slices.IndexFunc(before.Pods, func(was *corev1.Pod) bool { return was.UID == pod.UID })
		if i >= 0 && before.Pods[i].ResourceVersion == pod.ResourceVersion {
			require.Same(t, before.Pods[i], pod)
		}
	}
	for _, pod := range next.Mirrors {
		require.True(t, qos.IsMirror(pod))
	}
}
