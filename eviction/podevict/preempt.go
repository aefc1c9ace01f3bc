// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podevict

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/qos"
)

// Shortage is how much of a resource a pod needs more than the node has: what it requests, less what the capacity leaves beside the
// others.
type Shortage struct {
	Resource corev1.ResourceName
	Missing  int64 // in the unit of the resource, CPU in millicores; not above zero: nothing is missing
}

// ReasonPreempting is the reason in the status of a preempted pod, and of its event.
const ReasonPreempting = "Preempting"

// ExplainPreemption says why a pod is ended that was chosen by [Preempt]. It gets its own grace period. Source:
// pkg/kubelet/preemption/preemption.go.
func ExplainPreemption() Explanation {
	return Explanation{
		Reason: ReasonPreempting, Message: "Preempted in order to admit critical pod",
		Conditions: []corev1.PodCondition{disruption("Pod was preempted by Kubelet to accommodate a critical pod.")},
	}
}

// canPreempt reports whether a pod may end another one: it is critical and the other is not, or both have priorities and its own is
// greater.
func canPreempt(pod, other *corev1.Pod) bool {
	if qos.IsCritical(pod) && !qos.IsCritical(other) {
		return true
	}
	return pod.Spec.Priority != nil && other.Spec.Priority != nil && *pod.Spec.Priority > *other.Spec.Priority
}

// Preempt returns which of the pods of a node have to go so that a pod fits that lacks something, which is for critical pods alone: no
// Guaranteed pod that Burstable and BestEffort ones can stand in for, no Burstable one that BestEffort ones can, and few of each
// class. They are returned from BestEffort to Guaranteed. The error says what all of them together leave missing. The pods are not
// changed. Source: pkg/kubelet/preemption/preemption.go.
func Preempt(pod *corev1.Pod, others []*corev1.Pod, short []Shortage) ([]*corev1.Pod, error) {
	c := newChooser(pod, others, short)
	if left := subtract(c.missing, c.of[bestEffort], c.of[burstable], c.of[guaranteed]); !met(left) {
		return nil, fmt.Errorf("preempt pods for %s/%s: all that may go leave %s missing", pod.Namespace, pod.Name, c.describe(left))
	}
	var chosen [3][]request
	chosen[guaranteed] = choose(c.of[guaranteed], subtract(c.missing, c.of[bestEffort], c.of[burstable]))
	chosen[burstable] = choose(c.of[burstable], subtract(c.missing, c.of[bestEffort], chosen[guaranteed]))
	chosen[bestEffort] = choose(c.of[bestEffort], subtract(c.missing, chosen[burstable], chosen[guaranteed]))
	var pods []*corev1.Pod
	for _, list := range chosen {
		for _, r := range list {
			pods = append(pods, r.pod)
		}
	}
	return pods, nil
}

// The classes in the order in which their pods are returned.
const (
	bestEffort = iota
	burstable
	guaranteed
)

// chooser is what is chosen from.
type chooser struct {
	short   []Shortage
	missing []int64 // by the index in short
	of      [3][]request
}

// request is a pod that may go, with what it requests.
type request struct {
	pod         *corev1.Pod
	amounts     []int64 // by the index in chooser.short
	memory, cpu int64
}

func newChooser(pod *corev1.Pod, others []*corev1.Pod, short []Shortage) *chooser {
	c := &chooser{short: short}
	for _, s := range short {
		c.missing = append(c.missing, s.Missing)
	}
	for _, other := range others {
		if !canPreempt(pod, other) {
			continue
		}
		r := request{pod: other, memory: requested(other, corev1.ResourceMemory), cpu: requested(other, corev1.ResourceCPU)}
		for _, s := range short {
			r.amounts = append(r.amounts, requested(other, s.Resource))
		}
		class := map[corev1.PodQOSClass]int{corev1.PodQOSBurstable: burstable, corev1.PodQOSGuaranteed: guaranteed}[qos.StatusClass(other)]
		c.of[class] = append(c.of[class], r)
	}
	return c
}

// requested returns what a pod requests of a resource. Source: GetResourceRequest in pkg/api/v1/resource/helpers.go.
func requested(pod *corev1.Pod, name corev1.ResourceName) int64 {
	if name == corev1.ResourcePods {
		return 1
	}
	q := qos.Request(pod, name)
	if name == corev1.ResourceCPU {
		return qos.MilliValue(&q)
	}
	return qos.Value(&q)
}

// subtract returns what is still missing when these pods are gone; zero where nothing is.
func subtract(missing []int64, lists ...[]request) []int64 {
	left := slices.Clone(missing)
	for i := range left {
		for _, list := range lists {
			for _, r := range list {
				if left[i] <= 0 {
					break
				}
				left[i] -= r.amounts[i]
			}
		}
		left[i] = max(left[i], 0)
	}
	return left
}

// met reports whether nothing is missing.
func met(missing []int64) bool { return slices.Max(append(missing, 0)) == 0 }

// choose takes pod after pod, each the one that leaves least missing, until nothing is. All of them together are enough.
func choose(list []request, missing []int64) (chosen []request) {
	list = slices.Clone(list)
	for !met(missing) {
		best, least := 0, list[0].distance(missing)
		for i := range list[1:] {
			d := list[i+1].distance(missing)
			if d < least || d == least && !list[best].smaller(list[i+1]) {
				best, least = i+1, d
			}
		}
		chosen = append(chosen, list[best])
		missing = subtract(missing, list[best:best+1])
		list[best] = list[len(list)-1]
		list = list[:len(list)-1]
	}
	return chosen
}

// distance is how much of what is missing a pod does not make free: the sum of the squares of the fractions.
func (r request) distance(missing []int64) (sum float64) {
	for i, m := range missing {
		if rest := float64(m - r.amounts[i]); m > 0 && rest > 0 {
			sum += (rest / float64(m)) * (rest / float64(m))
		}
	}
	return sum
}

// smaller reports whether a pod requests less memory than another, or as much and less CPU.
func (r request) smaller(other request) bool {
	if r.memory != other.memory {
		return r.memory < other.memory
	}
	return r.cpu < other.cpu
}

// describe says what is missing.
func (c *chooser) describe(missing []int64) string {
	var words []string
	for i, m := range missing {
		if m > 0 {
			words = append(words, fmt.Sprintf("%d of %s", m, c.short[i].Resource))
		}
	}
	return strings.Join(words, ", ")
}
