// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/internal/sleep"
)

// Watcher shares one inotify instance among all reads that follow a log; a user can have only 128 instances. The zero value is
// ready to use. It holds an instance only while a read follows a log. It is safe for concurrent use.
type Watcher struct {
	mu      sync.Mutex    // guards the fields below
	queue   *inotifyQueue // nil while there is no watch
	reading chan struct{}
	watches map[int]map[*dirWatch]struct{} // by watch descriptor: all watches of a directory share one
}

// dirWatch reports when a file in a directory is written, created or renamed.
type dirWatch struct {
	shared  *Watcher
	queue   *inotifyQueue
	reading chan struct{} // capacity 1; has an element while one of the waiting goroutines reads the queue for all
	watch   int
	changed chan struct{} // capacity 1; has an element after an event since the last wait
}

// watchDir starts to watch a directory for changes of its files. The caller closes the watch with closeWatch.
func (w *Watcher) watchDir(dir string) (*dirWatch, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.queue == nil {
		queue, err := openInotify()
		if err != nil {
			return nil, err
		}
		w.queue, w.reading, w.watches = queue, make(chan struct{}, 1), map[int]map[*dirWatch]struct{}{}
	}
	defer w.closeUnused()
	watch, err := w.queue.addWatch(dir, unix.IN_MODIFY|unix.IN_CREATE|unix.IN_MOVED_TO)
	if err != nil {
		return nil, err
	}
	d := &dirWatch{shared: w, queue: w.queue, reading: w.reading, watch: watch, changed: make(chan struct{}, 1)}
	if w.watches[watch] == nil {
		w.watches[watch] = map[*dirWatch]struct{}{}
	}
	w.watches[watch][d] = struct{}{}
	return d, nil
}

// closeUnused closes the inotify instance if no watch is open. w.mu is held.
func (w *Watcher) closeUnused() {
	if len(w.watches) == 0 {
		w.queue.closeFile()
		w.queue = nil
	}
}

func (d *dirWatch) closeWatch() {
	w := d.shared
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.watches[d.watch], d)
	if len(w.watches[d.watch]) == 0 {
		delete(w.watches, d.watch)
		w.queue.removeWatch(d.watch)
	}
	w.closeUnused()
}

// awaitEvent waits until the directory has changed since the last call, or the time limit has passed. If ctx ends, it returns
// ctx.Err().
func (d *dirWatch) awaitEvent(ctx context.Context, limit time.Duration) error {
	end := time.Now().Add(limit)
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-d.changed:
		return nil
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case d.reading <- struct{}{}: // one goroutine reads the events for all
		defer func() { <-d.reading }()
		return d.readQueue(ctx, end)
	}
}

// readQueue reads inotify events, and wakes the watches of changed directories, until this directory changes or the time end.
func (d *dirWatch) readQueue(ctx context.Context, end time.Time) error {
	if err := d.queue.file.SetReadDeadline(end); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() {
		_ = d.queue.file.SetReadDeadline(time.Unix(1, 0))
	})
	defer stop()
	for {
		select {
		case <-d.changed:
			return nil
		default:
		}
		notices, err := d.queue.readEvents()
		d.shared.dispatchEvents(notices)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil
		case err != nil:
			return err
		}
	}
}

// dispatchEvents wakes the watches of the directories in which the events occurred.
func (w *Watcher) dispatchEvents(notices []inotifyEvent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range notices {
		if n.mask&unix.IN_Q_OVERFLOW != 0 { // the kernel dropped events
			for _, watches := range w.watches {
				wakeWatches(watches)
			}
			continue
		}
		wakeWatches(w.watches[n.watch])
	}
}

// wakeWatches wakes the goroutines that wait for an event of one of the watches.
func wakeWatches(watches map[*dirWatch]struct{}) {
	for d := range watches {
		sleep.Wake(d.changed)
	}
}
