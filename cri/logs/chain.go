// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/notexist"
	"github.com/seed81659283/nodeagent/internal/sleep"
)

const (
	// pollPeriod is how often a log that is followed is read without a notice, and how often Running is asked.
	pollPeriod = time.Second
	// settle is how long a renamed file must be unchanged before it is left: the runtime goes on writing to it
	// until it has the new one, and a little longer.
	settle = 100 * time.Millisecond
)

// chain is the files of one log, read in the order in which they were written. What has been renamed in the
// meantime is found again by its name, which sorts by age.
type chain struct {
	path string
	o    ReadOptions

	lines lines
	file  *os.File // open
	key   string   // of file, when it is known to be rotated; else ""
	prev  string   // the key of the newest file older than file

	tailKey   string // the file in which the tail begins
	skipLines int64  // how many of its lines are not part of it
	watch     *dirWatch
	watched   bool      // a watch was asked for, whether there is one or not
	asked     time.Time // when Running was asked
	over      bool      // the container does not run, so no more is written
	cause     error     // why that is not known
}

func newChain(path string, o ReadOptions) *chain {
	return &chain{path: path, o: o}
}

func (c *chain) close() {
	if c.file != nil {
		c.file.Close() // read only
	}
	if c.watch != nil {
		c.watch.close()
	}
}

// open opens the first file, at the line where the reading begins.
func (c *chain) open(ctx context.Context) error {
	found, err := listRotated(c.path)
	if err != nil {
		return err
	}
	switch {
	case c.o.IncludeRotated:
		err = c.findTail(ctx)
	case len(found) > 0:
		c.prev = found[len(found)-1].key
	}
	if err == nil {
		err = c.openAfter(c.prev)
	}
	if err != nil || c.o.tail() < 0 {
		return err
	}
	if c.o.IncludeRotated {
		return c.skip()
	}
	info, err := c.file.Stat()
	if err != nil {
		return err
	}
	start, err := tailStart(c.file, info.Size(), c.o.tail())
	if err != nil {
		return fmt.Errorf("find the last %d lines of log %s: %w", c.o.tail(), c.path, err)
	}
	_, err = c.file.Seek(start, io.SeekStart)
	return err
}

// openAfter opens the oldest file that is newer than the key prev. A file may be rotated, compressed or removed at any
// moment, so it looks again after it has opened the current one.
func (c *chain) openAfter(prev string) error {
	for {
		found, err := listRotated(c.path)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(found, func(r rotated) bool { return r.key > prev })
		if i >= 0 {
			err := c.openFile(filepath.Join(filepath.Dir(c.path), found[i].name), found[i], prev)
			if errors.Is(err, fs.ErrNotExist) {
				continue // compressed or removed since
			}
			return err
		}
		if err := c.openFile(c.path, rotated{}, prev); err != nil {
			return err
		}
		found, err = listRotated(c.path)
		if err != nil {
			return err
		}
		if len(found) == 0 || found[len(found)-1].key <= prev {
			return nil
		}
	}
}

// openFile goes on in another file.
func (c *chain) openFile(path string, r rotated, prev string) error {
	file, err := openRegular(path)
	if err != nil {
		return err
	}
	var source io.Reader = file
	if r.suffix == compressed {
		if source, err = gzip.NewReader(file); err != nil {
			file.Close()
			return fmt.Errorf("read log %s: %w", path, err)
		}
	}
	if c.file != nil {
		c.file.Close() // read only
	}
	c.file, c.key, c.prev = file, r.key, prev
	c.lines.source = source
	c.lines.drop()
	return nil
}

// ended reports whether the file is read and will not grow. Where it may grow, it waits until it may have.
func (c *chain) ended(ctx context.Context) (bool, error) {
	if c.key == "" {
		if !c.o.Follow {
			return true, nil
		}
		if cut, err := c.findSelf(); cut || err != nil {
			return false, err
		}
	}
	if c.key != "" {
		rest, err := c.unsettled()
		if err != nil || rest <= 0 {
			return true, err
		}
		return false, c.wait(ctx, rest)
	}
	if c.over {
		return true, nil
	}
	return false, c.idle(ctx)
}

