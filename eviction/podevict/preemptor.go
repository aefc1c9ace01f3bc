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

// PreemptorOptions configure a Preemptor. Node and Pods are required.
type PreemptorOptions struct {
	// Node returns the Node object, which is not changed.
	Node func() *corev1.Node
	// Pods are the pods of the node. A function that returns them late is a [Pods] of one's own.
	Pods Pods
	// Event gets the event of each pod that is evicted. Nil discards.
	Event func(pod cri.PodIdentity, event podevents.Event)
	// Preempted is called for each pod that is evicted, with the first resource that was short. Nil is not called.
	Preempted func(resource string)
}

// Preemptor decides which pods run on a node: those that [admission.Check] accepts. For a critical pod that lacks nothing but resources it
// evicts pods of less importance, as [Preempt] chooses. Source: pkg/kubelet/lifecycle/predicate.go and pkg/kubelet/preemption.
type Preemptor struct{ o PreemptorOptions }

// NewPreemptor returns a Preemptor. The error names a required option that is missing.
func NewPreemptor(o PreemptorOptions) (*Preemptor, error) {
	if err := required.Args("podevict.NewPreemptor",
		required.Arg{Name: "PreemptorOptions.Node", Value: o.Node, Hint: "Reporter.Node of package heartbeat"},
		required.Arg{Name: "PreemptorOptions.Pods", Value: o.Pods, Hint: "a *lifecycle.Reconciler or a *lifecycle.Handle"}); err != nil {
		return nil, err
	}
	return &Preemptor{o}, nil
}

// Admit is an [lifecycle.Options.Admit], for which AdmitsByNode is true.
func (p *Preemptor) Admit(ctx context.Context, pod *corev1.Pod, others []*corev1.Pod) error {
	failures := admission.Check(pod, p.o.Node(), others)
	switch {
	case len(failures) == 0:
		return nil
	case qos.IsCritical(pod):
		return p.makeRoom(ctx, pod, others, failures)
	}
	return failures[0].Rejection()
}

// AdmitResize is an [lifecycle.Options.AdmitResize]: a resize waits until the node has room for it.
func (p *Preemptor) AdmitResize(pod *corev1.Pod) error {
	var others []*corev1.Pod
	active, _ := p.o.Pods.Active()
	for _, other := range active {
		if other.UID != pod.UID {
			others = append(others, other)
		}
	}
	if failures := admission.Check(pod, p.o.Node(), others); len(failures) > 0 {
		return failures[0].Rejection()
	}
	return nil
}

// makeRoom evicts pods of less importance, if resources are all that a critical pod lacks.
func (p *Preemptor) makeRoom(ctx context.Context, pod *corev1.Pod, others []*corev1.Pod, failures []admission.Failure) error {
	var short []Shortage
	for i := range failures {
		if failures[i].Resource == "" {
			return failures[i].Rejection()
		}
		short = append(short, Shortage{Resource: failures[i].Resource, Missing: failures[i].Missing()})
	}
	victims, err := Preempt(pod, others, short)
	if err != nil {
		return &podstatus.Rejection{Message: fmt.Sprintf("Unexpected error while attempting to recover from admission failure: %v", err)}
	}
	why, errs := ExplainPreemption(), []error(nil)
	for _, victim := range victims {
		if p.o.Preempted != nil {
			p.o.Preempted(string(short[0].Resource))
		}
		if p.o.Event != nil {
			p.o.Event(cri.PodIdentity{Namespace: victim.Namespace, Name: victim.Name, UID: string(victim.UID)},
				podevents.Event{Type: corev1.EventTypeWarning, Reason: why.Reason, Message: why.Message})
		}
		errs = append(errs, p.o.Pods.Evict(ctx, string(victim.UID), podstatus.Eviction{Reason: why.Reason, Message: why.Message, Conditions: why.Conditions}))
	}
	return errors.Join(errs...)
}
