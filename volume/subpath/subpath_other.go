// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package subpath

import (
	"context"
	"errors"
)

func prepare(_ context.Context, r Request) error {
	return &Error{SubPath: r.SubPath, Op: "bind", Err: errors.ErrUnsupported}
}

func clean(context.Context, string) error { return errors.ErrUnsupported }
