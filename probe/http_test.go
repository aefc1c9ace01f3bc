// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probe_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/probe"
)

// soon is a timeout that a probe is meant to reach, and long one that it is not.
const (
	soon = 150 * time.Millisecond
	long = 10 * time.Second
)

// at returns the configuration of a probe of a test server.
func at(t testing.TB, server *httptest.Server, path string) probe.HTTPConfig {
	t.Helper()
	u, err := url.Parse(server.URL)
	require.NoError(t, err)
	port, err := strconv.Atoi(u.Port())
	require.NoError(t, err)
	return probe.HTTPConfig{Scheme: u.Scheme, Host: u.Hostname(), Port: port, Path: path}
}

// pool returns a pool that is closed when the test ends.
func pool(t testing.TB) *probe.Pool {
	t.Helper()
	p := probe.NewPool(probe.PoolOptions{})
	t.Cleanup(p.Close)
	return p
}

// ask probes once.
func ask(t testing.TB, p probe.Prober, timeout time.Duration) (probe.Result, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	return p.Probe(ctx)
}

// askHTTP probes once by HTTP, and wants an answer.
func askHTTP(t testing.TB, c probe.HTTPConfig, timeout time.Duration) probe.Result {
	t.Helper()
	p, err := probe.NewHTTP(c)
	require.NoError(t, err)
	r, err := ask(t, p, timeout)
	require.NoError(t, err)
	return r
}

// serve starts a server that answers with a function.
func serve(t testing.TB, answer http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(answer)
	t.Cleanup(s.Close)
	return s
}

func TestHTTPJudgesTheStatus(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		status, _ := strconv.Atoi(r.URL.Query().Get("status"))
		w.WriteHeader(status)
		if status != http.StatusNotModified {
			io.WriteString(w, "secret body")
		}
	})
	for _, test := range []struct {
		status  int
		outcome probe.Outcome
		output  string
	}{
		{200, probe.Success, "secret body"},
		{299, probe.Success, "secret body"},
		{300, probe.Warning, "Probe terminated redirects, Response body: secret body"},
		{304, probe.Warning, "Probe terminated redirects, Response body: "},
		{308, probe.Warning, "Probe terminated redirects, Response body: secret body"}, // it names no location
		{399, probe.Warning, "Probe terminated redirects, Response body: secret body"},
		{400, probe.Failure, "HTTP probe failed with statuscode: 400"},
		{404, probe.Failure, "HTTP probe failed with statuscode: 404"},
		{500, probe.Failure, "HTTP probe failed with statuscode: 500"},
		{999, probe.Failure, "HTTP probe failed with statuscode: 999"},
	} {
		for _, discard := range []bool{false, true} {
			c := at(t, server, fmt.Sprintf("/?status=%d", test.status))
			c.DiscardBrokenBody = discard
			got := askHTTP(t, c, long)
			assert.Equal(t, probe.Result{Outcome: test.outcome, Output: test.output}, got, "status %d", test.status)
		}
	}
}

func TestHTTPFollowsRedirectsToTheSameHost(t *testing.T) {
	other := serve(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "other port") })
	secure := httptest.NewTLSServer(other.Config.Handler)
	t.Cleanup(secure.Close)
	var server *httptest.Server
	server = serve(t, func(w http.ResponseWriter, r *http.Request) {
		to := func(url string) { http.Redirect(w, r, url, http.StatusFound) }
		var n int
		switch _, err := fmt.Sscanf(r.URL.Path, "/down/%d", &n); {
		case err == nil && n > 0:
			to(fmt.Sprintf("/down/%d", n-1))
		case r.URL.Path == "/loop":
			to("/loop")
		case r.URL.Path == "/to500":
			to("/500")
		case r.URL.Path == "/500":
			w.WriteHeader(http.StatusInternalServerError)
		case r.URL.Path == "/port":
			to(other.URL)
		case r.URL.Path == "/secure":
			to(secure.URL)
		case r.URL.Path == "/elsewhere":
			to(strings.Replace(server.URL, "127.0.0.1", "0.0.0.0", 1) + "/500")
		default:
			io.WriteString(w, "host "+r.Host)
		}
	})
	for _, test := range []struct {
		path    string
		outcome probe.Outcome
		output  string
	}{
		{"/down/1", probe.Success, "host www.example.com"},
		{"/down/9", probe.Success, "host www.example.com"},
		{"/down/10", probe.Failure, "stopped after 10 redirects"},
		{"/loop", probe.Failure, "stopped after 10 redirects"},
		{"/to500", probe.Failure, "HTTP probe failed with statuscode: 500"},
		{"/port", probe.Success, "other port"},
		{"/secure", probe.Success, "other port"},
		{"/elsewhere", probe.Warning, "Probe terminated redirects, Response body: <a href="},
	} {
		c := at(t, server, test.path)
		c.Header = []probe.Header{{Name: "Host", Value: "www.example.com"}}
		got := askHTTP(t, c, long)
		assert.Equal(t, test.outcome, got.Outcome, "%s: %s", test.path, got.Output)
		assert.Contains(t, got.Output, test.output, test.path)
	}
}

