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

// Names on the bus.
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

// matchJobs asks a message bus for the results of jobs.
const matchJobs = "type='signal',sender='" + busName + "',path='" + managerPath + "',interface='" + manager +
	"',member='" + jobRemoved + "'"

// conn is a connection to systemd.
type conn struct {
	wire    *wire
	bus     *dbus.Conn
	jobs    *jobs
	version int
}

// dialAny connects to the first socket behind which systemd answers. Each gets a share of the time, so that one that
// hangs does not use up what the next needs.
func dialAny(ctx context.Context, sockets []Socket, timeout time.Duration) (*conn, error) {
	var failed error
	for _, s := range sockets {
		share, cancel := context.WithTimeout(ctx, timeout/time.Duration(len(sockets)))
		c, err := dial(share, s, timeout)
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

// dial connects to a socket. The deadlines of the socket bound what the library does without a context:
// authentication, and sending to a peer that no longer reads.
func dial(ctx context.Context, s Socket, timeout time.Duration) (*conn, error) {
	raw, err := new(net.Dialer).DialContext(ctx, "unix", s.Path)
	if err != nil {
		return nil, err
	}
	c := &conn{wire: &wire{Conn: raw, in: bufio.NewReader(raw), timeout: timeout}, jobs: newJobs()}
	c.bus, err = dbus.NewConn(c.wire, dbus.WithSignalHandler(c.jobs))
	if err != nil {
		return nil, errors.Join(err, raw.Close())
	}
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	err = c.greet(ctx, s)
	if stopped := stop(); err == nil && !stopped {
		err = ctx.Err()
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// greet authenticates, subscribes to the results of jobs, and asks for the version of systemd, which also tells that
// systemd is there at all.
func (c *conn) greet(ctx context.Context, s Socket) error {
	if err := c.bus.Auth([]dbus.Auth{dbus.AuthExternal(strconv.Itoa(os.Geteuid()))}); err != nil {
		return step(ctx, "authenticate", err)
	}
	if s.Bus {
		if err := c.bus.BusObject().CallWithContext(ctx, hello, 0).Err; err != nil {
			return step(ctx, "register with the bus", err)
		}
		if err := c.bus.BusObject().CallWithContext(ctx, addMatch, 0, matchJobs).Err; err != nil {
			return step(ctx, "subscribe to jobs", err)
		}
	}
	text, err := c.askVersion(ctx)
	if err != nil {
		return step(ctx, "ask for the version", err)
	}
	c.version, err = parseVersion(text)
	return err
}

// askVersion asks again and again, since systemd behind its own socket may not notice the first question: what it reads
// together with the end of authentication waits for the next message to come (seen with systemd 252).
func (c *conn) askVersion(ctx context.Context) (text string, err error) {
	for timeout := firstDelay; ; timeout *= 2 {
		attempt, cancel := context.WithTimeout(ctx, timeout)
		err = c.get(attempt, managerPath, manager, "Version", &text)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return text, err
		}
	}
}

// step says what was being done. The end of ctx closes the socket, so that is the cause then.
func step(ctx context.Context, what string, err error) error {
	return fmt.Errorf("%s: %w", what, cmp.Or(ctx.Err(), err))
}

// call calls a method of the manager.
func (c *conn) call(ctx context.Context, method string, args ...any) *dbus.Call {
	return c.object(managerPath).CallWithContext(ctx, manager+"."+method, 0, args...)
}

// get stores a property of an object in value.
func (c *conn) get(ctx context.Context, path dbus.ObjectPath, iface, name string, value any) error {
	return c.object(path).CallWithContext(ctx, getProperty, 0, iface, name).Store(value)
}

func (c *conn) object(path dbus.ObjectPath) dbus.BusObject { return c.bus.Object(busName, path) }

func (c *conn) lost() bool { return c.wire.broken.Load() || !c.bus.Connected() }

// done is closed when the connection is lost.
func (c *conn) done() <-chan struct{} { return c.bus.Context().Done() }

// close ends the connection. The socket goes first: the library waits for who is just sending.
func (c *conn) close() {
	_ = c.wire.Close()
	_ = c.bus.Close()
}

// parseVersion reads what distributions make of a version, such as "252.38-1~deb12u1" or "v245.4-1.fc32".
func parseVersion(s string) (int, error) {
	digits := strings.TrimPrefix(s, "v")
	if end := strings.IndexFunc(digits, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
		digits = digits[:end]
	}
	v, err := strconv.Atoi(digits)
	if err != nil {
		return 0, fmt.Errorf("parse version %q of systemd: no number", s)
	}
	return v, nil
}

// wire is a socket whose writes end in time, so that a peer that stops reading holds up nobody for ever.
type wire struct {
	net.Conn
	in      *bufio.Reader
	timeout time.Duration
	broken  atomic.Bool // half a message may have been sent
}

// Read reads ahead: the library asks for a few bytes at a time.
func (w *wire) Read(p []byte) (int, error) { return w.in.Read(p) }

// Write writes within the timeout.
func (w *wire) Write(p []byte) (int, error) {
	_ = w.SetWriteDeadline(time.Now().Add(w.timeout)) // fails where Write does
	n, err := w.Conn.Write(p)
	if err != nil {
		w.broken.Store(true)
	}
	return n, err
}
