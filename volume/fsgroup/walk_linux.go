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

// maxOpen is the maximum number of open directories. A chain of single subdirectories needs one, a tree one per level. A path can
// have 2,048 levels, and the kubelet supports all of them.
const maxOpen = 2560

// blockSize is the number of directory entries that are read before they are changed. A buffer of entries may exceed it by a
// factor of two.
const blockSize = 512

// walk changes the files of one volume with several workers.
//
// A worker runs the newest task: it opens a directory, or reads the next block of an open one. Before it changes the files of a
// block, it queues the remainder of the directory for other workers. So the number of tasks, and their memory, is limited to a
// block per open directory.
type walk struct {
	ctx    context.Context // workers check it: a goroutine that waits for its end may run too late
	target target
	files  atomic.Int64 // number of files and directories read so far

	// before is called before each file, with its name; for tests.
	before func(name string)

	mu      sync.Mutex
	wake    sync.Cond // signaled when a task was added, and when no further task can be added
	tasks   []task
	running int // number of tasks that workers are running
	open    int // number of open directories
	err     error
	failed  FilesError
}

// task is a task of a worker: to read the next entries of dir, or to open a subdirectory of dir and read its entries.
type task struct {
	dir  *directory
	name string // name of the subdirectory; empty: read dir itself
}

// directory is an open directory that has unfinished tasks. After its last task, its own group and mode are changed and it is
// closed. From then on, other users may be able to replace its entries.
type directory struct {
	parent  *directory // nil: the root of the volume
	name    string
	fd      int
	st      unix.Statx_t
	guarded bool
	tasks   atomic.Int32
}

// entryPath returns the path of an entry of d, relative to the root of the volume, for errors. A long path is cut.
func (d *directory) entryPath(name string) string {
	const longest = 4096
	for ; d != nil && d.name != "" && len(name) < longest; d = d.parent {
		name = d.name + "/" + name
	}
	if d != nil && d.name != "" {
		return ".../" + name
	}
	return name
}

// newWalk returns a walk without tasks.
func newWalk(ctx context.Context, want target) *walk {
	w := &walk{ctx: ctx, target: want}
	w.wake.L = &w.mu
	return w
}

// addDirectory returns a directory for an open descriptor, which releaseDirectory closes. name is its name in the parent.
func (w *walk) addDirectory(parent *directory, name string, fd int) (*directory, error) {
	st, err := statFD(fd)
	if err != nil {
		_ = unix.Close(fd) // there is no directory to release
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open++
	return &directory{parent: parent, name: name, fd: fd, st: st, guarded: isGuarded(&st)}, nil
}

// releaseDirectory records that a task of d has completed. After the last one it corrects group and mode of d, and closes it.
func (w *walk) releaseDirectory(d *directory) {
	if d.tasks.Add(-1) > 0 {
		return
	}
	if d.parent != nil && !w.isStopped() {
		w.changeFile(openFile(d.fd), &d.st, d.parent, d.name)
	}
	_ = unix.Close(d.fd)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open--
}

// pushTasks queues tasks. The last one runs first.
func (w *walk) pushTasks(tasks ...task) {
	for _, t := range tasks {
		t.dir.tasks.Add(1)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tasks = append(w.tasks, tasks...)
	w.wake.Broadcast()
}

// nextTask removes and returns the newest task, for which it may block. It returns false when none remains or w is stopped.
func (w *walk) nextTask() (t task, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.tasks) == 0 && w.running > 0 && w.err == nil { // a running task may add a task
		w.wake.Wait()
	}
	if len(w.tasks) == 0 || w.stopReasonLocked() != nil {
		return t, false
	}
	t = w.tasks[len(w.tasks)-1]
	w.tasks = w.tasks[:len(w.tasks)-1]
	w.running++
	return t, true
}

// finishTask records that a task is complete.
func (w *walk) finishTask() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running--; w.running == 0 && len(w.tasks) == 0 {
		w.wake.Broadcast()
	}
}

// stopWith makes all workers stop, and stores err as the result of the walk. It does nothing if the walk was stopped before.
func (w *walk) stopWith(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
	w.wake.Broadcast()
}

// isStopped reports whether the walk was stopped.
func (w *walk) isStopped() bool { return w.stopReason() != nil }

// stopReason returns the error that stopped the walk, or nil.
func (w *walk) stopReason() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stopReasonLocked()
}

// stopReasonLocked returns the error that stopped the walk, also that of an ended ctx, or nil. The caller holds w.mu.
func (w *walk) stopReasonLocked() error {
	if w.err == nil && w.ctx.Err() != nil {
		w.err = w.ctx.Err()
		w.wake.Broadcast()
	}
	return w.err
}

// dropTasks removes the remaining tasks of a stopped walk and closes their directories.
func (w *walk) dropTasks() {
	for _, t := range w.tasks {
		w.releaseDirectory(t.dir)
	}
	w.tasks = nil
}

// runTask runs a task: it corrects the next block of files of a directory. buf is the buffer for directory entries.
func (w *walk) runTask(t task, buf []byte) {
	defer w.releaseDirectory(t.dir)
	dir := t.dir
	if t.name != "" {
		if dir = w.openSubdirectory(t.dir, t.name); dir == nil {
			return
		}
		dir.tasks.Add(1)
		defer w.releaseDirectory(dir)
	}
	w.changeBlock(dir, buf)
}

// openSubdirectory opens a subdirectory, or returns nil if it is a mount point or was removed. Another error stops the walk.
func (w *walk) openSubdirectory(parent *directory, name string) *directory {
	w.mu.Lock()
	tooMany := w.open >= maxOpen
	w.mu.Unlock()
	if tooMany {
		w.stopWith(fmt.Errorf("open %s: %w", parent.entryPath(name), unix.EMFILE))
		return nil
	}
	fd, err := openBelow(parent.fd, name)
	switch {
	case errors.Is(err, unix.EXDEV), errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		return nil
	case err != nil:
		w.stopWith(fmt.Errorf("open %s: %w", parent.entryPath(name), err))
		return nil
	}
	dir, err := w.addDirectory(parent, name, fd)
	if err != nil {
		w.stopWith(fmt.Errorf("stat %s: %w", parent.entryPath(name), err))
		return nil
	}
	return dir
}

// changeBlock corrects files among the next blockSize entries of the directory, and queues other entries as tasks. It reads with
// buf.
func (w *walk) changeBlock(dir *directory, buf []byte) {
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
			w.stopWith(fmt.Errorf("read %s: %w", dir.entryPath("."), err))
			return
		}
		more = used > 0
	}
	w.files.Add(int64(len(tasks) + len(names)))
	if more {
		tasks = slices.Insert(tasks, 0, task{dir: dir})
	}
	w.pushTasks(tasks...)
	again := false // the last file was wrong, so the next one probably is too
	for i, name := range names {
		if w.before != nil {
			w.before(name)
		}
		if i%16 == 0 && w.isStopped() {
			return
		}
		again = w.changeEntry(dir, name, again)
	}
}
