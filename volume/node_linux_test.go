// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/internal/mount"
	"github.com/seed81659283/nodeagent/internal/mounttest"
	"github.com/seed81659283/nodeagent/internal/podtest"
	"github.com/seed81659283/nodeagent/lifecycle/objects"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
	"github.com/seed81659283/nodeagent/volume"
	"github.com/seed81659283/nodeagent/volume/intree"
)

// With these environment variables, the test binary is an agent that sets up and tears down volumes until it is killed.
const (
	envRoot = "VOLUME_TEST_ROOT"
	envSeed = "VOLUME_TEST_SEED"
)

func TestMain(m *testing.M) {
	if root := os.Getenv(envRoot); root != "" {
		err := runUntilKilled(root)
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	runtime.GOMAXPROCS(1) // for the race detector beside synctest (golang/go#78156)
	mounttest.Main(m)
}

// envCount returns the number in an environment variable, or least.
func envCount(t testing.TB, variable string, least int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return least
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err)
	return n
}

// volumes is the YAML of five volumes of different types, and of a container that mounts them.
const volumes = `{securityContext: {fsGroup: 1234}, volumes: [{name: cache}, {name: memory, emptyDir: {medium: Memory, sizeLimit: 1Mi}},
	{name: config, configMap: {name: app}}, {name: key, secret: {secretName: key}},
	{name: all, projected: {sources: [{downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}}, {configMap: {name: app}}]}}],
	containers: [{name: c, image: i, volumeMounts: [{name: cache, mountPath: /cache, subPath: a/b}, {name: memory, mountPath: /memory},
	{name: config, mountPath: /config}, {name: key, mountPath: /key}, {name: all, mountPath: /all}]}]}`

// podWithFiveVolumes returns a pod with these volumes.
func podWithFiveVolumes(t testing.TB, uid string) *corev1.Pod {
	p := podtest.Pod(t, volumes)
	p.Name, p.UID = "pod-"+uid, types.UID(uid)
	return p
}

func newObjects() (*objects.Memory, error) {
	m := &objects.Memory{}
	meta := metav1.ObjectMeta{Namespace: "default", Name: "app"}
	if err := m.PutConfigMap(&corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"a": "1"}}); err != nil {
		return nil, err
	}
	meta.Name = "key"
	return m, m.PutSecret(&corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{"k": []byte("s3cret")}})
}

// localOptions returns options of an agent with the plugins of package intree.
func localOptions(root string, m *objects.Memory) volume.Options {
	return volume.Options{Root: root, Plugins: intree.Plugins(intree.Options{Objects: m}), Watcher: m}
}

// remainingPaths returns all files and mounts below root.
func remainingPaths(t *testing.T, root string) (paths []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if path != root && filepath.Base(path) != ".volumes.lock" {
			paths = append(paths, path)
		}
		return err
	}))
	table, err := mount.ReadTable()
	require.NoError(t, err)
	for _, m := range mount.MountsBelow(table, root) {
		paths = append(paths, "mounted: "+m.Point)
	}
	return paths
}

func TestReleasedPodsLeaveNothing(t *testing.T) {
	mounttest.Need(t)
	m, err := newObjects()
	require.NoError(t, err)
	root := t.TempDir()
	a := startAgent(t, localOptions(root, m))
	n := envCount(t, "VOLUME_TEST_PODS", 50)
	runParallel(n, func(i int) {
		p := podWithFiveVolumes(t, fmt.Sprint("u", i))
		launch := podspec.Launch{}
		if !assert.NoError(t, a.Prepare(t.Context(), p)) || !assert.NoError(t, a.Container(t.Context(), p, &p.Spec.Containers[0], &launch)) {
			return
		}
		_, err := podspec.Container(p, &p.Spec.Containers[0], launch, podspec.Options{})
		assert.NoError(t, err)
	})
	table, err := mount.ReadTable()
	require.NoError(t, err)
	assert.Len(t, mount.MountsBelow(table, root), 4*n, "two tmpfs for files, one for the container, and a subPath mount")
	runParallel(n, func(i int) { assert.NoError(t, a.Release(t.Context(), fmt.Sprint("u", i))) })
	assert.Empty(t, remainingPaths(t, root))
	assert.Empty(t, a.Pods())
	assert.Empty(t, a.recordedEvents())
}

// runParallel calls fn for each number below n, 16 at a time.
func runParallel(n int, fn func(i int)) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, 16)
	for i := range n {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			fn(i)
		})
	}
	wg.Wait()
}

