// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package machine

import (
	"errors"
	"fmt"
)

// diskSize is implemented on Linux only.
func diskSize(path string) (int64, error) {
	return 0, fmt.Errorf("size of the file system of %s: %w", path, errors.ErrUnsupported)
}
