// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package dirent

import (
	"errors"
	"fmt"
)

func readBlock(int, []byte, func([]byte, Type)) (int, error) {
	return 0, fmt.Errorf("getdents: %w", errors.ErrUnsupported)
}
