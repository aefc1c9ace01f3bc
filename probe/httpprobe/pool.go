// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package httpprobe

import (
	"cmp"
	"crypto/tls"
	"net/http"
	"time"

	"github.com/seed81659283/nodeagent/internal/probeconn"
	"github.com/seed81659283/nodeagent/internal/redirect"
)

const (
	defaultMaxIdle = 256
	maxIdlePerHost = 4 // over TLS

	// idleTimeout is long enough for the next two probes with the default period of 10 s.
	idleTimeout = 30 * time.Second

	// freshIdleTimeout closes an HTTP/2 connection whose handshake took longer than its probe: net/http keeps it although
	// keep-alives are disabled, and never uses it.
	freshIdleTimeout = time.Second

	// handshakeTimeout limits a TLS handshake even if the probe has more time, as in the kubelet.
	handshakeTimeout = 10 * time.Second

	// maxHeader limits the header of a response to 16 KiB, about 220 KiB in memory for short lines. Otherwise a response without
	// end would fill the memory of the agent until the timeout. Go's default is 10 MiB.
	maxHeader = 16 << 10

	// maxUnread limits the body bytes that an HTTP/2 server may send before they are read. Go's default is 4 MiB.
	maxUnread = 16 << 10

	// bufferSize suits the small requests and responses of probes. An idle TLS connection holds two buffers.
	bufferSize = 1 << 10
)

// PoolOptions configure a [Pool].
type PoolOptions struct {
	MaxIdle      int  // idle connections without TLS, and as many with TLS; zero means 256
	DisableHTTP2 bool // use HTTP/1.1 for all servers, like the environment variable DISABLE_HTTP2 of the kubelet
}

// Pool holds the idle connections that all HTTP probers of a node share, for at most half a minute each. Between probes it has
// goroutines only for TLS connections. It may be used concurrently.
type Pool struct {
	reusing http.Client // keeps connections open; HTTP/1 only
	fresh   http.Client // closes each connection after its response, as the kubelet does
}

// NewPool returns a pool without connections.
func NewPool(opts PoolOptions) *Pool {
	fresh := newTransport()
	fresh.DisableKeepAlives = true
	fresh.IdleConnTimeout = freshIdleTimeout
	fresh.Protocols.SetHTTP2(!opts.DisableHTTP2)

	kept := newTransport()
	kept.MaxIdleConns = cmp.Or(opts.MaxIdle, defaultMaxIdle)
	kept.MaxIdleConnsPerHost = maxIdlePerHost
	kept.IdleConnTimeout = idleTimeout

	return &Pool{
		reusing: http.Client{Transport: schemeTransport{&keepAliveTransport{max: kept.MaxIdleConns}, kept}, CheckRedirect: redirect.SameHost},
		fresh:   http.Client{Transport: fresh, CheckRedirect: redirect.SameHost},
	}
}

// Close closes the idle connections. Call it after the last probe, because a later probe may leave a connection open for
// half a minute.
func (p *Pool) Close() {
	p.reusing.CloseIdleConnections()
	p.fresh.CloseIdleConnections()
}

// newTransport returns an HTTP/1 transport without proxy, compression and verification of certificates, which rarely contain the
// IP address of a pod.
func newTransport() *http.Transport {
	t := &http.Transport{
		DialContext:            probeconn.Dial,
		DisableCompression:     true,
		TLSClientConfig:        &tls.Config{InsecureSkipVerify: true},
		TLSHandshakeTimeout:    handshakeTimeout,
		MaxResponseHeaderBytes: maxHeader,
		ReadBufferSize:         bufferSize,
		WriteBufferSize:        bufferSize,
		Protocols:              new(http.Protocols),
		HTTP2:                  &http.HTTP2Config{MaxReceiveBufferPerStream: maxUnread, MaxReceiveBufferPerConnection: 4 * maxUnread},
	}
	t.Protocols.SetHTTP1(true)
	return t
}

// schemeTransport sends http requests on plain and https requests on secure.
type schemeTransport struct {
	plain  *keepAliveTransport
	secure *http.Transport
}

// RoundTrip sends a request with the transport for the scheme of its URL, which is http or https.
func (r schemeTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme == "http" {
		return r.plain.RoundTrip(req)
	}
	return r.secure.RoundTrip(req)
}

// CloseIdleConnections closes the idle connections of both transports.
func (r schemeTransport) CloseIdleConnections() {
	r.plain.CloseIdleConnections()
	r.secure.CloseIdleConnections()
}
