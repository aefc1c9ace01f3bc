// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probe_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/probe"
)

// diary is a set, with what its hooks were told since the start.
type diary struct {
	set   *probe.Set
	start time.Time
	stop  func() // ends Run and waits for it

	mu    sync.Mutex // guards lines
	lines []string
}

// run starts a set in a bubble. Its first probes are not spread.
func run(t *testing.T, o probe.Options) *diary {
	d := rest(o)
	d.run(t)
	return d
}

// rest returns a set that does not run yet.
func rest(o probe.Options) *diary {
	d := &diary{start: time.Now()}
	if o.Rand == nil {
		o.Rand = func() float64 { return 0 }
	}
	o.Hooks = probe.Hooks{
		Changed: func(k probe.Key, v probe.Value) { d.note("%s %s %s %s", k.Container, k.Kind, v.ContainerID, v.Outcome) },
		Removed: func(k probe.Key) { d.note("%s %s removed", k.Container, k.Kind) },
		Probed: func(k probe.Key, r probe.Result, err error, took time.Duration) {
			if err != nil {
				d.note("%s error %q after %s", k.Container, err, took)
			} else {
				d.note("%s probed %s after %s", k.Container, r.Outcome, took)
			}
		},
		Delayed:     func(k probe.Key, wait time.Duration) { d.note("%s waited %s", k.Container, wait) },
		StoreFailed: func(err error) { d.note("store failed: %v", err) },
	}
	d.set = probe.NewSet(o)
	return d
}

func (d *diary) run(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { assert.NoError(t, d.set.Run(ctx)) })
	d.stop = func() { cancel(); wg.Wait() }
	t.Cleanup(d.stop)
}

func (d *diary) note(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf("%s ", time.Since(d.start))+fmt.Sprintf(format, args...))
}

// told waits for d to pass and returns what has been noted since the last call.
func (d *diary) told(wait time.Duration) []string {
	time.Sleep(wait)
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	lines := d.lines
	d.lines = nil
	return lines
}

// running is the target of a readiness probe of a container that runs.
func running(name string, p probe.Func) probe.Target {
	return probe.Target{
		Key:         probe.Key{PodUID: "u1", Container: name, Kind: probe.Readiness},
		ContainerID: name + "1", StartedAt: time.Now(), Running: true, Started: true,
		Spec: probe.Spec{Period: 10 * time.Second}, Prober: p,
	}
}

// after is a prober that takes a while, unless its context ends.
func after(d time.Duration, r probe.Result, err error) probe.Func {
	return func(ctx context.Context) (probe.Result, error) {
		select {
		case <-time.After(d):
			return r, err
		case <-ctx.Done():
			return probe.Result{Outcome: probe.Failure, Output: "timeout"}, nil
		}
	}
}

func yes(context.Context) (probe.Result, error) { return probe.Result{Outcome: probe.Success}, nil }
func no(context.Context) (probe.Result, error)  { return probe.Result{Outcome: probe.Failure}, nil }

func TestSetProbesEveryPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := run(t, probe.Options{})
		require.NoError(t, d.set.Sync([]probe.Target{running("a", after(100*time.Millisecond, probe.Result{Outcome: probe.Success}, nil))}))
		assert.Equal(t, []string{
			"0s a Readiness a1 failure",
			"100ms a Readiness a1 success",
			"100ms a probed success after 100ms",
			"10.1s a probed success after 100ms",
			"20.1s a probed success after 100ms",
		}, d.told(25*time.Second))
		v, ok := d.set.Result(probe.Key{PodUID: "u1", Container: "a", Kind: probe.Readiness})
		assert.Equal(t, probe.Value{ContainerID: "a1", Outcome: probe.Success}, v)
		assert.True(t, ok)
		assert.Len(t, d.set.Results(), 1)
	})
}

// The same list again changes nothing and starts nothing; what is no longer on it is forgotten.
func TestSyncIsLevelTriggered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := run(t, probe.Options{})
		a, b := running("a", yes), running("b", yes)
		require.NoError(t, d.set.Sync([]probe.Target{a, b}))
		d.told(time.Second)
		require.NoError(t, d.set.Sync([]probe.Target{a, b}))
		require.NoError(t, d.set.Sync([]probe.Target{a, b}))
		assert.Empty(t, d.told(8*time.Second))
		require.NoError(t, d.set.Sync([]probe.Target{a}))
		assert.Equal(t, []string{"9s b Readiness removed"}, d.told(0))
		_, ok := d.set.Result(b.Key)
		assert.False(t, ok)
		assert.Equal(t, 1, d.set.Status().Probes)

		require.NoError(t, d.set.Sync([]probe.Target{a, b}), "b alone begins anew")
		assert.Equal(t, []string{"9s b Readiness b1 failure", "9s b Readiness b1 success", "9s b probed success after 0s"}, d.told(0))
		assert.Equal(t, []string{"10s a probed success after 0s"}, d.told(time.Second))
	})
}

