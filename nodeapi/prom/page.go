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

// Defaults of PageOptions.
const (
	defaultPageTimeout  = 30 * time.Second
	defaultPageInFlight = 5
)

// PageOptions configure [Page]. The zero value is right for production.
type PageOptions struct {
	// Timeout is the time limit for all collectors together; after it the response is 503. Zero means 30 s.
	Timeout time.Duration
	// InFlight is the number of concurrent requests, including requests whose collectors have not returned; further requests get
	// 503. Zero means 5.
	InFlight int
	// Error is called with the errors of a page: failed collectors and duplicate series. It is called from the goroutine of the
	// request and must not block. Nil ignores errors.
	Error func(error)
}

// Page returns an HTTP handler that serves the metrics of gatherer, as text or in another Prometheus format that the client
// prefers. Metrics whose collection fails are missing on the page.
func Page(gatherer prometheus.Gatherer, opts PageOptions) http.Handler {
	if opts.Timeout <= 0 {
		opts.Timeout = defaultPageTimeout
	}
	if opts.InFlight <= 0 {
		opts.InFlight = defaultPageInFlight
	}
	if opts.Error == nil {
		opts.Error = func(error) {}
	}
	return &page{from: gatherer, opts: opts, slots: make(chan struct{}, opts.InFlight)}
}

type page struct {
	from  prometheus.Gatherer
	opts  PageOptions
	slots chan struct{} // has an element for each request whose collectors have not returned
}

// gatherResult has the metrics of all collectors, and the joined errors of the failed collectors.
type gatherResult struct {
	families []*dto.MetricFamily
	err      error
}

// errGatherTimeout is the error if collectors do not return within PageOptions.Timeout.
var errGatherTimeout = errors.New("prom: a collector does not return; the page is served again when it has")

// ServeHTTP responds with the metrics. The response is 503 if PageOptions.InFlight requests are running, or if collecting takes
// longer than PageOptions.Timeout.
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

// gatherMetrics calls all collectors, and returns an error after PageOptions.Timeout. A request with a hung collector counts
// for PageOptions.InFlight until that collector returns.
func (p *page) gatherMetrics(ctx context.Context) (gatherResult, error) {
	ctx, cancel := context.WithTimeout(ctx, p.opts.Timeout)
	defer cancel()
	done := make(chan gatherResult, 1)
	go func() { // returns when the collectors do
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

// writePage writes the collected metrics in the format that the client prefers. It omits a metric that cannot be encoded.
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
