// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package volumestats says which volumes of a pod are measured for its statistics, and by whom: the file system, the kernel or a CSI driver.
package volumestats

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/seed81659283/nodeagent/internal/volume/claim"
	"github.com/seed81659283/nodeagent/stats"
	"github.com/seed81659283/nodeagent/volume"
)

// Volumes are the volumes of pods. *volume.Volumes is one.
type Volumes interface {
	// Places returns where the volumes of a pod are, by their names in the pod.
	Places(uid string) map[string]volume.Place
	// Usage asks the plugin of a volume for its usage.
	Usage(ctx context.Context, uid, name string) (volume.Usage, error)
}

// Of returns the volumes of a pod whose usage is measured: those that belong to the pod, and claims. The usage of a CSI volume
// is what its driver says, that of a block device its size, and that of any other claim the usage of its file system. A hostPath volume is
// not measured.
func Of(root string, pod *corev1.Pod, volumes Volumes) []stats.Volume {
	list, uid := stats.VolumesOf(root, pod), string(pod.UID)
	places := volumes.Places(uid)
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		place, ok := places[v.Name]
		name, claimed := claim.Of(pod, v)
		if !ok || place.Plugin == volume.HostPath || !claimed && place.Plugin != volume.CSI {
			continue
		}
		it := stats.Volume{Name: v.Name, Path: place.Path, Mounted: true}
		if claimed {
			it.PVC = &statsapi.PVCReference{Namespace: pod.Namespace, Name: name}
		}
		if place.Plugin == volume.CSI || place.Block {
			it.Measure = func(ctx context.Context) (statsapi.FsStats, error) { return usage(ctx, volumes, uid, v.Name) }
		}
		list = append(list, it)
	}
	return list
}

// usage asks the plugin of a volume for its usage.
func usage(ctx context.Context, volumes Volumes, uid, name string) (statsapi.FsStats, error) {
	u, err := volumes.Usage(ctx, uid, name)
	return statsapi.FsStats{
		UsedBytes: &u.UsedBytes, CapacityBytes: &u.CapacityBytes, AvailableBytes: &u.AvailableBytes,
		InodesUsed: &u.UsedInodes, Inodes: &u.Inodes, InodesFree: &u.FreeInodes,
	}, err
}
