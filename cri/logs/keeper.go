// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/internal/backoff"
	"github.com/seed81659283/nodeagent/internal/sleep"
)

const (
	// fastest is a writer that outruns nothing: the next look at a log comes before this many bytes a second fill it.
	fastest = 128 << 20
	// shortest and longest are the limits of the time between two looks at a log that grows; longest is also how
	// often a quiet log is looked at, as by the kubelet (containerLogMonitorInterval).
	shortest = 10 * time.Millisecond
	longest  = 10 * time.Second
	// firstRetry is the wait after a first failure. It doubles up to longest.
	firstRetry = 100 * time.Millisecond
)

// keeper keeps one log within the policy. It has a goroutine that rotates, and one that compresses while there is something to.
type keeper struct {
	r      *Rotator
	log    Log
	dir    string
	name   string
	cancel context.CancelFunc
	ended  bool          // cancel was called; belongs to Run
	done   chan struct{} // closed when its goroutines have ended

	size     int64 // as last seen; -1: never
	failures int   // in a row
	armed    notify
	packer   sync.WaitGroup
	dirty    chan struct{} // has an element when there may be something to compress

	mu      sync.Mutex // guards what follows
	packs   bool       // there is a goroutine that compresses
	packing string     // the file that is being compressed
	stop    context.CancelFunc
}

func newKeeper(r *Rotator, l Log, cancel context.CancelFunc) *keeper {
	dir, name := filepath.Split(l.Path)
	return &keeper{
		r: r, log: l, dir: filepath.Clean(dir), name: name, cancel: cancel,
		done: make(chan struct{}), size: -1, dirty: make(chan struct{}, 1),
	}
}

// run keeps the log until ctx ends.
func (k *keeper) run(ctx context.Context) {
	defer close(k.done)
	defer k.disarm()
	defer k.packer.Wait()
	k.soil(ctx) // an earlier agent may have left something

	t := time.NewTimer(0)
	defer t.Stop()
	for ctx.Err() == nil {
		wait, fired := k.step(ctx)
		t.Reset(wait)
		select {
		case <-ctx.Done():
		case <-fired:
		case <-t.C:
		}
	}
}

// step looks at the log once, and returns when to look again: after the wait, or before that when the log is
// written to.
func (k *keeper) step(ctx context.Context) (time.Duration, <-chan struct{}) {
	select {
	case <-k.armed.fired:
		k.armed, k.size = notify{}, -1
	default:
	}
	size, err := k.look(ctx)
	if err != nil {
		return k.failed(ctx, err), nil
	}
	k.failures = 0
	if size != k.size {
		k.size = size
		k.disarm()
		return pause(k.r.o.Policy.MaxSize - size), nil
	}
	if k.r.watch == nil {
		return pollPeriod, nil
	}
	if k.armed.fired == nil {
		if k.armed, err = k.r.watch.arm(k.log.Path); err != nil {
			k.r.o.Logger.Debug("log is polled", append(k.log.attrs(), "error", err)...)
			return pollPeriod, nil
		}
		return 0, nil // it may have been written to since the look
	}
	return longest, k.armed.fired
}

// pause returns how long a log that grows needs not be looked at when there is still room for so many bytes.
func pause(room int64) time.Duration {
	room = min(room, fastest*int64(longest/time.Second))
	return max(shortest, time.Duration(room)*time.Second/fastest)
}

func (k *keeper) disarm() {
	if k.armed.fired != nil {
		k.r.watch.disarm(k.armed)
		k.armed = notify{}
	}
}

// soil says that there may be something to compress.
func (k *keeper) soil(ctx context.Context) {
	k.mu.Lock()
	defer k.mu.Unlock()
	sleep.Wake(k.dirty)
	if !k.packs {
		k.packs = true
		k.packer.Go(func() { k.pack(ctx) })
	}
}

// soiled reports whether there may be something to compress. Where there is not, whoever asks has to end.
func (k *keeper) soiled() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	select {
	case <-k.dirty:
		return true
	default:
		k.packs = false
		return false
	}
}

// failed reports an error and returns the wait before the next attempt.
func (k *keeper) failed(ctx context.Context, err error) time.Duration {
	k.failures++
	wait := backoff.Policy{First: firstRetry, Max: longest}.After(k.failures)
	k.report(ctx, err, wait)
	return wait
}

func (k *keeper) report(ctx context.Context, err error, retry time.Duration) {
	if ctx.Err() != nil {
		return // the error of being stopped
	}
	k.r.o.Logger.Warn("cannot rotate or compress log", append(k.log.attrs(), "error", err, "retry", retry)...)
	if k.r.o.Hooks.RotationFailed != nil {
		k.r.o.Hooks.RotationFailed(k.log, err, retry)
	}
}

// look returns the size of the log, after it has been rotated where it is due.
func (k *keeper) look(ctx context.Context) (int64, error) {
	size, err := k.measure()
	missing := errors.Is(err, fs.ErrNotExist)
	if err != nil && !missing {
		return 0, err
	}
	if !missing && size < k.r.o.Policy.MaxSize {
		return size, nil
	}
	if err := k.rotate(ctx); err != nil {
		return 0, fmt.Errorf("rotate log %s: %w", k.log.Path, err)
	}
	k.size = -1 // what comes to the new file is growth, even to the size that the old one was last seen at
	return k.measure()
}

func (k *keeper) measure() (int64, error) {
	info, err := os.Lstat(k.log.Path)
	if err != nil {
		return 0, err
	}
	if !info.Mode().IsRegular() {
		return 0, fmt.Errorf("log %s is %s, not a regular file", k.log.Path, info.Mode().Type())
	}
	return info.Size(), nil
}
