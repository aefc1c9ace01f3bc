// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	kubeeviction "k8s.io/kubernetes/pkg/kubelet/eviction"
	evictionapi "k8s.io/kubernetes/pkg/kubelet/eviction/api"
	"k8s.io/kubernetes/pkg/kubelet/preemption"

	"github.com/seed81659283/nodeagent/conformance"
	"github.com/seed81659283/nodeagent/eviction"
	"github.com/seed81659283/nodeagent/eviction/podevict"
	"github.com/seed81659283/nodeagent/qos"
)

func TestThresholdConfig(t *testing.T)   { run(t, thresholdConfig) }
func FuzzThresholdConfig(f *testing.F)   { fuzz(f, thresholdConfig) }
func TestEvictionRank(t *testing.T)      { run(t, evictionRank) }
func FuzzEvictionRank(f *testing.F)      { fuzz(f, evictionRank) }
func TestEvictionAdmission(t *testing.T) { run(t, evictionAdmission) }
func FuzzEvictionAdmission(f *testing.F) { fuzz(f, evictionAdmission) }
func TestPreemption(t *testing.T)        { run(t, preempt) }
func FuzzPreemption(f *testing.F)        { fuzz(f, preempt) }

var evictionSignals = []string{
	"memory.available", "allocatableMemory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree",
	"containerfs.available", "containerfs.inodesFree", "pid.available",
}

// settings are the eviction settings of a kubelet.
type settings struct {
	Hard, Soft, Grace, Reclaim map[string]string
	EnforcePods                bool
}

func (s settings) kubelet() ([]evictionapi.Threshold, error) {
	var enforce []string
	if s.EnforcePods {
		enforce = []string{"pods"}
	}
	return kubeeviction.ParseThresholdConfig(enforce, s.Hard, s.Soft, s.Grace, s.Reclaim)
}

func (s settings) ours() ([]eviction.Threshold, error) {
	return eviction.ParseThresholds(eviction.Config{Hard: s.Hard, Soft: s.Soft, SoftGracePeriod: s.Grace, MinimumReclaim: s.Reclaim, EnforcePods: s.EnforcePods})
}

func (s settings) any(such func(text string) bool) bool {
	for _, m := range []map[string]string{s.Hard, s.Soft, s.Reclaim} {
		for _, text := range m {
			if such(text) {
				return true
			}
		}
	}
	return false
}

// kubeletAmount formats a threshold value of the kubelet. It rounds a quantity as package eviction does.
func kubeletAmount(v evictionapi.ThresholdValue) string {
	switch {
	case v.Quantity != nil:
		return fmt.Sprint(qos.Value(v.Quantity))
	case v.Percentage == 0: // or -0
		return "0"
	default:
		return fmt.Sprint(v.Percentage, " of it")
	}
}

func ourAmount(v eviction.Amount) string {
	if v.Absolute == 0 && v.Fraction != 0 {
		return fmt.Sprint(v.Fraction, " of it")
	}
	return fmt.Sprint(v.Absolute)
}

// parsedThresholds has the thresholds of settings, or reports that the settings are invalid.
type parsedThresholds struct {
	Refused    bool
	Thresholds []string
}

// hasNoDigit reports whether a quantity has no digit.
func hasNoDigit(text string) bool { return !strings.ContainsAny(text, "0123456789") }

