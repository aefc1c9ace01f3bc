// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package crilog writes the log file of a container in the CRI format: a timestamp, the stream, P or F for a
// part or the full rest of a line, and the content. It does not rotate files; it reopens them.
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

// MaxLine is how many bytes of a line go into one entry, as in containerd; a longer line becomes several.
const MaxLine = 16 << 10

// flushAt bounds what is kept in memory of lines that are ready to be written.
const flushAt = 32 << 10

// Writer is an open log file. Its methods may be called from many goroutines.
type Writer struct {
	path string

	mu   sync.Mutex // guards what follows, and keeps entries whole
	file *os.File
	torn bool // the last write ended inside an entry
}

// Open opens a log file to append to it, and makes it and its directory where they are missing.
func Open(path string) (*Writer, error) {
	file, err := open(path)
	if err != nil {
		return nil, err
	}
	return &Writer{path: path, file: file}, nil
}

func open(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	return os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o640)
}

// Reopen goes on in a new file at the same path: the old one has been renamed. When the new file cannot be
// opened, the old one stays in use. No entry is lost or split between the two.
func (w *Writer) Reopen() error {
	file, err := open(w.path)
	if err != nil {
		return err
	}
	w.mu.Lock()
	old := w.file
	w.file, w.torn = file, false
	w.mu.Unlock()
	return old.Close()
}

// Close closes the file.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.file.Close()
}

// write appends whole entries. A full disk must not stop the container, so what cannot be written is dropped.
func (w *Writer) write(entries []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.torn {
		entries = append([]byte{'\n'}, entries...)
	}
	n, err := w.file.Write(entries)
	if n > 0 {
		w.torn = err != nil && entries[n-1] != '\n'
	}
}

// Copy writes what r yields, as entries of one stream ("stdout" or "stderr"), until r ends. Every entry has the time at
// which its last byte was read. A last line without a newline becomes an entry tagged P.
func (w *Writer) Copy(stream string, r io.Reader) error {
	e := encoder{stream: stream}
	chunk := make([]byte, MaxLine)
	for {
		n, err := r.Read(chunk)
		e.now = time.Now().UTC()
		for rest := chunk[:n]; len(rest) > 0; {
			line, after, newline := bytes.Cut(rest, []byte{'\n'})
			e.add(line, newline)
			rest = after
			if len(e.out) >= flushAt {
				w.write(e.take())
			}
		}
		if err != nil {
			e.end()
		}
		if len(e.out) > 0 {
			w.write(e.take())
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// encoder turns pieces of lines into entries.
type encoder struct {
	stream string
	now    time.Time
	line   []byte // what is known of a line that has not ended, at most MaxLine
	out    []byte // entries that are ready to be written
}

// add takes a piece of a line; newline says that the line ends with it.
func (e *encoder) add(piece []byte, newline bool) {
	for len(e.line)+len(piece) > MaxLine {
		n := MaxLine - len(e.line)
		e.entry('P', piece[:n])
		piece = piece[n:]
	}
	if newline {
		e.entry('F', piece)
		return
	}
	e.line = append(e.line, piece...)
}

// end writes the rest of a line that never ended.
func (e *encoder) end() {
	if len(e.line) > 0 {
		e.entry('P', nil)
	}
}

// entry makes an entry of the kept line and its last piece.
func (e *encoder) entry(tag byte, piece []byte) {
	e.out = e.now.AppendFormat(e.out, time.RFC3339Nano)
	e.out = append(e.out, ' ')
	e.out = append(e.out, e.stream...)
	e.out = append(e.out, ' ', tag, ' ')
	e.out = append(e.out, e.line...)
	e.out = append(e.out, piece...)
	e.out = append(e.out, '\n')
	e.line = e.line[:0]
}

// take returns the ready entries; they are valid until the next add.
func (e *encoder) take() []byte {
	out := e.out
	e.out = e.out[:0]
	return out
}
