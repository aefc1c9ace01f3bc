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

// Options say between whom a proxy stands. None may be left out but Client.
type Options struct {
	Target string          // https://HOST:PORT of the API server
	Roots  *x509.CertPool  // that its certificate is signed by
	Server tls.Certificate // of the proxy, for 127.0.0.1
	Client tls.Certificate // says who the proxy is; the zero value: nobody
}

// Proxy is a proxy that listens. Get one from [Start].
type Proxy struct {
	url     string
	reverse *httputil.ReverseProxy

	mu      sync.Mutex // guards what follows
	faults  []*Fault
	counts  map[Request]int // by verb, resource and subresource
	watches map[int]context.CancelFunc
	next    int // of watches
	line    line
}

// Start starts a proxy for one test.
func Start(t testing.TB, o Options) *Proxy {
	t.Helper()
	p, serve, err := listen(o)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); serve() }()
	t.Cleanup(func() {
		p.line.close()
		p.CutWatches()
		<-done
	})
	return p
}

// listen returns a proxy and what serves it until its line is closed.
func listen(o Options) (p *Proxy, serve func(), err error) {
	target, err := url.Parse(o.Target)
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
		TLSClientConfig: &tls.Config{RootCAs: o.Roots, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true,
		IdleConnTimeout: time.Minute, TLSHandshakeTimeout: 10 * time.Second,
	}
	if len(o.Client.Certificate) > 0 {
		transport.TLSClientConfig.Certificates = []tls.Certificate{o.Client}
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
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{o.Server}, MinVersion: tls.VersionTLS12},
	}
	return p, func() {
		_ = server.ServeTLS(&p.line, "", "") // it ends when the line is closed
		_ = server.Close()
		transport.CloseIdleConnections()
	}, nil
}

// URL returns the address of the proxy: https://127.0.0.1:PORT.
func (p *Proxy) URL() string { return p.url }

// Count returns how many requests there were of a verb, a resource and a subresource; what else is in the match does not count.
func (p *Proxy) Count(m Match) (n int) {
	m.Namespace, m.Name, m.Path = "", "", ""
	p.mu.Lock()
	defer p.mu.Unlock()
	for r, count := range p.counts {
		if m.Matches(r) {
			n += count
		}
	}
	return n
}

// Connections returns how many connections were made, also while they were refused or nothing came through.
func (p *Proxy) Connections() int { return p.line.connections() }

// ServeHTTP implements [http.Handler].
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	request := parse(r)
	if fault := p.find(request); fault != nil && !fault.suffer(r.Context(), w) {
		return
	}
	if request.Verb == "watch" {
		ctx, end := p.watch(r.Context())
		defer end()
		r = r.WithContext(ctx)
	}
	p.reverse.ServeHTTP(w, r)
}

// watch returns the context of a watch that can be cut.
func (p *Proxy) watch(ctx context.Context) (context.Context, func()) {
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

// CutWatches ends the watches that are open, in the middle of their streams, and returns how many there were.
func (p *Proxy) CutWatches() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, cancel := range p.watches {
		cancel()
	}
	return len(p.watches)
}

// SetAway has connections closed and new ones refused, or ends that.
func (p *Proxy) SetAway(away bool) { p.line.set(modeOf(away, refusing)) }

// SetBlackHole has nothing come through any more on the connections that there are and those that are made, or ends that for
// connections which are made from then on.
func (p *Proxy) SetBlackHole(hole bool) { p.line.set(modeOf(hole, swallowing)) }
