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

// maxStacked is how many mounts on top of each other are taken away. Whoever mounts faster than that is an error.
const maxStacked = 100

// busyFirst and busyMax are how long to wait before a mount that is busy is tried again.
const (
	busyFirst = 5 * time.Millisecond
	busyMax   = 500 * time.Millisecond
)

// ErrNoAnswer is why an unmount failed whose system call has not returned, as the server of the file system does not
// answer.
var ErrNoAnswer = errors.New("the file system does not answer")

// Unmounter unmounts in bounded time. The zero value is ready for use.
//
// A system call about a file system whose server is gone may not return. It is left to a goroutine, which ends when the
// kernel gives it back and which [Unmounter.Pending] counts until then. There is one for each target and way at most, so
// that a target that is tried again and again takes three.
type Unmounter struct {
	// Grace is how long a mount that is busy, or does not answer, is tried in one way before the next: plainly, by force,
	// which makes a network file system and FUSE drop what they wait for, and lazily, which takes the name away and leaves
	// the rest to whoever still has a file open. Zero means 10 s.
	Grace time.Duration
	// NoForce leaves out the second way, which all mounts of the same file system feel: for a bind of a volume that others
	// use.
	NoForce bool

	call func(target string, flags int) error // nil: unmount; tests

	mu      sync.Mutex
	pending map[way]*attempt
}

// way is one way of unmounting one target.
type way struct {
	target string
	flags  int
}

// attempt is a system call. err is there when returned is closed.
type attempt struct {
	returned chan struct{}
	err      error
}

// Pending returns the targets of calls that have not returned, sorted.
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

// Unmount takes away all that is mounted at target, which is no link. That nothing is mounted there, or that there is no
// such path, is success. It returns after three times Grace at most, or when ctx ends; what it has tried until then stays
// tried. The error is one that can be tried again: busy (EBUSY), or [ErrNoAnswer].
func (u *Unmounter) Unmount(ctx context.Context, target string) error {
	for range maxStacked {
		mounted, err := IsMountPoint(target)
		switch {
		case absent(err):
			return nil
		case err != nil:
			return err
		case !mounted:
			return nil
		}
		if err := u.top(ctx, target); err != nil {
			return failed("unmount", target, err)
		}
	}
	return failed("unmount", target, errors.New("more mounts come than go"))
}

// top takes the topmost mount away.
func (u *Unmounter) top(ctx context.Context, target string) error {
	var err error
	for _, flags := range unmountFlags(u.NoForce) {
		if err = u.try(ctx, target, flags); err == nil {
			return nil
		}
		// Somebody else may have unmounted it, and what hangs may have been taken out of the tree of mounts first.
		mounted, lookErr := IsMountPoint(target)
		switch {
		case lookErr == nil && !mounted || absent(lookErr):
			return nil
		case !stuck(err) || ctx.Err() != nil:
			return err
		}
	}
	return err
}

// try unmounts in one way until that has worked, or has failed for another reason than that the mount is busy, or for as
// long as Grace.
func (u *Unmounter) try(ctx context.Context, target string, flags int) error {
	grace := u.Grace
	if grace <= 0 {
		grace = defaultGrace
	}
	end := time.NewTimer(grace)
	defer end.Stop()
	again := backoff.Policy{First: busyFirst, Max: busyMax}
	for wait := again.First; ; wait = again.Next(wait) {
		a := u.start(target, flags)
		select {
		case <-a.returned:
		case <-end.C:
			return ErrNoAnswer
		case <-ctx.Done():
			return errors.Join(ErrNoAnswer, ctx.Err())
		}
		if !busy(a.err) {
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

// start makes a system call, or returns the same one of before that has not returned yet.
func (u *Unmounter) start(target string, flags int) *attempt {
	u.mu.Lock()
	defer u.mu.Unlock()
	w := way{target, flags}
	if a := u.pending[w]; a != nil {
		return a
	}
	if u.pending == nil {
		u.pending = map[way]*attempt{}
	}
	call := u.call
	if call == nil {
		call = unmount
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

// stuck reports whether another way of unmounting may help.
func stuck(err error) bool { return busy(err) || errors.Is(err, ErrNoAnswer) }
