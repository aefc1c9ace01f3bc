// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
)

// mirrorAnnotation is the annotation of mirror pods, the copies of static pods at the API server.
const mirrorAnnotation = "kubernetes.io/config.mirror"

// findPod returns the pod named by the path, or nil. If a static pod and its mirror pod match, it returns the static pod, which
// is the one that runs.
func (s *Server) findPod(pathParams params) *corev1.Pod {
	var found *corev1.Pod
	for _, pod := range s.o.Pods.Pods() {
		if pod.Name != pathParams["pod"] || pod.Namespace != pathParams["namespace"] {
			continue
		}
		if _, mirror := pod.Annotations[mirrorAnnotation]; !mirror {
			return pod
		}
		found = pod
	}
	return found
}

// findPodOrReply returns the pod named by the path. If it does not exist it writes a 404 response and returns nil.
func (s *Server) findPodOrReply(w http.ResponseWriter, pathParams params) *corev1.Pod {
	pod := s.findPod(pathParams)
	if pod == nil {
		writeText(w, http.StatusNotFound, "pod does not exist")
	}
	return pod
}

// fullName returns the pod name as it appears in the kubelet's errors and checkpoint names.
func fullName(pod *corev1.Pod) string { return pod.Name + "_" + pod.Namespace }

// runningPart returns the running sandboxes and containers of a pod. It lists this pod only, if the runtime can.
func (s *Server) runningPart(ctx context.Context, pod *corev1.Pod) (cri.Pod, error) {
	uid := string(pod.UID)
	if s.podLister != nil {
		found, err := s.podLister.ListPod(ctx, uid)
		return runningParts(found), err
	}
	snapshot, err := s.o.Runtime.List(ctx)
	return runningParts(snapshot.Pod(uid)), err
}

// runningContainer returns the ID of the newest running container with a name, or an empty string.
func (s *Server) runningContainer(ctx context.Context, pod *corev1.Pod, name string) (id string, err error) {
	part, err := s.runningPart(ctx, pod)
	if err != nil {
		return "", err
	}
	for _, c := range part.Containers {
		if c.Name == name {
			return c.ID, nil
		}
	}
	return "", nil
}

// containerSpec returns the regular, init or ephemeral container with a name, or nil.
func containerSpec(pod *corev1.Pod, name string) *corev1.Container {
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if c := &pod.Spec.EphemeralContainers[i]; c.Name == name {
			return (*corev1.Container)(&c.EphemeralContainerCommon)
		}
	}
	return nil
}

// containerStatus returns the status of a container by its ID, from the runtime or, if it has no such call, from a full list.
func (s *Server) containerStatus(ctx context.Context, id string) (cri.Container, error) {
	if s.inspector != nil {
		return s.inspector.ContainerStatus(ctx, id)
	}
	snapshot, err := s.o.Runtime.List(ctx)
	if err != nil {
		return cri.Container{}, err
	}
	for _, c := range snapshot.Containers {
		if c.ID == id {
			return c, nil
		}
	}
	return cri.Container{}, &cri.Error{Op: "ContainerStatus", ID: id, Err: cri.ErrNotFound}
}

// replyRuntimeError writes a response for an error of the runtime, before a session has started.
func replyRuntimeError(w http.ResponseWriter, err error) {
	code := http.StatusInternalServerError
	if errors.Is(err, cri.ErrNotFound) {
		code = http.StatusNotFound
	}
	writeText(w, code, err.Error())
}

// sandboxCreation returns the creation time of the newest sandbox of a pod.
func sandboxCreation(p cri.Pod) (at time.Time) {
	for _, sb := range p.Sandboxes {
		if sb.CreatedAt.After(at) {
			at = sb.CreatedAt
		}
	}
	return at
}
