// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	nodeutil "k8s.io/component-helpers/node/util"
	"k8s.io/kubernetes/pkg/kubelet"

	"github.com/seed81659283/nodeagent/conformance"
	"github.com/seed81659283/nodeagent/nodestatus"
)

func TestNodeChanged(t *testing.T)   { run(t, nodeChanges) }
func TestNodeReconcile(t *testing.T) { run(t, nodeReconciles) }
func TestNodeDevices(t *testing.T)   { run(t, nodeDevices) }
func TestNodePatch(t *testing.T)     { nodePatches.Run(t, flags.AtMost(20_000)) } // each input encodes or decodes JSON four times

func FuzzNodeChanged(f *testing.F)   { fuzz(f, nodeChanges) }
func FuzzNodeReconcile(f *testing.F) { fuzz(f, nodeReconciles) }

// nodePair has two versions of a Node object.
type nodePair struct{ Old, New *corev1.Node }

// makeNodePair returns two objects with few differences.
func makeNodePair(c *conformance.Choices) nodePair {
	in := makeNodeFacts(c)
	old := in.Previous
	if old == nil {
		old, _ = nodestatus.Initial(in.Facts)
	}
	old.UID = conformance.Pick[types.UID](c, "", "u1")
	p := nodePair{Old: old, New: old.DeepCopy()}
	if c.OneIn(2) {
		p.New, _ = nodestatus.Build(old, in.Facts)
	}
	for range c.Int(3) {
		tweakNode(c, p.New)
	}
	for _, label := range []string{corev1.LabelOSStable, corev1.LabelArchStable} { // the kubelet compares these labels in another function
		delete(p.Old.Labels, label)
		delete(p.New.Labels, label)
	}
	return p
}

// tweakNode changes a field of the status.
func tweakNode(c *conformance.Choices, node *corev1.Node) {
	s := &node.Status
	at := c.Int(max(len(s.Conditions), 1))
	if len(s.Conditions) == 0 {
		s.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady}}
	}
	switch c.Int(20) {
	case 0:
		s.Conditions[at].LastHeartbeatTime = metav1.NewTime(nodeClock.Add(time.Second))
	case 1:
		s.Conditions[at].LastTransitionTime = metav1.NewTime(nodeClock.Add(time.Second))
	case 2:
		s.Conditions[at].Reason = "Other"
	case 3:
		slices.Reverse(s.Conditions)
	case 4:
		s.Conditions[at].Message = ""
	case 5:
		s.Images = append(s.Images, corev1.ContainerImage{SizeBytes: 1})
	case 6:
		s.Images = []corev1.ContainerImage{}
	case 7:
		s.VolumesInUse = conformance.Pick(c, nil, []corev1.UniqueVolumeName{}, []corev1.UniqueVolumeName{"z"})
	case 8:
		s.Features = conformance.Pick(c, nil, &corev1.NodeFeatures{}, &corev1.NodeFeatures{SupplementalGroupsPolicy: new(true)})
	case 9:
		s.NodeInfo.Swap = conformance.Pick(c, nil, &corev1.NodeSwapStatus{}, &corev1.NodeSwapStatus{Capacity: new(int64(1))})
	case 10:
		s.NodeInfo.RunningInUserNamespace = conformance.Pick(c, nil, new(true), new(false))
	case 11:
		s.NodeInfo.BootID = "other"
	case 12:
		s.DaemonEndpoints.KubeletEndpoint.Port++
	case 13:
		s.Addresses = conformance.Pick(c, nil, []corev1.NodeAddress{{Type: "InternalIP", Address: "a"}, {Type: "InternalIP", Address: "b"}})
	case 14:
		s.RuntimeHandlers = append(s.RuntimeHandlers, conformance.Pick(c, corev1.NodeRuntimeHandler{}, corev1.NodeRuntimeHandler{
			Features: &corev1.NodeRuntimeHandlerFeatures{UserNamespaces: new(false)},
		}))
	case 15:
		s.DeclaredFeatures = conformance.Pick(c, nil, []string{}, []string{"Z"})
	case 16:
		tweakResources(c, &s.Capacity)
	case 17:
		tweakResources(c, &s.Allocatable)
	}
}

