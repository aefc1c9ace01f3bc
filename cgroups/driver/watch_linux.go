// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/cgroups"
)

// watchCheckPeriod is the time between checks whether a watched cgroup still exists. Its removal does not wake every poll(2).
const watchCheckPeriod = 2 * time.Second

// openWatch opens the triggers of a cgroup, and returns a function that calls its argument for each trigger that fires.
func (t *treeV2) openWatch(dir string, triggers []cgroups.Trigger) (func(context.Context, func(cgroups.Trigger)) error, error) {
	fd, err := t.h.openAt(dir, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	// a directory of its own, so that the watch works after the driver is closed
	at := &hierarchy{dir: t.h.absolutePath(dir), fd: fd}
	w := &watch{triggers: triggers, own: at, exists: func() bool { return at.fileExists("", "cgroup.procs") }}
	return w.openTriggers(at.openAt)
}

// openWatch opens the triggers of a cgroup, and returns a function that calls its argument for each trigger that fires.
func (t *treeV1) openWatch(dir string, triggers []cgroups.Trigger) (func(context.Context, func(cgroups.Trigger)) error, error) {
	if err := t.checkExists(dir); err != nil {
		return nil, err
	}
	w := &watch{triggers: triggers, exists: func() bool { return true }}
	return w.openTriggers(func(file string, flags uint64) (int, error) {
		resource, pressure := strings.CutSuffix(file, ".pressure")
		// on v1 the kernel reports only the pressure of the whole machine
		if !pressure || dir != "" || !t.top {
			return -1, fs.ErrNotExist
		}
		return retryInterrupted(func() (int, error) { return unix.Open("/proc/pressure/"+resource, int(flags)|unix.O_CLOEXEC, 0) })
	})
}

// watch is one running Watch: it waits with poll(2) for the triggers of one cgroup.
type watch struct {
	triggers []cgroups.Trigger
	own      *hierarchy    // descriptor of the cgroup; nil: none is needed
	exists   func() bool   // reports whether the cgroup still exists
	fds      []unix.PollFd // one per trigger, and an eventfd that wakes pollOnce
}

// openTriggers opens the files of all triggers, and returns runLoop, which waits for the triggers and closes the files.
func (w *watch) openTriggers(open func(file string, flags uint64) (int, error)) (func(context.Context, func(cgroups.Trigger)) error, error) {
	for _, t := range w.triggers {
		if err := w.armTrigger(t, open); err != nil {
			w.close()
			return nil, err
		}
	}
	return w.runLoop, nil
}

func (w *watch) close() {
	for _, f := range w.fds {
		unix.Close(int(f.Fd))
	}
	if w.own != nil {
		_ = w.own.close() // a handle that was only ever read from
	}
}

// runLoop calls fn for each trigger that fires, until ctx ends. It then closes all files of the watch.
func (w *watch) runLoop(ctx context.Context, fn func(cgroups.Trigger)) error {
	defer w.close()
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return os.NewSyscallError("eventfd", err)
	}
	w.fds = append(w.fds, unix.PollFd{Fd: int32(wake), Events: unix.POLLIN})
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(woken)
		_, _ = unix.Write(wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	})
	defer func() { // the callback must not write to the descriptor after it was closed and reused
		if !stop() {
			<-woken
		}
	}()
	for ctx.Err() == nil {
		if err := w.pollOnce(fn); err != nil {
			return err
		}
	}
	return nil
}

// armTrigger opens the file of a trigger by calling open, and adds it to the watch. If it is a pressure file, armTrigger
// also writes the trigger to it.
func (w *watch) armTrigger(t cgroups.Trigger, open func(file string, flags uint64) (int, error)) error {
	text, flags := "", uint64(unix.O_RDONLY)
	if _, amount, pressure := strings.Cut(t.String(), " "); pressure {
		text, flags = amount, unix.O_RDWR
	}
	fd, err := open(t.File, flags|unix.O_NONBLOCK)
	switch {
	case isAbsent(err) && !w.exists():
		return fs.ErrNotExist
	case isAbsent(err), errors.Is(err, unix.EOPNOTSUPP):
		return &fileError{t.File, fmt.Errorf("%w: there is no such file", errors.ErrUnsupported)}
	case err != nil:
		return &fileError{t.File, err}
	}
	w.fds = append(w.fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLPRI})
	if text == "" {
		return w.readCounters(fd, t)
	}
	if _, err := retryInterrupted(func() (int, error) { return unix.Write(fd, append([]byte(text), 0)) }); err != nil {
		return &fileError{t.File, fmt.Errorf("trigger %q: %w", text, err)}
	}
	return nil
}

// readCounters reads memory.events from the open file fd. The kernel reports the next change only after a read.
func (w *watch) readCounters(fd int, t cgroups.Trigger) error {
	var buf [512]byte
	_, err := retryInterrupted(func() (int, error) { return unix.Pread(fd, buf[:], 0) })
	switch {
	case isAbsent(err):
		return fs.ErrNotExist
	case err != nil:
		return &fileError{t.File, err}
	}
	return nil
}

// pollOnce waits for triggers, at most for watchCheckPeriod. It calls fn for each trigger that has fired.
func (w *watch) pollOnce(fn func(cgroups.Trigger)) error {
	n, err := unix.Poll(w.fds, int(watchCheckPeriod.Milliseconds()))
	switch {
	case errors.Is(err, unix.EINTR):
		return nil
	case err != nil:
		return os.NewSyscallError("poll", err)
	case n == 0 && !w.exists():
		return fs.ErrNotExist
	}
	for i, t := range w.triggers {
		events := w.fds[i].Revents
		counters := t.File == "memory.events" // for which the kernel sets POLLERR on each change
		switch {
		case events == 0:
			continue
		case events&unix.POLLPRI == 0 || events&unix.POLLERR != 0 && !counters:
			if !w.exists() {
				return fs.ErrNotExist
			}
			return &fileError{t.File, fmt.Errorf("poll: the kernel has dropped the trigger: %w", unix.EIO)} // for example a write to cgroup.pressure
		case counters:
			if err := w.readCounters(int(w.fds[i].Fd), t); err != nil {
				return err
			}
		}
		fn(t)
	}
	return nil
}
