// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package systemd_test

import (
	"context"
	"errors"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups/driver/internal/systemd"
	"github.com/seed81659283/nodeagent/cgroups/driver/internal/systemd/systemdtest"
)

// A start succeeds after any temporary fault.
func TestEnsureSucceedsAfterTemporaryFaults(t *testing.T) {
	for name, inject := range map[string]func(*systemdtest.Systemd){
		"job result before method reply":  func(s *systemdtest.Systemd) { s.Inject("StartTransientUnit", systemdtest.EarlyResult) },
		"result lost":                     func(s *systemdtest.Systemd) { s.Inject("StartTransientUnit", systemdtest.NoResult) },
		"canceled by another job":         func(s *systemdtest.Systemd) { s.Inject("StartTransientUnit", systemdtest.Canceled) },
		"connection lost before the call": func(s *systemdtest.Systemd) { s.Inject("StartTransientUnit", systemdtest.Disconnect) },
		"connection lost after the call":  func(s *systemdtest.Systemd) { s.Inject("StartTransientUnit", systemdtest.DisconnectAfterCall) },
		"result of another job":           func(s *systemdtest.Systemd) { s.Inject("StartTransientUnit", systemdtest.OtherJobResult) },
		"systemd leaves the bus":          func(s *systemdtest.Systemd) { s.Inject("StartTransientUnit", systemdtest.NoReply) },
		"connection lost more than once":  func(s *systemdtest.Systemd) { s.Inject("Get", systemdtest.Disconnect, systemdtest.Disconnect) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, client := start(t)
			inject(server)
			require.NoError(t, ensure(t, client, burstable(t, 1000)))
			u := server.Unit("kubepods-burstable.slice")
			assert.Equal(t, "active", u.State)
			assert.Equal(t, uint64(1000), u.Properties["MemoryMax"].Value())
			require.NoError(t, client.Stop(t.Context(), "kubepods-burstable.slice"))
		})
	}
}

// A permanent fault returns an error in time that names the unit, and the client works afterwards.
func TestEnsureReturnsErrorForPermanentFaults(t *testing.T) {
	for name, test := range map[string]struct {
		method string
		fault  systemdtest.Fault
		says   string
		late   bool // the error is a timeout
		times  int
	}{
		"no reply":                         {"StartTransientUnit", systemdtest.Hang, "no reply", true, 1},
		"no greeting":                      {"Auth", systemdtest.Hang, "authenticate", true, 1},
		"no version":                       {"Get", systemdtest.Hang, "query version", true, 8}, // at 0, 20, 60, 140, 300, 620, 1260 and 2540 ms
		"job does not end":                 {"StartTransientUnit", systemdtest.JobHangs, "wait for job", true, 1},
		"job fails":                        {"StartTransientUnit", systemdtest.Failed, "job ended: failed", false, 1},
		"denied":                           {"StartTransientUnit", systemdtest.Denied, "Permission denied", false, 1},
		"bus does not register the client": {"Hello", systemdtest.Hang, "register with the bus", true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, client := startWith(t, test.method == "Hello", systemd.Options{
				CallTimeout: 4 * time.Second, JobTimeout: 5 * time.Second,
			})
			server.Inject(test.method, slices.Repeat([]systemdtest.Fault{test.fault}, test.times)...)
			err := ensure(t, client, burstable(t, 1000))
			require.ErrorContains(t, err, "start unit kubepods-burstable.slice: ")
			assert.ErrorContains(t, err, test.says)
			assert.Equal(t, test.late, errors.Is(err, context.DeadlineExceeded), "%v", err)

			require.NoError(t, ensure(t, client, burstable(t, 1000)))
			require.NoError(t, client.Stop(t.Context(), "kubepods-burstable.slice"))
		})
	}
}

// systemd on its private socket may ignore a message directly after the authentication until the next message arrives.
func TestVersionIsQueriedAgain(t *testing.T) {
	server, client := start(t)
	server.Inject("Get", systemdtest.Hang)
	version, err := client.Version(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 252, version)
}

