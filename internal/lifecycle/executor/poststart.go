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

// postStart runs the postStart hooks of containers. The persistent record of the pod lists the containers whose hook has not
// completed, so a restarted agent runs it again.
type postStart struct {
	reporter *Reporter
	record   *poddir.Recorder
	hooks    *hooks
	stopper  *stopper
}

// setPending records that the postStart hook of the container with this ID must still run. The caller calls it before it starts
// the container.
func (p *postStart) setPending(id string) {
	p.reporter.UpdateRecord(p.record, func(now *poddir.Record) {
		if !slices.Contains(now.PostStartPending, id) {
			now.PostStartPending = append(slices.Clone(now.PostStartPending), id)
		}
	})
}

// setDone records that the postStart hook of the container with this ID has completed.
func (p *postStart) setDone(id string) {
	p.reporter.UpdateRecord(p.record, func(now *poddir.Record) {
		now.PostStartPending = slices.DeleteFunc(slices.Clone(now.PostStartPending), func(other string) bool { return other == id })
	})
}

// runHook runs the postStart hook of a running container. If the hook fails, it stops the container and returns a
// StartError.
func (p *postStart) runHook(ctx context.Context, pod *corev1.Pod, start plan.Start, id string, sb *sandbox) error {
	c := start.Container
	call := hook.Call{Pod: pod, Container: c, ContainerID: id, Attempt: start.Attempt, PodIP: primaryIP(sb.ips)}
	err := p.hooks.runHook(ctx, call, c.Lifecycle.PostStart)
	if err == nil {
		p.setDone(id)
		return nil
	}
	if ctx.Err() == nil {
		p.reporter.RecordWarning(podevents.ReasonFailedPostStartHook, subjectOfStart(&start, id), hook.MessageFailedPostStartHook)
		p.reporter.RecordEvent(podevents.ReasonKillingContainer, subjectOfStart(&start, id), hook.MessageKillingPostStart)
	}
	kill := plan.Kill{ID: id, Name: c.Name, Grace: plan.GracePeriod(pod), Reason: "its postStart hook failed"}
	kill.PreStop = plan.PreStopHook(pod, &cri.Container{Name: c.Name, State: cri.ContainerRunning})
	return &podstatus.StartError{Reason: podstatus.ReasonPostStartHookError, Err: errors.Join(err, p.stopper.killContainer(ctx, call, kill, nil))}
}
