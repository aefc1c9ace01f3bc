// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"bytes"
	"io"
)

const (
	firstBuffer = 32 << 10
	// maxLine limits the memory for one line. Runtimes split lines at 16 KiB by default.
	maxLine = 16 << 20
)

// lineReader reads the lines of a source. Unlike a bufio.Reader, it continues after io.EOF, because a log file grows.
type lineReader struct {
	source       io.Reader
	buf          []byte
	start, end   int  // buf[start:end] is buffered and not yet returned
	searched     int  // buf[start:searched] contains no newline
	skippingLong bool // inside a line longer than maxLine
}

// nextLine returns the next line with its newline, which is valid until the next call. A long line yields its start and errLong.
func (l *lineReader) nextLine() ([]byte, error) {
	for {
		if i := bytes.IndexByte(l.buf[l.searched:l.end], '\n'); i >= 0 {
			line := l.buf[l.start : l.searched+i+1]
			l.start = l.searched + i + 1
			l.searched = l.start
			if !l.skippingLong {
				return line, nil
			}
			l.skippingLong = false
			continue
		}
		l.searched = l.end
		if l.skippingLong {
			l.start = l.end
		}
		if l.end-l.start >= maxLine {
			l.skippingLong = true
			return l.buf[l.start:l.end], errLong
		}
		l.makeRoom()
		n, err := l.source.Read(l.buf[l.end:])
		l.end += n
		if n == 0 && err != nil {
			return nil, err // after io.EOF it may be called again
		}
	}
}

// takeUnfinished returns the buffered text after the last newline, and empties the buffer.
func (l *lineReader) takeUnfinished() []byte {
	rest := l.buf[l.start:l.end]
	if l.skippingLong {
		rest = nil // within a long line
	}
	l.dropBuffered()
	return rest
}

// dropBuffered empties the buffer.
func (l *lineReader) dropBuffered() {
	l.start, l.end, l.searched, l.skippingLong = 0, 0, 0, false
}

// makeRoom makes space for more input: it moves the unfinished line to the start of the buffer, and doubles a full buffer.
func (l *lineReader) makeRoom() {
	if l.start > 0 {
		l.end = copy(l.buf, l.buf[l.start:l.end])
		l.start, l.searched = 0, l.end
	}
	if l.end == len(l.buf) {
		grown := make([]byte, min(max(2*len(l.buf), firstBuffer), maxLine+firstBuffer))
		copy(grown, l.buf[:l.end])
		l.buf = grown
	}
}
