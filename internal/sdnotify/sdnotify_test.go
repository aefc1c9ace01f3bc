// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package sdnotify_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/sdnotify"
)

const pid = 42

// newNotifier returns the Notifier of an environment.
func newNotifier(variables map[string]string) (*sdnotify.Notifier, error) {
	return sdnotify.New(func(name string) string { return variables[name] }, pid)
}

// newSystemd returns a socket like that of systemd, its path, and a function that returns the next notification.
func newSystemd(t *testing.T) (path string, next func(wait time.Duration) string) {
	dir, err := os.MkdirTemp("", "notify") // the path of a socket is short
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	path = filepath.Join(dir, "s")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, conn.Close()) })
	return path, func(wait time.Duration) string {
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(wait)))
		buffer := make([]byte, 100)
		n, err := conn.Read(buffer)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return ""
		}
		require.NoError(t, err)
		return string(buffer[:n])
	}
}

// systemd is notified as long as the service is healthy.
func TestRunNotifiesReadyAndWatchdogWhileHealthy(t *testing.T) {
	path, next := newSystemd(t)
	n, err := newNotifier(map[string]string{"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "1000001", "WATCHDOG_PID": "42"})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	var sick atomic.Bool
	wg.Go(func() {
		n.Run(ctx, func() error {
			if sick.Load() {
				return errors.New("sick")
			}
			return nil
		}, slog.New(slog.DiscardHandler))
	})
	require.Equal(t, "READY=1", next(time.Minute))
	for range 3 {
		require.Equal(t, "WATCHDOG=1", next(time.Minute))
	}
	sick.Store(true)
	next(time.Second) // one may be on its way
	require.Empty(t, next(time.Second))
	sick.Store(false)
	require.Equal(t, "WATCHDOG=1", next(time.Minute))
}

// Without a watchdog, or with that of another process, only the readiness is reported. Without systemd, nothing is.
func TestRunReturnsWithoutWatchdog(t *testing.T) {
	path, next := newSystemd(t)
	unused := func() error { panic("unused") }
	for _, variables := range []map[string]string{
		{"NOTIFY_SOCKET": path},
		{"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "2000000", "WATCHDOG_PID": "1"},
		{"WATCHDOG_USEC": "2000000"},
		{"NOTIFY_SOCKET": path + ".missing"},
		{},
	} {
		n, err := newNotifier(variables)
		require.NoError(t, err)
		n.Run(t.Context(), unused, slog.New(slog.DiscardHandler))
		want := ""
		if variables["NOTIFY_SOCKET"] == path {
			want = "READY=1"
		}
		require.Equal(t, want, next(10*time.Millisecond), variables)
	}
}

func TestNewNamesInvalidVariable(t *testing.T) {
	for _, text := range []string{"x", "-1", "0", "1000000", "9223372036854775807"} {
		_, err := newNotifier(map[string]string{"WATCHDOG_USEC": text})
		require.EqualError(t, err, `WATCHDOG_USEC: "`+text+`" is no number of microseconds above 1000000`)
	}
	_, err := newNotifier(map[string]string{"WATCHDOG_USEC": "2000000", "WATCHDOG_PID": "me"})
	require.EqualError(t, err, `WATCHDOG_PID: "me" is no process ID`)
}
