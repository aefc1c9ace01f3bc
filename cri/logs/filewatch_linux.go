// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"sync"

	"golang.org/x/sys/unix"
)

// fileWatch tells once that a file is written to, and then no more until it is asked again: a busy log costs
// nothing between two looks, and a quiet one nothing at all.
type fileWatch struct {
	queue *inotify

	mu    sync.Mutex // guards armed, and keeps it in step with the queue
	armed map[int]chan struct{}
}

// notify is a file that is waited for.
type notify struct {
	watch int
	fired chan struct{} // closed when the file is written to
}

func openFileWatch() (*fileWatch, error) {
	queue, err := openInotify()
	if err != nil {
		return nil, err
	}
	return &fileWatch{queue: queue, armed: make(map[int]chan struct{})}, nil
}

// arm asks for the next write to the file at path.
func (w *fileWatch) arm(path string) (notify, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	watch, err := w.queue.add(path, unix.IN_MODIFY|unix.IN_ONESHOT)
	if err != nil {
		return notify{}, err
	}
	n := notify{watch, make(chan struct{})}
	w.armed[watch] = n.fired
	return n, nil
}

// disarm takes an arm back.
func (w *fileWatch) disarm(n notify) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.armed[n.watch] == n.fired {
		delete(w.armed, n.watch)
		w.queue.remove(n.watch)
	}
}

// run hands on the notices until close.
func (w *fileWatch) run() error {
	for {
		notices, err := w.queue.read()
		if err != nil {
			return err
		}
		w.mu.Lock()
		for _, n := range notices {
			if n.mask&unix.IN_Q_OVERFLOW != 0 {
				w.fireAll()
			} else if fired, ok := w.armed[n.watch]; ok {
				delete(w.armed, n.watch)
				close(fired)
			}
		}
		w.mu.Unlock()
	}
}

// fireAll reports a write to every file: some notices are lost.
func (w *fileWatch) fireAll() {
	for watch, fired := range w.armed {
		close(fired)
		w.queue.remove(watch)
	}
	clear(w.armed)
}

func (w *fileWatch) close() { w.queue.close() }
