// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package spdy multiplexes streams over one connection with SPDY/3.1 framing, as kubectl, kube-apiserver and container runtimes
// do. github.com/moby/spdystream/spdy parses the frames with headers, with limits. Data frames are copied in parts into the
// bounded buffer of their stream.
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

// Limits for frames of the peer.
const (
	maxControl = 64 << 10 // bytes of a control frame
	maxHeaders = 64       // header fields of a stream
	maxField   = 8 << 10  // bytes of a field name or value
)

// maxFrameData is the maximum number of bytes of a written data frame.
const maxFrameData = 32 << 10

// Errors of streams and connections.
var (
	ErrReset         = errors.New("stream was reset by the peer")
	ErrUnreadTimeout = errors.New("stream was reset: it is not read and blocks other streams")
	ErrClosed        = errors.New("connection is closed")
)

// Options configure a [Conn].
type Options struct {
	IsClient   bool // this side opens the streams
	MaxStreams int  // open streams at a time; zero means 16
	Buffer     int  // unread bytes of a stream; zero means 64 KiB
	// UnreadTimeout is the time after which a stream with a full buffer is reset if it blocks other streams. Zero means
	// never.
	UnreadTimeout time.Duration
	// Accept is called by Serve with each stream that the peer opens, and must not block. Nil accepts the stream, an error
	// refuses it.
	Accept func(*Stream) error
}

// Conn is one side of a SPDY connection.
type Conn struct {
	opts   Options
	r      *bufio.Reader
	w      io.Writer
	framer *frames.Framer // reads control frames

	mu      sync.Mutex // guards the fields below
	streams map[uint32]*Stream
	last    uint32 // ID of the newest stream of the peer
	next    uint32 // ID of the next stream of this side
	err     error  // no stream is added any more

	wmu         sync.Mutex // guards the fields below, and serializes frames
	out         []byte
	headersSent bool // the zlib stream of the headers has started
}

// New returns one side of a SPDY connection, which reads the frames of the peer from r and writes frames to w.
func New(r *bufio.Reader, w io.Writer, opts Options) (*Conn, error) {
	opts.MaxStreams, opts.Buffer = cmp.Or(opts.MaxStreams, 16), cmp.Or(opts.Buffer, 64<<10)
	framer, err := frames.NewFramerWithOptions(io.Discard, r, frames.WithMaxControlFramePayloadSize(maxControl),
		frames.WithMaxHeaderCount(maxHeaders), frames.WithMaxHeaderFieldSize(maxField))
	if err != nil {
		return nil, err
	}
	return &Conn{opts: opts, r: r, w: w, framer: framer, streams: map[uint32]*Stream{}, next: 1}, nil
}

// Serve reads frames until the connection ends or the peer sends GOAWAY. It then closes all streams. It returns nil after
// GOAWAY, and otherwise the error that ended the connection.
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

