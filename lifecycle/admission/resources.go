// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/internal/podfield"
	"github.com/seed81659283/nodeagent/qos"
)

// quantities has an amount per resource: CPU in millicores, and each other resource in its own unit.
type quantities map[corev1.ResourceName]int64

// addList adds the quantities in list to a. CPU counts in millicores; another resource counts in whole units if isCounted
// returns true for its name. A negative quantity counts as zero.
func (a quantities) addList(list corev1.ResourceList) {
	for name, q := range list {
		switch {
		case name == corev1.ResourceCPU:
			a[name] = addSaturated(a[name], max(qos.MilliValue(&q), 0))
		case isCounted(name):
			a[name] = addSaturated(a[name], max(qos.Value(&q), 0))
		}
	}
}

// addSaturated returns a+b, or the largest int64 if the sum is larger. a and b must not be negative.
func addSaturated(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// checkResources returns a failure for each resource of which the node has too little. Source: fitsRequest in
// pkg/scheduler/framework/plugins/noderesources/fit.go.
func checkResources(pod *corev1.Pod, node *corev1.Node, others []*corev1.Pod) (failures []Failure) {
	short := func(name corev1.ResourceName, requested, used, capacity int64) {
		failures = append(failures, Failure{
			Reason: outOf + string(name), Resource: name, Requested: requested, Used: used, Capacity: capacity,
			Message: fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d", name, requested, used, capacity),
		})
	}
	room := quantities{}
	room.addList(node.Status.Allocatable)
	pods := node.Status.Allocatable[corev1.ResourcePods]
	if places := qos.Value(&pods); int64(len(others)) >= places {
		short(corev1.ResourcePods, 1, int64(len(others)), places)
	}
	requested := quantities{}
	requested.addList(qos.Requests(withoutUnknown(pod, room), qos.Options{}))
	if len(requested) == 0 {
		return failures
	}
	used := quantities{}
	for _, other := range others {
		used.addList(qos.Requests(other, qos.Options{UseStatus: true}))
	}
	for _, name := range sortedNames(requested) {
		if want := requested[name]; want > 0 && want > room[name]-used[name] {
			short(name, want, used[name], room[name])
		}
	}
	return failures
}

// sortedNames returns cpu, memory and ephemeral-storage, and then the other resources in amounts by name.
func sortedNames(amounts quantities) []corev1.ResourceName {
	first := []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage}
	names := first
	for _, name := range slices.Sorted(maps.Keys(amounts)) {
		if !slices.Contains(first, name) {
			names = append(names, name)
		}
	}
	return names
}

// withoutUnknown returns the pod without requests for extended resources that are not in allocatable. Source:
// removeMissingExtendedResources in pkg/kubelet/lifecycle/predicate.go.
func withoutUnknown(pod *corev1.Pod, allocatable quantities) *corev1.Pod {
	unknown := func(name corev1.ResourceName) bool {
		// Another component of the cluster allocates an unknown resource.
		_, known := allocatable[name]
		return !known && podfield.IsExtendedResource(name)
	}
	filter := func(list []corev1.Container) []corev1.Container {
		var out []corev1.Container
		for i := range list {
			for name := range list[i].Resources.Requests {
				if !unknown(name) {
					continue
				}
				if out == nil {
					out = slices.Clone(list)
				}
				requests := maps.Clone(list[i].Resources.Requests)
				maps.DeleteFunc(requests, func(name corev1.ResourceName, _ resource.Quantity) bool { return unknown(name) })
				out[i].Resources.Requests = requests
				break
			}
		}
		if out == nil {
			return list
		}
		return out
	}
	filtered := *pod
	filtered.Spec.InitContainers = filter(pod.Spec.InitContainers)
	filtered.Spec.Containers = filter(pod.Spec.Containers)
	return &filtered
}

// WithoutResources returns a copy of node without the allocatable extended resources for which skip returns true, or node itself
// if there are none. [Check] ignores the requests for these resources. lifecycle.Options.Devices reserves them after Admit, and
// waits for plugins that are not connected yet. Source: sanitizeNodeAllocatable in pkg/kubelet/cm/devicemanager/manager.go.
func WithoutResources(node *corev1.Node, skip func(name corev1.ResourceName) bool) *corev1.Node {
	isSkipped := func(name corev1.ResourceName, _ resource.Quantity) bool {
		return podfield.IsExtendedResource(name) && skip(name)
	}
	kept := maps.Clone(node.Status.Allocatable)
	maps.DeleteFunc(kept, isSkipped)
	if len(kept) == len(node.Status.Allocatable) {
		return node
	}
	reduced := *node
	reduced.Status.Allocatable = kept
	return &reduced
}

// isCounted reports whether admission compares the requests for this resource, except CPU, with the allocatable amount.
// Source: IsScalarResourceName in pkg/scheduler/util.
func isCounted(name corev1.ResourceName) bool {
	switch {
	case name == corev1.ResourceMemory, name == corev1.ResourceEphemeralStorage,
		strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix),
		strings.HasPrefix(string(name), corev1.ResourceAttachableVolumesPrefix),
		strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix):
		return true
	}
	return podfield.IsExtendedResource(name)
}
