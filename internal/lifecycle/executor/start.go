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

// starter starts containers, each of which it creates if need be, in the sandbox of their pod.
type starter struct {
	node      *Node
	reporter  *Reporter
	waiting   *Waiting
	logs      *logs
	quota     *Quota
	addresses *addresses
	sandboxes *sandboxRunner
	creator   *creator
	postStart *postStart
}

// start creates the sandbox, if one is planned, and starts containers in it, each independent of the others.
func (s *starter) start(ctx context.Context, pod *corev1.Pod, observed cri.Pod, a *plan.Actions) error {
	sb, err := s.sandboxes.ensure(ctx, pod, observed, a)
	if err != nil {
		return err
	}
	sb.ips = s.addresses.of(pod, sb.ips)
	var errs []error
	for _, start := range a.Start {
		if err := ctx.Err(); err != nil {
			return err // what is under way has become pointless
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

// startContainer starts one container, which it creates if need be, and reports the attempt.
func (s *starter) startContainer(ctx context.Context, pod *corev1.Pod, start plan.Start, sb *sandbox) error {
	name, began := start.Container.Name, time.Now()
	id, err := s.run(ctx, pod, start, sb)
	s.reporter.startAttempted(podevents.ContainerStart{
		Container: name, Type: typeOf(pod, name), ID: id, Attempt: start.Attempt, Took: time.Since(began), Err: err,
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

// run has a container run. A container that was created before, by this agent or by an earlier one, is started, or only its
// postStart hook is run. It returns the ID of the container, also of one that was created and not started.
func (s *starter) run(ctx context.Context, pod *corev1.Pod, start plan.Start, sb *sandbox) (id string, err error) {
	switch {
	case start.PostStartOnly:
		return start.CreatedID, s.postStart.run(ctx, pod, start, start.CreatedID, sb)
	case start.CreatedID != "":
		s.reporter.Log("start container", "container", start.Container.Name, "id", start.CreatedID, "attempt", start.Attempt, "created", "before")
		s.quota.liftAgain(ctx, pod)
		return start.CreatedID, s.runCreated(ctx, pod, start, start.CreatedID, sb)
	}
	if id, err = s.creator.create(ctx, pod, start, sb); err != nil {
		return "", err
	}
	s.reporter.Log("start container", "container", start.Container.Name, "id", id, "attempt", start.Attempt)
	s.reporter.RecordEvent(podevents.ReasonCreatedContainer, subjectOfStart(&start, id), "Container created")
	return id, s.runCreated(ctx, pod, start, id, sb)
}

// runCreated starts a created container and runs its postStart hook.
func (s *starter) runCreated(ctx context.Context, pod *corev1.Pod, start plan.Start, id string, sb *sandbox) error {
	c := start.Container
	if err := ctx.Err(); err != nil {
		return err
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
	s.logs.link(c.Name, id, start.Attempt)
	if !hooked {
		return nil
	}
	s.quota.EnforceNow(ctx, pod) // a hook may take as long as it likes
	return s.postStart.run(ctx, pod, start, id, sb)
}
