// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package websocket reads and writes the frames of RFC 6455 on a connection that is already upgraded, for both roles, without
// extensions. Messages of any length are read in parts, so that a peer cannot make the reader allocate one.
package websocket

import (
	"bufio"
	"crypto/rand"
	"crypto/sha1" //nolint:gosec // RFC 6455 wants it, and nothing is kept secret by it
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"sync"
	"unicode/utf8"
)

// Opcodes of frames.
const (
	continuation = 0x0
	text         = 0x1
	binaryFrame  = 0x2
	closeFrame   = 0x8
	ping         = 0x9
	pong         = 0xa
)

// Status codes of close frames.
const (
	Normal        = 1000
	GoingAway     = 1001
	ProtocolError = 1002
	Policy        = 1008
)

const (
	maxControl   = 125      // bytes in the payload of a control frame
	maxFrameData = 32 << 10 // bytes in a written data frame
)

// CloseError is the error of reads after the peer has sent a close frame.
type CloseError struct {
	Code   int // 1005: the close frame had no code
	Reason string
}

// Error returns a text with the code and the reason.
func (e *CloseError) Error() string {
	return fmt.Sprintf("closed by the peer: %d %s", e.Code, e.Reason)
}

// Unwrap returns [io.EOF], because a closed connection has no further messages.
func (*CloseError) Unwrap() error { return io.EOF }

// FrameError is the error for a frame that violates RFC 6455.
type FrameError struct{ Text string }

// Error returns a text that describes the violation.
func (e *FrameError) Error() string { return "invalid WebSocket frame: " + e.Text }

// AcceptKey returns the value of the Sec-WebSocket-Accept header of a response. key is the value of the Sec-WebSocket-Key
// header of the request.
func AcceptKey(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")) //nolint:gosec // as above
	return base64.StdEncoding.EncodeToString(sum[:])
}

// Conn is one side of a WebSocket connection. One goroutine may read while other goroutines write.
type Conn struct {
	r      *bufio.Reader
	w      io.Writer
	client bool // this side is the client: it masks its frames

	// State of the message that is being read.
	opcode    byte   // of the first frame of the message
	left      uint64 // unread bytes of the frame
	final     bool   // the frame is the last one of its message
	inMessage bool   // a message has started and not ended
	masked    bool
	mask      [4]byte
	maskPos   int   // position in mask
	readErr   error // error of all further reads

	mu     sync.Mutex // guards the fields below, and serializes frames
	out    []byte     // a complete frame
	closed bool       // a close frame was written
}

// New returns one side of a WebSocket connection, which reads frames from r and writes frames to w. client is true for the
// side of the client, because only a client masks its frames.
func New(r *bufio.Reader, w io.Writer, client bool) *Conn {
	return &Conn{r: r, w: w, client: client, final: true}
}

// NextMessage skips the rest of the current message and waits for the next message. It replies to pings in the meantime.
func (c *Conn) NextMessage() error {
	for c.inMessage && c.readErr == nil {
		if _, err := io.Copy(io.Discard, onlyReader{c}); err != nil {
			return err
		}
	}
	if c.readErr != nil {
		return c.readErr
	}
	if err := c.readHeader(false); err != nil {
		return c.failRead(err)
	}
	c.inMessage = true
	return nil
}

// onlyReader hides all methods but Read from io.Copy.
type onlyReader struct{ io.Reader }

// Read reads the current message; see [Conn.NextMessage]. It returns [io.EOF] at the end of the message.
func (c *Conn) Read(b []byte) (int, error) {
	if c.readErr != nil {
		return 0, c.readErr
	}
	for c.inMessage && c.left == 0 {
		if c.final {
			c.inMessage = false
			break
		}
		if err := c.readHeader(true); err != nil {
			return 0, c.failRead(eofToUnexpected(err))
		}
	}
	if !c.inMessage {
		return 0, io.EOF
	}
	if uint64(len(b)) > c.left {
		b = b[:c.left]
	}
	n, err := c.r.Read(b)
	if c.masked {
		c.maskPos = applyMask(b[:n], c.mask, c.maskPos)
	}
	c.left -= uint64(n)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		c.readErr = err
	}
	return n, err
}

