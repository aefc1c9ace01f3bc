// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	componentresource "k8s.io/component-helpers/resource"
	kubepodresource "k8s.io/kubernetes/pkg/api/v1/resource"

	"github.com/seed81659283/nodeagent/conformance"
	"github.com/seed81659283/nodeagent/qos"
)

func TestRequests(t *testing.T)       { run(t, requests) }
func FuzzRequests(f *testing.F)       { fuzz(f, requests) }
func TestLimits(t *testing.T)         { run(t, limits) }
func FuzzLimits(f *testing.F)         { fuzz(f, limits) }
func TestRequest(t *testing.T)        { run(t, request) }
func FuzzRequest(f *testing.F)        { fuzz(f, request) }
func TestRequestNumbers(t *testing.T) { run(t, numbers) }
func FuzzRequestNumbers(f *testing.F) { fuzz(f, numbers) }

type listInput struct {
	Pod     *corev1.Pod
	Options qos.Options
}

// kubelet converts the options to the kubelet's type. The feature gate of pod-level resources in the status is on in 1.37.
func (in listInput) kubelet() componentresource.PodResourcesOptions {
	return componentresource.PodResourcesOptions{
		UseStatusResources: in.Options.UseStatus,
		InPlacePodLevelResourcesVerticalScalingEnabled: in.Options.UseStatus,
		ExcludeOverhead:       in.Options.ExcludeOverhead,
		SkipPodLevelResources: in.Options.IgnorePodLevel,
	}
}

func makeList(c *conformance.Choices) listInput {
	return listInput{Pod: conformance.Pod(c), Options: qos.Options{
		UseStatus:       c.OneIn(3),
		ExcludeOverhead: c.OneIn(3),
		IgnorePodLevel:  c.OneIn(4),
	}}
}

var requests = conformance.Comparison[listInput, corev1.ResourceList]{
	Make:    makeList,
	Kubelet: func(in listInput) corev1.ResourceList { return componentresource.PodRequests(in.Pod, in.kubelet()) },
	Ours:    func(in listInput) corev1.ResourceList { return qos.Requests(in.Pod, in.Options) },
	Same:    sameList,
}

var limits = conformance.Comparison[listInput, corev1.ResourceList]{
	Make:    makeList,
	Kubelet: func(in listInput) corev1.ResourceList { return componentresource.PodLimits(in.Pod, in.kubelet()) },
	Ours:    func(in listInput) corev1.ResourceList { return qos.Limits(in.Pod, in.Options) },
	Same:    sameList,
}

// sameList compares names, amounts and formats.
func sameList(kubelet, ours corev1.ResourceList) bool {
	if len(kubelet) != len(ours) {
		return false
	}
	for name, k := range kubelet {
		if o, ok := ours[name]; !ok || !sameQuantity(k, o) {
			return false
		}
	}
	return true
}

// sameQuantity compares amounts and formats. The format of zero is ignored.
func sameQuantity(kubelet, ours resource.Quantity) bool {
	return kubelet.Cmp(ours) == 0 && (kubelet.Format == ours.Format || kubelet.IsZero())
}

type requestInput struct {
	Pod  *corev1.Pod
	Name corev1.ResourceName
}

var request = conformance.Comparison[requestInput, resource.Quantity]{
	Make: func(c *conformance.Choices) requestInput {
		return requestInput{conformance.Pod(c), conformance.Pick[corev1.ResourceName](c, "cpu", "memory", "ephemeral-storage",
			"hugepages-2Mi", "example.com/gpu", "storage", "pods")}
	},
	Kubelet: func(in requestInput) resource.Quantity {
		return kubepodresource.GetResourceRequestQuantity(in.Pod, in.Name)
	},
	Ours: func(in requestInput) resource.Quantity { return qos.Request(in.Pod, in.Name) },
	Same: sameQuantity,
}

// amounts has the resources of a pod's cgroup in millicores and bytes, with the overhead. The comparison of cgroups covers
// whether every container has a limit.
type amounts struct{ CPURequest, MemoryRequest, CPULimit, MemoryLimit int64 }

var numbers = conformance.Comparison[*corev1.Pod, amounts]{
	Make: conformance.Pod,
	Kubelet: func(pod *corev1.Pod) amounts {
		r := componentresource.PodRequests(pod, componentresource.PodResourcesOptions{})
		l := componentresource.PodLimits(pod, componentresource.PodResourcesOptions{})
		return amounts{r.Cpu().MilliValue(), r.Memory().Value(), l.Cpu().MilliValue(), l.Memory().Value()}
	},
	Ours: func(pod *corev1.Pod) amounts {
		cpu, _ := qos.CPULimit(pod)
		memory, _ := qos.MemoryLimit(pod)
		return amounts{qos.CPURequest(pod), qos.MemoryRequest(pod), cpu, memory}
	},
	Exceptions: []conformance.Exception[*corev1.Pod, amounts]{{
		Name:   "overflow",
		Reason: "an amount beyond an int64 is the largest number; the kubelet's Quantity wraps around",
		When: func(pod *corev1.Pod) bool {
			return anyAmount(pod, func(name corev1.ResourceName, q resource.Quantity) bool {
				return name == corev1.ResourceCPU && exceedsInt64(q, 1000) || name == corev1.ResourceMemory && exceedsInt64(q, 1)
			})
		},
	}},
}
