// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package streaming_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri/streaming"
	"github.com/seed81659283/nodeagent/internal/streaming/streamtest"
)

// sendRequest sends bytes to the server and returns its response.
func (r *testNode) sendRequest(t testing.TB, request string) (code int, header http.Header, body string) {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(r.http.URL, "http://"))
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.SetDeadline(time.Now().Add(timeout)))
	_, err = io.WriteString(c, strings.ReplaceAll(request, "\n", "\r\n"))
	require.NoError(t, err)
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	if response.StatusCode != http.StatusSwitchingProtocols {
		b, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		body = string(b)
	}
	return response.StatusCode, response.Header, body
}

// Refused requests and their responses.
func TestRefusedRequests(t *testing.T) {
	const (
		exec    = "/exec/uid/c?output=1&command=out%3Dx HTTP/1.1\nHost: node\n"
		forward = "/portforward/uid HTTP/1.1\nHost: node\n"
		spdy    = "Connection: Upgrade\nUpgrade: SPDY/3.1\n"
		socket  = "Connection: Upgrade\nUpgrade: websocket\nSec-WebSocket-Version: 13\nSec-WebSocket-Key: " + streamtest.Key + "\n"
	)
	tests := []struct {
		name, request string
		code          int
		body          string
	}{
		{"no upgrade", "POST " + exec, 500, "Upgrade request required\n"},
		{"upgrade without connection", "POST " + exec + "Upgrade: SPDY/3.1\n", 500, "Upgrade request required\n"},
		{"no stream", "POST /exec/uid/c?command=x HTTP/1.1\nHost: node\n" + spdy, 400, "you must specify at least 1 of stdin, stdout, stderr\n"},
		{"no protocol", "POST " + exec + spdy, 400, "unable to upgrade: header X-Stream-Protocol-Version does not exist in request with 2 headers"},
		{
			"foreign protocol", "POST " + exec + spdy + "X-Stream-Protocol-Version: v9.channel.k8s.io\n", 403,
			"unable to upgrade: unable to negotiate protocol: client supports [v9.channel.k8s.io], server accepts " +
				"[v4.channel.k8s.io v3.channel.k8s.io v2.channel.k8s.io channel.k8s.io]",
		},
		{
			"empty protocol", "POST " + exec + spdy + "X-Stream-Protocol-Version: ,\n", 400,
			"unable to upgrade: header X-Stream-Protocol-Version contains [,], but no valid protocols",
		},
		{
			"another upgrade", "POST " + exec + "Connection: Upgrade\nUpgrade: h2c\nX-Stream-Protocol-Version: v4.channel.k8s.io\n", 400,
			"unable to upgrade: missing upgrade headers in request",
		},
		{"WebSocket with POST", "POST " + exec + socket, 405, "bad method"},
		{"WebSocket with another version", "GET " + exec + strings.Replace(socket, "13", "8", 1), 400, "missing or bad WebSocket Version"},
		{"WebSocket without key", "GET " + exec + strings.Replace(socket, streamtest.Key, "", 1), 400, "mismatch challenge/response"},
		{"WebSocket with unknown protocol", "GET " + exec + socket + "Sec-WebSocket-Protocol: chat\n", 403, ""},
		{
			"a body", "POST " + exec + spdy + "X-Stream-Protocol-Version: v4.channel.k8s.io\nContent-Length: 3\n\nabc", 400,
			"unable to upgrade: a request with a body cannot be upgraded",
		},
		{
			"body in chunks", "POST " + exec + spdy + "X-Stream-Protocol-Version: v4.channel.k8s.io\nTransfer-Encoding: chunked\n\n0\n", 400,
			"unable to upgrade: a request with a body cannot be upgraded",
		},
		{
			"two upgrades", "POST " + exec + spdy + "Upgrade: websocket\nX-Stream-Protocol-Version: v4.channel.k8s.io\n", 400,
			"unable to upgrade: more than one Upgrade header",
		},
		{"ports missing", "GET " + forward + socket, 400, "query parameter \"port\" is required\n"},
		{"port 0", "GET " + strings.Replace(forward, " ", "?port=0 ", 1) + socket, 400, "port \"0\" must be > 0\n"},
		{
			"port too large", "GET " + strings.Replace(forward, " ", "?port=70000 ", 1) + socket, 400,
			"unable to parse \"70000\" as a port: strconv.ParseUint: parsing \"70000\": value out of range\n",
		},
		{
			"foreign port-forward", "POST " + forward + spdy + "X-Stream-Protocol-Version: v4.channel.k8s.io\n", 403,
			"unable to upgrade: unable to negotiate protocol: client supports [v4.channel.k8s.io], server accepts [portforward.k8s.io]",
		},
	}
	for _, mode := range modes {
		for _, test := range tests {
			t.Run(mode+"/"+test.name, func(t *testing.T) {
				r := newTestNode(t, mode, streaming.Options{})
				code, header, body := r.sendRequest(t, test.request+"\n")
				assert.Equal(t, test.code, code)
				if !strings.Contains(test.name, "no protocol") || mode == "runner" { // the number of headers differs for the runtime
					assert.Equal(t, test.body, body)
				}
				if code == http.StatusForbidden && body != "" {
					assert.NotEmpty(t, header["X-Accepted-Stream-Protocol-Versions"])
				}
				awaitNoSessions(t, r)
			})
		}
	}
}