// The result of a job is lost when systemd re-executes itself; the state of the unit is not.
func TestEnsureReadsStateAfterLostConnection(t *testing.T) {
	server, client := start(t)
	require.NoError(t, ensure(t, client, burstable(t, 1000)))
	server.Inject("StopUnit", systemdtest.JobHangs)
	stopped := make(chan error)
	go func() { stopped <- client.Stop(t.Context(), "kubepods-burstable.slice") }()
	require.Eventually(t, func() bool { return server.Unit("kubepods-burstable.slice").Job != 0 }, time.Minute, time.Millisecond)

	server.SetUnit("kubepods-burstable.slice", systemdtest.Unit{State: "failed"})
	server.DisconnectAll()
	require.NoError(t, <-stopped)
	assert.Empty(t, server.Unit("kubepods-burstable.slice").State)
}

// A message bus that restarts is unavailable for a moment.
func TestCallsSucceedDuringBusRestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	server, err := systemdtest.Start(path, true)
	require.NoError(t, err)
	client := systemd.New(systemd.Options{Sockets: []systemd.Socket{{Path: path, Bus: true}}})
	defer client.Close()
	require.NoError(t, ensure(t, client, burstable(t, 1000)))
	server.Close()

	back := make(chan *systemdtest.Systemd)
	time.AfterFunc(200*time.Millisecond, func() {
		again, err := systemdtest.Start(path, true)
		assert.NoError(t, err)
		back <- again
	})
	done := make(chan error)
	go func() { done <- ensure(t, client, burstable(t, 1000)) }()
	server = <-back
	defer server.Close()
	require.NoError(t, <-done)
	assert.Equal(t, "active", server.Unit("kubepods-burstable.slice").State)
}

// A canceled call does not affect other calls, and calls on its connection are repeated.
func TestCanceledCallDoesNotAffectOthers(t *testing.T) {
	server, client := start(t)
	require.NoError(t, ensure(t, client, burstable(t, 1000)))
	server.Inject("StartTransientUnit", systemdtest.Hang)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		assert.Eventually(t, func() bool { return server.Pending("StartTransientUnit") == 0 }, time.Minute, time.Millisecond)
	}()
	_, err := client.Ensure(ctx, burstable(t, 1000))
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, ensure(t, client, burstable(t, 1000)))
}

// A peer that stops reading blocks no call beyond its deadline, not even one that is sending.
func TestPeerThatStopsReadingBlocksUntilDeadline(t *testing.T) {
	server, client := startWith(t, false, systemd.Options{CallTimeout: 4 * time.Second})
	server.Inject("StartTransientUnit", systemdtest.StopReading)
	require.NoError(t, ensure(t, client, systemd.Slice{Unit: "a.slice"}))
	require.ErrorIs(t, client.Stop(t.Context(), "a.slice"), context.DeadlineExceeded)
	require.NoError(t, client.Stop(t.Context(), "a.slice"), "the second Stop uses a new connection")

	server.Inject("StartTransientUnit", systemdtest.StopReading)
	require.NoError(t, ensure(t, client, systemd.Slice{Unit: "a.slice"}))
	long := systemd.Slice{Unit: "b.slice", Description: strings.Repeat("x", 1<<20)} // more than the socket buffers hold
	errs := make(chan error)
	for range 3 {
		go func() { errs <- ensure(t, client, long) }()
	}
	for range 3 {
		select {
		case err := <-errs: // pending calls continue on a new connection
			if err != nil {
				assert.ErrorIs(t, err, context.DeadlineExceeded)
			}
		case <-time.After(time.Minute):
			t.Fatal("a call does not return")
		}
	}
	require.NoError(t, ensure(t, client, long))
}

// After Close no goroutine runs, for any state of the connections.
func TestCloseLeavesNoGoroutine(t *testing.T) {
	before := runtime.NumGoroutine()
	var all sync.WaitGroup
	for range 5 {
		path := filepath.Join(t.TempDir(), "s")
		server, err := systemdtest.Start(path, true)
		require.NoError(t, err)
		server.Inject("StartTransientUnit", systemdtest.Disconnect, systemdtest.Hang)
		client := systemd.New(systemd.Options{
			Sockets: []systemd.Socket{{Path: path, Bus: true}}, CallTimeout: 4 * time.Second,
		})
		all.Go(func() {
			assert.Error(t, ensure(t, client, burstable(t, 1000)))
			assert.NoError(t, ensure(t, client, burstable(t, 1000)))
			assert.NoError(t, client.Close())
			server.Close()
		})
	}
	all.Wait()
	deadline := time.Now().Add(time.Minute)
	for runtime.NumGoroutine() > before && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
	}
	assert.LessOrEqual(t, runtime.NumGoroutine(), before)
}
