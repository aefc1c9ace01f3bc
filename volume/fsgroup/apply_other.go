// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package fsgroup

import (
	"context"
	"errors"
)

func applyGroup(context.Context, string, uint32, Options) error { return errors.ErrUnsupported }
