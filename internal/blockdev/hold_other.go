// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package blockdev

import (
	"context"
	"errors"
)

func same(string, string) (bool, error) { return false, errors.ErrUnsupported }

func hold(context.Context, string) error { return errors.ErrUnsupported }

func release(context.Context, string) error { return errors.ErrUnsupported }
