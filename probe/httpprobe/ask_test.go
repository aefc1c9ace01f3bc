// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package httpprobe_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/probe"
	"github.com/seed81659283/nodeagent/probe/httpprobe"
)

// soon is a timeout for probes that must time out, and long one for probes that must not.
const (
	soon = 150 * time.Millisecond
	long = time.Minute

	// later is a timeout for probes that must time out, but only after all steps that do not hang.
	later = 3 * time.Second
)

// configFor returns the configuration of a probe of a test server.
func configFor(t testing.TB, server *httptest.Server, path string) httpprobe.Config {
	t.Helper()
	u, err := url.Parse(server.URL)
	require.NoError(t, err)
	port, err := strconv.Atoi(u.Port())
	require.NoError(t, err)
	return httpprobe.Config{Scheme: u.Scheme, Host: u.Hostname(), Port: port, Path: path}
}

// newPool returns a pool that is closed when the test ends.
func newPool(t testing.TB) *httpprobe.Pool {
	t.Helper()
	p := httpprobe.NewPool(httpprobe.PoolOptions{})
	t.Cleanup(p.Close)
	return p
}

// probeOnce calls a prober with a timeout.
func probeOnce(t testing.TB, p probe.Prober, timeout time.Duration) (probe.Result, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	return p.Probe(ctx)
}

// probeHTTP probes once by HTTP and fails the test on an error.
func probeHTTP(t testing.TB, c httpprobe.Config, timeout time.Duration) probe.Result {
	t.Helper()
	p, err := httpprobe.New(c)
	require.NoError(t, err)
	r, err := probeOnce(t, p, timeout)
	require.NoError(t, err)
	return r
}

// startServer starts a server with a handler.
func startServer(t testing.TB, answer http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(answer)
	t.Cleanup(s.Close)
	return s
}
