// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/lifecycle/podspec"
	"github.com/seed81659283/nodeagent/volume"
	"github.com/seed81659283/nodeagent/volume/volumetest"
)

// agent is a running Volumes, with the events and errors that it has recorded.
type agent struct {
	*volume.Volumes
	t    *testing.T
	stop func()

	mu     sync.Mutex // guards the fields below
	events []string
	errs   []string
}

// podDirs returns the names of the pod directories below root, without the lock file of Volumes.
func podDirs(t *testing.T, root string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(root)
	require.NoError(t, err)
	for _, e := range entries {
		if e.Name() != ".volumes.lock" {
			names = append(names, e.Name())
		}
	}
	return names
}

// startAgent starts an agent, which runs until stop is called or the test ends.
func startAgent(t *testing.T, o volume.Options) *agent {
	t.Helper()
	a := &agent{t: t}
	o.Rand = func() float64 { return 0 }
	o.Hooks.Event = func(pod *corev1.Pod, typ, reason, message string) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.events = append(a.events, fmt.Sprintf("%s %s %s: %s", pod.Name, typ, reason, message))
	}
	o.Hooks.Error = func(err error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.errs = append(a.errs, err.Error())
	}
	var err error
	a.Volumes, err = volume.New(o)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	a.stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-done)
	})
	t.Cleanup(a.stop)
	return a
}

func (a *agent) recordedEvents() (events []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append(events, a.events...)
}

func (a *agent) reportedErrors() (errs []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append(errs, a.errs...)
}

// podWithConfigMaps returns a pod with one container that mounts the given config maps.
func podWithConfigMaps(uid string, volumes ...string) *corev1.Pod {
	p := &corev1.Pod{}
	p.Name, p.Namespace, p.UID = "pod-"+uid, "default", types.UID(uid)
	c := corev1.Container{Name: "c"}
	for _, name := range volumes {
		v := corev1.Volume{Name: name}
		v.ConfigMap = &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}
		p.Spec.Volumes = append(p.Spec.Volumes, v)
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: "/" + name})
	}
	p.Spec.Containers = []corev1.Container{c}
	return p
}

func memoryOptions(root string, m volume.Plugin) volume.Options {
	return volume.Options{Root: root, Plugins: map[string]volume.Plugin{volume.ConfigMap: m}}
}

func TestPrepareSetsUpUsedVolumesAndReleaseRemovesThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, m := t.TempDir(), &volumetest.MemoryPlugin{}
		a := startAgent(t, memoryOptions(root, m))
		p := podWithConfigMaps("u1", "a", "b")
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "unused", VolumeSource: p.Spec.Volumes[0].VolumeSource})
		require.Empty(t, a.Check(p))
		require.NoError(t, a.Prepare(t.Context(), p))
		assert.Equal(t, []string{"u1/a", "u1/b"}, m.Volumes())
		require.NoError(t, a.Prepare(t.Context(), p))
		assert.Len(t, m.Calls(), 2, "a second call makes no plugin call")
		require.NoError(t, a.WaitError("u1"))
		require.FileExists(t, filepath.Join(root, "u1", "volumes.json"))

		launch := podspec.Launch{Volumes: map[string]podspec.Volume{"image": {}}}
		require.NoError(t, a.Container(t.Context(), p, &p.Spec.Containers[0], &launch))
		assert.Equal(t, map[string]podspec.Volume{
			"image": {}, "a": {HostPath: filepath.Join(root, "u1/volumes/kubernetes.io~configmap/a")},
			"b": {HostPath: filepath.Join(root, "u1/volumes/kubernetes.io~configmap/b")},
		}, launch.Volumes)

		other := podspec.Launch{}
		require.NoError(t, a.Container(t.Context(), p, &corev1.Container{Name: "d"}, &other))
		assert.Len(t, other.Volumes, 2, "all volumes of the pod, because environment variables can come from files in volumes")

		require.NoError(t, a.Release(t.Context(), "u1"))
		assert.Empty(t, m.Volumes())
		require.NoError(t, a.Release(t.Context(), "u1"))
		assert.NoDirExists(t, filepath.Join(root, "u1"))
		assert.Empty(t, a.Pods())
		require.Error(t, a.Container(t.Context(), p, &p.Spec.Containers[0], &podspec.Launch{}))

		require.NoError(t, a.Prepare(t.Context(), podWithConfigMaps("u2")), "a pod without volumes is prepared at once")
		assert.Empty(t, a.Pods())
	})
}

