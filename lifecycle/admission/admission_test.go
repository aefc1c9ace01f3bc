// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/lifecycle/admission"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// parseResources parses a list of resources such as "cpu=100m memory=1Gi".
func parseResources(t *testing.T, text string) corev1.ResourceList {
	t.Helper()
	out := corev1.ResourceList{}
	for item := range strings.FieldsSeq(text) {
		name, amount, ok := strings.Cut(item, "=")
		require.True(t, ok, item)
		out[corev1.ResourceName(name)] = resource.MustParse(amount)
	}
	return out
}

// node returns a node with capacity for three pods, in zone a.
func node(t *testing.T, more string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"zone": "a"}},
		Status:     corev1.NodeStatus{Allocatable: parseResources(t, "pods=3 cpu=2 memory=1Gi ephemeral-storage=10Gi "+more)},
	}
}

func requesting(t *testing.T, requests string) *corev1.Pod {
	return &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "c", Resources: corev1.ResourceRequirements{Requests: parseResources(t, requests)},
	}}}}
}

// failureReasons returns the reason of each failure.
func failureReasons(failures []admission.Failure) (reasons []string) {
	for _, f := range failures {
		reasons = append(reasons, f.Reason)
	}
	return reasons
}

func TestCheckResources(t *testing.T) {
	for _, test := range []struct {
		name, node, pod string
		others          []string
		reasons         []string
	}{
		{"pod fits", "", "cpu=2 memory=1Gi ephemeral-storage=10Gi", nil, nil},
		{"too many pods", "", "", []string{"", "", ""}, []string{"OutOfpods"}},
		{"requests of other pods are counted", "", "cpu=300m", []string{"cpu=1", "cpu=701m"}, []string{"OutOfcpu"}},
		{"pod fits to the millicore", "", "cpu=300m", []string{"cpu=1", "cpu=700m"}, nil},
		{"every resource is short", "", "memory=2Gi ephemeral-storage=11Gi cpu=3", []string{"", "", ""}, []string{
			"OutOfpods", "OutOfcpu", "OutOfmemory", "OutOfephemeral-storage",
		}},
		{"resource that the pod does not request is short", "", "memory=1Mi", []string{"cpu=3"}, nil},
		{"device in use", "example.com/gpu=2", "example.com/gpu=1", []string{"example.com/gpu=2"}, []string{"OutOfexample.com/gpu"}},
		{"missing devices sorted by name", "b.com/x=0 a.com/x=0", "a.com/x=1 b.com/x=1", nil, []string{"OutOfa.com/x", "OutOfb.com/x"}},
		{"device not in the allocatable resources", "", "example.com/gpu=1", nil, nil},
		{"huge pages not in the allocatable resources", "", "hugepages-2Mi=2Mi", nil, []string{"OutOfhugepages-2Mi"}},
		{"native resource that is not counted", "", "storage=1Gi", nil, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			var others []*corev1.Pod
			for _, other := range test.others {
				others = append(others, requesting(t, other))
			}
			pod := requesting(t, test.pod)
			before := pod.DeepCopy()
			assert.Equal(t, test.reasons, failureReasons(admission.Check(pod, node(t, test.node), others)))
			assert.Equal(t, before, pod, "Check does not modify the pod")
		})
	}
}

// Requests for resources that are not compared, such as those of device plugins, are ignored.
func TestCheckIgnoresSkippedResources(t *testing.T) {
	full, pod := node(t, "example.com/gpu=0 example.com/nic=0"), requesting(t, "cpu=3 example.com/gpu=1 example.com/nic=1")
	reduced := admission.WithoutResources(full, func(name corev1.ResourceName) bool { return name == "example.com/gpu" || name == corev1.ResourceCPU })
	assert.Equal(t, []string{"OutOfcpu", "OutOfexample.com/nic"}, failureReasons(admission.Check(pod, reduced, nil)), "only extended resources can be skipped")
	assert.Equal(t, []string{"OutOfcpu", "OutOfexample.com/gpu", "OutOfexample.com/nic"}, failureReasons(admission.Check(pod, full, nil)), "node is not modified")
	assert.Same(t, full, admission.WithoutResources(full, func(corev1.ResourceName) bool { return false }))
}

