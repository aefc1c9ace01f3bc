// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodeapi_test

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/authtest"
	"github.com/seed81659283/nodeagent/internal/streaming/streamtest"
	"github.com/seed81659283/nodeagent/nodeapi"
)

// eventually reports whether a condition becomes true within a minute.
func eventually(condition func() bool) bool {
	for until := time.Now().Add(time.Minute); time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
		if condition() {
			return true
		}
	}
	return false
}

// memoryInUse returns the bytes of heap and stacks in use.
func memoryInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

// A thousand clients send their headers byte by byte, or nothing in place of a TLS handshake. They need bounded memory, do not block other
// clients, and are disconnected. NODEAGENT_SOAK=1 keeps all of them for as long as headers may take.
func TestSlowClientsAreDisconnectedInBoundedMemory(t *testing.T) {
	const clients = 1000
	o := nodeapi.Options{HeaderTimeout: 5 * time.Second}
	if os.Getenv("NODEAGENT_SOAK") == "1" {
		o = nodeapi.Options{MaxUnauthenticated: 2 * clients}
	}
	ca := authtest.NewAuthority(t, "ca")
	certificate := ca.Sign(t, x509.Certificate{Subject: pkix.Name{CommonName: "node"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	for _, config := range []*tls.Config{nil, {Certificates: []tls.Certificate{certificate}}} {
		t.Run(fmt.Sprintf("TLS=%t", config != nil), func(t *testing.T) {
			s := newServer(t, o)
			address, _ := serveListener(t, s, s.Handler(), config)
			scheme, begins := "http", "GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: "
			if config != nil {
				scheme, begins = "https", ""
			}
			client := &http.Client{
				Timeout:   30 * time.Second,
				Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: ca.Pool()}},
			}
			healthy := func() {
				t.Helper()
				r, err := client.Get(scheme + "://" + address + "/healthz")
				require.NoError(t, err)
				body, err := io.ReadAll(r.Body)
				require.NoError(t, err)
				require.NoError(t, r.Body.Close())
				require.Equal(t, "ok", string(body))
			}
			healthy()
			goroutines, before := runtime.NumGoroutine(), memoryInUse()
			all := make([]net.Conn, clients)
			for i := range all {
				c, err := net.Dial("tcp", address)
				require.NoError(t, err)
				defer c.Close()
				all[i] = c
				_, _ = io.WriteString(c, begins) // the server may have closed it already
				if i%200 == 199 {
					for _, c := range all[:i] {
						_, _ = io.WriteString(c, begins[:min(1, len(begins))])
					}
					healthy()
				}
			}
			memory := max(before, memoryInUse()) - before
			t.Logf("%d KiB for each connection", memory/clients>>10)
			assert.Less(t, memory, uint64(clients*64<<10), "memory of both ends")
			healthy()
			for i, c := range all {
				require.NoError(t, c.SetReadDeadline(time.Now().Add(2*time.Minute)))
				_, err := io.Copy(io.Discard, c) // the server may respond with a timeout
				if err != nil {                  // or reset the connection, before the deadline
					require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "connection %d is still open", i)
				}
				require.NoError(t, c.Close())
			}
			healthy()
			require.True(t, eventually(func() bool { return runtime.NumGoroutine() <= goroutines+2 }), "no goroutine of a request remains")
		})
	}
}

// A client that follows a log and reads one byte a second, or disappears, needs its own buffers only. The slow client is
// served. The one that disappeared is disconnected after the stall timeout.
func TestStalledLogFollowerIsDisconnected(t *testing.T) {
	const line, lines = 8000, 4000
	for _, vanishes := range []bool{false, true} {
		t.Run(fmt.Sprintf("vanishes=%t", vanishes), func(t *testing.T) {
			o := newOneContainer(t, strings.Repeat("2026-01-02T03:04:05Z stdout F "+strings.Repeat("x", line-1)+"\n", lines))
			var mu sync.Mutex
			ended := 0
			options := nodeapi.Options{Pods: o, Runtime: o, Hooks: nodeapi.Hooks{RequestCompleted: func(nodeapi.Request, time.Duration) {
				mu.Lock()
				defer mu.Unlock()
				ended++
			}}}
			requests := func() int {
				mu.Lock()
				defer mu.Unlock()
				return ended
			}
			if vanishes {
				options.StallTimeout = 6 * time.Second
			}
			s := newServer(t, options)
			address, _ := serveListener(t, s, s.Handler(), nil)
			relay, err := streamtest.StartRelay(t.Context(), address)
			require.NoError(t, err)
			defer relay.Close()
			before := memoryInUse()

			c, err := net.Dial("tcp", relay.Address())
			require.NoError(t, err)
			defer c.Close()
			_, err = io.WriteString(c, "GET /containerLogs/ns/p/c?follow=true HTTP/1.1\r\nHost: x\r\n\r\n")
			require.NoError(t, err)
			status, err := bufio.NewReader(c).ReadString('\n')
			require.NoError(t, err)
			require.Contains(t, status, "200")
			if vanishes {
				relay.DropPackets()
			} else {
				relay.SetDelay(time.Second)
			}
			const others = 5
			for range others {
				r, err := http.Get("http://" + address + "/containerLogs/ns/p/c")
				require.NoError(t, err)
				n, err := io.Copy(io.Discard, r.Body)
				require.NoError(t, err)
				require.NoError(t, r.Body.Close())
				require.EqualValues(t, line*lines, n)
			}
			assert.Less(t, max(before, memoryInUse())-before, uint64(16<<20), "memory of both ends and of the network")
			if !vanishes {
				require.True(t, eventually(func() bool { return requests() >= others }))
				require.Equal(t, others, requests(), "the request of the slow client is still served")
				relay.Close()
			}
			require.True(t, eventually(func() bool { return requests() == others+1 }), "the request must end")
		})
	}
}