// Responses of the runtime other than an upgrade.
func TestRuntimeResponsesOtherThanUpgrade(t *testing.T) {
	tests := map[string]struct {
		answer http.HandlerFunc
		code   int
		body   string
	}{
		"error response of the runtime": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Why", "teapot")
			http.Error(w, strings.Repeat("short and stout\n", 1000), http.StatusTeapot)
		}, 418, strings.Repeat("short and stout\n", 1000) + "\n"},
		"success": {
			func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") },
			500, "invalid upgrade response: status code 200",
		},
		"redirect": {
			func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, "http://example.com", http.StatusFound)
			},
			500, "invalid upgrade response: status code 302",
		},
		"nothing": {
			func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
			500, "error reading the response of the runtime: unexpected EOF",
		},
	}
	const protocol = "SPDY v4.channel.k8s.io"
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := newTestNode(t, "streamer", streaming.Options{})
			r.streamer.Override = test.answer
			got := r.runExec(t, protocol, streamtest.Command{}, "out=x")
			var no *streamtest.Refused
			require.ErrorAs(t, got.err, &no)
			assert.Equal(t, test.code, no.Code)
			assert.Equal(t, test.body, no.Body)
			if test.code == http.StatusTeapot {
				assert.Equal(t, "teapot", no.Header.Get("X-Why"))
			}
			translated := r.runExec(t, "WebSocket v5.channel.k8s.io", streamtest.Command{}, "out=x")
			require.NoError(t, translated.err)
			assert.Contains(t, translated.fault, "unable to upgrade connection: ")
		})
	}
}

// A runtime that accepts the connection and sends nothing has Options.CreationTimeout.
func TestRuntimeWithoutResponseTimesOut(t *testing.T) {
	r := newTestNode(t, "streamer", streaming.Options{CreationTimeout: 200 * time.Millisecond})
	r.streamer.Override = func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() }
	got := r.runExec(t, "SPDY v4.channel.k8s.io", streamtest.Command{}, "out=x")
	var no *streamtest.Refused
	require.ErrorAs(t, got.err, &no, "the request is refused although the runtime hangs")
	assert.Equal(t, 500, no.Code)
}

// A runtime URL that is not on the loopback is rejected, unless AllowAnyHost is set.
func TestRuntimeURLMustBeOnLoopback(t *testing.T) {
	for _, url := range []string{
		"http://192.0.2.1:80/x", "http://example.com/x", "http://0.0.0.0/x", "ftp://127.0.0.1/x", "http://127.0.0.1.example.com/",
		"http://[::ffff:192.0.2.1]/", "//evil/x", "http://localhost@192.0.2.1/",
	} {
		t.Run(url, func(t *testing.T) {
			r := newTestNode(t, "streamer", streaming.Options{})
			r.streamer.URL = func(string) string { return url }
			got := r.runExec(t, "SPDY v4.channel.k8s.io", streamtest.Command{}, "out=x")
			var no *streamtest.Refused
			require.ErrorAs(t, got.err, &no)
			assert.Equal(t, 500, no.Code)
			assert.Regexp(t, "must be a loopback address|must be http or https", no.Body)
		})
	}
	t.Run("AnyHost", func(t *testing.T) {
		r := newTestNode(t, "streamer", streaming.Options{AllowAnyHost: true, CreationTimeout: 100 * time.Millisecond})
		r.streamer.URL = func(string) string { return "http://192.0.2.1:80/x" }
		got := r.runExec(t, "SPDY v4.channel.k8s.io", streamtest.Command{}, "out=x")
		var no *streamtest.Refused
		require.ErrorAs(t, got.err, &no)
		assert.Contains(t, no.Body, "error dialing backend")
	})
}