func tweakResources(c *conformance.Choices, list *corev1.ResourceList) {
	if *list == nil || c.OneIn(8) {
		*list = conformance.Pick(c, nil, corev1.ResourceList{})
		return
	}
	name := conformance.Pick[corev1.ResourceName](c, "memory", "cpu", "example.com/gpu")
	if c.OneIn(3) {
		delete(*list, name)
		return
	}
	(*list)[name] = resource.MustParse(conformance.Pick(c, "16Gi", "17179869184", "4", "4000m", "1.5"))
}

var nodeChanges = conformance.Comparison[nodePair, bool]{
	Make:    makeNodePair,
	Kubelet: func(in nodePair) bool { return kubelet.ConformanceChanged(in.Old, in.New) },
	Ours:    func(in nodePair) bool { return nodestatus.Changed(in.Old, in.New) },
}

// reconciled is the Node object after a kubelet has registered again.
type reconciled struct {
	Node   *corev1.Node
	Update bool
}

func (r reconciled) same(other reconciled) bool {
	return r.Update == other.Update && equality.Semantic.DeepEqual(r.Node, other.Node)
}

var nodeReconciles = conformance.Comparison[nodePair, reconciled]{
	Make: func(c *conformance.Choices) nodePair {
		in := makeNodeFacts(c)
		initial, _ := nodestatus.Initial(in.Facts)
		existing := previousNode(c, makeNodeConfig(c))
		if c.OneIn(4) {
			initial.Labels[corev1.LabelTopologyZone] = conformance.Pick(c, "", "b")
		}
		if c.OneIn(8) {
			existing.Annotations = map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": conformance.Pick(c, "", "false")}
		}
		if c.OneIn(4) {
			tweakResources(c, &existing.Status.Capacity)
			tweakResources(c, &existing.Status.Allocatable)
		}
		if c.OneIn(16) {
			initial.Status.Capacity, initial.Status.Allocatable = nil, nil
		}
		return nodePair{Old: existing, New: initial}
	},
	Kubelet: func(in nodePair) (r reconciled) {
		r.Update = kubelet.ConformanceReconcile(context.Background(), in.New, in.Old)
		r.Node = in.Old
		return r
	},
	Ours: func(in nodePair) (r reconciled) {
		r.Node, r.Update = nodestatus.Reconcile(in.Old, in.New)
		return r
	},
	Same: func(kubelet, ours reconciled) bool { return kubelet.same(ours) },
	Exceptions: []conformance.Exception[nodePair, reconciled]{{
		Name:   "empty label",
		Reason: "the removal of an empty label causes a request",
		When: func(in nodePair) bool {
			was, had := in.Old.Labels[corev1.LabelTopologyZone]
			want, wanted := in.New.Labels[corev1.LabelTopologyZone]
			host, hadHost := in.Old.Labels[corev1.LabelHostname]
			wantHost, wantedHost := in.New.Labels[corev1.LabelHostname]
			system, hadSystem := in.Old.Labels[corev1.LabelOSStable]
			wantSystem, wantedSystem := in.New.Labels[corev1.LabelOSStable]
			return had && wanted && was+want == "" || hadHost && wantedHost && host+wantHost == "" ||
				hadSystem && wantedSystem && system+wantSystem == ""
		},
		Want: func(_ nodePair, kubelet reconciled) reconciled {
			kubelet.Update = true
			return kubelet
		},
	}},
}

