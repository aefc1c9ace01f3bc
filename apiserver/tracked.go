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
	responseLifetime = time.Minute
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
type podView struct {
	api         *corev1.Pod       // as it is watched; nil: there is none. A mirror pod stands for its static pod
	agentStatus *corev1.PodStatus // nil: the agent says nothing
	released    bool              // nothing of it runs or will, and its volumes and its cgroup are given back
	abandoned   bool              // nobody runs it, and nothing of it may run
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
	view  podView // what it was decided from
	rank  int     // lower ones go first
}

// The ranks of requests: what somebody waits for goes first.
const (
	rankTerminal = iota // a terminal phase, or a deletion: a controller and a scheduler wait for it
	rankReady           // ready or no longer: endpoints
	rankPhase
	rankOther
)

// tracked is what was tried for one pod. It is of the goroutine of Run alone; what it decides takes the time and does nothing.
type trackedPod struct {
	id           cri.PodIdentity // as the agent knows it
	pendingSince time.Time       // when something was first to be sent; zero: nothing is
	idleView     podView         // came to nothing
	idle         bool            // judged is set

	busy        bool
	response    *corev1.Pod // what the API server answered last; nil: what is watched is newer
	respondedAt time.Time
	lastPatch   []byte // the patch that was accepted last
	lastPatchAt time.Time
	repeats     int // how often it was to be sent again

	failures      int
	notBefore     time.Time         // not before
	invalidStatus *corev1.PodStatus // which the API server finds invalid: another one need not wait
	mustGet       bool              // whether this is still the pod of its name
	notFoundPod   *corev1.Pod       // as it was watched when the API server did not have it any more
	notFoundAt    time.Time         // when that was
	deleted       bool              // and nothing else is to be done for it

	abandoned      time.Time // since when nobody runs it; zero: somebody does
	rejectionUntil time.Time // a rejection is not sent before; zero: it is no rejection, or was not looked at
	contradiction  string    // how the status contradicts the one before, as it was reported last; empty: it does not
}

// base returns the newest that is known of the pod at the API server.
func (t *trackedPod) newestPod(api *corev1.Pod, now time.Time) *corev1.Pod {
	if api == nil || t.response == nil {
		return api
	}
	newer, err := resourceversion.CompareResourceVersion(t.response.ResourceVersion, api.ResourceVersion)
	if t.response.UID != api.UID || err != nil || newer <= 0 || now.Sub(t.respondedAt) > responseLifetime {
		t.response = nil
		return api
	}
	return t.response
}

// decide returns what to ask of the API server, or else when to look again without a change; zero: not before one. The error says how
// the status contradicts the one before; what does not is sent all the same. Hurry has rejections not held back.
func (t *trackedPod) planRequest(v podView, r *rejectionLimiter, flushing bool, now time.Time) (req request, next time.Time, err error) {
	if t.busy || t.deleted || v.api == nil {
		return request{}, time.Time{}, nil
	}
	if until := t.notFoundAt.Add(responseLifetime); v.api == t.notFoundPod && now.Before(until) {
		return request{}, until, nil
	}
	if until := t.recheckTime(); t.idle && t.idleView == v && (until.IsZero() || now.Before(until)) {
		return request{}, until, nil
	}
	t.idle = false
	if now.Before(t.notBefore) && (t.invalidStatus == nil || v.agentStatus == t.invalidStatus) {
		return request{}, t.notBefore, nil
	}
	base := t.newestPod(v.api, now)
	if t.mustGet {
		return request{verb: verbGet, pod: base, view: v, rank: rankOther}, time.Time{}, nil
	}
	agentStatus := v.agentStatus
	if v.abandoned {
		agentStatus = failedStatus(base)
	}
	if agentStatus != nil {
		if held := t.rejectionTime(base, agentStatus, r, now); now.Before(held) && !flushing {
			return request{}, held, nil
		}
		var update statuspatch.Update
		update, err = statuspatch.Next(base, agentStatus, false, now)
		if err == nil {
			t.contradiction = ""
		}
		if update.Patch != nil {
			next = t.repeatTime(update.Patch, now)
			if now.Before(next) {
				return request{}, next, err
			}
			return request{verb: verbPatch, pod: base, patch: update.Patch, view: v, rank: statusRank(&base.Status, &update.Status)}, time.Time{}, err
		}
	}
	if canRemove(base, v.released || v.abandoned) {
		return request{verb: verbDelete, pod: base, view: v, rank: rankTerminal}, time.Time{}, err
	}
	t.markIdle(v)
	return request{}, t.recheckTime(), err
}

// settle notes that there is nothing to do for what was looked at.
func (t *trackedPod) markIdle(v podView) {
	t.idle, t.idleView, t.pendingSince = true, v, time.Time{}
}

