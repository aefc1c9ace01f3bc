// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package images_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/images"
)

// startRecorder is a runtime that records the start times of pulls.
type startRecorder struct {
	mu    sync.Mutex // guards the fields below
	began time.Time
	at    []time.Duration
	names []string
}

func (s *startRecorder) pull(_ context.Context, i cri.ImageSpec, _ *cri.Auth) (cri.Image, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at, s.names = append(s.at, time.Since(s.began)), append(s.names, i.Image)
	return critest.NewImage(i.Image, 1), nil
}

func (s *startRecorder) newPuller(t *testing.T, o images.Options) *images.Puller {
	t.Helper()
	rt := critest.New(critest.Options{Images: []cri.Image{}, Pull: s.pull})
	puller, err := images.New(rt, rt, o)
	require.NoError(t, err)
	s.began = time.Now()
	return puller
}

// 50 concurrent requests do not fail because of the rate limit: they start in the order of their arrival, at the rate of the
// limit.
func TestEnsureWaitsForRateLimit(t *testing.T) {
	for _, parallel := range []int{1, 5, 50} {
		synctest.Test(t, func(t *testing.T) {
			var s startRecorder
			puller := s.newPuller(t, images.Options{Parallel: parallel})
			var wg sync.WaitGroup
			var want []string
			for i := range 50 {
				want = append(want, fmt.Sprint("r.io/app:", i))
				wg.Go(func() {
					r := request(fmt.Sprint("p", i), fmt.Sprint("r.io/app:", i), "")
					r.Policy = images.PullAlways
					_, err := puller.Ensure(t.Context(), r)
					assert.NoError(t, err)
				})
				synctest.Wait()
			}
			wg.Wait()
			require.Equal(t, 8*time.Second, time.Since(s.began).Round(time.Microsecond), "(50-10)/5")
			require.Equal(t, want, s.names)
			for i, at := range s.at {
				assert.GreaterOrEqual(t, at, time.Duration(i-9)*200*time.Millisecond, i)
			}
		})
	}
}

// A request that is cancelled while it waits returns its token. A request whose deadline is before its token fails at once.
func TestCancelledEnsureReturnsToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s startRecorder
		puller := s.newPuller(t, images.Options{QPS: 1, Burst: 1, LimitWait: 3 * time.Second})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		ensure := func(ctx context.Context, image string, want error) {
			wg.Go(func() {
				_, err := puller.Ensure(ctx, request("p", image, ""))
				switch {
				case want == nil:
					assert.NoError(t, err)
				case errors.Is(want, context.Canceled):
					assert.Equal(t, want, err)
				default:
					assert.EqualError(t, err, want.Error())
				}
			})
			synctest.Wait()
		}
		exceeded := errors.New("ErrImagePull: pull QPS exceeded")
		ensure(t.Context(), "r.io/app:0", nil)
		ensure(ctx, "r.io/app:1", context.Canceled)
		ensure(t.Context(), "r.io/app:2", nil)
		ensure(t.Context(), "r.io/app:3", nil)
		began := time.Now()
		ensure(t.Context(), "r.io/app:4", exceeded) // its token is 4 s away, which exceeds LimitWait
		impatient, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		ensure(impatient, "r.io/app:5", exceeded)
		require.Equal(t, began, time.Now())
		cancel()
		synctest.Wait()
		ensure(t.Context(), "r.io/app:6", nil) // gets the returned token, after the requests that already have one
		wg.Wait()
		require.Equal(t, []time.Duration{0, 2 * time.Second, 3 * time.Second, 3 * time.Second}, s.at)
	})
}

// Rates too small for time.Duration must not count as no limit.
func TestTinyRateIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s startRecorder
		puller := s.newPuller(t, images.Options{QPS: 1e-300, Burst: 1})
		_, err := puller.Ensure(t.Context(), request("p", "r.io/app:0", ""))
		require.NoError(t, err)
		_, err = puller.Ensure(t.Context(), request("p", "r.io/app:1", ""))
		require.EqualError(t, err, "ErrImagePull: pull QPS exceeded")
		require.Equal(t, s.began, time.Now())
	})
}
