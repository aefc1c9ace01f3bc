// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package fsgroup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/internal/dirent"
)

// maxOpen is how many directories are open at a time. A way down that does not branch takes one; one that branches takes one for each level.
// A path can have 2,048 levels, and the kubelet changes the group of all of them.
const maxOpen = 2560

// blockSize is how many entries of a directory are read before they are changed, if there are as many; what fits into the
// buffer may be twice that.
const blockSize = 512

// walk is one walk through a volume.
//
// A worker takes the newest task: to open a directory, or to read the next block of one that is open. Before it changes
// the files of a block it leaves a task for the rest of the directory, so that others read on meanwhile. So the tasks, and
// the memory for them, are bounded by a block of each directory on the way down.
type walk struct {
	ctx   context.Context // ends the walk; asked, as a goroutine that waits for its end may come too late to stop anything
	want  wanted
	files atomic.Int64 // that were come to

	// before is called before each file, with its name; tests.
	before func(name string)

	mu      sync.Mutex
	wake    sync.Cond // when there is a task, and when there will be no more
	tasks   []task
	running int // tasks that workers have
	open    int // directories
	err     error
	failed  FilesError
}

// task is to go on reading a directory, or to open a subdirectory of it.
type task struct {
	dir  *directory
	name string // of the subdirectory; "": the directory itself
}

// directory is open as long as there are tasks for it. Then it is changed itself: others may replace its entries from then
// on.
type directory struct {
	parent  *directory // nil: it is the root of the volume
	name    string
	fd      int
	st      unix.Statx_t
	guarded bool
	tasks   atomic.Int32
}

// path returns the path of an entry in the volume, for an error.
func (d *directory) path(name string) string {
	const longest = 4096
	for ; d != nil && d.name != "" && len(name) < longest; d = d.parent {
		name = d.name + "/" + name
	}
	if d != nil && d.name != "" {
		return ".../" + name
	}
	return name
}

// newWalk returns a walk that has nothing to do yet.
func newWalk(ctx context.Context, want wanted) *walk {
	w := &walk{ctx: ctx, want: want}
	w.wake.L = &w.mu
	return w
}

// hold returns a directory for its descriptor, which is the walk's from now on.
func (w *walk) hold(parent *directory, name string, fd int) (*directory, error) {
	st, err := stat(fd)
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open++
	return &directory{parent: parent, name: name, fd: fd, st: st, guarded: guarded(&st)}, nil
}

// release ends a task for a directory. With the last one the directory is changed, but for the root, and closed.
func (w *walk) release(d *directory) {
	if d.tasks.Add(-1) > 0 {
		return
	}
	if d.parent != nil && !w.stopped() {
		w.change(opened(d.fd), &d.st, d.parent, d.name)
	}
	_ = unix.Close(d.fd)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open--
}

// push adds tasks. The last one is done first.
func (w *walk) push(tasks ...task) {
	for _, t := range tasks {
		t.dir.tasks.Add(1)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tasks = append(w.tasks, tasks...)
	w.wake.Broadcast()
}

// next takes a task, and waits while others may still add one.
func (w *walk) next() (t task, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.tasks) == 0 && w.running > 0 && w.err == nil {
		w.wake.Wait()
	}
	if len(w.tasks) == 0 || w.ended() != nil {
		return t, false
	}
	t = w.tasks[len(w.tasks)-1]
	w.tasks = w.tasks[:len(w.tasks)-1]
	w.running++
	return t, true
}

// finish says that a task is done.
func (w *walk) finish() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running--; w.running == 0 && len(w.tasks) == 0 {
		w.wake.Broadcast()
	}
}

// stop ends the walk with an error, unless it has one.
func (w *walk) stop(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
	w.wake.Broadcast()
}

// stopped reports whether the walk has an error.
func (w *walk) stopped() bool { return w.reason() != nil }

// reason returns the error of the walk.
func (w *walk) reason() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ended()
}

// ended is reason with mu held. The end of the context is the error of a walk that has none.
func (w *walk) ended() error {
	if w.err == nil && w.ctx.Err() != nil {
		w.err = w.ctx.Err()
		w.wake.Broadcast()
	}
	return w.err
}

// drop closes what the tasks that nobody has done have open.
func (w *walk) drop() {
	for _, t := range w.tasks {
		w.release(t.dir)
	}
	w.tasks = nil
}

// run does one task.
func (w *walk) run(t task, buf []byte) {
	defer w.release(t.dir)
	dir := t.dir
	if t.name != "" {
		if dir = w.enter(t.dir, t.name); dir == nil {
			return
		}
		dir.tasks.Add(1)
		defer w.release(dir)
	}
	w.block(dir, buf)
}

// enter opens a subdirectory. What is mounted there, or has been removed or replaced, is left out.
func (w *walk) enter(parent *directory, name string) *directory {
	w.mu.Lock()
	tooMany := w.open >= maxOpen
	w.mu.Unlock()
	if tooMany {
		w.stop(fmt.Errorf("open %s: %w", parent.path(name), unix.EMFILE))
		return nil
	}
	fd, err := openBelow(parent.fd, name)
	switch {
	case errors.Is(err, unix.EXDEV), errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		return nil
	case err != nil:
		w.stop(fmt.Errorf("open %s: %w", parent.path(name), err))
		return nil
	}
	dir, err := w.hold(parent, name, fd)
	if err != nil {
		w.stop(fmt.Errorf("stat %s: %w", parent.path(name), err))
		return nil
	}
	return dir
}

// block reads the next entries of a directory and changes those that are no directories. A directory that is small is read
// to its end, and closed when its subdirectories are open.
func (w *walk) block(dir *directory, buf []byte) {
	var tasks []task
	var names []string
	more := true
	for more && len(tasks)+len(names) < blockSize {
		used, err := dirent.Next(dir.fd, buf, func(name []byte, t dirent.Type) {
			if t == dirent.Directory {
				tasks = append(tasks, task{dir, string(name)})
			} else {
				names = append(names, string(name))
			}
		})
		if err != nil {
			w.stop(fmt.Errorf("read %s: %w", dir.path("."), err))
			return
		}
		more = used > 0
	}
	w.files.Add(int64(len(tasks) + len(names)))
	if more {
		tasks = slices.Insert(tasks, 0, task{dir: dir})
	}
	w.push(tasks...)
	again := false // the last file was not right, so that the next may not be either
	for i, name := range names {
		if w.before != nil {
			w.before(name)
		}
		if i%16 == 0 && w.stopped() {
			return
		}
		again = w.entry(dir, name, again)
	}
}
