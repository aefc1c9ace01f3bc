// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package blockdev

import (
	"context"
	"errors"
)

func isSameDevice(string, string) (bool, error) { return false, errors.ErrUnsupported }

func attachLoop(context.Context, string) error { return errors.ErrUnsupported }

func detachLoop(context.Context, string) error { return errors.ErrUnsupported }
