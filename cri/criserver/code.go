// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package criserver

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/seed81659283/nodeagent/cri"
)

// encodeUnaryError is a gRPC interceptor that encodes the errors of unary calls.
func encodeUnaryError(
	ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler,
) (any, error) {
	answer, err := handle(ctx, request)
	return answer, encodeError(err)
}

// encodeStreamError is a gRPC interceptor that encodes the errors of streaming calls.
func encodeStreamError(service any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	return encodeError(handle(service, stream))
}

// encodeError converts err to a gRPC status error, whose code tells the client the wrapped error of package cri.
func encodeError(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := err.(interface{ GRPCStatus() *status.Status }); ok {
		return err // has a gRPC status of this package
	}
	message := err.Error()
	if e, ok := err.(*cri.Error); ok && e.Err != nil { //nolint:errorlint // only the outermost
		message = e.Err.Error() // the client knows the name of its call
	}
	for _, c := range []struct {
		is   error
		code codes.Code
	}{
		{cri.ErrNotFound, codes.NotFound},
		{cri.ErrAlreadyExists, codes.AlreadyExists},
		{cri.ErrUnavailable, codes.Unavailable},
		{cri.ErrTooLarge, codes.ResourceExhausted},
		{cri.ErrTooMany, codes.ResourceExhausted},
		{context.DeadlineExceeded, codes.DeadlineExceeded},
		{context.Canceled, codes.Canceled},
		{errors.ErrUnsupported, codes.Unimplemented},
	} {
		if errors.Is(err, c.is) {
			return status.Error(c.code, message)
		}
	}
	// An error of another gRPC server, if the runtime is a client of one, keeps its code; all other errors are Unknown.
	return status.Error(status.Code(err), message)
}

// ignoreNotFound returns nil if err is ErrNotFound, else err. Stopping or removing a missing object counts as success.
func ignoreNotFound(err error) error {
	if errors.Is(err, cri.ErrNotFound) {
		return nil
	}
	return err
}

// errMissingField returns the error for a request whose required field is not set.
func errMissingField(field string) error {
	return status.Errorf(codes.InvalidArgument, "%s: not set", field)
}

// errUnsupportedCall returns the error for a call of an optional interface that the runtime does not implement.
func errUnsupportedCall(call string) error {
	return fmt.Errorf("%s: %w by this runtime", call, errors.ErrUnsupported)
}
