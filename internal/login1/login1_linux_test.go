// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package login1_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/login1"
	"github.com/seed81659283/nodeagent/internal/login1/login1test"
)

// startLogind starts a fake logind, and returns it with a connection to it.
func startLogind(t *testing.T) (*login1test.Logind, *login1.Conn) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "bus")
	logind, err := login1test.Start(socket)
	require.NoError(t, err)
	t.Cleanup(logind.Close)
	conn, err := login1.Dial(t.Context(), login1.Options{Socket: socket, Timeout: time.Minute})
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	return logind, conn
}

func TestInhibitorOutlivesConnection(t *testing.T) {
	logind, conn := startLogind(t)
	lock, err := conn.Inhibit(t.Context(), "kubelet", "pods stop")
	require.NoError(t, err)
	assert.Equal(t, 1, logind.InhibitorCount())
	assert.Contains(t, logind.Calls(), "Inhibit shutdown kubelet pods stop delay")
	logind.CloseConnections()
	assert.Equal(t, 1, logind.InhibitorCount(), "the inhibitor outlives the connection")
	require.NoError(t, lock.Close())
	require.Eventually(t, func() bool { return logind.InhibitorCount() == 0 }, time.Minute, time.Millisecond)
}

func TestWriteInhibitDelayTakesEffectAfterReload(t *testing.T) {
	logind, conn := startLogind(t)
	logind.ConfigDir = filepath.Join(t.TempDir(), "logind.conf.d")
	delay, err := conn.InhibitDelayMax(t.Context())
	require.NoError(t, err)
	require.Equal(t, 5*time.Second, delay)
	require.NoError(t, login1.WriteInhibitDelay(logind.ConfigDir, 36500*time.Millisecond))
	require.NoError(t, conn.Reload(t.Context()))
	delay, err = conn.InhibitDelayMax(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 37*time.Second, delay)
	assert.Contains(t, logind.Calls(), "KillUnit systemd-logind.service all 1")
	text, err := os.ReadFile(filepath.Join(logind.ConfigDir, "99-kubelet.conf"))
	require.NoError(t, err)
	assert.Contains(t, string(text), "[Login]\nInhibitDelayMaxSec=37\n")
}

// Watch reads the state from the property of logind. A signal without a change of the property calls no function.
func TestWatchReadsPropertyAfterSignal(t *testing.T) {
	logind, conn := startLogind(t)
	states := make(chan bool, 8)
	ended := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() { ended <- conn.Watch(ctx, func(shutdown bool) { states <- shutdown }) }()
	require.False(t, <-states)
	logind.SendSignal(true)
	logind.Shutdown()
	require.True(t, <-states)
	logind.CancelShutdown()
	require.False(t, <-states)
	assert.Empty(t, states)
	logind.CloseConnections()
	assert.Error(t, <-ended, "the connection is closed")
}

func TestErrorsNameCall(t *testing.T) {
	logind, conn := startLogind(t)
	logind.SetDenied("Inhibit", true)
	_, err := conn.Inhibit(t.Context(), "kubelet", "")
	assert.EqualError(t, err, "inhibit shutdown: Permission denied")
	logind.SetDenied("KillUnit", true)
	assert.EqualError(t, conn.Reload(t.Context()), "reload logind: Permission denied")

	logind.SetSilent("Get", true)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = conn.InhibitDelayMax(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.NoError(t, conn.Watch(ctx, func(bool) { t.Error("the function is called without a known state") }))

	_, err = login1.Dial(t.Context(), login1.Options{Socket: filepath.Join(t.TempDir(), "none")})
	require.ErrorIs(t, err, os.ErrNotExist)
	assert.ErrorContains(t, err, "connect to logind by ")
	assert.ErrorContains(t, login1.WriteInhibitDelay(filepath.Join(os.DevNull, "dir"), time.Second), "override InhibitDelayMaxSec: ")
}

// Dial returns at its timeout if the bus accepts the connection and sends nothing.
func TestDialTimesOutOnSilentBus(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "bus")
	logind, err := login1test.Start(socket)
	require.NoError(t, err)
	defer logind.Close()
	logind.SetSilent("AddMatch", true)
	_, err = login1.Dial(t.Context(), login1.Options{Socket: socket, Timeout: 50 * time.Millisecond})
	assert.ErrorIs(t, err, context.DeadlineExceeded)
}
