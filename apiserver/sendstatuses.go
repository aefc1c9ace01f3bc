// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/kubeapi"
	"github.com/seed81659283/nodeagent/internal/sleep"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/qos"
)

// sendDue starts the requests that are due, in goroutines of the wait group, and returns the delay until the next call.
func (s *Statuses) sendDue(ctx context.Context, requests *sync.WaitGroup) time.Duration {
	now := time.Now()
	s.mu.Lock()
	released, waiters := s.released, s.waiters // before Pods: a released pod is among them
	s.released = make(map[string]bool, len(released))
	s.mu.Unlock()
	views, mayRun := s.podViews(released, now)
	var due []result
	var next time.Time
	if mayRun {
		next = now.Add(abandonedAfter)
	}
	pending := 0
	for uid, v := range views {
		t := s.tracked[uid]
		request, recheck, err := t.planRequest(v, &s.rejections, len(waiters) > 0, now)
		s.reportContradiction(t, err)
		next = sleep.Earlier(next, recheck)
		if !t.idle && !t.deleted && v.api != nil && v.api != t.notFoundPod {
			pending++
			if t.pendingSince.IsZero() {
				t.pendingSince = now
			}
		}
		if request.verb != verbNone {
			due = append(due, result{pod: t, request: request})
		}
	}
	s.finishPass(released, views, pending, len(waiters))
	slices.SortFunc(due, func(a, b result) int {
		return cmp.Or(sendOrder(&a).Compare(sendOrder(&b)), cmp.Compare(a.pod.id.UID, b.pod.id.UID))
	})
	for i := range due {
		if s.inFlight == s.opts.Parallel {
			break // the next response starts another pass
		}
		s.startRequest(ctx, requests, due[i])
	}
	if next.IsZero() {
		return resyncPeriod
	}
	return max(0, min(resyncPeriod, time.Until(next)))
}

// sendOrder returns the time by which due requests are sorted: urgent requests overtake others, but no request waits
// forever.
func sendOrder(result *result) time.Time {
	return result.pod.pendingSince.Add(time.Duration(result.request.rank) * 10 * time.Second)
}

// podViews returns the state of each pod at the API server and in the agent, by UID, and deletes the records of other pods.
// mayRun is true if a deleted pod that the agent does not list may still run.
func (s *Statuses) podViews(released map[string]bool, now time.Time) (views map[string]podView, mayRun bool) {
	states := s.opts.Pods()
	views = make(map[string]podView, len(states))
	for i := range states {
		st := &states[i]
		t := s.trackPod(st.Pod)
		t.abandoned = time.Time{}
		views[st.Pod.UID] = podView{api: s.findPod(st), agentStatus: st.Status, released: released[st.Pod.UID]}
	}
	for _, pod := range s.pods.store.List() {
		uid := string(pod.UID)
		if _, known := views[uid]; known || pod.DeletionTimestamp == nil || qos.IsMirror(pod) {
			continue
		}
		if s.opts.MayRun(uid) {
			mayRun = true
			continue
		}
		t := s.trackPod(cri.PodIdentity{UID: uid, Namespace: pod.Namespace, Name: pod.Name})
		if t.abandoned.IsZero() {
			t.abandoned, t.notBefore, t.idle = now, now.Add(abandonedAfter), false
		}
		views[uid] = podView{api: pod, abandoned: true}
	}
	// the records of all other pods are deleted
	for uid, t := range s.tracked {
		if _, known := views[uid]; !known && !t.busy {
			delete(s.tracked, uid)
		}
	}
	return views, mayRun
}

// findPod returns the watched pod, or the mirror pod of a static pod, or nil if the API server has none.
func (s *Statuses) findPod(state *lifecycle.PodState) *corev1.Pod {
	if pod, ok := s.pods.getObject(state.Pod.Namespace, state.Pod.Name); ok && string(pod.UID) == state.Pod.UID {
		return pod
	}
	mirror, _ := s.pods.mirrorOf(state.Spec)
	return mirror
}