// readData copies a data frame to the buffer of its stream as it arrives. The frame header is still unread.
func (c *Conn) readData(header []byte) error {
	id := binary.BigEndian.Uint32(header)
	fin, left := header[4]&1 != 0, int64(binary.BigEndian.Uint32(header[4:])&0xffffff)
	if _, err := c.r.Discard(8); err != nil {
		return err
	}
	s := c.getStream(id)
	for left > 0 {
		if _, err := c.r.Peek(1); err != nil { // waits for data
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

// writeToStream copies data to the buffer of the stream, and waits while the buffer is full.
func (c *Conn) writeToStream(stream *Stream, data []byte) {
	for {
		n, err := stream.in.WriteWithTimeout(data, c.opts.UnreadTimeout)
		if data = data[n:]; len(data) == 0 || err == nil || stream.in.IsClosed() {
			return
		}
		c.mu.Lock()
		alone := len(c.streams) <= stream.RelatedStreams+1
		c.mu.Unlock()
		if !alone {
			stream.in.Abort(ErrUnreadTimeout)
			// A full buffer must not block other streams.
			_ = stream.Reset()
			return
		}
	}
}

var errGoAway = errors.New("the peer sent GOAWAY")

// handleControl reads a control frame and does what the peer requests, for example opens a stream. The frame header is still
// unread.
func (c *Conn) handleControl(header []byte) error {
	kind, size := binary.BigEndian.Uint16(header[2:]), binary.BigEndian.Uint32(header[4:])&0xffffff
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
	return nil // SETTINGS, WINDOW_UPDATE and HEADERS frames are ignored
}

// minFrameSize is the minimum size of each type of control frame, in bytes.
var minFrameSize = map[frames.ControlFrameType]uint32{ //nolint:gochecknoglobals // only read
	frames.TypeSynStream: 10, frames.TypeSynReply: 4, frames.TypeRstStream: 8, frames.TypeSettings: 4,
	frames.TypePing: 4, frames.TypeGoAway: 8, frames.TypeHeaders: 4, frames.TypeWindowUpdate: 8,
}

// handleSynStream opens the stream that the peer requests with frame. It refuses the stream if there are too many, or
// Options.Accept returns an error. An invalid stream ID is an error.
func (c *Conn) handleSynStream(frame *frames.SynStreamFrame) error {
	id := uint32(frame.StreamId)
	s := newStream(c, id, frame.Headers)
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
	if frame.CFHeader.Flags&frames.ControlFlagFin != 0 {
		s.in.CloseWrite()
		s.remoteClosed = true
	}
	if err := c.opts.Accept(s); err != nil {
		s.setReply(err)
		s.in.Abort(err)
		return s.Reset()
	}
	err := c.writeFrame(c.buildSynReply(id), nil)
	s.setReply(err) // from now on data may be written
	return err
}

func (c *Conn) getStream(id uint32) *Stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.streams[id]
}

func (c *Conn) removeStream(stream *Stream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.streams, stream.id)
}

// closeHalf records that one direction of the stream is closed, local for the one to the peer. With both, it removes the
// stream.
func (c *Conn) closeHalf(stream *Stream, local bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if local {
		stream.localClosed = true
	} else {
		stream.remoteClosed = true
	}
	if stream.localClosed && stream.remoteClosed {
		delete(c.streams, stream.id)
	}
}

// Open opens a stream with these headers. It does not wait for the reply of the peer; see [Stream.AwaitReply].
func (c *Conn) Open(headers http.Header) (*Stream, error) {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return nil, c.err
	}
	s := newStream(c, c.next, headers)
	c.next += 2
	c.streams[s.id] = s
	c.mu.Unlock()
	block := c.buildHeaderBlock(headers)
	f := append(newControlFrame(frames.TypeSynStream, len(block), s.id, 0), 0, 0)
	f[7] += 2 // priority and slot
	return s, c.writeLocked(append(f, block...), nil)
}

// Ping sends a ping frame, so that proxies do not close an idle connection.
func (c *Conn) Ping() error { return c.writeFrame(newControlFrame(frames.TypePing, 0, 1), nil) }

// Abort makes all streams discard their unread data and all later data. This unblocks a [Conn.Serve] that waits until a
// stream is read. The connection stays open.
func (c *Conn) Abort() {
	c.mu.Lock()
	c.err = cmp.Or(c.err, ErrClosed)
	streams := slices.Collect(maps.Values(c.streams))
	c.mu.Unlock()
	for _, s := range streams {
		s.in.Abort(ErrClosed)
	}
}

// GoAway sends a GOAWAY frame to the peer. Afterwards this side cannot open further streams.
func (c *Conn) GoAway() error {
	c.mu.Lock()
	last := c.last
	c.err = cmp.Or(c.err, ErrClosed)
	c.mu.Unlock()
	return c.writeFrame(newControlFrame(frames.TypeGoAway, 0, last, uint32(frames.GoAwayOK)), nil)
}
