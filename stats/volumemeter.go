// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/internal/dirusage"
	"github.com/seed81659283/nodeagent/internal/sleep"
)

// volumeMeter lets CSI drivers measure their volumes, at most maxConcurrent at the same time. A driver that hangs does not delay
// the volumes of other drivers, except that it counts for maxConcurrent until its timeout.
type volumeMeter struct {
	targets targetSet
	timeout time.Duration // of one measurement
	wake    chan struct{} // holds a token if the targets may have changed
}

func newVolumeMeter(timeout time.Duration) *volumeMeter {
	return &volumeMeter{timeout: timeout, wake: make(chan struct{}, 1)}
}

// setTargets replaces the volumes to measure, and wakes measureLoop. It does not block.
func (a *volumeMeter) setTargets(targets []target) {
	a.targets.setTargets(targets)
	sleep.Wake(a.wake)
}

// measureLoop measures each volume when it is due, until ctx ends.
func (a *volumeMeter) measureLoop(ctx context.Context) {
	for {
		var due <-chan time.Time
		if at := a.measureDue(ctx); !at.IsZero() {
			due = time.After(time.Until(at))
		}
		select {
		case <-ctx.Done():
			return
		case <-a.wake:
		case <-due:
		}
	}
}

// maxConcurrent is the number of volumes that a volumeMeter measures at a time.
const maxConcurrent = 8

// measureDue measures all volumes that are due. It returns the time at which the next volume is due, or zero if there is no
// volume.
func (a *volumeMeter) measureDue(ctx context.Context) time.Time {
	due, _ := a.targets.dueTargets(time.Now())
	free := make(chan struct{}, maxConcurrent)
	var asked sync.WaitGroup
	for _, m := range due {
		free <- struct{}{}
		asked.Go(func() {
			a.measureVolume(ctx, m)
			<-free
		})
	}
	asked.Wait()
	now := time.Now()
	due, wake := a.targets.dueTargets(now)
	if len(due) > 0 {
		return now
	}
	return wake
}

// measureVolume measures one volume on a new goroutine, and waits for the measurement, which it abandons if it hangs.
func (a *volumeMeter) measureVolume(ctx context.Context, entry *measurement) {
	if ctx.Err() != nil {
		return
	}
	j := &job{done: make(chan struct{})}
	go a.runJob(ctx, j, entry, a.targets.startJob(entry, j))
	const grace = time.Second
	late := time.NewTimer(a.timeout + grace)
	defer late.Stop()
	for ended := ctx.Done(); ; {
		select {
		case <-j.done:
			return
		case <-ended:
			ended = nil
			late.Reset(grace)
		case <-late.C:
			a.targets.abandonJob(entry, j)
			return
		}
	}
}

// runJob measures a volume, usually by a call to its CSI driver, and stores the result in entry. It runs on the goroutine of j.
func (a *volumeMeter) runJob(ctx context.Context, j *job, entry *measurement, tgt target) {
	at := time.Now()
	limited, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	measured, err := tgt.measure(limited)
	a.targets.mu.Lock()
	defer a.targets.mu.Unlock()
	defer close(j.done)
	entry.job, entry.err, entry.abandoned = nil, err, false
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		entry.err, entry.started = nil, time.Time{}
	case err == nil:
		entry.started = at
		entry.fs = Filesystem{
			CapacityBytes: valueOrZero(measured.CapacityBytes), AvailableBytes: valueOrZero(measured.AvailableBytes),
			Inodes: valueOrZero(measured.Inodes), InodesFree: valueOrZero(measured.InodesFree),
		}
		entry.usage = dirusage.Usage{Bytes: valueOrZero(measured.UsedBytes), Inodes: valueOrZero(measured.InodesUsed)}
	}
}

// valueOrZero returns *n, or zero if n is nil.
func valueOrZero(n *uint64) uint64 {
	if n == nil {
		return 0
	}
	return *n
}