// trackPod returns the trackedPod for this identity, which it creates if necessary.
func (s *Statuses) trackPod(id cri.PodIdentity) *trackedPod {
	t := s.tracked[id.UID]
	if t == nil {
		t = &trackedPod{id: id}
		s.tracked[id.UID] = t
	}
	return t
}

// finishPass ends a pass of sendDue. If no pod has unsent changes, it wakes the callers of Flush that waited when the pass
// started.
func (s *Statuses) finishPass(released map[string]bool, views map[string]podView, pending, waitersAtStart int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// released resources are kept for the next pass
	for uid := range released {
		if _, known := views[uid]; known {
			s.released[uid] = true
		}
	}
	s.pending = pending
	if pending > 0 {
		return
	}
	for _, done := range s.waiters[:waitersAtStart] {
		close(done)
	}
	s.waiters = slices.Clone(s.waiters[waitersAtStart:])
}

// startRequest sends the request in result, in a goroutine of the wait group. The goroutine adds the response or the error
// to result, and sends it to s.results.
func (s *Statuses) startRequest(ctx context.Context, requests *sync.WaitGroup, result result) {
	result.pod.busy = true
	s.inFlight++
	requests.Go(func() {
		result.response, result.err = s.sendRequest(ctx, &result.request)
		s.results <- result // never blocks: its capacity is Parallel
	})
}

// sendRequest sends a PATCH, GET or DELETE request. It returns the pod in the response, or nil after a DELETE.
func (s *Statuses) sendRequest(ctx context.Context, request *request) (*corev1.Pod, error) {
	pod := request.pod
	pods := kubeapi.In(s.client, kubeapi.Pods, pod.Namespace)
	switch request.verb {
	case verbPatch:
		return pods.Patch(ctx, pod.Name, types.StrategicMergePatchType, request.patch, "status")
	case verbGet:
		return pods.Get(ctx, pod.Name)
	}
	return nil, pods.Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64), Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
	})
}

// finishRequest records the response to a status request and calls the hooks. Of several failures in a row, only the first
// is logged.
func (s *Statuses) finishRequest(result *result) {
	now := time.Now()
	s.inFlight--
	t, since := result.pod, result.pod.pendingSince
	wait := t.recordResult(&result.request, result.response, result.err, s.opts.Rand(), now)
	hooks := s.opts.Hooks
	switch {
	case wait > 0:
		s.reportFailure(t, result.err, wait)
	case result.err == nil && result.request.verb == verbPatch:
		s.reportRecovery()
		t.pendingSince = time.Time{}
		if hooks.StatusSent != nil {
			hooks.StatusSent(t.id, now.Sub(since))
		}
	case result.request.verb == verbDelete:
		s.reportRecovery()
		if hooks.PodDeleted != nil {
			hooks.PodDeleted(t.id)
		}
	}
}

// reportFailure passes the error of a request to the hook Error, and logs the first of several failures in a row.
func (s *Statuses) reportFailure(pod *trackedPod, err error, retryDelay time.Duration) {
	if !s.failing {
		s.failing = true
		s.opts.Logger.Warn("send pod status", "pod", pod.id.Namespace+"/"+pod.id.Name, "error", err, "retry", retryDelay)
	}
	if hook := s.opts.Hooks.Error; hook != nil {
		hook(pod.id, err, retryDelay)
	}
}

// reportRecovery logs the first success after a failure.
func (s *Statuses) reportRecovery() {
	if s.failing {
		s.failing = false
		s.opts.Logger.Info("pod statuses are sent again")
	}
}

// reportContradiction logs a new error about an agent's status that contradicts its previous status, such as a leave of a
// terminal phase.
func (s *Statuses) reportContradiction(pod *trackedPod, err error) {
	if err == nil || err.Error() == pod.contradiction {
		return
	}
	pod.contradiction = err.Error()
	s.opts.Logger.Warn("pod status contradicts the previous one", "pod", pod.id.Namespace+"/"+pod.id.Name, "error", err)
	if hook := s.opts.Hooks.Error; hook != nil {
		hook(pod.id, err, 0)
	}
}
