// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
)

// maxReuses is how many probes in a row may do without a new connection. A server that answers those it has and accepts
// no other one is found out by the next.
const maxReuses = 3

// Header is one header of a request.
type Header struct {
	Name, Value string
}

// HTTPConfig says what an [HTTP] asks for. Host and Port are required.
type HTTPConfig struct {
	Host   string   // a name or an IP address, IPv6 without brackets
	Port   int      // 1 to 65535
	Scheme string   // "http" or "https" in upper or lower case; empty means http
	Path   string   // with its query, if any; empty means "/"
	Header []Header // in this order, a name as often as it is listed; "Host" names the virtual host

	// Pool keeps connections open between probes. Nil opens one for each probe, and costs a transport for each prober.
	Pool *Pool

	// FreshConnections opens a connection for each probe even with a pool, as the kubelet does.
	FreshConnections bool

	// DiscardBrokenBody makes a body that stalls or breaks off an error, which counts for nothing, as for the kubelet.
	// Otherwise it is a failure.
	DiscardBrokenBody bool
}

// HTTP asks by a GET request: a status from 200 to 299 is a success, one from 300 to 399 a warning, any other a failure,
// and so is no answer at all.
//
// Redirects are followed while they lead to the same host name, ten at most. No proxy is used and no certificate
// checked; HTTP/2 is spoken where a server offers it in a TLS handshake.
//
// Differs from the kubelet:
//   - A body that stalls or breaks off is a failure (DiscardBrokenBody), and after a status that is a failure the body
//     is not waited for.
//   - With a Pool, up to three probes in a row may use a connection that is open already, if the server speaks HTTP/1.1.
//     Such a connection is only believed when all is well: anything else is asked again over a new one while there is
//     time. So a failure is what the kubelet would have seen, but for a connection that hangs until the deadline, once;
//     and a server that accepts no more connections is found out up to three probes later. An idle connection
//     may keep a server busy that has a single worker (FreshConnections).
//   - A cancelled probe, or an agent out of file descriptors, is an error and no failure.
//   - The header of an answer may have 256 KiB, not 10 MiB.
//   - A scheme, host, port, header or path that can never work is refused by [NewHTTP], and not a failure each time.
//   - The field "protocol" of the API, cleartext HTTP/2, is not there; it is off in the kubelet too.
type HTTP struct {
	request           *http.Request
	pool              *Pool
	fresh             bool
	discardBrokenBody bool
	reuses            atomic.Int32 // how many of the next probes may use an open connection
}

var _ Prober = (*HTTP)(nil)

// NewHTTP returns a prober of a URL. The error names the field that is wrong and its value.
func NewHTTP(c HTTPConfig) (*HTTP, error) {
	request, err := newRequest(c)
	if err != nil {
		return nil, err
	}
	h := &HTTP{
		request:           request,
		pool:              c.Pool,
		fresh:             c.FreshConnections || c.Pool == nil,
		discardBrokenBody: c.DiscardBrokenBody,
	}
	if h.pool == nil {
		h.pool = NewPool(PoolOptions{})
	}
	return h, nil
}

// Probe asks once. No answer when ctx reaches its deadline is a failure; when ctx is cancelled, the error is its cause.
func (h *HTTP) Probe(ctx context.Context) (Result, error) {
	again := h.reuses.Load() > 0
	if again {
		r, _, err := h.ask(ctx, &h.pool.kept)
		if err == nil && r.Outcome != Failure {
			h.reuses.Add(-1)
			return r, nil
		}
		h.reuses.Store(0)
		if ctx.Err() != nil {
			return r, err
		}
	}
	r, reusable, err := h.ask(ctx, &h.pool.fresh)
	// After a connection that was no good the next probe has its own too: a server that never answers a second question
	// is not asked twice each time.
	if reusable && !h.fresh && !again && r.Outcome != Failure {
		h.reuses.Store(maxReuses)
	}
	return r, err
}

// ask sends the request and judges the answer. It also reports whether the server speaks the one version of HTTP whose
// connections are reused: one of HTTP/2 outlives the request that hangs on it.
func (h *HTTP) ask(ctx context.Context, client *http.Client) (r Result, reusable bool, err error) {
	res, err := client.Do(h.request.WithContext(ctx))
	if err != nil {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			// The words by which people look for this failure in the events of a pod.
			err = fmt.Errorf("%w (Client.Timeout exceeded while awaiting headers)", err)
		}
		r, err = unanswered(ctx, err)
		return r, false, err
	}
	defer res.Body.Close()
	r, err = h.judge(ctx, res)
	return r, res.ProtoMajor == 1 && res.ProtoMinor >= 1, err
}

// judge turns an answer into a result. The text of a failure never has the body, for events are read by more people than
// may talk to the container.
func (h *HTTP) judge(ctx context.Context, res *http.Response) (Result, error) {
	status := res.StatusCode
	bad := status < http.StatusOK || status >= http.StatusBadRequest
	failed := Result{Outcome: Failure, Output: fmt.Sprintf("HTTP probe failed with statuscode: %d", status)}
	// Below 200 there is no body but a connection that speaks another protocol now, and no deadline ends reading it.
	if bad && (!h.discardBrokenBody || status < http.StatusOK) {
		return failed, nil
	}
	body, err := readOutput(res.Body)
	switch {
	case err != nil && errors.Is(ctx.Err(), context.Canceled):
		return Result{}, context.Cause(ctx)
	case err != nil && h.discardBrokenBody:
		return Result{}, fmt.Errorf("read body: %w", err)
	case err != nil:
		return result(Failure, fmt.Sprintf("HTTP probe got statuscode %d and no whole body: %v", status, err)), nil
	case bad:
		return failed, nil
	case status >= http.StatusMultipleChoices:
		return result(Warning, "Probe terminated redirects, Response body: "+body), nil
	}
	return Result{Outcome: Success, Output: body}, nil
}
