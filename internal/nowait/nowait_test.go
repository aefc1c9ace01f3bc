// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nowait_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/nowait"
)

// afterAll is a context whose Done returns once all other goroutines of the bubble are blocked.
type afterAll struct{ context.Context }

func (a afterAll) Done() <-chan struct{} {
	synctest.Wait()
	return a.Context.Done()
}

// The result of a call is returned even if the context ends at the same time.
func TestDoReturnsResultWhenContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 100 {
			var c nowait.Calls
			ctx, cancel := context.WithCancel(t.Context())
			require.NoError(t, c.Do(afterAll{ctx}, "a", func() error { cancel(); return nil }))
		}
	})
}

func TestDoWaitsForEarlierCallOfKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c nowait.Calls
		fault := errors.New("fault")
		require.NoError(t, c.Do(t.Context(), "a", func() error { return nil }))
		require.ErrorIs(t, c.Do(t.Context(), "a", func() error { return fault }), fault)

		dead, calls := make(chan struct{}), new(atomic.Int32)
		hang := func() error { calls.Add(1); <-dead; return nil }
		limited := func() context.Context {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			t.Cleanup(cancel)
			return ctx
		}
		for range 3 {
			began := time.Now()
			err := c.Do(limited(), "a", hang)
			require.ErrorIs(t, err, nowait.ErrNoAnswer)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, time.Minute, time.Since(began))
		}
		require.EqualValues(t, 1, calls.Load(), "a hanging call is not repeated")
		require.Equal(t, 1, c.Pending())
		require.NoError(t, c.Do(t.Context(), "b", func() error { return nil }), "calls with other keys do not wait")

		time.AfterFunc(time.Second, func() { close(dead) })
		require.ErrorIs(t, c.Do(limited(), "a", func() error { return fault }), fault, "the next call of the key runs after the previous one")
		require.Eventually(t, func() bool { return c.Pending() == 0 }, time.Second, time.Millisecond)
	})
}
