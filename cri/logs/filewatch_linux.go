// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"sync"

	"golang.org/x/sys/unix"
)

// fileWatch reports the next write to a file, once per request. A busy log therefore causes no events between two checks, and a
// quiet log causes none at all.
type fileWatch struct {
	queue *inotifyQueue

	mu    sync.Mutex // guards armed, and keeps it consistent with the queue
	armed map[int]chan struct{}
}

// fileWatchRequest is a pending request for the next write to a file.
type fileWatchRequest struct {
	watch int
	fired chan struct{} // closed on the next write
}

func openFileWatch() (*fileWatch, error) {
	queue, err := openInotify()
	if err != nil {
		return nil, err
	}
	return &fileWatch{queue: queue, armed: make(map[int]chan struct{})}, nil
}

// awaitWrite returns a request whose channel fired is closed at the next write to the file.
func (w *fileWatch) awaitWrite(path string) (fileWatchRequest, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	watch, err := w.queue.addWatch(path, unix.IN_MODIFY|unix.IN_ONESHOT)
	if err != nil {
		return fileWatchRequest{}, err
	}
	n := fileWatchRequest{watch, make(chan struct{})}
	w.armed[watch] = n.fired
	return n, nil
}

// cancelWait cancels a request that awaitWrite has made. The next write then does not close the channel of the request.
func (w *fileWatch) cancelWait(req fileWatchRequest) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.armed[req.watch] == req.fired {
		delete(w.armed, req.watch)
		w.queue.removeWatch(req.watch)
	}
}

// readEvents reads inotify events and closes the channels of the requests, until closeQueue is called.
func (w *fileWatch) readEvents() error {
	for {
		notices, err := w.queue.readEvents()
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

// fireAll signals all pending requests. It is called when the kernel has dropped events.
func (w *fileWatch) fireAll() {
	for watch, fired := range w.armed {
		close(fired)
		w.queue.removeWatch(watch)
	}
	clear(w.armed)
}

func (w *fileWatch) closeQueue() { w.queue.closeFile() }
