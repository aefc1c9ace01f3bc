// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"context"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// Volume is a volume of a pod whose usage is measured.
type Volume struct {
	Name string
	Path string                 // path on this node
	PVC  *statsapi.PVCReference // claim of the volume; nil: none
	// Ephemeral adds the usage to the pod's ephemeral-storage usage, which may have a limit.
	Ephemeral bool
	// Mounted measures the file system of Path instead of counting its files.
	Mounted bool
	// Measure measures the volume instead of the collector, for example by its CSI driver. It is called at most once a minute,
	// and must return when ctx ends, which is after 10 s at the latest. Nil values in the result count as zero; the error
	// [errors.ErrUnsupported] omits the volume. Nil: the collector measures Path.
	Measure func(ctx context.Context) (statsapi.FsStats, error)
}

// VolumesOf returns the volumes of pod with a directory in root/pods/UID/volumes: emptyDir, configMap, secret, downwardAPI and
// projected, but no persistent volume claims. Pass [Options].Root as root; the kubelet and package volume use the same
// directories. Ephemeral follows IsLocalEphemeralVolume in the kubelet.
func VolumesOf(root string, pod *corev1.Pod) (all []Volume) {
	if !isPathElement(string(pod.UID)) {
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
		if plugin != "" && isPathElement(v.Name) {
			path := filepath.Join(root, "pods", string(pod.UID), "volumes", "kubernetes.io~"+plugin, v.Name)
			all = append(all, Volume{Name: v.Name, Path: path, Ephemeral: ephemeral})
		}
	}
	return all
}
