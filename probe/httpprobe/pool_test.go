// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package httpprobe_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/probe"
	"github.com/seed81659283/nodeagent/probe/httpprobe"
)

// countConnections starts a server and counts its accepted connections.
func countConnections(t testing.TB, secure bool, answer http.HandlerFunc) (*httptest.Server, *atomic.Int32) {
	t.Helper()
	var n atomic.Int32
	server := httptest.NewUnstartedServer(answer)
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			n.Add(1)
		}
	}
	server.EnableHTTP2 = secure
	if secure {
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	return server, &n
}

func TestHTTPReusesConnections(t *testing.T) {
	for name, test := range map[string]struct {
		secure, noPool, fresh bool
		answer                http.HandlerFunc
		want                  int32 // connections for the first 4 probes, then for 8 more
		wantMore              int32
	}{
		// The first connection is fresh, and the second one is kept. From then on one in four probes opens a fresh
		// connection.
		"server keeps connections":     {want: 2, wantMore: 2},
		"no pool":                      {noPool: true, want: 4, wantMore: 8},
		"fresh connections configured": {fresh: true, want: 4, wantMore: 8},
		"HTTP/2 is not reused":         {secure: true, want: 4, wantMore: 8},
		"server closes connections":    {answer: func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Connection", "close") }, want: 4, wantMore: 8},
	} {
		t.Run(name, func(t *testing.T) {
			if test.answer == nil {
				test.answer = func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") }
			}
			server, count := countConnections(t, test.secure, test.answer)
			c := configFor(t, server, "/")
			c.FreshConnections = test.fresh
			if !test.noPool {
				c.Pool = newPool(t)
			}
			p, err := httpprobe.New(c)
			require.NoError(t, err)
			for i, n := range []int{4, 8} {
				before := count.Load()
				for range n {
					got, err := probeOnce(t, p, long)
					require.NoError(t, err)
					require.Equal(t, probe.Success, got.Outcome, got.Output)
				}
				assert.Equal(t, []int32{test.want, test.wantMore}[i], count.Load()-before)
			}
		})
	}
}

// A connection that the server has closed since the last probe must not fail a healthy container.
func TestHTTPRepeatsOnBrokenReusedConnection(t *testing.T) {
	server, _ := countConnections(t, false, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Connection") == "close" {
			io.WriteString(w, "fresh")
			return
		}
		conn, _, _ := w.(http.Hijacker).Hijack()
		conn.(*net.TCPConn).SetLinger(0)
		conn.Close()
	})
	c := configFor(t, server, "/")
	c.Pool = newPool(t)
	p, err := httpprobe.New(c)
	require.NoError(t, err)
	for range 6 {
		got, err := probeOnce(t, p, long)
		require.NoError(t, err)
		assert.Equal(t, probe.Result{Outcome: probe.Success, Output: "fresh"}, got)
	}
}

// A server that responds on open connections but accepts no new connections is down for other clients.
func TestHTTPDetectsServerWithoutNewConnections(t *testing.T) {
	server, _ := countConnections(t, false, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") })
	c := configFor(t, server, "/")
	c.Pool = newPool(t)
	p, err := httpprobe.New(c)
	require.NoError(t, err)
	for range 2 { // one fresh connection, and one that stays open
		got, err := probeOnce(t, p, long)
		require.NoError(t, err)
		require.Equal(t, probe.Success, got.Outcome, got.Output)
	}
	require.NoError(t, server.Listener.Close())

	var outcomes []probe.Outcome
	for range 6 {
		got, err := probeOnce(t, p, long)
		require.NoError(t, err)
		outcomes = append(outcomes, got.Outcome)
	}
	assert.Equal(t, []probe.Outcome{probe.Success, probe.Success, probe.Failure, probe.Failure, probe.Failure, probe.Failure}, outcomes)
}

// A hung reused connection fails one probe: the next one opens a new connection.
func TestHTTPHungReusedConnectionCostsOneProbe(t *testing.T) {
	var hang atomic.Bool
	server, _ := countConnections(t, false, func(_ http.ResponseWriter, r *http.Request) {
		if hang.Load() && r.Header.Get("Connection") != "close" {
			<-r.Context().Done()
		}
	})
	c := configFor(t, server, "/")
	c.Pool = newPool(t)
	p, err := httpprobe.New(c)
	require.NoError(t, err)
	for i, want := range []probe.Outcome{probe.Success, probe.Success, probe.Failure, probe.Success} {
		hang.Store(i >= 2)
		timeout := long
		if want == probe.Failure {
			timeout = soon
		}
		got, err := probeOnce(t, p, timeout)
		require.NoError(t, err)
		assert.Equal(t, want, got.Outcome, "probe %d: %s", i, got.Output)
	}
}

func TestHTTPIdleConnectionsAreBounded(t *testing.T) {
	var open atomic.Int32
	p := httpprobe.NewPool(httpprobe.PoolOptions{MaxIdle: 2})
	t.Cleanup(p.Close)
	for range 5 {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") }))
		server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew:
				open.Add(1)
			case http.StateClosed, http.StateHijacked:
				open.Add(-1)
			}
		}
		server.Start()
		t.Cleanup(server.Close)
		c := configFor(t, server, "/")
		c.Pool = p
		prober, err := httpprobe.New(c)
		require.NoError(t, err)
		for range 2 {
			_, err := probeOnce(t, prober, long)
			require.NoError(t, err)
		}
	}
	assert.Eventually(t, func() bool { return open.Load() == 2 }, long, time.Millisecond, "open connections")
	p.Close()
	assert.Eventually(t, func() bool { return open.Load() == 0 }, long, time.Millisecond, "open connections after Close")
}
