// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/apiserver"
	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podenv"
	"github.com/seed81659283/nodeagent/volume"
	"github.com/seed81659283/nodeagent/volume/csi"
	"github.com/seed81659283/nodeagent/volume/intree"
)

// Interfaces of other packages that types of this package implement.
var (
	_ podenv.Objects  = (*apiserver.Objects)(nil)
	_ intree.Objects  = apiserver.VolumeObjects{}
	_ volume.Claims   = (*apiserver.Objects)(nil)
	_ volume.Watcher  = (*apiserver.Objects)(nil)
	_ csi.Drivers     = (*apiserver.Objects)(nil)
	_ csi.Secrets     = (*apiserver.Objects)(nil)
	_ csi.Attachments = (*apiserver.Objects)(nil)
	_ csi.NodeUpdater = csiNode{}
)

// csiNode connects csi.NodeInfo with Objects, as an agent does. Objects does not import package csi, which would link gRPC.
type csiNode struct {
	objects *apiserver.Objects
	node    string
}

func (n csiNode) InstallDriver(ctx context.Context, info csi.NodeInfo) error {
	if err := n.objects.EditNode(ctx, info.AddToNode); err != nil {
		return err
	}
	return n.objects.EditCSINode(ctx, info.AddToCSINode)
}

func (n csiNode) UninstallDriver(ctx context.Context, driver string) error {
	err := n.objects.EditCSINode(ctx, func(o *storagev1.CSINode) bool { return csi.RemoveFromCSINode(o, driver) })
	if err != nil {
		return err
	}
	return n.objects.EditNode(ctx, func(o *corev1.Node) (bool, error) { return csi.RemoveFromNode(o, driver) })
}

func newObjects(t *testing.T) (*apiservertest.Server, *apiserver.Objects) {
	t.Helper()
	server := apiservertest.NewServer(apiservertest.Options{})
	t.Cleanup(server.Close)
	source, err := apiserver.New(server.Config(), apiserver.Options{NodeName: "n1"})
	require.NoError(t, err)
	objects, err := source.Objects(apiserver.ObjectsOptions{})
	require.NoError(t, err)
	return server, objects
}

// A CSI driver is in Node and CSINode from its registration until its removal.
func TestNodeInfoChangesNodeAndCSINode(t *testing.T) {
	server, objects := newObjects(t)
	require.NoError(t, server.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}))
	n := csiNode{objects, "n1"}
	info := csi.NodeInfo{Driver: "csi.example", NodeID: "id-1", MaxVolumes: 5, Topology: map[string]string{"topology.csi.example/zone": "a"}}
	for range 2 { // the second call has nothing to change
		require.NoError(t, n.InstallDriver(t.Context(), info))
	}
	node, _ := apiservertest.Get[*corev1.Node](server, "", "n1")
	require.Equal(t, "a", node.Labels["topology.csi.example/zone"])
	require.JSONEq(t, `{"csi.example":"id-1"}`, node.Annotations[csi.AnnotationNodeID])
	csiObject, _ := apiservertest.Get[*storagev1.CSINode](server, "", "n1")
	require.Equal(t, int32(5), *csiObject.Spec.Drivers[0].Allocatable.Count)
	require.NoError(t, n.UninstallDriver(t.Context(), "csi.example"))
	node, _ = apiservertest.Get[*corev1.Node](server, "", "n1")
	require.Empty(t, node.Annotations)
	csiObject, _ = apiservertest.Get[*storagev1.CSINode](server, "", "n1")
	require.Empty(t, csiObject.Spec.Drivers)
}

// The claim of an expanded volume has the new capacity and no conditions of the expansion; other conditions stay.
func TestReportClaimExpandedPatchesStatus(t *testing.T) {
	server, objects := newObjects(t)
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "u1"}}
	claim.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi"), "inodes": resource.MustParse("5")}
	claim.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{corev1.ResourceStorage: corev1.PersistentVolumeClaimNodeResizePending}
	claim.Status.Conditions = []corev1.PersistentVolumeClaimCondition{
		{Type: corev1.PersistentVolumeClaimFileSystemResizePending, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(time.Unix(1, 0))},
		{Type: corev1.PersistentVolumeClaimVolumeModifyingVolume, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(time.Unix(1, 0))},
	}
	require.NoError(t, server.Put(claim))
	require.NoError(t, objects.ClaimExpanded(t.Context(), claim, 2<<30))
	got, _ := apiservertest.Get[*corev1.PersistentVolumeClaim](server, "shop", "data")
	require.Equal(t, "2Gi", got.Status.Capacity.Storage().String())
	require.Contains(t, got.Status.Capacity, corev1.ResourceName("inodes"))
	require.Empty(t, got.Status.AllocatedResourceStatuses)
	require.Len(t, got.Status.Conditions, 1)
	require.Equal(t, corev1.PersistentVolumeClaimVolumeModifyingVolume, got.Status.Conditions[0].Type)
	server.ForgetRequests()
	require.NoError(t, objects.ClaimExpanded(t.Context(), claim, 2<<30))
	require.Zero(t, server.CountRequests(apiservertest.Match{Verb: "patch"}))
	claim.UID = "u0"
	require.ErrorContains(t, objects.ClaimExpanded(t.Context(), claim, 3<<30), "it was recreated")
}