func TestRestartedAgentKeepsVolumesUntilCalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, m := t.TempDir(), &volumetest.MemoryPlugin{}
		a := startAgent(t, memoryOptions(root, m))
		for _, uid := range []string{"u1", "u2", "u3"} {
			require.NoError(t, a.Prepare(t.Context(), podWithConfigMaps(uid, "x")))
		}
		a.stop()

		a = startAgent(t, memoryOptions(root, m))
		assert.Equal(t, []string{"u1", "u2", "u3"}, a.Pods())
		synctest.Wait()
		assert.Len(t, m.Calls(), 3)
		require.NoError(t, a.Release(t.Context(), "u1"))
		require.NoError(t, a.Prepare(t.Context(), podWithConfigMaps("u2", "x")))
		a.Update(podWithConfigMaps("u3", "x"))
		synctest.Wait()
		assert.Equal(t, []string{"tear down u1/x", "set up u2/x", "set up u3/x"}, m.Calls()[3:])
		assert.Equal(t, []string{"u2/x", "u3/x"}, m.Volumes())
	})
}

func TestPrepareErrorNamesFailedVolumeAndRunRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &volumetest.MemoryPlugin{}
		fault := errors.New("configmap \"a\" not found")
		var mu sync.Mutex
		f := &volumetest.FaultyPlugin{Plugin: m, SetUpFault: func(_ context.Context, v volume.Volume) error {
			mu.Lock()
			defer mu.Unlock()
			if v.Name == "a" {
				return fault
			}
			return nil
		}}
		a := startAgent(t, memoryOptions(t.TempDir(), f))
		p := podWithConfigMaps("u1", "a", "b")
		began := time.Now()
		err := a.Prepare(t.Context(), p)
		require.EqualError(t, err, `volumes of pod default/pod-u1: timed out after 2m3s: set up volume "a": configmap "a" not found`)
		assert.Equal(t, 123*time.Second, time.Since(began))
		require.EqualError(t, a.WaitError("u1"), `set up volume "a": configmap "a" not found`)
		assert.Equal(t, []string{"u1/b"}, m.Volumes())
		want := `pod-u1 Warning FailedMount: MountVolume.SetUp failed for volume "a" : configmap "a" not found`
		assert.Len(t, a.recordedEvents(), 8, "0.5 s, doubled each time, are 63.5 s after 7 failures and 127.5 s after 8")
		assert.Equal(t, want, a.recordedEvents()[0])

		mu.Lock()
		fault = nil
		mu.Unlock()
		ready := make(chan string, 10)
		a.Notify(func(uids ...string) { ready <- uids[0] })
		require.Equal(t, "u1", <-ready, "the pod whose Prepare timed out is notified")
		assert.Equal(t, 127500*time.Millisecond, time.Since(began))
		require.NoError(t, a.Prepare(t.Context(), p))
		assert.Equal(t, 127500*time.Millisecond, time.Since(began))
		assert.Empty(t, ready)
		require.NoError(t, a.Release(t.Context(), "u1"))
		assert.Empty(t, m.Volumes())
	})
}

// unansweredError is the error of a server that does not respond.
type unansweredError struct{ error }

func (unansweredError) Unanswered() bool { return true }

// The back-off is short even after nine minutes without a response.
func TestSetUpRetriedWithin15SecondsAfterServerReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, back := &volumetest.MemoryPlugin{}, time.Now().Add(9*time.Minute)
		f := &volumetest.FaultyPlugin{Plugin: m, SetUpFault: func(context.Context, volume.Volume) error {
			if time.Now().Before(back) {
				return fmt.Errorf("token: %w", unansweredError{errors.New("no answer")})
			}
			return nil
		}}
		a := startAgent(t, memoryOptions(t.TempDir(), f))
		ready := make(chan string, 10)
		a.Notify(func(uids ...string) { ready <- uids[0] })
		p := podWithConfigMaps("u1", "a")
		require.ErrorContains(t, a.Prepare(t.Context(), p), `set up volume "a": token: no answer`)
		require.Equal(t, "u1", <-ready)
		assert.LessOrEqual(t, time.Since(back), 15*time.Second)
		require.NoError(t, a.Prepare(t.Context(), p))
	})
}

func TestHungSetUpDelaysOnlyItsPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &volumetest.MemoryPlugin{}
		f := &volumetest.FaultyPlugin{Plugin: m, SetUpFault: func(ctx context.Context, v volume.Volume) error {
			if v.Name == "hangs" {
				return volumetest.Hang(ctx, v)
			}
			return nil
		}}
		o := memoryOptions(t.TempDir(), f)
		o.Parallel = 2
		a := startAgent(t, o)
		var wg sync.WaitGroup
		for i := range 5 {
			wg.Go(func() {
				err := a.Prepare(t.Context(), podWithConfigMaps(fmt.Sprint("hung", i), "hangs"))
				assert.ErrorContains(t, err, `set up volume "hangs": `)
			})
		}
		time.Sleep(time.Second)
		began := time.Now()
		for i := range 50 {
			require.NoError(t, a.Prepare(t.Context(), podWithConfigMaps(fmt.Sprint("u", i), "x")))
		}
		assert.Less(t, time.Since(began), 30*time.Second, "a hung step occupies its slot for 10 s only")
		wg.Wait()
		require.ErrorContains(t, a.WaitError("hung0"), `set up volume "hangs": `)
		time.Sleep(time.Minute) // the last hung step started late
		require.ErrorContains(t, a.WaitError("hung0"), "no answer within 2m0s")

		began = time.Now()
		for i := range 5 {
			require.NoError(t, a.Release(t.Context(), fmt.Sprint("hung", i)))
		}
		assert.LessOrEqual(t, time.Since(began), 20*time.Second, "a teardown waits for slots of hung steps only for a limited time")
	})
}

func TestFailedTeardownKeepsRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &volumetest.MemoryPlugin{}
		fault := errors.New("device busy")
		var mu sync.Mutex
		f := &volumetest.FaultyPlugin{Plugin: m, TearDownFault: func(context.Context, volume.Volume) error {
			mu.Lock()
			defer mu.Unlock()
			return fault
		}}
		root := t.TempDir()
		a := startAgent(t, memoryOptions(root, f))
		require.NoError(t, a.Prepare(t.Context(), podWithConfigMaps("u1", "x")))
		err := a.Release(t.Context(), "u1")
		require.EqualError(t, err, `release volumes of pod default/pod-u1: timed out after 2m3s: tear down volume "x": device busy`)
		assert.Equal(t, []string{"u1"}, a.Pods())
		require.FileExists(t, filepath.Join(root, "u1", "volumes.json"))

		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		require.ErrorIs(t, a.Release(ctx, "u1"), context.DeadlineExceeded)
		mu.Lock()
		fault = nil
		mu.Unlock()
		require.NoError(t, a.Release(t.Context(), "u1"))
		require.NoDirExists(t, filepath.Join(root, "u1"))
	})
}

// watcher is a Watcher whose changes and errors come from the test.
type watcher struct {
	changed func(kind, namespace, name string)
	ready   chan struct{}
	fail    chan error
}

func (w *watcher) Watch(ctx context.Context, changed func(kind, namespace, name string)) error {
	w.changed = changed
	w.ready <- struct{}{}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case err := <-w.fail:
		return err
	}
}

func TestVolumesUpdatedOnObjectChangePodChangeAndEveryMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, w := &volumetest.MemoryPlugin{}, &watcher{ready: make(chan struct{}, 10), fail: make(chan error)}
		o := memoryOptions(t.TempDir(), m)
		o.Watcher = w
		a := startAgent(t, o)
		<-w.ready
		p := podWithConfigMaps("u1", "a", "b")
		require.NoError(t, a.Prepare(t.Context(), p))
		calls := func() int { synctest.Wait(); return len(m.Calls()) }
		require.Equal(t, 2, calls())
		w.changed("ConfigMap", "default", "a")
		require.Equal(t, 3, calls())
		w.changed("ConfigMap", "other", "a")
		w.changed("ConfigMap", "default", "c")
		require.Equal(t, 3, calls())
		time.Sleep(61 * time.Second)
		require.Equal(t, 5, calls(), "all volumes are updated once a minute")

		a.Update(p)
		require.Equal(t, 5, calls(), "an unchanged pod is not updated")
		p = p.DeepCopy()
		p.Labels = map[string]string{"a": "b"}
		a.Update(p)
		require.Equal(t, 7, calls())

		w.fail <- errors.New("out of watches")
		require.Equal(t, 9, calls(), "all volumes are updated, because changes may have been missed")
		<-w.ready
	})
}