// The runtime gets none of the client's credentials, and no data that it could read as another request.
func TestRuntimeGetsOnlyUpgradeHeaders(t *testing.T) {
	for _, protocol := range []string{"SPDY v4.channel.k8s.io", "WebSocket v4.channel.k8s.io", "WebSocket v5.channel.k8s.io"} {
		t.Run(protocol, func(t *testing.T) {
			r := newTestNode(t, "streamer", streaming.Options{})
			got := r.runExec(t, protocol, streamtest.Command{Header: http.Header{
				"Authorization": {"Bearer secret"}, "Cookie": {"secret"}, "X-Remote-User": {"admin"}, "X-Forwarded-For": {"secret"},
				"Impersonate-User": {"admin"}, "Origin": {"https://secret.example.com"},
			}}, "out=x")
			require.NoError(t, got.err)
			requests := r.streamer.Requests()
			require.Len(t, requests, 1)
			for name, values := range requests[0].Header {
				assert.NotContains(t, strings.Join(values, " ")+name, "secret")
				assert.NotContains(t, strings.Join(values, " "), "admin")
			}
			assert.Equal(t, strings.TrimPrefix(requests[0].Host, "http://"), requests[0].Host)
			assert.NotContains(t, requests[0].Host, strings.TrimPrefix(r.http.URL, "http://"))
		})
	}
	t.Run("bearer token as WebSocket protocol", func(t *testing.T) {
		r := newTestNode(t, "streamer", streaming.Options{})
		c := streamtest.Command{Stdout: io.Discard}
		u, _, err := streamtest.DialWebSocket(t.Context(), r.sessionURL("exec", "uid/c", c, "out=x"),
			"base64url.bearer.authorization.k8s.io.c2VjcmV0, v4.channel.k8s.io", nil)
		require.NoError(t, err)
		defer u.Close()
		assert.Equal(t, "v4.channel.k8s.io", r.streamer.Requests()[0].Header.Get("Sec-Websocket-Protocol"))
	})
}

// An unknown container gets 404 and starts no session.
func TestUnknownContainerIs404(t *testing.T) {
	r := newTestNode(t, "streamer", streaming.Options{})
	c := streamtest.Command{Protocol: "SPDY v4.channel.k8s.io", Stdout: io.Discard}
	c.URL = r.sessionURL("exec", "absent", c, "out=x")
	_, err := c.Run(t.Context())
	var no *streamtest.Refused
	require.ErrorAs(t, err, &no)
	assert.Equal(t, http.StatusNotFound, no.Code)
	assert.Equal(t, "Exec absent: not found", no.Body)
	r.sendRequest(t, "POST /exec/uid/c?output=1 HTTP/1.1\nHost: node\n\n")
	assert.Zero(t, r.streamer.UnusedURLs(), "a request without upgrade does not create a URL")
}

// Data that a client sends directly after its request is not lost.
func TestBytesBehindTheRequestArrive(t *testing.T) {
	r := newTestNode(t, "streamer", streaming.Options{})
	c, err := net.Dial("tcp", strings.TrimPrefix(r.http.URL, "http://"))
	require.NoError(t, err)
	defer c.Close()
	frame := "\x81\x86\x00\x00\x00\x00" + "\x00early" // masked with zeros
	_, err = io.WriteString(c, "GET /exec/uid/c?input=1&output=1&command=cat HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\n"+
		"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: "+streamtest.Key+"\r\n"+
		"Sec-WebSocket-Protocol: v4.channel.k8s.io\r\n\r\n"+frame)
	require.NoError(t, err)
	require.NoError(t, c.SetDeadline(time.Now().Add(timeout)))
	got := make([]byte, 0, 4096)
	for !strings.Contains(string(got), "\x01early") {
		n, err := c.Read(got[len(got):cap(got)])
		require.NoError(t, err, "%q", got)
		got = got[:len(got)+n]
	}
}

// A client that opens no streams gets an error and is closed.
func TestClientWithoutStreamsGetsAnError(t *testing.T) {
	r := newTestNode(t, "runner", streaming.Options{CreationTimeout: 100 * time.Millisecond, Linger: time.Second})
	goroutines, descriptors := awaitNoSessions(t, r)
	for range 50 {
		c, err := net.Dial("tcp", strings.TrimPrefix(r.http.URL, "http://"))
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		_, err = io.WriteString(c, "POST /exec/uid/c?output=1&command=x HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\n"+
			"Upgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n")
		require.NoError(t, err)
	}
	require.True(t, eventually(func() bool { return len(r.sessionErrors()) == 50 }), "the error of every session is reported")
	checkNoLeaks(t, r, goroutines, descriptors+50) // descriptors of the clients
	for _, err := range r.sessionErrors() {
		assert.ErrorContains(t, err, "timed out waiting 100ms for client to create streams")
	}
}
