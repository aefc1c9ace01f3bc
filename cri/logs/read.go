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

// ReadOptions says what of a log is read. The zero value is all of the current file. The first five fields are those
// of PodLogOptions of the Kubernetes API.
type ReadOptions struct {
	// TailLines is how many lines are read, from the end of the current file or, with IncludeRotated, of all files together; see
	// "Lines" in the package documentation. Nil and negative numbers mean all.
	TailLines *int64
	// LimitBytes ends the reading after this many bytes of output, times included. Nil means no limit.
	LimitBytes *int64
	// Since leaves out what is older. The zero time leaves out nothing.
	Since time.Time
	// Timestamps puts the time of its first piece before each line.
	Timestamps bool
	// Follow goes on with what is written later, also to the files after this one, until the container does not
	// run or ctx ends.
	Follow bool
	// Running reports to Follow whether the container runs, at most once a second. [cri.ErrUnavailable] counts as running,
	// any other error ends the reading. Nil means that it always runs.
	Running func(context.Context) (bool, error)
	// Watcher is shared by reads that Follow. Nil: the read has an inotify instance of its own.
	Watcher *Watcher
	// IncludeRotated begins with the oldest rotated file instead of the current one.
	IncludeRotated bool
	// LineSkipped is called with each line that is left out because it cannot be read, and why. The line is valid
	// during the call. May be nil.
	LineSkipped func(line []byte, cause error)
}

func (o ReadOptions) validate() error {
	if o.LimitBytes != nil && *o.LimitBytes < 0 {
		return fmt.Errorf("invalid LimitBytes %d: must not be negative", *o.LimitBytes)
	}
	return nil
}

// tail returns the number of lines wanted, or -1 for all.
func (o ReadOptions) tail() int64 {
	if o.TailLines == nil {
		return -1
	}
	return max(-1, *o.TailLines)
}

// Read writes the log at path, which may be a link, to stdout and stderr as the container wrote it. Either may be nil:
// that stream is left out. They may be the same writer.
//
// It returns nil when all that o asks for is written, the cause when ctx ends, and [ErrUnknownFormat] when the lines are in no
// known format. A line that cannot be read among others that can is skipped.
func Read(ctx context.Context, path string, stdout, stderr io.Writer, o ReadOptions) error {
	if err := o.validate(); err != nil {
		return err
	}
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return fmt.Errorf("read log %s: %w", path, err)
	}
	c := newChain(target, o)
	defer c.close()
	if err := c.open(ctx); err != nil {
		return err
	}
	r := reader{o: o, chain: c, out: newOutput(stdout, stderr, o), left: -1}
	if !o.Follow {
		r.left = o.tail()
	}
	err = r.run(ctx)
	if errors.Is(err, errDone) {
		err = nil
		if r.format == 0 && r.unknown != nil {
			err = fmt.Errorf("read log %s: %w", path, r.unknown)
		}
	}
	return errors.Join(err, r.out.flush())
}

// reader takes entries from a chain of files to an output.
type reader struct {
	o       ReadOptions
	chain   *chain
	out     *output
	format  Format // zero until a line has one
	left    int64  // entries still to come; negative: no limit
	unknown error  // why the first line has none
}

// run reads until there is nothing more, or all that is wanted is read.
func (r *reader) run(ctx context.Context) error {
	for r.left != 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		line, err := r.chain.lines.next()
		switch {
		case err == nil:
			err = r.line(line)
		case errors.Is(err, errLong):
			r.skip(line, err)
			err = nil
		case errors.Is(err, io.EOF):
			err = r.more(ctx)
		default:
			err = fmt.Errorf("read log %s: %w", r.chain.path, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// line writes a line of the file. It returns errDone when the limit is reached.
func (r *reader) line(line []byte) error {
	e, err := r.parse(line)
	if err != nil {
		r.skip(line, err)
		return nil
	}
	r.left-- // what is negative stays so
	return r.out.write(e)
}

// parse reads a line in the format of the first line that has one.
func (r *reader) parse(line []byte) (e Entry, err error) {
	if r.format == 0 {
		if r.format, err = DetectFormat(line); err != nil {
			r.unknown = cmp.Or(r.unknown, err)
			return e, err
		}
	}
	return r.format.Parse(line)
}

func (r *reader) skip(line []byte, cause error) {
	if r.o.LineSkipped != nil {
		r.o.LineSkipped(line, cause)
	}
}

// more waits at the end of a file until there may be more to read, or goes on to the next. It returns errDone at
// the end of the log.
func (r *reader) more(ctx context.Context) error {
	if r.o.Follow {
		if err := r.out.flush(); err != nil {
			return err
		}
	}
	ended, err := r.chain.ended(ctx)
	if err != nil || !ended {
		return err
	}
	if rest := r.chain.lines.rest(); len(rest) > 0 {
		if err := r.line(rest); err != nil {
			return err
		}
	}
	return r.chain.next(ctx)
}
