// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package pipe has a bounded byte buffer between one goroutine that writes a stream and one that reads it. It allocates memory
// only while it holds bytes.
package pipe

import (
	"errors"
	"io"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/internal/sleep"
)

// ErrFull is the error of [Pipe.WriteWithTimeout] if the reader has read nothing for the timeout.
var ErrFull = errors.New("buffer is full and is not read")

// Pipe is a bounded buffer with one writer and one reader. The closing methods may be called from any goroutine.
type Pipe struct {
	limit    int
	readable chan struct{} // data was written, or the pipe was closed
	writable chan struct{} // data was read, or the pipe was closed

	mu     sync.Mutex // guards the fields below
	buf    []byte     // unread bytes; nil when empty
	closed bool       // the writer has closed the pipe
	err    error      // returned by all further reads and writes
}

// New returns a pipe that buffers up to limit bytes.
func New(limit int) *Pipe {
	return &Pipe{limit: limit, readable: make(chan struct{}, 1), writable: make(chan struct{}, 1)}
}

// Write writes all of b. It waits while the pipe is full.
func (p *Pipe) Write(b []byte) (int, error) { return p.WriteWithTimeout(b, 0) }

// WriteWithTimeout writes all of data. While the pipe is full, it waits for the reader. It returns [ErrFull] if the pipe
// stays full for timeout. A timeout of zero means no limit.
func (p *Pipe) WriteWithTimeout(data []byte, timeout time.Duration) (written int, err error) {
	var timer *time.Timer
	var expired <-chan time.Time
	for {
		n, err := p.writeAvailable(data)
		data, written = data[n:], written+n
		if err != nil || len(data) == 0 {
			return written, err
		}
		if timeout > 0 && timer == nil {
			timer = time.NewTimer(timeout)
			defer timer.Stop()
			expired = timer.C
		} else if timer != nil {
			timer.Reset(timeout)
		}
		select {
		case <-p.writable:
		case <-expired:
			return written, ErrFull
		}
	}
}

// writeAvailable writes as much of data as fits into the buffer, and returns the number of bytes written.
func (p *Pipe) writeAvailable(data []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.err != nil:
		wakeUp(p.writable)
		return 0, p.err
	case p.closed:
		return 0, io.ErrClosedPipe
	}
	n := min(len(data), p.limit-len(p.buf))
	p.buf = append(p.buf, data[:n]...)
	wakeUp(p.readable)
	return n, nil
}

// Read waits for buffered bytes and reads them. After [Pipe.CloseWrite] it reads the remaining bytes, and then returns
// [io.EOF].
func (p *Pipe) Read(b []byte) (int, error) {
	for {
		n, err := p.readBuffered(b)
		if n > 0 || err != nil || len(b) == 0 {
			return n, err
		}
		<-p.readable
	}
}

func (p *Pipe) readBuffered(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		wakeUp(p.readable)
		return 0, p.err
	}
	n := copy(b, p.buf)
	switch {
	case n == 0 && p.closed:
		wakeUp(p.readable)
		return 0, io.EOF
	case n == len(p.buf):
		p.buf = nil
	default:
		p.buf = p.buf[n:]
	}
	if n > 0 {
		wakeUp(p.writable)
	}
	return n, nil
}

// CloseWrite ends the data of the pipe. The reader receives the buffered bytes and then [io.EOF].
func (p *Pipe) CloseWrite() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	wakeUp(p.readable)
	wakeUp(p.writable)
}

// Abort discards the buffered bytes and makes all later reads and writes return err. Only the first call has an effect.
func (p *Pipe) Abort(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err, p.buf = err, nil
	}
	wakeUp(p.readable)
	wakeUp(p.writable)
}

// IsClosed reports whether CloseWrite or Abort was called.
func (p *Pipe) IsClosed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed || p.err != nil
}

func wakeUp(c chan struct{}) {
	sleep.Wake(c)
}
