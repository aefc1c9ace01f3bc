// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package spdy runs several streams over one connection, as SPDY/3.1 frames them: what kubectl, kube-apiserver and container
// runtimes speak to each other. Frames with headers are parsed by github.com/moby/spdystream/spdy, with limits; data frames
// are read in pieces, into a bounded buffer of their stream. One goroutine reads a connection.
package spdy

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	frames "github.com/moby/spdystream/spdy"
)

// Limits of what a peer may send.
const (
	maxControl = 64 << 10 // bytes of a control frame
	maxHeaders = 64       // fields of a stream
	maxField   = 8 << 10  // bytes of a name or a value
)

// chunk is how many bytes a data frame has that is written, at most.
const maxFrameData = 32 << 10

// Errors of streams and connections.
var (
	ErrReset         = errors.New("stream was reset by the peer")
	ErrUnreadTimeout = errors.New("stream was reset: nobody reads it, and others wait")
	ErrClosed        = errors.New("connection is closed")
)

// Options configure a [Conn].
type Options struct {
	IsClient   bool // it is the end that opens streams
	MaxStreams int  // open at once; zero means 16
	Buffer     int  // bytes of a stream that nobody has read yet; zero means 64 KiB
	// Stall is how long a stream with a full buffer may hold up other streams. Zero: for ever.
	UnreadTimeout time.Duration
	// Accept is called by Serve with each stream that the peer opens, and must not block: nil accepts it, an error refuses it.
	Accept func(*Stream) error
}

// Conn is one end of a connection.
type Conn struct {
	opts   Options
	r      *bufio.Reader
	w      io.Writer
	framer *frames.Framer // reads control frames

	mu      sync.Mutex // guards what follows
	streams map[uint32]*Stream
	last    uint32 // the newest stream of the peer
	next    uint32 // the next stream of this end
	err     error  // no stream is added any more

	wmu         sync.Mutex // guards what follows, and keeps frames whole
	out         []byte
	headersSent bool // the header compression has begun
}

// New returns one end of a connection, of which r has what was read already.
func New(r *bufio.Reader, w io.Writer, o Options) (*Conn, error) {
	o.MaxStreams, o.Buffer = cmp.Or(o.MaxStreams, 16), cmp.Or(o.Buffer, 64<<10)
	framer, err := frames.NewFramerWithOptions(io.Discard, r, frames.WithMaxControlFramePayloadSize(maxControl),
		frames.WithMaxHeaderCount(maxHeaders), frames.WithMaxHeaderFieldSize(maxField))
	if err != nil {
		return nil, err
	}
	return &Conn{opts: o, r: r, w: w, framer: framer, streams: map[uint32]*Stream{}, next: 1}, nil
}

// Serve reads until the connection ends, and then ends its streams. It returns nil when the peer said so before.
func (c *Conn) Serve() error {
	err := c.readFrames()
	c.mu.Lock()
	c.err = cmp.Or(c.err, ErrClosed)
	streams := c.streams
	c.streams = nil
	c.mu.Unlock()
	for _, s := range streams {
		s.closeByConn()
	}
	return err
}

