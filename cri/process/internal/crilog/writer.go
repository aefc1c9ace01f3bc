// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package crilog writes the log file of a container in the CRI format: a timestamp, the stream, the tag P (partial) or F (full
// line), and the content. It does not rotate files; it reopens them.
package crilog

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// MaxLine is the maximum number of bytes of a line per entry, as in containerd. Longer lines are split.
const MaxLine = 16 << 10

// flushAt is the size in bytes of finished entries at which they are written.
const flushAt = 32 << 10

// Writer is an open log file. All methods may be called concurrently.
type Writer struct {
	path string

	mu           sync.Mutex // guards the fields below, and keeps entries whole
	file         *os.File
	partialEntry bool // the last write ended inside an entry
}

// Open opens a log file for appending. It creates the file and its directory if they are missing.
func Open(path string) (*Writer, error) {
	file, err := openLog(path)
	if err != nil {
		return nil, err
	}
	return &Writer{path: path, file: file}, nil
}

func openLog(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	return os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o640)
}

// Reopen continues the log in a new file, after the caller has renamed the old file. On error, the log continues in the old file.
// No entry is lost or split.
func (w *Writer) Reopen() error {
	file, err := openLog(w.path)
	if err != nil {
		return err
	}
	w.mu.Lock()
	old := w.file
	w.file, w.partialEntry = file, false
	w.mu.Unlock()
	return old.Close()
}

// Close closes the file.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.file.Close()
}

// writeEntries appends entries, which end with a newline, to the file.
func (w *Writer) writeEntries(entries []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.partialEntry {
		entries = append([]byte{'\n'}, entries...)
	}
	// entries that cannot be written are lost, because a full disk must not stop the container
	n, err := w.file.Write(entries)
	if n > 0 {
		w.partialEntry = err != nil && entries[n-1] != '\n'
	}
}

// Copy writes the lines of r as log entries of the stream "stdout" or "stderr", with the time when the last byte was read. A last
// line without a newline becomes an entry with tag P.
func (w *Writer) Copy(stream string, r io.Reader) error {
	e := encoder{stream: stream}
	chunk := make([]byte, MaxLine)
	for {
		n, err := r.Read(chunk)
		e.now = time.Now().UTC()
		for rest := chunk[:n]; len(rest) > 0; {
			line, after, newline := bytes.Cut(rest, []byte{'\n'})
			e.addPiece(line, newline)
			rest = after
			if len(e.out) >= flushAt {
				w.writeEntries(e.takeEntries())
			}
		}
		if err != nil {
			e.flushLine()
		}
		if len(e.out) > 0 {
			w.writeEntries(e.takeEntries())
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// encoder converts pieces of lines to entries.
type encoder struct {
	stream string
	now    time.Time
	line   []byte // unfinished line, at most MaxLine bytes
	out    []byte // finished entries
}

// addPiece adds a piece of output to the unfinished line. newline reports whether the line ends after the piece. Lines
// longer than MaxLine are split.
func (e *encoder) addPiece(piece []byte, newline bool) {
	for len(e.line)+len(piece) > MaxLine {
		n := MaxLine - len(e.line)
		e.appendEntry('P', piece[:n])
		piece = piece[n:]
	}
	if newline {
		e.appendEntry('F', piece)
		return
	}
	e.line = append(e.line, piece...)
}

// flushLine appends the unfinished line to the finished entries, with the tag P for a partial line. Without an unfinished
// line it does nothing.
func (e *encoder) flushLine() {
	if len(e.line) > 0 {
		e.appendEntry('P', nil)
	}
}

// appendEntry appends the unfinished line and the piece of output, as one entry, to the finished entries. tag is P for a
// partial line and F for a full line.
func (e *encoder) appendEntry(tag byte, piece []byte) {
	e.out = e.now.AppendFormat(e.out, time.RFC3339Nano)
	e.out = append(e.out, ' ')
	e.out = append(e.out, e.stream...)
	e.out = append(e.out, ' ', tag, ' ')
	e.out = append(e.out, e.line...)
	e.out = append(e.out, piece...)
	e.out = append(e.out, '\n')
	e.line = e.line[:0]
}

// takeEntries returns and clears the finished entries. The result is valid until the next addPiece.
func (e *encoder) takeEntries() []byte {
	out := e.out
	e.out = e.out[:0]
	return out
}
