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

// The reasons of failures beside those about a resource, as pkg/kubelet/lifecycle/predicate.go and the scheduler's plugins have
// them.
const (
	ReasonOSSelector         = "PodOSSelectorNodeLabelDoesNotMatch"
	ReasonOS                 = "PodOSNotSupported"
	ReasonSupplementalGroups = "SupplementalGroupsPolicyNotSupported"
	ReasonNodeAffinity       = "NodeAffinity"
	ReasonNodeName           = "NodeName"
	ReasonNodePorts          = "NodePorts"
	ReasonTaintToleration    = "TaintToleration"
)

// outOf is the beginning of a reason that ends with the name of a resource.
const outOf = "OutOf"

// os is the operating system of pods.
const os = string(corev1.Linux)

// Failure is why a pod cannot run on a node.
type Failure struct {
	Reason  string // such as "OutOfcpu" or "NodePorts"
	Message string // the kubelet's

	// Resource is the one of which there is too little; empty: the failure is about something else. The amounts are in millicores of
	// CPU and whole units of all others. Used is what the others request or, of pods, their number.
	Resource                  corev1.ResourceName
	Requested, Used, Capacity int64
}

// Missing returns how much of Resource others would have to give back: in millicores, bytes, or what its unit is, and at most the
// largest number.
func (f *Failure) Shortage() int64 {
	if f.Used > f.Capacity {
		return addSaturated(f.Requested, f.Used-f.Capacity)
	}
	return f.Requested - (f.Capacity - f.Used)
}

// Rejection returns what an Admit of lifecycle answers for it.
func (f *Failure) Rejection() error {
	return &podstatus.Rejection{Reason: f.Reason, Message: f.Message}
}

// Admit returns an Admit of lifecycle that rejects a pod with the first failure of [Check] on the Node that node returns, which is
// asked each time.
func Admit(node func() *corev1.Node) func(ctx context.Context, pod *corev1.Pod, others []*corev1.Pod) error {
	return func(_ context.Context, pod *corev1.Pod, others []*corev1.Pod) error {
		if failures := Check(pod, node(), others); len(failures) > 0 {
			return failures[0].Rejection()
		}
		return nil
	}
}

// Chain returns an Admit of lifecycle that asks each of checks in order, and returns the first error. A nil check is left out.
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

// Check returns why a pod cannot run on a node beside others, in the kubelet's order: the operating system and supplemental groups,
// of which only the first is told, because nobody can make room for them; then pods, cpu, memory, ephemeral-storage, and other
// resources by name, affinity, node name, host ports and taints. Nil: it can run.
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

// fixed returns why no pod that goes would help.
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

// hasStrictGroups reports whether the runtime of a node can leave out the groups of an image.
func hasStrictGroups(node *corev1.Node) bool {
	f := node.Status.Features
	return f != nil && f.SupplementalGroupsPolicy != nil && *f.SupplementalGroupsPolicy
}
