// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package csi_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/internal/csitest"
	"github.com/seed81659283/nodeagent/volume"
	"github.com/seed81659283/nodeagent/volume/csi"
	"github.com/seed81659283/nodeagent/volume/volumetest"
)

func TestPluginPassesSuite(t *testing.T) {
	volumetest.TestPlugin(t, func(t *testing.T) volumetest.Subject {
		e := newEnv(t, csitest.Options{Capabilities: csitest.AllCapabilities()}, csi.Options{Drivers: driverObject(nil)})
		return volumetest.Subject{Plugin: e.plugin, Name: volume.CSI, Pod: inlinePod("1", "csi.example")}
	})
}

// inlinePod returns a pod that mounts an inline volume of a driver.
func inlinePod(uid, driver string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pod" + uid, UID: types.UID("uid-" + uid)},
		Spec: corev1.PodSpec{
			Volumes:    []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: driver}}}},
			Containers: []corev1.Container{{Name: "main", VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}}},
		},
	}
}

// startEngine starts a volume.Volumes with the plugin of e. stop stops it like a crash of the agent: its volumes remain set up.
func (e *env) startEngine(wait time.Duration) (v *volume.Volumes, stop func()) {
	e.t.Helper()
	v, err := volume.New(volume.Options{
		Root: filepath.Join(e.root, "pods"), Plugins: map[string]volume.Plugin{volume.CSI: e.plugin}, Watcher: e.plugin, Claims: &e.claims, WaitTimeout: wait,
		RefreshPeriod: e.refresh,
	})
	require.NoError(e.t, err)
	ctx, cancel := context.WithCancel(e.t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { assert.NoError(e.t, v.Run(ctx)) })
	stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	e.t.Cleanup(stop)
	return v, stop
}

// The error of the pod names the call. The pod can be released once the driver responds.
func TestHungDriverDelaysOnlyItsPods(t *testing.T) {
	c := driverObject(nil)
	c.drivers["hung.example"] = c.drivers["csi.example"].DeepCopy()
	e := newEnv(t, csitest.Options{}, csi.Options{Drivers: c})
	var mu sync.Mutex
	hang := true
	hung := csitest.Start(t, csitest.Options{
		Name: "hung.example", Registry: filepath.Join(e.root, "plugins_registry"),
		BeforeCall: func(ctx context.Context, call csitest.Call) error {
			mu.Lock()
			wait := hang && call.Method != "NodeGetInfo"
			mu.Unlock()
			if wait {
				return csitest.Hang(ctx, call)
			}
			return nil
		},
	})
	require.Eventually(t, func() bool { return len(e.plugin.Drivers()) == 2 }, timeout, time.Millisecond)
	v, _ := e.startEngine(timeout)
	var wg, waiting sync.WaitGroup
	var stuck error
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	waiting.Go(func() { stuck = v.Prepare(ctx, inlinePod("stuck", "hung.example")) })
	require.Eventually(t, func() bool { return v.WaitError("uid-stuck") != nil }, timeout, time.Millisecond)
	begun := time.Now()
	for i := range 50 {
		wg.Go(func() { assert.NoError(t, v.Prepare(t.Context(), inlinePod(fmt.Sprint(i), "csi.example"))) })
		if i == 49 {
			break
		}
	}
	require.Eventually(t, func() bool { return len(e.driver.Volumes()) == 50 }, timeout, 10*time.Millisecond)
	require.Less(t, time.Since(begun), time.Minute)
	wg.Wait()
	cancel()
	waiting.Wait()
	require.ErrorContains(t, stuck, `volumes of pod default/podstuck: `)
	require.ErrorContains(t, stuck, `volume "data"`)
	mu.Lock()
	hang = false
	mu.Unlock()
	require.Eventually(t, func() bool { return v.Release(t.Context(), "uid-stuck") == nil }, timeout, 10*time.Millisecond)
	for i := range 50 {
		require.NoError(t, v.Release(t.Context(), fmt.Sprint("uid-", i)))
	}
	require.Empty(t, e.driver.Volumes())
	require.Empty(t, hung.Volumes())
	require.Empty(t, e.listFiles())
}

// Volumes of an agent that was killed are used again, or torn down by their records.
func TestRestartedAgentUsesOrRemovesVolumes(t *testing.T) {
	e := newEnv(t, csitest.Options{}, csi.Options{Drivers: driverObject(func(s *storagev1.CSIDriverSpec) {})})
	v, stop := e.startEngine(timeout)
	kept, gone := inlinePod("kept", "csi.example"), inlinePod("gone", "csi.example")
	require.NoError(t, v.Prepare(t.Context(), kept))
	require.NoError(t, v.Prepare(t.Context(), gone))
	before := e.driver.Volumes()
	require.Len(t, before, 2)
	stop()
	e.driver.ClearCalls()

	v, _ = e.startEngine(timeout)
	require.NoError(t, v.Prepare(t.Context(), kept))
	require.Equal(t, []string{"NodePublishVolume"}, e.driver.Methods())
	require.Equal(t, before, e.driver.Volumes())
	require.NoError(t, v.Release(t.Context(), "uid-gone"))
	require.Len(t, e.driver.Volumes(), 1)
	require.NoError(t, v.Release(t.Context(), "uid-kept"))
	require.Empty(t, e.driver.Volumes())
	require.Empty(t, e.listFiles())
}

