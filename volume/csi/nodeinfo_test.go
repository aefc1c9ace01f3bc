// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package csi_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/seed81659283/nodeagent/volume/csi"
)

func TestAddToNode(t *testing.T) {
	info := csi.NodeInfo{Driver: "a", NodeID: "7", Topology: map[string]string{"zone": "z", "rack": "r"}}
	n := &corev1.Node{}
	changed, err := info.AddToNode(n)
	require.NoError(t, err)
	require.True(t, changed)
	require.Equal(t, map[string]string{csi.AnnotationNodeID: `{"a":"7"}`}, n.Annotations)
	require.Equal(t, info.Topology, n.Labels)
	changed, err = info.AddToNode(n)
	require.NoError(t, err)
	require.False(t, changed)
	_, err = csi.NodeInfo{Driver: "b", NodeID: "8"}.AddToNode(n)
	require.NoError(t, err)
	require.Equal(t, `{"a":"7","b":"8"}`, n.Annotations[csi.AnnotationNodeID])

	before := n.DeepCopy()
	_, err = csi.NodeInfo{Driver: "c", NodeID: "9", Topology: map[string]string{"new": "x", "zone": "other"}}.AddToNode(n)
	require.ErrorContains(t, err, `label zone is "z", must be "other"`)
	require.Equal(t, before, n)

	for _, driver := range []string{"a", "x", "b"} {
		changed, err = csi.RemoveFromNode(n, driver)
		require.NoError(t, err)
		require.Equal(t, driver != "x", changed)
	}
	require.Empty(t, n.Annotations)
	require.Equal(t, info.Topology, n.Labels)
	n.Annotations = map[string]string{csi.AnnotationNodeID: "{"}
	_, err = info.AddToNode(n)
	require.ErrorContains(t, err, "annotation "+csi.AnnotationNodeID)
	_, err = csi.RemoveFromNode(n, "a")
	require.Error(t, err)
}

func TestAddToCSINode(t *testing.T) {
	n := &storagev1.CSINode{}
	info := csi.NodeInfo{Driver: "a", NodeID: "7", MaxVolumes: math.MaxInt64, Topology: map[string]string{"zone": "z", "rack": "r"}}
	require.True(t, info.AddToCSINode(n))
	require.False(t, info.AddToCSINode(n))
	d := n.Spec.Drivers[0]
	assert.Equal(t, "7", d.NodeID)
	assert.Equal(t, []string{"rack", "zone"}, d.TopologyKeys)
	assert.EqualValues(t, math.MaxInt32, *d.Allocatable.Count)
	for _, none := range []int64{0, -5} {
		info.MaxVolumes = none
		require.Equal(t, none == 0, info.AddToCSINode(n))
		require.Nil(t, n.Spec.Drivers[0].Allocatable)
	}
	require.True(t, csi.NodeInfo{Driver: "b"}.AddToCSINode(n))
	require.Len(t, n.Spec.Drivers, 2)
	require.True(t, csi.RemoveFromCSINode(n, "a"))
	require.False(t, csi.RemoveFromCSINode(n, "a"))
	require.Equal(t, "b", n.Spec.Drivers[0].Name)
}
