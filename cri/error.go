// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import "errors"

var (
	// ErrNotFound means that the sandbox, container or image does not exist, or no longer exists.
	ErrNotFound = errors.New("not found")
	// ErrUnavailable means that the runtime could not be reached. The call may or may not have taken effect.
	ErrUnavailable = errors.New("runtime unavailable")
	// ErrAlreadyExists means that another object has the name: of a sandbox its pod and attempt, of a container its name and
	// attempt within the pod. A runtime reserves a name while an earlier call that uses it is in progress.
	ErrAlreadyExists = errors.New("already exists")
	// ErrTooLarge means that the response exceeds the maximum message size between runtime and client. Retries fail until there
	// are fewer objects to report. If List fails with it, a [PodLister] can still list single pods.
	ErrTooLarge = errors.New("answer is too large")
	// ErrTooMany means that the runtime has too many open sessions or requests. A later retry may succeed.
	ErrTooMany = errors.New("too many requests")
)

// Error is the error of one call to a runtime.
type Error struct {
	Op  string // name of the CRI call, such as "StartContainer"
	ID  string // object of the call: an ID, an image or a pod name; may be empty
	Err error  // cause, matched by errors.Is
}

// Error returns "Op ID: cause". Without an ID it returns "Op: cause".
func (e *Error) Error() string {
	if e.ID == "" {
		return e.Op + ": " + e.Err.Error()
	}
	return e.Op + " " + e.ID + ": " + e.Err.Error()
}

// Unwrap returns e.Err, the cause.
func (e *Error) Unwrap() error { return e.Err }
