// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package subpath

import (
	"context"
	"errors"
)

func bindSubPath(_ context.Context, request Request) error {
	return &Error{SubPath: request.SubPath, Op: "bind", Err: errors.ErrUnsupported}
}

func cleanTree(context.Context, string) error { return errors.ErrUnsupported }
