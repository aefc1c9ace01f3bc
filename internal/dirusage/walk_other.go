// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package dirusage

import (
	"context"
	"errors"
	"fmt"
)

// Run returns [errors.ErrUnsupported] on this system.
func (w *Walk) Run(context.Context, string) error {
	return fmt.Errorf("measuring directories: %w", errors.ErrUnsupported)
}