func TestContainerSeesUpdatedFilesAndSubPath(t *testing.T) {
	mounttest.Need(t)
	m, err := newObjects()
	require.NoError(t, err)
	root := t.TempDir()
	a := startAgent(t, localOptions(root, m))
	p := podWithFiveVolumes(t, "u1")
	require.NoError(t, a.Prepare(t.Context(), p))
	var launch podspec.Launch
	require.NoError(t, a.Container(t.Context(), p, &p.Spec.Containers[0], &launch))
	c, err := podspec.Container(p, &p.Spec.Containers[0], launch, podspec.Options{})
	require.NoError(t, err)
	host := map[string]string{}
	for _, mount := range c.Mounts {
		host[mount.ContainerPath] = mount.HostPath
		assert.Equal(t, mount.ContainerPath != "/cache" && mount.ContainerPath != "/memory", mount.ReadOnly, mount.ContainerPath)
	}
	assert.Equal(t, filepath.Join(root, "u1/volume-subpaths/cache/c/0"), host["/cache"])
	require.NoError(t, os.WriteFile(filepath.Join(host["/cache"], "file"), nil, 0o600))
	require.FileExists(t, filepath.Join(root, "u1/volumes/kubernetes.io~empty-dir/cache/a/b/file"))
	read := func(path string) string { data, _ := os.ReadFile(path); return string(data) }
	assert.Equal(t, "s3cret", read(host["/key"]+"/k"))
	require.NoError(t, m.PutConfigMap(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "app"}, Data: map[string]string{"a": "2"}}))
	waitUntil(t, func() bool { return read(host["/config"]+"/a") == "2" && read(host["/all"]+"/a") == "2" })
	p = p.DeepCopy()
	p.Labels = map[string]string{"color": "blue"}
	a.Update(p)
	waitUntil(t, func() bool { return read(host["/all"]+"/labels") == `color="blue"` })
	usage, err := a.Usage(t.Context(), "u1", "memory")
	require.NoError(t, err)
	assert.EqualValues(t, 1<<20, usage.CapacityBytes)
	places := a.Locations("u1")
	assert.Equal(t, volume.Location{Plugin: volume.EmptyDir, Path: filepath.Join(root, "u1/volumes/kubernetes.io~empty-dir/cache")}, places["cache"])
	assert.Equal(t, "s3cret", read(places["key"].Path+"/k"))
	assert.Empty(t, a.Locations("u2"))
	require.NoError(t, a.Release(t.Context(), "u1"))
	assert.Empty(t, remainingPaths(t, root))
}

// waitUntil waits until cond returns true.
func waitUntil(t *testing.T, cond func() bool) {
	t.Helper()
	for !cond() {
		require.NoError(t, t.Context().Err())
		time.Sleep(time.Millisecond)
	}
}

func TestRestartedAgentRecoversFromSIGKILL(t *testing.T) {
	mounttest.Need(t)
	root := t.TempDir()
	rounds := envCount(t, "VOLUME_TEST_KILLS", 8)
	m, err := newObjects()
	require.NoError(t, err)
	found := 0
	for round := range rounds {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), envRoot+"="+root, envSeed+"="+strconv.Itoa(round))
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		_, err = out.Read(make([]byte, 1))
		require.NoError(t, err, "the agent has prepared a pod")
		time.Sleep(rand.N(60 * time.Millisecond)) // any moment after the first pod
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait()

		a := startAgent(t, localOptions(root, m))
		uids := a.Pods()
		found += len(uids)
		for i, uid := range uids {
			if i%2 == 0 {
				require.NoError(t, a.Prepare(t.Context(), podWithFiveVolumes(t, uid)))
			}
			require.NoError(t, a.Release(t.Context(), uid))
		}
		a.stop()
		assert.Empty(t, a.reportedErrors())
		require.Empty(t, remainingPaths(t, root))
	}
	t.Logf("%d pods had volumes after %d kills", found, rounds)
	assert.NotZero(t, found, "no agent was killed while a pod had volumes")
}

