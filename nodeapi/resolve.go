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

// mirrorAnnotation marks the copy of a static pod that the API server has.
const mirrorAnnotation = "kubernetes.io/config.mirror"

// findPod returns the pod of a path. Where there is a static pod and its mirror, it is the static one, which is what runs.
func (s *Server) findPod(p params) *corev1.Pod {
	var found *corev1.Pod
	for _, pod := range s.o.Pods.Pods() {
		if pod.Name != p["pod"] || pod.Namespace != p["namespace"] {
			continue
		}
		if _, mirror := pod.Annotations[mirrorAnnotation]; !mirror {
			return pod
		}
		found = pod
	}
	return found
}

// podOf finds the pod of a path, or answers that there is none.
func (s *Server) podOf(w http.ResponseWriter, p params) *corev1.Pod {
	pod := s.findPod(p)
	if pod == nil {
		text(w, http.StatusNotFound, "pod does not exist")
	}
	return pod
}

// fullName is what the kubelet calls a pod in its errors and in the names of checkpoints.
func fullName(pod *corev1.Pod) string { return pod.Name + "_" + pod.Namespace }

// runningPart returns what the runtime runs of a pod. It does not wait for a list of everything where the runtime has one of a pod.
func (s *Server) runningPart(ctx context.Context, pod *corev1.Pod) (cri.Pod, error) {
	uid := string(pod.UID)
	if s.podLister != nil {
		found, err := s.podLister.ListPod(ctx, uid)
		return running(found), err
	}
	snapshot, err := s.o.Runtime.List(ctx)
	return running(snapshot.Pod(uid)), err
}

// runningContainer returns the ID of the newest running container of a name, or an empty one.
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

// containerSpec returns the container of a pod with a name, of any kind, or nil.
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

// inspect returns a container with all of its fields.
func (s *Server) inspect(ctx context.Context, id string) (cri.Container, error) {
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

// runtimeError answers with an error of the runtime, before a session has begun.
func runtimeError(w http.ResponseWriter, err error) {
	code := http.StatusInternalServerError
	if errors.Is(err, cri.ErrNotFound) {
		code = http.StatusNotFound
	}
	text(w, code, err.Error())
}

// created returns when the newest part of a pod was made.
func created(p cri.Pod) (at time.Time) {
	for _, sb := range p.Sandboxes {
		if sb.CreatedAt.After(at) {
			at = sb.CreatedAt
		}
	}
	return at
}
