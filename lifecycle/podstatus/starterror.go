// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podstatus

import (
	"time"
)

// StartError is the error of a container that could not be started, with the waiting reason for its status.
type StartError struct {
	Reason string // such as ErrImagePull or [ReasonRunError]
	Err    error
	Retry  time.Time // earliest time at which a retry can succeed; zero: at any time
}

// Error returns "Reason: cause".
func (e *StartError) Error() string { return e.Reason + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *StartError) Unwrap() error { return e.Err }
