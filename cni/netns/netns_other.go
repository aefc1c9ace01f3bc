// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package netns

import (
	"errors"
	"fmt"
)

var errUnsupported = fmt.Errorf("network namespaces are a feature of Linux: %w", errors.ErrUnsupported)

// Do calls f in the network namespace at a path. On this system it fails.
func Do(path string, _ func() error) error {
	return &Error{Op: "enter", Path: path, Err: errUnsupported}
}

func pin(string) error            { return errUnsupported }
func unpin(string) error          { return errUnsupported }
func pinned(string) bool          { return false }
func bindOverItself(string) error { return errUnsupported }
