// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"context"
	"errors"
	"net"
	"net/url"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// ErrTooLarge is wrapped where an answer is larger than its limit.
var ErrTooLarge = errors.New("the answer is too large")

// tooLarge reports whether an answer was larger than its limit.
func isTooLarge(err error) bool { return errors.Is(err, ErrTooLarge) }

// Error says which request failed, and how. It wraps the API server's StatusError where there is one, so that
// apierrors.IsNotFound and the like work, and otherwise what the connection ended with.
type Error struct {
	Verb     string // get, list, create, update, patch, delete, watch
	Resource string // pods, or pods/status
	Name     string // NAMESPACE/NAME, NAME or NAMESPACE/; empty means all of a cluster
	Err      error
}

// Error names verb, resource, object and cause.
func (e *Error) Error() string {
	return strings.TrimRight(e.Verb+" "+e.Resource+" "+e.Name, " ") + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// RetryAfter is how long the API server asks to wait before the next request, and whether it does.
func RetryAfter(err error) (time.Duration, bool) {
	seconds, asked := apierrors.SuggestsClientDelay(err)
	return time.Duration(min(max(seconds, 0), maxRetryAfter)) * time.Second, asked
}

// maxRetryAfter bounds what a server may ask for, in seconds.
const maxRetryAfter = 300

// errUndecodable stands for the words of a decoder, which may quote what it read.
var errUndecodable = errors.New("the answer is not what was asked for")

// plain removes from an error what a server's answer had in it. Where the request's context has ended, an answer that was cut
// by that is no news.
func sanitizeError(err, ended error, secret bool) error {
	switch {
	case err == nil, isSafeError(err):
		return err
	case ended != nil:
		return ended
	case secret:
		return errUndecodable
	default:
		return truncatedError{err}
	}
}

// told reports whether an error is the API server's Status or the network's: they do not quote answers.
func isSafeError(err error) bool {
	var status apierrors.APIStatus
	var wire *url.Error
	var network net.Error
	return errors.As(err, &status) || errors.As(err, &wire) || errors.As(err, &network) || errors.Is(err, ErrTooLarge) ||
		errors.Is(err, errUndecodable) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// shortened is an error whose text may quote an answer.
type truncatedError struct{ error }

func (s truncatedError) Error() string {
	const limit = 256
	if text := s.error.Error(); len(text) > limit {
		return strings.ToValidUTF8(text[:limit], "") + "..."
	}
	return s.error.Error()
}

func (s truncatedError) Unwrap() error { return s.error }