func TestHTTPSendsTheHeadersOfTheKubelet(t *testing.T) {
	var got http.Header
	server := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		got = r.Header.Clone()
		got.Set("Host", r.Host)
	})
	address := strings.TrimPrefix(server.URL, "http://")
	for name, test := range map[string]struct {
		send []probe.Header
		want http.Header
	}{
		"none": {nil, http.Header{
			"Accept": {"*/*"}, "Connection": {"close"}, "Host": {address}, "User-Agent": {"kube-probe/1.37"},
		}},
		"empty ones": {[]probe.Header{{"User-Agent", ""}, {"Accept", ""}}, http.Header{
			"Connection": {"close"}, "Host": {address},
		}},
		"own ones, twice": {[]probe.Header{{"accept", "a"}, {"Accept", "b"}, {"user-agent", "me"}, {"x-a", "1\t2"}}, http.Header{
			"Accept": {"a", "b"}, "Connection": {"close"}, "Host": {address}, "User-Agent": {"me"}, "X-A": {"1\t2"},
		}},
		"a virtual host": {[]probe.Header{{"HOST", "www.example.com"}}, http.Header{
			"Accept": {"*/*"}, "Connection": {"close"}, "Host": {"www.example.com"}, "User-Agent": {"kube-probe/1.37"},
		}},
	} {
		c := at(t, server, "/")
		c.Header = test.send
		require.Equal(t, probe.Success, askHTTP(t, c, long).Outcome, name)
		assert.Equal(t, test.want, got, name)
	}
}

func TestHTTPIgnoresProxies(t *testing.T) {
	server := serve(t, func(http.ResponseWriter, *http.Request) {})
	// A name that is not loopback, for which net/http would ask the environment.
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	c := at(t, server, "/")
	c.Host = "0.0.0.0"
	assert.Equal(t, probe.Success, askHTTP(t, c, long).Outcome)
}

func TestHTTPKeepsWhatItMayOfABody(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/endless":
			for r.Context().Err() == nil {
				if _, err := io.WriteString(w, strings.Repeat("x", 4096)); err != nil {
					return
				}
			}
		case "/full-then-stall":
			io.WriteString(w, strings.Repeat("x", probe.MaxOutput))
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		case "/redirect":
			w.WriteHeader(http.StatusMultipleChoices)
			fallthrough
		default:
			io.WriteString(w, strings.Repeat("x", probe.MaxOutput+1))
		}
	})
	for path, outcome := range map[string]probe.Outcome{
		"/": probe.Success, "/endless": probe.Success, "/full-then-stall": probe.Success, "/redirect": probe.Warning,
	} {
		got := askHTTP(t, at(t, server, path), long)
		assert.Equal(t, outcome, got.Outcome, path)
		assert.Len(t, got.Output, probe.MaxOutput, path)
	}
}

