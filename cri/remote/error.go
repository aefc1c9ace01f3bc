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

// callError is an error that the runtime, or gRPC for it, reported. Its text is the message alone.
type callError struct {
	message string
	is      error // of package cri, context or errors; nil where nothing fits
	cause   error // with the gRPC status, for those who serve it on; or why there is no connection
}

func (e *callError) Error() string { return e.message }

func (e *callError) Unwrap() []error {
	if e.is == nil {
		return []error{e.cause}
	}
	return []error{e.is, e.cause}
}

// translate turns an error of gRPC into one that package cri documents.
func (c *conn) translate(err error) error {
	if err == nil {
		return nil
	}
	s, ok := status.FromError(err)
	if !ok {
		return err
	}
	e := &callError{message: s.Message(), is: sentinel(s), cause: err}
	switch {
	case errors.Is(e.is, cri.ErrUnavailable):
		// The reason why there is no connection, without the layers of gRPC around it.
		if dialErr := c.dialErr.Load(); dialErr != nil {
			e.message, e.cause = (*dialErr).Error(), *dialErr
		}
		e.message = cri.ErrUnavailable.Error() + ": " + e.message
	case e.message == "" && e.is != nil:
		e.message = e.is.Error()
	case e.message == "":
		e.message = s.Code().String()
	}
	return e
}

// sentinel returns the error that a status stands for, or nil.
func sentinel(s *status.Status) error {
	switch s.Code() {
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
		if isTooLarge(s.Message()) {
			return cri.ErrTooLarge
		}
		return cri.ErrTooMany
	case codes.Unknown, codes.FailedPrecondition:
		switch {
		case isReserved(s.Message()):
			return cri.ErrAlreadyExists
		case isMissing(s.Message()):
			return cri.ErrNotFound
		}
	}
	return nil
}

// isMissing recognises the Unknown error of CRI-O for an ID that it does not have, in the words of its index of IDs (pkg/truncindex of
// containers/storage).
func isMissing(message string) bool {
	return strings.HasSuffix(message, "not found: ID does not exist")
}

// isReserved recognises a name that is taken, for which runtimes have no code of its own: containerd 2 sends
// FailedPrecondition, containerd 1 and CRI-O Unknown.
func isReserved(message string) bool {
	return strings.Contains(message, `" is reserved for "`) || strings.Contains(message, "name is reserved")
}

// isTooLarge recognises an answer that one of the two ends found too large, for which gRPC has no code of its own: that of a
// quota is the same. The second text is that of package criserver.
func isTooLarge(message string) bool {
	return strings.Contains(message, "larger than max") || strings.Contains(message, cri.ErrTooLarge.Error())
}

// goneIsFine makes success of what was to be stopped or removed and is not there.
func goneIsFine(err error) error {
	if errors.Is(err, cri.ErrNotFound) {
		return nil
	}
	return err
}
