// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probe_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/probe"
)

// lockedRand is a source of random numbers for several goroutines.
type lockedRand struct {
	mu  sync.Mutex // guards pcg
	pcg *rand.PCG
}

func (d *lockedRand) Uint64() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.pcg.Uint64()
}

// flakyProber is a prober that takes random times, ignores its context, fails and returns errors, until the test sets calm.
type flakyProber struct {
	rnd   *rand.Rand
	calm  atomic.Bool
	calls atomic.Int32 // running calls
	most  atomic.Int32 // maximum of calls
}

func (m *flakyProber) Probe(ctx context.Context) (probe.Result, error) {
	if m.calm.Load() {
		return succeed(ctx)
	}
	m.most.Store(max(m.most.Load(), m.calls.Add(1)))
	defer m.calls.Add(-1)
	switch m.rnd.IntN(6) {
	case 0:
		return probe.Result{}, errors.New("no route")
	case 1:
		return fail(ctx)
	case 2:
		<-ctx.Done()
		return fail(ctx)
	case 3:
		time.Sleep(time.Duration(m.rnd.IntN(9)) * time.Second)
	default:
		return delayedProber(time.Duration(m.rnd.IntN(1500))*time.Millisecond, probe.Result{Outcome: probe.Success}, nil)(ctx)
	}
	return succeed(ctx)
}

// During random operations, the limits of the set and of each pod hold. Afterwards every probe runs at its regular times.
func TestRandomOperations(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "probes")
			synctest.Test(t, func(t *testing.T) { randomOperations(t, rand.New(&lockedRand{pcg: rand.NewPCG(seed, 1)}), path) })
		})
	}
}

func randomOperations(t *testing.T, rnd *rand.Rand, path string) {
	d := startRecorder(t, probe.Options{Parallel: 3, PodParallel: 4, Store: path, Rand: rnd.Float64})
	pods := []*flakyProber{{rnd: rnd}, {rnd: rnd}, {rnd: rnd}}
	all := make([]probe.Target, 18)
	for i := range all {
		all[i] = runningTarget(fmt.Sprintf("c%d", i), nil)
		all[i].PodUID, all[i].Prober = fmt.Sprint("u", i%len(pods)), pods[i%len(pods)]
		all[i].Kind = probe.Readiness + probe.Kind(i%2)
		all[i].Spec.Period = time.Duration(1+rnd.IntN(5)) * time.Second
		all[i].Spec.Timeout = []time.Duration{0, 0, 5 * time.Second, math.MaxInt32 * time.Second}[rnd.IntN(4)]
	}
	for round := range 200 {
		a := &all[rnd.IntN(len(all))]
		switch rnd.IntN(6) {
		case 0:
			a.ContainerID, a.StartedAt = fmt.Sprintf("%s-%d", a.Container, round), time.Now()
		case 1:
			a.Running = !a.Running
		case 2:
			d.set.Trigger(a.Key)
		}
		rnd.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		require.NoError(t, d.set.Sync(all[:rnd.IntN(len(all)+1)]))
		time.Sleep(time.Duration(rnd.ExpFloat64() * float64(time.Second)))
		synctest.Wait()
		require.LessOrEqual(t, d.set.Status().InFlight, 3)
		require.GreaterOrEqual(t, d.set.Status().InFlight, 0)
		require.GreaterOrEqual(t, d.set.Status().Slow, 0)
	}
	for _, pod := range pods {
		require.LessOrEqual(t, pod.most.Load(), int32(4))
		pod.calm.Store(true)
	}
	for i := range all {
		all[i].ContainerID, all[i].Running, all[i].Spec.Period = all[i].Container+"-calm", true, 5*time.Second
	}
	require.NoError(t, d.set.Sync(all))
	d.linesAfter(time.Minute)
	s := d.set.Status()
	assert.Equal(t, probe.Status{Targets: len(all), Delayed: s.Delayed}, s)
	for _, v := range d.set.Results() {
		assert.Equal(t, probe.Success, v.Outcome)
	}
	assert.Len(t, d.linesAfter(time.Minute), 12*len(all))
}
