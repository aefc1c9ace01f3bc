// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package httpprobe

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Repeated Close calls release a body once. Its connection is not kept if the context ends between the last byte and Close, which
// would interrupt the connection later.
func TestKeptBodyIsReleasedOnce(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") }))
	defer server.Close()
	k := &keepAliveTransport{max: 10}
	defer k.CloseIdleConnections()
	for _, late := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
		require.NoError(t, err)
		res, err := k.RoundTrip(req)
		require.NoError(t, err)
		require.Empty(t, k.idle)
		text, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.Equal(t, "ok", string(text))
		if late {
			cancel()
		}
		require.NoError(t, res.Body.Close())
		require.NoError(t, res.Body.Close())
		if late {
			assert.Empty(t, k.idle)
		} else {
			assert.Len(t, k.idle, 1)
		}
		_, err = res.Body.Read(make([]byte, 1))
		require.ErrorIs(t, err, http.ErrBodyReadAfterClose)
	}
}
