// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodeapi_test

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/nodeapi"
)

func TestListenAllClosesListenersAfterAnError(t *testing.T) {
	listeners, err := nodeapi.ListenAll(t.Context(), "127.0.0.1:0", "127.0.0.1:0")
	require.NoError(t, err)
	require.Len(t, listeners, 2)
	free, busy := listeners[0].Addr().String(), listeners[1].Addr().String()
	require.NoError(t, listeners[0].Close())
	defer listeners[1].Close()

	_, err = nodeapi.ListenAll(t.Context(), free, busy)
	require.ErrorContains(t, err, "address already in use")
	again, err := net.Listen("tcp", free)
	require.NoError(t, err, "ListenAll closes the first listener when the second fails")
	require.NoError(t, again.Close())
}

// writerFunc implements io.Writer with a function.
type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// While another program has the port, ListenAndRun retries.
func TestListenAndRunWaitsForBusyPort(t *testing.T) {
	busy, err := nodeapi.ListenAll(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	address := busy[0].Addr().String()
	failed := make(chan struct{})
	closeOnce := sync.OnceFunc(func() { close(failed) })
	logger := slog.New(slog.NewTextHandler(writerFunc(func(p []byte) (int, error) { closeOnce(); return len(p), nil }), nil))
	s, err := nodeapi.New(nodeapi.Options{Insecure: true, Logger: logger})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { assert.NoError(t, s.ListenAndRun(ctx, address, s.Healthz())) })
	<-failed // the first attempt to listen
	require.NoError(t, busy[0].Close())
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		resp, err := (&http.Client{Timeout: time.Second}).Get("http://" + address + "/healthz")
		require.NoError(c, err)
		assert.NoError(c, resp.Body.Close())
		assert.Equal(c, http.StatusOK, resp.StatusCode)
	}, time.Minute, 10*time.Millisecond)
}
