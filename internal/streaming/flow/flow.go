// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package flow copies the bytes of a session of package cri/streaming.
package flow

import (
	"errors"
	"io"
	"sync"
	"syscall"
)

// size is how many bytes a copy holds while something comes.
const bufferSize = 64 << 10

// fewReads is after how many reads that were short a copy that cannot see whether more comes gives its large buffer back. Runtimes and
// clients write the two words in front of a frame of SPDY each by itself.
const shrinkAfter = 4

// buffers are shared by all sessions: most hold none.
var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }} //nolint:gochecknoglobals // a pool has no state to be seen

// Socket is a reader that may have a socket.
type RawSource interface {
	// Raw returns the socket, to be read from there after what was read early; nil where there is none.
	Raw() (early []byte, socket syscall.RawConn)
}

// Copy copies until the end, or an error. It holds a large buffer only while much comes.
func Copy(to io.Writer, from io.Reader) error {
	if c, ok := from.(RawSource); ok && canReadSocket {
		if early, raw := c.Raw(); raw != nil {
			return copyFromSocket(to, early, raw)
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
		n, err := from.Read(buf)
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
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

// copyGathered copies what comes from a socket, where it holds no buffer while it waits, and takes all that is there at once: one write to
// a client is one record of TLS and one wake-up, however many writes of the runtime it was.
func copyFromSocket(to io.Writer, early []byte, raw syscall.RawConn) error {
	if len(early) > 0 {
		if _, err := to.Write(early); err != nil {
			return err
		}
	}
	for {
		buf, n, err := readSocket(raw)
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
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
