// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package streaming_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/streaming"
	"github.com/seed81659283/nodeagent/internal/streaming/streamtest"
)

const limit = time.Minute // limit of each wait

// startURLServer serves a scripted runtime until the test ends or stop is called.
func startURLServer(t *testing.T, runtime *streamtest.Runtime, o streaming.URLOptions) (urls *streaming.URLServer, stop func()) {
	t.Helper()
	sessions, err := streaming.New(streaming.Options{Runner: runtime})
	require.NoError(t, err)
	urls = streaming.NewURLServer(sessions, o)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var serving sync.WaitGroup
	serving.Go(func() { assert.NoError(t, urls.Serve(ctx, l)) })
	stop = func() {
		cancel()
		serving.Wait()
	}
	t.Cleanup(stop)
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		url, err := urls.Attach(t.Context(), "ready?", cri.StreamOptions{Stdout: true})
		if err == nil {
			getURL(t, url) // the URL is used up by a request
			return urls, stop
		}
		require.ErrorIs(t, err, cri.ErrUnavailable)
	}
	require.Fail(t, "the URL server does not serve")
	return nil, nil
}

// getURL requests a URL without an upgrade.
func getURL(t *testing.T, url string) *http.Response { return requestURL(t, http.MethodGet, url) }

func requestURL(t *testing.T, method, url string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp
}

func TestURLServerSessions(t *testing.T) {
	runtime := &streamtest.Runtime{Main: []string{"out=attached"}}
	urls, _ := startURLServer(t, runtime, streaming.URLOptions{})
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	for _, protocol := range streamtest.Protocols() {
		t.Run(protocol, func(t *testing.T) {
			url, err := urls.Exec(ctx, "c", []string{"cat", "err=problem"}, cri.StreamOptions{Stdin: true, Stdout: true, Stderr: true})
			require.NoError(t, err)
			require.Regexp(t, `^http://127\.0\.0\.1:\d+/exec/[A-Z2-7]{26}$`, url)
			var out, errs bytes.Buffer
			stdin := io.Reader(strings.NewReader("hello"))
			if strings.HasPrefix(protocol, "WebSocket") && !strings.Contains(protocol, "v5") {
				stdin = nil // stdin without end
				url, err = urls.Exec(ctx, "c", []string{"out=hello", "err=problem"}, cri.StreamOptions{Stdout: true, Stderr: true})
				require.NoError(t, err)
			}
			c := streamtest.Command{URL: url, Protocol: protocol, Stdin: stdin, Stdout: &out, Stderr: &errs}
			_, err = c.Run(ctx)
			require.NoError(t, err)
			require.Equal(t, "hello", out.String())
			require.Equal(t, "problem", errs.String())

			_, err = c.Run(ctx)
			var refused *streamtest.Refused
			require.ErrorAs(t, err, &refused, "a URL is valid once")
			require.Equal(t, http.StatusNotFound, refused.Code)

			url, err = urls.Attach(ctx, "c", cri.StreamOptions{Stdout: true})
			require.NoError(t, err)
			out.Reset()
			_, err = streamtest.Command{URL: url, Protocol: protocol, Stdout: &out}.Run(ctx)
			require.NoError(t, err)
			require.Equal(t, "attached", out.String())
		})
	}
	for _, tunnel := range []bool{false, true} {
		url, err := urls.PortForward(ctx, "s", []int32{80})
		require.NoError(t, err)
		f, err := streamtest.Forward(ctx, url, tunnel)
		require.NoError(t, err)
		conn, err := f.Connect(ctx, 80)
		require.NoError(t, err)
		_, err = io.WriteString(conn, "echo")
		require.NoError(t, err)
		require.NoError(t, conn.CloseWrite())
		all, err := io.ReadAll(conn)
		require.NoError(t, err)
		require.Equal(t, "echo", string(all))
		f.Close()
	}
}

// A URL is valid for one request of its own kind, by GET or POST, for its lifetime.
func TestURLValidForOneRequest(t *testing.T) {
	urls, _ := startURLServer(t, &streamtest.Runtime{}, streaming.URLOptions{})
	ctx, o := t.Context(), cri.StreamOptions{Stdout: true}
	url, err := urls.Exec(ctx, "c", []string{"out=x"}, o)
	require.NoError(t, err)
	refused := requestURL(t, http.MethodPut, url)
	require.Equal(t, http.StatusMethodNotAllowed, refused.StatusCode)
	require.Equal(t, "GET, POST", refused.Header.Get("Allow"))
	for _, other := range []string{strings.Replace(url, "/exec/", "/attach/", 1), url + "/", url[:len(url)-1], url[:strings.LastIndex(url, "/")]} {
		require.Equal(t, http.StatusNotFound, getURL(t, other).StatusCode, other)
	}
	require.Equal(t, http.StatusInternalServerError, getURL(t, url).StatusCode, "a request without upgrade is an error")
	require.Equal(t, http.StatusNotFound, getURL(t, url).StatusCode, "the failed request uses up the URL")
}

