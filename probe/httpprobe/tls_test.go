// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package httpprobe_test

import (
	"context"
	"crypto/tls"
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

func TestHTTPProbesTLS(t *testing.T) {
	var protocol, name string
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		protocol, name = r.Proto, r.TLS.ServerName
	}))
	server.EnableHTTP2 = true
	server.StartTLS() // with a self-signed certificate
	t.Cleanup(server.Close)

	c := configFor(t, server, "/")
	c.Host, c.Scheme = "localhost", "HTTPS"
	c.Header = []httpprobe.Header{{"Host", "www.example.com"}}
	require.Equal(t, probe.Success, probeHTTP(t, c, long).Outcome)
	assert.Equal(t, "HTTP/2.0", protocol, "the server negotiates HTTP/2")
	assert.Equal(t, "localhost", name, "the server name is the host of the URL, not of the header")

	c.Pool = httpprobe.NewPool(httpprobe.PoolOptions{DisableHTTP2: true})
	t.Cleanup(c.Pool.Close)
	require.Equal(t, probe.Success, probeHTTP(t, c, long).Outcome)
	assert.Equal(t, "HTTP/1.1", protocol)
}

func TestHTTPSFailsWithoutTLSServer(t *testing.T) {
	server := startServer(t, func(http.ResponseWriter, *http.Request) {})
	c := configFor(t, server, "/")
	c.Scheme = "https"
	got := probeHTTP(t, c, long)
	assert.Equal(t, probe.Failure, got.Outcome)
	assert.Contains(t, got.Output, "server gave HTTP response to HTTPS client")
}

// Probes send no client certificate, even to a server that requests one.
func TestHTTPSendsNoClientCertificate(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	server.Config.ErrorLog = nil
	server.StartTLS()
	t.Cleanup(server.Close)
	got := probeHTTP(t, configFor(t, server, "/"), long)
	assert.Equal(t, probe.Failure, got.Outcome)
	assert.Contains(t, got.Output, "certificate required")
}

// A probe may end before its TLS handshake. net/http keeps the connection for HTTP/2; the prober closes it.
func TestHTTPClosesConnectionAfterLateHandshake(t *testing.T) {
	var open atomic.Int32
	shaking, goOn := make(chan struct{}), make(chan struct{})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.Listener = countingListener{server.Listener, &open}
	server.EnableHTTP2 = true
	server.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		shaking <- struct{}{}
		<-goOn
		return nil, nil
	}}
	server.StartTLS()
	t.Cleanup(server.Close)
	p, err := httpprobe.New(configFor(t, server, "/"))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-shaking
		cancel()
	}()
	_, err = p.Probe(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.EqualValues(t, 1, open.Load())
	close(goOn)
	require.Eventually(t, func() bool { return open.Load() == 0 }, long, time.Millisecond)
}