func TestFailureHasAmountsAndShortage(t *testing.T) {
	failures := admission.Check(requesting(t, "cpu=500m"), node(t, ""), []*corev1.Pod{requesting(t, "cpu=1800m")})
	require.Len(t, failures, 1)
	f := failures[0]
	assert.Equal(t, "Node didn't have enough resource: cpu, requested: 500, used: 1800, capacity: 2000", f.Message)
	assert.Equal(t, int64(300), f.Shortage())
	rejection, ok := errors.AsType[*podstatus.Rejection](f.Rejection())
	require.True(t, ok, "the failure converts to a podstatus.Rejection")
	assert.Equal(t, "OutOfcpu", rejection.StatusReason())

	admit := admission.Admit(func() *corev1.Node { return node(t, "") })
	require.Equal(t, f.Rejection(), admit(t.Context(), requesting(t, "cpu=500m"), []*corev1.Pod{requesting(t, "cpu=1800m")}))
	require.NoError(t, admit(t.Context(), requesting(t, "cpu=500m"), nil))

	failures = admission.Check(requesting(t, "memory=1Mi"), node(t, ""), []*corev1.Pod{
		requesting(t, "memory=8Ei"), requesting(t, "memory=8Ei"),
	})
	require.Len(t, failures, 1)
	assert.Equal(t, int64(math.MaxInt64), failures[0].Used, "the sum of requests saturates")
	failures = admission.Check(requesting(t, "memory=8Ei"), node(t, ""), []*corev1.Pod{requesting(t, "memory=8Ei")})
	require.Len(t, failures, 1)
	assert.Equal(t, int64(math.MaxInt64), failures[0].Shortage(), "the shortage saturates")
}

// A pod that is being resized counts with the larger of its allocated and requested resources.
func TestCheckCountsResizedPodsWithLargerResources(t *testing.T) {
	other := requesting(t, "cpu=1")
	other.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", AllocatedResources: parseResources(t, "cpu=1900m")}}
	assert.Equal(t, []string{"OutOfcpu"}, failureReasons(admission.Check(requesting(t, "cpu=200m"), node(t, ""), []*corev1.Pod{other})))
}

