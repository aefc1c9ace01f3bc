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

// look sends what there is to send and there is room for, and returns when to look again.
func (s *Statuses) look(ctx context.Context, requests *sync.WaitGroup) time.Duration {
	now := time.Now()
	s.mu.Lock()
	left, waiters := s.left, s.waiters // before Pods: whoever is left is among them
	s.left = make(map[string]bool, len(left))
	s.mu.Unlock()
	views, unsure := s.views(left, now)
	var due []result
	var next time.Time
	if unsure {
		next = now.Add(abandonedAfter)
	}
	pending := 0
	for uid, v := range views {
		t := s.tracked[uid]
		what, again, err := t.decide(v, &s.rejections, len(waiters) > 0, now)
		s.complain(t, err)
		next = sleep.Earlier(next, again)
		if !t.idle && !t.deleted && v.api != nil && v.api != t.gone {
			pending++
			if t.since.IsZero() {
				t.since = now
			}
		}
		if what.verb != verbNone {
			due = append(due, result{t: t, what: what})
		}
	}
	s.note(left, views, pending, len(waiters))
	slices.SortFunc(due, func(a, b result) int {
		return cmp.Or(urgency(&a).Compare(urgency(&b)), cmp.Compare(a.t.id.UID, b.t.id.UID))
	})
	for i := range due {
		if s.running == s.opts.Parallel {
			break // the next answer looks again
		}
		s.start(ctx, requests, due[i])
	}
	if next.IsZero() {
		return resync
	}
	return max(0, min(resync, time.Until(next)))
}

// urgency orders requests: one that somebody waits for goes before what has been due for up to 10 s, so that nothing waits for ever.
func urgency(r *result) time.Time {
	return r.t.since.Add(time.Duration(r.what.rank) * 10 * time.Second)
}

// views returns what is known of each pod that there is something to do for, and forgets what was tried for the others. It reports
// whether there are deleted pods that nobody has, and that may run.
func (s *Statuses) views(left map[string]bool, now time.Time) (views map[string]view, unsure bool) {
	states := s.opts.Pods()
	views = make(map[string]view, len(states))
	for i := range states {
		st := &states[i]
		t := s.track(st.Pod)
		t.abandoned = time.Time{}
		views[st.Pod.UID] = view{api: s.find(st), ours: st.Status, left: left[st.Pod.UID]}
	}
	for _, pod := range s.pods.store.List() {
		uid := string(pod.UID)
		if _, known := views[uid]; known || pod.DeletionTimestamp == nil || qos.IsMirror(pod) {
			continue
		}
		if s.opts.MayRun(uid) {
			unsure = true
			continue
		}
		t := s.track(cri.PodIdentity{UID: uid, Namespace: pod.Namespace, Name: pod.Name})
		if t.abandoned.IsZero() {
			t.abandoned, t.due, t.idle = now, now.Add(abandonedAfter), false
		}
		views[uid] = view{api: pod, abandoned: true}
	}
	for uid, t := range s.tracked {
		if _, known := views[uid]; !known && !t.busy {
			delete(s.tracked, uid)
		}
	}
	return views, unsure
}

// find returns a pod as it is watched: by its UID, or for a static pod its mirror. Nil: there is none.
func (s *Statuses) find(st *lifecycle.PodState) *corev1.Pod {
	if pod, ok := s.pods.object(st.Pod.Namespace, st.Pod.Name); ok && string(pod.UID) == st.Pod.UID {
		return pod
	}
	mirror, _ := s.pods.mirror(st.Spec)
	return mirror
}

// track returns what was tried for a pod.
func (s *Statuses) track(id cri.PodIdentity) *tracked {
	t := s.tracked[id.UID]
	if t == nil {
		t = &tracked{id: id}
		s.tracked[id.UID] = t
	}
	return t
}

// note keeps what Left said of the pods that there are, and tells those who wait that there is nothing to send.
func (s *Statuses) note(left map[string]bool, views map[string]view, pending, waited int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid := range left {
		if _, known := views[uid]; known {
			s.left[uid] = true
		}
	}
	s.pending = pending
	if pending > 0 {
		return
	}
	for _, done := range s.waiters[:waited] {
		close(done)
	}
	s.waiters = slices.Clone(s.waiters[waited:])
}

// start sends a request.
func (s *Statuses) start(ctx context.Context, requests *sync.WaitGroup, r result) {
	r.t.busy = true
	s.running++
	requests.Go(func() {
		r.answer, r.err = s.send(ctx, &r.what)
		s.results <- r // there is room for as many as run
	})
}

// send has a request done.
func (s *Statuses) send(ctx context.Context, what *request) (*corev1.Pod, error) {
	pod := what.pod
	pods := kubeapi.In(s.client, kubeapi.Pods, pod.Namespace)
	switch what.verb {
	case verbPatch:
		return pods.Patch(ctx, pod.Name, types.StrategicMergePatchType, what.patch, "status")
	case verbGet:
		return pods.Get(ctx, pod.Name)
	}
	return nil, pods.Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64), Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
	})
}

// finish notes what became of a request.
func (s *Statuses) finish(r *result) {
	now := time.Now()
	s.running--
	t, since := r.t, r.t.since
	wait := t.finish(&r.what, r.answer, r.err, s.opts.Rand(), now)
	hooks := s.opts.Hooks
	switch {
	case wait > 0:
		s.failed(t, r.err, wait)
	case r.err == nil && r.what.verb == verbPatch:
		s.answered()
		t.since = time.Time{}
		if hooks.StatusSent != nil {
			hooks.StatusSent(t.id, now.Sub(since))
		}
	case r.what.verb == verbDelete:
		s.answered()
		if hooks.PodDeleted != nil {
			hooks.PodDeleted(t.id)
		}
	}
}

// failed tells that a request failed: in the log once for as long as requests fail.
func (s *Statuses) failed(t *tracked, err error, wait time.Duration) {
	if !s.away {
		s.away = true
		s.opts.Logger.Warn("send pod status", "pod", t.id.Namespace+"/"+t.id.Name, "error", err, "retry", wait)
	}
	if hook := s.opts.Hooks.Error; hook != nil {
		hook(t.id, err, wait)
	}
}

// answered notes that the API server takes requests.
func (s *Statuses) answered() {
	if s.away {
		s.away = false
		s.opts.Logger.Info("pod statuses are sent again")
	}
}

// complain reports how a status contradicts the one before, once for as long as it does.
func (s *Statuses) complain(t *tracked, err error) {
	if err == nil || err.Error() == t.complaint {
		return
	}
	t.complaint = err.Error()
	s.opts.Logger.Warn("pod status contradicts the one before", "pod", t.id.Namespace+"/"+t.id.Name, "error", err)
	if hook := s.opts.Hooks.Error; hook != nil {
		hook(t.id, err, 0)
	}
}
