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

// Names of D-Bus services, objects, interfaces and methods.
const (
	busName          = "org.freedesktop.login1"
	managerPath      = "/org/freedesktop/login1"
	managerInterface = "org.freedesktop.login1.Manager"
	shutdownSignal   = "PrepareForShutdown"
	systemdName      = "org.freedesktop.systemd1"
	systemdPath      = "/org/freedesktop/systemd1"
	getProperty      = "org.freedesktop.DBus.Properties.Get"
	helloMethod      = "org.freedesktop.DBus.Hello"
	addMatchMethod   = "org.freedesktop.DBus.AddMatch"
)

// matchShutdown is the match rule for the signal PrepareForShutdown of logind.
const matchShutdown = "type='signal',sender='" + busName + "',path='" + managerPath + "',interface='" + managerInterface + "',member='" + shutdownSignal + "'"

// Conn is a connection to systemd-logind over the system message bus.
type Conn struct {
	bus      *dbus.Conn
	socket   *net.UnixConn
	timeout  time.Duration
	signaled chan struct{} // capacity 1; DeliverSignal sends to it
}

// Dial connects to logind over the system message bus, and subscribes to the signal that logind sends about shutdowns.
func Dial(ctx context.Context, opts Options) (*Conn, error) {
	opts.Socket, opts.Timeout = cmp.Or(opts.Socket, SystemSocket), cmp.Or(opts.Timeout, defaultTimeout)
	ctx, cancel := context.WithTimeout(ctx, opts.Timeout)
	defer cancel()
	c, err := connect(ctx, opts)
	if err != nil {
		return nil, fmt.Errorf("connect to logind by %s: %w", opts.Socket, cmp.Or(ctx.Err(), err))
	}
	return c, nil
}

func connect(ctx context.Context, opts Options) (*Conn, error) {
	raw, err := new(net.Dialer).DialContext(ctx, "unix", opts.Socket)
	if err != nil {
		return nil, err
	}
	unix, ok := raw.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("a %T passes no file descriptors", raw), raw.Close())
	}
	c := &Conn{socket: unix, timeout: opts.Timeout, signaled: make(chan struct{}, 1)}
	if c.bus, err = dbus.DialUnix(unix, dbus.WithSignalHandler(c)); err != nil {
		return nil, errors.Join(err, raw.Close())
	}
	// The library calls below take no context, so the end of ctx closes the socket.
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	err = c.subscribe(ctx)
	if stopped := stop(); err == nil && !stopped {
		err = ctx.Err()
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (c *Conn) subscribe(ctx context.Context) error {
	if err := c.bus.Auth([]dbus.Auth{dbus.AuthExternal(strconv.Itoa(os.Geteuid()))}); err != nil {
		return fmt.Errorf("authenticate: %w", err)
	}
	if err := c.bus.BusObject().CallWithContext(ctx, helloMethod, 0).Err; err != nil {
		return fmt.Errorf("register with the bus: %w", err)
	}
	if err := c.bus.BusObject().CallWithContext(ctx, addMatchMethod, 0, matchShutdown).Err; err != nil {
		return fmt.Errorf("subscribe to %s: %w", shutdownSignal, err)
	}
	return nil
}

// Close closes the connection. An inhibitor remains in effect until its file is closed.
func (c *Conn) Close() {
	_ = c.socket.Close() // first, because the library waits for a blocked send
	_ = c.bus.Close()
}

// DeliverSignal wakes [Conn.Watch] if iface and name identify logind's signal about shutdowns. It does not block. It
// implements [dbus.SignalHandler].
func (c *Conn) DeliverSignal(iface, name string, _ *dbus.Signal) {
	if iface == managerInterface && name == shutdownSignal {
		sleep.Wake(c.signaled)
	}
}

// InhibitDelayMax returns the setting InhibitDelayMaxSec of logind: the longest time that a shutdown waits for inhibitors.
func (c *Conn) InhibitDelayMax(ctx context.Context) (time.Duration, error) {
	var micros uint64
	if err := c.readProperty(ctx, "InhibitDelayMaxUSec", &micros); err != nil {
		return 0, err
	}
	return time.Duration(min(micros, math.MaxInt64/uint64(time.Microsecond))) * time.Microsecond, nil
}

// PreparingForShutdown reports whether logind has started a shutdown.
func (c *Conn) PreparingForShutdown(ctx context.Context) (preparing bool, err error) {
	err = c.readProperty(ctx, "PreparingForShutdown", &preparing)
	return preparing, err
}

func (c *Conn) readProperty(ctx context.Context, name string, value any) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	if err := c.bus.Object(busName, managerPath).CallWithContext(ctx, getProperty, 0, managerInterface, name).Store(value); err != nil {
		return fmt.Errorf("read %s of logind: %w", name, err)
	}
	return nil
}

// Inhibit takes a delay inhibitor: a shutdown waits until the returned file is closed. systemd-inhibit lists it with the
// texts who and why. Inhibit takes at most Options.Timeout and ignores the cancellation of ctx.
func (c *Conn) Inhibit(ctx context.Context, who, why string) (*os.File, error) {
	// After a canceled call, logind could still send the file, which would never be closed.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.timeout)
	defer cancel()
	if !c.bus.SupportsUnixFDs() {
		return nil, errors.New("inhibit shutdown: the message bus passes no file descriptors")
	}
	var fd dbus.UnixFD
	call := c.bus.Object(busName, managerPath).CallWithContext(ctx, managerInterface+".Inhibit", 0, "shutdown", who, why, "delay")
	if err := call.Store(&fd); err != nil {
		return nil, fmt.Errorf("inhibit shutdown: %w", err)
	}
	return os.NewFile(uintptr(fd), "inhibitor"), nil
}

// Reload requests that logind read its configuration again. It returns before logind has done this.
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

// Watch calls onChange at the start and after each change, with true if a shutdown has started. It returns nil when ctx
// ends, and an error if the connection is lost or a call fails.
func (c *Conn) Watch(ctx context.Context, onChange func(shutdown bool)) error {
	known, was := false, false
	for {
		is, err := c.PreparingForShutdown(ctx)
		if ctx.Err() != nil {
			return nil // ctx was canceled by the caller
		}
		if err != nil {
			return err
		}
		if !known || is != was {
			known, was = true, is
			onChange(is)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-c.bus.Context().Done():
			return errors.New("watch logind: the connection is lost")
		case <-c.signaled:
		}
	}
}
