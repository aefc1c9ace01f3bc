// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/cri"
)

// servePods lists the pods of the node.
func (s *Server) servePods(w http.ResponseWriter, _ *http.Request, _ params) {
	writePods(w, s.o.Pods.Pods())
}

// serveRunningPods lists what the runtime runs, which is more than the node wants while a pod is terminating.
func (s *Server) serveRunningPods(w http.ResponseWriter, r *http.Request, _ params) {
	snapshot, err := s.o.Runtime.List(r.Context())
	if err != nil {
		text(w, http.StatusInternalServerError, err.Error())
		return
	}
	writePods(w, runningPods(snapshot))
}

// writePods answers with a PodList. Without pods its items are null, as the kubelet's are.
func writePods(w http.ResponseWriter, pods []*corev1.Pod) {
	list := corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}}
	if len(pods) > 0 {
		list.Items = make([]corev1.Pod, len(pods))
		for i, pod := range pods {
			list.Items[i] = *pod
			list.Items[i].TypeMeta = metav1.TypeMeta{} // the list says what they are
		}
	}
	var body bytes.Buffer
	if err := json.NewEncoder(&body).Encode(&list); err != nil {
		text(w, http.StatusInternalServerError, err.Error())
		return
	}
	writeJSON(w, body.Bytes())
}

// runningPods returns the pods that have a ready sandbox or a running container, the newest first, with names, UIDs, and the names and
// images of their running containers. Source: GetRunningPods in pkg/kubelet/kubelet_getters.go.
func runningPods(snapshot cri.Snapshot) []*corev1.Pod {
	var all []cri.Pod
	for pod := range snapshot.Pods() {
		if pod = running(pod); len(pod.Sandboxes)+len(pod.Containers) > 0 {
			all = append(all, pod)
		}
	}
	slices.SortStableFunc(all, func(a, b cri.Pod) int { return created(b).Compare(created(a)) })
	var pods []*corev1.Pod
	for _, p := range all {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace, UID: types.UID(p.UID)}}
		for _, c := range p.Containers {
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: c.Name, Image: c.Image.Image})
		}
		pods = append(pods, pod)
	}
	return pods
}

// running returns the part of a pod that runs, the newest sandboxes and containers first.
func running(p cri.Pod) cri.Pod {
	p.Sandboxes = slices.DeleteFunc(slices.Clone(p.Sandboxes), func(sb cri.Sandbox) bool { return sb.State != cri.SandboxReady })
	p.Containers = slices.DeleteFunc(slices.Clone(p.Containers), func(c cri.Container) bool { return c.State != cri.ContainerRunning })
	slices.SortFunc(p.Sandboxes, func(a, b cri.Sandbox) int {
		if c := b.CreatedAt.Compare(a.CreatedAt); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	slices.SortFunc(p.Containers, func(a, b cri.Container) int {
		if c := b.CreatedAt.Compare(a.CreatedAt); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return p
}
