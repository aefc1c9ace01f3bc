// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/hook"
	"github.com/seed81659283/nodeagent/lifecycle/plan"
	"github.com/seed81659283/nodeagent/lifecycle/podevents"
)

// Subject is the container instance that an event is about. The zero value stands for the pod.
type Subject struct {
	name, id string
	attempt  uint32
	exitCode *int32
}

func (s Subject) newEvent(kind, reason, message string) podevents.Event {
	return podevents.Event{
		Type: kind, Reason: reason, Message: message,
		Container: s.name, ContainerID: s.id, Attempt: s.attempt, ExitCode: s.exitCode,
	}
}

// subjectOfStart returns the Subject for events about a container to start. id is "" before its creation.
func subjectOfStart(start *plan.Start, id string) Subject {
	return Subject{name: start.Container.Name, id: id, attempt: start.Attempt}
}

// subjectOfCall returns the Subject for events about the container in which a hook runs.
func subjectOfCall(call hook.Call) Subject {
	return Subject{name: call.Container.Name, id: call.ContainerID, attempt: call.Attempt}
}

// subjectOf returns the Subject for events about a container, with attempt 0 if it is not in observed.
func subjectOf(observed cri.Pod, name, id string) Subject {
	subject := Subject{name: name, id: id}
	for i := range observed.Containers {
		if c := &observed.Containers[i]; c.ID == id {
			subject.attempt = c.Attempt
		}
	}
	return subject
}

// subjectOfLastExit returns the Subject for events about the container instance that exited last, according to status.
func subjectOfLastExit(status *corev1.ContainerStatus) Subject {
	subject := Subject{name: status.Name, attempt: uint32(max(status.RestartCount, 0))}
	if t := status.LastTerminationState.Terminated; t != nil {
		subject.id, subject.exitCode = t.ContainerID, new(t.ExitCode)
		if _, id, found := strings.Cut(t.ContainerID, "://"); found {
			subject.id = id
		}
	}
	return subject
}
