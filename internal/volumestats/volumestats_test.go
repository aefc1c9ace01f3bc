// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volumestats_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/internal/volumestats"
	"github.com/seed81659283/nodeagent/stats"
	"github.com/seed81659283/nodeagent/volume"
)

// volumes provides the locations of the volumes of pod u1, and a constant usage for each.
type volumes struct {
	locations map[string]volume.Location
	err       error
}

func (v volumes) Locations(uid string) map[string]volume.Location {
	if uid != "u1" {
		return nil
	}
	return v.locations
}

func (v volumes) Usage(_ context.Context, uid, name string) (volume.Usage, error) {
	if uid != "u1" || name == "" {
		return volume.Usage{}, errors.New("not found")
	}
	return volume.Usage{CapacityBytes: 10, UsedBytes: 3, AvailableBytes: 7, Inodes: 6, UsedInodes: 2, FreeInodes: 4}, v.err
}

// withVolume returns a pod with the UID u1 and a volume named data from this source.
func withVolume(source corev1.VolumeSource) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u1"},
		Spec:       corev1.PodSpec{Volumes: []corev1.Volume{{Name: "data", VolumeSource: source}}},
	}
}

// byName returns the volume with this name in list, or nil.
func byName(list []stats.Volume, name string) *stats.Volume {
	for i := range list {
		if list[i].Name == name {
			return &list[i]
		}
	}
	return nil
}

func TestVolumesAreMeasuredByFileSystemOrPluginOrNotAtAll(t *testing.T) {
	claim := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c1"}}
	ephemeral := corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}
	const path = "/pods/u1/volumes/data"
	for _, test := range []struct {
		name   string
		source corev1.VolumeSource
		place  *volume.Location // nil: the volume is not set up
		listed bool
		pvc    string
		plugin bool // the plugin measures the volume
	}{
		{"emptyDir", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}, &volume.Location{Plugin: volume.EmptyDir, Path: path}, true, "", false},
		{"hostPath", corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}, &volume.Location{Plugin: volume.HostPath, Path: "/"}, false, "", false},
		{"claim of a local volume", claim, &volume.Location{Plugin: volume.Local, Path: path}, true, "c1", false},
		{"claim of a hostPath", claim, &volume.Location{Plugin: volume.HostPath, Path: "/"}, false, "", false},
		{"claim of a CSI driver", claim, &volume.Location{Plugin: volume.CSI, Path: path}, true, "c1", true},
		{"claim of a block device", claim, &volume.Location{Plugin: volume.Local, Path: path, Block: true}, true, "c1", true},
		{"ephemeral claim", ephemeral, &volume.Location{Plugin: volume.CSI, Path: path}, true, "web-data", true},
		{"CSI volume without a claim", corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "d"}}, &volume.Location{Plugin: volume.CSI, Path: path}, true, "", true},
		{"claim that is not set up", claim, nil, false, "", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			v := volumes{}
			if test.place != nil {
				v.locations = map[string]volume.Location{"data": *test.place}
			}
			got := byName(volumestats.ListMeasured("/pods", withVolume(test.source), v), "data")
			if !test.listed {
				require.Nil(t, got)
				return
			}
			require.NotNil(t, got)
			pvc := ""
			if got.PVC != nil {
				require.Equal(t, "shop", got.PVC.Namespace)
				pvc = got.PVC.Name
			}
			require.Equal(t, test.pvc, pvc)
			require.Equal(t, test.plugin, got.Measure != nil)
		})
	}
}

func TestVolumeMeasuredByPluginHasItsUsageAndItsError(t *testing.T) {
	v := volumes{locations: map[string]volume.Location{"data": {Plugin: volume.CSI, Path: "/x"}}}
	pod := withVolume(corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "d"}})
	stats, err := byName(volumestats.ListMeasured("/pods", pod, v), "data").Measure(t.Context())
	require.NoError(t, err)
	require.Equal(t, []uint64{10, 3, 7, 6, 2, 4}, []uint64{
		*stats.CapacityBytes, *stats.UsedBytes, *stats.AvailableBytes, *stats.Inodes, *stats.InodesUsed, *stats.InodesFree,
	})
	v.err = errors.New("the driver is away")
	_, err = byName(volumestats.ListMeasured("/pods", pod, v), "data").Measure(t.Context())
	require.ErrorIs(t, err, v.err)
}

// A pod without locations, such as one that is starting or terminating, has the volumes that its spec places in its
// directory.
func TestVolumesOfPodWithoutPlacesAreThoseOfItsDirectory(t *testing.T) {
	pod := withVolume(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})
	require.Equal(t, stats.VolumesOf("/pods", pod), volumestats.ListMeasured("/pods", pod, volumes{}))
}
