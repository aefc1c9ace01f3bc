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
	// maxWriteRate is the assumed maximum rate of a container in bytes per second: a log is checked before this rate can fill it.
	maxWriteRate = 128 << 20
	// minPollDelay and maxPollDelay limit the time between two checks of a growing log. A quiet log is checked every
	// maxPollDelay, the kubelet's containerLogMonitorInterval.
	minPollDelay = 10 * time.Millisecond
	maxPollDelay = 10 * time.Second
	// firstRetry is the delay after the first failure. It doubles up to maxPollDelay.
	firstRetry = 100 * time.Millisecond
)

// logKeeper keeps the files of one log within the Policy. One goroutine rotates the log. A second compresses rotated files and
// exits when none is left.
type logKeeper struct {
	r       *Rotator
	log     Log
	dir     string
	name    string
	cancel  context.CancelFunc
	stopped bool          // cancel was called; used by Rotator.Run only
	done    chan struct{} // closed when its goroutines have exited

	lastSize          int64 // size at the last check; -1: unknown
	failures          int   // consecutive failures
	armed             fileWatchRequest
	compressor        sync.WaitGroup
	compressRequested chan struct{} // capacity 1; has an element if files may be due for compression

	mu              sync.Mutex         // guards the fields below
	compressorRuns  bool               // the compressing goroutine runs
	compressing     string             // name of the file being compressed
	stopCompression context.CancelFunc // cancels the compression
}

func newLogKeeper(r *Rotator, l Log, cancel context.CancelFunc) *logKeeper {
	dir, name := filepath.Split(l.Path)
	return &logKeeper{
		r: r, log: l, dir: filepath.Clean(dir), name: name, cancel: cancel,
		done: make(chan struct{}), lastSize: -1, compressRequested: make(chan struct{}, 1),
	}
}

// run checks the log, and rotates it when it is due, until ctx ends.
func (k *logKeeper) run(ctx context.Context) {
	defer close(k.done)
	defer k.disarmWatch()
	defer k.compressor.Wait()
	k.requestCompression(ctx) // a previous agent process may have left uncompressed files

	t := time.NewTimer(0)
	defer t.Stop()
	for ctx.Err() == nil {
		wait, fired := k.checkLog(ctx)
		t.Reset(wait)
		select {
		case <-ctx.Done():
		case <-fired:
		case <-t.C:
		}
	}
}

// checkLog rotates the log if it is too large. It returns the delay until the next check, and a channel that a write closes,
// or nil.
func (k *logKeeper) checkLog(ctx context.Context) (recheck time.Duration, written <-chan struct{}) {
	select {
	case <-k.armed.fired:
		k.armed, k.lastSize = fileWatchRequest{}, -1
	default:
	}
	size, err := k.rotateIfDue(ctx)
	if err != nil {
		return k.recordFailure(ctx, err), nil
	}
	k.failures = 0
	if size != k.lastSize {
		k.lastSize = size
		k.disarmWatch()
		return pollDelay(k.r.o.Policy.MaxSize - size), nil
	}
	if k.r.watch == nil {
		return pollPeriod, nil
	}
	if k.armed.fired == nil {
		if k.armed, err = k.r.watch.awaitWrite(k.log.Path); err != nil {
			k.r.o.Logger.Debug("log is polled", append(k.log.logAttrs(), "error", err)...)
			return pollPeriod, nil
		}
		return 0, nil // a write may have preceded the watch
	}
	return maxPollDelay, k.armed.fired
}

// pollDelay returns the delay until the next check of a growing log. room is the number of bytes until the log must be
// rotated.
func pollDelay(room int64) time.Duration {
	room = min(room, maxWriteRate*int64(maxPollDelay/time.Second))
	return max(minPollDelay, time.Duration(room)*time.Second/maxWriteRate)
}

// disarmWatch cancels the request for a signal on the next write, if one is pending.
func (k *logKeeper) disarmWatch() {
	if k.armed.fired != nil {
		k.r.watch.cancelWait(k.armed)
		k.armed = fileWatchRequest{}
	}
}

// requestCompression requests that rotated files are compressed. It starts the compressing goroutine if it is not running.
func (k *logKeeper) requestCompression(ctx context.Context) {
	k.mu.Lock()
	defer k.mu.Unlock()
	sleep.Wake(k.compressRequested)
	if !k.compressorRuns {
		k.compressorRuns = true
		k.compressor.Go(func() { k.runCompressor(ctx) })
	}
}

// takeRequest reports whether a compression was requested since the last call. After the result false, the compressing
// goroutine must exit, because the next request starts a new goroutine.
func (k *logKeeper) takeRequest() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	select {
	case <-k.compressRequested:
		return true
	default:
		k.compressorRuns = false
		return false
	}
}

// recordFailure increases the number of failures in a row and reports err. It returns the delay before the next attempt.
func (k *logKeeper) recordFailure(ctx context.Context, err error) time.Duration {
	k.failures++
	wait := backoff.Policy{First: firstRetry, Max: maxPollDelay}.After(k.failures)
	k.reportError(ctx, err, wait)
	return wait
}

// reportError logs err and passes it to Hooks.RotationFailed, together with the delay before the next attempt. It does
// nothing if ctx has ended.
func (k *logKeeper) reportError(ctx context.Context, err error, retry time.Duration) {
	if ctx.Err() != nil {
		return // caused by the end of ctx
	}
	k.r.o.Logger.Warn("cannot rotate or compress log", append(k.log.logAttrs(), "error", err, "retry", retry)...)
	if k.r.o.Hooks.RotationFailed != nil {
		k.r.o.Hooks.RotationFailed(k.log, err, retry)
	}
}

// rotateIfDue rotates the log if it has reached its maximum size or its current file is missing. It returns the size of the
// current file.
func (k *logKeeper) rotateIfDue(ctx context.Context) (int64, error) {
	size, err := k.statLog()
	missing := errors.Is(err, fs.ErrNotExist)
	if err != nil && !missing {
		return 0, err
	}
	if !missing && size < k.r.o.Policy.MaxSize {
		return size, nil
	}
	if err := k.rotateLog(ctx); err != nil {
		return 0, fmt.Errorf("rotate log %s: %w", k.log.Path, err)
	}
	k.lastSize = -1 // any size of the new file is growth, even the last size of the old file
	return k.statLog()
}

// statLog returns the size of the current file, or an error if it is not a regular file.
func (k *logKeeper) statLog() (int64, error) {
	info, err := os.Lstat(k.log.Path)
	if err != nil {
		return 0, err
	}
	if !info.Mode().IsRegular() {
		return 0, fmt.Errorf("log %s is %s, not a regular file", k.log.Path, info.Mode().Type())
	}
	return info.Size(), nil
}
