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

func apply(ctx context.Context, path string, gid uint32, o Options) error {
	return newWalk(ctx, wanted{gid: gid, readOnly: o.ReadOnly}).apply(path, o)
}

// apply gives the volume at a path to the group.
func (w *walk) apply(path string, o Options) error {
	root, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(root)
	st, err := stat(root)
	if err != nil {
		return err
	}
	isDir := kind(&st) == unix.S_IFDIR
	if o.Policy == OnRootMismatch && isDir && w.want.right(st.Gid, uint32(st.Mode), true, false) {
		return nil
	}
	if err := w.reason(); err != nil {
		return err
	}
	if isDir {
		if err := w.below(root, o.Slow); err != nil {
			return err
		}
		if st, err = stat(root); err != nil {
			return err
		}
	}
	w.change(opened(root), &st, nil, ".")
	if failed := w.failed; failed.Files > 0 {
		return &failed
	}
	return nil
}

// below changes all that is below the root.
func (w *walk) below(root int, slow func(int)) error {
	fd, err := unix.Openat(root, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	top, err := w.hold(nil, "", fd)
	if err != nil {
		return err
	}
	w.files.Add(1)
	w.push(task{dir: top})

	var workers sync.WaitGroup
	for range max(4, runtime.GOMAXPROCS(0)) { // on a remote disk most of them wait
		workers.Go(w.work)
	}
	done := make(chan struct{})
	go func() {
		workers.Wait()
		close(done)
	}()
	w.watch(done, slow)
	w.drop()
	return w.reason()
}

// watch waits for the walk, and reports that it is slow.
func (w *walk) watch(done <-chan struct{}, slow func(int)) {
	t := time.NewTimer(slowFirst)
	defer t.Stop()
	for {
		select {
		case <-done:
			return
		case <-t.C:
			if slow != nil {
				slow(int(w.files.Load()))
			}
			t.Reset(slowAgain)
		}
	}
}

// work does tasks until there are none.
func (w *walk) work() {
	buf := make([]byte, dirent.BufferSize)
	for {
		t, ok := w.next()
		if !ok {
			return
		}
		w.run(t, buf)
		w.finish()
	}
}
