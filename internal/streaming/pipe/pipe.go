// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package pipe has the buffer of a stream of package cri/streaming, between one goroutine that writes and one that reads. It is bounded,
// takes memory only while it has bytes, and returns since when its reader has taken none.
package pipe

import (
	"errors"
	"io"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/internal/sleep"
)

// ErrFull is the error of a Write whose reader takes nothing.
var ErrFull = errors.New("buffer is full and its reader takes nothing")

// Pipe is a bounded buffer. It has one writer and one reader; the methods that close it may be called from anywhere.
type Pipe struct {
	limit    int
	readable chan struct{} // something was written, or the pipe was closed
	writable chan struct{} // something was read, or the pipe was closed

	mu     sync.Mutex // guards what follows
	buf    []byte     // what is in it; its memory is released when it is empty
	closed bool       // no more is written
	err    error      // what both sides see from now on
}

// New returns a pipe that holds a number of bytes.
func New(limit int) *Pipe {
	return &Pipe{limit: limit, readable: make(chan struct{}, 1), writable: make(chan struct{}, 1)}
}

// Write puts all of b into the pipe, and waits for space.
func (p *Pipe) Write(b []byte) (int, error) { return p.WriteWithTimeout(b, 0) }

// WriteWithin is Write that returns [ErrFull] once the reader has taken nothing for a time. Zero waits for ever.
func (p *Pipe) WriteWithTimeout(b []byte, within time.Duration) (written int, err error) {
	var timer *time.Timer
	var expired <-chan time.Time
	for {
		n, err := p.append(b)
		b, written = b[n:], written+n
		if err != nil || len(b) == 0 {
			return written, err
		}
		if within > 0 && timer == nil {
			timer = time.NewTimer(within)
			defer timer.Stop()
			expired = timer.C
		} else if timer != nil {
			timer.Reset(within)
		}
		select {
		case <-p.writable:
		case <-expired:
			return written, ErrFull
		}
	}
}

// put takes as much of b as there is space for.
func (p *Pipe) append(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.err != nil:
		signal(p.writable)
		return 0, p.err
	case p.closed:
		return 0, io.ErrClosedPipe
	}
	n := min(len(b), p.limit-len(p.buf))
	p.buf = append(p.buf, b[:n]...)
	signal(p.readable)
	return n, nil
}

// Read takes what is there, and waits for it. At the end of what was written it returns [io.EOF].
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
		signal(p.readable)
		return 0, p.err
	}
	n := copy(b, p.buf)
	switch {
	case n == 0 && p.closed:
		signal(p.readable)
		return 0, io.EOF
	case n == len(p.buf):
		p.buf = nil
	default:
		p.buf = p.buf[n:]
	}
	if n > 0 {
		signal(p.writable)
	}
	return n, nil
}

// CloseWrite says that no more is written: the reader gets what is there, and then the end.
func (p *Pipe) CloseWrite() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	signal(p.readable)
	signal(p.writable)
}

// Abort drops what is in the pipe; both sides get err. The first call counts.
func (p *Pipe) Abort(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err, p.buf = err, nil
	}
	signal(p.readable)
	signal(p.writable)
}

// Ended reports whether the writer has closed its end, or the pipe was aborted.
func (p *Pipe) IsClosed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed || p.err != nil
}

func signal(c chan struct{}) {
	sleep.Wake(c)
}