func TestHTTPSeesASickServer(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/no-header":
			<-r.Context().Done()
		case "/half-header":
			conn, _, _ := w.(http.Hijacker).Hijack()
			defer conn.Close()
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-")
			io.Copy(io.Discard, conn)
		case "/huge-header":
			w.Header().Set("X", strings.Repeat("x", 300<<10))
		case "/no-body", "/no-body-404":
			if r.URL.Path == "/no-body-404" {
				w.WriteHeader(http.StatusNotFound)
			}
			io.WriteString(w, "half")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		case "/cut":
			w.Header().Set("Content-Length", "10")
			io.WriteString(w, "half")
		case "/reset":
			conn, _, _ := w.(http.Hijacker).Hijack()
			conn.(*net.TCPConn).SetLinger(0)
			conn.Close()
		case "/garbage", "/switch":
			conn, _, _ := w.(http.Hijacker).Hijack()
			defer conn.Close()
			if r.URL.Path == "/switch" {
				io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
			} else {
				io.WriteString(conn, "220 mail.example.com ESMTP\r\n")
			}
			io.Copy(io.Discard, conn)
		}
	})
	for _, test := range []struct {
		path, output string
		discarded    bool // the kubelet gives no result
	}{
		{"/no-header", "(Client.Timeout exceeded while awaiting headers)", false},
		{"/half-header", "(Client.Timeout exceeded while awaiting headers)", false},
		{"/huge-header", "server response headers exceeded", false},
		{"/no-body", "HTTP probe got statuscode 200 and no whole body: context deadline exceeded", true},
		{"/no-body-404", "HTTP probe failed with statuscode: 404", true},
		{"/cut", "HTTP probe got statuscode 200 and no whole body: unexpected EOF", true},
		{"/reset", "connection reset by peer", false},
		{"/garbage", "malformed HTTP status code", false},
		{"/switch", "HTTP probe failed with statuscode: 101", false},
	} {
		t.Run(test.path, func(t *testing.T) {
			c := at(t, server, test.path)
			got := askHTTP(t, c, soon)
			assert.Equal(t, probe.Failure, got.Outcome)
			assert.Contains(t, got.Output, test.output)

			c.DiscardBrokenBody = true
			p, err := probe.NewHTTP(c)
			require.NoError(t, err)
			got, err = ask(t, p, soon)
			if test.discarded {
				require.ErrorContains(t, err, "read body: ")
				assert.Equal(t, probe.Result{}, got)
			} else {
				require.NoError(t, err)
				assert.Equal(t, probe.Failure, got.Outcome)
			}
		})
	}
}

func TestHTTPSpeaksTLS(t *testing.T) {
	var protocol, name string
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		protocol, name = r.Proto, r.TLS.ServerName
	}))
	server.EnableHTTP2 = true
	server.StartTLS() // signed by itself
	t.Cleanup(server.Close)

	c := at(t, server, "/")
	c.Host, c.Scheme = "localhost", "HTTPS"
	c.Header = []probe.Header{{"Host", "www.example.com"}}
	require.Equal(t, probe.Success, askHTTP(t, c, long).Outcome)
	assert.Equal(t, "HTTP/2.0", protocol, "HTTP/2 is what this server likes best")
	assert.Equal(t, "localhost", name, "the name in the handshake is that of the URL, not of the header")

	c.Pool = probe.NewPool(probe.PoolOptions{DisableHTTP2: true})
	t.Cleanup(c.Pool.Close)
	require.Equal(t, probe.Success, askHTTP(t, c, long).Outcome)
	assert.Equal(t, "HTTP/1.1", protocol)
}

func TestHTTPFailsWithoutATLSServer(t *testing.T) {
	server := serve(t, func(http.ResponseWriter, *http.Request) {})
	c := at(t, server, "/")
	c.Scheme = "https"
	got := askHTTP(t, c, long)
	assert.Equal(t, probe.Failure, got.Outcome)
	assert.Contains(t, got.Output, "server gave HTTP response to HTTPS client")
}

func TestHTTPSpeaksIPv6(t *testing.T) {
	listener, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skip("no IPv6 loopback: ", err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Host) }))
	server.Listener.Close()
	server.Listener = listener
	server.Start()
	t.Cleanup(server.Close)

	c := at(t, server, "/")
	require.Equal(t, "::1", c.Host)
	assert.Equal(t, probe.Result{Outcome: probe.Success, Output: listener.Addr().String()}, askHTTP(t, c, long))
}

