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

// mirrorAnnotation is the annotation of a mirror pod: the copy of a static pod at the API server.
const mirrorAnnotation = "kubernetes.io/config.mirror"

// findPod returns the pod of this namespace and name, or nil.
func (s *Server) findPod(pathParams params) *corev1.Pod {
	var found *corev1.Pod
	for _, pod := range s.o.Pods.Pods() {
		if pod.Name != pathParams["pod"] || pod.Namespace != pathParams["namespace"] {
			continue
		}
		// Only the static pod has containers, not its mirror pod.
		if _, mirror := pod.Annotations[mirrorAnnotation]; !mirror {
			return pod
		}
		found = pod
	}
	return found
}

// findPodOrReply returns the pod of this namespace and name. Without one, it writes a 404 response and returns nil.
func (s *Server) findPodOrReply(w http.ResponseWriter, pathParams params) *corev1.Pod {
	pod := s.findPod(pathParams)
	if pod == nil {
		writeText(w, http.StatusNotFound, "pod does not exist")
	}
	return pod
}

// fullName returns "name_namespace", the form that the kubelet uses in errors and in names of checkpoints.
func fullName(pod *corev1.Pod) string { return pod.Name + "_" + pod.Namespace }

// runningPart returns the ready sandboxes and running containers of pod. It lists all pods of the runtime if the runtime
// cannot list a single pod.
func (s *Server) runningPart(ctx context.Context, pod *corev1.Pod) (cri.Pod, error) {
	uid := string(pod.UID)
	if s.podLister != nil {
		found, err := s.podLister.ListPod(ctx, uid)
		return runningParts(found), err
	}
	snapshot, err := s.o.Runtime.List(ctx)
	return runningParts(snapshot.Pod(uid)), err
}

// runningContainer returns the ID of the newest running container of the pod with this name, or an empty string.
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

// containerSpec returns the regular, init or ephemeral container of pod with this name, or nil.
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

// containerStatus returns the status of the container with this ID. If the runtime cannot report a single status, it lists all
// containers.
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

// replyRuntimeError writes the HTTP response for err, an error of the runtime: status 404 if the container or pod was not found,
// otherwise 500.
func replyRuntimeError(w http.ResponseWriter, err error) {
	code := http.StatusInternalServerError
	if errors.Is(err, cri.ErrNotFound) {
		code = http.StatusNotFound
	}
	writeText(w, code, err.Error())
}

// sandboxCreation returns the time at which the newest sandbox of p was created, or zero without a sandbox.
func sandboxCreation(p cri.Pod) (at time.Time) {
	for _, sb := range p.Sandboxes {
		if sb.CreatedAt.After(at) {
			at = sb.CreatedAt
		}
	}
	return at
}
