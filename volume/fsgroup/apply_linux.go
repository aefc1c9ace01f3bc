// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package fsgroup

import (
	"context"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/internal/dirent"
)

func applyGroup(ctx context.Context, path string, gid uint32, opts Options) error {
	return newWalk(ctx, target{gid: gid, readOnly: opts.ReadOnly}).applyTo(path, opts)
}

// applyTo changes group and mode of all files of the volume at path, the root directory last.
func (w *walk) applyTo(path string, opts Options) error {
	root, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(root)
	st, err := statFD(root)
	if err != nil {
		return err
	}
	isDir := fileType(&st) == unix.S_IFDIR
	if opts.Policy == OnRootMismatch && isDir && w.target.isCorrect(st.Gid, uint32(st.Mode), true, false) {
		return nil // the root directory is correct
	}
	if err := w.stopReason(); err != nil {
		return err
	}
	if isDir {
		if err := w.changeBelow(root, opts.ReportSlow); err != nil {
			return err
		}
		if st, err = statFD(root); err != nil {
			return err
		}
	}
	w.changeFile(openFile(root), &st, nil, ".")
	if failed := w.failed; failed.Files > 0 {
		return &failed
	}
	return nil
}

// changeBelow changes all files and directories below the root directory, with several goroutines. root is the descriptor of
// the root directory, and slow is Options.ReportSlow.
func (w *walk) changeBelow(root int, slow func(int)) error {
	fd, err := unix.Openat(root, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	top, err := w.addDirectory(nil, "", fd)
	if err != nil {
		return err
	}
	w.files.Add(1)
	w.pushTasks(task{dir: top})

	var workers sync.WaitGroup
	for range max(4, runtime.GOMAXPROCS(0)) { // on a remote file system most of them wait for the server
		workers.Go(w.runTasks)
	}
	done := make(chan struct{})
	go func() {
		workers.Wait()
		close(done)
	}()
	w.awaitWorkers(done, slow)
	w.dropTasks()
	return w.stopReason()
}

// awaitWorkers blocks until done is closed. Meanwhile it calls slow periodically with the number of files processed so far.
// slow may be nil.
func (w *walk) awaitWorkers(done <-chan struct{}, slow func(int)) {
	t := time.NewTimer(firstReport)
	defer t.Stop()
	for {
		select {
		case <-done:
			return
		case <-t.C:
			if slow != nil {
				slow(int(w.files.Load()))
			}
			t.Reset(reportPeriod)
		}
	}
}

// runTasks runs tasks of the walk in the calling goroutine until no task remains or the walk is stopped.
func (w *walk) runTasks() {
	buf := make([]byte, dirent.BufferSize)
	for {
		t, ok := w.nextTask()
		if !ok {
			return
		}
		w.runTask(t, buf)
		w.finishTask()
	}
}
