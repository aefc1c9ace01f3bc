// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package wait_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed81659283/nodeagent/hack/bench/internal/wait"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPoll(t *testing.T) {
	broken := errors.New("broken")
	tests := map[string]struct {
		after time.Duration // until check returns true
		err   error         // of check at that time
		want  error
		took  time.Duration
	}{
		"true at once":         {after: 0},
		"true later":           {after: 250 * time.Millisecond, took: 300 * time.Millisecond},
		"true at the deadline": {after: time.Second, took: time.Second},
		"never":                {after: time.Hour, want: wait.ErrDeadline, took: 1100 * time.Millisecond},
		"error of the check":   {after: 100 * time.Millisecond, err: broken, want: broken, took: 100 * time.Millisecond},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				err := wait.Poll(t.Context(), 100*time.Millisecond, time.Second, func() (bool, error) {
					if time.Since(start) < test.after {
						return false, nil
					}
					return test.err == nil, test.err
				})
				assert.ErrorIs(t, err, test.want)
				assert.Equal(t, test.took, time.Since(start))
			})
		})
	}
}

func TestPollEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
		defer cancel()
		start := time.Now()
		err := wait.Poll(ctx, 100*time.Millisecond, time.Hour, func() (bool, error) { return false, nil })
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, 150*time.Millisecond, time.Since(start))
	})
}

func TestEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most, calls atomic.Int32
		odd := errors.New("odd")
		start := time.Now()
		err := wait.Each(t.Context(), 10, 4, func(i int) error {
			most.Store(max(most.Load(), now.Add(1)))
			time.Sleep(time.Second)
			now.Add(-1)
			calls.Add(1)
			if i == 7 {
				return odd
			}
			return nil
		})
		require.ErrorIs(t, err, odd)
		assert.EqualValues(t, 10, calls.Load(), "calls continue after an error")
		assert.EqualValues(t, 4, most.Load())
		assert.Equal(t, 3*time.Second, time.Since(start))
	})
}

func TestEachStopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	err := wait.Each(ctx, 100, 1, func(i int) error {
		calls++
		if i == 4 {
			cancel()
		}
		return nil
	})
	require.EqualError(t, err, context.Canceled.Error(), "the error is returned once, not once per call")
	assert.Equal(t, 5, calls)
}