// claimPod returns a pod that mounts the claim name or, if block is true, uses it as a device.
func claimPod(uid, name string, block bool) *corev1.Pod {
	p := inlinePod(uid, "")
	p.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}
	if block {
		p.Spec.Containers[0].VolumeMounts = nil
		p.Spec.Containers[0].VolumeDevices = []corev1.VolumeDevice{{Name: "data", DevicePath: "/dev/data"}}
	}
	return p
}

// bindClaim binds a claim to a volume of the driver.
func (e *env) bindClaim(name string) {
	mode := corev1.PersistentVolumeFilesystem
	e.claims.Bind("default", name, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv-" + name},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, VolumeMode: &mode,
			Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "csi.example", VolumeHandle: "handle-" + name}},
		},
	})
}

// Claims and the CSIDriver object are deleted before the last pod is released.
func TestSharedClaimStagedOnceAndUnstagedByRecords(t *testing.T) {
	e := newEnv(t, csitest.Options{Capabilities: csitest.AllCapabilities()}, csi.Options{})
	e.bindClaim("data")
	v, stop := e.startEngine(timeout)
	require.NoError(t, v.Prepare(t.Context(), claimPod("a", "data", false)))
	require.NoError(t, v.Prepare(t.Context(), claimPod("b", "data", false)))
	require.Equal(t, []string{"NodeStageVolume", "NodePublishVolume", "NodePublishVolume"}, e.driver.Methods())
	stop()
	e.driver.ClearCalls()

	v, stop = e.startEngine(timeout)
	require.NoError(t, v.Prepare(t.Context(), claimPod("b", "data", false)))
	require.Equal(t, []string{"NodeStageVolume", "NodePublishVolume"}, e.driver.Methods())
	e.claims.FailCalls(errors.New("no API server"))
	require.NoError(t, v.Release(t.Context(), "uid-a"))
	stop()
	e.driver.ClearCalls()

	v, _ = e.startEngine(timeout)
	require.NoError(t, v.Release(t.Context(), "uid-b"))
	require.Eventually(t, func() bool { return len(e.driver.Volumes()) == 0 }, timeout, time.Millisecond)
	require.Equal(t, []string{"NodeUnpublishVolume", "NodeUnstageVolume"}, e.driver.Methods())
	require.Eventually(t, func() bool {
		return !slices.ContainsFunc(e.listFiles(), func(f string) bool { return strings.HasSuffix(f, "globalmount/") })
	}, timeout, time.Millisecond)
}

// The agent is killed before or after each call of the driver. In the end nothing remains.
func TestCrashAtEachCallIsRecovered(t *testing.T) {
	for at := 1; at <= 6; at++ {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprint(at, after), func(t *testing.T) { crashAt(t, at, after) })
		}
	}
}

func crashAt(t *testing.T, at int, after bool) {
	var calls atomic.Int64
	dying := make(chan struct{})
	die := func(c csitest.Call) bool {
		return strings.Contains(c.Method, "ublish") || strings.Contains(c.Method, "tage")
	}
	e := newEnv(t, csitest.Options{
		Capabilities: csitest.AllCapabilities(),
		BeforeCall: func(ctx context.Context, c csitest.Call) error {
			if die(c) && calls.Add(1) == int64(at) && !after {
				close(dying)
				return csitest.Hang(ctx, c)
			}
			return nil
		},
		AfterCall: func(c csitest.Call, err error) error {
			if die(c) && calls.Load() == int64(at) && after {
				select {
				case <-dying:
				default:
					close(dying)
					time.Sleep(50 * time.Millisecond) // gives the agent time to stop
				}
			}
			return err
		},
	}, csi.Options{})
	e.bindClaim("data")
	v, stop := e.startEngine(timeout)
	pod := claimPod("a", "data", false)
	worked := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { // prepares and releases the pod
		defer close(worked)
		if v.Prepare(ctx, pod) == nil {
			_ = v.Release(ctx, "uid-a")
		}
	}()
	select {
	case <-dying:
	case <-worked:
	}
	cancel()
	stop()
	<-worked

	v, _ = e.startEngine(timeout)
	if at <= 2 { // the volume was still to be set up
		require.NoError(t, v.Prepare(t.Context(), pod))
	}
	require.NoError(t, v.Release(t.Context(), "uid-a"))
	require.Eventually(t, func() bool { return len(e.driver.Volumes()) == 0 }, timeout, time.Millisecond, "%v", e.driver.Volumes())
	require.Eventually(t, func() bool {
		return !slices.ContainsFunc(e.listFiles(), func(f string) bool { return strings.Contains(f, "vol_data.json") || strings.Contains(f, "mount") })
	}, timeout, time.Millisecond)
}

