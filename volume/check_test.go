// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/volume"
	"github.com/seed81659283/nodeagent/volume/intree"
	"github.com/seed81659283/nodeagent/volume/volumetest"
)

// Each source has a plugin, belongs to the runtime, was removed from Kubernetes, or is refused with its name.
func TestCheckAcceptsOrNamesEverySource(t *testing.T) {
	v, err := volume.New(volume.Options{Root: t.TempDir(), Plugins: intree.Plugins(intree.Options{})})
	require.NoError(t, err)
	accepted := map[string]bool{"emptyDir": true, "hostPath": true, "configMap": true, "secret": true, "downwardAPI": true, "projected": true, "image": true, "nfs": true, "gitRepo": true}
	for _, name := range []string{"glusterfs", "rbd", "cephfs", "quobyte", "flocker", "storageos", "scaleIO", "photonPersistentDisk"} {
		accepted[name] = true // Kubernetes has removed them, and a pod with one stays Pending
	}
	migrated := 0
	typ := reflect.TypeFor[corev1.VolumeSource]()
	for i := range typ.NumField() {
		name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
		p := podWithConfigMaps("u1", "x")
		source := reflect.New(typ).Elem()
		source.Field(i).Set(reflect.New(typ.Field(i).Type.Elem()))
		p.Spec.Volumes[0].VolumeSource = source.Interface().(corev1.VolumeSource)
		if s := p.Spec.Volumes[0].ConfigMap; s != nil {
			s.Optional = new(true)
		}
		if s := p.Spec.Volumes[0].Secret; s != nil {
			s.Optional = new(true)
		}
		errs := v.Check(p)
		if accepted[name] {
			assert.Empty(t, errs, name)
			continue
		}
		require.Len(t, errs, 1, name)
		assert.Equal(t, "spec.volumes[0]."+name, errs[0].Field)
		switch {
		case strings.HasSuffix(errs[0].Detail, name+" volumes: use their CSI driver"):
			migrated++
		case name == "persistentVolumeClaim" || name == "ephemeral":
			assert.Equal(t, "this agent has no claims: volume.Options.Claims is nil", errs[0].Detail)
		case name == "iscsi" || name == "fc" || name == "csi":
			assert.Equal(t, "this agent has no "+name+" volumes: volume.Options.Plugins lacks kubernetes.io/"+name, errs[0].Detail)
		default:
			assert.Contains(t, errs[0].Detail, "not supported by this version: "+name+" volumes")
		}
	}
	assert.Equal(t, 7, migrated)
}

func TestCheckRefusesVolumeDevicesWithoutClaims(t *testing.T) {
	v, err := volume.New(volume.Options{Root: t.TempDir()})
	require.NoError(t, err)
	p := podWithConfigMaps("u1")
	p.Spec.Containers[0].VolumeDevices = []corev1.VolumeDevice{{Name: "x"}}
	errs := v.Check(p)
	require.Len(t, errs, 1)
	assert.Equal(t, "spec.containers[0].volumeDevices", errs[0].Field)
}

// Other volumes of the pod are set up; volumes that no container uses are ignored.
func TestPrepareReportsRemovedVolumeTypesEachTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &volumetest.MemoryPlugin{}
		a := startAgent(t, memoryOptions(t.TempDir(), m))
		p := podWithConfigMaps("u1", "b", "conf", "a", "unused")
		p.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{Glusterfs: &corev1.GlusterfsVolumeSource{}}
		p.Spec.Volumes[2].VolumeSource = corev1.VolumeSource{Flocker: &corev1.FlockerVolumeSource{}}
		p.Spec.Volumes[3].VolumeSource = corev1.VolumeSource{RBD: &corev1.RBDVolumeSource{}}
		p.Spec.Containers[0].VolumeMounts = p.Spec.Containers[0].VolumeMounts[:3]
		for range 2 {
			began := time.Now()
			require.EqualError(t, a.Prepare(t.Context(), p), "unmounted volumes=[a b], unattached volumes=[], failed to process volumes=[a b]: "+
				`failed to get Plugin from volumeSpec for volume "a" err=no volume plugin matched; `+
				`failed to get Plugin from volumeSpec for volume "b" err=no volume plugin matched`)
			assert.Zero(t, time.Since(began))
			time.Sleep(time.Second)
		}
		assert.Equal(t, []string{"u1/conf"}, m.Volumes())
		require.NoError(t, a.Release(t.Context(), "u1"))
		p.Spec.Containers[0].VolumeMounts = p.Spec.Containers[0].VolumeMounts[1:2]
		require.NoError(t, a.Prepare(t.Context(), p))
		a.stop()
	})
}
