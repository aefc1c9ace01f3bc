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

// firstPoll is how long the result of a job may be overdue before the state of its unit is asked for. From time to time
// it doubles: a job on a slice takes milliseconds, and a systemd that is busy has better to do than to answer.
const firstPoll = 2 * time.Second

// jobs hands the results of jobs to who waits for them. It is the signal handler of a connection.
type jobs struct {
	mu      sync.Mutex
	watches map[string][]*watch // by unit
}

func newJobs() *jobs { return &jobs{watches: map[string][]*watch{}} }

// watch collects the results of all jobs of a unit, since the result of a job may come before its number is known.
type watch struct {
	jobs    *jobs
	unit    string
	results chan result
}

type result struct {
	job  dbus.ObjectPath
	text string // "done", "canceled", "timeout", "failed", "dependency", "skipped" and others
}

// watch begins to collect.
func (j *jobs) watch(unit string) *watch {
	w := &watch{jobs: j, unit: unit, results: make(chan result, 8)}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.watches[unit] = append(j.watches[unit], w)
	return w
}

func (w *watch) stop() {
	w.jobs.mu.Lock()
	defer w.jobs.mu.Unlock()
	rest := slices.DeleteFunc(w.jobs.watches[w.unit], func(o *watch) bool { return o == w })
	if len(rest) > 0 {
		w.jobs.watches[w.unit] = rest
	} else {
		delete(w.jobs.watches, w.unit)
	}
}

// DeliverSignal implements [dbus.SignalHandler]. It does not block: a result that finds no room is not needed, since
// the unit is asked for its state then.
func (j *jobs) DeliverSignal(iface, name string, s *dbus.Signal) {
	if iface != manager || name != jobRemoved {
		return
	}
	var (
		id   uint32
		r    result
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

// errCanceled is the end of a job that another took the place of: somebody else starts what is being stopped, or the
// other way round.
var errCanceled = errors.New("job ended: canceled")

// runJob calls a method that queues a job for a unit, and waits until the job is done. The unit is in the state want
// then. A job that was canceled is queued again: nobody's will has been done by that.
func (c *Client) runJob(ctx context.Context, unit, want, method string, args func(*conn) []any) error {
	ctx, cancel := context.WithTimeout(ctx, c.opts.JobTimeout)
	defer cancel()
	retry := backoff.Policy{First: firstDelay, Max: maxDelay}
	for delay := retry.First; ; delay = retry.Next(delay) {
		err := c.runOnce(ctx, unit, want, method, args)
		if !errors.Is(err, errCanceled) {
			return err
		}
		if ended := sleep.For(ctx, delay); ended != nil {
			return fmt.Errorf("%w; gave up: %w", err, ended)
		}
	}
}

// runOnce is one attempt of runJob.
func (c *Client) runOnce(ctx context.Context, unit, want, method string, args func(*conn) []any) error {
	var (
		w    *watch
		job  dbus.ObjectPath
		lost <-chan struct{}
	)
	err := c.do(ctx, func(ctx context.Context, conn *conn) error {
		w, lost = conn.jobs.watch(unit), conn.done()
		err := conn.call(ctx, method, args(conn)...).Store(&job)
		if err != nil {
			w.stop()
		}
		return err
	})
	if err != nil {
		return err
	}
	defer w.stop()
	return c.wait(ctx, w, job, want, lost)
}

// wait waits for the result of a job. With the connection, which lost tells of, the result is lost too.
func (c *Client) wait(ctx context.Context, w *watch, job dbus.ObjectPath, want string, lost <-chan struct{}) error {
	overdue := time.NewTimer(firstPoll)
	defer overdue.Stop()
	for next := 2 * firstPoll; ; next *= 2 {
		select {
		case r := <-w.results:
			if r.job != job {
				continue
			}
			return r.err()
		case <-lost:
			lost = nil
		case <-overdue.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for job: %w", ctx.Err())
		}
		is, busy, err := c.state(ctx, w.unit)
		switch {
		case err != nil:
			return fmt.Errorf("wait for job: %w", err)
		case busy:
		case is == want, is == failed && want == inactive: // what has failed has stopped
			return nil
		default:
			return fmt.Errorf("job ended: unit is %s", is)
		}
		overdue.Reset(next)
	}
}

func (r result) err() error {
	switch r.text {
	case "done":
		return nil
	case "canceled":
		return errCanceled
	}
	return fmt.Errorf("job ended: %s", r.text)
}
