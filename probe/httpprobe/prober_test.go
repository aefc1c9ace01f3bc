// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package httpprobe_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/probe"
	"github.com/seed81659283/nodeagent/probe/httpprobe"
)

func TestHTTPResultByStatus(t *testing.T) {
	server := startServer(t, func(w http.ResponseWriter, r *http.Request) {
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
		{308, probe.Warning, "Probe terminated redirects, Response body: secret body"}, // without a Location header
		{399, probe.Warning, "Probe terminated redirects, Response body: secret body"},
		{400, probe.Failure, "HTTP probe failed with statuscode: 400"},
		{404, probe.Failure, "HTTP probe failed with statuscode: 404"},
		{500, probe.Failure, "HTTP probe failed with statuscode: 500"},
		{999, probe.Failure, "HTTP probe failed with statuscode: 999"},
	} {
		got := probeHTTP(t, configFor(t, server, fmt.Sprintf("/?status=%d", test.status)), long)
		assert.Equal(t, probe.Result{Outcome: test.outcome, Output: test.output}, got, "status %d", test.status)
	}
}

func TestHTTPFollowsRedirectsToItsHostOnly(t *testing.T) {
	other := startServer(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "other port") })
	secure := httptest.NewTLSServer(other.Config.Handler)
	t.Cleanup(secure.Close)
	var server *httptest.Server
	server = startServer(t, func(w http.ResponseWriter, r *http.Request) {
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
		c := configFor(t, server, test.path)
		c.Header = []httpprobe.Header{{Name: "Host", Value: "www.example.com"}}
		got := probeHTTP(t, c, long)
		assert.Equal(t, test.outcome, got.Outcome, "%s: %s", test.path, got.Output)
		assert.Contains(t, got.Output, test.output, test.path)
	}
}

func TestHTTPIgnoresProxies(t *testing.T) {
	server := startServer(t, func(http.ResponseWriter, *http.Request) {})
	// Not loopback: for this name net/http would read the proxy from the environment.
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	c := configFor(t, server, "/")
	c.Host = "0.0.0.0"
	assert.Equal(t, probe.Success, probeHTTP(t, c, long).Outcome)
}

func TestHTTPKeepsMaxOutputBytesOfABody(t *testing.T) {
	server := startServer(t, func(w http.ResponseWriter, r *http.Request) {
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
		got := probeHTTP(t, configFor(t, server, path), long)
		assert.Equal(t, outcome, got.Outcome, path)
		assert.Len(t, got.Output, probe.MaxOutput, path)
	}
}

func TestHTTPFailsForBrokenServers(t *testing.T) {
	server := startServer(t, func(w http.ResponseWriter, r *http.Request) {
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
	for _, test := range []struct{ path, output string }{
		{"/no-header", "(Client.Timeout exceeded while awaiting headers)"},
		{"/half-header", "(Client.Timeout exceeded while awaiting headers)"},
		{"/huge-header", "server response headers exceeded"},
		{"/no-body", "HTTP probe got statuscode 200 and no whole body: context deadline exceeded"},
		{"/no-body-404", "HTTP probe failed with statuscode: 404"},
		{"/cut", "HTTP probe got statuscode 200 and no whole body: unexpected EOF"},
		{"/reset", "connection reset by peer"},
		{"/garbage", "malformed HTTP status code"},
		{"/switch", "HTTP probe failed with statuscode: 101"},
	} {
		t.Run(test.path, func(t *testing.T) {
			t.Parallel()
			got := probeHTTP(t, configFor(t, server, test.path), later)
			assert.Equal(t, probe.Failure, got.Outcome)
			assert.Contains(t, got.Output, test.output)
		})
	}
}

func TestHTTPProbesIPv6(t *testing.T) {
	listener, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skip("no IPv6 loopback: ", err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Host) }))
	server.Listener.Close()
	server.Listener = listener
	server.Start()
	t.Cleanup(server.Close)

	c := configFor(t, server, "/")
	require.Equal(t, "::1", c.Host)
	assert.Equal(t, probe.Result{Outcome: probe.Success, Output: listener.Addr().String()}, probeHTTP(t, c, long))
}

func TestHTTPCancelledProbeIsAnError(t *testing.T) {
	asked := make(chan struct{}, 2)
	server := startServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/body" {
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
		}
		asked <- struct{}{}
		<-r.Context().Done()
	})
	stop := errors.New("the agent stops")
	for _, path := range []string{"/header", "/body"} {
		p, err := httpprobe.New(configFor(t, server, path))
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
