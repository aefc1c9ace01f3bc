// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package pluginregistry

import (
	"errors"
	"fmt"
)

// scan returns that this system has no plugins.
func scan(string) (sockets map[string]identity, dirs []string, err error) {
	return nil, nil, fmt.Errorf("plugins: %w", errors.ErrUnsupported)
}