var thresholdConfig = conformance.Comparison[settings, parsedThresholds]{
	Make: func(c *conformance.Choices) (s settings) {
		sound := !c.OneIn(2)
		s.Hard, s.Soft, s.Grace, s.Reclaim = conformance.EvictionSettings(c, sound, evictionSignals)
		s.EnforcePods = c.OneIn(2)
		if sound && c.OneIn(8) { // one odd value among valid ones
			s.Reclaim["memory.available"] = conformance.Pick(c, "Inf%", ".", "NaN%", "0x1p3%", "1e3")
		}
		return s
	},
	Kubelet: func(s settings) (out parsedThresholds) {
		list, err := s.kubelet()
		for _, t := range list {
			reclaim := evictionapi.ThresholdValue{Quantity: &resource.Quantity{}}
			if t.MinReclaim != nil {
				reclaim = *t.MinReclaim
			}
			out.Thresholds = append(out.Thresholds, fmt.Sprint(t.Signal, " ", kubeletAmount(t.Value), " ", t.GracePeriod, " ", kubeletAmount(reclaim)))
		}
		slices.Sort(out.Thresholds)
		out.Refused = err != nil
		return out
	},
	Ours: func(s settings) (out parsedThresholds) {
		list, err := s.ours()
		for _, t := range list {
			out.Thresholds = append(out.Thresholds, fmt.Sprint(t.Signal, " ", ourAmount(t.Value), " ", t.GracePeriod, " ", ourAmount(t.MinReclaim)))
		}
		slices.Sort(out.Thresholds)
		out.Refused = err != nil
		return out
	},
	Exceptions: []conformance.Exception[settings, parsedThresholds]{
		{
			Name: "NaN", Reason: "NaN% is invalid; in the kubelet it is a threshold that is never met",
			When: func(s settings) bool { return s.any(func(text string) bool { return strings.HasPrefix(text, "NaN") }) },
			Want: func(settings, parsedThresholds) parsedThresholds { return parsedThresholds{Refused: true} },
		},
		{
			Name: "infinity", Reason: "an infinite minimum reclaim is invalid; in the kubelet it overflows",
			When: func(s settings) bool {
				for _, text := range s.Reclaim {
					if strings.HasPrefix(text, "Inf") {
						return true
					}
				}
				return false
			},
			Want: func(settings, parsedThresholds) parsedThresholds { return parsedThresholds{Refused: true} },
		},
		{
			Name: "no digit", Reason: "a quantity without a digit is invalid; in the kubelet it is zero, which is valid for a minimum reclaim",
			When: func(s settings) bool { return s.any(hasNoDigit) },
			Want: func(settings, parsedThresholds) parsedThresholds { return parsedThresholds{Refused: true} },
		},
	},
}

// diskLayout returns the kubelet's description of a layout.
func diskLayout(l eviction.Layout) (dedicated, split bool) {
	return l != eviction.SingleFS, l == eviction.SplitFS
}

// node has the pods of a node and their statistics.
type node struct {
	Layout  eviction.Layout
	Signal  string
	Pods    []*corev1.Pod
	Summary statsapi.Summary
}

func makeRanked(c *conformance.Choices) (n node) {
	n.Layout = eviction.Layout(c.Int(3))
	n.Signal = conformance.Pick(c, evictionSignals...)
	for i := range 2 + c.Int(4) {
		pod, stats := conformance.EvictionPod(c, i)
		n.Pods = append(n.Pods, pod)
		if stats != nil {
			n.Summary.Pods = append(n.Summary.Pods, *stats)
		}
	}
	if len(n.Summary.Pods) > 0 && c.OneIn(64) {
		huge := uint64(1) << 63
		n.Summary.Pods[0].ProcessStats = &statsapi.ProcessStats{ProcessCount: &huge}
	}
	return n
}

// huge reports whether a pod has a number of processes beyond an int64.
func (n node) huge() bool {
	for _, s := range n.Summary.Pods {
		if p := s.ProcessStats; p != nil && p.ProcessCount != nil && *p.ProcessCount >= 1<<63 {
			return true
		}
	}
	return false
}

// evictionRank compares the order of all pairs of pods. The order of equal pods is undefined.
var evictionRank = conformance.Comparison[node, []string]{
	Make: makeRanked,
	Kubelet: func(n node) (out []string) {
		dedicated, split := diskLayout(n.Layout)
		return n.pairs(func(a, b *corev1.Pod) bool {
			pods := []*corev1.Pod{b, a}
			kubeeviction.ConformanceRank(evictionapi.Signal(n.Signal), dedicated, split, pods, &n.Summary)
			return pods[0] == a
		})
	},
	Ours: func(n node) (out []string) {
		ranker := eviction.NewRanker(eviction.RankOptions{Layout: n.Layout, IgnoreSwap: true})
		return n.pairs(func(a, b *corev1.Pod) bool {
			list, _ := podevict.Candidates([]*corev1.Pod{a, b}, &n.Summary, podevict.Options{Layout: n.Layout})
			list[0].UID, list[1].UID = "second", "first" // for the order of equal pods
			return ranker.Rank(eviction.Signal(n.Signal), list)[0].UID == "second"
		})
	},
	Exceptions: []conformance.Exception[node, []string]{{
		Name: "numbers beyond 2^63-1", Reason: "such a number of processes counts as unknown; in the kubelet the difference of two numbers wraps around",
		When: func(n node) bool { return n.Signal == "pid.available" && n.huge() },
	}},
}

