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

// stampLayout is how times are printed: RFC 3339 with all nine digits, so that lines stay aligned.
const stampLayout = "2006-01-02T15:04:05.000000000Z07:00"

// errDone says that all that was asked for has been written.
var errDone = errors.New("done")

// output writes the content of entries. It gathers what goes to the same stream, and keeps the order of what goes
// to both, since they may be one writer.
type output struct {
	stdout, stderr *bufio.Writer // nil: not wanted, and not counted
	last           *bufio.Writer
	since          time.Time
	stamps         bool
	left           int64 // bytes that may still be written
	inLine         bool  // the last entry did not end its line
	prefix         []byte
}

func newOutput(stdout, stderr io.Writer, o ReadOptions) *output {
	out := &output{since: o.Since, stamps: o.Timestamps, left: math.MaxInt64}
	if stdout != nil {
		out.stdout = bufio.NewWriterSize(stdout, firstBuffer)
	}
	if stderr != nil {
		out.stderr = bufio.NewWriterSize(stderr, firstBuffer)
	}
	if o.LimitBytes != nil {
		out.left = *o.LimitBytes
	}
	return out
}

// write writes an entry, unless it is too old or its stream is not wanted. It returns errDone at the limit.
func (o *output) write(e Entry) error {
	begins := !o.inLine
	o.inLine = !e.EndsLine()
	w := o.stdout
	if e.Stream == Stderr {
		w = o.stderr
	}
	if w == nil || e.Time.Before(o.since) {
		return nil
	}
	if o.last != w {
		if err := o.flush(); err != nil {
			return err
		}
		o.last = w
	}
	if o.stamps && begins {
		o.prefix = append(e.Time.AppendFormat(o.prefix[:0], stampLayout), ' ')
		if err := o.limited(w, o.prefix); err != nil {
			return err
		}
	}
	return o.limited(w, e.Content)
}

func (o *output) limited(w *bufio.Writer, p []byte) error {
	p = p[:min(int64(len(p)), o.left)]
	o.left -= int64(len(p))
	if _, err := w.Write(p); err != nil {
		return err
	}
	if o.left == 0 {
		return errDone
	}
	return nil
}

// flush hands on what is gathered.
func (o *output) flush() error {
	if o.last == nil {
		return nil
	}
	return o.last.Flush()
}
