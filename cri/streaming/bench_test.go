// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package streaming_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/streaming"
	"github.com/seed81659283/nodeagent/internal/streaming/streamtest"
)

// benchmarkModes runs a benchmark with a client that connects to the runtime directly, and through a node.
func benchmarkModes(b *testing.B, f func(b *testing.B, r *testNode)) {
	for _, way := range []string{"floor", "proxied", "spoken"} {
		b.Run(way, func(b *testing.B) {
			mode := "runner"
			if way == "proxied" {
				mode = "streamer"
			}
			r := newTestNode(b, mode, streaming.Options{})
			if way == "floor" { // a server that redirects the client to the URL of the runtime
				s := streamtest.Serve(handler{r.Server})
				b.Cleanup(s.Close)
				r.http.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { redirect(w, req, s) })
			}
			f(b, r)
		})
	}
}

// redirect returns the session URL to clients that connect directly.
func redirect(w http.ResponseWriter, req *http.Request, s *streamtest.Streamer) {
	kind, id, _ := strings.Cut(strings.TrimPrefix(req.URL.Path, "/"), "/")
	var url string
	var err error
	if kind == "portforward" {
		url, err = s.PortForward(req.Context(), id, nil)
	} else {
		url, err = s.Exec(req.Context(), id, req.URL.Query()["command"], cri.StreamOptions{Stdout: true})
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = io.WriteString(w, url)
}

// locate returns the URL to which a client connects.
func (r *testNode) locate(b *testing.B, url string) string {
	if !strings.HasSuffix(b.Name(), "floor") {
		return url
	}
	rec := httptest.NewRecorder()
	req := httptest.NewRequest(http.MethodGet, url, nil)
	r.http.Config.Handler.ServeHTTP(rec, req)
	return rec.Body.String()
}

// Each exec runs a command that exits at once.
func BenchmarkExec(b *testing.B) {
	benchmarkModes(b, func(b *testing.B, r *testNode) {
		for b.Loop() {
			c := streamtest.Command{Protocol: "SPDY v4.channel.k8s.io", Stdout: io.Discard}
			c.URL = r.locate(b, r.sessionURL("exec", "c", c, "exit=0"))
			_, err := c.Run(b.Context())
			require.NoError(b, err)
		}
	})
}

// Bytes from a port.
func BenchmarkForward(b *testing.B) {
	const size = 64 << 10
	benchmarkModes(b, func(b *testing.B, r *testNode) {
		r.runtime.Ports = map[int32]func(io.ReadWriteCloser) error{80: func(c io.ReadWriteCloser) error {
			buf := make([]byte, size)
			for {
				if _, err := c.Write(buf); err != nil {
					return nil
				}
			}
		}}
		f, err := streamtest.Forward(b.Context(), r.locate(b, r.http.URL+"/portforward/s"), false)
		require.NoError(b, err)
		defer f.Close()
		c := openConnection(b, f, 80)
		b.SetBytes(size)
		buf := make([]byte, size)
		for b.Loop() {
			_, err := io.ReadFull(c, buf)
			require.NoError(b, err)
		}
	})
}
