// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/sleep"
	"github.com/seed81659283/nodeagent/lifecycle/plan"
	"github.com/seed81659283/nodeagent/lifecycle/podevents"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// starter starts the containers of a pod in its sandbox, and creates those that do not exist.
type starter struct {
	node      *Node
	reporter  *Reporter
	waiting   *WaitingReasons
	logs      *logs
	quota     *Quota
	addresses *podAddresses
	sandboxes *sandboxRunner
	creator   *creator
	postStart *postStart
}

// startPod starts the planned sandbox and then the containers in actions.Start, even if one of them fails.
func (s *starter) startPod(ctx context.Context, pod *corev1.Pod, observed cri.Pod, actions *plan.Actions) error {
	sb, err := s.sandboxes.ensureSandbox(ctx, pod, observed, actions)
	if err != nil {
		return err
	}
	sb.ips = s.addresses.podIPs(pod, sb.ips)
	var errs []error
	for _, start := range actions.Start {
		if err := ctx.Err(); err != nil {
			return err // the sync was cancelled
		}
		if observed.NewestContainer(start.Container.Name) == nil {
			start.Attempt = s.logs.nextAttempt(start.Container.Name)
		}
		if err := s.startContainer(ctx, pod, start, sb); err != nil {
			errs = append(errs, fmt.Errorf("start container %s: %w", start.Container.Name, err))
		}
	}
	return errors.Join(errs...)
}

// startContainer starts a container, and creates it if necessary. An error becomes an event and the waiting reason.
func (s *starter) startContainer(ctx context.Context, pod *corev1.Pod, start plan.Start, sb *sandbox) error {
	name, began := start.Container.Name, time.Now()
	id, err := s.runContainer(ctx, pod, start, sb)
	s.reporter.reportContainerStart(podevents.ContainerStart{
		Container: name, Type: containerTypeOf(pod, name), ID: id, Attempt: start.Attempt, Took: time.Since(began), Err: err,
	})
	s.waiting.setError(name, podstatus.ReasonRunError, err)
	if err == nil {
		return nil
	}
	e, ok := errors.AsType[*podstatus.StartError](err)
	if reported := ok && e.Reason == podstatus.ReasonPostStartHookError; !reported && ctx.Err() == nil {
		s.reporter.RecordWarning(podevents.ReasonFailedToStartContainer, subjectOfStart(&start, id), "Error: %v", err)
	}
	return err
}

// runContainer creates and starts a container, and runs its postStart hook, except for steps that are completed. id is set
// even if the start fails.
func (s *starter) runContainer(ctx context.Context, pod *corev1.Pod, start plan.Start, sb *sandbox) (id string, err error) {
	switch {
	case start.PostStartOnly:
		return start.CreatedID, s.postStart.runHook(ctx, pod, start, start.CreatedID, sb)
	case start.CreatedID != "":
		s.reporter.Log("start container", "container", start.Container.Name, "id", start.CreatedID, "attempt", start.Attempt, "created", "before")
		s.quota.liftBeforeStart(ctx, pod)
		return start.CreatedID, s.runCreated(ctx, pod, start, start.CreatedID, sb)
	}
	if id, err = s.creator.createContainer(ctx, pod, start, sb); err != nil {
		return "", err
	}
	s.reporter.Log("start container", "container", start.Container.Name, "id", id, "attempt", start.Attempt)
	s.reporter.RecordEvent(podevents.ReasonCreatedContainer, subjectOfStart(&start, id), "Container created")
	return id, s.runCreated(ctx, pod, start, id, sb)
}

// runCreated starts the created container that has this ID, and runs its postStart hook. start is the planned start of the
// container, and sb is its sandbox.
func (s *starter) runCreated(ctx context.Context, pod *corev1.Pod, start plan.Start, id string, sb *sandbox) error {
	c := start.Container
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.creator.devices.prepareStart(ctx, pod, c, id); err != nil {
		return &podstatus.StartError{Reason: podstatus.ReasonRunError, Err: err}
	}
	hooked := c.Lifecycle != nil && c.Lifecycle.PostStart != nil
	if hooked {
		s.postStart.setPending(id)
	}
	sleep.Wake(s.quota.runs)
	if err := s.node.Runtime.StartContainer(ctx, id); err != nil {
		return &podstatus.StartError{Reason: podstatus.ReasonRunError, Err: err}
	}
	s.reporter.RecordEvent(podevents.ReasonStartedContainer, subjectOfStart(&start, id), "Container started")
	s.logs.createLink(c.Name, id, start.Attempt)
	if !hooked {
		return nil
	}
	s.quota.EnforceNow(ctx, pod) // a postStart hook has no time limit
	return s.postStart.runHook(ctx, pod, start, id, sb)
}
