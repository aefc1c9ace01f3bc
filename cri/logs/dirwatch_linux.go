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

// Watcher lets all reads that follow a log share one inotify instance, of which a user has 128. The zero value is ready, and has an instance
// while a read follows. It is safe for concurrent use.
type Watcher struct {
	mu      sync.Mutex // guards the fields below
	queue   *inotify   // nil while there is no watch
	reading chan struct{}
	watches map[int]map[*dirWatch]struct{} // by number: a directory has one for all who watch it
}

// dirWatch tells when files of a directory are written, made or renamed.
type dirWatch struct {
	shared  *Watcher
	queue   *inotify
	reading chan struct{} // holds a token while one of those who wait reads the queue for all
	watch   int
	fired   chan struct{} // holds a token for notices since the last wait
}

// open watches a directory.
func (w *Watcher) open(dir string) (*dirWatch, error) {
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
	watch, err := w.queue.add(dir, unix.IN_MODIFY|unix.IN_CREATE|unix.IN_MOVED_TO)
	if err != nil {
		return nil, err
	}
	d := &dirWatch{shared: w, queue: w.queue, reading: w.reading, watch: watch, fired: make(chan struct{}, 1)}
	if w.watches[watch] == nil {
		w.watches[watch] = map[*dirWatch]struct{}{}
	}
	w.watches[watch][d] = struct{}{}
	return d, nil
}

// closeUnused closes the queue after the last watch. The caller holds the lock.
func (w *Watcher) closeUnused() {
	if len(w.watches) == 0 {
		w.queue.close()
		w.queue = nil
	}
}

func (d *dirWatch) close() {
	w := d.shared
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.watches[d.watch], d)
	if len(w.watches[d.watch]) == 0 {
		delete(w.watches, d.watch)
		w.queue.remove(d.watch)
	}
	w.closeUnused()
}

// wait returns when something has happened since the last call, or after d, or with the cause when ctx ends. One of the callers reads the
// queue for all of them.
func (d *dirWatch) wait(ctx context.Context, most time.Duration) error {
	end := time.Now().Add(most)
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-d.fired:
		return nil
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case d.reading <- struct{}{}:
		defer func() { <-d.reading }()
		return d.read(ctx, end)
	}
}

// read reads the queue until it has a notice for d, or until end.
func (d *dirWatch) read(ctx context.Context, end time.Time) error {
	if err := d.queue.file.SetReadDeadline(end); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() {
		_ = d.queue.file.SetReadDeadline(time.Unix(1, 0))
	})
	defer stop()
	for {
		select {
		case <-d.fired:
			return nil
		default:
		}
		notices, err := d.queue.read()
		d.shared.dispatch(notices)
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

// dispatch hands on notices to the watches that they are for.
func (w *Watcher) dispatch(notices []notice) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range notices {
		if n.mask&unix.IN_Q_OVERFLOW != 0 { // some are lost
			for _, watches := range w.watches {
				fire(watches)
			}
			continue
		}
		fire(w.watches[n.watch])
	}
}

func fire(watches map[*dirWatch]struct{}) {
	for d := range watches {
		sleep.Wake(d.fired)
	}
}
