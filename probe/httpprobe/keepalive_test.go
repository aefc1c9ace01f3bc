// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package httpprobe_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/probe"
	"github.com/seed81659283/nodeagent/probe/httpprobe"
)

// prober returns a prober of the server that reuses connections.
func (s *oddServer) prober(t testing.TB, change ...func(*httpprobe.Config)) *httpprobe.Prober {
	t.Helper()
	c := httpprobe.Config{Host: "127.0.0.1", Port: s.port, Pool: newPool(t)}
	for _, f := range change {
		f(&c)
	}
	p, err := httpprobe.New(c)
	require.NoError(t, err)
	return p
}

// probeOutputs probes n times without a failure and returns the outputs.
func probeOutputs(t testing.TB, p probe.Prober, n int) (all []string) {
	t.Helper()
	for range n {
		r, err := probeOnce(t, p, long)
		require.NoError(t, err)
		require.NotEqual(t, probe.Failure, r.Outcome, r.Output)
		all = append(all, r.Output)
	}
	return all
}

// Six of nine probes reuse a connection whose last response was complete and followed by no other data.
func TestConnectionReusedAfterCompleteResponse(t *testing.T) {
	for name, test := range map[string]struct{ answer, output string }{
		"a length":             {"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nkept", "kept"},
		"nothing":              {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", ""},
		"no content":           {"HTTP/1.1 204 No Content\r\n\r\n", ""},
		"not modified":         {"HTTP/1.1 304 Not Modified\r\nContent-Length: 4\r\n\r\n", "Probe terminated redirects, Response body: "},
		"chunks":               {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nke\r\n2\r\npt\r\n0\r\n\r\n", "kept"},
		"chunks and a trailer": {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: A\r\n\r\n4\r\nkept\r\n0\r\nA: b\r\n\r\n", "kept"},
		"an old server":        {"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 4\r\n\r\nkept", "kept"},
		"a long header":        {"HTTP/1.1 200 OK\r\nA: " + strings.Repeat("a", 15<<10) + "\r\nContent-Length: 4\r\n\r\nkept", "kept"},
	} {
		t.Run(name, func(t *testing.T) {
			s := startOddServer(t, "127.0.0.1:0", sendBytes(test.answer))
			k := test.output
			assert.Equal(t, []string{"fresh", k, k, k, "fresh", k, k, k, "fresh"}, probeOutputs(t, s.prober(t), 9))
			assert.EqualValues(t, 1, s.kept.Load(), "connections")
		})
	}
}

// Data after a response belongs to no request, so the connection is closed.
func TestConnectionClosedAfterUnexpectedData(t *testing.T) {
	for name, test := range map[string]struct {
		answer, output string
		closes         bool
	}{
		"close requested by the server":   {"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 4\r\n\r\nkept", "kept", false},
		"HTTP/1.0 without keep-alive":     {"HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\nkept", "kept", false},
		"body ends with the connection":   {"HTTP/1.1 200 OK\r\n\r\nkept", "kept", true},
		"connection closed by the server": {"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nkept", "kept", true},
		"more data than the length":       {"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nkept and more", "kept", false},
		"body of a response without one":  {"HTTP/1.1 204 No Content\r\nContent-Length: 4\r\n\r\nkept", "", false},
		"two answers":                     {strings.Repeat("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nkept", 2), "kept", false},
		"body larger than MaxOutput":      {"HTTP/1.1 200 OK\r\nContent-Length: 10241\r\n\r\n" + strings.Repeat("k", 10241), strings.Repeat("k", 10240), false},
		"data after the last chunk":       {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nkept\r\n0\r\n\r\nmore", "kept", false},
	} {
		t.Run(name, func(t *testing.T) {
			s := startOddServer(t, "127.0.0.1:0", func(conn net.Conn, _ int) bool { return sendBytes(test.answer)(conn, 0) && !test.closes })
			p, k := s.prober(t), test.output
			for i, want := range []string{"fresh", k, k, k, "fresh", k, k, k, "fresh"} {
				assert.Equal(t, []string{want}, probeOutputs(t, p, 1))
				if test.closes {
					s.waitEnd(t, int32(i+1)) // otherwise the next probe might start before the end
				}
			}
			assert.EqualValues(t, 6, s.kept.Load(), "connections")
		})
	}
}

// If a response on a reused connection is no success, the request is repeated on a new connection. The next probe opens a
// new connection too.
func TestFailureOnReusedConnectionIsRepeated(t *testing.T) {
	good := "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nkept"
	for name, answer := range map[string]func(net.Conn, int) bool{
		"no answer":     func(net.Conn, int) bool { return false },
		"a reset":       func(conn net.Conn, _ int) bool { conn.(*net.TCPConn).SetLinger(0); return false },
		"half a header": func(conn net.Conn, _ int) bool { io.WriteString(conn, "HTTP/1.1 200 OK\r\nConten"); return false },
		"half a body":   func(conn net.Conn, _ int) bool { io.WriteString(conn, good[:len(good)-1]); return false },
		"half a chunk": func(conn net.Conn, _ int) bool {
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nke")
			return false
		},
		"no chunk":                sendBytes("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nkept\r\n"),
		"unknown transfer coding": sendBytes("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nkept"),
		"no HTTP":                 sendBytes("220 mail.example.com ESMTP\r\n"),
		"a failure":               sendBytes("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nkept"),
		"wait":                    sendBytes("HTTP/1.1 100 Continue\r\n\r\n" + good),
		"hints":                   sendBytes("HTTP/1.1 103 Early Hints\r\n\r\n" + good),
		"no HTTP any more":        sendBytes("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"),
		"endless header": func(conn net.Conn, _ int) bool {
			for line := "HTTP/1.1 200 OK\r\n"; ; line = "A: " + strings.Repeat("a", 1000) + "\r\n" {
				if _, err := io.WriteString(conn, line); err != nil {
					return false
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := startOddServer(t, "127.0.0.1:0", answer)
			assert.Equal(t, []string{"fresh", "fresh", "fresh", "fresh", "fresh", "fresh"}, probeOutputs(t, s.prober(t), 6))
			assert.EqualValues(t, 3, s.kept.Load(), "connections")
			assert.Eventually(t, func() bool { return len(s.ended) == int(s.accepted.Load()) }, long, time.Millisecond, "all connections are closed")
		})
	}
}

// Data on an idle connection is not taken for the next response, and a closed idle connection is no failure.
func TestIdleConnectionWithDataOrEOFIsNotReused(t *testing.T) {
	for name, meanwhile := range map[string]func(net.Conn){
		"an answer": func(conn net.Conn) { io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nold") },
		"a timeout": func(conn net.Conn) { io.WriteString(conn, "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n\r\n") },
		"the end":   func(conn net.Conn) { conn.(*net.TCPConn).CloseWrite() },
		"a reset":   func(conn net.Conn) { conn.(*net.TCPConn).SetLinger(0); conn.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			conns := make(chan net.Conn, 1)
			s := startOddServer(t, "127.0.0.1:0", func(conn net.Conn, nth int) bool {
				conns <- conn
				return sendBytes("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nkept")(conn, nth)
			})
			p := s.prober(t)
			assert.Equal(t, []string{"fresh", "kept"}, probeOutputs(t, p, 2))
			meanwhile(<-conns)
			assert.Equal(t, []string{"kept"}, probeOutputs(t, p, 1))
			<-conns
			assert.Equal(t, []string{"kept", "fresh"}, probeOutputs(t, p, 2))
			assert.EqualValues(t, 2, s.kept.Load(), "connections")
			assert.EqualValues(t, 3, s.asked.Load(), "no request is repeated")
			s.waitEnd(t, 2)
		})
	}
}

// The end of the context closes a reused connection at any point. The result equals that of a probe on a new connection.
func TestReusedConnectionInterruptedByContext(t *testing.T) {
	stop := errors.New("the agent stops")
	header := "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n"
	for name, test := range map[string]struct{ says, output string }{
		"before the header": {"", "(Client.Timeout exceeded while awaiting headers)"},
		"in the header":     {header[:20], "(Client.Timeout exceeded while awaiting headers)"},
		"before the body":   {header, "HTTP probe got statuscode 200 and no whole body: context deadline exceeded"},
		"in the body":       {header + "ke", "HTTP probe got statuscode 200 and no whole body: context deadline exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked := make(chan struct{}, 1)
			s := startOddServer(t, "127.0.0.1:0", func(conn net.Conn, nth int) bool {
				asked <- struct{}{}
				return sendBytes(test.says)(conn, nth) // only a part of the response
			})
			p := s.prober(t)
			probeOutputs(t, p, 1)
			r, err := probeOnce(t, p, later)
			require.NoError(t, err)
			assert.Equal(t, probe.Failure, r.Outcome)
			assert.Contains(t, r.Output, test.output)
			<-asked
			s.waitEnd(t, 2)

			probeOutputs(t, p, 1)
			ctx, cancel := context.WithCancelCause(t.Context())
			go func() {
				<-asked
				cancel(stop)
			}()
			r, err = p.Probe(ctx)
			require.ErrorIs(t, err, stop)
			assert.Zero(t, r)
			s.waitEnd(t, 4)
		})
	}
}

// A redirect may lead from one reused connection to another one, also without a port in the URL and to TLS.
func TestReusedConnectionsFollowRedirects(t *testing.T) {
	const host = "127.8.0.80" // port 80 of this address is free
	listener, err := net.Listen("tcp", host+":80")
	if err != nil {
		t.Skip("no port 80: ", err)
	}
	var opened atomic.Int32
	answer := func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "%v by %s", r.TLS != nil, r.Host) }
	start := func(l net.Listener, answer http.HandlerFunc, secure bool) *httptest.Server {
		server := httptest.NewUnstartedServer(answer)
		server.Listener.Close()
		server.Listener = l
		server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				opened.Add(1)
			}
		}
		if secure {
			server.StartTLS()
		} else {
			server.Start()
		}
		t.Cleanup(server.Close)
		return server
	}
	listen := func() net.Listener {
		l, err := net.Listen("tcp", host+":0")
		require.NoError(t, err)
		return l
	}
	start(listener, answer, false)
	other, secure := start(listen(), answer, false), start(listen(), answer, true)
	for to, output := range map[string]string{
		"http://" + host + "/": "false by " + host,
		other.URL:              "false by " + other.Listener.Addr().String(),
		secure.URL:             "true by " + secure.Listener.Addr().String(),
	} {
		opened.Store(0)
		c := configFor(t, start(listen(), func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, to, http.StatusFound) }, false), "/")
		c.Pool = newPool(t)
		p, err := httpprobe.New(c)
		require.NoError(t, err)
		assert.Equal(t, []string{output, output, output, output}, probeOutputs(t, p, 4))
		assert.EqualValues(t, 4, opened.Load(), "connections to %s: two for the first probe, and two that stay open", to)
	}
}