// readHeader reads the header of the next data frame. Before that, it replies to control frames. If continued is true, the
// frame must continue the current message. Otherwise the frame must start a new message.
func (c *Conn) readHeader(continued bool) error {
	for {
		op, err := c.readFrameHeader()
		if err != nil {
			return err
		}
		switch {
		case op >= closeFrame:
			if err := c.handleControl(op); err != nil {
				return err
			}
		case (op == continuation) != continued:
			return &FrameError{"a message begins within another, or continues none"}
		default:
			return nil
		}
	}
}

// readFrameHeader reads the header of the next frame and stores its fields in c. It returns an error if the header violates
// RFC 6455.
func (c *Conn) readFrameHeader() (opcode byte, err error) {
	var h [8]byte
	if _, err := io.ReadFull(c.r, h[:2]); err != nil {
		return 0, err
	}
	opcode, c.masked = h[0]&0xf, h[1]&0x80 != 0
	final, size := h[0]&0x80 != 0, uint64(h[1]&0x7f)
	switch {
	case h[0]&0x70 != 0:
		return 0, &FrameError{"a reserved bit is set"}
	case opcode > binaryFrame && opcode < closeFrame || opcode > pong:
		return 0, &FrameError{fmt.Sprintf("opcode %#x is not known", opcode)}
	case opcode >= closeFrame && (!final || size > maxControl):
		return 0, &FrameError{"a control frame is in pieces or too long"}
	case c.masked == c.client:
		return 0, &FrameError{"a client masks its frames, a server does not"}
	}
	switch size {
	case 126:
		_, err = io.ReadFull(c.r, h[:2])
		size = uint64(binary.BigEndian.Uint16(h[:]))
	case 127:
		_, err = io.ReadFull(c.r, h[:8])
		size = binary.BigEndian.Uint64(h[:])
	}
	if err == nil && size>>63 != 0 {
		err = &FrameError{"its length has more than 63 bits"}
	}
	if err == nil && c.masked {
		_, err = io.ReadFull(c.r, c.mask[:])
	}
	c.left, c.maskPos = size, 0
	if opcode < closeFrame {
		c.final = final
		if opcode != continuation {
			c.opcode = opcode
		}
	}
	return opcode, eofToUnexpected(err)
}

// handleControl reads the payload of a control frame whose header was read. It replies to a ping or close frame and ignores
// a pong.
func (c *Conn) handleControl(opcode byte) error {
	var buf [maxControl]byte
	b := buf[:c.left]
	if _, err := io.ReadFull(c.r, b); err != nil {
		return eofToUnexpected(err)
	}
	if c.masked {
		applyMask(b, c.mask, 0)
	}
	c.left = 0
	switch opcode {
	case ping:
		return c.writeFrame(pong, b, nil)
	case closeFrame:
		return c.handleClose(b)
	default:
		return nil
	}
}

// handleClose replies to a close frame of the peer. It returns a [*CloseError] with the code and the reason in payload.
func (c *Conn) handleClose(payload []byte) error {
	e := &CloseError{Code: 1005}
	switch {
	case len(payload) == 1 || len(payload) > 2 && !utf8.Valid(payload[2:]):
		return &FrameError{"a close frame has half a code, or a reason that is not text"}
	case len(payload) >= 2:
		e.Code, e.Reason = int(binary.BigEndian.Uint16(payload)), string(payload[2:])
	}
	if err := c.WriteClose(Normal, ""); err != nil {
		return err
	}
	return e
}

// failRead stores err for all further reads, and returns it. After a protocol violation it sends a close frame.
func (c *Conn) failRead(err error) error {
	c.readErr = err
	if e, ok := err.(*FrameError); ok { //nolint:errorlint // frame and control return it bare
		_ = c.WriteClose(ProtocolError, e.Text)
	}
	return err
}

// IsText reports whether the current message is a text message.
func (c *Conn) IsText() bool { return c.opcode == text }

