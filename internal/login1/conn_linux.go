// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package login1

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/seed81659283/nodeagent/internal/sleep"
)

// Names on the bus.
const (
	busName     = "org.freedesktop.login1"
	managerPath = "/org/freedesktop/login1"
	manager     = "org.freedesktop.login1.Manager"
	prepare     = "PrepareForShutdown"
	systemdName = "org.freedesktop.systemd1"
	systemdPath = "/org/freedesktop/systemd1"
	getProperty = "org.freedesktop.DBus.Properties.Get"
	hello       = "org.freedesktop.DBus.Hello"
	addMatch    = "org.freedesktop.DBus.AddMatch"
)

// matchShutdown asks the bus for the signal about a shutdown.
const matchShutdown = "type='signal',sender='" + busName + "',path='" + managerPath + "',interface='" + manager + "',member='" + prepare + "'"

// Conn is a connection to logind. Close ends it.
type Conn struct {
	bus     *dbus.Conn
	raw     *net.UnixConn
	timeout time.Duration
	signal  chan struct{} // holds a token when logind has said something
}

// Dial connects, and asks for signals about shutdowns.
func Dial(ctx context.Context, o Options) (*Conn, error) {
	o.Socket, o.Timeout = cmp.Or(o.Socket, SystemSocket), cmp.Or(o.Timeout, defaultTimeout)
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	c, err := dial(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("connect to logind by %s: %w", o.Socket, cmp.Or(ctx.Err(), err))
	}
	return c, nil
}

func dial(ctx context.Context, o Options) (*Conn, error) {
	raw, err := new(net.Dialer).DialContext(ctx, "unix", o.Socket)
	if err != nil {
		return nil, err
	}
	unix, ok := raw.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("a %T passes no file descriptors", raw), raw.Close())
	}
	c := &Conn{raw: unix, timeout: o.Timeout, signal: make(chan struct{}, 1)}
	if c.bus, err = dbus.DialUnix(unix, dbus.WithSignalHandler(c)); err != nil {
		return nil, errors.Join(err, raw.Close())
	}
	// The socket is closed under what the library does without a context.
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	err = c.greet(ctx)
	if stopped := stop(); err == nil && !stopped {
		err = ctx.Err()
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (c *Conn) greet(ctx context.Context) error {
	if err := c.bus.Auth([]dbus.Auth{dbus.AuthExternal(strconv.Itoa(os.Geteuid()))}); err != nil {
		return fmt.Errorf("authenticate: %w", err)
	}
	if err := c.bus.BusObject().CallWithContext(ctx, hello, 0).Err; err != nil {
		return fmt.Errorf("register with the bus: %w", err)
	}
	if err := c.bus.BusObject().CallWithContext(ctx, addMatch, 0, matchShutdown).Err; err != nil {
		return fmt.Errorf("subscribe to %s: %w", prepare, err)
	}
	return nil
}

// Close ends the connection. Inhibitors stay: they are files of their own.
func (c *Conn) Close() {
	_ = c.raw.Close() // first: the library waits for who is just sending
	_ = c.bus.Close()
}

// DeliverSignal implements [dbus.SignalHandler]. It does not block.
func (c *Conn) DeliverSignal(iface, name string, _ *dbus.Signal) {
	if iface == manager && name == prepare {
		sleep.Wake(c.signal)
	}
}

// InhibitDelayMax returns how long a shutdown waits for inhibitors at most.
func (c *Conn) InhibitDelayMax(ctx context.Context) (time.Duration, error) {
	var micros uint64
	if err := c.property(ctx, "InhibitDelayMaxUSec", &micros); err != nil {
		return 0, err
	}
	return time.Duration(min(micros, math.MaxInt64/uint64(time.Microsecond))) * time.Microsecond, nil
}

// PreparingForShutdown reports whether a shutdown has begun.
func (c *Conn) PreparingForShutdown(ctx context.Context) (is bool, err error) {
	err = c.property(ctx, "PreparingForShutdown", &is)
	return is, err
}

func (c *Conn) property(ctx context.Context, name string, value any) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	if err := c.bus.Object(busName, managerPath).CallWithContext(ctx, getProperty, 0, manager, name).Store(value); err != nil {
		return fmt.Errorf("read %s of logind: %w", name, err)
	}
	return nil
}

// Inhibit has a shutdown wait until the file is closed. Who and why are shown by systemd-inhibit. It does not end with ctx, but after
// Options.Timeout: nobody would close a file that comes later.
func (c *Conn) Inhibit(ctx context.Context, who, why string) (*os.File, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.timeout)
	defer cancel()
	if !c.bus.SupportsUnixFDs() {
		return nil, errors.New("inhibit shutdown: the message bus passes no file descriptors")
	}
	var fd dbus.UnixFD
	call := c.bus.Object(busName, managerPath).CallWithContext(ctx, manager+".Inhibit", 0, "shutdown", who, why, "delay")
	if err := call.Store(&fd); err != nil {
		return nil, fmt.Errorf("inhibit shutdown: %w", err)
	}
	return os.NewFile(uintptr(fd), "inhibitor"), nil
}

// Reload has logind read its configuration again. It returns before that has been done.
func (c *Conn) Reload(ctx context.Context) error {
	const hangup = int32(1)
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	call := c.bus.Object(systemdName, systemdPath).CallWithContext(ctx, systemdName+".Manager.KillUnit", 0, "systemd-logind.service", "all", hangup)
	if call.Err != nil {
		return fmt.Errorf("reload logind: %w", call.Err)
	}
	return nil
}

// Watch calls fn with whether a shutdown has begun, now and whenever that changes, until ctx ends, and then returns nil. The error is
// that of a connection that is lost, and of a question without an answer.
func (c *Conn) Watch(ctx context.Context, fn func(shutdown bool)) error {
	known, was := false, false
	for {
		is, err := c.PreparingForShutdown(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // it is the end that was asked for
		}
		if err != nil {
			return err
		}
		if !known || is != was {
			known, was = true, is
			fn(is)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-c.bus.Context().Done():
			return errors.New("watch logind: the connection is lost")
		case <-c.signal:
		}
	}
}
