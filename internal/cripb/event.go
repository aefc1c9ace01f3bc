// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cripb

import (
	"slices"

	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/seed81659283/nodeagent/cri"
)

// EncodeEvent encodes an event. A message has exactly one sandbox: that of the event, or else the pod's first. For a pod without
// sandboxes it is a sandbox without an ID.
func EncodeEvent(e *cri.Event) *v1.ContainerEventResponse {
	p := &v1.ContainerEventResponse{
		ContainerId:        e.ID,
		ContainerEventType: v1.ContainerEventType(e.Type),
		CreatedAt:          encodeTime(e.Time),
		ContainersStatuses: mapSlicePtr(e.Pod.Containers, EncodeContainerStatus),
	}
	id := e.ID
	if i := slices.IndexFunc(e.Pod.Containers, func(c cri.Container) bool { return c.ID == id }); i >= 0 {
		id = e.Pod.Containers[i].SandboxID
	}
	i := slices.IndexFunc(e.Pod.Sandboxes, func(s cri.Sandbox) bool { return s.ID == id })
	switch {
	case len(e.Pod.Sandboxes) > 0:
		p.PodSandboxStatus = EncodeSandboxStatus(&e.Pod.Sandboxes[max(i, 0)])
	case e.Pod.UID != "":
		p.PodSandboxStatus = &v1.PodSandboxStatus{Metadata: encodeSandboxMetadata(e.Pod.PodIdentity, 0)}
	}
	return p
}

// DecodeEvent decodes an event. The pod is that of the sandbox, or else of the labels of the first container.
func DecodeEvent(p *v1.ContainerEventResponse) cri.Event {
	e := cri.Event{
		Type: decodeEnum[cri.EventType](p.GetContainerEventType()),
		ID:   p.GetContainerId(),
		Time: decodeTime(p.GetCreatedAt()),
		Pod: cri.Pod{
			PodIdentity: decodeIdentity(p.GetPodSandboxStatus().GetMetadata()),
			Time:        decodeTime(p.GetCreatedAt()),
			Containers:  mapSlice(p.GetContainersStatuses(), DecodeContainerStatus),
		},
	}
	sandbox := p.GetPodSandboxStatus()
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
