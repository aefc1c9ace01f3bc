// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"errors"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/seed81659283/nodeagent/cri"
)

// callError is an error reported by the runtime or by gRPC. Its text is the message alone.
type callError struct {
	message  string
	sentinel error // error of package cri, context or errors that it matches; nil if none fits
	cause    error // error with the gRPC status, for a server that passes it on; or the dial error
}

func (e *callError) Error() string { return e.message }

func (e *callError) Unwrap() []error {
	if e.sentinel == nil {
		return []error{e.cause}
	}
	return []error{e.sentinel, e.cause}
}

// translateError converts a gRPC error into an error that package cri documents. nil stays nil.
func (c *conn) translateError(err error) error {
	if err == nil {
		return nil
	}
	s, ok := status.FromError(err)
	if !ok {
		return err
	}
	e := &callError{message: s.Message(), sentinel: sentinelError(s), cause: err}
	switch {
	case errors.Is(e.sentinel, cri.ErrUnavailable):
		// The cause of the connection failure, without gRPC's wrapping.
		if dialErr := c.dialErr.Load(); dialErr != nil {
			e.message, e.cause = (*dialErr).Error(), *dialErr
		}
		e.message = cri.ErrUnavailable.Error() + ": " + e.message
	case e.message == "" && e.sentinel != nil:
		e.message = e.sentinel.Error()
	case e.message == "":
		e.message = s.Code().String()
	}
	return e
}

// sentinelError returns the documented error that a gRPC status represents, or nil.
func sentinelError(st *status.Status) error {
	switch st.Code() {
	case codes.NotFound:
		return cri.ErrNotFound
	case codes.Unavailable:
		return cri.ErrUnavailable
	case codes.AlreadyExists:
		return cri.ErrAlreadyExists
	case codes.DeadlineExceeded:
		return context.DeadlineExceeded
	case codes.Canceled:
		return context.Canceled
	case codes.Unimplemented:
		return errors.ErrUnsupported
	case codes.ResourceExhausted:
		if isTooLarge(st.Message()) {
			return cri.ErrTooLarge
		}
		return cri.ErrTooMany
	case codes.Unknown, codes.FailedPrecondition:
		switch {
		case isNameReserved(st.Message()):
			return cri.ErrAlreadyExists
		case isUnknownID(st.Message()):
			return cri.ErrNotFound
		}
	}
	return nil
}

// isUnknownID recognises CRI-O's Unknown error for an unknown ID by its text, which comes from pkg/truncindex of
// containers/storage.
func isUnknownID(message string) bool {
	return strings.HasSuffix(message, "not found: ID does not exist")
}

// isNameReserved recognises the error for a name in use by its text, because runtimes have no own code for it: containerd 2
// returns FailedPrecondition, containerd 1 and CRI-O Unknown.
func isNameReserved(message string) bool {
	return strings.Contains(message, `" is reserved for "`) || strings.Contains(message, "name is reserved")
}

// isTooLarge recognises a response that exceeds the message size of client or server by its text, because gRPC uses the code of
// an exceeded quota for it. The second text is that of package criserver.
func isTooLarge(message string) bool {
	return strings.Contains(message, "larger than max") || strings.Contains(message, cri.ErrTooLarge.Error())
}

// ignoreNotFound returns nil if err is ErrNotFound, else err: an object to stop or remove may be missing.
func ignoreNotFound(err error) error {
	if errors.Is(err, cri.ErrNotFound) {
		return nil
	}
	return err
}
