// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package stats

import (
	"errors"
	"fmt"
)

func statfs(path string) (Filesystem, error) {
	return Filesystem{}, fmt.Errorf("statfs %s: %w", path, errors.ErrUnsupported)
}
