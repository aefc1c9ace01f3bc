// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package flow copies bytes between the two connections of a streaming session (exec, attach, port-forward). It reads all
// available bytes of a socket at once and holds no buffer while it waits.
package flow

import (
	"errors"
	"io"
	"sync"
	"syscall"
)

// bufferSize is the size of the large buffer that a copy uses while data arrives.
const bufferSize = 64 << 10

// shrinkAfter is the number of consecutive short reads after which a copy returns its large buffer. It is above two, because
// runtimes and clients write both words of a SPDY frame header separately.
const shrinkAfter = 4

// buffers is shared by all sessions; an idle session holds none.
var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }} //nolint:gochecknoglobals // a pool has no state to be seen

// RawSource is a reader that may have a socket.
type RawSource interface {
	// Raw returns the socket, to be read after the bytes in early. Both are nil if there is no socket.
	Raw() (early []byte, socket syscall.RawConn)
}

// Copy copies bytes from src to dst. It returns nil when src ends, or the first error. It uses a large buffer only while
// many bytes arrive.
func Copy(dst io.Writer, src io.Reader) error {
	if c, ok := src.(RawSource); ok && canReadSocket {
		if early, raw := c.Raw(); raw != nil {
			return copyFromSocket(dst, early, raw)
		}
	}
	small := make([]byte, 2<<10)
	var large *[bufferSize]byte
	defer func() {
		if large != nil {
			buffers.Put(large)
		}
	}()
	short := 0
	for buf := small; ; {
		n, err := src.Read(buf)
		if n > 0 {
			if _, err := dst.Write(buf[:n]); err != nil {
				return err
			}
		}
		if short++; n >= len(small) {
			short = 0
		}
		switch {
		case n == len(small) && large == nil:
			large = buffers.Get().(*[bufferSize]byte)
			buf = large[:]
		case short >= shrinkAfter && large != nil:
			buffers.Put(large)
			buf, large = small, nil
		}
		if err != nil {
			return ignoreEOF(err)
		}
	}
}

// copyFromSocket copies buffered, bytes already read from the socket, and then the data of the socket to dst.
func copyFromSocket(dst io.Writer, buffered []byte, raw syscall.RawConn) error {
	if len(buffered) > 0 {
		if _, err := dst.Write(buffered); err != nil {
			return err
		}
	}
	for {
		// readSocket holds no buffer while it waits, and reads all available bytes, so that many small writes become
		// one TLS record.
		buf, n, err := readSocket(raw)
		if n > 0 {
			if _, err := dst.Write(buf[:n]); err != nil {
				buffers.Put(buf)
				return err
			}
		}
		if buf != nil {
			buffers.Put(buf)
		}
		if err != nil {
			return ignoreEOF(err)
		}
	}
}

func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
