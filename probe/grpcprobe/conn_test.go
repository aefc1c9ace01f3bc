// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package grpcprobe_test

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/seed81659283/nodeagent/probe/grpcprobe"
)

func TestConnectionIsReused(t *testing.T) {
	t.Parallel()
	l := listen(t, "127.0.0.1:0")
	startServer(t, l, newHealthServer())
	p := newProber(t, l.config())
	for range 3 {
		assert.Equal(t, success(), probeOnce(t, p, long))
	}
	assert.Len(t, l.connections(), 1)

	require.NoError(t, p.Close())
	assert.Equal(t, success(), probeOnce(t, p, long), "a closed prober opens a new connection")
	assert.Len(t, l.connections(), 2)
}

func TestFreshConnections(t *testing.T) {
	t.Parallel()
	l := listen(t, "127.0.0.1:0")
	startServer(t, l, newHealthServer())
	cfg := l.config()
	cfg.FreshConnections = true
	p := newProber(t, cfg)
	for range 3 {
		assert.Equal(t, success(), probeOnce(t, p, long))
	}
	assert.Len(t, l.connections(), 3)
}

// After a restart at its address, the server is probed on a new connection, without a failure in between.
func TestProbeSucceedsAfterServerRestart(t *testing.T) {
	t.Parallel()
	l := listen(t, "127.0.0.1:0")
	server := startServer(t, l, newHealthServer())
	p := newProber(t, l.config())
	assert.Equal(t, success(), probeOnce(t, p, long))
	server.Stop()
	again := listen(t, l.Addr().String())
	startServer(t, again, newHealthServer())
	assert.Equal(t, success(), probeOnce(t, p, long))
	assert.Len(t, again.connections(), 1)
}

// If the reused connection breaks during the call, the probe repeats the call on a new one.
func TestProbeRepeatsWhenReusedConnectionBreaks(t *testing.T) {
	t.Parallel()
	l := listen(t, "127.0.0.1:0")
	var calls atomic.Int32
	startServer(t, l, healthFunc{check: func(ctx context.Context) (*grpc_health_v1.HealthCheckResponse, error) {
		if calls.Add(1) == 2 {
			_ = l.connections()[0].Close()
		}
		return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}, nil
	}})
	p := newProber(t, l.config())
	assert.Equal(t, success(), probeOnce(t, p, long))
	assert.Equal(t, success(), probeOnce(t, p, long))
	assert.EqualValues(t, 3, calls.Load())
	assert.Len(t, l.connections(), 2)
}

// A connection on which no response arrives is not reused.
func TestUnresponsiveConnectionIsReplaced(t *testing.T) {
	t.Parallel()
	l := listen(t, "127.0.0.1:0")
	var hangs atomic.Bool
	startServer(t, l, healthFunc{check: func(ctx context.Context) (*grpc_health_v1.HealthCheckResponse, error) {
		if hangs.Load() {
			return unresponsive.check(ctx)
		}
		return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}, nil
	}})
	p := newProber(t, l.config())
	assert.Equal(t, success(), probeOnce(t, p, long))
	hangs.Store(true)
	assert.Regexp(t, lateCall, probeOnce(t, p, 2*time.Second).Output)
	hangs.Store(false)
	assert.Equal(t, success(), probeOnce(t, p, long))
	assert.Len(t, l.connections(), 2)
}

func TestConcurrentProbes(t *testing.T) {
	t.Parallel()
	l := listen(t, "127.0.0.1:0")
	startServer(t, l, newHealthServer())
	p := newProber(t, l.config())
	var probes sync.WaitGroup
	for range 16 {
		probes.Go(func() {
			for range 10 {
				assert.Equal(t, success(), probeOnce(t, p, long))
			}
		})
	}
	probes.Wait()
}

// The test is not parallel, because it counts goroutines of gRPC. It waits until goroutines of previous tests have returned.
func TestNoGoroutinesBeforeFirstProbeAndAfterClose(t *testing.T) {
	clients := func() int {
		stacks := make([]byte, 4<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		return strings.Count(string(stacks), "transport.NewHTTP2Client") // the function that starts the goroutines of a client
	}
	gone := func() bool { return clients() == 0 }
	require.Eventually(t, gone, time.Minute, 5*time.Millisecond)
	l := listen(t, "127.0.0.1:0")
	startServer(t, l, newHealthServer())
	p, err := grpcprobe.New(l.config())
	require.NoError(t, err)
	require.Zero(t, clients())
	assert.Equal(t, success(), probeOnce(t, p, long))
	require.NotZero(t, clients())
	require.NoError(t, p.Close())
	require.Eventually(t, gone, time.Minute, 5*time.Millisecond)
}

// BenchmarkProbe measures a probe on a reused and on a new connection.
func BenchmarkProbe(b *testing.B) {
	for name, fresh := range map[string]bool{"kept": false, "new": true} {
		b.Run(name, func(b *testing.B) {
			l := listen(b, "127.0.0.1:0")
			startServer(b, l, newHealthServer())
			cfg := l.config()
			cfg.FreshConnections = fresh
			p := newProber(b, cfg)
			b.ReportAllocs()
			for b.Loop() {
				require.Equal(b, success(), probeOnce(b, p, long))
			}
		})
	}
}
