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

// PodsWithStatus returns a Pods that puts the status of list into each pod; a nil status keeps the pod's own. As long as list
// yields the same pointers for a pod, the combined pod also keeps its pointer. Calls of list are never concurrent. Nil pods are
// skipped.
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
	body, err := s.encoder.encodeList(s.o.Pods.Pods())
	writePods(w, body, err)
}

// serveRunningPods responds with the pods that have a running container or a ready sandbox. This includes terminating pods
// that no source lists any more.
func (s *Server) serveRunningPods(w http.ResponseWriter, r *http.Request, _ params) {
	snapshot, err := s.o.Runtime.List(r.Context())
	if err != nil {
		writeText(w, http.StatusInternalServerError, err.Error())
		return
	}
	body, _, err := encodePods(runningPods(snapshot), nil)
	writePods(w, body, err)
}

func writePods(w http.ResponseWriter, body []byte, err error) {
	if err != nil {
		writeText(w, http.StatusInternalServerError, err.Error())
		return
	}
	writeJSON(w, body)
}

// encodedMaxAge is how long the JSON of pods stays cached after the last request.
const encodedMaxAge = time.Minute

// podEncoder encodes pod lists as JSON. It caches the JSON of each listed pod, because monitoring programs request the list
// often. The zero value is ready for use.
type podEncoder struct {
	mu     sync.Mutex
	cached map[*corev1.Pod][]byte
	expiry *time.Timer // drops the cache; nil: no request yet
}

// encodeList returns the JSON of a v1.PodList with these pods. It encodes only pods that are not in the cache.
func (e *podEncoder) encodeList(pods []*corev1.Pod) (body []byte, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if body, e.cached, err = encodePods(pods, e.cached); err != nil {
		return nil, err
	}
	if e.expiry == nil {
		e.expiry = time.AfterFunc(encodedMaxAge, e.dropCache)
	}
	e.expiry.Reset(encodedMaxAge)
	return body, nil
}

func (e *podEncoder) dropCache() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cached = nil
}

// encodePods returns the JSON of a v1.PodList, and of each pod for the next call, which passes them as cached.
func encodePods(pods []*corev1.Pod, cached map[*corev1.Pod][]byte) (body []byte, encoded map[*corev1.Pod][]byte, err error) {
	const head, tail = `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":`, "]}\n"
	if len(pods) == 0 {
		return []byte(head + "null}\n"), nil, nil // as in the kubelet
	}
	encoded = make(map[*corev1.Pod][]byte, len(pods))
	size := len(head) + len(tail)
	for _, pod := range pods {
		encodedPod, ok := cached[pod]
		if !ok {
			bare := *pod
			bare.TypeMeta = metav1.TypeMeta{} // items of a list have no kind of their own
			if encodedPod, err = json.Marshal(&bare); err != nil {
				return nil, nil, err
			}
		}
		encoded[pod] = encodedPod
		size += 1 + len(encodedPod)
	}
	body = append(make([]byte, 0, size), head...)
	before := byte('[')
	for _, pod := range pods {
		body = append(append(body, before), encoded[pod]...)
		before = ','
	}
	return append(body, tail...), encoded, nil
}

// runningPods returns the names, UIDs and running containers of the pods that have a ready sandbox or a running container,
// newest first. Source: GetRunningPods in pkg/kubelet/kubelet_getters.go.
func runningPods(snapshot cri.Snapshot) []*corev1.Pod {
	var all []cri.Pod
	for pod := range snapshot.Pods() {
		if pod = runningParts(pod); len(pod.Sandboxes)+len(pod.Containers) > 0 {
			all = append(all, pod)
		}
	}
	slices.SortStableFunc(all, func(a, b cri.Pod) int { return sandboxCreation(b).Compare(sandboxCreation(a)) })
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

// runningParts returns a copy of p with only the ready sandboxes and running containers. Both lists are sorted by creation
// time, newest first.
func runningParts(p cri.Pod) cri.Pod {
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
