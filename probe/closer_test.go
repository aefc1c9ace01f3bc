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

// door is a prober that is open until it is closed. It says so when that happens in the middle of a call.
type door struct {
	probe.Func
	err   error         // of Close
	takes time.Duration // to close

	calls, closed, slammed atomic.Int32
}

func (d *door) Probe(ctx context.Context) (probe.Result, error) {
	d.calls.Add(1)
	defer d.calls.Add(-1)
	return d.Func(ctx)
}

func (d *door) Close() error {
	d.slammed.Add(min(d.calls.Load(), 1))
	d.closed.Add(1)
	time.Sleep(d.takes)
	return d.err
}

// at returns a readiness probe of a container that is asked at this door.
func (d *door) at(name string) probe.Target {
	target := running(name, nil)
	target.Prober = d
	return target
}

// A prober is closed once when its target gets another prober, is removed, or Run returns.
func TestSetClosesUnusedProbersOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := run(t, probe.Options{})
		replaced, removed, stays, swept := &door{Func: yes}, &door{Func: yes}, &door{Func: yes}, &door{Func: yes}
		closed := func() string {
			return fmt.Sprint(replaced.closed.Load(), removed.closed.Load(), stays.closed.Load(), swept.closed.Load())
		}
		require.NoError(t, d.set.Sync([]probe.Target{replaced.at("a"), removed.at("b"), stays.at("c"), swept.at("d")}))
		require.NoError(t, d.set.Sync([]probe.Target{replaced.at("a"), removed.at("b"), stays.at("c"), swept.at("d")}))
		d.told(time.Second)
		next := stays.at("c")
		next.ContainerID, next.Spec.Timeout = "c2", time.Minute
		require.NoError(t, d.set.Sync([]probe.Target{running("a", yes), removed.at("b"), next, swept.at("d")}))
		d.told(time.Second)
		assert.Equal(t, "1 0 0 0", closed(), "by another one")
		require.NoError(t, d.set.SyncPod("u1", []probe.Target{running("a", yes), next, swept.at("d")}))
		d.told(time.Second)
		assert.Equal(t, "1 1 0 0", closed(), "with its probe")
		swept2 := swept.at("d")
		swept2.Spec.Period = 0
		require.Error(t, d.set.Sync([]probe.Target{swept2, next}))
		d.told(time.Second)
		assert.Equal(t, "1 1 0 1", closed(), "with a target that is invalid now")
		d.stop()
		assert.Equal(t, "1 1 1 1", closed(), "when Run ends")
	})
}

// A running call of a prober returns before the prober is closed, however late that is.
func TestSetClosesProberOnlyAfterItsCallReturned(t *testing.T) {
	for name, test := range map[string]struct {
		takes time.Duration
		after func(*recorder) error
	}{
		"replaced":          {after: func(d *recorder) error { return d.set.Sync([]probe.Target{running("a", yes)}) }},
		"removed":           {after: func(d *recorder) error { return d.set.SyncPod("u1", nil) }},
		"removed when hung": {takes: time.Hour, after: func(d *recorder) error { return d.set.Sync(nil) }},
		"ended":             {after: func(d *recorder) error { go d.stop(); return nil }},
		"ended when hung":   {takes: time.Hour, after: func(d *recorder) error { go d.stop(); return nil }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := run(t, probe.Options{})
				slow := &door{Func: func(context.Context) (probe.Result, error) {
					time.Sleep(max(test.takes, 500*time.Millisecond)) // and does not look at its context
					return probe.Result{Outcome: probe.Success}, nil
				}}
				require.NoError(t, d.set.Sync([]probe.Target{slow.at("a")}))
				d.told(max(test.takes, 500*time.Millisecond) - 100*time.Millisecond)
				require.NoError(t, test.after(d))
				d.told(99 * time.Millisecond)
				assert.Zero(t, slow.closed.Load())
				d.told(time.Millisecond)
				assert.EqualValues(t, 1, slow.closed.Load())
				assert.Zero(t, slow.slammed.Load())
			})
		})
	}
}

// All three attempts of a probe call the same prober, which stays open even if it is replaced meanwhile.
func TestRetriesUseTheSameOpenProber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := run(t, probe.Options{})
		flaky := &door{Func: after(300*time.Millisecond, probe.Result{}, errors.New("no route"))}
		require.NoError(t, d.set.Sync([]probe.Target{flaky.at("a")}))
		d.told(400 * time.Millisecond)
		require.NoError(t, d.set.Sync([]probe.Target{running("a", yes)}))
		assert.Equal(t, []string{`900ms a error "no route" after 900ms`, "10s a Readiness a1 success", "10s a probed success after 0s"},
			d.told(10*time.Second))
		assert.EqualValues(t, 1, flaky.closed.Load())
		assert.Zero(t, flaky.slammed.Load())
	})
}

// A prober that several targets share is closed when the last of them is removed.
func TestSharedProberClosedAfterItsLastTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := run(t, probe.Options{})
		shared := &door{Func: yes}
		require.NoError(t, d.set.Sync([]probe.Target{shared.at("a"), shared.at("b"), shared.at("c")}))
		d.told(0)
		require.NoError(t, d.set.Sync([]probe.Target{running("a", yes), shared.at("c")}))
		d.told(0)
		assert.Zero(t, shared.closed.Load())
		require.NoError(t, d.set.Sync([]probe.Target{running("a", yes)}))
		d.told(0)
		assert.EqualValues(t, 1, shared.closed.Load())
	})
}

