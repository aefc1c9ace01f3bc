// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"bufio"
	"errors"
	"io"
	"math"
	"time"
)

// stampLayout is the layout of printed times: RFC 3339 with nine digits, so that lines stay aligned.
const stampLayout = "2006-01-02T15:04:05.000000000Z07:00"

// errLogEnd means that all requested output has been written.
var errLogEnd = errors.New("done")

// entryWriter writes the content of entries. It buffers output to one stream at a time, so that the order between the streams is
// kept: both may be the same writer.
type entryWriter struct {
	stdout, stderr *bufio.Writer // nil: the stream is not requested and not counted
	last           *bufio.Writer
	since          time.Time
	stamps         bool
	bytesLeft      int64 // remaining bytes of ReadOptions.LimitBytes
	inLine         bool  // the last entry did not end its line
	prefix         []byte
}

func newEntryWriter(stdout, stderr io.Writer, opts ReadOptions) *entryWriter {
	out := &entryWriter{since: opts.Since, stamps: opts.Timestamps, bytesLeft: math.MaxInt64}
	if stdout != nil {
		out.stdout = bufio.NewWriterSize(stdout, firstBuffer)
	}
	if stderr != nil {
		out.stderr = bufio.NewWriterSize(stderr, firstBuffer)
	}
	if opts.LimitBytes != nil {
		out.bytesLeft = *opts.LimitBytes
	}
	return out
}

// writeEntry writes an entry to the writer of its stream, unless it is older than Since. At LimitBytes it returns errLogEnd.
func (o *entryWriter) writeEntry(entry Entry) error {
	begins := !o.inLine
	o.inLine = !entry.EndsLine()
	w := o.stdout
	if entry.Stream == Stderr {
		w = o.stderr
	}
	if w == nil || entry.Time.Before(o.since) {
		return nil
	}
	if o.last != w {
		if err := o.flushLast(); err != nil {
			return err
		}
		o.last = w
	}
	if o.stamps && begins {
		o.prefix = append(entry.Time.AppendFormat(o.prefix[:0], stampLayout), ' ')
		if err := o.writeLimited(w, o.prefix); err != nil {
			return err
		}
	}
	return o.writeLimited(w, entry.Content)
}

// writeLimited writes data to w, up to LimitBytes. At the limit it returns errLogEnd.
func (o *entryWriter) writeLimited(w *bufio.Writer, data []byte) error {
	data = data[:min(int64(len(data)), o.bytesLeft)]
	o.bytesLeft -= int64(len(data))
	if _, err := w.Write(data); err != nil {
		return err
	}
	if o.bytesLeft == 0 {
		return errLogEnd
	}
	return nil
}

// flushLast flushes the writer of the last written entry.
func (o *entryWriter) flushLast() error {
	if o.last == nil {
		return nil
	}
	return o.last.Flush()
}
