// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podevict

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/required"
	"github.com/seed81659283/nodeagent/lifecycle/admission"
	"github.com/seed81659283/nodeagent/lifecycle/podevents"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
	"github.com/seed81659283/nodeagent/qos"
)

// PreemptorOptions configures a [Preemptor]. Node and Pods are required.
type PreemptorOptions struct {
	// Node returns the Node object, which is not modified.
	Node func() *corev1.Node
	// Pods manages the pods of the node. If they exist only later, pass a [Pods] that looks them up.
	Pods Pods
	// Event receives the event of each preempted pod. Nil discards it.
	Event func(pod cri.PodIdentity, event podevents.Event)
	// Preempted is called for each preempted pod with the first missing resource. Nil is not called.
	Preempted func(resource string)
}

// Preemptor admits the pods that [admission.Check] accepts. If a critical pod lacks only resources, it evicts less important
// pods, selected by [Preempt]. Source: pkg/kubelet/lifecycle/predicate.go and pkg/kubelet/preemption.
type Preemptor struct{ opts PreemptorOptions }

// NewPreemptor returns a Preemptor. The error names the required option that is missing.
func NewPreemptor(opts PreemptorOptions) (*Preemptor, error) {
	if err := required.Args("podevict.NewPreemptor",
		required.Arg{Name: "PreemptorOptions.Node", Value: opts.Node, Hint: "Reporter.Node of package heartbeat"},
		required.Arg{Name: "PreemptorOptions.Pods", Value: opts.Pods, Hint: "a *lifecycle.Reconciler or a *lifecycle.Handle"}); err != nil {
		return nil, err
	}
	return &Preemptor{opts}, nil
}

// Admit implements lifecycle.Options.Admit. It returns nil if the pod fits on the node together with the others. If a
// critical pod does not fit, Admit evicts less important pods first. It also checks the node affinity: set
// lifecycle.Options.AdmitChecksNodeAffinity.
func (p *Preemptor) Admit(ctx context.Context, pod *corev1.Pod, others []*corev1.Pod) error {
	failures := admission.Check(pod, p.opts.Node(), others)
	switch {
	case len(failures) == 0:
		return nil
	case qos.IsCritical(pod):
		return p.preemptFor(ctx, pod, others, failures)
	}
	return failures[0].Rejection()
}

// AdmitResize implements lifecycle.Options.AdmitResize. If the resized pod does not fit on the node, it returns a
// rejection, and the Reconciler defers the resize. AdmitResize evicts no pod.
func (p *Preemptor) AdmitResize(pod *corev1.Pod) error {
	var others []*corev1.Pod
	active, _ := p.opts.Pods.Active()
	for _, other := range active {
		if other.UID != pod.UID {
			others = append(others, other)
		}
	}
	if failures := admission.Check(pod, p.opts.Node(), others); len(failures) > 0 {
		return failures[0].Rejection()
	}
	return nil
}

// preemptFor evicts other pods so that the critical pod fits. It returns nil once they have terminated, or a rejection.
func (p *Preemptor) preemptFor(ctx context.Context, pod *corev1.Pod, others []*corev1.Pod, failures []admission.Failure) error {
	var shortages []Shortage
	for i := range failures {
		if failures[i].Resource == "" {
			return failures[i].Rejection() // evictions would not help
		}
		shortages = append(shortages, Shortage{Resource: failures[i].Resource, Missing: failures[i].Shortage()})
	}
	victims, err := Preempt(pod, others, shortages)
	if err != nil {
		return &podstatus.Rejection{Message: fmt.Sprintf("Unexpected error while attempting to recover from admission failure: %v", err)}
	}
	why, errs := ExplainPreemption(), []error(nil)
	for _, victim := range victims {
		if p.opts.Preempted != nil {
			p.opts.Preempted(string(shortages[0].Resource))
		}
		if p.opts.Event != nil {
			p.opts.Event(cri.PodIdentity{Namespace: victim.Namespace, Name: victim.Name, UID: string(victim.UID)},
				podevents.Event{Type: corev1.EventTypeWarning, Reason: why.Reason, Message: why.Message})
		}
		errs = append(errs, p.opts.Pods.Evict(ctx, string(victim.UID), podstatus.Eviction{Reason: why.Reason, Message: why.Message, Conditions: why.Conditions}))
	}
	return errors.Join(errs...)
}
