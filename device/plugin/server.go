// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/seed81659283/nodeagent/internal/backoff"
	"github.com/seed81659283/nodeagent/internal/sleep"
)

// Files in Options.Dir, as in the kubelet.
const (
	socketName      = "kubelet.sock"
	deprecationName = "DEPRECATION"
)

// Limits of the registration server.
const (
	maxRequest     = 16 << 10 // bytes of a Register call, and of its headers
	maxStreams     = 16       // concurrent calls of one connection
	maxConns       = 256
	handshakeLimit = 10 * time.Second
	idleLimit      = time.Minute // before an unused connection is closed
	probeTimeout   = time.Second // of the connection to an existing kubelet.sock
	stableTime     = time.Minute // after which a failure counts as the first
)

// serverPolicy is the back-off between two starts of the registration server.
func serverPolicy() backoff.Policy {
	return backoff.Policy{First: 500 * time.Millisecond, Max: 30 * time.Second}
}

// serveRegistration serves the registration API until ctx ends. It restarts a failed server after a pause.
func (h *Host) serveRegistration(ctx context.Context) {
	defer h.setServerError(nil)
	for failures := 1; ; failures++ {
		begin := time.Now()
		err := h.runServer(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(begin) >= stableTime {
			failures = 1
		}
		h.setServerError(err)
		pause := serverPolicy().After(failures)
		h.opts.Logger.Error("registration server of device plugins failed", "dir", h.opts.Dir, "retryAfter", pause, "error", err)
		if sleep.For(ctx, pause) != nil {
			return
		}
	}
}

// runServer runs the registration server until it fails or ctx ends. When runServer returns, its goroutines have returned.
func (h *Host) runServer(ctx context.Context) error {
	l, err := h.listenOnSocket(ctx)
	if err != nil {
		return err
	}
	g := grpc.NewServer(
		grpc.MaxRecvMsgSize(maxRequest),
		grpc.MaxHeaderListSize(maxRequest),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.ConnectionTimeout(handshakeLimit),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: idleLimit}),
		grpc.WaitForHandlers(true),
	)
	api.RegisterRegistrationServer(g, &registrar{host: h})
	h.setServerError(nil)
	served := make(chan error, 1)
	go func() {
		served <- g.Serve(&limitedListener{Listener: l, limit: maxConns, open: map[*limitedConn]bool{}})
	}()
	select {
	case <-ctx.Done():
		g.Stop()
		<-served
		return ctx.Err()
	case err := <-served:
		g.Stop()
		if err == nil {
			err = errors.New("the server has stopped")
		}
		return err
	}
}

// listenOnSocket creates Options.Dir, and listens on kubelet.sock. It replaces a socket on which no process listens.
func (h *Host) listenOnSocket(ctx context.Context) (net.Listener, error) {
	if err := os.MkdirAll(h.opts.Dir, 0o750); err != nil {
		return nil, err
	}
	path := filepath.Join(h.opts.Dir, socketName)
	if err := removeStaleSocket(ctx, path); err != nil {
		return nil, err
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if err := createDeprecationFile(h.opts.Dir); err != nil {
		h.opts.Logger.Warn("deprecation file is not created", "dir", h.opts.Dir, "error", err)
	}
	return l, nil
}

// removeStaleSocket removes the socket at path if no process listens there. A file that is no socket is an error.
func removeStaleSocket(ctx context.Context, path string) error {
	switch found, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case found.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("listen on %s: a file is there that is no socket: %s", path, found.Mode())
	}
	dialer := net.Dialer{Timeout: probeTimeout}
	conn, err := dialer.DialContext(ctx, "unix", path)
	switch {
	case err == nil:
		return errors.Join(fmt.Errorf("listen on %s: another process listens there", path), conn.Close())
	case errors.Is(err, syscall.ECONNREFUSED):
		err = os.Remove(path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// createDeprecationFile creates the empty file with which the kubelet marks its directory. An existing file stays. Source:
// pkg/kubelet/cm/devicemanager/plugin/v1beta1/handler.go.
func createDeprecationFile(dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, deprecationName), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return f.Close()
}

// limitedListener accepts connections. Above limit, it closes the connection whose last read is the longest ago, so that clients with idle
// connections lock out no plugin.
type limitedListener struct {
	net.Listener
	limit int

	mu   sync.Mutex // guards open
	open map[*limitedConn]bool
}

// Accept returns the next connection.
func (l *limitedListener) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &limitedConn{Conn: accepted, listener: l}
	c.lastRead.Store(time.Now().UnixNano())
	if removed := l.addConn(c); removed != nil {
		_ = removed.Conn.Close()
	}
	return c, nil
}

// addConn adds c. Above the limit, it removes and returns the connection with the oldest read, which the caller closes.
func (l *limitedListener) addConn(c *limitedConn) (removed *limitedConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.open) >= l.limit {
		for old := range l.open {
			if removed == nil || old.lastRead.Load() < removed.lastRead.Load() {
				removed = old
			}
		}
		delete(l.open, removed)
	}
	l.open[c] = true
	return removed
}

// limitedConn is a connection of a limitedListener.
type limitedConn struct {
	net.Conn
	listener *limitedListener
	lastRead atomic.Int64 // in Unix nanoseconds; at first the time of Accept
}

// Read reads from the connection.
func (c *limitedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.lastRead.Store(time.Now().UnixNano())
	return n, err
}

// Close closes the connection and removes it from the listener.
func (c *limitedConn) Close() error {
	c.listener.mu.Lock()
	delete(c.listener.open, c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}