func TestHTTPThatIsCancelledIsNobodysFailure(t *testing.T) {
	asked := make(chan struct{}, 2)
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/body" {
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
		}
		asked <- struct{}{}
		<-r.Context().Done()
	})
	stop := errors.New("the agent stops")
	for _, path := range []string{"/header", "/body"} {
		p, err := probe.NewHTTP(at(t, server, path))
		require.NoError(t, err)
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() {
			<-asked
			cancel(stop)
		}()
		got, err := p.Probe(ctx)
		require.ErrorIs(t, err, stop, path)
		assert.Equal(t, probe.Result{}, got, path)
	}
}

func TestNewHTTPRefuses(t *testing.T) {
	good := probe.HTTPConfig{Host: "10.0.0.1", Port: 80, Path: "/"}
	_, err := probe.NewHTTP(good)
	require.NoError(t, err)
	for _, test := range []struct {
		change func(*probe.HTTPConfig)
		want   string
	}{
		{func(c *probe.HTTPConfig) { c.Port = 0 }, `field Port: 0 is not from 1 to 65535`},
		{func(c *probe.HTTPConfig) { c.Port = 70000 }, `field Port: 70000 is not from 1 to 65535`},
		{func(c *probe.HTTPConfig) { c.Host = "" }, `field Host: is empty`},
		{func(c *probe.HTTPConfig) { c.Host = "a\r\nb" }, `field Host: "a\r\nb" is neither a name nor an IP address`},
		{func(c *probe.HTTPConfig) { c.Host = "[::1]" }, `field Host: "[::1]" is neither a name nor an IP address`},
		{func(c *probe.HTTPConfig) { c.Host = "a/b" }, `field Host: "a/b" is neither a name nor an IP address`},
		{func(c *probe.HTTPConfig) { c.Host = "a:80" }, `field Host: "a:80" is neither a name nor an IP address`},
		{func(c *probe.HTTPConfig) { c.Scheme = "ftp" }, `field Scheme: "ftp" is neither http nor https`},
		{func(c *probe.HTTPConfig) { c.Path = "mailto:me" }, `field Path: "mailto:me" is a URL without a path`},
		{
			func(c *probe.HTTPConfig) { c.Header = []probe.Header{{"A", "b"}, {"X Y", "z"}} },
			`field Header[1].Name: "X Y" is no name of a header`,
		},
		{func(c *probe.HTTPConfig) { c.Header = []probe.Header{{"", "z"}} }, `field Header[0].Name: "" is no name of a header`},
		{
			func(c *probe.HTTPConfig) { c.Header = []probe.Header{{"X", "a\r\nY: b"}} },
			`field Header[0].Value: "a\r\nY: b" of X contains a control character`,
		},
	} {
		c := good
		test.change(&c)
		_, err := probe.NewHTTP(c)
		require.EqualError(t, err, test.want)
	}
}

// connections counts the connections that a server accepts.
func connections(t testing.TB, secure bool, answer http.HandlerFunc) (*httptest.Server, *atomic.Int32) {
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
		// The first is fresh, the second opens the one that is kept, and from then on one in four is fresh.
		"where it can":           {want: 2, wantMore: 2},
		"not without a pool":     {noPool: true, want: 4, wantMore: 8},
		"not when told":          {fresh: true, want: 4, wantMore: 8},
		"not with HTTP/2":        {secure: true, want: 4, wantMore: 8},
		"not against the server": {answer: func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Connection", "close") }, want: 4, wantMore: 8},
	} {
		t.Run(name, func(t *testing.T) {
			if test.answer == nil {
				test.answer = func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") }
			}
			server, count := connections(t, test.secure, test.answer)
			c := at(t, server, "/")
			c.FreshConnections = test.fresh
			if !test.noPool {
				c.Pool = pool(t)
			}
			p, err := probe.NewHTTP(c)
			require.NoError(t, err)
			for i, n := range []int{4, 8} {
				before := count.Load()
				for range n {
					got, err := ask(t, p, long)
					require.NoError(t, err)
					require.Equal(t, probe.Success, got.Outcome, got.Output)
				}
				assert.Equal(t, []int32{test.want, test.wantMore}[i], count.Load()-before)
			}
		})
	}
}

