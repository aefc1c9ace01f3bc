// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"math"
	"slices"
	"strings"

	"gopkg.in/inf.v0"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	componentresource "k8s.io/component-helpers/resource"
	"k8s.io/kubernetes/pkg/apis/core/v1/helper"
)

// exceedsInt64 reports whether q multiplied by times overflows an int64, or is the smallest int64, which Quantity sometimes treats
// as an overflow.
func exceedsInt64(q resource.Quantity, times int64) bool {
	product := new(inf.Dec).Mul(q.AsDec(), inf.NewDec(times, 0))
	return product.Cmp(inf.NewDec(math.MaxInt64, 0)) > 0 || product.Cmp(inf.NewDec(math.MinInt64, 0)) <= 0
}

// anyAmount reports whether such returns true for a resource amount of the pod or for one of its totals.
func anyAmount(pod *corev1.Pod, such func(corev1.ResourceName, resource.Quantity) bool) bool {
	pod = pod.DeepCopy() // computing totals modifies the pod
	lists := []corev1.ResourceList{pod.Spec.Overhead}
	add := func(r *corev1.ResourceRequirements) { lists = append(lists, r.Requests, r.Limits) }
	for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range containers {
			add(&containers[i].Resources)
		}
	}
	if pod.Spec.Resources != nil {
		add(pod.Spec.Resources)
	}
	for _, without := range []bool{false, true} {
		o := componentresource.PodResourcesOptions{ExcludeOverhead: without, SkipPodLevelResources: without}
		lists = append(lists, componentresource.PodRequests(pod.DeepCopy(), o), componentresource.PodLimits(pod.DeepCopy(), o))
	}
	for _, list := range lists {
		for name, q := range list {
			if such(name, q) {
				return true
			}
		}
	}
	return false
}

// overflowsCPU reports whether the pod has an amount of CPU that overflows in the kubelet: it multiplies millicores by 1024 for
// the shares and by the period for the quota.
func overflowsCPU(pod *corev1.Pod) bool {
	return anyAmount(pod, func(name corev1.ResourceName, q resource.Quantity) bool {
		return name == corev1.ResourceCPU && exceedsInt64(q, 1000*1_000_000)
	})
}

// overflowsMemory reports whether the pod has an amount of memory or huge pages that overflows an int64 when multiplied by times.
func overflowsMemory(pod *corev1.Pod, times int64) bool {
	return anyAmount(pod, func(name corev1.ResourceName, q resource.Quantity) bool {
		return (name == corev1.ResourceMemory || helper.IsHugePageResourceName(name)) && exceedsInt64(q, times)
	})
}

// hasNegative reports whether the pod has a negative amount of a resource whose name has the prefix.
func hasNegative(pod *corev1.Pod, prefix string) bool {
	return anyAmount(pod, func(name corev1.ResourceName, q resource.Quantity) bool {
		return strings.HasPrefix(string(name), prefix) && q.Sign() < 0
	})
}

// hasInvalidPageSize reports whether the pod has huge pages with an invalid size: not a number, not positive, or not a multiple of
// the kernel's unit. Unless host is nil, sizes that host does not contain are invalid, too.
func hasInvalidPageSize(pod *corev1.Pod, host []string) bool {
	return anyAmount(pod, func(name corev1.ResourceName, _ resource.Quantity) bool {
		if !helper.IsHugePageResourceName(name) {
			return false
		}
		size, err := helper.HugePageSizeFromResourceName(name)
		if err != nil || size.Sign() <= 0 {
			return true
		}
		text, err := helper.HugePageUnitSizeFromByteSize(size.Value())
		return err != nil || host != nil && !slices.Contains(host, text)
	})
}

// hasDuplicatePageSize reports whether limits in the pod contain one huge page size under two names.
func hasDuplicatePageSize(pod *corev1.Pod) bool {
	sizes := func(list corev1.ResourceList) map[int64]int {
		count := map[int64]int{}
		for name := range list {
			if size, err := helper.HugePageSizeFromResourceName(name); err == nil {
				count[size.Value()]++
			}
		}
		return count
	}
	var lists []corev1.ResourceList
	for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range containers {
			lists = append(lists, containers[i].Resources.Limits)
		}
	}
	if pod.Spec.Resources != nil {
		lists = append(lists, pod.Spec.Resources.Limits)
	}
	return slices.ContainsFunc(lists, func(list corev1.ResourceList) bool {
		for _, n := range sizes(list) {
			if n > 1 {
				return true
			}
		}
		return false
	})
}

// sharedDecimal reports whether the kubelet modifies the pod when it computes its resources: it adds the overhead to
// pod-level amounts without copying them, and amounts that are no int64, such as 1.5Gi, share their digits with the pod.
func sharedDecimal(pod *corev1.Pod) bool {
	if pod.Spec.Overhead == nil || pod.Spec.Resources == nil {
		return false
	}
	for _, list := range []corev1.ResourceList{pod.Spec.Resources.Requests, pod.Spec.Resources.Limits} {
		for name, q := range list {
			if _, ok := q.AsInt64(); !ok && !pod.Spec.Overhead.Name(name, q.Format).IsZero() {
				return true
			}
		}
	}
	return false
}
