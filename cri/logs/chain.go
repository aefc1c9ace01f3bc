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
	// pollPeriod is the period at which a followed log is read without inotify events, and of calls to ReadOptions.Running.
	pollPeriod = time.Second
	// settlePeriod is the time that a renamed file must be unchanged before the reader continues with the next file. The runtime
	// writes to the renamed file until it has reopened the log, and a little longer.
	settlePeriod = 100 * time.Millisecond
)

// logChain reads the files of one log in the order in which they were written. It finds files that were renamed meanwhile by
// their names, which sort by age.
type logChain struct {
	path string
	o    ReadOptions

	lines       lineReader
	file        *os.File // the open file
	key         string   // key (time and number) in the name of file; empty while file is the current one
	previousKey string   // key of the newest file that is older than file

	tailKey          string // key of the file in which the tail starts
	skipLines        int64  // number of its lines before the tail
	watch            *dirWatch
	watchTried       bool      // opening watch was tried; watch may still be nil
	lastRunningCheck time.Time // when ReadOptions.Running was last called
	containerExited  bool      // the container has exited, so that the log no longer grows
	runningErr       error     // error of ReadOptions.Running, if that is why the read ends
}

func newLogChain(path string, opts ReadOptions) *logChain {
	return &logChain{path: path, o: opts}
}

func (c *logChain) closeFiles() {
	if c.file != nil {
		c.file.Close() // read only
	}
	if c.watch != nil {
		c.watch.closeWatch()
	}
}

// openFirst opens the first file to read: the current file, or with IncludeRotated the oldest file or that of the first tail
// line.
func (c *logChain) openFirst(ctx context.Context) error {
	found, err := listRotated(c.path)
	if err != nil {
		return err
	}
	switch {
	case c.o.IncludeRotated:
		err = c.findTail(ctx)
	case len(found) > 0:
		c.previousKey = found[len(found)-1].key
	}
	if err == nil {
		err = c.openAfter(c.previousKey)
	}
	if err != nil || c.o.tailLines() < 0 {
		return err
	}
	if c.o.IncludeRotated {
		return c.skipToTail()
	}
	info, err := c.file.Stat()
	if err != nil {
		return err
	}
	// skip the lines before the last TailLines lines
	start, err := tailStart(c.file, info.Size(), c.o.tailLines())
	if err != nil {
		return fmt.Errorf("find the last %d lines of log %s: %w", c.o.tailLines(), c.path, err)
	}
	_, err = c.file.Seek(start, io.SeekStart)
	return err
}

// openAfter opens the oldest rotated file after the one with the previous key, or else the current file.
func (c *logChain) openAfter(previousKey string) error {
	for {
		found, err := listRotated(c.path)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(found, func(r rotatedFile) bool { return r.key > previousKey })
		if i >= 0 {
			err := c.openFile(filepath.Join(filepath.Dir(c.path), found[i].name), found[i], previousKey)
			if errors.Is(err, fs.ErrNotExist) {
				continue // compressed or removed since the listing
			}
			return err
		}
		if err := c.openFile(c.path, rotatedFile{}, previousKey); err != nil {
			return err
		}
		// The file may have been rotated just before it was opened.
		found, err = listRotated(c.path)
		if err != nil {
			return err
		}
		if len(found) == 0 || found[len(found)-1].key <= previousKey {
			return nil
		}
	}
}

// openFile opens the next file to read, and closes the open file. For the current file, rotated is empty.
func (c *logChain) openFile(path string, rotated rotatedFile, previousKey string) error {
	file, err := openRegular(path)
	if err != nil {
		return err
	}
	var source io.Reader = file
	if rotated.suffix == compressedSuffix {
		if source, err = gzip.NewReader(file); err != nil {
			file.Close()
			return fmt.Errorf("read log %s: %w", path, err)
		}
	}
	if c.file != nil {
		c.file.Close() // read only
	}
	c.file, c.key, c.previousKey = file, rotated.key, previousKey
	c.lines.source = source
	c.lines.dropBuffered()
	return nil
}

// awaitData waits at the end of the open file until it may have changed. It returns true if the file can no longer grow.
func (c *logChain) awaitData(ctx context.Context) (complete bool, err error) {
	if c.key == "" {
		if !c.o.Follow {
			return true, nil
		}
		if cut, err := c.locateFile(); cut || err != nil {
			return false, err
		}
	}
	if c.key != "" {
		rest, err := c.settleDelay()
		if err != nil || rest <= 0 {
			return true, err
		}
		return false, c.awaitChange(ctx, rest)
	}
	if c.containerExited {
		return true, nil
	}
	return false, c.awaitContainer(ctx)
}

