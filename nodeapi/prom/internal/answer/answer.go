// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package answer writes pages of metrics as HTTP responses.
package answer

import (
	"compress/gzip"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// gzipWriters is shared by all pages, because each writer needs 800 KiB, and compresses a page in a millisecond.
var gzipWriters = sync.Pool{New: func() any { //nolint:gochecknoglobals // a pool has no state to be seen
	z, _ := gzip.NewWriterLevel(io.Discard, gzip.BestSpeed) // the level is valid
	return z
}}

// WritePage writes page as the response, compressed if the client accepts gzip. It ignores write errors, because the client
// has then disconnected.
func WritePage(w http.ResponseWriter, r *http.Request, contentType string, page []byte) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	if !acceptsGzip(r.Header.Get("Accept-Encoding")) {
		h.Set("Content-Length", strconv.Itoa(len(page)))
		_, _ = w.Write(page)
		return
	}
	h.Set("Content-Encoding", "gzip")
	z := gzipWriters.Get().(*gzip.Writer)
	defer gzipWriters.Put(z)
	z.Reset(w)
	defer z.Reset(io.Discard) // the pool must not keep the connection
	_, _ = z.Write(page)
	_ = z.Close()
}

// acceptsGzip reports whether an Accept-Encoding header accepts gzip.
func acceptsGzip(accept string) bool {
	for part := range strings.SplitSeq(accept, ",") {
		name, weight, _ := strings.Cut(strings.TrimSpace(part), ";")
		if name == "gzip" && strings.ReplaceAll(weight, " ", "") != "q=0" {
			return true
		}
	}
	return false
}
