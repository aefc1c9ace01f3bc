// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package pluginregistry

import (
	"errors"
	"fmt"
)

// scanDir returns an error, because plugins are supported only on Linux.
func scanDir(string) (sockets map[string]socketID, dirs []string, err error) {
	return nil, nil, fmt.Errorf("plugins: %w", errors.ErrUnsupported)
}
