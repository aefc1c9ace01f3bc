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

// asker has volumes measured by who made them, a few at a time: one that does not answer keeps a place for its time, and
// nobody else.
type asker struct {
	known   known
	timeout time.Duration // of one answer
	wake    chan struct{} // has one entry where there may be new targets
}

func newAsker(timeout time.Duration) *asker {
	return &asker{timeout: timeout, wake: make(chan struct{}, 1)}
}

// follow sets the targets.
func (a *asker) follow(targets []target) {
	a.known.want(targets)
	sleep.Wake(a.wake)
}

// run asks for what is due until ctx ends.
func (a *asker) run(ctx context.Context) {
	for {
		var due <-chan time.Time
		if at := a.round(ctx); !at.IsZero() {
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

// places is how many are asked at a time.
const places = 8

// round asks for what is due, and returns when something will be: zero where there is nothing.
func (a *asker) round(ctx context.Context) time.Time {
	due, _ := a.known.due(time.Now())
	free := make(chan struct{}, places)
	var asked sync.WaitGroup
	for _, m := range due {
		free <- struct{}{}
		asked.Go(func() {
			a.ask(ctx, m)
			<-free
		})
	}
	asked.Wait()
	now := time.Now()
	due, wake := a.known.due(now)
	if len(due) > 0 {
		return now
	}
	return wake
}

// ask measures one target. It returns when that is over, or when it should be.
func (a *asker) ask(ctx context.Context, m *measurement) {
	if ctx.Err() != nil {
		return
	}
	j := &job{done: make(chan struct{})}
	go a.work(ctx, j, m, a.known.begin(m, j))
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
			a.known.leave(m, j)
			return
		}
	}
}

// work is the goroutine of a job.
func (a *asker) work(ctx context.Context, j *job, m *measurement, t target) {
	at := time.Now()
	limited, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	said, err := t.ask(limited)
	a.known.mu.Lock()
	defer a.known.mu.Unlock()
	defer close(j.done)
	m.job, m.err, m.left = nil, err, false
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		m.err, m.at = nil, time.Time{}
	case err == nil:
		m.at = at
		m.fs = Filesystem{
			CapacityBytes: value(said.CapacityBytes), AvailableBytes: value(said.AvailableBytes),
			Inodes: value(said.Inodes), InodesFree: value(said.InodesFree),
		}
		m.Usage = dirusage.Usage{Bytes: value(said.UsedBytes), Inodes: value(said.InodesUsed)}
	}
}

// value returns what somebody said, and zero where he said nothing.
func value(n *uint64) uint64 {
	if n == nil {
		return 0
	}
	return *n
}
