// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/godbus/dbus/v5"
)

// D-Bus names, object paths, interfaces and methods of systemd and the message bus.
const (
	busName     = "org.freedesktop.systemd1"
	managerPath = "/org/freedesktop/systemd1"
	manager     = "org.freedesktop.systemd1.Manager"
	anyUnit     = "org.freedesktop.systemd1.Unit"
	getProperty = "org.freedesktop.DBus.Properties.Get"
	getAll      = "org.freedesktop.DBus.Properties.GetAll"
	hello       = "org.freedesktop.DBus.Hello"
	addMatch    = "org.freedesktop.DBus.AddMatch"
	jobRemoved  = "JobRemoved"
)

// matchJobs is the match rule that subscribes to systemd's JobRemoved signals on a message bus.
const matchJobs = "type='signal',sender='" + busName + "',path='" + managerPath + "',interface='" + manager +
	"',member='" + jobRemoved + "'"

// conn is an authenticated D-Bus connection to systemd, directly or through a message bus.
type conn struct {
	wire    *wire
	bus     *dbus.Conn
	jobs    *jobs
	version int
}

// dialAny returns a connection to the first socket on which systemd replies.
func dialAny(ctx context.Context, sockets []Socket, timeout time.Duration) (*conn, error) {
	var failed error
	for _, s := range sockets {
		// an equal share for each socket, so that a hanging socket leaves time for the next
		share, cancel := context.WithTimeout(ctx, timeout/time.Duration(len(sockets)))
		c, err := dialSocket(share, s, timeout)
		cancel()
		if err == nil {
			return c, nil
		}
		err = fmt.Errorf("%s: %w", s.Path, err)
		if failed != nil {
			err = fmt.Errorf("%w; %w", failed, err)
		}
		failed = err
	}
	return nil, failed
}

// dialSocket connects to a socket and performs the D-Bus handshake.
func dialSocket(ctx context.Context, socket Socket, timeout time.Duration) (*conn, error) {
	raw, err := new(net.Dialer).DialContext(ctx, "unix", socket.Path)
	if err != nil {
		return nil, err
	}
	c := &conn{wire: &wire{socket: raw, in: bufio.NewReader(raw), timeout: timeout}, jobs: newJobs()}
	c.bus, err = dbus.NewConn(c.wire, dbus.WithSignalHandler(c.jobs))
	if err != nil {
		return nil, errors.Join(err, raw.Close())
	}
	// some calls of the D-Bus library take no context, but they end when the socket is closed
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	err = c.handshake(ctx, socket)
	if stopped := stop(); err == nil && !stopped {
		err = ctx.Err()
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// handshake authenticates, subscribes to the results of jobs, and reads the version of systemd. The version proves that
// systemd itself replies.
func (c *conn) handshake(ctx context.Context, socket Socket) error {
	if err := c.bus.Auth([]dbus.Auth{dbus.AuthExternal(strconv.Itoa(os.Geteuid()))}); err != nil {
		return wrapStep(ctx, "authenticate", err)
	}
	if socket.Bus {
		if err := c.bus.BusObject().CallWithContext(ctx, hello, 0).Err; err != nil {
			return wrapStep(ctx, "register with the bus", err)
		}
		if err := c.bus.BusObject().CallWithContext(ctx, addMatch, 0, matchJobs).Err; err != nil {
			return wrapStep(ctx, "subscribe to jobs", err)
		}
	}
	text, err := c.queryVersion(ctx)
	if err != nil {
		return wrapStep(ctx, "query version", err)
	}
	c.version, err = parseVersion(text)
	return err
}

// queryVersion reads the version of systemd, with a growing timeout.
func (c *conn) queryVersion(ctx context.Context) (text string, err error) {
	// systemd 252 may ignore the first message on its private socket until another one arrives, if it arrives with the end
	// of the authentication
	for timeout := firstDelay; ; timeout *= 2 {
		attempt, cancel := context.WithTimeout(ctx, timeout)
		err = c.readProperty(attempt, managerPath, manager, "Version", &text)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return text, err
		}
	}
}

// wrapStep adds the name of a handshake step to err, or to the error of ctx if that has ended.
func wrapStep(ctx context.Context, step string, err error) error {
	return fmt.Errorf("%s: %w", step, cmp.Or(ctx.Err(), err))
}

// callManager calls a method of systemd's Manager interface.
func (c *conn) callManager(ctx context.Context, method string, args ...any) *dbus.Call {
	return c.busObject(managerPath).CallWithContext(ctx, manager+"."+method, 0, args...)
}

// readProperty reads a property of the object at path, and stores it in *value. The argument value must be a pointer.
func (c *conn) readProperty(ctx context.Context, path dbus.ObjectPath, iface, name string, value any) error {
	return c.busObject(path).CallWithContext(ctx, getProperty, 0, iface, name).Store(value)
}

func (c *conn) busObject(path dbus.ObjectPath) dbus.BusObject { return c.bus.Object(busName, path) }

func (c *conn) isLost() bool { return c.wire.broken.Load() || !c.bus.Connected() }

// disconnected returns a channel that is closed when the connection is lost.
func (c *conn) disconnected() <-chan struct{} { return c.bus.Context().Done() }

// close closes the connection. It closes the socket first, because the D-Bus library waits for running writes.
func (c *conn) close() {
	_ = c.wire.Close()
	_ = c.bus.Close()
}

// parseVersion returns the major version of systemd, for example 252 for "252.38-1~deb12u1" and 245 for "v245.4-1.fc32".
func parseVersion(text string) (int, error) {
	digits := strings.TrimPrefix(text, "v")
	if end := strings.IndexFunc(digits, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
		digits = digits[:end]
	}
	v, err := strconv.Atoi(digits)
	if err != nil {
		return 0, fmt.Errorf("parse version %q of systemd: not a number", text)
	}
	return v, nil
}

// wire is a socket with a write timeout, so that a peer that stops reading does not block the client.
type wire struct {
	socket  net.Conn
	in      *bufio.Reader
	timeout time.Duration
	broken  atomic.Bool // a message may have been sent in part
}

// Read reads from the socket through a buffer, because the D-Bus library reads only a few bytes at a time.
func (w *wire) Read(data []byte) (int, error) { return w.in.Read(data) }

// Write writes data to the socket. It returns an error if systemd does not read the data within the timeout.
func (w *wire) Write(data []byte) (int, error) {
	_ = w.socket.SetWriteDeadline(time.Now().Add(w.timeout)) // fails where Write does
	n, err := w.socket.Write(data)
	if err != nil {
		w.broken.Store(true)
	}
	return n, err
}

// Close closes the socket.
func (w *wire) Close() error { return w.socket.Close() }
