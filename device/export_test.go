// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package device_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/device"
)

// exporter records the calls of Options.Export.
type exporter struct {
	err     error
	claims  [][]device.Claim
	healthy []map[string][]string
}

func (e *exporter) export(claims []device.Claim, healthy map[string][]string) error {
	e.claims, e.healthy = append(e.claims, claims), append(e.healthy, healthy)
	return e.err
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
		last := len(e.claims) - 1
		require.Len(t, e.claims[last], 1)
		assert.Equal(t, []device.Device{{ID: "a", Healthy: true}}, e.claims[last][0].Devices)
		assert.NotNil(t, e.claims[last][0].Response)
		assert.Equal(t, map[string][]string{"example.com/gpu": {"a"}}, e.healthy[last])
		require.NoError(t, a.Release("u"))
		assert.Empty(t, e.claims[len(e.claims)-1])
	})
}

// A plugin that lists often causes one export per second.
func TestExportOfChangedListsIsPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &exporter{}
		_, feed := newExportingAllocator(t, device.Options{Export: e.export})
		time.Sleep(2 * time.Second)
		before := len(e.claims)
		for i := range 100 {
			require.NoError(t, feed.Update([]device.Device{{ID: "a", Healthy: i%2 == 0}}))
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(2 * time.Second)
		assert.InDelta(t, 10, len(e.claims)-before, 2)
		assert.Equal(t, map[string][]string{"example.com/gpu": {}}, e.healthy[len(e.healthy)-1])
	})
}

// An export that fails does not stop an admission, and is repeated with a back-off until it succeeds.
func TestExportRepeatedAfterError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &exporter{err: errors.New("disk full")}
		var errs []error
		a, _ := newExportingAllocator(t, device.Options{Export: e.export, Hooks: device.Hooks{Error: func(err error) { errs = append(errs, err) }}})
		require.NoError(t, a.Reserve(t.Context(), onePod))
		time.Sleep(time.Hour)
		require.ErrorIs(t, errs[0], e.err)
		assert.ErrorContains(t, errs[0], "export who holds devices")
		assert.Less(t, len(e.claims), 40)
		e.err = nil
		time.Sleep(10 * time.Minute)
		count := len(e.claims)
		require.Len(t, e.claims[count-1], 1)
		time.Sleep(time.Hour)
		assert.Len(t, e.claims, count, "an export that succeeded is not repeated")
	})
}

// Before the containers of the runtime are read, the claims are not complete.
func TestExportWaitsForRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, ready := &exporter{}, false
		newExportingAllocator(t, device.Options{Record: filepath.Join(t.TempDir(), "devices"), Export: e.export,
			Running: func(context.Context) ([]device.RunningContainer, error) {
				if !ready {
					return nil, errors.New("no runtime")
				}
				return []device.RunningContainer{{PodUID: "u", Container: "c", Note: `{"example.com/gpu":["b"]}`}}, nil
			}})
		time.Sleep(time.Minute)
		assert.Empty(t, e.claims)
		ready = true
		time.Sleep(time.Minute)
		require.NotEmpty(t, e.claims)
		assert.Equal(t, "b", e.claims[0][0].Devices[0].ID)
	})
}