func (c *Conn) readFrames() error {
	for {
		h, err := c.r.Peek(8)
		if err != nil {
			if err == io.EOF && len(h) > 0 { //nolint:errorlint // bufio returns it bare
				err = io.ErrUnexpectedEOF
			}
			return err
		}
		if h[0]&0x80 == 0 {
			err = c.readData(h)
		} else {
			err = c.handleControl(h)
		}
		if errors.Is(err, errGoAway) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// data passes a data frame on to its stream, piece by piece.
func (c *Conn) readData(h []byte) error {
	id := binary.BigEndian.Uint32(h)
	fin, left := h[4]&1 != 0, int64(binary.BigEndian.Uint32(h[4:])&0xffffff)
	if _, err := c.r.Discard(8); err != nil {
		return err
	}
	s := c.getStream(id)
	for left > 0 {
		if _, err := c.r.Peek(1); err != nil { // waits until something is there
			return err
		}
		b, err := c.r.Peek(int(min(left, int64(c.r.Buffered()))))
		if err != nil {
			return err
		}
		if s != nil && !s.in.IsClosed() {
			c.writeToStream(s, b)
		}
		left -= int64(len(b))
		if _, err := c.r.Discard(len(b)); err != nil {
			return err
		}
	}
	if fin && s != nil {
		s.in.CloseWrite()
		c.closeHalf(s, false)
	}
	return nil
}

// deliver waits until a stream has space, unless others wait for that too long.
func (c *Conn) writeToStream(s *Stream, b []byte) {
	for {
		n, err := s.in.WriteWithTimeout(b, c.opts.UnreadTimeout)
		if b = b[n:]; len(b) == 0 || err == nil || s.in.IsClosed() {
			return
		}
		c.mu.Lock()
		alone := len(c.streams) <= s.RelatedStreams+1
		c.mu.Unlock()
		if !alone {
			s.in.Abort(ErrUnreadTimeout)
			_ = s.Reset()
			return
		}
	}
}

var errGoAway = errors.New("the peer goes away")

// control handles a control frame.
func (c *Conn) handleControl(h []byte) error {
	kind, size := binary.BigEndian.Uint16(h[2:]), binary.BigEndian.Uint32(h[4:])&0xffffff
	if least, ok := minFrameSize[frames.ControlFrameType(kind)]; !ok || size < least || size > maxControl {
		return fmt.Errorf("invalid SPDY frame: type %d with %d bytes", kind, size)
	}
	f, err := c.framer.ReadFrame()
	if err != nil {
		return fmt.Errorf("invalid SPDY frame: type %d: %w", kind, err)
	}
	switch f := f.(type) {
	case *frames.SynStreamFrame:
		return c.handleSynStream(f)
	case *frames.SynReplyFrame:
		if s := c.getStream(uint32(f.StreamId)); s != nil && c.opts.IsClient {
			s.setReply(nil)
		}
	case *frames.RstStreamFrame:
		if s := c.getStream(uint32(f.StreamId)); s != nil {
			s.setReply(ErrReset)
			s.closeByReset()
			c.removeStream(s)
		}
	case *frames.PingFrame:
		if f.Id%2 == 1 != c.opts.IsClient {
			return c.writeFrame(newControlFrame(frames.TypePing, 0, f.Id), nil)
		}
	case *frames.GoAwayFrame:
		return errGoAway
	}
	return nil // settings, windows and headers of a stream say nothing here
}

// shortest is how many bytes a control frame has at least.
var minFrameSize = map[frames.ControlFrameType]uint32{ //nolint:gochecknoglobals // only read
	frames.TypeSynStream: 10, frames.TypeSynReply: 4, frames.TypeRstStream: 8, frames.TypeSettings: 4,
	frames.TypePing: 4, frames.TypeGoAway: 8, frames.TypeHeaders: 4, frames.TypeWindowUpdate: 8,
}

// synStream takes a stream that the peer opens.
func (c *Conn) handleSynStream(f *frames.SynStreamFrame) error {
	id := uint32(f.StreamId)
	s := newStream(c, id, f.Headers)
	c.mu.Lock()
	valid := !c.opts.IsClient && id%2 == 1 && id > c.last
	full := len(c.streams) >= c.opts.MaxStreams
	if valid {
		c.last = id
	}
	if valid && !full {
		c.streams[id] = s
	}
	c.mu.Unlock()
	if !valid {
		return fmt.Errorf("invalid SPDY frame: stream %d may not be opened", id)
	}
	if full {
		return c.writeFrame(newControlFrame(frames.TypeRstStream, 0, id, uint32(frames.RefusedStream)), nil)
	}
	if f.CFHeader.Flags&frames.ControlFlagFin != 0 {
		s.in.CloseWrite()
		s.remoteClosed = true
	}
	if err := c.opts.Accept(s); err != nil {
		s.setReply(err)
		s.in.Abort(err)
		return s.Reset()
	}
	err := c.writeFrame(c.buildSynReply(id), nil)
	s.setReply(err) // only now it is written to
	return err
}

func (c *Conn) getStream(id uint32) *Stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.streams[id]
}

func (c *Conn) removeStream(s *Stream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.streams, s.id)
}

// half notes that one direction of a stream has ended.
func (c *Conn) closeHalf(s *Stream, local bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if local {
		s.localClosed = true
	} else {
		s.remoteClosed = true
	}
	if s.localClosed && s.remoteClosed {
		delete(c.streams, s.id)
	}
}

// Open opens a stream. It does not wait until the peer has accepted it: see [Stream.Accepted].
func (c *Conn) Open(h http.Header) (*Stream, error) {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return nil, c.err
	}
	s := newStream(c, c.next, h)
	c.next += 2
	c.streams[s.id] = s
	c.mu.Unlock()
	block := c.buildHeaderBlock(h)
	f := append(newControlFrame(frames.TypeSynStream, len(block), s.id, 0), 0, 0)
	f[7] += 2 // priority and slot
	return s, c.writeLocked(append(f, block...), nil)
}

// Ping sends a ping, which keeps a connection from being taken for idle.
func (c *Conn) Ping() error { return c.writeFrame(newControlFrame(frames.TypePing, 0, 1), nil) }

// Abort drops what the peer has sent and nobody has read, and all that it still sends: Serve, which may wait for a reader, goes on to the
// end of the connection.
func (c *Conn) Abort() {
	c.mu.Lock()
	c.err = cmp.Or(c.err, ErrClosed)
	streams := slices.Collect(maps.Values(c.streams))
	c.mu.Unlock()
	for _, s := range streams {
		s.in.Abort(ErrClosed)
	}
}

// GoAway tells the peer that this end has finished.
func (c *Conn) GoAway() error {
	c.mu.Lock()
	last := c.last
	c.err = cmp.Or(c.err, ErrClosed)
	c.mu.Unlock()
	return c.writeFrame(newControlFrame(frames.TypeGoAway, 0, last, uint32(frames.GoAwayOK)), nil)
}