// Concurrent probes of one server get their own responses, even if some are cancelled.
func TestConcurrentProbesGetTheirOwnResponses(t *testing.T) {
	var open atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/late" && r.Header.Get("Connection") == "" {
			time.Sleep(time.Millisecond)
		}
		io.WriteString(w, r.URL.Path)
	}))
	server.Listener = countingListener{server.Listener, &open}
	server.Start()
	t.Cleanup(server.Close)
	pool := httpprobe.NewPool(httpprobe.PoolOptions{MaxIdle: 8})
	var wg sync.WaitGroup
	for i := range 40 {
		path := fmt.Sprintf("/%d", i)
		if i%4 == 0 {
			path = "/late"
		}
		c := configFor(t, server, path)
		c.Pool = pool
		p, err := httpprobe.New(c)
		require.NoError(t, err)
		wg.Go(func() {
			for range 50 {
				timeout := long
				if path == "/late" {
					timeout = time.Millisecond
				}
				r, err := probeOnce(t, p, timeout)
				if assert.NoError(t, err) && timeout == long {
					assert.Equal(t, probe.Result{Outcome: probe.Success, Output: path}, r)
				}
			}
		})
	}
	wg.Wait()
	assert.Eventually(t, func() bool { return open.Load() <= 8 }, long, time.Millisecond, "idle connections")
	assert.Positive(t, open.Load())
	pool.Close()
	assert.Eventually(t, func() bool { return open.Load() == 0 }, long, time.Millisecond, "connections after Close")
}

