// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/seed81659283/nodeagent/internal/backoff"
	"github.com/seed81659283/nodeagent/internal/sleep"
)

// firstRetry is the time until a watch that failed is tried again. It doubles with each failure, up to the period.
const firstRetry = time.Second

// watch tells that something in a directory may have changed. It is only there for speed: without it, changes are
// found by looking.
type watch struct {
	path    string // a directory, or a file whose directory is watched
	period  time.Duration
	logger  *slog.Logger
	changed chan struct{} // ready after a change

	watcher *fsnotify.Watcher // nil: none
	target  os.FileInfo       // the directory that is watched
	gone    atomic.Bool       // it was removed or renamed; another one may have its inode by now
	relay   sync.WaitGroup
	retry   time.Duration
	retryAt time.Time

	mu      sync.Mutex      // guards what follows
	removed map[string]bool // paths of files that were removed or renamed away since takeRemoved
}

func newWatch(path string, period time.Duration, l *slog.Logger) *watch {
	return &watch{path: path, period: period, logger: l, changed: make(chan struct{}, 1), retry: firstRetry}
}

// renew makes sure that what is watched is what the path names now.
func (w *watch) renew(now time.Time) {
	dir := w.path
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		dir = filepath.Dir(dir)
		info, err = os.Stat(dir)
	}
	if err == nil && w.watcher != nil && !w.gone.Load() && os.SameFile(info, w.target) {
		return
	}
	w.close()
	if now.Before(w.retryAt) {
		return
	}
	if err == nil {
		err = w.start(dir)
	}
	if err != nil {
		w.logger.Warn("Cannot watch manifests, looking from time to time", "path", w.path, "error", err, "retryIn", w.retry)
		w.retryAt = now.Add(w.retry)
		w.retry = backoff.Policy{First: firstRetry, Max: w.period}.Next(w.retry)
		return
	}
	w.target, w.retry, w.retryAt = info, firstRetry, time.Time{}
}

func (w *watch) start(dir string) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	if err := watcher.Add(dir); err != nil {
		watcher.Close()
		return err
	}
	w.watcher = watcher
	w.gone.Store(false)
	w.relay.Go(func() {
		for {
			// An error is an overflow of the kernel's queue: changes that are not told apart.
			select {
			case e, ok := <-watcher.Events:
				if !ok {
					return
				}
				switch {
				case !e.Has(fsnotify.Remove) && !e.Has(fsnotify.Rename):
				case e.Name == dir:
					w.gone.Store(true)
				default:
					w.addRemoved(e.Name)
				}
			case _, ok := <-watcher.Errors:
				if !ok {
					return
				}
			}
			sleep.Wake(w.changed)
		}
	})
	return nil
}

// addRemoved records that a file was removed or renamed away. A directory with more files than maxFiles is not read at all.
func (w *watch) addRemoved(path string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.removed == nil {
		w.removed = map[string]bool{}
	}
	if len(w.removed) < maxFiles {
		w.removed[path] = true
	}
}

// takeRemoved returns the paths of the files that were removed or renamed away since the last call.
func (w *watch) takeRemoved() map[string]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	removed := w.removed
	w.removed = nil
	return removed
}

// untilLook returns how long to wait for a change before looking anyway.
func (w *watch) untilLook(now time.Time) time.Duration {
	if w.watcher != nil {
		return w.period
	}
	return max(0, min(w.period, w.retryAt.Sub(now)))
}

func (w *watch) close() {
	if w.watcher != nil {
		w.watcher.Close()
		w.relay.Wait()
		w.watcher = nil
	}
}
