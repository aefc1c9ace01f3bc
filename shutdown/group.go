// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package shutdown

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// CriticalPriority is the lowest priority of a critical pod. It is the value of the PriorityClass system-cluster-critical.
const CriticalPriority int32 = 2_000_000_000

// Period is the time for stopping the pods in a range of priorities: from Priority up to the Priority of the next period. Pods
// below the lowest Priority belong to the first period.
type Period struct {
	Priority    int32
	GracePeriod time.Duration // whole seconds
}

// Periods converts the kubelet's settings shutdownGracePeriod (total, for all pods) and shutdownGracePeriodCriticalPods
// (critical, the part for critical pods) to periods. It returns nil if total is zero or less than critical.
func Periods(total, critical time.Duration) []Period {
	if total == 0 || critical < 0 || total < critical {
		return nil
	}
	return []Period{
		{Priority: 0, GracePeriod: (total - critical).Truncate(time.Second)},
		{Priority: CriticalPriority, GracePeriod: critical.Truncate(time.Second)},
	}
}

// Group has the pods that are stopped together in one [Period] of a shutdown.
type Group struct {
	Period
	Pods []*corev1.Pod
}

// Groups assigns each pod to the period of its priority; see [Period]. It returns one group per period, sorted by rising
// priority. The groups are stopped in this order. A group may have no pods.
func Groups(periods []Period, pods []*corev1.Pod) []Group {
	if len(periods) == 0 {
		return nil
	}
	groups := make([]Group, len(periods))
	for i, p := range slices.SortedStableFunc(slices.Values(periods), func(a, b Period) int { return cmp.Compare(a.Priority, b.Priority) }) {
		groups[i].Period = p
	}
	for _, pod := range pods {
		var priority int32
		if p := pod.Spec.Priority; p != nil {
			priority = *p
		}
		// The last group with a priority of at most that of the pod.
		at, found := slices.BinarySearchFunc(groups, priority, func(g Group, p int32) int { return cmp.Compare(g.Priority, p) })
		if !found {
			at = max(at-1, 0)
		}
		groups[at].Pods = append(groups[at].Pods, pod)
	}
	return groups
}

// Grace returns the termination grace period of pod, but at most the GracePeriod of the group. For a pod without a grace
// period, it returns GracePeriod.
func (g Group) Grace(pod *corev1.Pod) time.Duration {
	own := pod.Spec.TerminationGracePeriodSeconds
	if seconds := int64(g.GracePeriod / time.Second); own == nil || *own > seconds {
		return time.Duration(seconds) * time.Second
	}
	return time.Duration(*own) * time.Second
}

// validatePeriods returns an error if a grace period is negative or not in whole seconds, or if two periods have the same
// priority.
func validatePeriods(periods []Period) error {
	seen := map[int32]bool{}
	for i, p := range periods {
		switch {
		case p.GracePeriod < 0 || p.GracePeriod%time.Second != 0:
			return fmt.Errorf("Options.Periods[%d].GracePeriod %s: must be whole seconds, and not negative", i, p.GracePeriod)
		case seen[p.Priority]:
			return fmt.Errorf("Options.Periods[%d].Priority %d: there is another period of this priority", i, p.Priority)
		}
		seen[p.Priority] = true
	}
	return nil
}

// sumPeriods returns the sum of all grace periods. logind must delay a shutdown for at least this duration.
func sumPeriods(periods []Period) (sum time.Duration) {
	for _, p := range periods {
		sum += p.GracePeriod
	}
	return sum
}
