// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPoll(t *testing.T) {
	broken := errors.New("broken")
	tests := map[string]struct {
		after time.Duration // when check is true
		err   error         // of check at that time
		want  error
		took  time.Duration
	}{
		"true at once":         {after: 0},
		"true later":           {after: 250 * time.Millisecond, took: 300 * time.Millisecond},
		"true at the deadline": {after: time.Second, took: time.Second},
		"never":                {after: time.Hour, want: errDeadline, took: 1100 * time.Millisecond},
		"error of the check":   {after: 100 * time.Millisecond, err: broken, want: broken, took: 100 * time.Millisecond},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				err := poll(t.Context(), 100*time.Millisecond, time.Second, func() (bool, error) {
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
		err := poll(ctx, 100*time.Millisecond, time.Hour, func() (bool, error) { return false, nil })
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, 150*time.Millisecond, time.Since(start))
	})
}

func TestEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most, calls atomic.Int32
		odd := errors.New("odd")
		start := time.Now()
		err := each(t.Context(), 10, 4, func(i int) error {
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
		assert.EqualValues(t, 10, calls.Load(), "an error keeps nothing else from being done")
		assert.EqualValues(t, 4, most.Load())
		assert.Equal(t, 3*time.Second, time.Since(start))
	})
}

func TestEachStopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	err := each(ctx, 100, 1, func(i int) error {
		calls++
		if i == 4 {
			cancel()
		}
		return nil
	})
	require.EqualError(t, err, context.Canceled.Error(), "said once, not a hundred times")
	assert.Equal(t, 5, calls)
}

func TestSince(t *testing.T) {
	start := time.Unix(1000, 0)
	seen := start.Add(2 * time.Second)
	tests := map[string]struct {
		told time.Time
		want float64
	}{
		"the runtime's own moment":          {start.Add(1234 * time.Millisecond), 1.234},
		"none told":                         {time.Unix(0, 0), 2},
		"before the start: a clock stepped": {start.Add(-time.Second), 2},
		"after it was seen":                 {seen.Add(time.Second), 2},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			assert.InDelta(t, test.want, since(start, test.told.UnixNano(), seen), 1e-9)
		})
	}
}

func TestAwaitRest(t *testing.T) {
	tests := map[string]struct {
		busy time.Duration // from the start
		took time.Duration
	}{
		"at rest":      {0, time.Second},
		"busy for 5 s": {5 * time.Second, 6 * time.Second},
		"busy always":  {time.Hour, restLimit + time.Second},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				require.NoError(t, awaitRest(t.Context(), func() (time.Duration, error) {
					return min(time.Since(start), test.busy), nil
				}))
				assert.Equal(t, test.took, time.Since(start))
			})
		})
	}
}

// A subject that always came after the same one would always be measured beside what that one left behind.
func TestEachRepeatBeginsWithAnotherSubject(t *testing.T) {
	b := &bench{opts: options{agents: []agent{{Name: "a"}, {Name: "b"}}, parallel: []int{4, 0}}}
	var names []string
	for _, s := range b.subjects(30) {
		names = append(names, fmt.Sprint(s.sample.Subject, " ", s.sample.Parallel))
	}
	assert.Equal(t, []string{"a 0", "b 0", floorName + " 4", floorName + " 30"}, names)
	assert.Equal(t, []int{0, 1, 2}, order(3, 0))
	assert.Equal(t, []int{2, 0, 1}, order(3, 5))
}
