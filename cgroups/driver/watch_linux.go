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

// watchCheck is how long poll(2) waits before somebody looks whether the cgroup is still there: a cgroup that is removed
// does not wake all who wait for its files.
const watchCheck = 2 * time.Second

// watch opens what it waits for, on a handle of its own, so that the wait needs nothing of the driver.
func (t *v2) watch(dir string, triggers []cgroups.Trigger) (func(context.Context, func(cgroups.Trigger)) error, error) {
	fd, err := t.h.open(dir, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	at := &hierarchy{dir: t.h.path(dir), fd: fd}
	w := &watch{triggers: triggers, own: at, exists: func() bool { return at.existsFile("", "cgroup.procs") }}
	return w.open(at.open)
}

// watch on v1 has the pressure of the machine, at the top of the mount.
func (t *v1) watch(dir string, triggers []cgroups.Trigger) (func(context.Context, func(cgroups.Trigger)) error, error) {
	if err := t.exists(dir); err != nil {
		return nil, err
	}
	w := &watch{triggers: triggers, exists: func() bool { return true }}
	return w.open(func(file string, flags uint64) (int, error) {
		resource, pressure := strings.CutSuffix(file, ".pressure")
		if !pressure || dir != "" || !t.top {
			return -1, fs.ErrNotExist
		}
		return retry(func() (int, error) { return unix.Open("/proc/pressure/"+resource, int(flags)|unix.O_CLOEXEC, 0) })
	})
}

// watch waits for triggers of one cgroup.
type watch struct {
	triggers []cgroups.Trigger
	own      *hierarchy // a handle on the cgroup; nil: there is none
	exists   func() bool
	fds      []unix.PollFd // one for each trigger, and one that wakes
}

// open opens the files and returns what waits for them and closes them.
func (w *watch) open(open func(file string, flags uint64) (int, error)) (func(context.Context, func(cgroups.Trigger)) error, error) {
	for _, t := range w.triggers {
		if err := w.arm(t, open); err != nil {
			w.close()
			return nil, err
		}
	}
	return w.run, nil
}

func (w *watch) close() {
	for _, f := range w.fds {
		unix.Close(int(f.Fd))
	}
	if w.own != nil {
		_ = w.own.close() // a handle that was only ever read from
	}
}

// run calls fn until ctx ends.
func (w *watch) run(ctx context.Context, fn func(cgroups.Trigger)) error {
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
	defer func() { // the descriptor is another's once it is closed
		if !stop() {
			<-woken
		}
	}()
	for ctx.Err() == nil {
		if err := w.wait(fn); err != nil {
			return err
		}
	}
	return nil
}

// arm opens the file of a trigger and says what to wait for.
func (w *watch) arm(t cgroups.Trigger, open func(file string, flags uint64) (int, error)) error {
	text, flags := "", uint64(unix.O_RDONLY)
	if _, amount, pressure := strings.Cut(t.String(), " "); pressure {
		text, flags = amount, unix.O_RDWR
	}
	fd, err := open(t.File, flags|unix.O_NONBLOCK)
	switch {
	case absent(err) && !w.exists():
		return fs.ErrNotExist
	case absent(err), errors.Is(err, unix.EOPNOTSUPP):
		return &fileError{t.File, fmt.Errorf("%w: there is no such file", errors.ErrUnsupported)}
	case err != nil:
		return &fileError{t.File, err}
	}
	w.fds = append(w.fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLPRI})
	if text == "" {
		return w.seen(fd, t)
	}
	if _, err := retry(func() (int, error) { return unix.Write(fd, append([]byte(text), 0)) }); err != nil {
		return &fileError{t.File, fmt.Errorf("trigger %q: %w", text, err)}
	}
	return nil
}

// seen reads a file of counters, after which the kernel reports the next change.
func (w *watch) seen(fd int, t cgroups.Trigger) error {
	var buf [512]byte
	_, err := retry(func() (int, error) { return unix.Pread(fd, buf[:], 0) })
	switch {
	case absent(err):
		return fs.ErrNotExist
	case err != nil:
		return &fileError{t.File, err}
	}
	return nil
}

// wait waits for something, once, and calls fn with what fired.
func (w *watch) wait(fn func(cgroups.Trigger)) error {
	n, err := unix.Poll(w.fds, int(watchCheck.Milliseconds()))
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
		counters := t.File == "memory.events" // of which the kernel reports each change as an error too
		switch {
		case events == 0:
			continue
		case events&unix.POLLPRI == 0 || events&unix.POLLERR != 0 && !counters:
			if !w.exists() {
				return fs.ErrNotExist
			}
			return &fileError{t.File, fmt.Errorf("poll: the kernel has dropped the trigger: %w", unix.EIO)} // such as by cgroup.pressure
		case counters:
			if err := w.seen(int(w.fds[i].Fd), t); err != nil {
				return err
			}
		}
		fn(t)
	}
	return nil
}
