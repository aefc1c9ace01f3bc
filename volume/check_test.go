// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/volume"
	"github.com/seed81659283/nodeagent/volume/intree"
)

// Every kind of source is either set up by a plugin, left to the runtime, or refused with its name.
func TestCheckEverySource(t *testing.T) {
	v, err := volume.New(volume.Options{Root: t.TempDir(), Plugins: intree.Plugins(intree.Options{})})
	require.NoError(t, err)
	accepted := map[string]bool{"emptyDir": true, "hostPath": true, "configMap": true, "secret": true, "downwardAPI": true, "projected": true, "image": true, "nfs": true}
	removed := 0
	typ := reflect.TypeFor[corev1.VolumeSource]()
	for i := range typ.NumField() {
		name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
		p := pod("u1", "x")
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
		case strings.Contains(errs[0].Detail, "Kubernetes has removed these volumes"):
			removed++
		case name == "persistentVolumeClaim" || name == "ephemeral":
			assert.Equal(t, "this agent has no claims: volume.Options.Claims is nil", errs[0].Detail)
		case name == "iscsi" || name == "fc" || name == "csi":
			assert.Equal(t, "this agent has no "+name+" volumes: volume.Options.Plugins lacks kubernetes.io/"+name, errs[0].Detail)
		default:
			assert.Contains(t, errs[0].Detail, "not supported by this version: "+name+" volumes")
		}
	}
	assert.Equal(t, 16, removed)
}

func TestCheckDevices(t *testing.T) {
	v, err := volume.New(volume.Options{Root: t.TempDir()})
	require.NoError(t, err)
	p := pod("u1")
	p.Spec.Containers[0].VolumeDevices = []corev1.VolumeDevice{{Name: "x"}}
	errs := v.Check(p)
	require.Len(t, errs, 1)
	assert.Equal(t, "spec.containers[0].volumeDevices", errs[0].Field)
}
