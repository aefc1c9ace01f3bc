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

// maxReuses is how many probes in a row may do without a new connection. A server that answers those it has and accepts
// no other one is found out by the next.
const maxReuses = 3

// Header is one header of a request.
type Header struct {
	Name, Value string
}

// Config says what a [Prober] asks for. Host and Port are required.
type Config struct {
	Host   string   // a name or an IP address, IPv6 without brackets
	Port   int      // 1 to 65535
	Scheme string   // "http" or "https" in upper or lower case; empty means http
	Path   string   // with its query, if any; empty means "/"
	Header []Header // in this order, a name as often as it is listed; "Host" names the virtual host

	// Pool keeps connections open between probes. Nil opens one for each probe, and costs a transport for each prober.
	Pool *Pool
	// FreshConnections opens a connection for each probe even with a pool, as the kubelet does.
	FreshConnections bool
}

// Prober sends GET requests to one URL: a status from 200 to 299 is a success, one from 300 to 399 a warning, any other
// a failure, and so is no answer at all. It may be used from several goroutines.
//
// Redirects are followed while they lead to the same host name, ten at most. No proxy is used and no certificate
// checked; HTTP/2 is spoken where a server offers it in a TLS handshake.
type Prober struct {
	request *http.Request
	pool    *Pool
	fresh   bool
	reuses  atomic.Int32 // how many of the next probes may use an open connection
}

var _ probe.Prober = (*Prober)(nil)

// New returns a prober of a URL. The error names the field that is wrong and its value.
func New(c Config) (*Prober, error) {
	request, err := newRequest(c)
	if err != nil {
		return nil, err
	}
	p := &Prober{request: request, pool: c.Pool, fresh: c.FreshConnections || c.Pool == nil}
	if p.pool == nil {
		p.pool = NewPool(PoolOptions{})
	}
	return p, nil
}

// Probe asks once. No answer when ctx reaches its deadline is a failure; when ctx is cancelled, the error is its cause.
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
	// After a connection that was no good the next probe has its own too: a server that never answers a second question
	// is not asked twice each time.
	if reusable && !p.fresh && !reuse && r.Outcome != probe.Failure {
		p.reuses.Store(maxReuses)
	}
	return r, err
}

// ask sends the request and judges the answer. It also reports whether the server speaks the one version of HTTP whose
// connections are reused: one of HTTP/2 outlives the request that hangs on it.
func (p *Prober) sendProbe(ctx context.Context, client *http.Client) (r probe.Result, reusable bool, err error) {
	res, err := client.Do(p.request.WithContext(ctx))
	if err != nil {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			// The words by which people look for this failure in the events of a pod.
			err = fmt.Errorf("%w (Client.Timeout exceeded while awaiting headers)", err)
		}
		if agent := probeconn.AgentError(ctx, err); agent != nil {
			return probe.Result{}, false, agent
		}
		return probe.NewResult(probe.Failure, err.Error()), false, nil
	}
	defer res.Body.Close()
	r, err = newResult(ctx, res)
	return r, res.ProtoMajor == 1 && res.ProtoMinor >= 1, err
}

// judge turns an answer into a result. The text of a failure never has the body, for events are read by more people than
// may talk to the container.
func newResult(ctx context.Context, res *http.Response) (probe.Result, error) {
	status := res.StatusCode
	// The body of a failure is not waited for. Below 200 there is none, but a connection that speaks another protocol now,
	// and no deadline ends reading it.
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

// readBody reads what a result keeps of a body. It stops at [probe.MaxOutput] without looking whether more follows, for
// a body may have no end.
func readBody(r io.Reader) (string, error) {
	b, err := io.ReadAll(io.LimitReader(r, probe.MaxOutput))
	return string(b), err
}
