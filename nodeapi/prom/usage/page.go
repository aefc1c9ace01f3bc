// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"net/http"

	"github.com/seed81659283/nodeagent/nodeapi/prom/internal/answer"
)

// Page is an HTTP handler that serves a page of metrics. Create it with [Resource] or [Cadvisor].
type Page struct {
	lock  chan struct{} // held while a request writes the page
	write func(ctx context.Context, t *text)
	size  int // size of the last page, guarded by lock
}

func newPage(write func(ctx context.Context, t *text)) *Page {
	return &Page{lock: make(chan struct{}, 1), write: write}
}

// ServeHTTP responds with the page, compressed if the client accepts gzip. It measures the values first, unless the last
// measurement is recent enough. Concurrent requests wait for each other.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	}
	select {
	case p.lock <- struct{}{}:
	case <-r.Context().Done():
		http.Error(w, "another scrape takes too long", http.StatusServiceUnavailable)
		return
	}
	t := &text{buf: make([]byte, 0, p.size+p.size/8+1024)}
	func() {
		defer func() { <-p.lock }()
		p.write(r.Context(), t)
		p.size = len(t.buf)
	}()
	answer.WritePage(w, r, "text/plain; version=0.0.4; charset=utf-8; escaping=underscores", t.buf)
}