// The pods do not wait for the end of their back-off. The fastest of several attempts counts, because the machine may be busy.
func TestWaitingPodsStartWhenDriverRegisters(t *testing.T) {
	e := newEnv(t, csitest.Options{Capabilities: csitest.AllCapabilities()}, csi.Options{})
	e.bindClaim("data")
	v, _ := e.startEngine(1700 * time.Millisecond)
	took := time.Hour
	for i := 0; i < 5 && took > 1500*time.Millisecond; i++ {
		e.driver.Stop()
		require.Eventually(t, func() bool { return len(e.plugin.Drivers()) == 0 }, timeout, time.Millisecond)
		pod := claimPod(fmt.Sprint(i), "data", false)
		require.Eventually(t, func() bool { // attempts fail at 0, 0.5 and 1.5 s; the next one would be at 3.5 s
			err := v.Prepare(t.Context(), pod)
			return err != nil && strings.Contains(err.Error(), "driver name csi.example not found in the list of registered CSI drivers")
		}, timeout, time.Millisecond)
		e.driver.Restart()
		begun := time.Now()
		require.Eventually(t, func() bool { return v.Prepare(t.Context(), pod) == nil }, timeout, time.Millisecond)
		took = min(took, time.Since(begun))
		require.NoError(t, v.Release(t.Context(), string(pod.UID)))
	}
	require.Less(t, took, 1500*time.Millisecond)
}

// Errors of a republish are retried and keep the volume. Other volumes are not republished.
func TestVolumeRepublishedIfRequired(t *testing.T) {
	yes := true
	c := driverObject(func(s *storagev1.CSIDriverSpec) { s.RequiresRepublish = &yes })
	var fail atomic.Bool
	e := newEnv(t, csitest.Options{BeforeCall: func(_ context.Context, c csitest.Call) error {
		if fail.Load() && c.Method == "NodePublishVolume" {
			return status.Error(codes.PermissionDenied, "the token has expired")
		}
		return nil
	}}, csi.Options{Drivers: c})
	e.refresh = 20 * time.Millisecond
	v, _ := e.startEngine(timeout)
	require.NoError(t, v.Prepare(t.Context(), inlinePod("a", "csi.example")))
	require.Eventually(t, func() bool { return len(e.driver.Methods()) >= 3 }, timeout, time.Millisecond)
	fail.Store(true)
	calls := len(e.driver.Methods())
	require.Eventually(t, func() bool { return len(e.driver.Methods()) > calls+1 }, timeout, time.Millisecond)
	require.Len(t, e.driver.Volumes(), 1)
	require.NoError(t, v.WaitError("uid-a"))
	fail.Store(false)
	require.NoError(t, v.Release(t.Context(), "uid-a"))
	require.Empty(t, e.driver.Volumes())

	e = newEnv(t, csitest.Options{}, csi.Options{Drivers: driverObject(nil)})
	e.refresh = 20 * time.Millisecond
	v, _ = e.startEngine(timeout)
	require.NoError(t, v.Prepare(t.Context(), inlinePod("a", "csi.example")))
	time.Sleep(200 * time.Millisecond)
	require.Equal(t, []string{"NodePublishVolume"}, e.driver.Methods())
}

func TestVolumeExpandedOncePerNodeAndMeasured(t *testing.T) {
	e := newEnv(t, csitest.Options{Capabilities: csitest.AllCapabilities()}, csi.Options{})
	e.bindClaim("data")
	pvc, err := e.claims.PersistentVolumeClaim(t.Context(), "default", "data")
	require.NoError(t, err)
	pvc = pvc.DeepCopy()
	pvc.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("512Mi")}
	e.claims.Put(pvc, nil)
	v, _ := e.startEngine(timeout)
	require.NoError(t, v.Prepare(t.Context(), claimPod("a", "data", false)))
	require.NoError(t, v.Prepare(t.Context(), claimPod("b", "data", false)))
	require.Equal(t, []string{"NodeStageVolume", "NodePublishVolume", "NodeExpandVolume", "NodePublishVolume"}, e.driver.Methods())
	usage, err := v.Usage(t.Context(), "uid-a", "data")
	require.NoError(t, err)
	require.EqualValues(t, 100_000, usage.UsedBytes)
	_, err = v.Usage(t.Context(), "uid-b", "other")
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.EqualError(t, err, `usage of volume "other": file does not exist`)
	require.NoError(t, v.Release(t.Context(), "uid-a"))
	require.NoError(t, v.Release(t.Context(), "uid-b"))
	require.Eventually(t, func() bool { return len(e.driver.Volumes()) == 0 }, timeout, time.Millisecond)
}
