// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package flight_test

import (
	"context"
	"errors"
	"os"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/images/internal/flight"
)

// TestMain keeps the tests on one processor: the race detector of Go 1.26 now and then crashes when timers of a
// synctest bubble fire on several (golang/go#78156).
func TestMain(m *testing.M) {
	runtime.GOMAXPROCS(1)
	os.Exit(m.Run())
}

// newSlowCall returns a function that takes a second, unless its context ends.
func newSlowCall(calls *int, err error) func(context.Context) (int, error) {
	return func(ctx context.Context) (int, error) {
		*calls++
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(time.Second):
			return *calls, err
		}
	}
}

func TestConcurrentCallersShareCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g flight.Group[int]
		var wg sync.WaitGroup
		calls := 0
		wrong := errors.New("wrong")
		for range 10 {
			wg.Go(func() {
				v, err := g.Do(t.Context(), "a", newSlowCall(&calls, wrong))
				assert.Equal(t, 1, v)
				assert.ErrorIs(t, err, wrong)
			})
		}
		wg.Wait()
		require.Equal(t, 1, calls)

		v, err := g.Do(t.Context(), "a", newSlowCall(&calls, nil))
		require.NoError(t, err)
		require.Equal(t, 2, v, "results are not cached")
	})
}

func TestKeysAreSeparate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g flight.Group[int]
		var wg sync.WaitGroup
		a, b := 0, 0
		began := time.Now()
		wg.Go(func() { _, _ = g.Do(t.Context(), "a", newSlowCall(&a, nil)) })
		wg.Go(func() { _, _ = g.Do(t.Context(), "b", newSlowCall(&b, nil)) })
		wg.Wait()
		require.Equal(t, []int{1, 1}, []int{a, b})
		require.Equal(t, time.Second, time.Since(began))
	})
}

// If the running caller is cancelled, one of the waiting callers runs the function again.
func TestWaitingCallerTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g flight.Group[int]
		var wg sync.WaitGroup
		calls := 0
		first, cancel := context.WithCancel(t.Context())
		wg.Go(func() {
			_, err := g.Do(first, "a", newSlowCall(&calls, nil))
			assert.ErrorIs(t, err, context.Canceled)
		})
		synctest.Wait()
		for range 3 {
			wg.Go(func() {
				v, err := g.Do(t.Context(), "a", newSlowCall(&calls, nil))
				assert.NoError(t, err)
				assert.Equal(t, 2, v)
			})
		}
		impatient, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer stop()
		wg.Go(func() {
			_, err := g.Do(impatient, "a", newSlowCall(&calls, nil))
			assert.ErrorIs(t, err, context.DeadlineExceeded)
		})
		time.Sleep(500 * time.Millisecond)
		cancel()
		wg.Wait()
		require.Equal(t, 2, calls)
	})
}

// A panic affects only the caller that runs the function.
func TestPanicReachesRunningCallerOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g flight.Group[int]
		var wg sync.WaitGroup
		calls := 0
		wg.Go(func() {
			assert.Panics(t, func() {
				_, _ = g.Do(t.Context(), "a", func(context.Context) (int, error) {
					time.Sleep(time.Second)
					panic("wrong")
				})
			})
		})
		synctest.Wait()
		v, err := g.Do(t.Context(), "a", newSlowCall(&calls, nil))
		require.NoError(t, err)
		require.Equal(t, 1, v)
		wg.Wait()
	})
}
