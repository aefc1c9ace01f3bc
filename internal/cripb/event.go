// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cripb

import (
	"slices"

	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/seed81659283/nodeagent/cri"
)

// EncodeEvent converts an event to a CRI message. The message contains only one sandbox of the pod: the one of the event, or
// the first. For a pod without sandboxes it contains a sandbox without an ID.
func EncodeEvent(event *cri.Event) *v1.ContainerEventResponse {
	p := &v1.ContainerEventResponse{
		ContainerId:        event.ID,
		ContainerEventType: v1.ContainerEventType(event.Type),
		CreatedAt:          encodeTime(event.Time),
		ContainersStatuses: mapSlicePtr(event.Pod.Containers, EncodeContainerStatus),
	}
	id := event.ID
	if i := slices.IndexFunc(event.Pod.Containers, func(c cri.Container) bool { return c.ID == id }); i >= 0 {
		id = event.Pod.Containers[i].SandboxID
	}
	i := slices.IndexFunc(event.Pod.Sandboxes, func(s cri.Sandbox) bool { return s.ID == id })
	switch {
	case len(event.Pod.Sandboxes) > 0:
		p.PodSandboxStatus = EncodeSandboxStatus(&event.Pod.Sandboxes[max(i, 0)])
	case event.Pod.UID != "":
		p.PodSandboxStatus = &v1.PodSandboxStatus{Metadata: encodeSandboxMetadata(event.Pod.PodIdentity, 0)}
	}
	return p
}

// DecodeEvent converts the CRI message msg to an event. The identity of the pod comes from the sandbox in msg or, if the
// sandbox has none, from the labels of the first container.
func DecodeEvent(msg *v1.ContainerEventResponse) cri.Event {
	e := cri.Event{
		Type: decodeEnum[cri.EventType](msg.GetContainerEventType()),
		ID:   msg.GetContainerId(),
		Time: decodeTime(msg.GetCreatedAt()),
		Pod: cri.Pod{
			PodIdentity: decodeIdentity(msg.GetPodSandboxStatus().GetMetadata()),
			Time:        decodeTime(msg.GetCreatedAt()),
			Containers:  mapSlice(msg.GetContainersStatuses(), DecodeContainerStatus),
		},
	}
	sandbox := msg.GetPodSandboxStatus()
	if sandbox.GetId() != "" {
		e.Pod.Sandboxes = []cri.Sandbox{DecodeSandboxStatus(sandbox)}
	}
	if e.Pod.UID == "" && len(e.Pod.Containers) > 0 {
		labels := e.Pod.Containers[0].Labels
		e.Pod.PodIdentity = cri.PodIdentity{
			UID:       labels[cri.LabelPodUID],
			Name:      labels[cri.LabelPodName],
			Namespace: labels[cri.LabelPodNamespace],
		}
	}
	for i := range e.Pod.Containers {
		e.Pod.Containers[i].SandboxID = sandbox.GetId()
		e.Pod.Containers[i].PodUID = e.Pod.UID
	}
	return e
}
