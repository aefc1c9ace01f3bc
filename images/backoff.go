// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package images

import (
	"maps"
	"time"

	"github.com/seed81659283/nodeagent/internal/backoff"
)

// These constants define the back-off of an image after a failed pull for a pod. A successful pull does not reset it: a failure
// within backOffReset of the last one doubles the delay. Source: pkg/kubelet/kubelet.go (MaxImageBackOff), client-go
// util/flowcontrol.
const (
	backOffInitial = 10 * time.Second
	backOffMax     = 5 * time.Minute
	backOffReset   = 2 * backOffMax
)

// backOffKey identifies the pulls of one image for one pod, which share a back-off.
type backOffKey struct {
	podUID string
	image  string // name in the container spec
}

// failure describes the last failed pull of an image for a pod.
type failure struct {
	at    time.Time
	delay time.Duration // until the next attempt
	err   *Error
}

func (f failure) retryTime() time.Time { return f.at.Add(f.delay) }

func (f failure) isExpired(now time.Time) bool { return now.Sub(f.at) > backOffReset }

// backOff holds the last failure of each pod and image.
type backOff map[backOffKey]failure

// activeFailure returns the last failed pull of the image for the pod in key. It returns active true while the next pull
// must still wait.
func (b backOff) activeFailure(key backOffKey, now time.Time) (last failure, active bool) {
	last, ok := b[key]
	return last, ok && !last.isExpired(now) && now.Before(last.retryTime())
}

// recordFailure stores the error of a pull and returns the time of the next attempt.
func (b backOff) recordFailure(key backOffKey, err *Error, now time.Time) (until time.Time) {
	maps.DeleteFunc(b, func(_ backOffKey, f failure) bool { return f.isExpired(now) })
	// The delay of a missing failure is zero.
	f := failure{at: now, delay: backoff.Policy{First: backOffInitial, Max: backOffMax}.Next(b[key].delay), err: err}
	b[key] = f
	return f.retryTime()
}
