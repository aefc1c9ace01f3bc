// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package netns

import (
	"errors"
	"fmt"
)

var errUnsupported = fmt.Errorf("network namespaces are a feature of Linux: %w", errors.ErrUnsupported)

// Do returns an error: network namespaces are not supported on this system.
func Do(path string, _ func() error) error {
	return &Error{Op: "enter", Path: path, Err: errUnsupported}
}

func createAndMount(string) error { return errUnsupported }
func unmount(string) error        { return errUnsupported }
func isMounted(string) bool       { return false }
func bindOverItself(string) error { return errUnsupported }
