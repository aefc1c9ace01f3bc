// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/internal/backoff"
)

// Limits of a rejectionLimiter.
const (
	rejectionReset    = 10 * time.Minute // without a rejection for this time, a controller and reason start without delay again
	maxRejectionPaces = 1024             // pairs of controller and reason
)

func rejectionPolicy() backoff.Policy { return backoff.Policy{First: time.Second, Max: time.Minute} }

// rejectionLimiter delays the Failed status of rejected pods, per controller and reason. Otherwise the controller creates a
// replacement at once and the scheduler binds it to the same node (kubernetes/kubernetes#106419). It reads no clock.
type rejectionLimiter struct {
	paces map[rejectionKey]rejectionPace
}

type rejectionKey struct {
	controller types.UID
	reason     string
}

// rejectionPace is the state of one controller and reason.
type rejectionPace struct {
	last time.Time     // when the last rejected pod was or will be reported
	wait time.Duration // delay of the next rejected pod after last
}

// reportTime returns when the Failed status of a rejected pod may be sent. Similar rejections are delayed, so that a
// controller cannot loop.
func (r *rejectionLimiter) reportTime(pod *corev1.Pod, reason string, now time.Time) time.Time {
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return now
	}
	// for each controller and reason, the first status is sent at once, the second 1 s later, and each further one after
	// twice the delay
	key := rejectionKey{owner.UID, reason}
	p, ok := r.paces[key]
	if !ok || now.Sub(p.last) > rejectionReset {
		p = rejectionPace{}
	}
	at := now
	if next := p.last.Add(p.wait); p.wait > 0 && next.After(now) {
		at = next
	}
	r.storePace(key, rejectionPace{at, rejectionPolicy().Next(p.wait)})
	return at
}

// storePace stores when a controller's pods were last rejected for a reason, and the delay before the next report.
func (r *rejectionLimiter) storePace(key rejectionKey, pace rejectionPace) {
	if r.paces == nil {
		r.paces = map[rejectionKey]rejectionPace{}
	}
	if _, ok := r.paces[key]; !ok && len(r.paces) >= maxRejectionPaces {
		var oldest rejectionKey
		first := true
		for k, o := range r.paces {
			if first || o.last.Before(r.paces[oldest].last) {
				oldest, first = k, false
			}
		}
		delete(r.paces, oldest) // the map is full
	}
	r.paces[key] = pace
}