// WriteBinary writes payload in binary messages. Each message consists of prefix and at most 32 KiB of payload.
func (c *Conn) WriteBinary(prefix, payload []byte) (int, error) {
	return c.writeAll(binaryFrame, prefix, payload)
}

// WriteText writes payload in text messages. Each message consists of prefix and at most 32 KiB of payload.
func (c *Conn) WriteText(prefix, payload []byte) (int, error) {
	return c.writeAll(text, prefix, payload)
}

func (c *Conn) writeAll(opcode byte, prefix, payload []byte) (n int, err error) {
	for {
		part := payload[n:min(len(payload), n+maxFrameData)]
		if err := c.writeFrame(opcode, prefix, part); err != nil {
			return n, err
		}
		if n += len(part); n == len(payload) {
			return n, nil
		}
	}
}

// WriteClose writes a close frame with this code and reason. A second close frame is not written. After WriteClose, writing
// a message returns an error.
func (c *Conn) WriteClose(code int, reason string) error {
	if len(reason) > maxControl-2 {
		reason = reason[:maxControl-2]
		for !utf8.ValidString(reason) {
			reason = reason[:len(reason)-1]
		}
	}
	return c.writeFrame(closeFrame, binary.BigEndian.AppendUint16(nil, uint16(code)), []byte(reason))
}

// errClosed is the error of a write after a close frame.
var errClosed = fmt.Errorf("write on a closed WebSocket: %w", io.ErrClosedPipe)

// writeFrame writes one frame with prefix and then payload.
func (c *Conn) writeFrame(opcode byte, prefix, payload []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		if opcode == closeFrame || opcode == pong {
			return nil
		}
		return errClosed
	}
	c.closed = opcode == closeFrame
	c.out = appendHeader(c.out[:0], opcode, len(prefix)+len(payload), c.client)
	if c.client {
		var mask [4]byte
		_, _ = rand.Read(mask[:]) // never fails
		c.out = append(c.out, mask[:]...)
		from := len(c.out)
		c.out = append(append(c.out, prefix...), payload...)
		applyMask(c.out[from:], mask, 0)
	} else {
		c.out = append(append(c.out, prefix...), payload...)
	}
	_, err := c.w.Write(c.out)
	if cap(c.out) > maxFrameData/8 && len(c.out) < maxFrameData/8 || c.closed {
		c.out = nil // an idle session holds no buffer
	}
	return err
}

// appendHeader appends a frame header to buf. size is the number of payload bytes. If masked is true, the caller must append
// the mask.
func appendHeader(buf []byte, opcode byte, size int, masked bool) []byte {
	var m byte
	if masked {
		m = 0x80
	}
	buf = append(buf, 0x80|opcode)
	switch {
	case size <= maxControl:
		return append(buf, m|byte(size))
	case size < 1<<16:
		return binary.BigEndian.AppendUint16(append(buf, m|126), uint16(size))
	default:
		return binary.BigEndian.AppendUint64(append(buf, m|127), uint64(size))
	}
}

// applyMask masks or unmasks data in place. pos and next are the positions in mask for data and for the following byte.
func applyMask(data []byte, mask [4]byte, pos int) (next int) {
	for len(data) > 0 && pos != 0 {
		data[0] ^= mask[pos]
		data, pos = data[1:], (pos+1)&3
	}
	if len(data) == 0 {
		return pos
	}
	one := binary.LittleEndian.Uint32(mask[:])
	all := uint64(one)<<32 | uint64(one)
	for len(data) >= 8 {
		binary.LittleEndian.PutUint64(data, binary.LittleEndian.Uint64(data)^all)
		data = data[8:]
	}
	for i := range data {
		data[i] ^= mask[i&3]
	}
	return len(data) & 3
}

func eofToUnexpected(err error) error {
	if err == io.EOF { //nolint:errorlint // io.ReadFull returns it bare
		return io.ErrUnexpectedEOF
	}
	return err
}

// HasMoreThan reports whether more than size bytes of the current frame are unread.
func (c *Conn) HasMoreThan(size int) bool { return c.left > uint64(size) }
