// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package stats_test

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
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/stats"
)

// Volumes are measured by their drivers. A volume whose driver hangs, fails or does not support it is missing. The error
// names the hung and the failed one. All other volumes are measured.
func TestVolumesMeasuredByDriver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newTestNode(t)
		size := uint64(gib)
		var asked, hung atomic.Int64
		var good atomic.Pointer[error]
		volumes := []stats.Volume{
			{Name: "data", Path: "/data", PVC: &statsapi.PVCReference{Name: "claim", Namespace: "ns"}, Measure: func(context.Context) (statsapi.FsStats, error) {
				asked.Add(1)
				if err := good.Load(); err != nil {
					return statsapi.FsStats{}, *err
				}
				return statsapi.FsStats{CapacityBytes: &size, UsedBytes: &size}, nil
			}},
			{Name: "broken", Path: "/broken", Measure: func(context.Context) (statsapi.FsStats, error) {
				return statsapi.FsStats{}, errors.New("no such volume")
			}},
			{Name: "silent", Path: "/silent", Measure: func(context.Context) (statsapi.FsStats, error) {
				return statsapi.FsStats{}, fmt.Errorf("driver: %w", errors.ErrUnsupported)
			}},
		}
		for i := range 20 {
			volumes = append(volumes, stats.Volume{Name: fmt.Sprint("hangs", i), Path: fmt.Sprint("/a/hangs", i), Measure: func(ctx context.Context) (statsapi.FsStats, error) {
				hung.Add(1)
				defer hung.Add(-1)
				<-ctx.Done()
				return statsapi.FsStats{}, ctx.Err()
			}})
		}
		h.opts.Volumes = func(string) []stats.Volume { return volumes }
		h.pod("web", cgroups.Burstable, mib)
		c := h.collector()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- c.Run(ctx) }()

		time.Sleep(time.Second)
		assert.EqualValues(t, 8, hung.Load(), "limit of concurrent calls")
		time.Sleep(40 * time.Second)
		s, err := c.Summary(t.Context())
		assert.ErrorContains(t, err, "volume /broken: no such volume")
		assert.ErrorContains(t, err, "volume /a/hangs19: context deadline exceeded")
		assert.NotContains(t, err.Error(), "/silent")
		require.Len(t, s.Pods[0].VolumeStats, 1)
		v := s.Pods[0].VolumeStats[0]
		assert.Equal(t, "data", v.Name)
		assert.Equal(t, "claim", v.PVCRef.Name)
		assert.Equal(t, []uint64{gib, gib, 0}, []uint64{*v.CapacityBytes, *v.UsedBytes, *v.AvailableBytes})
		assert.EqualValues(t, 1, asked.Load())

		// A driver is called once a minute, even while other drivers hang. A failure keeps the previous values.
		failed := errors.New("driver is away")
		good.Store(&failed)
		time.Sleep(10 * time.Minute)
		assert.InDelta(t, 9, asked.Load(), 3)
		s, err = c.Summary(t.Context())
		assert.ErrorContains(t, err, "volume /data: driver is away")
		require.Len(t, s.Pods[0].VolumeStats, 1)
		assert.Less(t, s.Pods[0].VolumeStats[0].Time.Time, time.Now().Add(-9*time.Minute))

		// A driver that stops supporting measurements has no values.
		unsupported := errors.ErrUnsupported
		good.Store(&unsupported)
		time.Sleep(3 * time.Minute)
		s, _ = c.Summary(t.Context())
		assert.Empty(t, s.Pods[0].VolumeStats)

		cancel()
		assert.NoError(t, <-ended)
		assert.Zero(t, hung.Load())
	})
}

// A driver call that ignores its context is abandoned. It is repeated after it has returned.
func TestHungVolumeMeasurementIsAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newTestNode(t)
		back := make(chan struct{})
		var asked atomic.Int64
		h.opts.Volumes = func(string) []stats.Volume {
			return []stats.Volume{{Name: "stuck", Path: "/stuck", Measure: func(context.Context) (statsapi.FsStats, error) {
				asked.Add(1)
				<-back
				return statsapi.FsStats{}, nil
			}}}
		}
		h.pod("web", cgroups.Burstable, mib)
		c := h.collector()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- c.Run(ctx) }()
		time.Sleep(10 * time.Minute)
		assert.EqualValues(t, 1, asked.Load())
		require.Len(t, c.HungCalls(), 1)
		assert.Equal(t, "/stuck", c.HungCalls()[0].Path)
		close(back)
		time.Sleep(2 * time.Minute)
		assert.Empty(t, c.HungCalls())
		assert.Greater(t, asked.Load(), int64(1))
		cancel()
		assert.NoError(t, <-ended)
	})
}
