// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package httpprobe_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/probe"
	"github.com/seed81659283/nodeagent/probe/httpprobe"
)

// countingListener is a listener that counts its open connections.
type countingListener struct {
	net.Listener
	open *atomic.Int32
}

func (g countingListener) Accept() (net.Conn, error) {
	conn, err := g.Listener.Accept()
	if err != nil {
		return nil, err
	}
	g.open.Add(1)
	return &countedConn{Conn: conn, open: g.open}, nil
}

type countedConn struct {
	net.Conn
	open *atomic.Int32
	once sync.Once
}

func (g *countedConn) Close() error {
	g.once.Do(func() { g.open.Add(-1) })
	return g.Conn.Close()
}

// startCountingServer starts a web server whose open connections are counted. A slow server responds only after the client
// has disconnected.
func startCountingServer(t *testing.T, open *atomic.Int32, secure, slow bool) *httptest.Server {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if slow {
			<-r.Context().Done()
		}
		io.WriteString(w, "ok")
	}))
	server.Listener = countingListener{server.Listener, open}
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // no log of aborted handshakes
	if server.EnableHTTP2 = secure; secure {
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	return server
}

// newProbers returns a prober of each kind for each test server.
func newProbers(t *testing.T, open *atomic.Int32, pool *httpprobe.Pool) (probers []probe.Prober) {
	add := func(p probe.Prober, err error) {
		require.NoError(t, err)
		probers = append(probers, p)
	}
	plain := configFor(t, startCountingServer(t, open, false, false), "/")
	add(probe.NewTCP(probe.TCPConfig{Host: plain.Host, Port: plain.Port}))
	add(httpprobe.New(plain))
	plain.Pool = pool
	add(httpprobe.New(plain))
	for _, c := range []httpprobe.Config{configFor(t, startCountingServer(t, open, true, false), "/"), configFor(t, startCountingServer(t, open, false, true), "/")} {
		c.Pool = pool
		add(httpprobe.New(c))
	}
	add(probe.NewExec(probe.ExecFunc(func(ctx context.Context, _ string, _ []string) ([]byte, int, error) {
		<-ctx.Done()
		return nil, 0, ctx.Err()
	}), probe.ExecConfig{ContainerID: "c", Command: []string{"sleep"}}))
	return probers
}

// A set that ends during its probes leaves no goroutine and no connection.
func TestSetLeavesNoGoroutineOrConnection(t *testing.T) {
	var open, answered atomic.Int32
	pool := httpprobe.NewPool(httpprobe.PoolOptions{})
	var targets []probe.Target
	for kind, prober := range newProbers(t, &open, pool) {
		for i := range 60 {
			name := fmt.Sprintf("c%d-%d", kind, i)
			targets = append(targets, probe.Target{
				Key:         probe.Key{PodUID: "u1", Container: name, Kind: probe.Readiness},
				ContainerID: name + "1", StartedAt: time.Now(), Running: true, Started: true,
				Spec:   probe.Spec{Period: 50 * time.Millisecond, Timeout: time.Duration(1+i%2) * time.Second},
				Prober: prober,
			})
		}
	}
	before := runtime.NumGoroutine()

	set := probe.NewSet(probe.Options{Hooks: probe.Hooks{ProbeFinished: func(probe.Key, probe.Result, error, time.Duration) { answered.Add(1) }}})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { assert.NoError(t, set.Run(ctx)) })
	require.NoError(t, set.Sync(targets))
	require.Eventually(t, func() bool { return answered.Load() > 2000 }, time.Minute, 10*time.Millisecond)
	assert.Positive(t, open.Load())
	assert.Greater(t, runtime.NumGoroutine(), before+100, "probes must be in flight")
	cancel()
	wg.Wait()
	pool.Close()
	// testify's Eventually has a goroutine, which would be counted.
	for deadline := time.Now().Add(time.Minute); open.Load() > 0 || runtime.NumGoroutine() > before; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			stacks := make([]byte, 1<<20)
			t.Fatalf("connections: %d, goroutines: %d, before %d:\n%s",
				open.Load(), runtime.NumGoroutine(), before, stacks[:runtime.Stack(stacks, true)])
		}
	}
}
