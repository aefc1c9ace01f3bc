// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/internal/containers"
	"github.com/seed81659283/nodeagent/internal/fielderr"
	"github.com/seed81659283/nodeagent/internal/podfield"
)

// imageSource is the field of a volume that the runtime mounts.
const imageSource = "image"

// pluginNames returns the names of plugins by the field of the source.
func pluginNames() map[string]string {
	return map[string]string{
		"emptyDir": EmptyDir, "hostPath": HostPath, "configMap": ConfigMap, "secret": Secret, "downwardAPI": DownwardAPI,
		"projected": Projected, "nfs": NFS, "iscsi": ISCSI, "fc": FC, "csi": CSI,
	}
}

// removedSources returns the fields of sources that the kubelet has no plugin for any more, and what is to be used.
func removedSources() map[string]string {
	const driver = "use its CSI driver"
	return map[string]string{
		"gitRepo":   "clone it in an init container",
		"glusterfs": driver, "rbd": driver, "cephfs": driver, "quobyte": driver, "flocker": driver, "storageos": driver, "scaleIO": driver,
		"photonPersistentDisk": driver, "awsElasticBlockStore": driver, "gcePersistentDisk": driver, "azureDisk": driver,
		"azureFile": driver, "cinder": driver, "vsphereVolume": driver, "portworxVolume": driver,
	}
}

// sourceOf returns the field that says where a volume comes from, or "" where none does.
func sourceOf(v *corev1.Volume) string {
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
	sources := reflect.ValueOf(&v.VolumeSource).Elem()
	for i := range sources.NumField() {
		if !sources.Field(i).IsNil() {
			name, _, _ := strings.Cut(sources.Type().Field(i).Tag.Get("json"), ",")
			return name
		}
	}
	return ""
}

// used returns the names of the volumes that containers of a pod mount. Others are not set up.
func used(spec *corev1.PodSpec) map[string]bool {
	names := make(map[string]bool, len(spec.Volumes))
	for c := range containers.All(spec) {
		for i := range c.VolumeMounts {
			names[c.VolumeMounts[i].Name] = true
		}
	}
	return names
}

// source returns the volume of a pod with that name, or nil.
func source(pod *corev1.Pod, name string) *corev1.Volume {
	for i := range pod.Spec.Volumes {
		if pod.Spec.Volumes[i].Name == name {
			return &pod.Spec.Volumes[i]
		}
	}
	return nil
}

// Check returns an error for each field of a pod that asks for a volume that cannot be had. It is pure and quick.
func (v *Volumes) Check(pod *corev1.Pod) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("spec", "volumes")
	for i := range pod.Spec.Volumes {
		errs = append(errs, v.check(pod, &pod.Spec.Volumes[i], path.Index(i))...)
	}
	for c := range podfield.Containers(&pod.Spec) {
		if len(c.VolumeDevices) > 0 {
			errs = append(errs, unsupported(c.Path.Child("volumeDevices"), "block volumes"))
		}
	}
	return fielderr.Short(errs)
}

func (v *Volumes) check(pod *corev1.Pod, vol *corev1.Volume, path *field.Path) field.ErrorList {
	name := sourceOf(vol)
	if name == imageSource {
		return nil
	}
	path = path.Child(name)
	if instead, ok := removedSources()[name]; ok {
		return field.ErrorList{field.Forbidden(path, "Kubernetes has removed these volumes: "+instead)}
	}
	p, ok := v.opts.Plugins[pluginNames()[name]]
	if !ok {
		return field.ErrorList{unsupported(path, name+" volumes")}
	}
	if c, ok := p.(Checker); ok {
		return c.Check(pod, vol, path)
	}
	return nil
}

func unsupported(path *field.Path, what string) *field.Error {
	return field.Forbidden(path, "not supported by this version: "+what)
}
