// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package volumestats selects the volumes of a pod whose usage is reported in its statistics, and how each is measured: by a walk
// of its files, by statfs, or by its CSI driver. It measures nothing itself.
package volumestats

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/seed81659283/nodeagent/internal/volume/claim"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/stats"
	"github.com/seed81659283/nodeagent/volume"
)

// Volumes provides the locations and the usage of volumes. *volume.Volumes implements it.
type Volumes interface {
	// Locations returns the locations of the volumes of a pod that are set up, by volume name.
	Locations(uid string) map[string]volume.Location
	// Usage returns the usage of a volume of a pod, as its plugin measures it.
	Usage(ctx context.Context, uid, name string) (volume.Usage, error)
}

// ListMeasured returns the volumes of a pod whose usage is reported, that is not hostPath volumes. root contains the
// directories of all pods. A CSI volume or block device has a function Measure, which calls its plugin; the caller measures
// the file system of all other volumes.
func ListMeasured(root string, pod *corev1.Pod, volumes Volumes) []stats.Volume {
	list, uid := stats.VolumesOf(root, pod), string(pod.UID)
	places := volumes.Locations(uid)
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		place, ok := places[v.Name]
		name, claimed := claim.NameOf(pod, v)
		if !ok || place.Plugin == volume.HostPath || !claimed && place.Plugin != volume.CSI {
			continue
		}
		it := stats.Volume{Name: v.Name, Path: place.Path, Mounted: true}
		if claimed {
			it.PVC = &statsapi.PVCReference{Namespace: pod.Namespace, Name: name}
		}
		if place.Plugin == volume.CSI || place.Block {
			it.Measure = func(ctx context.Context) (statsapi.FsStats, error) { return measureUsage(ctx, volumes, uid, v.Name) }
		}
		list = append(list, it)
	}
	return list
}

// Pods returns the state of a pod. *lifecycle.Reconciler implements it.
type Pods interface {
	Pod(uid string) (state lifecycle.PodState, ok bool)
}

// OfPods returns a function for stats.Options.Volumes. It calls [ListMeasured] for the pod with the given UID, and returns
// nil for an unknown pod.
func OfPods(root string, pods Pods, volumes Volumes) func(uid string) []stats.Volume {
	return func(uid string) []stats.Volume {
		state, ok := pods.Pod(uid)
		if !ok || state.Spec == nil {
			return nil
		}
		return ListMeasured(root, state.Spec, volumes)
	}
}

// measureUsage returns the usage of the volume called name in the pod with this UID, as the plugin of the volume measures
// it.
func measureUsage(ctx context.Context, volumes Volumes, uid, name string) (statsapi.FsStats, error) {
	u, err := volumes.Usage(ctx, uid, name)
	return statsapi.FsStats{
		UsedBytes: &u.UsedBytes, CapacityBytes: &u.CapacityBytes, AvailableBytes: &u.AvailableBytes,
		InodesUsed: &u.UsedInodes, Inodes: &u.Inodes, InodesFree: &u.FreeInodes,
	}, err
}
