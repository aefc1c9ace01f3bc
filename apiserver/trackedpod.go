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

// Times of the statuses of pods. The kubelet has none of them: it retries all pods one by one every 10 s.
const (
	// responseLifetime is how long the pod in a response of the API server is used if it is newer than the watched pod. After that
	// the watched pod is used: after a restore of etcd, the watched pod may have a lower resource version.
	responseLifetime = time.Minute
	// abandonedAfter is how long the agent must not list a deleted pod before the pod is treated as never run.
	abandonedAfter = time.Second
	// repeatReset is the time after which an equal patch is no longer counted as a repetition.
	repeatReset = 10 * time.Minute
)

// retryPolicy is the back-off after failed requests.
func retryPolicy() backoff.Policy {
	return backoff.Policy{First: 500 * time.Millisecond, Max: 10 * time.Second}
}

// repeatPolicy returns the back-off before a status patch is repeated. It applies if the API server has accepted the patch,
// but the pod still has another status.
func repeatPolicy() backoff.Policy {
	return backoff.Policy{First: 10 * time.Second, Max: 5 * time.Minute}
}

// podView is the present state of a pod at the API server and in the agent. Views are compared by their pointers.
type podView struct {
	api         *corev1.Pod       // the watched pod, or the mirror pod of a static pod; nil: none
	agentStatus *corev1.PodStatus // nil: the agent has no status
	released    bool              // its containers have exited for good, and its volumes and cgroup are removed
	abandoned   bool              // the agent does not list it, and no container of it may run
}

// verb is a kind of request.
type verb int

// The kinds of requests.
const (
	verbNone verb = iota
	verbPatch
	verbDelete
	verbGet
)

// request is a planned request to the API server.
type request struct {
	verb  verb
	pod   *corev1.Pod // newest version
	patch []byte
	view  podView // the state that it was planned for
	rank  int     // lower ranks are sent first
}

// The ranks of requests, by urgency for other components.
const (
	rankTerminal = iota // terminal phase or deletion: controllers and the scheduler wait for it
	rankReady           // change of readiness: endpoints
	rankPhase
	rankOther
)

// trackedPod is the request state of one pod. Its methods plan and record requests; they send nothing and read no clock. Only the
// goroutine of Run uses it.
type trackedPod struct {
	id           cri.PodIdentity // as the agent identifies it
	pendingSince time.Time       // when the first unsent change was seen; zero: none
	idleView     podView         // view for which no request was needed
	idle         bool            // idleView is set
	planned      plannedUpdate   // of the last pass; zero: none

	busy        bool
	response    *corev1.Pod // the pod in the last response; nil: the watched pod is newer
	respondedAt time.Time
	lastPatch   []byte // the last patch that was accepted
	lastPatchAt time.Time
	repeats     int // how often lastPatch was needed again

	failures      int               // failed requests in a row
	notBefore     time.Time         // earliest next request
	invalidStatus *corev1.PodStatus // status that the API server rejected as invalid; a different one is sent at once
	mustGet       bool              // the next request must be a GET, to check the UID of the pod
	notFoundPod   *corev1.Pod       // the watched pod when the API server returned NotFound for it
	notFoundAt    time.Time         // when it returned NotFound
	deleted       bool              // the DELETE was accepted; nothing else to send

	abandoned      time.Time // since when the agent does not list the pod; zero: it lists the pod
	rejectionUntil time.Time // earliest time to send a rejection; zero: no rejection, or not computed
	contradiction  string    // the reported contradiction between two statuses; empty: none
}

// newestPod returns the newer version of a pod: the watched version, or that in the last response to a status patch.
func (t *trackedPod) newestPod(watched *corev1.Pod, now time.Time) *corev1.Pod {
	if watched == nil || t.response == nil {
		return watched
	}
	newer, err := resourceversion.CompareResourceVersion(t.response.ResourceVersion, watched.ResourceVersion)
	if t.response.UID != watched.UID || err != nil || newer <= 0 || now.Sub(t.respondedAt) > responseLifetime {
		t.response = nil
		return watched
	}
	return t.response
}

