// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bytes"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/backoff"
	"github.com/seed81659283/nodeagent/internal/kubeapi"
	"github.com/seed81659283/nodeagent/internal/lifecycle/statuspatch"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
	"github.com/seed81659283/nodeagent/qos"
)

// Times of the statuses of pods. Nothing here is the kubelet's: it tries again every 10 s, all pods one after the other.
const (
	// answerCounts is for how long what the API server answered counts as newer than what is watched, although it may not be: a watch
	// that lags is far behind by then, and an etcd that was restored is older for ever.
	answerCounts = time.Minute
	// abandonedAfter is how long nobody has run a pod that is deleted before it is taken for one that nobody will.
	abandonedAfter = time.Second
	// repeatReset is after what time a patch that is sent again is a new one.
	repeatReset = 10 * time.Minute
)

// retryPolicy is for requests that failed.
func retryPolicy() backoff.Policy {
	return backoff.Policy{First: 500 * time.Millisecond, Max: 10 * time.Second}
}

// repeatPolicy is for a status that the API server accepts and does not have then.
func repeatPolicy() backoff.Policy {
	return backoff.Policy{First: 10 * time.Second, Max: 5 * time.Minute}
}

// view is what is known of a pod at one time. Two views of the same pointers are the same.
type view struct {
	api       *corev1.Pod       // as it is watched; nil: there is none. A mirror pod stands for its static pod
	ours      *corev1.PodStatus // nil: the agent says nothing
	left      bool              // nothing of it runs or will, and its volumes and its cgroup are given back
	abandoned bool              // nobody runs it, and nothing of it may run
}

// verb is a kind of request.
type verb int

// The requests.
const (
	verbNone verb = iota
	verbPatch
	verbDelete
	verbGet
)

// request is what is to be asked of the API server.
type request struct {
	verb  verb
	pod   *corev1.Pod // as it is known
	patch []byte
	of    view // what it was decided from
	rank  int  // lower ones go first
}

// The ranks of requests: what somebody waits for goes first.
const (
	rankEnd   = iota // a terminal phase, or a deletion: a controller and a scheduler wait for it
	rankReady        // ready or no longer: endpoints
	rankPhase
	rankOther
)

// tracked is what was tried for one pod. It is of the goroutine of Run alone; what it decides takes the time and does nothing.
type tracked struct {
	id     cri.PodIdentity // as the agent knows it
	since  time.Time       // when something was first to be sent; zero: nothing is
	judged view            // came to nothing
	idle   bool            // judged is set

	busy       bool
	answer     *corev1.Pod // what the API server answered last; nil: what is watched is newer
	answeredAt time.Time
	sent       []byte // the patch that was accepted last
	sentAt     time.Time
	repeats    int // how often it was to be sent again

	failures int
	due      time.Time         // not before
	refused  *corev1.PodStatus // which the API server finds invalid: another one need not wait
	ask      bool              // whether this is still the pod of its name
	gone     *corev1.Pod       // as it was watched when the API server did not have it any more
	goneAt   time.Time         // when that was
	deleted  bool              // and nothing else is to be done for it

	abandoned time.Time // since when nobody runs it; zero: somebody does
	heldUntil time.Time // a rejection is not sent before; zero: it is no rejection, or was not looked at
	complaint string    // how the status contradicts the one before, as it was reported last; empty: it does not
}

// base returns the newest that is known of the pod at the API server.
func (t *tracked) base(api *corev1.Pod, now time.Time) *corev1.Pod {
	if api == nil || t.answer == nil {
		return api
	}
	newer, err := resourceversion.CompareResourceVersion(t.answer.ResourceVersion, api.ResourceVersion)
	if t.answer.UID != api.UID || err != nil || newer <= 0 || now.Sub(t.answeredAt) > answerCounts {
		t.answer = nil
		return api
	}
	return t.answer
}

// decide returns what to ask of the API server, or else when to look again without a change; zero: not before one. The error says how
// the status contradicts the one before; what does not is sent all the same. Hurry has rejections not held back.
func (t *tracked) decide(v view, r *rejections, hurry bool, now time.Time) (what request, next time.Time, err error) {
	if t.busy || t.deleted || v.api == nil {
		return request{}, time.Time{}, nil
	}
	if until := t.goneAt.Add(answerCounts); v.api == t.gone && now.Before(until) {
		return request{}, until, nil
	}
	if until := t.expiry(); t.idle && t.judged == v && (until.IsZero() || now.Before(until)) {
		return request{}, until, nil
	}
	t.idle = false
	if now.Before(t.due) && (t.refused == nil || v.ours == t.refused) {
		return request{}, t.due, nil
	}
	base := t.base(v.api, now)
	if t.ask {
		return request{verb: verbGet, pod: base, of: v, rank: rankOther}, time.Time{}, nil
	}
	ours := v.ours
	if v.abandoned {
		ours = failedStatus(base)
	}
	if ours != nil {
		if held := t.hold(base, ours, r, now); now.Before(held) && !hurry {
			return request{}, held, nil
		}
		var update statuspatch.Update
		update, err = statuspatch.Next(base, ours, false, now)
		if err == nil {
			t.complaint = ""
		}
		if update.Patch != nil {
			next = t.repeatDue(update.Patch, now)
			if now.Before(next) {
				return request{}, next, err
			}
			return request{verb: verbPatch, pod: base, patch: update.Patch, of: v, rank: rankOf(&base.Status, &update.Status)}, time.Time{}, err
		}
	}
	if removable(base, v.left || v.abandoned) {
		return request{verb: verbDelete, pod: base, of: v, rank: rankEnd}, time.Time{}, err
	}
	t.settle(v)
	return request{}, t.expiry(), err
}

