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

// translateError converts a gRPC error to an error that wraps one of package cri, such as [cri.ErrNotFound]. A nil error stays
// nil.
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

// sentinelError returns the error of package cri that corresponds to a gRPC status, such as [cri.ErrNotFound]. It returns
// nil for a status without such an error.
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

// isUnknownID reports whether message is CRI-O's error, with the code Unknown, for an unknown ID. Source: pkg/truncindex of
// containers/storage.
func isUnknownID(message string) bool {
	return strings.HasSuffix(message, "not found: ID does not exist")
}

// isNameReserved reports whether message is a runtime's error for a name in use.
func isNameReserved(message string) bool {
	// the code is ambiguous: FailedPrecondition in containerd 2, and Unknown in containerd 1 and CRI-O
	return strings.Contains(message, `" is reserved for "`) || strings.Contains(message, "name is reserved")
}

// isTooLarge reports whether message is the error for a response above the message size of client or server.
func isTooLarge(message string) bool {
	// gRPC uses the same code for an exceeded quota. The first text is from gRPC, the second from package criserver.
	return strings.Contains(message, "larger than max") || strings.Contains(message, cri.ErrTooLarge.Error())
}

// ignoreNotFound returns nil if err is ErrNotFound, else err. Stopping or removing a missing object counts as success.
func ignoreNotFound(err error) error {
	if errors.Is(err, cri.ErrNotFound) {
		return nil
	}
	return err
}
