// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package images

import (
	"time"

	"github.com/seed81659283/nodeagent/cri"
)

// Hooks are called on events of a [Puller]. Each may be nil. They are called without locks by the goroutine that calls the
// Puller, except for Slow and some calls of Error.
type Hooks struct {
	// Present is called if the image exists and the pod may use it.
	Present func(r Request, image cri.Image)
	// Pulling is called before a pull, which may still wait for a slot and the rate limit.
	Pulling func(r Request)
	// Slow is called when a pull releases its slot after Options.SlowAfter. It is called once per pull, with the request of the
	// call that makes it, by a separate goroutine.
	Slow func(r Request, after time.Duration)
	// Pulled is called after a successful pull for each request that shared it.
	Pulled func(r Request, p Pull)
	// Failed is called for each *Error that Ensure returns.
	Failed func(r Request, err *Error)
	// Error is called for errors that do not decide whether the pod may use the image: a failed credential provider, an
	// unreadable secret, a record that cannot be read or written, an abandoned call. Errors of an abandoned call and of the
	// image file systems are reported by separate goroutines.
	Error func(err error)
}

// Pull describes a successful pull, for Hooks.Pulled.
type Pull struct {
	Image    cri.Image
	Took     time.Duration // duration of the pull itself
	Total    time.Duration // including the wait for a slot and the rate limit
	Shared   bool          // another call made the pull
	Attempts int           // number of credentials tried; at least 1
}
