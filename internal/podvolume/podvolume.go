// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package podvolume says where the volumes of a pod come from, and which of them its containers use. It knows no plugins.
//
// Test kit: none is needed, as all of it is pure.
package podvolume

import (
	"iter"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/containers"
)

// SourceOf returns the field that says where a volume comes from, or "" where none does.
func SourceOf(v *corev1.Volume) string {
	switch { // the usual ones
	case v.ConfigMap != nil:
		return "configMap"
	case v.EmptyDir != nil:
		return "emptyDir"
	case v.HostPath != nil:
		return "hostPath"
	case v.Projected != nil:
		return "projected"
	case v.Secret != nil:
		return "secret"
	}
	return fieldSet(reflect.ValueOf(&v.VolumeSource).Elem())
}

// PVSourceOf returns the field that says where a volume that claims are bound to comes from, or "" where none does.
func PVSourceOf(pv *corev1.PersistentVolume) string {
	return fieldSet(reflect.ValueOf(&pv.Spec.PersistentVolumeSource).Elem())
}

// fieldSet returns the name of the first field of a struct of pointers that is not nil.
func fieldSet(sources reflect.Value) string {
	for i := range sources.NumField() {
		if !sources.Field(i).IsNil() {
			name, _, _ := strings.Cut(sources.Type().Field(i).Tag.Get("json"), ",")
			return name
		}
	}
	return ""
}

// Used returns the names of the volumes that containers of a pod use. Others are not set up.
func Used(spec *corev1.PodSpec) map[string]bool {
	names := make(map[string]bool, len(spec.Volumes))
	for c := range containers.All(spec) {
		for name := range UsedBy(c.Container) {
			names[name] = true
		}
	}
	return names
}

// UsedBy yields the names of the volumes that a container mounts, or has as devices.
func UsedBy(c *corev1.Container) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range c.VolumeMounts {
			if !yield(c.VolumeMounts[i].Name) {
				return
			}
		}
		for _, d := range c.VolumeDevices {
			if !yield(d.Name) {
				return
			}
		}
	}
}

// Find returns the volume of a pod with that name, or nil.
func Find(pod *corev1.Pod, name string) *corev1.Volume {
	for i := range pod.Spec.Volumes {
		if pod.Spec.Volumes[i].Name == name {
			return &pod.Spec.Volumes[i]
		}
	}
	return nil
}

// ReadOnly reports whether a pod has a volume read-only, by its source.
func ReadOnly(vol *corev1.Volume) bool {
	switch {
	case vol.PersistentVolumeClaim != nil:
		return vol.PersistentVolumeClaim.ReadOnly
	case vol.NFS != nil:
		return vol.NFS.ReadOnly
	case vol.CSI != nil:
		return vol.CSI.ReadOnly != nil && *vol.CSI.ReadOnly
	case vol.ISCSI != nil:
		return vol.ISCSI.ReadOnly
	case vol.FC != nil:
		return vol.FC.ReadOnly
	default:
		return false
	}
}
