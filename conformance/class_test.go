// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	kubepodqos "k8s.io/kubernetes/pkg/apis/core/v1/helper/qos"
	kubeqos "k8s.io/kubernetes/pkg/kubelet/qos"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/conformance"
	"github.com/seed81659283/nodeagent/qos"
)

func TestClass(t *testing.T)       { run(t, class) }
func FuzzClass(f *testing.F)       { fuzz(f, class) }
func TestPredicates(t *testing.T)  { run(t, predicates) }
func FuzzPredicates(f *testing.F)  { fuzz(f, predicates) }
func TestOOMScoreAdj(t *testing.T) { run(t, oomScoreAdj) }
func FuzzOOMScoreAdj(f *testing.F) { fuzz(f, oomScoreAdj) }

// classOf returns the QoS class that determines the parent cgroup of a pod.
func classOf(pod *corev1.Pod) cgroups.QOS { return cgroups.QOS(qos.StatusClass(pod)) }

type classes struct{ Spec, Status corev1.PodQOSClass }

var class = conformance.Comparison[*corev1.Pod, classes]{
	Make: conformance.Pod,
	Kubelet: func(pod *corev1.Pod) classes {
		return classes{kubepodqos.ComputePodQOS(pod), kubepodqos.GetPodQOS(pod)}
	},
	Ours: func(pod *corev1.Pod) classes { return classes{qos.Class(pod), qos.StatusClass(pod)} },
}

type marks struct{ Static, Mirror, Critical, NodeCritical bool }

var predicates = conformance.Comparison[*corev1.Pod, marks]{
	Make: conformance.Pod,
	Kubelet: func(pod *corev1.Pod) marks {
		return marks{
			kubetypes.IsStaticPod(pod), kubetypes.IsMirrorPod(pod),
			kubetypes.IsCriticalPod(pod), kubetypes.IsNodeCriticalPod(pod),
		}
	},
	Ours: func(pod *corev1.Pod) marks {
		return marks{qos.IsStatic(pod), qos.IsMirror(pod), qos.IsCritical(pod), qos.IsNodeCritical(pod)}
	},
}

type oomInput struct {
	Pod       *corev1.Pod
	Container *corev1.Container
	Capacity  int64
}

// capacity returns the memory capacity of a node, sometimes zero or nearly zero.
func capacity(c *conformance.Choices) int64 {
	if c.OneIn(16) {
		return c.Int64()
	}
	return conformance.Pick[int64](c, 16<<30, 4_000_000_000, 8_000_000_000, 256<<20, 1<<40, 123_456_789_012)
}

var oomScoreAdj = conformance.Comparison[oomInput, answer]{
	Make: func(c *conformance.Choices) oomInput {
		pod := conformance.Pod(c)
		return oomInput{pod, conformance.Container(c, pod), capacity(c)}
	},
	Kubelet: func(in oomInput) answer {
		return answer{Text: fmt.Sprint(kubeqos.GetContainerOOMScoreAdjust(in.Pod, in.Container, in.Capacity))}
	},
	Ours: func(in oomInput) answer {
		score, err := qos.OOMScoreAdj(in.Pod, in.Container, in.Capacity)
		return textOrError(fmt.Sprint(score), err)
	},
	Exceptions: []conformance.Exception[oomInput, answer]{{
		Name:   "nothing to score",
		Reason: "a pod without containers and a node without memory are errors; the kubelet panics or computes a score",
		When:   func(in oomInput) bool { return in.Container == nil || in.Capacity <= 0 },
		Want:   func(oomInput, answer) answer { return answer{Refused: true} },
	}, {
		Name:   "sidecar alone",
		Reason: "a sidecar in a pod without regular containers is an error; the kubelet panics",
		When:   func(in oomInput) bool { return len(in.Pod.Spec.Containers) == 0 },
		Want:   func(oomInput, answer) answer { return answer{Refused: true} },
	}, {
		Name:   "overflow",
		Reason: "a request that overflows an int64 when multiplied by 1000 has its exact score; the kubelet's product wraps around",
		When:   func(in oomInput) bool { return overflowsMemory(in.Pod, 1000*2) },
	}, {
		Name:   "negative",
		Reason: "a negative amount counts as zero; the kubelet computes a score above that of BestEffort",
		When:   func(in oomInput) bool { return hasNegative(in.Pod, "memory") },
	}},
}
