// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// The reasons of failures that are not about resources, as in pkg/kubelet/lifecycle/predicate.go and the scheduler's plugins.
const (
	ReasonOSSelector         = "PodOSSelectorNodeLabelDoesNotMatch"
	ReasonOS                 = "PodOSNotSupported"
	ReasonSupplementalGroups = "SupplementalGroupsPolicyNotSupported"
	ReasonNodeAffinity       = "NodeAffinity"
	ReasonNodeName           = "NodeName"
	ReasonNodePorts          = "NodePorts"
	ReasonTaintToleration    = "TaintToleration"
)

// outOf is the prefix of the reason for an insufficient resource; the name of the resource follows.
const outOf = "OutOf"

// os is the operating system of this node.
const os = string(corev1.Linux)

// Failure is one reason why a pod cannot run on a node.
type Failure struct {
	Reason  string // such as "OutOfcpu" or "NodePorts"
	Message string // as in the kubelet

	// Resource is the insufficient resource. Empty: the failure is not about a resource. Requested is the request of the pod,
	// Used is the sum of the other pods' requests, and Capacity is the allocatable amount of the node. The unit is millicores for
	// CPU, and otherwise that of the resource, such as bytes. For the resource "pods" the amounts are numbers of pods.
	Resource                  corev1.ResourceName
	Requested, Used, Capacity int64
}

// Shortage returns how much of f.Resource other pods must release before the pod fits on the node: in millicores for CPU,
// bytes for memory, and the resource's own unit otherwise. The result is at most the largest int64.
func (f *Failure) Shortage() int64 {
	if f.Used > f.Capacity {
		return addSaturated(f.Requested, f.Used-f.Capacity)
	}
	return f.Requested - (f.Capacity - f.Used)
}

// Rejection returns the error that a lifecycle.Admit function must return to reject the pod because of this failure. It is a
// [*podstatus.Rejection].
func (f *Failure) Rejection() error {
	return &podstatus.Rejection{Reason: f.Reason, Message: f.Message}
}

// Admit returns a function for lifecycle.Options.Admit. The function gets the Node object from node(), calls [Check] for the
// pod, and rejects the pod with the first failure.
func Admit(node func() *corev1.Node) func(ctx context.Context, pod *corev1.Pod, others []*corev1.Pod) error {
	return func(_ context.Context, pod *corev1.Pod, others []*corev1.Pod) error {
		if failures := Check(pod, node(), others); len(failures) > 0 {
			return failures[0].Rejection()
		}
		return nil
	}
}

// Chain returns a function for lifecycle.Options.Admit that calls the functions in checks one after the other, and returns
// the first error. Nil functions are skipped. If all are nil, Chain returns nil.
func Chain[A ~func(ctx context.Context, pod *corev1.Pod, others []*corev1.Pod) error](checks ...A) A {
	checks = slices.DeleteFunc(slices.Clone(checks), func(check A) bool { return check == nil })
	if len(checks) == 0 {
		return nil
	}
	return func(ctx context.Context, pod *corev1.Pod, others []*corev1.Pod) error {
		for _, check := range checks {
			if err := check(ctx, pod, others); err != nil {
				return err
			}
		}
		return nil
	}
}

// ChainResize returns a function for lifecycle.Options.AdmitResize that calls the functions in checks one after the other, and returns the first error.
// Nil functions are skipped.
func ChainResize(checks ...func(pod *corev1.Pod) error) func(pod *corev1.Pod) error {
	return func(pod *corev1.Pod) error {
		for _, check := range checks {
			if check == nil {
				continue
			}
			if err := check(pod); err != nil {
				return err
			}
		}
		return nil
	}
}

// Check returns why the pod cannot run on the node together with the other pods, in the kubelet's order, or nil if it can. A
// failure that the removal of other pods cannot resolve, such as a wrong operating system, is returned alone.
func Check(pod *corev1.Pod, node *corev1.Node, others []*corev1.Pod) []Failure {
	if f := checkUnchangeable(pod, node); f != nil {
		return []Failure{*f}
	}
	failures := checkResources(pod, node, others)
	for _, predicate := range []struct {
		name, failure string
		holds         bool
	}{
		{ReasonNodeAffinity, "node(s) didn't match Pod's node affinity/selector", matchesNode(pod, node)},
		{ReasonNodeName, "node(s) didn't match the requested node name", pod.Spec.NodeName == "" || pod.Spec.NodeName == node.Name},
		{ReasonNodePorts, "node(s) didn't have free ports for the requested pod ports", portsAreFree(pod, others)},
		{ReasonTaintToleration, "node(s) had taints that the pod didn't tolerate", toleratesTaints(pod, node)},
	} {
		if !predicate.holds {
			failures = append(failures, Failure{
				Reason: predicate.name, Message: fmt.Sprintf("Predicate %s failed: %s", predicate.name, predicate.failure),
			})
		}
	}
	return failures
}

// checkUnchangeable returns a failure that the removal of other pods cannot resolve, such as a wrong operating system, or
// nil.
func checkUnchangeable(pod *corev1.Pod, node *corev1.Node) *Failure {
	if want, ok := pod.Labels[corev1.LabelOSStable]; ok && want != os {
		return &Failure{Reason: ReasonOSSelector, Message: "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label"}
	}
	if pod.Spec.OS != nil && string(pod.Spec.OS.Name) != os {
		return &Failure{Reason: ReasonOS, Message: "Failed to admit pod as the OS field doesn't match node OS"}
	}
	const strict = corev1.SupplementalGroupsPolicyStrict
	if sc := pod.Spec.SecurityContext; sc != nil && sc.SupplementalGroupsPolicy != nil && *sc.SupplementalGroupsPolicy == strict && !hasStrictGroups(node) {
		return &Failure{Reason: ReasonSupplementalGroups, Message: fmt.Sprintf("SupplementalGroupsPolicy=%s is not supported in this node", strict)}
	}
	return nil
}

// hasStrictGroups reports whether the container runtime of the node supports the value Strict of supplementalGroupsPolicy.
func hasStrictGroups(node *corev1.Node) bool {
	f := node.Status.Features
	return f != nil && f.SupplementalGroupsPolicy != nil && *f.SupplementalGroupsPolicy
}
