// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package mount

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/internal/backoff"
)

// maxStacked is the maximum number of mounts on one mount point that Unmount removes.
const maxStacked = 100

// Back-off between two attempts to unmount a mount that is busy.
const (
	busyFirst = 5 * time.Millisecond
	busyMax   = 500 * time.Millisecond
)

// ErrTimeout means that an unmount has not returned in time, because the file system hangs.
var ErrTimeout = errors.New("the file system does not answer")

// Unmounter unmounts in bounded time. The zero value is ready to use.
//
// A system call about a hung file system may not return. It is left to a goroutine, which [Unmounter.Pending] reports until it
// ends. There is at most one goroutine per target and mode, so repeated attempts cost at most three per target.
type Unmounter struct {
	// Grace is how long each unmount mode is tried on a busy or hung mount: first a plain unmount, then a forced one, which makes
	// network file systems and FUSE fail their pending requests, then a lazy one, which detaches the mount while files are still
	// open. Zero means 10 s.
	Grace time.Duration
	// NoForce skips the forced unmount, which affects all mounts of the file system. Set it for bind mounts of a volume that
	// other pods use.
	NoForce bool

	unmount func(target string, flags int) error // nil: unmountOnce; replaced in tests

	mu      sync.Mutex
	pending map[unmountKey]*attempt
}

// unmountKey identifies a pending system call: target and mode.
type unmountKey struct {
	target string
	flags  int
}

// attempt is an unmount system call. err is valid once returned is closed.
type attempt struct {
	returned chan struct{}
	err      error
}

// Pending returns the sorted targets of all unmount system calls that have not returned yet.
func (u *Unmounter) Pending() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	var targets []string
	for w := range u.pending {
		targets = append(targets, w.target)
	}
	slices.Sort(targets)
	return slices.Compact(targets)
}

// Unmount removes all mounts at target, if any. target must not be a symbolic link. It spends at most three times u.Grace on
// each mount, and returns when ctx ends. After an error, for example EBUSY, or [ErrTimeout] for a call that hangs, the
// caller can retry.
func (u *Unmounter) Unmount(ctx context.Context, target string) error {
	for range maxStacked {
		mounted, err := IsMountPoint(target)
		switch {
		case isAbsent(err):
			return nil
		case err != nil:
			return err
		case !mounted:
			return nil
		}
		if err := u.unmountTop(ctx, target); err != nil {
			return wrapError("unmount", target, err)
		}
	}
	return wrapError("unmount", target, errors.New("new mounts keep appearing"))
}

// unmountTop removes the topmost mount at target. It tries a plain, then a forced (except with u.NoForce), then a lazy
// unmount, as long as the mount is busy or the call hangs.
func (u *Unmounter) unmountTop(ctx context.Context, target string) error {
	var err error
	for _, flags := range unmountFlags(u.NoForce) {
		if err = u.unmountWith(ctx, target, flags); err == nil {
			return nil
		}
		// Another program may have unmounted it, and a hung call may have detached it already.
		mounted, lookErr := IsMountPoint(target)
		switch {
		case lookErr == nil && !mounted || isAbsent(lookErr):
			return nil
		case !canRetryOtherMode(err) || ctx.Err() != nil:
			return err
		}
	}
	return err
}

// unmountWith calls unmount(2) for target with these flags. While the mount is busy, it retries for at most u.Grace.
func (u *Unmounter) unmountWith(ctx context.Context, target string, flags int) error {
	grace := u.Grace
	if grace <= 0 {
		grace = defaultGrace
	}
	end := time.NewTimer(grace)
	defer end.Stop()
	again := backoff.Policy{First: busyFirst, Max: busyMax}
	for wait := again.First; ; wait = again.Next(wait) {
		a := u.startUnmount(target, flags)
		select {
		case <-a.returned:
		case <-end.C:
			return ErrTimeout
		case <-ctx.Done():
			return errors.Join(ErrTimeout, ctx.Err())
		}
		if !isBusy(a.err) {
			return a.err
		}
		select {
		case <-time.After(wait):
		case <-end.C:
			return a.err
		case <-ctx.Done():
			return errors.Join(a.err, ctx.Err())
		}
	}
}

// startUnmount starts unmount(2) in a goroutine, or returns the earlier attempt if such a call has not returned yet.
func (u *Unmounter) startUnmount(target string, flags int) *attempt {
	u.mu.Lock()
	defer u.mu.Unlock()
	w := unmountKey{target, flags}
	if a := u.pending[w]; a != nil {
		return a
	}
	if u.pending == nil {
		u.pending = map[unmountKey]*attempt{}
	}
	call := u.unmount
	if call == nil {
		call = unmountOnce
	}
	a := &attempt{returned: make(chan struct{})}
	u.pending[w] = a
	go func() {
		a.err = call(target, flags)
		u.mu.Lock()
		delete(u.pending, w)
		u.mu.Unlock()
		close(a.returned)
	}()
	return a
}

// canRetryOtherMode reports whether another unmount mode, such as a lazy unmount, may succeed after err.
func canRetryOtherMode(err error) bool { return isBusy(err) || errors.Is(err, ErrTimeout) }
