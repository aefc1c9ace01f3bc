// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package startslots

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The limit grows only while starts wait and the CPU is idle, and stays within its bounds.
func TestNextLimit(t *testing.T) {
	for name, test := range map[string]struct {
		p    limitInput
		want int
	}{
		"idle CPU":                       {limitInput{Limit: 4, Min: 4, Max: 16, Waiting: 1, Idle: 0.5}, 5},
		"enough idle CPU":                {limitInput{Limit: 8, Min: 4, Max: 16, Waiting: 1, Idle: 0.25}, 10},
		"up to the maximum":              {limitInput{Limit: 13, Min: 4, Max: 16, Waiting: 9, Idle: 1}, 16},
		"already at the maximum":         {limitInput{Limit: 16, Min: 4, Max: 16, Waiting: 9, Idle: 1}, 16},
		"from a limit of one":            {limitInput{Limit: 1, Min: 1, Max: 4, Waiting: 9, Idle: 1}, 2},
		"moderate load":                  {limitInput{Limit: 9, Min: 4, Max: 16, Waiting: 9, Idle: 0.20}, 9},
		"busy":                           {limitInput{Limit: 9, Min: 4, Max: 16, Waiting: 9, Idle: 0}, 8},
		"busy, already at the minimum":   {limitInput{Limit: 4, Min: 4, Max: 16, Waiting: 9, Idle: 0}, 4},
		"load unknown":                   {limitInput{Limit: 9, Min: 4, Max: 16, Waiting: 9, Idle: -1}, 9},
		"no start waits":                 {limitInput{Limit: 16, Min: 4, Max: 16, Waiting: 0, Idle: 1}, 4},
		"no start waits, at the minimum": {limitInput{Limit: 4, Min: 4, Max: 16, Waiting: 0, Idle: 1}, 4},
	} {
		assert.Equal(t, test.want, test.p.nextLimit(), name)
	}
}

// fakeCPU reports the CPU times of a machine that is idle for a fraction of the time, and counts the reads.
type fakeCPU struct {
	mu    sync.Mutex
	idle  float64
	reads int
	err   error
	sum   cpuTimes
	at    time.Time
}

func (c *fakeCPU) read() (cpuTimes, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads++
	c.addTime()
	return c.sum, c.err
}

// addTime adds the time since the last call to the CPU times. c.mu is held.
func (c *fakeCPU) addTime() {
	if now := time.Now(); !c.at.IsZero() {
		d := now.Sub(c.at)
		c.sum.all += uint64(d)
		c.sum.idle += uint64(c.idle * float64(d))
	}
	c.at = time.Now()
}

// setIdle changes the idle fraction and the error of reads, and returns the number of reads since the last call.
func (c *fakeCPU) setIdle(idle float64, err error) (reads int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.addTime()
	c.idle, c.err = idle, err
	reads, c.reads = c.reads, 0
	return reads
}

// state returns the number of used slots and of waiting starts.
func (s *Slots) state() (held, waiting int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used, len(s.queue)
}

// The limit grows on an idle machine and stays low on a busy one. The CPU times are read only while starts wait, because
// polling costs CPU time.
func TestLimitFollowsIdleCPU(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cpu := &fakeCPU{}
		s := newSlots(0, 2, cpu.read)
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		defer wg.Wait()
		defer stop()
		wg.Go(func() { s.Run(ctx) })
		const starts = 40
		for range starts {
			wg.Go(func() { _ = s.Acquire(ctx) })
		}
		check := func(after time.Duration, held int, why string) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			got, waiting := s.state()
			require.Equal(t, held, got, why)
			require.Equal(t, starts-held, waiting, why)
		}
		check(10*time.Millisecond, 4, "the limit starts at its minimum")
		check(10*time.Second, 4, "a busy machine keeps the minimum")
		cpu.setIdle(0.5, nil)
		check(adjustPeriod, 5, "an idle machine raises the limit by a quarter")
		check(3*adjustPeriod, 8, "")
		cpu.setIdle(0.15, nil)
		check(10*time.Second, 8, "just right")
		cpu.setIdle(1, nil)
		check(10*time.Second, 16, "the limit stays at its maximum")
		cpu.setIdle(1, errors.New("no /proc"))
		check(10*time.Second, 16, "unknown CPU times keep the limit")
		require.LessOrEqual(t, cpu.setIdle(0, nil), 2, "failed reads are not repeated in a loop")

		for range starts - 16 {
			s.Release()
		}
		synctest.Wait()
		for range 16 {
			s.Release()
		}
		time.Sleep(time.Second)
		cpu.setIdle(1, nil)
		time.Sleep(time.Hour)
		require.Zero(t, cpu.setIdle(1, nil), "CPU times are not read while no start waits")
		held, waiting := s.state()
		require.Zero(t, held)
		require.Zero(t, waiting)
		require.Equal(t, 4, s.limit, "without waiting starts the limit is reset to its minimum")
	})
}

