// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package retryqueue_test

import (
	"context"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/retryqueue"
)

func TestMain(m *testing.M) {
	runtime.GOMAXPROCS(1) // for the race detector with synctest (golang/go#78156)
	os.Exit(m.Run())
}

func TestQueueRetriesNewestReportWithBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent []string
		var unavailable atomic.Bool
		unavailable.Store(true)
		var mu sync.Mutex // guards sent
		q := retryqueue.New[string](func(_ context.Context, report *string) bool {
			mu.Lock()
			defer mu.Unlock()
			sent = append(sent, *report)
			return !unavailable.Load()
		})
		ctx, cancel := context.WithCancel(t.Context())
		returned := make(chan error, 1)
		go func() { returned <- q.Run(ctx) }()
		sentWithin := func(d time.Duration) []string {
			time.Sleep(d)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			since := sent
			sent = nil
			return since
		}

		q.Put("a", new("1"))
		require.Equal(t, []string{"1", "1", "1", "1"}, sentWithin(10*time.Second), "at 0, 1, 3 and 7 s")
		q.Put("a", new("2"))
		require.Equal(t, []string{"2"}, sentWithin(0), "Put replaces the report and cuts the pause short")
		q.Remove("a")
		require.Empty(t, sentWithin(time.Hour))
		q.Put("b", new("3"))
		require.Equal(t, []string{"3"}, sentWithin(0))
		unavailable.Store(false)
		require.Equal(t, []string{"3"}, sentWithin(time.Minute))
		q.Put("b", new("4"))
		require.Equal(t, []string{"4"}, sentWithin(time.Hour), "a sent report is not repeated")
		cancel()
		require.NoError(t, <-returned)
	})
}

// Before it sends, a sender that has waited checks whether its report is still pending.
func TestReportIsPendingUntilReplacedOrRemoved(t *testing.T) {
	q := retryqueue.New[string](func(context.Context, *string) bool { return true })
	older, newer := new("1"), new("2")
	require.False(t, q.Pending("a", older))
	q.Put("a", older)
	require.True(t, q.Pending("a", older))
	require.False(t, q.Pending("b", older))
	q.Put("a", newer)
	require.False(t, q.Pending("a", older))
	require.True(t, q.Pending("a", newer))
	q.Remove("a")
	require.False(t, q.Pending("a", newer))
}
