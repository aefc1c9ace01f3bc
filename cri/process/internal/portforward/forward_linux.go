// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package portforward connects a stream to a TCP port on the loopback of a network namespace. It accepts no connections.
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
	// dialTime bounds the attempt to connect to one address. On the loopback a port answers at once, or not at all.
	dialTime = 5 * time.Second
	// stallTime is how long the port may take nothing while there is something for it. What waits holds up those who share
	// its transport, so that it cannot wait for ever.
	stallTime = 5 * time.Second
	// lookTime is how often it is looked whether the port takes something.
	lookTime = 250 * time.Millisecond
	// closeTime is how long a Read or Write of the stream that is under way is waited for after the stream was closed.
	closeTime = time.Second
	// bufferSize is what a connection holds in each direction while it carries something.
	bufferSize = 32 << 10
)

// ErrStalled says that the port took nothing for 5 s.
var ErrStalled = fmt.Errorf("the port has taken nothing for %v", stallTime)

// Forward connects conn to a port, in the network namespace at a path or else that of this process, and returns when both
// directions have ended or ctx has. It closes conn.
func Forward(ctx context.Context, netns string, port int32, conn io.ReadWriteCloser) error {
	if port < 1 || port > 65535 {
		return errors.Join(fmt.Errorf("port %d: must be 1 to 65535", port), conn.Close())
	}
	to, err := dial(ctx, netns, port)
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	return join(ctx, to, conn)
}

// dial connects to the port at the loopback addresses of IPv4 and IPv6, whichever has it.
func dial(ctx context.Context, netns string, port int32) (*net.TCPConn, error) {
	var to *net.TCPConn
	var err error
	done := make(chan struct{})
	go func() { // so that a thread that does not come back from the namespace can end with it
		defer close(done)
		err = within(netns, func() error {
			var errs []error
			for _, host := range []string{"127.0.0.1", "::1"} {
				// The socket is made on this thread: for one address the dialer takes no other.
				d := net.Dialer{Timeout: dialTime}
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

// within calls f on a thread that is in a network namespace. It is called in a goroutine of its own.
func within(netns string, f func() error) error {
	if netns == "" {
		return f()
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
	err = f()
	if unix.Setns(own, unix.CLONE_NEWNET) == nil {
		runtime.UnlockOSThread() // else the thread ends with the goroutine
	}
	return err
}

// join copies in both directions until both have ended.
func join(ctx context.Context, to *net.TCPConn, conn io.ReadWriteCloser) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	closed := sync.OnceValue(conn.Close)
	stop := context.AfterFunc(ctx, func() {
		_ = to.SetLinger(0) // a reset: the program must not take this for the end of what was sent
		to.Close()
		_ = closed()
	})
	var copies sync.WaitGroup
	var over atomic.Bool // the stream was closed because the port has ended
	copies.Go(func() {
		if err := upload(to, conn); err != nil && !over.Load() {
			cancel(err)
		}
	})
	copies.Go(func() {
		if err := download(conn, to); err != nil {
			cancel(err)
			return
		}
		if half, ok := conn.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite() // it fails where the client has gone
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
		case <-time.After(closeTime):
		}
	}
	if !stop() {
		return context.Cause(ctx)
	}
	to.Close()
	_ = closed() // both directions have ended: what else would it say
	return nil
}

// upload copies from the stream to the port, and ends that direction.
func upload(to *net.TCPConn, from io.Reader) error {
	buf := make([]byte, 1<<10) // most connections carry little
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if err := write(to, buf[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			_ = to.CloseWrite() // it fails where the program has gone
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

// write writes all of b while the port takes some of it now and then.
func write(to *net.TCPConn, b []byte) error {
	progress := time.Now()
	for {
		err := to.SetWriteDeadline(time.Now().Add(lookTime))
		if err != nil {
			return fmt.Errorf("write to port: %w", err)
		}
		n, err := to.Write(b)
		if err == nil {
			return nil
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("write to port: %w", err)
		}
		b = b[n:]
		if n > 0 {
			progress = time.Now()
		}
		if time.Since(progress) >= stallTime {
			return ErrStalled
		}
	}
}

// download copies from the port to the stream.
func download(to io.Writer, from *net.TCPConn) error {
	buf := make([]byte, 1<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
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
