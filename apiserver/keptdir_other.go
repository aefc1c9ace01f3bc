// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package apiserver

import (
	"errors"
	"fmt"
	"io/fs"
)

// private cannot be had where files have no owner and mode.
func private(string, fs.FileInfo) error {
	return fmt.Errorf("owner and mode of directories: %w", errors.ErrUnsupported)
}