// planRequest returns the request that the pod needs now, and when to check again if it needs none; zero means after a change. An
// error is a contradiction to the previous status.
func (t *trackedPod) planRequest(view podView, limiter *rejectionLimiter, flushing bool, now time.Time) (req request, recheck time.Time, err error) {
	if t.busy || t.deleted || view.api == nil {
		return request{}, time.Time{}, nil
	}
	if until := t.notFoundAt.Add(responseLifetime); view.api == t.notFoundPod && now.Before(until) {
		return request{}, until, nil
	}
	if until := t.recheckTime(); t.idle && t.idleView == view && (until.IsZero() || now.Before(until)) {
		return request{}, until, nil
	}
	t.idle = false
	if now.Before(t.notBefore) && (t.invalidStatus == nil || view.agentStatus == t.invalidStatus) {
		return request{}, t.notBefore, nil
	}
	base := t.newestPod(view.api, now)
	if t.mustGet {
		return request{verb: verbGet, pod: base, view: view, rank: rankOther}, time.Time{}, nil
	}
	agentStatus := view.agentStatus
	if view.abandoned {
		agentStatus = failedStatus(base)
	}
	if agentStatus != nil {
		// the status of a rejected pod is delayed
		if held := t.rejectionTime(base, agentStatus, limiter, now); now.Before(held) && !flushing {
			return request{}, held, nil
		}
		var update statuspatch.Update
		update, err = t.planUpdate(base, agentStatus, now) // after an error, the patch has only the valid changes
		if err == nil {
			t.contradiction = ""
		}
		if update.Patch != nil {
			recheck = t.repeatTime(update.Patch, now)
			if now.Before(recheck) {
				return request{}, recheck, err
			}
			return request{verb: verbPatch, pod: base, patch: update.Patch, view: view, rank: statusRank(&base.Status, &update.Status)}, time.Time{}, err
		}
	}
	if canRemove(base, view.released || view.abandoned) {
		return request{verb: verbDelete, pod: base, view: view, rank: rankTerminal}, time.Time{}, err
	}
	t.markIdle(view)
	return request{}, t.recheckTime(), err
}

// plannedUpdate is the update of a status that was computed for a pod and its status in the agent.
type plannedUpdate struct {
	base   *corev1.Pod
	status *corev1.PodStatus
	update statuspatch.Update
	err    error // the status contradicts the previous one
}

// planUpdate returns the update that changes the status of base to status.
func (t *trackedPod) planUpdate(base *corev1.Pod, status *corev1.PodStatus, now time.Time) (statuspatch.Update, error) {
	// Stored, because encoding a status takes most of the time of a pass. Each response starts a pass, which plans all waiting pods
	// again.
	if t.planned.base != base || t.planned.status != status {
		t.planned = plannedUpdate{base: base, status: status}
		t.planned.update, t.planned.err = statuspatch.Next(base, status, false, now)
	}
	return t.planned.update, t.planned.err
}

// markIdle records that a pod with the state view needs no request. Later passes skip the pod until its state differs from
// view.
func (t *trackedPod) markIdle(view podView) {
	t.idle, t.idleView, t.pendingSince, t.planned = true, view, time.Time{}, plannedUpdate{}
}

// recheckTime returns when the last response expires, so that the watched pod is used again. Zero means no response.
func (t *trackedPod) recheckTime() time.Time {
	if t.response == nil {
		return time.Time{}
	}
	return t.respondedAt.Add(responseLifetime + time.Second)
}

// repeatTime returns when the patch may be sent: now, or later if the API server has accepted an equal patch before.
func (t *trackedPod) repeatTime(patch []byte, now time.Time) time.Time {
	if t.lastPatch == nil || !bytes.Equal(t.lastPatch, patch) || now.Sub(t.lastPatchAt) > repeatReset {
		return now
	}
	// the API server does not keep the value, or another client reverts it
	return t.lastPatchAt.Add(repeatPolicy().After(t.repeats + 1))
}

