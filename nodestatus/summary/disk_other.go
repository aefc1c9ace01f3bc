// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package summary

import (
	"context"
	"errors"
	"fmt"
)

func statfs(path string) (Filesystem, error) {
	return Filesystem{}, fmt.Errorf("statfs %s: %w", path, errors.ErrUnsupported)
}

func (w *walk) run(context.Context, string) error {
	return fmt.Errorf("measuring directories: %w", errors.ErrUnsupported)
}
