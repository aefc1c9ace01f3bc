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

// criResult is the resources of a container, or that they are refused.
type criResult struct {
	Resources cri.Resources
	Refused   bool
}

// kubeletNode returns a node in the terms of the kubelet's manager of containers.
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

// fromCRI returns the resources that the kubelet puts into a request.
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
	return tidy(out)
}

// tidy makes nothing of what is empty.
func tidy(r cri.Resources) cri.Resources {
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
			if len(pod.Spec.Containers) == 0 { // which TestOOMScoreAdj is about
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
			return criResult{Resources: tidy(r)}
		},
		Exceptions: []conformance.Exception[containerInput, criResult]{{
			Name:   "overflow",
			Reason: "more CPUs or bytes than an int64 counts are as many as can be, where the kubelet's numbers wrap around",
			When:   func(in containerInput) bool { return manyCPUs(in.Pod) || muchMemory(in.Pod, 1000*2) },
		}, {
			Name:   "no page size",
			Reason: "huge pages of a size that there cannot be, or that the host does not have, are an error, where the kubelet goes on without",
			When:   func(in containerInput) bool { return oddPageSize(in.Pod, pageSizes) },
			Want:   func(containerInput, criResult) criResult { return criResult{Refused: true} },
		}, {
			Name:   "one size twice",
			Reason: "of two names of one size of huge pages in one container the last by name counts, where the kubelet takes one or the other at random",
			When:   func(in containerInput) bool { return twice(in.Pod) },
		}, {
			Name:   "negative",
			Reason: "less than nothing of memory or huge pages is none, where the kubelet makes a score or a limit of the negative number",
			When: func(in containerInput) bool {
				return negative(in.Pod, "memory") || negative(in.Pod, corev1.ResourceHugePagesPrefix)
			},
		}},
	}
}

// sandboxResult is the resources of a sandbox, and what of them is overhead.
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
				r.Resources = tidy(*resources)
			}
			if overhead != nil {
				r.Overhead = tidy(*overhead)
			}
			return r
		},
		Exceptions: []conformance.Exception[podInput, sandboxResult]{{
			Name:   "overflow",
			Reason: "more CPUs or bytes than an int64 counts are as many as can be, where the kubelet's numbers wrap around",
			When:   func(in podInput) bool { return manyCPUs(in.Pod) || muchMemory(in.Pod, 1) },
		}},
	}
}
