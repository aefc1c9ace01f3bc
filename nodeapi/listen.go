// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/seed81659283/nodeagent/internal/sleep"
)

// healthzRetry is the time between two attempts of RunHealthz to serve, as in the kubelet.
const healthzRetry = 5 * time.Second

// RunHealthz serves the page /healthz without TLS on a TCP address such as "127.0.0.1:10248" until ctx ends: see [Server.Healthz]. After each failure,
// for example because another program has the port, it logs the error and retries after 5 s. A nil logger discards. Source: cmd/kubelet/app/server.go.
func RunHealthz(ctx context.Context, address string, logger *slog.Logger) error {
	return runHealthz(ctx, func() (net.Listener, error) {
		return (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	}, healthzRetry, cmp.Or(logger, slog.New(slog.DiscardHandler)))
}

// runHealthz serves the page /healthz on the listeners that listen returns: on the next one when retry has passed after a failure.
func runHealthz(ctx context.Context, listen func() (net.Listener, error), retry time.Duration, logger *slog.Logger) error {
	for ctx.Err() == nil {
		l, err := listen()
		if err == nil {
			err = serveHealthz(ctx, l, logger)
		}
		if err != nil && ctx.Err() == nil {
			logger.Error("serve healthz", "retryIn", retry, "error", err)
			_ = sleep.For(ctx, retry)
		}
	}
	return nil
}

// serveHealthz serves the page /healthz on l, which it closes, until ctx ends or the listener fails.
func serveHealthz(ctx context.Context, l net.Listener, logger *slog.Logger) error {
	s, err := New(Options{Insecure: true, Logger: logger}) // a Server runs once
	if err != nil {
		return errors.Join(err, l.Close())
	}
	return s.Run(ctx, Endpoint{Listener: l, Handler: s.Healthz()})
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