// A connection that the server has closed since must not make a healthy container look sick.
func TestHTTPAsksAgainWhenAReusedConnectionIsBroken(t *testing.T) {
	server, _ := connections(t, false, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Connection") == "close" {
			io.WriteString(w, "fresh")
			return
		}
		conn, _, _ := w.(http.Hijacker).Hijack()
		conn.(*net.TCPConn).SetLinger(0)
		conn.Close()
	})
	c := at(t, server, "/")
	c.Pool = pool(t)
	p, err := probe.NewHTTP(c)
	require.NoError(t, err)
	for range 6 {
		got, err := ask(t, p, long)
		require.NoError(t, err)
		assert.Equal(t, probe.Result{Outcome: probe.Success, Output: "fresh"}, got)
	}
}

// A server that answers old connections and accepts no new one is as good as down for everybody else.
func TestHTTPNoticesAServerThatAcceptsNoMoreConnections(t *testing.T) {
	server, _ := connections(t, false, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") })
	c := at(t, server, "/")
	c.Pool = pool(t)
	p, err := probe.NewHTTP(c)
	require.NoError(t, err)
	for range 2 { // one of its own, and one that stays open
		got, err := ask(t, p, long)
		require.NoError(t, err)
		require.Equal(t, probe.Success, got.Outcome, got.Output)
	}
	require.NoError(t, server.Listener.Close())

	var outcomes []probe.Outcome
	for range 6 {
		got, err := ask(t, p, long)
		require.NoError(t, err)
		outcomes = append(outcomes, got.Outcome)
	}
	assert.Equal(t, []probe.Outcome{probe.Success, probe.Success, probe.Failure, probe.Failure, probe.Failure, probe.Failure}, outcomes)
}

// A kept connection that hangs costs one probe: the next one opens its own.
func TestHTTPLeavesAConnectionThatHangs(t *testing.T) {
	var hang atomic.Bool
	server, _ := connections(t, false, func(_ http.ResponseWriter, r *http.Request) {
		if hang.Load() && r.Header.Get("Connection") != "close" {
			<-r.Context().Done()
		}
	})
	c := at(t, server, "/")
	c.Pool = pool(t)
	p, err := probe.NewHTTP(c)
	require.NoError(t, err)
	for i, want := range []probe.Outcome{probe.Success, probe.Success, probe.Failure, probe.Success} {
		hang.Store(i >= 2)
		timeout := long
		if want == probe.Failure {
			timeout = soon
		}
		got, err := ask(t, p, timeout)
		require.NoError(t, err)
		assert.Equal(t, want, got.Outcome, "probe %d: %s", i, got.Output)
	}
}

func TestHTTPConnectionsAreIdleInBoundedNumber(t *testing.T) {
	var open atomic.Int32
	p := probe.NewPool(probe.PoolOptions{MaxIdle: 2})
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
		c := at(t, server, "/")
		c.Pool = p
		prober, err := probe.NewHTTP(c)
		require.NoError(t, err)
		for range 2 {
			_, err := ask(t, prober, long)
			require.NoError(t, err)
		}
	}
	assert.Eventually(t, func() bool { return open.Load() == 2 }, long, time.Millisecond, "open connections")
	p.Close()
	assert.Eventually(t, func() bool { return open.Load() == 0 }, long, time.Millisecond, "open connections after Close")
}

// The certificate of a test server that asks for one back is never answered: probes have no identity.
func TestHTTPHasNoCertificate(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	server.Config.ErrorLog = nil
	server.StartTLS()
	t.Cleanup(server.Close)
	got := askHTTP(t, at(t, server, "/"), long)
	assert.Equal(t, probe.Failure, got.Outcome)
	assert.Contains(t, got.Output, "certificate required")
}
