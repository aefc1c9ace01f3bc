// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest

import (
	"context"
	"crypto/sha256"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/internal/backoff"
	"github.com/seed81659283/nodeagent/internal/kubeapi"
	"github.com/seed81659283/nodeagent/internal/lifecycle/statuspatch"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// fleetPod is a pod of a node of a Fleet at the API server. Its methods decide about requests; they send nothing and read no clock.
type fleetPod struct {
	loop   *loopPod
	server *corev1.Pod // newest version that the API server has sent

	unsentSince time.Time // since when the pod is in fleetNode.unsent; zero: it is not
	busy        bool      // a request is waiting or in flight
	released    bool      // the containers do not run and the cgroup is removed
	deleted     bool      // the API server has accepted the final DELETE
	removed     bool      // the API server does not have the pod any more

	failures    int               // failed requests in a row
	notBefore   time.Time         // earliest next request
	lastPatch   [sha256.Size]byte // hash of the patch that was accepted last
	lastPatchAt time.Time
	repeats     int // how often lastPatch was needed again
}

// podRequest is a request for a pod.
type podRequest struct {
	patch []byte // of the status; nil: DELETE with grace period zero
}

// Times of requests for pods.
const (
	// maxUnsettled is the longest time for which a status waits for the actions and observations of its pod: all that happens at one
	// instant is one patch.
	maxUnsettled = 100 * time.Millisecond
	// repeatReset is the time after which an equal patch does not count as a repetition.
	repeatReset = 10 * time.Minute
)

// Waits after failed requests for pods, those of package apiserver: in general, and after a status that the API server does not accept or
// does not keep.
var (
	podRetry    = backoff.Policy{First: 500 * time.Millisecond, Max: 10 * time.Second} //nolint:gochecknoglobals // constant
	repeatRetry = backoff.Policy{First: 10 * time.Second, Max: 5 * time.Minute}        //nolint:gochecknoglobals // constant
)

// planRequest returns the request that the pod needs now, or nil. If the pod may need one later without a change, recheck is that time.
func (p *fleetPod) planRequest(now time.Time) (request *podRequest, recheck time.Time) {
	if p.busy || p.removed || p.deleted {
		return nil, time.Time{}
	}
	if now.Before(p.notBefore) {
		return nil, p.notBefore
	}
	if until := p.unsentSince.Add(maxUnsettled); !p.loop.isSettled() && now.Before(until) {
		return nil, until
	}
	if p.loop.shown != nil {
		update, _ := statuspatch.Next(p.server, p.loop.shown, false, now) // after an error, the patch has the valid changes
		if update.Patch != nil {
			if p.isRepetition(update.Patch, now) {
				if until := p.lastPatchAt.Add(repeatRetry.After(p.repeats + 1)); now.Before(until) {
					return nil, until
				}
			}
			return &podRequest{patch: update.Patch}, time.Time{}
		}
	}
	if p.canDelete() {
		return &podRequest{}, time.Time{}
	}
	return nil, time.Time{}
}

// isRepetition reports whether the API server has accepted an equal patch before and did not keep it.
func (p *fleetPod) isRepetition(patch []byte, now time.Time) bool {
	return p.lastPatch == sha256.Sum256(patch) && now.Sub(p.lastPatchAt) <= repeatReset
}

// canDelete reports whether the API server may remove the pod: it is deleted, terminal and released, and waits for more than finalizers.
func (p *fleetPod) canDelete() bool {
	onlyFinalizers := p.server.DeletionGracePeriodSeconds != nil && *p.server.DeletionGracePeriodSeconds == 0 && len(p.server.Finalizers) > 0
	return p.released && p.server.DeletionTimestamp != nil && podstatus.IsTerminal(p.server.Status.Phase) && !onlyFinalizers
}

// storeResult stores the result of a request: the pod in the response of a patch, or err.
func (p *fleetPod) storeResult(request *podRequest, response *corev1.Pod, err error, now time.Time) {
	p.busy = false
	switch {
	case err == nil && request.patch == nil:
		p.deleted, p.failures = true, 0
	case err == nil:
		p.failures, p.notBefore = 0, time.Time{}
		if p.isRepetition(request.patch, now) {
			p.repeats++
		} else {
			p.repeats, p.lastPatch = 0, sha256.Sum256(request.patch)
		}
		p.lastPatchAt = now
		if response.UID == p.server.UID && isNewer(response.ResourceVersion, p.server.ResourceVersion) {
			p.server = response
		}
	case apierrors.IsNotFound(err): // the watch reports the removal
		p.notBefore = now.Add(jitter(repeatRetry.First, 1, 1.5))
	default:
		p.failures++
		policy := podRetry
		if apierrors.IsInvalid(err) || apierrors.IsConflict(err) { // for another pod of this name, or with a status that is refused
			policy = repeatRetry
		}
		wait := jitter(policy.After(p.failures), 0.75, 1.25)
		if asked, ok := kubeapi.RetryAfter(err); ok {
			wait = max(wait, asked)
		}
		p.notBefore = now.Add(wait)
	}
}

// sendPodRequest adds a request for the pod p to the queue of the Fleet.
func (n *fleetNode) sendPodRequest(p *fleetPod, request *podRequest) {
	f, pod := n.fleet, p.server
	f.podRequests.addRequest(func(ctx context.Context) {
		pods := kubeapi.In(f.client, kubeapi.Pods, pod.Namespace)
		var response *corev1.Pod
		var err error
		if request.patch != nil {
			if response, err = pods.Patch(ctx, pod.Name, types.StrategicMergePatchType, request.patch, "status"); err == nil {
				response = f.trimPod(response)
			}
		} else {
			err = pods.Delete(ctx, pod.Name, metav1.DeleteOptions{
				GracePeriodSeconds: new(int64), Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
			})
		}
		f.failures.record(f, "send pod status", err)
		n.finish(func(now time.Time) {
			n.idleSince = now
			p.storeResult(request, response, err, now)
			n.addUnsent(p, now)
		})
	})
}
