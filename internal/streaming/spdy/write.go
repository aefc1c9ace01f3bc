// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package spdy

import (
	"encoding/binary"
	"net/http"
	"strings"

	frames "github.com/moby/spdystream/spdy"
)

// writeFrame writes frame and payload to the connection in a single call of Write.
func (c *Conn) writeFrame(frame, payload []byte) error {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	return c.writeLocked(frame, payload)
}

func (c *Conn) writeLocked(frame, payload []byte) error {
	c.out = append(append(c.out[:0], frame...), payload...)
	_, err := c.w.Write(c.out)
	if cap(c.out) > maxFrameData/8 && len(c.out) < maxFrameData/8 {
		c.out = nil // an idle connection holds no buffer
	}
	return err
}

// newControlFrame returns the start of a control frame with its first fields, to which the caller appends more bytes.
func newControlFrame(kind frames.ControlFrameType, more int, fields ...uint32) []byte {
	b := make([]byte, 0, 16)
	b = binary.BigEndian.AppendUint16(b, 0x8000|frames.Version)
	b = binary.BigEndian.AppendUint16(b, uint16(kind))
	b = binary.BigEndian.AppendUint32(b, uint32(4*len(fields)+more))
	for _, n := range fields {
		b = binary.BigEndian.AppendUint32(b, n)
	}
	return b
}

func (c *Conn) buildSynReply(id uint32) []byte {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	block := c.buildHeaderBlock(nil)
	return append(newControlFrame(frames.TypeSynReply, len(block), id), block...)
}

// zlibStart is the start of a zlib stream with the dictionary of SPDY/3, which it identifies by a checksum.
const zlibStart = "\x78\xbb\xe3\xc6\xa7\xc2"

// zlibFlush is an empty block that makes a decompressor return all data so far.
const zlibFlush = "\x00\x00\x00\xff\xff"

// buildHeaderBlock encodes headers as the next part of the connection's zlib stream. The caller must hold c.wmu until it is
// written.
func (c *Conn) buildHeaderBlock(headers http.Header) []byte {
	text := binary.BigEndian.AppendUint32(nil, uint32(len(headers)))
	for name, values := range headers {
		name, value := strings.ToLower(name), strings.Join(values, "\x00")
		text = append(binary.BigEndian.AppendUint32(text, uint32(len(name))), name...)
		text = append(binary.BigEndian.AppendUint32(text, uint32(len(value))), value...)
	}
	var block []byte
	if !c.headersSent {
		c.headersSent = true
		block = append(block, zlibStart...)
	}
	size := uint16(len(text)) // Open is called with few short fields
	// Not compressed: the headers are short, and a compressor needs almost a megabyte.
	block = append(block, 0)
	block = binary.LittleEndian.AppendUint16(block, size)
	block = binary.LittleEndian.AppendUint16(block, ^size)
	return append(append(block, text...), zlibFlush...)
}
