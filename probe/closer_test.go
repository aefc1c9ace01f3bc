// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probe_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/probe"
)

// closableProber is a prober that fails the test if it is closed during a call.
type closableProber struct {
	probe.Func
	err   error         // result of Close
	takes time.Duration // duration of Close

	calls, closed, slammed atomic.Int32
}

func (d *closableProber) Probe(ctx context.Context) (probe.Result, error) {
	d.calls.Add(1)
	defer d.calls.Add(-1)
	return d.Func(ctx)
}

func (d *closableProber) Close() error {
	d.slammed.Add(min(d.calls.Load(), 1))
	d.closed.Add(1)
	time.Sleep(d.takes)
	return d.err
}

// newTarget returns a readiness probe of a container with d as its prober.
func (d *closableProber) newTarget(name string) probe.Target {
	target := runningTarget(name, nil)
	target.Prober = d
	return target
}

// A prober is closed once when its target gets another prober, is removed, or Run returns.
func TestSetClosesUnusedProbersOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startRecorder(t, probe.Options{})
		replaced, removed, stays, swept := &closableProber{Func: succeed}, &closableProber{Func: succeed}, &closableProber{Func: succeed}, &closableProber{Func: succeed}
		closed := func() string {
			return fmt.Sprint(replaced.closed.Load(), removed.closed.Load(), stays.closed.Load(), swept.closed.Load())
		}
		require.NoError(t, d.set.Sync([]probe.Target{replaced.newTarget("a"), removed.newTarget("b"), stays.newTarget("c"), swept.newTarget("d")}))
		require.NoError(t, d.set.Sync([]probe.Target{replaced.newTarget("a"), removed.newTarget("b"), stays.newTarget("c"), swept.newTarget("d")}))
		d.linesAfter(time.Second)
		next := stays.newTarget("c")
		next.ContainerID, next.Spec.Timeout = "c2", time.Minute
		require.NoError(t, d.set.Sync([]probe.Target{runningTarget("a", succeed), removed.newTarget("b"), next, swept.newTarget("d")}))
		d.linesAfter(time.Second)
		assert.Equal(t, "1 0 0 0", closed(), "closed when another prober replaces it")
		require.NoError(t, d.set.SyncPod("u1", []probe.Target{runningTarget("a", succeed), next, swept.newTarget("d")}))
		d.linesAfter(time.Second)
		assert.Equal(t, "1 1 0 0", closed(), "closed when its probe is removed")
		swept2 := swept.newTarget("d")
		swept2.Spec.Period = 0
		require.Error(t, d.set.Sync([]probe.Target{swept2, next}))
		d.linesAfter(time.Second)
		assert.Equal(t, "1 1 0 1", closed(), "closed when its target has become invalid")
		d.stop()
		assert.Equal(t, "1 1 1 1", closed(), "closed when Run returns")
	})
}

// A prober is closed only after its running call has returned, at any time.
func TestSetClosesProberOnlyAfterItsCallReturned(t *testing.T) {
	for name, test := range map[string]struct {
		takes time.Duration
		after func(*recorder) error
	}{
		"replaced":         {after: func(d *recorder) error { return d.set.Sync([]probe.Target{runningTarget("a", succeed)}) }},
		"removed":          {after: func(d *recorder) error { return d.set.SyncPod("u1", nil) }},
		"hung and removed": {takes: time.Hour, after: func(d *recorder) error { return d.set.Sync(nil) }},
		"ended":            {after: func(d *recorder) error { go d.stop(); return nil }},
		"hung and ended":   {takes: time.Hour, after: func(d *recorder) error { go d.stop(); return nil }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := startRecorder(t, probe.Options{})
				slow := &closableProber{Func: func(context.Context) (probe.Result, error) {
					time.Sleep(max(test.takes, 500*time.Millisecond)) // ignores its context
					return probe.Result{Outcome: probe.Success}, nil
				}}
				require.NoError(t, d.set.Sync([]probe.Target{slow.newTarget("a")}))
				d.linesAfter(max(test.takes, 500*time.Millisecond) - 100*time.Millisecond)
				require.NoError(t, test.after(d))
				d.linesAfter(99 * time.Millisecond)
				assert.Zero(t, slow.closed.Load())
				d.linesAfter(time.Millisecond)
				assert.EqualValues(t, 1, slow.closed.Load())
				assert.Zero(t, slow.slammed.Load())
			})
		})
	}
}

