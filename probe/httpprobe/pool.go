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

	// keptIdle is long enough that a connection is still there at the next probe of the usual period of 10 s, and the
	// one after it.
	idleTimeout = 30 * time.Second

	// strayIdle ends a connection of HTTP/2 whose handshake took longer than its probe: net/http keeps it, although it
	// is told to keep none, and uses it for nothing.
	freshIdleTimeout = time.Second

	// handshakeLimit holds even where a probe has more time, as for the kubelet.
	handshakeTimeout = 10 * time.Second

	// maxHeader bounds the header of an answer, which the agent keeps in memory until the timeout if its body does not end: 16 KiB
	// of short lines are 220 KiB in memory. It is what servers commonly take of a request. Go's own limit is 10 MiB.
	maxHeader = 16 << 10

	// maxUnread bounds what a server of HTTP/2 may send of a body before it is read. Go's own limit is 4 MiB.
	maxUnread = 16 << 10

	// bufferSize suits the small requests and answers of probes; an idle connection holds two of them.
	bufferSize = 1 << 10
)

// PoolOptions configures a [Pool].
type PoolOptions struct {
	MaxIdle      int  // connections kept open between probes, and as many over TLS; zero means 256
	DisableHTTP2 bool // speak HTTP/1.1 with every server, as the kubelet does where DISABLE_HTTP2 is in its environment
}

// Pool is what the probers of a node share: the connections that stay open between probes, for half a minute at most,
// and their number. Between probes it has no goroutine but those of connections over TLS. It may be used from several
// goroutines.
type Pool struct {
	reusing http.Client // keeps connections open, speaks HTTP/1 only
	fresh   http.Client // closes each connection after its answer, as the kubelet
}

// NewPool returns a pool without connections.
func NewPool(o PoolOptions) *Pool {
	fresh := newTransport()
	fresh.DisableKeepAlives = true
	fresh.IdleConnTimeout = freshIdleTimeout
	fresh.Protocols.SetHTTP2(!o.DisableHTTP2)

	kept := newTransport()
	kept.MaxIdleConns = cmp.Or(o.MaxIdle, defaultMaxIdle)
	kept.MaxIdleConnsPerHost = maxIdlePerHost
	kept.IdleConnTimeout = idleTimeout

	return &Pool{
		reusing: http.Client{Transport: schemeTransport{&keepAliveTransport{max: kept.MaxIdleConns}, kept}, CheckRedirect: redirect.SameHost},
		fresh:   http.Client{Transport: fresh, CheckRedirect: redirect.SameHost},
	}
}

// Close closes the connections that no probe uses, and their goroutines end soon after. It belongs after the last probe:
// one that is under way or comes later leaves its connection open for half a minute.
func (p *Pool) Close() {
	p.reusing.CloseIdleConnections()
	p.fresh.CloseIdleConnections()
}

// newTransport returns a transport for HTTP/1 that goes straight to the container: no proxy, no compression, and no look
// at certificates, for they are rarely made for the address of a pod.
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

// route asks by the scheme of a URL, over the connections that each side keeps.
type schemeTransport struct {
	plain  *keepAliveTransport
	secure *http.Transport
}

// RoundTrip asks one of the two.
func (r schemeTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme == "http" {
		return r.plain.RoundTrip(req)
	}
	return r.secure.RoundTrip(req)
}

// CloseIdleConnections closes those of both.
func (r schemeTransport) CloseIdleConnections() {
	r.plain.CloseIdleConnections()
	r.secure.CloseIdleConnections()
}
