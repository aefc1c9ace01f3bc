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

// Stream is a stream of a SPDY connection. One goroutine may read while other goroutines write.
type Stream struct {
	// RelatedStreams is the number of other streams of the same request, such as the error stream of a forwarded connection. They
	// do not count as blocked by this stream.
	RelatedStreams int

	conn    *Conn
	id      uint32
	header  http.Header
	in      *pipe.Pipe
	replied chan struct{}
	once    sync.Once
	refused error // valid once replied is closed

	// Guarded by conn.mu.
	localClosed, remoteClosed bool

	mu          sync.Mutex // guards the fields below
	writeClosed bool       // this side has closed or reset the stream
	writeErr    error      // error of all further writes
}

func newStream(c *Conn, id uint32, headers http.Header) *Stream {
	return &Stream{conn: c, id: id, header: headers, in: pipe.New(c.opts.Buffer), replied: make(chan struct{})}
}

// ID returns the ID of the stream. Streams that a client opens have odd, increasing IDs.
func (s *Stream) ID() uint32 { return s.id }

// Header returns the headers of the SYN_STREAM frame.
func (s *Stream) Header() http.Header { return s.header }

// AwaitReply waits until the peer has replied to the request to open the stream. It returns an error if the peer has refused
// the stream or ctx ends.
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

// Read reads data from the peer. It returns [io.EOF] at the end of the data.
func (s *Stream) Read(b []byte) (int, error) { return s.in.Read(b) }

// Write sends all of b, in frames of at most 32 KiB.
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

// CloseWrite ends the data to the peer. Data from the peer can still be read.
func (s *Stream) CloseWrite() error {
	err := s.sendData(nil, true)
	s.conn.closeHalf(s, true)
	return err
}

// Close closes both directions of the stream. The peer still receives the data written before. Data that the peer sends
// later is discarded.
func (s *Stream) Close() error {
	err := s.CloseWrite()
	s.in.Abort(io.ErrClosedPipe)
	return err
}

// Reset closes both directions of the stream at once and sends an RST_STREAM frame. The peer still receives the data written
// before.
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

// closeByReset closes both directions of the stream, because the peer has reset it. Data received before can still be read.
func (s *Stream) closeByReset() {
	s.mu.Lock()
	s.writeErr = ErrReset
	s.mu.Unlock()
	s.in.CloseWrite()
}

// closeByConn closes both directions of the stream, because the connection has ended.
func (s *Stream) closeByConn() {
	s.setReply(ErrClosed)
	s.mu.Lock()
	if s.writeErr == nil {
		s.writeErr = ErrClosed
	}
	s.mu.Unlock()
	s.in.CloseWrite()
}

// Input returns the pipe with the unread data from the peer.
func (s *Stream) Input() *pipe.Pipe { return s.in }
