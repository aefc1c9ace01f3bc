// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodestatus_test

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/seed81659283/nodeagent/nodestatus"
)

// apply applies a strategic merge patch as the API server does.
func apply(t *testing.T, node *corev1.Node, patch []byte) *corev1.Node {
	t.Helper()
	text, err := json.Marshal(node)
	require.NoError(t, err)
	text, err = strategicpatch.StrategicMergePatch(text, patch, corev1.Node{})
	require.NoError(t, err)
	out := new(corev1.Node)
	require.NoError(t, json.Unmarshal(text, out))
	return out
}

// stored returns a Node object as the API server returns it, with times in seconds.
func stored(t *testing.T, node *corev1.Node) *corev1.Node {
	t.Helper()
	return apply(t, node, []byte("{}"))
}

func TestPatchContainsChangedFields(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*corev1.Node)
		want   string
	}{
		{"nothing", func(*corev1.Node) {}, `{"metadata":{"uid":"u1"}}`},
		{"spec of other clients", func(n *corev1.Node) { n.Spec.Unschedulable = true }, `{"metadata":{"uid":"u1"}}`},
		{"a label", func(n *corev1.Node) { n.Labels[corev1.LabelOSStable] = "plan9" }, `{"metadata":{"labels":{"kubernetes.io/os":"plan9"},"uid":"u1"}}`},
		{
			"annotation removed", func(n *corev1.Node) { delete(n.Annotations, nodestatus.AnnotationAttachDetach) },
			`{"metadata":{"annotations":null,"uid":"u1"}}`,
		},
		{"addresses", func(n *corev1.Node) {
			n.Status.Addresses = []corev1.NodeAddress{{Type: "InternalIP", Address: "a"}, {Type: "InternalIP", Address: "b"}}
		}, `{"metadata":{"uid":"u1"},"status":{"addresses":[{"type":"InternalIP","address":"a"},{"type":"InternalIP","address":"b"},{"$patch":"replace"}]}}`},
		{"resources", func(n *corev1.Node) {
			n.Status.Capacity["cpu"] = quantity("2500m")
			delete(n.Status.Allocatable, "pods")
		}, `{"metadata":{"uid":"u1"},"status":{"allocatable":{"pods":null},"capacity":{"cpu":"2500m"}}}`},
		{"a condition", func(n *corev1.Node) {
			n.Status.Conditions[1].Message = ""
			n.Status.Conditions[1].LastHeartbeatTime.Time = start.Add(time.Second)
		}, `{"metadata":{"uid":"u1"},"status":{"$setElementOrder/conditions":
			[{"type":"MemoryPressure"},{"type":"DiskPressure"},{"type":"PIDPressure"},{"type":"Ready"}],"conditions":[{"type":"DiskPressure","status":"False","reason":"KubeletHasNoDiskPressure",
			"message":"","lastHeartbeatTime":"2026-11-22T09:00:01Z","lastTransitionTime":"2026-11-22T09:00:00Z"}]}}`},
		{"part of nodeInfo", func(n *corev1.Node) {
			n.Status.NodeInfo.BootID = "x"
			n.Status.NodeInfo.Swap = &corev1.NodeSwapStatus{Capacity: new(int64(1<<53 + 1))}
			n.Status.NodeInfo.RunningInUserNamespace = nil
		}, `{"metadata":{"uid":"u1"},"status":{"nodeInfo":{"bootID":"x","runningInUserNamespace":null,"swap":{"capacity":9007199254740993}}}}`},
		{"lists", func(n *corev1.Node) {
			n.Status.VolumesInUse = []corev1.UniqueVolumeName{"v"}
			n.Status.RuntimeHandlers = nil
			n.Status.Features = nil
		}, `{"metadata":{"uid":"u1"},"status":{"features":null,"runtimeHandlers":null,"volumesInUse":["v"]}}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			old, _ := nodestatus.Initial(facts())
			old.UID = "u1"
			built := old.DeepCopy()
			test.change(built)
			patch, err := nodestatus.Patch(old, built)
			require.NoError(t, err)
			assert.JSONEq(t, test.want, string(patch))
			built.Spec = old.Spec
			assert.True(t, equality.Semantic.DeepEqual(stored(t, built), apply(t, old, patch)))
		})
	}
	old, _ := nodestatus.Initial(facts())
	patch, err := nodestatus.Patch(old, old)
	require.NoError(t, err)
	assert.Equal(t, "{}", string(patch), "an object that is not stored has no UID in its patch")
}

// For any difference, the strategic merge patch turns the old object into the built one.
func TestPatchedNodeEqualsBuiltNode(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range rounds(500) {
		old := stored(t, randomNode(r))
		built, _ := nodestatus.Build(old, randomFacts(r))
		if r.IntN(4) == 0 {
			initial, _ := nodestatus.Initial(randomFacts(r))
			built, _ = nodestatus.Reconcile(old, initial)
		}
		if r.IntN(4) == 0 {
			built, _ = nodestatus.ZeroExtendedResources(built)
		}
		patch, err := nodestatus.Patch(old, built)
		require.NoError(t, err)
		got := apply(t, old, patch)
		require.True(t, equality.Semantic.DeepEqual(stored(t, built), got), "%s", patch)
		require.False(t, nodestatus.Changed(built, got))
	}
}

// A patch keeps concurrent changes of the Node by other clients.
func TestPatchKeepsConcurrentChanges(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for range rounds(300) {
		old := stored(t, randomNode(r))
		built, _ := nodestatus.Build(old, randomFacts(r))
		patch, err := nodestatus.Patch(old, built)
		require.NoError(t, err)

		now := old.DeepCopy()
		now.Labels["new"], now.Spec.Unschedulable = "1", !old.Spec.Unschedulable
		now.Spec.Taints = append(now.Spec.Taints, corev1.Taint{Key: "new", Effect: corev1.TaintEffectNoExecute})
		now.Status.VolumesAttached = append(now.Status.VolumesAttached, corev1.AttachedVolume{Name: "new"})
		now.Status.Conditions = slices.Insert(now.Status.Conditions, 0, corev1.NodeCondition{Type: "KernelDeadlock", Status: corev1.ConditionTrue})
		now.Status.Capacity["new.example.com/x"] = quantity("1")
		got := apply(t, now, patch)
		require.Equal(t, now.Spec, got.Spec)
		require.Equal(t, "1", got.Labels["new"])
		require.Equal(t, now.Status.VolumesAttached, got.Status.VolumesAttached)
		require.Equal(t, corev1.ConditionTrue, condition(got, "KernelDeadlock").Status)
		require.Equal(t, "1", amounts(got.Status.Capacity)["new.example.com/x"])
		require.Equal(t, condition(stored(t, built), corev1.NodeReady), condition(got, corev1.NodeReady))
	}
}
