// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubelifecycle "k8s.io/kubernetes/pkg/kubelet/lifecycle"
	schedulerframework "k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/seed81659283/nodeagent/conformance"
	"github.com/seed81659283/nodeagent/lifecycle/admission"
)

func TestAdmission(t *testing.T) { run(t, admissions) }
func FuzzAdmission(f *testing.F) { fuzz(f, admissions) }

// admissionInput has a pod to admit, its node, and the other pods of the node.
type admissionInput struct {
	Pod    *corev1.Pod
	Node   *corev1.Node
	Others []*corev1.Pod
}

// admissions compares all failures of a pod, not only the one that the kubelet reports in its status.
var admissions = conformance.Comparison[admissionInput, []admission.Failure]{
	Make: makeAdmission,
	Kubelet: func(in admissionInput) []admission.Failure {
		var all failureRecorder
		handler := kubelifecycle.NewPredicateAdmitHandler(
			func(context.Context, bool) (*corev1.Node, error) { return in.Node.DeepCopy(), nil }, &all,
			func(*schedulerframework.NodeInfo, *kubelifecycle.PodAdmitAttributes) error { return nil })
		result := handler.Admit(context.Background(), &kubelifecycle.PodAdmitAttributes{Pod: in.Pod.DeepCopy(), OtherPods: in.Others})
		if !result.Admit && all.failures == nil {
			return []admission.Failure{{Reason: result.Reason, Message: result.Message}}
		}
		return all.failures
	},
	Ours: func(in admissionInput) []admission.Failure { return admission.Check(in.Pod, in.Node, in.Others) },
}

// failureRecorder replaces the kubelet's handler that preempts pods, and records the failures passed to it.
type failureRecorder struct{ failures []admission.Failure }

func (r *failureRecorder) HandleAdmissionFailure(
	_ context.Context, _ *corev1.Pod, reasons []kubelifecycle.PredicateFailureReason, _ kubelifecycle.Operation,
) ([]kubelifecycle.PredicateFailureReason, error) {
	for _, reason := range reasons {
		switch f := reason.(type) {
		case *kubelifecycle.InsufficientResourceError:
			r.failures = append(r.failures, admission.Failure{
				Reason: kubelifecycle.InsufficientResourcePrefix + string(f.ResourceName), Message: f.Error(),
				Resource: f.ResourceName, Requested: f.Requested, Used: f.Used, Capacity: f.Capacity,
			})
		case *kubelifecycle.PredicateFailureError:
			r.failures = append(r.failures, admission.Failure{Reason: f.PredicateName, Message: f.Error()})
		}
	}
	// Sort: the kubelet iterates over a map of the extended resources.
	rank := func(f admission.Failure) string {
		at := slices.Index([]corev1.ResourceName{"pods", "cpu", "memory", "ephemeral-storage"}, f.Resource)
		switch {
		case f.Resource == "":
			return "9"
		case at < 0:
			return "8" + string(f.Resource)
		}
		return fmt.Sprint(at)
	}
	slices.SortStableFunc(r.failures, func(a, b admission.Failure) int {
		switch x, y := rank(a), rank(b); {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	})
	return reasons, nil
}

func makeAdmission(c *conformance.Choices) admissionInput {
	in := admissionInput{Pod: admittedPod(c), Node: admittingNode(c)}
	for range c.Int(4) {
		in.Others = append(in.Others, admittedPod(c))
	}
	return in
}

// admittingNode returns a node with few resources, so that many requests do not fit.
func admittingNode(c *conformance.Choices) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"zone": conformance.Pick(c, "a", "b"), "cores": "4"}},
		Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
			corev1.ResourcePods:             units(int64(c.Int(6))),
			corev1.ResourceCPU:              units(int64(c.Int(9))),
			corev1.ResourceMemory:           units(1 << (20 + c.Int(16))),
			corev1.ResourceEphemeralStorage: units(1 << (20 + c.Int(16))),
		}},
	}
	for _, name := range []corev1.ResourceName{"example.com/gpu", "hugepages-2Mi", "attachable-volumes-csi-x"} {
		if c.OneIn(2) {
			n.Status.Allocatable[name] = units(int64(c.Int(3)) << 20)
		}
	}
	if c.OneIn(3) {
		n.Status.Features = &corev1.NodeFeatures{SupplementalGroupsPolicy: conformance.Pick(c, nil, new(true), new(false))}
	}
	for range c.Int(3) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{
			Key: conformance.Pick(c, "gpu", "disk"), Value: conformance.Pick(c, "", "1", "2"),
			Effect: conformance.Pick(c, corev1.TaintEffectNoExecute, corev1.TaintEffectNoExecute, corev1.TaintEffectNoSchedule),
		})
	}
	return n
}

