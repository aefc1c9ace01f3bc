// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/nodeshutdown"

	"github.com/seed81659283/nodeagent/conformance"
	"github.com/seed81659283/nodeagent/shutdown"
)

// shutdownInput is a configuration, and the pods of a node that shuts down.
type shutdownInput struct {
	List            []shutdown.Period
	Total, Critical time.Duration // if List is empty
	Pods            []*corev1.Pod
}

// shutdownOutput has the groups of pods, and the grace period of each pod.
type shutdownOutput struct {
	Groups []nodeshutdown.ConformanceGroup
	Grace  map[string]int64
	Err    bool
}

// Both sides have the same groups of pods in the same order, and the same grace periods.
func TestShutdownGroups(t *testing.T) {
	conformance.Comparison[shutdownInput, shutdownOutput]{
		Make: newShutdownInput,
		Kubelet: func(in shutdownInput) (out shutdownOutput) {
			var list []kubeletconfig.ShutdownGracePeriodByPodPriority
			for _, p := range in.List {
				list = append(list, kubeletconfig.ShutdownGracePeriodByPodPriority{Priority: p.Priority, ShutdownGracePeriodSeconds: int64(p.GracePeriod / time.Second)})
			}
			out.Groups, out.Grace = nodeshutdown.ConformanceGroups(t.Context(), list, in.Total, in.Critical, in.Pods)
			return out
		},
		Ours: ourShutdown,
		Exceptions: []conformance.Exception[shutdownInput, shutdownOutput]{{
			Name: "two groups of one priority", Reason: "the group of a pod with this priority is ambiguous",
			When: func(in shutdownInput) bool {
				seen := map[int32]bool{}
				for _, p := range in.List {
					if seen[p.Priority] {
						return true
					}
					seen[p.Priority] = true
				}
				return false
			},
			Want: func(shutdownInput, shutdownOutput) shutdownOutput {
				return shutdownOutput{Grace: map[string]int64{}, Err: true}
			},
		}},
	}.Run(t, flags)
}

func ourShutdown(in shutdownInput) shutdownOutput {
	out := shutdownOutput{Grace: map[string]int64{}}
	periods := in.List
	if len(periods) == 0 {
		if periods = shutdown.Periods(in.Total, in.Critical); periods == nil {
			return out
		}
	}
	_, err := shutdown.New(shutdown.Options{
		Periods: periods, Pods: func() []*corev1.Pod { return in.Pods },
		Stop: func(context.Context, *corev1.Pod, time.Duration) error { return nil },
	})
	if out.Err = err != nil; out.Err {
		return out
	}
	for _, g := range shutdown.Groups(periods, in.Pods) {
		group := nodeshutdown.ConformanceGroup{Priority: g.Priority, Seconds: int64(g.GracePeriod / time.Second)}
		for _, pod := range g.Pods {
			group.Pods = append(group.Pods, pod.Name)
			out.Grace[pod.Name] = int64(g.Grace(pod) / time.Second)
		}
		slices.Sort(group.Pods)
		out.Groups = append(out.Groups, group)
	}
	return out
}

func newShutdownInput(c *conformance.Choices) (in shutdownInput) {
	priorities := []int32{0, 1, -1, 100, 1000, shutdown.CriticalPriority - 1, shutdown.CriticalPriority, shutdown.CriticalPriority + 1000, -2147483648, 2147483647}
	for range c.Int(5) {
		in.List = append(in.List, shutdown.Period{Priority: priorities[c.Int(len(priorities))], GracePeriod: time.Duration(1+c.Int(60)) * time.Second})
	}
	// Both sides cut off fractions of a second.
	in.Total, in.Critical = time.Duration(c.Int(100))*time.Second/2, time.Duration(c.Int(60))*time.Second/2
	for i := range c.Int(8) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("pod", i)}}
		if !c.OneIn(4) {
			pod.Spec.Priority = &priorities[c.Int(len(priorities))]
		}
		if !c.OneIn(4) {
			grace := int64(c.Int(90))
			pod.Spec.TerminationGracePeriodSeconds = &grace
		}
		in.Pods = append(in.Pods, pod)
	}
	return in
}