// pairs returns the ordered pairs of pods.
func (n node) pairs(before func(a, b *corev1.Pod) bool) (out []string) {
	for _, a := range n.Pods {
		for _, b := range n.Pods {
			if a != b && before(a, b) {
				out = append(out, a.Name+" before "+b.Name)
			}
		}
	}
	return out
}

// applicant is a pod to admit on a node with conditions.
type applicant struct {
	Pod        *corev1.Pod
	Conditions []eviction.Condition
}

var evictionAdmission = conformance.Comparison[applicant, answer]{
	Make: func(c *conformance.Choices) (a applicant) {
		a.Pod, _ = conformance.EvictionPod(c, 0)
		if c.OneIn(2) {
			a.Pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
			a.Pod.Spec.Containers = a.Pod.Spec.Containers[:1]
		}
		for _, condition := range []eviction.Condition{eviction.MemoryPressure, eviction.DiskPressure, eviction.PIDPressure} {
			if c.OneIn(2) {
				a.Conditions = append(a.Conditions, condition)
			}
		}
		return a
	},
	Kubelet: func(a applicant) answer {
		m := newTraceManager(trace{}, nil)
		var conditions []corev1.NodeConditionType
		for _, c := range a.Conditions {
			conditions = append(conditions, corev1.NodeConditionType(c))
		}
		m.SetConditions(conditions)
		result := m.Admit(context.Background(), a.Pod)
		return answer{Refused: !result.Admit, Text: result.Reason + result.Message}
	},
	Ours: func(a applicant) answer {
		if err := podevict.Admit(a.Pod, a.Conditions, false); err != nil {
			refusal := err.(*podevict.Refusal) //nolint:errorlint // nothing wraps it
			return answer{Refused: true, Text: refusal.Reason + refusal.Message}
		}
		return answer{}
	},
}

// preemptor is a pod that does not fit on the node, and the missing resources.
type preemptor struct {
	Pod    *corev1.Pod
	Others []*corev1.Pod
	Short  []podevict.Shortage
}

var preempt = conformance.Comparison[preemptor, answer]{
	Make: func(c *conformance.Choices) (p preemptor) {
		p.Pod, _ = conformance.EvictionPod(c, 100)
		if !c.OneIn(4) {
			priority := int32(2000000000)
			p.Pod.Spec.Priority = &priority
		}
		for i := range c.Int(8) {
			pod := conformance.Pod(c)
			if c.OneIn(2) {
				pod, _ = conformance.EvictionPod(c, i)
			}
			pod.Name, pod.UID = fmt.Sprint("pod", i), types.UID(fmt.Sprint(i))
			p.Others = append(p.Others, pod)
		}
		for range 1 + c.Int(3) {
			p.Short = append(p.Short, podevict.Shortage{
				Resource: conformance.Pick(c, corev1.ResourceMemory, corev1.ResourceCPU, corev1.ResourcePods, corev1.ResourceEphemeralStorage),
				Missing:  conformance.Pick(c, int64(c.Int(5)), int64(c.Int(250))*conformance.Mi, int64(c.Int(200))*10, c.Int64()),
			})
		}
		return p
	},
	Kubelet: func(p preemptor) answer {
		var missing []preemption.ConformanceRequirement
		for _, s := range p.Short {
			missing = append(missing, preemption.ConformanceRequirement{Resource: s.Resource, Quantity: s.Missing})
		}
		return chosenPods(preemption.ConformancePreempt(p.Pod, p.Others, missing))
	},
	Ours: func(p preemptor) answer { return chosenPods(podevict.Preempt(p.Pod, p.Others, p.Short)) },
	Exceptions: []conformance.Exception[preemptor, answer]{{
		Name: "requests beyond 2^63-1", Reason: "such a request is the largest number; the kubelet's is zero or wraps around",
		When: func(p preemptor) bool {
			return slices.ContainsFunc(p.Others, func(pod *corev1.Pod) bool {
				return anyAmount(pod, func(_ corev1.ResourceName, q resource.Quantity) bool { return exceedsInt64(q, 1000) || q.Sign() < 0 })
			})
		},
	}},
}

func chosenPods(pods []*corev1.Pod, err error) answer {
	if err != nil {
		return answer{Refused: true}
	}
	var names []string
	for _, pod := range pods {
		names = append(names, pod.Name)
	}
	return answer{Text: strings.Join(names, " ")}
}