// idle waits until there may be more to read. It asks whether the container runs, and remembers where it does not:
// what was written before that is still to be read.
func (c *chain) idle(ctx context.Context) error {
	if !c.watched {
		c.watched = true
		c.watch, _ = c.watcher().open(filepath.Dir(c.path)) // without it there is the poll
		return nil                                          // something may have come before the watch
	}
	if time.Since(c.asked) >= pollPeriod {
		running, err := c.running(ctx)
		if !running {
			c.over, c.cause = true, err
			return nil
		}
		c.asked = time.Now()
	}
	return c.wait(ctx, pollPeriod-time.Since(c.asked))
}

// watcher returns the watcher of the options, or one for this read alone.
func (c *chain) watcher() *Watcher {
	if c.o.Watcher != nil {
		return c.o.Watcher
	}
	return &Watcher{}
}

// next opens the next file, or returns why there is none: errDone where the log ends.
func (c *chain) next(ctx context.Context) error {
	if c.key != "" {
		err := c.openAfter(c.key)
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if c.o.Follow && !c.over {
			return c.idle(ctx) // the runtime has yet to open the file anew
		}
	}
	if c.cause != nil {
		return c.cause
	}
	return errDone
}

func (c *chain) running(ctx context.Context) (bool, error) {
	if c.o.Running == nil {
		return true, nil
	}
	running, err := c.o.Running(ctx)
	if errors.Is(err, cri.ErrUnavailable) {
		return true, nil
	}
	return running && err == nil, err
}

// findSelf finds out whether the file that was opened as the current one still is, and where not, its key. It
// reports whether the file was cut and is read from its start again.
func (c *chain) findSelf() (cut bool, err error) {
	mine, err := c.file.Stat()
	if err != nil {
		return false, err
	}
	current, err := os.Stat(c.path)
	missing := errors.Is(err, fs.ErrNotExist)
	if err != nil && !missing {
		return false, err
	}
	if !missing && os.SameFile(mine, current) {
		return c.rewind(mine)
	}
	found, err := listRotated(c.path)
	if err != nil {
		return false, err
	}
	key := c.prev + "\x00" // after prev and before all others: what is left where the file itself is gone
	i := slices.IndexFunc(found, func(r rotated) bool { return r.key > c.prev })
	if i >= 0 && found[i].suffix == compressed {
		key = found[i].key
	} else if i >= 0 {
		info, err := os.Stat(filepath.Join(filepath.Dir(c.path), found[i].name))
		if err != nil {
			return false, notexist.Ignore(err) // being compressed; it is looked for again
		}
		if os.SameFile(mine, info) {
			key = found[i].key
		}
	}
	if missing && (i < 0 || found[len(found)-1].key <= key) {
		return false, nil // renamed and not yet reopened, or renamed back in a moment
	}
	c.key = key
	return false, nil
}

// rewind reads a file anew that was cut: some rotate logs with a copy.
func (c *chain) rewind(info fs.FileInfo) (cut bool, err error) {
	at, err := c.file.Seek(0, io.SeekCurrent)
	if err != nil || info.Size() >= at {
		return false, err
	}
	c.lines.drop()
	_, err = c.file.Seek(0, io.SeekStart)
	return true, err
}

// unsettled returns how long a rotated file is still watched before it is left.
func (c *chain) unsettled() (time.Duration, error) {
	if !c.o.Follow {
		return 0, nil
	}
	info, err := c.file.Stat()
	if err != nil {
		return 0, err
	}
	return min(settle, settle-time.Since(info.ModTime())), nil
}

func (c *chain) wait(ctx context.Context, d time.Duration) error {
	if c.watch != nil {
		return c.watch.wait(ctx, d)
	}
	return sleep.For(ctx, d)
}
