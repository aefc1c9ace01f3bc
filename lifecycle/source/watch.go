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

// firstRetry is the delay before the first retry of a failed watch. The delay doubles with each failure, up to the scan period.
const firstRetry = time.Second

// watch signals possible changes of a directory, which inotify reports. Changes are noticed sooner with it; without it, periodic
// scans find them.
type watch struct {
	path    string // a directory, or a file whose parent is watched
	period  time.Duration
	logger  *slog.Logger
	changed chan struct{} // receives a value after a change

	watcher       *fsnotify.Watcher // nil: the directory is not watched
	target        os.FileInfo       // the watched directory
	targetRemoved atomic.Bool       // the watched directory was removed or renamed: another directory may have its inode number by now
	relay         sync.WaitGroup
	retry         time.Duration
	retryAt       time.Time

	mu      sync.Mutex      // guards removed
	removed map[string]bool // paths of files that were removed or renamed away since the last takeRemoved
}

func newWatch(path string, period time.Duration, logger *slog.Logger) *watch {
	return &watch{path: path, period: period, logger: logger, changed: make(chan struct{}, 1), retry: firstRetry}
}

// renewWatch replaces the watch of the directory if it has failed or the path leads to another directory. A later call retries a
// failure, with a growing delay.
func (w *watch) renewWatch(now time.Time) {
	dir := w.path
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		dir = filepath.Dir(dir)
		info, err = os.Stat(dir)
	}
	if err == nil && w.watcher != nil && !w.targetRemoved.Load() && os.SameFile(info, w.target) {
		return
	}
	w.closeWatch()
	if now.Before(w.retryAt) {
		return
	}
	if err == nil {
		err = w.startWatch(dir)
	}
	if err != nil {
		w.logger.Warn("Cannot watch manifests, scanning periodically", "path", w.path, "error", err, "retryIn", w.retry)
		w.retryAt = now.Add(w.retry)
		w.retry = backoff.Policy{First: firstRetry, Max: w.period}.Next(w.retry)
		return
	}
	w.target, w.retry, w.retryAt = info, firstRetry, time.Time{}
}

func (w *watch) startWatch(dir string) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	if err := watcher.Add(dir); err != nil {
		watcher.Close()
		return err
	}
	w.watcher = watcher
	w.targetRemoved.Store(false)
	w.relay.Go(func() {
		for {
			// An error is an overflow of the kernel queue: some change happened.
			select {
			case e, ok := <-watcher.Events:
				if !ok {
					return
				}
				switch {
				case !e.Has(fsnotify.Remove) && !e.Has(fsnotify.Rename):
				case e.Name == dir:
					w.targetRemoved.Store(true)
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

// addRemoved records the path of a file that was removed or renamed away. It records at most maxFiles paths.
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

// takeRemoved returns the paths that addRemoved has recorded since the last call of takeRemoved.
func (w *watch) takeRemoved() map[string]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	removed := w.removed
	w.removed = nil
	return removed
}

// nextScanDelay returns the delay before the next scan of the directory if no change is signaled earlier.
func (w *watch) nextScanDelay(now time.Time) time.Duration {
	if w.watcher != nil {
		return w.period
	}
	return max(0, min(w.period, w.retryAt.Sub(now))) // a failed watch is retried then
}

func (w *watch) closeWatch() {
	if w.watcher != nil {
		w.watcher.Close()
		w.relay.Wait()
		w.watcher = nil
	}
}
