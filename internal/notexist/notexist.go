// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package notexist ignores errors about a missing file, such as the error of os.Remove.
package notexist

import (
	"errors"
	"io/fs"
)

// Ignore returns nil if err wraps [fs.ErrNotExist], and err otherwise.
func Ignore(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
