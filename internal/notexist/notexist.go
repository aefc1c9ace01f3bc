// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package notexist removes the error of a missing file from the result of a call that may find none, such as os.Remove.
package notexist

import (
	"errors"
	"io/fs"
)

// Ignore returns nil for an error that is [fs.ErrNotExist], and err otherwise.
func Ignore(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