func TestSyncRefusesBadTargets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := run(t, probe.Options{})
		bad := func(f func(*probe.Target)) probe.Target {
			b := running("bad", yes)
			f(&b)
			return b
		}
		good := running("good", yes)
		err := d.set.Sync([]probe.Target{
			bad(func(b *probe.Target) { b.Spec.Period = 0 }),
			bad(func(b *probe.Target) { b.Spec.Period = -time.Second }),
			bad(func(b *probe.Target) { b.Spec.Period = probe.MinPeriod - 1 }),
			bad(func(b *probe.Target) { b.Spec.Timeout = -time.Second }),
			bad(func(b *probe.Target) { b.Spec.InitialDelay = -time.Second }),
			bad(func(b *probe.Target) { b.Spec.SuccessThreshold = -1 }),
			bad(func(b *probe.Target) { b.Spec.FailureThreshold = -2 }),
			bad(func(b *probe.Target) { b.Prober = nil }),
			bad(func(b *probe.Target) { b.PodUID = "" }),
			bad(func(b *probe.Target) { b.Container = "" }),
			bad(func(b *probe.Target) { b.Kind = 7 }),
			good, good,
		})
		assert.EqualError(t, err, `Readiness probe of container "bad" of pod "u1": field Period: 0s is less than 10ms
Readiness probe of container "bad" of pod "u1": field Period: -1s is less than 10ms
Readiness probe of container "bad" of pod "u1": field Period: 9.999999ms is less than 10ms
Readiness probe of container "bad" of pod "u1": field Timeout: -1s is negative
Readiness probe of container "bad" of pod "u1": field InitialDelay: -1s is negative
Readiness probe of container "bad" of pod "u1": field SuccessThreshold: -1 is negative
Readiness probe of container "bad" of pod "u1": field FailureThreshold: -2 is negative
Readiness probe of container "bad" of pod "u1": field Prober: is nil
Readiness probe of container "bad" of pod "": field PodUID: is empty
Readiness probe of container "" of pod "u1": field Container: is empty
Kind(7) probe of container "bad" of pod "u1": field Kind: 7 is none of Startup, Readiness and Liveness
Readiness probe of container "good" of pod "u1": comes twice`)
		assert.Len(t, d.told(time.Second), 3, "the good one is probed once")
	})
}

// A question that cannot be put is put again at once, three times in all.
func TestErrorsAreTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := run(t, probe.Options{})
		calls := 0
		flaky := func(context.Context) (probe.Result, error) {
			if calls++; calls == 3 || calls > 6 {
				return probe.Result{Outcome: probe.Success}, nil
			}
			return probe.Result{Outcome: probe.Failure}, errors.New("no route")
		}
		require.NoError(t, d.set.Sync([]probe.Target{running("a", flaky)}))
		assert.Equal(t, []string{"0s a Readiness a1 failure", "0s a Readiness a1 success", "0s a probed success after 0s"}, d.told(0))
		assert.Equal(t, []string{`10s a error "no route" after 0s`, "20s a probed success after 0s"}, d.told(20*time.Second))
		assert.Equal(t, 7, calls)
	})
}

func TestTrigger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := run(t, probe.Options{})
		a := running("a", after(time.Second/2, probe.Result{Outcome: probe.Failure}, nil))
		require.NoError(t, d.set.Sync([]probe.Target{a}))
		d.told(4 * time.Second)
		d.set.Trigger(a.Key)
		d.set.Trigger(a.Key)
		d.set.Trigger(probe.Key{PodUID: "nobody"})
		assert.Equal(t, []string{"4.5s a probed failure after 500ms"}, d.told(time.Second))
		assert.Empty(t, d.told(9*time.Second-1), "the period begins with the trigger")
		assert.Equal(t, []string{"14.5s a probed failure after 500ms"}, d.told(time.Second))

		time.Sleep(9100 * time.Millisecond) // 24.1s, in the middle of a probe
		d.set.Trigger(a.Key)
		assert.Equal(t, []string{"24.5s a probed failure after 500ms", "25s a probed failure after 500ms"}, d.told(2*time.Second))
	})
}

// After the start of the agent first probes are spread over their period; later ones begin at once.
func TestFirstProbesAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := run(t, probe.Options{Rand: func() float64 { return 0.75 }})
		a, b := running("a", yes), running("b", yes)
		require.NoError(t, d.set.Sync([]probe.Target{a}))
		d.told(7400 * time.Millisecond)
		assert.Equal(t, []string{"7.5s a Readiness a1 success", "7.5s a probed success after 0s"}, d.told(3*time.Second))
		require.NoError(t, d.set.Sync([]probe.Target{a, b}))
		assert.Equal(t, []string{"10.4s b Readiness b1 failure", "10.4s b Readiness b1 success", "10.4s b probed success after 0s"}, d.told(0))
	})
}

