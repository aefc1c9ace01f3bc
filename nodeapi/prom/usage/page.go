// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"compress/gzip"
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
)

// Page is a page of metrics. Use [Resource] or [Cadvisor].
type Page struct {
	turn  chan struct{} // held by whoever makes the page
	write func(ctx context.Context, t *text)
	size  int // of the last one; whoever has the turn uses it
}

func newPage(write func(ctx context.Context, t *text)) *Page {
	return &Page{turn: make(chan struct{}, 1), write: write}
}

// errNoSource says what a page is missing.
var errNoSource = errors.New("it has no Source, such as a summary.Collector")

// ServeHTTP measures and answers with the page, compressed where the client takes that.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	}
	select {
	case p.turn <- struct{}{}:
	case <-r.Context().Done():
		http.Error(w, "another scrape takes too long", http.StatusServiceUnavailable)
		return
	}
	t := &text{buf: make([]byte, 0, p.size+p.size/8+1024)}
	func() {
		defer func() { <-p.turn }()
		p.write(r.Context(), t)
		p.size = len(t.buf)
	}()
	h := w.Header()
	h.Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8; escaping=underscores")
	if !takesGzip(r.Header.Get("Accept-Encoding")) {
		h.Set("Content-Length", strconv.Itoa(len(t.buf)))
		_, _ = w.Write(t.buf) // nobody to tell
		return
	}
	h.Set("Content-Encoding", "gzip")
	z, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // the level is one
	_, _ = z.Write(t.buf)
	_ = z.Close()
}

// takesGzip reports whether a client takes compressed answers.
func takesGzip(accept string) bool {
	for part := range strings.SplitSeq(accept, ",") {
		name, weight, _ := strings.Cut(strings.TrimSpace(part), ";")
		if name == "gzip" && strings.ReplaceAll(weight, " ", "") != "q=0" {
			return true
		}
	}
	return false
}