// A fixed limit is independent of the load.
func TestFixedLimitStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cpu := &fakeCPU{idle: 1}
		s := newSlots(3, 64, cpu.read)
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		defer wg.Wait()
		defer stop()
		wg.Go(func() { s.Run(ctx) })
		for range 10 {
			wg.Go(func() { _ = s.Acquire(ctx) })
		}
		time.Sleep(time.Minute)
		held, waiting := s.state()
		require.Equal(t, []int{3, 7}, []int{held, waiting})
		require.Zero(t, cpu.setIdle(0, nil))
	})
}

// A cancelled start keeps no slot, whether it waits or has just been granted one.
func TestCancelledAcquireReleasesSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(1, 1, nil)
		require.NoError(t, s.Acquire(t.Context()))
		first, giveUp := context.WithCancel(t.Context())
		var order []string
		var mu sync.Mutex
		wait := func(ctx context.Context, name string) {
			go func() {
				if s.Acquire(ctx) == nil {
					mu.Lock()
					order = append(order, name)
					mu.Unlock()
					s.Release()
				}
			}()
			synctest.Wait()
		}
		wait(first, "first")
		wait(t.Context(), "second")
		wait(t.Context(), "third")
		giveUp()
		synctest.Wait()
		s.Release()
		synctest.Wait()
		require.Equal(t, []string{"second", "third"}, order, "starts get slots in the order of their calls")

		require.NoError(t, s.Acquire(t.Context()))
		mine := make(chan struct{})
		s.queue = append(s.queue, mine)
		s.Release()
		<-mine
		s.cancelWait(mine) // the context ends when the slot is granted
		held, waiting := s.state()
		require.Equal(t, []int{0, 0}, []int{held, waiting})
	})
}

// parseCPUTimes parses valid CPU times, and returns an error for invalid text.
func TestParseCPUTimes(t *testing.T) {
	got, err := parseCPUTimes([]byte("cpu  10 20 30 400 50 6 7 8 9 9\ncpu0 1 2 3 4\n"))
	require.NoError(t, err)
	assert.Equal(t, cpuTimes{idle: 400, all: 531}, got, "guest time is not counted twice")
	got, err = parseCPUTimes([]byte("cpu 1 2 3 4"))
	require.NoError(t, err)
	assert.Equal(t, cpuTimes{idle: 4, all: 10}, got)
	for _, text := range []string{"", "cpu", "cpu 1 2 3", "cpu0 1 2 3 4", "cpu 1 2 x 4", "cpu 18446744073709551615 1 0 0"} {
		_, err := parseCPUTimes([]byte(text))
		assert.Error(t, err, "%q", text)
	}
	now := cpuTimes{idle: 450, all: 700}
	assert.InDelta(t, 0.25, now.idleFraction(cpuTimes{idle: 400, all: 500}), 1e-9)
	assert.Negative(t, now.idleFraction(now), "no time between the reads")
	assert.Negative(t, now.idleFraction(cpuTimes{idle: 500, all: 600}), "total time moved backwards")
	assert.Negative(t, now.idleFraction(cpuTimes{idle: 0, all: 600}), "more idle time than total time")

	read, err := readCPUTimes()
	require.NoError(t, err)
	assert.Positive(t, read.all)
	assert.LessOrEqual(t, read.idle, read.all)
}

// FuzzParseCPUTimes looks for text that is parsed as more idle time than total time.
func FuzzParseCPUTimes(f *testing.F) {
	f.Add([]byte("cpu  10 20 30 400 50 6 7 8 9 9\ncpu0 1 2 3 4\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if got, err := parseCPUTimes(text); err == nil && got.idle > got.all {
			t.Errorf("%+v", got)
		}
	})
}
