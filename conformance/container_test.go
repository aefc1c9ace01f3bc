// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/kubernetes/pkg/kubelet/kuberuntime"

	"github.com/seed81659283/nodeagent/conformance"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/qos"
)

func TestContainerResources(t *testing.T) {
	for _, version := range versions {
		t.Run(version.name, func(t *testing.T) {
			host(version.v2)
			run(t, containerResources(version.v2))
		})
	}
}

func FuzzContainerResources(f *testing.F) {
	host(true)
	fuzz(f, containerResources(true))
}

func FuzzContainerResourcesV1(f *testing.F) {
	host(false)
	fuzz(f, containerResources(false))
}

func TestSandboxResources(t *testing.T) {
	for _, version := range versions {
		t.Run(version.name, func(t *testing.T) {
			host(version.v2)
			run(t, sandboxResources(version.v2))
		})
	}
}

func FuzzSandboxResources(f *testing.F) {
	host(true)
	fuzz(f, sandboxResources(true))
}

func FuzzSandboxResourcesV1(f *testing.F) {
	host(false)
	fuzz(f, sandboxResources(false))
}

type containerInput struct {
	Pod       *corev1.Pod
	Container *corev1.Container
	Node      qos.Node
}

// criResult has the resources of a container, or reports that they are invalid.
type criResult struct {
	Resources cri.Resources
	Refused   bool
}

// kubeletNode returns the node settings of the kubelet's runtime manager.
func kubeletNode(n qos.Node) kuberuntime.ConformanceNode {
	k := kuberuntime.ConformanceNode{
		MemoryCapacity:       uint64(n.MemoryCapacity),
		SwapCapacity:         uint64(n.SwapCapacity),
		CFSQuota:             !n.NoCPUQuota,
		CFSPeriod:            metav1.Duration{Duration: cfsPeriod(n)},
		Swap:                 string(n.Swap),
		SwapController:       !n.NoSwapController,
		ThrottlingFactor:     n.ThrottlingFactor,
		Reservation:          reservation(n),
		SingleProcessOOMKill: n.SingleProcessOOMKill,
	}
	if n.MemoryAllocatable != 0 {
		k.Allocatable = corev1.ResourceList{"memory": *resource.NewQuantity(n.MemoryAllocatable, resource.BinarySI)}
	}
	if k.SingleProcessOOMKill == nil {
		k.SingleProcessOOMKill = new(n.CgroupV1) // the default of the kubelet's command line
	}
	return k
}

// fromCRI converts the resources in a request of the kubelet.
func fromCRI(r *runtimeapi.LinuxContainerResources) cri.Resources {
	out := cri.Resources{
		CPUPeriod:   r.GetCpuPeriod(),
		CPUQuota:    r.GetCpuQuota(),
		CPUShares:   r.GetCpuShares(),
		MemoryLimit: r.GetMemoryLimitInBytes(),
		SwapLimit:   r.GetMemorySwapLimitInBytes(),
		OOMScoreAdj: r.GetOomScoreAdj(),
		CpusetCPUs:  r.GetCpusetCpus(),
		CpusetMems:  r.GetCpusetMems(),
		Unified:     r.GetUnified(),
	}
	for _, h := range r.GetHugepageLimits() {
		out.HugepageLimits = append(out.HugepageLimits, cri.HugepageLimit{PageSize: h.GetPageSize(), Limit: h.GetLimit()})
	}
	return normalizeEmpty(out)
}

// normalizeEmpty replaces empty values by nil.
func normalizeEmpty(r cri.Resources) cri.Resources {
	if len(r.Unified) == 0 {
		r.Unified = nil
	}
	if len(r.HugepageLimits) == 0 {
		r.HugepageLimits = nil
	}
	return r
}

func containerResources(v2 bool) conformance.Comparison[containerInput, criResult] {
	return conformance.Comparison[containerInput, criResult]{
		Make: func(c *conformance.Choices) containerInput {
			pod := conformance.Pod(c)
			if len(pod.Spec.Containers) == 0 { // TestOOMScoreAdj covers this case
				pod.Spec.Containers = []corev1.Container{{Name: "c0"}}
			}
			return containerInput{pod, conformance.Container(c, pod), makeNode(c, v2)}
		},
		Kubelet: func(in containerInput) criResult {
			return criResult{Resources: fromCRI(kubeletNode(in.Node).Container(context.Background(), in.Pod, in.Container))}
		},
		Ours: func(in containerInput) criResult {
			r, err := qos.ContainerResources(in.Pod, in.Container, in.Node)
			if err != nil {
				return criResult{Refused: true}
			}
			return criResult{Resources: normalizeEmpty(r)}
		},
		Exceptions: []conformance.Exception[containerInput, criResult]{{
			Name:   "overflow",
			Reason: "CPUs or bytes beyond an int64 are the largest number; the kubelet's numbers wrap around",
			When:   func(in containerInput) bool { return overflowsCPU(in.Pod) || overflowsMemory(in.Pod, 1000*2) },
		}, {
			Name:   "no page size",
			Reason: "huge pages of an invalid size, or of a size that the host does not have, are an error; the kubelet ignores them",
			When:   func(in containerInput) bool { return hasInvalidPageSize(in.Pod, pageSizes) },
			Want:   func(containerInput, criResult) criResult { return criResult{Refused: true} },
		}, {
			Name:   "one size twice",
			Reason: "if one container has two names of one huge page size, the last name in order counts; the kubelet uses one of them at random",
			When:   func(in containerInput) bool { return hasDuplicatePageSize(in.Pod) },
		}, {
			Name:   "negative",
			Reason: "a negative amount of memory or huge pages counts as zero; the kubelet computes a score or a limit from it",
			When: func(in containerInput) bool {
				return hasNegative(in.Pod, "memory") || hasNegative(in.Pod, corev1.ResourceHugePagesPrefix)
			},
		}},
	}
}

// sandboxResult has the resources of a sandbox, and its overhead.
type sandboxResult struct{ Resources, Overhead cri.Resources }

func sandboxResources(v2 bool) conformance.Comparison[podInput, sandboxResult] {
	return conformance.Comparison[podInput, sandboxResult]{
		Make: func(c *conformance.Choices) podInput { return podInput{conformance.Pod(c), makeNode(c, v2)} },
		Kubelet: func(in podInput) sandboxResult {
			resources, overhead := kubeletNode(in.Node).Sandbox(context.Background(), in.Pod)
			return sandboxResult{fromCRI(resources), fromCRI(overhead)}
		},
		Ours: func(in podInput) (r sandboxResult) {
			resources, overhead := qos.SandboxResources(in.Pod, in.Node)
			if resources != nil {
				r.Resources = normalizeEmpty(*resources)
			}
			if overhead != nil {
				r.Overhead = normalizeEmpty(*overhead)
			}
			return r
		},
		Exceptions: []conformance.Exception[podInput, sandboxResult]{{
			Name:   "overflow",
			Reason: "CPUs or bytes beyond an int64 are the largest number; the kubelet's numbers wrap around",
			When:   func(in podInput) bool { return overflowsCPU(in.Pod) || overflowsMemory(in.Pod, 1) },
		}},
	}
}
