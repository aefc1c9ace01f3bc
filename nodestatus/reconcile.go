// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodestatus

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/internal/podfield"
)

// reconciledLabels returns the labels of an existing Node that Reconcile sets from the configuration. Other labels are kept.
func reconciledLabels() []string { return append(ownLabels(), corev1.LabelWindowsBuild) }

// Reconcile returns the Node to send when an agent registers a Node that exists already, and whether it differs from existing.
// Source: tryRegisterWithAPIServer in pkg/kubelet/kubelet_node_status.go.
//
// The attach-detach annotation, the default labels and the huge page resources come from initial; taints, other labels and the
// spec from existing. The result shares no memory with the arguments.
func Reconcile(existing, initial *corev1.Node) (*corev1.Node, bool) {
	node := existing.DeepCopy()
	changed := reconcileAttachDetach(node, initial)
	changed = reconcileLabels(node, initial) || changed
	changed = reconcileResources(node, initial) || changed
	changed = reconcileHugePages(node, initial) || changed
	return node, changed
}

// reconcileAttachDetach sets the attach-detach annotation of node to its value in initial, the result of [Initial]. It
// removes the annotation if initial has none. It reports whether node was changed.
func reconcileAttachDetach(node, initial *corev1.Node) bool {
	want, wanted := initial.Annotations[annotationAttachDetach]
	if node.Annotations[annotationAttachDetach] == want {
		return false
	}
	if !wanted {
		delete(node.Annotations, annotationAttachDetach)
		return true
	}
	if node.Annotations == nil {
		node.Annotations = map[string]string{}
	}
	node.Annotations[annotationAttachDetach] = want
	return true
}

// reconcileLabels sets the default labels of node to the values in initial, where an empty value removes the label.
func reconcileLabels(node, initial *corev1.Node) (changed bool) {
	for _, label := range reconciledLabels() {
		want, wanted := initial.Labels[label]
		if !wanted {
			continue
		}
		is, has := node.Labels[label]
		switch {
		case want == "" && has:
			delete(node.Labels, label)
		case is == want:
			continue
		case node.Labels == nil:
			node.Labels = map[string]string{label: want}
		default:
			node.Labels[label] = want
		}
		changed = true
	}
	return changed
}

// reconcileResources sets a missing capacity or allocatable of node from initial, the result of [Initial]. It reports
// whether node was changed.
func reconcileResources(node, initial *corev1.Node) (changed bool) {
	for _, list := range []struct{ is, want *corev1.ResourceList }{
		{&node.Status.Capacity, &initial.Status.Capacity}, {&node.Status.Allocatable, &initial.Status.Allocatable},
	} {
		if *list.is != nil {
			continue
		}
		*list.is = list.want.DeepCopy()
		if changed = changed || *list.want != nil; *list.is == nil {
			*list.is = corev1.ResourceList{}
		}
	}
	return changed
}

// reconcileHugePages copies the huge page resources to node from initial, the result of [Initial], and removes other page
// sizes. It reports whether node was changed.
func reconcileHugePages(node, initial *corev1.Node) (changed bool) {
	s := &node.Status
	set := func(list corev1.ResourceList, name corev1.ResourceName, want resource.Quantity, missing bool) {
		if is := list[name]; missing || is.Cmp(want) != 0 {
			list[name] = want.DeepCopy()
			changed = true
		}
	}
	for name, capacity := range initial.Status.Capacity {
		if isHugePages(name) {
			_, known := s.Capacity[name]
			set(s.Capacity, name, capacity, !known)
			set(s.Allocatable, name, initial.Status.Allocatable[name], !known)
		}
	}
	for name := range s.Capacity {
		if _, supported := initial.Status.Capacity[name]; isHugePages(name) && !supported {
			delete(s.Capacity, name)
			delete(s.Allocatable, name)
			changed = true
		}
	}
	return changed
}

// ZeroExtendedResources returns a copy of node with an amount of zero for each extended resource, and whether there are any. The
// scheduler then binds no pod that requests a device until the device plugins have registered again.
func ZeroExtendedResources(node *corev1.Node) (*corev1.Node, bool) {
	out, found := node.DeepCopy(), false
	for name := range out.Status.Capacity {
		if !podfield.IsExtendedResource(name) {
			continue
		}
		found = true
		out.Status.Capacity[name] = *resource.NewQuantity(0, resource.DecimalSI)
		if out.Status.Allocatable == nil {
			out.Status.Allocatable = corev1.ResourceList{}
		}
		out.Status.Allocatable[name] = *resource.NewQuantity(0, resource.DecimalSI)
	}
	return out, found
}