// Probes above the limit wait in the order in which they became due, and are counted.
func TestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turn := 0.0
		d := run(t, probe.Options{Parallel: 2, Rand: func() float64 { turn += 0.01; return turn }})
		var targets []probe.Target
		for _, name := range []string{"a", "b", "c", "d", "e"} { // due 100 ms apart
			slow := running(name, after(time.Second, probe.Result{Outcome: probe.Success}, nil))
			slow.Spec.Timeout = 5 * time.Second
			targets = append(targets, slow)
		}
		require.NoError(t, d.set.Sync(targets))
		d.told(time.Second)
		assert.Equal(t, probe.Status{Probes: 5, InFlight: 2, Waiting: 3}, d.set.Status())
		require.NoError(t, d.set.Sync(targets), "a list that changes nothing costs nobody a place")
		d.set.Trigger(targets[4].Key)
		assert.Contains(t, d.told(4*time.Second), "2.1s e waited 1.6s")
		assert.Equal(t, probe.Status{Probes: 5, Delayed: 3}, d.set.Status())
		assert.Equal(t, []string{
			"11.1s a probed success after 1s", "11.1s c waited 800ms",
			"11.2s b probed success after 1s", "11.2s d waited 800ms",
			"12.1s c probed success after 1s", "12.1s e waited 1.6s",
			"12.2s d probed success after 1s",
			"13.1s e probed success after 1s",
		}, d.told(10*time.Second))

		// One that is taken off the list gives its place away.
		d.told(6 * time.Second) // 21s
		assert.Equal(t, 3, d.set.Status().Waiting)
		require.NoError(t, d.set.Sync(targets[:3]))
		d.told(0)
		assert.Equal(t, probe.Status{Probes: 3, InFlight: 2, Waiting: 1, Delayed: 6}, d.set.Status())
	})
}

// One that waits for its turn and is then to be asked later, or not at all, is not asked in its old turn.
func TestLimitIsNoPromise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := run(t, probe.Options{Parallel: 1})
		a, b := running("a", after(2*time.Second, probe.Result{Outcome: probe.Success}, nil)), running("b", yes)
		a.Spec.Timeout = 5 * time.Second
		require.NoError(t, d.set.Sync([]probe.Target{a}))
		d.told(time.Second / 2)
		require.NoError(t, d.set.Sync([]probe.Target{a, b}))
		d.told(time.Second / 2)
		assert.Equal(t, 1, d.set.Status().Waiting)
		b.ContainerID, b.StartedAt, b.Spec.InitialDelay = "b2", time.Now(), 5*time.Second
		require.NoError(t, d.set.Sync([]probe.Target{a, b}))
		assert.Equal(t, []string{
			"1s b Readiness b2 failure",
			"2s a Readiness a1 success", "2s a probed success after 2s",
			"6s b Readiness b2 success", "6s b probed success after 0s",
		}, d.told(7*time.Second))
	})
}

// A probe in flight ends when its container is no longer to be asked; its answer counts for nothing.
func TestStopInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := run(t, probe.Options{Parallel: 1})
		ended := 0
		slow := func(ctx context.Context) (probe.Result, error) {
			<-ctx.Done()
			ended++
			return probe.Result{Outcome: probe.Success}, nil
		}
		a := running("a", slow)
		a.Spec.Timeout = 5 * time.Second
		require.NoError(t, d.set.Sync([]probe.Target{a}))
		d.told(time.Second)
		a.ContainerID = "a2"
		require.NoError(t, d.set.Sync([]probe.Target{a}))
		assert.Equal(t, []string{"1s a Readiness a2 failure"}, d.told(time.Second))
		assert.Equal(t, 1, ended)
		assert.Equal(t, 1, d.set.Status().InFlight, "the new container is being asked")

		a.Running = false
		require.NoError(t, d.set.Sync([]probe.Target{a}))
		d.told(0)
		assert.Equal(t, 2, ended)
		a.Running = true
		require.NoError(t, d.set.Sync([]probe.Target{a}))
		d.told(time.Second)
		require.NoError(t, d.set.Sync(nil))
		assert.Equal(t, []string{"3s a Readiness removed"}, d.told(time.Second))
		assert.Equal(t, 3, ended)
		assert.Equal(t, probe.Status{}, d.set.Status())
	})
}

