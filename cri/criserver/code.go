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

func encodeUnaryError(
	ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler,
) (any, error) {
	answer, err := handle(ctx, request)
	return answer, encodeError(err)
}

func encodeStreamError(service any, s grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	return encodeError(handle(service, s))
}

// encodeError gives an error the code that package remote reads it from.
func encodeError(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := err.(interface{ GRPCStatus() *status.Status }); ok {
		return err // made here
	}
	message := err.Error()
	if e, ok := err.(*cri.Error); ok && e.Err != nil { //nolint:errorlint // only the outermost
		message = e.Err.Error() // the client knows what it called
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
	// A status from further down, as that of a server of a client, keeps its code; all else is Unknown.
	return status.Error(status.Code(err), message)
}

// goneIsFine makes success of what was to be stopped or removed and is not there.
func goneIsFine(err error) error {
	if errors.Is(err, cri.ErrNotFound) {
		return nil
	}
	return err
}

// missing is the error for a request without a part that it needs.
func missing(field string) error {
	return status.Errorf(codes.InvalidArgument, "%s: not set", field)
}

// lacking is the error for a call that the runtime has no capability for.
func lacking(what string) error {
	return fmt.Errorf("%s: %w by this runtime", what, errors.ErrUnsupported)
}
