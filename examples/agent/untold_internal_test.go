// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	goruntime "runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// What cannot be told is told again, ever less often, the newest of each key; what is forgotten is not.
func TestUntold(t *testing.T) {
	defer goruntime.GOMAXPROCS(goruntime.GOMAXPROCS(1)) // for the race detector beside synctest (golang/go#78156)
	synctest.Test(t, func(t *testing.T) {
		var told []string
		var away atomic.Bool
		away.Store(true)
		var mu sync.Mutex // guards told
		u := newUntold[string](func(_ context.Context, what *string) bool {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, *what)
			return !away.Load()
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- u.run(ctx) }()
		after := func(d time.Duration) []string {
			time.Sleep(d)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			since := told
			told = nil
			return since
		}
		u.put("a", new("1"))
		require.Equal(t, []string{"1", "1", "1", "1"}, after(10*time.Second), "at 0, 1, 3 and 7")
		u.put("a", new("2"))
		require.Equal(t, []string{"2"}, after(0), "the newest, at once")
		u.forget("a", nil)
		require.Empty(t, after(time.Hour))
		u.put("b", new("3"))
		require.Equal(t, []string{"3"}, after(0))
		away.Store(false)
		require.Equal(t, []string{"3"}, after(time.Minute))
		u.put("b", new("4"))
		require.Equal(t, []string{"4"}, after(time.Hour))
		cancel()
		require.NoError(t, <-ended)
	})
}
