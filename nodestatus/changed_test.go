// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodestatus_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/nodestatus"
)

// fullNode returns a node with a value in every compared field.
func fullNode() *corev1.Node {
	in := facts()
	in.Machine.Swap = 1
	in.Machine.HugePages = map[int64]int64{2 << 20: 1 << 30}
	in.VolumesInUse = []corev1.UniqueVolumeName{"v"}
	in.Images = append(in.Images, randomImages(50)...)
	node, _ := nodestatus.Initial(in)
	node.Status.Phase = corev1.NodeRunning
	node.Status.VolumesAttached = []corev1.AttachedVolume{{Name: "v"}}
	node.Status.Config = &corev1.NodeConfigStatus{Assigned: &corev1.NodeConfigSource{ConfigMap: &corev1.ConfigMapNodeConfigSource{Name: "a"}}}
	return node
}

func TestChangedIsFalseForHeartbeatsAndOrder(t *testing.T) {
	for name, change := range map[string]func(*corev1.NodeStatus){
		"nothing":   func(*corev1.NodeStatus) {},
		"heartbeat": func(s *corev1.NodeStatus) { s.Conditions[1].LastHeartbeatTime = metav1.NewTime(start.Add(time.Minute)) },
		"order":     func(s *corev1.NodeStatus) { slices.Reverse(s.Conditions) },
		"zone": func(s *corev1.NodeStatus) {
			s.Conditions[0].LastTransitionTime = metav1.NewTime(start.In(time.FixedZone("", 3600)))
		},
		"notation of an amount": func(s *corev1.NodeStatus) { s.Capacity["memory"] = quantity("10240Mi") },
	} {
		t.Run(name, func(t *testing.T) {
			a, b := fullNode(), fullNode()
			change(&b.Status)
			assert.False(t, nodestatus.Changed(a, b))
			assert.False(t, nodestatus.Changed(b, a))
		})
	}
	a, b := fullNode(), fullNode()
	a.Status.VolumesInUse, b.Status.VolumesInUse = nil, []corev1.UniqueVolumeName{}
	assert.False(t, nodestatus.Changed(a, b), "empty and missing lists are equal")
	b.Labels["theirs"], b.Spec.Unschedulable = "1", true
	assert.False(t, nodestatus.Changed(a, b), "labels and spec fields of other clients are not compared")
}

func TestChangedIsTrueForEachField(t *testing.T) {
	for name, change := range map[string]func(*corev1.Node){
		"os label":        func(n *corev1.Node) { n.Labels[corev1.LabelOSStable] = "windows" },
		"no arch label":   func(n *corev1.Node) { delete(n.Labels, corev1.LabelArchStable) },
		"status":          func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown },
		"reason":          func(n *corev1.Node) { n.Status.Conditions[0].Reason = "x" },
		"message":         func(n *corev1.Node) { n.Status.Conditions[3].Message = "x" },
		"transition":      func(n *corev1.Node) { n.Status.Conditions[0].LastTransitionTime = metav1.NewTime(start.Add(1)) },
		"type":            func(n *corev1.Node) { n.Status.Conditions[0].Type = "x" },
		"condition":       func(n *corev1.Node) { n.Status.Conditions = n.Status.Conditions[1:] },
		"capacity":        func(n *corev1.Node) { n.Status.Capacity["cpu"] = quantity("3") },
		"other capacity":  func(n *corev1.Node) { delete(n.Status.Capacity, "cpu"); n.Status.Capacity["x"] = quantity("4") },
		"no allocatable":  func(n *corev1.Node) { delete(n.Status.Allocatable, "cpu") },
		"phase":           func(n *corev1.Node) { n.Status.Phase = "" },
		"address":         func(n *corev1.Node) { slices.Reverse(n.Status.Addresses) },
		"port":            func(n *corev1.Node) { n.Status.DaemonEndpoints.KubeletEndpoint.Port++ },
		"boot ID":         func(n *corev1.Node) { n.Status.NodeInfo.BootID = "x" },
		"swap":            func(n *corev1.Node) { n.Status.NodeInfo.Swap.Capacity = new(int64(2)) },
		"no swap":         func(n *corev1.Node) { n.Status.NodeInfo.Swap = nil },
		"user namespace":  func(n *corev1.Node) { n.Status.NodeInfo.RunningInUserNamespace = new(true) },
		"image name":      func(n *corev1.Node) { n.Status.Images[7].Names = []string{"x"} },
		"image size":      func(n *corev1.Node) { n.Status.Images[7].SizeBytes++ },
		"volumes in use":  func(n *corev1.Node) { n.Status.VolumesInUse = nil },
		"attached":        func(n *corev1.Node) { n.Status.VolumesAttached[0].DevicePath = "x" },
		"config":          func(n *corev1.Node) { n.Status.Config.Assigned.ConfigMap.Name = "b" },
		"config error":    func(n *corev1.Node) { n.Status.Config.Error = "b" },
		"handler":         func(n *corev1.Node) { n.Status.RuntimeHandlers[1].Name = "x" },
		"handler feature": func(n *corev1.Node) { n.Status.RuntimeHandlers[1].Features.UserNamespaces = new(true) },
		"handler unknown": func(n *corev1.Node) { n.Status.RuntimeHandlers[1].Features = nil },
		"feature":         func(n *corev1.Node) { n.Status.Features.SupplementalGroupsPolicy = nil },
		"declared":        func(n *corev1.Node) { n.Status.DeclaredFeatures = append(n.Status.DeclaredFeatures, "X") },
	} {
		t.Run(name, func(t *testing.T) {
			a, b := fullNode(), fullNode()
			change(b)
			assert.True(t, nodestatus.Changed(a, b))
			assert.True(t, nodestatus.Changed(b, a))
		})
	}
}

// Changed is symmetric, and false for equal built objects.
func TestChangedIsSymmetric(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	changed := 0
	for range rounds(1000) {
		in := randomFacts(r)
		a, _ := nodestatus.Build(randomNode(r), in)
		in.Now = in.Now.Add(time.Second)
		if r.IntN(2) == 0 {
			in.Health.DiskPressure = !in.Health.DiskPressure
		}
		b, _ := nodestatus.Build(a, in)
		require.Equal(t, nodestatus.Changed(a, b), nodestatus.Changed(b, a))
		require.False(t, nodestatus.Changed(b, b.DeepCopy()))
		if nodestatus.Changed(a, b) {
			changed++
		}
	}
	assert.Positive(t, changed)
	assert.Less(t, changed, rounds(1000))
}

func TestChangedAllocatesNothing(t *testing.T) {
	a, b := fullNode(), fullNode()
	b.Status.Conditions[0].LastHeartbeatTime = metav1.NewTime(start.Add(time.Minute))
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		if nodestatus.Changed(a, b) {
			panic("changed")
		}
	}))
}