// An idle connection is closed half a minute after its last response, with or without other probes. This includes a
// connection that was in use when the pool was closed. The servers run outside of the virtual time.
func TestIdleConnectionsCloseAfterIdleTimeout(t *testing.T) {
	good := sendBytes("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nkept")
	first, second := startOddServer(t, "127.0.0.1:0", good), startOddServer(t, "127.0.0.1:0", good)
	asked, goOn := make(chan struct{}), make(chan struct{})
	slow := startOddServer(t, "127.0.0.1:0", func(conn net.Conn, nth int) bool {
		asked <- struct{}{}
		<-goOn
		return good(conn, nth)
	})
	late := time.AfterFunc(long, func() { // in real time
		for _, s := range []*oddServer{first, second, slow} {
			s.ended <- -1
		}
	})
	defer late.Stop()
	probes := func(t *testing.T, p probe.Prober, n int) {
		for range n {
			r, err := p.Probe(t.Context())
			require.NoError(t, err)
			require.Equal(t, probe.Success, r.Outcome, r.Output)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		pool := httpprobe.NewPool(httpprobe.PoolOptions{})
		shared := func(c *httpprobe.Config) { c.Pool = pool }
		a, b := first.prober(t, shared), second.prober(t, shared)
		probes(t, a, 2)
		time.Sleep(20 * time.Second)
		probes(t, b, 2)
		time.Sleep(10*time.Second - 1)
		probes(t, a, 1)
		time.Sleep(20 * time.Second)
		probes(t, b, 1)
		assert.EqualValues(t, 1, first.kept.Load())
		assert.EqualValues(t, 1, second.kept.Load())
		for _, s := range []*oddServer{first, second} { // first at 60 s, second at 80 s
			time.Sleep(10 * time.Second)
			assert.EqualValues(t, 1, <-s.ended, "the connection that was not kept")
			assert.EqualValues(t, 2, <-s.ended)
			time.Sleep(10 * time.Second)
		}

		c := slow.prober(t, shared)
		probes(t, c, 1)
		done := make(chan struct{})
		go func() {
			defer close(done)
			probes(t, c, 1)
		}()
		<-asked
		pool.Close()
		goOn <- struct{}{}
		<-done
		assert.EqualValues(t, 1, <-slow.ended)
		time.Sleep(30 * time.Second)
		assert.EqualValues(t, 2, <-slow.ended)
		probes(t, a, 1)
	})
}

