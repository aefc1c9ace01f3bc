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

// dialSocket returns an error, because plugins are supported only on Linux.
func dialSocket(context.Context, string) (net.Conn, error) {
	return nil, fmt.Errorf("plugins: %w", errors.ErrUnsupported)
}