func TestURLsExpire(t *testing.T) {
	urls, _ := startURLServer(t, &streamtest.Runtime{}, streaming.URLOptions{Lifetime: time.Millisecond, MaxUnusedURLs: 1})
	url, err := urls.Exec(t.Context(), "c", []string{"out=x"}, cri.StreamOptions{Stdout: true})
	require.NoError(t, err)
	time.Sleep(2 * time.Millisecond)
	require.Equal(t, http.StatusNotFound, getURL(t, url).StatusCode)
}

func TestTooManyURLs(t *testing.T) {
	urls, _ := startURLServer(t, &streamtest.Runtime{}, streaming.URLOptions{Lifetime: time.Hour, MaxUnusedURLs: 3})
	ctx, o := t.Context(), cri.StreamOptions{Stdout: true}
	var last string
	for range 3 {
		url, err := urls.Attach(ctx, "c", o)
		require.NoError(t, err)
		require.NotEqual(t, last, url)
		last = url
	}
	_, err := urls.PortForward(ctx, "sandbox", nil)
	require.ErrorIs(t, err, cri.ErrTooMany)
	require.EqualError(t, err, "PortForward sandbox: too many requests: 3 URLs are unused")
	getURL(t, last)
	_, err = urls.PortForward(ctx, "sandbox", nil)
	require.NoError(t, err)
}

// Connections without a request are limited, and start no session.
func TestIdleConnectionsAreLimited(t *testing.T) {
	urls, _ := startURLServer(t, &streamtest.Runtime{}, streaming.URLOptions{MaxConns: 2})
	url, err := urls.Exec(t.Context(), "c", []string{"out=x"}, cri.StreamOptions{Stdout: true})
	require.NoError(t, err)
	address := strings.Split(url, "/")[2]
	conns := make([]net.Conn, 3)
	for i := range conns {
		conns[i], err = net.Dial("tcp", address)
		require.NoError(t, err)
		defer conns[i].Close()
	}
	require.NoError(t, conns[2].SetReadDeadline(time.Now().Add(limit)))
	_, err = conns[2].Read(make([]byte, 1))
	require.Error(t, err)
	require.False(t, errors.Is(err, context.DeadlineExceeded), "the third connection is closed")
	for _, c := range conns {
		require.NoError(t, c.Close())
	}
	for deadline := time.Now().Add(limit); ; time.Sleep(time.Millisecond) {
		var out bytes.Buffer
		_, err = streamtest.Command{URL: url, Protocol: "SPDY v4.channel.k8s.io", Stdout: &out}.Run(t.Context())
		if err == nil {
			require.Equal(t, "x", out.String())
			return
		}
		require.True(t, time.Now().Before(deadline), "%v", err)
	}
}

// The end of Serve closes all sessions and releases them.
func TestServeClosesSessionsAtItsEnd(t *testing.T) {
	runtime := &streamtest.Runtime{}
	urls, stop := startURLServer(t, runtime, streaming.URLOptions{})
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	url, err := urls.Exec(ctx, "c", []string{"out=begun", "hang"}, cri.StreamOptions{Stdout: true})
	require.NoError(t, err)
	unused, err := urls.Exec(ctx, "c", []string{"out=x"}, cri.StreamOptions{Stdout: true})
	require.NoError(t, err)
	begun, output := io.Pipe()
	told := make(chan string, 1)
	go func() {
		text, _ := streamtest.Command{URL: url, Protocol: "SPDY v4.channel.k8s.io", Stdout: output}.Run(ctx)
		told <- text
	}()
	_, err = io.ReadFull(begun, make([]byte, len("begun")))
	require.NoError(t, err)
	stop()
	require.Zero(t, runtime.Running.Load())
	require.Contains(t, <-told, streaming.ErrShutdown.Error())
	_, err = urls.Exec(ctx, "c", []string{"true"}, cri.StreamOptions{Stdout: true})
	require.ErrorIs(t, err, cri.ErrUnavailable)
	_, err = http.Get(unused) //nolint:bodyclose,noctx // there is none
	require.Error(t, err)
}

func TestURLServerMisuse(t *testing.T) {
	require.PanicsWithValue(t, "streaming.NewURLServer: argument sessions is nil: required, such as a *streaming.Server", func() { streaming.NewURLServer(nil, streaming.URLOptions{}) })
	sessions, err := streaming.New(streaming.Options{Runner: &streamtest.Runtime{}})
	require.NoError(t, err)
	urls := streaming.NewURLServer(sessions, streaming.URLOptions{})
	_, err = urls.Exec(t.Context(), "c", []string{"true"}, cri.StreamOptions{Stdout: true})
	require.EqualError(t, err, "Exec c: runtime unavailable: streaming: call Serve first")
	public, err := net.Listen("tcp", ":0")
	require.NoError(t, err)
	require.ErrorContains(t, urls.Serve(t.Context(), public), "must be on a loopback address")
	another, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.ErrorContains(t, urls.Serve(t.Context(), another), "make another URLServer")
	for _, l := range []net.Listener{public, another} {
		require.ErrorIs(t, l.Close(), net.ErrClosed)
	}
}
