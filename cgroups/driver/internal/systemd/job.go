// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/seed81659283/nodeagent/internal/backoff"
	"github.com/seed81659283/nodeagent/internal/sleep"
)

// firstPoll is how long the client waits for the result of a job before it reads the state of the unit. It doubles with each
// read, because polling slows a busy systemd down; a job usually takes milliseconds.
const firstPoll = 2 * time.Second

// jobs delivers job results to the waiting jobWatch. It is the signal handler of a connection.
type jobs struct {
	mu      sync.Mutex             // guards watches
	watches map[string][]*jobWatch // by unit
}

func newJobs() *jobs { return &jobs{watches: map[string][]*jobWatch{}} }

// jobWatch collects the results of all jobs of a unit, because a result may arrive before the reply with the job's path.
type jobWatch struct {
	jobs    *jobs
	unit    string
	results chan jobResult
}

type jobResult struct {
	job  dbus.ObjectPath
	text string // "done", "canceled", "timeout", "failed", "dependency", "skipped" or another result of systemd
}

// watchUnit returns a watch that collects the results of all jobs of a unit. The caller must call its method stop.
func (j *jobs) watchUnit(unit string) *jobWatch {
	w := &jobWatch{jobs: j, unit: unit, results: make(chan jobResult, 8)}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.watches[unit] = append(j.watches[unit], w)
	return w
}

func (w *jobWatch) stop() {
	w.jobs.mu.Lock()
	defer w.jobs.mu.Unlock()
	rest := slices.DeleteFunc(w.jobs.watches[w.unit], func(o *jobWatch) bool { return o == w })
	if len(rest) > 0 {
		w.jobs.watches[w.unit] = rest
	} else {
		delete(w.jobs.watches, w.unit)
	}
}

// DeliverSignal implements [dbus.SignalHandler]. It passes the result of a job to the watches of its unit. It never blocks:
// if a watch is full, it drops the result, and the waiting caller must read the state of the unit.
func (j *jobs) DeliverSignal(iface, name string, s *dbus.Signal) {
	if iface != manager || name != jobRemoved {
		return
	}
	var (
		id   uint32
		r    jobResult
		unit string
	)
	if dbus.Store(s.Body, &id, &r.job, &unit, &r.text) != nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, w := range j.watches[unit] {
		select {
		case w.results <- r:
		default:
		}
	}
}

// errCanceled is the result of a job that a conflicting job has replaced, for example a start by a stop.
var errCanceled = errors.New("job ended: canceled")

// runJob calls a method that queues a job for the unit, and waits until the unit is in wantState.
func (c *Client) runJob(ctx context.Context, unit, wantState, method string, args func(*conn) []any) error {
	ctx, cancel := context.WithTimeout(ctx, c.opts.JobTimeout)
	defer cancel()
	retry := backoff.Policy{First: firstDelay, Max: maxDelay}
	for delay := retry.First; ; delay = retry.Next(delay) {
		err := c.runJobOnce(ctx, unit, wantState, method, args)
		if !errors.Is(err, errCanceled) { // another job may cancel the job
			return err
		}
		if ended := sleep.For(ctx, delay); ended != nil {
			return fmt.Errorf("%w; gave up: %w", err, ended)
		}
	}
}

// runJobOnce calls a method that queues a job for the unit, and waits until the job has ended.
func (c *Client) runJobOnce(ctx context.Context, unit, wantState, method string, args func(*conn) []any) error {
	var (
		w    *jobWatch
		job  dbus.ObjectPath
		lost <-chan struct{}
	)
	err := c.callWithRetry(ctx, func(ctx context.Context, conn *conn) error {
		w, lost = conn.jobs.watchUnit(unit), conn.disconnected()
		err := conn.callManager(ctx, method, args(conn)...).Store(&job)
		if err != nil {
			w.stop()
		}
		return err
	})
	if err != nil {
		return err
	}
	defer w.stop()
	return c.awaitJob(ctx, w, job, wantState, lost)
}

// awaitJob waits until the job has ended, and returns nil if the unit is then in wantState.
func (c *Client) awaitJob(ctx context.Context, watch *jobWatch, job dbus.ObjectPath, wantState string, connLost <-chan struct{}) error {
	overdue := time.NewTimer(firstPoll)
	defer overdue.Stop()
	for next := 2 * firstPoll; ; next *= 2 {
		select {
		case r := <-watch.results:
			if r.job != job {
				continue
			}
			return r.toError()
		case <-connLost:
			connLost = nil
		case <-overdue.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for job: %w", ctx.Err())
		}
		// the result may be lost, so the state of the unit is read too
		is, busy, err := c.getState(ctx, watch.unit)
		switch {
		case err != nil:
			return fmt.Errorf("wait for job: %w", err)
		case busy:
		case is == wantState, is == failed && wantState == inactive: // a failed unit has stopped
			return nil
		default:
			return fmt.Errorf("job ended: unit is %s", is)
		}
		overdue.Reset(next)
	}
}

func (r jobResult) toError() error {
	switch r.text {
	case "done":
		return nil
	case "canceled":
		return errCanceled
	}
	return fmt.Errorf("job ended: %s", r.text)
}
