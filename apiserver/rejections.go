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

// The limits of rejections: how long the pods of one controller that are rejected for one reason are kept apart, after what time without
// one that begins anew, and of how many that is known.
const (
	rejectionReset    = 10 * time.Minute
	maxRejectionPaces = 1024
)

func rejectionPolicy() backoff.Policy { return backoff.Policy{First: time.Second, Max: time.Minute} }

// rejections keep a controller from a loop: it makes another pod as soon as one has failed, which a scheduler that knows no better
// sends to the same node (kubernetes/kubernetes#106419). They are pure.
type rejectionLimiter struct {
	paces map[rejectionKey]rejectionPace
}

type rejectionKey struct {
	controller types.UID
	reason     string
}

// pace is when the last one is told, and how long the next one waits after that.
type rejectionPace struct {
	last time.Time
	wait time.Duration
}

// due returns when the rejection of a pod is to be told: the first one at once, the next one 1 s later, and so on, doubling to 1 min.
func (r *rejectionLimiter) reportTime(pod *corev1.Pod, reason string, now time.Time) time.Time {
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return now
	}
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

// keep notes a pace. Of too many the oldest is forgotten.
func (r *rejectionLimiter) storePace(key rejectionKey, p rejectionPace) {
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
		delete(r.paces, oldest)
	}
	r.paces[key] = p
}
