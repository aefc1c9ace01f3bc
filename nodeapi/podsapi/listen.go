// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podsapi

import (
	"fmt"
	"net"

	"github.com/seed81659283/nodeagent/internal/privatesocket"
)

// Listen listens on a unix socket with mode 0600 at path, which may have at most about 100 bytes. It creates the directory with
// mode 0750. It replaces an old socket on which no process listens; any other existing file is an error. Closing the listener
// removes the socket, unless another process has replaced it.
func Listen(path string) (net.Listener, error) {
	l, err := privatesocket.Listen(path)
	if err != nil {
		return nil, fmt.Errorf("listen on socket %s: %w", path, err)
	}
	return l, nil
}
