// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/internal/backoff"
	"github.com/seed81659283/nodeagent/internal/plugingrpc"
	"github.com/seed81659283/nodeagent/internal/sleep"
)

// Reasons for which the host ends a session.
var (
	errReplaced     = errors.New("a newer registration of the socket replaces it")
	errDeregistered = errors.New("the plugin is deregistered")
	errAbandoned    = errors.New("the Register call has ended")
)

// Periods of a session.
const (
	optionsTimeout = 10 * time.Second // of GetDevicePluginOptions
	warnPeriod     = time.Minute      // least time between two logged errors of lists
)

// dialPolicy is the back-off between attempts to connect to a socket.
func dialPolicy() backoff.Policy {
	return backoff.Policy{First: 10 * time.Millisecond, Max: 500 * time.Millisecond}
}

// sessionKey identifies a plugin. A newer session with an equal key replaces an older session.
type sessionKey struct{ resource, socket string }

// session is the connection to one registered plugin, from its registration until its stream of device lists ends.
type session struct {
	key   sessionKey
	retry bool // retry the connection until [plugingrpc.Timeout]

	dialed chan struct{} // closed when the socket has accepted the connection
	ready  chan struct{} // closed when the plugin is connected, or err is set
	done   chan struct{} // closed when the session has ended
	err    error         // reason why the plugin is not connected; set before ready is closed

	previous  []*session // sessions of this key that had not ended at the start; nil later
	connected bool       // the receiver has the plugin; Host.mu guards it
	warned    time.Time  // when an error of a list was last logged

	mu     sync.Mutex // guards the fields below
	cancel context.CancelCauseFunc
	reason error // of stop
}

func newSession(resource, socket string, retry bool) *session {
	return &session{
		key: sessionKey{resource, socket}, retry: retry,
		dialed: make(chan struct{}), ready: make(chan struct{}), done: make(chan struct{}),
	}
}

// bindContext derives the context of the session from ctx. [session.stop] cancels it.
func (s *session) bindContext(ctx context.Context) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	ctx, s.cancel = context.WithCancelCause(ctx)
	if s.reason != nil {
		s.cancel(s.reason)
	}
	return ctx
}

// stop cancels the context of the session with reason, also if bindContext is called later. It does not wait until the session has ended.
func (s *session) stop(reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reason == nil {
		s.reason = reason
	}
	if s.cancel != nil {
		s.cancel(reason)
	}
}

func (s *session) finishConnect(err error) {
	s.err = err
	close(s.ready)
}

// runSession connects the plugin of s, passes its device lists to the feed, and returns when the stream has ended.
func (h *Host) runSession(ctx context.Context, s *session) {
	defer h.removeSession(s)
	defer s.stop(nil)
	defer func() { s.previous = nil }() // otherwise each session would retain all sessions of its key before it
	log := h.opts.Logger.With("resource", s.key.resource, "socket", s.key.socket)
	c, feed, err := h.connectPlugin(ctx, s)
	if err != nil && context.Cause(ctx) != nil {
		err = context.Cause(ctx)
	}
	s.finishConnect(err)
	if err != nil {
		level := slog.LevelWarn
		if !s.retry {
			level = slog.LevelInfo // the plugin may have stopped while the host did not run
		}
		log.Log(ctx, level, "device plugin is not connected", "error", err)
		return
	}
	for _, p := range s.previous {
		p.stop(errReplaced)
		<-p.done
	}
	s.previous = nil
	log.Info("device plugin is connected", "preStart", c.options.PreStart, "preferred", c.options.Preferred)
	err = h.watchDevices(ctx, s, c, feed)
	c.close()
	feed.Close()
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	log.Info("device plugin is disconnected", "reason", err)
}

// removeSession records that s has ended.
func (h *Host) removeSession(s *session) {
	h.mu.Lock()
	defer h.mu.Unlock()
	left := slices.DeleteFunc(slices.Clone(h.sessions[s.key]), func(other *session) bool { return other == s })
	if h.sessions[s.key] = left; len(left) == 0 {
		delete(h.sessions, s.key)
	}
	h.count--
	close(s.done)
}

// connectPlugin connects to the plugin of s and passes it to the receiver. It first waits until earlier sessions of s.key are connected or have
// failed, so that the receiver gets plugins in the order of their registrations.
func (h *Host) connectPlugin(ctx context.Context, s *session) (*client, device.Feed, error) {
	conn, err := s.dialSocket(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("failed to dial device plugin: %w", err) // the kubelet's text
	}
	close(s.dialed)
	c, err := newClient(ctx, conn, s.key.socket)
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	for _, p := range s.previous {
		<-p.ready
	}
	if ctx.Err() != nil {
		c.close()
		return nil, nil, ctx.Err()
	}
	feed, err := h.opts.Receiver.Connect(s.key.resource, s.key.socket, c)
	if err != nil {
		c.close()
		return nil, nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	s.connected = true
	return c, feed, nil
}

// dialSocket connects to the socket of s. If s.retry is true, it retries until [plugingrpc.Timeout], unless the file at the path is no socket.
func (s *session) dialSocket(ctx context.Context) (*grpc.ClientConn, error) {
	ctx, cancel := context.WithTimeout(ctx, plugingrpc.Timeout)
	defer cancel()
	for failures := 1; ; failures++ {
		conn, err := plugingrpc.ConnectWithLimit(ctx, s.key.socket, maxList)
		if err == nil || !s.retry || errors.Is(err, fs.ErrInvalid) || errors.Is(err, errors.ErrUnsupported) {
			return conn, err
		}
		if sleep.For(ctx, dialPolicy().After(failures)) != nil {
			return nil, err
		}
	}
}

// watchDevices passes the device lists of plugin c to feed. It returns the error that ended the stream.
func (h *Host) watchDevices(ctx context.Context, s *session, c *client, feed device.Feed) error {
	stream, err := c.api.ListAndWatch(ctx, &api.Empty{})
	if err != nil {
		return err
	}
	for {
		list, err := stream.Recv()
		if err != nil {
			return shortenError(err)
		}
		devices, err := convertDevices(list.GetDevices())
		if err == nil {
			err = feed.Update(devices)
		}
		if err != nil && time.Since(s.warned) >= warnPeriod {
			s.warned = time.Now()
			h.opts.Logger.Warn("list of device plugin is rejected", "resource", s.key.resource, "socket", s.key.socket, "error", err)
		}
	}
}
