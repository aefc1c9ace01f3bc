// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podstore_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/costtest"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podstore"
)

// A pod that Load would refuse is omitted from the file and reported once. Otherwise it would make the whole file invalid.
func TestFlushOmitsAndReportsTooLargePods(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pods")
	var reported []string
	store := podstore.New(path, podstore.Options{Hooks: podstore.Hooks{Error: func(err error, retry time.Duration) {
		assert.Zero(t, retry)
		reported = append(reported, err.Error())
	}}})
	pods := newPods("a", "list", "string", "b")
	pods[1].Spec.Containers = []corev1.Container{{Args: slices.Repeat([]string{"x"}, 1_001)}}
	pods[2].Annotations = map[string]string{"a": strings.Repeat("x", 3<<20)}
	store.Update(lifecycle.PodSet{Source: "s", Pods: pods})
	require.NoError(t, store.Flush())
	require.Len(t, reported, 2)
	assert.Contains(t, reported[0], "is not stored: pod.spec.containers[0].args: a list of more than 1000 elements")
	assert.Contains(t, reported[1], "is not stored: pod.metadata.annotations.a: a string of 3145730 bytes, the limit is 2097152")
	assert.Equal(t, "a b", podNames(load(t, path)[0]))

	store.Update(lifecycle.PodSet{Source: "s", Pods: append(newPods("c"), pods...)})
	require.NoError(t, store.Flush())
	assert.Len(t, reported, 2)
	assert.Equal(t, "c a b", podNames(load(t, path)[0]))

	for range 40 { // a megabyte each
		pods = append(pods, newPods("more")...)
		pods[len(pods)-1].Annotations = map[string]string{"a": strings.Repeat("x", 1<<20)}
	}
	store.Update(lifecycle.PodSet{Source: "s", Pods: pods})
	require.NoError(t, store.Flush())
	assert.Contains(t, reported[2], "is not stored: the pods take more than 33554432 bytes")
	assert.Len(t, load(t, path)[0].Pods, 33)
}

// The pods of one namespace displace neither static pods nor pods of other namespaces.
func TestNamespacesShareFullFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pods")
	store := podstore.New(path, podstore.Options{Sources: []string{"file", "api"}})
	var pods []*corev1.Pod
	add := func(namespace, name string, phase corev1.PodPhase, size, n int) {
		for i := range n {
			pod := newPods(fmt.Sprint(name, i))[0]
			pod.Namespace, pod.Status.Phase = namespace, phase
			pod.Annotations = map[string]string{"a": strings.Repeat("x", size)}
			pods = append(pods, pod)
		}
	}
	add("aa", "ended", corev1.PodFailed, 1<<20, 40)
	add("ab", "many", "", 1<<20, 60)
	add("good", "g", "", 1<<20, 3)
	add("other", "o", "", 1<<20, 3)
	store.Update(lifecycle.PodSet{Source: "api", Pods: pods})
	pods = nil
	add("kube-system", "static", "", 1<<20, 2)
	store.Update(lifecycle.PodSet{Source: "file", Pods: pods})
	require.NoError(t, store.Flush())
	count := map[string]int{}
	for _, set := range load(t, path) {
		for _, pod := range set.Pods {
			count[pod.Namespace]++
		}
	}
	require.Equal(t, map[string]int{"kube-system": 2, "good": 3, "other": 3, "ab": 23}, count)
}

// Reading a foreign or too large file takes a limited amount of memory.
func TestLoadTakesLimitedMemory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pods")
	content := encodeFile(strings.Repeat(podLine(`"containers":[{}`+strings.Repeat(",{}", 100)+"]"), 3_000))
	require.Less(t, len(content), 2<<20)
	costtest.Check(t, costtest.Limit{Bytes: 512 << 20, Time: 4 * time.Second}, func() {
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		_, err := podstore.New(path, podstore.Options{}).Load()
		require.ErrorIs(t, err, podstore.ErrCorrupt)
	})
	costtest.Check(t, costtest.Limit{}, func() {
		require.NoError(t, os.WriteFile(path, nil, 0o600))
		require.NoError(t, os.Truncate(path, 10<<30))
		_, err := podstore.New(path, podstore.Options{}).Load()
		require.Error(t, err)
	})
}
