// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package images

import (
	"maps"
	"time"

	"github.com/seed81659283/nodeagent/internal/backoff"
)

// The back-off of an image that could not be pulled for a pod. It does not end with a pull that works: an image that
// fails again within backOffReset of its last failure waits longer than before.
// Source: pkg/kubelet/kubelet.go (MaxImageBackOff), client-go util/flowcontrol.
const (
	backOffInitial = 10 * time.Second
	backOffMax     = 5 * time.Minute
	backOffReset   = 2 * backOffMax
)

// backOffKey is what is waited for.
type backOffKey struct {
	podUID string
	image  string // as it stands in the container
}

// failure is the last one of a pull.
type failure struct {
	at    time.Time
	delay time.Duration
	err   *Error
}

func (f failure) until() time.Time { return f.at.Add(f.delay) }

func (f failure) expired(now time.Time) bool { return now.Sub(f.at) > backOffReset }

// backOff remembers failures.
type backOff map[backOffKey]failure

// waiting returns the failure whose delay is not over.
func (b backOff) waiting(k backOffKey, now time.Time) (failure, bool) {
	f, ok := b[k]
	return f, ok && !f.expired(now) && now.Before(f.until())
}

// fail takes note of a failure, and forgets those that have expired. It returns when to try again.
func (b backOff) fail(k backOffKey, err *Error, now time.Time) (until time.Time) {
	maps.DeleteFunc(b, func(_ backOffKey, f failure) bool { return f.expired(now) })
	// Without a failure before it the last delay is zero.
	f := failure{at: now, delay: backoff.Policy{First: backOffInitial, Max: backOffMax}.Next(b[k].delay), err: err}
	b[k] = f
	return f.until()
}
