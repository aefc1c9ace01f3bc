// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package plugingrpc

import (
	"context"
	"errors"
	"fmt"
	"net"
)

// dialSocket returns an error: this system has no plugins.
func dialSocket(context.Context, string) (net.Conn, error) {
	return nil, fmt.Errorf("plugins: %w", errors.ErrUnsupported)
}