// awaitContainer waits until the current file may have grown, or the container has exited.
func (c *logChain) awaitContainer(ctx context.Context) error {
	if !c.watchTried {
		c.watchTried = true
		c.watch, _ = c.watcher().watchDir(filepath.Dir(c.path)) // without a watch the file is polled
		return nil                                              // a change may have preceded the watch
	}
	if time.Since(c.lastRunningCheck) >= pollPeriod { // at most once a second
		running, err := c.isRunning(ctx)
		if !running {
			c.containerExited, c.runningErr = true, err
			return nil
		}
		c.lastRunningCheck = time.Now()
	}
	return c.awaitChange(ctx, pollPeriod-time.Since(c.lastRunningCheck))
}

// watcher returns ReadOptions.Watcher or, if that is nil, a new Watcher for this read.
func (c *logChain) watcher() *Watcher {
	if c.o.Watcher != nil {
		return c.o.Watcher
	}
	return &Watcher{}
}

// openNext opens the file that follows the open file, perhaps after a wait. At the end of the log it returns errLogEnd.
func (c *logChain) openNext(ctx context.Context) error {
	if c.key != "" {
		err := c.openAfter(c.key)
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if c.o.Follow && !c.containerExited {
			return c.awaitContainer(ctx) // the runtime has not reopened the log yet
		}
	}
	if c.runningErr != nil {
		return c.runningErr // of ReadOptions.Running, which has ended the read
	}
	return errLogEnd
}

// isRunning returns the result of ReadOptions.Running. It returns true and no error if Running is nil or the runtime is
// unavailable.
func (c *logChain) isRunning(ctx context.Context) (bool, error) {
	if c.o.Running == nil {
		return true, nil
	}
	running, err := c.o.Running(ctx)
	if errors.Is(err, cri.ErrUnavailable) {
		return true, nil
	}
	return running && err == nil, err
}

// locateFile sets c.key if a rotation has renamed the open file. It returns true if the file was truncated instead, and rewinds
// it.
func (c *logChain) locateFile() (truncated bool, err error) {
	opened, err := c.file.Stat()
	if err != nil {
		return false, err
	}
	current, err := os.Stat(c.path)
	missing := errors.Is(err, fs.ErrNotExist)
	if err != nil && !missing {
		return false, err
	}
	if !missing && os.SameFile(opened, current) {
		return c.rewindTruncated(opened)
	}
	found, err := listRotated(c.path)
	if err != nil {
		return false, err
	}
	key := c.previousKey + "\x00" // sorts after previousKey and before all other keys; used if the file itself was removed
	i := slices.IndexFunc(found, func(r rotatedFile) bool { return r.key > c.previousKey })
	if i >= 0 && found[i].suffix == compressedSuffix {
		key = found[i].key
	} else if i >= 0 {
		info, err := os.Stat(filepath.Join(filepath.Dir(c.path), found[i].name))
		if err != nil {
			return false, notexist.Ignore(err) // being compressed; the next call looks again
		}
		if os.SameFile(opened, info) {
			key = found[i].key
		}
	}
	if missing && (i < 0 || found[len(found)-1].key <= key) {
		return false, nil // renamed but not yet reopened, or about to be renamed back
	}
	c.key = key
	return false, nil
}

// rewindTruncated reports whether the open file was truncated, and if so seeks to its start.
func (c *logChain) rewindTruncated(info fs.FileInfo) (truncated bool, err error) {
	at, err := c.file.Seek(0, io.SeekCurrent)
	// a truncated file, as by a rotation that copies the log, is shorter than the part already read
	if err != nil || info.Size() >= at {
		return false, err
	}
	c.lines.dropBuffered()
	_, err = c.file.Seek(0, io.SeekStart)
	return true, err
}

// settleDelay returns how long to wait for more output in a renamed file before the next file is opened.
func (c *logChain) settleDelay() (time.Duration, error) {
	if !c.o.Follow {
		return 0, nil
	}
	info, err := c.file.Stat()
	if err != nil {
		return 0, err
	}
	return min(settlePeriod, settlePeriod-time.Since(info.ModTime())), nil
}

func (c *logChain) awaitChange(ctx context.Context, d time.Duration) error {
	if c.watch != nil {
		return c.watch.awaitEvent(ctx, d)
	}
	return sleep.For(ctx, d)
}