// A prober may move from one target to another in a sync, in any order.
func TestProberMovedToAnotherTargetStaysOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		moving := &door{Func: yes}
		for _, order := range [][]probe.Target{
			{moving.at("a"), running("b", yes)}, {running("b", yes), moving.at("a")}, {running("b", yes), moving.at("c")},
		} {
			d := run(t, probe.Options{})
			require.NoError(t, d.set.Sync([]probe.Target{moving.at("b"), running("c", yes)}))
			d.told(time.Second)
			require.NoError(t, d.set.Sync(order))
			d.told(time.Second)
			assert.Zero(t, moving.closed.Load())
			d.stop()
			assert.EqualValues(t, 1, moving.closed.Swap(0))
		}
	})
}

// box is a prober that can be closed, but, with a function in it, not be compared.
type box struct{ probe.Prober }

func (box) Close() error { panic("closed") }

func TestUncomparableProbersAreNotClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := run(t, probe.Options{})
		for range 2 {
			a := running("a", nil)
			a.Prober = box{probe.Func(yes)}
			require.NoError(t, d.set.Sync([]probe.Target{a}))
			d.told(time.Second)
		}
		require.NoError(t, d.set.Sync(nil))
		d.told(time.Second)
		d.stop()
	})
}

// A prober is closed even if its target was removed before the loop read it, unless the prober was passed again.
func TestProberReplacedBeforeFirstStepIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := rest(probe.Options{})
		zeroth, first, second, third := &door{Func: yes}, &door{Func: yes}, &door{Func: yes}, &door{Func: yes}
		require.NoError(t, d.set.SyncPod("u1", []probe.Target{zeroth.at("a")}))
		require.NoError(t, d.set.Sync([]probe.Target{first.at("a"), third.at("b")}))
		require.NoError(t, d.set.Sync([]probe.Target{third.at("b")}))
		require.NoError(t, d.set.SyncPod("u1", []probe.Target{second.at("a")}))
		require.NoError(t, d.set.SyncPod("u1", []probe.Target{third.at("a")}))
		d.run(t)
		d.told(time.Second)
		closed := func() string {
			return fmt.Sprint(zeroth.closed.Load(), first.closed.Load(), second.closed.Load(), third.closed.Load())
		}
		assert.Equal(t, "1 1 1 0", closed())
		d.stop()
		assert.Equal(t, "1 1 1 1", closed())
	})
}

// Run may end before it has read the last requests.
func TestProberPassedAfterRunEndedIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range 20 { // as it may as well look once
			set, late := probe.NewSet(probe.Options{}), &door{Func: yes}
			require.NoError(t, set.Sync([]probe.Target{late.at("a")}))
			require.NoError(t, set.SyncPod("u1", []probe.Target{late.at("b")}))
			require.NoError(t, set.Run(ctx))
			assert.EqualValues(t, 1, late.closed.Load())
		}
	})
}

// Close of a prober may block: only the return of Run waits for it.
func TestSlowCloseDelaysOnlyRunsReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		d := run(t, probe.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		slow := &door{Func: yes, takes: time.Minute, err: errors.New("peer is gone")}
		require.NoError(t, d.set.Sync([]probe.Target{slow.at("a"), running("b", yes)}))
		d.told(time.Second)
		require.NoError(t, d.set.Sync([]probe.Target{running("b", yes)}))
		assert.Equal(t, []string{"1s a Readiness removed", "10s b probed success after 0s", "20s b probed success after 0s"},
			d.told(20*time.Second))
		d.stop()
		assert.Equal(t, time.Minute+time.Second, time.Since(d.start))
		assert.Contains(t, log.String(), `msg="close prober" error="peer is gone"`)
	})
}

// Many probers may be removed at once: a bounded number is closed concurrently.
func TestConcurrentClosesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := run(t, probe.Options{})
		var targets []probe.Target
		for i := range 150 {
			targets = append(targets, (&door{Func: yes, takes: time.Second}).at(fmt.Sprint(i)))
		}
		require.NoError(t, d.set.Sync(targets))
		d.told(0)
		d.stop()
		assert.Equal(t, 3*time.Second, time.Since(d.start), "64 in a second")
	})
}

// After random syncs, every prober was closed once, when it had no target and no running call.
func TestRandomSyncsCloseEachProberOnce(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { everyDoor(t, rand.New(&dice{pcg: rand.NewPCG(seed, 3)})) })
		})
	}
}

func everyDoor(t *testing.T, rnd *rand.Rand) {
	d := run(t, probe.Options{Parallel: 2})
	mood := &moody{rnd: rnd}
	wanted := make(map[string]*door) // by container
	var all []*door
	for range 200 {
		for _, name := range []string{"a", "b", "c", "d"} {
			switch rnd.IntN(8) {
			case 0:
				delete(wanted, name)
			case 1:
				wanted[name] = &door{Func: mood.Probe, takes: time.Duration(rnd.IntN(3)) * time.Second}
				all = append(all, wanted[name])
			}
		}
		var targets []probe.Target
		for name, door := range wanted {
			target := door.at(name)
			target.ContainerID, target.Spec.Period = fmt.Sprint(rnd.IntN(3)), time.Second
			targets = append(targets, target)
		}
		if rnd.IntN(2) == 0 {
			require.NoError(t, d.set.Sync(targets))
		} else {
			require.NoError(t, d.set.SyncPod("u1", targets))
		}
		d.told(time.Duration(rnd.IntN(3)) * 500 * time.Millisecond)
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