// nodeDevices compares the handling of extended resources whose device plugins are unknown.
var nodeDevices = conformance.Comparison[nodePair, reconciled]{
	Make: func(c *conformance.Choices) nodePair {
		in := makeNodeFacts(c)
		node, _ := nodestatus.Initial(in.Facts)
		alterNode(c, node)
		for _, name := range []corev1.ResourceName{"a.b/c", "requests.x.y/z", "kubernetes.io/x", "x.kubernetes.io/y", "no/t/valid", "UPPER.example/x"} {
			if c.OneIn(4) && node.Status.Capacity != nil {
				node.Status.Capacity[name] = resource.MustParse("2")
			}
		}
		if node.Status.Capacity == nil { // Reconcile runs before and initializes the maps
			node.Status.Capacity, node.Status.Allocatable = corev1.ResourceList{}, corev1.ResourceList{}
		}
		return nodePair{Old: node}
	},
	Kubelet: func(in nodePair) (r reconciled) {
		r.Update = kubelet.ConformanceZeroDevices(context.Background(), in.Old)
		r.Node = in.Old
		return r
	},
	Ours: func(in nodePair) (r reconciled) {
		r.Node, r.Update = nodestatus.ZeroExtendedResources(in.Old)
		return r
	},
	Same: func(kubelet, ours reconciled) bool { return kubelet.same(ours) },
}

// nodePatches compares the Node objects after the API server has applied the patches.
var nodePatches = conformance.Comparison[nodePair, *corev1.Node]{
	Make: func(c *conformance.Choices) nodePair {
		in := makeNodeFacts(c)
		if in.Previous == nil {
			in.Previous, _ = nodestatus.Initial(in.Facts)
		}
		in.Previous.Status.Conditions = uniqueConditions(in.Previous.Status.Conditions) // as the API server stores them
		p := nodePair{Old: stored(in.Previous)}
		p.New, _ = nodestatus.Build(p.Old, in.Facts)
		if c.OneIn(3) {
			initial, _ := nodestatus.Initial(makeNodeFacts(c).Facts)
			p.New, _ = nodestatus.Reconcile(p.New, initial)
		}
		p.New = stored(p.New) // the format of a zero depends on the order in which huge pages were subtracted
		return p
	},
	Kubelet: func(in nodePair) *corev1.Node {
		client := &patchClient{}
		if _, _, err := nodeutil.PatchNodeStatus(client, types.NodeName(in.Old.Name), in.Old, in.New); err != nil {
			panic(err)
		}
		return patched(in.Old, client.patch)
	},
	Ours: func(in nodePair) *corev1.Node {
		patch, err := nodestatus.Patch(in.Old, in.New)
		if err != nil {
			panic(err)
		}
		return patched(in.Old, patch)
	},
	Same: func(kubelet, ours *corev1.Node) bool { return equality.Semantic.DeepEqual(kubelet, ours) },
}

func uniqueConditions(all []corev1.NodeCondition) (unique []corev1.NodeCondition) {
	for _, condition := range all {
		if !slices.ContainsFunc(unique, func(u corev1.NodeCondition) bool { return u.Type == condition.Type }) {
			unique = append(unique, condition)
		}
	}
	return unique
}

// patched applies a patch like an API server.
func patched(node *corev1.Node, patch []byte) *corev1.Node {
	text, err := json.Marshal(node)
	if err == nil {
		text, err = strategicpatch.StrategicMergePatch(text, patch, corev1.Node{})
	}
	out := new(corev1.Node)
	if err == nil {
		err = json.Unmarshal(text, out)
	}
	if err != nil {
		panic(err)
	}
	return out
}

// stored encodes and decodes the object like an API server.
func stored(node *corev1.Node) *corev1.Node { return patched(node, []byte("{}")) }

// patchClient records the patch.
type patchClient struct {
	typedcorev1.CoreV1Interface
	typedcorev1.NodeInterface
	patch []byte
}

func (p *patchClient) Nodes() typedcorev1.NodeInterface { return p }

func (p *patchClient) Patch(
	_ context.Context, _ string, _ types.PatchType, data []byte, _ metav1.PatchOptions, _ ...string,
) (*corev1.Node, error) {
	p.patch = data
	return nil, nil //nolint:nilnil // the caller does not look at it
}