// All three attempts of a probe call the same prober. It stays open even if another prober replaces it during an attempt.
func TestRetriesUseTheSameOpenProber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startRecorder(t, probe.Options{})
		flaky := &closableProber{Func: delayedProber(300*time.Millisecond, probe.Result{}, errors.New("no route"))}
		require.NoError(t, d.set.Sync([]probe.Target{flaky.newTarget("a")}))
		d.linesAfter(400 * time.Millisecond)
		require.NoError(t, d.set.Sync([]probe.Target{runningTarget("a", succeed)}))
		assert.Equal(t, []string{`900ms a error "no route" after 900ms`, "10s a Readiness a1 success", "10s a probed success after 0s"},
			d.linesAfter(10*time.Second))
		assert.EqualValues(t, 1, flaky.closed.Load())
		assert.Zero(t, flaky.slammed.Load())
	})
}

// A prober that several targets share is closed when the last of them is removed.
func TestSharedProberClosedAfterItsLastTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startRecorder(t, probe.Options{})
		shared := &closableProber{Func: succeed}
		require.NoError(t, d.set.Sync([]probe.Target{shared.newTarget("a"), shared.newTarget("b"), shared.newTarget("c")}))
		d.linesAfter(0)
		require.NoError(t, d.set.Sync([]probe.Target{runningTarget("a", succeed), shared.newTarget("c")}))
		d.linesAfter(0)
		assert.Zero(t, shared.closed.Load())
		require.NoError(t, d.set.Sync([]probe.Target{runningTarget("a", succeed)}))
		d.linesAfter(0)
		assert.EqualValues(t, 1, shared.closed.Load())
	})
}

// A prober may move from one target to another in a sync, with the targets in any order.
func TestProberMovedToAnotherTargetStaysOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		moving := &closableProber{Func: succeed}
		for _, order := range [][]probe.Target{
			{moving.newTarget("a"), runningTarget("b", succeed)}, {runningTarget("b", succeed), moving.newTarget("a")}, {runningTarget("b", succeed), moving.newTarget("c")},
		} {
			d := startRecorder(t, probe.Options{})
			require.NoError(t, d.set.Sync([]probe.Target{moving.newTarget("b"), runningTarget("c", succeed)}))
			d.linesAfter(time.Second)
			require.NoError(t, d.set.Sync(order))
			d.linesAfter(time.Second)
			assert.Zero(t, moving.closed.Load())
			d.stop()
			assert.EqualValues(t, 1, moving.closed.Swap(0))
		}
	})
}

// uncomparableProber is a prober that can be closed but, because it contains a function, not compared.
type uncomparableProber struct{ probe.Prober }

func (uncomparableProber) Close() error { panic("closed") }

func TestUncomparableProbersAreNotClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startRecorder(t, probe.Options{})
		for range 2 {
			a := runningTarget("a", nil)
			a.Prober = uncomparableProber{probe.Func(succeed)}
			require.NoError(t, d.set.Sync([]probe.Target{a}))
			d.linesAfter(time.Second)
		}
		require.NoError(t, d.set.Sync(nil))
		d.linesAfter(time.Second)
		d.stop()
	})
}

// A prober is closed even if its target was removed before the loop has read it. A prober that is passed again is not
// closed.
func TestProberReplacedBeforeFirstStepIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newRecorder(probe.Options{})
		zeroth, first, second, third := &closableProber{Func: succeed}, &closableProber{Func: succeed}, &closableProber{Func: succeed}, &closableProber{Func: succeed}
		require.NoError(t, d.set.SyncPod("u1", []probe.Target{zeroth.newTarget("a")}))
		require.NoError(t, d.set.Sync([]probe.Target{first.newTarget("a"), third.newTarget("b")}))
		require.NoError(t, d.set.Sync([]probe.Target{third.newTarget("b")}))
		require.NoError(t, d.set.SyncPod("u1", []probe.Target{second.newTarget("a")}))
		require.NoError(t, d.set.SyncPod("u1", []probe.Target{third.newTarget("a")}))
		d.run(t)
		d.linesAfter(time.Second)
		closed := func() string {
			return fmt.Sprint(zeroth.closed.Load(), first.closed.Load(), second.closed.Load(), third.closed.Load())
		}
		assert.Equal(t, "1 1 1 0", closed())
		d.stop()
		assert.Equal(t, "1 1 1 1", closed())
	})
}

