// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package login1

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"
)

// Conn is not implemented on this operating system.
type Conn struct{}

// Dial returns an error that wraps errors.ErrUnsupported, because logind exists only on Linux.
func Dial(context.Context, Options) (*Conn, error) { return nil, unsupportedError() }

func unsupportedError() error {
	return fmt.Errorf("connect to logind on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}

// Close does nothing.
func (*Conn) Close() {}

// InhibitDelayMax returns an error that wraps errors.ErrUnsupported.
func (*Conn) InhibitDelayMax(context.Context) (time.Duration, error) { return 0, unsupportedError() }

// PreparingForShutdown returns an error that wraps errors.ErrUnsupported.
func (*Conn) PreparingForShutdown(context.Context) (bool, error) { return false, unsupportedError() }

// Inhibit returns an error that wraps errors.ErrUnsupported.
func (*Conn) Inhibit(context.Context, string, string) (*os.File, error) {
	return nil, unsupportedError()
}

// Reload returns an error that wraps errors.ErrUnsupported.
func (*Conn) Reload(context.Context) error { return unsupportedError() }

// Watch returns an error that wraps errors.ErrUnsupported.
func (*Conn) Watch(context.Context, func(bool)) error { return unsupportedError() }
