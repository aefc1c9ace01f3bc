// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package streaming

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/streaming/upgrade"
)

// For any request of a client, the runtime reads a single request without a body, for the path of its own URL.
func FuzzRuntimeRequest(f *testing.F) {
	f.Add("POST /x HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4\r\n\r\n", "http://127.0.0.1:1/exec/t")
	f.Add("GET /x HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Protocol: a, b\r\n"+
		"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n", "http://127.0.0.1/exec?a=b")
	f.Fuzz(func(t *testing.T, request, location string) {
		r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader([]byte(request))))
		if err != nil || upgrade.Check(r) != nil || r.Method != http.MethodGet && r.Method != http.MethodPost {
			return
		}
		e, err := parseURL(location, false)
		if err != nil {
			return
		}
		assert.True(t, isLoopback(e.host))
		wire := bufio.NewReader(bytes.NewReader(e.buildRequest(r.Method, forwardedHeaders(r))))
		got, err := http.ReadRequest(wire)
		require.NoError(t, err)
		assert.Zero(t, got.ContentLength)
		assert.Empty(t, got.TransferEncoding)
		assert.Equal(t, e.url.Host, got.Host)
		assert.Equal(t, r.Method, got.Method)
		rest, err := io.ReadAll(wire)
		require.NoError(t, err)
		assert.Empty(t, rest)
		for name := range got.Header {
			assert.Contains(t, []string{
				"Connection", "Upgrade", "User-Agent", "Content-Length", upgrade.HeaderProtocol, upgrade.HeaderWebSocket,
				"Sec-Websocket-Key", "Sec-Websocket-Version", "Sec-Websocket-Extensions",
			}, name)
		}
	})
}

// The check returns the time until the next check, or the error that ends the session.
func TestIdleLimitsCheck(t *testing.T) {
	now := time.Unix(1000, 0)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	tests := []struct {
		name           string
		l              idleLimits
		moved, waiting time.Time
		next           time.Duration
		why            error
	}{
		{"no limits", idleLimits{-1, -1}, ago(time.Hour), ago(time.Hour), 0, nil},
		{"fresh", idleLimits{10 * time.Second, 20 * time.Second}, now, time.Time{}, 10 * time.Second, nil},
		{"idle for less than the limit", idleLimits{10 * time.Second, 20 * time.Second}, ago(4 * time.Second), time.Time{}, 6 * time.Second, nil},
		{"idle", idleLimits{10 * time.Second, 20 * time.Second}, ago(10 * time.Second), time.Time{}, 0, ErrIdleTimeout},
		{"blocked write", idleLimits{time.Hour, 20 * time.Second}, now, ago(5 * time.Second), 15 * time.Second, nil},
		{"blocked write beyond the limit", idleLimits{time.Hour, 20 * time.Second}, now, ago(20 * time.Second), 0, ErrStallTimeout},
		{"no idle limit and no blocked write", idleLimits{-1, 20 * time.Second}, ago(time.Hour), time.Time{}, 20 * time.Second, nil},
		{"idle alone", idleLimits{10 * time.Second, -1}, ago(time.Second), ago(time.Hour), 9 * time.Second, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			next, why := test.l.check(now, test.moved, test.waiting)
			require.ErrorIs(t, why, test.why)
			if test.next == 0 {
				assert.True(t, next.IsZero())
			} else {
				assert.Equal(t, test.next, next.Sub(now))
			}
		})
	}
}
