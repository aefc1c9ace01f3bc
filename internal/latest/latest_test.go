// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package latest_test

import (
	"context"
	"errors"
	"os"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/latest"
)

// TestMain keeps the tests on one processor: the race detector of Go 1.26 sometimes crashes when timers of a synctest bubble
// fire on several processors (golang/go#78156). Goroutines are still preempted and checked for races.
func TestMain(m *testing.M) {
	runtime.GOMAXPROCS(1)
	os.Exit(m.Run())
}

// counter counts the measurements.
type counter struct {
	n   int
	err error
}

func (c *counter) measure(context.Context) (int, error) {
	c.n++
	return c.n, c.err
}

func get(t *testing.T, v *latest.Value[int]) int {
	t.Helper()
	n, err := v.Get(t.Context())
	require.NoError(t, err)
	return n
}

func TestGetMeasuresAfterMaxAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c, always counter
		v, never := latest.New(10*time.Second, c.measure), latest.New(0, always.measure)
		assert.Equal(t, 1, get(t, v))
		time.Sleep(10*time.Second - time.Nanosecond)
		assert.Equal(t, 1, get(t, v))
		time.Sleep(time.Nanosecond)
		assert.Equal(t, 2, get(t, v))
		assert.Equal(t, 1, get(t, never))
		assert.Equal(t, 2, get(t, never))
	})
}

func TestGetDoesNotCacheValueWithError(t *testing.T) {
	c := counter{err: errors.New("no disk")}
	v := latest.New(time.Hour, c.measure)
	n, err := v.Get(t.Context())
	require.ErrorIs(t, err, c.err)
	assert.Equal(t, 1, n, "Get returns the value together with the error")
	c.err = nil
	assert.Equal(t, 2, get(t, v))
	c.err = errors.New("unexpected measurement")
	assert.Equal(t, 2, get(t, v))
}

// Of concurrent calls only the first one measures, and no call waits longer than its context.
func TestConcurrentGetMeasuresOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, answer := make(chan struct{}), make(chan int)
		v := latest.New(time.Hour, func(context.Context) (int, error) {
			close(begun)
			return <-answer, nil
		})
		got := make(chan int, 2)
		for range 2 {
			go func() {
				n, _ := v.Get(t.Context())
				got <- n
			}()
		}
		<-begun
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := v.Get(impatient)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		answer <- 7
		assert.Equal(t, 7, <-got)
		assert.Equal(t, 7, <-got)
	})
}

// A measurement with a canceled context is not cached.
func TestCanceledGetCachesNothing(t *testing.T) {
	v := latest.New(time.Hour, func(ctx context.Context) (int, error) { return 1, ctx.Err() })
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for range 10 { // select chooses at random between the lock and the end of the context
		_, err := v.Get(gone)
		require.ErrorIs(t, err, context.Canceled)
	}
	assert.Equal(t, 1, get(t, v))
}
