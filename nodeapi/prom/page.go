// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package prom

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/seed81659283/nodeagent/nodeapi/prom/internal/answer"
)

// What a page does where its options say nothing.
const (
	defaultPageTimeout  = 30 * time.Second
	defaultPageInFlight = 5
)

// PageOptions configures [Page]. The zero value is for production.
type PageOptions struct {
	// Timeout is how long all collectors together may take; an answer after that says that they did not return. Zero means
	// 30 s.
	Timeout time.Duration
	// InFlight is how many requests are answered at the same time, those counted whose collectors have not returned; beyond,
	// the answer is 503. Zero means 5.
	InFlight int
	// Error is told what a page lacks: collectors that failed, and series that were there already. It is called by the goroutine
	// of the request and must not block. Nil: nobody is told.
	Error func(error)
}

// Page returns a handler of a page of metrics, in the text format of Prometheus or the one that a client prefers. What a
// collector cannot collect, and a series that two of them have, is missing on the page; the others are there.
func Page(from prometheus.Gatherer, o PageOptions) http.Handler {
	if o.Timeout <= 0 {
		o.Timeout = defaultPageTimeout
	}
	if o.InFlight <= 0 {
		o.InFlight = defaultPageInFlight
	}
	if o.Error == nil {
		o.Error = func(error) {}
	}
	return &page{from: from, opts: o, slots: make(chan struct{}, o.InFlight)}
}

type page struct {
	from  prometheus.Gatherer
	opts  PageOptions
	slots chan struct{} // has an element for each request whose collectors have not returned
}

// gathered is what the collectors have come to.
type gatherResult struct {
	families []*dto.MetricFamily
	err      error
}

// errLate is told when collectors do not return in time.
var errGatherTimeout = errors.New("prom: a collector does not return; the page is served again when it has")

// ServeHTTP serves the page.
func (p *page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "405 method not allowed", http.StatusMethodNotAllowed)
		return
	}
	select {
	case p.slots <- struct{}{}:
	default:
		http.Error(w, "503 too many requests for this page at the same time: "+strconv.Itoa(p.opts.InFlight), http.StatusServiceUnavailable)
		return
	}
	result, err := p.gatherMetrics(r.Context())
	switch {
	case err != nil:
		p.opts.Error(err)
		http.Error(w, "503 "+err.Error(), http.StatusServiceUnavailable)
		return
	case result.err != nil:
		p.opts.Error(result.err)
		if len(result.families) == 0 {
			http.Error(w, "500 no metric could be collected", http.StatusInternalServerError)
			return
		}
	}
	p.writePage(w, r, result.families)
}

// gather waits for the collectors, but not for ever. The place of a request is free again when they have returned.
func (p *page) gatherMetrics(ctx context.Context) (gatherResult, error) {
	ctx, cancel := context.WithTimeout(ctx, p.opts.Timeout)
	defer cancel()
	done := make(chan gatherResult, 1)
	go func() { // ends with the collectors
		defer func() { <-p.slots }()
		families, err := p.from.Gather()
		done <- gatherResult{families, err}
	}()
	select {
	case result := <-done:
		return result, nil
	case <-ctx.Done():
		return gatherResult{}, errGatherTimeout
	}
}

// write writes the families. One that cannot be written is missing.
func (p *page) writePage(w http.ResponseWriter, r *http.Request, families []*dto.MetricFamily) {
	format := expfmt.Negotiate(r.Header)
	var body, one bytes.Buffer
	for _, family := range families {
		one.Reset()
		if err := expfmt.NewEncoder(&one, format).Encode(family); err != nil {
			p.opts.Error(err)
			continue
		}
		body.Write(one.Bytes())
	}
	answer.WritePage(w, r, string(format), body.Bytes())
}
