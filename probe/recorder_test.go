// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probe_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed81659283/nodeagent/probe"
)

// recorder is a set with the recorded calls of its hooks.
type recorder struct {
	set   *probe.Set
	start time.Time
	stop  func() // cancels Run and waits for its return

	mu    sync.Mutex // guards lines
	lines []string
}

// startRecorder starts a set in a synctest bubble. Its first probes are not spread.
func startRecorder(t *testing.T, o probe.Options) *recorder {
	d := newRecorder(o)
	d.run(t)
	return d
}

// newRecorder returns a set that does not run yet.
func newRecorder(o probe.Options) *recorder {
	d := &recorder{start: time.Now()}
	if o.Rand == nil {
		o.Rand = func() float64 { return 0 }
	}
	o.Hooks = probe.Hooks{
		ValueChanged: func(k probe.Key, v probe.Value) {
			d.recordLine("%s %s %s %s", k.Container, k.Kind, v.ContainerID, v.Outcome)
		},
		TargetRemoved: func(k probe.Key) { d.recordLine("%s %s removed", k.Container, k.Kind) },
		ProbeFinished: func(k probe.Key, r probe.Result, err error, took time.Duration) {
			if err != nil {
				d.recordLine("%s error %q after %s", k.Container, err, took)
			} else {
				d.recordLine("%s probed %s after %s", k.Container, r.Outcome, took)
			}
		},
		ProbeDelayed: func(k probe.Key, wait time.Duration) { d.recordLine("%s waited %s", k.Container, wait) },
		StoreFailed:  func(err error) { d.recordLine("store failed: %v", err) },
	}
	d.set = probe.NewSet(o)
	return d
}

func (d *recorder) run(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { assert.NoError(t, d.set.Run(ctx)) })
	d.stop = func() { cancel(); wg.Wait() }
	t.Cleanup(d.stop)
}

func (d *recorder) recordLine(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf("%s ", time.Since(d.start))+fmt.Sprintf(format, args...))
}

// linesAfter waits for a duration and returns the lines recorded since the last call.
func (d *recorder) linesAfter(wait time.Duration) []string {
	time.Sleep(wait)
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	lines := d.lines
	d.lines = nil
	return lines
}

// runningTarget returns the target of a readiness probe of a running container.
func runningTarget(name string, p probe.Func) probe.Target {
	return probe.Target{
		Key:         probe.Key{PodUID: "u1", Container: name, Kind: probe.Readiness},
		ContainerID: name + "1", StartedAt: time.Now(), Running: true, Started: true,
		Spec: probe.Spec{Period: 10 * time.Second}, Prober: p,
	}
}

// delayedProber returns a prober that returns after a duration, unless its context ends.
func delayedProber(d time.Duration, r probe.Result, err error) probe.Func {
	return func(ctx context.Context) (probe.Result, error) {
		select {
		case <-time.After(d):
			return r, err
		case <-ctx.Done():
			return probe.Result{Outcome: probe.Failure, Output: "timeout"}, nil
		}
	}
}

func succeed(context.Context) (probe.Result, error) { return probe.Result{Outcome: probe.Success}, nil }

func fail(context.Context) (probe.Result, error) { return probe.Result{Outcome: probe.Failure}, nil }
