// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package apiserver

import (
	"errors"
	"fmt"
	"io/fs"
)

// ensurePrivate returns an error that wraps [errors.ErrUnsupported], because directories have no owner and mode on this operating
// system.
func ensurePrivate(string, fs.FileInfo) error {
	return fmt.Errorf("owner and mode of directories: %w", errors.ErrUnsupported)
}
