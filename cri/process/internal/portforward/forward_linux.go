// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package portforward connects a stream to a TCP port on the loopback interface of a network namespace. It accepts no
// connections.
package portforward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// dialTimeout limits the connection to one address. On the loopback interface a port responds at once or never.
	dialTimeout = 5 * time.Second
	// stallTimeout is the maximum time for which the program at the port may read nothing while data waits. Waiting data blocks
	// other streams of the client's connection.
	stallTimeout = 5 * time.Second
	// progressPeriod is the period of checks whether the port reads data.
	progressPeriod = 250 * time.Millisecond
	// closeTimeout is the maximum wait, after conn was closed, for a Read or Write of conn that is still in progress.
	closeTimeout = time.Second
	// bufferSize is the maximum buffer size per direction of a connection.
	bufferSize = 32 << 10
)

// ErrStalled means that the port did not read pending data for 5 s.
var ErrStalled = fmt.Errorf("the port has taken nothing for %v", stallTimeout)

// Forward copies data between conn and a TCP port on the loopback interface of a network namespace; an empty netns means that of
// this process. It returns when both directions have ended or ctx ends, and closes conn.
func Forward(ctx context.Context, netns string, port int32, conn io.ReadWriteCloser) error {
	if port < 1 || port > 65535 {
		return errors.Join(fmt.Errorf("port %d: must be 1 to 65535", port), conn.Close())
	}
	to, err := dialPort(ctx, netns, port)
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	return copyBoth(ctx, to, conn)
}

// dialPort connects to a port of a network namespace: on 127.0.0.1 or, if that fails, on ::1.
func dialPort(ctx context.Context, netns string, port int32) (*net.TCPConn, error) {
	var to *net.TCPConn
	var err error
	done := make(chan struct{})
	go func() { // so that a thread that cannot leave the namespace ends with it
		defer close(done)
		err = callInNetns(netns, func() error {
			var errs []error
			for _, host := range []string{"127.0.0.1", "::1"} {
				// The socket is created on this thread: for a single address the dialer uses no other.
				d := net.Dialer{Timeout: dialTimeout}
				conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(int(port))))
				if err == nil {
					to = conn.(*net.TCPConn)
					return nil
				}
				errs = append(errs, err)
			}
			return errors.Join(errs...)
		})
	}()
	<-done
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return to, err
}

// callInNetns calls fn on a thread in the network namespace at this path. The caller must use a goroutine of its own.
func callInNetns(netns string, fn func() error) error {
	if netns == "" {
		return fn()
	}
	fd, err := unix.Open(netns, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("enter network namespace: %w", &os.PathError{Op: "open", Path: netns, Err: err})
	}
	defer unix.Close(fd)
	runtime.LockOSThread()
	own, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("keep network namespace: %w", err)
	}
	defer unix.Close(own)
	if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter network namespace %s: %w", netns, err)
	}
	err = fn()
	if unix.Setns(own, unix.CLONE_NEWNET) == nil {
		runtime.UnlockOSThread() // otherwise the thread ends with the goroutine
	}
	return err
}

// copyBoth copies data in both directions between the two connections. It returns when both directions have ended or ctx
// ends, and closes both connections.
func copyBoth(ctx context.Context, port *net.TCPConn, conn io.ReadWriteCloser) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	closed := sync.OnceValue(conn.Close)
	stop := context.AfterFunc(ctx, func() {
		_ = port.SetLinger(0) // a reset, so that the program does not mistake this for the end of the data
		port.Close()
		_ = closed()
	})
	var copies sync.WaitGroup
	var over atomic.Bool // the stream was closed because the port has ended
	copies.Go(func() {
		if err := copyToPort(port, conn); err != nil && !over.Load() {
			cancel(err)
		}
	})
	copies.Go(func() {
		if err := copyFromPort(conn, port); err != nil {
			cancel(err)
			return
		}
		if half, ok := conn.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite() // fails if the client has disconnected
			return
		}
		over.Store(true)
		_ = closed()
	})
	done := make(chan struct{})
	go func() { copies.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
		select {
		case <-done:
		case <-time.After(closeTimeout):
		}
	}
	if !stop() {
		return context.Cause(ctx)
	}
	port.Close()
	_ = closed() // both directions have ended, so the error has no meaning
	return nil
}

// copyToPort copies data from the client to the TCP connection port until the client sends no more data. It then closes the
// write side of port.
func copyToPort(port *net.TCPConn, client io.Reader) error {
	buf := make([]byte, 1<<10) // most connections carry little
	for {
		n, err := client.Read(buf)
		if n > 0 {
			if err := writeToPort(port, buf[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			_ = port.CloseWrite() // fails if the program has exited
			return nil
		}
		if err != nil {
			return fmt.Errorf("read from client: %w", err)
		}
		if n == len(buf) && n < bufferSize {
			buf = make([]byte, bufferSize)
		}
	}
}

// writeToPort writes data to the port. If the program that serves the port reads nothing for stallTimeout, it returns
// ErrStalled.
func writeToPort(port *net.TCPConn, data []byte) error {
	progress := time.Now()
	for {
		err := port.SetWriteDeadline(time.Now().Add(progressPeriod))
		if err != nil {
			return fmt.Errorf("write to port: %w", err)
		}
		n, err := port.Write(data)
		if err == nil {
			return nil
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("write to port: %w", err)
		}
		data = data[n:]
		if n > 0 {
			progress = time.Now()
		}
		if time.Since(progress) >= stallTimeout {
			return ErrStalled
		}
	}
}

// copyFromPort copies data from the TCP connection port to the client until the server program closes the connection.
func copyFromPort(client io.Writer, port *net.TCPConn) error {
	buf := make([]byte, 1<<10)
	for {
		n, err := port.Read(buf)
		if n > 0 {
			if _, err := client.Write(buf[:n]); err != nil {
				return fmt.Errorf("write to client: %w", err)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read from port: %w", err)
		}
		if n == len(buf) && n < bufferSize {
			buf = make([]byte, bufferSize)
		}
	}
}
