// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podstore_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podapi"
	"github.com/seed81659283/nodeagent/lifecycle/podstore"
)

// newPod parses "NAME" or "NAME/UID" and returns the pod.
func newPod(text string) *corev1.Pod {
	name, uid, ok := strings.Cut(text, "/")
	if !ok {
		uid = "uid-" + name
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(uid)},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "busybox"}}},
	}
	podapi.Default(pod)
	return pod
}

func newPods(texts ...string) (pods []*corev1.Pod) {
	for _, text := range texts {
		pods = append(pods, newPod(text))
	}
	return pods
}

// podNames returns the pods of a set in the format of newPod.
func podNames(set lifecycle.PodSet) string {
	var texts []string
	for _, pod := range set.Pods {
		if text := pod.Name; string(pod.UID) != "uid-"+text {
			texts = append(texts, text+"/"+string(pod.UID))
		} else {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, " ")
}

// load returns the sets that a restarted agent loads.
func load(t *testing.T, path string, sources ...string) []lifecycle.PodSet {
	t.Helper()
	sets, err := podstore.New(path, podstore.Options{Sources: sources}).Load()
	require.NoError(t, err)
	return sets
}

// save writes a file with the sets.
func save(t *testing.T, path string, sets ...lifecycle.PodSet) {
	t.Helper()
	store := podstore.New(path, podstore.Options{Hooks: podstore.Hooks{Written: func(pods, bytes int) {
		text, err := os.ReadFile(path)
		assert.NoError(t, err)
		assert.Len(t, text, bytes)
		assert.Equal(t, 1+pods, strings.Count(string(text), "\n"))
	}}})
	for _, set := range sets {
		store.Update(set)
	}
	require.NoError(t, store.Flush())
}

func TestLoadReturnsFlushedSets(t *testing.T) {
	grace, deletedAt := int64(7), metav1.NewTime(time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC).Local())
	rich := newPod("rich")
	rich.Annotations = map[string]string{"note": "<b>&\u2028\"\n"}
	rich.DeletionTimestamp, rich.DeletionGracePeriodSeconds = &deletedAt, &grace
	rich.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{}}`)}}
	rich.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", StartTime: &deletedAt}
	rich.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	rich.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"cpu": resource.MustParse("1500m"), "memory": resource.MustParse("1Gi")}
	rich.Spec.Containers[0].LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{
		TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString("http")},
	}}
	path := filepath.Join(t.TempDir(), "pods")
	save(t, path,
		lifecycle.PodSet{Source: "api", Pods: []*corev1.Pod{rich, newPod("b")}},
		lifecycle.PodSet{Source: "none"},
		lifecycle.PodSet{Source: "file", Pods: newPods("c"), Incomplete: true})

	want := rich.DeepCopy()
	want.ManagedFields = nil
	require.NotNil(t, rich.ManagedFields, "Update does not modify the caller's pod")
	got := load(t, path)
	assert.Empty(t, cmp.Diff([]lifecycle.PodSet{
		{Source: "api", Pods: []*corev1.Pod{want, newPod("b")}, Incomplete: true},
		{Source: "file", Pods: newPods("c"), Incomplete: true},
	}, got))

	text, err := os.ReadFile(path)
	require.NoError(t, err)
	lines := strings.Split(string(text), "\n")
	require.Len(t, lines, 5, "a header, three pods and the empty text after the last line")
	assert.Regexp(t, `^nodeagent-pods version=1 saved=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ sha256=[0-9a-f]{64}$`, lines[0])
	assert.Contains(t, lines[1], `<b>&`, "JSON does not escape HTML characters")
	assert.Regexp(t, `^\{"source":"file","pod":\{.*"name":"c"`, lines[3])
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode(), "only the owner can read the file")
}

func TestLoadWithoutFileReturnsNoSets(t *testing.T) {
	for _, path := range []string{"pods", "missing/pods"} {
		sets, err := podstore.New(filepath.Join(t.TempDir(), path), podstore.Options{}).Load()
		require.NoError(t, err)
		assert.Empty(t, sets)
	}
	require.Panics(t, func() { podstore.New("", podstore.Options{}) })
}

// An incomplete source keeps the loaded pods that it has not listed yet.
func TestUpdateKeepsLoadedPodsOfIncompleteSource(t *testing.T) {
	type report struct {
		pods       string
		incomplete bool
		want       string
	}
	for name, reports := range map[string][]report{
		"complete set":                        {{"x", false, "x"}},
		"complete and empty set":              {{"", false, ""}},
		"incomplete and empty set":            {{"", true, "a b c"}},
		"incomplete set":                      {{"b x", true, "b x a c"}},
		"pods listed one by one":              {{"b", true, "b a c"}, {"b c", true, "b c a"}, {"a b c", false, "a b c"}},
		"pod listed, then not listed":         {{"b", true, "b a c"}, {"", true, "a c"}},
		"pod with the name of a loaded pod":   {{"b/2", true, "b/2 a c"}, {"", true, "a c"}},
		"incomplete set after a complete one": {{"a b", false, "a b"}, {"a", true, "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state", "pods")
			save(t, path, lifecycle.PodSet{Source: "s", Pods: newPods("a", "b", "c")}, lifecycle.PodSet{Source: "other", Pods: newPods("o")})
			store := podstore.New(path, podstore.Options{})
			_, err := store.Load()
			require.NoError(t, err)
			for _, r := range reports {
				got := store.Update(lifecycle.PodSet{Source: "s", Pods: newPods(strings.Fields(r.pods)...), Incomplete: r.incomplete})
				assert.Equal(t, r.want, podNames(got))
				assert.Equal(t, r.incomplete, got.Incomplete)
				require.NoError(t, store.Flush())
				var stored []string
				for _, set := range load(t, path) {
					stored = append(stored, podNames(set))
				}
				assert.Equal(t, strings.Trim(r.want+",o", ","), strings.Join(stored, ","), "the file has the pods that Update returned")
			}
		})
	}
}

func TestLoadDropsUnconfiguredSources(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pods")
	save(t, path, lifecycle.PodSet{Source: "file", Pods: newPods("a")}, lifecycle.PodSet{Source: "http", Pods: newPods("b")})
	store := podstore.New(path, podstore.Options{Sources: []string{"api", "file"}})
	sets, err := store.Load()
	require.NoError(t, err)
	require.Len(t, sets, 1)
	assert.Equal(t, "a", podNames(sets[0]))
	require.NoError(t, store.Flush())
	assert.Len(t, load(t, path), 1, "the next write omits pods of unconfigured sources")
}

// runningStore is a store whose Run is called in a synctest bubble.
type runningStore struct {
	*podstore.Store
	stop func() error // stops Run and returns its error

	mu      sync.Mutex
	written []time.Duration // times of the writes since the start
	retries []time.Duration
}

func startStore(t *testing.T, path string) *runningStore {
	r := &runningStore{}
	start := time.Now()
	r.Store = podstore.New(path, podstore.Options{Hooks: podstore.Hooks{
		Written: func(int, int) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.written = append(r.written, time.Since(start))
		},
		Error: func(_ error, retry time.Duration) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.retries = append(r.retries, retry)
		},
	}})
	_, err := r.Load()
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	r.stop = func() error { cancel(); return <-done }
	return r
}

func TestRunWritesOncePerInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "pods")
		r := startStore(t, path)
		synctest.Wait()
		require.Empty(t, r.written, "no write before the first update")
		for i := range 1000 {
			r.Update(lifecycle.PodSet{Source: "s", Pods: newPods("fixed", fmt.Sprint("p", i))})
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []time.Duration{0, time.Second}, r.written, "the first change is written at once, later changes after a second")
		require.Equal(t, "fixed p999", podNames(load(t, path)[0]))

		r.Update(lifecycle.PodSet{Source: "s", Pods: newPods("fixed", "p999")})
		time.Sleep(time.Minute)
		require.Len(t, r.written, 2, "equal pods are not written again")

		r.Update(lifecycle.PodSet{Source: "s", Pods: newPods("fixed")})
		r.Update(lifecycle.PodSet{Source: "s", Pods: newPods("last")})
		require.NoError(t, r.stop())
		require.Equal(t, "last", podNames(load(t, path)[0]), "the last change is written")

		restarted := startStore(t, path)
		restarted.Update(lifecycle.PodSet{Source: "s", Pods: newPods("last")})
		require.NoError(t, restarted.stop())
		require.Empty(t, restarted.written, "a restarted agent does not write equal pods")
	})
}

func TestRunRetriesFailedWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "late")
		path := filepath.Join(dir, "pods")
		r := startStore(t, path)
		require.NoError(t, os.WriteFile(dir, nil, 0o600))
		r.Update(lifecycle.PodSet{Source: "s", Pods: newPods("a")})
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		want := []time.Duration{1, 2, 4, 8, 16, 32, 60, 60}
		for i := range want {
			want[i] *= time.Second
		}
		require.Equal(t, want, r.retries)
		require.NoError(t, os.Remove(dir))
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Len(t, r.written, 1)
		require.Equal(t, "a", podNames(load(t, path)[0]))

		require.NoError(t, os.RemoveAll(dir))
		require.NoError(t, os.WriteFile(dir, nil, 0o600))
		r.Update(lifecycle.PodSet{Source: "s", Pods: newPods("b")})
		synctest.Wait()
		require.Equal(t, append(want, time.Second), r.retries, "a successful write resets the back-off")
		require.ErrorContains(t, r.stop(), dir, "the error of the last write is returned")
	})
}

// All methods are called concurrently, for the race detector.
func TestStoreMethodsCalledConcurrently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "pods")
		r := startStore(t, path)
		var wg sync.WaitGroup
		for w := range 4 {
			wg.Go(func() {
				for i := range 50 {
					r.Update(lifecycle.PodSet{Source: fmt.Sprint(w), Pods: newPods(fmt.Sprint(w, "-", i)), Incomplete: i%3 == 0})
					if i%10 == 0 {
						assert.NoError(t, r.Flush())
					}
				}
			})
		}
		wg.Wait()
		require.NoError(t, r.stop())
		sets := load(t, path)
		require.Len(t, sets, 4)
		for _, set := range sets {
			require.Equal(t, set.Source+"-49", podNames(set))
		}
	})
}
