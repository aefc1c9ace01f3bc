// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/hook"
	"github.com/seed81659283/nodeagent/internal/lifecycle/poddir"
	"github.com/seed81659283/nodeagent/lifecycle/plan"
	"github.com/seed81659283/nodeagent/lifecycle/podevents"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// postStart runs the postStart hooks of containers, each at least once to its end: the record of the pod has the containers whose hook
// has yet to run.
type postStart struct {
	reporter *Reporter
	record   *poddir.Recorder
	hooks    *hooks
	stopper  *stopper
}

// setPending records that the postStart hook of a container has yet to run, whatever becomes of the start and of the agent.
func (p *postStart) setPending(id string) {
	p.reporter.Note(p.record, func(now *poddir.Record) {
		if !slices.Contains(now.PostStartPending, id) {
			now.PostStartPending = append(slices.Clone(now.PostStartPending), id)
		}
	})
}

// setDone records that the postStart hook of a container has run.
func (p *postStart) setDone(id string) {
	p.reporter.Note(p.record, func(now *poddir.Record) {
		now.PostStartPending = slices.DeleteFunc(slices.Clone(now.PostStartPending), func(other string) bool { return other == id })
	})
}

// run runs the postStart hook of a running container. If it fails, the container is stopped like any other.
func (p *postStart) run(ctx context.Context, pod *corev1.Pod, s plan.Start, id string, sb *sandbox) error {
	c := s.Container
	call := hook.Call{Pod: pod, Container: c, ContainerID: id, Attempt: s.Attempt, PodIP: hookAddress(sb.ips)}
	err := p.hooks.run(ctx, call, c.Lifecycle.PostStart)
	if err == nil {
		p.setDone(id)
		return nil
	}
	if ctx.Err() == nil {
		p.reporter.RecordWarning(podevents.ReasonFailedPostStartHook, subjectOfStart(&s, id), hook.MessageFailedPostStartHook)
		p.reporter.RecordEvent(podevents.ReasonKillingContainer, subjectOfStart(&s, id), hook.MessageKillingPostStart)
	}
	kill := plan.Kill{ID: id, Name: c.Name, Grace: plan.GracePeriod(pod), Reason: "its postStart hook failed"}
	kill.PreStop = plan.PreStopHook(pod, &cri.Container{Name: c.Name, State: cri.ContainerRunning})
	return &podstatus.StartError{Reason: podstatus.ReasonPostStartHookError, Err: errors.Join(err, p.stopper.kill(ctx, call, kill, nil))}
}