// runUntilKilled is an agent that prepares and releases pods until it is killed.
func runUntilKilled(root string) error {
	m, err := newObjects()
	if err != nil {
		return err
	}
	v, err := volume.New(localOptions(root, m))
	if err != nil {
		return err
	}
	go func() { _ = v.Run(context.Background()) }()
	begun := sync.OnceFunc(func() { fmt.Println("begun") })
	failed := make(chan error)
	for i := range 8 {
		go func() {
			for round := 0; ; round++ {
				uid := fmt.Sprintf("u%d-%d", i, round)
				p := podWithFiveVolumes(&testing.B{}, uid)
				var launch podspec.Launch
				err := v.Prepare(context.Background(), p)
				if err == nil {
					begun()
					err = v.Container(context.Background(), p, &p.Spec.Containers[0], &launch)
				}
				if err == nil {
					_, err = podspec.Container(p, &p.Spec.Containers[0], launch, podspec.Options{})
				}
				if err == nil {
					err = v.Release(context.Background(), uid)
				}
				if err != nil {
					failed <- err
				}
			}
		}()
	}
	return <-failed
}

// The error names the volume, and Release returns.
func TestHungFileSystemDelaysOnlyItsPod(t *testing.T) {
	mounttest.Need(t)
	m, err := newObjects()
	require.NoError(t, err)
	root, dead := t.TempDir(), t.TempDir()
	mounttest.DeadFUSE(t, dead)
	o := localOptions(root, m)
	o.StepTimeout, o.SlowAfter, o.Parallel = time.Second, 50*time.Millisecond, 2
	a := startAgent(t, o)
	p := podtest.Pod(t, "volumes: [{name: v, hostPath: {path: "+dead+"/x, type: Directory}}]", "volumeMounts: [{name: v, mountPath: /v}]")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- a.Prepare(ctx, p) }()
	runParallel(20, func(i int) { assert.NoError(t, a.Prepare(t.Context(), podWithFiveVolumes(t, fmt.Sprint("x", i)))) })
	const why = "no answer within 1s: the file system does not answer"
	waitUntil(t, func() bool {
		err := a.WaitError(string(p.UID))
		return err != nil && strings.Contains(err.Error(), why)
	})
	cancel()
	require.ErrorContains(t, <-done, `set up volume "v": `+why)
	require.NoError(t, a.Release(t.Context(), string(p.UID)))
	runParallel(20, func(i int) { assert.NoError(t, a.Release(t.Context(), fmt.Sprint("x", i))) })
	assert.Empty(t, remainingPaths(t, root))
	assert.Contains(t, strings.Join(a.recordedEvents(), "\n"), `FailedMount: MountVolume.SetUp failed for volume "v" : no answer`)
}

// A mount inside a volume is visible at a bind mount of the directory of the pods, as in a container.
func TestMountInVolumePropagatesFromSharedRoot(t *testing.T) {
	mounttest.Need(t)
	m, err := newObjects()
	require.NoError(t, err)
	root, seen := filepath.Join(t.TempDir(), "pods"), t.TempDir()
	o := localOptions(root, m)
	o.MakeRootShared = true
	for range 2 { // the second agent finds the directory shared
		a := startAgent(t, o)
		require.NoError(t, a.Prepare(t.Context(), podWithFiveVolumes(t, "u1")))
		a.stop()
	}
	defer func() { require.NoError(t, unix.Unmount(root, unix.MNT_DETACH)) }()
	require.NoError(t, unix.Mount(root, seen, "", unix.MS_BIND, ""))
	defer func() { require.NoError(t, unix.Unmount(seen, unix.MNT_DETACH)) }()
	a := startAgent(t, o)
	require.NoError(t, a.Prepare(t.Context(), podWithFiveVolumes(t, "u2")))
	const memory = "u2/volumes/kubernetes.io~empty-dir/memory"
	require.NoError(t, os.WriteFile(filepath.Join(root, memory, "file"), nil, 0o600))
	require.FileExists(t, filepath.Join(seen, memory, "file"))
	require.NoError(t, a.Release(t.Context(), "u1"))
	require.NoError(t, a.Release(t.Context(), "u2"))
	table, err := mount.ReadTable()
	require.NoError(t, err)
	assert.Len(t, mount.MountsBelow(table, root), 1, "the directory is bound to itself once")
}

// BenchmarkUpAndDown sets up and tears down a pod with five volumes.
func BenchmarkUpAndDown(b *testing.B) {
	m, err := newObjects()
	require.NoError(b, err)
	v, err := volume.New(localOptions(b.TempDir(), m))
	require.NoError(b, err)
	go func() { _ = v.Run(b.Context()) }()
	i := 0
	for b.Loop() {
		i++
		uid := fmt.Sprint("u", i)
		require.NoError(b, v.Prepare(b.Context(), podWithFiveVolumes(b, uid)))
		require.NoError(b, v.Release(b.Context(), uid))
	}
}