// A prober that ignores its context is given up a second after its timeout. It delays nobody, is not called again
// before it returns, and what it says then counts for nothing.
func TestHungProber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := run(t, probe.Options{Parallel: 1})
		hung := func(context.Context) (probe.Result, error) {
			time.Sleep(33 * time.Second)
			return probe.Result{Outcome: probe.Success}, nil
		}
		a, b := running("a", hung), running("b", yes)
		require.NoError(t, d.set.Sync([]probe.Target{a, b}))
		assert.Equal(t, []string{
			"0s a Readiness a1 failure",
			"0s b Readiness b1 failure",
			`2s a error "prober does not return" after 2s`,
			"2s b waited 2s",
			"2s b Readiness b1 success",
			"2s b probed success after 0s",
			"10s b probed success after 0s",
			"20s b probed success after 0s",
			"30s b probed success after 0s",
		}, d.told(30*time.Second))
		assert.Equal(t, probe.Status{Probes: 2, Hung: 1, Delayed: 1}, d.set.Status())
		assert.Equal(t, []string{`35s a error "prober does not return" after 2s`}, d.told(5*time.Second), "called again when it had returned")

		require.NoError(t, d.set.Sync([]probe.Target{b}), "also one that is no longer wanted is still counted")
		d.told(0)
		assert.Equal(t, probe.Status{Probes: 1, Hung: 1, Delayed: 1}, d.set.Status())
		d.told(33 * time.Second)
		assert.Equal(t, probe.Status{Probes: 1, Delayed: 1}, d.set.Status())
	})
}

// Run returns when the probers have, and not before.
func TestRunWaitsForProbers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := run(t, probe.Options{})
		returned := false
		require.NoError(t, d.set.Sync([]probe.Target{running("a", func(ctx context.Context) (probe.Result, error) {
			<-ctx.Done()
			time.Sleep(time.Minute)
			returned = true
			return probe.Result{}, ctx.Err()
		})}))
		d.told(time.Second / 2)
		d.stop()
		assert.True(t, returned)
	})
}

// What an earlier agent started is not called failed because somebody took it for dead for a moment.
func TestNothingToSayAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := run(t, probe.Options{Rand: func() float64 { return 0.5 }})
		a := running("a", yes)
		a.Kind, a.Running, a.StartedAt = probe.Liveness, false, time.Now().Add(-time.Hour)
		require.NoError(t, d.set.Sync([]probe.Target{a}))
		assert.Equal(t, []string{"0s a Liveness a1 failure"}, d.told(0))
		a.Running = true
		require.NoError(t, d.set.Sync([]probe.Target{a}))
		d.told(0)
		_, ok := d.set.Result(a.Key)
		assert.False(t, ok)
		assert.Equal(t, []string{"5s a Liveness a1 success", "5s a probed success after 0s"}, d.told(5*time.Second))
	})
}

// The way of a container with all three probes, from the start to its restart, where the agent feeds back what it is
// told.
func TestLifeOfAContainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := run(t, probe.Options{})
		well := time.Now().Add(12 * time.Second)
		sick := time.Now().Add(34 * time.Second)
		check := func(ctx context.Context) (probe.Result, error) {
			if now := time.Now(); now.Before(well) || now.After(sick) {
				return no(ctx)
			}
			return yes(ctx)
		}
		targets := func(id string, started bool) (all []probe.Target) {
			for _, k := range []probe.Kind{probe.Startup, probe.Readiness, probe.Liveness} {
				target := running("a", check)
				target.Kind, target.ContainerID, target.Started = k, id, started
				target.Spec = probe.Spec{Period: 5 * time.Second, FailureThreshold: 4}
				if k == probe.Readiness {
					target.Spec.FailureThreshold = 1
				}
				all = append(all, target)
			}
			return all
		}
		require.NoError(t, d.set.Sync(targets("a1", false)))
		assert.Equal(t, []string{"0s a Startup a1 unknown", "0s a Readiness a1 failure", "0s a Liveness a1 success"}, d.told(0)[:3])
		assert.Equal(t, []string{
			"5s a probed failure after 0s", "10s a probed failure after 0s",
			"15s a Startup a1 success", "15s a probed success after 0s",
		}, d.told(17*time.Second))
		require.NoError(t, d.set.Sync(targets("a1", true)))
		assert.Equal(t, []string{"17s a Readiness a1 success", "17s a probed success after 0s"}, d.told(0))
		lines := d.told(33*time.Second + 1)
		assert.Contains(t, lines, "37s a Readiness a1 failure")
		assert.Equal(t, "50s a Liveness a1 failure", lines[len(lines)-2])
		require.NoError(t, d.set.Sync(targets("a2", false)))
		assert.Equal(t, []string{"50.000000001s a Startup a2 unknown", "50.000000001s a Readiness a2 failure", "50.000000001s a Liveness a2 success"}, d.told(0))
	})
}