// rejectionTime returns when the Failed status of a rejected pod may be sent, or zero for any other status.
func (t *trackedPod) rejectionTime(base *corev1.Pod, agentStatus *corev1.PodStatus, limiter *rejectionLimiter, now time.Time) time.Time {
	if base.DeletionTimestamp != nil || podstatus.IsTerminal(base.Status.Phase) || !podstatus.IsRejected(agentStatus) {
		return time.Time{}
	}
	if t.rejectionUntil.IsZero() {
		t.rejectionUntil = limiter.reportTime(base, agentStatus.Reason, now)
	}
	return t.rejectionUntil
}

// recordResult stores the result of a request, and returns the delay before a retry; zero means no retry.
func (t *trackedPod) recordResult(request *request, response *corev1.Pod, err error, jitter float64, now time.Time) (retryDelay time.Duration) {
	t.busy, t.idle, t.mustGet, t.planned = false, false, false, plannedUpdate{}
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
		t.mustGet = t.failures == 0 // the UID may be that of another pod
	}
	t.failures++
	retryDelay = t.retryWait(jitter)
	if asked, ok := kubeapi.RetryAfter(err); ok {
		retryDelay = max(retryDelay, asked)
	}
	t.notBefore = now.Add(retryDelay)
	return retryDelay
}

// retryWait returns the delay before a failed request is retried, which is longer for an invalid status. random is in [0,1).
func (t *trackedPod) retryWait(random float64) time.Duration {
	policy := retryPolicy()
	if t.invalidStatus != nil && !t.mustGet {
		policy = repeatPolicy()
	}
	return backoff.Jitter(policy.After(t.failures), 0.75, 1.25, random)
}

// recordNotFound records that the API server has no such pod, which then needs no request for a while.
func (t *trackedPod) recordNotFound(request *request, now time.Time) {
	t.notFoundAt = now
	t.notFoundPod, t.response, t.failures, t.notBefore, t.pendingSince = request.view.api, nil, 0, time.Time{}, time.Time{}
}

// recordSuccess records a successful request and the pod in its response. newestPod returns this pod until the watch has
// reported its version. If the response has another UID, the pod counts as not found.
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
	case t.invalidStatus != nil: // the UID is correct, so the status itself is invalid
		t.notBefore = now.Add(t.retryWait(0.5))
	}
	t.response, t.respondedAt = response, now
}

// statusRank returns the rank of a status change, such as rankTerminal or rankReady. Changes with a lower rank are more
// urgent for other components, and are sent first.
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

// isReady reports whether the condition Ready is True.
func isReady(status *corev1.PodStatus) bool {
	c := podstatus.FindCondition(status.Conditions, corev1.PodReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

// canRemove reports whether the agent may remove a deleted pod: it is terminal, its resources are released, and it is no mirror
// pod.
func canRemove(pod *corev1.Pod, released bool) bool {
	onlyFinalizers := pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0 && len(pod.Finalizers) > 0
	return released && pod.DeletionTimestamp != nil && !qos.IsMirror(pod) && podstatus.IsTerminal(pod.Status.Phase) && !onlyFinalizers
}

// failedStatus returns the status Failed of a deleted pod that the agent does not list: a controller may wait for it.
func failedStatus(pod *corev1.Pod) *corev1.PodStatus {
	st := pod.Status.DeepCopy()
	if podstatus.IsTerminal(st.Phase) {
		return st
	}
	st.Phase, st.ObservedGeneration = corev1.PodFailed, max(st.ObservedGeneration, pod.Generation)
	if podstatus.FindCondition(st.Conditions, corev1.PodInitialized) != nil { // a previous agent ran it
		podstatus.TerminateContainers(st)
	}
	return st
}
