// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package atomicwriter

import (
	"errors"
	"fmt"
)

func writePayload(path string, _ []entry, _ Options, _ func(string) error) (changed bool, err error) {
	return false, fmt.Errorf("write payload into %s: %w", path, errors.ErrUnsupported)
}