// Run may return before it has read the last requests.
func TestProberPassedAfterRunEndedIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range 20 { // repeated, because Run may or may not read the requests
			set, late := probe.NewSet(probe.Options{}), &closableProber{Func: succeed}
			require.NoError(t, set.Sync([]probe.Target{late.newTarget("a")}))
			require.NoError(t, set.SyncPod("u1", []probe.Target{late.newTarget("b")}))
			require.NoError(t, set.Run(ctx))
			assert.EqualValues(t, 1, late.closed.Load())
		}
	})
}

// Close of a prober may block: only the return of Run waits for it.
func TestSlowCloseDelaysOnlyRunsReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		d := startRecorder(t, probe.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		slow := &closableProber{Func: succeed, takes: time.Minute, err: errors.New("peer is gone")}
		require.NoError(t, d.set.Sync([]probe.Target{slow.newTarget("a"), runningTarget("b", succeed)}))
		d.linesAfter(time.Second)
		require.NoError(t, d.set.Sync([]probe.Target{runningTarget("b", succeed)}))
		assert.Equal(t, []string{"1s a Readiness removed", "10s b probed success after 0s", "20s b probed success after 0s"},
			d.linesAfter(20*time.Second))
		d.stop()
		assert.Equal(t, time.Minute+time.Second, time.Since(d.start))
		assert.Contains(t, log.String(), `msg="close prober" error="peer is gone"`)
	})
}

// Many probers may be removed at once: a bounded number is closed concurrently.
func TestConcurrentClosesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startRecorder(t, probe.Options{})
		var targets []probe.Target
		for i := range 150 {
			targets = append(targets, (&closableProber{Func: succeed, takes: time.Second}).newTarget(fmt.Sprint(i)))
		}
		require.NoError(t, d.set.Sync(targets))
		d.linesAfter(0)
		d.stop()
		assert.Equal(t, 3*time.Second, time.Since(d.start), "64 probers are closed in a second")
	})
}

// After random syncs, every prober was closed once, when it had no target and no running call.
func TestRandomSyncsCloseEachProberOnce(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { runRandomSyncs(t, rand.New(&lockedRand{pcg: rand.NewPCG(seed, 3)})) })
		})
	}
}

func runRandomSyncs(t *testing.T, rnd *rand.Rand) {
	d := startRecorder(t, probe.Options{Parallel: 2})
	mood := &flakyProber{rnd: rnd}
	wanted := make(map[string]*closableProber) // expected prober by container
	var all []*closableProber
	for range 200 {
		for _, name := range []string{"a", "b", "c", "d"} {
			switch rnd.IntN(8) {
			case 0:
				delete(wanted, name)
			case 1:
				wanted[name] = &closableProber{Func: mood.Probe, takes: time.Duration(rnd.IntN(3)) * time.Second}
				all = append(all, wanted[name])
			}
		}
		var targets []probe.Target
		for name, door := range wanted {
			target := door.newTarget(name)
			target.ContainerID, target.Spec.Period = fmt.Sprint(rnd.IntN(3)), time.Second
			targets = append(targets, target)
		}
		if rnd.IntN(2) == 0 {
			require.NoError(t, d.set.Sync(targets))
		} else {
			require.NoError(t, d.set.SyncPod("u1", targets))
		}
		d.linesAfter(time.Duration(rnd.IntN(3)) * 500 * time.Millisecond)
		for _, door := range wanted {
			require.Zero(t, door.closed.Load())
		}
	}
	d.stop()
	for _, door := range all {
		require.EqualValues(t, 1, door.closed.Load())
		require.Zero(t, door.slammed.Load())
	}
}
