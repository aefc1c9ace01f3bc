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

// Shortage is the amount of a resource that is missing to run a pod: its request minus the capacity that other pods leave free.
type Shortage struct {
	Resource corev1.ResourceName
	Missing  int64 // in the unit of the resource, millicores for CPU; zero or less: nothing is missing
}

// ReasonPreempting is the reason in the status and event of a preempted pod.
const ReasonPreempting = "Preempting"

// ExplainPreemption returns the reason, message and pod condition to report for a preempted pod, which are the same for all
// pods. Evict each pod that [Preempt] selects with its own grace period, as the kubelet does. Source:
// pkg/kubelet/preemption/preemption.go.
func ExplainPreemption() Explanation {
	return Explanation{
		Reason: ReasonPreempting, Message: "Preempted in order to admit critical pod",
		Conditions: []corev1.PodCondition{disruptionCondition("Pod was preempted by Kubelet to accommodate a critical pod.")},
	}
}

// canPreempt reports whether other may be evicted to make room for pod: only pod is critical, or its priority is higher.
func canPreempt(pod, other *corev1.Pod) bool {
	if qos.IsCritical(pod) && !qos.IsCritical(other) {
		return true
	}
	return pod.Spec.Priority != nil && other.Spec.Priority != nil && *pod.Spec.Priority > *other.Spec.Priority
}

// Preempt selects the pods of others to evict so that pod fits on the node. It selects Burstable pods only if all BestEffort
// pods are not enough, and Guaranteed pods only if all Burstable and BestEffort pods are not enough. In each QoS class it
// selects few pods.
//
// The result is ordered from BestEffort to Guaranteed. If all pods that may be evicted are not enough, the error names the
// amounts that remain missing. Preempt itself evicts no pod. Source: pkg/kubelet/preemption/preemption.go.
func Preempt(pod *corev1.Pod, others []*corev1.Pod, shortages []Shortage) ([]*corev1.Pod, error) {
	c := newPreemption(pod, others, shortages)
	if missing := subtractRequests(c.missing, c.candidates[bestEffort], c.candidates[burstable], c.candidates[guaranteed]); !isSatisfied(missing) {
		return nil, fmt.Errorf("preempt pods for %s/%s: all that may go leave %s missing", pod.Namespace, pod.Name, c.formatMissing(missing))
	}
	var chosen [3][]preemptible
	chosen[guaranteed] = choosePods(c.candidates[guaranteed], subtractRequests(c.missing, c.candidates[bestEffort], c.candidates[burstable]))
	chosen[burstable] = choosePods(c.candidates[burstable], subtractRequests(c.missing, c.candidates[bestEffort], chosen[guaranteed]))
	chosen[bestEffort] = choosePods(c.candidates[bestEffort], subtractRequests(c.missing, chosen[burstable], chosen[guaranteed]))
	var pods []*corev1.Pod
	for _, list := range chosen {
		for _, r := range list {
			pods = append(pods, r.pod)
		}
	}
	return pods, nil
}

// Indices of the QoS classes, in the order of the result.
const (
	bestEffort = iota
	burstable
	guaranteed
)

// preemption holds the amounts that a pod is missing, and the pods that it may preempt, by QoS class.
type preemption struct {
	shortages  []Shortage
	missing    []int64 // by index in shortages
	candidates [3][]preemptible
}

// preemptible is a pod that may be preempted, with its requests.
type preemptible struct {
	pod         *corev1.Pod
	amounts     []int64 // by index in preemption.shortages
	memory, cpu int64
}

func newPreemption(pod *corev1.Pod, others []*corev1.Pod, shortages []Shortage) *preemption {
	c := &preemption{shortages: shortages}
	for _, s := range shortages {
		c.missing = append(c.missing, s.Missing)
	}
	for _, other := range others {
		if !canPreempt(pod, other) {
			continue
		}
		r := preemptible{pod: other, memory: requestedAmount(other, corev1.ResourceMemory), cpu: requestedAmount(other, corev1.ResourceCPU)}
		for _, s := range shortages {
			r.amounts = append(r.amounts, requestedAmount(other, s.Resource))
		}
		class := map[corev1.PodQOSClass]int{corev1.PodQOSBurstable: burstable, corev1.PodQOSGuaranteed: guaranteed}[qos.StatusClass(other)]
		c.candidates[class] = append(c.candidates[class], r)
	}
	return c
}

// requestedAmount returns the pod's request of a resource; CPU in millicores. Source: GetResourceRequest in
// pkg/api/v1/resource/helpers.go.
func requestedAmount(pod *corev1.Pod, name corev1.ResourceName) int64 {
	if name == corev1.ResourcePods {
		return 1
	}
	q := qos.Request(pod, name)
	if name == corev1.ResourceCPU {
		return qos.MilliValue(&q)
	}
	return qos.Value(&q)
}

// subtractRequests returns missing minus the requests of all pods in lists. missing contains the amounts that a new pod
// lacks. No result is below zero.
func subtractRequests(missing []int64, lists ...[]preemptible) []int64 {
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

// isSatisfied reports whether no amount is missing.
func isSatisfied(missing []int64) bool { return slices.Max(append(missing, 0)) == 0 }

// choosePods selects pods until no amount is missing, each time the pod whose requests come closest. There must be enough.
func choosePods(list []preemptible, missing []int64) (chosen []preemptible) {
	list = slices.Clone(list)
	for !isSatisfied(missing) {
		best, least := 0, list[0].distance(missing)
		for i := range list[1:] {
			d := list[i+1].distance(missing)
			if d < least || d == least && !list[best].isSmaller(list[i+1]) {
				best, least = i+1, d
			}
		}
		chosen = append(chosen, list[best])
		missing = subtractRequests(missing, list[best:best+1])
		list[best] = list[len(list)-1]
		list = list[:len(list)-1]
	}
	return chosen
}

// distance returns how much remains missing after the eviction of r, as the sum of the squares of the missing fractions.
func (r preemptible) distance(missing []int64) (sum float64) {
	for i, m := range missing {
		if rest := float64(m - r.amounts[i]); m > 0 && rest > 0 {
			sum += (rest / float64(m)) * (rest / float64(m))
		}
	}
	return sum
}

// isSmaller reports whether r requests less memory than other. If both request the same memory, it compares their CPU
// requests.
func (r preemptible) isSmaller(other preemptible) bool {
	if r.memory != other.memory {
		return r.memory < other.memory
	}
	return r.cpu < other.cpu
}

// formatMissing returns the missing amounts as text for an error, for example "100 of memory". The amounts are in the order
// of c.shortages.
func (c *preemption) formatMissing(missing []int64) string {
	var words []string
	for i, m := range missing {
		if m > 0 {
			words = append(words, fmt.Sprintf("%d of %s", m, c.shortages[i].Resource))
		}
	}
	return strings.Join(words, ", ")
}
