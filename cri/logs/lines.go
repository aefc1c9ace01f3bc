// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"bytes"
	"io"
)

const (
	firstBuffer = 32 << 10
	// maxLine bounds the memory that one line can take. Runtimes split lines at 16 KiB unless they are told not to.
	maxLine = 16 << 20
)

// lines splits a reader into lines. Unlike bufio.Reader it goes on after the end of its source, which may have grown.
type lines struct {
	source     io.Reader
	buf        []byte
	start, end int  // buf[start:end] is read and not yet returned
	searched   int  // buf[start:searched] has no newline
	skipping   bool // inside a line that is too long
}

// next returns the next line with its newline; it is valid until the next call. After io.EOF it can be called again.
func (l *lines) next() ([]byte, error) {
	for {
		if i := bytes.IndexByte(l.buf[l.searched:l.end], '\n'); i >= 0 {
			line := l.buf[l.start : l.searched+i+1]
			l.start = l.searched + i + 1
			l.searched = l.start
			if !l.skipping {
				return line, nil
			}
			l.skipping = false
			continue
		}
		l.searched = l.end
		if l.skipping {
			l.start = l.end
		}
		if l.end-l.start >= maxLine {
			l.skipping = true
			return l.buf[l.start:l.end], errLong
		}
		l.makeRoom()
		n, err := l.source.Read(l.buf[l.end:])
		l.end += n
		if n == 0 && err != nil {
			return nil, err
		}
	}
}

// rest returns what follows the last newline, and forgets it.
func (l *lines) rest() []byte {
	rest := l.buf[l.start:l.end]
	if l.skipping {
		rest = nil
	}
	l.drop()
	return rest
}

// drop forgets what has been read and not returned.
func (l *lines) drop() {
	l.start, l.end, l.searched, l.skipping = 0, 0, 0, false
}

// makeRoom moves the unfinished line to the front, and doubles the buffer where that is not enough.
func (l *lines) makeRoom() {
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
