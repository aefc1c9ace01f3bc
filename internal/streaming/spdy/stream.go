// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package spdy

import (
	"context"
	"io"
	"net/http"
	"sync"

	frames "github.com/moby/spdystream/spdy"

	"github.com/seed81659283/nodeagent/internal/streaming/pipe"
)

// Stream is one stream of a connection. One goroutine may read while others write.
type Stream struct {
	// Companions is how many other streams belong to the same matter: they do not count as waiting for this one.
	RelatedStreams int

	conn    *Conn
	id      uint32
	header  http.Header
	in      *pipe.Pipe
	replied chan struct{}
	once    sync.Once
	refused error // valid once replied is closed

	// conn.mu guards both.
	localClosed, remoteClosed bool

	mu          sync.Mutex // guards what follows
	writeClosed bool       // this end writes no more
	writeErr    error      // the error of a write
}

func newStream(c *Conn, id uint32, h http.Header) *Stream {
	return &Stream{conn: c, id: id, header: h, in: pipe.New(c.opts.Buffer), replied: make(chan struct{})}
}

// ID returns the number of the stream: odd, and rising, where the client opened it.
func (s *Stream) ID() uint32 { return s.id }

// Header returns the headers that the stream was opened with.
func (s *Stream) Header() http.Header { return s.header }

// Accepted waits until the peer has accepted or refused a stream.
func (s *Stream) AwaitReply(ctx context.Context) error {
	select {
	case <-s.replied:
		return s.refused
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *Stream) setReply(err error) {
	s.once.Do(func() {
		s.refused = err
		close(s.replied)
	})
}

// Read reads what the peer has sent, and returns io.EOF at its end.
func (s *Stream) Read(b []byte) (int, error) { return s.in.Read(b) }

// Write sends all of b, in frames of 32 KiB at most.
func (s *Stream) Write(b []byte) (n int, err error) {
	for {
		part := b[n:min(len(b), n+maxFrameData)]
		if err := s.sendData(part, false); err != nil {
			return n, err
		}
		if n += len(part); n == len(b) {
			return n, nil
		}
	}
}

func (s *Stream) sendData(b []byte, fin bool) error {
	if <-s.replied; s.refused != nil {
		return s.refused
	}
	s.mu.Lock()
	err, ended := s.writeErr, s.writeClosed
	s.writeClosed = ended || fin
	s.mu.Unlock()
	switch {
	case err != nil:
		return err
	case ended && fin:
		return nil
	case ended:
		return io.ErrClosedPipe
	case len(b) == 0 && !fin:
		return nil
	}
	var h [8]byte
	h[0], h[1], h[2], h[3] = byte(s.id>>24), byte(s.id>>16), byte(s.id>>8), byte(s.id)
	h[5], h[6], h[7] = byte(len(b)>>16), byte(len(b)>>8), byte(len(b))
	if fin {
		h[4] = byte(frames.DataFlagFin)
	}
	return s.conn.writeFrame(h[:], b)
}

// CloseWrite tells the peer that no more comes; reading goes on.
func (s *Stream) CloseWrite() error {
	err := s.sendData(nil, true)
	s.conn.closeHalf(s, true)
	return err
}

// Close ends both directions: the peer gets what was written, and what it sends from now on is dropped.
func (s *Stream) Close() error {
	err := s.CloseWrite()
	s.in.Abort(io.ErrClosedPipe)
	return err
}

// Reset ends both directions at once. What was written before arrives nevertheless.
func (s *Stream) Reset() error {
	s.mu.Lock()
	ended := s.writeClosed
	s.writeClosed = true
	s.mu.Unlock()
	s.in.Abort(io.ErrClosedPipe)
	s.conn.removeStream(s)
	if ended {
		return nil
	}
	return s.conn.writeFrame(newControlFrame(frames.TypeRstStream, 0, s.id, uint32(frames.Cancel)), nil)
}

// peerReset ends both directions, because the peer has done so. What came before can be read.
func (s *Stream) closeByReset() {
	s.mu.Lock()
	s.writeErr = ErrReset
	s.mu.Unlock()
	s.in.CloseWrite()
}

// peerGone ends both directions, because the connection has ended.
func (s *Stream) closeByConn() {
	s.setReply(ErrClosed)
	s.mu.Lock()
	if s.writeErr == nil {
		s.writeErr = ErrClosed
	}
	s.mu.Unlock()
	s.in.CloseWrite()
}

// Input returns the buffer that holds what the peer has sent.
func (s *Stream) Input() *pipe.Pipe { return s.in }
