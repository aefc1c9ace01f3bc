// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodestatus_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/nodestatus"
)

func TestReconcileSetsDefaultLabelsAndHugePages(t *testing.T) {
	for _, test := range []struct {
		name     string
		existing func(*corev1.Node)
		config   func(*nodestatus.Facts)
		changed  bool
		check    func(*testing.T, *corev1.Node)
	}{
		{name: "no difference"},
		{
			name:     "taints and labels of other clients are kept",
			existing: func(n *corev1.Node) { n.Spec.Taints, n.Labels["disk"] = []corev1.Taint{{Key: "theirs"}}, "hdd" },
			config: func(in *nodestatus.Facts) {
				in.Config.Taints = []corev1.Taint{{Key: "ours", Effect: corev1.TaintEffectNoSchedule}}
				in.Config.Labels = map[string]string{"disk": "ssd"}
			},
			check: func(t *testing.T, n *corev1.Node) {
				assert.Equal(t, []corev1.Taint{{Key: "theirs"}}, n.Spec.Taints)
				assert.Equal(t, "hdd", n.Labels["disk"])
			},
		},
		{
			name: "default labels are replaced",
			existing: func(n *corev1.Node) {
				n.Labels = map[string]string{corev1.LabelOSStable: "windows", corev1.LabelTopologyZone: "a"}
			},
			config:  func(in *nodestatus.Facts) { in.Config.Labels = map[string]string{corev1.LabelTopologyZone: "b"} },
			changed: true,
			check: func(t *testing.T, n *corev1.Node) {
				assert.Equal(t, "b", n.Labels[corev1.LabelTopologyZone])
				assert.Equal(t, "n1", n.Labels[corev1.LabelHostname])
				assert.Equal(t, n.Labels[nodestatus.LabelBetaOS], n.Labels[corev1.LabelOSStable])
			},
		},
		{
			name:     "label configured as empty is removed",
			existing: func(n *corev1.Node) { n.Labels[corev1.LabelTopologyZone] = "a" },
			config:   func(in *nodestatus.Facts) { in.Config.Labels = map[string]string{corev1.LabelTopologyZone: ""} },
			changed:  true,
			check:    func(t *testing.T, n *corev1.Node) { assert.NotContains(t, n.Labels, corev1.LabelTopologyZone) },
		},
		{
			name:     "attach-detach annotation is added",
			existing: func(n *corev1.Node) { n.Annotations = nil },
			changed:  true,
			check: func(t *testing.T, n *corev1.Node) {
				assert.Equal(t, "true", n.Annotations[nodestatus.AnnotationAttachDetach])
			},
		},
		{
			name:    "attach-detach annotation is removed",
			config:  func(in *nodestatus.Facts) { in.Config.NoControllerAttachDetach = true },
			changed: true,
			check: func(t *testing.T, n *corev1.Node) {
				assert.NotContains(t, n.Annotations, nodestatus.AnnotationAttachDetach)
			},
		},
		{
			name:     "missing resources are added",
			existing: func(n *corev1.Node) { n.Status.Capacity, n.Status.Allocatable = nil, nil },
			changed:  true,
			check:    func(t *testing.T, n *corev1.Node) { assert.Equal(t, "10Gi", amounts(n.Status.Allocatable)["memory"]) },
		},
		{
			name: "huge page sizes are replaced",
			existing: func(n *corev1.Node) {
				n.Status.Capacity["hugepages-1Gi"], n.Status.Allocatable["hugepages-1Gi"] = quantity("2Gi"), quantity("2Gi")
			},
			config:  func(in *nodestatus.Facts) { in.Machine.HugePages = map[int64]int64{2 << 20: 4 << 20} },
			changed: true,
			check: func(t *testing.T, n *corev1.Node) {
				for _, list := range []corev1.ResourceList{n.Status.Capacity, n.Status.Allocatable} {
					assert.NotContains(t, list, corev1.ResourceName("hugepages-1Gi"))
					assert.Equal(t, "4Mi", amounts(list)["hugepages-2Mi"])
				}
			},
		},
		{
			name:     "changed memory is left to the status update",
			existing: func(n *corev1.Node) { n.Status.Capacity["memory"] = quantity("1Gi") },
			check:    func(t *testing.T, n *corev1.Node) { assert.Equal(t, "1Gi", amounts(n.Status.Capacity)["memory"]) },
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			existing, _ := nodestatus.Initial(facts())
			if test.existing != nil {
				test.existing(existing)
			}
			in := facts()
			if test.config != nil {
				test.config(&in)
			}
			initial, _ := nodestatus.Initial(in)
			node, changed := nodestatus.Reconcile(existing, initial)
			assert.Equal(t, test.changed, changed)
			if test.check != nil {
				test.check(t, node)
			}
			if !test.changed {
				assert.Equal(t, existing, node)
			}
		})
	}
}

// A reconciled object needs no further change. The arguments are not modified.
func TestReconcileOfReconciledNodeIsUnchanged(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	for range rounds(1000) {
		existing := randomNode(r)
		initial, _ := nodestatus.Initial(randomFacts(r))
		before, from := existing.DeepCopy(), initial.DeepCopy()
		node, changed := nodestatus.Reconcile(existing, initial)
		require.Equal(t, before, existing)
		require.Equal(t, from, initial)
		if !changed {
			require.Equal(t, existing, node)
		}
		again, changed := nodestatus.Reconcile(node, initial)
		require.False(t, changed)
		require.Equal(t, node, again)
	}
}

func TestZeroExtendedResourcesKeepsOtherResources(t *testing.T) {
	node := fullNode()
	same, found := nodestatus.ZeroExtendedResources(node)
	assert.False(t, found)
	assert.Equal(t, node, same)

	node.Status.Capacity["example.com/gpu"] = quantity("2")
	zeroed, found := nodestatus.ZeroExtendedResources(node)
	assert.True(t, found)
	assert.Equal(t, "0", amounts(zeroed.Status.Capacity)["example.com/gpu"])
	assert.Equal(t, "0", amounts(zeroed.Status.Allocatable)["example.com/gpu"])
	assert.Equal(t, "4", amounts(zeroed.Status.Capacity)["cpu"])
	assert.Equal(t, "2", amounts(node.Status.Capacity)["example.com/gpu"])
}
