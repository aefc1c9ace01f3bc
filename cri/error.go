// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import "errors"

var (
	// ErrNotFound says that the sandbox, container or image does not exist (any more).
	ErrNotFound = errors.New("not found")
	// ErrUnavailable says that the runtime could not be reached; the call may or may not have taken effect.
	ErrUnavailable = errors.New("runtime unavailable")
	// ErrAlreadyExists says that another object holds the name: of a sandbox its pod and attempt, of a container
	// its name and attempt within the pod. Runtimes keep a name reserved while an earlier call still works on it.
	ErrAlreadyExists = errors.New("already exists")
	// ErrTooLarge says that the answer is larger than a message between runtime and client may be, so that there is none. It
	// stays so until there is less to say; where List fails with it, a [PodLister] still lists single pods.
	ErrTooLarge = errors.New("answer is too large")
	// ErrTooMany says that the runtime has too many sessions or requests open; later it may take this one.
	ErrTooMany = errors.New("too many requests")
)

// Error is the error of one call to a runtime.
type Error struct {
	Op  string // the CRI call, such as "StartContainer"
	ID  string // the object it was about: an ID, an image or a pod name; may be empty
	Err error  // the cause; errors.Is sees through it
}

// Error returns "Op ID: cause".
func (e *Error) Error() string {
	if e.ID == "" {
		return e.Op + ": " + e.Err.Error()
	}
	return e.Op + " " + e.ID + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
