// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package httpprobe_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/costtest"
	"github.com/seed81659283/nodeagent/probe"
	"github.com/seed81659283/nodeagent/probe/httpprobe"
)

// manyHeaders returns headers of a few bytes each, size bytes in all.
func manyHeaders(size int) string {
	var b strings.Builder
	for i := 0; b.Len() < size; i++ {
		fmt.Fprintf(&b, "%x:\r\n", i)
	}
	return b.String()
}

// serveBytes starts a server that sends the given bytes for each request, and returns its port. With stays, connections can
// be reused.
func serveBytes(t *testing.T, answer []byte, stays bool) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var served sync.WaitGroup
	t.Cleanup(func() { l.Close(); served.Wait() })
	served.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			served.Go(func() {
				defer conn.Close()
				if _, err := conn.Read(make([]byte, 1<<10)); err != nil {
					return
				}
				if _, err := conn.Write(answer); err == nil && stays {
					_, _ = io.Copy(io.Discard, conn)
				}
			})
		}
	})
	return l.Addr().(*net.TCPAddr).Port
}

// A probe on a reused or new connection needs bounded memory for any response.
func TestMemoryIsBoundedForAnyResponse(t *testing.T) {
	const size = 15 << 20
	long := strings.Repeat("x", size)
	for name, answer := range map[string]string{
		"header":             "HTTP/1.1 200 OK\r\nA: " + long + "\r\n\r\n",
		"many headers":       "HTTP/1.1 200 OK\r\n" + manyHeaders(size) + "\r\n",
		"reason":             "HTTP/1.1 500 " + long + "\r\n\r\n",
		"body":               "HTTP/1.1 200 OK\r\nContent-Length: 15728640\r\n\r\n" + long,
		"body of a failure":  "HTTP/1.1 500 Oops\r\nContent-Length: 15728640\r\n\r\n" + long,
		"chunk":              "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nf00000\r\n" + long,
		"chunk extension":    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;" + long,
		"trailer":            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: A\r\n\r\n0\r\nA: " + long + "\r\n\r\n",
		"many trailers":      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + manyHeaders(size) + "\r\n",
		"redirect":           "HTTP/1.1 302 Found\r\nLocation: /" + strings.Repeat("y", 15<<10) + "\r\n\r\n",
		"redirect elsewhere": "HTTP/1.1 302 Found\r\nLocation: http://elsewhere/" + strings.Repeat("y", 15<<10) + "\r\nContent-Length: 15728640\r\n\r\n" + long,
		"information":        strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: "+strings.Repeat("z", 1000)+"\r\n\r\n", size/1000),
		"no HTTP":            long,
		"lines":              strings.Repeat("\r\n", size/2),
	} {
		bytes := []byte(answer)
		server := startOddServer(t, "127.0.0.1:0", func(conn net.Conn, _ int) bool {
			_, err := conn.Write(bytes)
			return err == nil
		})
		for kind, port := range map[string]int{"kept": server.port, "fresh": serveBytes(t, bytes, false)} {
			t.Run(name+" "+kind, func(t *testing.T) {
				p, err := httpprobe.New(httpprobe.Config{Host: "127.0.0.1", Port: port, Pool: newPool(t)})
				require.NoError(t, err)
				costtest.Check(t, costtest.Limit{Bytes: 3 << 20, Time: time.Minute}, func() {
					for range 2 { // the second probe reuses the connection if the server keeps it
						result, err := probeOnce(t, p, time.Second)
						require.NoError(t, err)
						assert.LessOrEqual(t, len(result.Output), probe.MaxOutput)
					}
				})
			})
		}
	}
}

// An HTTP/2 server cannot make the agent buffer a body that no probe reads.
func TestHTTP2UnreadBodyIsBounded(t *testing.T) {
	chunk := make([]byte, 1<<20)
	for _, status := range []int{http.StatusOK, http.StatusFound, http.StatusInternalServerError} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Location", "http://elsewhere/")
				w.WriteHeader(status)
				for {
					if _, err := w.Write(chunk); err != nil {
						return
					}
				}
			}))
			server.EnableHTTP2 = true
			server.StartTLS()
			defer server.Close()
			p, err := httpprobe.New(httpprobe.Config{Host: "127.0.0.1", Port: server.Listener.Addr().(*net.TCPAddr).Port, Scheme: "https"})
			require.NoError(t, err)
			const probes = 16
			costtest.Check(t, costtest.Limit{Bytes: probes * 768 << 10, Time: time.Minute}, func() {
				for range probes {
					_, err := probeOnce(t, p, 10*time.Second)
					require.NoError(t, err)
				}
			})
		})
	}
}

// Servers whose headers or bodies never end use bounded memory for the duration of the probe.
func TestMemoryIsBoundedForEndlessResponses(t *testing.T) {
	const below, beyond = 14 << 10, 250 << 10 // below and above the limit of a header
	for name, answer := range map[string]string{
		"header":                "A: " + strings.Repeat("x", below),
		"many headers":          manyHeaders(below),
		"body":                  manyHeaders(below) + "Content-Length: 5000\r\n\r\n" + strings.Repeat("x", 4000),
		"too many headers":      manyHeaders(beyond),
		"too many, then a body": manyHeaders(beyond) + "Content-Length: 5000\r\n\r\n" + strings.Repeat("x", 4000),
	} {
		t.Run(name, func(t *testing.T) {
			const probes = 64
			port, pool := serveBytes(t, []byte("HTTP/1.1 200 OK\r\n"+answer), true), newPool(t)
			before := heapInUse()
			var asked sync.WaitGroup
			for range probes {
				p, err := httpprobe.New(httpprobe.Config{Host: "127.0.0.1", Port: port, Pool: pool})
				require.NoError(t, err)
				asked.Go(func() { _, _ = probeOnce(t, p, 5*time.Second) })
			}
			time.Sleep(3 * time.Second)
			held := max(heapInUse(), before) - before
			t.Logf("%d KiB for each probe, with the server's end", held/probes>>10)
			assert.Less(t, held, uint64(probes*320<<10))
			asked.Wait()
		})
	}
}

// heapInUse returns the bytes of heap and stacks in use.
func heapInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}