// settle notes that there is nothing to do for what was looked at.
func (t *tracked) settle(v view) {
	t.idle, t.judged, t.since = true, v, time.Time{}
}

// expiry returns when what the API server answered has to be looked at again.
func (t *tracked) expiry() time.Time {
	if t.answer == nil {
		return time.Time{}
	}
	return t.answeredAt.Add(answerCounts + time.Second)
}

// repeatDue returns when a patch may be sent. One that was accepted and is to be sent again waits longer each time: the API server
// keeps something else, or somebody changes it back.
func (t *tracked) repeatDue(patch []byte, now time.Time) time.Time {
	if t.sent == nil || !bytes.Equal(t.sent, patch) || now.Sub(t.sentAt) > repeatReset {
		return now
	}
	return t.sentAt.Add(repeatPolicy().After(t.repeats + 1))
}

// hold returns until when a rejection is held back.
func (t *tracked) hold(base *corev1.Pod, ours *corev1.PodStatus, r *rejections, now time.Time) time.Time {
	if base.DeletionTimestamp != nil || podstatus.IsTerminal(base.Status.Phase) || !podstatus.IsRejected(ours) {
		return time.Time{}
	}
	if t.heldUntil.IsZero() {
		t.heldUntil = r.due(base, ours.Reason, now)
	}
	return t.heldUntil
}

// finish notes the answer to a request, and returns how long to wait after a failure.
func (t *tracked) finish(what *request, answer *corev1.Pod, err error, random float64, now time.Time) (wait time.Duration) {
	t.busy, t.idle, t.ask = false, false, false
	if what.verb == verbPatch {
		t.refused = nil
	}
	switch {
	case err == nil:
		t.succeed(what, answer, now)
		return 0
	case apierrors.IsNotFound(err):
		t.forget(what, now)
		return 0
	case what.verb == verbGet, apierrors.IsConflict(err):
		t.ask = true
	case apierrors.IsInvalid(err):
		t.refused = what.of.ours
		t.ask = t.failures == 0 // the UID may be another's
	}
	t.failures++
	wait = t.wait(random)
	if asked, ok := kubeapi.RetryAfter(err); ok {
		wait = max(wait, asked)
	}
	t.due = now.Add(wait)
	return wait
}

// wait returns how long to wait before the next request. A status that is invalid will be so again.
func (t *tracked) wait(random float64) time.Duration {
	policy := retryPolicy()
	if t.refused != nil && !t.ask {
		policy = repeatPolicy()
	}
	return backoff.Jitter(policy.After(t.failures), 0.75, 1.25, random)
}

// forget notes that the API server does not have the pod any more, which the watch has yet to say.
func (t *tracked) forget(what *request, now time.Time) {
	t.goneAt = now
	t.gone, t.answer, t.failures, t.due, t.since = what.of.api, nil, 0, time.Time{}, time.Time{}
}

// succeed notes what the API server answered.
func (t *tracked) succeed(what *request, answer *corev1.Pod, now time.Time) {
	t.due = time.Time{}
	switch {
	case what.verb == verbDelete:
		t.deleted, t.failures, t.since = true, 0, time.Time{}
		return
	case answer.UID != what.pod.UID:
		t.forget(what, now)
		return
	case what.verb == verbPatch:
		t.failures = 0
		t.repeats++
		if !bytes.Equal(t.sent, what.patch) || now.Sub(t.sentAt) > repeatReset {
			t.sent, t.repeats = what.patch, 0
		}
		t.sentAt = now
	case t.refused != nil: // it is the pod, and the status is invalid
		t.due = now.Add(t.wait(0.5))
	}
	t.answer, t.answeredAt = answer, now
}

// rankOf returns how soon somebody has to know.
func rankOf(before, after *corev1.PodStatus) int {
	switch {
	case podstatus.IsTerminal(after.Phase) && !podstatus.IsTerminal(before.Phase):
		return rankEnd
	case readiness(before) != readiness(after):
		return rankReady
	case before.Phase != after.Phase:
		return rankPhase
	}
	return rankOther
}

// readiness returns the status of condition Ready; what is not known to be ready is not.
func readiness(st *corev1.PodStatus) bool {
	c := podstatus.FindCondition(st.Conditions, corev1.PodReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

// removable reports whether a pod that was deleted can be removed from the API server: it has a terminal phase there, and nothing of it
// is left. A mirror pod is removed by whoever made it, and one that was removed and waits for its finalizers is.
func removable(pod *corev1.Pod, left bool) bool {
	waits := pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0 && len(pod.Finalizers) > 0
	return left && pod.DeletionTimestamp != nil && !qos.IsMirror(pod) && podstatus.IsTerminal(pod.Status.Phase) && !waits
}

// failedStatus returns the status of a pod that ends before anybody ran it: a controller may wait for its terminal phase.
func failedStatus(pod *corev1.Pod) *corev1.PodStatus {
	st := pod.Status.DeepCopy()
	if podstatus.IsTerminal(st.Phase) {
		return st
	}
	st.Phase, st.ObservedGeneration = corev1.PodFailed, max(st.ObservedGeneration, pod.Generation)
	if podstatus.FindCondition(st.Conditions, corev1.PodInitialized) != nil { // an earlier agent ran it
		podstatus.TerminateContainers(st)
	}
	return st
}
