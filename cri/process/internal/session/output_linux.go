// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// LeftoverTime limits the wait for output after the exit of a command, if a background process holds the pipe open.
const LeftoverTime = 200 * time.Millisecond

const (
	bufferSize = 32 << 10
	// terminalBuffer is an upper bound of the output that a terminal buffers: the amount cannot be queried.
	terminalBuffer = 128 << 10
)

// buffers is a pool: a copier has a buffer only while it copies data, and most are idle.
var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }} //nolint:gochecknoglobals // a cache

// outputCopier copies one output stream to a writer.
type outputCopier struct {
	from     *os.File
	to       io.Writer
	name     string
	terminal bool

	mu            sync.Mutex // guards the fields below
	commandExited time.Time  // when the command exited; zero: it runs
	stopped       bool
}

func newOutputCopier(from *os.File, to io.Writer, name string, terminal bool) *outputCopier {
	return &outputCopier{from: from, to: writerOrDiscard(to), name: name, terminal: terminal}
}

// setCommandExited records the time at which the command exited. From then on, copyOutput copies the buffered output, and
// waits for at most LeftoverTime for more.
func (o *outputCopier) setCommandExited(now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.commandExited.IsZero() {
		o.commandExited = now
		_ = o.from.SetReadDeadline(now)
	}
}

// stopCopying stops the copying at once. Output that is not yet copied is lost.
func (o *outputCopier) stopCopying() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stopped = true
	_ = o.from.SetReadDeadline(time.Now())
}

// copyOutput copies until the end of the stream, or some time after [outputCopier.setCommandExited]. It returns errors of the
// writer.
func (o *outputCopier) copyOutput() error {
	conn, err := o.from.SyscallConn()
	if err != nil {
		return err
	}
	rest := -1 // bytes known to be buffered; negative while the command runs
	for {
		buf, n, err := readBuffer(conn)
		if n > 0 {
			_, err := o.to.Write(buf[:n])
			buffers.Put(buf)
			if err != nil {
				return fmt.Errorf("write %s: %w", o.name, err)
			}
			if rest >= 0 {
				if rest = max(0, rest-n); !o.extendDeadline(rest) {
					return nil
				}
			}
			continue
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		switch there := bufferedBytes(conn); {
		case rest < 0 && o.terminal:
			rest = terminalBuffer
		case rest < 0:
			rest = there
		case rest == 0 || there == 0:
			return nil // no output arrived in time
		}
		if !o.extendDeadline(rest) {
			return nil
		}
	}
}

// extendDeadline sets the deadline for reading output after the command has exited. It returns false if reading must stop.
func (o *outputCopier) extendDeadline(unread int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.stopped {
		return false
	}
	now := time.Now()
	// output of background processes; unread bytes of the command itself extend the deadline
	until := o.commandExited.Add(LeftoverTime)
	if unread > 0 {
		until = now.Add(LeftoverTime)
	}
	if !until.After(now) {
		return false
	}
	return o.from.SetReadDeadline(until) == nil
}

// bufferedBytes returns the number of bytes that can be read from conn at once.
func bufferedBytes(conn syscall.RawConn) (n int) {
	_ = conn.Control(func(fd uintptr) {
		n, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ)
	})
	return n
}

// readBuffer waits for output and reads it into a pooled buffer. At the end of the output it returns [io.EOF].
func readBuffer(conn syscall.RawConn) (buf *[bufferSize]byte, n int, err error) {
	waited := conn.Read(func(fd uintptr) bool {
		b := buffers.Get().(*[bufferSize]byte)
		for {
			n, err = unix.Read(int(fd), b[:])
			if !errors.Is(err, unix.EINTR) {
				break
			}
		}
		if n > 0 {
			buf = b
			return true
		}
		buffers.Put(b)
		return !errors.Is(err, unix.EAGAIN)
	})
	switch {
	case buf != nil:
		return buf, n, nil
	case waited != nil:
		return nil, 0, waited
	case err == nil, errors.Is(err, unix.EIO): // no process has the terminal open any more
		return nil, 0, io.EOF
	}
	return nil, 0, err
}
