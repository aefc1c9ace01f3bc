// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"context"
	"errors"
	"net"
)

// ListenAll listens on TCP addresses such as "127.0.0.1:10248". It returns one listener per address, in the same order, for
// the endpoints of [Server.Run]. If one address fails, it closes all listeners and returns the error.
func ListenAll(ctx context.Context, addresses ...string) (listeners []net.Listener, err error) {
	for _, address := range addresses {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		if err != nil {
			for _, open := range listeners {
				err = errors.Join(err, open.Close())
			}
			return nil, err
		}
		listeners = append(listeners, l)
	}
	return listeners, nil
}
