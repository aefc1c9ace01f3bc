// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package images

import (
	"time"

	"github.com/seed81659283/nodeagent/cri"
)

// Hooks are told what happens. Any may be nil. They are called with no lock held and from the goroutine that called the
// puller, but for Slow and for Error where it says so.
type Hooks struct {
	// Present: the image was there and the pod may use it.
	Present func(r Request, image cri.Image)
	// Pulling: a pull is wanted; it may have to wait for its turn.
	Pulling func(r Request)
	// Slow: a pull goes on and has released its slot to the next one, after Options.SlowAfter. It is called from a
	// goroutine of its own, for the request that makes the pull.
	Slow func(r Request, after time.Duration)
	// Pulled: the image was pulled, by this call or by one that wanted the same.
	Pulled func(r Request, p Pull)
	// Failed: the image is not there. It is called for each *Error that Ensure returns.
	Failed func(r Request, err *Error)
	// Error: something went wrong that did not decide about the image: a provider of credentials failed, a secret
	// cannot be read, a record cannot be read or written, a call has not returned although it was cancelled. What
	// comes of such a call later, and of the runtime's file systems, is told from a goroutine of its own.
	Error func(err error)
}

// Pull is a pull that worked.
type Pull struct {
	Image    cri.Image
	Took     time.Duration // of the pull itself
	Total    time.Duration // with the time that it waited for its turn
	Shared   bool          // with another call, which made it
	Attempts int           // how many credentials were tried; at least 1
}
