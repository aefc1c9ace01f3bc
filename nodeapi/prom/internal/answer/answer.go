// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package answer sends pages of metrics.
package answer

import (
	"compress/gzip"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// packers are shared by all pages: each holds 800 KiB, and a page is packed in a millisecond.
var gzipWriters = sync.Pool{New: func() any { //nolint:gochecknoglobals // a pool has no state to be seen
	z, _ := gzip.NewWriterLevel(io.Discard, gzip.BestSpeed) // the level is one
	return z
}}

// Page answers with a page, compressed where the client takes that. The client may have gone; there is nobody to tell.
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
	defer z.Reset(io.Discard) // it does not keep the connection
	_, _ = z.Write(page)
	_ = z.Close()
}

// takesGzip reports whether a client takes compressed answers.
func acceptsGzip(accept string) bool {
	for part := range strings.SplitSeq(accept, ",") {
		name, weight, _ := strings.Cut(strings.TrimSpace(part), ";")
		if name == "gzip" && strings.ReplaceAll(weight, " ", "") != "q=0" {
			return true
		}
	}
	return false
}
