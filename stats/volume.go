// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"context"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// Volume is a volume of a pod.
type Volume struct {
	Name string
	Path string                 // where it is on this node
	PVC  *statsapi.PVCReference // the claim; nil: none
	// Ephemeral counts it as local storage of the pod, which has a limit.
	Ephemeral bool
	// Mounted has its file system asked instead of its files counted.
	Mounted bool
	// Measure asks whoever made the volume instead, such as its CSI driver, once a minute at most; what it leaves out is zero. It
	// ends with ctx, after 10 s at the latest. The error [errors.ErrUnsupported] leaves the volume out. Nil: nobody is asked.
	Measure func(ctx context.Context) (statsapi.FsStats, error)
}

// VolumesOf returns the volumes of a pod that are directories below root/pods/UID/volumes, where the kubelet and package
// volume have them, for [Options].Volumes: emptyDir, configMap, secret, downwardAPI and projected. Root is [Options].Root.
// Those count as local storage that IsLocalEphemeralVolume of the kubelet counts. Claims are where their driver says, and
// left to the caller.
func VolumesOf(root string, pod *corev1.Pod) (all []Volume) {
	if !plain(string(pod.UID)) {
		return nil
	}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		plugin, ephemeral := "", false
		switch {
		case v.EmptyDir != nil:
			plugin, ephemeral = "empty-dir", v.EmptyDir.Medium == corev1.StorageMediumDefault
		case v.ConfigMap != nil:
			plugin, ephemeral = "configmap", true
		case v.Secret != nil:
			plugin = "secret"
		case v.DownwardAPI != nil:
			plugin = "downward-api"
		case v.Projected != nil:
			plugin = "projected"
		}
		if plugin != "" && plain(v.Name) {
			path := filepath.Join(root, "pods", string(pod.UID), "volumes", "kubernetes.io~"+plugin, v.Name)
			all = append(all, Volume{Name: v.Name, Path: path, Ephemeral: ephemeral})
		}
	}
	return all
}
