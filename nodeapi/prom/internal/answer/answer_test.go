// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package answer

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAcceptsGzip(t *testing.T) {
	for accept, want := range map[string]bool{
		"": false, "identity": false, "gzip": true, "br, gzip;q=0.5": true, "gzip;q=0": false, "gzip; q=0": false, "xgzip": false, "*": false,
	} {
		assert.Equal(t, want, acceptsGzip(accept), accept)
	}
}

// Concurrent pages arrive complete, compressed or not.
func TestWritePageConcurrently(t *testing.T) {
	var clients sync.WaitGroup
	for i := range 20 {
		clients.Go(func() {
			for range 20 {
				page := bytes.Repeat([]byte("up "+strconv.Itoa(i)+"\n"), 10_000)
				r, w := httptest.NewRequest("GET", "/", nil), httptest.NewRecorder()
				WritePage(w, r, "text/plain", page)
				assert.True(t, bytes.Equal(page, w.Body.Bytes()))
				assert.Equal(t, strconv.Itoa(len(page)), w.Header().Get("Content-Length"))

				r.Header.Set("Accept-Encoding", "gzip")
				w = httptest.NewRecorder()
				WritePage(w, r, "text/plain", page)
				assert.Equal(t, "text/plain", w.Header().Get("Content-Type"))
				assert.Equal(t, "gzip", w.Header().Get("Content-Encoding"))
				assert.Less(t, w.Body.Len(), len(page)/10)
				z, err := gzip.NewReader(w.Body)
				if !assert.NoError(t, err) {
					return
				}
				got, err := io.ReadAll(z)
				assert.NoError(t, err)
				assert.True(t, bytes.Equal(page, got))
			}
		})
	}
	clients.Wait()
}

func BenchmarkPage(b *testing.B) {
	page := bytes.Repeat([]byte(`container_memory_rss{container="main",id="/kubepods/pod1",namespace="default",pod="web"} 123456 1700000000123`+"\n"), 2000)
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("Accept-Encoding", "gzip")
	b.SetBytes(int64(len(page)))
	b.ReportAllocs()
	for b.Loop() {
		w := httptest.NewRecorder()
		WritePage(w, r, "text/plain", page)
		require.NotZero(b, w.Body.Len())
	}
}