// Any response has an equal result on a new and on a reused connection.
func FuzzReusedConnectionHasEqualResult(f *testing.F) {
	for _, seed := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nkept",
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 302 Found\r\nLocation: /\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n4;x\r\nkept\r\n0\r\n\r\nHTTP/1.1 500 No\r\n\r\n",
		"HTTP/1.0 399 \r\nConnection: keep-alive\r\nContent-Length: -1\r\n\r\n",
		"HTTP/1.1 204 No\r\nTransfer-Encoding: chunked\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, answer []byte) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer listener.Close()
		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				go func() {
					defer conn.Close()
					if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
						conn.Write(answer)
					}
					conn.(*net.TCPConn).CloseWrite()
					io.Copy(io.Discard, conn)
				}()
			}
		}()
		pool := httpprobe.NewPool(httpprobe.PoolOptions{})
		defer pool.Close()
		p, err := httpprobe.New(httpprobe.Config{Host: "127.0.0.1", Port: listener.Addr().(*net.TCPAddr).Port, Pool: pool})
		require.NoError(t, err)
		want, err := probeOnce(t, p, long)
		require.NoError(t, err)
		for range 2 {
			got, err := probeOnce(t, p, long)
			require.NoError(t, err)
			require.Equal(t, want.Outcome, got.Outcome, got.Output)
			if want.Outcome != probe.Failure { // the text of a failure may contain a port, which differs
				require.Equal(t, want, got)
			}
		}
	})
}
