// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"encoding/json"
	"iter"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/cri"
)

// PodsWithStatus returns the pods that list has with their statuses, for who has the two apart, such as a lifecycle.Reconciler. A status of nil is
// that in the pod, and a pod of nil is none. A pod is the same pointer as before while neither of its two is another one. list is called by
// one goroutine at a time.
func PodsWithStatus(list iter.Seq2[*corev1.Pod, *corev1.PodStatus]) Pods {
	type known struct {
		status *corev1.PodStatus
		whole  *corev1.Pod
	}
	var mu sync.Mutex
	before := map[*corev1.Pod]known{}
	return PodsFunc(func() (pods []*corev1.Pod) {
		mu.Lock()
		defer mu.Unlock()
		now := make(map[*corev1.Pod]known, len(before))
		for pod, status := range list {
			if pod == nil {
				continue
			}
			one, ok := before[pod]
			if !ok || one.status != status {
				whole := *pod
				if status != nil {
					whole.Status = *status
				}
				one = known{status, &whole}
			}
			now[pod] = one
			pods = append(pods, one.whole)
		}
		before = now
		return pods
	})
}

// servePods lists the pods of the node.
func (s *Server) servePods(w http.ResponseWriter, _ *http.Request, _ params) {
	body, err := s.encoded.list(s.o.Pods.Pods())
	writePods(w, body, err)
}

// serveRunningPods lists what the runtime runs, which is more than the node wants while a pod is terminating.
func (s *Server) serveRunningPods(w http.ResponseWriter, r *http.Request, _ params) {
	snapshot, err := s.o.Runtime.List(r.Context())
	if err != nil {
		text(w, http.StatusInternalServerError, err.Error())
		return
	}
	body, _, err := encodePods(runningPods(snapshot), nil)
	writePods(w, body, err)
}

func writePods(w http.ResponseWriter, body []byte, err error) {
	if err != nil {
		text(w, http.StatusInternalServerError, err.Error())
		return
	}
	writeJSON(w, body)
}

// encodedMaxAge is for how long a pod is kept as JSON when nobody asks.
const encodedMaxAge = time.Minute

// encodedPods makes lists of pods. It keeps what it has made of a pod, which nobody changes, for as long as that is listed: monitoring
// asks for the same pods again and again. The zero value is ready.
type encodedPods struct {
	mu    sync.Mutex
	known map[*corev1.Pod][]byte
	stale *time.Timer // forgets them; nil: nobody has asked
}

// list returns a PodList.
func (e *encodedPods) list(pods []*corev1.Pod) (body []byte, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if body, e.known, err = encodePods(pods, e.known); err != nil {
		return nil, err
	}
	if e.stale == nil {
		e.stale = time.AfterFunc(encodedMaxAge, e.forget)
	}
	e.stale.Reset(encodedMaxAge)
	return body, nil
}

func (e *encodedPods) forget() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.known = nil
}

// encodePods returns a PodList, and each of its pods as JSON. Those that are known are not encoded. Without pods the items are null, as the
// kubelet's are.
func encodePods(pods []*corev1.Pod, known map[*corev1.Pod][]byte) (body []byte, encoded map[*corev1.Pod][]byte, err error) {
	const head, tail = `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":`, "]}\n"
	if len(pods) == 0 {
		return []byte(head + "null}\n"), nil, nil
	}
	encoded = make(map[*corev1.Pod][]byte, len(pods))
	size := len(head) + len(tail)
	for _, pod := range pods {
		one, ok := known[pod]
		if !ok {
			bare := *pod
			bare.TypeMeta = metav1.TypeMeta{} // the list says what they are
			if one, err = json.Marshal(&bare); err != nil {
				return nil, nil, err
			}
		}
		encoded[pod] = one
		size += 1 + len(one)
	}
	body = append(make([]byte, 0, size), head...)
	before := byte('[')
	for _, pod := range pods {
		body = append(append(body, before), encoded[pod]...)
		before = ','
	}
	return append(body, tail...), encoded, nil
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
