// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package podvolume reads the volumes in a pod spec: the type of their sources, and which containers use them. It does not set up
// volumes.
//
// Test kit: none is needed, because all functions are pure.
package podvolume

import (
	"iter"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/containers"
)

// SourceOf returns the type of a volume: the JSON name of its source field, such as "configMap". It returns "" if no source
// is set.
func SourceOf(vol *corev1.Volume) string {
	switch { // the common ones, without reflection
	case vol.ConfigMap != nil:
		return "configMap"
	case vol.EmptyDir != nil:
		return "emptyDir"
	case vol.HostPath != nil:
		return "hostPath"
	case vol.Projected != nil:
		return "projected"
	case vol.Secret != nil:
		return "secret"
	}
	return firstFieldSet(reflect.ValueOf(&vol.VolumeSource).Elem())
}

// PVSourceOf returns the type of a persistent volume: the JSON name of its source field, such as "csi". It returns "" if no
// source is set.
func PVSourceOf(pv *corev1.PersistentVolume) string {
	return firstFieldSet(reflect.ValueOf(&pv.Spec.PersistentVolumeSource).Elem())
}

// firstFieldSet returns the JSON name of the first non-nil field of a struct of pointers, or "".
func firstFieldSet(sources reflect.Value) string {
	for i := range sources.NumField() {
		if !sources.Field(i).IsNil() {
			name, _, _ := strings.Cut(sources.Type().Field(i).Tag.Get("json"), ",")
			return name
		}
	}
	return ""
}

// UsedByPod returns the names of the volumes that at least one container mounts or uses as a device. Only these volumes must
// be set up.
func UsedByPod(spec *corev1.PodSpec) map[string]bool {
	names := make(map[string]bool, len(spec.Volumes))
	for c := range containers.All(spec) {
		for name := range UsedByContainer(c.Container) {
			names[name] = true
		}
	}
	return names
}

// UsedByContainer yields the name of a volume for each volume mount and each volume device of the container.
func UsedByContainer(container *corev1.Container) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range container.VolumeMounts {
			if !yield(container.VolumeMounts[i].Name) {
				return
			}
		}
		for _, d := range container.VolumeDevices {
			if !yield(d.Name) {
				return
			}
		}
	}
}

// Find returns the volume called name in the spec of pod, or nil if there is none.
func Find(pod *corev1.Pod, name string) *corev1.Volume {
	for i := range pod.Spec.Volumes {
		if pod.Spec.Volumes[i].Name == name {
			return &pod.Spec.Volumes[i]
		}
	}
	return nil
}

// ReadOnly reports whether the source of vol has the field readOnly set, which makes the volume read-only for the whole pod.
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
