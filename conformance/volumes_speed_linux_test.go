// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/internal/mounttest"
	"github.com/seed81659283/nodeagent/lifecycle/objects"
	"github.com/seed81659283/nodeagent/volume"
	"github.com/seed81659283/nodeagent/volume/intree"
)

// volumePods returns the number of pods with five volumes each: 500, or NODEAGENT_VOLUME_PODS.
func volumePods(tb testing.TB) int {
	tb.Helper()
	text := os.Getenv("NODEAGENT_VOLUME_PODS")
	if text == "" {
		return 500
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

// volumeNamespace is the namespace of the pods and of the objects in their volumes.
const volumeNamespace = "default"

// fiveVolumes returns a pod with volumes of five types, one of them on disk and the others in memory.
func fiveVolumes(i int) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: volumeNamespace, Name: fmt.Sprint("p", i), UID: types.UID(fmt.Sprint("uid-", i)), Labels: map[string]string{"app": "web"}}}
	group, mode, size := int64(1234), int32(0o644), resource.MustParse("1Mi")
	p.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: &group}
	configMap := corev1.LocalObjectReference{Name: "app"}
	labels := []corev1.DownwardAPIVolumeFile{{Path: "labels", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.labels"}}}
	c := corev1.Container{Name: "c"}
	for _, v := range []corev1.Volume{
		{Name: "cache", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: "memory", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: &size}}},
		{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: configMap, DefaultMode: &mode}}},
		{Name: "key", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "key", DefaultMode: &mode}}},
		{Name: "all", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{DefaultMode: &mode, Sources: []corev1.VolumeProjection{
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: labels}}, {ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: configMap}},
		}}}},
	} {
		p.Spec.Volumes = append(p.Spec.Volumes, v)
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: v.Name, MountPath: "/" + v.Name})
	}
	p.Spec.Containers = []corev1.Container{c}
	return p
}

// shownObjects returns the objects in the volumes.
func shownObjects() (*corev1.ConfigMap, *corev1.Secret) {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: volumeNamespace, Name: "app"}, Data: map[string]string{"a": "1"}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: volumeNamespace, Name: "key"}, Data: map[string][]byte{"k": []byte("s3cret")}}
}

// volumeSide sets up and tears down the volumes of pods below its own root. Both methods handle all pods concurrently, like
// pod workers.
type volumeSide interface {
	up(ctx context.Context, pods []*corev1.Pod) error
	down(ctx context.Context, pods []*corev1.Pod) error
}

// volumeCosts are the measurements of a side.
type volumeCosts struct {
	up, down time.Duration
	idle     time.Duration // CPU time at rest, in two seconds
}

// measureVolumes measures the setup of the volumes of all pods, their cost at rest, and their teardown.
func measureVolumes(t *testing.T, side volumeSide, root string, n int) (c volumeCosts) {
	pods := make([]*corev1.Pod, n)
	for i := range pods {
		pods[i] = fiveVolumes(i)
	}
	began := time.Now()
	must(side.up(t.Context(), pods))
	c.up = time.Since(began)
	for _, path := range []string{"volumes/kubernetes.io~secret/key/k", "volumes/kubernetes.io~projected/all/labels", "volumes/kubernetes.io~empty-dir/memory"} {
		if _, err := os.Stat(filepath.Join(root, "pods", string(pods[n-1].UID), path)); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(time.Second) // let the work after the setup complete
	before := processorTime()
	time.Sleep(2 * time.Second)
	c.idle = processorTime() - before
	began = time.Now()
	must(side.down(t.Context(), pods))
	c.down = time.Since(began)
	for _, p := range pods {
		if left, err := filepath.Glob(filepath.Join(root, "pods", string(p.UID), "volumes/*/*")); err != nil || len(left) > 0 {
			t.Fatal(left, err)
		}
	}
	return c
}

// processorTime returns the CPU time of this process.
func processorTime() time.Duration {
	var u unix.Rusage
	must(unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// The volumes of 500 pods with five volumes each are set up and torn down in at most 0.2 of the time of the kubelet's volume
// manager. At rest they cost at most 0.05 of its CPU time.
func TestVolumesSpeed(t *testing.T) {
	if !*speed {
		t.Skip("without -speed")
	}
	mounttest.Need(t)
	n := volumePods(t)
	var kubelet, ours volumeCosts
	t.Run("kubelet", func(t *testing.T) {
		root := volumeRoot(t)
		kubelet = measureVolumes(t, newVolumeKubelet(t, root), root, n)
	})
	t.Run("ours", func(t *testing.T) {
		root := volumeRoot(t)
		ours = measureVolumes(t, newVolumeOurs(t, root), root, n)
	})
	if t.Failed() {
		return
	}
	both := float64(ours.up+ours.down) / float64(kubelet.up+kubelet.down)
	idle := float64(ours.idle) / float64(kubelet.idle)
	fmt.Printf("%d pods of five volumes: up %v of %v, down %v of %v: %.3f of the kubelet's time; at rest %.2f of %.2f millicores: %.3f of its\n",
		n, ours.up.Round(time.Millisecond), kubelet.up.Round(time.Millisecond), ours.down.Round(time.Millisecond), kubelet.down.Round(time.Millisecond),
		both, float64(ours.idle.Microseconds())/2000, float64(kubelet.idle.Microseconds())/2000, idle)
	if both > 0.2 {
		t.Errorf("setup and teardown take %.3f of the kubelet's time, want at most 0.2", both)
	}
	if idle > 0.05 {
		t.Errorf("volumes at rest cost %.3f of the kubelet's CPU time, want at most 0.05", idle)
	}
}

// volumeRoot returns the directory of a kubelet on tmpfs: a disk that other processes use would take longer than the
// measured code.
func volumeRoot(t *testing.T) string {
	root := t.TempDir()
	must(unix.Mount("tmpfs", root, "tmpfs", 0, ""))
	t.Cleanup(func() { must(unix.Unmount(root, unix.MNT_DETACH)) })
	return root
}

// volumeOurs implements volumeSide with package volume.
type volumeOurs struct{ *volume.Volumes }

func newVolumeOurs(t *testing.T, root string) volumeOurs {
	m := &objects.Memory{}
	configMap, secret := shownObjects()
	must(errors.Join(m.PutConfigMap(configMap), m.PutSecret(secret)))
	v, err := volume.New(volume.Options{Root: filepath.Join(root, "pods"), Plugins: intree.Plugins(intree.Options{Objects: m}), Watcher: m})
	must(err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { must(v.Run(ctx)) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return volumeOurs{v}
}

func (o volumeOurs) up(ctx context.Context, pods []*corev1.Pod) error {
	return forAllPods(pods, func(p *corev1.Pod) error { return o.Prepare(ctx, p) })
}

func (o volumeOurs) down(ctx context.Context, pods []*corev1.Pod) error {
	return forAllPods(pods, func(p *corev1.Pod) error { return o.Release(ctx, string(p.UID)) })
}

// forAllPods calls fn for all pods concurrently, and returns its errors.
func forAllPods(pods []*corev1.Pod, fn func(*corev1.Pod) error) error {
	errs := make([]error, len(pods))
	var workers sync.WaitGroup
	for i, p := range pods {
		workers.Go(func() { errs[i] = fn(p) })
	}
	workers.Wait()
	return errors.Join(errs...)
}
