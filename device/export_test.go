// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package device_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/device"
)

// exporter records the calls of Options.Export.
type exporter struct {
	mu      sync.Mutex // guards the fields below
	err     error
	claims  [][]device.Claim
	healthy []map[string][]string
}

func (e *exporter) export(claims []device.Claim, healthy map[string][]string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.claims, e.healthy = append(e.claims, claims), append(e.healthy, healthy)
	return e.err
}

// count returns the number of calls.
func (e *exporter) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.claims)
}

// last returns the arguments of the last call.
func (e *exporter) last() ([]device.Claim, map[string][]string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.claims[len(e.claims)-1], e.healthy[len(e.healthy)-1]
}

func (e *exporter) setError(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.err = err
}

func newExportingAllocator(t *testing.T, opts device.Options) (*device.Allocator, device.Feed) {
	a, err := device.New(opts)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- a.Run(ctx) }()
	t.Cleanup(func() { cancel(); require.NoError(t, <-done) })
	synctest.Wait()
	feed, err := a.Connect("example.com/gpu", "", nodePlugin{})
	require.NoError(t, err)
	require.NoError(t, feed.Update([]device.Device{{ID: "a", Healthy: true}, {ID: "b"}}))
	return a, feed
}

var onePod = device.Pod{UID: "u", Containers: []device.Container{{Name: "c", Limits: map[string]int{"example.com/gpu": 1}}}}

func TestExportCalledBeforeReserveReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &exporter{}
		a, _ := newExportingAllocator(t, device.Options{Record: filepath.Join(t.TempDir(), "devices"), Export: e.export})
		require.NoError(t, a.Reserve(t.Context(), onePod))
		claims, healthy := e.last()
		require.Len(t, claims, 1)
		assert.Equal(t, []device.Device{{ID: "a", Healthy: true}}, claims[0].Devices)
		assert.NotNil(t, claims[0].Response)
		assert.Equal(t, map[string][]string{"example.com/gpu": {"a"}}, healthy)
		require.NoError(t, a.Release("u"))
		claims, _ = e.last()
		assert.Empty(t, claims)
	})
}

// A plugin that lists often causes one export per second.
func TestExportOfChangedListsIsPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &exporter{}
		_, feed := newExportingAllocator(t, device.Options{Export: e.export})
		time.Sleep(2 * time.Second)
		before := e.count()
		for i := range 100 {
			require.NoError(t, feed.Update([]device.Device{{ID: "a", Healthy: i%2 == 0}}))
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(2 * time.Second)
		assert.InDelta(t, 10, e.count()-before, 2)
		_, healthy := e.last()
		assert.Equal(t, map[string][]string{"example.com/gpu": {}}, healthy)
	})
}

// An export that fails does not stop an admission, and is repeated with a back-off until it succeeds.
func TestExportRepeatedAfterError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := errors.New("disk full")
		e, reported := &exporter{err: full}, make(chan error, 100)
		a, _ := newExportingAllocator(t, device.Options{Export: e.export, Hooks: device.Hooks{Error: func(err error) { reported <- err }}})
		require.NoError(t, a.Reserve(t.Context(), onePod))
		time.Sleep(time.Hour)
		err := <-reported
		require.ErrorIs(t, err, full)
		assert.ErrorContains(t, err, "export who holds devices")
		assert.Less(t, e.count(), 40)
		e.setError(nil)
		time.Sleep(10 * time.Minute)
		count := e.count()
		claims, _ := e.last()
		require.Len(t, claims, 1)
		time.Sleep(time.Hour)
		assert.Equal(t, count, e.count(), "an export that succeeded is not repeated")
	})
}

// A hook that releases a pod calls the Allocator, both from Reserve and from Run.
func TestExportErrorReportedWithoutLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &exporter{err: errors.New("disk full")}
		var reserved *device.Allocator
		var ready, inHook atomic.Bool // ready: reserved is set
		released := make(chan error, 100)
		reserved, _ = newExportingAllocator(t, device.Options{Export: e.export, Hooks: device.Hooks{Error: func(error) {
			if ready.Load() && inHook.CompareAndSwap(false, true) { // Release reports an error, too
				released <- reserved.Release("u")
				inHook.Store(false)
			}
		}}})
		ready.Store(true)
		require.NoError(t, reserved.Reserve(t.Context(), onePod))
		require.NoError(t, <-released)
		assert.Empty(t, reserved.Claims())
		time.Sleep(time.Hour)
		require.NoError(t, <-released, "from Run")
	})
}

// Before the containers of the runtime are read, the claims are not complete.
func TestExportWaitsForRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &exporter{}
		var ready atomic.Bool
		newExportingAllocator(t, device.Options{
			Record: filepath.Join(t.TempDir(), "devices"), Export: e.export,
			Running: func(context.Context) ([]device.RunningContainer, error) {
				if !ready.Load() {
					return nil, errors.New("no runtime")
				}
				return []device.RunningContainer{{PodUID: "u", Container: "c", Note: `{"example.com/gpu":["b"]}`}}, nil
			},
		})
		time.Sleep(time.Minute)
		assert.Zero(t, e.count())
		ready.Store(true)
		time.Sleep(time.Minute)
		claims, _ := e.last()
		require.Len(t, claims, 1)
		assert.Equal(t, "b", claims[0].Devices[0].ID)
	})
}