func units(n int64) resource.Quantity { return *resource.NewQuantity(n, resource.DecimalSI) }

// admittedPod returns a pod of conformance.Pod with random scheduling constraints.
func admittedPod(c *conformance.Choices) *corev1.Pod {
	c.Plain = true
	pod := conformance.Pod(c)
	for i := range pod.Spec.Containers {
		addNodeRequirements(c, &pod.Spec.Containers[i])
	}
	for i := range pod.Spec.InitContainers {
		addNodeRequirements(c, &pod.Spec.InitContainers[i])
	}
	pod.Spec.NodeName = conformance.Pick(c, "", "n1", "n1", "n2")
	if c.OneIn(3) {
		pod.Spec.NodeSelector = map[string]string{conformance.Pick(c, "zone", "rack"): conformance.Pick(c, "a", "")}
	}
	if c.OneIn(3) {
		pod.Spec.Affinity = affinity(c)
	}
	for range c.Int(3) {
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{
			Key: conformance.Pick(c, "", "gpu", "disk"), Value: conformance.Pick(c, "", "1"),
			Operator: conformance.Pick[corev1.TolerationOperator](c, "", "Equal", "Exists", "Lt", "Gt", "Like"),
			Effect:   conformance.Pick[corev1.TaintEffect](c, "", "NoExecute", "NoSchedule"),
		})
	}
	if c.OneIn(16) {
		pod.Spec.OS = &corev1.PodOS{Name: conformance.Pick(c, corev1.Linux, corev1.Windows)}
	}
	if c.OneIn(16) {
		pod.Labels = map[string]string{corev1.LabelOSStable: conformance.Pick(c, "linux", "windows", "")}
	}
	if c.OneIn(8) {
		pod.Spec.SecurityContext = &corev1.PodSecurityContext{SupplementalGroupsPolicy: conformance.Pick(c, nil,
			new(corev1.SupplementalGroupsPolicyStrict), new(corev1.SupplementalGroupsPolicyMerge))}
	}
	return roundTripPod(pod)
}

// roundTripPod marshals and unmarshals a pod, as if it came from a manifest. An amount such as 1.5Gi is parsed into an
// infinite-precision decimal, unlike its canonical form 1536Mi. To such a decimal the kubelet adds the overhead in the pod
// itself, at each computation.
func roundTripPod(pod *corev1.Pod) *corev1.Pod {
	text, err := json.Marshal(pod)
	if err != nil {
		panic(err)
	}
	var out corev1.Pod
	if err := json.Unmarshal(text, &out); err != nil {
		panic(err)
	}
	return &out
}

// addNodeRequirements adds requests and ports that the scheduler considers to a container.
func addNodeRequirements(c *conformance.Choices, container *corev1.Container) {
	if c.OneIn(3) {
		container.Ports = append(container.Ports, corev1.ContainerPort{
			HostPort: int32(c.Int(3)), HostIP: conformance.Pick(c, "", "0.0.0.0", "10.0.0.1", "::"),
			Protocol: conformance.Pick(c, "", corev1.ProtocolTCP, corev1.ProtocolUDP),
		})
	}
	if c.OneIn(3) {
		if container.Resources.Requests == nil {
			container.Resources.Requests = corev1.ResourceList{}
		}
		name := conformance.Pick[corev1.ResourceName](c, "example.com/gpu", "hugepages-2Mi", "ephemeral-storage", "example.com/unknown",
			"attachable-volumes-csi-x", "kubernetes.io/x", "requests.example.com/x", "storage", "not a name/x")
		container.Resources.Requests[name] = units(int64(c.Int(4)) << 20)
	}
}

func affinity(c *conformance.Choices) *corev1.Affinity {
	required := &corev1.NodeSelector{}
	for range c.Int(3) {
		var term corev1.NodeSelectorTerm
		for range c.Int(3) {
			term.MatchExpressions = append(term.MatchExpressions, nodeRequirement(c, "zone", "cores", "rack", "-"))
		}
		if c.OneIn(3) {
			term.MatchFields = append(term.MatchFields, nodeRequirement(c, "metadata.name", "spec.x"))
		}
		required.NodeSelectorTerms = append(required.NodeSelectorTerms, term)
	}
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: required}}
}

func nodeRequirement(c *conformance.Choices, keys ...string) corev1.NodeSelectorRequirement {
	r := corev1.NodeSelectorRequirement{
		Key:      conformance.Pick(c, keys...),
		Operator: conformance.Pick[corev1.NodeSelectorOperator](c, "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Like"),
	}
	for range c.Int(3) {
		r.Values = append(r.Values, conformance.Pick(c, "a", "n1", "3", "", "not a value"))
	}
	return r
}
