// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/eviction/podevict"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/admission"
	"github.com/seed81659283/nodeagent/qos"
)

// admitAsNode has pods run only if the Node is one for them and has room. For a critical pod others make room.
func (c *cluster) admitAsNode(o *lifecycle.Options) {
	before := o.Admit
	o.AdmitsByNode = true
	o.Admit = func(ctx context.Context, pod *corev1.Pod, others []*corev1.Pod) error {
		if before != nil { // nothing is started on a node under pressure
			if err := before(ctx, pod, others); err != nil {
				return err
			}
		}
		failures := admission.Check(pod, c.reporter.Node(), others)
		if len(failures) == 0 {
			return nil
		}
		if qos.IsCritical(pod) {
			return c.makeRoom(ctx, pod, others, failures)
		}
		return failures[0].Rejection()
	}
	o.AdmitResize = func(pod *corev1.Pod) error {
		var others []*corev1.Pod
		active, _ := c.agent.Active()
		for _, other := range active {
			if other.UID != pod.UID {
				others = append(others, other)
			}
		}
		if failures := admission.Check(pod, c.reporter.Node(), others); len(failures) > 0 {
			return failures[0].Rejection()
		}
		return nil
	}
}

// makeRoom ends pods of less importance, if resources are all that a critical pod lacks.
func (c *cluster) makeRoom(ctx context.Context, pod *corev1.Pod, others []*corev1.Pod, failures []admission.Failure) error {
	var short []podevict.Shortage
	for i := range failures {
		if failures[i].Resource == "" {
			return failures[i].Rejection()
		}
		short = append(short, podevict.Shortage{Resource: failures[i].Resource, Missing: failures[i].Missing()})
	}
	victims, err := podevict.Preempt(pod, others, short)
	if err != nil {
		return &lifecycle.Rejection{Message: fmt.Sprintf("Unexpected error while attempting to recover from admission failure: %v", err)}
	}
	why, errs := podevict.Preempted(), []error(nil)
	for _, victim := range victims {
		c.agent.meter.Preempted(string(short[0].Resource))
		c.agent.event(cri.PodIdentity{Namespace: victim.Namespace, Name: victim.Name, UID: string(victim.UID)},
			lifecycle.Event{Type: corev1.EventTypeWarning, Reason: why.Reason, Message: why.Message})
		errs = append(errs, c.agent.Evict(ctx, string(victim.UID), lifecycle.Eviction{Reason: why.Reason, Message: why.Message, Conditions: why.Conditions}))
	}
	return errors.Join(errs...)
}
