// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"
)

// ReadOptions selects the part of a log that [Read] reads. The zero value selects the whole current file. The first five fields
// have the meaning of PodLogOptions in the Kubernetes API.
type ReadOptions struct {
	// TailLines limits the read to the last lines of the current file or, with IncludeRotated, of all files; see "Lines" in the
	// package documentation. Nil and negative values mean all lines.
	TailLines *int64
	// LimitBytes ends the read after this many bytes of output, including times. Nil means no limit.
	LimitBytes *int64
	// Since skips entries before this time. The zero time skips none.
	Since time.Time
	// Timestamps prefixes each line with the time of its first entry.
	Timestamps bool
	// Follow continues with output that is written later, also to files created by rotation. The read ends when the container has
	// exited or ctx ends.
	Follow bool
	// Running reports whether the container runs. Follow calls it at most once a second. [cri.ErrUnavailable] counts as running;
	// any other error ends the read. Nil means that the container always runs.
	Running func(context.Context) (bool, error)
	// Watcher is an inotify instance shared by reads with Follow. If nil, the read uses an instance of its own.
	Watcher *Watcher
	// IncludeRotated starts with the oldest rotated file instead of the current one.
	IncludeRotated bool
	// LineSkipped is called for each line that is skipped because it cannot be parsed, with the reason. line is valid only during
	// the call. May be nil.
	LineSkipped func(line []byte, cause error)
}

func (o ReadOptions) validate() error {
	if o.LimitBytes != nil && *o.LimitBytes < 0 {
		return fmt.Errorf("invalid LimitBytes %d: must not be negative", *o.LimitBytes)
	}
	return nil
}

// tailLines returns the number of lines to read from the end of the log, or -1 for all lines.
func (o ReadOptions) tailLines() int64 {
	if o.TailLines == nil {
		return -1
	}
	return max(-1, *o.TailLines)
}

// Read writes the container output in the log at path to stdout and stderr, which may be equal; output of a nil writer is
// discarded.
//
// It returns nil when all output that opts selects is written, ctx.Err() when ctx ends, and [ErrUnknownFormat] if no line has a
// known format. It skips single lines that cannot be parsed.
func Read(ctx context.Context, path string, stdout, stderr io.Writer, opts ReadOptions) error {
	if err := opts.validate(); err != nil {
		return err
	}
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return fmt.Errorf("read log %s: %w", path, err)
	}
	c := newLogChain(target, opts)
	defer c.closeFiles()
	if err := c.openFirst(ctx); err != nil {
		return err
	}
	r := logReader{o: opts, chain: c, out: newEntryWriter(stdout, stderr, opts), entriesLeft: -1}
	if !opts.Follow {
		r.entriesLeft = opts.tailLines()
	}
	err = r.copyEntries(ctx)
	if errors.Is(err, errLogEnd) {
		err = nil
		if r.format == 0 && r.formatErr != nil {
			err = fmt.Errorf("read log %s: %w", path, r.formatErr)
		}
	}
	return errors.Join(err, r.out.flushLast())
}

// logReader copies entries from the files of a log to an entryWriter.
type logReader struct {
	o           ReadOptions
	chain       *logChain
	out         *entryWriter
	format      Format // zero until the first line with a known format
	entriesLeft int64  // remaining entries to copy; negative: no limit
	formatErr   error  // error of the first line without a known format
}

// copyEntries writes the entries of the log to r.out, until TailLines lines are written or errLogEnd.
func (r *logReader) copyEntries(ctx context.Context) error {
	for r.entriesLeft != 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		line, err := r.chain.lines.nextLine()
		switch {
		case err == nil:
			err = r.writeLine(line)
		case errors.Is(err, errLong):
			r.reportSkipped(line, err)
			err = nil
		case errors.Is(err, io.EOF):
			err = r.awaitMore(ctx)
		default:
			err = fmt.Errorf("read log %s: %w", r.chain.path, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// writeLine parses a line of the log file and writes its entry. It skips a line that cannot be parsed. At LimitBytes it returns
// errLogEnd.
func (r *logReader) writeLine(line []byte) error {
	e, err := r.parseLine(line)
	if err != nil {
		r.reportSkipped(line, err)
		return nil
	}
	r.entriesLeft-- // a negative number stays negative
	return r.out.writeEntry(e)
}

// parseLine parses a line in the format of the log. The first line with a known format determines the format of the log.
func (r *logReader) parseLine(line []byte) (e Entry, err error) {
	if r.format == 0 {
		if r.format, err = DetectFormat(line); err != nil {
			r.formatErr = cmp.Or(r.formatErr, err)
			return e, err
		}
	}
	return r.format.Parse(line)
}

func (r *logReader) reportSkipped(line []byte, cause error) {
	if r.o.LineSkipped != nil {
		r.o.LineSkipped(line, cause)
	}
}

// awaitMore waits at the end of a file until it may have grown, or opens the next file. At the end of the log it returns
// errLogEnd.
func (r *logReader) awaitMore(ctx context.Context) error {
	if r.o.Follow {
		if err := r.out.flushLast(); err != nil {
			return err
		}
	}
	ended, err := r.chain.awaitData(ctx)
	if err != nil || !ended {
		return err
	}
	if rest := r.chain.lines.takeUnfinished(); len(rest) > 0 {
		if err := r.writeLine(rest); err != nil {
			return err
		}
	}
	return r.chain.openNext(ctx)
}
