// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package faultproxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"
	"time"
)

// Options are the API server and the certificates of a [Proxy]. All fields but Client are required.
type Options struct {
	Target string          // https://HOST:PORT of the API server
	Roots  *x509.CertPool  // verifies the certificate of the API server
	Server tls.Certificate // certificate of the proxy, for 127.0.0.1
	Client tls.Certificate // client certificate for the API server; zero: anonymous
}

// Proxy is a running proxy. [Start] creates it.
type Proxy struct {
	url     string
	reverse *httputil.ReverseProxy

	mu      sync.Mutex // guards the fields below
	faults  []*Fault
	counts  map[Request]int // by verb, resource and subresource
	watches map[int]context.CancelFunc
	next    int // ID of the last watch
	line    faultListener
}

// Start starts a proxy with opts. It runs until the test ends.
func Start(t testing.TB, opts Options) *Proxy {
	t.Helper()
	p, serve, err := newProxy(opts)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); serve() }()
	t.Cleanup(func() {
		p.line.closeAll()
		p.CutWatches()
		<-done
	})
	return p
}

// newProxy returns a proxy that listens on a loopback port. The caller must call serve, which blocks and serves requests
// until the listener is closed.
func newProxy(opts Options) (p *Proxy, serve func(), err error) {
	target, err := url.Parse(opts.Target)
	if err == nil && (target.Scheme != "https" || target.Host == "") {
		err = errors.New("faultproxy: Options.Target must be https://HOST:PORT")
	}
	if err != nil {
		return nil, nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: opts.Roots, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true,
		IdleConnTimeout: time.Minute, TLSHandshakeTimeout: 10 * time.Second,
	}
	if len(opts.Client.Certificate) > 0 {
		transport.TLSClientConfig.Certificates = []tls.Certificate{opts.Client}
	}
	silent := slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	p = &Proxy{url: "https://" + listener.Addr().String(), counts: map[Request]int{}, watches: map[int]context.CancelFunc{}}
	p.line.listener = listener
	p.reverse = &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1, ErrorLog: silent,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Header.Del("Authorization")
		},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	server := &http.Server{
		Handler: p, ErrorLog: silent, ReadHeaderTimeout: time.Minute,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{opts.Server}, MinVersion: tls.VersionTLS12},
	}
	return p, func() {
		_ = server.ServeTLS(&p.line, "", "") // it returns when the listener is closed
		_ = server.Close()
		transport.CloseIdleConnections()
	}, nil
}

// URL returns the base URL of the proxy: https://127.0.0.1:PORT.
func (p *Proxy) URL() string { return p.url }

// Count returns the number of requests so far whose verb, resource and subresource match. It ignores the namespace, name and
// path of match.
func (p *Proxy) Count(match Match) (n int) {
	match.Namespace, match.Name, match.Path = "", "", ""
	p.mu.Lock()
	defer p.mu.Unlock()
	for r, count := range p.counts {
		if match.Matches(r) {
			n += count
		}
	}
	return n
}

// Connections returns the number of connections that clients have opened so far. Refused connections count too.
func (p *Proxy) Connections() int { return p.line.countConnections() }

// ServeHTTP implements [http.Handler].
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	request := parseRequest(r)
	if fault := p.takeFault(request); fault != nil && !fault.apply(r.Context(), w) {
		return
	}
	if request.Verb == "watch" {
		ctx, end := p.trackWatch(r.Context())
		defer end()
		r = r.WithContext(ctx)
	}
	p.reverse.ServeHTTP(w, r)
}

// trackWatch registers a watch request. It returns a context for the request, which [Proxy.CutWatches] cancels. The caller
// calls the returned function when the watch ends.
func (p *Proxy) trackWatch(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next++
	id := p.next
	p.watches[id] = cancel
	return ctx, func() {
		cancel()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.watches, id)
	}
}

// CutWatches aborts the responses of all open watches, and returns the number of these watches.
func (p *Proxy) CutWatches() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, cancel := range p.watches {
		cancel()
	}
	return len(p.watches)
}

// SetUnavailable simulates an API server that is down. With true, the proxy closes all connections and refuses new ones.
// With false, it accepts connections again.
func (p *Proxy) SetUnavailable(unavailable bool) { p.line.setMode(modeIf(unavailable, refusing)) }

// SetBlackHole simulates a network that loses all packets. If enabled, the proxy drops all data, but closes no connection.
// If disabled again, it forwards data on new connections; connections that have lost data stay silent.
func (p *Proxy) SetBlackHole(enabled bool) { p.line.setMode(modeIf(enabled, swallowing)) }
