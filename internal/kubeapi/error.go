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

// ErrTooLarge reports a response that exceeds its size limit, or a list with too many objects.
var ErrTooLarge = errors.New("the answer is too large")

// ErrNoCredentials reports a request that was not sent, because the client has no valid certificate yet.
var ErrNoCredentials = errors.New("the client has no certificate yet")

// isTooLarge reports whether err wraps [ErrTooLarge].
func isTooLarge(err error) bool { return errors.Is(err, ErrTooLarge) }

// Error is a failed request. It wraps the StatusError of the API server, so that apierrors.IsNotFound and similar functions work,
// or else the error of the connection.
type Error struct {
	Verb     string // get, list, create, update, patch, delete, watch
	Resource string // pods, or pods/status
	Name     string // NAMESPACE/NAME, NAME or NAMESPACE/; empty: all objects of the cluster
	Err      error
}

// Error returns verb, resource, object and cause.
func (e *Error) Error() string {
	return strings.TrimRight(e.Verb+" "+e.Resource+" "+e.Name, " ") + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// RetryAfter returns the delay after which the API server permits the next request, at most 5 minutes. ok is false if err
// contains no delay.
func RetryAfter(err error) (wait time.Duration, ok bool) {
	seconds, asked := apierrors.SuggestsClientDelay(err)
	return time.Duration(min(max(seconds, 0), maxRetryAfter)) * time.Second, asked
}

// maxRetryAfter limits the wait that a server can request, in seconds.
const maxRetryAfter = 300

// errUndecodable replaces the error of a decoder, which may quote the response.
var errUndecodable = errors.New("the answer is not what was asked for")

// sanitizeError returns an error that may be logged: if secret is true, its text contains nothing of the response.
func sanitizeError(err, ctxErr error, secret bool) error {
	switch {
	case err == nil, isSafeError(err):
		return err
	// the end of the context may have cut the response, which the decoder then reports as invalid
	case ctxErr != nil:
		return ctxErr
	case secret:
		return errUndecodable
	default:
		return truncatedError{err}
	}
}

// isSafeError reports whether err may be logged, because its text contains nothing of a response.
func isSafeError(err error) bool {
	var status apierrors.APIStatus
	var wire *url.Error
	var network net.Error
	return errors.As(err, &status) || errors.As(err, &wire) || errors.As(err, &network) || errors.Is(err, ErrTooLarge) ||
		errors.Is(err, errUndecodable) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// truncatedError shortens the text of an error that may quote a response.
type truncatedError struct{ error }

func (s truncatedError) Error() string {
	const limit = 256
	if text := s.error.Error(); len(text) > limit {
		return strings.ToValidUTF8(text[:limit], "") + "..."
	}
	return s.error.Error()
}

func (s truncatedError) Unwrap() error { return s.error }
