// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/internal/fielderr"
	"github.com/seed81659283/nodeagent/internal/podfield"
	"github.com/seed81659283/nodeagent/internal/podvolume"
)

// imageSource is the field of a volume that the runtime mounts.
const imageSource = "image"

// pluginNames returns the names of plugins by the field of the source.
func pluginNames() map[string]string {
	return map[string]string{
		"emptyDir": EmptyDir, "hostPath": HostPath, "configMap": ConfigMap, "secret": Secret, "downwardAPI": DownwardAPI,
		"projected": Projected, "nfs": NFS, "iscsi": ISCSI, "fc": FC, "csi": CSI, "local": Local, "gitRepo": GitRepo,
	}
}

// removedSources returns the fields of sources that the kubelet has no plugin for any more. A pod that uses one stays Pending.
func removedSources() []string {
	return []string{"glusterfs", "rbd", "cephfs", "quobyte", "flocker", "storageos", "scaleIO", "photonPersistentDisk"}
}

// migratedSources returns the fields of sources that the kubelet translates to volumes of their CSI drivers, which this version does not.
func migratedSources() []string {
	return []string{"awsElasticBlockStore", "gcePersistentDisk", "azureDisk", "azureFile", "cinder", "vsphereVolume", "portworxVolume"}
}

// The fields of volumes with a claim.
const (
	claimSource     = "persistentVolumeClaim"
	ephemeralSource = "ephemeral"
)

// Check returns an error for each field of a pod that asks for a volume that cannot be had. It is pure and quick.
func (v *Volumes) Check(pod *corev1.Pod) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("spec", "volumes")
	for i := range pod.Spec.Volumes {
		errs = append(errs, v.check(pod, &pod.Spec.Volumes[i], path.Index(i))...)
	}
	for c := range podfield.Containers(&pod.Spec) {
		if len(c.VolumeDevices) > 0 && v.opts.Claims == nil {
			errs = append(errs, field.Forbidden(c.Path.Child("volumeDevices"), noClaims))
		}
	}
	return fielderr.Short(errs)
}

func (v *Volumes) check(pod *corev1.Pod, vol *corev1.Volume, path *field.Path) field.ErrorList {
	name := podvolume.SourceOf(vol)
	switch {
	case name == imageSource:
		return nil
	case (name == claimSource || name == ephemeralSource) && v.opts.Claims != nil:
		return nil // which plugin that takes is known when the claim is
	}
	path = path.Child(name)
	if name == claimSource || name == ephemeralSource {
		return field.ErrorList{field.Forbidden(path, noClaims)}
	}
	if slices.Contains(removedSources(), name) {
		return nil // it is for Prepare to report, again and again
	}
	if slices.Contains(migratedSources(), name) {
		return field.ErrorList{unsupported(path, name+" volumes: use their CSI driver")}
	}
	p, ok := v.opts.Plugins[pluginNames()[name]]
	if plugin := pluginNames()[name]; !ok && plugin != "" {
		return field.ErrorList{field.Forbidden(path, "this agent has no "+name+" volumes: volume.Options.Plugins lacks "+plugin)}
	}
	if !ok {
		return field.ErrorList{unsupported(path, name+" volumes")}
	}
	if c, ok := p.(Checker); ok {
		return c.Check(pod, vol, path)
	}
	return nil
}

// noClaims is why a volume with a claim, or a block volume, is refused.
const noClaims = "this agent has no claims: volume.Options.Claims is nil"

func unsupported(path *field.Path, what string) *field.Error {
	return field.Forbidden(path, "not supported by this version: "+what)
}