// expiry returns when what the API server answered has to be looked at again.
func (t *trackedPod) recheckTime() time.Time {
	if t.response == nil {
		return time.Time{}
	}
	return t.respondedAt.Add(responseLifetime + time.Second)
}

// repeatDue returns when a patch may be sent. One that was accepted and is to be sent again waits longer each time: the API server
// keeps something else, or somebody changes it back.
func (t *trackedPod) repeatTime(patch []byte, now time.Time) time.Time {
	if t.lastPatch == nil || !bytes.Equal(t.lastPatch, patch) || now.Sub(t.lastPatchAt) > repeatReset {
		return now
	}
	return t.lastPatchAt.Add(repeatPolicy().After(t.repeats + 1))
}

// hold returns until when a rejection is held back.
func (t *trackedPod) rejectionTime(base *corev1.Pod, agentStatus *corev1.PodStatus, r *rejectionLimiter, now time.Time) time.Time {
	if base.DeletionTimestamp != nil || podstatus.IsTerminal(base.Status.Phase) || !podstatus.IsRejected(agentStatus) {
		return time.Time{}
	}
	if t.rejectionUntil.IsZero() {
		t.rejectionUntil = r.reportTime(base, agentStatus.Reason, now)
	}
	return t.rejectionUntil
}

// finish notes the answer to a request, and returns how long to wait after a failure.
func (t *trackedPod) recordResult(request *request, response *corev1.Pod, err error, random float64, now time.Time) (wait time.Duration) {
	t.busy, t.idle, t.mustGet = false, false, false
	if request.verb == verbPatch {
		t.invalidStatus = nil
	}
	switch {
	case err == nil:
		t.recordSuccess(request, response, now)
		return 0
	case apierrors.IsNotFound(err):
		t.recordNotFound(request, now)
		return 0
	case request.verb == verbGet, apierrors.IsConflict(err):
		t.mustGet = true
	case apierrors.IsInvalid(err):
		t.invalidStatus = request.view.agentStatus
		t.mustGet = t.failures == 0 // the UID may be another's
	}
	t.failures++
	wait = t.retryWait(random)
	if asked, ok := kubeapi.RetryAfter(err); ok {
		wait = max(wait, asked)
	}
	t.notBefore = now.Add(wait)
	return wait
}

// wait returns how long to wait before the next request. A status that is invalid will be so again.
func (t *trackedPod) retryWait(random float64) time.Duration {
	policy := retryPolicy()
	if t.invalidStatus != nil && !t.mustGet {
		policy = repeatPolicy()
	}
	return backoff.Jitter(policy.After(t.failures), 0.75, 1.25, random)
}

// forget notes that the API server does not have the pod any more, which the watch has yet to say.
func (t *trackedPod) recordNotFound(request *request, now time.Time) {
	t.notFoundAt = now
	t.notFoundPod, t.response, t.failures, t.notBefore, t.pendingSince = request.view.api, nil, 0, time.Time{}, time.Time{}
}

// succeed notes what the API server answered.
func (t *trackedPod) recordSuccess(request *request, response *corev1.Pod, now time.Time) {
	t.notBefore = time.Time{}
	switch {
	case request.verb == verbDelete:
		t.deleted, t.failures, t.pendingSince = true, 0, time.Time{}
		return
	case response.UID != request.pod.UID:
		t.recordNotFound(request, now)
		return
	case request.verb == verbPatch:
		t.failures = 0
		t.repeats++
		if !bytes.Equal(t.lastPatch, request.patch) || now.Sub(t.lastPatchAt) > repeatReset {
			t.lastPatch, t.repeats = request.patch, 0
		}
		t.lastPatchAt = now
	case t.invalidStatus != nil: // it is the pod, and the status is invalid
		t.notBefore = now.Add(t.retryWait(0.5))
	}
	t.response, t.respondedAt = response, now
}

// rankOf returns how soon somebody has to know.
func statusRank(before, after *corev1.PodStatus) int {
	switch {
	case podstatus.IsTerminal(after.Phase) && !podstatus.IsTerminal(before.Phase):
		return rankTerminal
	case isReady(before) != isReady(after):
		return rankReady
	case before.Phase != after.Phase:
		return rankPhase
	}
	return rankOther
}

// readiness returns the status of condition Ready; what is not known to be ready is not.
func isReady(st *corev1.PodStatus) bool {
	c := podstatus.FindCondition(st.Conditions, corev1.PodReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

// removable reports whether a pod that was deleted can be removed from the API server: it has a terminal phase there, and nothing of it
// is left. A mirror pod is removed by whoever made it, and one that was removed and waits for its finalizers is.
func canRemove(pod *corev1.Pod, released bool) bool {
	waits := pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0 && len(pod.Finalizers) > 0
	return released && pod.DeletionTimestamp != nil && !qos.IsMirror(pod) && podstatus.IsTerminal(pod.Status.Phase) && !waits
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
