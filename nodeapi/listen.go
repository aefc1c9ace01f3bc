// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"
)

// listenRetry is the time between two attempts of ListenAndRun to listen, as in the kubelet.
const listenRetry = 5 * time.Second

// ListenAndRun serves handler without TLS on a TCP address such as "127.0.0.1:10248" until ctx ends: see [Server.Run]. While it cannot listen, for
// example because another program has the port, it logs the error and retries every 5 s.
func (s *Server) ListenAndRun(ctx context.Context, address string, handler http.Handler) error {
	for {
		listeners, err := ListenAll(ctx, address)
		if err == nil {
			return s.Run(ctx, Endpoint{Listener: listeners[0], Handler: handler})
		}
		s.o.Logger.Error("listen", "address", address, "retryIn", listenRetry, "error", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(listenRetry):
		}
	}
}

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
