// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"sync"

	"github.com/seed81659283/nodeagent/internal/pluginregistry"
	"github.com/seed81659283/nodeagent/internal/runonce"
)

// Host registers and connects device plugins. Create it with [New]. Its methods may be called from any goroutine.
type Host struct {
	opts   Options
	guard  runonce.Guard
	starts chan *session // sessions that Run must start
	ended  chan struct{} // closed when Run returns

	registry *pluginregistry.Watcher // nil: Options.Registry is empty

	mu        sync.Mutex                // guards the fields below
	sessions  map[sessionKey][]*session // that have not ended, the newest last
	count     int                       // of sessions
	serverErr error                     // last error of the registration server; nil: it serves
}

// New returns a host with opts, and starts nothing; call [Host.Run]. If an option is invalid, the error names it.
func New(opts Options) (*Host, error) {
	if err := opts.validate(); err != nil {
		return nil, err
	}
	h := &Host{opts: opts, starts: make(chan *session), ended: make(chan struct{}), sessions: map[sessionKey][]*session{}}
	if err := h.openRegistry(); err != nil {
		return nil, err
	}
	h.guard.Require("plugin.Host", opts.Logger, nil)
	return h, nil
}

// Run serves the registration API on Dir/kubelet.sock and reads the device lists of plugins, until ctx ends. It creates Options.Dir. It restarts a
// failed server after a pause; until then, [Host.Check] returns the error. When Run returns, all feeds are closed. Call Run only once.
func (h *Host) Run(ctx context.Context) error {
	if err := h.guard.Begin(); err != nil {
		return fmt.Errorf("device/plugin: %w", err)
	}
	defer h.guard.End()
	defer close(h.ended)
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	wg.Go(func() { h.serveRegistration(ctx) })
	if h.registry != nil {
		wg.Go(func() { _ = h.registry.Run(ctx) }) // its only error is a second call
	}
	for _, s := range h.opts.Sockets {
		h.startSession(ctx, &wg, newSession(s.Resource, s.Path, false))
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case s := <-h.starts:
			h.startSession(ctx, &wg, s)
		}
	}
}

// Check returns the error of the registration server while plugins cannot register, or nil. It is the kubelet's health check
// "device-plugin". Source: pkg/kubelet/cm/devicemanager/plugin/v1beta1/server.go.
func (h *Host) Check() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.serverErr == nil {
		return nil
	}
	return fmt.Errorf("device registration error: device plugin registration gRPC server failed and no device plugins can register: %w", h.serverErr)
}

func (h *Host) setServerError(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.serverErr = err
}

// startSession starts the goroutine of s. It cancels sessions of this resource and socket that are not connected yet; a connected session ends when s
// is connected. Only Run calls it.
func (h *Host) startSession(ctx context.Context, wg *sync.WaitGroup, s *session) {
	ctx = s.bindContext(ctx)
	h.mu.Lock()
	if h.count >= maxPlugins {
		h.mu.Unlock()
		s.stop(nil)
		s.finishConnect(fmt.Errorf("connect device plugin of resource %s at socket %s: %d device plugins are connected or connecting, and no more are allowed",
			s.key.resource, s.key.socket, maxPlugins))
		close(s.done)
		return
	}
	h.count++
	s.previous = append(s.previous, h.sessions[s.key]...)
	h.sessions[s.key] = append(h.sessions[s.key], s)
	for _, p := range s.previous {
		if !p.connected {
			p.stop(errReplaced)
		}
	}
	h.mu.Unlock()
	wg.Go(func() { h.runSession(ctx, s) })
}
