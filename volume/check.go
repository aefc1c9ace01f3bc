// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/internal/fielderr"
	"github.com/seed81659283/nodeagent/internal/podfield"
	"github.com/seed81659283/nodeagent/internal/podvolume"
)

// imageSource is the field name of image volumes, which the container runtime mounts.
const imageSource = "image"

// pluginNames returns the name of the plugin for each type of volume source. The keys are field names of the volume source,
// such as "emptyDir".
func pluginNames() map[string]string {
	return map[string]string{
		"emptyDir": EmptyDir, "hostPath": HostPath, "configMap": ConfigMap, "secret": Secret, "downwardAPI": DownwardAPI,
		"projected": Projected, "nfs": NFS, "iscsi": ISCSI, "fc": FC, "csi": CSI, "local": Local, "gitRepo": GitRepo,
	}
}

// removedSources returns the field names of volume sources that Kubernetes no longer supports, such as "rbd". Pods with them
// stay Pending.
func removedSources() []string {
	return []string{"glusterfs", "rbd", "cephfs", "quobyte", "flocker", "storageos", "scaleIO", "photonPersistentDisk"}
}

// migratedSources returns the field names of volume sources that the kubelet converts to CSI volumes, such as "azureDisk". Check
// rejects them.
func migratedSources() []string {
	return []string{"awsElasticBlockStore", "gcePersistentDisk", "azureDisk", "azureFile", "cinder", "vsphereVolume", "portworxVolume"}
}

// Field names of volume sources with a claim.
const (
	claimSource     = "persistentVolumeClaim"
	ephemeralSource = "ephemeral"
)

// Check returns an error for each volume of a pod that this node does not support. The caller calls it when the pod is
// admitted. It does not block and has no side effects.
func (v *Volumes) Check(pod *corev1.Pod) field.ErrorList {
	return CheckPod(pod, v.opts.Plugins, v.opts.Claims != nil)
}

// CheckPod returns the errors of [Volumes.Check] for a node with these plugins, by plugin name. hasClaims is true if the node has Options.Claims. It
// calls no method of a plugin but that of [Checker].
func CheckPod(pod *corev1.Pod, plugins map[string]Plugin, hasClaims bool) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("spec", "volumes")
	for i := range pod.Spec.Volumes {
		errs = append(errs, checkVolume(pod, &pod.Spec.Volumes[i], path.Index(i), plugins, hasClaims)...)
	}
	for c := range podfield.Containers(&pod.Spec) {
		if len(c.VolumeDevices) > 0 && !hasClaims {
			errs = append(errs, field.Forbidden(c.Path.Child("volumeDevices"), noClaims))
		}
	}
	return fielderr.Short(errs)
}

// CheckClaims reads the claims of a pod and their PVs. It returns an error for each volume with a claim that a node with these plugins, by plugin name,
// cannot set up. If an object cannot be read, it returns no errors of volumes, and unread. It calls no plugin.
func CheckClaims(ctx context.Context, pod *corev1.Pod, claims Claims, plugins map[string]Plugin) (errs []error, unread error) {
	rs := resolver{&Options{Claims: claims, Plugins: plugins}}
	used := podvolume.UsedByPod(&pod.Spec)
	for i := range pod.Spec.Volumes {
		vol := &pod.Spec.Volumes[i]
		if !used[vol.Name] {
			continue // it is not set up
		}
		c, err := rs.resolveClaim(ctx, pod, vol)
		if unknown, ok := errors.AsType[*unknownError](err); ok {
			return nil, unknown
		}
		if err == nil && c != nil {
			err = rs.checkPV(c.pv)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("volume %s: %w", vol.Name, err))
		}
	}
	return errs, nil
}

// checkVolume returns the reasons why this node does not support the volume at a field path, such as spec.volumes[0].
func checkVolume(pod *corev1.Pod, vol *corev1.Volume, path *field.Path, plugins map[string]Plugin, hasClaims bool) field.ErrorList {
	name := podvolume.SourceOf(vol)
	switch {
	case name == imageSource:
		return nil
	case (name == claimSource || name == ephemeralSource) && hasClaims:
		return nil // its plugin is known only once the claim is read
	}
	path = path.Child(name)
	if name == claimSource || name == ephemeralSource {
		return field.ErrorList{field.Forbidden(path, noClaims)}
	}
	if slices.Contains(removedSources(), name) {
		return nil // Prepare reports it each time, as the kubelet does
	}
	if slices.Contains(migratedSources(), name) {
		return field.ErrorList{unsupportedError(path, name+" volumes: use their CSI driver")}
	}
	p, ok := plugins[pluginNames()[name]]
	if plugin := pluginNames()[name]; !ok && plugin != "" {
		return field.ErrorList{field.Forbidden(path, "this agent has no "+name+" volumes: volume.Options.Plugins lacks "+plugin)}
	}
	if !ok {
		return field.ErrorList{unsupportedError(path, name+" volumes")}
	}
	if c, ok := p.(Checker); ok {
		return c.Check(pod, vol, path)
	}
	return nil
}

// noClaims is the message for a volume with a claim, or a block volume, if Options.Claims is nil.
const noClaims = "this agent has no claims: volume.Options.Claims is nil"

func unsupportedError(path *field.Path, feature string) *field.Error {
	return field.Forbidden(path, "not supported by this version: "+feature)
}
