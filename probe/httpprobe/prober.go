// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package httpprobe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"

	"github.com/seed81659283/nodeagent/internal/probeconn"
	"github.com/seed81659283/nodeagent/probe"
)

// maxReuses is the number of consecutive probes on reused connections. The next probe opens a new connection, and so detects a
// server that accepts no new connections.
const maxReuses = 3

// Header is an HTTP request header.
type Header struct {
	Name, Value string
}

// Config is the request that a [Prober] sends. Host and Port are required.
type Config struct {
	Host   string   // name or IP address, IPv6 without brackets
	Port   int      // 1 to 65535
	Scheme string   // "http" or "https" in upper or lower case; empty means http
	Path   string   // with an optional query; empty means "/"
	Header []Header // in this order, names may repeat; "Host" sets the virtual host

	// Pool keeps connections open between probes. If it is nil, each probe opens a connection, and each prober needs memory for
	// a transport.
	Pool *Pool
	// FreshConnections opens a connection for each probe even with a Pool, as the kubelet does.
	FreshConnections bool
}

// Prober sends GET requests to one URL. A status of 200 to 299 is a success, 300 to 399 a warning, and any other status or no
// response a failure. It may be used concurrently.
//
// It follows at most ten redirects, to the same host name only. It uses no proxy and verifies no certificate. It uses HTTP/2 if
// the server offers it in the TLS handshake.
type Prober struct {
	request *http.Request
	pool    *Pool
	fresh   bool
	reuses  atomic.Int32 // how many of the next probes may reuse an open connection
}

var _ probe.Prober = (*Prober)(nil)

// New returns a prober for the URL in config. If a field of config is invalid, the error names the field and its value.
func New(config Config) (*Prober, error) {
	request, err := newRequest(config)
	if err != nil {
		return nil, err
	}
	p := &Prober{request: request, pool: config.Pool, fresh: config.FreshConnections || config.Pool == nil}
	if p.pool == nil {
		p.pool = NewPool(PoolOptions{})
	}
	return p, nil
}

// Probe sends the request. If the server has not responded before the deadline of ctx, the result is Failure. If ctx is
// canceled, it returns the cause as an error. It repeats a request whose reused connection fails.
func (p *Prober) Probe(ctx context.Context) (probe.Result, error) {
	reuse := p.reuses.Load() > 0
	if reuse {
		r, _, err := p.sendProbe(ctx, &p.pool.reusing)
		if err == nil && r.Outcome != probe.Failure {
			p.reuses.Add(-1)
			return r, nil
		}
		p.reuses.Store(0)
		if ctx.Err() != nil {
			return r, err
		}
	}
	r, reusable, err := p.sendProbe(ctx, &p.pool.fresh)
	// If the reused connection failed, the next probe opens a new connection too. Otherwise a server that never serves a second
	// request would get two requests per probe.
	if reusable && !p.fresh && !reuse && r.Outcome != probe.Failure {
		p.reuses.Store(maxReuses)
	}
	return r, err
}

// sendProbe sends the request and converts the response to a result. reusable reports whether a later probe may reuse the
// connection.
func (p *Prober) sendProbe(ctx context.Context, client *http.Client) (result probe.Result, reusable bool, err error) {
	res, err := client.Do(p.request.WithContext(ctx))
	if err != nil {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			// Users search for this text in the events of a pod.
			err = fmt.Errorf("%w (Client.Timeout exceeded while awaiting headers)", err)
		}
		if agent := probeconn.AgentError(ctx, err); agent != nil {
			return probe.Result{}, false, agent
		}
		return probe.NewResult(probe.Failure, err.Error()), false, nil
	}
	defer res.Body.Close()
	result, err = newResult(ctx, res)
	return result, res.ProtoMajor == 1 && res.ProtoMinor >= 1, err // an HTTP/2 connection would survive a hung request
}

// newResult converts a response to a probe result. A failure has no body: events have more readers than the container's
// responses.
func newResult(ctx context.Context, res *http.Response) (probe.Result, error) {
	status := res.StatusCode
	// Do not wait for the body of a failure. Below 200 there is no body: the connection may speak another protocol, and no
	// deadline would end the read.
	if status < http.StatusOK || status >= http.StatusBadRequest {
		return probe.NewResult(probe.Failure, fmt.Sprintf("HTTP probe failed with statuscode: %d", status)), nil
	}
	body, err := readBody(res.Body)
	switch {
	case err != nil && errors.Is(ctx.Err(), context.Canceled):
		return probe.Result{}, context.Cause(ctx)
	case err != nil:
		return probe.NewResult(probe.Failure, fmt.Sprintf("HTTP probe got statuscode %d and no whole body: %v", status, err)), nil
	case status >= http.StatusMultipleChoices:
		return probe.NewResult(probe.Warning, "Probe terminated redirects, Response body: "+body), nil
	}
	return probe.Result{Outcome: probe.Success, Output: body}, nil
}

// readBody returns the first [probe.MaxOutput] bytes of a response body. The body may be endless.
func readBody(r io.Reader) (string, error) {
	b, err := io.ReadAll(io.LimitReader(r, probe.MaxOutput))
	return string(b), err
}
