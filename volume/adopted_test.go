// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/volume"
	"github.com/seed81659283/nodeagent/volume/volumetest"
)

// makeVolumes creates the directories of volumes, as a kubelet leaves them, such as "u1/volumes/kubernetes.io~configmap/a".
func makeVolumes(t *testing.T, root string, dirs ...string) {
	t.Helper()
	for _, dir := range dirs {
		require.NoError(t, os.MkdirAll(filepath.Join(root, dir), 0o750))
	}
}

// adoptingOptions are the options of an agent that takes the place of a kubelet, with config maps and CSI volumes.
func adoptingOptions(root string, m volume.Plugin) volume.Options {
	return volume.Options{Root: root, AdoptUnrecorded: true, Plugins: map[string]volume.Plugin{volume.ConfigMap: m, volume.CSI: m}}
}

// podWithCSI returns a pod with an inline CSI volume beside its config maps.
func podWithCSI(uid, name string, configMaps ...string) *corev1.Pod {
	p := podWithConfigMaps(uid, configMaps...)
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "csi.example.org"}}})
	c := &p.Spec.Containers[0]
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: "/" + name})
	return p
}

// The volumes of a kubelet's pod are updated once the pod is listed, and torn down with the pod.
func TestVolumesOfKubeletAreUpdatedAndTornDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, m := t.TempDir(), &volumetest.MemoryPlugin{}
		makeVolumes(t, root, "u1/volumes/kubernetes.io~configmap/a", "u1/volumes/kubernetes.io~csi/disk")
		var recovered atomic.Int32
		a := startAgent(t, adoptingOptions(root, &volumetest.FaultyPlugin{Plugin: m, AfterSetUp: func(v volume.Volume, err error) error {
			if v.Recovered {
				recovered.Add(1)
			}
			return err
		}}))
		_, known := a.VolumesInUse()
		assert.False(t, known, "the device of the CSI volume is not known")
		time.Sleep(time.Minute)
		assert.Empty(t, m.Calls(), "no source has listed the pod")

		a.Update(podWithCSI("u1", "disk", "a"))
		time.Sleep(time.Second)
		assert.Equal(t, []string{"u1/a", "u1/disk"}, m.Volumes())
		assert.EqualValues(t, 2, recovered.Load(), "both may be mounted")
		_, known = a.VolumesInUse()
		assert.True(t, known)
		assert.FileExists(t, filepath.Join(root, "u1/volumes.json"))
		require.NoError(t, a.Release(t.Context(), "u1"))
		assert.Empty(t, m.Volumes())
		assert.Empty(t, a.Pods())
	})
}

// A pod that was deleted before its volumes were adopted is released, too.
func TestReleaseAdoptsVolumesOfListedPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, m := t.TempDir(), &volumetest.MemoryPlugin{}
		makeVolumes(t, root, "u1/volumes/kubernetes.io~csi/disk", "u2/volumes/kubernetes.io~configmap/a", "u3/volumes/kubernetes.io~csi/disk")
		a := startAgent(t, adoptingOptions(root, m))
		assert.Equal(t, []string{"u1", "u2", "u3"}, a.Pods())
		a.Update(podWithCSI("u1", "disk"))
		require.NoError(t, a.Release(t.Context(), "u1"))
		assert.Contains(t, m.Calls(), "tear down u1/disk")
		require.NoError(t, a.Release(t.Context(), "u2"), "the directory says all about a config map")
		assert.Contains(t, m.Calls(), "tear down u2/a")

		// Only the spec says which driver has mounted the volume of a claim or driver.
		err := a.Release(t.Context(), "u3")
		require.EqualError(t, err, "release volumes of pod u3: volumes volumes/kubernetes.io~csi/disk were set up by another program, and the pod is not known: "+
			"unmount them, and remove their directories")
		assert.DirExists(t, filepath.Join(root, "u3/volumes/kubernetes.io~csi/disk"))
		_, known := a.VolumesInUse()
		assert.False(t, known)
		time.Sleep(11 * time.Minute)
		_, known = a.VolumesInUse()
		assert.True(t, known, "the pod is gone from the cluster, and other pods need the list")
	})
}

