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

// LeftoverTime is how long, after the end of a command, its output is waited for where a process that it left behind holds
// it open.
const LeftoverTime = 200 * time.Millisecond

const (
	bufferSize = 32 << 10
	// terminalBuffer is more than a terminal keeps of what was written to it. How much that is cannot be asked.
	terminalBuffer = 128 << 10
)

// buffers are shared: an output has one only while it carries something, and most are idle.
var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }} //nolint:gochecknoglobals // a cache

// output copies one stream to a writer.
type output struct {
	from     *os.File
	to       io.Writer
	name     string
	terminal bool

	mu      sync.Mutex // guards what follows
	over    time.Time  // when the command ended; zero: it has not
	stopped bool
}

func newOutput(from *os.File, to io.Writer, name string, terminal bool) *output {
	return &output{from: from, to: discard(to), name: name, terminal: terminal}
}

// end says that the command has ended, so that the rest is what is there.
func (o *output) end(now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.over.IsZero() {
		o.over = now
		_ = o.from.SetReadDeadline(now)
	}
}

// stop ends the copying, whatever is left to read.
func (o *output) stop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stopped = true
	_ = o.from.SetReadDeadline(time.Now())
}

// copy copies until the stream ends, and for a short time after [output.end]. The error is that of the writer.
func (o *output) copy() error {
	conn, err := o.from.SyscallConn()
	if err != nil {
		return err
	}
	rest := -1 // bytes that are there for sure; negative while the command runs
	for {
		buf, n, err := read(conn)
		if n > 0 {
			_, err := o.to.Write(buf[:n])
			buffers.Put(buf)
			if err != nil {
				return fmt.Errorf("write %s: %w", o.name, err)
			}
			if rest >= 0 {
				if rest = max(0, rest-n); !o.extend(rest) {
					return nil
				}
			}
			continue
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		switch there := queued(conn); {
		case rest < 0 && o.terminal:
			rest = terminalBuffer
		case rest < 0:
			rest = there
		case rest == 0 || there == 0:
			return nil // nothing came in time
		}
		if !o.extend(rest) {
			return nil
		}
	}
}

// extend sets the time by which something must come, and reports whether to go on: what the command itself has written is
// read in any case, what others write only for a while.
func (o *output) extend(rest int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.stopped {
		return false
	}
	now := time.Now()
	until := o.over.Add(LeftoverTime)
	if rest > 0 {
		until = now.Add(LeftoverTime)
	}
	if !until.After(now) {
		return false
	}
	return o.from.SetReadDeadline(until) == nil
}

// queued returns how much is there to be read.
func queued(conn syscall.RawConn) (n int) {
	_ = conn.Control(func(fd uintptr) {
		n, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ)
	})
	return n
}

// read reads something into a buffer of the pool. With n zero there is none, and err says why: [io.EOF], or the deadline.
func read(conn syscall.RawConn) (buf *[bufferSize]byte, n int, err error) {
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
	case err == nil, errors.Is(err, unix.EIO): // a terminal that nobody has open any more
		return nil, 0, io.EOF
	}
	return nil, 0, err
}
