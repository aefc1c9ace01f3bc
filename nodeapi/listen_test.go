// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodeapi_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
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

// While another program has the port, RunHealthz retries.
func TestRunHealthzWaitsForBusyPort(t *testing.T) {
	busy, err := nodeapi.ListenAll(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	address := busy[0].Addr().String()
	failed := make(chan struct{})
	closeOnce := sync.OnceFunc(func() { close(failed) })
	logger := slog.New(slog.NewTextHandler(writerFunc(func(p []byte) (int, error) { closeOnce(); return len(p), nil }), nil))
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { assert.NoError(t, nodeapi.RunHealthz(ctx, address, logger)) })
	<-failed // the first attempt to listen
	require.NoError(t, busy[0].Close())
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		resp, err := (&http.Client{Timeout: time.Second}).Get("http://" + address + "/healthz")
		require.NoError(c, err)
		assert.NoError(c, resp.Body.Close())
		assert.Equal(c, http.StatusOK, resp.StatusCode)
	}, time.Minute, 10*time.Millisecond)
}

// failingListener fails to accept connections, like a listener whose socket another program has shut down.
type failingListener struct{ net.Listener }

func (failingListener) Accept() (net.Conn, error) { return nil, errors.New("invalid argument") }

// After a listener that fails, and a port that is busy, the page is served on the next listener: RunHealthz does not end.
func TestRunHealthzListensAgainAfterListenerFails(t *testing.T) {
	var log bytes.Buffer
	attempts := 0
	served := make(chan string, 1)
	listen := func() (net.Listener, error) {
		attempts++
		if attempts == 2 {
			return nil, errors.New("address already in use")
		}
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		if attempts == 1 {
			return failingListener{l}, nil
		}
		served <- l.Addr().String()
		return l, nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { assert.NoError(t, nodeapi.RunHealthzOn(ctx, listen, slog.New(slog.NewTextHandler(&log, nil)))) })
	resp, err := (&http.Client{Timeout: time.Minute}).Get("http://" + <-served + "/healthz")
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	cancel()
	wg.Wait()
	assert.Equal(t, 3, attempts)
	assert.Equal(t, 2, strings.Count(log.String(), "serve healthz"), log.String())
	assert.Contains(t, log.String(), "invalid argument")
	assert.Contains(t, log.String(), "address already in use")
}