// A damaged record is reported. No file of the pod is removed, and other pods are not affected.
func TestDamagedRecordReportedAndReplacedByPrepare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, m := t.TempDir(), &volumetest.MemoryPlugin{}
		dir := filepath.Join(root, "u1", "volumes", "kubernetes.io~configmap", "x")
		require.NoError(t, os.MkdirAll(dir, 0o750))
		file := filepath.Join(root, "u1", "volumes.json")
		require.NoError(t, os.WriteFile(file, []byte("{"), 0o600))
		a := startAgent(t, memoryOptions(root, m))
		synctest.Wait()
		require.Len(t, a.reportedErrors(), 1)
		assert.Contains(t, a.reportedErrors()[0], file)
		assert.Equal(t, []string{"u1"}, a.Pods())
		require.ErrorContains(t, a.Release(t.Context(), "u1"), file)
		require.DirExists(t, dir)
		require.NoError(t, a.Prepare(t.Context(), podWithConfigMaps("u2", "x")))

		require.NoError(t, a.Prepare(t.Context(), podWithConfigMaps("u1", "x")))
		require.NoError(t, a.Release(t.Context(), "u1"))
		require.NoFileExists(t, file)
	})
}

func TestPrepareErrorNamesMissingRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, err := volume.New(memoryOptions(t.TempDir(), &volumetest.MemoryPlugin{}))
		require.NoError(t, err)
		require.ErrorContains(t, v.Prepare(t.Context(), podWithConfigMaps("u1", "x")), "volume.Volumes.Run is not running")
	})
}

func TestSecondRunReturnsError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := startAgent(t, memoryOptions(t.TempDir(), &volumetest.MemoryPlugin{}))
		synctest.Wait()
		require.EqualError(t, a.Run(t.Context()), "volume.Volumes: second call of Run")
	})
}

// Two agents with separate states would set up and tear down the same volumes.
func TestRunFailsWhileAnotherVolumesLocksRoot(t *testing.T) {
	root := t.TempDir()
	a := startAgent(t, memoryOptions(root, &volumetest.MemoryPlugin{}))
	require.NoError(t, a.Prepare(t.Context(), podWithConfigMaps("u1", "x"))) // so that Run has started
	second, err := volume.New(memoryOptions(root, &volumetest.MemoryPlugin{}))
	require.NoError(t, err)
	err = second.Run(t.Context())
	require.ErrorContains(t, err, "volume.Volumes: lock Options.Root "+root)
	require.ErrorContains(t, err, "another agent has it open")
	a.stop()
	third := startAgent(t, memoryOptions(root, &volumetest.MemoryPlugin{}))
	require.NoError(t, third.Prepare(t.Context(), podWithConfigMaps("u1", "x")), "the lock is released when Run returns")
}

// WaitTimeout is longer than 10 s.
func TestErrorHookReportsMissingRunWithin10Seconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reported []error
		o := memoryOptions(t.TempDir(), &volumetest.MemoryPlugin{})
		o.Hooks.Error = func(err error) { reported = append(reported, err) }
		v, err := volume.New(o)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		require.Error(t, v.Prepare(ctx, podWithConfigMaps("u1", "x")))
		synctest.Wait()
		require.Len(t, reported, 1)
		require.ErrorContains(t, reported[0], "volume.Volumes.Run is not running")
	})
}

func TestNewNamesInvalidField(t *testing.T) {
	for name, o := range map[string]volume.Options{
		"Root":      {},
		"Plugins":   {Root: "/x", Plugins: map[string]volume.Plugin{volume.NFS: nil}},
		"SlowAfter": {Root: "/x", SlowAfter: -1},
		"Parallel":  {Root: "/x", Parallel: -1},
	} {
		_, err := volume.New(o)
		require.ErrorContains(t, err, "volume: field "+name)
	}
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := volume.New(volume.Options{Root: file})
	require.ErrorContains(t, err, "read records")
}

func TestStepCompletedHookCalledOncePerStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var steps []string
		o := memoryOptions(t.TempDir(), &volumetest.MemoryPlugin{})
		o.Hooks.StepCompleted = func(plugin string, step volume.Step, _ time.Duration, err error) {
			mu.Lock()
			defer mu.Unlock()
			steps = append(steps, fmt.Sprint(plugin, " ", step, " ", err))
		}
		a := startAgent(t, o)
		require.NoError(t, a.Prepare(t.Context(), podWithConfigMaps("u1", "x")))
		require.NoError(t, a.Release(t.Context(), "u1"))
		a.stop()
		assert.Equal(t, []string{"kubernetes.io/configmap set up <nil>", "kubernetes.io/configmap tear down <nil>"}, steps)
	})
}