func TestCheckNodeAffinityNameAndTaints(t *testing.T) {
	strict, gpu := corev1.SupplementalGroupsPolicyStrict, corev1.Taint{Key: "gpu", Value: "broken", Effect: corev1.TaintEffectNoExecute}
	required := func(values ...string) *corev1.Affinity {
		return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: values},
			}}},
		}}}
	}
	for _, test := range []struct {
		name    string
		pod     func(*corev1.Pod)
		node    func(*corev1.Node)
		reasons []string
	}{
		{"selector of this zone", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"zone": "a"} }, nil, nil},
		{"selector of another zone", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"zone": "b"} }, nil, []string{"NodeAffinity"}},
		{"selector with an empty value of a missing label", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"rack": ""} }, nil, []string{"NodeAffinity"}},
		{"affinity to this zone", func(p *corev1.Pod) { p.Spec.Affinity = required("b", "a") }, nil, nil},
		{"affinity to another zone", func(p *corev1.Pod) { p.Spec.Affinity = required("b") }, nil, []string{"NodeAffinity"}},
		{"invalid affinity", func(p *corev1.Pod) { p.Spec.Affinity = required() }, nil, []string{"NodeAffinity"}},
		{"name of this node", func(p *corev1.Pod) { p.Spec.NodeName = "n1" }, nil, nil},
		{"name of another node", func(p *corev1.Pod) { p.Spec.NodeName = "n2" }, nil, []string{"NodeName"}},
		{"taint NoExecute", nil, func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{gpu} }, []string{"TaintToleration"}},
		{"taint NoSchedule", nil, func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}
		}, nil},
		{"taint NoExecute and a static pod", func(p *corev1.Pod) {
			p.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
		}, func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{gpu} }, nil},
		{"toleration of all taints", func(p *corev1.Pod) {
			p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		}, func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{gpu} }, nil},
		{"toleration of another value", func(p *corev1.Pod) {
			p.Spec.Tolerations = []corev1.Toleration{{Key: "gpu", Value: "slow"}}
		}, func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{gpu} }, []string{"TaintToleration"}},
		{"toleration of another effect", func(p *corev1.Pod) {
			p.Spec.Tolerations = []corev1.Toleration{{Key: "gpu", Value: "broken", Effect: corev1.TaintEffectNoSchedule}}
		}, func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{gpu} }, []string{"TaintToleration"}},
		{"label of another operating system, reported alone", func(p *corev1.Pod) {
			p.Labels, p.Spec.NodeName = map[string]string{"kubernetes.io/os": "windows"}, "n2"
		}, nil, []string{"PodOSSelectorNodeLabelDoesNotMatch"}},
		{"another operating system", func(p *corev1.Pod) { p.Spec.OS = &corev1.PodOS{Name: corev1.Windows} }, nil, []string{"PodOSNotSupported"}},
		{"strict groups without runtime support", func(p *corev1.Pod) {
			p.Spec.SecurityContext = &corev1.PodSecurityContext{SupplementalGroupsPolicy: &strict}
		}, nil, []string{"SupplementalGroupsPolicyNotSupported"}},
		{"strict groups with runtime support", func(p *corev1.Pod) {
			p.Spec.SecurityContext = &corev1.PodSecurityContext{SupplementalGroupsPolicy: &strict}
		}, func(n *corev1.Node) { n.Status.Features = &corev1.NodeFeatures{SupplementalGroupsPolicy: new(true)} }, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod, n := requesting(t, ""), node(t, "")
			if test.pod != nil {
				test.pod(pod)
			}
			if test.node != nil {
				test.node(n)
			}
			assert.Equal(t, test.reasons, failureReasons(admission.Check(pod, n, nil)))
		})
	}
}

// Each row has the ports of a running pod and of a new pod, by kind of container.
func TestCheckHostPorts(t *testing.T) {
	with := func(kind, ip string, protocol corev1.Protocol, port int32) *corev1.Pod {
		c := corev1.Container{Name: "c", Ports: []corev1.ContainerPort{{HostIP: ip, Protocol: protocol, HostPort: port}}}
		always := corev1.ContainerRestartPolicyAlways
		switch kind {
		case "init":
			return &corev1.Pod{Spec: corev1.PodSpec{InitContainers: []corev1.Container{c}}}
		case "sidecar":
			c.RestartPolicy = &always
			return &corev1.Pod{Spec: corev1.PodSpec{InitContainers: []corev1.Container{c}}}
		}
		return &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{c}}}
	}
	for _, test := range []struct {
		name      string
		has, want *corev1.Pod
		free      bool
	}{
		{"equal port", with("", "", "TCP", 80), with("", "", "TCP", 80), false},
		{"another port", with("", "", "TCP", 80), with("", "", "TCP", 81), true},
		{"another protocol", with("", "", "TCP", 80), with("", "", "UDP", 80), true},
		{"default protocol is TCP", with("", "", "", 80), with("", "", "TCP", 80), false},
		{"another address", with("", "10.0.0.1", "TCP", 80), with("", "10.0.0.2", "TCP", 80), true},
		{"one address, then all addresses", with("", "10.0.0.1", "TCP", 80), with("", "0.0.0.0", "TCP", 80), false},
		{"all addresses, then one address", with("", "", "TCP", 80), with("", "10.0.0.1", "TCP", 80), false},
		{"sidecar with the port", with("sidecar", "", "TCP", 80), with("", "", "TCP", 80), false},
		{"init container with the port", with("init", "", "TCP", 80), with("", "", "TCP", 80), true},
		{"no host port", with("", "", "TCP", 0), with("", "", "TCP", 0), true},
	} {
		t.Run(test.name, func(t *testing.T) {
			failures := admission.Check(test.want, node(t, ""), []*corev1.Pod{test.has})
			assert.Equal(t, test.free, len(failures) == 0, "%v", failures)
		})
	}
}