// An adoption that fails is tried again, with a back-off.
func TestFailedAdoptionIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, m := t.TempDir(), &volumetest.MemoryPlugin{}
		makeVolumes(t, root, "u1/volumes/kubernetes.io~csi/pv-1")
		o := adoptingOptions(root, m)
		claims := &volumetest.Claims{}
		claims.FailCalls(errors.New("no route"))
		o.Claims = claims
		a := startAgent(t, o)
		p := podWithConfigMaps("u1")
		p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "claim"},
		}}}
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
		a.Update(p)
		time.Sleep(time.Minute)
		assert.Contains(t, a.reportedErrors()[0], "adopt volumes of pod default/pod-u1: ")
		assert.Less(t, len(a.reportedErrors()), 10, "there is a back-off")
		_, known := a.VolumesInUse()
		assert.False(t, known)
		require.ErrorContains(t, a.Release(t.Context(), "u1"), "no route")
		assert.Empty(t, m.Calls())

		claims.FailCalls(nil)
		claims.Bind("default", "claim", &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-1"}, Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "csi.example.org", VolumeHandle: "1"}},
		}})
		time.Sleep(2 * time.Minute)
		assert.Equal(t, []string{"u1/data"}, m.Volumes())
		require.NoError(t, a.Release(t.Context(), "u1"))
		assert.Empty(t, m.Volumes())
	})
}

// hangingClaims is an API server that does not answer.
type hangingClaims struct{ volumetest.Claims }

func (*hangingClaims) PersistentVolumeClaim(ctx context.Context, _, _ string) (*corev1.PersistentVolumeClaim, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// A release ends the adoption that is waiting for the API server, which sets up nothing of the released pod afterwards.
func TestReleaseEndsAdoption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, m := t.TempDir(), &volumetest.MemoryPlugin{}
		makeVolumes(t, root, "u1/volumes/kubernetes.io~configmap/a")
		o := adoptingOptions(root, m)
		o.Claims = &hangingClaims{}
		a := startAgent(t, o)
		p := podWithConfigMaps("u1", "a")
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "claim"},
		}})
		p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "data", MountPath: "/data"})
		a.Update(p)
		time.Sleep(time.Second)
		began := time.Now()
		require.NoError(t, a.Release(t.Context(), "u1"))
		assert.Zero(t, time.Since(began))
		time.Sleep(10 * time.Minute)
		assert.Empty(t, m.Volumes())
		assert.Empty(t, a.Pods())
		assert.Empty(t, a.reportedErrors())
	})
}

// A kubelet's block volume is a link. A pod directory that cannot be read is an error about its pod alone.
func TestLinksAndUnreadableDirectoriesOfKubelet(t *testing.T) {
	root, m := t.TempDir(), &volumetest.MemoryPlugin{}
	makeVolumes(t, root, "u1/volumeDevices/kubernetes.io~csi", "u2/volumes/kubernetes.io~configmap/a", "u3/volumes/kubernetes.io~configmap")
	require.NoError(t, os.Symlink("/dev/null", filepath.Join(root, "u1/volumeDevices/kubernetes.io~csi/pv-1")))
	for i := range 10_001 {
		require.NoError(t, os.Mkdir(filepath.Join(root, "u3/volumes/kubernetes.io~configmap", strconv.Itoa(i)), 0o750))
	}
	a := startAgent(t, adoptingOptions(root, m))
	assert.Equal(t, []string{"u1", "u2", "u3"}, a.Pods())
	require.ErrorContains(t, a.Release(t.Context(), "u1"), "volumeDevices/kubernetes.io~csi/pv-1")
	require.NoError(t, a.Release(t.Context(), "u2"))
	require.ErrorContains(t, a.Release(t.Context(), "u3"), "more than 10000 entries")
}
